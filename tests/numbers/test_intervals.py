from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.numbers.intervals import (
    CORPUS,
    FEWEST_PAIRED,
    ONE_PLACE,
    POPULATION,
    chosen_units,
    corpus_interval,
    difference_of_means,
    dyadic_interval,
    jackknife_interval,
    mean_estimate,
    paired_difference,
    query_units,
    rate_difference,
    ratio_estimate,
    regression_estimate,
    share_estimate,
    share_of,
    sign_flip_p,
    unit_jackknife,
)
from poolscope.numbers.intervals.slopes import _least_squares
from poolscope.numbers.intervals.student import mean_of_units


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
    # Leaving out texts of additive pairs gives the error of Student's t; then Hall's equation 2.3.
    root, skewness = np.sqrt(30), stats.skew(effects, bias=False)
    ends = [
        3 * root / skewness * (np.cbrt(1 + skewness / root * (t - skewness / (6 * root))) - 1)
        for t in stats.t.ppf([0.975, 0.025], 29)
    ]
    low, high = (2 * effects.mean() - end * error for end in ends)
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-9)
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
    sums = table.sum(axis=1) - np.diag(table)
    interval = jackknife_interval([sums], [6], values.sum(), len(values))
    deviations = np.mean(without) - without
    error, root = np.sqrt(6 / 7 * (deviations**2).sum()), np.sqrt(7)
    skewness = stats.skew(deviations, bias=False)
    inner = 1 + skewness / root * (stats.t.ppf([0.975, 0.025], 6) - skewness / (6 * root))
    ends = values.mean() - error * 3 * root / skewness * (np.cbrt(inner) - 1)
    assert (interval.low, interval.high) == pytest.approx(tuple(ends), rel=1e-9)


def coverage(make_interval, *, repeats: int, truth: float) -> float:
    hits = 0
    for seed in range(repeats):
        interval = make_interval(np.random.default_rng(seed))
        hits += interval.low <= truth <= interval.high
    return hits / repeats


def test_population_intervals_cover_and_the_naive_one_does_not():
    def draw(random, make):
        values, i, j = all_pair_values(random.normal(size=35))
        chosen = random.integers(len(values), size=300)
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


@pytest.mark.parametrize("documents", [None, np.repeat(np.arange(40), np.arange(40) % 4 + 1)])
def test_intervals_over_pairs_of_a_skewed_corpus_hold_and_stay_above_0(documents):
    """Log-normal effects of texts, half of them of documents of 1 to 4 texts; a pair has the product of two."""
    of = np.arange(40) if documents is None else documents
    units, (i, j) = chosen_units(len(of), documents), np.triu_indices(len(of), 1)
    within = of[i] == of[j]
    truth = np.where(within, np.exp(1.5 * 0.5**2), np.exp(0.5**2)).mean()
    held = []
    for seed in range(400):
        random = np.random.default_rng(seed)
        effects = np.exp(0.5 * np.sqrt(0.5) * (random.normal(size=40)[of] + random.normal(size=len(of))))
        values = effects[i] * effects[j]
        sums = np.bincount(i, values, len(of)) + np.bincount(j, values, len(of))
        inside = np.bincount(of[i][within], values[within], 40)
        ends = unit_jackknife(sums, inside, units, values.sum(), len(values), positive=True).interval
        assert ends.low >= 0
        held.append(ends.low <= truth <= ends.high)
    assert np.mean(held) > 0.9
    assert jackknife_interval([np.zeros(3)], [2], 0.0, 3, positive=True).high == 0


def test_clustered_interval_covers_from_few_texts():
    def draw(random):
        values, i, j = all_pair_values(random.normal(size=36))
        chosen = random.integers(len(values), size=60)
        return dyadic_interval(values[chosen], i[chosen], j[chosen], crossed=False)

    assert 0.90 <= coverage(draw, repeats=400, truth=0) <= 0.985
    in_every_pair = dyadic_interval(np.arange(50.0), np.zeros(50, dtype=int), np.arange(1, 51), crossed=False)
    assert in_every_pair is None


