"""A real Ray cluster of three nodes on this machine: the same bytes, killed workers and drivers, bad texts named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import engine_data
from engine_data import SHARD_TEXTS, FailingJob, corpus, write_vectors
from poolscope import encode_with, measure_with
from poolscope.connect.engines.ray_engine import RayEngine
from poolscope.encoders import as_encoder
from poolscope.errors import ModelError, StoreError
from poolscope.stores.store import Store
from poolscope.stores.writer import encode_to_store
from result_data import same_but_for_time
from store_fakes import contents

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(os.name == "nt", reason="processes are killed"),
]

SECONDS = 300  # of a test; each takes some tens on an idle machine


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    utils = pytest.importorskip("ray.cluster_utils")
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = utils.Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(**small)
    here = str(Path(engine_data.__file__).parent)  # workers open jobs of the tests, whose module lies there
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": here}})
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(autouse=True)
def bound(cluster):
    """No test waits for ever, whatever the cluster waits for: it fails where it stands."""

    def stop(number, frame):
        raise TimeoutError(f"the test did not end within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_vectors(tmp_path_factory.mktemp("model") / "vectors.txt")


@pytest.fixture(scope="module")
def alone(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "store"
    encode_to_store(as_encoder(model), corpus(), folder, shard_texts=SHARD_TEXTS)
    return folder


def test_a_store_written_on_a_cluster_and_measured_there_is_that_of_one_process(cluster, model, alone, tmp_path):
    engine, done = RayEngine(workers=3), []
    folder = tmp_path / "store"
    store = encode_with(
        engine,
        as_encoder(model),
        corpus(),
        folder,
        shard_texts=SHARD_TEXTS,
        progress=lambda texts, tokens: done.append(texts),
    )
    assert store.manifest.complete
    assert sum(done) == len(store)
    assert contents(folder) == contents(alone)
    for name in ("profile", "corpus"):
        assert same_but_for_time(measure_with(engine, name, folder), measure_with(None, name, alone))


def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(cluster, model, alone, tmp_path):
    folder, killed = tmp_path / "store", []

    def kill_one():
        until = time.monotonic() + 300
        while not killed and time.monotonic() < until:
            workers = actor_processes()
            if workers and len(list(folder.glob("layer-last/shard-*"))) > 2:
                os.kill(workers[0], signal.SIGKILL)
                killed.append(workers[0])
            time.sleep(0.002)

    killer = threading.Thread(target=kill_one)
    killer.start()
    done = []
    encode_with(
        RayEngine(workers=2),
        as_encoder(model),
        corpus(),
        folder,
        shard_texts=SHARD_TEXTS,
        progress=lambda texts, tokens: done.append(texts),
    )
    killer.join()
    assert killed
    assert sum(done) == len(corpus())
    assert contents(folder) == contents(alone)


def actor_processes() -> list[int]:
    """Processes of this machine that are actors of ours."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if command.startswith("ray::") and "_Actor" in command:
                pids.append(int(entry.name))
    return sorted(pids)


DRIVER = """
import sys
from engine_data import SHARD_TEXTS, corpus
from poolscope.encoders import as_encoder
from poolscope import encode_with, make_engine
engine = make_engine("ray", address=sys.argv[3], workers=2)
encode_with(engine, as_encoder(sys.argv[1]), corpus(), sys.argv[2], shard_texts=SHARD_TEXTS)
"""


def test_a_driver_that_is_killed_is_followed_by_another(cluster, model, alone, tmp_path):
    folder = tmp_path / "store"
    paths = os.pathsep.join(filter(None, sys.path))  # pytest found the modules of the tests by its own settings
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(model), str(folder), cluster.address],
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        while len(list(folder.glob("layer-last/shard-*"))) < 3:
            assert driver.poll() is None, "the driver ended by itself: it was not killed at its work"
            time.sleep(0.005)
    finally:
        driver.kill()
        driver.wait()
    stored = Store.open(folder).stored()
    assert stored > 0
    store = encode_with(RayEngine(workers=2), as_encoder(model), corpus(), folder, shard_texts=SHARD_TEXTS)
    assert store.reused >= stored or store.reused == len(store)
    assert contents(folder) == contents(alone)


def test_a_text_that_cannot_be_encoded_is_named_and_the_rest_is_done(cluster, model, tmp_path):
    texts = corpus(poisoned=57)
    with pytest.raises(ModelError, match=r"'id-57' \(DegenerateCloudError") as error:
        encode_with(
            RayEngine(workers=2),
            as_encoder(model),
            texts,
            tmp_path / "store",
            shard_texts=SHARD_TEXTS,
            keep="moments",
        )
    assert f"{len(texts) - SHARD_TEXTS:,} of {len(texts):,} texts" in str(error.value)
    assert Store.open(tmp_path / "store").stored() == len(texts) - SHARD_TEXTS


def test_an_error_of_a_worker_is_raised_as_it_is_and_cores_are_dealt_out(cluster):
    with pytest.raises(ModelError, match="this machine"):
        list(RayEngine(workers=2).run(FailingJob(), range(5)))
    with pytest.raises(StoreError, match="full"):
        list(RayEngine(workers=2).run(FailingJob(3), range(5)))
    assert list(RayEngine(workers=3).run(FailingJob(9), range(5))) == [(k, 1) for k in range(5)]
