"""Batches: every text once, in order, within the budget, whatever the lengths."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolscope.encoders.batching import BatchPlan, run_batches
from poolscope.encoders.tokens import Tokens

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def tokens_of(lengths: list[int]) -> Tokens:
    """Text k has the ids 100 k, 100 k + 1, …: each token says where it belongs."""
    rows = [[100 * k + position for position in range(length)] for k, length in enumerate(lengths)]
    return Tokens.join(rows, [0] * len(rows))


def echo(batch):
    """A model that gives each token its own id and its position."""
    positions = np.broadcast_to(np.arange(batch.ids.shape[1]), batch.ids.shape)
    return {0: np.stack([batch.ids[batch.keep], positions[batch.keep]], axis=1).astype(np.float64)}


@settings(max_examples=60)
@given(lengths=LENGTHS, budget=st.integers(1, 200), workers=st.integers(1, 3), padding=st.booleans())
def test_every_token_comes_back_to_its_place(lengths, budget, workers, padding):
    plan = BatchPlan(tokens_of(lengths), budget, pad_id=7, padding=padding)
    matrix = run_batches(plan, [echo] * workers)[0]
    expected = [(100 * k + position, position) for k, length in enumerate(lengths) for position in range(length)]
    assert matrix.tolist() == [list(map(float, pair)) for pair in expected]
    assert plan.offsets.tolist() == [0, *np.cumsum(lengths)]


@settings(max_examples=60)
@given(lengths=LENGTHS, budget=st.integers(1, 200), padding=st.booleans())
def test_batches_stay_within_the_budget(lengths, budget, padding):
    plan = BatchPlan(tokens_of(lengths), budget, pad_id=-5, padding=padding)
    groups = list(plan.groups())
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    for batch, group in zip(plan, groups, strict=True):
        assert batch.ids.size <= budget or len(group) == 1
        assert (batch.ids[~batch.mask] == -5).all()
        assert padding or batch.mask.all()
    assert len(plan) == len(groups)


def test_equal_lengths_keep_their_order_and_long_texts_come_first():
    plan = BatchPlan(tokens_of([3, 5, 3, 5, 1]), budget=64)
    assert [group.tolist() for group in plan.groups()] == [[1, 3], [0, 2, 4]]
    plan = BatchPlan(tokens_of([3, 5, 3, 5, 1]), budget=16)  # a batch costs less than the padding of the last text
    assert [group.tolist() for group in plan.groups()] == [[1, 3], [0, 2], [4]]


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=7), budget=st.integers(1, 200))
def test_no_other_cut_pads_less(lengths, budget):
    ordered = sorted(lengths, reverse=True)

    def cost(sizes):
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        if any(size > 1 and size * ordered[start] > budget for start, size in zip(starts, sizes, strict=True)):
            return np.inf
        return sum(size * ordered[start] + budget // 16 for start, size in zip(starts, sizes, strict=True))

    def ways(count):
        return [[]] if count == 0 else [[k, *rest] for k in range(1, count + 1) for rest in ways(count - k)]

    found = [len(group) for group in BatchPlan(tokens_of(lengths), budget).groups()]
    assert cost(found) == min(map(cost, ways(len(lengths))))


def test_skipped_tokens_are_seen_but_not_kept():
    seen = []

    def forward(batch):
        seen.append(batch.mask.sum())
        return echo(batch)

    plan = BatchPlan(tokens_of([4, 3, 6]), budget=100, skip=2)
    assert run_batches(plan, [forward])[0][:, 0].tolist() == [2, 3, 102, 202, 203, 204, 205]
    assert seen == [13]


def test_batch_k_goes_to_worker_k_modulo_n():
    dealt: list[list[int]] = [[], []]

    def worker(number):
        def forward(batch):
            dealt[number].append(batch.ids.shape[1])
            return echo(batch)

        return forward

    run_batches(BatchPlan(tokens_of([9, 8, 7, 6, 5]), budget=1), [worker(0), worker(1)])
    assert dealt == [[9, 7, 5], [8, 6]]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_stops_the_rest(workers):
    calls = []

    def forward(batch):
        calls.append(len(batch.ids))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_batches(BatchPlan(tokens_of([5] * 50), budget=5), [forward] * workers)
    assert len(calls) <= 2 * workers


def test_after_an_error_nothing_new_is_started():
    release, started = threading.Event(), []

    def fails(batch):
        raise ZeroDivisionError

    def waits(batch):
        started.append(batch.ids.shape[1])
        release.wait(timeout=10)
        return echo(batch)

    threading.Timer(0.3, release.set).start()
    with pytest.raises(ZeroDivisionError):
        run_batches(BatchPlan(tokens_of([9, 8, 7, 6, 5]), budget=1), [fails, waits])
    assert started == [8]  # the batch of length 6 was waiting behind it
