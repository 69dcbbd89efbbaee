from __future__ import annotations

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poolscope
from cloud_data import dense_distances, random_cloud, random_clouds
from poolscope.clouds import TokenClouds
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.metrics.socm.measure import measured_pairs, pair_count, socm, socm_table
from poolscope.metrics.socm.pair import SocmFormula, socm_pair
from poolscope.metrics.socm.result import PAIR_WORDS, SocmResult
from poolscope.metrics.socm.selection import worst_pairs
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.numbers.moments import text_moments

LENGTHS = [1, 4, 9, 6, 3, 12, 7, 7, 20, 2, 5, 15]


@pytest.fixture(scope="module")
def clouds() -> TokenClouds:
    return random_clouds(0, LENGTHS, 16, dtype="float32")


def reference(clouds: TokenClouds) -> dict[tuple[int, int], float]:
    values = {}
    for i in range(len(clouds)):
        for j in range(i + 1, len(clouds)):
            d_mu, d_sigma = dense_distances(clouds[i], clouds[j])
            values[i, j] = (1 - d_mu) * d_sigma
    return values


# -- one pair -------------------------------------------------------------------------------------------------


def test_equal_means_and_known_clouds_by_hand():
    pair = socm_pair([[1, 1], [1, -1]], [[1, 3], [1, -3]])
    assert (pair.mean_distance, pair.covariance_distance) == pytest.approx((0, 1))  # BW² = (3 − 1)²
    assert pair.socm == pytest.approx(1)
    assert pair.squared_wasserstein == pytest.approx(4)


def test_opposite_means_have_zero_socm():
    pair = socm_pair([[1, 1], [1, -1]], [[-1, 5], [-1, -5]])
    assert (pair.mean_distance, pair.socm) == pytest.approx((1, 0), abs=1e-15)


def test_mean_distance_is_half_one_minus_cosine():
    random = np.random.default_rng(1)
    X, Y = random_cloud(random, 5, 8), random_cloud(random, 6, 8)
    x, y = X.mean(axis=0), Y.mean(axis=0)
    cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
    assert socm_pair(X, Y).mean_distance == pytest.approx((1 - cosine) / 2, abs=1e-15)


def test_squared_wasserstein_does_not_depend_on_the_scale():
    random = np.random.default_rng(3)
    X, Y = random_cloud(random, 5, 8), random_cloud(random, 6, 8)
    plain, relative = socm_pair(X, Y), socm_pair(X, Y, formula=SocmFormula(scale="trace"))
    assert plain.squared_wasserstein == pytest.approx(4 * (plain.mean_distance + plain.covariance_distance))
    assert relative.squared_wasserstein == plain.squared_wasserstein


def test_huge_and_centred_clouds():
    random = np.random.default_rng(4)
    X, Y, Z = (random_cloud(random, 5, 8) for _ in range(3))
    small, huge = TokenClouds.from_arrays([X, Y, Z]), TokenClouds.from_arrays([1e160 * X, 1e160 * Y, 1e-160 * Z])
    assert socm(huge).pairs.socm == pytest.approx(socm(small).pairs.socm, abs=1e-9)
    assert socm_pair(1e200 * X, 1e-200 * Y).socm == pytest.approx(socm_pair(X, Y).socm, rel=1e-12)
    X = X - X.mean(axis=0)
    for compute in (lambda: socm_pair(X, Y), lambda: socm(TokenClouds.from_arrays([X, Y]))):
        with pytest.raises(DegenerateCloudError, match="zero vector"):
            compute()


def test_weighted_pair_equals_repeated_tokens():
    random = np.random.default_rng(2)
    X, Y = random_cloud(random, 3, 5), random_cloud(random, 4, 5)
    weighted = socm_pair(X, Y, x_weights=[1, 2, 3])
    assert weighted.socm == pytest.approx(socm_pair(np.repeat(X, [1, 2, 3], axis=0), Y).socm, abs=1e-14)


