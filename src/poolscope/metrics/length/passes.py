"""One pass over the texts, and everything that the analyses of length need of it: no token outlives its batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from poolscope.capture import LayerCapture, OpenModel, TextBatch, weights_to_numpy
from poolscope.clouds import TokenClouds
from poolscope.encoders import ModelCard, Progress, TokenEncoder, as_encoder
from poolscope.encoders.base import check_texts
from poolscope.encoders.capabilities import word_table
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import ModelError
from poolscope.metrics.layers.anatomy import centred_attention, cloud_moments, squared_norms
from poolscope.numbers.singular import largest_singular_values

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Tokens whose input embeddings are looked up at once.
_LOOKUP = 2**16


@dataclass(frozen=True)
class AttentionNumbers:
    """The attention of the last layer, per text and head (texts × heads); NaN for a text of one token.

    sigma_a: ‖PA‖₂; frobenius: ‖PA‖_F²/(n − 1); score_variance: variance of the attention scores within a row, mean over
    rows; bound: the published bound of σₐ for that length and variance.
    """

    sigma_a: Array
    frobenius: Array
    score_variance: Array
    bound: Array


@dataclass(frozen=True)
class MeasuredTexts:
    """What one pass gives for every text.

    vectors (N × d): one a text, pooled as the model declares (`pooling_notes`; none for the mean); lengths: tokens that
    attend to each other; truncated: tokens cut off; spread and mean_square: S(X) and ‖μ(X)‖² of the pooled tokens;
    words (N × d'): plain averages of the input word embeddings, special tokens left out. `attention` and `words` are
    None where the model does not show them; `notes` says why.
    """

    card: ModelCard
    vectors: Array = field(repr=False)
    lengths: Index = field(repr=False)
    truncated: Index = field(repr=False)
    spread: Array = field(repr=False)
    mean_square: Array = field(repr=False)
    attention: AttentionNumbers | None = field(default=None, repr=False)
    words: Array | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    pooling_notes: tuple[str, ...] = ()


def measure_texts(
    model: Any, texts: Sequence[str], *, progress: Progress | None = None, **options: Any
) -> MeasuredTexts:
    """Vectors, lengths, spreads, last-layer attention and averages of input embeddings, from one pass.

    `model` is anything `as_encoder` takes. A model whose attention cannot be watched (ONNX, static tables, functions,
    ready clouds) is encoded as usual, and the result says what is missing.
    """
    found = check_texts(texts)
    encoder = as_encoder(model, **options)
    try:
        opened = OpenModel(encoder)
    except ModelError as error:
        measured = _of_clouds(encoder, encoder.encode(found, progress=progress)[-1])
        notes = (f"The attention was not measured. {error}", *measured.notes)
        return MeasuredTexts(**{**vars(measured), "notes": notes})
    return _of_passes(opened, found, progress)


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


def _of_passes(opened: OpenModel, texts: Sequence[str], progress: Progress | None) -> MeasuredTexts:
    heads = opened.sites[-1].projections.heads
    attention = AttentionNumbers(*(np.full((len(texts), heads), np.nan) for _ in range(4)))
    spread, mean_square = np.empty(len(texts)), np.empty(len(texts))
    lengths, truncated = (np.zeros(len(texts), dtype=np.int64) for _ in range(2))
    vectors, pooling = np.empty((len(texts), opened.card.dimension)), TextPooling(opened.card)
    with threadpool_limits(1, user_api="blas"):  # the batches share out the cores
        for done in opened.run(
            texts, lambda batch: _LastLayer(batch, attention), layers=[-1], parallel=True, progress=progress
        ):
            at = done.texts.positions
            offsets = np.concatenate([[0], np.cumsum(done.texts.pooled.sum(axis=1))]).astype(np.int64)
            moments = cloud_moments(done.output, offsets)
            spread[at], mean_square[at] = moments.spread, moments.mean_square
            vectors[at] = pooling.vectors(done.output, offsets)
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
    kept = ~special | alone[owner]
    ids, owner = tokens.ids[kept], owner[kept]
    sums = np.zeros((len(texts), table.shape[1]))
    for start in range(0, len(ids), _LOOKUP):
        part = np.s_[start : start + _LOOKUP]
        first = np.flatnonzero(np.diff(owner[part], prepend=-1))
        sums[owner[part][first]] += np.add.reduceat(table[ids[part]], first, dtype=np.float64)
    return sums / np.bincount(owner, minlength=len(texts))[:, None]


def _of_clouds(encoder: TokenEncoder, clouds: TokenClouds) -> MeasuredTexts:
    """The same from ready clouds, without attention; a static table is its own input embedding."""
    pooling, parts = TextPooling(encoder.card), []
    for block in clouds.blocks():
        moments = cloud_moments(block.tokens, block.offsets)
        parts.append((pooling.vectors(block.tokens, block.offsets), moments.spread, moments.mean_square))
    vectors, spread, mean_square = (np.concatenate(part) for part in zip(*parts, strict=True))
    static = encoder.card.kind == "static"
    notes = () if static else ("The model shows no table of input word embeddings to average.",)
    return MeasuredTexts(
        card=encoder.card,
        vectors=vectors,
        lengths=clouds.lengths,
        truncated=clouds.truncated.astype(np.int64),
        spread=spread,
        mean_square=mean_square,
        words=vectors if static else None,
        notes=notes,
        pooling_notes=pooling.notes,
    )
