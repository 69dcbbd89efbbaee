"""Several vectors a text: the parts, the budget, the best match, and equal storage."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import AdaptivePooling, TokenClouds, compare_storage, read_vectors
from poolscope.errors import InputError
from poolscope.evaluation import ClusteringTask, RetrievalTask
from poolscope.repairs.adaptive import allocate

TOPICS = np.eye(6)


def cloud(*topics, repeat=3, noise=0.01, seed=0):
    random = np.random.default_rng(seed)
    return np.repeat(TOPICS[list(topics)], repeat, axis=0) + noise * random.normal(size=(repeat * len(topics), 6))


@pytest.mark.parametrize("parts", ["spans", "clusters"])
def test_texts_get_as_many_vectors_as_they_say_things(parts):
    clouds = TokenClouds.from_arrays([cloud(0), cloud(1, 2), cloud(3, 4, 5)], ids=list("abc"))
    several = AdaptivePooling(budget=2, parts=parts).transform(clouds)
    assert several.counts.tolist() == [1, 2, 3]
    np.testing.assert_allclose(several.vectors, TOPICS, atol=0.03)
    assert several.plain().ids == ("a#0", "b#0", "b#1", "c#0", "c#1", "c#2")


def test_a_budget_of_one_is_the_mean():
    clouds = TokenClouds.from_arrays([cloud(0, 1), cloud(2)])
    several = AdaptivePooling(budget=1).transform(clouds)
    np.testing.assert_allclose(several.vectors, [X.mean(axis=0) for X in clouds])


def test_clusters_join_what_comes_back_later():
    """A text that says a, b, a: three spans, but two clusters hold it all."""
    clouds = TokenClouds.from_arrays([cloud(0, 1, 0), cloud(2)])
    spans, clusters = (AdaptivePooling(budget=1.5, parts=parts).transform(clouds) for parts in ("spans", "clusters"))
    assert spans.counts.tolist() == clusters.counts.tolist() == [2, 1]
    near = [np.abs(several.vectors[:2] - TOPICS[:2]).max() for several in (spans, clusters)]
    assert near[1] < 0.05 < near[0]


def test_the_budget_goes_to_the_largest_gain_and_is_kept():
    losses = [np.array([9.0, 4.0, 1.0]), np.array([5.0, 4.5]), np.array([3.0])]
    assert allocate(losses, 3).tolist() == [1, 1, 1]
    assert allocate(losses, 5).tolist() == [3, 1, 1]
    assert allocate(losses, 6).tolist() == [3, 2, 1]
    assert allocate(losses, 60).tolist() == [3, 2, 1]


def least_loss(losses, budget):
    """The least that any way to deal out at most so many vectors loses."""
    best = np.full(budget + 1, np.inf)
    best[0] = 0.0
    for loss in losses:
        grown = np.full(budget + 1, np.inf)
        for count, lost in enumerate(loss, 1):
            grown[count:] = np.minimum(grown[count:], best[: budget + 1 - count] + lost)
        best = grown
    return best.min()


def test_no_way_to_spend_the_budget_loses_less_but_for_the_last_step():
    random = np.random.default_rng(0)
    for _ in range(50):
        losses = [np.sort(random.random(random.integers(1, 7)))[::-1] for _ in range(12)]
        budget = int(random.integers(12, 60))
        counts = allocate(losses, budget)
        assert counts.sum() == min(budget, sum(map(len, losses)))
        lost = sum(loss[count - 1] for loss, count in zip(losses, counts, strict=True))
        best = least_loss(losses, budget)
        assert lost >= best - 1e-12
        assert lost - best < 1.0  # at most the step of one text
        start = sum(loss[0] for loss in losses)
        assert start - lost >= 0.85 * (start - best)


def test_a_text_is_found_by_its_best_vector():
    clouds = TokenClouds.from_arrays([cloud(0), cloud(1, 2)])
    several = AdaptivePooling(budget=1.5).transform(clouds)
    scores = several.scores(TOPICS[[0, 1, 2]])
    assert scores.argmax(axis=1).tolist() == [0, 1, 1]
    assert scores[2, 1] == pytest.approx(1, abs=1e-3)
    mean = clouds[1].mean(axis=0)
    assert mean[2] / np.linalg.norm(mean) < 0.8


def test_files_are_plain_vectors_with_ids(tmp_path):
    several = AdaptivePooling(budget=1.5).transform(TokenClouds.from_arrays([cloud(0), cloud(1, 2)], ids=["a", "b"]))
    several.save(tmp_path / "several.npz")
    held = read_vectors(tmp_path / "several.npz")
    assert held.ids == ("a#0", "b#0", "b#1")
    np.testing.assert_allclose(held.vectors, several.vectors, atol=1e-6)


def letters(texts):
    """A token a letter; all share something."""
    return [np.eye(26)[[ord(c) - 97 for c in text if c.isalpha()]] + 0.02 for text in texts]


def test_ways_of_equal_storage_are_compared_on_the_same_queries():
    words = ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "gggg", "hhhh"]
    documents = [f"{one} {other}" for k, one in enumerate(words) for other in words[k + 1 :]]
    queries = [text.split()[1] for text in documents]
    task = RetrievalTask(queries, documents, [(k, k) for k in range(len(documents))])
    result = compare_storage(letters, task, budget=2)
    ways = {way.name: way for way in result.ways}
    assert ways["one mean"].gain is None
    sizes = {name: way.numbers for name, way in ways.items() if name != "one mean"}
    assert max(sizes.values()) <= 2 * 26
    assert min(sizes.values()) > 1.8 * 26
    adaptive = ways["adaptive spans, 2 a text"]
    assert adaptive.against_adaptive is None
    assert adaptive.gain.count == len(queries)
    assert ways["late chunking"].score == pytest.approx(adaptive.score)  # the two halves are what changes
    assert type(result).from_dict(result.to_dict(arrays=True)).rows() == result.rows()


@pytest.mark.parametrize("wrong", [{"budget": 0.5}, {"budget": 9}, {"parts": "words"}, {"most": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        AdaptivePooling(**wrong)


def test_only_searches_are_compared():
    with pytest.raises(InputError, match="RetrievalTask"):
        compare_storage(letters, ClusteringTask(["a", "b", "c", "d"], ["x", "x", "y", "y"]))
