"""Asking a runtime for what the comparison needs: all probes, some of them again, some alone, and no text at all.

Also the probes themselves, what the file that a runtime loads declares, and the form in which vectors came.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.connect.servers.http import EndpointError, RefusedError, TooLongError
from poolscope.encoders.base import ModelCard, Progress
from poolscope.encoders.folders import read_declaration
from poolscope.encoders.gguf import read_gguf_declaration
from poolscope.encoders.pooling import named_pooling
from poolscope.encoders.sources import VectorSource
from poolscope.errors import InputError

# Texts that are sent again alone, to see whether their neighbours change them.
_ALONE = 6


@dataclass(frozen=True)
class Answers:
    """Answers of a runtime: vectors of the texts, `batches` of one request each, and vectors of a second request.

    `repeated` is the lowest cosine of a text with itself in an equal request, `batched` that with itself alone.
    `empty` says in words what came back for an empty text. `texts` are those that were answered and `refused` those
    that the server takes for too long.
    """

    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    batches: tuple[tuple[int, ...], ...]
    repeated: float
    batched: float
    empty: str
    requests: int
    seconds: float
    refused: tuple[str, ...] = ()


def ask(source: VectorSource, texts: Sequence[str], *, progress: Progress | None = None) -> Answers:
    """Send the texts in batches, the first batch again, some texts alone, and an empty text.

    Texts that the server refuses as too long are left out, and all is asked again: padding goes by requests.
    """
    try:
        return _ask(source, texts, progress)
    except TooLongError:
        refused = _refused(source, texts)
        taken = [text for text in texts if text not in refused]
        if not refused or not taken:
            raise
        return replace(_ask(source, taken, progress), refused=tuple(refused))


def _refused(source: VectorSource, texts: Sequence[str]) -> list[str]:
    """The texts that are too long for the server, from the longest down to the first that it takes."""
    refused = []
    for text in sorted(texts, key=len, reverse=True):
        try:
            source.send([text])
            break
        except TooLongError:
            refused.append(text)
    return refused


def _ask(source: VectorSource, texts: Sequence[str], progress: Progress | None) -> Answers:
    began = time.perf_counter()
    positions = range(len(texts))
    batches = [tuple(positions[start : start + source.batch]) for start in range(0, len(texts), source.batch)]
    alone = [batch[k] for batch in batches for k in range(0, len(batch), max(1, len(texts) // _ALONE))][:_ALONE]
    groups = [*batches, batches[0], *((k,) for k in alone)]
    answers = dict(source.requests([[texts[k] for k in group] for group in groups], progress=progress))
    vectors = np.concatenate([answers[k] for k in range(len(batches))])
    singles = np.concatenate([answers[len(batches) + 1 + k] for k in range(len(alone))])
    empty = _empty(source)
    if progress is not None:
        progress(1, 1)
    return Answers(
        tuple(texts),
        vectors,
        tuple(batches),
        repeated=_lowest(vectors[list(batches[0])], answers[len(batches)]),
        batched=_lowest(vectors[alone], singles),
        empty=empty,
        requests=len(groups) + 1,
        seconds=time.perf_counter() - began,
    )


def _lowest(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    return float(row_cosines(first.astype(np.float64), second.astype(np.float64))[0].min())


def _empty(source: VectorSource) -> str:
    """What an empty text gives; a server may refuse it, and need not be asked again."""
    try:
        vector = source.once().send([""])
    except RefusedError:
        return "refused"
    except EndpointError:
        return "failed"
    return "a vector" if np.any(vector) else "a vector of zeros"


# -- the texts that are sent: few, and chosen so that causes can be told apart ----------------------------------------
#
# Short and long texts tell truncation and padding; capitals, line breaks and blanks at the ends tell changed letters;
# other scripts tell another tokenizer; the same text with and without a prompt tells who puts one before it.

SHORT = (
    "bread",
    "Is it open on Sunday?",
    "The ferry leaves at nine.",
    "She paid the invoice twice by mistake.",
    "A sparrow built its nest in the letter box.",
    "Restart the router before you call the helpdesk.",
    "In 1987 the mill burned down and was never rebuilt.",
    "for (int i = 0; i < n; ++i) total += price[i] * 0.5;",
    "  Blanks stand before and after this sentence.  ",
    "First line of a note\nsecond line of the same note\n\nand a last one",
    "CAPITALS AND small letters Mixed In One Text",
    "Crème brûlée, naïve façade, Ångström, żółw, Größe",
    "東京の図書館は月曜日に閉まります。",
    "Библиотека закрыта по понедельникам.",
    "المكتبة مغلقة يوم الاثنين",
    "The launch went well 🚀🚀 and nobody slept 😴",
    "query: who repairs old clocks",
    "who repairs old clocks",
)

_SENTENCES = (
    "The archive keeps letters that nobody has read since the harbour was moved.",
    "Water rises slowly in the lower field after three days of rain.",
    "A good contract names the day on which each part must be delivered.",
    "The nurse compared both charts and found that one had been copied wrongly.",
    "Copper conducts better than iron, yet the old bridge is made of iron.",
    "Every spring the council argues about the trees along the main road.",
    "The recipe asks for two eggs, a spoon of salt and a very hot oven.",
    "Her telescope shows four moons on a clear night in winter.",
    "Trains from the north are late whenever the wind comes from the sea.",
    "The program crashes if the list is empty and nobody has set a limit.",
    "In the museum a small label explains why the statue has no head.",
    "They measured the temperature of the soil at dawn and again at noon.",
    "A judge must explain her ruling in words that both sides understand.",
    "The orchestra tuned for ten minutes while the hall was still dark.",
    "Most of the bees survived, although the hive had been opened too early.",
    "Interest is paid at the end of each quarter, never in advance.",
    "The map was drawn before the river changed its course.",
)
_LONG = (4, 8, 16, 32, 60)


def long_texts() -> list[str]:
    """Texts of about 50 to 900 tokens, each with a beginning of its own."""
    count = len(_SENTENCES)
    return [" ".join(_SENTENCES[(5 * k + n) % count] for n in range(size)) for k, size in enumerate(_LONG)]


def probe_texts(prompts: Sequence[str] = ()) -> list[str]:
    """The texts, long ones between short ones; `prompts` (those that a model declares) stand before one of them too.

    >>> texts = probe_texts(["passage: "])
    >>> len(texts) == len(set(texts)), "passage: who repairs old clocks" in texts
    (True, True)
    """
    prompted = [f"{prompt}who repairs old clocks" for prompt in prompts[:2]]
    short = list(dict.fromkeys([*SHORT, *prompted]))
    longer = long_texts()
    step = len(short) // len(longer)
    mixed: list[str] = []
    for k, text in enumerate(short):
        mixed.append(text)
        if k % step == step - 1 and longer:
            mixed.append(longer.pop(0))
    return [*mixed, *longer]


# -- what the file that a runtime loads declares, beside the reference: the pooling above all -------------------------
#
# A GGUF file keeps its pooling under `pooling_type`, a folder in `1_Pooling`; a conversion can lose or change it.


@dataclass(frozen=True)
class Declared:
    """One declaration of both sides; None where a side says nothing."""

    what: str
    served: str | None
    reference: str | None

    @property
    def differs(self) -> bool:
        """Do both sides say something, and not the same?"""
        return None not in (self.served, self.reference) and self.served != self.reference

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.served or 'not declared'} there, {self.reference or 'not declared'} in the reference"
        )


def compare_declarations(served: str | os.PathLike[str], card: ModelCard) -> tuple[Declared, ...]:
    """What the file or folder that a runtime loads says of pooling and length, beside the card of the reference."""
    if not isinstance(served, str | os.PathLike):
        raise InputError(
            f"served (--served): received {type(served).__name__}; allowed: the path of the .gguf file or of the "
            f"folder that the runtime loads, such as 'model.gguf'."
        )
    path = Path(served).expanduser()
    if path.is_dir() and not any(path.glob("*.gguf")):
        folder = read_declaration(path, name=str(served))
        theirs: Mapping[str, Any] = {"pooling": folder.pooling, "max_length": folder.max_length}
    elif path.suffix == ".gguf" or path.is_dir():
        theirs = read_gguf_declaration(path, name=str(served))
    else:
        raise InputError(
            f"served (--served): received {served}; allowed: the .gguf file or the folder that the runtime loads."
        )
    ours = {"pooling": card.pooling, "max_length": card.max_length}
    return tuple(
        Declared(words, _said(theirs[key]), _said(ours[key]))
        for key, words in (("pooling", "pooling"), ("max_length", "longest text in tokens"))
    )


def _said(value: Any) -> str | None:
    """A declaration in one word; poolings by the names of poolscope."""
    if value is None or value == ():
        return None
    if isinstance(value, tuple):
        return named_pooling(value)
    return str(value)


# -- the form in which vectors came: whole or their first dimensions, as numbers, in 8 bits, or as signs --------------
#
# A form is put on the vectors of the reference too before the two are compared, so that rounding is no difference.

Array = NDArray[np.float64]

_LEVELS = 256
# A table of fewer numbers has few different ones by chance.
_ENOUGH = 1024
_GRID = 1e-3
_SINGLE = 1e-9


@dataclass(frozen=True)
class Form:
    """How vectors of a runtime are stored: `rounding` is "", "float16", "int8", "int8 a text" or "binary".

    `dimension` is how many numbers of a vector are kept, `whole` how many the model gives.
    """

    rounding: str
    dimension: int
    whole: int

    @property
    def cut(self) -> bool:
        """Are these the first dimensions only?"""
        return self.dimension < self.whole

    @property
    def coarse(self) -> bool:
        """Has the rounding changed the vectors so much that cosines show it?"""
        return self.rounding not in ("", "float16")

    def words(self) -> str:
        """In plain words, "" where vectors are whole and plain."""
        rounding = {
            "": "",
            "float16": "rounded to 16 bits",
            "int8": "rounded to 8 bits",
            "int8 a text": "rounded to 8 bits",
            "binary": "cut down to signs (binary)",
        }[self.rounding]
        shortened = f"cut to their first {self.dimension} of {self.whole} dimensions" if self.cut else ""
        return " and ".join(filter(None, (shortened, rounding)))

    def on(self, table: Array, like: Array) -> Array:
        """Vectors of the reference in this form; `like` are the received ones, whose grid they are put on."""
        shortened = np.asarray(table[:, : self.dimension], dtype=np.float64)
        if self.rounding == "binary":
            return np.where(shortened > 0, 1.0, -1.0)
        if self.rounding == "int8 a text":
            top = np.abs(shortened).max(axis=1, keepdims=True)
            return np.asarray(np.round(shortened / np.where(top > 0, top, 1) * 127))
        if self.rounding == "int8":
            step = np.diff(np.unique(like)).min()
            lengths = np.linalg.norm(shortened, axis=1, keepdims=True)
            scaled = shortened / np.where(lengths > 0, lengths, 1) * np.median(np.linalg.norm(like, axis=1))
            return np.asarray(np.round(scaled / step) * step)
        return shortened


def read_form(vectors: NDArray[Any], dimension: int) -> tuple[Form, Array]:
    """The form of received vectors beside a model of that dimension, and the vectors as numbers.

    Bits that were packed, eight to a number, are unpacked; signs become −1 and 1.

    >>> form, table = read_form(np.array([[0, 1, 1, 0]]), 4)
    >>> form.rounding, table.tolist()
    ('binary', [[-1.0, 1.0, 1.0, -1.0]])
    """
    raw = np.asarray(vectors)
    table = raw.astype(np.float64)
    whole_numbers = bool((table == np.round(table)).all())
    if whole_numbers and raw.shape[1] * 8 == dimension and table.min() >= -128 and table.max() <= 255:
        packed = (table + 128 if table.min() < 0 else table).astype(np.uint8)
        return Form("binary", dimension, dimension), np.where(np.unpackbits(packed, axis=1) == 1, 1.0, -1.0)
    columns = table.shape[1]
    if len(np.unique(table[:1])) <= 2 and len(levels := np.unique(table)) == 2 and columns > 2:
        return Form("binary", columns, max(columns, dimension)), np.where(table == levels[1], 1.0, -1.0)
    return Form(_rounding(raw, table), columns, max(columns, dimension)), table


def _rounding(raw: NDArray[Any], table: Array) -> str:
    if (table == table[0, 0]).all():  # one number is no grid
        return ""
    if table.size >= _ENOUGH and len(np.unique(table)) <= _LEVELS:
        return "int8"
    top = np.abs(table).max(axis=1, keepdims=True)
    grid = table / np.where(top > 0, top, 1) * 127
    if table.shape[1] >= 8 and (np.abs(grid - np.round(grid)) < _GRID).all():
        return "int8 a text"
    if table.shape[1] >= 128 and np.mean([len(np.unique(row)) for row in table[:64]]) < 0.6 * table.shape[1]:
        return "int8 a text"
    if raw.dtype == np.float16:
        return "float16"
    with np.errstate(over="ignore"):
        half = table.astype(np.float16).astype(np.float64)
    return "float16" if np.abs(half - table).max() <= _SINGLE * np.abs(table).max() else ""


def row_cosines(left: Array, right: Array) -> tuple[Array, Array]:
    """Cosines row by row, and with the next row of `right`: what another text would give."""
    ours, theirs = (_unit(table) for table in (right, left))
    own, other = (np.einsum("ij,ij->i", theirs, rows) for rows in (ours, np.roll(ours, 1, axis=0)))
    return own, other


def _unit(table: Array) -> Array:
    """Rows at length 1; a row without direction stays as it is, and is like no other."""
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.where(lengths > 0, lengths, 1))