def test_too_little_data_gives_no_interval():
    assert corpus_interval(np.array([1.0])) is None
    assert dyadic_interval(np.array([1.0, 2.0]), np.array([0, 0]), np.array([1, 1]), crossed=False) is None
    assert jackknife_interval([np.array([1.0, 1.0])], [1], 1.0, 1) is None
    assert regression_estimate(np.ones(3), np.ones((3, 2)), np.ones(2)) is None


def test_pairs_that_share_no_text_are_independent():
    values = np.random.default_rng(7).normal(size=40)
    i = np.arange(40)
    clustered, plain = dyadic_interval(values, i, i + 40, crossed=False), corpus_interval(values)
    # The same error but for the degrees of freedom: 80 texts, 40 pairs.
    error = values.std(ddof=1) / np.sqrt(39) * np.sqrt(79 / 80) * stats.t.ppf(0.975, 79)
    assert clustered.high - clustered.low == pytest.approx(2 * error, rel=5e-3)  # but for their skewness
    assert (clustered.high - clustered.low) / (plain.high - plain.low) == pytest.approx(1, abs=0.03)


# -- units ------------------------------------------------------------------------------------------------------------


def chunked(random: np.random.Generator, documents: int, *, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of chunks that share the effect of their document, and the document of each."""
    sizes = random.geometric(0.1, size=documents)
    of = np.repeat(np.arange(documents), sizes)
    effects = spread * random.normal(size=documents)
    return effects[of] + random.normal(size=len(of)), of


def test_documents_are_the_unit_where_some_share_one():
    values = np.random.default_rng(0).normal(size=40)
    documents = np.repeat(np.arange(30), [2] * 10 + [1] * 20)
    assert mean_estimate(values, documents).interval.unit == "documents"
    assert mean_estimate(values).interval.unit == "texts"
    assert mean_estimate(values, each="queries").interval.unit == "queries"
    assert mean_estimate(values, np.arange(40)) == mean_estimate(values)
    renamed = np.array([f"d{7 * k % 30}" for k in documents])
    assert mean_estimate(values, renamed).interval.low == pytest.approx(mean_estimate(values, documents).interval.low)


def test_a_mean_over_documents_of_one_size_is_students_t_of_their_means():
    values = np.random.default_rng(1).normal(size=90)
    found = mean_estimate(values, np.tile(np.arange(30), 3)).interval
    ends = stats.ttest_1samp(values.reshape(3, 30).mean(axis=0), 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_the_closed_form_of_a_mean_is_least_squares_with_errors_by_unit():
    values, of = chunked(np.random.default_rng(2), 14, spread=1.0)
    _, variances, freedoms = _least_squares(np.ones((len(values), 1)), values, of)
    fit = mean_of_units(np.bincount(of, values), np.bincount(of).astype(float))
    assert fit.error**2 == pytest.approx(variances[0], rel=1e-9)
    assert fit.freedom == pytest.approx(freedoms[0], rel=1e-9)


def test_errors_by_unit_are_those_of_the_definition():
    """A = (I − H_g)^(−1/2) as a dense matrix, and the quadratic form B of Satterthwaite written out."""
    random = np.random.default_rng(3)
    values, of = chunked(random, 9, spread=1.0)
    design = np.column_stack([np.ones(len(values)), random.normal(size=(len(values), 2))])
    inverse = np.linalg.inv(design.T @ design)
    hat = design @ inverse @ design.T
    residuals = values - hat @ values
    moved, forms = [], []
    for unit in range(9):
        rows = of == unit
        sizes, turn = np.linalg.eigh(np.eye(rows.sum()) - hat[np.ix_(rows, rows)])
        weights = inverse @ design[rows].T @ ((turn / np.sqrt(sizes)) @ turn.T)
        moved.append(weights @ residuals[rows])
        forms.append((np.eye(len(values)) - hat)[:, rows] @ weights.T)
    variances = (np.array(moved) ** 2).sum(axis=0)
    freedoms = []
    for coefficient in range(3):
        form = np.array([each[:, coefficient] for each in forms])
        products = form @ form.T
        freedoms.append(np.trace(products) ** 2 / (products**2).sum())
    found = _least_squares(design, values, of)
    assert found[0] == pytest.approx(inverse @ design.T @ values)
    assert found[1] == pytest.approx(variances, rel=1e-9)
    assert found[2] == pytest.approx(freedoms, rel=1e-9)


@pytest.mark.parametrize("documents", [30, 60])
def test_a_mean_over_chunks_covers_by_document_and_not_by_text(documents):
    held = np.zeros(2)
    for seed in range(300):
        values, of = chunked(np.random.default_rng(seed), documents, spread=1.0)
        for way, units in enumerate((None, of)):
            ends = mean_estimate(values, units).interval
            held[way] += ends is not None and ends.low <= 0 <= ends.high
    assert held[0] / 300 < 0.7
    assert 0.91 <= held[1] / 300 <= 0.985


def test_few_units_have_no_interval_and_say_why():
    values = np.arange(30.0)
    found = mean_estimate(values, np.repeat(np.arange(3), 10))
    assert found.interval is None
    assert "3 documents, 30 " in found.no_interval
    assert "30 texts" in mean_estimate(np.ones(30)).no_interval
    assert mean_estimate(values).no_interval == ""


# -- shares -----------------------------------------------------------------------------------------------------------


def test_a_share_of_independent_units_is_the_exact_binomial_one():
    for hits, count in ((3, 20), (40, 64), (0, 15), (15, 15)):
        found = share_estimate((np.arange(count) < hits).astype(float)).interval
        ends = stats.binomtest(hits, count).proportion_ci(method="exact")
        assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=1e-9)
        assert share_of(hits, count).interval.low == pytest.approx(found.low)


def test_a_share_of_chunks_that_go_by_document_counts_documents():
    whole = np.repeat([1.0, 0.0], [6, 14])
    chunks, of = np.repeat(whole, 10), np.repeat(np.arange(20), 10)
    by_text, by_document = (share_estimate(chunks, units=units).interval for units in (None, of))
    alone = share_estimate(whole).interval
    assert by_document.low < alone.low + 0.01
    assert alone.high < by_document.high < alone.high + 0.1
    assert by_document.unit == "documents"
    assert by_text.high - by_text.low < 0.5 * (alone.high - alone.low)
    assert share_estimate(np.ones(200), units=of).interval.low == pytest.approx(share_of(20, 20).interval.low)


@pytest.mark.parametrize(("texts", "share"), [(50, 0.1), (200, 0.03), (200, 0.1)])
def test_what_few_texts_lose_has_an_interval_that_holds(texts, share):
    """A share of the texts loses log-normal amounts; a bootstrap holds the truth in 62 to 87 of a hundred corpora."""
    truth, held = share * np.exp(0.5) * 100 / (100 + share * np.exp(0.5) * 100), []
    for seed in range(300):
        random = np.random.default_rng(seed)
        lost = np.where(random.random(texts) < share, 100 * random.lognormal(size=texts), 0.0)
        ends = share_estimate(lost, 100 + lost).interval
        held.append(ends.low <= truth <= ends.high)
    assert np.mean(held) > 0.92


# -- differences and ratios -------------------------------------------------------------------------------------------


def test_a_skewed_mean_is_that_of_halls_transformation():
    values = np.random.default_rng(0).exponential(size=12)
    found = mean_estimate(values).interval
    root, skewness = np.sqrt(12), stats.skew(values, bias=False)
    for end, sign in ((found.low, 1), (found.high, -1)):
        ratio = (values.mean() - end) / (values.std(ddof=1) / root)
        moved = ratio + skewness * ratio**2 / 3 / root + skewness**2 * ratio**3 / 27 / 12 + skewness / 6 / root
        assert moved == pytest.approx(sign * stats.t.ppf(0.975, 11))


def test_a_paired_difference_is_students_and_its_p_that_of_sign_flips():
    random = np.random.default_rng(4)
    before = random.uniform(size=40)
    after = before + random.normal(0.03, 0.1, 40)
    found = paired_difference(before, after)
    ends = stats.ttest_rel(after, before).confidence_interval()
    changes = after - before
    shift = stats.skew(changes, bias=False) * changes.std(ddof=1) / 6 / 40  # Johnson 1978
    expected = (ends.low + shift, ends.high + shift)
    assert (found.change.interval.low, found.change.interval.high) == pytest.approx(expected)
    flips = stats.permutation_test((after - before,), np.sum, permutation_type="samples", n_resamples=20_000, rng=0)
    assert found.p_value == pytest.approx(flips.pvalue, abs=0.015)
    few = (after - before)[:10]
    exact = stats.permutation_test((few,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(few) == pytest.approx(exact.pvalue)
    order = random.permutation(40)
    assert paired_difference(before[order], after[order]).p_value == found.p_value


def test_no_change_is_no_interval_of_zeros():
    found = paired_difference(np.full(50, 0.4), np.full(50, 0.4))
    assert found.change.value == 0
    assert found.change.interval is None
    assert "50 queries" in found.change.no_interval
    assert (found.p_value, found.changed) == (1.0, 0)
    assert 0.02 < found.smallest_gain < 0.1  # six queries that go up one place


def test_a_paired_difference_by_document_flips_documents():
    documents = np.repeat(np.arange(50), 5)
    gains = np.repeat(np.random.default_rng(5).normal(0, 0.1, 50), 5)
    by_query, by_document = (paired_difference(np.zeros(250), gains, units) for units in (None, documents))
    assert (by_document.unit, by_document.units, by_document.count) == ("documents", 50, 250)
    widths = [found.change.interval.high - found.change.interval.low for found in (by_query, by_document)]
    assert widths[1] / widths[0] == pytest.approx(np.sqrt(5), rel=0.05)
    assert by_document.p_value == pytest.approx(paired_difference(np.zeros(50), gains[::5]).p_value, abs=0.02)
    assert by_document.smallest_gain > 1.5 * by_query.smallest_gain


def test_the_gain_that_could_have_been_shown_is_shown_in_four_of_five_cases():
    random, claims, proven = np.random.default_rng(6), [], 0
    for _ in range(200):
        claim = paired_difference(np.zeros(100), random.normal(0, 0.1, 100)).smallest_gain
        claims.append(claim)
        moved = random.normal(0, 0.1, 100) + np.where(random.random(100) < claim / ONE_PLACE, ONE_PLACE, 0.0)
        proven += paired_difference(np.zeros(100), moved).change.interval.low > 0
    assert 0.70 <= proven / 200 <= 0.92
    assert 0.02 < np.mean(claims) < 0.06


def test_a_difference_of_rates_is_welchs_and_by_unit_covers():
    random = np.random.default_rng(7)
    left, right = random.normal(0.3, 1.0, 20), random.normal(0.0, 0.3, 50)
    found = difference_of_means(left, right)
    ends = stats.ttest_ind(left, right, equal_var=False).confidence_interval()
    assert (found.interval.low, found.interval.high) == pytest.approx((ends.low, ends.high))
    held = np.zeros(2)
    for seed in range(300):
        draw = np.random.default_rng(seed)
        values, of = chunked(draw, 24, spread=1.0)
        affected = (of % 3 == 0).astype(float)
        for way, units in enumerate(((), (of,))):
            interval = rate_difference(values, affected, *units).interval
            held[way] += interval.low <= 0 <= interval.high
    assert held[0] / 300 < 0.7
    assert 0.91 <= held[1] / 300 <= 0.99


def test_a_difference_of_rates_clustered_both_ways_covers():
    held = 0
    for seed in range(300):
        draw = np.random.default_rng(seed)
        queries, documents = draw.integers(30, size=150), draw.integers(40, size=150)
        effects = draw.normal(size=30)[queries] + draw.normal(size=40)[documents]
        affected = (documents % 2).astype(float)
        found = rate_difference(effects + draw.normal(size=150), affected, queries, documents)
        held += found.interval.low <= 0 <= found.interval.high
        assert found.interval.unit == "queries and documents"
    assert 0.91 <= held / 300 <= 0.99
    assert rate_difference([1.0, 0, 1], [1.0, 0, 0]).value is None


def test_a_ratio_of_two_estimates_covers_where_the_lead_is_not_known():
    """Lead and loss of a query come from the same cosines; a ratio that takes the lead as known misses more often."""
    held = np.zeros(2)
    for seed in range(400):
        draw = np.random.default_rng(seed)
        lead = draw.normal(0.2, 0.25, 30)
        loss = 0.8 * lead + draw.normal(0, 0.05, 30)
        known = mean_estimate(loss, each="queries").scaled(1 / lead.mean()).interval
        fieller = ratio_estimate(loss, lead).interval
        for way, ends in enumerate((known, fieller)):
            held[way] += ends is not None and ends.low <= 0.8 <= ends.high
    assert 0.92 <= held[1] / 400 <= 0.98
    assert abs(held[0] / 400 - 0.95) > 0.02
    nothing = ratio_estimate(np.ones(12), np.tile([1.0, -0.9], 6))
    assert nothing.interval is None
    assert nothing.no_interval


def test_a_ratio_that_is_the_same_everywhere_keeps_its_value():
    below = np.arange(1.0, 13)
    found = ratio_estimate(0.75 * below, below)
    assert (found.value, found.interval) == (0.75, None)
    assert found.no_interval


@pytest.mark.parametrize(
    ("relevant", "documents", "units"),
    [
        ([(0, 0), (1, 1), (2, 2)], None, [0, 1, 2]),
        ([(0, 0), (1, 0), (2, 2)], None, [0, 0, 1]),
        ([(0, 0), (1, 1), (2, 0), (2, 1), (3, 3)], None, [0, 0, 0, 1]),
        ([(0, 5), (1, 5), (2, 5), (0, 0), (1, 1), (2, 2)], None, [0, 0, 0]),
        ([(0, 0), (1, 1), (2, 2)], ["a", "b", "a"], [0, 1, 0]),
    ],
)
def test_queries_that_share_a_relevant_text_or_document_are_one_unit(relevant, documents, units):
    relevant = np.array(relevant)
    assert query_units(relevant, documents).of.tolist() == units
    backwards = query_units(relevant[::-1], documents)
    assert (backwards.of.tolist(), backwards.name) == (units, query_units(relevant, documents).name)


@pytest.mark.parametrize(
    ("texts", "unit"), [(FEWEST_PAIRED, "queries on these texts"), (FEWEST_PAIRED - 1, "query groups")]
)
def test_where_links_alone_leave_too_few_groups_each_query_is_a_unit(texts, unit):
    chain = [(text + step, text) for text in range(texts) for step in (0, 1)]  # each text answers two queries in a row
    units = query_units(np.array(chain))
    assert (units.name, len(units)) == (unit, texts + 1 if unit != "query groups" else 1)


def test_few_documents_stay_the_unit_of_queries_that_they_answer():
    units = query_units(np.array([(query, query % 5) for query in range(100)]), ["a", "b", "c", "d", "d"])
    assert (units.name, len(units)) == ("documents", 4)


def test_a_query_without_a_relevant_text_is_a_unit_of_its_own():
    assert query_units(np.array([(1, 0), (3, 0)]), queries=5).of.tolist() == [0, 1, 2, 1, 3]