def test_trace_scale_is_free_of_the_assumption():
    wild = np.array([[1, 50], [1, -50.0]])
    calm = np.array([[1, 0.1], [1, -0.1]])
    assert socm_pair(wild, calm).covariance_distance > 1
    relative = socm_pair(wild, calm, formula=SocmFormula(scale="trace")).covariance_distance
    assert relative == pytest.approx((50 - 0.1) ** 2 / (50**2 + 0.1**2))
    alone = socm_pair(wild[:1], calm[:1], formula=SocmFormula(scale="trace"))
    assert alone.covariance_distance == 0


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 8), m=st.integers(1, 8), d=st.integers(2, 8))
def test_invariances(seed, n, m, d):
    random = np.random.default_rng(seed)
    X, Y = random_cloud(random, n, d), random_cloud(random, m, d)
    value = socm_pair(X, Y).socm
    rotation, _ = np.linalg.qr(random.normal(size=(d, d)))
    # Clouds with a mean near zero have a huge trace: compare relative to it.
    tolerance = 1e-10 * max(1.0, abs(value))
    assert socm_pair(Y, X).socm == pytest.approx(value, abs=tolerance)
    assert socm_pair(X @ rotation, Y @ rotation).socm == pytest.approx(value, abs=tolerance)
    assert socm_pair(3 * X, 3 * Y).socm == pytest.approx(value, abs=tolerance)
    assert socm_pair(X[::-1], Y).socm == pytest.approx(value, abs=tolerance)
    assert socm_pair(np.tile(X, (4, 1)), Y).socm == pytest.approx(value, abs=tolerance)


UNIT = st.floats(0, 1)


@settings(max_examples=100)
@given(d_mu=UNIT, more_mu=UNIT, d_sigma=UNIT, more_sigma=UNIT, a=st.floats(0.2, 3), b=st.floats(0.2, 3))
def test_formula_is_monotone_with_the_stated_extremes(d_mu, more_mu, d_sigma, more_sigma, a, b):
    score = SocmFormula(a=a, b=b).score
    low, high = sorted((d_mu, more_mu))
    small, large = sorted((d_sigma, more_sigma))
    assert score(high, small) <= score(low, small)
    assert score(low, small) <= score(low, large)
    # Mixed differences are never positive.
    assert score(high, large) - score(high, small) - score(low, large) + score(low, small) <= 1e-12
    assert (score(low, small) == 1) == (low == 0 and small == 1) or score(low, small) > 1 - 1e-9
    assert score(1.0, small) == 0
    assert score(low, 0.0) == 0


# -- a corpus -------------------------------------------------------------------------------------------------


def test_all_pairs_equal_the_dense_reference(clouds):
    result = socm(clouds)
    expected = reference(clouds)
    table = result.to_table().to_pydict()
    assert list(zip(table["i"], table["j"], strict=True)) == list(expected)
    assert table["socm"] == pytest.approx(list(expected.values()), abs=1e-6)
    assert result.mean == pytest.approx(np.mean(list(expected.values())), abs=1e-6)
    assert result.count == 66
    assert result.quantile(0.5) == pytest.approx(np.median(list(expected.values())), abs=1e-6)
    threshold = result.quantile(0.9)
    assert result.collapse_rate(threshold) == pytest.approx(7 / 66)
    counts, edges = result.histogram(10)
    assert counts.sum() == 66
    assert edges[-1] == pytest.approx(max(table["socm"]))


def test_worst_pairs_come_with_their_texts(clouds):
    expected = sorted(reference(clouds).items(), key=lambda item: -item[1])
    worst = socm(clouds).worst(5)
    assert [(pair.i, pair.j) for pair in worst] == [pair for pair, _ in expected[:5]]
    assert worst[0].text_i == f"text number {worst[0].i}"
    assert worst[0].socm == pytest.approx((1 - worst[0].mean_distance) * worst[0].covariance_distance)


def test_worst_of_many_repeated_pairs_are_distinct(clouds):
    result = socm(clouds, pairs=[(0, 5)] * 300 + [(1, 2)] * 200 + [(3, 4), (6, 7)])
    full = sorted({(0, 5), (1, 2), (3, 4), (6, 7)}, key=lambda pair: -socm_pair(clouds[pair[0]], clouds[pair[1]]).socm)
    for k in (1, 2, 3, 4, 9):
        assert [(pair.i, pair.j) for pair in result.worst(k)] == full[:k]


