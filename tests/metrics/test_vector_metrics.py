"""Spectrum, norms and neighbourhood: closed forms, other routes, nothing to find, something planted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolscope.errors import InputError
from poolscope.metrics.neighbourhood import hubs, neighbourhood
from poolscope.metrics.scores import score_distribution
from poolscope.metrics.spectrum import norms, spectrum
from poolscope.numbers.cosines import effective_rank
from poolscope.numbers.ranking import unit_rows


def gaussian(count=300, dimension=24, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension))


def clusters(count=300, dimension=24, number=20, spread=0.3, seed=0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.standard_normal((number, dimension))
    return centres[np.arange(count) % number] + spread * random.standard_normal((count, dimension))


# -- spectrum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(200, 12), (20, 40)], ids=["tall", "wide"])
def test_the_rank_is_that_of_the_singular_values(shape):
    vectors = gaussian(*shape)
    assert spectrum(vectors).effective_rank.value == pytest.approx(effective_rank(unit_rows(vectors, "v")), rel=1e-4)


def test_the_interval_of_the_rank_is_that_of_leaving_vectors_out():
    vectors = gaussian(150, 8) * np.array([4, 3, 2, 2, 1, 1, 0.5, 0.2])
    unit = unit_rows(vectors, "v")
    whole = effective_rank(unit)
    without = np.array([effective_rank(np.delete(unit, k, 0)) for k in range(150)])
    error = 149 * np.sqrt(without.var(ddof=1) / 150)
    interval = spectrum(vectors).effective_rank.interval
    # Of 20 groups, so that it is rough.
    assert interval.high - interval.low == pytest.approx(2 * 1.976 * error, rel=0.4)
    assert interval.low < whole < interval.high


def test_nothing_to_find_lies_at_the_floors():
    result = spectrum(gaussian())
    assert result.used == pytest.approx(1, abs=0.02)
    assert result.largest_share.value == pytest.approx(result.largest_share.floor, rel=0.25)
    assert result.kept.value == pytest.approx(result.kept.floor, abs=0.08)


def test_a_dimension_that_rules_is_found_and_a_rotation_hides_it():
    vectors = gaussian()
    vectors[:, 5] *= 6
    result = spectrum(vectors)
    assert result.dimension_number == 5
    assert result.largest_share.interval.low > 3 * result.largest_share.floor
    assert result.kept.interval.high < result.kept.floor - 0.3
    turned = spectrum(vectors @ np.linalg.qr(gaussian(24, 24, seed=1))[0])
    assert turned.effective_rank.value == pytest.approx(result.effective_rank.value, rel=1e-3)
    assert turned.largest_share.value < 2 * turned.largest_share.floor


def test_few_directions_are_few():
    result = spectrum(gaussian(300, 3) @ gaussian(3, 24))
    assert result.effective_rank.value < 3.1
    assert result.used < 0.2


def test_equal_vectors_have_no_rank():
    result = spectrum(np.ones((40, 4)))
    assert result.effective_rank.value == pytest.approx(0, abs=1.1)
    (sentence,) = result.in_words()
    assert "one direction" in sentence


# -- norms ----------------------------------------------------------------------------------------------------------


def by_hand(vectors, k=10):
    """Changed neighbours of every vector by inner product and distance, one vector at a time."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    changed = []
    for q in range(len(vectors)):
        tops = []
        for scores in (unit @ unit[q], vectors @ vectors[q], -np.linalg.norm(vectors - vectors[q], axis=1)):
            scores[q] = -np.inf
            tops.append(set(np.argsort(-scores)[:k]))
        changed.append([1 - len(tops[0] & other) / k for other in tops[1:]])
    return np.mean(changed, axis=0)


def test_changed_neighbours_are_those_of_the_plain_loop():
    vectors = gaussian(120) * np.random.default_rng(1).uniform(1, 3, (120, 1))
    result = norms(vectors)
    assert [result.by_dot.value, result.by_l2.value] == pytest.approx(by_hand(vectors), abs=0.01)
    assert result.by_dot.interval.low < result.by_dot.value < result.by_dot.interval.high
    assert result.long_among > 1.5


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_one_length_gives_one_order(scale):
    unit = gaussian()
    unit *= scale / np.linalg.norm(unit, axis=1, keepdims=True)
    result = norms(unit.astype(np.float16))
    assert result.normalised
    assert result.unit == (scale == 1)
    assert (result.by_dot.value, result.by_l2.value) == (0, 0)


@pytest.mark.parametrize("scale", [1e-23, 1e19, 1e30])
def test_very_long_and_very_short_vectors_have_the_same_neighbours(scale):
    vectors = gaussian(120) * np.random.default_rng(1).uniform(1, 3, (120, 1))
    usual, other = norms(vectors), norms((vectors * scale).astype(np.float32))
    assert (other.by_dot.value, other.by_l2.value) == pytest.approx((usual.by_dot.value, usual.by_l2.value), abs=0.002)


def test_lengths_and_cosines_that_are_all_one_are_drawn():
    same = np.eye(20) + 0.1
    assert len(norms(same).figure().data) == 1
    assert score_distribution(same).counts.sum() == 190


