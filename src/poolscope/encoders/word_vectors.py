"""Tables of word vectors in a text file: `word v1 v2 …` on each line, as GloVe, word2vec and fastText write them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from poolscope.encoders.base import EncoderOptions, ModelCard
from poolscope.encoders.declaration import file_digest
from poolscope.encoders.static import StaticEncoder, TableTokens
from poolscope.encoders.tokens import Tokens, Vocabulary
from poolscope.errors import ModelError

_LOG = logging.getLogger(__name__)
_PIECES = re.compile(r"\w+|[^\w\s]")


def load_word_vectors(path: Path, *, name: str, options: EncoderOptions) -> StaticEncoder:
    """A text file of word vectors, with or without the first line `words dimensions`."""
    words, table = _read(path)
    vocabulary = {word: k for k, word in reversed(list(enumerate(words)))}  # of repeated words the first counts
    if repeated := len(words) - len(vocabulary):
        _LOG.warning("%s repeats %d words; the first vector of each counts.", name, repeated)
    card = ModelCard(
        name=name,
        kind="static",
        dimension=table.shape[1],
        revision=file_digest(path),
        layers=0,
        pooling=("mean",),
        parameters=table.size,
    )

    def tokenize(texts: Sequence[str], max_length: int | None) -> TableTokens:
        return look_up(texts, vocabulary, max_length=max_length)

    return StaticEncoder(card, options, table=table, tokenize=tokenize, vocabulary=Vocabulary.of_words(words))


def look_up(texts: Sequence[str], vocabulary: dict[str, int], *, max_length: int | None) -> TableTokens:
    """The words of each text that the vocabulary has: as written, else in lower case, else piece by piece.

    A word is what stands between blanks; its pieces are runs of letters and digits, and single other signs.

    >>> found = look_up(["The U.S., xyzzy"], {"the": 0, "u.s.": 1, ",": 2, "u": 3, ".": 4, "s": 5}, max_length=None)
    >>> found.tokens.ids.tolist(), found.unknown.tolist()
    ([0, 3, 4, 5, 4, 2], [1])
    """
    ids: list[list[int]] = []
    unknown, cut = [], []
    for text in texts:
        found = [vocabulary.get(token, -1) for word in text.split() for token in _tokens_of(word, vocabulary)]
        known = [k for k in found if k >= 0]
        ids.append(known[:max_length])
        unknown.append(len(found) - len(known))
        cut.append(len(known) - len(ids[-1]))
    return TableTokens(Tokens.join(ids, cut), np.asarray(unknown, dtype=np.int64))


def _tokens_of(word: str, vocabulary: dict[str, int]) -> list[str]:
    for form in (word, word.lower()):
        if form in vocabulary:
            return [form]
    return [piece if piece in vocabulary else piece.lower() for piece in _PIECES.findall(word)]


def _read(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """(words, table). Lines with another number of fields, as GloVe 840B has some, are left out and counted."""
    dimension, header, trailing = _layout(path)
    names = ["word", *(f"v{k}" for k in range(dimension)), *(["end"] if trailing else [])]
    skipped: list[int] = []
    try:
        try:
            read = _read_csv(path, names, skip_rows=int(header))
        except pa.ArrowInvalid:
            # Once more, leaving odd lines out, and on one thread: a worker that is still calling back into Python when
            # the process ends takes it down.
            read = _read_csv(path, names, skip_rows=int(header), odd_line=lambda row: skipped.append(row.number or 0))
    except pa.ArrowInvalid as error:
        raise ModelError(
            f"{path}: not a table of word vectors ({error}). Each line must be a word and numbers."
        ) from error
    if skipped:
        _LOG.warning("%s: %d lines have another number of fields than %d; left out.", path, len(skipped), dimension + 1)
    table = np.column_stack([read.column(f"v{k}").to_numpy() for k in range(dimension)])
    if not len(table) or not np.isfinite(table).all():
        raise ModelError(f"{path}: the table is empty or holds numbers that are not finite. Check the file.")
    return read.column("word").to_pylist(), np.ascontiguousarray(table, dtype=np.float32)


def _read_csv(
    path: Path, names: Sequence[str], *, skip_rows: int, odd_line: Callable[[Any], None] | None = None
) -> Any:
    """The columns; lines with another number of fields are an error, or handed to `odd_line` and left out."""

    def skip(row: Any) -> str:
        if odd_line is not None:
            odd_line(row)
        return "skip"

    types = {name: pa.string() if name in ("word", "end") else pa.float32() for name in names}
    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(
            column_names=list(names), skip_rows=skip_rows, block_size=1 << 24, use_threads=odd_line is None
        ),
        parse_options=csv.ParseOptions(
            delimiter=" ", quote_char=False, invalid_row_handler=None if odd_line is None else skip
        ),
        convert_options=csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
    )


def _layout(path: Path) -> tuple[int, bool, bool]:
    """(dimension, whether the first line is a header, whether lines end with a blank)."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        first, second = stream.readline().rstrip("\n"), stream.readline().rstrip("\n")
    counts = first.split()
    header = len(counts) == 2 and all(map(str.isdecimal, counts)) and len(second.split()) == int(counts[1]) + 1
    line = second if header else first
    numbers = line.rstrip(" ").split(" ")[1:]
    if not numbers or not all(map(_is_number, numbers)):
        raise ModelError(
            f"{path}: the first line is {line[:60]!r}; needed: a word and its numbers, with blanks between them. "
            f"If these are texts, name the model before them."
        )
    return len(numbers), header, line.endswith(" ")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
