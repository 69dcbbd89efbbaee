"""The pairs that a page lets the reader look at: a thinned set, each with its texts, its tokens and its picture."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import FlatCloud, PairProjection, pair_figure, project_pair, token_contributions
from poolscope.metrics.socm.result import PairColumns, SocmResult
from poolscope.numbers.bures.pairs import workers
from poolscope.report.sections import figure_data, kept_text, packed

# Tokens of each cloud that are drawn, and tokens of a text that are marked.
DRAWN_TOKENS, MARKED_TOKENS = 64, 6
# Coordinates are whole numbers of this share of the largest one.
_STEPS = 30_000


@dataclass(frozen=True)
class PairExplorer:
    """The data behind the scatter of d_μ and d_Σ, and what was left out.

    `section` is the key of the section it stands in (None: one of its own, after all others).
    """

    thinning: str
    section: str | None
    data: dict[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.data["pairs"]["i"])


def pair_explorer(
    clouds: TokenClouds,
    result: SocmResult,
    *,
    neighbours: SocmResult | None = None,
    vocabulary: Vocabulary | None = None,
    worst: int = 100,
    nearest: int = 100,
    random: int = 100,
    seed: int = 0,
    section: str | None = None,
) -> PairExplorer:
    """Choose pairs of one corpus for a page, and prepare what the page shows of each.

    Kept are the `worst` pairs of highest SOCM among those of `result`, the `nearest` pairs of highest SOCM among texts
    and their nearest neighbours, and a `random` sample of the rest (`seed`). `neighbours` is the result over
    nearest-neighbour pairs if there is one already. `vocabulary` names the tokens (an encoder has it); without it no
    token is marked in the texts.
    """
    if result.left is None or result.left is not result.right or len(result.left) != len(clouds):
        sides = " with ".join("unknown" if side is None else f"{len(side)}" for side in (result.left, result.right))
        raise InputError(
            f"result: received pairs of {sides} texts, and {len(clouds)} clouds; needed: pairs within one corpus, and "
            f"its clouds. Pass socm(clouds) and the same clouds."
        )
    chosen, reasons, kinds, thinning = _chosen(
        clouds, result, neighbours, worst=worst, nearest=nearest, random=random, seed=seed
    )
    pairs = list(zip(chosen.i.tolist(), chosen.j.tolist(), strict=True))
    words: dict[str, int] = {}  # names of tokens, each once: a token is then the place of its name
    texts = {k: _Text(clouds, k, vocabulary, words) for k in np.unique(pairs).tolist()}
    with workers() as pool:
        couples = [[clouds[k] for k in pair] for pair in pairs]
        pictures = list(pool.map(lambda couple: project_pair(*couple), couples))
        added = list(pool.map(lambda couple: token_contributions(*couple), couples))
    details = [
        _detail(picture, shares, (texts[i], texts[j]))
        for picture, shares, (i, j) in zip(pictures, added, pairs, strict=True)
    ]
    place = {k: position for position, k in enumerate(texts)}
    limit = characters_each(len(texts))
    places = "int16" if len(words) < 2**15 else "int32"
    data = {
        "pairs": {
            "i": [place[i] for i, _ in pairs],
            "j": [place[j] for _, j in pairs],
            "d_mu": _digits(chosen.mean_distance),
            "d_sigma": _digits(chosen.covariance_distance),
            "socm": _digits(chosen.socm),
            "reasons": reasons,
        },
        "kinds": kinds,
        "texts": [text.shown(limit, places) for text in texts.values()],
        "places": places,
        "details": details,
        "words": list(words),
        "figure": figure_data("two clouds", pair_figure(project_pair(*(clouds[k] for k in pairs[0])))),
        "exponents": [result.provenance["settings"][name] for name in ("a", "b")],
    }
    return PairExplorer(thinning, section, data)


def drawn_positions(tokens: int) -> NDArray[np.int64]:
    """Which tokens of a cloud are drawn: all, or DRAWN_TOKENS of them at even steps.

    >>> drawn_positions(3).tolist(), len(drawn_positions(1000)), int(drawn_positions(1000)[-1])
    ([0, 1, 2], 64, 984)
    """
    count = min(tokens, DRAWN_TOKENS)
    return np.arange(count) * tokens // count


class _Text:
    """A text of the page: of each token the place of its name (−1: not known) and its span; and all marks in it."""

    def __init__(self, clouds: TokenClouds, index: int, vocabulary: Vocabulary | None, words: dict[str, int]) -> None:
        ids, self._length = clouds.token_ids(index), int(clouds.lengths[index])
        names = None if vocabulary is None or ids is None else vocabulary.names(ids)
        self._text = None if clouds.texts is None else clouds.texts[index]
        self._facts = {"id": clouds.ids[index], "truncated": int(clouds.truncated[index])}
        self._named = names is not None
        self.words = [-1] * self._length if names is None else [words.setdefault(name, len(words)) for name in names]
        self.spans: list[tuple[int, int] | None] = [None] * self._length
        if self._text is not None and names is not None:
            self.spans = token_spans(self._text, names)
        self.marks: list[tuple[int, int, float]] = []

    def shown(self, limit: int, places: str) -> dict[str, Any]:
        """What the page keeps of it: at most `limit` characters, those around the marks of its pairs.

        `places` is the kind of numbers that hold the places of the names of tokens.
        """
        drawn = [self.words[k] for k in drawn_positions(self._length)]
        text = self._text
        start = 0 if text is None else excerpt_start(len(text), limit, self.marks)
        return {
            **self._facts,
            "text": None if text is None else kept_text(text, limit, start=start),
            "tokens": self._length,
            "words": packed(drawn, places) if self._named else None,
        }


def _detail(
    picture: PairProjection, contributions: tuple[NDArray[Any], NDArray[Any]], texts: tuple[_Text, _Text]
) -> dict[str, Any]:
    """The picture of a pair in whole numbers of `unit`, and the tokens that add most to d_Σ."""
    total = sum(float(part.sum()) for part in contributions)
    flat = (picture.left, picture.right)
    unit = max(float(np.abs(cloud.points).max()) for cloud in flat) / _STEPS or 1.0
    return {
        "unit": float(f"{unit:.6g}"),
        "kept": float(f"{picture.kept:.3g}"),
        "sides": [_side(cloud, unit) for cloud in flat],
        "marked": [
            _marked(part / total if total > 0 else part * 0, text, cloud.points / unit)
            for part, text, cloud in zip(contributions, texts, flat, strict=True)
        ],
    }


def _side(cloud: FlatCloud, unit: float) -> dict[str, Any]:
    # A quarter of the ellipse apart lie its two half axes, which are all that is needed to draw it.
    axes = cloud.ellipse(steps=5)[:2] - cloud.mean
    drawn = cloud.points[drawn_positions(len(cloud.points))]
    return {
        "points": packed((drawn / unit).round(), "int16"),
        "mean": (cloud.mean / unit).round().astype(int),
        "axes": (axes / unit).round().astype(int),
    }


def _marked(shares: NDArray[Any], text: _Text, points: NDArray[Any]) -> list[list[int]]:
    """The tokens of largest share of d_Σ: name, start and end (−1: not found), share in thousandths, x, y."""
    most = [k for k in np.argsort(-shares, kind="stable")[:MARKED_TOKENS] if shares[k] > 0]
    text.marks += [(*span, float(shares[k])) for k in most if (span := text.spans[k]) is not None]
    return [
        [text.words[k], *(text.spans[k] or (-1, -1)), round(1000 * float(shares[k])), *points[k].round().astype(int)]
        for k in most
    ]


def _digits(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


# -- which pairs ------------------------------------------------------------------------------------------------------

# What a pair was chosen for; a pair can have been chosen for both of the first two.
NEIGHBOUR, WORST, RANDOM = 1, 2, 4
_COLUMNS = ("i", "j", "mean_distance", "covariance_distance", "socm")
_Pairs = dict[tuple[int, int], tuple[tuple[float, ...], int]]  # by their texts: columns, and what they are chosen for


def _chosen(
    clouds: TokenClouds,
    result: SocmResult,
    neighbours: SocmResult | None,
    *,
    worst: int,
    nearest: int,
    random: int,
    seed: int,
) -> tuple[PairColumns, NDArray[np.int64], list[str], str]:
    """The pairs of highest SOCM of `result` and of `neighbours` (computed here if None), and others at random.

    They come with what each was chosen for (a sum of NEIGHBOUR, WORST, RANDOM), highest SOCM first; with these three
    reasons in words; and with one sentence on how many pairs there are of each.
    """
    formula = {name: result.provenance["settings"][name] for name in ("scale", "a", "b", "eps")}
    drawn = 4 * (worst + nearest + random)
    near = neighbours or socm(clouds, neighbours=1, **formula)
    others = result if result.pairs is not None else socm(clouds, pairs=drawn, seed=seed, **formula)
    if near.pairs is None or others.pairs is None:
        raise InputError("neighbours: received a result that kept no pairs. Compute it with a larger keep.")
    chosen: _Pairs = {}
    _add(chosen, near.pairs.ranked(max(nearest, 1)), nearest, NEIGHBOUR)
    _add(chosen, result.listed(max(worst, 1)), worst, WORST)
    mixed = np.random.default_rng(seed).permutation(len(others.pairs.i))[:drawn]
    _add(chosen, others.pairs.take(mixed), random, RANDOM)
    ordered = sorted(chosen.values(), key=lambda pair: -pair[0][4])
    reasons = np.array([reason for _, reason in ordered], dtype=np.int64)
    table = np.array([row for row, _ in ordered]).reshape(-1, len(_COLUMNS)).T
    i, j = table[:2].astype(np.int64)
    lists = (f"the {near.count:,} pairs of nearest neighbours", _listed(result))
    kinds = [f"highest SOCM among {lists[0]}", f"highest SOCM of {lists[1]}", "drawn at random"]
    return PairColumns(i, j, *table[2:]), reasons, kinds, _thinning(reasons, lists, (near.count, result.count))


def _listed(result: SocmResult) -> str:
    words = {"all pairs": "all {:,} pairs", "random sample of pairs": "the {:,} sampled pairs"}
    return words.get(result.kind, "the {:,} " + result.kind).format(result.count)


def _add(chosen: _Pairs, columns: PairColumns, size: int, reason: int) -> None:
    """Choose the first `size` pairs, each once; a random one only if it was not chosen for anything else."""
    added = 0
    for values in zip(*(getattr(columns, name).tolist() for name in _COLUMNS), strict=True):
        if added == size:
            break
        i, j = texts = (min(values[:2]), max(values[:2]))
        row, known = chosen.get(texts, (values, 0))
        if i == j or known & reason or (reason == RANDOM and known):
            continue
        chosen[texts] = (row, known | reason)
        added += 1


def _thinning(reasons: NDArray[np.int64], lists: tuple[str, str], counts: tuple[int, int]) -> str:
    near, worst, random = (int(((reasons & reason) > 0).sum()) for reason in (NEIGHBOUR, WORST, RANDOM))
    parts = [
        words if shown == count else f"the {shown:,} of highest SOCM of {words}"
        for shown, words, count in zip((near, worst), lists, counts, strict=True)
    ]
    both = int(((reasons & (NEIGHBOUR | WORST)) == (NEIGHBOUR | WORST)).sum())
    twice = f" ({both:,} of them are in both lists)" if both else ""
    further = f", and {random:,} more, drawn at random" if random else ""
    return f"{len(reasons):,} pairs are shown: {parts[0]}{',' if random else ' and'} {parts[1]}{twice}{further}."


# -- which part of a long text ----------------------------------------------------------------------------------------

# All texts of the pairs together may have so many characters; each has at least LEAST and at most MOST of them.
BUDGET, LEAST, MOST = 120_000, 300, 6000
_LEAD = 80  # characters that stand before the first token that the excerpt was chosen for


def characters_each(texts: int) -> int:
    """How many characters of each text are kept where there are so many texts.

    >>> characters_each(10), characters_each(400), characters_each(5000)
    (6000, 300, 300)
    """
    return min(max(BUDGET // max(texts, 1), LEAST), MOST)


def excerpt_start(length: int, limit: int, marks: Sequence[tuple[int, int, float]]) -> int:
    """Where an excerpt of `limit` characters begins, so that the marks (start, end, weight) in it weigh most.

    The beginning of the text wins where it is as good.

    >>> excerpt_start(100, 30, [(5, 8, 0.1), (70, 75, 0.5), (80, 84, 0.2)]), excerpt_start(100, 30, [(5, 8, 0.1)])
    (63, 0)
    """
    before = min(_LEAD, limit // 4)
    last = max(length - limit, 0)
    starts = {0} | {min(max(start - before, 0), last) for start, _, _ in marks}

    def weight(place: int) -> float:
        return sum(share for start, end, share in marks if place <= start and end <= place + limit)

    return max(sorted(starts), key=weight)


# -- where tokens stand in their text ---------------------------------------------------------------------------------

# Marks that tokenizers put before a piece (start of a word, inside a word) or after it.
_MARKS_BEFORE, _MARKS_AFTER = ("##", "▁", "Ġ"), ("</w>", "@@")
# How far ahead of the last token the next may stand; each token that was not found allows as much again.
_REACH = 40


def token_spans(text: str, names: Sequence[str]) -> list[tuple[int, int] | None]:
    """Start and end of each token in the text, in order; None for a token whose letters do not stand there.

    Clouds keep the ids of their tokens but not their places, and tokenizers change letters (case, accents), so tokens
    are looked up one after the other, without regard to case and accents. Special and unknown tokens are not found, nor
    are pieces of letters in byte-level vocabularies.

    >>> token_spans("Café-au-lait!", ["[CLS]", "cafe", "-", "au", "-", "la", "##it", "!", "[SEP]"])
    [None, (0, 4), (4, 5), (5, 7), (7, 8), (8, 10), (10, 12), (12, 13), None]
    """
    pieces = ["".join(map(_folded, _letters(name))) for name in names]
    furthest = _REACH * (len(pieces) + 1) + sum(map(len, pieces))  # beyond it no token can stand
    folded = "".join(map(_folded, text[:furthest]))
    spans: list[tuple[int, int] | None] = []
    position, missed = 0, 0
    for piece in pieces:
        reach = position + _REACH * (1 + missed) + len(piece)
        start = folded.find(piece, position, reach) if piece else -1
        if start < 0:
            spans.append(None)
            missed += 1
            continue
        position, missed = start + len(piece), 0
        spans.append((start, position))
    return spans


def _letters(name: str) -> str:
    for mark in _MARKS_BEFORE:
        if name != mark:
            name = name.removeprefix(mark)
    for mark in _MARKS_AFTER:
        name = name.removesuffix(mark)
    return name


def _folded(character: str) -> str:
    """One character for one, so that places stay: small, without its accent."""
    small = unicodedata.normalize("NFD", character)[0].lower()
    return small if len(small) == 1 else character
