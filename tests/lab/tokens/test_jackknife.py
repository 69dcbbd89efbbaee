"""Intervals of the corpus-level numbers over texts: the plain jackknife, whatever is sampled, pooled or repeated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.token_data import WORDS, WordEncoder, sentences

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.lab.tokens.measure import TokenKeys, token_statistics
from poolscope.lab.tokens.moments import TextSample, TokenMoments
from poolscope.lab.tokens.summary import summarise

TEXTS = sentences()
NUMBERS = ("mean_square", "norm_of_mean", "variance", "within", "between")
SHARES = ("mean_share", "within_share", "between_share")


def by_definition(clouds, texts, cluster_of):
    """The corpus-level numbers of some of the texts; `cluster_of` gives the cluster of an id, None: left out."""
    rows = np.concatenate([clouds[k] for k in texts]).astype(float)
    clusters = [cluster_of(number) for k in texts for number in clouds.token_ids(k).tolist()]
    kept = np.array([cluster is not None for cluster in clusters])
    rows, clusters = rows[kept], np.array([cluster for cluster in clusters if cluster is not None])
    square, mean = (rows**2).sum(1).mean(), rows.mean(0)
    groups = [rows[clusters == cluster] for cluster in np.unique(clusters)]
    within = sum(((group - group.mean(0)) ** 2).sum() for group in groups) / len(rows)
    variance = rows.var(axis=0).sum()
    units = rows / np.sqrt((rows**2).sum(1, keepdims=True))
    cosine = ((units.sum(0) ** 2).sum() - len(rows)) / (len(rows) * (len(rows) - 1))
    parts = np.array([square, mean @ mean, variance, within, variance - within])
    return dict(zip((*NUMBERS, *SHARES, "mean_cosine"), [*parts, *(parts[[1, 3, 4]] / square), cosine], strict=True))


def jackknife_reach(clouds, cluster_of, texts):
    """Half the 95 % interval of each number, leaving out one text at a time; copies of a text are no freedom."""
    without = [by_definition(clouds, [j for j in texts if j != k], cluster_of) for k in texts]
    n = len(texts)
    different = n if clouds.texts is None else len({clouds.texts[k] for k in texts})
    reach = stats.t.ppf(0.975, different - 1)
    return {
        name: reach * np.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum())
        for name in without[0]
        for values in [np.array([entry[name] for entry in without])]
    }


def reaches(layer):
    assert layer.intervals.keys() == {*NUMBERS, *SHARES, "mean_cosine"}
    found = {name: layer.estimate(name) for name in layer.intervals}
    for estimate in found.values():
        assert estimate.interval.high + estimate.interval.low == pytest.approx(2 * estimate.value, abs=1e-12)
    return {name: estimate.interval.high - estimate.value for name, estimate in found.items()}


def test_all_texts_kept_is_the_plain_jackknife():
    clouds = WordEncoder().encode(TEXTS, layers=[1])[1]
    result = token_statistics({1: clouds}, vocabulary=WordEncoder(), min_count=1)
    expected = jackknife_reach(clouds, lambda number: number or None, list(range(len(TEXTS))))
    assert reaches(result[1]) == pytest.approx(expected, rel=1e-9)
    whole = by_definition(clouds, range(len(TEXTS)), lambda number: number or None)
    for name, value in whole.items():
        assert result[1].estimate(name).value == pytest.approx(value, rel=1e-10)
    interval = result[1].intervals["within"]
    assert "population" in interval.answers
    assert interval.method.startswith("jackknife")


def test_the_pool_of_rare_types_is_one_cluster():
    clouds = WordEncoder().encode(TEXTS, layers=[1])[1]
    result = token_statistics({1: clouds}, vocabulary=WordEncoder(), max_types=4, min_count=1)
    kept = {WORDS.index(name) for name in result.types.names}
    clusters = {0: None, **{number: number if number in kept else 99 for number in range(1, len(WORDS))}}
    expected = jackknife_reach(clouds, clusters.get, list(range(len(TEXTS))))
    assert reaches(result[1]) == pytest.approx(expected, rel=1e-9)


def test_copies_of_a_text_are_draws_of_their_own():
    texts = [*TEXTS, *TEXTS[:9], *TEXTS[:3]]
    assert len(set(texts)) < len(TEXTS)
    clouds = WordEncoder().encode(texts, layers=[0])[0]
    result = token_statistics({0: clouds}, vocabulary=WordEncoder())
    expected = jackknife_reach(clouds, lambda number: number or None, list(range(len(texts))))
    assert reaches(result[0]) == pytest.approx(expected, rel=1e-9)
    assert result[0].intervals["within"].method.startswith("jackknife")


def test_a_type_that_only_one_text_has_goes_with_it():
    rows = np.random.default_rng(0).normal(size=(12, 3))
    clouds = TokenClouds.from_arrays(
        [rows[:4], rows[4:7], rows[7:]], token_ids=[np.array(ids) for ids in ([1, 1, 2, 2], [1, 3, 3], [1, 2, 1, 2, 1])]
    )
    result = token_statistics(clouds, min_count=1)
    expected = jackknife_reach(clouds, lambda number: number, [0, 1, 2])
    assert reaches(result[-1]) == pytest.approx(expected, rel=1e-9)


def test_zero_vectors_have_no_direction_to_leave_out():
    generator = np.random.default_rng(1)
    arrays = [generator.normal(size=(5, 3)) + 1 for _ in range(6)]
    plain = token_statistics(TokenClouds.from_arrays(arrays, token_ids=[np.arange(5)] * 6), min_count=1)
    padded = [np.concatenate([array, np.zeros((2, 3))]) for array in arrays]
    with_zeros = token_statistics(TokenClouds.from_arrays(padded, token_ids=[np.arange(7)] * 6), min_count=1)
    name = "mean_cosine"
    assert reaches(with_zeros[-1])[name] == pytest.approx(reaches(plain[-1])[name], rel=1e-9)


def test_a_sample_of_the_texts_tells_nearly_the_same():
    texts = sentences(400, seed=3)
    whole = token_statistics(WordEncoder(), texts, layers=[2])
    copies = sum(text.copies for _, text in whole.moments.sample.items())
    assert len(whole.moments.sample) == 256 < copies < 400
    assert whole.interval_meanings()["corpus"].endswith(f" random {copies} of 400")
    clouds = WordEncoder().encode(texts, layers=[2])[2]
    every = reaches(measured(clouds, 1000, WordEncoder.vocabulary))
    for name, reach in reaches(whole[2]).items():
        assert reach == pytest.approx(every[name], rel=0.15)


# -- coverage -------------------------------------------------------------------------------------------------


def corpus_of(generator, texts=40):
    """Texts of 4 to 20 tokens of 12 types; what the tokens of a text share makes texts, not tokens, the draws."""
    types = np.random.default_rng(7).normal(size=(12, 3))
    arrays, ids = [], []
    for _ in range(texts):
        own = generator.integers(12, size=generator.integers(4, 20))
        scale = np.exp(0.3 * generator.normal())
        arrays.append(scale * (types[own] + generator.normal(size=3) + 0.7 * generator.normal(size=(len(own), 3))))
        ids.append(own)
    return TokenClouds.from_arrays(arrays, token_ids=ids)


def measured(clouds, most_texts=256, vocabulary=None):
    moments = TokenMoments({"grouping": "token type", "special": None}, 100, sample=TextSample(most_texts))
    TokenKeys(moments.names, vocabulary, by_label=False).add(moments, {0: clouds}, None)
    return summarise(moments, min_count=10**6)[0]  # without correlations over types


@pytest.mark.parametrize("sampled", [256, 20])
def test_the_intervals_cover_what_other_corpora_give(sampled):
    generator = np.random.default_rng(0)
    layers = [measured(corpus_of(generator), sampled) for _ in range(250)]
    for name in layers[0].intervals:
        estimates = [layer.estimate(name) for layer in layers]
        target = np.mean([estimate.value for estimate in estimates])
        covered = np.mean([e.interval.low <= target <= e.interval.high for e in estimates])
        assert 0.88 <= covered <= 0.99, name
        spread = np.std([estimate.value for estimate in estimates])
        reach = np.mean([estimate.interval.high - estimate.value for estimate in estimates])
        assert reach / spread == pytest.approx(2.06, rel=0.15), name  # Student's t with 39 (or 19) degrees of freedom


def test_tokens_as_draws_would_be_far_too_sure():
    """With 40 texts of 12 tokens the interval is twice as wide as 480 independent tokens would make it."""
    clouds = corpus_of(np.random.default_rng(5))
    rows = np.concatenate(list(clouds))
    squares = (rows**2).sum(1)
    naive = 1.96 * squares.std() / np.sqrt(len(squares))
    estimate = measured(clouds).estimate("mean_square")
    assert estimate.interval.high - estimate.value > 2 * naive


# -- where there is none --------------------------------------------------------------------------------------


def test_one_text_has_no_interval_and_says_so():
    result = token_statistics(WordEncoder(), ["the cat sat on the mat"], min_count=1)
    assert result[1].intervals == {}
    assert result[1].estimate("within").interval is None
    assert result.layer_table().to_pylist()[0]["within_low"] is None
    assert "corpus" not in result.interval_meanings()


def test_one_text_with_all_ordinary_tokens_has_no_interval():
    clouds = TokenClouds.from_arrays([np.ones((2, 2)), np.ones((1, 2))], token_ids=[np.array([1, 2]), np.array([0])])
    result = token_statistics(clouds, vocabulary=WordEncoder(), min_count=1)
    assert result[-1].intervals == {}


def test_a_text_of_special_tokens_only_is_still_a_text():
    arrays = [np.ones((3, 2)), np.full((2, 2), 2.0), np.ones((1, 2))]
    clouds = TokenClouds.from_arrays(arrays, token_ids=[np.array([1, 2, 1]), np.array([1, 3]), np.array([0])])
    result = token_statistics(clouds, vocabulary=WordEncoder(), min_count=1)
    expected = jackknife_reach(clouds, lambda number: number or None, [0, 1, 2])
    assert reaches(result[-1])["mean_square"] == pytest.approx(expected["mean_square"], rel=1e-9)


def test_a_huge_offset_leaves_the_width_of_the_variances():
    generator = np.random.default_rng(0)
    arrays = [generator.normal(scale=1e-2, size=(10, 4)) for _ in range(12)]
    ids = [generator.integers(1, 5, size=10) for _ in range(12)]
    plain, moved = (
        reaches(token_statistics(TokenClouds.from_arrays([a + offset for a in arrays], token_ids=ids))[-1])
        for offset in (0, 1e6)
    )
    for name in ("variance", "within", "between"):
        assert moved[name] == pytest.approx(plain[name], rel=1e-3)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match=r"'median'; .*mean_square, "):
        token_statistics(WordEncoder(), TEXTS)[0].estimate("median")