def test_crossed_given_and_neighbours(clouds):
    other = random_clouds(5, [3, 8, 1], 16, dtype="float32")
    crossed = socm(clouds, other)
    assert crossed.count == 36
    assert crossed.pairs.socm[4 * 3 + 1] == pytest.approx(socm_pair(clouds[4], other[1]).socm, abs=1e-6)
    listed = socm(clouds, pairs=[(3, 1), (0, 2), (3, 1)])
    assert listed.to_table()["i"].to_pylist() == [3, 0, 3]
    assert listed.pairs.socm[0] == pytest.approx(socm_pair(clouds[3], clouds[1]).socm, abs=1e-6)
    assert [(pair.i, pair.j) for pair in listed.worst(3)] in ([(3, 1), (0, 2)], [(0, 2), (3, 1)])
    across = socm(clouds, other, pairs=[(11, 2)])
    assert across.mean == pytest.approx(socm_pair(clouds[11], other[2]).socm, abs=1e-6)


def test_neighbours_are_the_nearest_by_mean_vector(clouds):
    means = np.stack([cloud.mean(axis=0, dtype=np.float64) for cloud in clouds])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosines = means @ means.T
    np.fill_diagonal(cosines, -2)
    expected = {tuple(sorted((i, int(j)))) for i in range(len(clouds)) for j in np.argsort(-cosines[i])[:2]}
    result = socm(clouds, neighbours=2)
    table = result.to_table().to_pydict()
    assert set(zip(table["i"], table["j"], strict=True)) == expected
    assert result.count == len(expected)


def test_streamed_summaries_agree_with_kept_ones(clouds):
    kept, streamed = socm(clouds), socm(clouds, keep=0, top=7)
    assert streamed.pairs is None
    assert streamed.mean == pytest.approx(kept.mean, rel=1e-12)
    assert streamed.interval == kept.interval
    assert streamed.quantile(0.9) == pytest.approx(np.sort(kept.pairs.socm)[59], rel=2e-4)
    assert streamed.collapse_rate(0.05) == pytest.approx(kept.collapse_rate(0.05), abs=1e-3)
    assert [(p.i, p.j) for p in streamed.worst(7)] == [(p.i, p.j) for p in kept.worst(7)]
    assert streamed.histogram(5)[0].sum() == 66
    with pytest.raises(InputError, match="1 to 7"):
        streamed.worst(8)
    with pytest.raises(InputError, match=r"socm_table\(clouds, 'pairs.parquet'\)"):
        streamed.to_table()


def test_table_is_written_by_row_groups(tmp_path):
    clouds = random_clouds(5, [40] * 60, 48)
    path = tmp_path / "pairs.parquet"
    result = socm_table(clouds, path, keep=0)
    file = pq.ParquetFile(path)
    assert file.num_row_groups > 1
    table = file.read().sort_by([("i", "ascending"), ("j", "ascending")])
    assert table["socm"].to_pylist() == pytest.approx(socm(clouds).pairs.socm.tolist(), abs=1e-6)
    origin = json.loads(file.schema_arrow.metadata[b"poolscope"])
    assert origin["settings"]["pairs"] == "all pairs"
    assert result.count == table.num_rows


def test_progress_counts_every_pair(clouds):
    done = []
    socm(clouds, progress=done.append)
    assert sum(done) == 66


def test_json_and_parquet_carry_provenance(tmp_path):
    clouds = TokenClouds.from_arrays([np.eye(3), np.ones((2, 3)), np.eye(3) + 1], provenance={"model": {"name": "m"}})
    result = socm(clouds)
    content = json.loads(json.dumps(result.to_dict(threshold=0.1), allow_nan=False))
    assert content["mean"] == result.mean
    assert content["provenance"]["clouds"][0]["model"] == {"name": "m"}
    assert content["provenance"]["poolscope"] == poolscope.__version__
    assert content["collapse_rate"] == {"threshold": 0.1, "rate": result.collapse_rate(0.1)}
    result.save_parquet(tmp_path / "r.parquet")
    assert pq.read_table(tmp_path / "r.parquet").column_names == ["i", "j", "d_mu", "d_sigma", "socm"]


