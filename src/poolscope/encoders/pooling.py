"""How a model itself pools: from the declaration on its card to a pooling, and what happens without a single one.

This is the one place that decides it. `own_pooling` refuses a model whose vectors cannot be computed from its tokens
(a repair must not be proved on other vectors than the model's); `TextPooling` takes the mean instead and says so (a
measurement of tokens is still one). Both go through the modules behind the pooling (Dense), where these can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import ModelCard, TokenEncoder
from poolscope.encoders.capabilities import as_numpy, steps_after
from poolscope.encoders.folders import module_folders, read_settings
from poolscope.errors import InputError, ModelError, explained, require
from poolscope.numbers.pooling import (
    Clouds,
    FirstPooling,
    LastPooling,
    MaxPooling,
    MeanPooling,
    Pooling,
    PositionPooling,
    RootMeanPooling,
)

Array = NDArray[np.float64]

MEAN_ONLY = "describe the mean of its tokens, which is not the vector that the model gives"


@dataclass(frozen=True)
class Mode:
    """A pooling as models declare it: its class here, its words, and how far numbers of a mean hold for such a model.

    `tells` follows `MEAN_ONLY`; None where the mean has the direction of the model's own vector.
    """

    pooling: type[Pooling]
    words: str
    tells: str | None = "."

    def meaning(self) -> str:
        """Say how the model pools, and what the numbers of a mean describe for it."""
        return self.words if self.tells is None else f"{self.words} The numbers {MEAN_ONLY}{self.tells}"


_IF_USED = ": they tell how its tokens lie and what mean pooling would hide if it were used with this model"
_LAST = Mode(
    LastPooling,
    "The model pools by its last token.",
    f"{_IF_USED}. In a causal model early tokens have not seen the whole text.",
)
_POSITION = Mode(PositionPooling, "The model pools by a mean in which later tokens weigh more.")
# By the names of sentence-transformers and by ours.
MODES: dict[str, Mode] = {
    "mean": Mode(MeanPooling, "The model pools by the mean of its tokens, and so does poolscope.", None),
    "cls": Mode(
        FirstPooling,
        "The model pools by its first token (CLS).",
        f"{_IF_USED}, and nothing about its own CLS vectors.",
    ),
    "lasttoken": _LAST,
    "last": _LAST,
    "max": Mode(MaxPooling, "The model pools by the largest value of each dimension."),
    "weightedmean": _POSITION,
    "position": _POSITION,
    "mean_sqrt_len_tokens": Mode(
        RootMeanPooling,
        "The model pools by the sum of its tokens over the square root of their number: the mean, longer by the root "
        "of the number of tokens. The direction is the same, so cosines and SOCM are the model's own.",
        None,
    ),
}
# Models that others made and that may have been trained with any pooling; a function's or an array's mean is our own.
_MODEL_KINDS = ("transformers", "onnx")


def why_no_pooling(card: ModelCard) -> str:
    """Why the vectors of a model are not those of one pooling, as a clause; empty where they are.

    >>> why_no_pooling(ModelCard("m", "transformers", 4, pooling=("cls", "mean")))
    'm: the model pools by cls + mean, so that its vectors are not those of one pooling'
    """
    modes = card.pooling or ("mean",)
    if card.keeps_tokens:
        return f"{card.name}: the model pools nothing: it keeps a vector for each token and scores by MaxSim"
    if further := modules_after(card.after):
        what = f"applies {', '.join(further)} after pooling"
    elif len(modes) > 1 or modes[0] not in MODES:
        what = f"pools by {' + '.join(card.pooling)}"
    else:
        return ""
    return f"{card.name}: the model {what}, so that its vectors are not those of one pooling"


def declared_pooling(card: ModelCard) -> Pooling:
    """The pooling that a model declares, the mean where it declares none; refused if its vectors need more than it.

    >>> declared_pooling(ModelCard("m", "transformers", 4, pooling=("lasttoken",), after=("Normalize",))).name
    'last'
    """
    reason = why_no_pooling(card)
    if reason and card.keeps_tokens:
        raise ModelError(
            f"{reason}; needed: a model with one vector a text. Ask `poolscope cost` what pooling this one would lose."
        )
    if reason:
        raise ModelError(
            f"{reason}; allowed: one of {', '.join(MODES)}, with Normalize behind it or nothing. Repair its finished "
            f"vectors with poolscope.repairs.vectors instead."
        )
    return MODES[(card.pooling or ("mean",))[0]].pooling()


class FinishedPooling(Pooling):
    """A pooling with the modules that a model puts behind it (Dense, LayerNorm), as EmbeddingGemma does."""

    def __init__(self, inner: Pooling, steps: Sequence[Step]) -> None:
        self.inner, self.steps = inner, tuple(steps)
        self.name, self.layers, self.needs_ids = inner.name, inner.layers, inner.needs_ids  # type: ignore[misc]

    @property
    def label(self) -> str:
        """That of the pooling: the modules are the model's own."""
        return self.inner.label

    def with_inner(self, other: Pooling | None) -> Pooling:
        """The same modules behind another pooling."""
        return self if other is None else FinishedPooling(other, self.steps)

    def transform(self, clouds: Clouds) -> Array:
        """Pooled, then through the modules; refused where the pooling gives another width than they take."""
        return self._finished(self.inner.transform(clouds))

    def vector(self, cloud: Any, ids: Any) -> Array:
        """The vector of one cloud, after the modules."""
        return np.asarray(self._finished(self.inner.vector(cloud, ids)[None])[0])

    def rows(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Array:
        """The vectors of clouds that stand end to end, after the modules."""
        return self._finished(self.inner.rows(tokens, offsets))

    def _finished(self, vectors: Array) -> Array:
        widths = [step.width for step in self.steps if step.width is not None]
        if widths and widths[0] != vectors.shape[1]:
            raise InputError(
                f"{self.label}: it gives {vectors.shape[1]} numbers, and {self.steps[0].name}, which the model puts "
                f"behind its pooling, takes {widths[0]}. Choose a pooling of that width."
            )
        return finish(vectors, self.steps)


def own_pooling(encoder: TokenEncoder, pooling: Pooling | None = None) -> Pooling:
    """What makes the vectors of a model from its clouds: the pooling it declares (or another) and the modules behind.

    Refused where the modules cannot be read, or where no one pooling is declared.
    """
    steps = steps_after(encoder)
    if steps is None:
        return declared_pooling(encoder.card)  # an error, which names the modules
    inner = declared_pooling(replace(encoder.card, after=())) if pooling is None else pooling
    return FinishedPooling(inner, steps) if steps else inner


def declares_nothing(card: ModelCard) -> bool:
    """Is it a model that somebody trained, and that does not say with which pooling?"""
    return not card.pooling and card.kind in _MODEL_KINDS


def modules_after(after: tuple[str, ...]) -> list[str]:
    """The modules between pooling and the final vector that change its direction."""
    return [module for module in after if module != "Normalize"]


def named_pooling(modes: Sequence[str]) -> str:
    """What a model declares as its pooling, by the names of poolscope.

    >>> named_pooling(["cls", "weightedmean"])
    'cls + position'
    """
    return " + ".join(MODES[mode].pooling.name if mode in MODES else mode for mode in modes)


class TextPooling:
    """The vectors of texts as a model gives them, and the means of their tokens where these cannot be computed.

    `steps` are the modules behind the pooling (Dense), None where they could not be read; `TextPooling.of` asks an
    encoder for them. The mean is taken where the model declares no pooling, joins several, or has modules that could
    not be read, because it is the pooling of most models and the one whose losses are measured here. `own` says whether
    the vectors are the model's own, up to their length (None where it declares nothing). `notes` is empty for a
    declared mean; otherwise it names the pooling, or says why the vectors are means and not the model's own.

    >>> taken = TextPooling(ModelCard("m", "transformers", 4, pooling=("cls", "mean")))
    >>> taken.name, taken.own
    ('mean', False)
    """

    def __init__(self, card: ModelCard, steps: Sequence[Step] | None = None) -> None:
        self.own: bool | None = True if card.pooling else None
        self.notes: tuple[str, ...] = ()
        self.modules = modules_after(card.after)
        self.pooling: Pooling = MeanPooling()
        of_tokens = card if steps is None else replace(card, after=())
        if reason := why_no_pooling(of_tokens):
            self.own = False
            self.notes = (
                f"Vectors are means of the tokens and not the model's own. {reason}. Encode the texts elsewhere and "
                f"pass the vectors as a file to measure those.",
            )
            return
        inner = declared_pooling(of_tokens)
        self.pooling = FinishedPooling(inner, steps) if steps else inner
        if declares_nothing(card):
            self.notes = (f"{card.name} declares no pooling; its vectors are taken to be the means of its tokens.",)
        elif not self.is_mean:
            then = f", then {', '.join(self.modules)}" if self.modules else ""
            note = f"Vectors are pooled as the model declares: {', '.join(card.pooling)}{then}."
            if self.name in ("cls", "position") and not card.include_prompt:
                note += " Where a prompt is left out of the pooling, places count from the first token after it."
            self.notes = (note,)

    @classmethod
    def of(cls, encoder: TokenEncoder) -> TextPooling:
        """That of the model behind an encoder, through the modules behind its pooling where they can be read."""
        return cls(encoder.card, steps_after(encoder))

    @property
    def is_mean(self) -> bool:
        """Are the vectors the means of the tokens, up to their length, with no module behind?"""
        return self.name == "mean" and not isinstance(self.pooling, FinishedPooling)

    @property
    def words(self) -> str:
        """What makes the vectors, modules and all: "mean", or "mean, then Dense"."""
        modules = self.modules if isinstance(self.pooling, FinishedPooling) else []
        return ", then ".join([self.name, *modules])

    @property
    def name(self) -> str:
        """The pooling that is used."""
        return self.pooling.name

    def pool(self, clouds: TokenClouds) -> Array:
        """One vector a text (N × d), not normalised."""
        return self.pooling.transform(clouds)

    def vectors(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Array:
        """One vector a text (N × d), not normalised, from pooled tokens in a row (Σ n × d) and offsets (N + 1)."""
        return self.pooling.rows(tokens, offsets)


def pooling_of(clouds: TokenClouds) -> TextPooling:
    """How the model behind some clouds pools, by what they remember of it; the mean where they remember none.

    Clouds do not remember the weights of modules behind the pooling: who has the encoder asks `TextPooling.of`.

    >>> pooling_of(TokenClouds.from_arrays([[[1.0, 3.0]]])).name
    'mean'
    """
    model = clouds.provenance.get("model") or {}
    modes, after = (tuple(model.get(name) or ()) for name in ("pooling", "after"))
    name, kind = str(model.get("name", "clouds")), str(model.get("kind", "arrays"))
    return TextPooling(ModelCard(name, kind, clouds.dimension, pooling=modes, after=after))


# -- the modules between pooling and the final vector (Dense, LayerNorm), as numpy ------------------------------------
#
# They are what a runtime may have left out. Dropout changes nothing, and a Normalize that comes last no direction, so
# that neither has a step.

NORMALIZE = "Normalize"
_TINY, _EPSILON = 1e-12, 1e-5  # what torch divides by at least, and what its LayerNorm adds to a variance
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, 0.0),
    "GELU": lambda values: np.asarray(values * 0.5 * (1 + erf(values / np.sqrt(2)))),
    "Sigmoid": lambda values: 1 / (1 + np.exp(-values)),
}
_BEFORE = ("Transformer", "TempScaledTransformer", "Pooling", "Dropout")


