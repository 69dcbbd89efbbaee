"""Other distances, higher moments, weighted poolings and controls: by hand, and on clouds that are built for it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import logm, sqrtm

from poolscope import TokenClouds, as_encoder, read_texts, socm, socm_pair
from poolscope.lab.interventions import scale_each
from poolscope.lab.papers import beyond
from poolscope.lab.papers.cell import Material
from poolscope.numbers.moments import mean, text_moments
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(8)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(6, 20, size=14)]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    encoder = as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"))
    return Material(encoder, read_texts(TEXTS), {}, cache=False)


def test_distances_by_hand():
    F, G = RANDOM.normal(size=(5, 4)), RANDOM.normal(size=(6, 4))
    found = beyond.covariance_distances(F, G)
    first, second = F.T @ F, G.T @ G
    root = sqrtm(first).real
    assert found["bures"] == pytest.approx(np.trace(first + second - 2 * sqrtm(root @ second @ root).real))
    assert found["frobenius"] == pytest.approx(np.linalg.norm(first - second))
    ridge = 0.01 * np.trace(first + second) / 8 * np.eye(4)
    assert found["log-Euclidean"] == pytest.approx(np.linalg.norm(logm(first + ridge) - logm(second + ridge)))
    kl = [
        0.5 * (np.trace(np.linalg.inv(b) @ a) - 4 + np.log(np.linalg.det(b) / np.linalg.det(a)))
        for a, b in ((first + ridge, second + ridge), (second + ridge, first + ridge))
    ]
    assert found["Jeffreys"] == pytest.approx(sum(kl))
    assert all(value == pytest.approx(0, abs=1e-6) for value in beyond.covariance_distances(F, F).values())


def test_orders_beside_bures(material):
    rows = {row["distance"]: row for row in beyond.other_distances(material).rows}
    assert rows["bures"]["order_as_bures"] == 1
    assert set(rows) == {"bures", "frobenius", "log-Euclidean", "Jeffreys"}
    assert all(-1 <= row["collapse_order_as_bures"] <= 1 for row in rows.values())


def test_moments_tell_a_skewed_text_from_a_gaussian_one():
    skewed = RANDOM.exponential(size=(4000, 1)) @ np.array([[1.0, 0, 0, 0]]) + 0.01 * RANDOM.normal(size=(4000, 4))
    factor = (skewed - skewed.mean(axis=0)) / np.sqrt(4000)
    third, _ = beyond.axis_moments(factor)
    assert third == pytest.approx(2 / 3, abs=0.15)  # an exponential has skewness 2, the two other axes none
    normal = RANDOM.normal(size=(4000, 4))
    third, fourth = beyond.axis_moments((normal - normal.mean(axis=0)) / np.sqrt(4000))
    assert third < 0.1
    assert abs(fourth) < 0.25


def test_moments_of_texts(material):
    rows = beyond.higher_moments(material).rows
    assert [row["moment"] for row in rows] == ["third, |skewness|", "fourth, excess kurtosis"]
    assert all(row["same_covariance"].value is not None for row in rows)


def test_weighted_poolings(material):
    rows = {row["pooling"]: row for row in beyond.weighted_poolings(material).rows}
    clouds = material.encoder.encode(TEXTS)[-1]
    assert rows["mean"]["socm"].value == pytest.approx(socm(clouds).mean, abs=1e-5)  # 91 pairs: all of them
    weights = [1 / np.arange(1, len(clouds[k]) + 1) for k in range(len(clouds))]
    by_hand = [
        socm_pair(clouds[i], clouds[j], x_weights=weights[i], y_weights=weights[j]).socm
        for i in range(len(TEXTS))
        for j in range(i + 1, len(TEXTS))
    ]
    assert rows["place 1/i"]["socm"].value == pytest.approx(np.mean(by_hand))
    assert "SIF" in rows


def test_controls_keep_the_means(material):
    outcome = beyond.controls(material)
    rows = {row["control"]: row for row in outcome.rows if "control" in row}
    clouds = material.encoder.encode(TEXTS)[-1]
    assert rows["as it is"]["socm"].value == pytest.approx(socm(clouds).mean)
    assert rows["matched"]["socm"].value != pytest.approx(socm(clouds).mean)
    changed = scale_each(clouds, np.linspace(0.5, 2, len(clouds)))
    for k in range(len(clouds)):
        np.testing.assert_allclose(mean(changed[k]), mean(clouds[k]), atol=1e-6)
    np.testing.assert_allclose(
        text_moments(changed).traces, text_moments(clouds).traces * np.linspace(0.5, 2, len(clouds)) ** 2, rtol=1e-4
    )
    # Gaussian lists of the same two moments move otherwise than real ones.
    assert rows["other higher moments"]["transport"].value != rows["other higher moments"]["transport_after"].value


def test_controls_go_on_to_quality():
    values = np.linspace(0.1, 0.8, 8)
    names = ("socm_as_it_is", "socm_matched", "socm_random", "socm_directions_at_random", "socm_words_shuffled")
    rows = [{"model": f"m{k}", **dict.fromkeys(names, value)} for k, value in enumerate(values)]
    rows += [{"scored": f"m{k}", "aliases": "", "score": -value} for k, value in enumerate(values)]
    found = {row["predictor"]: row for row in beyond.controls_and_quality(rows, {}) if "predictor" in row}
    assert found["socm_matched"]["rho"] == -1
    assert found["socm_as_it_is − socm_matched"]["rho"] == 0


def test_factors_are_checked():
    clouds = TokenClouds.from_arrays([[[1.0, 0.0]]])
    with pytest.raises(Exception, match="factors"):
        scale_each(clouds, [1, 2])
