"""The two audits: what is said about the pooling of a model, and about truncation."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.encoders import ModelCard, TruncationReport, as_encoder, encode, pooling_report, truncation_report
from poolscope.encoders.reports import cloud_notes
from poolscope.texts import read_texts
from tiny_models import declare, save_model, tiny_model, tiny_tokenizer


class Declares:
    """An encoder that only declares."""

    def __init__(self, **fields) -> None:
        self.card = ModelCard("m", "k", 4, **fields)

    def encode(self, texts, *, layers=None, progress=None):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("pooling", "faithful", "sentence"),
    [
        (("mean",), True, "by the mean"),
        ((), None, "no pooling"),
        (("cls",), False, "CLS vectors"),
        (("lasttoken",), False, "last token"),
        (("weightedmean",), False, "later tokens"),
        (("max",), False, "largest value"),
        (("mean_sqrt_len_tokens",), False, "the model's own"),
        (("cls", "mean"), False, r"(cls + mean)"),
        (("median",), False, "'median', which"),
    ],
)
def test_each_pooling_is_told_in_plain_words(pooling, faithful, sentence):
    report = pooling_report(Declares(pooling=pooling))
    assert report.faithful is faithful
    assert sentence in report.notes()[0]
    assert json.loads(json.dumps(report.to_dict()))["notes"] == list(report.notes())
    assert report.to_dict()["declared"] == list(pooling)


def test_modules_after_the_pooling():
    assert any(
        "applies Dense, LayerNorm" in note for note in pooling_report(Declares(after=("Dense", "LayerNorm"))).notes()
    )
    assert not any("applies" in note for note in pooling_report(Declares(after=("Normalize",))).notes())


def test_a_runtime_is_told_how_the_model_pools_and_nothing_of_clouds():
    report = pooling_report(Declares(pooling=("cls",), after=("Dense", "Normalize")))
    pooled, after = report.notes(of_reference=True)[:2]
    assert "(CLS)" in pooled
    assert " Dense." in after


def test_prompts_and_lengths_as_used(tmp_path):
    prompts = {"query": "query : ", "passage": ""}
    folder = declare(save_model(tmp_path), pooling={"pooling_mode": "mean", "include_prompt": False}, prompts=prompts)
    plain = pooling_report(as_encoder(folder))
    assert "prompts (query) and none" in plain.notes()[1]
    assert re.match("Texts .* 24 tokens, ", plain.notes()[-1])
    assert re.match("The reference .* 24 tokens, ", plain.notes(of_reference=True)[-1])
    query = pooling_report(as_encoder(folder, role="query", max_length=9))
    assert (query.prompt, query.max_length, query.declared_max_length) == ("query : ", 9, 24)
    assert "its tokens" in query.notes()[1]
    assert re.match(r"Texts .* 9 tokens; .* 24\.", query.notes()[-1])
    document = pooling_report(as_encoder(folder, role="document"))
    assert "role 'document'" in document.notes()[1]
    assert "no maximal length" in pooling_report(Declares()).notes()[-1]


def test_truncation_is_counted_and_what_became_identical_is_found():
    texts = [
        "the cat sat on the mat",
        "the cat sat under a tree",
        "a dog",
        "The Cat  sat on the mat",
        "the cat sat",
        "a dog ran on",
    ]
    clouds = encode((tiny_model(), tiny_tokenizer(lower=True)), texts, max_length=5)
    report = truncation_report(clouds)
    assert (report.texts, report.cut_texts, report.tokens_lost) == (6, 4, 3 + 3 + 3 + 1)
    assert report.tokens_kept == 5 * 5 + 4
    assert report.share_lost == pytest.approx(10 / 39)
    assert report.identical == ((0, 1, 3, 4),)
    assert report.identical_ids == (("0", "1", "3", "4"),)
    first, second, third = report.notes()
    assert re.match(r"Truncated: 4 of 6 texts \(66\.7%\)\. .* 10 tokens \(25\.6%", first)
    assert second.startswith("4 different texts")
    assert "--max-length (max_length)" in second
    assert third.endswith(": 0 = 1 = 3 = 4.")
    content = json.loads(json.dumps(report.to_dict()))
    assert (content["identical"], content["identical_ids"]) == ([[0, 1, 3, 4]], [["0", "1", "3", "4"]])


def test_of_many_identical_texts_the_first_are_named():
    ids = [(*(f"{group}{k}" for k in range(6)),) for group in "abcde"]
    report = TruncationReport(30, 30, 60, 60, identical=((0, 1),) * 5, identical_ids=(("x" * 99, "y"), *ids[1:]))
    first, second, third = report.notes()[-1].removeprefix("Identical after truncation, by id: ").split("; ")[:3]
    assert first == "x" * 39 + "… = y"
    assert second == "b0 = b1 = b2 = b3 = b4 = … (6 texts)"
    assert third.startswith("c0 = ")
    assert report.notes()[-1].endswith("; and 2 more groups.")


def test_texts_that_were_the_same_before_are_not_blamed_on_truncation():
    texts = ["the cat sat on the mat", "The cat sat  on the mat", "a dog", "A dog"]
    clouds = encode((tiny_model(), tiny_tokenizer(lower=True)), texts, max_length=5)
    assert truncation_report(clouds).identical == ()


def test_texts_that_the_tokenizer_confuses_are_not_blamed_on_truncation():
    texts = ["unheard cat sat", "unseen cat sat", "a dog ran on"]  # both first words are unknown
    clouds = encode((tiny_model(), tiny_tokenizer()), texts, max_length=5)
    assert clouds.token_ids(0).tolist() == clouds.token_ids(1).tolist()
    assert clouds.truncated.tolist() == [0, 0, 1]
    assert truncation_report(clouds).identical == ()


def test_nothing_cut():
    clouds = TokenClouds.from_arrays([np.eye(2), np.eye(2)], texts=["a", "b"])
    report = truncation_report(clouds)
    (note,) = report.notes()
    assert note.startswith("No text")
    assert (report.share_lost, report.identical) == (0, ())


def test_clouds_without_token_ids_or_texts():
    without_ids = TokenClouds.from_arrays([np.eye(2), np.eye(2)], truncated=[3, 3])
    assert truncation_report(without_ids).identical == ()
    assert truncation_report(without_ids).tokens_lost == 6
    ids = [np.array([1, 2]), np.array([1, 2])]
    without_texts = TokenClouds.from_arrays([np.eye(2), np.eye(2)], truncated=[3, 4], token_ids=ids)
    assert truncation_report(without_texts).identical == ((0, 1),)


# -- what encode says, and what clouds know of themselves -------------------------------------------------------------


@pytest.mark.parametrize(("mode", "sentence"), [("cls", "first token (CLS)"), ("lasttoken", "last token")])
def test_encode_warns_once_of_a_model_that_does_not_pool_by_the_mean(mode, sentence, tmp_path, caplog):
    folder = declare(save_model(tmp_path / "model"), pooling={"pooling_mode": mode})
    with caplog.at_level(logging.WARNING, "poolscope"):
        encode(folder, ["the cat", "a dog"], layers=[0, -1])
    (record,) = caplog.records
    assert str(folder) in record.getMessage()
    assert sentence in record.getMessage()


def test_a_folder_that_declares_nothing_is_named_and_a_loaded_pair_is_not(tmp_path, caplog):
    folder = save_model(tmp_path / "model")
    with caplog.at_level(logging.WARNING, "poolscope"):
        encode(declare(save_model(tmp_path / "mean")), ["the cat"])
        encode((tiny_model(), tiny_tokenizer()), ["the cat"])
        assert not caplog.records
        encode(folder, ["the cat"])
    (record,) = caplog.records
    assert str(folder) in record.getMessage()
    assert "no pooling" in record.getMessage()


def test_ready_clouds_tell_what_was_told_when_they_were_encoded(tmp_path):
    folder = declare(save_model(tmp_path / "model"), pooling={"pooling_mode": "cls"}, prompts={"query": "query : "})
    texts = read_texts(["the cat sat on the mat", "", "a dog"])
    encoder = as_encoder(folder, role="query", max_length=5)
    clouds = encode(folder, texts, role="query", max_length=5)
    clouds.save(tmp_path / "clouds.arrow")
    opened = TokenClouds.open(tmp_path / "clouds.arrow")
    assert list(opened.ids) == ["0", "2"]
    assert opened.provenance["texts"] == texts.origin()
    expected = [*texts.report.notes(), *pooling_report(encoder).notes(), *truncation_report(clouds).notes()]
    assert len(expected) > 4
    assert cloud_notes(opened) == expected


@pytest.mark.parametrize("origin", [{}, {"model": {"name": "m"}}, {"model": "m", "texts": 3, "unknown": None}], ids=str)
def test_clouds_of_unknown_origin_say_what_they_can(origin):
    clouds = TokenClouds.from_arrays([np.eye(2)], provenance=origin)
    (note,) = cloud_notes(clouds)
    assert note.startswith("No text")
