"""Do the sentences hold their level? Simulations with nothing to find, and with effects of known size.

    python benchmarks/calibration.py [--runs 1000] [--seed 0] [--table paired trials power queries]

**Paired intervals**: how often a 95 % interval of differences whose true mean is 0 excludes 0, for differences as
comparisons of few queries give them: all different, most of them 0, a few large ones among many small losses or among
zeros, and those of nDCG@10 of two rankings that are equally good. Beside it the percentile bootstrap, and the same
interval without its guard against what no query of the sample did.

**Trials**: which level a trial gives (99 % interval, a gain of 0.01 matters) where nothing is gained, and where
the gain is 0.01, 0.03 and 0.1: one query in ten changes, up or down, and so many more go up.

**Power**: a trial without a gain says which gain it would have seen in four of five cases. Trials with nothing to gain
say their number; then that gain is planted in others like them, in as many queries as it takes, each from the second
place to the first, and those that prove it are counted.

**Queries**: how often the 95 % intervals of one score and of the cut-off, with recall and precision at it, hold what
all queries of a built-in corpus give, when so few of these are drawn.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.searches import decided_by
from poolscope.encoders import as_encoder
from poolscope.evaluation import Evaluation, Trial, compare_scores
from poolscope.evaluation.scores import UNSEEN
from poolscope.metrics.queries import query_scores
from poolscope.numbers.intervals import Estimate, Interval, bootstrap_interval, paired_interval
from poolscope.numbers.ranking import rank_documents
from poolscope.texts import read_pairs
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


def skewed(
    random: np.random.Generator, count: int, *, winners: float = 0.1, win: float = 0.5, losers: float = 0.5
) -> Array:
    """So many win so much, so many lose what makes it 0 on average, and the others do not change."""
    place = random.random(count)
    return np.where(place < winners, win, np.where(place < winners + losers, -win * winners / losers, 0.0))


def rankings(random: np.random.Generator, count: int) -> Array:
    """nDCG@10 of the one relevant document in two equally good rankings of the same queries."""
    difficulty = random.normal(size=count)
    ranks = np.exp(difficulty + random.normal(0, 0.5, (2, count))).round()
    scores = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0)
    return np.asarray(scores[1] - scores[0])


KINDS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "all change": normal,
    "30 % change": sparse,
    "10 % change": partial(sparse, share=0.1),
    "10 % win 0.5, 50 % lose": skewed,
    "10 % win 0.6, 20 % lose": partial(skewed, win=0.6, losers=0.2),
    "5 % win 0.9, 45 % lose": partial(skewed, winners=0.05, win=0.9, losers=0.45),
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


@cache
def population(source: str) -> tuple[Array, Array, list[NDArray[np.int64]]]:
    """Vectors of the queries and of the texts of a built-in corpus, and the texts that answer each query."""
    pairs, model = read_pairs(source, limit=400), as_encoder("builtin:wordllama")
    queries, texts = (
        np.array([cloud.mean(axis=0) for cloud in model.encode(list(side.texts))[-1]])
        for side in (pairs.queries, pairs.documents)
    )
    return queries, texts, [pairs.index[pairs.index[:, 0] == query, 1] for query in range(len(queries))]


def ask(source: str, rows: NDArray[np.int64]) -> dict[str, Estimate]:
    """What some queries of a corpus give."""
    queries, texts, answers = population(source)
    relevant = [(number, text) for number, row in enumerate(rows) for text in answers[row]]
    scores = rank_documents(queries[rows], texts, relevant, k=10).ndcg(10)
    found = query_scores(queries[rows], texts, relevant)
    score = Evaluation(source, "nDCG@10", "queries", scores[:, None]).score
    return {"nDCG@10": score, "cut-off": found.cut_off, "recall": found.recall, "precision": found.precision}


def held(source: str, count: int, *, runs: int, seed: int = 0) -> dict[str, float]:
    """The share of draws of `count` queries whose interval holds what all queries give."""
    random, whole = np.random.default_rng(seed), len(population(source)[0])
    truth, hits = ask(source, np.arange(whole)), Counter[str]()
    for _ in range(runs):
        for name, drawn in ask(source, random.integers(whole, size=count)).items():
            interval = drawn.interval
            hits[name] += interval is not None and interval.low <= truth[name].known <= interval.high
    return {name: hits[name] / runs for name in truth}


def paired_table(runs: int, seed: int) -> None:
    """How often intervals exclude 0 where nothing is to be found."""
    print("| differences | queries | percentile bootstrap | t and studentised bootstrap | the same, guarded |")
    print("|---|---|---|---|---|")
    intervals = bootstrap_interval, paired_interval, partial(paired_interval, unseen=UNSEEN)
    for kind in KINDS:
        for count in COUNTS:
            shares = [false_alarms(interval, kind, count, runs=runs, seed=seed) for interval in intervals]
            print(f"| {kind} | {count} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)


def trial_table(runs: int, seed: int) -> None:
    """Levels of trials by what is gained."""
    print(f"\n| true gain | queries | {' | '.join(LEVELS)} |\n|---|---|{'---|' * len(LEVELS)}")
    for gain in (0.0, 0.01, 0.03, 0.1):
        for count in (50, 200, 1000):
            levels = trial_levels(gain, count, runs=runs, seed=seed)
            print(f"| {gain:g} | {count} | {' | '.join(f'{share:.1%}' for share in levels.values())} |", flush=True)


def power_table(runs: int, seed: int) -> None:
    """What trials claim that they could have seen, and how often they do."""
    print("\n| differences | queries | smallest gain that is claimed | trials that prove it, of 80 % |")
    print("|---|---|---|---|")
    for kind in KINDS:
        for count in (60, 140, 400):
            claim, share = power(kind, count, runs=runs, seed=seed)
            print(f"| {kind} | {count} | {claim:.3f} | {share:.0%} |", flush=True)


def query_table(runs: int, seed: int) -> None:
    """How often intervals over few queries hold what all queries give."""
    print("\n| corpus | queries | nDCG@10 | cut-off | recall at it | precision at it |\n|---|---|---|---|---|---|")
    for source in ("builtin:docstrings", "builtin:manuals"):
        for count in (12, 20, 30, 60):
            shares = held(source, count, runs=runs, seed=seed).values()
            print(f"| {source} | {count} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)


TABLES = {"paired": paired_table, "trials": trial_table, "power": power_table, "queries": query_table}


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--table", nargs="*", choices=list(TABLES), default=list(TABLES))
    options = arguments.parse_args()
    for name in options.table:
        TABLES[name](options.runs, options.seed)


if __name__ == "__main__":
    main()
