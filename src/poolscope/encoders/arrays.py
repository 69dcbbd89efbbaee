"""Encoders without a model: ready arrays, and any function from texts to token arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import ModelCard, Progress, check_layers, check_texts
from poolscope.errors import InputError
from poolscope.texts.records import shorten

# Texts handed to a function at once: few enough to show progress, enough to batch inside.
_CHUNK = 256


class ArrayEncoder:
    """Clouds that were computed elsewhere. `encode` hands them out for as many texts as there are clouds.

    >>> encoder = ArrayEncoder.from_arrays([[[1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]])
    >>> encoder.encode(["one", "two tokens"])[-1]
    TokenClouds(2 texts, 3 tokens, dimension 2, float64)
    """

    def __init__(self, clouds: TokenClouds) -> None:
        self.ready_clouds = clouds
        self.card = ModelCard(
            name="arrays", kind="arrays", dimension=clouds.dimension, pooling=("mean",), dtype=clouds.dtype.name
        )

    @classmethod
    def from_arrays(cls, arrays: Sequence[Any]) -> ArrayEncoder:
        """From one (tokens × dimensions) array a text."""
        return cls(TokenClouds.from_arrays(arrays))

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """The ready clouds, with these texts beside them."""
        texts = check_texts(texts)
        wanted = check_layers(layers, None, name=self.card.name)
        if len(texts) != len(self.ready_clouds):
            raise InputError(
                f"received {len(texts)} texts for {len(self.ready_clouds)} ready clouds; one text a cloud is needed."
            )
        clouds = self.ready_clouds
        if clouds.texts is None:
            clouds = clouds.described(texts=texts)
        elif list(clouds.texts) != texts:
            first = next(k for k, (own, text) in enumerate(zip(clouds.texts, texts, strict=True)) if own != text)
            raise InputError(
                f"text {first} is not the text that its cloud was made of; the clouds carry their own texts. "
                f"Pass those texts, or encode the new ones with a model."
            )
        if progress is not None:
            progress(len(clouds), int(clouds.lengths.sum()))
        return dict.fromkeys(wanted, clouds)


class FunctionEncoder:
    """Any function from a list of texts to a list of (tokens × dimensions) arrays.

    Truncation and prompts are the function's own affair; poolscope cannot see them.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[Any]]) -> None:
        self._function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.card = ModelCard(name=name, kind="function", dimension=0)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """What the function gives for the texts, asked in pieces."""
        texts = check_texts(texts)
        wanted = check_layers(layers, None, name=self.card.name)
        arrays: list[Any] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            given = self._function(chunk)
            if not isinstance(given, Iterable) or getattr(given, "shape", None) == ():
                raise InputError(
                    f"{self.card.name} gave {shorten(given)}; it must give one (tokens × dimensions) array a text."
                )
            matrices = list(given)
            if len(matrices) != len(chunk):
                raise InputError(
                    f"{self.card.name} gave {len(matrices)} arrays for {len(chunk)} texts; it must give one (tokens × "
                    f"dimensions) array a text, in the same order."
                )
            arrays.extend(matrices)
            if progress is not None:
                progress(len(chunk), sum(len(array) for array in matrices))
        provenance = {"model": self.card.to_dict(), "options": {}, "layer": -1}
        clouds = TokenClouds.from_arrays(arrays, texts=texts, provenance=provenance)
        return dict.fromkeys(wanted, clouds)
