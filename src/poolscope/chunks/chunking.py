"""`chunk_texts`: a model and texts in, chunks that the model reads to their end out, and the file that holds them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.chunks.splitting import KINDS, Piece, TokenRuler, split_texts
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.files import atomic_file
from poolscope.results import Result, bulk
from poolscope.show.charts import histogram_figure
from poolscope.texts import ReadReport, Texts, read_texts
from poolscope.texts.groups import group_column, groups_of_ids
from poolscope.texts.sources import exists, other_columns

ENDINGS = (".jsonl", ".ndjson", ".parquet")
# What a row of a file of chunks says of the chunk: a column of the texts with such a name is not kept.
OWN = ("id", "text", "document_id", "start", "end", "tokens", "label", "group")


@dataclass(frozen=True)
class Chunk:
    """`text` is the characters `start` to `end` of the text whose id is `document_id`.

    `tokens` is what the model reads: special tokens and the prompt are counted. `label` is that of the text, `columns`
    what its row says besides. `group` names the document of the text itself, where a column or its id does.
    """

    id: str
    text: str
    document_id: str
    start: int
    end: int
    tokens: int
    label: str | None = None
    group: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The row of a file: without what there is not, and with the other columns under their own names."""
        own = {name: value for name, value in asdict(self).items() if value is not None and name != "columns"}
        return {**own, **{name: value for name, value in self.columns.items() if name not in OWN}}


@dataclass(frozen=True, repr=False)
class Chunks(Result):
    """The chunks of some texts, in order.

    `limit` is the most tokens a chunk may have, `added` how many of them the prompt and the special tokens take,
    `overlap` how many the following chunk may repeat, `cuts` how many cuts were made at which kind of place, best
    first, and `model` the card of the model.
    """

    source: str
    limit: int
    added: int
    overlap: int
    cuts: Mapping[str, int]
    model: Mapping[str, Any] = field(default_factory=dict)
    chunks: tuple[Chunk, ...] = bulk(key="rows", required=True)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)

    def __getitem__(self, index: int) -> Chunk:
        return self.chunks[index]

    def __repr__(self) -> str:
        return f"Chunks({len(self):,} of {self.documents:,} texts, at most {self.limit} tokens)"

    def headline(self) -> dict[str, Any]:
        """How many chunks of how many texts, and how long."""
        counts = {"chunks": len(self), "texts": self.documents, "cut": self.split, "limit": self.limit}
        return counts | {"overlap": self.overlap}

    def in_words(self) -> tuple[str, ...]:
        """What became of the texts."""
        chunks = f"{len(self):,} chunks of at most {self.limit:,} tokens"
        return (f"{self.documents:,} texts became {chunks}; {self.split:,} of the texts were split.",)

    def figure(self) -> Any:
        """How many tokens the chunks have."""
        title = f"{len(self):,} chunks of at most {self.limit:,} tokens"
        return histogram_figure(self.tokens, title=title, across="tokens of a chunk", along="chunks")

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
        lost = sorted({name for chunk in self.chunks for name in chunk.columns if name in OWN and name != "group"})
        notes = [f"Chunks have their own values in these columns of the texts: {', '.join(lost)}."] if lost else []
        empty = int((self.tokens == 0).sum())
        if empty:
            verb, what = ("chunk has", "it") if empty == 1 else ("chunks have", "them")
            notes.append(f"{empty:,} {verb} no token that the model knows: it cannot encode {what}.")
        return notes

    def with_columns(self, columns: Mapping[str, Mapping[str, Any]], group: str | None = None) -> Chunks:
        """The chunks with the other columns of their texts (by id); `group` is the one that names the documents.

        Without one, documents stay those that the ids of the texts tell, like doc#3.
        """
        chunks = []
        for chunk in self.chunks:
            others = columns.get(chunk.document_id, {})
            named = None if group is None else others.get(group)
            chunks.append(replace(chunk, columns=others, group=chunk.group if named is None else str(named)))
        return replace(self, chunks=tuple(chunks))

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

    def derived(self) -> dict[str, Any]:
        """Counts; the chunks themselves are in the file that `save` writes."""
        tokens = self.tokens
        return {
            "texts": self.documents,
            "split": self.split,
            "chunks": len(self),
            "tokens": {
                "shortest": int(tokens.min()),
                "median": float(np.median(tokens)),
                "longest": int(tokens.max()),
                "all": int(tokens.sum()),
            },
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a chunk."""
        return [chunk.to_dict() for chunk in self.chunks]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one row a chunk, atomically: `.jsonl`, `.ndjson` or `.parquet`; or all, to be loaded again: `.json`."""
        if Path(path).suffix.lower() == ".json":
            super().save(path)
            return
        check_chunk_file(path)
        if Path(path).suffix.lower() == ".parquet":
            self.save_parquet(path)
            return
        with atomic_file(path) as stream:
            lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in self.rows())
            stream.writelines(line.encode("utf-8") for line in lines)


