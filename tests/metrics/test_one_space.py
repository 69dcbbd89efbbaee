"""One space: indexes of one model raise no alarm, whatever their topics; planted vectors of another model do."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import audit, one_space
from poolscope.errors import InputError
from poolscope.metrics.one_space import SEPARATION, OneSpace

COUNT, DIMENSION = 300, 48
_LETTERS = ("bcdfghklmnprstvz", "aeiou")


def made_words(count: int, seed: int) -> list[str]:
    """Words of three syllables that nobody speaks."""
    random = np.random.default_rng(seed)
    syllables = [first + second for first in _LETTERS[0] for second in _LETTERS[1]]
    return ["".join(random.choice(syllables, 3)) for _ in range(count)]


def corpus(seed: int = 0, *, topics: int = 6, size: int = COUNT) -> list[str]:
    """Texts of 15 words, two thirds of them of one topic: 20 words of each topic, and 40 that all share."""
    random = np.random.default_rng(seed)
    words = made_words(20 * topics + 40, seed)
    texts = []
    for number in range(size):
        own = 20 * (number % topics) + random.integers(20, size=10)
        shared = 20 * topics + random.integers(40, size=5)
        texts.append(" ".join(words[k] for k in [*own, *shared]))
    return texts


def model(texts: list[str], seed: int, *, cone: float = 0.0) -> np.ndarray:
    """Means of random vectors of words, one table a seed, with noise and in a cone: a model of word vectors."""
    random = np.random.default_rng(seed)
    table: dict[str, np.ndarray] = {}
    for word in sorted({word for text in texts for word in text.split()}):
        table[word] = random.standard_normal(DIMENSION)
    rows = np.array([np.mean([table[word] for word in text.split()], axis=0) for text in texts])
    rows += 0.1 * random.standard_normal(rows.shape) + cone * random.standard_normal(DIMENSION)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mixed(texts: list[str], share: float, *, cone: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of one model, a share of them those of another; and which."""
    vectors, others = model(texts, 1), model(texts, 2, cone=cone)
    replaced = np.random.default_rng(3).permutation(len(texts))[: round(share * len(texts))]
    vectors[replaced] = others[replaced]
    return vectors, np.sort(replaced)


@pytest.mark.parametrize("cone", [0.0, 1.0])
@pytest.mark.parametrize("topics", [1, 2, 8])
def test_an_index_of_one_model_raises_no_alarm(topics, cone):
    texts = corpus(topics=topics)
    measured = one_space(model(texts, 1, cone=cone), texts)
    assert not measured.above_floor
    assert measured.other.interval.high > 1 / measured.texts  # none was seen; one may be among as many others
    assert measured.separation > 2.5


def test_two_languages_are_not_two_models():
    texts = [*corpus(0, size=200), *corpus(7, size=100)]
    assert not one_space(model(texts, 1), texts).above_floor


def weak(texts: list[str], seed: int) -> np.ndarray:
    """A model whose vectors go by words so little that no row of few texts can be told by itself."""
    vectors = model(texts, seed, cone=0.3)
    return vectors + 0.1 * np.random.default_rng(seed).standard_normal(vectors.shape)


@pytest.mark.parametrize("seed", range(5))
def test_few_texts_are_told_apart_as_two_clusters_where_no_row_can(seed):
    texts = corpus(seed, size=100)
    vectors, others = weak(texts, 1 + seed), weak(texts, 100 + seed)
    assert one_space(vectors, texts).other.value is None
    vectors[:30] = others[:30]
    found = one_space(vectors, texts)
    assert found.separation < SEPARATION
    assert found.above_floor
    assert found.other.value == pytest.approx(0.3, abs=0.05)
    assert np.isin(found.strays, np.arange(30)).mean() > 0.9


@pytest.mark.parametrize("few", [20, 30, 40])
def test_few_texts_of_two_languages_or_topics_are_not_two_models(few):
    for seed in range(5):
        texts = [*corpus(seed, size=100 - few), *corpus(50 + seed, size=few)]
        assert not one_space(weak(texts, 1), texts).above_floor
        assert not one_space(weak(corpus(seed, topics=2, size=100), 1), corpus(seed, topics=2, size=100)).above_floor


