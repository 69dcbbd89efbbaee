"""Speed of the length profile, as a ratio to one product of all vectors with all vectors in the same run.

    python benchmarks/length.py [--texts 10000] [--dimension 384] [--repeats 3]
    python benchmarks/length.py --report 200 [--repeats 1]

The profile has every statistic of every bin with its interval and 200 shuffles, the slope and the nearest neighbours.
The baseline is the bare float32 product of the vectors with themselves, block by block, nothing kept. `--report N` is
the whole report of N docstrings and MiniLM, null models and probes with it: processor time, beside one pass over them.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable

import numpy as np

from poolscope import as_encoder, length_profile, length_report, read_texts


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=10_000)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--report", type=int, metavar="N", help="the whole report of N docstrings")
    options = arguments.parse_args()
    if options.report:
        report(options.report, options.repeats)
        return
    random = np.random.default_rng(0)
    vectors = random.normal(size=(options.texts, options.dimension)).astype(np.float32) + 0.1
    lengths = np.exp(random.normal(4, 1, size=options.texts)).astype(int) + 3
    product = best(options.repeats, lambda: all_cosines(vectors))
    profile = best(options.repeats, lambda: length_profile(vectors, lengths))
    print(f"{options.texts:,} vectors of dimension {options.dimension}, best of {options.repeats}")
    print(f"  product of all with all  {product:6.2f} s")
    print(f"  length profile           {profile:6.2f} s   {profile / product:.1f} × the product")


def report(count: int, repeats: int) -> None:
    """One pass over the texts, and all that the report encodes and measures, in processor time."""
    logging.disable(logging.WARNING)
    texts, encoder = list(read_texts("builtin:docstrings", limit=count)), as_encoder("builtin:minilm", device="cpu")
    encoder.encode(texts[:4])
    encoded = best(repeats, lambda: encoder.encode(texts), time.process_time)
    whole = best(repeats, lambda: length_report(encoder, texts), time.process_time)
    print(f"{count} texts, processor time, best of {repeats}")
    print(f"  one pass over the texts  {encoded:6.2f} s")
    print(f"  length with probes       {whole:6.2f} s   {whole / encoded:.1f} × the pass")


def all_cosines(vectors: np.ndarray) -> None:
    for start in range(0, len(vectors), 1024):
        vectors[start : start + 1024] @ vectors.T


def best(repeats: int, run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


if __name__ == "__main__":
    main()
