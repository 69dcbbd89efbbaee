"""The value and output projections of a layer's heads, and their spectral norms from thin factors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """A linear module as the map `x ↦ xW + b`. `transposed`: the module stores W as (outputs × inputs)."""

    module: Any
    transposed: bool

    @property
    def weight(self) -> Any:
        """W as a tensor (inputs × outputs)."""
        weight = self.module.weight.detach()
        return weight.T if self.transposed else weight

    @property
    def bias(self) -> Any:
        """b as a tensor, or None."""
        bias = getattr(self.module, "bias", None)
        return None if bias is None else bias.detach()


@dataclass(frozen=True)
class Projections:
    """W_V and W_O of one layer, head by head.

    `columns` are those of the value projection's output that hold the values, in the order of the key/value heads: all
    of them where values have a projection of their own, a part where queries, keys and values are projected in one.
    """

    value: Projection
    output: Projection
    columns: tuple[int, ...]
    heads: int

    @property
    def head_dimension(self) -> int:
        """Numbers a head averages."""
        return int(self.output.weight.shape[0]) // self.heads

    @property
    def value_heads(self) -> int:
        """Key/value heads; fewer than heads where several queries share one."""
        return len(self.columns) // self.head_dimension

    @property
    def merged(self) -> bool:
        """Are queries, keys and values projected in one?"""
        return len(self.columns) < int(self.value.weight.shape[1])

    @property
    def value_weights(self) -> Array:
        """W_V (heads × inputs × head dimension), shared ones repeated."""
        weight = _numpy(self.value.weight[:, list(self.columns)])
        split = weight.reshape(len(weight), self.value_heads, -1).swapaxes(0, 1)
        return np.repeat(split, self.heads // self.value_heads, axis=0)

    @property
    def output_weights(self) -> Array:
        """W_O (heads × head dimension × outputs)."""
        weight = _numpy(self.output.weight)
        return weight.reshape(self.heads, -1, weight.shape[1])

    @cached_property
    def value_norms(self) -> Array:
        """‖W_V‖₂ of every head."""
        return np.asarray(np.linalg.norm(_triangles(self.value_weights), ord=2, axis=(1, 2)))

    @cached_property
    def norms(self) -> Array:
        """‖W_V W_O‖₂ of every head: how far a head can stretch what it averages."""
        return product_norms(self.value_weights, self.output_weights)


def product_norms(left: Array, right: Array) -> Array:
    """Spectral norms of the products left·right (k × m × r) · (k × r × n), r small, without forming them.

    With left = QR and rightᵀ = PS, Q and P orthonormal, ‖left·right‖₂ = ‖RSᵀ‖₂: an r × r matrix in place of m × n.

    >>> product_norms(np.array([[[3.0], [4.0]]]), np.array([[[0.0, 2.0]]])).tolist()
    [10.0]
    """
    thin = _triangles(left) @ _triangles(right.swapaxes(1, 2)).swapaxes(1, 2)
    return np.asarray(np.linalg.norm(thin, ord=2, axis=(1, 2)))


def _triangles(matrices: Array) -> Array:
    """R of the QR decomposition of every matrix."""
    return np.asarray(np.linalg.qr(matrices, mode="r"))


def _numpy(tensor: Any) -> Array:
    import torch

    return np.asarray(tensor.to(torch.float64).cpu().numpy())