@dataclass(frozen=True)
class Step:
    """One module: `name` is its class, and calling it changes vectors (texts × d) as the module does."""

    name: str
    weight: Array
    bias: Array | None
    activation: str = "Identity"

    @property
    def width(self) -> int | None:
        """How many numbers a vector must have; None for any."""
        return None if self.name == NORMALIZE else self.weight.shape[-1]

    def __call__(self, vectors: Array) -> Array:
        if self.name == NORMALIZE:
            return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _TINY))
        if self.name == "LayerNorm":
            centred = vectors - vectors.mean(axis=1, keepdims=True)
            scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + _EPSILON) * self.weight
        else:
            scaled = vectors @ self.weight.T
        return ACTIVATIONS[self.activation](scaled if self.bias is None else scaled + self.bias)


def finish(vectors: Array, steps: Sequence[Step]) -> Array:
    """Pooled vectors after all modules.

    >>> double = Step("Dense", 2 * np.eye(2), None, "Tanh")
    >>> finish(np.array([[0.0, 10.0]]), [double]).tolist()
    [[0.0, 1.0]]
    """
    for step in steps:
        vectors = step(vectors)
    return vectors


def steps_of_folder(folder: Path, *, name: str, role: str | None = None) -> tuple[Step, ...]:
    """The steps that a folder of sentence-transformers declares after its pooling, with their weights."""
    places = [(kind, place) for kind, place in module_folders(folder, role=role, name=name) if kind not in _BEFORE]
    return _that_matter([_of_folder(place, kind, name=name) for kind, place in places])


