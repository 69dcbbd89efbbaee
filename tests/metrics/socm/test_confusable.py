"""Pairs that averages confuse: who they are, and whether their token clouds differ by more than chance."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm.confusable import Confusion, confusable_pairs, confusion, confusion_of, draw_pairs
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.intervals import chosen_units
from poolscope.numbers.streaming import marks_of


def clouds_of(count, *, spread, shift, tokens=40, dimension=12, seed=0):
    """Twin clouds: the second of each pair has other directions of spread, and a mean moved by `shift`."""
    random = np.random.default_rng(seed)
    twins = []
    for _ in range(count):
        mean = random.normal(size=dimension)
        mean /= np.linalg.norm(mean)
        moved = mean + shift * random.normal(size=dimension) / np.sqrt(dimension)
        moved /= np.linalg.norm(moved)  # another length would be another spread beside it
        scales = np.ones(dimension) if not spread else np.where(np.arange(dimension) < dimension // 2, 1.4, 0.1)
        for centre, scale in ((mean, scales), (moved, scales[::-1])):
            noise = random.normal(size=(tokens, dimension)) * scale * 0.3
            twins.append(centre + noise - noise.mean(axis=0))
    return TokenClouds.from_arrays(twins, texts=[f"twin {k}" for k in range(len(twins))])


def twins_of(clouds):
    pairs = np.arange(len(clouds)).reshape(-1, 2)
    return confusion_of(clouds, socm(clouds, pairs=pairs), np.ones(len(pairs)), chosen_units(len(clouds)), scores=None)


@pytest.mark.parametrize("tokens", [10, 40, 150])
def test_clouds_of_one_distribution_have_no_excess_and_planted_differences_show(tokens):
    """Means moved alike; the spread of the twins drawn from one distribution, or from two."""
    same, other = (twins_of(clouds_of(40, spread=spread, shift=0.1, tokens=tokens)) for spread in (False, True))
    assert same.excess.interval.low < 0 < same.excess.interval.high
    assert same.differing.value <= 0.2
    assert other.excess.interval.low > 0
    assert other.differing.value > 0.8


def test_d_sigma_beside_chance_does_not_hang_on_the_scale():
    clouds = clouds_of(20, spread=True, shift=0.4)
    larger = TokenClouds.from_arrays([7 * cloud for cloud in clouds], texts=list(clouds.texts))
    usual, scaled = twins_of(clouds), twins_of(larger)
    np.testing.assert_allclose(scaled.over_chance, usual.over_chance, rtol=1e-4)
    np.testing.assert_array_equal(scaled.dealt.p, usual.dealt.p)


def test_confusable_pairs_are_of_different_groups_and_drawn_where_there_are_many():
    vectors = np.ones((20, 4)) + 0.01 * np.random.default_rng(0).normal(size=(20, 4))
    groups = np.arange(20) // 2
    assert len(confusable_pairs(vectors, 0.9)) == 190
    pairs = confusable_pairs(vectors, 0.9, groups=groups)
    assert len(pairs) == 180
    assert (groups[pairs[:, 0]] != groups[pairs[:, 1]]).all()
    drawn = draw_pairs(confusable_pairs(vectors, 0.9), marks_of(map(str, range(20))), 30)
    assert len(np.unique(drawn, axis=0)) == 30
    assert len(confusable_pairs(vectors, 1.01)) == 0


# -- the pairs of a corpus --------------------------------------------------------------------------------------------


def corpus(*, seed=0, texts=60):
    """Texts in twos that are near by their means; of every second two, one spreads ten times as far as the other."""
    random = np.random.default_rng(seed)
    clouds, words = [], []
    for k in range(texts):
        mean = np.random.default_rng(1000 + k // 2).normal(size=16)
        noise = random.normal(size=(60, 16)) * (1.0 if k % 4 == 1 else 0.1)
        clouds.append(mean + 0.02 * random.normal(size=16) + noise - noise.mean(axis=0))
        words.append(f"text {k}")
    return TokenClouds.from_arrays(clouds, texts=words)


def test_worst_pairs_are_near_by_their_means_and_those_that_were_planted():
    alike = confusion(corpus(), false_hits=0.0165)
    assert min(alike.cosine) >= alike.cut_off - 1e-6
    assert (alike.count, len(alike)) == (30, 30)
    assert alike.in_words()[0].startswith("30 pairs (1.65%) ")
    worst = alike.worst(15)
    assert {(pair.i % 4, pair.j - pair.i) for pair in worst} == {(0, 1)}
    for apart in (pair.d_sigma for pair in worst):
        assert apart.value > apart.floor_high >= apart.floor >= apart.floor_low
    assert {pair.p for pair in worst} == {1 / 40}
    assert alike.differing.value == pytest.approx(0.5, abs=0.1)
    assert alike.differing.interval.low < 0.5 < alike.differing.interval.high


@pytest.mark.parametrize("named", [True, False], ids=["by words", "by vectors"])
def test_another_order_of_the_texts_gives_the_same_numbers(named):
    """Also where pairs are drawn, and the tokens are few."""
    clouds = corpus()
    clouds = TokenClouds.from_arrays([cloud[:8] for cloud in clouds], texts=list(clouds.texts) if named else None)
    orders = [np.random.default_rng(seed).permutation(len(clouds)) for seed in range(4)]
    usual, *others = (confusion(clouds[order], false_hits=0.1, most=40) for order in orders)
    assert (usual.count, len(usual)) == (177, 40)
    for other in others:
        assert other.excess.value == pytest.approx(usual.excess.value, rel=1e-6)
        assert other.excess.interval.low == pytest.approx(usual.excess.interval.low, abs=1e-8)
        assert other.differing.value == usual.differing.value
        np.testing.assert_allclose(np.sort(other.dealt.floor), np.sort(usual.dealt.floor), rtol=1e-6)
    assert confusion(clouds, false_hits=0.1, most=40, seed=1).excess.value != pytest.approx(
        usual.excess.value, rel=1e-4
    )


def test_pairs_that_tie_at_the_cut_off_are_counted_as_what_they_are():
    """Where all means are one, every pair reaches the cut-off, not 1 % of them."""
    random = np.random.default_rng(0)
    noise = random.normal(size=(40, 20, 8))
    clouds = list(noise - noise.mean(axis=1, keepdims=True) + 3)
    same = confusion(TokenClouds.from_arrays([np.vstack([cloud, 6 - cloud]) for cloud in clouds]))
    assert same.in_words()[0].startswith("All 780 pairs ")
    half = [cloud + (k // 20) * 3 * random.normal(size=8) for k, cloud in enumerate(clouds)]
    tied = confusion(TokenClouds.from_arrays(half), false_hits=0.1)
    assert (tied.count, tied.compared) == (190, 780)
    assert tied.in_words()[0].startswith("190 pairs (24.4%) ")


def test_texts_of_one_document_and_repeated_texts_are_no_confusion():
    clouds = corpus()
    by_two = confusion(clouds, groups=np.arange(60) // 2, false_hits=0.0165)
    assert (by_two.pairs[:, 0] // 2 != by_two.pairs[:, 1] // 2).all()
    assert by_two.documents == 30
    assert by_two.cut_off < confusion(clouds, false_hits=0.0165).cut_off
    same = clouds.described(texts=[f"Text  {k // 2 * 2}" for k in range(60)])
    assert confusion(same, false_hits=0.02).texts == 30


def test_the_tokens_where_two_clouds_differ_are_named():
    """Half of the second text lies far from all other tokens: chance deals all of these to one side in 1 % of deals."""
    clouds = [np.ones((12, 4)) + 0.05 * np.random.default_rng(k).normal(size=(12, 4)) for k in range(20)]
    clouds[1][6:] += np.outer([3, -3] * 3, [1, -1, 0, 0])
    alike = confusion(TokenClouds.from_arrays(clouds), false_hits=0.99, most=400)
    (pair,) = (pair for pair in alike.worst(1))
    differs = pair.differs_j if pair.j == 1 else pair.differs_i
    assert 1 in (pair.i, pair.j)
    assert {name for name, _ in differs} <= {f"position {place}" for place in range(7, 13)}
    assert sum(share for _, share in differs) > 0.5


def test_few_pairs_have_no_mean_that_counts_and_few_texts_are_refused():
    alike = confusion(corpus(texts=20))
    assert not alike.enough
    assert alike.differing.interval is None
    assert alike.excess.interval is None
    with pytest.raises(InputError, match=r"confusion: received [12] "):
        confusion(TokenClouds.from_arrays([np.eye(2)] * 2))
    with pytest.raises(InputError, match="groups"):
        confusion(corpus(), groups=[1, 2])


def test_a_confusion_comes_back_from_its_file(tmp_path):
    alike = confusion(corpus(), false_hits=0.0165)
    alike.save(tmp_path / "alike.json")
    again = Confusion.load(tmp_path / "alike.json")
    assert again.to_dict(arrays=True) == alike.to_dict(arrays=True)
    assert again.to_table().num_rows == 30
    with pytest.raises(InputError, match="no clouds"):
        again.worst()


def test_intervals_of_confusable_pairs_are_over_documents_where_these_are_known():
    """Chunks of one document share its shape, so that documents are the draws."""
    random = np.random.default_rng(3)
    shapes = np.exp(random.normal(size=(40, 8)))
    clouds = TokenClouds.from_arrays(
        [1 + 0.3 * shape * random.normal(size=(30, 8)) for shape in shapes for _ in range(3)],
        texts=[f"text {k}" for k in range(120)],
    )
    told, untold = (confusion(clouds, groups=groups, false_hits=0.2) for groups in (np.repeat(np.arange(40), 3), None))
    for estimate in (told.d_sigma, told.excess, told.differing):
        assert estimate.interval.unit == "documents"
    assert untold.excess.interval.unit == "texts"
    lengths = [found.d_sigma.interval.high - found.d_sigma.interval.low for found in (told, untold)]
    assert lengths[0] > lengths[1]