def test_compatibility_mode_is_lower_by_the_published_bias():
    clouds = random_clouds(9, [8, 12, 10, 9, 7, 11], 64)
    exact, published = socm(clouds), socm(clouds, eps=1e-9)
    i, j = exact.pairs.i, exact.pairs.j
    expected = [dense_distances(clouds[a], clouds[b], eps=1e-9)[1] for a, b in zip(i, j, strict=True)]
    assert published.pairs.covariance_distance == pytest.approx(expected, abs=1e-7)
    bias = (64 - (clouds.lengths[j] - 1)) * np.sqrt(1e-9) / 2
    assert exact.pairs.covariance_distance - published.pairs.covariance_distance == pytest.approx(bias, rel=0.15)


def test_exponents_and_scale(clouds):
    plain, shaped = socm(clouds), socm(clouds, a=2, b=0.5)
    expected = (1 - plain.pairs.mean_distance) ** 2 * plain.pairs.covariance_distance**0.5
    assert shaped.pairs.socm == pytest.approx(expected, rel=1e-12)
    relative = socm(clouds, scale="trace").pairs.covariance_distance
    assert (relative >= 0).all()
    assert (relative <= 1).all()


def test_assumption_check_counts_texts():
    wild = np.array([[1, 5.0], [1, -5.0]])
    clouds = TokenClouds.from_arrays([wild, np.array([[1.0, 0.0]]), np.array([[1, 0.1], [1, -0.1]])])
    check = socm(clouds).trace_check
    assert (check.texts, check.above, check.one_token) == (3, 1, 1)
    assert check.largest == pytest.approx(25)
    assert check.share == pytest.approx(1 / 3)


def test_two_texts_have_a_mean_and_no_interval():
    result = socm(TokenClouds.from_arrays([np.eye(3), np.ones((2, 3)) + np.eye(3)[:2]]))
    assert result.interval is None
    assert result.to_dict()["interval"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": [(0, 99)]}, r"entry 0 is \(0, 99\)"),
        ({"pairs": [(0.5, 1)]}, "pairs: received float64"),
        ({"pairs": []}, "least one"),
        ({"neighbours": 12}, "1 to 11"),
        ({"pairs": 1}, "pairs: received 1"),
        ({"pairs": 5, "neighbours": 2}, "pairs and neighbours"),
        ({"scale": "big"}, "paper, trace"),
        ({"a": 0}, "positive"),
        ({"eps": -1}, "eps"),
        ({"eps": 1e-9, "b": 2}, "b = 1"),
        ({"top": 0}, "top: received 0"),
        ({"top": 1.5}, "top: received 1.5"),
        ({"pairs": 2.5}, "pairs: received 2.5"),
        ({"neighbours": 1.5}, "neighbours: received 1.5"),
        ({"pairs": 2, "seed": 0.5}, "seed: received 0.5"),
        ({"a": "1"}, "a: received '1'"),
        ({"eps": "0"}, "eps: received '0'"),
    ],
)
def test_bad_arguments(clouds, arguments, message):
    with pytest.raises(InputError, match=message):
        socm(clouds, **arguments)


def test_bad_corpora(clouds):
    with pytest.raises(InputError, match="one text"):
        socm(clouds.select([0]))
    with pytest.raises(InputError, match="dimension 16 and 5"):
        socm(clouds, random_clouds(0, [2], 5))
    with pytest.raises(DegenerateCloudError, match="text 1"):
        socm(TokenClouds.from_arrays([np.eye(2), np.array([[np.nan, 1.0]])]))
    with pytest.raises(InputError, match="0 to 1"):
        socm(clouds).quantile(2)
    for rate in (np.nan, np.inf, "x"):
        with pytest.raises(InputError, match="threshold: received"):
            socm(clouds).collapse_rate(rate)
    with pytest.raises(InputError, match=r"worst: received 1\.5"):
        socm(clouds).worst(1.5)
    with pytest.raises(InputError, match=r"eps .*one pair"):
        socm_pair(clouds[0], clouds[1], formula=SocmFormula(eps=1e-9))


def test_the_number_of_pairs_is_known_before_they_are_compared(clouds):
    other = random_clouds(5, [3, 8], 16, dtype="float32")
    assert pair_count(clouds) == socm(clouds).count
    assert pair_count(clouds, other) == 24
    assert pair_count(clouds, pairs=7) == socm(clouds, pairs=7).count == 7
    assert pair_count(clouds, pairs=[(0, 1)]) == 1
    assert pair_count(clouds, neighbours=2) is None


