"""Scores that keep the tokens: each query token looks for its best match among the tokens of a text.

MaxSim(q, x) = Σ_a w_a max_b q_a·x_b, for query tokens q_a and text tokens x_b of unit length and weights that sum to 1
(1/n unless others are given). Everything runs in tiles of query tokens by text tokens, so that no table of all tokens
by all tokens exists; the products are those of BLAS, and the best of each text is taken while a tile is in the cache.

A token of length zero has no direction: its product with every other is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, did_you_mean
from poolscope.numbers import Array, Index
from poolscope.numbers.bures.pairs import workers
from poolscope.numbers.ranking import best_of_rows

Scores = NDArray[np.float32]
Mask = NDArray[np.bool_]

STORAGES = ("float32", "float16", "int8")
# Tokens of a tile: its products (4 MB) stay in the cache until the best of each text is taken.
_QUERY_TOKENS, _TEXT_TOKENS = 1024, 1024
_LEVELS = 127  # of int8, on either side of zero


@dataclass(frozen=True, eq=False)
class UnitTokens:
    """Tokens of unit length, those of one text after the other: text k has rows `offsets[k]:offsets[k + 1]`.

    `weights` sum to 1 within each text. Stored as float32, float16 or int8; `scales` (one a token, int8 only) turn the
    whole numbers back. `rounding` is the largest distance of a stored token from the token itself. It bounds the error
    of every MaxSim with these texts: |max_b q·x̂_b − max_b q·x_b| ≤ max_b ‖x̂_b − x_b‖ for a query token q of length 1.
    """

    rows: NDArray[Any]
    offsets: Index
    weights: Scores
    scales: Scores | None = None
    rounding: float = 0.0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def bytes(self) -> int:
        """Bytes of the vectors and their scales."""
        return self.rows.nbytes + (0 if self.scales is None else self.scales.nbytes)

    @property
    def dimension(self) -> int:
        """Numbers of a token."""
        return int(self.rows.shape[1])

    def floats(self, first: int, last: int) -> Scores:
        """The tokens of the texts from `first` to before `last` as float32."""
        part = slice(int(self.offsets[first]), int(self.offsets[last]))
        rows = self.rows[part].astype(np.float32, copy=False)
        return rows if self.scales is None else rows * self.scales[part, None]


def unit_tokens(
    clouds: TokenClouds,
    *,
    tokens: Mask | None = None,
    weights: ArrayLike | None = None,
    storage: str = "float32",
) -> UnitTokens:
    """The tokens of clouds at unit length, in memory.

    tokens: which of them count, one boolean a token, the texts end to end (`ordinary_tokens`); a text of which none
    counts keeps all. weights: one number of 0 or more a token, likewise end to end; a text whose weights are all zero
    gets equal ones. storage: "float32", "float16" or "int8" (one scale a token).

    >>> clouds = TokenClouds.from_arrays([[[3.0, 4.0], [0.0, 2.0]]])
    >>> unit_tokens(clouds, tokens=np.array([True, False])).rows.tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if storage not in STORAGES:
        raise InputError(
            f"storage: received {storage!r}; allowed: {', '.join(STORAGES)}.{did_you_mean(storage, STORAGES)}"
        )
    total = int(clouds.lengths.sum())
    owner = np.repeat(np.arange(len(clouds)), clouds.lengths)
    counts = _per_token(tokens, total, "tokens").astype(bool) if tokens is not None else np.ones(total, dtype=bool)
    counts = counts | (np.bincount(owner[counts], minlength=len(clouds)) == 0)[owner]
    lengths = np.bincount(owner[counts], minlength=len(clouds))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    given = np.ones(total) if weights is None else _per_token(weights, total, "weights").astype(np.float64)
    if not (np.isfinite(given) & (given >= 0)).all():
        raise InputError("weights: received a number that is negative or not finite; allowed: 0 or more, one a token.")
    dtype = np.dtype(storage)
    rows = np.empty((int(offsets[-1]), clouds.dimension), dtype=dtype)
    scales = np.empty(len(rows), dtype=np.float32) if storage == "int8" else None
    rounding, place, start = 0.0, 0, 0
    for block in clouds.blocks():
        for first, last in _runs(np.diff(block.offsets), _TEXT_TOKENS):
            part = block.rows(first, last)
            unit = _unit(part, clouds, block.start + first)[counts[start : start + len(part)]]
            start += len(part)
            here = slice(place, place + len(unit))
            place += len(unit)
            if scales is None:
                rows[here] = unit
                back = rows[here].astype(np.float32, copy=False)
            else:
                scales[here] = np.abs(unit).max(axis=1) / _LEVELS
                steps = np.where(scales[here] > 0, scales[here], 1.0)[:, None]
                rows[here] = np.rint(unit / steps).clip(-_LEVELS, _LEVELS)
                back = rows[here] * scales[here, None]
            if storage != "float32":
                rounding = max(rounding, float(np.linalg.norm(back - unit, axis=1).max(initial=0.0)))
    return UnitTokens(rows, offsets, _shares(given[counts], offsets), scales, rounding)