def test_lengths_are_those_of_all_vectors():
    result = norms([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]])
    assert result.lengths.tolist() == [5, 1, 2]
    assert result.median == 2


# -- neighbourhood --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(400, 16), (150, 100)], ids=["tall", "wide"])
def test_gaussian_vectors_have_the_contrast_of_chance(shape):
    result = neighbourhood(gaussian(*shape))
    assert result.contrast.value == pytest.approx(result.contrast.floor, rel=0.05)
    assert result.outliers.value == pytest.approx(0, abs=0.01)
    assert (result.parts, result.islands.value) == (1, 0)


@pytest.mark.parametrize("count", [60, 230])
def test_the_interval_of_the_contrast_is_that_of_leaving_vectors_out(count):
    vectors = clusters(count)
    found = neighbourhood(vectors).contrast
    without = np.array([neighbourhood(np.delete(vectors, k, 0)).contrast.value for k in range(count)])
    error = (count - 1) * np.sqrt(without.var(ddof=1) / count)
    half = stats.t.ppf(0.975, count - 1) * error
    assert found.interval.high - found.value == pytest.approx(half, rel=1e-3)


def test_the_contrast_is_that_of_as_many_vectors_however_many_there_are():
    """The mean over draws of 200; before, it was that of all and rose with their number."""
    vectors = clusters(900, number=40)
    unit = unit_rows(vectors, "v").astype(np.float64)
    distances = np.sqrt(np.maximum(2 - 2 * unit @ unit.T, 0))
    random = np.random.default_rng(1)
    draws = (random.permutation(900)[:200] for _ in range(200))
    near = np.mean([np.sort(distances[np.ix_(draw, draw)], axis=1)[:, 1].mean() for draw in draws])
    apart = np.sqrt((distances**2).sum() / (900 * 899))
    whole, part = neighbourhood(vectors), neighbourhood(vectors[:300])
    assert (whole.at, part.at) == (200, 200)
    assert whole.contrast.value == pytest.approx(apart / near, rel=0.01)
    assert part.contrast.interval.low < whole.contrast.value < part.contrast.interval.high


def test_intervals_of_contrast_and_rank_hold_their_level():
    """With 150 vectors of 20 subjects; before, 84 and 89 of a hundred held the mean of them all."""
    centres = np.random.default_rng(3).standard_normal((20, 48))
    held = {"contrast": [], "rank": []}
    for seed in range(80):
        random = np.random.default_rng(seed)
        vectors = centres[random.integers(20, size=150)] + 0.7 * random.standard_normal((150, 48))
        held["contrast"].append(neighbourhood(vectors).contrast)
        held["rank"].append(spectrum(vectors).effective_rank)
    for found in held.values():
        truth = np.mean([each.value for each in found])
        assert np.mean([each.interval.low <= truth <= each.interval.high for each in found]) >= 0.93


def test_clusters_have_contrast_and_vectors_far_from_all_are_outliers():
    vectors = clusters()
    vectors[:6] = gaussian(6, 24, seed=9)
    result = neighbourhood(vectors)
    assert result.contrast.interval.low > 1.5 * result.contrast.floor
    assert set(np.flatnonzero(result.outlying)) == set(range(6))
    assert result.outliers.value == pytest.approx(0.02)
    assert result.rows()[0]["outlier"]


def test_parts_that_no_neighbour_joins_are_islands():
    vectors = np.vstack([clusters(60, number=1, seed=k) for k in range(3)])
    result = neighbourhood(vectors[:170])
    assert result.parts == 3
    assert result.islands.value == pytest.approx(110 / 170)
    assert sorted(np.bincount(result.part)) == [50, 60, 60]


def test_copies_count_once():
    vectors = clusters()
    assert neighbourhood(np.vstack([vectors, vectors])).contrast == neighbourhood(vectors).contrast
    with pytest.raises(InputError, match="1 different vectors"):
        neighbourhood(np.ones((50, 4)))


# -- documents --------------------------------------------------------------------------------------------------------


def test_documents_are_the_unit_of_intervals_or_there_is_none():
    """Ten vectors a document, all alike: 40 draws, not 400."""
    vectors = np.repeat(gaussian(40), 10, axis=0) + 0.05 * gaussian(400, seed=1)
    vectors *= np.repeat(np.linspace(1, 3, 40), 10)[:, None]
    groups = np.repeat(np.arange(40), 10)
    told, untold = ([spectrum(vectors, groups=names), norms(vectors, groups=names)] for names in (groups, None))
    near, crowd = neighbourhood(vectors, groups=groups), hubs(vectors, groups=groups)
    pairs = [(told[0].largest_share, untold[0].largest_share), (told[1].by_dot, untold[1].by_dot)]
    for by_document, by_text in pairs:
        assert (by_document.interval.unit, by_text.interval.unit) == ("documents", "texts")
        ends = by_document.interval.high - by_document.interval.low, by_text.interval.high - by_text.interval.low
        assert ends[0] > 1.5 * ends[1]
    assert near.outliers.interval.unit == near.islands.interval.unit == "documents"
    for estimate in (told[0].effective_rank, near.contrast, crowd.skewness):
        assert estimate.interval is None
        assert "40 documents" in estimate.no_interval
    assert untold[0].effective_rank.interval.unit == "texts"