@pytest.mark.parametrize("cone", [0.0, 2.0])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5])
def test_vectors_of_another_model_are_counted_and_named(share, cone):
    texts = corpus()
    vectors, replaced = mixed(texts, share, cone=cone)
    measured = one_space(vectors, texts)
    assert measured.above_floor
    if share < 0.5:  # of two halves neither teaches alone, and less is found
        assert measured.other.value == pytest.approx(share, abs=0.03)
        assert np.isin(measured.strays, replaced).mean() > 0.8
        assert np.isin(replaced, measured.strays).mean() > 0.8


@pytest.mark.parametrize("kind", ["turned", "shuffled", "noise"])
def test_turned_shuffled_and_random_vectors_are_found(kind):
    texts, random = corpus(), np.random.default_rng(4)
    vectors = model(texts, 1)
    rows = np.arange(0, COUNT, 10)
    others = {
        "turned": vectors @ np.linalg.qr(random.standard_normal((DIMENSION, DIMENSION)))[0],
        "shuffled": vectors[random.permutation(COUNT)],
        "noise": random.standard_normal(vectors.shape),
    }[kind]
    vectors[rows] = others[rows]
    measured = one_space(vectors, texts)
    assert measured.above_floor
    assert np.isin(measured.strays, rows).mean() > 0.7


def test_the_order_of_the_rows_and_their_blanks_change_nothing():
    texts = corpus()
    vectors, _ = mixed(texts, 0.1)
    order = np.random.default_rng(5).permutation(COUNT)
    first = one_space(vectors, texts)
    second = one_space(vectors[order] * 3, [f" {texts[k].upper()}\n" for k in order])
    assert second.other.value == pytest.approx(first.other.value, abs=1e-6)
    assert set(order[second.strays]) == set(first.strays)


def test_of_many_texts_a_draw_by_their_words_is_looked_at():
    texts = corpus(size=400)
    vectors, _ = mixed(texts, 0.2)
    measured = one_space(vectors, texts, most=200, seed=2)
    assert (measured.texts, len(measured.positions)) == (200, 200)
    assert measured.above_floor


def test_texts_whose_words_occur_nowhere_else_are_no_strays():
    texts = corpus()
    random = np.random.default_rng(6)
    odd = np.arange(0, COUNT, 6)
    for k in odd:
        texts[k] = "".join(chr(0x4E00 + letter) for letter in random.integers(20_000, size=8))
    measured = one_space(model(texts, 1), texts)
    assert not measured.above_floor
    assert np.isnan(measured.scores[odd]).all()
    assert measured.worded == pytest.approx(1 - 1 / 6, abs=0.02)


def test_vectors_that_words_do_not_predict_tell_nothing():
    texts = corpus()
    measured = one_space(np.random.default_rng(7).standard_normal((COUNT, DIMENSION)), texts)
    assert measured.other.value is None
    assert not measured.above_floor
    assert len(measured.strays) == 0


def test_it_comes_back_from_its_file_and_lists_the_surest_first(tmp_path):
    texts = corpus()
    vectors, replaced = mixed(texts, 0.1)
    measured = one_space(vectors, texts)
    measured.save(tmp_path / "space.json")
    again = OneSpace.load(tmp_path / "space.json")
    np.testing.assert_array_equal(again.strays, measured.strays)
    assert again.rows()[0]["position"] in replaced


@pytest.mark.parametrize(
    ("vectors", "texts", "words"),
    [(np.ones((120, 4)), ["a"] * 119, "120 vectors and 119 texts"), (np.ones((20, 4)), ["a"] * 20, "100 or more")],
)
def test_what_cannot_be_is_refused(vectors, texts, words):
    with pytest.raises(InputError, match=words):
        one_space(vectors, texts)


def test_an_index_of_two_models_is_not_called_fine():
    texts = corpus()
    vectors, replaced = mixed(texts, 0.3)
    found = audit(vectors, texts)
    assert (found["one_space"].level, found.decision.kind) == ("fix", "defect")
    assert found["one_space"].number.value_or_raise == pytest.approx(0.3, abs=0.05)
    assert np.isin(found["one_space"].values["rows"], replaced).mean() > 0.8
    fine = audit(model(texts, 1), texts)["one_space"]
    assert (fine.level, fine.reason) == ("ok", "no symptom")
