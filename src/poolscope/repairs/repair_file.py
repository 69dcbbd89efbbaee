"""A whole repair in one file: temperature, pooling and vector repair, applied to a model in one line.

vectors = Repair.load("repair.safetensors").apply("builtin:minilm").encode(texts)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import ModelCard, Progress, TokenEncoder, check_texts
from poolscope.errors import InputError
from poolscope.ranking import unit_rows
from poolscope.repairs.encoding import encode_side, unprompted
from poolscope.repairs.fitted import Arrays, read_arrays, rebuild, write_arrays
from poolscope.repairs.pooling import POOLINGS, Pooling, declared_pooling, make_pooling
from poolscope.repairs.temperature_rules import TemperatureRule, as_rule
from poolscope.repairs.vectors import VECTOR_REPAIRS, VectorRepair

Vectors = NDArray[np.float32]

_KIND = "repair"
# A text whose vector tells the model that a repair was made for from any other.
_PROBE = "A probe by which a repair knows its model again."
_SAME_MODEL = 0.98
# Texts whose clouds are in memory at a time.
_PIECE = 2_048


@dataclass(frozen=True, eq=False)
class Repair:
    """What to change about a model's vectors; each part None for "as it is".

    temperature: a number, a rule, or a saved rule; pooling: a name, or a fitted pooling; vectors: a fitted vector
    repair. `model` and `revision` name the model it was made for, `probe` recognises it, and `evidence` says why it was
    recommended.

    >>> Repair(temperature=0.9, pooling="cls")
    Repair(τ 0.9 · cls)
    """

    temperature: Any = None
    pooling: Any = None
    vectors: VectorRepair | None = None
    model: str | None = None
    revision: str | None = None
    probe: Vectors | None = field(default=None, repr=False)
    evidence: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        rule = None if self.temperature is None else as_rule(self.temperature)
        object.__setattr__(self, "temperature", rule)
        object.__setattr__(self, "pooling", None if self.pooling is None else make_pooling(self.pooling))

    def __repr__(self) -> str:
        return f"Repair({self.label})"

    @property
    def label(self) -> str:
        """The parts in a few words."""
        rule: TemperatureRule | None = self.temperature
        parts = [] if rule is None or rule.neutral else [_temperature_label(rule)]
        parts += [part.label for part in (self.pooling, self.vectors) if part is not None]
        return " · ".join(parts) or "as it is"

    def apply(self, model: Any, **options: Any) -> RepairedModel:
        """The model with this repair; `model` and `options` are those of `as_encoder`. The model itself is not changed.

        Refused for a model that is not the one the repair was fitted on.
        """
        encoder = as_encoder(model, **options)
        self._check(encoder)
        return RepairedModel(encoder, self, self.pooling or declared_pooling(encoder.card))

    def pooled(self, clouds: Mapping[int, TokenClouds], declared: Pooling) -> Vectors:
        """Vectors of length 1 from clouds at the temperature; `declared` pools where this repair does not."""
        return self.finish((self.pooling or declared).transform(clouds))

    def finish(self, pooled: Any) -> Vectors:
        """Pooled vectors through the vector repair, at length 1."""
        return unit_rows(pooled, "vectors") if self.vectors is None else self.vectors.transform(pooled)

    def made_for(self, encoder: TokenEncoder, evidence: Mapping[str, Any]) -> Repair:
        """The same repair, with the model it belongs to and why."""
        card = encoder.card
        return Repair(
            temperature=self.temperature,
            pooling=self.pooling,
            vectors=self.vectors,
            model=card.name,
            revision=card.revision,
            probe=None if card.revision is None else probe_vector(encoder),
            evidence=evidence,
        )

    def to_dict(self) -> dict[str, Any]:
        """What is done to the vectors, as plain types; the fitted arrays are kept beside it."""
        parts = {"temperature": self.temperature, "pooling": self.pooling, "vectors": self.vectors}
        return {name: None if part is None else part.to_dict() for name, part in parts.items()}

    @property
    def arrays(self) -> Arrays:
        """The fitted arrays by part and name."""
        parts = {"pooling": self.pooling, "vectors": self.vectors}
        return {
            f"{name}.{key}": value
            for name, part in parts.items()
            if part is not None
            for key, value in part.arrays.items()
        }

    @property
    def digest(self) -> str:
        """SHA-256 of all that is done to the vectors; repairs that were fitted on other texts differ in it."""
        found = hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode())
        for name, array in sorted(self.arrays.items()):
            found.update(f"{name} {array.dtype.str} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file: fitted arrays as tensors, the rest as JSON in its metadata."""
        made_for = {"model": self.model, "revision": self.revision, "evidence": self.evidence}
        arrays = self.arrays if self.probe is None else {**self.arrays, "probe": self.probe}
        write_arrays(path, {"kind": _KIND, **self.to_dict(), **made_for}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Repair:
        """Read what `save`, or `poolscope tune -o`, wrote."""
        content, arrays = read_arrays(path, _KIND)

        def part(name: str, kinds: Mapping[str, type[Any]]) -> Any:
            own = {key.partition(".")[2]: value for key, value in arrays.items() if key.startswith(f"{name}.")}
            return None if content[name] is None else rebuild(content[name], own, kinds)

        return cls(
            temperature=content["temperature"],
            pooling=part("pooling", POOLINGS),
            vectors=part("vectors", VECTOR_REPAIRS),
            model=content["model"],
            revision=content["revision"],
            probe=arrays.get("probe"),
            evidence=content["evidence"],
        )

    def _check(self, encoder: TokenEncoder) -> None:
        if self.probe is None or encoder.card.revision is None:
            return
        found = probe_vector(encoder)
        if found.shape != self.probe.shape or float(found @ self.probe) < _SAME_MODEL:
            same = encoder.card.name == self.model
            hint = (
                "The names agree: look at the options (dtype, revision, a temperature in force), or run"
                if same
                else "Run"
            )
            raise InputError(
                f"model: received {encoder.card.name}, whose vector of the probe text is not that of {self.model}, for "
                f"which this repair was made; a repair belongs to one model. {hint} `poolscope tune` for this one."
            )


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

    def encode(self, texts: Sequence[str], *, role: str | None = None, progress: Progress | None = None) -> Vectors:
        """One vector a text, of length 1 (float32); `role` picks the prompt and the temperature of that role.

        Texts go through in pieces: the clouds of one piece are in memory at a time.
        """
        texts = check_texts(texts)
        # Ready clouds cannot be asked for a part of their texts.
        step = len(texts) if self.card.kind == "arrays" else _PIECE
        pieces = [texts[start : start + step] for start in range(0, len(texts), step)]
        parts = (self.clouds(piece, role=role, progress=progress) for piece in pieces)
        return np.concatenate([self.repair.pooled(part, self.pooling) for part in parts])

    def encode_query(self, texts: Sequence[str]) -> Vectors:
        """The vectors of queries."""
        return self.encode(texts, role="query")

    def encode_document(self, texts: Sequence[str]) -> Vectors:
        """The vectors of documents."""
        return self.encode(texts, role="document")

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


def _temperature_label(rule: TemperatureRule) -> str:
    fields = {key: value for key, value in rule.to_dict().items() if key != "kind"} if rule.kind != "function" else {}
    return f"τ {fields['tau']:g}" if rule.kind == "constant" else f"τ by {rule.kind} {fields or ''}".strip()