def _that_matter(steps: list[Step]) -> tuple[Step, ...]:
    """Without a Normalize at the end, or before nothing else."""
    while steps and steps[-1].name == NORMALIZE:
        steps = steps[:-1]
    return tuple(steps)


def _of_folder(place: Path, kind: str, *, name: str) -> Step:
    if kind == NORMALIZE:
        return Step(NORMALIZE, np.zeros(0), None)
    weights = place / "model.safetensors"
    if kind not in ("Dense", "LayerNorm") or not weights.is_file():
        reason = "its weights are pickled" if kind in ("Dense", "LayerNorm") else "it is no Dense or LayerNorm"
        raise ModelError(f"{name}: the module {kind} in {place.name} cannot be applied ({reason}).")
    settings = read_settings(place / "config.json")
    activation = str(settings.get("activation_function", "Identity")).rpartition(".")[2]
    with explained(f"{name}: the module {kind} in {place.name} cannot be read", "Download the model again."):
        tensors = require("safetensors.torch", "torch").load_file(weights)
        parts = {key.rpartition(".")[2]: tensor for key, tensor in tensors.items()}
        return _step(kind, parts["weight"], parts.get("bias"), activation, name=name)


def steps_of_modules(modules: Sequence[Any], *, name: str) -> tuple[Step, ...]:
    """The steps of loaded modules of sentence-transformers, those that stand after its pooling."""
    steps = []
    for module in modules:
        kind = type(module).__name__
        if kind in _BEFORE:
            continue
        if kind == NORMALIZE:
            steps.append(Step(NORMALIZE, np.zeros(0), None))
            continue
        part = getattr(module, "linear", None) or getattr(module, "norm", None)
        if kind not in ("Dense", "LayerNorm") or part is None:
            raise ModelError(f"{name}: the module {kind} cannot be applied (it is no Dense or LayerNorm).")
        activation = type(getattr(module, "activation_function", None)).__name__ if kind == "Dense" else "Identity"
        steps.append(_step(kind, part.weight, part.bias, activation, name=name))
    return _that_matter(steps)


def _step(kind: str, weight: Any, bias: Any | None, activation: str, *, name: str) -> Step:
    if activation not in ACTIVATIONS:
        raise ModelError(
            f"{name}: its {kind} has the activation {activation!r}; known: {', '.join(ACTIVATIONS)}. Its final vectors "
            f"cannot be computed here."
        )
    return Step(kind, as_numpy(weight, "float64"), None if bias is None else as_numpy(bias, "float64"), activation)


def pooler_of(model: Any) -> Step | None:
    """BERT's own pooler, a Dense layer on the first token that some runtimes give for a text vector; None if none."""
    dense = getattr(getattr(model, "pooler", None), "dense", None)
    if dense is None or dense.weight.ndim != 2 or dense.weight.shape[0] != dense.weight.shape[1]:
        return None
    return _step("Dense", dense.weight, dense.bias, "Tanh", name=type(model).__name__)
