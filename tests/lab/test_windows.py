"""The loss of windows over a corpus: closed forms, floors, merging, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import TokenClouds, windows
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.lab.windows import finish_windows, window_moments


def corpus(texts=12, tokens=24, dimension=10, seed=0, **columns):
    random = np.random.default_rng(seed)
    return TokenClouds.from_arrays([random.normal(size=(tokens + k, dimension)) + 0.5 for k in range(texts)], **columns)


def test_equal_pairs_lose_nothing_at_two():
    random = np.random.default_rng(0)
    clouds = TokenClouds.from_arrays([np.repeat(random.normal(size=(8, 6)), 2, axis=0) for _ in range(5)])
    result = windows(clouds, ratios=[2, 4, 16])
    row = result.at(2)
    assert row.lost.value == pytest.approx(0, abs=1e-12)
    assert row.adaptive.value == pytest.approx(0, abs=1e-12)
    assert row.shuffled > 0.3
    assert result.at(16).lost.value == pytest.approx(1)
    assert result.largest_ratio == 2


def test_the_share_is_that_of_all_texts_together():
    clouds = corpus()
    top = bottom = 0.0
    for X in clouds:
        parts = [X[start : start + 4] for start in range(0, len(X), 4)]
        top += sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)
        bottom += ((X - X.mean(axis=0)) ** 2).sum()
    row = windows(clouds, ratios=[4]).at(4)
    assert row.lost.value == pytest.approx(top / bottom)
    assert row.lost.interval.low < row.lost.value < row.lost.interval.high
    assert row.windows == pytest.approx(np.mean([-(-n // 4) for n in clouds.lengths]))


def test_tokens_without_order_lose_the_floor():
    row = windows(corpus(texts=60, tokens=40), ratios=[4]).at(4)
    assert row.lost.interval.low < row.lost.floor < row.lost.interval.high
    assert row.shuffled == pytest.approx(row.lost.floor, abs=0.02)


@pytest.mark.parametrize("dimension", [10, 64])
def test_noise_saves_what_it_saves_in_random_order(dimension):
    """A direction and cuts that are chosen by the tokens save something of noise: no more than their floors."""
    random = np.random.default_rng(3)
    row = windows(TokenClouds.from_arrays(list(random.normal(size=(80, 48, dimension)))), ratios=[4]).at(4)
    for saved in (row.saved_second_order, row.saved_adaptive):
        half = (saved.interval.high - saved.interval.low) / 2
        assert abs(saved.value - saved.floor) < 2 * half
        assert saved.floor > half


def test_smooth_texts_lose_less_than_the_floor_and_adaptive_windows_less_still():
    random = np.random.default_rng(0)
    sections = [
        np.concatenate([np.tile(random.normal(size=6), (n, 1)) for n in random.integers(2, 12, size=6)])
        for _ in range(12)
    ]
    clouds = TokenClouds.from_arrays([X + 0.05 * random.normal(size=X.shape) for X in sections])
    row = windows(clouds, ratios=[4]).at(4)
    assert row.lost.interval.high < row.lost.floor
    assert row.saved_adaptive.interval.low > 0
    assert row.saved_adaptive.value == pytest.approx(row.lost.value - row.adaptive.value)


def test_a_sink_is_named_by_the_share_that_goes_with_it():
    clouds = corpus()
    sinks = TokenClouds.from_arrays([np.vstack([np.full((1, 10), 300.0), X]) for X in clouds])
    result, plain = windows(sinks, ratios=[4]), windows(clouds, ratios=[4])
    assert result.first_share.value > 0.99
    assert abs(plain.first_share.value) < 0.2
    assert result.at(4).without_first.value == pytest.approx(plain.at(4).lost.value)


def test_distances_between_windows_see_twins():
    """Windows of one document that repeats itself have no distance; tokens in random order do."""
    random = np.random.default_rng(0)
    pieces = [np.tile(random.normal(size=(4, 8)) + 1, (6, 1)) for _ in range(5)]
    row = windows(TokenClouds.from_arrays(pieces), ratios=[4, 24]).at(4)
    assert row.within_socm.value == pytest.approx(0, abs=1e-5)
    assert row.within_socm.floor > 0.01
    assert row.nearest_socm.value > 0.01
    assert row.within_collapse.value == 0


def test_no_distances_where_there_is_one_window():
    row = windows(corpus(texts=1), ratios=[64]).at(64)
    assert row.within_socm.value is None
    assert row.nearest_socm.value is None
    assert row.lost.interval is None


def test_the_worst_window_is_shown_as_text():
    ids = [np.arange(12) for _ in range(4)]
    arrays = [np.random.default_rng(k).normal(scale=0.1, size=(12, 5)) + 1 for k in range(4)]
    arrays[2] = arrays[2].copy()
    arrays[2][5] += 50
    clouds = TokenClouds.from_arrays(arrays, ids=list("abcd"), token_ids=ids)
    vocabulary = Vocabulary.of_words([f"w{k}" for k in range(12)])
    worst = windows(clouds, ratios=[4], vocabulary=vocabulary).worst[0]
    assert (worst.id, worst.start, worst.stop, worst.text) == ("c", 4, 8, "w4 w5 w6 w7")
    assert windows(clouds, ratios=[4]).worst[0].text is None


def test_parts_of_other_settings_are_not_merged():
    first, second = (window_moments(corpus(), ratios=ratios) for ratios in ([2], [4]))
    with pytest.raises(InputError, match="same"):
        first.merge(second)


@pytest.mark.parametrize("ratios", [[], [1], [4, 2], [2, 2], [2.5], ["a"]])
def test_ratios_are_checked(ratios):
    with pytest.raises(InputError, match="ratios"):
        windows(corpus(), ratios=ratios)


def test_texts_with_nothing_to_lose_are_refused():
    with pytest.raises(InputError, match="2 of them"):
        windows(TokenClouds.from_arrays([np.ones((1, 3))] * 2))
    with pytest.raises(InputError, match="loss_limit"):
        finish_windows(window_moments(corpus()), loss_limit=1.5)
