"""Comparison of audits: paired differences against independent computations; refusals; the page."""

from __future__ import annotations

import html
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from audit_data import ASKED, bag_of_words, in_a_cone, sentences, topics
from poolscope.auditing.compare import NOT_PAIRED, Comparison, audit_names, compare, differences
from poolscope.auditing.pages import comparison_overview, difference_tables, section
from poolscope.auditing.question import QUESTIONS, Answer
from poolscope.auditing.questions.scores import OTHER_SHARE
from poolscope.auditing.result import Audit
from poolscope.auditing.run import audit
from poolscope.clouds import TokenClouds
from poolscope.encoders import encode
from poolscope.errors import InputError, StoreError
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.intervals import Interval, leave_one_out_interval
from poolscope.verdicts import Verdict
from store_fakes import edit_json
from tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def texts():
    return topics(60, words=16)


@pytest.fixture(scope="module")
def plain(texts):
    return audit(bag_of_words, texts)


@pytest.fixture(scope="module")
def cone(texts):
    return audit(in_a_cone, texts)


@pytest.fixture(scope="module")
def rows(plain, cone):
    return {row.number: row for row in compare(plain, cone).differences}


def test_a_notebook_shows_sentences_and_levels_side_by_side(plain, cone):
    both = compare(plain, cone)
    view = both._repr_html_()
    assert view.count("<tr>") == len(both.keys) + 1
    assert all(html.escape(sentence) in view for sentence in both.headlines())
    assert view.count("<td><b style='color:") == len(both.answers)


