"""A whole repair in one file: reading, temperature, pooling and vector repair, applied to a model in one line.

vectors = Repair.load("repair.safetensors").apply("builtin:minilm").encode(texts)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.capabilities import has, longest_of, options_of, with_options
from poolscope.encoders.pooling import own_pooling
from poolscope.errors import InputError, ModelError, StoreError
from poolscope.evaluation.run import PROMPT_CHOICES, PooledModel, Vectors, asks_for_prompt, encode_layers, for_role
from poolscope.extensions import load_extensions
from poolscope.numbers.pooling import POOLINGS, Arrays, MeanPooling, Pooling
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs.readings import READINGS, Layers, Reading
from poolscope.repairs.registry import FAMILIES, make_part
from poolscope.repairs.temperature.rules import TemperatureRule, as_rule
from poolscope.repairs.vectors import VECTOR_REPAIRS, read_arrays, rebuild, write_arrays
from poolscope.surface import check_fields
from poolscope.words import warn

_KIND = "repair"
_SAME_MODEL = 0.98  # cosine of the probe's vectors
# A text whose vector tells the model that a repair was made for from any other.
_PROBE = "A probe by which a repair knows its model again."
_UNSET = ("revision",)  # of the encoder's choices: the probe recognises the model


class RepairOptionsWarning(UserWarning):
    """A repair is applied with other encoder options than those it was proved with."""


@dataclass(frozen=True, eq=False)
class Repair:
    """What to change about a model's vectors; each part None for "as it is".

    Parts that learn from texts are fitted by `fitted`, or before; only then the repair can be applied and saved.

    Parameters
    ----------
    temperature
        A number, a rule (`YarnLike`, `Steps`, …), or a saved rule.
    pooling
        The name of a pooling, or a pooling.
    vectors
        The name of a vector repair, or a vector repair.
    model, revision
        The model that it was made for.
    probe
        The vector of a fixed text, by which that model is known again.
    evidence
        Why it was recommended.
    options
        The encoder options (prompt, max_length, dtype, …) with which it was proved.
    dtype
        The precision in which the model ran then, chosen or not.
    reading
        The name of a reading of decoders (`echo`, `value pooling`, …), or a reading.

    Examples
    --------
    >>> Repair(temperature=0.9, pooling="cls")
    Repair(τ 0.9 · cls)
    >>> model = lambda texts: [[[float(text.count("a")), 1.0]] for text in texts]
    >>> Repair(pooling="max").apply(model).encode(["a", "bb"]).round(2)
    array([[0.71, 0.71],
           [0.  , 1.  ]], dtype=float32)

    """

    temperature: Any = None
    pooling: Any = None
    vectors: Any = None
    model: str | None = None
    revision: str | None = None
    probe: Vectors | None = field(default=None, repr=False)
    evidence: Mapping[str, Any] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    dtype: str | None = field(default=None, repr=False)
    reading: Any = None

    def __post_init__(self) -> None:
        check_fields(self)
        rule = None if self.temperature is None else as_rule(self.temperature)
        object.__setattr__(self, "temperature", rule)
        for family in ("reading", "pooling", "vectors"):
            how = getattr(self, family)
            part = None if how is None else make_part(family, how, argument=family)
            object.__setattr__(self, family, part)

    def __repr__(self) -> str:
        return f"Repair({self.label})"

    @property
    def label(self) -> str:
        """The parts in a few words."""
        rule: TemperatureRule | None = self.temperature
        parts = [] if self.reading is None else [self.reading.label]
        parts += [] if rule is None or rule.neutral else [_temperature_label(rule)]
        parts += [part.label for part in (self.pooling, self.vectors) if part is not None]
        return " · ".join(parts) or "as it is"

    @property
    def family(self) -> str:
        """The part that it changes, or "combination"; "none" for the model as it is."""
        changed = [name for name in FAMILIES if getattr(self, name) is not None]
        return changed[0] if len(changed) == 1 else "combination" if changed else "none"

    def fitted(self, sides: Sequence[Layers], declared: Pooling) -> Repair:
        """The same repair, its parts learnt anew from the clouds of all sides together."""
        pooling = deepcopy(self.pooling)
        if pooling is not None:
            pooling.fit({layer: TokenClouds.concatenate([side[layer] for side in sides]) for layer in pooling.layers})
        vectors = deepcopy(self.vectors)
        if vectors is not None:
            vectors.fit(np.concatenate([declared.with_inner(pooling).transform(side) for side in sides]))
        return replace(self, pooling=pooling, vectors=vectors)

    def apply(self, model: Any, **options: Any) -> RepairedModel:
        """The model with this repair; `model` and `options` are those of `as_encoder`. The model itself is not changed.

        Refused for a model that is not the one the repair was fitted on. Options that are not given are those with
        which it was proved; others are taken as they are given, with a warning.
        """
        if "dtype" in self.options and _is_loaded_here(model):
            options = {"dtype": self.options["dtype"], **options}
        encoder = _with_choices(plain_encoder(model, **options), self.options)
        self._check(encoder)
        self._compare_options(encoder)
        return RepairedModel(encoder, self)

    def pooled(self, clouds: Mapping[int, TokenClouds], declared: Pooling) -> Vectors:
        """Vectors of length 1 from clouds at the temperature; `declared` pools where this repair does not.

        Modules that the model puts behind its pooling stand behind that of the repair too.
        """
        return self.finish(declared.with_inner(self.pooling).transform(clouds))

    def finish(self, pooled: Any) -> Vectors:
        """Pooled vectors through the vector repair, at length 1."""
        return unit_rows(pooled, "vectors") if self.vectors is None else np.asarray(self.vectors.transform(pooled))

    def made_for(self, encoder: TokenEncoder, evidence: Mapping[str, Any]) -> Repair:
        """The same repair, with the model it belongs to and why."""
        card = encoder.card
        return replace(
            self,
            model=card.name,
            revision=card.revision,
            probe=None if card.revision is None else probe_vector(encoder),
            evidence=evidence,
            options=_choices(encoder),
            dtype=card.dtype,
        )

    def to_dict(self) -> dict[str, Any]:
        """What is done to the vectors, as plain types; the fitted arrays are kept beside it."""
        parts = {"temperature": self.temperature, "pooling": self.pooling, "vectors": self.vectors}
        parts |= {} if self.reading is None else {"reading": self.reading}  # files of before have none
        return {name: None if part is None else part.to_dict() for name, part in parts.items()}

    @property
    def arrays(self) -> Arrays:
        """The fitted arrays by part and name."""
        parts = {"pooling": self.pooling, "vectors": self.vectors}
        fitted = {name: part.arrays for name, part in parts.items() if part is not None}
        return {f"{name}.{key}": value for name, arrays in fitted.items() for key, value in arrays.items()}

    @property
    def digest(self) -> str:
        """SHA-256 of all that is done to the vectors; repairs that were fitted on other texts differ in it."""
        hashed = hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode())
        for name, array in sorted(self.arrays.items()):
            hashed.update(f"{name} {array.dtype.str} {array.shape}".encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file: fitted arrays as tensors, the rest as JSON in its metadata."""
        self.require_fit()
        made_for = {name: getattr(self, name) for name in ("model", "revision", "evidence", "options", "dtype")}
        arrays = self.arrays if self.probe is None else {**self.arrays, "probe": self.probe}
        write_arrays(path, {"kind": _KIND, **self.to_dict(), **made_for}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Repair:
        """Read what `save`, or `poolscope tune -o`, wrote."""
        content, arrays = read_arrays(path, _KIND)
        try:
            return cls._from_content(content, arrays)
        except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{path}: the repair in it is damaged or incomplete ({type(error).__name__}: {error}). Write it again "
                f"with `poolscope tune -o` or Repair.save."
            ) from error

    @classmethod
    def _from_content(cls, content: Mapping[str, Any], arrays: Arrays) -> Repair:
        load_extensions()

        def part(name: str, kinds: Mapping[str, type[Any]]) -> Any:
            own = {key.partition(".")[2]: value for key, value in arrays.items() if key.startswith(f"{name}.")}
            return None if content[name] is None else rebuild(content[name], own, kinds)

        repair = cls(
            temperature=content["temperature"],
            pooling=part("pooling", POOLINGS),
            vectors=part("vectors", VECTOR_REPAIRS),
            model=content["model"],
            revision=content["revision"],
            probe=arrays.get("probe"),
            evidence=dict(content["evidence"]),
            options=dict(content.get("options", {})),  # files of before did not keep them
            dtype=content.get("dtype"),  # nor this
            reading=part("reading", READINGS) if "reading" in content else None,
        )
        repair.require_fit()
        return repair

    def require_fit(self) -> None:
        """Refuse parts that learn from texts and have not yet."""
        if self.vectors is not None:
            self.vectors.require_fit("mean_")
        if self.pooling is not None and self.pooling.learns and not self.pooling.arrays:
            raise InputError(f"pooling: received {self.pooling!r}, which is not fitted yet; call fit on clouds first.")

    def _compare_options(self, encoder: TokenEncoder) -> None:
        """Warn where a repair that was proved encodes otherwise than it was proved with."""
        if self.model is None or not hasattr(encoder, "options"):
            return
        chosen = options_of(encoder)
        proved = [self.options.get(name) for name in PROMPT_CHOICES]
        prompts = [getattr(chosen, name) for name in PROMPT_CHOICES]
        limits = [self.options.get("max_length") or encoder.card.max_length, longest_of(encoder)]
        dtypes = [self.dtype or self.options.get("dtype", encoder.card.dtype), encoder.card.dtype]
        pairs = {"prompt": (proved, prompts), "max_length": limits, "dtype": dtypes}
        if differ := [name for name, (before, now) in pairs.items() if before != now]:
            remedy = f"Load the model in {dtypes[0]}" if differ == ["dtype"] else "Leave these options out"
            warn(
                f"{encoder.card.name}: the repair was proved with the encoder options {dict(self.options)} in "
                f"{dtypes[0]} and is applied with {_choices(encoder)} in {dtypes[1]}; nothing was proved for this "
                f"({', '.join(differ)}). {remedy}, or run `poolscope tune` for this.",
                RepairOptionsWarning,
            )

    def _check(self, encoder: TokenEncoder) -> None:
        if self.probe is None or encoder.card.revision is None:
            return
        vector = probe_vector(encoder)
        if vector.shape != self.probe.shape or float(vector @ self.probe) < _SAME_MODEL:
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


