"""The evaluator by hand: its numbers are those of the library, and the model is left as it was."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from poolscope import SocmFormula, encode, socm
from poolscope.errors import InputError
from poolscope.numbers.moments import concentration_ratio, within_text_cosine
from tiny_models import TEXTS, declare, save_model

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import SequentialEvaluator

from poolscope.connect.integrations.evaluator import SOCMEvaluator


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = declare(save_model(tmp_path_factory.mktemp("model")), prompts={"query": "query : "})
    return SentenceTransformer(str(folder), device="cpu")


def test_numbers_are_those_of_the_library(model):
    evaluator = SOCMEvaluator(TEXTS)
    found = evaluator(model)
    clouds = encode(model, TEXTS)
    expected = socm(clouds)
    assert found["socm"] == expected.mean
    bounds = expected.interval
    assert (found.get("socm_low"), found.get("socm_high")) == (
        (None, None) if bounds is None else (bounds.low, bounds.high)
    )
    assert (found["d_mu"], found["d_sigma"]) == (expected.mean_distance, expected.covariance_distance)
    assert found["concentration_ratio"] == pytest.approx(np.mean([concentration_ratio(cloud) for cloud in clouds]))
    assert found["within_text_cosine"] == pytest.approx(np.mean([within_text_cosine(cloud) for cloud in clouds]))
    assert evaluator.last.worst(1)[0].socm == expected.worst(1)[0].socm
    assert evaluator.greater_is_better is False


def test_what_is_no_sentence_transformer_is_evaluated_too(model):
    pair = (model[0].auto_model, model.tokenizer)
    assert SOCMEvaluator(TEXTS)(pair) == SOCMEvaluator(TEXTS)(model)


def test_dropout_is_off_and_training_goes_on(model):
    quiet = SOCMEvaluator(TEXTS)(model.eval())
    assert SOCMEvaluator(TEXTS)(model.train()) == quiet
    assert model.training
    assert all(module.training for module in model.modules())
    model.eval()


def test_name_pairs_formula_and_prompt(model):
    evaluator = SOCMEvaluator(
        TEXTS, name="dev", pairs=4, seed=3, formula=SocmFormula(scale="trace"), prompt_name="query"
    )
    found = evaluator(model)
    clouds = encode(model, TEXTS, prompt_name="query")
    assert found["dev_socm"] == socm(clouds, pairs=4, seed=3, scale="trace").mean
    assert evaluator.primary_metric == "dev_socm"
    assert evaluator.get_config_dict() == {
        "texts": 5, "pairs": 4, "scale": "trace", "a": 1.0, "b": 1.0, "eps": 0.0, "prompt_name": "query",
    }  # fmt: skip


def test_the_file_gets_a_line_a_call(model, tmp_path):
    evaluator = SOCMEvaluator(TEXTS)
    for step in (10, 20):
        numbers = evaluator(model, output_path=str(tmp_path / "eval"), epoch=0.5, steps=step)
    with (tmp_path / "eval" / "socm_evaluation_results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["steps"] for row in rows] == ["10", "20"]
    assert list(rows[0]) == ["epoch", "steps", *numbers]
    SOCMEvaluator(TEXTS, name="quiet", write_csv=False)(model, output_path=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_it_stands_in_a_sequence_of_evaluators(model):
    sequence = SequentialEvaluator([SOCMEvaluator(TEXTS[:2], name="few"), SOCMEvaluator(TEXTS, name="all")])
    found = sequence(model)
    assert found["sequential_score"] == found["all_socm"]
    assert "few_socm" in found
    assert "few_socm_low" not in found  # two texts have one pair: no interval


def test_texts_are_checked_at_once():
    with pytest.raises(InputError, match="one text"):
        SOCMEvaluator(["one"])
    with pytest.raises(InputError, match="one string"):
        SOCMEvaluator("one two")
