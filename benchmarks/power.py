"""Which paired statistic shows a true gain with the fewest queries?

    python benchmarks/power.py [--draws 400] [--data FILE] [--models MODEL …] [--statistics ndcg …] [--tests NAME …]

Every cure of the audit is tried with all queries of each corpus that `benchmarks/selfmade.py` lists; its mean gain in
nDCG@10 is then taken for the truth. Queries are drawn again, with replacement (whole documents where these are known),
and each test says whether it proves a gain: at 5 % for all cures together. *False alarms*: the same draws with the
signs of units flipped, so that no cure changes anything; a draw counts where any cure is proven. *Against*: proven
although the cure loses nDCG in all queries. `--data` keeps the differences, so that tests can be run again.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import poolscope
from poolscope.auditing.cause import all_causes
from poolscope.auditing.search import Search
from poolscope.evaluation.paired import Family
from poolscope.numbers.intervals import FEWEST_CHANGED
from poolscope.numbers.maxsim import standardised
from selfmade import corpora

Array = NDArray[np.float64]
STATISTICS = ("ndcg", "reciprocal", "log_rank", "lead")
COUNTS = (30, 50, 100, 188, 300)
FAMILY, LEVEL, MATTERS = 12, 0.05, 0.01


def lead(search: Search, scores: Callable[[slice], Any]) -> Array:
    """How far the best relevant candidate of each query is ahead of the best wrong one, in standard deviations.

    Among the first 50 texts of the model, whose scores are comparable under a re-ranker too; 0 where none is relevant.
    """
    relevant = np.zeros((len(search), len(search.texts)), bool)
    relevant[tuple(search.judgements.relevant.T)] = True
    ahead = np.zeros(len(search))
    for rows in search.blocks():
        some = standardised(np.take_along_axis(np.asarray(scores(rows), float), search.first[rows], axis=1))
        right = np.take_along_axis(relevant[rows], search.first[rows], axis=1)
        best, wrong = (np.where(marks, some, -np.inf).max(axis=1) for marks in (right, ~right))
        ahead[rows] = np.where(np.isfinite(best) & np.isfinite(wrong), best - wrong, 0.0)
    return ahead


def differences(model: str, texts: Any, queries: Any) -> dict[str, Any]:
    """After minus before of every cure, summed over units (statistic → units × cures), and the size of each unit."""
    search = poolscope.audit(model, texts, queries=queries, cache=True, encode=False).search
    before = search.before
    own = {**{name: getattr(before, name) for name in STATISTICS[:-1]}, "lead": lead(search, search.own_scores)}
    columns: dict[str, dict[str, Array]] = {}
    for cure in {cure.name: cure for cause in all_causes().values() for cure in cause.cures}.values():
        # A part of the queries would be another population.
        whole = cure.can_try(search) and (cure.sample is None or cure.sample(search) is search)
        tried = cure.tries(search) if whole else None
        if tried is None:
            continue
        after = search.outcome(tried.scores)
        new = {**{name: getattr(after, name) for name in STATISTICS[:-1]}, "lead": lead(search, tried.scores)}
        columns[cure.name] = {name: new[name] - own[name] for name in STATISTICS}
    count = int(search.units.max()) + 1
    sums = {name: np.zeros((count, len(columns))) for name in STATISTICS}
    for name, table in sums.items():
        np.add.at(table, search.units, np.stack([column[name] for column in columns.values()], axis=1))
    return {"cures": list(columns), "sums": sums, "sizes": np.bincount(search.units, minlength=count).astype(float)}


# -- tests: draws × units × cures in, whether a gain is proven out ----------------------------------------------------


def by_t(drawn: Array, signs: Array) -> NDArray[np.bool_]:
    """Student's t, Bonferroni."""
    with np.errstate(invalid="ignore", divide="ignore"):
        t = drawn.mean(axis=1) / (drawn.std(axis=1, ddof=1) / np.sqrt(drawn.shape[1]))
    return np.nan_to_num(t) > stats.t.isf(LEVEL / FAMILY / 2, drawn.shape[1] - 1)


def by_flips(drawn: Array, signs: Array) -> NDArray[np.bool_]:
    """Sign flips of each cure, Bonferroni."""
    means = drawn.mean(axis=1)
    beyond = np.zeros(means.shape)
    for cure in range(drawn.shape[2]):
        flipped = np.abs(drawn[:, :, cure] @ signs.T) / drawn.shape[1]
        beyond[:, cure] = (flipped >= np.abs(means[:, cure, None]) - 1e-12).sum(axis=1)
    return ((beyond + 1) / (len(signs) + 1) <= LEVEL / FAMILY) & (means > 0)


def by_wilcoxon(drawn: Array, signs: Array) -> NDArray[np.bool_]:
    """Wilcoxon's signed ranks without the zeros, Bonferroni."""
    size = np.abs(drawn)
    changed = size > 1e-12
    ranks = stats.rankdata(np.where(changed, size, 0.0), axis=1) - (~changed).sum(axis=1)[:, None]
    ranks = np.where(changed, ranks, 0.0)
    error = np.sqrt((ranks**2).sum(axis=1))
    z = (np.sign(drawn) * ranks).sum(axis=1) / np.where(error > 0, error, 1.0)
    return z > stats.norm.isf(LEVEL / FAMILY / 2)