def test_the_mean_cosine_is_paired_by_leaving_out_texts_in_both(rows, texts):
    tables = []
    for function in (bag_of_words, in_a_cone):
        means = np.array([cloud.mean(axis=0) for cloud in function(texts)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        tables.append(means @ means.T)
    difference = tables[1] - tables[0]
    pairs = list(itertools.combinations(range(60), 2))
    row = rows["anisotropy"]
    assert row.difference == pytest.approx(np.mean([difference[i, j] for i, j in pairs]), abs=1e-6)
    without = np.array([np.mean([difference[i, j] for i, j in pairs if k not in (i, j)]) for k in range(60)])
    error = np.sqrt(59 / 60 * ((without - without.mean()) ** 2).sum())
    assert (row.interval.high - row.interval.low) / 2 == pytest.approx(2.001 * error, rel=1e-3)
    assert row.interval.low > 0


def test_socm_is_paired_over_the_same_pairs(rows, texts):
    values = [socm(encode(function, texts)).mean for function in (bag_of_words, in_a_cone)]
    assert rows["socm"].difference == pytest.approx(values[1] - values[0], rel=1e-6)
    assert rows["socm"].interval.low < rows["socm"].difference < rows["socm"].interval.high
    assert "same pairs" in rows["socm"].how


def test_queries_and_texts_are_paired_where_tables_hold_them(rows):
    assert "queries" in rows["split_half"].how
    assert rows["split_half"].difference < 0  # the cone hurts
    for name in ("concentration_ratio", "hub_skewness"):
        assert "paired over texts" in rows[name].how
        assert rows[name].interval.low <= rows[name].difference <= rows[name].interval.high
    assert "not paired" in rows["cut_off"].how
    assert rows["cut_off"].difference == rows["cut_off"].second_value - rows["cut_off"].first_value


def test_arms_of_independent_intervals_are_combined_apart():
    """The difference is least where the second is low and the first high."""

    def audited(value: float, low: float, high: float) -> Audit:
        interval = Interval(low, high, 0.95, "texts", "by hand")
        numbers = {"short_share": value, "short_share_interval": interval}
        return Audit({}, {}, (Answer("short", Verdict("ok"), numbers),), {}, {})

    (row,) = differences(("a", audited(1.0, 0.7, 1.3)), ("b", audited(3.0, 2.6, 4.2)))
    assert row.how == NOT_PAIRED
    assert row.interval.low == pytest.approx(2 - 0.5)
    assert row.interval.high == pytest.approx(2 + np.hypot(1.2, 0.3))


def test_cut_offs_for_other_shares_of_false_hits_have_no_interval(plain, texts):
    other = audit(bag_of_words, texts, thresholds={"false_hits": 0.1}, trial_texts=0)
    row = {row.number: row for row in compare(plain, other).differences}["cut_off"]
    assert (row.interval, row.how) == (None, OTHER_SHARE)


def test_an_audit_beside_itself_differs_by_nothing(plain):
    result = compare(plain, plain)
    assert all(row.difference == 0 for row in result.differences)
    assert all(row.interval is None or row.interval.low <= 0 <= row.interval.high for row in result.differences)
    assert result.names == ["bag_of_words (1)", "bag_of_words (2)"]


def test_folders_compare_as_objects_do(plain, cone, rows, tmp_path):
    folders = [plain.save(tmp_path / "a", page=False), cone.save(tmp_path / "b", page=False) / "audit.json"]
    read = compare(*folders)
    for row in read.differences:
        assert row == rows[row.number]
    assert len(read.rows()) == 2 * len(ASKED)
    three = compare(*folders, plain)
    assert len(three.differences) == 2 * len(read.differences)


def test_the_page_and_the_files(plain, cone, tmp_path):
    result = compare(plain, cone)
    folder = result.save(tmp_path / "c")
    content = json.loads((folder / "comparison.json").read_text())
    assert [entry["name"] for entry in content["audits"]] == ["bag_of_words", "in_a_cone"]
    assert Comparison.load(folder) == result
    page = (folder / "comparison.html").read_text(encoding="utf-8")
    assert "in_a_cone" in page
    assert "What differs between the models" in page


def test_other_corpora_are_refused(plain, texts):
    with pytest.raises(InputError, match="different corpora"):
        compare(plain, audit(bag_of_words, texts[:-1]))
    with pytest.raises(InputError, match="different corpora"):
        compare(plain, audit(bag_of_words, texts[::-1]))
    unknown = audit(TokenClouds.from_arrays(bag_of_words(texts)))
    with pytest.raises(InputError, match="without their texts"):
        compare(plain, unknown)


def test_wrong_arguments_say_what_is_wrong(plain, tmp_path):
    with pytest.raises(InputError, match="two or more"):
        compare(plain)
    with pytest.raises(InputError, match=r"no audit\.json here"):
        compare(plain, tmp_path / "absent")
    (tmp_path / "audit.json").write_text("{}")
    with pytest.raises(StoreError, match="not an audit"):
        compare(plain, tmp_path)
    (tmp_path / "audit.json").write_text('{"model": {"name": "m"}}')
    with pytest.raises(StoreError, match="lacks answers"):
        compare(plain, tmp_path)


def test_other_queries_are_not_called_paired(texts):
    """Another seed puts other texts on trial: their scores have nothing to do with each other."""
    first, second = (audit(bag_of_words, texts, seed=seed) for seed in (0, 1))
    split_half = {row.number: row for row in compare(first, second).differences}["split_half"]
    assert "paired over queries" not in split_half.how


def test_socm_on_the_scale_of_the_traces_is_paired(rows, plain, cone, texts):
    row = rows["socm_trace"]
    for found, encoder in ((plain, bag_of_words), (cone, in_a_cone)):
        expected = socm(encode(encoder, texts), scale="trace").mean
        assert found.numbers["socm_trace"] == pytest.approx(expected, abs=1e-6)
    assert row.interval.low <= row.difference <= row.interval.high
    assert row.how == "paired over the same pairs (clustered by text)"


def test_the_share_that_was_cut_is_paired_over_texts_and_stays_within_its_bounds():
    """One text of 400 words among short ones: the difference of two shares is never beyond 1."""
    texts = [*sentences(50, low=4, high=8), " ".join(sentences(20, low=20, high=21, seed=1))]
    encoder = (tiny_model(), tiny_tokenizer())
    first, second = (audit(encoder, texts, max_length=limit, trial_texts=0) for limit in (24, 6))
    row = {row.number: row for row in compare(first, second).differences}["share_cut"]
    assert row.how == "paired over texts (bootstrap)"
    assert 0 < row.interval.low < row.difference < row.interval.high < 1
    drawn = np.random.default_rng(5).integers(len(texts), size=(4000, len(texts)))
    shares = []
    for found in (first, second):
        kept, cut = (found.tables["truncation"][name].to_numpy()[drawn].sum(axis=1) for name in ("tokens", "cut"))
        shares.append(cut / (kept + cut))
    low, high = np.quantile(shares[1] - shares[0], [0.025, 0.975])
    assert (row.interval.low, row.interval.high) == pytest.approx((low, high), abs=0.02)


def test_texts_that_repeat_another_have_no_part_in_the_mean_cosine(texts):
    first, second = (audit(function, [*texts, *texts[:9]]) for function in (bag_of_words, in_a_cone))
    row = {row.number: row for row in compare(first, second).differences}["anisotropy"]
    alone = {row.number: row for row in compare(*(audit(f, texts) for f in (bag_of_words, in_a_cone))).differences}
    assert row.difference == pytest.approx(alone["anisotropy"].difference)
    assert row.interval.low == pytest.approx(alone["anisotropy"].interval.low)


def test_tables_that_an_earlier_audit_left_are_not_read(plain, cone, texts, tmp_path):
    plain.save(tmp_path / "a", page=False)
    answers = json.loads((tmp_path / "a" / "audit.json").read_text())["answers"]
    for answer in answers:
        answer["tables"] = [name for name in answer["tables"] if name != "hubs"]
    edit_json(tmp_path / "a" / "audit.json", answers=answers)
    row = {row.number: row for row in compare(tmp_path / "a", cone).differences}["hub_skewness"]
    assert row.how.startswith("not paired")


def test_the_skewness_of_hubs_is_paired_without_each_text_in_turn(plain, cone):
    """Counts that are drawn anew kept their neighbours, and told equal models apart in 8 to 14 % of simulations."""
    row = {row.number: row for row in compare(plain, cone).differences}["hub_skewness"]
    assert row.how == "paired over texts (jackknife)"
    first, second = (found.tables["hubs"].sort_by("id")["skewness_without"].to_numpy() for found in (plain, cone))
    assert row.interval == leave_one_out_interval(row.difference, second - first)


def test_hubs_of_an_older_audit_are_paired_by_their_counts(plain, cone):
    answers = [
        replace(answer, tables={**answer.tables, "hubs": answer.tables["hubs"].drop_columns(["skewness_without"])})
        if answer.key == "hubs"
        else answer
        for answer in plain.answers
    ]
    row = {row.number: row for row in compare(replace(plain, answers=tuple(answers)), cone).differences}["hub_skewness"]
    assert row.how == "paired over texts (bootstrap)"
    assert row.interval.low < row.interval.high


def test_bars_are_named_by_what_the_answers_measured(plain, cone):
    """An answer can measure something else than its question names; two that differ are on no common axis."""
    result = compare(plain, cone)
    for change in (False, True):
        if change:
            other = tuple(replace(answer, number_name="something else") for answer in cone.answers)
            result = compare(plain, replace(cone, answers=other))
        shown = section(result, "pooling")
        titles = [figure.layout.title.text for _, figure in shown.figures]
        own = plain["pooling"].number_name
        assert own != QUESTIONS["pooling"].number_name
        assert titles == ([] if change else [own])
        assert any("not the same thing" in note for note in shown.notes) == change


def test_names_tell_audits_apart():
    assert audit_names(["o/a", "o/b"], ["x", "y"]) == ["a", "b"]
    assert audit_names(["o/a", "p/a"], [None, None]) == ["o/a", "p/a"]
    assert audit_names(["o/a", "o/a"], ["r/x", "r/y"]) == ["a · x", "a · y"]
    assert audit_names(["o/a", "o/a"], ["r/x", "s/x"]) == ["a · r/x", "a · s/x"]
    assert audit_names(["o/a", "o/a"], ["r/x", "r/x"]) == ["a (1)", "a (2)"]


def test_what_differs_is_named(plain, texts, tmp_path):
    other = audit(bag_of_words, texts, seed=3, thresholds={"hub_watch": 0.2}).save(tmp_path / "other", page=False)
    facts = compare(plain, other).facts
    assert facts["folder"] == [None, str(other)]
    assert facts["setting seed"] == [0, 3]
    assert facts["threshold hub_watch"] == [0.1, 0.2]
    assert "threshold hub_repair" not in facts
    assert "dimension" not in facts


def test_the_overview_holds_every_level_and_the_differences_their_intervals(plain, cone):
    result = compare(plain, cone)
    answers, facts = comparison_overview(replace(result, facts={**result.facts, "parameters": [1234567, None]})).tables
    assert facts.rows[-1] == ["parameters", "1,234,567", "–"]
    assert [row[2] for row in answers.rows] == [answer.verdict.level for answer in plain.answers]
    assert [column.heading for column in answers.view] == ["Question", "bag_of_words", "in_a_cone"]
    assert facts.rows[0][1:] == ["bag_of_words", "in_a_cone"]
    (table,) = difference_tables(result).tables
    assert table.name == "in_a_cone minus bag_of_words"
    shown = {row[0]: row for row in table.rows}
    anisotropy = next(row for row in result.differences if row.number == "anisotropy")
    assert shown["anisotropy"][4:8] == [
        anisotropy.difference,
        anisotropy.interval.low,
        anisotropy.interval.high,
        "● yes",
    ]
    compared = {number.name for question in QUESTIONS.values() for number in question.numbers if number.compared}
    assert set(shown) <= compared


def test_what_is_no_longer_answered_is_neither_better_nor_worse():
    def audited(*levels: str) -> Audit:
        keys = ("position", "truncation", "scores", "decision")
        answers = (Answer(key, Verdict(level, "…")) for key, level in zip(keys, levels, strict=True))
        corpus = {"digest": "0" * 64, "texts": 3, "source": "texts"}
        return Audit({"name": "m"}, corpus, tuple(answers), {}, {})

    (sentence,) = compare(
        audited("watch", "ok", "unchecked", "watch"), audited("unchecked", "unchecked", "ok", "ok")
    ).headlines()
    assert sentence.count("0 to repair and 0 to watch") == sentence.count("0 to repair and 1 to watch") == 1
    assert "No longer answered: Position (watch), Cut off (ok). Answered now: " in sentence
    assert "Better" not in sentence
    assert "Worse" not in sentence


def test_the_sentence_begins_with_what_a_search_finds(plain, cone):
    (worse,), (better,) = compare(plain, cone).headlines(), compare(cone, plain).headlines()
    assert "in_a_cone against bag_of_words: it finds less (split-half retrieval, nDCG@10 -0." in worse
    assert "it finds more (split-half retrieval, nDCG@10 +0." in better
    assert compare(plain, cone).worse()[0].startswith("in_a_cone: split-half retrieval, nDCG@10 -0.")
    assert not any("retrieval" in told for told in compare(cone, plain).worse())
    same = compare(plain, plain)
    assert "whether it finds more or less cannot be told" in same.headlines()[0]
    assert same.worse() == []


def test_a_level_that_changes_within_chance_is_neither_better_nor_worse():
    def audited(level: str, value: float, basis: str = "interval") -> Audit:
        interval = Interval(value - 0.3, value + 0.3, 0.95, "texts", "bootstrap")
        numbers = {"short_share": value, "short_share_interval": interval}
        answer = Answer("short", Verdict(level, "…", value, interval, basis=basis), numbers)
        corpus = {"digest": "0" * 64, "texts": 3, "source": "texts"}
        return Audit({"name": "m"}, corpus, (answer,), {}, {})

    (within,) = compare(audited("watch", 1.3), audited("ok", 1.2)).headlines()
    assert " Across a threshold, but within chance: Short texts (watch → ok)." in within
    assert "Better" not in within
    (beyond,) = compare(audited("watch", 2.3), audited("ok", 1.2)).headlines()
    assert " Better: Short texts (watch → ok)." in beyond
    (counted,) = compare(audited("ok", 1.2), audited("watch", 1.3, "counted")).headlines()
    assert " Worse: Short texts (ok → watch)." in counted


def test_every_question_has_a_number_of_its_own_beside_an_audit_of_vectors(plain, texts):
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    result = compare(plain, audit(vectors, texts))
    numbers = [result.heading(key).partition(".")[0] for key in result.keys]
    assert numbers == [str(k) for k in range(1, len(numbers) + 1)]


def test_a_file_is_no_audit(tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(InputError, match="received a file; allowed are folders"):
        Audit.load(tmp_path / "texts.jsonl")
