"""The anatomy of the layers: where a model concentrates its token clouds, and what does it.

Hara et al. 2026 (arXiv 2604.27398) for λ, r, C and the concentration ratio; Zhou et al. 2025 on length collapse for σₐ
and the high-frequency part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.analyses.layer_math import (
    CloudMoments,
    LargestSingularValues,
    centred_attention,
    cloud_moments,
    contraction,
    squared_norms,
    within_text_cosines,
)
from poolscope.analyses.layer_socm import StateClouds
from poolscope.analyses.layers_result import LayersResult
from poolscope.capture import LayerCapture, OpenModel, TextBatch
from poolscope.capture.run import to_numpy
from poolscope.encoders import Progress
from poolscope.encoders.base import check_texts
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.results import provenance

Array = NDArray[np.float64]

# Pairs of texts a state, all of them up to 200 texts, a random sample beyond.
PAIRS = 20_000


def layers(
    model: Any,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    pairs: int = PAIRS,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> LayersResult:
    """λ, r, C, concentration ratio, cosine, σₐ, high-frequency growth and SOCM of every layer, from one pass.

    `model` is a transformer as `as_encoder` takes it (a name, a folder, a SentenceTransformer, a pair (model, tokenizer))
    and `options` are the fields of `EncoderOptions`. SOCM compares at most `pairs` pairs a state: all, or a random sample
    (`seed`); 0 leaves it out. The attention weights of one layer and batch are in memory at a time; the clouds that SOCM
    needs lie in a temporary folder.
    """
    texts = check_texts(texts)
    ids = _ids(ids, len(texts))
    opened = OpenModel(model, **options)
    with StateClouds() if pairs and len(texts) > 1 else nullcontext() as clouds:
        tally = _Tally(opened, ids, clouds)
        for batch in opened.run(texts, tally.add, progress=progress):
            tally.finish(batch.texts, batch.output)
        found = None if clouds is None else clouds.socm(tally.states, pairs=pairs, seed=seed)
    return LayersResult(
        model=opened.card.name,
        ids=ids,
        lengths=tally.lengths,
        states=tally.states,
        values=tally.values(),
        norms=tally.norms,
        value_norms=tally.value_norms,
        pre_norm=tuple(site.pre_norm for site in opened.sites),
        post_norm=tuple(site.post_norm for site in opened.sites),
        socm=found,
        provenance=_origin(opened, texts, tally.lengths, {"pairs": pairs, "seed": seed}),
    )


class _Tally:
    """Numbers per text and layer, filled in batch by batch."""

    def __init__(self, opened: OpenModel, ids: Sequence[str], clouds: StateClouds | None) -> None:
        projections = [site.projections for site in opened.sites]
        texts, depth, heads = len(ids), len(projections), max(p.heads for p in projections)
        self.norms, self.value_norms = (_padded([getattr(p, name) for p in projections], heads) for name in _NORMS)
        self.lengths = np.zeros(texts, dtype=np.int64)
        self._ids = ids
        self._clouds = clouds
        self._largest = LargestSingularValues()
        self._linear = np.array([not site.post_norm for site in opened.sites])
        # S and ‖μ‖² of H, U, the projected branch, Z, Y and X; ‖PA‖_F² as λ, and σₐ.
        self._spread = {letter: np.empty((texts, depth)) for letter in "HUBZYX"}
        self._mean_square = {letter: np.empty((texts, depth)) for letter in "HUBZYX"}
        self._lambda, self._sigma = (np.full((texts, depth, heads), np.nan) for _ in range(2))
        self._ratio, self._cosine = (np.empty((texts, depth + 2)) for _ in range(2))
        self._output_differs = False
        self._last: tuple[CloudMoments, NDArray[Any]] | None = None

    def add(self, batch: TextBatch, layer: LayerCapture) -> None:
        """Everything that is measured of one layer for one batch."""
        import torch

        at, column = batch.positions, layer.number - 1
        mask = torch.from_numpy(batch.mask).to(layer.H.device)
        offsets = _offsets(batch.mask)
        if column == 0:
            self.lengths[at] = batch.lengths
            self._state(batch, 0, to_numpy(layer.H[mask]), offsets)
        known: dict[int, CloudMoments] = {}
        for letter, tensor in zip("HUBZYX", _pieces(layer), strict=True):
            if id(tensor) not in known:
                rows = to_numpy(tensor[mask])
                known[id(tensor)] = cloud_moments(rows, offsets)
            self._spread[letter][at, column] = known[id(tensor)].spread
            self._mean_square[letter][at, column] = known[id(tensor)].mean_square
        self._state(batch, layer.number, rows, offsets)
        self._attention(batch, layer)

    def _attention(self, batch: TextBatch, layer: LayerCapture) -> None:
        weights, norms = to_numpy(layer.A), layer.site.projections.norms
        for row, (position, n) in enumerate(zip(batch.positions, batch.lengths, strict=True)):
            centred = centred_attention(weights[row], int(n))
            heads = slice(len(norms))
            self._lambda[position, layer.number - 1, heads] = contraction(norms, squared_norms(centred), int(n))
            self._sigma[position, layer.number - 1, heads] = self._largest(centred)
