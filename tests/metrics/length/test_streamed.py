"""The profile from sums: what it shares with that of few texts, whatever the parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from length_data import with_effect
from poolscope import length_profile
from poolscope.clouds.vectors import Vectors
from poolscope.errors import InputError
from poolscope.metrics.base import METRICS
from poolscope.metrics.length.bins import length_bins
from poolscope.metrics.length.streamed import profile_finish, profile_part
from poolscope.numbers.intervals import leave_one_out_interval, left_out_estimate

COUNT, DRAWN = 3000, 800


@pytest.fixture(scope="module")
def corpus():
    vectors, lengths = with_effect(3, count=COUNT)
    return vectors * np.linspace(1, 2, COUNT)[:, None], lengths


def shard(corpus, start=0, stop=COUNT):
    vectors, lengths = (part[start:stop] for part in corpus)
    return Vectors(vectors, None, lengths, tuple(map(str, range(start, stop))))


@pytest.fixture(scope="module")
def streamed(corpus):
    return profile_finish(profile_part(shard(corpus), most=DRAWN))


def test_sums_over_all_texts_give_what_one_text_at_a_time_gives(corpus, streamed):
    exact = length_profile(*corpus, bins=length_bins(corpus[1]).edges)  # sums by widths of 50
    assert streamed.texts == exact.texts
    assert streamed.mean_cosine == pytest.approx(exact.mean_cosine, abs=1e-6)
    for one, other in zip(exact.bins, streamed.bins, strict=True):
        assert (one.label, one.texts) == (other.label, other.texts)
        assert other.mean_length == pytest.approx(one.mean_length)
        for name in ("cosine", "norm"):
            mine, theirs = getattr(other, name), getattr(one, name)
            assert mine.value == pytest.approx(theirs.value, abs=1e-6)
            assert width(mine.interval) == pytest.approx(width(theirs.interval), rel=0.4)
            assert mine.floor_high - mine.floor_low == pytest.approx(theirs.floor_high - theirs.floor_low, rel=0.4)
            assert mine.floor == pytest.approx(theirs.floor, abs=0.01)
    assert streamed.slope.value == pytest.approx(exact.slope.value, abs=1e-6)
    assert width(streamed.slope.interval) == pytest.approx(width(exact.slope.interval), rel=0.4)
    assert streamed.slope.floor_high == pytest.approx(exact.slope.floor_high, rel=0.4)


def width(interval):
    return interval.high - interval.low


def test_the_cut_and_the_order_of_the_parts_change_nothing(corpus, streamed):
    for cuts in ([0, 10, COUNT], [0, 700, 701, 2000, COUNT]):
        parts = [profile_part(shard(corpus, *cut), start=cut[0], most=DRAWN) for cut in itertools.pairwise(cuts)]
        for order in (parts, parts[::-1]):
            merged = order[0]
            for part in order[1:]:
                merged = merged.merge(part)
            for row, whole in zip(profile_finish(merged).rows(), streamed.rows(), strict=True):
                assert row.pop("bin") == whole["bin"]
                numbers = {name: value for name, value in row.items() if value is not None}
                assert numbers == pytest.approx({name: whole[name] for name in numbers}, rel=1e-9, abs=1e-9)


def test_what_only_a_draw_gives_is_said(streamed):
    assert any(f"{DRAWN:,} drawn ones" in note for note in streamed.notes)
    assert streamed.provenance["settings"]["drawn"] == DRAWN
    assert all(row.distance.value is not None for row in streamed.bins)


def test_many_vectors_take_the_same_way():
    profile = length_profile(*with_effect(3, count=10_100), bins=4)
    assert [row.texts for row in profile.bins] == np.bincount(profile.assignment).tolist()
    assert profile.provenance["settings"]["bins"] == 4
    assert any("drawn ones" in note for note in profile.notes)


def test_groups_of_one_size_give_the_interval_of_leaving_out_groups():
    random = np.random.default_rng(0)
    values = random.exponential(size=(25, 8))
    without = (values.sum() - values.sum(axis=1)) / (values.size - 8)
    expected = leave_one_out_interval(values.mean(), without, texts=values.size, size=8)
    interval = left_out_estimate(values.mean(), without, np.full(25, 8.0)).interval
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    few = left_out_estimate(1.0, np.ones(9), unit="documents")
    assert few.interval is None
    assert "9 documents, 10 " in few.no_interval


def test_groups_of_unequal_sizes_cover_the_mean():
    random, inside = np.random.default_rng(0), 0
    for _ in range(400):
        sizes = random.integers(15, 40, size=50)
        sums = np.array([random.exponential(size=size).sum() for size in sizes])
        value = sums.sum() / sizes.sum()
        without = (sums.sum() - sums) / (sizes.sum() - sizes)
        interval = left_out_estimate(value, without, sizes.astype(float)).interval
        inside += interval.low <= 1 <= interval.high
    assert 0.93 < inside / 400 < 0.97


def test_refusals(corpus):
    with pytest.raises(InputError, match=r"\[0\.0, 10\.0\]; .* hold"):
        profile_part(shard(corpus), bins=[0, 10])
    with pytest.raises(InputError, match="different edges"):
        profile_part(shard(corpus), bins=[0, 1000]).merge(profile_part(shard(corpus)))
    vectors = np.ones((5, 3))
    vectors[2] = 0
    with pytest.raises(InputError, match="position 0: row 3"):
        METRICS["profile"].in_parts([Vectors(vectors, None, np.arange(5), tuple("abcde"))])
