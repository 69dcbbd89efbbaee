"""The cone: mean cosine over pairs against the loop over pairs, and its interval."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poolscope.errors import InputError
from poolscope.metrics.scores import cone


def cosines(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(30, 6)) + np.eye(6)[0]


def test_mean_and_interval_are_those_of_the_loop_over_pairs(vectors):
    found, table = cone(vectors), cosines(vectors)
    pairs = list(itertools.combinations(range(30), 2))
    assert found.mean_cosine.value == pytest.approx(np.mean([table[i, j] for i, j in pairs]), abs=1e-6)
    without = np.array([np.mean([table[i, j] for i, j in pairs if k not in (i, j)]) for k in range(30)])
    error = np.sqrt(29 / 30 * ((without - without.mean()) ** 2).sum())
    assert (found.mean_cosine.interval.high - found.mean_cosine.interval.low) / 2 == pytest.approx(
        2.0452 * error, rel=1e-4
    )
    np.testing.assert_allclose(found.per_text, (table.sum(axis=1) - 1) / 29, atol=1e-6)


def test_the_norm_of_the_mean_squared_is_the_mean_cosine_with_the_diagonal(vectors):
    found = cone(vectors)
    assert found.mean_norm**2 == pytest.approx(cosines(vectors).mean(), abs=1e-6)
    assert found.mean_norm**2 == pytest.approx(found.mean_cosine.value * 29 / 30 + 1 / 30, abs=1e-6)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    """Directions of an isotropic Gaussian: the true mean cosine is 0."""
    random = np.random.default_rng(1)
    intervals = [cone(random.normal(size=(40, 8)) * random.uniform(1, 3)).mean_cosine.interval for _ in range(200)]
    inside = np.mean([interval.low <= 0 <= interval.high for interval in intervals])
    assert 0.88 <= inside <= 1.0


def test_lengths_of_vectors_do_not_count_and_one_direction_is_one_cone(vectors):
    scaled = vectors * np.random.default_rng(2).uniform(0.1, 9, size=(30, 1))
    assert cone(scaled).mean_cosine.value == pytest.approx(cone(vectors).mean_cosine.value, abs=1e-6)
    same = cone(np.outer(np.arange(1, 5), [1.0, 2.0, 2.0]))
    assert same.mean_cosine.value == pytest.approx(1, abs=1e-6)
    assert same.mean_norm == pytest.approx(1, abs=1e-6)


def test_two_texts_have_no_interval_and_one_is_an_error():
    assert cone([[1.0, 0.0], [0.0, 1.0]]).mean_cosine.interval is None
    with pytest.raises(InputError, match="one vector"):
        cone([[1.0, 0.0]])
    with pytest.raises(InputError, match="row 2"):
        cone([[1.0, 0.0], [0.0, 0.0]])
