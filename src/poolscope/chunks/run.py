"""`chunk_texts`: a model and texts in, chunks that the model reads to their end out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from poolscope.chunks.boundaries import KINDS
from poolscope.chunks.result import Chunk, Chunks
from poolscope.chunks.ruler import TokenRuler
from poolscope.chunks.splitting import Piece, split_texts
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.texts import Texts, read_texts

# Characters that are worked on at once: enough for the threads of a tokenizer, few enough for the memory.
_GROUP = 2_000_000


def chunk_texts(
    model: Any,
    texts: Any,
    *,
    tokens: int | None = None,
    overlap: int = 0,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Chunks:
    """Split texts so that every chunk fits the model: encoded by it, none is cut off. The model itself is not run.

    `model` is anything `as_encoder` takes that has a tokenizer, `texts` anything `read_texts` takes and `options` are
    those of the encoder. A chunk has at most `tokens` tokens (default: what the model takes), its special tokens and
    the prompt included. A text that fits stays as it is. Another is cut into parts of about equal length: at a blank
    line, else at the end of a line, of a sentence, at a blank, and inside a word only if the word alone is too long.
    Blanks at a cut are in no chunk; every other character is in exactly one, in order. With `overlap` a chunk begins
    with up to so many tokens of the one before it. `progress` is called with numbers of texts just done.

    >>> words = lambda texts: [[[1.0]] for _ in texts]
    >>> chunk_texts(words, ["one text"], tokens=8)  # a function has no tokenizer
    Traceback (most recent call last):
    poolscope.errors.ModelError: ...
    """
    corpus = texts if isinstance(texts, Texts) else read_texts(texts)
    encoder = as_encoder(model, **options)
    ruler = TokenRuler(encoder, tokens)
    if isinstance(overlap, bool) or not isinstance(overlap, int) or not 0 <= overlap <= ruler.room // 2:
        raise InputError(
            f"overlap: received {overlap!r}; allowed: a whole number of tokens from 0 to {ruler.room // 2}, half of "
            f"what a chunk has beside special tokens and prompt. Ask for less."
        )
    chunks: list[Chunk] = []
    cuts: Counter[int] = Counter()
    for group in _groups(corpus):
        for number, pieces in enumerate(split_texts(group.texts, ruler, overlap=overlap)):
            chunks += _chunks(group, number, pieces)
            cuts.update(piece.cut for piece in pieces if piece.cut is not None)
        if progress is not None:
            progress(len(group))
    _check_ids(chunks)
    return Chunks(
        chunks=tuple(chunks),
        source=corpus.source,
        limit=ruler.limit,
        added=ruler.added,
        overlap=overlap,
        cuts={name: cuts[rank] for rank, name in enumerate(KINDS)},
        model=encoder.card.to_dict(),
    )


def _groups(corpus: Texts) -> Iterator[Texts]:
    start, characters = 0, 0
    for position, text in enumerate(corpus.texts):
        if characters and characters + len(text) > _GROUP:
            yield corpus[start:position]
            start, characters = position, 0
        characters += len(text)
    yield corpus[start:]


def _chunks(texts: Texts, number: int, pieces: list[Piece]) -> list[Chunk]:
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
