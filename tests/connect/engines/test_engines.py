"""Engines without a cluster: this process and several, workers that die, texts that cannot be encoded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from command_line import run
from engine_data import SHARD_TEXTS, DyingJob, FailingJob, SquareJob, corpus, write_vectors
from poolscope import length_report, open_clouds, socm, token_statistics, worst_pairs
from poolscope.connect.engines.base import make_engine
from poolscope.connect.engines.work import encode_with, measure_with, over_texts, socm_with, worst_with
from poolscope.encoders import as_encoder
from poolscope.engines import in_order
from poolscope.errors import InputError, ModelError, PoolscopeError
from poolscope.lab.length.mechanism import MeasuredTexts, measure_texts
from poolscope.lab.tokens.on_engines import tokens_of_texts, tokens_with
from poolscope.metrics.base import METRICS
from poolscope.numbers.bures.pairs import available_cores
from poolscope.stores.store import Store
from poolscope.stores.writer import begin_store, describe, encode_to_store
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


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A table of word vectors and a store of 60 texts with labels, in six shards."""
    folder = tmp_path_factory.mktemp("stored")
    model = write_vectors(folder / "vectors.txt")
    labelled = replace(corpus(60), labels=tuple("ab"[k % 2] for k in range(60)))
    encode_to_store(as_encoder(model), labelled, folder / "store", shard_texts=SHARD_TEXTS)
    return model, labelled, folder / "store"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store of so many texts that their pairs, and most lists of pairs, are cut into several parts."""
    folder = tmp_path_factory.mktemp("large")
    model = write_vectors(folder / "vectors.txt")
    texts = corpus(1100)
    short = replace(texts, texts=tuple(" ".join(text.split()[:5]) for text in texts))
    encode_to_store(as_encoder(model), short, folder / "store")
    return folder / "store"


GIVEN = [(k * k % 1100, 7 * k % 1099) for k in range(5000)]  # some pairs more than once


@pytest.mark.parametrize("choice", [{}, {"pairs": 5000}, {"neighbours": 5}, {"pairs": GIVEN}], ids=str)
@pytest.mark.parametrize("keep", [5_000_000, 0])
def test_socm_in_parts_is_that_of_one_pass(large, choice, keep):
    clouds = open_clouds(large)
    whole, cut = socm(clouds, keep=keep, **choice), socm_with(None, large, keep=keep, **choice)
    assert (cut.count, cut.kind, cut.trace_check) == (whole.count, whole.kind, whole.trace_check)
    for name in ("mean", "mean_distance", "covariance_distance"):
        assert getattr(cut, name) == pytest.approx(getattr(whole, name), rel=1e-6)
    assert (cut.interval.low, cut.interval.high) == pytest.approx((whole.interval.low, whole.interval.high), rel=1e-5)
    assert [(pair.i, pair.j) for pair in cut.worst(3)] == [(pair.i, pair.j) for pair in whole.worst(3)]
    assert [cut.quantile(q) for q in (0.1, 0.9)] == pytest.approx([whole.quantile(q) for q in (0.1, 0.9)], rel=2e-4)


def test_socm_in_parts_of_two_stores(stored, large):
    left, right = open_clouds(large), open_clouds(stored[2])
    whole, cut = socm(left, right), socm_with(None, large, against=stored[2])
    assert cut.pairs.socm == pytest.approx(whole.pairs.socm, abs=2e-6)
    assert (cut.interval.low, cut.interval.high) == pytest.approx((whole.interval.low, whole.interval.high), rel=1e-5)


def test_the_worst_pairs_are_found_block_by_block(stored, large):
    whole, cut = worst_pairs(open_clouds(large), 20), worst_with(None, large, 20)
    assert [(pair.i, pair.j) for pair in cut.pairs] == [(pair.i, pair.j) for pair in whole.pairs]
    assert cut.count == whole.count
    with pytest.raises(InputError, match=r"worst: .*k = 9999"):
        worst_with(None, stored[2], 9999)


def test_processes_give_the_bytes_of_this_process(stored):
    """SOCM of a store, and token statistics of texts: in another process, and here."""
    model, texts, folder = stored
    engine = make_engine("processes", workers=1)
    first, second = (measure_with(each, "socm", folder, pairs=100) for each in (engine, "local"))
    assert same_but_for_time(first, second)
    first, second = (tokens_of_texts(each, as_encoder(model), texts) for each in (engine, None))
    assert same_but_for_time(first, second)


def test_options_of_parts_and_names_of_engines(stored):
    first, second = (measure_with(each, "profile", stored[2], bins=[0, 20, 60]) for each in (None, "local"))
    assert same_but_for_time(first, second)
    assert len(first.bins) == 2


def test_token_statistics_in_parts_are_those_of_one_pass(stored, monkeypatch):
    model, texts, folder = stored
    encoder = as_encoder(model)
    for cut, whole in (
        (tokens_with(None, folder), token_statistics(folder)),
        (tokens_with(None, folder, by_label=True), token_statistics(folder, groups=texts.labels)),
        (tokens_with(None, folder, max_types=9), token_statistics(folder, max_types=9)),
        (tokens_of_texts(None, encoder, texts), token_statistics(encoder, texts.texts)),
        (
            tokens_of_texts(None, encoder, texts, by_label=True),
            token_statistics(encoder, texts.texts, groups=texts.labels),
        ),
    ):
        assert cut.layers[-1].estimate("within_share").value == pytest.approx(
            whole.layers[-1].estimate("within_share").value, rel=1e-6
        )
        assert cut.coverage == whole.coverage
    unlabelled = replace(texts, labels=None)
    with pytest.raises(InputError, match=r"groups: .* labels"):
        tokens_of_texts(None, encoder, unlabelled, by_label=True)


def test_what_length_measures_in_parts_is_that_of_one_pass(stored, monkeypatch):
    model, texts, _ = stored
    monkeypatch.setattr(
        "poolscope.connect.engines.work.describe", lambda card, texts: describe(card, texts, shard_texts=16)
    )
    done = []
    encoder, bare = as_encoder(model), replace(texts, labels=None)
    cut = over_texts(None, measure_texts, MeasuredTexts.joined, encoder, bare, lambda *counts: done.append(counts))
    whole = measure_texts(as_encoder(model), texts.texts)
    assert [count for count, _ in done] == [16, 16, 16, 12]
    assert sum(tokens for _, tokens in done) == whole.lengths.sum()
    assert cut.vectors == pytest.approx(whole.vectors)
    assert cut.lengths.tolist() == whole.lengths.tolist()
    assert len(length_report(as_encoder(model), texts.texts, measured=cut, probes=False).profile.bins) > 0
    with pytest.raises(InputError, match=r"measured: .* 60 .* 59"):
        length_report(as_encoder(model), texts.texts[:59], measured=cut)


def test_commands_take_an_engine(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path / "cache"))
    model, texts, folder = stored
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(texts.texts))
    assert "40 pairs" in run("socm", folder, "--pairs", "40", "--engine", "local", "--parquet", tmp_path / "p.parquet")
    assert "1,770 pairs" in run("socm", model, source, "--engine", "local")
    assert "pairs evaluated" in run("socm", folder, "--worst-only", "--engine", "local")
    assert "2 labels" in run("tokens", folder, "--engine", "local", "--group-by", "label", "--details")
    assert "squared length" in run("tokens", model, source, "--engine", "local")
    assert "slope" in run("length", folder, "--engine", "local", "--bins", "0,20,40,60")
    assert "slope" in run("length", model, source, "--engine", "local", "--no-probes", "--bins", "3")
    with pytest.raises(InputError, match="--bins: received 4"):
        run("length", folder, "--bins", "4")
    # A store is cut into the bins that its texts would be cut into, as in an audit.
    profiles = []
    for number, named in enumerate(((folder,), (model, source, "--no-probes"))):
        run("length", *named, "--engine", "local", "--json", tmp_path / f"{number}.json")
        profiles.append(json.loads((tmp_path / f"{number}.json").read_text())["profile"])
    ends = [[row["low"] for row in each["bins"]] for each in profiles]
    assert ends[0] == ends[1] == profiles[0]["provenance"]["settings"]["bins"][:-1]
    assert len(ends[0]) > 1
    with pytest.raises(InputError, match=r"--state .*engine"):
        run("tokens", model, source, "--engine", "local", "--state", tmp_path / "s.npz")


def test_what_a_dead_process_had_is_done_by_another(tmp_path):
    engine = make_engine("processes", workers=2)
    outcomes = list(engine.run(DyingJob(str(tmp_path / "died"), at=3), range(8)))
    assert sorted(outcomes) == [(k, k * k) for k in range(8)]
    assert (tmp_path / "died").exists()


def test_an_error_of_a_process_is_raised_as_it_is_and_cores_are_dealt_out():
    engine = make_engine("processes", workers=2)
    with pytest.raises(ModelError, match="this machine"):
        list(engine.run(FailingJob(), [1]))
    assert {cores for _, cores in engine.run(FailingJob(9), range(2))} == {max(1, available_cores() // 2)}


def test_work_that_kills_every_process_is_given_up(tmp_path):
    with pytest.raises(PoolscopeError, match=r"3 times .* 1 shards"):
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
    with pytest.raises(PoolscopeError, match="/s: the store"):
        measure_with(None, "corpus", tmp_path / "s")
    store = encode_with(make_engine("local"), encoder, texts, tmp_path / "s")
    assert store.manifest.complete
    with pytest.raises(InputError, match="metric hubs"):
        measure_with(None, "hubs", tmp_path / "s")
    with pytest.raises(ModelError, match="another process"):
        encode_with(make_engine("processes"), as_encoder(lambda batch: [[[1.0]]] * len(batch)), texts, tmp_path / "t")


def test_the_command_line(tmp_path):
    vectors = write_vectors(tmp_path / "vectors.txt")
    (tmp_path / "texts.txt").write_text("\n".join(corpus(30).texts))
    folder = tmp_path / "store"
    command = ["encode", vectors, tmp_path / "texts.txt", "-o", folder, "--engine", "processes", "--workers", "1"]
    assert "30 texts" in run(*command)
    assert "30 texts" in run("corpus", folder, "--engine", "local")
    with pytest.raises(InputError, match="--shard and"):
        run(*command, "--shard", "1/2")
    with pytest.raises(InputError, match="--engine: hubs"):
        run("hubs", folder, "--engine", "local")


def test_engines_by_name():
    with pytest.raises(InputError, match="engine: received 'dask'"):
        make_engine("dask")
    with pytest.raises(InputError, match="workers: received 0"):
        make_engine("ray", workers=0)
    with pytest.raises(InputError, match="address: received 'x'"):
        make_engine("processes", address="x")


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    ray = pytest.importorskip("ray")

    def refuse(**options):
        raise ConnectionError("nobody is there\ndetails")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(InputError, match=r"address: .*'host:1'.*\(nobody"):
        list(make_engine("ray", address="host:1").run(SquareJob(), [1]))