def ordinary_tokens(clouds: TokenClouds, special: Collection[int]) -> Mask | None:
    """Which tokens are not special: one boolean a token, the texts end to end; None where clouds have no ids.

    special: vocabulary ids of special tokens, as the vocabulary of an encoder names them.

    >>> clouds = TokenClouds.from_arrays([np.ones((3, 2))], token_ids=[np.array([101, 7, 102])])
    >>> ordinary_tokens(clouds, {101, 102}).tolist()
    [False, True, False]
    """
    ids = clouds.token_ids(slice(None))
    return None if ids is None else ~np.isin(ids, np.fromiter(special, dtype=np.int64))


def maxsim(
    queries: TokenClouds | UnitTokens,
    texts: TokenClouds | UnitTokens,
    *,
    query_tokens: Mask | None = None,
    query_weights: ArrayLike | None = None,
    distances: bool = False,
) -> Scores:
    """MaxSim of every query with every text (queries × texts), exact up to float32, in [−1, 1].

    query_tokens: which query tokens count, end to end (`ordinary_tokens` leaves out the special ones); of a query
    without any, all do. query_weights: their weights, equal unless given. Both are for clouds; `UnitTokens` have their
    own. distances: −Σ_a w_a min_b ‖q_a − x_b‖ instead, one side of the relaxed word mover's distance. Uses all cores.

    >>> queries = TokenClouds.from_arrays([[[1.0, 0.0], [0.0, 2.0]]])
    >>> texts = TokenClouds.from_arrays([[[1.0, 0.0], [1.0, 1.0]], [[0.0, -1.0]]])
    >>> maxsim(queries, texts).round(3).tolist()
    [[0.8539999723434448, -0.5]]
    """
    sought = _as_unit_tokens(queries, query_tokens, query_weights)
    _check_dimensions(sought, texts)
    scores = np.empty((len(sought), len(texts)), dtype=np.float32)
    marks = np.empty(len(texts), dtype=np.int64)
    groups = _runs(np.diff(sought.offsets), _QUERY_TOKENS)
    parts = [sought.floats(*group) for group in groups]

    def fill(place: tuple[int, int, Any]) -> None:
        first, last, read = place
        rows, starts = read()
        marks[first:last] = [hash(rows[a : b : max(1, b - a - 1)].tobytes()) for a, b in pairwise([*starts, len(rows)])]
        for (begin, end), part in zip(groups, parts, strict=True):
            best = np.maximum.reduceat(part @ rows.T, starts, axis=1)
            scores[begin:end, first:last] = _token_sums(sought, begin, end, _as_distance(best) if distances else best)

    with workers() as pool:
        for _ in pool.map(fill, _text_tiles(texts)):
            pass
    for twin, original in _twins(texts, marks):
        scores[:, twin] = scores[:, original]
    return scores


