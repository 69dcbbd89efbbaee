r"""The one exit for words: what poolscope says holds no control character, no change of direction and no secret.

Names of columns, arrays, layers and models come from files of others, and refusals come from servers of others. A
terminal obeys control characters, and a log keeps a key for ever. So errors (`PoolscopeError`), warnings (`warn`), log
lines (`logger`), screens (`console.Console`), JSON (`as_json`), notebook views (`escape`) and both streams of the
command line (`guard_streams`) call `clean`. `tests/test_layout.py` allows no other way out: no `warnings.warn`, no
logger or console of others, and `print` only in the command line, whose streams are guarded.

A secret is known when its environment variable is named like one, when it stood in an address (`know_address`), or when
it was read from a file of keys (`know`).
"""

from __future__ import annotations

import base64
import codecs
import html
import io
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

HIDDEN = "…"

# -- characters -------------------------------------------------------------------------------------------------------

# Marks, embeddings, overrides and isolates of direction, and tags: they change how what follows is read, unseen.
_UNSEEN = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_IN_JSON = re.compile(f"{_UNSEEN.pattern}|[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def readable(text: str) -> str:
    r"""The text with control characters as pictures, half characters as � and nothing that turns its direction.

    Line breaks and tabs stay.

    >>> readable("a\x00b\x1b[2J\ud800 \u202etxt")
    'a␀b␛[2J� txt'
    """
    return _CONTROL.sub(_picture, _UNSEEN.sub("", text))


def _picture(match: re.Match[str]) -> str:
    place = ord(match[0])
    return chr(0x2400 + place) if place < 0x20 else "␡" if place == 0x7F else "�"


# -- secrets ----------------------------------------------------------------------------------------------------------

# How variables, fields of an address and settings that hold a secret are named.
SECRET_NAME = re.compile(
    r"pass(?!file)|pwd|key(?!board|map)|token|secret|credential|(?<![a-z])auth(?![a-z])", re.IGNORECASE
)
# Variables that are named like a secret and say where one is, or how it is asked for.
_PLACE_NAME = re.compile(r"(path|file|folder|dir|sock|askpass|variable|parallelism|url|uri|host)$", re.IGNORECASE)
# A word that may hold an address, and a field of its query. No pattern here has two ways to match the same letters:
# words of others take time by their length.
_ADDRESS = re.compile(r"[^\s'\"]+")
_SCHEME = re.compile(r"\w:/{1,2}")
_FIELD = re.compile(r"([?&]([\w-]+)=)[^&\s'\"]+")
_HEADER = re.compile(r"(authorization\W{1,4}(?:bearer|basic)(?:\s+|%20|\+))[^\s'\"\\,]+", re.IGNORECASE)

_SHORTEST = 4  # a shorter secret cannot be told from a word
_WORD = 8  # up to this length a secret must stand alone, since "test" is part of many words
_RUN = 8  # of a secret of `_LONG` characters or more, a run of so many is hidden too: messages are cut anywhere
_LONG = 12

_known: set[str] = set()


def know(*secrets: str | None) -> None:
    """Remember secrets, which from now on stand in no message."""
    _known.update(secret for secret in secrets if secret and len(secret) >= _SHORTEST)


def forget() -> None:
    """Forget every secret that was remembered; those of the environment stay hidden."""
    _known.clear()


def know_address(address: str) -> None:
    """Remember the password of an address, and the fields of its query that are named like a secret."""
    try:
        parts = urlsplit(address)
        fields = parse_qsl(parts.query)
    except ValueError:
        return
    _, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    know(*(value for name, value in fields if SECRET_NAME.search(name)))
    if colon:
        know(password, unquote(password))


def secret_of(variable: str) -> str | None:
    """The secret in an environment variable, which is remembered; None where it is not set."""
    value = os.environ.get(variable)
    know(value)
    return value


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable is named like one that holds a secret.

    >>> is_secret_variable("HF_TOKEN"), is_secret_variable("PGPASSFILE"), is_secret_variable("TOKENIZERS_PARALLELISM")
    (True, False, False)
    """
    return SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None


def _of_environment() -> Iterator[str]:
    for name, value in os.environ.items():
        if "://" in value and "@" in value:
            know_address(value)
        elif len(value) >= _SHORTEST and is_secret_variable(name) and not value.isdigit():
            yield value


def _secrets() -> frozenset[str]:
    return frozenset((*_known, *_of_environment()))


def hide(text: str) -> str:
    r"""The text without any known secret: as it is, in parts, percent-encoded, in JSON, in HTML, in base64, in hex.

    >>> know("sk-1234567890abc")
    >>> hide("refused: sk-1234567890abc"), hide("Bearer%20sk%2D1234567890abc"), hide('{"key": "sk-12345678')
    ('refused: …', 'Bearer%20…', '{"key": "…')
    >>> hide("mysql://me:open-sesame@host/base?api_key=open-sesame is no file")
    'mysql://…@host/base?api_key=… is no file'
    """
    if len(text) < _SHORTEST:
        return text
    if ":" in text or "=" in text:
        text = _HEADER.sub(rf"\1{HIDDEN}", _FIELD.sub(_without_value, _ADDRESS.sub(_without_user, text)))
    secrets = _secrets()
    return _without_runs(text, secrets) if secrets else text


def in_line(text: str) -> str:
    r"""The text as it may be shown, in one line: no name of others begins a line of its own, which a log would obey.

    >>> in_line("no column 'a\n::error::b'")
    "no column 'a ::error::b'"
    """
    return clean(text).replace("\n", " ")


def _without_user(match: re.Match[str]) -> str:
    """A word, without the name and password of an address in it: what stands before its last @, if that has a colon."""
    word, scheme = match[0], _SCHEME.search(match[0])
    end = word.rfind("@")
    if scheme is None or ":" not in word[scheme.end() : max(end, 0)]:
        return word
    return f"{word[: scheme.end()]}{HIDDEN}{word[end:]}"


def _without_value(match: re.Match[str]) -> str:
    """A field of a query, without its value if it is named like a secret."""
    return f"{match[1]}{HIDDEN}" if SECRET_NAME.search(match[2]) else match[0]


def clean(text: str) -> str:
    """The text as it may be shown: `readable`, then `hide`, as a key may have been broken by what is removed."""
    return hide(readable(text))


@lru_cache(maxsize=8)
def _forms(secrets: frozenset[str]) -> frozenset[bytes]:
    """What a secret looks like in bytes that are decoded already: itself, and its base64 wherever it begins."""
    forms = set()
    for secret in secrets:
        plain = secret.encode("utf-8", "replace")
        forms |= {plain, plain.hex().encode(), plain.hex().upper().encode()}
        for before in range(3):  # how far the secret lies behind a group of three bytes, as in "user:secret"
            coded = base64.b64encode(b"\0" * before + plain)
            # The outer letters hold bits of what stands beside the secret.
            inner = coded[(0, 2, 3)[before] :].rstrip(b"=")
            inner = inner[: len(inner) - ((before + len(plain)) % 3 > 0)]
            forms |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return frozenset(form for form in forms if len(form) >= _SHORTEST)


@lru_cache(maxsize=8)
def _whole_forms(secrets: frozenset[str]) -> tuple[str, ...]:
    """Whole secrets as text, for content of files; the longest first."""
    forms = {form.decode("utf-8", "replace") for form in _forms(secrets)}
    for form in tuple(forms):
        forms |= {quote(form, safe=""), quote(form), quote_plus(form), html.escape(form), repr(form)[1:-1]}
        forms |= {json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]}
    return tuple(sorted((form for form in forms if len(form) >= _LONG), key=len, reverse=True))


@lru_cache(maxsize=8)
def _runs(secrets: frozenset[str]) -> tuple[frozenset[bytes], tuple[bytes, ...]]:
    """Runs of eight bytes of long forms, and whole short forms."""
    runs, whole = set(), []
    for form in _forms(secrets):
        if len(form) >= _LONG:
            runs |= {form[start : start + _RUN] for start in range(len(form) - _RUN + 1)}
        else:
            whole.append(form)
    return frozenset(runs), tuple(whole)


_ESCAPE = re.compile(
    r"%([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|&#x([0-9a-fA-F]{1,6});|&#(\d{1,7});|&(\w{2,6});"
    r"|\\([\"'\\/])"
)


def _without_runs(text: str, secrets: frozenset[str]) -> str:
    runs, whole = _runs(secrets)
    spans: list[tuple[int, int]] = []
    content, places = bytearray(), []
    for place, letter in enumerate(text):
        coded = letter.encode("utf-8", "replace")
        content += coded
        places += [(place, place + 1)] * len(coded)
    for _ in range(3):  # as it is, its escapes read, and what was encoded twice
        spans += [(places[first][0], places[last - 1][1]) for first, last in _found(bytes(content), runs, whole)]
        again, origins = _decoded(bytes(content))
        if again == content:
            break
        content, places = again, [(places[first][0], places[last - 1][1]) for first, last in origins]
    end, parts = 0, []
    for first, last in _merged(spans):
        parts += [text[end:first], HIDDEN]
        end = last
    return "".join((*parts, text[end:]))


def _decoded(content: bytes) -> tuple[bytearray, list[tuple[int, int]]]:
    """The content with its escapes read, and for each byte the span that it comes from."""
    decoded, origins, end = bytearray(), [], 0
    for match in _ESCAPE.finditer(content.decode("latin-1")):
        decoded += content[end : match.start()]
        origins += [(place, place + 1) for place in range(end, match.start())]
        coded = _read_escape(match)
        decoded += coded
        origins += [match.span()] * len(coded)
        end = match.end()
    return decoded + content[end:], origins + [(place, place + 1) for place in range(end, len(content))]


def _read_escape(match: re.Match[str]) -> bytes:
    percent, unicode, hexadecimal, entity, decimal, named, quoted = match.groups()
    if percent or hexadecimal:
        return bytes([int(percent or hexadecimal, 16)])
    if quoted:
        return quoted.encode()
    if named:
        return html.unescape(f"&{named};").encode("utf-8", "replace")
    place = int(unicode or entity, 16) if unicode or entity else int(decimal)
    return chr(min(place, 0x10FFFF)).encode("utf-8", "replace")


def _found(content: bytes, runs: frozenset[bytes], whole: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    if runs:
        for start in range(len(content) - _RUN + 1):
            if content[start : start + _RUN] in runs:
                yield start, start + _RUN
    for form in whole:
        start = content.find(form)
        while start >= 0:
            end = start + len(form)
            if len(form) >= _WORD or not (content[start - 1 : start].isalnum() or content[end : end + 1].isalnum()):
                yield start, end
            start = content.find(form, start + 1)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


# -- ways out ---------------------------------------------------------------------------------------------------------


def clean_error(error: BaseException | None) -> None:
    """Clean the words of an error of others in place, and of those behind it: a traceback shows all of them."""
    for _ in range(100):
        if error is None:
            return
        if _is_dirty(error):
            error.args = tuple(clean(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, OSError) and isinstance(error.filename, str):
            error.filename = clean(error.filename)
        if _is_dirty(error):  # its words are made of something else than its arguments
            with suppress(TypeError):
                error.__class__ = _clean_class(type(error))
        error = error.__cause__ or error.__context__


def _is_dirty(error: BaseException) -> bool:
    shown = str(error)
    return clean(shown) != shown


_clean_classes: dict[type[BaseException], type[BaseException]] = {}


def _clean_class(kind: type[BaseException]) -> type[BaseException]:
    """The same class of errors, whose words are clean."""
    if kind in _clean_classes:
        return _clean_classes[kind]
    own = {"__str__": lambda error: clean(kind.__str__(error)), "__module__": kind.__module__}
    made = type(kind.__name__, (kind,), {**own, "__qualname__": kind.__qualname__})
    return _clean_classes.setdefault(kind, made)


def escape(text: str, *, quote: bool = True) -> str:
    """The text for a place in HTML: clean, and without markup; `quote`: also for a place between quotes.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return html.escape(clean(text), quote=quote)


FIRST = 5  # how many texts a view shows
_CELL = 120  # letters of a text in it


def rows_as_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], more: int) -> str:
    """A view for notebooks of texts that were read: a title, the first rows, and the number of the others.

    >>> rows_as_html("Two texts", ["id", "text"], [("0", "One.")], 1)[:34]
    '<p><b>Two texts</b></p><table><tr>'
    """
    shown = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    short = [[cell if len(cell) <= _CELL else f"{cell[: _CELL - 1]}…" for cell in row] for row in shown]
    lines = [("th", columns), *(("td", row) for row in short)]
    body = "".join(f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>" for tag, cells in lines)
    rest = f"<p>{more:,} more</p>" if more else ""
    return f"<p><b>{escape(title)}</b></p><table>{body}</table>{rest}"


def as_json(content: Any, **looks: Any) -> str:
    r"""Write JSON that reads back the same; characters that act on a terminal are written as \u….

    >>> as_json({"name": "a\u202eb\x9b"})
    '{"name": "a\\u202eb\\u009b"}'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, **looks)
    return _IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text)


_HERE = f"{Path(__file__).parent}{os.sep}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn in clean words, at the line outside of poolscope that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(in_line(message), category, stacklevel=level)


def say(line: str, *, over: bool = False, end: str = "\n") -> None:
    """Print a clean line on standard error; `over`: in the place of the last one."""
    print(f"{chr(13) if over else ''}{in_line(line)}", end=end, file=sys.stderr, flush=True)


class _CleanRecords(logging.Filter):
    """A filter that writes the message of every record anew."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the words of the record, and of the error that is shown with it."""
        record.msg, record.args = in_line(record.getMessage()), None
        if record.exc_info and record.exc_info[1] is not None:
            clean_error(record.exc_info[1])
        return True


def logger(name: str) -> logging.Logger:
    """The logger of a module; what it says is clean."""
    made = logging.getLogger(name)
    if not any(isinstance(each, _CleanRecords) for each in made.filters):
        made.addFilter(_CleanRecords())
    return made


# What may be written to a terminal as it is: colours, and moves between bars that stand alone in a write.
_COLOUR = re.compile(r"(\x1b\[[\d;]{0,32}m|\r)")
_MOVES = re.compile(r"\r?\n*(\x1b\[A)*\r?|\x1b\[\?25[hl]\n?")


class _GuardedStream:
    """A stream to which everything is written clean; `trusted` is the stream behind it, for screens of poolscope."""

    def __init__(self, trusted: TextIO) -> None:
        self.trusted = trusted

    def write(self, text: str) -> int:
        """Write the text without what acts on a terminal, but for colours and the start of a line."""
        if not _MOVES.fullmatch(text):
            parts = _COLOUR.split(text)
            parts[::2] = map(readable, parts[::2])
            text = hide("".join(parts))
        self.trusted.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trusted, name)


