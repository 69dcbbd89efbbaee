"""What an index is asked: is its search good enough, and do its vectors still come from the model?"""

from __future__ import annotations

import re

import numpy as np
import pytest

from audit_data import sentences
from command_line import run
from poolscope import audit
from poolscope.auditing.questions.drift import drawn_rows, parting_place
from poolscope.connectors.base import Search
from poolscope.connectors.collection import array_collection
from poolscope.encoders import as_encoder, encode
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from tiny_models import tiny_model, tiny_tokenizer

COUNT = 120
TEXTS = sentences(COUNT)


@pytest.fixture(scope="module")
def encoder():
    return as_encoder((tiny_model(), tiny_tokenizer()))


@pytest.fixture(scope="module")
def clouds(encoder):
    return encode(encoder, TEXTS)


def drift(vectors, encoder, **options):
    return audit(vectors, TEXTS, reference=encoder, **options)["drift"]


def test_vectors_of_the_model_are_its_own_rounded_or_not(encoder, clouds):
    means = pool(clouds)
    for stored in (means, means.astype(np.float16), means / np.linalg.norm(means, axis=1, keepdims=True)):
        found = drift(stored, encoder)
        assert (found.verdict.level, found.verdict.value) == ("ok", 0)


@pytest.mark.parametrize("start", [30, 75])
def test_a_change_of_pooling_is_dated_and_named(encoder, clouds, start):
    stored = pool(clouds)
    stored[start:] = pool(clouds, "cls")[start:]
    found = drift(stored, encoder)
    assert found.verdict.level == "repair"
    assert abs(found.numbers["drift_row"] - start) <= 3
    low, high = map(int, re.search(r"between rows (\d+) and (\d+)", found.verdict.sentence).groups())
    assert low <= start <= high
    assert "from about row" in found.verdict.sentence
    row = found.numbers["drift_row"]
    assert f"from about row {row} on again, where what wrote them pooled by cls" in found.action.step
    before, after = (
        next(note for note in found.verdict.evidence if note.startswith(side)) for side in ("Before", "After")
    )
    assert "as the model declares" in before
    assert "explains them" in after
    assert len(found.figure().data) == 1


def test_one_other_pooling_for_all_has_no_date(encoder, clouds):
    found = drift(pool(clouds, "cls"), encoder)
    assert found.verdict.level == "repair"
    assert found.verdict.value > 0.95
    assert found.numbers["drift_row"] is None
    assert found.numbers["drift_cause"] == "cls"


def test_what_all_rows_have_in_common_is_not_laid_to_those_it_moved_most(encoder, clouds):
    """Pooled by cls, all of them; below the threshold lie half."""
    stored = pool(clouds, "cls")
    own = pool(clouds)
    cosines = np.einsum("nd,nd->n", stored, own) / np.linalg.norm(stored, axis=1) / np.linalg.norm(own, axis=1)
    found = drift(stored, encoder, thresholds={"stale_cosine": float(np.median(cosines))})
    assert 0.3 < found.verdict.value < 0.7
    note = next(note for note in found.verdict.evidence if note.startswith("All rows"))
    assert "as the model declares." not in note
    assert "rows that deviate" not in found.action.step


def test_vectors_that_must_be_encoded_again_come_before_their_cut_off_and_their_copies(encoder, clouds):
    """The cut-off and the near-duplicates of vectors of another pooling are gone with these."""
    found = audit(pool(clouds, "cls"), TEXTS, reference=encoder)
    assert (found["scores"].verdict.level, found["drift"].verdict.level) == ("watch", "repair")
    assert found["decision"].action == found["drift"].action
    assert "hold for the vectors as they are, and change with question 15" in found["decision"].verdict.sentence
    stored = pool(clouds)
    stored[:10] = np.nan
    broken = audit(stored, TEXTS)
    assert broken["decision"].action == broken["rows"].action
    assert "change with question 10" in broken["decision"].verdict.sentence
    stored = pool(clouds)
    stored[0] = np.nan
    one = audit(stored, TEXTS)
    assert (one["rows"].verdict.level, one["rows"].action.renews) == ("watch", "")


def test_rows_at_random_have_no_date(encoder, clouds):
    stored = pool(clouds)
    wrong = np.random.default_rng(0).permutation(COUNT)[:40]
    stored[wrong] = pool(clouds, "max")[wrong]
    found = drift(stored, encoder)
    assert found.verdict.value == pytest.approx(1 / 3, abs=0.02)
    assert found.numbers["drift_row"] is None


