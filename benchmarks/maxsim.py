"""MaxSim of all pairs: its time over that of the bare product of the same tokens, and over that of other libraries.

    python benchmarks/maxsim.py [--queries 60] [--texts 1000] [--length 200] [--dimensions 384 768] [--repeats 3]
                                 [--others]

The bare product is that of all query tokens with all text tokens, in the same tiles and by as many threads, thrown away
as it comes; texts are at unit length already, on both sides. Times are wall times, the best of some repeats, taken in
turn, so that what else the machine does meets both. `--others` scores the same tokens with sentence-transformers and
with PyLate, where they are installed. Storage is the loss of float16 and int8 against float32: the largest error
of a score, its bound, and how many of the ten best texts of a query stay among its ten best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from poolscope import TokenClouds
from poolscope.numbers.bures.pairs import available_cores
from poolscope.numbers.maxsim import (
    UnitTokens,
    candidate_recall,
    first_candidates,
    maxsim,
    maxsim_of_candidates,
    unit_tokens,
)

AIM = 1.15  # of the time of the bare product
TILE = 1024
QUERY_LENGTH = 20
CANDIDATES = 50


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--queries", type=int, default=60)
    arguments.add_argument("--texts", type=int, default=1000)
    arguments.add_argument("--length", type=int, default=200, help="tokens of a text on average")
    arguments.add_argument("--dimensions", type=int, nargs="+", default=[384, 768])
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--others", action="store_true", help="score with other libraries, too")
    options = arguments.parse_args()
    missed = []
    for dimension in options.dimensions:
        random = np.random.default_rng(0)
        queries = unit_tokens(drawn(random, options.queries, QUERY_LENGTH, dimension))
        texts = unit_tokens(drawn(random, options.texts, options.length, dimension))
        ways = {"product": partial(bare_product, queries, texts), "poolscope": partial(maxsim, queries, texts)}
        if options.others:
            ways |= other_libraries(queries, texts)
        seconds = best_times(ways, options.repeats)
        tokens = f"{len(queries.rows):,} × {len(texts.rows):,} tokens"
        print(
            f"d = {dimension}, {options.queries} queries × {options.texts:,} texts, {tokens}, {available_cores()} cores"
        )
        for name, taken in seconds.items():
            print(f"  {name:<22} {taken:8.3f} s  {taken / seconds['product']:6.2f} × the product")
        say_storage(queries, texts)
        if seconds["poolscope"] > AIM * seconds["product"]:
            missed.append(f"d = {dimension}: {seconds['poolscope'] / seconds['product']:.2f}")
    if missed:
        raise SystemExit(f"above {AIM} × the product: {', '.join(missed)}")


def drawn(random: np.random.Generator, count: int, length: int, dimension: int) -> TokenClouds:
    """Texts of 1 to twice `length` tokens, whose tokens share a direction as those of real texts do."""
    lengths = random.integers(1, 2 * length, count)
    shared = random.standard_normal((count, dimension), dtype=np.float32)
    tokens = random.standard_normal((int(lengths.sum()), dimension), dtype=np.float32)
    tokens += np.repeat(shared, lengths, axis=0)
    return TokenClouds.from_matrix(tokens, np.concatenate([[0], np.cumsum(lengths)]))


def bare_product(queries: UnitTokens, texts: UnitTokens) -> None:
    """The products of all query tokens with all text tokens, tile by tile."""

    def multiply(start: int) -> None:
        for begin in range(0, len(queries.rows), TILE):
            queries.rows[begin : begin + TILE] @ texts.rows[start : start + TILE].T

    with ThreadPoolExecutor(available_cores()) as pool, threadpool_limits(1, user_api="blas"):
        list(pool.map(multiply, range(0, len(texts.rows), TILE)))


def other_libraries(queries: UnitTokens, texts: UnitTokens) -> dict[str, Callable[[], Any]]:
    """The scoring of sentence-transformers (padded by itself) and PyLate (padded here, without counting the time)."""
    import torch

    ways: dict[str, Callable[[], Any]] = {}
    sides = [[torch.from_numpy(side.floats(k, k + 1)) for k in range(len(side))] for side in (queries, texts)]
    with suppress(ImportError):  # not there, or one before 6.0, which has no MaxSim
        from sentence_transformers.util.similarity import maxsim as theirs

        ways["sentence-transformers"] = lambda: theirs(*sides)
    if find_spec("pylate") is not None:
        from pylate.scores import colbert_scores

        padded = [torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in sides]
        masks = [torch.nn.utils.rnn.pad_sequence([torch.ones(len(x)) for x in s], batch_first=True) for s in sides]
        step = max(1, 10**8 // (padded[0].shape[0] * padded[0].shape[1] * padded[1].shape[1]))

        def in_steps() -> Any:
            parts = range(0, len(padded[1]), step)
            scored = [
                colbert_scores(padded[0], padded[1][k : k + step], masks[0], masks[1][k : k + step]) for k in parts
            ]
            return torch.cat(scored, dim=1)

        ways["PyLate"] = in_steps
    return ways


def best_times(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Seconds of each way, the best of some rounds."""
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, run in ways.items():
            began = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - began)
    return seconds


def say_storage(queries: UnitTokens, texts: UnitTokens) -> None:
    """Bytes, error and its bound of each storage; the time of candidates, and their recall."""
    exact = maxsim(queries, texts)
    clouds = TokenClouds.from_matrix(texts.rows, texts.offsets)
    for storage in ("float16", "int8"):
        stored = unit_tokens(clouds, storage=storage)
        scores = maxsim(queries, stored)
        same = candidate_recall(first_candidates(scores, 10), exact).mean()
        print(
            f"  {storage:<8} {stored.bytes / texts.bytes:.2f} × the bytes, error {np.abs(scores - exact).max():.1e} "
            f"(bound {stored.rounding:.1e}), {same:.1%} of the ten best are the same"
        )
    sides = [np.add.reduceat(side.rows, side.offsets[:-1], axis=0) for side in (queries, texts)]
    means = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    candidates = first_candidates(means[0] @ means[1].T, CANDIDATES)
    began = time.perf_counter()
    maxsim_of_candidates(queries, texts, candidates)
    print(
        f"  first {CANDIDATES} by the mean: {time.perf_counter() - began:.3f} s, "
        f"recall of the ten best {candidate_recall(candidates, exact).mean():.1%}"
    )


if __name__ == "__main__":
    main()
