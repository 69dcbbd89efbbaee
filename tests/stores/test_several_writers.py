"""Several writers of one store, and stores of one vector a text: the bytes are those of one writer."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from command_line import run
from poolscope.errors import InputError, StoreError
from poolscope.metrics.base import METRICS
from poolscope.numbers.moments import text_moments
from poolscope.numbers.streaming import marks_of
from poolscope.stores.store import Store, open_clouds
from poolscope.stores.writer import begin_store, encode_to_store, finish_store, spans, store_lock, write_shard
from store_fakes import CARD, LAYERS, SHARD_TEXTS, FakeEncoder, contents, corpus, die, fill, never

TEXTS = corpus(20, labels=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("alone")
    fill(folder, texts=TEXTS)
    return contents(folder)


def test_shards_written_in_any_order_by_anyone_make_the_store_of_one_writer(tmp_path, alone):
    store = begin_store(CARD, TEXTS, tmp_path, layers=LAYERS, shard_texts=SHARD_TEXTS)
    cuts = spans(store.manifest.shard_sizes)
    for shard in reversed(range(len(cuts))):
        assert not finish_store(store).manifest.complete
        write_shard(Store.open(tmp_path), FakeEncoder(), TEXTS[cuts[shard]], shard)
    assert finish_store(store).manifest.complete
    assert contents(tmp_path) == alone


def test_parts_make_the_store_of_one_writer_and_the_last_one_finishes_it(tmp_path, alone):
    for part in (2, 3, 1):
        store = fill(tmp_path, texts=TEXTS, part=(part, 3))
        assert store.manifest.complete == (part == 1)
    assert contents(tmp_path) == alone
    assert fill(tmp_path, encoder=FakeEncoder(before=never), texts=TEXTS, part=(2, 3)).reused == 20
    with pytest.raises(InputError, match="part: received 4/3"):
        fill(tmp_path / "other", texts=TEXTS, part=(4, 3))


def slow_writer(folder: Path) -> None:
    fill(folder, encoder=FakeEncoder(before=lambda call: time.sleep(0.05)), texts=TEXTS, part=(1, 1))


def test_processes_that_do_the_same_share_the_work(tmp_path, alone):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=slow_writer, args=(tmp_path,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert contents(tmp_path) == alone


def dying_writer(folder: Path) -> None:
    fill(folder, encoder=FakeEncoder(before=lambda call: die() if call == 2 else None), texts=TEXTS)


def test_the_shard_of_a_dead_writer_is_taken_over(tmp_path, alone):
    context = multiprocessing.get_context("fork")
    writer = context.Process(target=dying_writer, args=(tmp_path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert list(tmp_path.glob(".shard-*.lock"))
    store = fill(tmp_path, texts=TEXTS)
    assert store.reused == 2 * SHARD_TEXTS
    assert contents(tmp_path) == alone


def holding_writer(folder: Path, ready) -> None:
    with store_lock(folder, ".shard-00001.lock"):
        ready.set()
        time.sleep(60)


def test_a_shard_in_other_hands_is_waited_for_until_these_die(tmp_path, alone):
    context = multiprocessing.get_context("fork")
    begin_store(CARD, TEXTS, tmp_path, layers=LAYERS, shard_texts=SHARD_TEXTS)
    ready = context.Event()
    holder = context.Process(target=holding_writer, args=(tmp_path, ready))
    holder.start()
    ready.wait()
    encoder = FakeEncoder(before=lambda call: os.kill(holder.pid, signal.SIGKILL) if call == 5 else None)
    fill(tmp_path, encoder=encoder, texts=TEXTS)
    holder.join()
    assert contents(tmp_path) == alone


# -- one vector a text --------------------------------------------------------------------------------------------


def test_moments_are_those_of_the_tokens_and_tokens_of_a_draw_are_kept(tmp_path):
    fill(tmp_path / "tokens", texts=TEXTS, layers=None)
    store = fill(tmp_path / "moments", texts=TEXTS, layers=None, keep="moments", keep_tokens=6)
    clouds, held = open_clouds(tmp_path / "tokens"), store.vectors()
    moments = text_moments(clouds)
    np.testing.assert_allclose(held.vectors, moments.unit_means * moments.norms[:, None], rtol=1e-6)
    np.testing.assert_allclose(held.traces, moments.traces)
    assert held.ids == TEXTS.ids
    assert held.labels == TEXTS.labels
    assert held.lengths.tolist() == clouds.lengths.tolist()
    drawn = sorted(np.argsort(marks_of(TEXTS.ids))[:6].tolist())
    assert list(store.clouds().ids) == [TEXTS.ids[k] for k in drawn]
    np.testing.assert_array_equal(store.clouds()[0], clouds[drawn[0]])
    assert store.clouds().provenance["texts"]["selected"] == 6
    choices = {"texts": TEXTS, "layers": None, "keep": "moments", "keep_tokens": 6}
    assert fill(tmp_path / "moments", encoder=FakeEncoder(before=never), **choices).reused == 20
    with pytest.raises(StoreError, match=r"'moments' in .*'tokens' asked"):
        fill(tmp_path / "moments", texts=TEXTS, layers=None)


def test_moments_by_parts_and_after_a_kill_are_the_same_bytes(tmp_path):
    choices = {"texts": TEXTS, "layers": None, "keep": "moments", "keep_tokens": 6}
    fill(tmp_path / "one", **choices)
    for part in (2, 1):
        fill(tmp_path / "two", part=(part, 2), **choices)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    damaged = next((tmp_path / "two" / "moments-last").glob("*.arrow"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert fill(tmp_path / "two", **choices).damaged == 1
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_metrics_of_a_store_shard_by_shard_are_those_of_all(tmp_path):
    store = fill(tmp_path / "tokens", texts=TEXTS, layers=None)
    moments = fill(tmp_path / "moments", texts=TEXTS, layers=None, keep="moments")
    vectors = fill(tmp_path / "vectors", texts=TEXTS, layers=None, keep="vectors")
    for name in ("profile", "corpus"):
        whole = METRICS[name](open_clouds(tmp_path / "tokens")).rows()
        for held in (store, moments, vectors):
            for row, other in zip(METRICS[name].in_parts(held.shards()).rows(), whole, strict=True):
                numbers = {key: value for key, value in row.items() if isinstance(value, float)}
                assert numbers == pytest.approx({key: other[key] for key in numbers}, rel=1e-4, abs=1e-5)
    assert vectors.vectors().traces is None
    with pytest.raises(StoreError, match=r"/moments: .* no tokens"):
        moments.clouds()
    with pytest.raises(InputError, match="needed: clouds"):
        METRICS["tokens"].in_parts(moments.shards())
    with pytest.raises(StoreError, match="keeps tokens"):
        store.vectors()


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"keep": "all"}, "keep: received 'all'"), ({"keep_tokens": 5}, "keep_tokens: received 5")],
)
def test_what_cannot_be_kept(tmp_path, choices, message):
    with pytest.raises(InputError, match=message):
        encode_to_store(FakeEncoder(), TEXTS, tmp_path, **choices)


def test_the_command_line(tmp_path, monkeypatch):
    from poolscope import encoders

    monkeypatch.setattr(encoders, "as_encoder", lambda model, **options: FakeEncoder())
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS.texts))
    folder = tmp_path / "store"
    command = ["encode", "fake", str(path), "-o", str(folder), "--shard-texts", "3", "--keep", "moments"]
    assert "11 of 20 texts" in run(*command, "--shard", "1/2")
    assert re.search(r"kept .* moments", run(*command, "--shard", "2/2", "--details"))
    assert "20 texts" in run("length", folder)
    assert re.search(r"texts +20\b", run("corpus", folder))
    assert re.search(
        r"texts +20\b", run("spread", folder, "--details")
    )  # vectors are of all texts, though no tokens are kept
    with pytest.raises(InputError, match="--shard: received '3/2'"):
        run(*command, "--shard", "3/2")
