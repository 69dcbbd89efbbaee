"""Scores of unrelated pairs: floor, spread and cut-off against the loop over pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.base import METRICS
from poolscope.metrics.scores import isotropic_quantile, score_distribution, scores_figure
from poolscope.numbers.cosines import equal_bins


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(150, 12)) + 0.5


def test_floor_spread_and_cut_off_are_those_of_all_pairs(vectors):
    found, scores = score_distribution(vectors), 1 - pdist(vectors, "cosine")
    assert found.pairs == len(scores) == found.counts.sum()
    assert found.mean.value == pytest.approx(scores.mean(), abs=1e-6)
    assert found.deviation == pytest.approx(scores.std(), abs=1e-5)
    assert found.cut_off.value == pytest.approx(np.quantile(scores, 0.99), abs=1e-5)
    assert (scores >= found.cut_off.value).mean() == pytest.approx(0.01, abs=1e-3)


def test_the_nearest_score_is_the_median_of_the_best_per_text(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table = unit @ unit.T
    np.fill_diagonal(table, -2)
    assert score_distribution(vectors).nearest == pytest.approx(np.median(table.max(axis=1)), abs=1e-6)


def test_more_false_hits_mean_a_lower_cut_off(vectors):
    cuts = [score_distribution(vectors, false_hits=share).cut_off.value for share in (0.001, 0.01, 0.1)]
    assert cuts == sorted(cuts, reverse=True)
    assert cuts[0] > cuts[2]


def test_the_interval_of_the_cut_off_holds_the_truth_about_as_often_as_it_says():
    """Isotropic directions: the true cut-off is known."""
    truth = isotropic_quantile(0.95, 5)
    random = np.random.default_rng(3)
    held = []
    for _ in range(100):
        interval = score_distribution(random.normal(size=(60, 5)), false_hits=0.05).cut_off.interval
        held.append(interval.low <= truth <= interval.high)
    assert 0.85 <= np.mean(held) <= 1.0


def test_pairs_that_share_a_text_widen_the_interval():
    """One direction that a fifth of the texts share: the texts, not the pairs, are the draws."""
    random = np.random.default_rng(4)
    vectors = random.normal(size=(100, 20))
    vectors[:20] += 6 * random.normal(size=20)
    interval = score_distribution(vectors, false_hits=0.05).cut_off.interval
    scores = 1 - pdist(vectors, "cosine")
    plain = np.quantile(scores, 0.95) - np.quantile(scores, 0.95 - 2 * np.sqrt(0.05 * 0.95 / len(scores)))
    assert interval.high - interval.low > 4 * plain


def test_isotropic_quantile_is_that_of_simulated_directions():
    random = np.random.default_rng(5)
    left, right = random.normal(size=(2, 200_000, 7))
    cosines = np.einsum("ij,ij->i", left, right) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert isotropic_quantile(0.99, 7) == pytest.approx(np.quantile(cosines, 0.99), abs=0.005)
    assert isotropic_quantile(0.99, 1) == 1.0
    assert isotropic_quantile(0.2, 1) == -1.0


def test_a_large_corpus_is_drawn_from_and_the_draw_is_kept(vectors):
    found, again = (score_distribution(vectors, most=50, seed=2) for _ in range(2))
    assert found.texts == 50
    assert found.pairs == 1225
    assert found.positions.tolist() == again.positions.tolist()
    assert found.cut_off.value == score_distribution(vectors[found.positions]).cut_off.value
    assert found.positions.tolist() != score_distribution(vectors, most=50, seed=3).positions.tolist()


def test_two_texts_have_one_pair_and_no_interval():
    found = score_distribution([[1.0, 0.0], [1.0, 1.0]])
    assert found.pairs == 1
    assert found.cut_off.value == pytest.approx(np.sqrt(0.5), abs=1e-6)
    assert found.cut_off.interval is None


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_share_outside_0_and_1_is_refused(vectors, share):
    with pytest.raises(InputError, match="false_hits"):
        score_distribution(vectors, false_hits=share)


def test_a_share_of_less_than_one_pair_gives_the_highest_score_and_says_so(vectors):
    few = score_distribution(vectors[:12], false_hits=0.01)  # 66 pairs
    assert not few.placed
    assert "2%" not in few.cut_off_name
    assert few.cut_off.value == pytest.approx((1 - pdist(vectors[:12], "cosine")).max(), abs=1e-6)
    enough = score_distribution(vectors[:12], false_hits=0.02)
    assert enough.placed
    assert " 2% " in enough.cut_off_name
    assert enough.cut_off_name in scores_figure(enough).layout.title.text
    assert few.cut_off_name in scores_figure(few).layout.title.text
    assert "their thresholds" in scores_figure(few, enough, names=["few", "enough"]).layout.title.text
    assert enough.cut_off.value < few.cut_off.value


@pytest.mark.parametrize(("texts", "known"), [(12, False), (40, True)])
def test_few_pairs_give_no_interval_of_a_rare_share(texts, known):
    vectors = np.random.default_rng(0).normal(size=(texts, 8))
    assert (score_distribution(vectors, false_hits=0.01).cut_off.interval is not None) == known


def test_bins_of_values_that_differ_in_their_last_digit():
    values = np.array([1 - 2**-53, 1.0] * 5)
    with pytest.raises(ValueError, match="many bins"):
        np.histogram(values, 60)
    assert equal_bins(values, 60)[0].sum() == 10


# -- related pairs among random ones ----------------------------------------------------------------------------------


def corpus(documents, chunks, topics, seed, dimension=48):
    """Chunks of documents of some topics, one after the other: vectors and the document of each."""
    random = np.random.default_rng(seed)
    scale = 0.97 ** np.arange(dimension)
    parts = [random.normal(size=(count, dimension)) * scale for count in (topics, documents, documents * chunks, 1)]
    groups = np.repeat(np.arange(documents), chunks)
    subject = random.integers(topics, size=documents)[groups]
    vectors = 0.5 * parts[3] + 0.59 * parts[0][subject] + 0.5 * parts[1][groups] + 0.63 * parts[2]
    return vectors, groups


@pytest.mark.parametrize("topics", [3, 20, 200])
def test_nothing_is_called_related_where_every_text_is_a_document_of_its_own(topics):
    claims = 0
    for seed in range(6):
        vectors, _ = corpus(240, 1, topics, seed)
        claims += score_distribution(vectors).others_below is not None
    assert claims == 0


@pytest.mark.parametrize("topics", [20, 200])
def test_related_pairs_are_seen_and_bound_the_cut_off_for_the_others(topics):
    """The bound is held by the true cut-off of pairs of different documents, and lower than that of random pairs."""
    seen = 0
    for seed in range(6):
        vectors, groups = corpus(30, 8, topics, seed)
        result, truth = score_distribution(vectors), score_distribution(vectors, groups=groups)
        assert truth.related is None
        if result.others_below is not None:
            seen += 1
            assert truth.cut_off.value <= result.others_below <= result.cut_off.value
            assert result.related.value <= 7 / 239 * 1.3  # too few rather than too many
    assert seen >= 5


def test_a_share_of_related_pairs_is_never_below_0():
    """Where all scores are one, none lies beyond what the rest predicts, not even as many as pass a cut-off."""
    related = score_distribution(np.ones((150, 8))).related
    assert (related.value, related.interval.low, related.interval.high) == (0, 0, 0)


def test_clouds_are_refused_in_words():
    clouds = TokenClouds.from_arrays([np.ones((n, 3)) for n in (2, 3)])
    with pytest.raises(InputError, match="vectors: received"):
        METRICS["scores"].in_parts([clouds])


def test_too_few_texts_tell_nothing_of_related_pairs():
    vectors, _ = corpus(40, 1, 5, 0)
    assert score_distribution(vectors).related is None
