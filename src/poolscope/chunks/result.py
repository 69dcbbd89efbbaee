"""What splitting gives: the chunks with where they come from, and the file that the other commands read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.files import atomic_path
from poolscope.texts.records import ReadReport, Texts
from poolscope.texts.sources import exists

ENDINGS = (".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True)
class Chunk:
    """`text` is the characters `start` to `end` of the text whose id is `document_id`.

    `tokens` is what the model reads: special tokens and the prompt are counted. `label` is that of the text.
    """

    id: str
    text: str
    document_id: str
    start: int
    end: int
    tokens: int
    label: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row of a file: without `label` where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, repr=False)
class Chunks:
    """The chunks of some texts, in order.

    `limit` is the most tokens a chunk may have, `added` how many of them the prompt and the special tokens take,
    `overlap` how many the following chunk may repeat, `cuts` how many cuts were made at which kind of place, best
    first, and `model` the card of the model.
    """

    chunks: tuple[Chunk, ...]
    source: str
    limit: int
    added: int
    overlap: int
    cuts: Mapping[str, int]
    model: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)

    def __getitem__(self, index: int) -> Chunk:
        return self.chunks[index]

    def __repr__(self) -> str:
        return f"Chunks({len(self):,} of {self.documents:,} texts, at most {self.limit} tokens)"

    @property
    def documents(self) -> int:
        """How many texts there were."""
        return len({chunk.document_id for chunk in self.chunks})

    @property
    def split(self) -> int:
        """How many of the texts became several chunks."""
        return self.documents - sum(chunk.id == chunk.document_id for chunk in self.chunks)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens of every chunk."""
        return np.array([chunk.tokens for chunk in self.chunks], dtype=np.int64)

    def notes(self) -> list[str]:
        """What a user should know, in sentences; none in the usual case."""
        empty = int((self.tokens == 0).sum())
        if not empty:
            return []
        verb = "chunk has" if empty == 1 else "chunks have"
        return [f"{empty:,} {verb} no token that the model knows: it cannot encode {'it' if empty == 1 else 'them'}."]

    def as_texts(self) -> Texts:
        """The chunks as texts, with their ids and labels, for `audit`, `encode` and the rest."""
        labels = tuple(chunk.label for chunk in self.chunks if chunk.label is not None)
        return Texts(
            ids=tuple(chunk.id for chunk in self.chunks),
            texts=tuple(chunk.text for chunk in self.chunks),
            labels=labels or None,
            source=self.source,
            report=ReadReport(read=len(self), kept=len(self)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Counts and settings in plain types, for JSON; the chunks themselves are in the file that `save` writes."""
        tokens = self.tokens
        return {
            "texts": self.documents,
            "split": self.split,
            "chunks": len(self),
            "limit": self.limit,
            "added": self.added,
            "overlap": self.overlap,
            "tokens": {
                "shortest": int(tokens.min()),
                "median": float(np.median(tokens)),
                "longest": int(tokens.max()),
                "all": int(tokens.sum()),
            },
            "cuts": dict(self.cuts),
            "source": self.source,
            "model": dict(self.model),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one row a chunk, atomically: JSON lines (`.jsonl`, `.ndjson`) or Parquet."""
        check_chunk_file(path)
        rows = [chunk.to_dict() for chunk in self.chunks]
        with atomic_path(path) as temporary:
            if Path(path).suffix.lower() == ".parquet":
                import pyarrow.parquet as pq

                pq.write_table(pa.Table.from_pylist(rows), temporary)
            else:
                with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                    stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def check_chunk_file(path: str | os.PathLike[str], *, source: object = None) -> None:
    """Refuse, before the work, a name that chunks cannot be written to, and the file that the texts come from."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"{path}: received the ending '{ending}'; allowed: {', '.join(ENDINGS)}. Chunks are rows with several "
            f"fields: name the file so."
        )
    named = isinstance(source, str | os.PathLike) and exists(Path(source))
    if named and Path(path).exists() and Path(path).samefile(str(source)):
        raise InputError(
            f"{path}: the chunks would replace the texts that they are made of. Name another file to write."
        )
