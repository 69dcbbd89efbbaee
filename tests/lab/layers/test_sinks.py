"""Sinks by hand: the first token's length, and the numbers without it."""

from __future__ import annotations

import numpy as np
import pytest

import zoo
from poolscope import layers
from poolscope.clouds import TokenClouds
from poolscope.lab.layers.measure import cloud_numbers, without_first
from poolscope.lab.layers.result import sink_states, sinks
from poolscope.numbers.moments import cloud_moments, concentration_ratio, within_text_cosine
from tiny_models import TEXTS


def test_the_first_token_beside_the_others():
    random = np.random.default_rng(0)
    texts = [random.normal(size=(n, 6)) + 1 for n in (5, 1, 2, 9)]
    rows, offsets = np.concatenate(texts), np.cumsum([0, 5, 1, 2, 9])
    found = cloud_numbers(rows, offsets)
    times, ratio = found.first_norm, found.others.ratio
    assert found.moments.spread == pytest.approx(cloud_moments(rows, offsets).spread)
    for k, cloud in enumerate(texts):
        assert found.cosine[k] == pytest.approx(within_text_cosine(cloud))
        if len(cloud) == 1:
            assert np.isnan(times[k])
            assert np.isnan(ratio[k])
            continue
        norms = np.linalg.norm(cloud, axis=1)
        assert times[k] == pytest.approx(norms[0] / np.median(norms[1:]))
        assert ratio[k] == pytest.approx(concentration_ratio(cloud[1:]))
        assert found.others_cosine[k] == pytest.approx(within_text_cosine(cloud[1:]))


def test_a_huge_first_token_does_not_blur_the_others():
    random = np.random.default_rng(1)
    others = random.normal(size=(6, 8)) + 1
    cloud = np.concatenate([np.full((1, 8), 1e9), others])
    found = cloud_numbers(cloud, np.array([0, 7]))
    assert found.others.ratio[0] == pytest.approx(concentration_ratio(others), rel=1e-5)
    same = np.concatenate([np.full((1, 8), 1e3), np.ones((6, 8))])
    assert cloud_numbers(same, np.array([0, 7])).others.spread[0] == pytest.approx(0, abs=1e-20)


def test_a_sink_is_one_in_most_texts():
    times = np.array([[1.0, 9.0, np.nan], [1.2, 8.0, np.nan], [7.0, 1.0, np.nan]])
    assert sink_states(times).tolist() == [False, True, False]


def test_layers_names_sinks_with_and_without_them():
    """A model whose first token is long: its embedding table is scaled for the token that stands first."""
    model, tokenizer = zoo.family("Llama")
    table = model.get_input_embeddings().weight.data
    first = tokenizer(TEXTS[0])["input_ids"][0]
    table[first] *= 400
    result = layers((model, tokenizer), TEXTS, socm_texts=5)
    (row, *_) = sinks(result)
    assert row.state == "0"
    assert row.times > 50
    assert row.texts == 1
    assert row.numbers["SOCM"][1] == result.socm[0].without_first[0]
    assert abs(np.subtract(*row.numbers["SOCM"])) > 0.1
    plain = layers(zoo.family("Llama"), TEXTS, socm_texts=5)
    # Nothing but the first token differs, so that without it both models are the same in this state.
    whole, rest = row.numbers["S/‖μ‖²"]
    assert rest == pytest.approx(plain.means("concentration_without_first").mean[0])
    assert whole != pytest.approx(plain.means("concentration_ratio").mean[0], rel=0.1)
    assert row.numbers["cosine"][1] == pytest.approx(plain.means("cosine_without_first").mean[0])
    above, above_without = row.numbers["texts with tr Σ > 2"]
    assert above > above_without
    assert not {"r", "C"} & set(row.numbers)  # no layer gave the embeddings
    later = [sink for sink in sinks(result) if sink.state == "1"]
    assert all(sink.numbers["r"][1] == pytest.approx(result.means("r_without_first").mean[0]) for sink in later)
    assert list(row.numbers) == ["S/‖μ‖²", "cosine", "SOCM", "d_μ", "d_Σ", "texts with tr Σ > 2"]
    assert "0" not in [sink.state for sink in sinks(plain)]
    assert plain.socm[0].without_first is None


def test_texts_of_one_token_have_nothing_left():
    clouds = TokenClouds.from_arrays([np.ones((1, 2)), np.ones((3, 2)), np.ones((2, 2))])
    others, groups = without_first(clouds, np.array([0, 1, 1]))
    assert (others.lengths.tolist(), groups.tolist()) == ([2, 1], [1, 1])
    assert without_first(clouds, np.array([0, 0, 1])) is None
    assert without_first(clouds[:2], np.zeros(2, dtype=int)) is None
