"""Distances of all pairs of a corpus, block by block, or of given pairs.

All pairs: the corpus is sorted by length and cut into tiles whose panels fit the memory budget; each pair of tiles is
cut into blocks that fit the cache. Blocks are independent: they run on all cores and come out in a fixed order.

What is promised: equal calls give equal bytes on one machine, whatever the number of threads. Other blocks, another
BLAS or CPU, or the numpy route move BW² by no more than `Distances.error`: a BLAS sums float32 products in an order
that may depend on where a pair lies in its block (OpenBLAS for AVX2 splits the sums of some tiles at panel edges).
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from poolscope.clouds import TokenClouds
from poolscope.numbers.bures import native
from poolscope.numbers.bures.distances import Distances, grid_distances, listed_distances, refined
from poolscope.numbers.bures.factors import (
    Panel,
    ReducedCache,
    ReducedText,
    make_panel,
    reduce_texts,
    reduced_bytes,
    shared_direction,
)
from poolscope.numbers.bures.native import LANES, Array, Index
from poolscope.numbers.bures.plain import lapack

# Rows and columns of a block. 1024 × 2048 float32 products are 8 MB: large enough for a full-speed product, and small
# enough for the cache. The numpy route takes wider ones: it treats pairs of one size together, and needs many of them.
_BLOCK, _PLAIN_BLOCK = (1024, 2048), (1024, 4096)
# Pairs that are treated together when they are given.
_TOGETHER = 64
# From so many partners on, one product of a text with all of them beats a product a pair.
_MANY_PARTNERS = 32
# Texts that count as about equally long where their order matters: more of them pad each other more.
_ABOUT_EQUAL = 32
# Two panels of this size are in memory at a time.
TILE_BYTES = 128 * 2**20

Refinement = Callable[[Distances], Distances]
Values = tuple[Array, ...]
Measure = Callable[[Sequence[ReducedText], Sequence[ReducedText]], Values]
Found = TypeVar("Found")


def all_pairs(
    clouds: TokenClouds,
    other: TokenClouds | None = None,
    *,
    eps: float = 0.0,
    rank: int | None = None,
    tile_bytes: int = TILE_BYTES,
    block: tuple[int, int] | None = None,
) -> Iterator[Distances]:
    """Every pair i < j of `clouds` once, or every text of `clouds` with every text of `other`.

    With eps > 0 (see `grid_distances`) the order of a pair matters a little: it is i < j, as everywhere. With `rank`,
    only so many directions of each text enter the nuclear norm. That can only lower it, so BW² comes out as an upper
    bound, for a fraction of the cost. `block`: rows and columns of a product; by default what suits the route.
    """
    native.warn_of_slow_route()
    block = block or (_PLAIN_BLOCK if native.kernel() is None else _BLOCK)
    with workers() as pool:
        yield from _in_order(pool, _all_pairs_jobs(clouds, other, eps, rank, tile_bytes, block, pool))


def given_pairs(
    clouds: TokenClouds,
    pairs: Index,
    other: TokenClouds | None = None,
    *,
    eps: float = 0.0,
    caches: tuple[ReducedCache, ReducedCache] | None = None,
    tile_bytes: int = TILE_BYTES,
) -> Iterator[tuple[Index, Distances]]:
    """Distances of the pairs (m × 2), in pieces; each piece comes with the rows of `pairs` that it answers.

    Callers that ask again and again about the same corpora pass the `caches` of `reduced_caches`.
    """
    native.warn_of_slow_route()
    if caches is None or (eps and not caches[0].orthogonal):
        caches = reduced_caches(clouds, other, published=bool(eps))
    left, right = caches
    # A pair that is asked for several times is computed once, so that it has one value: float32 sums differ a little
    # from place to place.
    ordered = _one_direction(pairs, len(right.clouds)) if left is right and not eps else pairs
    # By left text; its partners by length, so that those treated together pad each other little.
    order = np.lexsort((ordered[:, 1], right.clouds.lengths[ordered[:, 1]], ordered[:, 0]))
    starts = np.flatnonzero((np.diff(ordered[order], axis=0, prepend=-1) != 0).any(axis=1))
    distinct, starts = ordered[order[starts]], np.append(starts, len(order))
    with workers() as pool:
        for chunk in _chunks(distinct, left.bytes.tolist(), right.bytes.tolist(), tile_bytes):
            for positions, distances in _in_order(pool, _given_pairs_jobs(left, right, distinct[chunk], eps, pool)):
                runs = [slice(*starts[k : k + 2]) for k in (chunk.start + positions).tolist()]
                rows = np.concatenate([order[run] for run in runs])
                yield rows, distances.repeated(np.array([run.stop - run.start for run in runs]), pairs[rows])


def _one_direction(pairs: Index, texts: int) -> Index:
    """Pairs of one corpus; of (i, j) and (j, i), where both are there, both as the one with i < j."""
    both = np.isin(pairs[:, 0] * texts + pairs[:, 1], pairs[:, 1] * texts + pairs[:, 0])
    return np.where(both[:, None], np.sort(pairs, axis=1), pairs)


def reduced_caches(
    clouds: TokenClouds, other: TokenClouds | None = None, *, published: bool = False
) -> tuple[ReducedCache, ReducedCache]:
    """Caches of the left and the right corpus; one and the same within a single corpus.

    published: for the published trace, which needs orthogonal rows with a direction that all texts share left in them.
    """
    corpora = [clouds] if other is None or other is clouds else [clouds, other]
    direction = None if published else shared_direction(*corpora)
    caches = [ReducedCache(corpus, TILE_BYTES, direction, orthogonal=published) for corpus in corpora]
    return caches[0], caches[-1]


_LIMIT: list[int] = []  # what `limit_cores` said last


def available_cores() -> int:
    """The cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([usable, *_LIMIT[-1:]])


