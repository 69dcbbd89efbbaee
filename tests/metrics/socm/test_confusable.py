"""Pairs that averages confuse: who they are, and how much of their difference the averages do not see."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.clouds import TokenClouds
from poolscope.metrics.socm.confusable import confusable_pairs, hidden_share, sampling_floors
from poolscope.metrics.socm.measure import socm


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
    return TokenClouds.from_arrays(twins)


def share_of(clouds):
    pairs = np.arange(len(clouds)).reshape(-1, 2)
    columns = socm(clouds, pairs=pairs).pairs
    floors = sampling_floors(clouds, np.arange(len(clouds)))[pairs].mean(axis=1)
    return hidden_share(columns.mean_distance, columns.covariance_distance, floors).mean()


def test_the_hidden_share_is_near_zero_for_equal_clouds_and_grows_with_what_is_planted():
    """Means moved alike; the spread of the twins drawn from one distribution, or from two."""
    same, other = (share_of(clouds_of(40, spread=spread, shift=0.4, tokens=150)) for spread in (False, True))
    assert same < 0.1
    assert other > 0.8
    assert share_of(clouds_of(40, spread=True, shift=1.2, tokens=150)) < other  # the average sees more of it


def test_of_few_tokens_the_hidden_share_is_an_upper_bound():
    """Tokens drawn anew from ten stay where these ten are: the floor takes off less than sampling gives."""
    shares = [share_of(clouds_of(40, spread=False, shift=0.4, tokens=tokens)) for tokens in (10, 40, 150)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.4


def test_the_hidden_share_does_not_hang_on_the_scale():
    clouds = clouds_of(20, spread=True, shift=0.4)
    larger = TokenClouds.from_arrays([7 * cloud for cloud in clouds])
    assert share_of(larger) == pytest.approx(share_of(clouds), rel=1e-4)


def test_confusable_pairs_are_of_different_groups_and_drawn_where_there_are_many():
    vectors = np.ones((20, 4)) + 0.01 * np.random.default_rng(0).normal(size=(20, 4))
    groups = np.arange(20) // 2
    assert len(confusable_pairs(vectors, 0.9)) == 190
    pairs = confusable_pairs(vectors, 0.9, groups=groups)
    assert len(pairs) == 180
    assert (groups[pairs[:, 0]] != groups[pairs[:, 1]]).all()
    drawn = confusable_pairs(vectors, 0.9, most=30, seed=1)
    assert len(np.unique(drawn, axis=0)) == 30
    assert len(confusable_pairs(vectors, 1.01)) == 0
