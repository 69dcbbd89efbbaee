"""The v-measure with its interval, beside the same number of starts of scipy's k-means on the same vectors.

    python benchmarks/clustering.py [--texts 1000] [--labels 20] [--repeats 3]

Processor time, best of some. The interval clusters 20 random splits into halves anew, with half the starts each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2

from poolscope.evaluation.tasks import ClusteringTask
from poolscope.numbers.ranking import unit_rows

DIMENSION, SPLITS, STARTS = 384, 20, 10


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=1000)
    arguments.add_argument("--labels", type=int, default=20)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    random = np.random.default_rng(0)
    labels = random.integers(options.labels, size=options.texts)
    centres = random.standard_normal((options.labels, DIMENSION))
    vectors = 0.35 * centres[labels] + random.standard_normal((options.texts, DIMENSION))
    task = ClusteringTask(texts=[f"text {k}" for k in range(options.texts)], labels=labels.astype(str).tolist())
    table = unit_rows(vectors, "vectors").astype(np.float64)

    def scipy_starts() -> None:
        halves = [table[random.permutation(len(table))[: len(table) // 2]] for _ in range(2 * SPLITS)]
        for part, starts in [(table, STARTS), *((half, STARTS // 2) for half in halves)]:
            for _ in range(starts):
                kmeans2(part, options.labels, iter=10, minit="++", rng=random)

    own = min(seconds(lambda: task.score(vectors)) for _ in range(options.repeats))
    theirs = min(seconds(scipy_starts) for _ in range(options.repeats))
    print(
        f"{options.texts:,} texts, {options.labels} labels: v-measure with its interval {own:.2f} s of processor time,"
    )
    print(f"as many starts of ten rounds of scipy's k-means {theirs:.2f} s: {own / theirs:.2f} ×")


def seconds(run: Callable[[], Any]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


if __name__ == "__main__":
    main()
