from __future__ import annotations

import numpy as np
import pytest

from cloud_data import random_clouds
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm import selection
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.selection import Pruning, WorstSearch, worst_pairs, worst_result


def searched(clouds, k, progress=lambda settled: None, *, scale="paper", looked_at=0, **limits):
    """The search is begun, though of few texts all pairs would be computed at once."""
    formula = SocmFormula(scale=scale)
    search = WorstSearch(clouds, clouds, formula, k, progress, Pruning(looked_at=looked_at, **limits))
    search.run()
    return worst_result(clouds, formula, search.largest, search.evaluated)


@pytest.mark.parametrize("scale", ["paper", "trace"])
@pytest.mark.parametrize("k", [1, 20, 300])
def test_pruned_search_finds_exactly_the_worst_pairs(k, scale):
    clouds = random_clouds(0, [2, 5, 9, 14, 30, 3, 7] * 8, 20)
    found = searched(
        clouds, k, scale=scale, seeds=30, rank=3, candidates=200, batch=50, worthwhile=2.0
    )  # never given up
    expected = socm(clouds, scale=scale).worst(k)
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in expected]
    # Small products are summed in another order than large ones: float32 rounding shows.
    assert [p.socm for p in found.pairs] == pytest.approx([p.socm for p in expected], abs=2e-7)
    assert found.evaluated <= found.count


def test_search_prunes_where_few_texts_stand_out():
    calm = random_clouds(1, [6] * 60, 20)
    clouds = type(calm).from_arrays([calm[k] * 1.0 if k else 3 * calm[k] - 2 * calm[k].mean(axis=0) for k in range(60)])
    found = searched(clouds, 3, seeds=10)
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in socm(clouds).worst(3)]
    assert found.evaluated < found.count / 5


def test_falls_back_to_all_pairs_where_pruning_does_not_pay():
    clouds = random_clouds(2, [5, 6, 7] * 12, 20)
    done: list[int] = []
    found = searched(clouds, 5, done.append, seeds=10, worthwhile=0.0, rank=1)
    assert found.evaluated == found.count
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in socm(clouds).worst(5)]
    assert sum(done) <= found.count


@pytest.mark.parametrize("rank", [2, 20])
def test_agrees_with_all_pairs_where_texts_share_a_large_direction(rank):
    random = np.random.default_rng(3)
    sink = 30_000 * np.ones(20)
    clouds = TokenClouds.from_arrays([np.concatenate([sink[None], random.normal(size=(9, 20))]) for _ in range(40)])
    # Of all directions the bounds are as good as float32 products are, which is worse than what decides here.
    found, expected = searched(clouds, 30, seeds=10, worthwhile=2.0, rank=rank), socm(clouds).worst(30)
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in expected]
    assert [p.socm for p in found.pairs] == pytest.approx([p.socm for p in expected], rel=1e-9)
    assert expected[0].socm < 1e-5


@pytest.mark.parametrize("k", [1.5, "3", 0])
def test_k_is_a_whole_number(k):
    with pytest.raises(InputError, match=f"worst: received {k!r};"):
        worst_pairs(random_clouds(0, [2, 3], 4), k)


def test_k_out_of_range():
    with pytest.raises(InputError, match="1 to 1"):
        worst_pairs(random_clouds(0, [2, 3], 4), 2)


@pytest.mark.parametrize("texts", [60, 260])
def test_the_search_is_not_begun_on_few_texts_or_clouds_of_one_shape(texts, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the search was begun")

    monkeypatch.setattr(selection, "given_pairs", refuse)
    random = np.random.default_rng(4)
    clouds = TokenClouds.from_arrays([1 + random.normal(size=(12, 24)) for _ in range(texts)])
    found = searched(clouds, 20, rank=1, looked_at=Pruning.looked_at)
    assert found.evaluated == found.count
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in socm(clouds).worst(20)]
