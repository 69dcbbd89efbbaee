"""A model with its repair: texts to vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import ModelCard, Progress, TokenEncoder, check_texts
from poolscope.errors import InputError
from poolscope.numbers.pooling import Pooling, make_pooling
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs.encoding import encode_side, in_batches, unprompted

if TYPE_CHECKING:
    from poolscope.repairs.repair_file import Repair

Vectors = NDArray[np.float32]

# A text whose vector tells the model that a repair was made for from any other.
_PROBE = "A probe by which a repair knows its model again."
# Texts whose clouds are in memory at a time.
_PIECE = 2_048


def plain_encoder(model: Any, **options: Any) -> TokenEncoder:
    """The encoder of a model that is not repaired already: two repairs do not go together."""
    if isinstance(model, RepairedModel):
        raise InputError(
            f"model: received {model!r}; a repair is made for a model as it is. Pass the model itself, or its .encoder."
        )
    return as_encoder(model, **options)


class RepairedModel:
    """A model with its repair: texts to vectors of length 1, with the names that sentence-transformers uses."""

    def __init__(self, encoder: TokenEncoder, repair: Repair, pooling: Pooling) -> None:
        self.encoder = encoder
        self.repair = repair
        self.pooling = pooling

    def __repr__(self) -> str:
        return f"RepairedModel({self.card.name}: {self.repair.label})"

    @property
    def card(self) -> ModelCard:
        """What the model declares."""
        return self.encoder.card

    def encode(
        self,
        texts: Sequence[str] | str,
        *,
        role: str | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Vectors:
        """One vector a text, of length 1 (float32); `role` picks the prompt and the temperature of that role.

        A single string gives its vector alone. Texts go through in pieces: the clouds of one piece are in memory at a
        time. Batches are made by tokens; `batch_size` bounds their memory to that of as many texts of full length.
        """
        if isinstance(texts, str):
            one: Vectors = self.encode([texts], role=role, batch_size=batch_size, progress=progress)[0]
            return one
        if batch_size is not None:
            smaller = RepairedModel(in_batches(self.encoder, batch_size), self.repair, self.pooling)
            return smaller.encode(texts, role=role, progress=progress)
        texts = check_texts(texts)
        # Ready clouds cannot be asked for a part of their texts.
        step = len(texts) if self.card.kind == "arrays" else _PIECE
        pieces = [texts[start : start + step] for start in range(0, len(texts), step)]
        parts = (self.clouds(piece, role=role, progress=progress) for piece in pieces)
        return np.concatenate([self.repair.pooled(part, self.pooling) for part in parts])

    def encode_query(self, texts: Sequence[str] | str, *, batch_size: int | None = None) -> Vectors:
        """The vectors of queries."""
        return self.encode(texts, role="query", batch_size=batch_size)

    def encode_document(self, texts: Sequence[str] | str, *, batch_size: int | None = None) -> Vectors:
        """The vectors of documents."""
        return self.encode(texts, role="document", batch_size=batch_size)

    def clouds(
        self, texts: Sequence[str], *, role: str | None = None, progress: Progress | None = None
    ) -> Mapping[int, TokenClouds]:
        """The clouds that are pooled, by layer: at the temperature, before the pooling."""
        return encode_side(
            self.encoder,
            texts,
            role=role,
            temperature=self.repair.temperature,
            layers=self.pooling.layers,
            progress=progress,
        )


def probe_vector(encoder: TokenEncoder) -> Vectors:
    """The mean vector of a fixed text, without any prompt: it tells a model from others, whatever it is asked with."""
    clouds = unprompted(encoder).encode([_PROBE])[-1]
    return np.asarray(unit_rows(make_pooling("mean").transform(clouds), "probe")[0])