def _choices(encoder: TokenEncoder) -> dict[str, Any]:
    """The choices of the caller that change vectors, as far as they were made."""
    return {
        name: value for name, value in options_of(encoder).content().items() if value is not None and name not in _UNSET
    }


def _is_loaded_here(model: Any) -> bool:
    """Can its dtype still be chosen: a name, a folder, or a model that is wrapped here?"""
    return isinstance(model, str | os.PathLike | tuple) or hasattr(model, "forward")


def _temperature_label(rule: TemperatureRule) -> str:
    fields = {key: value for key, value in rule.to_dict().items() if key != "kind"} if rule.kind != "function" else {}
    return f"τ {fields['tau']:g}" if rule.kind == "constant" else f"τ by {rule.kind} {fields or ''}".strip()


def combined(best: Mapping[str, Repair]) -> list[Repair]:
    """Every combination of the best of two or three families, not fitted together yet."""
    parts = [best[family] for family in FAMILIES if family in best]
    return [
        Repair(**{part.family: getattr(part, part.family) for part in chosen})
        for count in range(2, len(parts) + 1)
        for chosen in combinations(parts, count)
    ]


def plain_encoder(model: Any, **options: Any) -> TokenEncoder:
    """The encoder of a model that is not repaired already: two repairs do not go together."""
    if isinstance(model, PooledModel):
        raise InputError(
            f"model: received {model!r}; a repair is made for a model as it is. Pass the model itself, or its .encoder."
        )
    return as_encoder(model, **options)


