"""Do the sentences hold their level? Simulations with nothing to find, and with effects of known size.

    python benchmarks/calibration.py [--runs 1000] [--seed 0]

**Paired intervals**: how often a 95 % interval of differences whose true mean is 0 excludes 0, for differences as
comparisons of few queries give them: all different, most of them 0, a few large ones among many small losses, and those
of nDCG@10 of two rankings that are equally good. Beside it the percentile bootstrap.

**Trials**: which level a trial gives (99 % interval, a gain of 0.01 matters) where nothing is gained, and where
the gain is 0.01, 0.03 and 0.1: one query in ten changes, up or down, and so many more go up.

**Power**: a trial without a gain says which gain it would have seen in four of five cases. Trials with nothing to gain
say their number; then that gain is planted in others like them, in as many queries as it takes, each from the second
place to the first, and those that prove it are counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.trials import Trial, decided_by
from poolscope.evaluation import compare_scores
from poolscope.numbers.intervals import Interval, bootstrap_interval, paired_interval
from poolscope.verdicts import LEVELS

Array = NDArray[np.float64]
COUNTS = (20, 50, 100)
_ONE_PLACE = 1 - 1 / float(np.log2(3))
_LOSSES = (0.07, 0.13, 0.37, 0.5, 0.63, 1.0)


def normal(random: np.random.Generator, count: int) -> Array:
    """Every query changes a little."""
    return random.normal(0, 0.1, count)


def sparse(random: np.random.Generator, count: int, share: float = 0.3) -> Array:
    """Most queries do not change; the others go up or down by the steps of nDCG."""
    changes = random.choice([-1, 1], count) * random.choice(_LOSSES, count)
    return np.where(random.random(count) < share, changes, 0.0)


def skewed(random: np.random.Generator, count: int) -> Array:
    """A tenth wins 0.5, a half loses 0.1: 0 on average."""
    place = random.random(count)
    return np.where(place < 0.1, 0.5, np.where(place < 0.6, -0.1, 0.0))


def rankings(random: np.random.Generator, count: int) -> Array:
    """nDCG@10 of the one relevant document in two equally good rankings of the same queries."""
    difficulty = random.normal(size=count)
    ranks = np.exp(difficulty + random.normal(0, 0.5, (2, count))).round()
    scores = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0)
    return np.asarray(scores[1] - scores[0])


KINDS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "all change": normal,
    "30 % change": sparse,
    "10 % win much": skewed,
    "two rankings": rankings,
}


def false_alarms(
    interval: Callable[..., Interval | None], kind: str, count: int, *, runs: int, seed: int = 0, draws: int = 999
) -> float:
    """Share of null comparisons whose interval excludes 0."""
    random = np.random.default_rng(seed)
    outside = 0
    for run in range(runs):
        ends = interval(KINDS[kind](random, count), draws=draws, seed=run)
        outside += ends is not None and not ends.low <= 0 <= ends.high
    return outside / runs


def trial_levels(gain: float, count: int, *, runs: int, seed: int = 0) -> dict[str, float]:
    """Share of trials by level, where the true gain is known and 0.01 matters."""
    random = np.random.default_rng(seed)
    levels = Counter[str]()
    for run in range(runs):
        differences = sparse(random, count, 0.1) + np.where(random.random(count) < gain / 0.37, 0.37, 0.0)
        difference = compare_scores(np.zeros(count), differences, level=0.99, draws=999, seed=run)
        levels[decided_by(Trial("a repair", "…", difference=difference), 0.01).level] += 1
    return {level: levels[level] / runs for level in LEVELS}


def power(kind: str, count: int, *, runs: int, seed: int = 0, level: float = 0.99) -> tuple[float, float]:
    """The smallest gain that trials without one claim to see (mean), and the share of trials that prove such a gain."""
    random = np.random.default_rng(seed)
    claims, proven = [], 0
    for run in range(runs):
        pilot = compare_scores(np.zeros(count), KINDS[kind](random, count), level=level, draws=999, seed=run)
        claims.append(pilot.smallest_gain())
        more = np.where(random.random(count) < claims[-1] / _ONE_PLACE, _ONE_PLACE, 0.0)
        trial = compare_scores(np.zeros(count), KINDS[kind](random, count) + more, level=level, draws=999, seed=run)
        proven += trial.proves_gain
    return float(np.mean(claims)), proven / runs


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    print("| differences | queries | percentile bootstrap | this interval |\n|---|---|---|---|")
    for kind in KINDS:
        for count in COUNTS:
            shares = [
                false_alarms(interval, kind, count, runs=options.runs, seed=options.seed)
                for interval in (bootstrap_interval, paired_interval)
            ]
            print(f"| {kind} | {count} | {shares[0]:.1%} | {shares[1]:.1%} |", flush=True)
    print(f"\n| true gain | queries | {' | '.join(LEVELS)} |\n|---|---|{'---|' * len(LEVELS)}")
    for gain in (0.0, 0.01, 0.03, 0.1):
        for count in (50, 200, 1000):
            levels = trial_levels(gain, count, runs=options.runs, seed=options.seed)
            print(f"| {gain:g} | {count} | {' | '.join(f'{share:.1%}' for share in levels.values())} |", flush=True)
    print("\n| differences | queries | smallest gain that is claimed | trials that prove it, of 80 % |")
    print("|---|---|---|---|")
    for kind in KINDS:
        for count in (60, 140, 400):
            claim, share = power(kind, count, runs=options.runs, seed=options.seed)
            print(f"| {kind} | {count} | {claim:.3f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
