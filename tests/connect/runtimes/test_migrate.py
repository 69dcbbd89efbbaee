"""Two stores or servers before a switch."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit_data import sentences
from command_line import run
from poolscope import PoolscopeError, as_encoder, migrate
from poolscope.evaluation.run import PooledModel
from runtime_server import Model, serving
from tiny_models import declare, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), max_position_embeddings=128), after=["Normalize"])


@pytest.fixture(scope="module")
def texts():
    return [f"{text} {k}" for k, text in enumerate(sentences(60, high=20))]


def stored(place, vectors, texts):
    np.savez(place, vectors=vectors, texts=np.array(texts), ids=np.array([str(k) for k in range(len(texts))]))
    return place


def test_a_copy_is_the_same_and_noise_is_not(folder, texts, tmp_path):
    vectors = PooledModel(as_encoder(folder)).encode(texts)
    old = stored(tmp_path / "old.npz", vectors, texts)
    random = np.random.default_rng(0)
    noise = stored(tmp_path / "new.npz", random.standard_normal(vectors.shape), texts)
    queries = {text: str(k) for k, text in enumerate(texts)}
    (tmp_path / "q.jsonl").write_text("\n".join(json.dumps({"query": q, "relevant": [k]}) for q, k in queries.items()))
    same = migrate(old, old, queries=queries, old_model=folder)
    assert (same.same.value, same.neighbours.value, same.answers.gain.value_or_raise) == (1.0, 1.0, 0.0)
    assert not same.worse
    other = migrate(old, noise, queries=queries, old_model=folder)
    assert other.same.value == 0
    assert other.neighbours.value < 0.5
    assert other.answers.gain.interval.high < 0
    assert other.worse
    few = migrate(old, noise, queries=dict(list(queries.items())[:2]), old_model=folder)
    assert " 2 queries" in few.in_words()[-1]
    asked = ("--queries", tmp_path / "q.jsonl", "--old-model", folder, "--fail-on", "worse")
    run("migrate", old, noise, *asked, expect=1)
    run("migrate", old, old, *asked)


def test_lost_texts_are_counted(texts, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((60, 8))
    old = stored(tmp_path / "old.npz", vectors, texts)
    new = stored(tmp_path / "new.npz", vectors[:50], texts[:50])
    found = migrate(old, new)
    assert (found.common, found.lost, found.added, found.worse) == (50, 10, 0, True)


def test_a_store_beside_a_server(folder, texts, tmp_path):
    old = stored(tmp_path / "old.npz", PooledModel(as_encoder(folder)).encode(texts), texts)
    with serving(Model(folder, limit=128)) as right, serving(Model(folder, limit=128), way="max") as wrong:
        assert migrate(old, right.url).same.value == 1
        assert migrate(old, wrong.url).same.value == 0


def test_queries_of_stores_need_a_model(texts, tmp_path):
    old = stored(tmp_path / "old.npz", np.random.default_rng(0).standard_normal((60, 8)), texts)
    with pytest.raises(PoolscopeError, match="--old-model"):
        migrate(old, old, queries={"a": "0"})