def limit_cores(count: int) -> None:
    """Let this process, one of several that share a machine, use so many cores: what it opens later, too."""
    _LIMIT[:] = [count]
    os.environ["OMP_NUM_THREADS"] = str(count)  # read by torch and onnxruntime when they are imported
    threadpool_limits(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


_THREADS: ContextVar[ThreadPoolExecutor | None] = ContextVar("workers", default=None)


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor]:
    """One thread a core, each with a single-threaded BLAS: blocks in parallel beat parallel products."""
    if (threads := _THREADS.get()) is not None:
        yield threads
        return
    if native.kernel() is None:
        lapack()  # with the BLAS of scipy: what is loaded later would not be limited
    with ThreadPoolExecutor(available_cores()) as pool, threadpool_limits(1, user_api="blas"):
        yield pool


@contextmanager
def kept_workers() -> Iterator[None]:
    """Use one pool of threads, and its memory for products, for all calls in the context."""
    with workers() as pool:
        token = _THREADS.set(pool)
        try:
            yield
        finally:
            _THREADS.reset(token)


def _in_order(pool: ThreadPoolExecutor, jobs: Iterable[Callable[[], Found]]) -> Iterator[Found]:
    """Results of the jobs in their order, with a bounded number of them under way or waiting."""
    waiting: deque[Future[Found]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > 2 * pool._max_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _all_pairs_jobs(
    clouds: TokenClouds,
    other: TokenClouds | None,
    eps: float,
    rank: int | None,
    tile_bytes: int,
    block: tuple[int, int],
    pool: ThreadPoolExecutor,
) -> Iterator[Callable[[], Distances]]:
    def panel(part: TokenClouds, texts: Index) -> Panel:
        reduced = reduce_texts(part, texts, pool, rank=rank, direction=direction, orthogonal=bool(eps))
        return make_panel(texts, reduced)

    direction = None if eps else shared_direction(*([clouds] if other is None else [clouds, other]))
    # Bounds by few directions are to be cheap.
    refine = _as_found if rank else _refinement(clouds, other or clouds, eps)
    ordered = bool(eps) and other is None
    left_tiles = _tiles(clouds, tile_bytes, ordered=ordered)
    right_tiles = left_tiles if other is None else _tiles(other, tile_bytes)
    for t, tile in enumerate(left_tiles):
        left = panel(clouds, tile)
        for u in range(t if other is None else 0, len(right_tiles)):
            same = other is None and t == u
            right = left if same else panel(other or clouds, right_tiles[u])
            for first, last in _runs(_group_heights(left), block[0]):
                start, rows = first if same else 0, left.groups(first, last)
                for begin, end in _runs(_group_heights(right)[start:], block[1]):
                    columns = right.groups(start + begin, start + end)
                    ahead = begin * LANES if same else None
                    yield partial(_block, rows, columns, eps=eps, ahead=ahead, crossed=other is not None, refine=refine)


def _refinement(left: TokenClouds, right: TokenClouds, eps: float) -> Refinement:
    """What is done to distances from float32 products. The published trace is biased by more than rounding."""
    return _as_found if eps else partial(refined, left=left, right=right)


def _as_found(distances: Distances) -> Distances:
    return distances


def _block(left: Panel, right: Panel, *, eps: float, ahead: int | None, crossed: bool, refine: Refinement) -> Distances:
    """Distances of a block; only pairs above the diagonal if both sides come from one panel.

    `ahead`: how many texts of that panel the right side starts after the left one; None for two panels.
    """
    i, j = np.broadcast_arrays(left.texts[:, None], right.texts)
    wanted = (i >= 0) & (j >= 0)  # not every lane has a text
    if ahead is not None:
        wanted &= np.arange(len(left))[:, None] < np.arange(len(right)) + ahead
    values = grid_distances(left, right, eps=eps, second_is_left=None if crossed else i > j, wanted=wanted)
    if not crossed:
        i, j = np.minimum(i, j), np.maximum(i, j)
    return refine(Distances(i[wanted], j[wanted], *(value[wanted] for value in values)))


def _given_pairs_jobs(
    left: ReducedCache, right: ReducedCache, pairs: Index, eps: float, pool: ThreadPoolExecutor
) -> Iterator[Callable[[], tuple[Index, Distances]]]:
    """Jobs for pairs that are sorted by their left text; each gives the positions of its pairs, and their distances."""
    if left is right:
        lefts = rights = left.fetch(np.unique(pairs), pool)
    else:
        lefts, rights = left.fetch(np.unique(pairs[:, 0]), pool), right.fetch(np.unique(pairs[:, 1]), pool)
    refine, together = _refinement(left.clouds, right.clouds, eps), partial(_one_with_partners, eps=eps)
    alone = [np.zeros(0, dtype=np.int64)]
    for run in _equal_runs(pairs[:, 0]):
        if len(run) < _MANY_PARTNERS and not eps:
            alone.append(run)
            continue
        for begin in range(0, len(run), _TOGETHER):
            batch = run[begin : begin + _TOGETHER]
            yield partial(_measured, together, lefts, rights, pairs, batch, refine=refine)
    few = np.concatenate(alone)
    sizes = np.sort(np.stack([left.clouds.lengths[pairs[few, 0]], right.clouds.lengths[pairs[few, 1]]]), axis=0)
    few = few[np.lexsort(sizes[::-1])]  # by the smaller side, which is what costs, then by the larger
    for begin in range(0, len(few), _TOGETHER):
        batch = few[begin : begin + _TOGETHER]
        yield partial(_measured, listed_distances, lefts, rights, pairs, batch, refine=refine)


def _measured(
    measure: Measure,
    lefts: Mapping[int, ReducedText],
    rights: Mapping[int, ReducedText],
    pairs: Index,
    positions: Index,
    *,
    refine: Refinement,
) -> tuple[Index, Distances]:
    i, j = pairs[positions].T
    values = measure([lefts[text] for text in i.tolist()], [rights[text] for text in j.tolist()])
    return positions, refine(Distances(i, j, *values))


def _one_with_partners(lefts: Sequence[ReducedText], rights: Sequence[ReducedText], *, eps: float) -> Values:
    """What `listed_distances` gives, where all of `lefts` are one text: one product with all of `rights`."""
    left, right = (make_panel(np.arange(len(side)), side) for side in (lefts[:1], rights))
    return tuple(value[-1, -len(rights) :] for value in grid_distances(left, right, eps=eps))


def _equal_runs(values: Index) -> list[Index]:
    """Positions of sorted values, split where the value changes."""
    return np.split(np.arange(len(values)), np.flatnonzero(np.diff(values)) + 1)


def _chunks(pairs: Index, left_bytes: list[int], right_bytes: list[int], tile_bytes: int) -> Iterator[slice]:
    """Cut sorted pairs into runs whose distinct texts fit the budget."""
    lefts, rights = set[int](), set[int]()
    start = used = 0
    for row, (i, j) in enumerate(pairs.tolist()):
        if used > tile_bytes:
            yield slice(start, row)
            start, used = row, 0
            lefts.clear()
            rights.clear()
        used += (i not in lefts) * left_bytes[i] + (j not in rights) * right_bytes[j]
        lefts.add(i)
        rights.add(j)
    yield slice(start, len(pairs))


def _tiles(clouds: TokenClouds, tile_bytes: int, *, ordered: bool = False) -> list[Index]:
    """Texts by rising length, so that neighbours pad each other little, cut where the budget is full.

    ordered: texts of about one length by their position, so that nearly all pairs of a text with a few neighbours are
    of one order.
    """
    order = np.argsort(clouds.lengths, kind="stable")
    if ordered:
        order = np.concatenate([np.sort(order[k : k + _ABOUT_EQUAL]) for k in range(0, len(order), _ABOUT_EQUAL)])
    return [order[start:stop] for start, stop in _runs(reduced_bytes(clouds)[order], tile_bytes)]


def _group_heights(panel: Panel) -> Index:
    return np.diff(panel.offsets) * LANES


def _runs(sizes: Index, limit: int) -> list[tuple[int, int]]:
    """Cut items into consecutive runs of a total size of about `limit`."""
    run = np.cumsum(sizes) // limit
    cuts = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(sizes)]
    return list(pairwise(cuts))