def test_every_third_row_is_explained_by_itself_and_stands_first(encoder, clouds):
    stored = pool(clouds)
    stored[::3] = pool(clouds, "cls")[::3]
    found = drift(stored, encoder)
    wrong = round(found.verdict.value * COUNT)
    assert found.numbers["drift_cause"] == "cls"
    assert "gives today: what wrote them pooled by cls. In the order of the rows no single place" in (
        found.verdict.sentence
    )
    note = next(note for note in found.verdict.evidence if note.startswith("All rows"))
    assert f"the {wrong} rows that deviate: pooled by cls explains them (mean cosine 1.0000" in note
    assert note.endswith("; the others are as the model declares.")
    step = "encode the rows that deviate again (first in table drift), where what wrote them pooled by cls, as"
    assert found.action.step.startswith(step)
    assert found.action.renews == "vectors"
    table = found.tables["drift"]
    assert all(row % 3 == 0 for row in table["row"].to_pylist()[:wrong])
    assert max(table["cosine"].to_pylist()[:wrong]) < 0.99 <= min(table["cosine"].to_pylist()[wrong:])
    few = drift(stored, encoder, trial_texts=30)
    assert few.action.step.endswith("30 of 120 rows were compared, and --trial 120 does all")


def test_every_second_row_of_an_index_twice_the_sample_has_no_date(encoder):
    """A sample at even distances holds the even rows up to the middle and the odd ones after it."""
    texts = sentences(400)
    own = encode(encoder, texts)
    stored = pool(own)
    stored[::2] = pool(own, "cls")[::2]
    found = audit(stored, texts, reference=encoder)["drift"]
    assert found.verdict.value == pytest.approx(0.5, abs=0.15)
    assert found.numbers["drift_row"] is None
    assert "no single place is found" in found.verdict.sentence


def test_what_moves_long_texts_more_does_not_begin_where_they_do(encoder, clouds):
    """Pooled by cls, all of them, the short texts first: how near a vector comes goes by its text."""
    order = np.argsort(clouds.lengths)
    stored, texts = pool(clouds, "cls")[order], [TEXTS[k] for k in order]
    found = audit(stored, texts, reference=encoder)["drift"]
    assert found.numbers["drift_row"] is None
    assert "no single place" not in found.verdict.sentence  # it is all rows
    half = np.arange(COUNT) % 2 == 0
    stored[half] = pool(clouds)[order][half]
    assert audit(stored, texts, reference=encoder)["drift"].numbers["drift_row"] is None


ROWS = 400


