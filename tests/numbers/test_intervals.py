from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.numbers.intervals import (
    CORPUS,
    POPULATION,
    bootstrap_interval,
    bounded_interval,
    corpus_interval,
    dyadic_interval,
    jackknife_interval,
    lost_interval,
    paired_interval,
    regression_estimate,
)


def all_pair_values(effects: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Additive values e_i + e_j: the mean over pairs is twice the mean of the effects, and so is its error."""
    i, j = np.triu_indices(len(effects), 1)
    return effects[i] + effects[j], i, j


def jackknife(effects: np.ndarray):
    values, i, j = all_pair_values(effects)
    sums = np.bincount(i, values, len(effects)) + np.bincount(j, values, len(effects))
    return jackknife_interval([sums], [len(effects) - 1], values.sum(), len(values))


def test_jackknife_of_additive_values_is_the_interval_of_the_mean():
    effects = np.random.default_rng(0).normal(size=30)
    interval = jackknife(effects)
    error = 2 * effects.std(ddof=1) / np.sqrt(30)
    # Leaving one of N texts out of pairs rescales the error by (N − 1)/(N − 2) exactly.
    reach = stats.t.ppf(0.975, 29) * error * 29 / 28 * (28 / 29)
    assert (interval.low + interval.high) / 2 == pytest.approx(2 * effects.mean())
    assert (interval.high - interval.low) / 2 == pytest.approx(reach, rel=0.05)
    assert interval.answers == POPULATION


def test_jackknife_matches_leaving_out_each_text_by_hand():
    random = np.random.default_rng(1)
    table = random.normal(size=(7, 7))
    table = table + table.T
    pairs = np.triu_indices(7, 1)
    values = table[pairs]
    without = []
    for text in range(7):
        rest = np.delete(np.delete(table, text, 0), text, 1)
        without.append(rest[np.triu_indices(6, 1)].mean())
    error = np.sqrt(6 / 7 * ((without - np.mean(without)) ** 2).sum())
    sums = table.sum(axis=1) - np.diag(table)
    interval = jackknife_interval([sums], [6], values.sum(), len(values))
    assert interval.high - interval.low == pytest.approx(2 * stats.t.ppf(0.975, 6) * error, rel=1e-12)


def coverage(make_interval, *, repeats: int, truth: float) -> float:
    hits = 0
    for seed in range(repeats):
        interval = make_interval(np.random.default_rng(seed))
        hits += interval.low <= truth <= interval.high
    return hits / repeats


def test_population_intervals_cover_and_the_naive_one_does_not():
    def draw(random, make):
        values, i, j = all_pair_values(random.normal(size=25))
        chosen = random.integers(len(values), size=200)
        return make(values[chosen], i[chosen], j[chosen])

    dyadic = coverage(lambda r: draw(r, lambda v, i, j: dyadic_interval(v, i, j, crossed=False)), repeats=300, truth=0)
    naive = coverage(lambda r: draw(r, lambda v, i, j: corpus_interval(v)), repeats=300, truth=0)
    full = coverage(lambda r: jackknife(r.normal(size=25)), repeats=300, truth=0)
    assert 0.90 <= dyadic <= 0.995
    assert 0.90 <= full <= 0.99
    assert naive < 0.75


def test_crossed_jackknife_covers():
    def draw(random):
        rows, columns = random.normal(size=20), random.normal(size=30)
        table = rows[:, None] + columns
        return jackknife_interval([table.sum(1), table.sum(0)], [30, 20], table.sum(), table.size)

    assert 0.90 <= coverage(draw, repeats=300, truth=0) <= 0.99


def test_corpus_interval_covers_the_mean_of_this_corpus():
    values, _, _ = all_pair_values(np.random.default_rng(5).normal(size=40))
    rate = coverage(lambda r: corpus_interval(r.choice(values, 300)), repeats=400, truth=values.mean())
    assert 0.92 <= rate <= 0.98
    assert corpus_interval(values).answers == CORPUS


def test_regression_estimate_covers_and_is_tighter():
    random = np.random.default_rng(6)
    covariate = random.normal(size=(5000, 2))
    values = covariate @ [2.0, -1.0] + 0.1 * random.normal(size=5000)

    def draw(random):
        chosen = random.integers(5000, size=200)
        return regression_estimate(values[chosen], covariate[chosen], covariate.mean(axis=0)).interval

    assert 0.92 <= coverage(draw, repeats=300, truth=values.mean()) <= 0.98
    chosen = random.integers(5000, size=200)
    found = regression_estimate(values[chosen], covariate[chosen], covariate.mean(axis=0))
    plain = corpus_interval(values[chosen])
    assert (plain.high - plain.low) / (found.interval.high - found.interval.low) > 10
    assert found.explained > 0.99


def test_regression_estimate_covers_where_large_covariates_have_large_errors():
    random = np.random.default_rng(8)
    covariates = random.lognormal(sigma=1.2, size=(5000, 6))
    values = covariates.sum(axis=1) + covariates.max(axis=1) * random.normal(size=5000)

    def draw(random):
        chosen = random.integers(5000, size=60)
        return regression_estimate(values[chosen], covariates[chosen], covariates.mean(axis=0)).interval

    assert 0.88 <= coverage(draw, repeats=300, truth=values.mean()) <= 0.98


def test_regression_estimate_bears_covariates_that_say_nothing_or_the_same():
    random = np.random.default_rng(9)
    useful = random.normal(size=(100, 1))
    values = 3 * useful[:, 0] + random.normal(size=100)
    covariates = np.concatenate([useful, 2 * useful, np.ones((100, 1))], axis=1)
    alone = regression_estimate(values, useful, np.zeros(1))
    found = regression_estimate(values, covariates, np.array([0.0, 0.0, 1.0]))
    assert found.mean == pytest.approx(alone.mean, rel=1e-12)
    assert (found.interval.low, found.interval.high) == pytest.approx((alone.interval.low, alone.interval.high))


def test_intervals_of_positive_values_stay_positive_and_cover_better_from_few_texts():
    def draw(random, *, positive):
        effects = random.lognormal(sigma=1.0, size=6)
        i, j = np.triu_indices(6, 1)
        values = effects[i] * effects[j]
        sums = np.bincount(i, values, 6) + np.bincount(j, values, 6)
        return jackknife_interval([sums], [5], values.sum(), 15, positive=positive)

    truth = np.exp(1.0)
    plain = coverage(lambda random: draw(random, positive=False), repeats=400, truth=truth)
    logs = coverage(lambda random: draw(random, positive=True), repeats=400, truth=truth)
    assert logs > plain + 0.05
    assert min(draw(np.random.default_rng(seed), positive=True).low for seed in range(400)) > 0
    assert jackknife_interval([np.zeros(3)], [2], 0.0, 3, positive=True).high == 0


def test_clustered_interval_covers_from_few_texts():
    def draw(random):
        values, i, j = all_pair_values(random.normal(size=6))
        chosen = random.integers(len(values), size=30)
        return dyadic_interval(values[chosen], i[chosen], j[chosen], crossed=False)

    assert 0.90 <= coverage(draw, repeats=400, truth=0) <= 0.985
    in_every_pair = dyadic_interval(np.arange(5.0), np.zeros(5, dtype=int), np.arange(1, 6), crossed=False)
    assert in_every_pair is None


def test_too_little_data_gives_no_interval():
    assert corpus_interval(np.array([1.0])) is None
    assert dyadic_interval(np.array([1.0, 2.0]), np.array([0, 0]), np.array([1, 1]), crossed=False) is None
    assert jackknife_interval([np.array([1.0, 1.0])], [1], 1.0, 1) is None
    assert regression_estimate(np.ones(3), np.ones((3, 2)), np.ones(2)) is None


@pytest.mark.parametrize(("texts", "share"), [(50, 0.1), (200, 0.03), (200, 0.1)])
def test_what_few_texts_lose_has_an_interval_that_holds(texts, share):
    """A share of the texts loses log-normal amounts; a bootstrap holds the truth in 62 to 87 of a hundred corpora."""
    whole, truth = 100.0, share * np.exp(0.5) * 100 / (100 + share * np.exp(0.5) * 100)
    held = []
    for seed in range(300):
        random = np.random.default_rng(seed)
        lost = np.where(random.random(texts) < share, 100 * random.lognormal(size=texts), 0.0)
        ends = lost_interval(lost, whole + lost)
        if ends is not None:
            held.append(ends.low <= truth <= ends.high)
    assert np.mean(held) > 0.92
    assert lost_interval(np.zeros(texts), np.full(texts, 100.0)) is None


def test_pairs_that_share_no_text_are_independent():
    values = np.random.default_rng(7).normal(size=40)
    i = np.arange(40)
    clustered, plain = dyadic_interval(values, i, i + 40, crossed=False), corpus_interval(values)
    # The same error but for the degrees of freedom: 80 texts, 40 pairs.
    error = values.std(ddof=1) / np.sqrt(39) * np.sqrt(79 / 80) * stats.t.ppf(0.975, 79)
    assert clustered.high - clustered.low == pytest.approx(2 * error, rel=1e-12)
    assert (clustered.high - clustered.low) / (plain.high - plain.low) == pytest.approx(1, abs=0.03)


def test_bootstrap_interval_covers_the_mean_and_matches_the_plain_one():
    random = np.random.default_rng(5)
    covered, ratio = 0, []
    for seed in range(200):
        values = random.exponential(size=80)
        found = bootstrap_interval(values, draws=500, seed=seed, unit="queries")
        covered += found.low <= 1.0 <= found.high
        ratio.append((found.high - found.low) / (2 * 1.96 * values.std(ddof=1) / np.sqrt(80)))
    assert 176 <= covered <= 198  # 95 % nominal; the percentile interval of a skewed mean runs a little short
    assert np.mean(ratio) == pytest.approx(1, abs=0.03)
    assert found.answers == "the population of queries"


def test_bootstrap_interval_is_reproducible_and_needs_two_values():
    values = np.arange(50.0)
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)
    assert bootstrap_interval(values[:1]) is None


def test_differences_that_all_go_one_way_are_held_against_one_that_was_not_seen():
    """One query in ten wins 0.5, half of them lose 0.1: every eighth sample of 20 holds no winner and knows of none."""
    unlucky = np.repeat([-0.1, 0.0], 10)
    assert paired_interval(unlucky).high < 0 < paired_interval(unlucky, unseen=0.5).high
    assert paired_interval(-unlucky, unseen=0.5).low == pytest.approx(-paired_interval(unlucky, unseen=0.5).high)
    seen = np.append(unlucky, [0.01] * 3)  # three that go the other way: the sample speaks for itself
    assert paired_interval(seen, unseen=0.5).high == paired_interval(seen).high < 0
    assert paired_interval(np.full(60, 0.02), unseen=0.5).low > 0  # small changes of all, and none ten times as large


def test_one_query_that_makes_nearly_all_of_the_spread_does_not_make_the_interval_endless():
    """Where scores have bounds: draws without that query have next to no spread, and t of them has no end."""
    random = np.random.default_rng(3)
    held = {None: 0, 1.0: 0}
    for run in range(120):
        differences = np.where(random.random(39) < 0.1, -0.6, random.normal(0, 0.001, 39))
        for most in held:
            ends = paired_interval(differences, draws=299, seed=run, unseen=0.5, most=most)
            held[most] += ends.low <= -0.06 <= ends.high
            if most is not None:
                assert ends.high - ends.low < 0.3
                assert ends.low <= differences.mean() <= ends.high
    assert abs(held[None] - held[1.0]) <= 1
    assert held[1.0] >= 110
    mild = random.normal(0.01, 0.1, 100)
    assert paired_interval(mild, most=1.0) == paired_interval(mild)


def test_the_paired_interval_holds_its_level_where_one_query_in_ten_wins_much():
    random, outside = np.random.default_rng(0), np.zeros(2)
    for run in range(300):
        differences = random.choice([0.5, -0.1, 0.0], 20, p=[0.1, 0.5, 0.4])
        for way, unseen in enumerate((None, 0.5)):
            ends = paired_interval(differences, draws=299, seed=run, unseen=unseen)
            outside[way] += not ends.low <= 0 <= ends.high
    assert outside[1] <= 0.05 * 300 < 0.08 * 300 < outside[0]


@pytest.mark.parametrize(("hits", "count"), [(3, 20), (40, 64), (1, 200)])
def test_the_interval_of_bounded_values_is_that_of_jeffreys_for_a_share(hits, count):
    values = np.where(np.arange(count) < hits, 1.0, -1.0)
    ends = bounded_interval(values, -1.0, 1.0, draws=40_000)
    low, high = 2 * stats.beta.ppf([0.025, 0.975], hits + 0.5, count - hits + 0.5) - 1
    assert (ends.low, ends.high) == pytest.approx((low, high), abs=0.01)


def test_the_interval_of_bounded_values_stays_within_them_and_holds_the_mean():
    assert bounded_interval(np.ones(1), 0.0, 1.0) is None
    for values in (np.zeros(8), np.ones(8), np.array([0.0, 1.0])):
        ends = bounded_interval(values, 0.0, 1.0)
        assert 0 <= ends.low <= values.mean() <= ends.high <= 1


def test_the_interval_of_bounded_values_holds_its_level_where_hardly_one_is_seen():
    """One query in 25 changes, the others by a trace: a studentised bootstrap misses, or reaches beyond all."""
    random, missed, beyond = np.random.default_rng(0), {"bounded": 0, "paired": 0}, 0
    for run in range(200):
        changes = np.where(random.random(40) < 0.04, 0.7, -(10.0 ** random.uniform(-8, -3, 40)))
        both = {
            "bounded": bounded_interval(changes, -1.0, 1.0, draws=299, seed=run),
            "paired": paired_interval(changes, draws=299, seed=run),
        }
        beyond += both["paired"].high > 1
        for name, ends in both.items():
            missed[name] += not ends.low <= 0.028 <= ends.high
    assert missed["bounded"] <= 0.05 * 200 < missed["paired"]
    assert beyond > 0