class RepairedModel(PooledModel):
    """A model with its repair: texts to vectors of length 1, with the names that sentence-transformers uses."""

    def __init__(self, encoder: TokenEncoder, repair: Repair, pooling: Pooling | None = None) -> None:
        super().__init__(encoder, own_pooling(encoder, repair.pooling) if pooling is None else pooling)
        self.pooling = self.pooling.with_inner(repair.pooling)
        self.repair = repair

    def __repr__(self) -> str:
        return f"RepairedModel({self.card.name}: {self.repair.label})"

    def clouds(
        self, texts: Sequence[str], *, role: str | None = None, progress: Progress | None = None
    ) -> Mapping[int, TokenClouds]:
        """The clouds that are pooled, by layer: at the temperature, before the pooling."""
        way = {"reading": self.repair.reading, "layers": self.pooling.layers}
        return encode_at(self.encoder, texts, self.repair.temperature, role=role, progress=progress, **way)

    def pooled(self, clouds: Mapping[int, TokenClouds]) -> Vectors:
        """Repaired vectors of length 1 from clouds by layer."""
        return self.repair.finish(self.pooling.transform(clouds))


def encode_at(
    encoder: TokenEncoder,
    texts: Sequence[str],
    rule: TemperatureRule | None,
    *,
    reading: Reading | None = None,
    role: str | None = None,
    layers: Sequence[int] = (-1,),
    progress: Progress | None = None,
) -> Layers:
    """The clouds of the texts by layer, with the model's prompt for the role, its attention scaled, and read so."""
    speaking = for_role(encoder, role)
    with _scaled(speaking, rule, role):
        if reading is None:
            return encode_layers(speaking, texts, layers, progress=progress)
        return reading.encode(speaking, texts, layers=layers, progress=progress)


