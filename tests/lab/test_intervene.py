"""Before and after: SOCM, quality by rankings with known answers, and intervals of the paired differences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cloud_data import random_cloud, random_clouds
from poolscope import TokenClouds, socm
from poolscope.errors import InputError
from poolscope.lab.interventions import INTERVENTIONS, RANKINGS, InterveneResult, intervene
from poolscope.numbers.ranking import rank_scores


@pytest.fixture(scope="module")
def task():
    """Means say nothing (all equal); a query shares the covariance of its document, so that only d_Σ finds it."""
    random = np.random.default_rng(0)
    documents, queries = [], []
    for _ in range(25):
        axes = np.linalg.qr(random.normal(size=(6, 6)))[0]
        for clouds, n in ((documents, 40), (queries, 12)):
            signs = np.concatenate([np.ones(n // 2), -np.ones(n // 2)])
            clouds.append(np.eye(6)[0] + np.outer(signs, axes[0]))
    return TokenClouds.from_arrays(documents), TokenClouds.from_arrays(queries), [(k, k) for k in range(25)]


@pytest.fixture(scope="module")
def result(task):
    return intervene(*task, k=5)


def test_a_second_order_ranking_finds_what_the_means_cannot(result):
    baseline = result.baseline
    assert baseline.quality.value == pytest.approx(baseline.quality.floor)  # all 25 documents tie: chance, exactly
    assert baseline.second_order.after == pytest.approx(1.0)
    assert baseline.second_order.difference.value == pytest.approx(1.0 - baseline.quality.floor)
    assert "25 queries, 30 " in baseline.second_order.difference.no_interval
    assert baseline.quality.floor == pytest.approx(sum(1 / np.log2(1 + r) for r in range(1, 6)) / 25)


def test_interventions_take_away_what_they_should(result):
    assert [effect.name for effect in result.effects] == list(INTERVENTIONS)
    for name in ("scale=0.5", "scale=2", "match", "top=1", "top=8"):  # the direction is left
        assert result[name].quality["wasserstein"].after == pytest.approx(1.0)
    assert result["rotate"].quality["wasserstein"].after < 0.5  # it is gone, and nothing else told them apart
    assert result["rotate"].quality["wasserstein"].difference.value < -0.3
    assert result["noise"].quality["covariance"].after < 0.5
    assert "covariance" not in result["scale=0"].quality
    assert max(effect.mean_shift for effect in result.effects) < 1e-14


def test_without_spread_the_ranking_is_that_of_the_means():
    random = np.random.default_rng(1)
    documents = TokenClouds.from_arrays([random_cloud(random, 8, 5) for _ in range(20)])
    queries = TokenClouds.from_arrays([cloud[:5] for cloud in documents])
    found = intervene(documents, queries, [(k, k) for k in range(20)], interventions=["scale=0"])
    assert found["scale=0"].quality["wasserstein"].after == pytest.approx(found.baseline.quality.value)
    assert found["scale=0"].socm.after < 1e-30


def test_socm_before_and_after_is_that_of_the_library():
    clouds = random_clouds(3, [4, 6, 9, 5, 7, 8] * 5, 5)
    effect = intervene(clouds, interventions=["scale=2"])["scale=2"]
    expected = socm(clouds)
    assert effect.socm.before == pytest.approx(expected.mean)
    assert effect.covariance_distance.after == pytest.approx(4 * expected.covariance_distance)
    # Every pair is multiplied by 4: the interval is that of three times the SOCM.
    change, ends = effect.socm.difference.interval, expected.interval
    assert (change.low, change.high) == pytest.approx((3 * ends.low, 3 * ends.high))
    assert effect.trace.after == pytest.approx(4 * effect.trace.before)
    assert effect.quality == {}


def test_texts_without_spread_are_counted_and_texts_are_drawn():
    clouds = random_clouds(4, [4, 1, 9, 1, 7, 8], 5)
    found = intervene(clouds, interventions=["noise"], socm_texts=4)
    assert (found.without_spread, found.socm_texts, found.texts, found.queries) == (2, 4, 6, 0)
    assert found.baseline is None


def test_documents_at_equal_distance_share_their_ranks():
    found = rank_scores(-np.array([[1.0, 1, 2, 1], [3.0, 1, 2, 2]]), [(0, 0), (1, 2)], k=2)
    assert found.rank.tolist() == [2.0, 2.5]  # of three that tie for 1 to 3, and of two that tie for 2 and 3
    assert found.top.tolist() == [[0, 1], [1, 2]]


def test_the_result_is_json_a_table_and_a_figure(result, tmp_path):
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert stored["effects"][3]["name"] == "rotate"
    assert stored["provenance"]["settings"]["k"] == 5
    assert result.headline() == {"interventions": 8, "texts": 25, "queries": 25}
    result.save(tmp_path / "r.json")
    assert InterveneResult.load(tmp_path / "r.json") == result
    table = result.to_table()
    assert table.column("socm_difference").to_pylist() == [effect.socm.difference.value for effect in result.effects]
    half = result["scale=0.5"].quality["covariance"]
    assert table.column("ndcg_covariance_after").to_pylist()[:2] == [None, half.after]  # no spread, no ranking by it
    figure = result.figure()
    assert [trace.name for trace in figure.data] == ["SOCM", *RANKINGS.values()]
    assert list(figure.data[0].x) == [effect.socm.difference.value for effect in result.effects]
    assert len(figure.data[2].x) == len(INTERVENTIONS) - 1
    alone = intervene(random_clouds(5, [3, 4, 5], 4), interventions=["rotate"]).figure()
    assert [trace.name for trace in alone.data] == ["SOCM"]


def test_what_does_not_fit_is_refused(task, result):
    documents, queries, relevant = task
    with pytest.raises(InputError, match="queries without relevant"):
        intervene(documents, queries)
    with pytest.raises(InputError, match="socm_texts: received 2"):
        intervene(documents, socm_texts=2)
    with pytest.raises(InputError, match="2 documents"):
        intervene(documents.select([0, 1]))
    for k in (0, "x", 1.5):
        with pytest.raises(InputError, match=f"^k: received {k!r};"):
            intervene(documents, queries, relevant, k=k)
    with pytest.raises(InputError, match="intervention: received 'blur'"):
        intervene(documents, queries, relevant, interventions=["blur"])
    with pytest.raises(InputError, match=r"entry 0 is \(99, 0\)"):
        intervene(documents, queries, [(99, 0)])
    with pytest.raises(InputError, match="scale=0"):
        result["blur"]
