"""Clouds without spread, the premise of theorem 1 and the trace bound: what is counted, left out and said."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from scipy import stats
from tokenizers import processors

import zoo
from poolscope import layers
from poolscope.errors import ModelError
from poolscope.lab.commands.layers import notes
from poolscope.lab.layers.measure import LayerSums

TEXTS = ["the cat sat on the mat", "dog dog dog dog", "cat", "the red dog ran fast", "a dog"]


@pytest.fixture(scope="module")
def alike():
    """A model without special tokens and absolute positions, to which one word four times is one token."""
    model, tokenizer = zoo.family("Qwen2")
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    return layers((model, tokenizer), TEXTS, socm_texts=5)


def test_tokens_that_are_all_alike_poison_no_mean(alike):
    assert alike.constant.tolist() == [False, True, False, False, False]
    for name in ("C", "high_frequency", "high_frequency_branch", "slack"):
        assert np.isnan(alike[name][1]).all()
        means = alike.means(name)
        others = alike[name][[0, 3, 4]]
        np.testing.assert_allclose(means.mean, others.mean(axis=0))
        assert means.texts.tolist() == [3] * alike.layers
        assert np.isnan(means.low).all()
        assert means.no_interval == "no interval: 3 texts, 10 are needed"
    assert [check.texts for check in alike.theorem_1()] == [3] * alike.layers
    assert alike.to_dict()["constant_texts"] == 1
    json.dumps(alike.to_dict(), allow_nan=False)
    assert any(note.startswith("1 texts ") for note in notes(alike))


def test_a_mean_and_its_interval_are_of_the_same_texts(alike):
    values = np.array([*np.arange(1.0, 12.0), np.inf, np.nan])[:, None]
    ids = tuple(f"t{k}" for k in range(13))
    found = dataclasses.replace(alike, ids=ids, values={**alike.values, "r": values}).means("r")
    assert (found.mean[0], found.texts[0], found.unit) == (6.0, 11, "texts")
    expected = stats.ttest_1samp(np.arange(1.0, 12.0), 0).confidence_interval()  # no skewness to remove
    assert (found.low[0], found.high[0]) == pytest.approx((expected.low, expected.high))


def test_means_over_chunks_are_counted_by_documents(alike):
    values = np.repeat(np.random.default_rng(4).normal(size=40), 3)[:, None]  # three equal chunks a document
    some = dataclasses.replace(alike, values={**alike.values, "r": values})
    chunks = dataclasses.replace(some, ids=tuple(f"d{k // 3}#{k % 3}" for k in range(120))).means("r")
    texts = dataclasses.replace(some, ids=tuple(map(str, range(120)))).means("r")
    assert (chunks.unit, texts.unit) == ("documents", "texts")
    assert (chunks.high - chunks.low)[0] == pytest.approx(np.sqrt(3) * (texts.high - texts.low)[0], rel=0.05)
    few = dataclasses.replace(some, ids=tuple(f"d{k // 6}#{k % 6}" for k in range(120))).means("r")
    assert few.no_interval == "no interval: 20 documents, 30 are needed"


def test_spreads_of_the_size_of_rounding_have_no_ratio():
    def sums(spread):
        every = dict.fromkeys("HUBZYX", np.array([[1.0]]))
        return LayerSums(
            spread={**every, "X": np.array([[spread]])},
            mean_square=every,
            contraction=np.array([[[0.5]]]),
            sigma=np.array([[[0.5]]]),
            norms=np.array([[1.0]]),
            value_norms=np.array([[1.0]]),
            linear=np.array([True]),
            precision=2.0**-23,
        ).quantities()

    assert np.isnan(sums(1e-13)["C"]).all()
    assert sums(1e-10)["C"][0, 0] == pytest.approx(1e-10)
    assert sums(1e-10)["high_frequency"][0, 0] == pytest.approx(np.log(1e-10) / 2)


def test_theorem_1_counts_its_premise(alike):
    contraction = alike["lambda"].copy()
    contraction[:] = 0.5
    contraction[0, 0, 1] = 1.0  # the premise is strict
    slack = alike["slack"].copy()
    slack[3, 0] = 0.5
    found = dataclasses.replace(alike, values={**alike.values, "lambda": contraction, "slack": slack})
    first, second = found.theorem_1()[:2]
    assert (first.texts, first.premise, first.holds, first.premise_holds) == (3, 2, 2, 1)
    assert (second.texts, second.premise, second.premise_holds) == (3, 3, second.holds)


def test_the_share_of_texts_beyond_the_trace_bound(alike):
    ratio = alike["concentration_ratio"]  # the trace of a cloud at unit mean
    for number, state in enumerate(alike.socm):
        assert state.above_trace == pytest.approx((ratio[:, number] > 2).mean())
        assert 0 <= state.covariance_distance_over_trace <= 1
    assert alike.to_dict()["socm"][0]["above_trace"] == alike.socm[0].above_trace
    model, tokenizer = zoo.family("BERT")
    whole = layers((model, tokenizer), TEXTS[:2])
    covariance_distance = whole.socm[0].covariance_distance  # of a single pair
    traces = whole["concentration_ratio"][:, 0]
    assert whole.socm[0].covariance_distance_over_trace == pytest.approx(4 * covariance_distance / traces.sum())


# -- models in a wrapping -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "headed"), [("BERT", "BertForMaskedLM"), ("Llama", "LlamaForCausalLM")])
def test_the_head_of_a_model_is_left_aside(family, headed):
    model, tokenizer = zoo.family(family)
    whole = getattr(transformers, headed)(model.config).eval()
    found = layers((whole, tokenizer), TEXTS, socm_texts=0)
    bare = layers((whole.base_model, tokenizer), TEXTS, socm_texts=0)
    np.testing.assert_array_equal(found["r"], bare["r"])


def test_a_compiled_model_is_measured_as_it_was_before():
    model, tokenizer = zoo.family("BERT")
    expected = layers((model, tokenizer), TEXTS, socm_texts=0)
    found = layers((torch.compile(model, backend="eager"), tokenizer), TEXTS, socm_texts=0)
    np.testing.assert_array_equal(found["r"], expected["r"])
    model.compile(backend="eager")
    with pytest.raises(ModelError, match=r"BertModel.* compiled"):
        layers((model, tokenizer), TEXTS, socm_texts=0)