def check_chunk_file(path: str | os.PathLike[str], *, source: object = None) -> None:
    """Refuse, before the work, a name that chunks cannot be written to, and the file that the texts come from."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"{path}: received the ending '{ending}'; allowed: {', '.join(ENDINGS)}. Chunks are rows with several "
            f"fields. Try {Path(path).stem}.jsonl."
        )
    named = isinstance(source, str | os.PathLike) and exists(Path(source))
    if named and Path(path).exists() and Path(path).samefile(str(source)):
        raise InputError(
            f"{path}: the chunks would replace the texts that they are made of. Name another file to write."
        )


# -- chunk_texts ------------------------------------------------------------------------------------------------------


def chunk_texts(
    model: Any,
    texts: Any,
    *,
    tokens: int | None = None,
    overlap: int = 0,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Chunks:
    r"""Split texts so that every chunk fits the model: encoded by it, none is cut off. The model itself is not run.

    A text that fits stays as it is. Another is cut into parts of about equal length: at a blank line, else at the end
    of a line, of a sentence, at a blank, and inside a word only if the word alone is too long. Blanks at a cut are in
    no chunk; every other character is in exactly one, in order.

    Parameters
    ----------
    model
        Anything that `as_encoder` takes and that has a tokenizer.
    texts
        Anything that `read_texts` takes.
    tokens
        The most tokens of a chunk, its special tokens and the prompt included; by default what the model takes.
    overlap
        A chunk begins with up to so many tokens of the one before it.
    progress
        Called with numbers of texts just done.
    **options
        The fields of `EncoderOptions`.

    Returns
    -------
    Chunks
        A sequence of `Chunk`; `save` writes it, `as_texts` gives it to the other functions.

    Examples
    --------
    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "words.txt"
    >>> _ = table.write_text("one 1 0\ntwo 0 1\nthree 1 1\n", encoding="utf-8")
    >>> [chunk.text for chunk in chunk_texts(table, ["one two. three one two."], tokens=3)]
    ['one two.', 'three one two.']

    """
    corpus = texts if isinstance(texts, Texts) else read_texts(texts)
    encoder = as_encoder(model, **options)
    ruler = TokenRuler(encoder, tokens)
    if isinstance(overlap, bool) or not isinstance(overlap, int) or not 0 <= overlap <= ruler.room // 2:
        raise InputError(
            f"overlap: received {overlap!r}; allowed: a whole number of tokens from 0 to {ruler.room // 2}, half of "
            f"what a chunk has beside special tokens and prompt. Try {ruler.room // 8}."
        )
    chunks: list[Chunk] = []
    cuts: Counter[int] = Counter()
    documents = dict(zip(corpus.ids, groups_of_ids(corpus.ids) or (), strict=False))
    for group in text_groups(corpus):
        for number, pieces in enumerate(split_texts(group.texts, ruler, overlap=overlap)):
            chunks += _chunks(group, number, pieces, documents.get(group.ids[number]))
            cuts.update(piece.cut for piece in pieces if piece.cut is not None)
        if progress is not None:
            progress(len(group))
    _check_ids(chunks)
    result = Chunks(
        chunks=tuple(chunks),
        source=corpus.source,
        limit=ruler.limit,
        added=ruler.added,
        overlap=overlap,
        cuts={name: cuts[rank] for rank, name in enumerate(KINDS)},
        model=encoder.card.to_dict(),
    )
    if isinstance(texts, Texts):
        return result
    return result.with_columns(other_columns(texts, corpus), group_column(texts, (corpus.column,)))


def text_groups(corpus: Texts, most_characters: int = 2_000_000) -> Iterator[Texts]:
    """The texts in order, so many at a time: enough for the threads of a tokenizer, few enough for the memory."""
    start, characters = 0, 0
    for position, text in enumerate(corpus.texts):
        if characters and characters + len(text) > most_characters:
            yield corpus[start:position]
            start, characters = position, 0
        characters += len(text)
    yield corpus[start:]


def _chunks(texts: Texts, number: int, pieces: list[Piece], group: str | None) -> list[Chunk]:
    document = texts.ids[number]
    return [
        Chunk(
            id=document if len(pieces) == 1 else f"{document}#{k}",
            text=piece.of(texts.texts),
            document_id=document,
            start=piece.start,
            end=piece.end,
            tokens=piece.tokens,
            label=None if texts.labels is None else texts.labels[number],
            group=group,
        )
        for k, piece in enumerate(pieces, 1)
    ]


def _check_ids(chunks: list[Chunk]) -> None:
    twice = [name for name, count in Counter(chunk.id for chunk in chunks).items() if count > 1]
    if twice:
        raise InputError(
            f"received a text with the id {twice[0]!r}, which is also the id of a chunk of another text; an id names "
            f"one chunk. Leave the id column out to number the texts, or rename it."
        )
