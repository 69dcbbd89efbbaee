"""Do intervals hold where queries share relevant texts? Queries as units, and groups of those that share one.

    python benchmarks/shared_relevance.py [--runs 400]

Every text has an effect, and every query half of its variance from the texts that are relevant to it, drawn by chance;
with a hub one more text is relevant to all queries. *Groups enough*: in so many of the draws an interval over groups is
given. The truth is the mean over all texts, and in the last column of a number that of other queries on the same
texts. The table is in docs/intervals.md.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poolscope.numbers.intervals import Estimate, Units, chosen_units, paired_difference, share_estimate

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
OTHERS = 20_000  # queries on the same texts, whose mean is the truth for these
STEPS = (0.07, 0.13, 0.37, 0.5, 0.63, 1.0)


def drawn(
    random: np.random.Generator, effects: Array, queries: int, texts: int, each: int, *, hub: bool
) -> tuple[Array, Units]:
    """A standard normal value of each query about texts of these effects, and the groups of queries."""
    chosen = random.integers(0, texts, (queries, 1))
    steps = random.random((queries, texts - 1)).argpartition(each - 1)[:, : each - 1] if each > 1 else chosen[:, :0]
    chosen = np.concatenate([chosen, (chosen + 1 + steps) % texts], axis=1)
    if hub:
        chosen = np.concatenate([np.full((queries, 1), texts), chosen], axis=1)
    common = effects[chosen].mean(axis=1) * np.sqrt(chosen.shape[1])
    values = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * random.standard_normal(queries)
    query = np.repeat(np.arange(queries), chosen.shape[1])
    size = queries + texts + 1
    linked = sparse.coo_array((np.ones(len(query)), (query, queries + chosen.ravel())), shape=(size, size))
    return values, chosen_units(queries, sparse.csgraph.connected_components(linked)[1][:queries], each="queries")


def ndcg(normal: Array) -> Array:
    """nDCG@10 of one relevant text: found first, or further down, or not at all."""
    rank = np.floor(np.exp(1.2 * normal + 0.5))
    return np.where(rank < 10, 1 / np.log2(rank + 2), 0.0)


def changes(normal: Array, random: np.random.Generator) -> Array:
    """Differences of two searches, of three queries in ten, even on both sides."""
    steps = random.choice(STEPS, len(normal))
    return np.where(normal < -1.036, -steps, np.where(normal > 1.036, steps, 0.0))


def share(found: list[tuple[Estimate, float]]) -> str:
    """The share of intervals that hold their truth."""
    right = [one.interval.low <= truth <= one.interval.high for one, truth in found if one.interval is not None]
    return f"{np.mean(right):.3f}" if len(right) > len(found) / 10 else "no interval"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    everywhere = float(ndcg(np.random.default_rng(1).standard_normal(2_000_000)).mean())
    parts = ("by query", "by group", "groups enough", "by query, on these texts")
    names = [f"{number} {part}" for number in ("nDCG@10", "difference") for part in parts]
    print("| queries | texts | relevant to each | largest group |", " | ".join(names), "|")
    print("|---" * (4 + len(names)) + "|")
    for queries, texts, each, hub in WORLDS:
        random = np.random.default_rng(0)
        largest = 0.0
        scores, differences = ([[], [], []] for _ in range(2))  # type: ignore[var-annotated]
        for _ in range(runs):
            effects = random.standard_normal(texts + 1)
            others, _ = drawn(random, effects, OTHERS, texts, each, hub=hub)
            here = float(ndcg(others).mean()), float(changes(others, random).mean())
            normal, groups = drawn(random, effects, queries, texts, each, hub=hub)
            gain, alone = changes(normal, random), chosen_units(queries, each="queries")
            largest += groups.sizes.max() / queries / runs
            for side, (units, truth) in enumerate(((alone, None), (groups, None), (alone, here))):
                scores[side].append(
                    (share_estimate(ndcg(normal), units=units), everywhere if truth is None else truth[0])
                )
                change = paired_difference(0 * gain, gain, units).change
                differences[side].append((change, 0.0 if truth is None else truth[1]))
        cells = []
        for by_query, by_group, conditional in (scores, differences):
            enough = np.mean([one.interval is not None for one, _ in by_group])
            cells += [share(by_query), share(by_group), f"{enough:.0%}", share(conditional)]
        words = f"{each} and a hub" if hub else str(each)
        print(f"| {queries} | {texts:,} | {words} | {largest:.0%} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
