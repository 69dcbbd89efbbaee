"""The whole report and its figures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from length_data import word_model, word_texts
from poolscope import as_encoder, read_pairs
from poolscope.errors import InputError
from poolscope.lab.length.report import LengthReport, length_report
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result
from tiny_models import declare, save_model

TEXTS = [*word_texts(), *word_texts(200, seed=2, most=20)]


@pytest.fixture(scope="module")
def pairs():
    texts = [text for text in word_texts(60, seed=1, most=60) if len(text.split()) >= 20]
    return read_pairs({"query": [" ".join(text.split()[:6]) for text in texts], "document": texts})


@pytest.fixture(scope="module")
def report(pairs):
    labels = ["a" if len(text) % 2 else "b" for text in TEXTS]
    return length_report(word_model(), TEXTS, labels=labels, pairs=pairs, bins=3)


def test_everything_is_measured(report):
    left_out = [note for note in report.notes if "not measured" in note]
    assert len(left_out) == 1  # the texts are words without sentences
    assert " 0 have two" in left_out[0]
    assert [probe.name for probe in report.probes] == ["truncation", "repetition", "joins"]
    assert report.profile.texts == len(report.profile.assignment) == len(TEXTS)
    assert report.texts_truncated == sum(len(text.split()) > 62 for text in TEXTS)
    parts = (report.nulls, *report.probes, report.position)
    assert report.encoded_tokens == sum(part.encoded_tokens for part in parts)
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    for name in ("profile", "mechanism", "nulls", "retrieval", "position", "labels", "probes"):
        assert content[name]
    assert content["model"]["kind"] == "transformers"
    assert content["probe_tokens"] == report.encoded_tokens


def test_every_part_has_a_table_a_figure_and_a_file(report, tmp_path):
    parts = (report.profile, report.mechanism, report.nulls, *report.probes, report.retrieval, report.position)
    for part in (report, *parts, report.labels):
        assert part.to_table().num_rows == len(part.rows()) > 1
        assert len(part.figure().data)
        part.save(tmp_path / "part.json")
        assert Result.load(tmp_path / "part.json").rows() == part.rows()
        part.save(tmp_path / "part.parquet")


def test_parts_are_left_out_when_not_asked_for():
    found = length_report(word_model(), TEXTS, probes=False, max_length=20)
    assert (found.nulls, found.probes, found.retrieval, found.position, found.labels) == (None, (), None, None, None)
    assert found.encoded_tokens == 0
    assert found.texts_truncated == sum(len(text.split()) > 18 for text in TEXTS)


def test_what_cannot_be_measured_is_said(pairs):
    few = length_report(word_model(), TEXTS[:15], pairs=pairs.sample(4), min_texts=2)
    assert (few.nulls, few.retrieval, few.position) == (None, None, None)
    lacking = [note for note in few.notes if "not measured" in note]
    parts = ("null models", "cut texts", "joined texts", "subject", "Retrieval", "position")
    assert all(part in note for part, note in zip(parts, lacking, strict=True))
    plain = length_report(lambda texts: [np.eye(4)[: 1 + len(text) % 4] for text in texts], TEXTS)
    assert plain.probes == ()
    assert len(plain.notes) == 2
    assert "no tokens" in plain.notes[0]
    assert "two sentences" in plain.notes[1]
    assert "attention" in plain.mechanism.notes[0]


def test_the_change_of_subject_is_part_of_the_report(tmp_path):
    random = np.random.default_rng(0)
    texts = [
        " ".join(f"W{random.integers(40)} w{k % 40} w{random.integers(40)} end." for _ in range(4 + k % 3))
        for k in range(40)
    ]
    report = length_report(
        lambda batch: [np.random.default_rng(len(text)).normal(size=(len(text.split()), 4)) for text in batch], texts
    )
    assert report.shift.texts == 40
    assert report.encoded_tokens == report.shift.encoded_tokens > sum(len(text.split()) for text in texts)
    assert len(report.shift.figure().data) == 2
    report.save(tmp_path / "report.json")
    assert Result.load(tmp_path / "report.json").shift.rows() == report.shift.rows()


def test_queries_get_the_prompt_that_the_model_declares(tmp_path, pairs):
    from length_data import word_tokenizer

    folder = save_model(
        tmp_path, vocab_size=47, pad_token_id=0, max_position_embeddings=128, tokenizer=word_tokenizer()
    )
    declare(folder, prompts={"query": "w7 w8 "}, bert={"max_seq_length": 64})
    asked = length_report(str(folder), TEXTS, pairs=pairs, probes=False)
    same = length_report(str(folder), TEXTS, pairs=pairs, probes=False, prompt="")
    assert asked.retrieval.shortest.rank != same.retrieval.shortest.rank
    assert asked.profile.slope == same.profile.slope


def test_a_limit_too_short_for_the_probes_is_said(pairs):
    found = length_report(word_model(), TEXTS, pairs=pairs, max_length=3)
    assert [probe.name for probe in found.probes if not np.isfinite(probe.slope.value)] == []
    lacking = [note for note in found.notes if "not measured" in note]
    for part in ("cut texts", "repeated words", "position"):
        (note,) = (note for note in lacking if part in note)
        assert "limit of 3" in note
        assert "too short" in note
    json.dumps(found.to_dict(), allow_nan=False)


# -- figures ------------------------------------------------------------------------------------------------------


def curves(figure):
    return [trace for trace in figure.data if trace.mode == "lines+markers"]


def test_the_profile_is_drawn_with_intervals_and_chance(report):
    figure = report.profile.figure()
    drawn = curves(figure)
    assert len(drawn) == 5
    rows = report.profile.bins
    assert list(drawn[0].x) == [row.label for row in rows]
    np.testing.assert_array_equal(drawn[0].y, [row.cosine.value for row in rows])
    np.testing.assert_allclose(drawn[0].y + drawn[0].error_y.array, [row.cosine.interval.high for row in rows])
    np.testing.assert_allclose(drawn[0].y - drawn[0].error_y.arrayminus, [row.cosine.interval.low for row in rows])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert len(bands) == 5
    assert bands[0].y[0] == rows[0].cosine.floor_high
    assert bands[0].y[-1] == rows[0].cosine.floor_low


def test_the_other_figures_show_their_results(report):
    mechanism = curves(report.mechanism.figure())
    assert [trace.name for trace in mechanism[:2]] == ["measured", "published bound"]
    assert list(mechanism[1].y) == [row.bound.value for row in report.mechanism.bins]
    nulls = report.nulls.figure()
    assert [list(trace.y) for trace in curves(nulls)[:2]] == [
        [row.full.value for row in report.nulls.averaging],
        [row.averaged.value for row in report.nulls.averaging],
    ]
    assert "chunks in place" in nulls.layout.annotations[0].text
    assert "limit, 64" in nulls.layout.xaxis.title.text
    assert [shape.x0 for shape in nulls.layout.shapes] == [64, 64]
    assert sum(len(curves(probe.figure())) for probe in report.probes) == 4
    retrieval = report.retrieval.figure()
    assert list(curves(retrieval)[-1].y) == [row.ratio.value for row in report.retrieval.bins]
    position = curves(report.position.figure())
    assert list(position[1].y) == [row.rank.value for row in report.position.places]
    labels = curves(report.labels.figure())
    assert list(labels[0].y) == [row.accuracy.value for row in report.labels.bins]


def test_the_sheet_holds_what_there_is(report):
    everything = report.figure()
    assert "grey: chance" in everything.layout.title.text
    assert len({trace.xaxis for trace in everything.data}) == 5 + 4 + 2 + 3 + 2 + 2 + 2
    alone = LengthReport(profile=report.profile).figure()
    assert len(curves(alone)) == 5
    blind = dataclasses.replace(
        report.mechanism,
        bins=tuple(
            dataclasses.replace(row, sigma_a=Estimate(None), frobenius=Estimate(None), words=Estimate(None))
            for row in report.mechanism.bins
        ),
    )
    assert len(curves(blind.figure())) == 1
    with pytest.raises(InputError, match="to draw"):
        dataclasses.replace(report.mechanism, bins=()).figure()


def test_an_encoder_may_be_passed_as_it_is():
    encoder = as_encoder(word_model())
    assert length_report(encoder, TEXTS, probes=False).profile.texts == len(TEXTS)
