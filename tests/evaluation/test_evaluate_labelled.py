"""Classification and clustering: scores as scikit-learn has them, and intervals that hold what they say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

from planted import blobs
from poolscope.errors import InputError
from poolscope.evaluation import (
    ClassificationTask,
    ClusteringTask,
    Evaluation,
    compare_scores,
)
from poolscope.numbers.learning import cluster


def test_classification_scores_every_text():
    vectors, labels = blobs()
    task = ClassificationTask([f"text {k}" for k in range(100)], [f"label {k}" for k in labels])
    found = task.score(vectors)
    assert set(np.unique(found.scores)) <= {0.0, 1.0}
    assert found.metric == "accuracy"
    assert found.value > 0.8
    assert found.value > task.score(np.random.default_rng(0).normal(size=vectors.shape)).value + 0.3


def test_the_v_measure_is_that_of_scikit_learn():
    from sklearn.metrics import v_measure_score

    vectors, labels = blobs(spread=1.2)
    task = ClusteringTask(["t"] * 100, labels.astype(str).tolist())
    found = task.score(vectors)
    starts = found.observations[:, 1:].astype(int).T
    assert len(starts) == task.starts == 10
    assert len({tuple(start) for start in starts}) > 1
    assert found.value == pytest.approx(np.mean([v_measure_score(labels, start) for start in starts]), abs=1e-9)
    assert 0.1 < found.value < 0.95
    assert found.interval().method == "half-samples of texts"
    assert compare_scores(task.score(np.random.default_rng(0).normal(size=vectors.shape)), found).proves_gain


def test_k_means_finds_what_is_there_and_says_when_it_cannot():
    vectors, labels = blobs(spread=0.01)
    found = cluster(vectors, 4)
    assert found.shape == (100, 10)
    right = [start for start in found.T if all(len(np.unique(start[labels == k])) == 1 for k in range(4))]
    assert len(right) > 5  # single starts may end in a poor optimum
    assert all(np.array_equal(start, labels) for start in right)  # numbered by their first vector
    with pytest.raises(InputError, match=r"1 distinct .* 3 clusters"):
        cluster(np.ones((6, 2)), 3, starts=3)


def test_k_means_is_that_of_scipy():
    vectors = blobs(spread=1.0)[0]
    random, starts = np.random.default_rng(3), []
    for _ in range(3):
        starts.append(kmeans2(vectors, 4, iter=50, minit="++", missing="raise", rng=random)[1])
    for mine, theirs in zip(cluster(vectors, 4, starts=3, seed=3).T, starts, strict=True):
        assert len(set(zip(mine, theirs, strict=True))) == 4


def test_the_interval_of_random_clusters_holds_their_score():
    """A bootstrap repeats texts, which raises mutual information: its interval lay above the score of chance."""
    random = np.random.default_rng(0)
    labels = [str(k % 10) for k in range(100)]
    task = ClusteringTask([f"text {k}" for k in range(100)], labels, starts=4)
    scores = [task.score(random.normal(size=(100, 16))) for _ in range(8)]
    truth = np.mean([found.value for found in scores])
    assert 0.1 < truth < 0.35
    intervals = [found.interval() for found in scores]
    assert all(interval.low < found.value < interval.high for interval, found in zip(intervals, scores, strict=True))
    assert sum(interval.low < truth < interval.high for interval in intervals) >= 7
    assert all(interval.high - interval.low < 0.15 for interval in intervals)


@pytest.mark.parametrize(("clusters", "bound"), [([0, 1] * 6, 1.0), ([0, 0, 1, 1] * 3, 0.0)])
def test_the_interval_of_a_v_measure_stays_within_its_bounds(clusters, bound):
    observations = np.array([[0, 1] * 6, clusters], dtype=float).T
    found = Evaluation("clustering", "v", "texts", observations, "v-measure", contrasts=np.array([0.3, -0.2, 0.1, 0.4]))
    assert found.value == pytest.approx(bound, abs=1e-12)
    interval = found.interval()
    assert 0 <= interval.low < interval.high <= 1
    assert bound in (interval.low, interval.high)
    moved = found.observations + np.array([0, 1])  # the same clusters under other numbers
    other = dataclasses.replace(found, contrasts=-found.contrasts, observations=moved)
    assert compare_scores(found, other).interval.low < -1  # a difference is not bounded by 0


def test_a_little_noise_is_no_proof_in_clustering():
    """What another start of k-means would change is in the interval."""
    vectors, labels = blobs(spread=1.0)
    random = np.random.default_rng(1)
    task = ClusteringTask([f"text {k}" for k in range(100)], labels.astype(str).tolist(), starts=4)
    before = task.score(vectors)
    found = [compare_scores(before, task.score(vectors + 0.02 * random.normal(size=vectors.shape))) for _ in range(12)]
    assert sum(one.proves_gain or one.proves_loss for one in found) <= 2
    assert np.mean([one.mean for one in found]) == pytest.approx(0, abs=0.05)
    assert compare_scores(before, task.score(vectors)).changed == 0


def test_texts_of_which_no_half_can_be_clustered_have_no_interval():
    vectors = np.repeat(np.eye(3), 4, axis=0)[[0, 4, 8, 0, 4, 0, 4, 0, 4, 0, 4, 0]]
    task = ClusteringTask([f"t{k}" for k in range(12)], ["x", "y", "z"] * 4)
    found = task.score(vectors)
    assert found.interval() is None
    assert "too little" in found.why_no_interval()
    assert compare_scores(found, found).interval is None


def test_labels_are_checked():
    with pytest.raises(InputError, match=r"2 distinct, .* 1;"):
        ClassificationTask(["a", "b", "c"], ["x", "x", "y"])
    with pytest.raises(InputError, match="1 distinct"):
        ClusteringTask(["a", "b"], ["x", "x"])
