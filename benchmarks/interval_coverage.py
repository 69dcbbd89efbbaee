"""How often do the intervals hold the truth? Every kind of interval, by units, with and without documents.

    python benchmarks/interval_coverage.py [--runs 1000] [--seed 0] [--only NAME ...] [--write docs/intervals.md]

A *text* stands for whatever has one value: a text, a query, a pair. **Independent**: every text is drawn by itself.
**By documents**: documents of 1 to 11 texts are drawn, whose texts share half of their variance, and the interval knows
them. **Documents not told**: the same draws, and the interval takes every text for a draw of its own. The units are
texts in the first column, documents in the others.

The truth is known, or that of a corpus of 4,000 units, or, where a number hangs on how many texts there are, its mean
over all draws.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.cause import loss_of
from poolscope.clouds import TokenClouds
from poolscope.evaluation import Evaluation
from poolscope.evaluation.paired import Family
from poolscope.metrics.corpus import corpus_summary
from poolscope.metrics.length.bins import length_bins
from poolscope.metrics.length.profile import bin_slope
from poolscope.metrics.neighbourhood import hubs
from poolscope.metrics.queries import query_scores
from poolscope.metrics.scores import score_distribution
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.cosines import grouped_cosines, rank_estimate
from poolscope.numbers.intervals import (
    Estimate,
    chosen_units,
    mean_estimate,
    paired_difference,
    rate_difference,
    ratio_estimate,
    regression_slopes,
    share_estimate,
)
from poolscope.numbers.ranking import unit_rows

Array = NDArray[np.float64]
Random = np.random.Generator
COUNTS = (10, 30, 100)
MEANS = (10, 30, 100)
PAIRED = (30, 50, 100)
FAMILY = (30, 50, 100, 300)
LEAST = 0.92
CURES = 10
DRAWS = 1999
SHARED = 0.5  # of the variance of a text, what the texts of one document have in common


@dataclass(frozen=True)
class Corpus:
    """So many units; `document` has that of each text. Values are drawn so that the texts of a document are alike."""

    random: Random
    document: NDArray[np.int64]
    clustered: bool

    @classmethod
    def drawn(cls, random: Random, units: int, *, clustered: bool) -> Corpus:
        """One text a unit, or documents of 1 to 11 texts."""
        sizes = random.integers(1, 12, size=units) if clustered else np.ones(units, np.int64)
        return cls(random, np.repeat(np.arange(units), sizes), clustered)

    def __len__(self) -> int:
        return len(self.document)

    def normal(self, *columns: int) -> Array:
        """Standard normal values, one row a text."""
        shape = (len(self), *columns)
        own = self.random.standard_normal(shape)
        if not self.clustered:
            return own
        common = self.random.standard_normal((int(self.document[-1]) + 1, *columns))[self.document]
        return np.asarray(np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own)

    def uniform(self) -> Array:
        """Values spread evenly from 0 to 1."""
        from scipy import special

        return np.asarray(special.ndtr(self.normal()))


Measure = Callable[[Corpus, Any, Any], Estimate]


@dataclass(frozen=True)
class Case:
    """A kind of interval: how its data are drawn, how it is measured, and which counts it is asked for.

    `truth`: a number; None for that of a corpus of 4,000 units; "draws" for the mean over all draws. `documents`: is it
    asked with documents at all?
    """

    name: str
    method: str
    draw: Callable[[Corpus], Any]
    measure: Callable[[Any, Any], Estimate]
    truth: float | str | None = None
    documents: bool = True
    counts: tuple[int, ...] = COUNTS


# -- data -----------------------------------------------------------------------------------------------------------


def scores(corpus: Corpus) -> Array:
    """nDCG@10 of one relevant text: found first, or further down, or not at all."""
    rank = np.floor(np.exp(1.2 * corpus.normal() + 0.5))
    return np.where(rank < 10, 1 / np.log2(rank + 2), 0.0)


def changes(kind: str) -> Callable[[Corpus], Array]:
    """Differences of the scores of two searches."""

    def draw(corpus: Corpus) -> Array:
        place = corpus.uniform()
        if kind == "all":
            return 0.1 * corpus.normal() + 0.02
        steps = corpus.random.choice([0.07, 0.13, 0.37, 0.5, 0.63, 1.0], len(corpus))
        return np.where(place < 0.15, -steps, np.where(place < 0.3, steps, 0.0))

    return draw


def rare(share: float, win: float) -> Callable[[Corpus], Array]:
    """Differences of mean 0: so many queries win so much, and half of all lose a little."""

    def draw(corpus: Corpus) -> Array:
        place = corpus.uniform()
        return np.where(place < share, win, np.where(place < share + 0.5, -2 * share * win, 0.0))

    return draw


def cures(draw: Callable[[Corpus], Array]) -> Callable[[Corpus], Array]:
    """Differences of the scores of ten cures, each drawn by itself, which is the hardest case."""
    return lambda corpus: np.stack([draw(corpus) for _ in range(CURES)], axis=1)


def tokens(corpus: Corpus) -> Array:
    """Lengths of texts, and what of them lies beyond 128 tokens."""
    lengths = np.exp(4.2 + 0.7 * corpus.normal())
    return np.stack([np.maximum(lengths - 128, 0), lengths], axis=1)


def leads(corpus: Corpus) -> Array:
    """What an answer loses at the end of a text, and the lead that it has at the start."""
    lead = 0.2 + 0.1 * corpus.normal()
    return np.stack([0.4 * lead + 0.06 * corpus.normal(), lead], axis=1)


def sides(corpus: Corpus) -> Array:
    """Missed or not, of texts with a symptom and without; the symptom belongs to documents."""
    affected = corpus.uniform() < 0.4
    return np.stack([corpus.uniform() < np.where(affected, 0.4, 0.25), affected], axis=1).astype(float)


def slopes(corpus: Corpus) -> Array:
    """A value that follows a covariate, both alike within a document."""
    x = corpus.normal()
    return np.stack([0.3 * x + corpus.normal(), x], axis=1)


def lengths_and_vectors(corpus: Corpus) -> tuple[Array, NDArray[np.int64]]:
    """Vectors in which length shows, of texts whose documents have a length and a direction of their own."""
    logs = 5 + 1.2 * corpus.normal()
    vectors = 0.7 * corpus.normal(16)
    vectors += 0.6 + 0.1 * logs[:, None]
    return unit_rows(vectors, "v"), np.maximum(np.exp2(logs), 2).astype(np.int64)


def directions(corpus: Corpus) -> Array:
    """Unit vectors with a common part."""
    return unit_rows(corpus.normal(16) + 0.5, "v")


def clouds(corpus: Corpus) -> TokenClouds:
    """Six tokens a text, with a centre and a spread of its own."""
    centres, spreads = corpus.normal(8) + 1, np.exp(0.3 * corpus.normal()) / 2
    rows = corpus.random.standard_normal((len(corpus), 6, 8)) * spreads[:, None, None] + centres[:, None]
    ids = [f"d{document}#{number}" for number, document in enumerate(corpus.document)]
    return TokenClouds.from_arrays(list(rows), ids=ids)


def search(corpus: Corpus) -> tuple[Array, Array]:
    """Queries with the one text of 200 that answers each; those of a document share a part of what is odd about them.

    Two texts are of one document, and answer the queries of one.
    """
    texts = np.random.default_rng(5).standard_normal((200, 24))
    home = np.resize(corpus.random.permutation(100), int(corpus.document[-1]) + 1)[corpus.document]
    wanted = 2 * home + corpus.random.integers(2, size=len(corpus))
    queries = texts[wanted] + 1.3 * corpus.normal(24)
    return queries, np.stack([np.arange(len(corpus)), wanted], axis=1)


def gold(corpus: Corpus) -> Array:
    """Cosines and gold scores that go together."""
    cosine = corpus.normal()
    return np.stack([cosine, 0.8 * cosine + 0.6 * corpus.normal()], axis=1)


# -- measures ---------------------------------------------------------------------------------------------------------


def all_cures(truth: float) -> Callable[[Any, Any], Estimate]:
    """Of ten cures one whose interval does not hold the truth, where there is one."""

    def measure(differences: Any, documents: Any) -> Estimate:
        found = tried(differences, documents)
        missing = (one for one in found if one.interval and not one.interval.low <= truth <= one.interval.high)
        return next(missing, max(found, key=lambda one: one.interval is not None))

    return measure


def tried(differences: Any, documents: Any) -> list[Estimate]:
    """The gains of all cures, as an audit prints them."""
    units = chosen_units(len(differences), documents, each="queries")
    family = Family.of(differences, units.of, units.name)
    return family.estimates(0.95, *family.bounds(0.95, draws=DRAWS))


def symptom_loss(data: Any, documents: Any) -> Estimate:
    """How many more texts would be found if those with a symptom were missed as seldom as the others."""
    units = chosen_units(len(data), documents)
    return loss_of(data[:, 1] > 0, data[:, 0], units.of, unit=units.name)


def length_slope(data: tuple[Any, Any], documents: Any) -> Estimate:
    """The change of the mean cosine per doubling, in bins of equal numbers."""
    unit, lengths = data
    units = chosen_units(len(lengths), documents)
    of = length_bins(lengths, 4, min_texts=3).of
    return bin_slope(grouped_cosines(unit, of, int(of.max()) + 1, units), np.log2(lengths), of, units)


def mean_cosine(unit: Any, documents: Any) -> Estimate:
    """Over all pairs of texts."""
    of = np.zeros(len(unit), dtype=np.int64)
    return grouped_cosines(unit, of, 1, chosen_units(len(unit), documents))[0].estimate


def apart(name: str) -> Callable[[Any, Any], Estimate]:
    """A number of the cosines of texts of different documents."""

    def measure(unit: Any, documents: Any) -> Estimate:
        return getattr(score_distribution(unit, groups=documents, false_hits=0.05), name)  # type: ignore[no-any-return]

    return measure


_SEARCHES: dict[tuple[bytes, bool], Any] = {}  # the numbers of a search are all measured at once


def asked(name: str) -> Callable[[Any, Any], Estimate]:
    """A number of the cosines of queries."""

    def measure(data: tuple[Any, Any], documents: Any) -> Estimate:
        key = data[0][:4].tobytes(), documents is not None
        if key not in _SEARCHES:
            texts = np.random.default_rng(5).standard_normal((200, 24))
            groups = None if documents is None else np.arange(200) // 2
            found = query_scores(data[0], texts, data[1], groups=groups, false_hits=0.05)
            _SEARCHES[key] = {part: getattr(found, part) for part in ("relevant", "cut_off", "recall", "precision")}
        return _SEARCHES[key][name]  # type: ignore[no-any-return]

    return measure


def told_apart(found: TokenClouds, documents: Any) -> TokenClouds:
    """The clouds with ids that name documents, or do not."""
    return found if documents is not None else TokenClouds.from_arrays([found[k] for k in range(len(found))])


def all_pairs(found: TokenClouds, documents: Any) -> Estimate:
    """SOCM of all pairs."""
    return socm(found, groups=range(len(found)) if documents is None else documents).estimate


def some_pairs(found: TokenClouds, documents: Any) -> Estimate:
    """SOCM of each text with a few others."""
    count = len(found)
    pairs = np.concatenate([np.stack([np.arange(count), (np.arange(count) + k) % count], axis=1) for k in (1, 2, 3)])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return socm(found, pairs=pairs, groups=range(count) if documents is None else documents).estimate


def in_parts(name: str) -> Callable[[Any, Any], Estimate]:
    """A number of a summary whose parts merge."""

    def measure(found: TokenClouds, documents: Any) -> Estimate:
        return getattr(corpus_summary(told_apart(found, documents)), name)  # type: ignore[no-any-return]

    return measure


CASES = (
    Case("mean, even", "CR2, Hall", lambda c: c.normal(), lambda v, d: mean_estimate(v, d), 0.0, counts=MEANS),
    Case(
        "mean, skewed", "CR2, Hall", lambda c: -np.log(c.uniform()), lambda v, d: mean_estimate(v, d), 1.0, counts=MEANS
    ),
    *(
        Case(
            f"share of {share}",
            "Clopper-Pearson",
            lambda c, share=share: (c.uniform() < share) * 1.0,  # type: ignore[misc]
            lambda v, d: share_estimate(v, units=d),
            share,
        )
        for share in (0.3, 0.05)
    ),
    Case("share of tokens cut", "Clopper-Pearson", tokens, lambda v, d: share_estimate(v[:, 0], v[:, 1], d)),
    Case("nDCG@10", "Clopper-Pearson", scores, lambda v, d: share_estimate(v, units=d)),
    *(
        Case(
            f"paired difference, {words}",
            "CR2, Johnson's t",
            draw,
            lambda v, d: paired_difference(0 * v, v, d).change,
            truth,
            counts=PAIRED,
        )
        for draw, words, truth in (
            (changes("all"), "all change", 0.02),
            (changes("few"), "3 in 10 change", 0.0),
            (rare(0.1, 0.5), "1 in 10 wins, 5 lose", 0.0),
        )
    ),
    *(
        Case(f"gains of {CURES} cures, {words}", "unseen unit", cures(draw), all_cures(truth), truth, counts=FAMILY)
        for draw, words, truth in (
            (changes("all"), "all change", 0.02),
            (changes("few"), "3 in 10 change", 0.0),
            (rare(0.2, 0.5), "1 in 5 wins 0.5, half lose", 0.0),
            (rare(0.1, 0.5), "1 in 10 wins 0.5, half lose", 0.0),
            (rare(0.1, 1.0), "1 in 10 wins 1, half lose", 0.0),
            (rare(0.05, 0.5), "1 in 20 wins 0.5, half lose", 0.0),
            (rare(0.05, 1.0), "1 in 20 wins 1, half lose", 0.0),
        )
    ),
    Case("ratio of two means", "Fieller", leads, lambda v, d: ratio_estimate(v[:, 0], v[:, 1], d), 0.4),
    Case("difference of two rates", "CR2, Welch", sides, lambda v, d: rate_difference(v[:, 0], v[:, 1], d), 0.15),
    Case("loss of a symptom", "jackknife", sides, symptom_loss, 0.4 * 0.15),
    Case("slope of a regression", "CR2", slopes, lambda v, d: regression_slopes(v[:, 0], v[:, 1:], d)[0][0], 0.3),
    Case("slope of the cosine by length", "jackknife", lengths_and_vectors, length_slope, "draws", counts=(30, 100)),
    Case("mean cosine", "jackknife", directions, mean_cosine, "draws"),
    Case("mean cosine of unrelated texts", "jackknife, Hall", directions, apart("mean")),
    Case("cut-off of unrelated texts", "jackknife, Hall", directions, apart("cut_off"), counts=(30, 100)),
    Case("SOCM, all pairs", "jackknife, Hall", clouds, all_pairs, "draws"),
    Case("SOCM, a list of pairs", "dyadic, Hall", clouds, some_pairs, "draws"),
    Case("effective rank", "jackknife", directions, lambda v, d: rank_estimate(v), "draws", documents=False),
    Case("hub skewness", "jackknife", directions, lambda v, d: hubs(v, k=5).skewness, "draws", documents=False),
    Case("norm, in parts", "jackknife of groups", clouds, in_parts("norm")),
    Case("queries: mean of relevant", "CR2, Hall", search, asked("relevant")),
    Case("queries: cut-off", "jackknife, Hall", search, asked("cut_off")),
    Case("queries: recall", "jackknife, Clopper-Pearson", search, asked("recall")),
    Case("queries: precision", "jackknife, Clopper-Pearson", search, asked("precision")),
    Case(
        "Spearman's ρ",
        "bootstrap",
        gold,
        lambda v, d: Evaluation("sts", "ρ", "pairs", v, statistic="Spearman").score,
        documents=False,
    ),
)


# -- the table --------------------------------------------------------------------------------------------------------


def coverage(case: Case, count: int, *, clustered: bool, told: bool, runs: int, seed: int) -> float | None:
    """The share of intervals that hold the truth; None where most draws have no interval."""
    random = np.random.default_rng([seed, count, clustered])
    found: list[Estimate] = []
    for _ in range(runs):
        corpus = Corpus.drawn(random, count, clustered=clustered)
        found.append(case.measure(case.draw(corpus), corpus.document if clustered and told else None))
    if case.truth == "draws":
        truth = float(np.mean([one.value for one in found if one.value is not None]))
    elif case.truth is None:
        whole = Corpus.drawn(np.random.default_rng([seed, 1]), 4000, clustered=clustered)
        truth = case.measure(case.draw(whole), whole.document if clustered and told else None).value_or_raise
    else:
        truth = float(case.truth)
    held = [one.interval.low <= truth <= one.interval.high for one in found if one.interval is not None]
    return float(np.mean(held)) if len(held) > runs / 2 else None


def rows(case: Case, *, runs: int, seed: int) -> list[str]:
    """One row a count: independent texts, documents that are told, documents that are not."""
    lines = []
    for count in case.counts:
        ways = [(False, False), (True, True), (True, False)] if case.documents else [(False, False)]
        shares = [coverage(case, count, clustered=c, told=t, runs=runs, seed=seed) for c, t in ways]
        cells = ["no interval" if share is None else f"{share:.3f}" for share in shares]
        if not case.documents:
            cells += ["no interval", ""]
        lines.append(f"| {case.name} | {case.method} | {runs:,} | {count} | {' | '.join(cells)} |")
    return lines


HEAD = (
    "| number | method | draws | units | independent texts | by documents | documents not told |",
    "|---|---|---|---|---|---|---|",
)


def main() -> None:
    """Print the table, or write it into the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", nargs="*", default=[])
    arguments.add_argument("--write", type=Path, help="the page whose table is to be replaced")
    options = arguments.parse_args()
    table = list(HEAD)
    print("\n".join(HEAD))
    for case in CASES:
        if options.only and not any(name in case.name for name in options.only):
            continue
        start = time.perf_counter()
        lines = rows(case, runs=options.runs, seed=options.seed)
        print("\n".join(lines), f" {time.perf_counter() - start:.0f} s", flush=True)
        table += lines
    if options.write is not None:
        write(options.write, table)


def write(page: Path, table: list[str]) -> None:
    """Put the rows into the table of the page; those of other numbers stay as they were."""
    before, rest = page.read_text(encoding="utf-8").split("<!-- table -->\n", 1)
    old, after = rest.split("<!-- end -->", 1)
    rows: dict[str, list[str]] = {}
    measured = {line.split(" | ")[0] for line in table[2:]}
    for line in [*(line for line in old.splitlines()[2:] if line.split(" | ")[0] not in measured), *table[2:]]:
        rows.setdefault(line.split(" | ")[0], []).append(line)
    names = [f"| {case.name}" for case in CASES]
    ordered = [line for name in names for line in rows.get(name, [])]
    page.write_text(f"{before}<!-- table -->\n" + "\n".join([*HEAD, *ordered]) + f"\n<!-- end -->{after}", "utf-8")


if __name__ == "__main__":
    main()