def _as_escapes(error: UnicodeError) -> tuple[str, int]:
    r"""Letters that the encoding of a stream has not, as JSON writes them, so that JSON there reads back the same."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


_ESCAPED = "poolscope-escaped"
codecs.register_error(_ESCAPED, _as_escapes)


def guard_streams() -> None:
    """Let nothing that this process prints act on the terminal: also what libraries, warnings and tracebacks say.

    Nor does a letter end the run that the encoding of the stream has not, such as a true minus in a pipe of Windows.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _GuardedStream):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=_ESCAPED)
            setattr(sys, name, _GuardedStream(stream))


# -- content of files -------------------------------------------------------------------------------------------------


def without_secrets(content: Any) -> Any:
    """JSON content with every known secret hidden that is whole and long enough not to be a word of a text."""
    forms = _whole_forms(_secrets())

    def hidden(text: str) -> str:
        for form in forms:
            text = text.replace(form, HIDDEN)
        return text

    return with_texts(content, hidden) if forms else content


def clean_content(content: Any) -> Any:
    """JSON content, every text of which is `clean`."""
    return with_texts(content, clean)


def with_texts(content: Any, change: Callable[[str], str]) -> Any:
    """JSON content with every text of it changed, names included; an array of texts becomes a list."""
    if isinstance(content, str):
        return change(content)
    if getattr(getattr(content, "dtype", None), "kind", "") in ("O", "U"):
        content = content.tolist()
    if isinstance(content, Mapping):
        return {with_texts(name, change): with_texts(each, change) for name, each in content.items()}
    return [with_texts(each, change) for each in content] if isinstance(content, list | tuple) else content
