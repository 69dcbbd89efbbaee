"""Rule-made pairs: each rule on a sentence, the built-in set, the shares told apart, the command."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from command_line import invoke, run
from poolscope import fine_grained
from poolscope.errors import InputError
from poolscope.evaluation.fine_grained import ALL, FineGrained
from poolscope.texts.fine_pairs import CHANGES, CONTROLS, FinePair, fine_pairs

LETTERS = "abcdefgh"


def letters(texts):
    return [[[float(c == letter) + 0.1 for letter in LETTERS] for c in text] for text in texts]


@pytest.mark.parametrize(
    ("change", "sentence", "changed"),
    [
        ("negation", "The file is open.", "The file is not open."),
        ("negation", "The file is not open.", None),
        ("negation", "Open the file.", None),
        ("roles swapped", "When the parent calls the child, it waits.", "When the child calls the parent, it waits."),
        ("roles swapped", "It waits.", None),
        ("number changed", "Wait 10 seconds.", "Wait 34 seconds."),
        ("number changed", "Wait for two seconds.", "Wait for five seconds."),
        ("number changed", "Use Base64 here.", None),
        ("entity replaced", "It runs on Windows.", "It runs on Linux."),
        ("order reversed", "Call it before the loop.", "Call it after the loop."),
    ],
)
def test_a_rule_changes_the_sentence_or_leaves_it(change, sentence, changed):
    assert CHANGES[change](sentence) == changed


def test_controls_keep_the_words_or_their_meaning():
    sentence = "It returns the current file."
    assert CONTROLS["case"](sentence) == "IT RETURNS THE CURRENT FILE."
    assert CONTROLS["synonyms"](sentence) == "It gives back the present file."
    assert CONTROLS["filler"](sentence).endswith(" it returns the current file.")


def test_the_built_in_set_is_the_same_each_time_and_whole():
    pairs = fine_pairs(20)
    assert pairs == fine_pairs(20)
    counts = Counter(pair.change for pair in pairs)
    assert set(counts) == set(CHANGES)
    assert min(counts.values()) == max(counts.values()) == 20
    for pair in pairs:
        assert len({pair.sentence, pair.changed, *pair.controls.values()}) == 2 + len(CONTROLS)
        assert set(pair.controls) == set(CONTROLS)


def test_order_is_lost_to_means_of_letters_and_ties_count_half():
    pairs = [FinePair("ab", "order", "ba", {"same": "ab", "other": "ac"})] * 40
    result = fine_grained(letters, pairs)
    assert result["order", "same"].by_mean.value == 0.5
    assert result["order", "other"].by_mean.value == 0.0
    assert result["order", ALL].by_mean.value == 0.25
    assert result[ALL, ALL].by_tokens.value == 0.25
    assert FineGrained.from_dict(result.to_dict()).rows() == result.rows()


def test_tokens_see_one_letter_that_a_long_mean_hides():
    """The mean of the control moves a little more than that of the change; its tokens all have their match."""
    sentence, changed, control = "a" * 30 + "b", "a" * 30 + "c", "a" * 28 + "b" * 6
    result = fine_grained(letters, [FinePair(sentence, "letter", changed, {"counts": control})] * 40)
    assert result["letter", "counts"].by_mean.value == 0.0
    assert result["letter", "counts"].by_tokens.value == 1.0
    assert result["letter", "counts"].gain.mean == 1.0


def test_no_pairs_and_unknown_names_are_refused():
    with pytest.raises(InputError, match="pairs"):
        fine_grained(letters, [])
    with pytest.raises(InputError, match="measured"):
        fine_grained(letters, [FinePair("ab", "order", "ba", {"same": "ab"})] * 40)["no", "such"]


def test_the_command_prints_a_row_a_change(tmp_path):
    output = run("cost", "builtin:wordllama", "--pairs", "--table", tmp_path / "p.csv", width=80)
    assert max(len(line) for line in output.splitlines() if not line.startswith("written")) <= 80
    openings = [line.split()[0] for line in output.splitlines() if line.strip()]
    assert {change.split()[0] for change in CHANGES} <= set(openings)
    shown = json.loads(invoke("cost", "builtin:wordllama", "--pairs", "--json", "-").stdout)
    assert shown["sentences"] == len(fine_pairs())
    assert (tmp_path / "p.csv").exists()
    with pytest.raises(InputError, match="--queries"):
        run("cost", "builtin:wordllama", "--pairs", "--queries", "q.jsonl")
