"""Grouped moments: closed forms, an independent two-pass computation, and what must change nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolscope.errors import DegenerateCloudError
from poolscope.numbers.streaming import DirectionSum, GroupedMoments, Grouping, measure


def two_pass(rows, keys):
    """Straight from the definitions, group by group: count, mean, Σ‖x − μ‖², Σ‖x‖² in rising order of the key."""
    found = []
    for key in sorted(set(keys.tolist())):
        part = rows[keys == key].astype(np.longdouble)
        centre = part.mean(axis=0)
        found.append((len(part), centre, ((part - centre) ** 2).sum(), (part**2).sum()))
    counts, means, scatters, squares = zip(*found, strict=True)
    return np.array(counts), np.array(means, float), np.array(scatters, float), np.array(squares, float)


def assert_same(moments, expected, *, tolerance=1e-10):
    counts, means, scatters, squares = expected
    assert moments.counts.tolist() == counts.tolist()
    scale = np.abs(means).max() + 1e-300
    np.testing.assert_allclose(moments.means, means, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(moments.scatters, scatters, rtol=tolerance, atol=tolerance * max(scatters.max(), 1e-300))
    np.testing.assert_allclose(moments.squares, squares, rtol=tolerance)


def data(count=500, dimension=7, groups=23, *, seed=0, dtype=np.float64):
    generator = np.random.default_rng(seed)
    keys = (generator.zipf(1.4, size=count) % groups).astype(np.int64)
    rows = generator.normal(size=(groups, dimension))[keys] * 3 + generator.normal(size=(count, dimension))
    return rows.astype(dtype), keys


def streamed(rows, keys, cuts):
    """One state from pieces, each merged into it."""
    total = GroupedMoments.empty(int(keys.max()) + 1, rows.shape[1])
    for part in cuts:
        grouping = Grouping.of(keys[part])
        total.merge(grouping.keys, measure(rows[part], grouping)[0])
    return total.select(total.counts > 0)


def test_grouping_gives_each_row_to_its_group():
    keys = np.array([4, 2, 4, 4, 9])
    grouping = Grouping.of(keys)
    assert grouping.keys.tolist() == [2, 4, 9]
    parts = [grouping.order[a:b].tolist() for a, b in zip(grouping.bounds[:-1], grouping.bounds[1:], strict=True)]
    assert parts == [[1], [0, 2, 3], [4]]


def test_no_rows_are_no_groups():
    moments, directions = measure(np.zeros((0, 3)), Grouping.of(np.zeros(0, np.int64)))
    assert len(moments) == 0
    assert directions.count == 0
    assert directions.mean_cosine is None


def test_values_known_by_arithmetic():
    rows = np.array([[3.0, 4.0], [5.0, 4.0], [0.0, 2.0]])
    moments, directions = measure(rows, Grouping.of(np.array([1, 1, 0])))
    assert moments.mean_squares.tolist() == [4.0, (25 + 41) / 2]
    assert moments.norms_of_means.tolist() == [4.0, 32.0]
    assert moments.variances.tolist() == [0.0, 1.0]
    assert directions.count == 3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equal_to_two_passes_over_the_data(dtype):
    rows, keys = data(dtype=dtype)
    assert_same(measure(rows, Grouping.of(keys))[0], two_pass(rows, keys))


@pytest.mark.parametrize("elements", [1, 7, 50, 1 << 18])
def test_the_size_of_the_blocks_changes_nothing(elements):
    rows, keys = data()
    expected, directions = measure(rows, Grouping.of(keys))
    found, found_directions = measure(rows, Grouping.of(keys), block_elements=elements)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-14)
    np.testing.assert_allclose(found.scatters, expected.scatters, rtol=1e-13)
    np.testing.assert_allclose(found_directions.total, directions.total, rtol=1e-13, atol=1e-13)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(1, 199), max_size=6), shuffled=st.booleans())
def test_pieces_in_any_order_give_the_same(seed, cuts, shuffled):
    rows, keys = data(200, seed=seed)
    bounds = sorted({0, 200, *cuts})
    order = np.random.default_rng(seed).permutation(200) if shuffled else np.arange(200)
    pieces = [order[a:b] for a, b in pairwise(bounds)]
    assert_same(streamed(rows, keys, pieces[::-1] if shuffled else pieces), two_pass(rows, keys))


def test_one_row_at_a_time_is_the_update_of_welford():
    rows, keys = data(80)
    assert_same(streamed(rows, keys, [np.array([k]) for k in range(80)]), two_pass(rows, keys))


@pytest.mark.parametrize("offset", [1e6, -1e8])
def test_huge_offsets_cost_no_digits(offset):
    """Σ‖x‖² − n‖μ‖² would lose all of a variance of 1e-6 here: 1e12 · 2⁻⁵² is 2e-4.

    The vectors themselves are rounded to 2⁻⁵² of the offset, and so are the means: that is the tolerance.
    """
    generator = np.random.default_rng(0)
    rows = offset + generator.normal(scale=1e-3, size=(400, 5))
    keys = generator.integers(3, size=400)
    expected = two_pass(rows, keys)
    tolerance = abs(offset) * 2**-52 / 1e-3
    pieces = np.array_split(np.arange(400), 9)
    for found in (measure(rows, Grouping.of(keys))[0], streamed(rows, keys, pieces)):
        np.testing.assert_allclose(found.scatters, expected[2], rtol=tolerance)
    naive = (rows**2).sum() - len(rows) * (rows.mean(axis=0) ** 2).sum()
    assert abs(naive / two_pass(rows, np.zeros(400))[2][0] - 1) > 0.01


def test_float16_is_summed_in_float64():
    rows = np.full((5000, 2), 100.0, np.float16)  # Σ‖x‖² is 1e8, beyond the largest float16
    moments, _ = measure(rows, Grouping.of(np.zeros(5000, np.int64)))
    assert moments.squares[0] == 1e8
    assert moments.variances[0] == 0


def test_union_and_decomposition():
    rows, keys = data()
    moments, _ = measure(rows, Grouping.of(keys))
    whole = moments.union()
    assert_same(whole, two_pass(rows, np.zeros(len(rows))))
    parts = moments.decompose()
    within = sum(((rows[keys == k] - rows[keys == k].mean(0)) ** 2).sum() for k in set(keys.tolist())) / len(rows)
    assert parts.count == 500
    assert parts.within == pytest.approx(within, rel=1e-12)
    assert parts.variance == pytest.approx(rows.var(axis=0).sum(), rel=1e-12)
    assert parts.mean_square == pytest.approx(parts.norm_of_mean + parts.within + parts.between, rel=1e-12)
    assert sum(parts.shares) == pytest.approx(1, abs=1e-12)
    assert parts.residual < 1e-12


def test_residual_shows_a_sum_that_does_not_close():
    moments, _ = measure(np.eye(3), Grouping.of(np.arange(3)))
    moments.squares *= 2
    assert moments.decompose().residual == pytest.approx(0.5)


def test_decomposition_of_zero_vectors():
    moments, directions = measure(np.zeros((4, 3)), Grouping.of(np.array([0, 0, 1, 1])))
    parts = moments.decompose()
    assert parts.shares == (0.0, 0.0, 0.0)
    assert parts.residual == 0
    assert (directions.count, directions.zeros) == (0, 4)


def test_join_puts_groups_behind_each_other_and_grow_makes_room():
    first, _ = measure(np.eye(2), Grouping.of(np.array([0, 1])))
    joined = first.join(first)
    assert joined.counts.tolist() == [1, 1, 1, 1]
    joined.grow(5)
    assert len(joined) == 8
    assert joined.counts.sum() == 4
    joined.grow(3)
    assert len(joined) == 8


def test_empty_groups_take_in_and_give_nothing():
    state = GroupedMoments.empty(3, 2)
    state.merge(np.array([1]), GroupedMoments.empty(1, 2))
    assert state.union().counts.tolist() == [0]
    rows, _ = measure(np.array([[1.0, 2.0]]), Grouping.of(np.array([0])))
    state.merge(np.array([1]), rows)
    assert state.means[1].tolist() == [1.0, 2.0]
    assert state.scatters[1] == 0


def test_mean_cosine_is_that_of_all_pairs():
    rows, keys = data(60)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = (cosines.sum() - 60) / (60 * 59)
    _, directions = measure(rows, Grouping.of(keys))
    assert directions.mean_cosine == pytest.approx(expected, abs=1e-12)


def test_directions_are_those_of_the_chosen_groups():
    rows = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [5.0, 5.0]])
    _, directions = measure(rows, Grouping.of(np.array([1, 1, 1, 0])), directed=np.array([False, True]))
    assert directions.total.tolist() == [1.0, 1.0]
    assert (directions.count, directions.zeros) == (2, 1)
    other = DirectionSum(np.array([1.0, 0.0]), count=1, zeros=2)
    directions.add(other)
    assert (directions.total.tolist(), directions.count, directions.zeros) == ([2.0, 1.0], 3, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(bad):
    rows = np.ones((3, 2))
    rows[1, 0] = bad
    with pytest.raises(DegenerateCloudError, match="be finite"):
        measure(rows, Grouping.of(np.zeros(3, np.int64)))
