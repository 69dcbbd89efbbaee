"""The recall of a search: of a perfect one, of one that misses a known share, of copies, and by setting."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.errors import InputError
from poolscope.metrics.queries import search_recall
from poolscope.results import Result

VECTORS = np.random.default_rng(0).standard_normal((300, 12)) * np.random.default_rng(1).uniform(1, 3, (300, 1))
NAMES = [f"row {k}" for k in range(300)]


def exact(distance: str, *, keep=lambda row, value: row):
    def find(queries, k, value):
        products = queries @ VECTORS.T
        scores = {
            "dot": products,
            "cosine": products / np.linalg.norm(VECTORS, axis=1),
            "l2": -np.linalg.norm(queries[:, None] - VECTORS[None], axis=2),
        }[distance]
        return [[NAMES[place] for place in keep(np.argsort(-row)[:k].tolist(), value)] for row in scores]

    return find


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
def test_a_search_that_looks_at_everything_misses_nothing_by_its_own_distance(distance):
    assert search_recall(VECTORS, NAMES, exact(distance), distance=distance).in_use.recall.value == 1
    other = "l2" if distance != "l2" else "dot"
    assert search_recall(VECTORS, NAMES, exact(distance), distance=other).in_use.recall.value < 0.9


def test_what_is_missed_is_counted_and_the_cheapest_setting_that_reaches_the_target_is_named():
    find = exact("l2", keep=lambda row, value: row[: 1 + value])
    measured = search_recall(VECTORS, NAMES, find, distance="l2", values=(2, 5, 10, 20), current=5, setting="effort")
    assert [row.recall.value for row in measured.settings] == pytest.approx([0.2, 0.5, 1, 1])
    assert measured.in_use.recall.value == pytest.approx(0.5)
    assert measured.reaching(0.99).value == 10
    assert measured.reaching(1.1) is None
    assert measured.settings[2].recall.interval.low < 1
    assert len(measured.figure().data) == 1
    assert Result.from_dict(measured.to_dict()).headline() == measured.headline()


def test_copies_that_are_as_near_count_as_found():
    doubled = np.concatenate([VECTORS[:150], VECTORS[:150]])

    def find(queries, k, value):
        distances = np.linalg.norm(queries[:, None] - doubled[None], axis=2)
        distances += np.random.default_rng(3).uniform(0, 1e-9, distances.shape)  # which copy comes first is chance
        return [[NAMES[place] for place in np.argsort(row)[:k]] for row in distances]

    assert search_recall(doubled, NAMES, find, distance="l2", k=5).in_use.recall.value > 0.99


def test_wrong_input():
    with pytest.raises(InputError, match=r"shape \(300, 12\), 5 ids"):
        search_recall(VECTORS, NAMES[:5], exact("l2"))
