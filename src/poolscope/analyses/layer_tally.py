"""Collecting the numbers of every text and layer while the batches go by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.analyses.layer_math import (
    CloudMoments,
    LayerSums,
    centred_attention,
    cloud_moments,
    contraction,
    squared_norms,
    within_text_cosines,
)
from poolscope.analyses.layer_socm import StateClouds
from poolscope.analyses.singular import largest_singular_values
from poolscope.capture import LayerCapture, OpenModel, TextBatch
from poolscope.capture.run import to_numpy
from poolscope.errors import DegenerateCloudError

Array = NDArray[np.float64]


class LayerTally:
    """Numbers per text and layer, filled in batch by batch; clouds go to `clouds` on the way, if given.

    `pool` shares out the texts of a batch, whose attention is measured one by one.
    """

    def __init__(self, opened: OpenModel, ids: Sequence[str], *, clouds: StateClouds | None, pool: Executor) -> None:
        projections = [site.projections for site in opened.sites]
        texts, depth, heads = len(ids), len(projections), max(p.heads for p in projections)
        self.states = (*(str(k) for k in range(depth + 1)), *(["output"] if opened.final_norm else []))
        self.lengths, self.truncated = (np.zeros(texts, dtype=np.int64) for _ in range(2))
        self._ids = ids
        self._clouds = clouds
        self._pool = pool
        self._input: CloudMoments | None = None
        self._ratio, self._cosine = (np.empty((texts, len(self.states))) for _ in range(2))
        self._sums = LayerSums(
            spread={letter: np.empty((texts, depth)) for letter in "HUBZYX"},
            mean_square={letter: np.empty((texts, depth)) for letter in "HUBZYX"},
            contraction=np.full((texts, depth, heads), np.nan),
            sigma=np.full((texts, depth, heads), np.nan),
            norms=_by_head([p.norms for p in projections], heads),
            value_norms=_by_head([p.value_norms for p in projections], heads),
            linear=np.array([not site.post_norm for site in opened.sites]),
        )

    @property
    def norms(self) -> tuple[Array, Array]:
        """‖W_V W_O‖₂ and ‖W_V‖₂ (layers × heads)."""
        return self._sums.norms, self._sums.value_norms

    def values(self) -> dict[str, Array]:
        """All quantities by name."""
        return {
            "concentration_ratio": self._ratio,
            "cosine": self._cosine,
            "lambda": self._sums.contraction,
            "sigma_a": self._sums.sigma,
            **self._sums.quantities(),
        }

    def add(self, batch: TextBatch, layer: LayerCapture) -> None:
        """Everything that is measured of one layer for one batch."""
        offsets = _offsets(batch.mask)
        if layer.number == 1:
            self.lengths[batch.positions], self.truncated[batch.positions] = batch.lengths, batch.truncated
            rows = _rows(layer.H, batch.mask)
            self._input = cloud_moments(rows, offsets)
            self._add_state(batch, 0, rows, self._input)
        rows = _rows(layer.X, batch.mask)
        output = cloud_moments(rows, offsets)
        self._add_moments(batch, layer, offsets, output)
        self._add_attention(batch, layer)
        self._add_state(batch, layer.number, rows, output)
        self._input = output  # the next layer's H

    def add_output(self, batch: TextBatch, rows: NDArray[Any]) -> None:
        """The pooled tokens as the model hands them out, after its final norm."""
        self._add_cloud(batch, len(self.states) - 1, rows, cloud_moments(rows, _offsets(batch.pooled)))

    def _add_state(self, batch: TextBatch, state: int, rows: NDArray[Any], moments: CloudMoments) -> None:
        """A state from the rows of all tokens; those that the pooling leaves out (a prompt) are left out."""
        kept = batch.pooled[batch.mask]
        if not kept.all():
            rows = rows[kept]
            moments = cloud_moments(rows, _offsets(batch.pooled))
        self._add_cloud(batch, state, rows, moments)

    def _add_cloud(self, batch: TextBatch, state: int, rows: NDArray[Any], moments: CloudMoments) -> None:
        offsets, at = _offsets(batch.pooled), batch.positions
        self._ratio[at, state] = moments.spread / self._checked(moments.mean_square, batch, f"state {state}")
        self._cosine[at, state] = within_text_cosines(rows, offsets)
        if self._clouds is not None:
            self._clouds.add(state, rows, np.diff(offsets), at)

    def _add_moments(
        self, batch: TextBatch, layer: LayerCapture, offsets: NDArray[np.int64], output: CloudMoments
    ) -> None:
        assert self._input is not None
        known = {id(layer.H): self._input, id(layer.X): output}
        for letter, tensor in _pieces(layer):
            if id(tensor) not in known:  # U is often H, and Z the output of W_O
                known[id(tensor)] = cloud_moments(_rows(tensor, batch.mask), offsets)
            moments, at = known[id(tensor)], np.s_[batch.positions, layer.number - 1]
            self._sums.spread[letter][at] = moments.spread
            self._sums.mean_square[letter][at] = moments.mean_square
        self._checked(
            self._sums.mean_square["Y"][batch.positions, layer.number - 1], batch, f"Y of layer {layer.number}"
        )

    def _add_attention(self, batch: TextBatch, layer: LayerCapture) -> None:
        norms, column = layer.site.projections.norms, layer.number - 1
        measured = self._pool.map(lambda A, n: _measure(A, int(n), norms), to_numpy(layer.A), batch.lengths)
        for position, (shrinking, sigma) in zip(batch.positions, measured, strict=True):
            self._sums.contraction[position, column, : len(norms)] = shrinking
            self._sums.sigma[position, column, : len(norms)] = sigma

    def _checked(self, mean_square: Array, batch: TextBatch, where: str) -> Array:
        if (mean_square == 0).any():
            text = self._ids[batch.positions[int(np.flatnonzero(mean_square == 0)[0])]]
            raise DegenerateCloudError(
                f"text '{text}': the mean of its tokens is the zero vector ({where}), so its concentration ratio is "
                f"not defined. Leave this text out."
            )
        return mean_square


def _measure(weights: NDArray[Any], n: int, norms: Array) -> tuple[Array, Array]:
    """λ and σₐ of every head for one text of n tokens, from its padded weights (heads × longest × longest)."""
    centred = centred_attention(weights, n)
    return contraction(norms, squared_norms(centred), n), largest_singular_values(centred)


def _pieces(layer: LayerCapture) -> Iterator[tuple[str, Any]]:
    yield from zip("HUBZYX", (layer.H, layer.U, layer.projected, layer.Z, layer.Y, layer.X), strict=True)


def _rows(tensor: Any, mask: NDArray[np.bool_]) -> NDArray[Any]:
    """The marked tokens of a padded batch, text after text (tokens × d)."""
    import torch

    full = bool(mask.all())
    return to_numpy(tensor.flatten(0, 1) if full else tensor[torch.from_numpy(mask).to(tensor.device)])


def _offsets(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)


def _by_head(norms: Sequence[Array], heads: int) -> Array:
    """One row a layer; NaN where a layer has fewer heads than the widest."""
    return np.stack([np.pad(row, (0, heads - len(row)), constant_values=np.nan) for row in norms])
