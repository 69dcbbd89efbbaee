"""The modules between pooling and the final vector (Dense, LayerNorm), as numpy: what a runtime may have left out.

Normalize changes no direction and Dropout nothing at all, so that neither has a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from poolscope.encoders.declaration import module_folders, read_settings
from poolscope.errors import ModelError, require

Array = NDArray[np.float64]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, 0.0),
    "GELU": lambda values: np.asarray(values * 0.5 * (1 + erf(values / np.sqrt(2)))),
    "Sigmoid": lambda values: 1 / (1 + np.exp(-values)),
}
_WITHOUT_EFFECT = ("Normalize", "Dropout")


@dataclass(frozen=True)
class Step:
    """One module: `name` is its class, and calling it changes vectors (texts × d) as the module does."""

    name: str
    weight: Array
    bias: Array | None
    activation: str = "Identity"
    epsilon: float = 1e-5

    def __call__(self, vectors: Array) -> Array:
        if self.name == "LayerNorm":
            centred = vectors - vectors.mean(axis=1, keepdims=True)
            scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + self.epsilon) * self.weight
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
    return tuple(
        _of_folder(place, kind, name=name)
        for kind, place in module_folders(folder, role=role, name=name)
        if kind not in ("Transformer", "TempScaledTransformer", "Pooling", *_WITHOUT_EFFECT)
    )


def _of_folder(place: Path, kind: str, *, name: str) -> Step:
    weights = place / "model.safetensors"
    if kind not in ("Dense", "LayerNorm") or not weights.is_file():
        reason = "its weights are pickled" if kind in ("Dense", "LayerNorm") else "it is no Dense or LayerNorm"
        raise ModelError(f"{name}: the module {kind} in {place.name} cannot be applied ({reason}).")
    tensors = require("safetensors.torch", "torch").load_file(weights)
    arrays = {key.rpartition(".")[2]: _array(value) for key, value in tensors.items()}
    settings = read_settings(place / "config.json")
    activation = str(settings.get("activation_function", "Identity")).rpartition(".")[2]
    return _step(kind, arrays["weight"], arrays.get("bias"), activation, name=name)


def steps_of_modules(modules: Sequence[Any], *, name: str) -> tuple[Step, ...]:
    """The steps of loaded modules of sentence-transformers, those that stand after its pooling."""
    steps = []
    for module in modules:
        kind = type(module).__name__
        if kind in _WITHOUT_EFFECT:
            continue
        part = getattr(module, "linear", None) or getattr(module, "norm", None)
        if kind not in ("Dense", "LayerNorm") or part is None:
            raise ModelError(f"{name}: the module {kind} cannot be applied (it is no Dense or LayerNorm).")
        bias = None if part.bias is None else _array(part.bias)
        activation = type(getattr(module, "activation_function", None)).__name__ if kind == "Dense" else "Identity"
        steps.append(_step(kind, _array(part.weight), bias, activation, name=name))
    return tuple(steps)


def _step(kind: str, weight: Array, bias: Array | None, activation: str, *, name: str) -> Step:
    if activation not in ACTIVATIONS:
        raise ModelError(
            f"{name}: its {kind} has the activation {activation!r}; known: {', '.join(ACTIVATIONS)}. Its final vectors "
            f"cannot be computed here."
        )
    return Step(kind, weight, bias, activation)


def _array(tensor: Any) -> Array:
    values: Array = tensor.detach().double().cpu().numpy()
    return values


def pooler_of(model: Any) -> Step | None:
    """BERT's own pooler, a Dense layer on the first token that some runtimes give for a text vector; None if none."""
    dense = getattr(getattr(model, "pooler", None), "dense", None)
    if dense is None or dense.weight.ndim != 2 or dense.weight.shape[0] != dense.weight.shape[1]:
        return None
    return Step("Dense", _array(dense.weight), None if dense.bias is None else _array(dense.bias), "Tanh")