def maxsim_of_candidates(
    queries: TokenClouds | UnitTokens,
    texts: TokenClouds | UnitTokens,
    candidates: Index,
) -> Scores:
    """MaxSim of every query with its own candidates (queries × c), positions of texts.

    Each text is read once, however many queries have it as a candidate.

    >>> queries = TokenClouds.from_arrays([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> texts = TokenClouds.from_arrays([[[1.0, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]])
    >>> maxsim_of_candidates(queries, texts, np.array([[0, 2], [1, 2]])).tolist()
    [[1.0, -1.0], [1.0, 0.0]]
    """
    sought = _as_unit_tokens(queries, None, None)
    _check_dimensions(sought, texts)
    table = np.asarray(candidates)
    if table.ndim != 2 or len(table) != len(sought) or table.dtype.kind not in "iu":
        raise InputError(
            f"candidates: received {table.dtype} of shape {table.shape}; needed: positions of texts, a row for each of "
            f"the {len(sought)} queries."
        )
    if table.size and not (table.min() >= 0 and table.max() < len(texts)):
        raise InputError(
            f"candidates: received positions beyond the {len(texts)} texts; allowed: 0 to {len(texts) - 1}."
        )
    order = np.argsort(table, axis=None, kind="stable")  # the pairs by text, of one text by query
    bounds = np.searchsorted(table.ravel()[order], np.arange(len(texts) + 1))
    query = order // max(1, table.shape[1])
    scores = np.empty(table.size, dtype=np.float32)
    parts = sought.floats(0, len(sought))

    def fill(place: tuple[int, int, Any]) -> None:
        first, last, read = place
        if bounds[first] == bounds[last]:
            return
        rows, starts = read()
        for text, (begin, end) in enumerate(pairwise([*starts, len(rows)]), start=first):
            pairs = slice(int(bounds[text]), int(bounds[text + 1]))
            if pairs.start < pairs.stop:
                asking = query[pairs]
                taken = np.concatenate([np.arange(*sought.offsets[k : k + 2]) for k in asking.tolist()])
                best = (parts[taken] @ rows[begin:end].T).max(axis=1) * sought.weights[taken]
                lengths = np.diff(sought.offsets)[asking]
                scores[order[pairs]] = np.add.reduceat(best, np.cumsum(lengths) - lengths)

    with workers() as pool:
        for _ in pool.map(fill, _text_tiles(texts)):
            pass
    return scores.reshape(table.shape)


def first_candidates(scores: ArrayLike, count: int) -> Index:
    """The `count` best texts of each query (queries × count), best first, of equal scores the first; all if fewer.

    >>> first_candidates(np.array([[0.1, 0.9, 0.5]]), 2).tolist()
    [[1, 2]]
    """
    table = np.asarray(scores)
    return best_of_rows(table, min(count, table.shape[1]))[0]


def candidate_recall(candidates: Index, exact: ArrayLike, *, k: int = 10) -> Array:
    """Of each query, the share of its k best texts by `exact` scores (queries × texts) that are among its candidates.

    A text that ties with the k-th best counts as well as any other of that score.

    >>> candidate_recall(np.array([[0, 1]]), np.array([[0.9, 0.1, 0.5]]), k=2).tolist()
    [0.5]
    """
    table = np.asarray(exact)
    k = min(k, table.shape[1])
    worst = np.partition(table, table.shape[1] - k, axis=1)[:, table.shape[1] - k]
    reached = np.take_along_axis(table, candidates, axis=1) >= worst[:, None]
    return np.asarray(np.minimum(reached.sum(axis=1), k) / k)


