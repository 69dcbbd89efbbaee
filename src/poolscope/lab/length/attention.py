"""One pass over texts that watches the attention of the last layer: σₐ, its bound, and averages of input embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.capabilities import word_table
from poolscope.encoders.pooling import TextPooling
from poolscope.lab.capture.model import LayerCapture, OpenModel, TextBatch, weights_to_numpy
from poolscope.lab.layers.measure import centred_attention, squared_norms
from poolscope.lab.length.mechanism import AttentionNumbers, MeasuredTexts
from poolscope.numbers import Array
from poolscope.numbers.cosines import largest_singular_values
from poolscope.numbers.moments import cloud_moments

# Tokens whose input embeddings are looked up at once.
_LOOKUP = 2**16


def score_bound(n: int, score_variance: Array) -> Array:
    """The published bound of σₐ, √(n / (2√(1 + e^{−2σ²})·(n − 1)^{3/2} + 1)), σ² the variance of the scores.

    It rests on log-normal approximations and falls with n; measured values may lie above it.

    >>> score_bound(10, np.array([0.0, 100.0])).round(4).tolist()
    [0.3595, 0.4264]
    """
    return np.asarray(np.sqrt(n / (2 * np.sqrt(1 + np.exp(-2 * score_variance)) * (n - 1) ** 1.5 + 1)))


def score_variances(A: NDArray[Any]) -> Array:
    """Variance of the attention scores within a row, mean over rows, of every head (heads × n × n → heads).

    Scores are known from the weights up to a number a row, log A = s − log Σ eˢ, which does not change their variance.
    Entries of weight 0 (masked, or too small for the type) have no score and are left out.

    >>> float(score_variances(np.array([[[0.5, 0.5], [0.5, 0.5]]]))[0])
    0.0
    """
    seen = A > 0
    scores = np.log(A, where=seen, out=np.zeros(A.shape))
    count = seen.sum(axis=-1)
    mean = scores.sum(axis=-1) / np.maximum(count, 1)
    squares = (np.where(seen, scores - mean[..., None], 0.0) ** 2).sum(axis=-1)
    rows = count > 1
    variance = np.where(rows, squares / np.maximum(count - 1, 1), 0.0).sum(axis=-1)
    return np.asarray(np.divide(variance, rows.sum(axis=-1), out=np.full(len(A), np.nan), where=rows.any(axis=-1)))


def measure_attention(encoder: TokenEncoder, texts: Sequence[str], progress: Progress | None) -> MeasuredTexts:
    """Measure vectors, spreads and last-layer attention in one pass; `ModelError` where attention cannot be watched."""
    opened = OpenModel(encoder)
    heads = opened.sites[-1].projections.heads
    attention = AttentionNumbers(*(np.full((len(texts), heads), np.nan) for _ in range(4)))
    spread, mean_square = np.empty(len(texts)), np.empty(len(texts))
    lengths, truncated = (np.zeros(len(texts), dtype=np.int64) for _ in range(2))
    vectors, pooling = np.empty((len(texts), 0)), TextPooling.of(opened.encoder)
    with threadpool_limits(1, user_api="blas"):  # the batches share out the cores
        for done in opened.run(
            texts, lambda batch: _LastLayer(batch, attention), layers=[-1], parallel=True, progress=progress
        ):
            at = done.texts.positions
            offsets = np.concatenate([[0], np.cumsum(done.texts.pooled.sum(axis=1))]).astype(np.int64)
            moments = cloud_moments(done.output, offsets)
            spread[at], mean_square[at] = moments.spread, moments.mean_square
            pooled = pooling.vectors(done.output, offsets)
            if not vectors.shape[1]:  # modules behind the pooling may change the dimension
                vectors = np.empty((len(texts), pooled.shape[1]))
            vectors[at] = pooled
            lengths[at], truncated[at] = done.texts.lengths, done.texts.truncated
    return MeasuredTexts(
        card=opened.card,
        vectors=vectors,
        lengths=lengths,
        truncated=truncated,
        spread=spread,
        mean_square=mean_square,
        attention=attention,
        words=_word_averages(opened, texts),
        pooling_notes=pooling.notes,
    )


class _LastLayer:
    """Takes the attention of one batch to pieces as soon as its last layer ends."""

    def __init__(self, batch: TextBatch, numbers: AttentionNumbers) -> None:
        self._batch = batch
        self._numbers = numbers

    def add(self, layer: LayerCapture) -> None:
        weights, numbers = weights_to_numpy(layer.A), self._numbers
        for row, (position, n) in enumerate(zip(self._batch.positions, self._batch.lengths, strict=True)):
            if n == 1:  # a single token has no deviations
                continue
            centred = centred_attention(weights[row], int(n))
            numbers.sigma_a[position] = largest_singular_values(centred)
            numbers.frobenius[position] = squared_norms(centred) / (n - 1)
            variance = score_variances(weights[row, :, :n, :n])
            numbers.score_variance[position] = variance
            numbers.bound[position] = score_bound(int(n), variance)


def _word_averages(opened: OpenModel, texts: Sequence[str]) -> Array:
    """Plain averages of the input word embeddings; special tokens count only where a text has no others."""
    table = word_table(opened.encoder)
    tokens = opened.encoder.plan(texts).tokens
    special = np.isin(tokens.ids, list(opened.encoder.vocabulary.special_ids))
    owner = np.repeat(np.arange(len(texts)), tokens.lengths)
    alone = np.bincount(owner[~special], minlength=len(texts)) == 0
    counted = ~special | alone[owner]
    ids, owner = tokens.ids[counted], owner[counted]
    sums = np.zeros((len(texts), table.shape[1]))
    for start in range(0, len(ids), _LOOKUP):
        part = np.s_[start : start + _LOOKUP]
        first = np.flatnonzero(np.diff(owner[part], prepend=-1))
        sums[owner[part][first]] += np.add.reduceat(table[ids[part]], first, dtype=np.float64)
    return sums / np.bincount(owner, minlength=len(texts))[:, None]
