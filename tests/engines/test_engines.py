"""Engines without a cluster: this process and several, workers that die, texts that cannot be encoded."""

from __future__ import annotations

import pytest

from command_line import run
from engine_data import SHARD_TEXTS, DyingJob, SquareJob, corpus, write_vectors
from poolscope.encoders import as_encoder
from poolscope.engines import encode_with, make_engine, measure_with
from poolscope.engines.base import in_order
from poolscope.errors import InputError, ModelError, PoolscopeError
from poolscope.metrics.base import METRICS
from poolscope.stores.store import Store
from poolscope.stores.writer import begin_store, encode_to_store
from result_data import same_but_for_time
from store_fakes import contents


def test_processes_write_and_measure_what_one_process_does(tmp_path):
    encoder, texts = as_encoder(write_vectors(tmp_path / "vectors.txt")), corpus(60)
    encode_to_store(encoder, texts, tmp_path / "one", shard_texts=SHARD_TEXTS)
    done = []
    engine = make_engine("processes", workers=2)
    store = encode_with(
        engine,
        encoder,
        texts,
        tmp_path / "two",
        shard_texts=SHARD_TEXTS,
        progress=lambda count, tokens: done.append(count),
    )
    assert (store.manifest.complete, sum(done)) == (True, 60)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    whole = METRICS["profile"].in_parts(Store.open(tmp_path / "one").shards())
    assert same_but_for_time(measure_with(engine, "profile", tmp_path / "two"), whole)
    assert encode_with(engine, encoder, texts, tmp_path / "two", shard_texts=SHARD_TEXTS).reused == 60


def test_what_a_dead_process_had_is_done_by_another(tmp_path):
    engine = make_engine("processes", workers=2)
    outcomes = list(engine.run(DyingJob(str(tmp_path / "died"), at=3), range(8)))
    assert sorted(outcomes) == [(k, k * k) for k in range(8)]
    assert (tmp_path / "died").exists()


def test_work_that_kills_every_process_is_given_up(tmp_path):
    with pytest.raises(PoolscopeError, match="processes died 3 times without doing one of 1 shards"):
        list(make_engine("processes", workers=1).run(DyingJob(None, at=3), [3]))


def test_a_text_that_cannot_be_encoded_is_named_and_the_rest_is_stored(tmp_path):
    encoder, texts = as_encoder(write_vectors(tmp_path / "vectors.txt")), corpus(40, poisoned=27)
    with pytest.raises(ModelError, match=r"'id-27' \(DegenerateCloudError.*30 of 40 texts"):
        encode_with(
            make_engine("processes", workers=1), encoder, texts, tmp_path / "s", shard_texts=SHARD_TEXTS, keep="moments"
        )
    assert Store.open(tmp_path / "s").stored() == 30


def test_this_process_needs_nothing(tmp_path):
    assert list(make_engine().run(SquareJob(), [3, 1])) == [(3, 9), (1, 1)]
    assert list(in_order(iter([(1, "a")]), [1])) == ["a"]
    encoder, texts = as_encoder(write_vectors(tmp_path / "vectors.txt")), corpus(20)
    begin_store(encoder.card, texts, tmp_path / "s")
    with pytest.raises(PoolscopeError, match="the store is not finished"):
        measure_with(None, "corpus", tmp_path / "s")
    store = encode_with(make_engine("local"), encoder, texts, tmp_path / "s")
    assert store.manifest.complete
    with pytest.raises(InputError, match="its parts cannot be merged"):
        measure_with(None, "hubs", tmp_path / "s")
    with pytest.raises(ModelError, match="cannot be opened again in another process"):
        encode_with(make_engine("processes"), as_encoder(lambda batch: [[[1.0]]] * len(batch)), texts, tmp_path / "t")


def test_the_command_line(tmp_path):
    vectors = write_vectors(tmp_path / "vectors.txt")
    (tmp_path / "texts.txt").write_text("\n".join(corpus(30).texts))
    folder = tmp_path / "store"
    command = ["encode", vectors, tmp_path / "texts.txt", "-o", folder, "--engine", "processes", "--workers", "1"]
    assert "30 texts" in run(*command)
    assert "30 texts" in run("corpus", folder, "--engine", "local")
    with pytest.raises(InputError, match="Leave out one of the two"):
        run(*command, "--shard", "1/2")
    with pytest.raises(InputError, match="an engine measures a store"):
        run("hubs", folder, "--engine", "local")


def test_engines_by_name():
    with pytest.raises(InputError, match="engine: received 'dask'"):
        make_engine("dask")
    with pytest.raises(InputError, match="workers: received 0"):
        make_engine("ray", workers=0)
    with pytest.raises(InputError, match="it is that of a Ray cluster"):
        make_engine("processes", address="x")


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    ray = pytest.importorskip("ray")

    def refuse(**options):
        raise ConnectionError("nobody is there\ndetails")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(
        InputError, match=r"address: received 'host:1', and no Ray cluster answers there \(nobody is there\)"
    ):
        list(make_engine("ray", address="host:1").run(SquareJob(), [1]))