def by_largest(drawn: Array, signs: Array) -> NDArray[np.bool_]:
    """T beyond what the largest of all cures reaches by flips (Westfall and Young)."""
    proven = np.zeros((len(drawn), drawn.shape[2]), bool)
    for row, sums in enumerate(drawn):
        family = Family.of(sums, np.arange(drawn.shape[1]), "units")
        largest = np.abs(family._studentised(signs)[0]).max(axis=1)
        least = stats.t.isf(LEVEL / 2, drawn.shape[1] - 1)
        proven[row] = family._studentised(np.ones((1, drawn.shape[1])))[0][0] > max(
            np.quantile(largest, 1 - LEVEL), least
        )
    return proven


def by_audit(drawn: Array, signs: Array) -> NDArray[np.bool_]:
    """The rule of the audit: a gain above 0 by an interval that holds for all cures together."""
    proven = np.zeros((len(drawn), drawn.shape[2]), bool)
    units = np.arange(drawn.shape[1])
    for row, sums in enumerate(drawn):
        family = Family.of(sums, units, "units")
        proven[row] = (family.bounds(1 - LEVEL, draws=len(signs))[0] > 0) & (family.changed >= FEWEST_CHANGED)
    return proven


TESTS = {
    "t": by_t,
    "sign flips": by_flips,
    "Wilcoxon": by_wilcoxon,
    "largest of all": by_largest,
    "with an unseen unit": by_audit,
}


def measured(
    data: dict[str, Any], count: int, draws: int, random: np.random.Generator, pairs: list[tuple[str, str]]
) -> dict[Any, Any]:
    """For each statistic and test: cures with a gain that are proven, false alarms, and cures proven against nDCG."""
    sizes = data["sizes"]
    units = max(2, round(count / sizes.mean()))
    if units > len(sizes):
        return {}
    truth = data["sums"]["ndcg"].sum(axis=0) / sizes.sum()
    rows = random.integers(len(sizes), size=(draws, units))
    flips = random.integers(0, 2, size=(draws, units, 1)) * 2.0 - 1
    signs = random.integers(0, 2, size=(1999, units)) * 2.0 - 1
    found = {}
    for statistic, test in pairs:
        drawn, proves = data["sums"][statistic][rows], TESTS[test]
        proven, alarm = proves(drawn, signs), proves(drawn * flips, signs)
        found[statistic, test] = {
            "power": {data["cures"][k]: proven[:, k].mean() for k in np.flatnonzero(truth >= MATTERS)},
            "alarm": alarm.any(axis=1).mean(),
            "against": {data["cures"][k]: proven[:, k].mean() for k in np.flatnonzero(truth <= 0)},
        }
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["builtin:minilm", "builtin:wordllama"])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--statistics", nargs="+", default=list(STATISTICS), choices=STATISTICS)
    parser.add_argument("--tests", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--data", type=Path, help="keep the differences here, and take them from here")
    args = parser.parse_args()
    if args.data is not None and args.data.exists():
        tables = pickle.loads(args.data.read_bytes())
    else:
        tables = {
            f"{model} {name}": differences(model, texts, queries)
            for model in args.models
            for name, texts, queries in corpora()
        }
        if args.data is not None:
            args.data.write_bytes(pickle.dumps(tables))
    for name, data in tables.items():
        truth = data["sums"]["ndcg"].sum(axis=0) / data["sizes"].sum()
        shown = ", ".join(f"{cure} {gain:+.3f}" for cure, gain in zip(data["cures"], truth, strict=True))
        print(f"{name}: {data['sizes'].sum():.0f} queries in {len(data['sizes'])} units; {shown}")
    pairs = [(statistic, test) for statistic in args.statistics for test in args.tests]
    found = {
        (name, count): measured(data, count, args.draws, np.random.default_rng(0), pairs)
        for name, data in tables.items()
        for count in COUNTS
    }
    for cure in (None, "maxsim"):
        print(f"\n{'all cures that gain 0.01' if cure is None else cure}; in brackets pairs of a corpus and a cure")
        print(f"| statistic | test | {' | '.join(f'{count} queries' for count in COUNTS)} | false alarms | against |")
        print(f"|---|---|{'---|' * len(COUNTS)}---|---|")
        for statistic, test in pairs:
            print(_row(found, statistic, test, cure), flush=True)


def _row(found: dict[Any, Any], statistic: str, test: str, cure: str | None) -> str:
    """One row: the mean power at each count, false alarms, and the cure that is most often proven against nDCG."""
    rows = {key: each[statistic, test] for key, each in found.items() if each}
    cells = [
        [share for (_, n), row in rows.items() if n == count for k, share in row["power"].items() if cure in (None, k)]
        for count in COUNTS
    ]
    alarm = np.mean([row["alarm"] for row in rows.values()])
    against = max(share for row in rows.values() for share in row["against"].values())
    power = " | ".join(f"{np.mean(cell):.0%} ({len(cell)})" if cell else "" for cell in cells)
    return f"| {statistic} | {test} | {power} | {alarm:.1%} | {against:.0%} |"


if __name__ == "__main__":
    main()
