"""Speed of the length profile, as a ratio to one product of all vectors with all vectors in the same run.

    python benchmarks/length.py [--texts 10000] [--dimension 384] [--repeats 3]

The profile has every statistic of every bin with its interval and 200 shuffles, the slope and the nearest neighbours.
The baseline is the bare float32 product of the vectors with themselves, block by block, nothing kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from poolscope import length_profile


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=10_000)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    random = np.random.default_rng(0)
    vectors = random.normal(size=(options.texts, options.dimension)).astype(np.float32) + 0.1
    lengths = np.exp(random.normal(4, 1, size=options.texts)).astype(int) + 3
    product = best(options.repeats, lambda: all_cosines(vectors))
    profile = best(options.repeats, lambda: length_profile(vectors, lengths))
    print(f"{options.texts:,} vectors of dimension {options.dimension}, best of {options.repeats}")
    print(f"  product of all with all  {product:6.2f} s")
    print(f"  length profile           {profile:6.2f} s   {profile / product:.1f} × the product")


def all_cosines(vectors: np.ndarray) -> None:
    for start in range(0, len(vectors), 1024):
        vectors[start : start + 1024] @ vectors.T


def best(repeats: int, run: Callable[[], object]) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