def _scaled(encoder: TokenEncoder, rule: TemperatureRule | None, role: str | None) -> Any:
    if rule is None or rule.neutral:
        return nullcontext()
    from poolscope.repairs.temperature.tempscale import tempscale

    return tempscale(encoder, rule, role=role)


def probe_vector(encoder: TokenEncoder) -> Vectors:
    """The mean vector of a fixed text, without any prompt: it tells a model from others, whatever it is asked with."""
    try:
        clouds = _unprompted(encoder).encode([_PROBE])[-1]
    except InputError as error:
        raise ModelError(
            f"{encoder.card.name}: it knows no word of the text by which a repair recognises its model ({_PROBE!r}), "
            f"so that a repair of it could be applied to any other. Use a table with these words."
        ) from error
    return np.asarray(unit_rows(MeanPooling().transform(clouds), "probe")[0])


def _with_choices(encoder: TokenEncoder, choices: Mapping[str, Any]) -> TokenEncoder:
    """The encoder with some choices where it has none of its own; what is fixed at loading (dtype) is left out."""
    if not choices or not has(encoder, "with_options"):
        return encoder
    options = options_of(encoder)
    lacking: dict[str, Any] = {"max_length": options.max_length or choices.get("max_length")}
    if not asks_for_prompt(options):
        lacking |= {name: choices.get(name) for name in PROMPT_CHOICES}
    return with_options(encoder, replace(options, **lacking))


def _unprompted(encoder: TokenEncoder) -> TokenEncoder:
    """The encoder without any prompt, cutting where its model declares: what it does is the model's doing alone."""
    if not has(encoder, "with_options"):
        return encoder
    options = replace(options_of(encoder), prompt="", prompt_name=None, role=None, max_length=None)
    # A model that keeps a rule for each role can be run in a role only, whatever the prompt: always the same one.
    return with_options(encoder, options, role="document")
