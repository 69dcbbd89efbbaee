"""Do intervals hold where queries share relevant texts? Queries as units, and groups of those that share one.

    python benchmarks/shared_relevance.py [--runs 400]

Every text has an effect, and every query half of its variance from the texts that are relevant to it, drawn by chance;
with a hub one more text is relevant to all queries. `query_units` makes the groups. *Interval*: in so many of the draws
the groups are enough for one. The table is in docs/intervals.md.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from poolscope.numbers.intervals import Estimate, Units, chosen_units, paired_difference, query_units, share_estimate

Array = NDArray[np.float64]
WORLDS = (
    (100, 30, 1, False),
    (300, 100, 1, False),
    (100, 300, 2, False),
    (100, 1000, 3, False),
    (100, 150, 2, False),
    (100, 100, 3, False),
    (100, 100, 1, True),
)
SHARED = 0.5
STEPS = (0.07, 0.13, 0.37, 0.5, 0.63, 1.0)


def drawn(random: np.random.Generator, queries: int, texts: int, each: int, *, hub: bool) -> tuple[Array, Units]:
    """A standard normal value of each query, and the groups of queries."""
    chosen = np.array([random.choice(texts, each, replace=False) for _ in range(queries)])
    if hub:
        chosen = np.concatenate([np.full((queries, 1), texts), chosen], axis=1)
    common = random.standard_normal(texts + 1)[chosen].mean(axis=1) * np.sqrt(chosen.shape[1])
    values = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * random.standard_normal(queries)
    relevant = np.stack([np.repeat(np.arange(queries), chosen.shape[1]), chosen.ravel()], axis=1)
    return values, query_units(relevant)


def ndcg(normal: Array) -> Array:
    """nDCG@10 of one relevant text: found first, or further down, or not at all."""
    rank = np.floor(np.exp(1.2 * normal + 0.5))
    return np.where(rank < 10, 1 / np.log2(rank + 2), 0.0)


def changes(normal: Array, random: np.random.Generator) -> Array:
    """Differences of two searches, of three queries in ten, even on both sides."""
    steps = random.choice(STEPS, len(normal))
    return np.where(normal < -1.036, -steps, np.where(normal > 1.036, steps, 0.0))


def share(found: list[Estimate], truth: float) -> str:
    """The share of intervals that hold the truth."""
    held = [each.interval.low <= truth <= each.interval.high for each in found if each.interval is not None]
    return f"{np.mean(held):.3f}" if len(held) > len(found) / 10 else "no interval"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    truth = float(ndcg(np.random.default_rng(1).standard_normal(2_000_000)).mean())
    print("| queries | texts | relevant to each | largest group | nDCG@10 by query | by group | interval |", end="")
    print(" paired difference by query | by group | interval |\n|---|---|---|---|---|---|---|---|---|---|")
    for queries, texts, each, hub in WORLDS:
        random = np.random.default_rng(0)
        largest, found = 0.0, [[], [], [], []]  # type: ignore[var-annotated]
        for _ in range(runs):
            normal, groups = drawn(random, queries, texts, each, hub=hub)
            gain, alone = changes(normal, random), chosen_units(queries, each="queries")
            largest += groups.sizes.max() / queries / runs
            for side, units in enumerate((alone, groups)):
                found[side].append(share_estimate(ndcg(normal), units=units))
                found[2 + side].append(paired_difference(0 * gain, gain, units).change)
        cells = [share(estimates, truth if k < 2 else 0.0) for k, estimates in enumerate(found)]
        given = [f"{np.mean([one.interval is not None for one in found[k]]):.0%}" for k in (1, 3)]
        words = f"{each} and a hub" if hub else str(each)
        print(f"| {queries} | {texts:,} | {words} | {largest:.0%} | {cells[0]} | {cells[1]} | {given[0]} |", end="")
        print(f" {cells[2]} | {cells[3]} | {given[1]} |", flush=True)


if __name__ == "__main__":
    main()
