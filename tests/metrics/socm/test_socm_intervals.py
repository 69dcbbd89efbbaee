"""Intervals of SOCM, by repeated draws."""

from __future__ import annotations

import numpy as np

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
        interval = socm(world.select(np.sort(random.choice(300, 4, replace=False)))).interval
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