def standardised(scores: ArrayLike) -> Array:
    """z of the scores of each row: its mean taken off, divided by its standard deviation; a constant row gives zeros.

    >>> standardised([[1.0, 3.0], [2.0, 2.0]]).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    table = np.asarray(scores, dtype=np.float64)
    centred = table - table.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    # What rounding leaves of a constant row is no deviation.
    flat = deviation <= 1e-12 * np.abs(table).max(axis=1, keepdims=True)
    return np.asarray(np.divide(centred, deviation, out=np.zeros_like(centred), where=~flat))


def blend(cosines: ArrayLike, scores: ArrayLike, weight: float = 1.0) -> Array:
    """z(cosine) + weight · z(score), z over the texts (or the candidates) of one query; both (queries × texts).

    >>> blend([[0.0, 1.0]], [[4.0, 2.0]], 0.5).tolist()
    [[-0.5, 0.5]]
    """
    return np.asarray(standardised(cosines) + weight * standardised(scores))


# -- tiles ------------------------------------------------------------------------------------------------------------


def _text_tiles(texts: TokenClouds | UnitTokens) -> Iterator[tuple[int, int, Any]]:
    """First text, text after the last, and what reads their unit tokens and where each of them begins."""
    if isinstance(texts, UnitTokens):
        for first, last in _runs(np.diff(texts.offsets), _TEXT_TOKENS):
            starts = texts.offsets[first:last] - texts.offsets[first]
            yield first, last, lambda a=first, b=last, starts=starts: (texts.floats(a, b), starts)
        return
    for block in texts.blocks():
        for first, last in _runs(np.diff(block.offsets), _TEXT_TOKENS):
            starts, begin = block.offsets[first:last] - block.offsets[first], block.start + first

            def read(
                block: Any = block, first: int = first, last: int = last, starts: Index = starts, begin: int = begin
            ) -> tuple[Scores, Index]:
                return _unit(block.rows(first, last), texts, begin), starts

            yield begin, block.start + last, read


def _runs(lengths: Index, limit: int) -> list[tuple[int, int]]:
    """Consecutive texts whose tokens number `limit` or fewer together, or one text that is longer."""
    runs, first, used = [], 0, 0
    for text, length in enumerate(lengths.tolist()):
        if used + length > limit and text > first:
            runs.append((first, text))
            first, used = text, 0
        used += length
    return [*runs, (first, len(lengths))] if len(lengths) else []


def _unit(rows: NDArray[Any], clouds: TokenClouds, first: int) -> Scores:
    """Rows at length 1 as float32; an error names the text (from `first` on) of a row that is not finite."""
    wide = rows.astype(np.float32)
    squares = np.einsum("ij,ij->i", wide, wide, dtype=np.float64)
    if rows.dtype == np.float64 or not (np.isfinite(squares) & (squares > 1e-30)).all():
        exact = rows.astype(np.float64)  # lengths that float32 cannot hold
        largest = np.abs(exact).max(axis=1, initial=0.0)
        if not np.isfinite(largest).all():
            row = int(np.flatnonzero(~np.isfinite(largest))[0])
            text = first + int(np.searchsorted(np.cumsum(clouds.lengths[first:]), row, side="right"))
            raise InputError(
                f"text {text} ({clouds.ids[text]}): a token is not finite, so it has no direction. Leave the text out, "
                f"or correct where its tokens come from."
            )
        exact /= np.where(largest > 0, largest, 1.0)[:, None]
        lengths = np.linalg.norm(exact, axis=1)
        return np.asarray(exact / np.where(lengths > 0, lengths, 1.0)[:, None], dtype=np.float32)
    wide /= np.sqrt(squares).astype(np.float32)[:, None]
    return wide


def _twins(texts: TokenClouds | UnitTokens, marks: Index) -> Iterator[tuple[int, int]]:
    """Texts with the same tokens as an earlier one, and that one; `marks` are hashes of first and last tokens.

    BLAS rounds a product by its place in the tile, so equal texts would score a little apart and not tie.
    """
    _, first, inverse = np.unique(marks, return_index=True, return_inverse=True)
    for text in np.flatnonzero(first[inverse] != np.arange(len(marks))).tolist():
        original = int(first[inverse[text]])
        if isinstance(texts, UnitTokens):
            rows = texts.floats(text, text + 1), texts.floats(original, original + 1)
        else:
            rows = texts[text], texts[original]
        if np.array_equal(*rows):
            yield text, original


def _token_sums(sought: UnitTokens, first: int, last: int, best: Scores) -> Scores:
    """Σ_a w_a best_a of the queries from `first` to before `last`, from the bests of their tokens (tokens × texts)."""
    bounds = sought.offsets[first:last] - sought.offsets[first]
    weighted = best * sought.weights[sought.offsets[first] : sought.offsets[last], None]
    return np.add.reduceat(weighted, bounds, axis=0)


def _as_distance(cosines: Scores) -> Scores:
    """−‖a − b‖ of unit vectors from their cosine."""
    return np.asarray(-np.sqrt(np.maximum(2 - 2 * cosines, 0)))


def _as_unit_tokens(queries: TokenClouds | UnitTokens, tokens: Mask | None, weights: ArrayLike | None) -> UnitTokens:
    if not isinstance(queries, UnitTokens):
        return unit_tokens(queries, tokens=tokens, weights=weights)
    if tokens is not None or weights is not None:
        raise InputError("query_tokens and query_weights: received with UnitTokens, which have their own. Pass clouds.")
    return queries


def _check_dimensions(queries: UnitTokens, texts: TokenClouds | UnitTokens) -> None:
    if queries.dimension != texts.dimension:
        raise InputError(
            f"received queries of dimension {queries.dimension} and texts of dimension {texts.dimension}; both must "
            f"come from one model and layer. Encode them alike."
        )


def _per_token(values: Any, total: int, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != (total,):
        raise InputError(
            f"{name}: received an array of shape {array.shape}; needed: one entry for each of {total} tokens."
        )
    return array


def _shares(weights: Array, offsets: Index) -> Scores:
    """Weights that sum to 1 within each text; equal ones where all are zero."""
    lengths = np.diff(offsets)
    sums = np.repeat(np.add.reduceat(weights, offsets[:-1]), lengths)
    equal = np.repeat(1 / lengths, lengths)
    return np.asarray(np.divide(weights, sums, out=equal, where=sums > 0), dtype=np.float32)
