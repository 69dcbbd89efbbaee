"""Drawing of a query above a text: each query token's best match, and the part that the mean keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolscope.show.charts import COLOURS, Drawing, translucent
from poolscope.words import escape

if TYPE_CHECKING:
    from poolscope.evaluation.matches import TokenMatch, TokenMatches

_WIDTH, _MARGIN = 860, 20
_LETTER, _SIZE, _LINE = 7.85, 13, 25  # of a letter of the fixed font: its width, its size; pixels from line to line
_COLUMN, _BARS = 64, 56  # least width of a query token, and the height of a bar of 1
_BAR = 14  # width of a bar
_BELOW = 54  # pixels from the top of the bars' place to below the numbers
_ROW = _BARS + _BELOW + 22  # pixels of a row of query tokens
_REACH = 46  # pixels between the query and the text
_LETTERS_SHOWN = 14  # of a query token
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_WORDS = "Helvetica, Arial, sans-serif"
_INK, _QUIET, _PALE = "#222222", "#666666", "#b8b8b8"


@dataclass(frozen=True)
class _Box:
    """A token on the page: its left end, its middle line, its width."""

    x: float
    y: float
    width: float
    words: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def drawing_of(results: Sequence[TokenMatches]) -> Drawing:
    """One part for each text, below each other, and the legend."""
    parts, top = [], 30.0
    for number, result in enumerate(results, start=1):
        drawn, top = _part(result, top, f"Text {number}: " if len(results) > 1 else "")
        parts += drawn
        top += 34
    legend, top = _legend(top - 14)
    parts += legend
    height = round(top)
    style = f'font-family="{_FONT}" font-size="{_SIZE}" paint-order="stroke"'
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {style}>{ground}{"".join(parts)}</svg>',
        _WIDTH,
        height,
    )


def _part(result: TokenMatches, top: float, name: str) -> tuple[list[str], float]:
    """The drawing of one text from `top` on, and where it ends."""
    title = f"{name}MaxSim {result.maxsim:.2f}, cosine of the means {result.cosine:.2f}"
    parts = [_text(_MARGIN, top, title, size=15, font=_WORDS)]
    of_query, bottom = _columns(result.matches, top + 28)
    answered, end = _lines([token.token for token in result.tokens], bottom + _REACH)
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(result.matches))]
    counted = [k for k, match in enumerate(result.matches) if match.counts]
    strength: dict[int, tuple[float, str]] = {}
    for k in counted:
        match = result.matches[k]
        strength[match.position] = max(strength.get(match.position, (-2.0, "")), (match.similarity, colours[k]))
    for k in counted:
        parts.append(_link(of_query[k], answered[result.matches[k].position], colours[k], result.matches[k].similarity))
    for place, box in enumerate(answered):
        if place in strength:
            similarity, colour = strength[place]
            parts.append(_shade(box, colour, similarity))
        parts.append(
            _text(box.x, box.y, box.words, colour=_INK if place in strength else _QUIET, halo=place not in strength)
        )
    for k, (box, match) in enumerate(zip(of_query, result.matches, strict=True)):
        parts += _query_token(box, match, colours[k])
    return parts, end


def _query_token(box: _Box, match: TokenMatch, colour: str) -> Iterator[str]:
    """The token, two bars below it (its best match, the mean of the text), and its part of MaxSim − cosine."""
    yield _text(
        box.middle, box.y, box.words, colour=_INK if match.counts else _PALE, anchor="middle", bold=match.counts
    )
    if not match.counts:
        yield _text(box.middle, box.y + 18, "not counted", size=10, colour=_PALE, anchor="middle", font=_WORDS)
        return
    floor = box.y + 24 + _BARS
    for side, value, fill in ((-1, match.similarity, colour), (1, match.to_mean, _PALE)):
        height = _BARS * max(value, 0.0)
        x = box.middle + (1 if side > 0 else -_BAR - 1)
        yield f'<rect x="{x:.1f}" y="{floor - height:.1f}" width="{_BAR}" height="{height:.1f}" fill="{fill}"/>'
        at, anchor = (box.middle - 2, "end") if side < 0 else (box.middle + 2, "start")
        yield _text(at, floor + 12, _number(value, ".2f"), size=10, colour=_QUIET, anchor=anchor, font=_WORDS)
    part = _number(match.contribution, "+.3f")
    yield _text(box.middle, floor + 26, part, size=10, colour=_INK, anchor="middle", font=_WORDS)


def _number(value: float, digits: str) -> str:
    return f"{value:{digits}}".replace("-", "−")


def _columns(matches: Sequence[TokenMatch], top: float) -> tuple[list[_Box], float]:
    """Query tokens in columns, as many rows as they need, and where these end."""
    boxes, x, y = list[_Box](), float(_MARGIN), top
    for match in matches:
        words = _words(match.token).strip()
        words = words if len(words) <= _LETTERS_SHOWN else words[: _LETTERS_SHOWN - 1] + "…"
        width = max(_COLUMN, len(words) * _LETTER + 12)
        if x + width > _WIDTH - _MARGIN and boxes:
            x, y = float(_MARGIN), y + _ROW
        boxes.append(_Box(x, y, width, words))
        x += width
    return boxes, y + _BARS + _BELOW


def _lines(tokens: Sequence[str], top: float) -> tuple[list[_Box], float]:
    """Text tokens in lines, a gap before each new word, no word broken that fits a line, and where these end."""
    read = [_words(token) for token in tokens]
    boxes, x, y = [], float(_MARGIN), top
    for place, words in enumerate(read):
        begins = not place or words.startswith(" ")
        gap = _LETTER if begins and x > _MARGIN else 0.0
        following = next((k for k in range(place + 1, len(read)) if read[k].startswith(" ")), len(read))
        word = sum(len(piece.strip()) for piece in read[place:following]) * _LETTER if begins else 0.0
        words = words.strip() or "␣"
        width = len(words) * _LETTER
        if x + gap + max(width, min(word, _WIDTH / 2)) > _WIDTH - _MARGIN and x > _MARGIN:
            x, y, gap = float(_MARGIN), y + _LINE, 0.0
        boxes.append(_Box(x + gap, y, width, words))
        x += gap + width
    return boxes, y + _LINE / 2


def _words(token: str) -> str:
    """A token as it is read, with a blank in front where it begins a word.

    >>> _words("##ing"), _words("Ġcat"), _words("dog"), _words(",")
    ('ing', ' cat', ' dog', ',')
    """
    if token.startswith("##") and len(token) > 2:
        return token[2:]
    if token[:1] in ("Ġ", "▁"):
        return " " + token[1:]
    return f" {token}" if token[:1].isalnum() or token[:1] in "[<(\"'" else token


def _link(of_query: _Box, of_text: _Box, colour: str, similarity: float) -> str:
    """A curve from below the bars of a query token to the token that it found."""
    start, end = of_query.y + _BARS + _BELOW, of_text.y - 13
    bend = max(18.0, (end - start) / 2)
    path = (
        f"M {of_query.middle:.1f} {start:.1f} C {of_query.middle:.1f} {start + bend:.1f}, "
        f"{of_text.middle:.1f} {end - bend:.1f}, {of_text.middle:.1f} {end:.1f}"
    )
    width = 0.8 + 2.4 * max(similarity, 0.0)
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-opacity="0.55" stroke-width="{width:.1f}"/>'


def _shade(box: _Box, colour: str, similarity: float) -> str:
    fill = translucent(colour, round(0.12 + 0.4 * max(similarity, 0.0), 2))
    return (
        f'<rect x="{box.x - 2:.1f}" y="{box.y - 14:.1f}" width="{box.width + 4:.1f}" height="19" rx="3" fill="{fill}" '
        f'stroke="{colour}" stroke-width="1"/>'
    )


def _legend(top: float) -> tuple[list[str], float]:
    """What bars and numbers mean, a line each, and where it ends."""
    words = (
        (COLOURS[0], "in colour: cosine of the query token with the text token that it found"),
        (_PALE, "cosine of the query token with the mean of the text: what pooling leaves"),
        ("none", "with a sign: what the token adds to MaxSim − cosine"),
    )
    parts = []
    for colour, meaning in words:
        parts.append(f'<rect x="{_MARGIN}" y="{top - 10:.1f}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(_MARGIN + 18, top, meaning, size=12, colour=_QUIET, font=_WORDS))
        top += 18
    return parts, top


def _text(
    x: float,
    y: float,
    words: str,
    *,
    colour: str = _INK,
    size: int = _SIZE,
    anchor: str = "start",
    bold: bool = False,
    font: str = "",
    halo: bool = True,
) -> str:
    """Words, on a ground of their own that keeps the links behind them apart."""
    look = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    look += f' font-family="{font}"' if font else ""
    look += ' font-weight="bold"' if bold else ""
    look += ' stroke="#ffffff" stroke-width="3"' if halo else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(words)}</text>'
