"""Collecting the numbers of every text and layer while the batches go by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.capture import LayerCapture, OpenModel, TextBatch, to_numpy, weights_to_numpy
from poolscope.errors import DegenerateCloudError
from poolscope.metrics.layers.anatomy import (
    CloudMoments,
    LayerSums,
    centred_attention,
    cloud_moments,
    contraction,
    squared_norms,
    within_text_cosines,
)
from poolscope.metrics.layers.socm import StateClouds
from poolscope.numbers.singular import largest_singular_values

Array = NDArray[np.float64]

# Distance from 1 to the next number; numpy does not know bfloat16.
_PRECISION = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class LayerTally:
    """Numbers per text and layer, filled in batch by batch; clouds go to `clouds` on the way, if given.

    Batches may be filled in by several threads at once: they hold different texts, and so write to different rows.
    """

    def __init__(self, opened: OpenModel, ids: Sequence[str], clouds: StateClouds | None) -> None:
        projections = [site.projections for site in opened.sites]
        texts, depth, heads = len(ids), len(projections), max(p.heads for p in projections)
        self.states = (*(str(k) for k in range(depth + 1)), *(["output"] if opened.final_norm else []))
        self.lengths, self.truncated = (np.zeros(texts, dtype=np.int64) for _ in range(2))
        self.ids = ids
        self.clouds = clouds
        self.ratio, self.cosine = (np.empty((texts, len(self.states))) for _ in range(2))
        self.sums = LayerSums(
            spread={letter: np.empty((texts, depth)) for letter in "HUBZYX"},
            mean_square={letter: np.empty((texts, depth)) for letter in "HUBZYX"},
            contraction=np.full((texts, depth, heads), np.nan),
            sigma=np.full((texts, depth, heads), np.nan),
            norms=_by_head([p.norms for p in projections], heads),
            value_norms=_by_head([p.value_norms for p in projections], heads),
            linear=np.array([not site.post_norm for site in opened.sites]),
            precision=_PRECISION[opened.card.dtype],
        )

    def values(self) -> dict[str, Array]:
        """All quantities by name."""
        return {
            "concentration_ratio": self.ratio,
            "cosine": self.cosine,
            "lambda": self.sums.contraction,
            "sigma_a": self.sums.sigma,
            **self.sums.quantities(),
        }


class BatchTally:
    """Fills in one batch: `add` is given its layers one after the other."""

    def __init__(self, tally: LayerTally, batch: TextBatch) -> None:
        self._tally = tally
        self._batch = batch
        self._offsets = _offsets(batch.mask)
        self._input: CloudMoments | None = None
        tally.lengths[batch.positions], tally.truncated[batch.positions] = batch.lengths, batch.truncated

    def add(self, layer: LayerCapture) -> None:
        """Everything that is measured of one layer."""
        if self._input is None:
            rows = _rows(layer.H, self._batch.mask)
            self._input = cloud_moments(rows, self._offsets)
            self._add_state(0, rows, self._input)
        rows = _rows(layer.X, self._batch.mask)
        output = cloud_moments(rows, self._offsets)
        self._add_moments(layer, {id(layer.H): self._input, id(layer.X): output})
        self._add_attention(layer)
        self._add_state(layer.number, rows, output)
        self._input = output  # the next layer's H

    def add_output(self, rows: NDArray[Any]) -> None:
        """The pooled tokens as the model hands them out, after its final norm."""
        moments = cloud_moments(rows, _offsets(self._batch.pooled))
        self._add_cloud(len(self._tally.states) - 1, rows, moments)

    def _add_state(self, state: int, rows: NDArray[Any], moments: CloudMoments) -> None:
        """A state from the rows of all tokens; those that the pooling leaves out (a prompt) are left out."""
        kept = self._batch.pooled[self._batch.mask]
        if not kept.all():
            rows = rows[kept]
            moments = cloud_moments(rows, _offsets(self._batch.pooled))
        self._add_cloud(state, rows, moments)

    def _add_cloud(self, state: int, rows: NDArray[Any], moments: CloudMoments) -> None:
        at, offsets = self._batch.positions, _offsets(self._batch.pooled)
        self._check_mean(moments, f"state {state}")
        self._tally.ratio[at, state] = moments.ratio
        self._tally.cosine[at, state] = within_text_cosines(rows, offsets)
        if self._tally.clouds is not None:
            self._tally.clouds.add(state, rows, np.diff(offsets), at)

    def _add_moments(self, layer: LayerCapture, known: dict[int, CloudMoments]) -> None:
        for letter, tensor in _pieces(layer):
            if id(tensor) not in known:  # U is often H, and Z the output of W_O
                known[id(tensor)] = cloud_moments(_rows(tensor, self._batch.mask), self._offsets)
            moments, at = known[id(tensor)], np.s_[self._batch.positions, layer.number - 1]
            self._tally.sums.spread[letter][at] = moments.spread
            self._tally.sums.mean_square[letter][at] = moments.mean_square
        self._check_mean(known[id(layer.Y)], f"Y of layer {layer.number}")

    def _add_attention(self, layer: LayerCapture) -> None:
        norms, sums, weights = layer.site.projections.norms, self._tally.sums, weights_to_numpy(layer.A)
        for row, (position, n) in enumerate(zip(self._batch.positions, self._batch.lengths, strict=True)):
            centred = centred_attention(weights[row], int(n))
            at = np.s_[position, layer.number - 1, : len(norms)]
            sums.contraction[at] = contraction(norms, squared_norms(centred), int(n))
            sums.sigma[at] = largest_singular_values(centred)

    def _check_mean(self, moments: CloudMoments, where: str) -> None:
        zero = np.flatnonzero(moments.mean_square == 0)
        if len(zero):
            text = self._tally.ids[self._batch.positions[int(zero[0])]]
            raise DegenerateCloudError(
                f"text '{text}': the mean of its tokens is the zero vector ({where}), so its concentration ratio is "
                f"not defined. Leave this text out."
            )


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
