"""Where texts may be cut, and which of these places are taken: strings and numbers, no model."""

from __future__ import annotations

import numpy as np
import pytest

from chunk_data import FAMILY
from poolscope.chunks.splitting import BLANK, KINDS, LINE, choose_cuts, choose_overlap, find_units, open_units

# -- where a text may be cut --------------------------------------------------------------------------------------


def kinds(text):
    units = find_units(text)
    return [(text[a:b], KINDS[kind]) for a, b, kind in zip(units.starts, units.ends, units.kinds, strict=True)][:-1]


def test_the_kinds_of_places():
    assert kinds("a b\nc\n\nd. E") == [("a", "blank"), ("b", "line"), ("c", "blank line"), ("d.", "sentence")]


@pytest.mark.parametrize("gap", ["\r\n\r\n", "\n \t\n", "\n\n\n", "\u2029\u2029", "\r\r"])
def test_blank_lines(gap):
    assert kinds(f"a{gap}b") == [("a", "blank line")]


@pytest.mark.parametrize("gap", ["\r\n", "\n", " \r ", "\n    ", "\u2028"])
def test_ends_of_lines(gap):
    assert kinds(f"a{gap}b") == [("a", "line")]


@pytest.mark.parametrize("end", [".", "?", "!", "…", '."', ".)", "?!”", "؟", "।"])
def test_ends_of_sentences(end):
    assert kinds(f"a{end} B") == [(f"a{end}", "sentence")]


def test_what_ends_no_sentence():
    assert {kind for _, kind in kinds('e.g. this, 3.5 B: ) ...no "a')} == {"blank"}


def test_scripts_without_blanks_are_cut_after_their_marks():
    assert kinds("你好，世界。再见") == [("你好，", "blank"), ("世界。", "sentence")]


def test_characters_stay_whole():
    word = f"e\u0301a{FAMILY}\U0001f44d\U0001f3fdz"
    parts, owner = open_units(find_units(f"x {word}"), [1])
    assert [parts.text[a:b] for a, b in zip(parts.starts, parts.ends, strict=True)] == [
        "x", "e\u0301", "a", FAMILY, "\U0001f44d\U0001f3fd", "z",
    ]  # fmt: skip
    assert owner.tolist() == [0, 1, 1, 1, 1, 1]
    assert [KINDS[kind] for kind in parts.kinds[:-1]] == ["blank", "word", "word", "word", "word"]


# -- which places are taken ---------------------------------------------------------------------------------------


def sizes(cuts, count):
    return np.diff([0, *(k + 1 for k in cuts), count]).tolist()


@pytest.mark.parametrize(("count", "expected"), [(101, [50, 51]), (190, [63, 63, 64]), (85, [85]), (100, [100])])
def test_pieces_are_of_about_equal_size(count, expected):
    found = sizes(choose_cuts(np.ones(count), np.full(count, BLANK, np.int8), 100), count)
    assert sorted(found) == expected


def test_a_better_place_wins_within_reach_and_not_beyond():
    ranks = np.full(100, BLANK, np.int8)
    ranks[[40, 55]] = LINE
    assert choose_cuts(np.ones(100), ranks, 80) == [55]
    ranks[55] = BLANK
    assert choose_cuts(np.ones(100), ranks, 80) == [40]
    ranks[40], ranks[20] = BLANK, 0
    assert choose_cuts(np.ones(100), ranks, 80) == [49]


def test_a_unit_heavier_than_the_room_stands_alone():
    assert choose_cuts(np.array([1.0, 50, 1]), np.full(3, BLANK, np.int8), 10) == [0, 1]


def test_blanks_at_a_cut_weigh_nothing():
    weights, blanks = np.array([1.0, 90, 1, 1]), np.array([0.0, 89, 0, 0])
    assert choose_cuts(weights, np.full(4, BLANK, np.int8), 10, blanks=blanks) == [0]


def test_the_overlap_begins_at_a_good_place_and_is_never_too_long():
    ranks = np.full(20, BLANK, np.int8)
    assert choose_overlap(np.ones(20), ranks, 6) == 14
    ranks[15] = LINE
    assert choose_overlap(np.ones(20), ranks, 6) == 16
    assert choose_overlap(np.array([1.0, 1, 9]), np.full(3, BLANK, np.int8), 6) is None
