"""The profile by length: closed forms, coverage of the slope's interval, with and without an effect."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from length_data import turning_with_length, with_effect, without_effect
from poolscope import length_profile
from poolscope.errors import InputError
from poolscope.metrics.length.bins import length_bins, narrow_edges
from poolscope.metrics.length.profile import LengthProfile, bin_slope
from poolscope.numbers.cosines import effective_rank, grouped_cosines, pair_cosine
from poolscope.numbers.intervals import (
    Estimate,
    chosen_units,
    difference_of_means,
    leave_one_out_interval,
    left_out_estimate,
    mean_estimate,
)
from poolscope.numbers.ranking import unit_rows


def brute_cosine(unit):
    gram = unit.astype(float) @ unit.T.astype(float)
    m = len(gram)
    return (gram.sum() - np.trace(gram)) / (m * (m - 1))


# -- statistics against the plain definition ----------------------------------------------------------------------


def test_cosines_and_all_that_leave_one_out_are_those_of_the_gram_matrix():
    vectors, _ = without_effect(0, count=60, dimension=5)
    unit, groups = unit_rows(vectors, "v"), np.arange(60) % 3
    for group, found in enumerate(grouped_cosines(unit, groups, 3)):
        own = unit[groups == group]
        assert found.value == pytest.approx(brute_cosine(own), abs=1e-6)
        without = [brute_cosine(np.delete(own, k, axis=0)) for k in range(len(own))]
        np.testing.assert_allclose(found.without, without, atol=1e-6)


def test_the_slope_and_all_that_leave_one_out_are_weighted_least_squares():
    vectors, lengths = without_effect(1, count=80, dimension=6)
    unit, logs = unit_rows(vectors, "v"), np.log2(lengths)
    groups = length_bins(lengths, 4, min_texts=10).of

    def fit(keep):
        rows = [np.flatnonzero(keep & (groups == group)) for group in range(4)]
        x = [logs[row].mean() for row in rows]
        y = [brute_cosine(unit[row]) for row in rows]
        return np.polyfit(x, y, 1, w=np.sqrt([len(row) for row in rows]))[0]

    slope = bin_slope(grouped_cosines(unit, groups, 4), logs, groups)
    everyone = np.ones(80, dtype=bool)
    assert slope.value == pytest.approx(fit(everyone), abs=1e-6)
    without = np.array([fit(everyone & (np.arange(80) != left_out)) for left_out in range(80)])
    expected = leave_one_out_interval(slope.value, without)
    assert (slope.interval.low, slope.interval.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_the_slope_leaves_out_whole_documents():
    vectors, lengths = without_effect(1, count=80, dimension=6)
    documents = np.random.default_rng(0).integers(12, size=80)
    unit, logs = unit_rows(vectors, "v"), np.log2(lengths)
    groups, units = length_bins(lengths, 4, min_texts=10).of, chosen_units(80, documents)
    slope = bin_slope(grouped_cosines(unit, groups, 4, units), logs, groups, units)
    assert slope.interval.unit == "documents"
    without = []
    for number in range(12):
        kept = units.of != number
        without.append(bin_slope(grouped_cosines(unit[kept], groups[kept], 4), logs[kept], groups[kept]).value)
    expected = left_out_estimate(slope.value, np.array(without), units.sizes).interval
    assert (slope.interval.low, slope.interval.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def clustered(seed, *, documents=40, chunks=6, dimension=16):
    """Chunks that share the direction and the length of their document; length has no effect on the cosine."""
    random = np.random.default_rng(seed)
    own = np.repeat(np.arange(documents), chunks)
    vectors = 1 + random.standard_normal((documents, dimension))[own] + random.standard_normal((len(own), dimension))
    return vectors, np.exp2(random.uniform(4, 8, documents)[own] + random.normal(0, 0.2, len(own))).astype(int), own


def test_by_documents_the_slope_covers_and_by_texts_it_does_not():
    covered = np.zeros(2)
    for seed in range(100):
        vectors, lengths, documents = clustered(seed)
        for number, groups in enumerate((documents, None)):
            slope = length_profile(vectors, lengths, groups=groups, bins=4, shuffles=20).slope
            covered[number] += slope.interval.low <= 0 <= slope.interval.high
    assert covered[0] >= 90
    assert covered[1] <= 80


def test_the_floor_of_the_slope_shuffles_whole_documents():
    vectors, lengths, documents = clustered(0)
    by_text, by_document = (length_profile(vectors, lengths, groups=groups).slope for groups in (None, documents))
    widths = [slope.floor_high - slope.floor_low for slope in (by_text, by_document)]
    assert widths[1] > 1.5 * widths[0]


def test_the_order_of_the_texts_changes_no_number():
    vectors, lengths, documents = clustered(0, documents=20)
    names = [f"text {k}" for k in range(len(lengths))]
    order = np.random.default_rng(9).permutation(len(lengths))
    mixed = vectors[order], lengths[order]
    first = length_profile(vectors, lengths, groups=documents, texts=names)
    blanks = [f" {names[k].replace(' ', '  ')} " for k in order]
    assert length_profile(*mixed, groups=documents[order], texts=blanks).rows() == first.rows()
    assert length_profile(*mixed).rows() == length_profile(vectors, lengths).rows()
    assert length_profile(*mixed).slope == length_profile(vectors, lengths).slope


def test_texts_of_one_length_that_are_alike_do_not_make_long_ones_look_alike():
    """A bin such as 0–50 holds lengths of three doublings and has a lower cosine for that: a rise that is not there."""
    narrow = [length_profile(*turning_with_length(seed), shuffles=20).slope for seed in range(6)]
    assert max(abs(slope.value) for slope in narrow) < 0.006
    assert sum(slope.interval.low > 0 for slope in narrow) <= 1
    vectors, lengths = turning_with_length(0)
    wide = length_profile(vectors, lengths, bins=[*range(0, 300, 50), 600], shuffles=20).slope
    assert wide.value > 0.006
    assert wide.interval.low > 0


def test_narrow_bins_are_many_and_each_has_enough_texts():
    random = np.random.default_rng(0)
    lengths = np.minimum(np.exp(random.normal(3.5, 1, 400)).astype(int) + 3, 64)
    cut = int((lengths == 64).sum())
    edges = narrow_edges(*np.unique(lengths, return_counts=True))
    counts = np.histogram(lengths, edges)[0]
    assert counts.min() >= 20
    assert len(counts) > 8
    assert (edges[-2:], counts[-1]) == ([64, 65], cut)  # what was cut has a bin of its own
    many = narrow_edges(*np.unique(random.integers(1, 500, 5000), return_counts=True))
    assert 18 <= len(many) - 1 <= 20
    assert narrow_edges(np.array([12]), np.array([50])) == [12, 13]
    assert narrow_edges(np.array([3, 8]), np.array([2, 1])) == [3, 9]


def test_a_mean_gets_the_t_interval():
    values = np.random.default_rng(0).exponential(size=30)
    even = np.concatenate([values, -values])  # without skewness
    found = mean_estimate(even)
    expected = stats.ttest_1samp(even, 0).confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))
    assert mean_estimate(values[:2]).interval is None
    assert mean_estimate(values[:0]).value is None
    assert leave_one_out_interval(1.0, np.array([1.0, np.nan, 1.0])) is None
    gap = difference_of_means(values[:10], values[10:])
    welch = stats.ttest_ind(values[:10], values[10:], equal_var=False).confidence_interval()
    assert (gap.interval.low, gap.interval.high) == pytest.approx((welch.low, welch.high))
    assert difference_of_means(np.ones(3), np.zeros(3)).interval is None


def test_effective_rank_counts_directions():
    axes = np.concatenate([np.eye(6), -np.eye(6)])
    assert effective_rank(axes) == pytest.approx(6)
    assert effective_rank(np.ones((5, 3))) == 0
    line = np.outer(np.linspace(-1, 1, 9), [3.0, 4.0])
    assert effective_rank(line) == pytest.approx(1)
    values = np.linalg.svd(axes - axes.mean(axis=0), compute_uv=False)
    assert effective_rank(axes.T) != pytest.approx(effective_rank(axes))
    shares = values / values.sum()
    assert effective_rank(axes) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))


def test_a_single_text_has_no_pair():
    found = pair_cosine(np.ones((1, 1), dtype=np.float32))
    assert np.isnan(found.value)
    assert found.estimate.value is None


# -- bins ---------------------------------------------------------------------------------------------------------


def test_fixed_bins_are_fifty_wide_and_merged_where_thin():
    lengths = np.array([10] * 20 + [60] * 5 + [120] * 15 + [180] * 3)
    found = length_bins(lengths)
    assert found.labels == ("0–50", "50–200")
    assert found.counts.tolist() == [20, 23]
    assert found.merged == ("50–100, 100–150, 150–200 → 50–200",)
    assert "50–100, 100–150, 150–200 → 50–200" in found.notes()[0]
    assert length_bins(lengths, min_texts=1).labels == ("0–50", "50–100", "100–150", "150–200")


def test_short_texts_are_parted_in_fifths():
    lengths = np.repeat(np.arange(1, 100), 2)
    assert len(length_bins(lengths)) == 5
    assert length_bins(lengths).labels == length_bins(lengths, 5).labels
    long = np.concatenate([lengths, np.full(30, 130)])  # over a tenth of them
    assert length_bins(long).labels == ("0–50", "50–100", "100–150")


def test_quantile_bins_hold_about_as_many_texts():
    lengths = np.random.default_rng(0).permutation(np.arange(1, 101))
    found = length_bins(lengths, 4)
    assert found.counts.sum() == 100
    assert np.ptp(found.counts) <= 2
    ties = length_bins(np.array([5] * 50 + [9] * 50), 5, min_texts=1)
    assert ties.labels == ("5–9", "9–10")
    assert ties.counts.tolist() == [50, 50]
    assert length_bins(np.full(7, 3), 5).labels == ("3–4",)


def test_given_edges_hold_the_upper_end():
    found = length_bins(np.array([0, 4, 5, 10]), [0, 5, 10], min_texts=1)
    assert found.of.tolist() == [0, 0, 1, 1]
    for edges in ([0, 5], [5, 0, 10], [3, 20], [0]):
        with pytest.raises(InputError, match="0 to 10"):
            length_bins(np.array([0, 4, 5, 10]), edges)
    for number in (0, 2.5, True, np.nan, "4"):
        with pytest.raises(InputError, match=f"bins: received {number!r};"):
            length_bins(np.array([1, 2]), number)
    for number in (np.int64(2), 2.0, np.float32(2)):
        assert length_bins(np.arange(60), number).labels == length_bins(np.arange(60), 2).labels == ("0–29", "29–60")
    with pytest.raises(InputError, match="min_texts: received 0"):
        length_bins(np.array([1, 2]), min_texts=0)


@pytest.mark.parametrize("longest", [0, 49, 50, 999, 1000, 12345])
def test_every_length_has_its_bin(longest):
    lengths = np.linspace(0, longest, 200).astype(int)
    found = length_bins(lengths, min_texts=1)
    assert found.counts.sum() == 200
    assert 1 <= len(found) <= 20
    for length, number in zip(lengths, found.of, strict=True):
        assert found.edges[number] <= length < found.edges[number + 1]


# -- the profile --------------------------------------------------------------------------------------------------


def test_a_known_effect_is_recovered_within_its_interval():
    inside, slopes = 0, []
    for seed in range(100):
        vectors, lengths = with_effect(seed, slope=0.03)
        unit, bins = unit_rows(vectors, "v"), length_bins(lengths, 6)
        slope = bin_slope(grouped_cosines(unit, bins.of, len(bins)), np.log2(lengths), bins.of)
        inside += slope.interval.low <= 0.03 <= slope.interval.high
        slopes.append(slope.value)
    assert np.mean(slopes) == pytest.approx(0.03, abs=0.0015)
    assert inside >= 90  # of 100 intervals of 95 %: fewer than 90 have a probability of 1 %


def test_an_effect_is_seen():
    strong = length_profile(*with_effect(0, slope=0.06))
    assert strong.slope.value > strong.slope.interval.low > strong.slope.floor_high > 0
    assert strong.slope.floor_low < strong.slope.floor < strong.slope.floor_high
    first, last = strong.bins[0], strong.bins[-1]
    assert last.cosine.value > last.cosine.floor_high > last.cosine.floor
    assert first.cosine.value < first.cosine.floor_low
    assert last.distance.value < last.distance.floor_low
    assert last.same_bin_neighbours.value > 0


def test_statistics_of_a_bin_are_those_of_its_texts():
    vectors, lengths = without_effect(3, count=200, dimension=8)
    found = length_profile(vectors, lengths, bins=3, neighbours=2)
    unit = unit_rows(vectors, "v").astype(float)
    centre = unit.mean(axis=0)
    gram = unit @ unit.T
    np.fill_diagonal(gram, -2)
    nearest = np.argsort(-gram, axis=1)[:, :2]
    for number, row in enumerate(found.bins):
        member = found.assignment == number
        assert row.texts == member.sum()
        assert row.mean_length == pytest.approx(np.exp(np.log(lengths[member]).mean()))
        assert row.cosine.value == pytest.approx(brute_cosine(unit[member]), abs=1e-6)
        assert row.distance.value == pytest.approx(np.linalg.norm(unit[member] - centre, axis=1).mean(), abs=1e-6)
        assert row.norm.value == pytest.approx(np.linalg.norm(vectors[member], axis=1).mean())
        share = (found.assignment[nearest[member]] == number).mean()
        assert row.same_bin_neighbours.value == pytest.approx(share)
        assert row.same_bin_neighbours.floor == pytest.approx((row.texts - 1) / 199, abs=0.03)
        assert 1 < row.effective_rank.value <= 8
        assert row.effective_rank.floor_low < row.effective_rank.floor_high
    assert found.mean_cosine == pytest.approx(brute_cosine(unit), abs=1e-6)


def test_scale_order_and_seed():
    vectors, lengths = with_effect(1)
    names = [f"text {k}" for k in range(len(lengths))]
    found = length_profile(vectors, lengths, texts=names, seed=3)
    again = length_profile(7 * vectors, lengths, texts=names, seed=3)
    assert again.slope.value == pytest.approx(found.slope.value, abs=1e-7)
    assert again.slope.floor_high == pytest.approx(found.slope.floor_high, abs=1e-7)
    order = np.random.default_rng(0).permutation(len(lengths))
    moved = length_profile(vectors[order], lengths[order])
    assert moved.slope.value == pytest.approx(found.slope.value, abs=1e-7)
    assert moved.slope.interval.low == pytest.approx(found.slope.interval.low, abs=1e-7)
    assert any("normalised" in note for note in found.notes)


def test_equal_lengths_have_no_slope():
    vectors, _ = without_effect(0, count=50)
    found = length_profile(vectors, np.full(50, 12))
    assert found.slope == Estimate(None)
    assert "no slope" in repr(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_bins_of_one_text_are_shown_and_not_counted():
    vectors, lengths = without_effect(0, count=50)
    lengths = np.where(np.arange(50) < 25, 10, 100)
    lengths[-1] = 400
    found = length_profile(vectors, lengths, bins=[0, 50, 300, 500], min_texts=1)
    assert [row.texts for row in found.bins] == [25, 24, 1]
    lonely = found.bins[-1]
    assert (lonely.cosine.value, lonely.cosine.interval, lonely.effective_rank.value) == (None, None, None)
    assert lonely.distance.value > 0
    assert lonely.distance.interval is None
    others = length_profile(vectors[:-1], lengths[:-1], bins=[0, 50, 300], min_texts=1)
    assert found.slope.value == pytest.approx(others.slope.value, abs=1e-7)
    json.dumps(found.to_dict(), allow_nan=False)
    few = length_profile(vectors[:4], [1, 2, 100, 200], bins=[0, 50, 300], min_texts=1)
    assert few.slope == Estimate(None)


def test_results_as_tables_and_files(tmp_path):
    found = length_profile(*with_effect(0))
    rows = found.rows()
    assert [row["bin"] for row in rows] == [row.label for row in found.bins]
    assert rows[0]["cosine_low"] == found.bins[0].cosine.interval.low
    assert rows[0]["distance_floor"] == found.bins[0].distance.floor
    assert found.to_table().column("bin").to_pylist() == [row["bin"] for row in rows]
    found.save(tmp_path / "length.json")
    again = LengthProfile.load(tmp_path / "length.json")
    assert (again.slope, again.bins, again.notes) == (found.slope, found.bins, found.notes)
    np.testing.assert_array_equal(again.assignment, found.assignment)
    stored = found.to_dict()
    assert stored["provenance"]["settings"]["shuffles"] == 200
    assert "assignment" not in stored
    assert f"{found.slope.value:+.4f} per doubling" in repr(found)


def test_wrong_arguments_are_named():
    vectors, lengths = without_effect(0, count=30)
    with pytest.raises(InputError, match=r"shape \(29,\)"):
        length_profile(vectors, lengths[:-1])
    with pytest.raises(InputError, match="row 4"):
        length_profile(np.where(np.arange(30)[:, None] == 3, 0.0, vectors), lengths)
    with pytest.raises(InputError, match=r"received 2; .* 3 "):
        length_profile(vectors[:2], lengths[:2])
    with pytest.raises(InputError, match="shuffles: received 5"):
        length_profile(vectors, lengths, shuffles=5)
    with pytest.raises(InputError, match="neighbours: received 0"):
        length_profile(vectors, lengths, neighbours=0)
    with pytest.raises(InputError, match=r"received str; .* length_report\(model, texts\)"):
        length_profile("builtin:minilm", ["a", "b", "c"])
