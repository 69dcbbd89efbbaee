"""Stored vectors beside those of all texts: planted shuffles, shifts, other vectors, edits and poolings."""

from __future__ import annotations

import numpy as np
import pytest

from audit_data import sentences
from poolscope import match_rows
from poolscope.connect.runtimes.rows import KINDS, RowMatches
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from tiny_models import tiny_model, tiny_tokenizer

COUNT = 100
VECTORS = np.random.default_rng(0).standard_normal((COUNT, 24))


def shares(found: RowMatches) -> dict[str, float]:
    return {kind: share for kind in KINDS if (share := getattr(found, kind).value)}


@pytest.mark.parametrize("stored", [VECTORS, VECTORS.astype(np.float16), 3 * VECTORS, np.sign(VECTORS)])
def test_own_vectors_are_own_in_every_form(stored):
    found = match_rows(stored, VECTORS)
    assert shares(found) == {"own": 1}
    assert (found.order, found.main, found.explained, found.permutation) == ("", "own", "", {})


@pytest.mark.parametrize("shift", [1, 7, -4])
def test_a_shift_is_named_whether_rolled_or_cut_off_at_the_end(shift):
    rolled = match_rows(np.roll(VECTORS, shift, axis=0), VECTORS)
    assert (rolled.order, shares(rolled)) == (f"shifted by {shift}", {"moved": 1})
    stored = np.random.default_rng(1).standard_normal(VECTORS.shape)
    rows = np.arange(COUNT)
    inside = (rows + shift >= 0) & (rows + shift < COUNT)
    stored[rows[inside] + shift] = VECTORS[inside]
    assert match_rows(stored, VECTORS).order == f"shifted by {shift}"


def test_a_shift_from_a_row_on_leaves_the_others_own():
    stored = VECTORS.copy()
    stored[40:] = np.roll(VECTORS[40:], 1, axis=0)
    found = match_rows(stored, VECTORS)
    assert shares(found) == {"own": 0.4, "moved": 0.6}
    assert found.order == "shifted by 1"
    np.testing.assert_array_equal(np.flatnonzero(found.differ), np.arange(40, COUNT))


def test_a_permutation_is_given_row_by_row():
    order = np.random.default_rng(2).permutation(COUNT)
    found = match_rows(VECTORS[order], VECTORS)
    assert (found.order, found.main, found.explained) == ("shuffled", "moved", "rows shuffled")
    moved = {int(text): place for place, text in enumerate(order) if text != place}
    assert found.permutation == moved
    for row, place in found.permutation.items():
        np.testing.assert_array_equal(VECTORS[order][place], VECTORS[row])


def test_simple_orders_have_names():
    ids = [str(k) for k in range(COUNT)]
    by_id = np.array(sorted(range(COUNT), key=lambda k: ids[k]))
    assert match_rows(VECTORS[::-1], VECTORS).order == "reversed"
    assert match_rows(VECTORS[by_id], VECTORS, ids=ids).order == "sorted by id"
    assert match_rows(VECTORS[by_id], VECTORS).order == "shuffled"
    pairs = np.arange(COUNT)
    pairs[[3, 40, 8, 77, 11, 90]] = [40, 3, 77, 8, 90, 11]
    assert match_rows(VECTORS[pairs], VECTORS).order == "swapped in pairs"


def test_texts_of_a_sample_are_looked_for_in_the_whole_index():
    rows = np.arange(5, COUNT, 10)
    found = match_rows(np.roll(VECTORS, 30, axis=0), VECTORS[rows], rows=rows)
    assert (found.order, found.count) == ("shifted by 30", 10)
    assert found.permutation[5] == 35


def test_vectors_of_another_model_belong_to_no_text():
    stored = VECTORS.copy()
    stored[::20] = np.random.default_rng(3).standard_normal((5, 24))
    found = match_rows(stored, VECTORS)
    assert shares(found) == {"own": 0.95, "foreign": 0.05}
    assert found.foreign.interval.low < 0.05 < found.foreign.interval.high
    assert found.rows()[0]["kind"] == "foreign"


def test_texts_that_were_edited_are_near_their_own():
    stored = VECTORS.copy()
    stored[:10] += 0.3 * np.random.default_rng(4).standard_normal((10, 24))
    assert shares(match_rows(stored, VECTORS)) == {"own": 0.9, "stale": 0.1}


def test_a_vector_written_over_another_row_has_moved():
    stored = VECTORS.copy()
    stored[9] = VECTORS[50]
    found = match_rows(stored, VECTORS)
    assert shares(found) == {"own": 0.99, "moved": 0.01}
    assert found.permutation == {}  # the vector of text 9 is nowhere


def test_rows_of_another_pooling_are_named_in_place_and_moved():
    encoder = as_encoder((tiny_model(), tiny_tokenizer()))
    clouds = encoder.encode(sentences(60))[-1]
    means, first = pool(clouds), pool(clouds, "cls")
    stored = means.copy()
    stored[::4] = first[::4]
    found = match_rows(stored, means, poolings={"max": pool(clouds, "max"), "cls": first})
    assert (found.pooling, shares(found)) == ("cls", {"own": 0.75, "pooled": 0.25})
    rolled = match_rows(np.roll(first, 5, axis=0), means, poolings={"cls": first})
    assert (rolled.order, rolled.moved_pooling) == ("shifted by 5", "cls")


def test_copies_that_stand_for_each_other_have_not_moved():
    texts = np.repeat(VECTORS[:50], 2, axis=0)
    stored = texts.copy()
    stored[[0, 1]] = stored[[1, 0]]
    assert shares(match_rows(stored, texts)) == {"own": 1}
    stored[0] = np.random.default_rng(5).standard_normal(24)
    assert shares(match_rows(stored, texts)) == {"own": 0.99, "foreign": 0.01}  # its copy has a vector of its own


def test_matches_come_back_from_their_file(tmp_path):
    found = match_rows(np.roll(VECTORS, 2, axis=0), VECTORS)
    found.save(tmp_path / "rows.json")
    again = RowMatches.load(tmp_path / "rows.json")
    assert (again.order, again.permutation) == (found.order, found.permutation)


@pytest.mark.parametrize(
    ("stored", "encoded", "words"),
    [
        (VECTORS, VECTORS[:5], "5 new vectors and 100 rows"),
        (np.ones((5, 30)), np.ones((5, 24)), "dimension 30"),
        (np.zeros((5, 24)), VECTORS[:5], "stored"),
    ],
)
def test_what_cannot_be_matched_is_refused(stored, encoded, words):
    with pytest.raises(InputError, match=words):
        match_rows(stored, encoded)
