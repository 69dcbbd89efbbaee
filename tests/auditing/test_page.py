"""The page of an audit: what its tables show, and that the explorer has every pair that they name."""

from __future__ import annotations

import html

import pytest

from audit_data import bag_of_words, sentences, topics
from poolscope.auditing.pages import overview, standings, texts_map
from poolscope.auditing.question import QUESTIONS, Answer
from poolscope.auditing.questions.averaging import WORST
from poolscope.auditing.run import audit
from poolscope.numbers.intervals import Interval
from poolscope.numbers.pooling import pool
from poolscope.verdicts import Verdict
from tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def found():
    return audit(bag_of_words, topics(60, words=16))


def test_every_worst_pair_is_in_the_explorer(found):
    data = found["averaging"].explorer().data
    ids = [text["id"] for text in data["texts"]]
    known = {frozenset((ids[i], ids[j])) for i, j in zip(data["pairs"]["i"], data["pairs"]["j"], strict=True)}
    rows = found.tables["worst_pairs"].to_pylist()
    assert 0 < len(rows) <= WORST
    assert {frozenset((row["id_i"], row["id_j"])) for row in rows} <= known
    table = next(table for table in found["averaging"].shown() if table.name.startswith("Pairs that a search"))
    assert table.pair == ("id_i", "id_j")


def test_tables_have_headings_in_words_and_files_their_own_names(found):
    for answer in found.answers:
        for table in answer.shown():
            headings = [column.heading for column in table.view]
            assert headings
            assert not [heading for heading in headings if "_" in heading.replace("d_μ", "").replace("d_Σ", "")]
    names = ["bin", "cosine", "cosine_low", "cosine_high"]
    cosine = next(column for column in QUESTIONS["long"].tables["length"].view(names) if column.column == "cosine")
    assert (cosine.heading, cosine.low, cosine.high) == ("Mean cosine", "cosine_low", "cosine_high")


def test_neighbours_and_cosines_of_a_runtime_have_tables_of_their_own(found):
    cosines = audit(bag_of_words, topics(60, words=16), vectors=pool(found.subject.clouds, "mean"), trial_texts=0)
    assert cosines["pooling"].number_name != found["pooling"].number_name
    (kept,), (causes,) = found["pooling"].shown(), cosines["pooling"].shown()
    assert [column.heading for column in kept.view] == ["Pooling", "Neighbours kept", "Floor"]
    assert [column.heading for column in causes.view][:2] == ["Cause", "Cosine"]
    assert causes.view[1].low == "cosine_low"


def test_groups_of_equal_texts_are_counted_from_one():
    head = "the cat sat on the mat and the dog ran under a tree and the cat sat on a red mat"
    texts = [f"{head} fast and slow", f"{head} of a blue document", *sentences(20, low=8, high=24)]
    answer = audit((tiny_model(), tiny_tokenizer()), texts, max_length=16, trial_texts=0)["truncation"]
    (table,) = answer.shown()
    place = table.columns.index("twins")
    assert [column.heading for column in table.view if column.column == "twins"] == ["Group of equal texts"]
    groups = {row[0]: row[place] for row in table.rows}
    ids = answer.tables["truncation"]["id"].to_pylist()
    assert [groups.pop(name) for name in ids[:2]] == [1, 1]
    assert groups
    assert set(groups.values()) == {None}


def test_what_to_do_has_its_own_place(found):
    page = found.to_html()
    for answer in found.answers:
        assert not answer.notes
        if answer.action is not None and answer.action.command is not None:
            assert html.escape(answer.action.command) in page
        assert html.escape(answer.heading) in page


def test_numbers_stand_where_thresholds_judge_them(found):
    rows = standings(found.answers, found.thresholds)
    assert {row.key for row in rows} >= {"scores", "hubs"}
    (cut,) = (row for row in rows if row.key == "scores")
    assert (cut.value, cut.watch) == (found["scores"].verdict.value, found.thresholds["cut_off_watch"])
    hub = next(row for row in rows if row.name == "texts near the first hub")
    assert hub.watch == pytest.approx(found["hubs"].numbers["hub_largest_floor"] + found.thresholds["hub_watch"])
    for row in rows:
        edges = [row.zero, *(edge for edge in (row.watch, row.repair) if edge is not None)]
        places = [row.place(edge) for edge in edges]
        assert places == sorted(places)
        assert places[0] == 0
    unordered = {**found.thresholds, "cut_off_watch": 0.95}
    assert "scores" not in {row.key for row in standings(found.answers, unordered)}


def test_every_answer_has_a_row_and_every_gauge_a_number_of_its_answer(found):
    rows = overview(found.answers[:-1], found.thresholds)
    assert [row.key for row in rows] == [answer.key for answer in found.answers[:-1]]
    assert all(row.note or row.gauges for row in rows)
    for answer in found.answers:
        for gauge in QUESTIONS[answer.key].gauges:
            assert {gauge.watch, gauge.repair} - {""} <= {limit.name for limit in QUESTIONS[answer.key].thresholds}
    for row in rows:
        assert all(0 <= gauge.value <= 100 for gauge in row.gauges)


def test_every_question_with_thresholds_draws_its_numbers():
    for question in QUESTIONS.values():
        assert bool(question.thresholds) == bool(question.judged_on or question.gauges), question.key


def test_a_number_that_falls_from_one_stands_on_the_same_scale():
    numbers = {"runtime_cosine": 0.995, "runtime_cosine_interval": Interval(0.985, 0.9995, 0.95, "texts", "bootstrap")}
    answer = Answer("pooling", Verdict("watch", "…", value=0.995), numbers, number=3)
    (row,) = standings([answer], {"pooling_same": 0.999, "pooling_match": 0.99})
    assert [row.place(value) for value in (1.0, 0.999, 0.99)] == pytest.approx([0, 1, 2])
    assert 1 < row.place(row.value) < 2
    assert row.ends == pytest.approx((row.place(0.9995), row.place(0.985)))
    (shown,) = overview([answer], {"pooling_same": 0.999, "pooling_match": 0.99})
    assert shown.gauges[0].limits.startswith("best 1")
    assert standings([answer], {"pooling_same": 0.98, "pooling_match": 0.99}) == []


def test_the_map_is_coloured_by_what_the_answers_say_of_texts(found):
    drawn = texts_map(found)
    assert len(drawn) == len(found.subject)
    colours = {colour["named"]: colour for colour in drawn.data["colours"]}
    assert colours["times found"]["kind"] == "number"
    assert colours["length in tokens"]["values"] == found.subject.clouds.lengths.tolist()
    times = dict(zip(*(found.tables["hubs"][name].to_pylist() for name in ("id", "times_found")), strict=True))
    assert colours["times found"]["values"] == [times[name] for name in drawn.data["ids"]]
    if "never found" in colours:
        assert colours["never found"]["values"] == [times[name] == 0 for name in drawn.data["ids"]]
