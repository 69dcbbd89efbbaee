"""Intervals of SOCM, by repeated draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cloud_data import random_clouds
from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.measure import socm


def test_sample_has_both_intervals_and_the_regression_estimate():
    clouds = random_clouds(6, [5, 9, 14, 7, 11, 20, 3, 30] * 10, 24)
    exact = socm(clouds)
    result = socm(clouds, pairs=400, seed=1)
    assert result.count == 400
    assert (result.pairs.i < result.pairs.j).all()
    assert "corpus" in result.corpus_interval.answers
    assert "population" in result.interval.answers
    width = result.corpus_interval.high - result.corpus_interval.low
    tight = result.regression.interval
    assert width / (tight.high - tight.low) > 2
    hits = 0
    for seed in range(40):
        interval = socm(clouds, pairs=150, seed=seed).regression.interval
        hits += interval.low <= exact.mean <= interval.high
    assert hits >= 34  # 38 expected at 95 %; fewer than 34 has a chance below 2 %
    assert socm(clouds, pairs=400, seed=1).mean == result.mean


def skewed(random: np.random.Generator, texts: int) -> TokenClouds:
    """Few texts with a far larger spread than the others, few tokens, few dimensions."""
    return TokenClouds.from_arrays(
        [
            random.normal(size=(int(random.integers(2, 15)), 12)) * random.lognormal(sigma=0.6) / 2
            + (random.normal(size=12) + 1) / 2
            for _ in range(texts)
        ]
    )


def test_regression_interval_covers_from_small_samples_of_a_skewed_corpus():
    clouds = skewed(np.random.default_rng(5), 60)
    exact, hits = socm(clouds).mean, 0
    for seed in range(100):
        interval = socm(clouds, pairs=50, seed=seed).regression.interval
        hits += interval.low <= exact <= interval.high
    assert hits >= 86  # 93 expected; with one error for all pairs it was 62


def test_population_interval_of_few_skewed_texts_is_positive_and_covers():
    world = skewed(np.random.default_rng(999), 300)
    exact, hits = socm(world).mean, 0
    random = np.random.default_rng(0)
    for _ in range(150):
        interval = socm(world.select(np.sort(random.choice(300, 30, replace=False)))).interval
        assert interval.low > 0
        hits += interval.low <= exact <= interval.high
    assert hits >= 118  # 130 expected (87 %)


def test_crossed_sample_regression_covers_the_crossed_mean():
    left, right = random_clouds(7, [5, 9, 14, 7] * 8, 24), random_clouds(8, [3, 12, 25] * 8, 24)
    exact = socm(left, right).mean
    hits = 0
    for seed in range(40):
        interval = socm(left, right, pairs=200, seed=seed).regression.interval
        hits += interval.low <= exact <= interval.high
    assert hits >= 34


def documented(random: np.random.Generator, documents: int, chunks: int = 4) -> TokenClouds:
    """Chunks that share centre and spread of their document; ids name the documents."""
    arrays = []
    for _ in range(documents):
        centre, spread = random.normal(size=8) + 1, random.lognormal(sigma=0.4) / 2
        arrays += [random.normal(size=(6, 8)) * spread + centre + random.normal(size=8) / 4 for _ in range(chunks)]
    ids = [f"d{number}#{chunk}" for number in range(documents) for chunk in range(chunks)]
    return TokenClouds.from_arrays(arrays, ids=ids)


def test_all_pairs_leave_out_whole_documents():
    clouds = documented(np.random.default_rng(1), 32)
    found = socm(clouds)
    assert found.interval.unit == "documents"
    without = np.array([socm(clouds[np.flatnonzero(np.arange(128) // 4 != k)]).mean for k in range(32)])
    error, root = np.sqrt(31 / 32 * ((without - found.mean) ** 2).sum()), np.sqrt(32)
    skewness = stats.skew(-without, bias=False)
    inner = 1 + skewness / root * (stats.t.ppf([0.975, 0.025], 31) - skewness / (6 * root))  # Hall (1992), 2.3
    ends = found.mean - error * 3 * root / skewness * (np.cbrt(inner) - 1)
    assert (found.interval.low, found.interval.high) == pytest.approx((max(ends[0], 0), ends[1]), rel=1e-6)
    assert socm(clouds, groups=range(128)).interval.unit == "texts"
    few = socm(documented(np.random.default_rng(1), 9)).estimate
    assert few.interval is None
    assert "9 documents, 30 " in few.no_interval


def test_a_list_of_pairs_is_clustered_by_document():
    clouds = documented(np.random.default_rng(1), 40)
    pairs = np.stack(np.triu_indices(160, 1), axis=1)
    whole, listed = socm(clouds).interval, socm(clouds, pairs=pairs).interval
    assert listed.unit == "documents"
    assert listed.high - listed.low == pytest.approx(whole.high - whole.low, rel=0.15)


def test_by_documents_it_covers_and_by_texts_it_does_not():
    world, covered = np.random.default_rng(2), np.zeros(2)
    truth = np.mean([socm(documented(world, 30)).mean for _ in range(60)])
    for _ in range(80):
        clouds = documented(world, 30)
        for number, groups in enumerate((None, range(120))):
            interval = socm(clouds, groups=groups).interval
            covered[number] += interval.low <= truth <= interval.high
    assert covered[0] >= 70
    assert covered[1] <= covered[0] - 5
