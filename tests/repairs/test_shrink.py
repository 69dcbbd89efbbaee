"""Smaller vectors: what is rounded, what is searched, and when a step is free."""

from __future__ import annotations

import numpy as np
import pytest

from command_line import run
from poolscope import PoolscopeError, shrink
from poolscope.evaluation import RetrievalTask
from poolscope.repairs.shrink import SmallVectors, rounded


def world(count=200, dimension=64, *, noise=0.5, plain=16, seed=0):
    """A task, and vectors whose first `plain` dimensions hold everything that tells texts apart."""
    random = np.random.default_rng(seed)
    texts = np.zeros((count, dimension))
    texts[:, :plain] = random.standard_normal((count, plain))
    queries = texts.copy()
    queries[:, :plain] += noise * random.standard_normal((count, plain))
    table = {f"t{k}": texts[k] for k in range(count)} | {f"q{k}": queries[k] for k in range(count)}
    task = RetrievalTask(
        [f"q{k}" for k in range(count)], [f"t{k}" for k in range(count)], [(k, k) for k in range(count)]
    )
    return task, lambda asked: np.array([table[text] for text in asked])


def test_dimensions_that_hold_nothing_are_free_and_the_others_cost():
    task, encode = world()
    found = shrink(encode, task)
    assert found["first 16"].standing == "free"
    assert found["PCA 16"].standing == "free"
    assert found["first 8"].standing == "costs"
    assert found["first 8"].trial.gain.interval.high < 0
    assert found["first 16"].trial.after == pytest.approx(found.ndcg)
    assert found.free(stored=True).kept_bytes <= 16
    assert [step.searched_bytes for step in found.steps] == sorted(
        (s.searched_bytes for s in found.steps), reverse=True
    )


def test_scores_are_those_of_the_vectors_by_hand():
    task, encode = world(noise=1.5)
    queries, texts = (
        table / np.linalg.norm(table, axis=1, keepdims=True) for table in map(encode, (task.queries, task.documents))
    )
    first = texts[:, :8] / np.linalg.norm(texts[:, :8], axis=1, keepdims=True)
    scores = queries[:, :8] @ first.T
    ranks = (scores > np.diag(scores)[:, None]).sum(axis=1) + 1
    by_hand = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).mean()
    assert shrink(encode, task)["first 8"].trial.after == pytest.approx(by_hand, abs=1e-6)
    # Rescoring finds what the whole vectors find wherever the text is among the candidates.
    again = shrink(encode, task, ways=[SmallVectors(8, "float32", "first", "whole")], candidates=len(texts))
    assert again.steps[0].trial.after == pytest.approx(again.ndcg)


def test_pca_of_all_dimensions_changes_nothing():
    task, encode = world(noise=1.5)
    found = shrink(encode, task, ways=[SmallVectors(64, "float32", "PCA")])
    assert found.steps[0].trial.changed == 0


def test_bytes():
    assert SmallVectors(384, "binary").searched_bytes == 48
    assert SmallVectors(384, "binary", rescoring="whole").kept_bytes(384) == 48 + 1536
    assert SmallVectors(384, "int8", rescoring="query").kept_bytes(384) == 384


def test_eight_bits_are_256_steps_of_each_dimension():
    table = np.random.default_rng(0).standard_normal((1000, 3))
    stored = rounded(table, "int8")
    assert all(len(np.unique(stored[:, k])) <= 256 for k in range(3))
    assert np.abs(stored - table).max() <= (table.max(axis=0) - table.min(axis=0)).max() / 255 / 2 + 1e-9


def test_few_queries_prove_nothing():
    task, encode = world(count=12, noise=1.5)
    assert "unclear" in {step.standing for step in shrink(encode, task).steps}


def test_few_texts_have_no_more_axes_than_texts():
    task, encode = world(count=12)
    assert set(shrink(encode, task).left_out) == {"PCA 32", "PCA 16"}


@pytest.mark.parametrize(
    "wrong", [{"matters": 2}, {"candidates": 0}, {"ways": []}, {"ways": ["int8"]}, {"vectors": np.eye(3)}]
)
def test_wrong_arguments_are_refused(wrong):
    task, encode = world(count=20)
    with pytest.raises(PoolscopeError):
        shrink(encode, task, **wrong)


def test_stored_vectors_stand_for_the_texts(tmp_path):
    task, encode = world()
    stored = shrink(encode, task, vectors=encode(list(task.documents)))
    assert stored.ndcg == shrink(encode, task).ndcg


def test_vectors_on_the_command_line_need_their_model(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float32))
    with pytest.raises(PoolscopeError, match="--reference"):
        run("shrink", tmp_path / "v.npy")
