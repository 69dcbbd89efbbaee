"""Interventions keep every mean, and change around it exactly what they say."""

from __future__ import annotations

import numpy as np
import pytest

from cloud_data import moments, random_clouds
from poolscope import TokenClouds, socm
from poolscope.errors import InputError
from poolscope.lab.interventions import (
    isotropic_noise,
    match_traces,
    parse_intervention,
    rotate_deviations,
    scale_deviations,
    top_directions,
)
from poolscope.numbers.moments import text_moments

LENGTHS = [5, 1, 12, 7, 30, 3]


@pytest.fixture(scope="module")
def clouds():
    """Texts of different lengths, fewer and more tokens than dimensions, one of a single token."""
    return random_clouds(0, LENGTHS, 9, dtype="float32")


def covariances(clouds) -> list[np.ndarray]:
    return [moments(cloud)[1] for cloud in clouds]


@pytest.mark.parametrize("name", ["scale=0", "scale=0.3", "scale=4", "rotate", "match", "noise", "top=1", "top=3"])
def test_every_mean_is_kept(clouds, name):
    changed = parse_intervention(name, seed=5)(clouds)
    for before, after in zip(clouds, changed, strict=True):
        expected = before.astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(after.mean(axis=0), expected, rtol=0, atol=1e-14)
    assert changed.lengths.tolist() == LENGTHS
    assert list(changed.ids) == list(clouds.ids)
    assert list(changed.texts) == list(clouds.texts)
    assert changed.provenance["intervention"] == name
    np.testing.assert_array_equal(changed[1], clouds[1].astype(np.float64))  # a single token has nothing to change


def test_scaling_multiplies_the_covariance(clouds):
    for before, after in zip(covariances(clouds), covariances(scale_deviations(clouds, 3.0)), strict=True):
        np.testing.assert_allclose(after, 9 * before, atol=1e-12)


def test_rotation_keeps_the_spectrum_and_loses_the_directions(clouds):
    turned = covariances(rotate_deviations(clouds, seed=1))
    for k, (before, after) in enumerate(zip(covariances(clouds), turned, strict=True)):
        np.testing.assert_allclose(np.linalg.eigvalsh(after), np.linalg.eigvalsh(before), atol=1e-12)
        if k != 1:
            assert np.linalg.norm(after - before) > 0.1 * np.linalg.norm(before)


def test_rotations_are_uniform():
    """The first direction of many rotations has no preferred axis or sign: E w = 0 and E wwᵀ = I/d."""
    line = TokenClouds.from_arrays([[[1.0, 1, 0], [1, -1, 0]]] * 4000, texts=[f"text {k}" for k in range(4000)])
    directions = np.stack([cloud[0] - cloud.mean(axis=0) for cloud in rotate_deviations(line)])
    np.testing.assert_allclose(directions.mean(axis=0), 0, atol=0.04)
    np.testing.assert_allclose(directions.T @ directions / len(directions), np.eye(3) / 3, atol=0.03)


def test_a_common_rotation_changes_no_pair(clouds):
    before, after = socm(clouds).pairs, socm(rotate_deviations(clouds, together=True)).pairs
    np.testing.assert_allclose(after.socm, before.socm, atol=1e-6)
    apart = socm(rotate_deviations(clouds)).pairs
    assert np.abs(apart.socm - before.socm).max() > 1e-2


def test_traces_are_matched(clouds):
    old = text_moments(clouds).traces
    new = text_moments(match_traces(clouds)).traces
    several = np.arange(len(old)) != 1
    np.testing.assert_allclose(new[several], old[several].mean())
    assert new[1] == 0
    np.testing.assert_allclose(text_moments(match_traces(clouds, target=0.5)).traces[several], 0.5)


def test_noise_has_equal_trace_and_no_direction():
    cloud = np.random.default_rng(2).normal(size=(4000, 3)) * [3.0, 1, 0.1] + 5
    clouds = TokenClouds.from_arrays([cloud, cloud[:7]])
    noise = isotropic_noise(clouds)
    np.testing.assert_allclose(text_moments(noise).traces, text_moments(clouds).traces)
    (_, covariance), trace = moments(noise[0]), text_moments(clouds).traces[0]
    np.testing.assert_allclose(covariance, np.eye(3) * trace / 3, atol=0.05 * trace)


def test_only_the_first_directions_stay(clouds):
    for before, after in zip(covariances(clouds), covariances(top_directions(clouds, 2)), strict=True):
        kept = np.sort(np.linalg.eigvalsh(after))[::-1]
        np.testing.assert_allclose(kept[:2], np.sort(np.linalg.eigvalsh(before))[::-1][:2], atol=1e-12)
        np.testing.assert_allclose(kept[2:], 0, atol=1e-12)
    same = top_directions(clouds, 99)
    np.testing.assert_allclose(same[4], clouds[4], atol=1e-6)


def test_a_text_is_changed_alike_with_the_same_seed_and_otherwise_with_another(clouds):
    first, again, other = (rotate_deviations(clouds, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.allclose(first[0], other[0])


def test_what_cannot_be_done_is_refused(clouds):
    for wrong in ("scale", "scale=x", "top=0.5", "rotate=3", "blur"):
        with pytest.raises(InputError, match=r"allowed: scale=FACTOR, rotate"):
            parse_intervention(wrong)
    with pytest.raises(InputError, match="factor: received -1"):
        scale_deviations(clouds, -1)
    with pytest.raises(InputError, match="directions: received 0"):
        parse_intervention("top=0")(clouds)
    with pytest.raises(InputError, match="0 texts with"):
        match_traces(TokenClouds.from_arrays([[[1.0, 0]], [[0, 1.0]]]))
