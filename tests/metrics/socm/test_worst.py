from __future__ import annotations

import numpy as np
import pytest

from cloud_data import random_clouds
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.metrics.socm import worst
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.worst import worst_pairs


@pytest.mark.parametrize("scale", ["paper", "trace"])
@pytest.mark.parametrize("k", [1, 20, 300])
def test_pruned_search_finds_exactly_the_worst_pairs(k, scale, monkeypatch):
    monkeypatch.setattr(worst, "_SEEDS", 30)
    monkeypatch.setattr(worst, "_WORTHWHILE", 2.0)  # never give up pruning
    monkeypatch.setattr(worst, "_RANK", 3)
    begin_the_search(monkeypatch)
    monkeypatch.setattr(worst, "_HELD", 200)
    monkeypatch.setattr(worst, "_BATCH", 50)
    clouds = random_clouds(0, [2, 5, 9, 14, 30, 3, 7] * 8, 20)
    found = worst_pairs(clouds, k, scale=scale)
    expected = socm(clouds, scale=scale).worst(k)
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in expected]
    # Small products are summed in another order than large ones: float32 rounding shows.
    assert [p.socm for p in found.pairs] == pytest.approx([p.socm for p in expected], abs=2e-7)
    assert found.evaluated <= found.count


def test_search_prunes_where_few_texts_stand_out(monkeypatch):
    begin_the_search(monkeypatch)
    monkeypatch.setattr(worst, "_SEEDS", 10)
    calm = random_clouds(1, [6] * 60, 20)
    clouds = type(calm).from_arrays([calm[k] * 1.0 if k else 3 * calm[k] - 2 * calm[k].mean(axis=0) for k in range(60)])
    found = worst_pairs(clouds, 3)
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in socm(clouds).worst(3)]
    assert found.evaluated < found.count / 5


def test_falls_back_to_all_pairs_where_pruning_does_not_pay(monkeypatch):
    begin_the_search(monkeypatch)
    monkeypatch.setattr(worst, "_SEEDS", 10)
    monkeypatch.setattr(worst, "_WORTHWHILE", 0.0)
    monkeypatch.setattr(worst, "_RANK", 1)
    clouds = random_clouds(2, [5, 6, 7] * 12, 20)
    done: list[int] = []
    found = worst_pairs(clouds, 5, progress=done.append)
    assert found.evaluated == found.count
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in socm(clouds).worst(5)]
    assert sum(done) <= found.count


@pytest.mark.parametrize("rank", [2, 20])
def test_agrees_with_all_pairs_where_texts_share_a_large_direction(rank, monkeypatch):
    begin_the_search(monkeypatch)
    monkeypatch.setattr(worst, "_SEEDS", 10)
    monkeypatch.setattr(worst, "_WORTHWHILE", 2.0)
    monkeypatch.setattr(worst, "_RANK", rank)
    random = np.random.default_rng(3)
    sink = 30_000 * np.ones(20)
    clouds = TokenClouds.from_arrays([np.concatenate([sink[None], random.normal(size=(9, 20))]) for _ in range(40)])
    # Of all directions the bounds are as good as float32 products are, which is worse than what decides here.
    found, expected = worst_pairs(clouds, 30), socm(clouds).worst(30)
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in expected]
    assert [p.socm for p in found.pairs] == pytest.approx([p.socm for p in expected], rel=1e-9)
    assert expected[0].socm < 1e-5


@pytest.mark.parametrize("k", [1.5, "3", 0])
def test_k_is_a_whole_number(k):
    with pytest.raises(InputError, match="allowed: a whole number, 1 or more"):
        worst_pairs(random_clouds(0, [2, 3], 4), k)


def test_k_out_of_range():
    with pytest.raises(InputError, match="1 to 1"):
        worst_pairs(random_clouds(0, [2, 3], 4), 2)


def begin_the_search(monkeypatch) -> None:
    """Of few texts all pairs are computed at once."""
    monkeypatch.setattr(worst.WorstSearch, "_promising", lambda self: True)


@pytest.mark.parametrize("texts", [60, 260])
def test_the_search_is_not_begun_on_few_texts_or_clouds_of_one_shape(texts, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the search was begun")

    monkeypatch.setattr(worst, "given_pairs", refuse)
    monkeypatch.setattr(worst, "_RANK", 1)
    random = np.random.default_rng(4)
    clouds = TokenClouds.from_arrays([1 + random.normal(size=(12, 24)) for _ in range(texts)])
    found = worst_pairs(clouds, 20)
    assert found.evaluated == found.count
    assert [(p.i, p.j) for p in found.pairs] == [(p.i, p.j) for p in socm(clouds).worst(20)]
