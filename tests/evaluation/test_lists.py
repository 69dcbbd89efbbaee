"""Candidates, summaries and several sets, and what classification and clustering score besides, beside scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from sklearn.cluster import MiniBatchKMeans

from poolscope.errors import InputError
from poolscope.evaluation import (
    ClassificationTask,
    ClusteringTask,
    RerankingTask,
    SeveralSets,
    SummaryTask,
    compare_scores,
    evaluate,
    read_task,
)
from poolscope.evaluation.tasks import halve
from poolscope.numbers.learning import average_precision, macro_f1, mini_batch_clusters

RANDOM = np.random.default_rng(4)


def test_average_precision_of_candidates():
    sizes = RANDOM.integers(1, 5, size=(12, 2))
    task = RerankingTask(
        [f"q{k}" for k in range(12)],
        [[f"good {k} {i}" for i in range(good)] for k, (good, _) in enumerate(sizes)],
        [[f"bad {k} {i}" for i in range(bad)] for k, (_, bad) in enumerate(sizes)],
    )
    queries, candidates = RANDOM.normal(size=(12, 5)), RANDOM.normal(size=(sizes.sum(), 5))
    scored = task.score(queries, candidates)
    start = 0
    for k, (good, bad) in enumerate(sizes):
        own = candidates[start : start + good + bad]
        start += good + bad
        cosines = own @ queries[k] / np.linalg.norm(own, axis=1) / np.linalg.norm(queries[k])
        truth = np.arange(good + bad) < good
        assert scored.scores[k] == pytest.approx(metrics.average_precision_score(truth, cosines))
        first = 1 + np.flatnonzero(truth[np.argsort(-cosines)])[0]
        assert scored.others["MRR@10"][k] == pytest.approx(1 / first)
    part = task.take(np.array([3, 5]))
    rows = np.concatenate([np.repeat(k, sizes[k].sum()) for k in range(12)])
    kept = np.concatenate([candidates[rows == 3], candidates[rows == 5]])
    np.testing.assert_allclose(part.score(queries[[3, 5]], kept).scores, scored.scores[[3, 5]])


def test_queries_whose_relevant_candidates_tie_are_counted():
    task = RerankingTask(["a", "b"], [["x"], ["y"]], [["z"], ["w"]])
    scored = task.score([[1.0, 0.0]] * 2, [[1.0, 1.0], [2.0, 2.0], [1.0, 0.0], [0.0, 1.0]])
    assert scored.scores.tolist() == [0.75, 1.0]
    assert scored.to_dict()["tied_queries"] == 1


def test_queries_whose_order_does_not_matter_are_left_out():
    task = RerankingTask(["a", "b"], [["x"], ["y"]], [["z"], []])
    assert task.units == 1
    assert [note.split()[:2] for note in task.notes] == [["1", "queries"]]
    with pytest.raises(InputError, match="none with"):
        RerankingTask(["b"], [["y"]], [[]])


def test_summaries_by_their_nearest_human_one():
    machine = [[f"m{t}{k}" for k in range(6)] for t in range(5)]
    human = [[f"h{t}{k}" for k in range(3)] for t in range(5)]
    gold = RANDOM.integers(1, 6, size=(5, 6)).astype(float)
    gold[2] = 3.0
    task = SummaryTask(machine, human, gold.tolist())
    vectors = RANDOM.normal(size=(30, 4)), RANDOM.normal(size=(15, 4))
    kept = [0, 1, 3, 4]
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in vectors]
    expected = [
        stats.spearmanr((units[0][6 * t : 6 * t + 6] @ units[1][3 * t : 3 * t + 3].T).max(axis=1), gold[t]).statistic
        for t in kept
    ]
    shown = [side.reshape(5, -1, 4)[kept].reshape(-1, 4) for side in vectors]
    np.testing.assert_allclose(task.score(*shown).scores, expected)
    assert task.units == 4
    assert (task.score(np.ones((24, 4)), shown[1]).scores == 0).all()  # equal cosines order nothing
    with pytest.raises(InputError, match=r"2 summaries .* 1 scores"):
        SummaryTask([["a", "b"]], [["c"]], [[1]])


def test_several_sets_are_scored_apart():
    labels = [["x", "x", "y", "y"], ["u", "v", "u", "v", "w", "w"]]
    tasks = [ClusteringTask([f"{k}{i}" for i in range(len(own))], own, batch=3) for k, own in enumerate(labels)]
    several = SeveralSets(tasks)
    vectors = RANDOM.normal(size=(10, 3))
    apart = [tasks[0].score(vectors[:4]).value, tasks[1].score(vectors[4:]).value]
    assert several.score(vectors).scores.tolist() == pytest.approx(apart)
    assert several.take(np.array([1])).score(vectors[4:]).value == pytest.approx(apart[1])


@pytest.mark.parametrize("seed", range(4))
def test_f1_and_average_precision_are_those_of_scikit_learn(seed):
    random = np.random.default_rng(seed)
    labels, predicted = random.integers(0, 4, size=(2, 60))
    assert macro_f1(labels, predicted) == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    positive, scores = random.integers(0, 2, size=60), random.integers(0, 12, size=60) / 12  # with ties
    assert average_precision(positive, scores) == pytest.approx(metrics.average_precision_score(positive, scores))


def test_classification_on_a_training_set_of_its_own():
    labels = RANDOM.integers(0, 2, size=120)
    vectors = RANDOM.normal(size=(120, 6)) + labels[:, None] * 0.8
    task = ClassificationTask([f"t{k}" for k in range(120)], labels.astype(str).tolist(), trained=60, steps=100)
    scored = task.score(vectors)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    from sklearn.linear_model import LogisticRegression

    fit = LogisticRegression(max_iter=100, C=2.0).fit(units[:60], labels[:60])  # weights for both labels: twice C
    assert len(scored.scores) == 60
    assert scored.value == pytest.approx(fit.score(units[60:], labels[60:]), abs=1e-9)
    precision = metrics.average_precision_score(labels[60:], fit.predict_proba(units[60:])[:, 1])
    assert scored.others["average precision"] == pytest.approx(precision, abs=1e-6)
    assert scored.others["macro F1"] == pytest.approx(
        metrics.f1_score(labels[60:], fit.predict(units[60:]), average="macro")
    )
    with pytest.raises(InputError, match=r"classification: .*training"):
        halve(task)


def test_mini_batches_find_what_scikit_learn_finds():
    labels = np.repeat(np.arange(8), 250)
    vectors = RANDOM.normal(size=(8, 12))[labels] + RANDOM.normal(size=(2000, 12))
    ours = [metrics.v_measure_score(labels, mini_batch_clusters(vectors, 8, seed=seed)) for seed in range(6)]
    theirs = [
        metrics.v_measure_score(
            labels, MiniBatchKMeans(8, batch_size=500, n_init=1, random_state=seed).fit_predict(vectors)
        )
        for seed in range(6)
    ]
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=0.05)
    assert np.mean(ours) > 0.5
    assert (mini_batch_clusters(vectors, 8) == mini_batch_clusters(vectors, 8)).all()
    with pytest.raises(InputError, match="distinct"):
        mini_batch_clusters(np.ones((5, 2)), 2)


def letters(texts):
    return [[1.0 + text.count("a"), 1.0 + text.count("b"), 1.0] for text in texts]


def test_tables_of_lists(tmp_path):
    rows = [{"query": "aaa", "positive": ["aa"], "negative": ["bb", "b"]}] * 3 + [
        {"query": "bbb", "positive": ["bb"], "negative": ["aa"]}
    ]
    path = tmp_path / "rerank.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    task = read_task("reranking", str(path))
    assert evaluate(letters, task).value == 1.0
    assert read_task("reranking", str(path), limit=2).units == 2
    assert compare_scores(evaluate(letters, task), evaluate(letters, task)).mean == 0
    rows = [{"machine_summaries": ["a", "b"], "human_summaries": ["aa"], "relevance": [2.0, 1.0]}]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert evaluate(letters, read_task("summarisation", str(tmp_path / "sums.jsonl"))).value == pytest.approx(1)