def test_reduced_factors_are_made_once_and_change_nothing(clouds):
    caches = reduced_caches(clouds)
    for choice in ({"pairs": 20, "seed": 3}, {"neighbours": 2}, {"pairs": [(0, 1)], "scale": "trace"}, {}):
        assert measured_pairs(clouds, reduced=caches, **choice).mean == socm(clouds, **choice).mean


def test_moments_that_are_known_are_not_computed_again(clouds, monkeypatch):
    moments, choices = text_moments(clouds), ({"pairs": [(2, 1), (4, 2)]}, {"neighbours": 2}, {})
    usual = [socm(clouds, **choice) for choice in choices]
    monkeypatch.setattr("poolscope.metrics.socm.measure.text_moments", None)
    for choice, result in zip(choices, usual, strict=True):
        known = measured_pairs(clouds, moments=moments, **choice)
        assert (known.mean, known.trace_check) == (result.mean, result.trace_check)


# -- what a file gives back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"pairs": 40}, {"keep": 0, "top": 7}, {"neighbours": 2, "scale": "trace"}])
def test_a_saved_result_answers_as_the_first_did(clouds, options, tmp_path):
    result = socm(clouds, **options)
    result.save(tmp_path / "r.json")
    loaded = SocmResult.load(tmp_path / "r.json")
    assert loaded.to_dict(threshold=0.1) == result.to_dict(threshold=0.1)
    assert loaded.worst(7) == result.worst(7)
    assert loaded.left is None
    if result.pairs is not None:
        assert loaded.to_table().equals(result.to_table())


def test_without_its_clouds_a_result_lists_the_pairs_that_it_kept(clouds):
    loaded = SocmResult.from_dict(socm(clouds, top=2).to_dict(arrays=True))
    assert len(loaded.worst(2)) == 2
    with pytest.raises(InputError, match=r"k = 3; .* 1 to 2; .* top=3"):
        loaded.worst(3)


def test_the_summary_alone_has_the_mean_and_the_worst_pairs(clouds):
    result = socm(clouds)
    again = SocmResult.from_dict(result.to_dict())
    assert (again.mean, again.interval, again.worst(3)) == (result.mean, result.interval, result.worst(3))
    assert again.to_dict()["mean"] == result.mean
    with pytest.raises(InputError, match="its summary"):
        again.quantile(0.5)


def test_the_worst_pairs_by_search_are_a_result_too(clouds):
    found = worst_pairs(clouds, 3)
    assert type(found).from_dict(found.to_dict()) == found
    assert found.to_table().column_names[:6] == ["i", "j", "id_i", "id_j", "d_mu", "d_sigma"]
    view = found._repr_html_()
    assert all(f">{PAIR_WORDS[name]}</th>" in view for name in ("i", "id_j", "d_mu"))
    assert found.provenance["settings"]["scale"] == "paper"


def test_the_figure_shows_the_two_distances(clouds):
    result = socm(clouds)
    trace, means, covariances = result.figure().data
    assert sum(means.y) == sum(covariances.x) == len(result.listed())  # the histograms are of all pairs
    assert sorted(trace.x) == sorted(result.pairs.mean_distance)
    assert sorted(trace.y) == sorted(result.pairs.covariance_distance)
    assert len(socm(clouds, keep=0, top=7).figure().data[0].x) == 7


def test_one_pair_has_the_names_of_the_table_in_its_file():
    pair = socm_pair([[1, 1], [1, -1]], [[1, 2], [1, -2]])
    assert pair.to_dict()["d_sigma"] == pair.covariance_distance
    assert type(pair).from_dict(pair.to_dict()) == pair
    assert re.findall(r"[\d.]+", repr(pair)) == ["0", "0.25", "0.25", "1"]


def test_a_notebook_shows_the_worst_pairs_first():
    result = poolscope.socm(random_clouds(1, [4, 5, 6, 7, 8, 9], 8))
    shown = result.shown_table().to_pylist()
    assert [row["socm"] for row in shown] == sorted(result.pairs.socm.tolist(), reverse=True)[: result.shown_rows]
