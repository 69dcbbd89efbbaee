"""The page of an audit: what its tables show, and that the explorer has every pair that they name."""

from __future__ import annotations

import html

import pytest

from audit_data import bag_of_words, sentences, topics
from poolscope.auditing.question import QUESTIONS
from poolscope.auditing.questions.averaging import WORST
from poolscope.auditing.questions.decision import standings
from poolscope.auditing.run import audit
from poolscope.numbers.pooling import pool
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
    rows = {row.name.split(".")[0]: row for row in standings(found.answers, found.thresholds)}
    assert rows
    for answer in found.answers:
        if str(answer.number) in rows:
            row = rows[str(answer.number)]
            assert (row.value, row.level) == (answer.verdict.value, answer.verdict.level)
    assert rows["1"].watch == found.thresholds["cut_off_watch"]
    assert not standings(
        found.answers,
        {**found.thresholds, "cut_off_watch": -1.0}
        | dict.fromkeys(("cut_watch", "short_watch", "position_watch"), -1.0),
    )
