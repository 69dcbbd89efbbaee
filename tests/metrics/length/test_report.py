"""The whole report, its verdict in the light of the null models, and its figures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from length_data import with_effect, word_model, word_texts
from poolscope import as_encoder, charts, length_profile, read_pairs
from poolscope.errors import InputError
from poolscope.metrics.length.nulls import AveragingRow, LengthNulls
from poolscope.metrics.length.report import LengthReport, judge, length_report
from poolscope.numbers.intervals import Estimate, Interval
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
    assert len(report.notes) == 1
    assert "declares no pooling" in report.notes[0]
    assert [probe.name for probe in report.probes] == ["truncation", "repetition", "joins"]
    assert report.profile.texts == len(report.profile.assignment) == len(TEXTS)
    assert report.truncated == sum(len(text.split()) > 62 for text in TEXTS)
    parts = (report.nulls, *report.probes, report.position)
    assert report.encoded_tokens == sum(part.encoded_tokens for part in parts)
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    for name in ("profile", "mechanism", "nulls", "retrieval", "position", "labels", "probes", "verdict"):
        assert content[name]
    assert content["model"]["kind"] == "transformers"


def test_parts_are_left_out_when_not_asked_for():
    found = length_report(word_model(), TEXTS, probes=False, max_length=20)
    assert (found.nulls, found.probes, found.retrieval, found.position, found.labels) == (None, (), None, None, None)
    assert found.encoded_tokens == 0
    assert found.truncated == sum(len(text.split()) > 18 for text in TEXTS)


def test_what_cannot_be_measured_is_said(pairs):
    few = length_report(word_model(), TEXTS[:15], pairs=pairs.sample(4), min_texts=2)
    assert (few.nulls, few.retrieval, few.position) == (None, None, None)
    assert [note.partition(" not measured")[0] for note in few.notes[1:]] == [
        "The null models were",
        "The cut texts were",
        "The joined texts were",
        "Retrieval by length was",
        "The position of an answer was",
    ]
    plain = length_report(lambda texts: [np.eye(4)[: 1 + len(text) % 4] for text in texts], TEXTS)
    assert plain.probes == ()
    assert len(plain.notes) == 1
    assert "which takes no tokens" in plain.notes[0]
    assert "attention was not measured" in plain.mechanism.notes[0]


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
    assert [probe.name for probe in found.probes if not np.isfinite(probe.slope)] == []
    notes = {note.partition(" not measured")[0]: note for note in found.notes}
    for part in ("The cut texts were", "The repeated words were", "The position of an answer was"):
        assert "limit of 3 tokens" in notes[part]
        assert "too short" in notes[part]
    json.dumps(found.to_dict(), allow_nan=False)


# -- the verdict --------------------------------------------------------------------------------------------------


def nulls_with(full, averaged, low, high, other=None):
    """The same in chunks of both lengths, unless `other` gives the interval in the other chunks."""

    def row(chunks, low, high):
        excess = Estimate(full - averaged, Interval(low, high, 0.95, "", ""))
        return AveragingRow(256, chunks, Estimate(full), Estimate(averaged), None, excess, False)

    start = AveragingRow(64, 1, Estimate(0.1), Estimate(0.1), None, Estimate(0.0), False)
    return LengthNulls("model", 30, 64, 256, (start, row(4, low, high)), None, 0, row(2, *(other or (low, high))))


def test_null_models_take_off_what_they_explain():
    profile = length_profile(*with_effect(0, slope=0.06))
    assert profile.verdict.level == "repair"
    explained = judge(profile, nulls_with(0.3, 0.32, -0.04, 0.01))
    assert explained.level == "watch"
    assert "Plain averaging explains it" in explained.sentence
    assert "are about as alike as whole texts" in explained.sentence
    assert (explained.value, explained.interval) == (profile.slope, profile.slope_interval)
    assert "are more alike than whole texts" in judge(profile, nulls_with(0.3, 0.42, -0.16, -0.09)).sentence
    unsure = judge(profile, nulls_with(0.3, 0.28, -0.08, 0.12))  # the rise is 0.2: up to 60 % may be the model's
    assert unsure.level == "repair"
    assert "cannot be told from plain averaging on 30 documents" in unsure.sentence
    assert "explains" not in unsure.sentence
    more = judge(profile, nulls_with(0.5, 0.2, 0.25, 0.35))
    assert more.level == "repair"
    assert "0.300 more than plain averaging gives, which explains 25% of it" in more.sentence
    assert judge(profile, None).sentence == profile.verdict.sentence
    calm = length_profile(*with_effect(0, slope=0.06), watch=100, repair=100)
    assert judge(calm, nulls_with(0.5, 0.2, 0.25, 0.35)).level == "ok"


def test_averaging_explains_a_rise_only_in_chunks_of_both_lengths():
    profile = length_profile(*with_effect(0, slope=0.06))
    torn = judge(profile, nulls_with(0.3, 0.33, -0.05, -0.02, other=(0.01, 0.06)))
    assert torn.level == "repair"
    assert "hangs on the length of the chunks" in torn.sentence
    assert "[-0.0500, -0.0200] in chunks of 64 and" in torn.sentence
    assert "[0.0100, 0.0600] in chunks of 128, at 256 tokens" in torn.sentence
    unsure = judge(profile, nulls_with(0.3, 0.33, -0.05, -0.02, other=(-0.04, 0.06)))
    assert unsure.level == "repair"
    assert "cannot be told from plain averaging" in unsure.sentence
    single = dataclasses.replace(nulls_with(0.3, 0.33, -0.05, -0.02), other=None)
    assert judge(profile, single).level == "repair"
    assert "are more alike than whole texts" in judge(profile, single).sentence
    assert "No chunk of another length fits" in judge(profile, single).sentence
    assert "cannot be told" not in judge(profile, single).sentence
    vague = dataclasses.replace(nulls_with(0.3, 0.31, -0.05, 0.02), other=None)
    assert "cannot be told from plain averaging" in judge(profile, vague).sentence
    assert any("In chunks of 128 tokens instead of 64" in line for line in torn.evidence)


def test_a_rise_that_is_none_has_no_share():
    assert nulls_with(0.1, 0.2, -0.2, 0.0).explained is None
    assert nulls_with(0.3, 0.2, 0.0, 0.2).explained == pytest.approx(0.5)
    assert LengthReport(profile=length_profile(*with_effect(0))).verdict.level in ("watch", "repair")


# -- figures ------------------------------------------------------------------------------------------------------


def curves(figure):
    return [trace for trace in figure.data if trace.mode == "lines+markers"]


def test_the_profile_is_drawn_with_intervals_and_chance(report):
    figure = charts.length_figure(report.profile)
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
    mechanism = curves(charts.mechanism_figure(report.mechanism))
    assert [trace.name for trace in mechanism[:2]] == ["measured", "published bound"]
    assert list(mechanism[1].y) == [row.bound.value for row in report.mechanism.rows]
    nulls = charts.nulls_figure(report.nulls)
    assert [list(trace.y) for trace in curves(nulls)[:2]] == [
        [row.full.value for row in report.nulls.averaging],
        [row.averaged.value for row in report.nulls.averaging],
    ]
    assert "averages, chunks in place" in nulls.layout.annotations[0].text
    assert "dotted: the limit, 64" in nulls.layout.xaxis.title.text
    assert [shape.x0 for shape in nulls.layout.shapes] == [64, 64]
    assert len(curves(charts.probes_figure(*report.probes))) == 4
    retrieval = charts.retrieval_figure(report.retrieval)
    assert list(curves(retrieval)[-1].y) == [row.ratio.value for row in report.retrieval.rows]
    position = curves(charts.position_figure(report.position))
    assert list(position[1].y) == [row.rank.value for row in report.position.rows]
    labels = curves(charts.labels_figure(report.labels))
    assert list(labels[0].y) == [row.accuracy.value for row in report.labels.rows]


def test_the_sheet_holds_what_there_is(report):
    everything = charts.length_sheet(report)
    assert "grey: chance" in everything.layout.title.text
    assert len({trace.xaxis for trace in everything.data}) == 5 + 4 + 2 + 3 + 2 + 2 + 2
    alone = charts.length_sheet(LengthReport(profile=report.profile))
    assert len(curves(alone)) == 5
    blind = dataclasses.replace(
        report.mechanism,
        rows=tuple(
            dataclasses.replace(row, sigma_a=Estimate(None), frobenius=Estimate(None), words=Estimate(None))
            for row in report.mechanism.rows
        ),
    )
    assert len(curves(charts.mechanism_figure(blind))) == 1
    with pytest.raises(InputError, match="without anything to draw"):
        charts.probes_figure()


def test_an_encoder_may_be_passed_as_it_is():
    encoder = as_encoder(word_model())
    assert length_report(encoder, TEXTS, probes=False).profile.texts == len(TEXTS)
