"""The page of an audit: what its tables show, and that the explorer has every pair that they name."""

from __future__ import annotations

import pytest

from audit_data import bag_of_words, sentences, topics
from poolscope.auditing.averaging import WORST
from poolscope.auditing.page import _explorer, answer_section
from poolscope.auditing.page_tables import SHOWN
from poolscope.auditing.run import audit
from poolscope.auditing.standings import standings
from poolscope.numbers.pooling import pool
from tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def found():
    return audit(bag_of_words, topics(60, words=16))


def test_every_worst_pair_is_in_the_explorer(found):
    data = _explorer(found).data
    ids = [text["id"] for text in data["texts"]]
    known = {frozenset((ids[i], ids[j])) for i, j in zip(data["pairs"]["i"], data["pairs"]["j"], strict=True)}
    rows = found.tables["worst_pairs"].to_pylist()
    assert len(rows) > WORST
    assert {frozenset((row["id_i"], row["id_j"])) for row in rows} <= known
    table = next(table for table in answer_section(found["averaging"]).tables if table.name == "Worst pairs")
    assert table.pair == ("id_i", "id_j")


def test_tables_have_headings_in_words_and_files_their_own_names(found):
    for answer in found.answers:
        for table in answer_section(answer).tables:
            headings = [column.heading for column in table.view]
            assert headings
            assert not [heading for heading in headings if "_" in heading.replace("d_μ", "").replace("d_Σ", "")]
    names = ["bin", "cosine", "cosine_low", "cosine_high"]
    cosine = next(column for column in SHOWN["length"].view(names) if column.column == "cosine")
    assert (cosine.heading, cosine.low, cosine.high) == ("Mean cosine", "cosine_low", "cosine_high")


def test_poolings_have_headings_that_hold_for_neighbours_and_for_cosines(found):
    cosines = audit(bag_of_words, topics(60, words=16), vectors=pool(found.subject.clouds, "mean"), trial_texts=0)
    assert cosines["pooling"].number_name != found["pooling"].number_name
    for result in (found, cosines):
        (table,) = (table for table in answer_section(result["pooling"]).tables if table.name == "Poolings")
        assert [column.heading for column in table.view] == ["Pooling", "Agreement", "Floor"]


def test_groups_of_equal_texts_are_counted_from_one():
    head = "the cat sat on the mat and the dog ran under a tree and the cat sat on a red mat"
    texts = [f"{head} fast and slow", f"{head} of a blue document", *sentences(20, low=8, high=24)]
    answer = audit((tiny_model(), tiny_tokenizer()), texts, max_length=16, trial_texts=0)["truncation"]
    (table,) = answer_section(answer).tables
    place = table.columns.index("twins")
    assert [column.heading for column in table.view if column.column == "twins"] == ["Group of equal texts"]
    groups = {row[0]: row[place] for row in table.rows}
    ids = answer.tables["truncation"]["id"].to_pylist()
    assert [groups.pop(name) for name in ids[:2]] == [1, 1]
    assert groups
    assert set(groups.values()) == {None}


def test_what_to_do_has_its_own_place(found):
    for answer in found.answers:
        section = answer_section(answer)
        assert not section.notes
        if answer.action is None:
            assert section.action is None
        else:
            assert (section.action.step, section.action.command) == (answer.action.step, answer.action.command)


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
        | dict.fromkeys(("cut_watch", "short_watch", "position_watch", "socm_watch"), -1.0),
    )