def rows_that_deviate(kind: str, place: int, random: np.random.Generator) -> np.ndarray:
    """Which of the rows deviate: from a place on (all, or half of them), or anywhere."""
    rows = np.arange(ROWS)
    return {
        "none": rows < 0,
        "from": rows >= place,
        "before": rows < place,
        "from, half": (rows >= place) & (random.random(ROWS) < 0.5),
        "every second": rows % 2 == 0,
        "scattered": random.random(ROWS) < 0.3,
        "by documents": np.repeat(random.random(ROWS // 10) < 0.3, 10),
        "denser": random.random(ROWS) < np.where(rows < place, 0.2, 0.6),
        "in the middle": (rows >= 120) & (rows < 200),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "least"), [("from", 0.98), ("before", 0.98), ("from, half", 0.85)], ids=lambda value: str(value)
)
def test_a_place_from_which_on_rows_deviate_is_right(kind, least):
    right = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        place = int(random.integers(ROWS // 10, 9 * ROWS // 10))
        drawn = drawn_rows(ROWS, 200, seed=seed)
        found = parting_place(rows_that_deviate(kind, place, random)[drawn], seed=seed)
        first, last = (0, 0) if found is None else drawn[[max(found.low - 1, 0), min(found.high, 199)]]
        right.append(first <= place <= last and (found.after > found.before) == (kind != "before"))
    assert np.mean(right) >= least


@pytest.mark.parametrize(
    "kind", ["none", "every second", "scattered", "by documents", "denser", "in the middle"], ids=lambda value: value
)
def test_rows_that_deviate_on_both_sides_of_every_place_have_none(kind):
    named = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        deviating = rows_that_deviate(kind, int(random.integers(40, 360)), random)
        named.append(parting_place(deviating[drawn_rows(ROWS, 200, seed=seed)], seed=seed) is not None)
    assert np.mean(named) <= 0.05


def test_rows_are_drawn_one_of_each_stretch():
    np.testing.assert_array_equal(drawn_rows(120, 120, seed=3), np.arange(120))
    drawn = drawn_rows(1003, 200, seed=0)
    assert len(np.unique(drawn)) == 200
    assert np.abs(drawn - np.linspace(0, 1002, 200)).max() < 6


def test_one_row_that_deviates_is_no_row_as_declared(encoder, clouds):
    stored = pool(clouds)
    stored[7] = -stored[7]
    found = drift(stored, encoder)
    note = next(note for note in found.verdict.evidence if note.startswith("All rows"))
    assert "the 1 row that deviates: none of the known causes explains it" in note
    assert found.tables["drift"]["row"][0].as_py() == 7


def test_what_nothing_explains_is_given_no_cause(encoder, clouds):
    random = np.random.default_rng(0).standard_normal(pool(clouds).shape)
    found = drift(random, encoder)
    note = next(note for note in found.verdict.evidence if note.startswith("All rows"))
    assert "none of the known causes explains them" in note
    assert "the vectors may belong to other texts" in note
    assert "nearest" not in note
    assert found.numbers["drift_cause"] is None
    assert "in the same order" in found.action.step
    shifted = drift(np.roll(pool(clouds), 1, axis=0), encoder)
    assert any("in another order" in note for note in shifted.verdict.evidence)
    assert shifted.action.step.startswith("put vectors and texts into the same order")
    assert shifted.action.cost.startswith("no re-encoding")


def test_a_dimension_of_another_model_is_the_answer(encoder):
    found = drift(np.random.default_rng(0).standard_normal((COUNT, 2000)), encoder)
    assert found.verdict.level == "repair"
    assert "dimension 2000" in found.verdict.sentence
    assert found.action.renews == ""  # another model is to be named, and the vectors stay


def test_without_a_reference_or_texts_it_says_what_is_missing(encoder, clouds):
    assert "--reference MODEL" in audit(pool(clouds), TEXTS)["drift"].verdict.sentence
    assert "texts of the vectors" in audit(pool(clouds), reference=encoder)["drift"].verdict.sentence
    with pytest.raises(InputError, match="it is for vectors alone"):
        audit(encoder, TEXTS, reference="builtin:minilm")
    with pytest.raises(InputError, match="--reference: this is for vectors alone"):
        run("audit", "builtin:minilm", "--reference", "builtin:minilm", "--no-files")


# -- recall ---------------------------------------------------------------------------------------------------------


def searched(share: float, *, exact: bool = False, limit: int | None = None):
    """Vectors behind a search that loses a share of the nearest, unless its effort is 100."""
    vectors = np.random.default_rng(0).standard_normal((400, 8))

    def find(queries, k, value):
        order = np.argsort(np.linalg.norm(queries[:, None] - vectors[None], axis=2), axis=1)[:, :k]
        lost = 0 if value == 100 else round(share * (k - 1))
        return [[str(place) for place in row[: k - lost]] for row in order]

    collection = array_collection(vectors, distance="l2", limit=limit)
    search = Search(find, "a graph", setting="effort", values=(100,), exact=exact)
    return type(collection)(**{**vars(collection), "search": search})


@pytest.mark.parametrize(("share", "level"), [(0.0, "ok"), (0.1, "watch"), (0.4, "repair")])
def test_what_the_search_of_a_store_misses(share, level):
    found = audit(searched(share))["recall"]
    assert found.verdict.level == level
    assert found.verdict.value == pytest.approx(1 - share)
    assert ("effort 100 reaches 1.000" in found.verdict.sentence) == bool(found.verdict.sentence)
    if level != "ok":
        assert found.action.step == "set effort to 100"


def test_where_recall_is_not_asked():
    assert "the search is exact" in audit(searched(0.1, exact=True))["recall"].verdict.sentence
    assert "--limit 0" in audit(searched(0.1, limit=200))["recall"].verdict.sentence
    assert (
        "need no approximate search"
        in audit(np.random.default_rng(0).standard_normal((40, 8)))["recall"].verdict.sentence
    )


def test_vectors_without_an_index_are_told_what_one_would_need():
    pytest.importorskip("faiss")
    found = audit(np.random.default_rng(0).standard_normal((300, 8)))["recall"]
    assert found.verdict.level == "unchecked"
    assert re.search(r"HNSW32 reaches \d\.\d+ with efSearch \d+", found.verdict.sentence)
