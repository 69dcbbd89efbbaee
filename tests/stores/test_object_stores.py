"""Stores on S3, against a real server: the same bytes as in a folder, resumed, shared out, damaged, replaced."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from command_line import run
from engine_data import SHARD_TEXTS, corpus, write_vectors
from poolscope import audit, encode_with, measure_with, open_clouds, verify
from poolscope.encoders import as_encoder
from poolscope.errors import InputError, StoreError
from poolscope.stores.remote import _opened, is_remote, located, open_remote
from poolscope.stores.store import Store, is_store
from poolscope.stores.writer import begin_store, encode_to_store, texts_for_store
from result_data import same_but_for_time
from store_fakes import contents

moto_server = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
TEXTS = corpus(35)


@pytest.fixture(scope="module")
def server():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    """The address of a bucket of its own, and mirrors of its own."""
    import boto3
    import s3fs

    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": server, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    _opened.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{os.urandom(4).hex()}"
    boto3.client("s3", endpoint_url=server).create_bucket(Bucket=name)
    yield f"s3://{name}"
    _opened.cache_clear()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("model") / "vectors.txt")


@pytest.fixture(scope="module")
def local(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "store"
    encode_to_store(as_encoder(model), TEXTS, folder, shard_texts=SHARD_TEXTS)
    return folder


def objects(address: str) -> dict[str, bytes]:
    """What a server holds below an address."""
    remote = open_remote(address)
    remote.system.invalidate_cache()
    return {name[len(remote.root) + 1 :]: remote.system.cat_file(name) for name in remote.system.find(remote.root)}


class Stopping:
    """An encoder that stops after some calls."""

    def __init__(self, model, calls):
        self._inner, self.calls = as_encoder(model), calls
        self.card = self._inner.card

    def encode(self, *args, **options):
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        return self._inner.encode(*args, **options)


def test_a_store_on_a_server_is_byte_for_byte_that_of_a_folder(bucket, model, local):
    address = f"{bucket}/deep/store"
    store = encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS)
    assert (store.manifest.complete, store.place) == (True, address)
    assert objects(address) == contents(local)
    assert not list(open_remote(address).mirror.rglob("shard-*"))  # what was sent takes no room here
    assert encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS).reused == len(TEXTS)
    shutil.rmtree(open_remote(address).mirror)  # as another machine sees it
    clouds = open_clouds(address)
    assert all(np.array_equal(a, b) for a, b in zip(clouds, open_clouds(local), strict=True))
    assert list(clouds.ids) == list(TEXTS.ids)
    for name in ("profile", "corpus"):
        assert same_but_for_time(measure_with(None, name, address), measure_with(None, name, local))
    assert verify(address).is_right


def test_a_run_that_was_stopped_goes_on(bucket, model, local):
    address = f"{bucket}/store"
    with pytest.raises(KeyboardInterrupt):
        encode_to_store(Stopping(model, 2), TEXTS, address, shard_texts=SHARD_TEXTS)
    assert Store.open(address).stored() == 20
    with pytest.raises(StoreError, match="unfinished, 20 of 35"):
        open_clouds(address)
    shutil.rmtree(open_remote(address).mirror)  # on another machine
    encoder = Stopping(model, 2)
    store = encode_to_store(encoder, TEXTS, address, shard_texts=SHARD_TEXTS)
    assert (store.reused, encoder.calls) == (20, 0)
    assert objects(address) == contents(local)


def test_several_writers_share_one_store(bucket, model, local):
    address = f"{bucket}/store"
    halves = [encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS, part=(k, 2)) for k in (1, 2)]
    assert [half.manifest.complete for half in halves] == [False, True]
    assert objects(address) == contents(local)
    other = f"{bucket}/engine"
    encode_with("processes", as_encoder(model), TEXTS, other, shard_texts=SHARD_TEXTS)
    assert objects(other) == contents(local)
    assert same_but_for_time(measure_with("processes", "corpus", other), measure_with(None, "corpus", local))


def test_vectors_and_the_tokens_of_a_draw(bucket, model, tmp_path):
    address, kept = f"{bucket}/vectors", {"keep": "vectors", "keep_tokens": 9, "shard_texts": SHARD_TEXTS}
    encode_to_store(as_encoder(model), TEXTS, address, **kept)
    encode_to_store(as_encoder(model), TEXTS, tmp_path / "here", **kept)
    assert objects(address) == contents(tmp_path / "here")
    assert np.array_equal(Store.open(address).vectors().vectors, Store.open(tmp_path / "here").vectors().vectors)
    assert len(open_clouds(address)) == 9


def test_other_choices_and_other_objects_are_refused(bucket, model):
    address = f"{bucket}/store"
    encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS)
    for overwrite in (False, True):
        with pytest.raises(StoreError, match="digest"):
            begin_store(as_encoder(model).card, TEXTS[:9], address, overwrite=overwrite)
    with pytest.raises(StoreError, match=r": 10 in .* 3 asked"):
        begin_store(as_encoder(model).card, TEXTS, address, shard_texts=3)
    open_remote(address).system.pipe_file(f"{bucket[5:]}/other/file.txt", b"mine")
    with pytest.raises(StoreError, match=r"manifest\.json"):
        begin_store(as_encoder(model).card, TEXTS, f"{bucket}/other")
    assert not is_store(f"{bucket}/nothing")
    with pytest.raises(InputError, match=r"no place .*/store"):
        Store.open(bucket)


def test_a_mirror_follows_a_store_that_was_made_anew(bucket, model, tmp_path):
    address = f"{bucket}/store"
    encode_to_store(as_encoder(model), TEXTS, address)
    assert len(open_clouds(address)) == 35
    remote = open_remote(address)
    shutil.copytree(remote.mirror, tmp_path / "before")
    remote.system.rm(remote.root, recursive=True)
    encode_to_store(as_encoder(model), TEXTS[:7], address)
    shutil.rmtree(remote.mirror)
    shutil.copytree(tmp_path / "before", remote.mirror)  # that of another machine, which read the first store
    assert len(open_clouds(address)) == 7


def test_what_changed_on_the_server_is_found(bucket, model):
    address = f"{bucket}/store"
    encode_to_store(as_encoder(model), TEXTS, address)
    name = f"{open_remote(address).root}/layer-last/shard-00000.arrow"
    content = bytearray(open_remote(address).system.cat_file(name))
    content[len(content) // 2] ^= 1
    open_remote(address).system.pipe_file(name, bytes(content))
    assert not verify(address).is_right


def test_no_object_is_fetched_to_another_place(bucket, model, server, tmp_path):
    encode_with("local", as_encoder(model), TEXTS, f"{bucket}/store")
    import boto3

    name = f"store/../../../{tmp_path.name}-written"
    boto3.client("s3", endpoint_url=server).put_object(Bucket=bucket[5:], Key=name, Body=b"x")
    with pytest.raises(StoreError, match=r"holds '.*', which"):
        verify(f"{bucket}/store")
    assert not list(tmp_path.rglob("*-written"))


def test_mirrors_stay_below_the_limit(bucket, model, monkeypatch):
    address = f"{bucket}/store"
    encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS)
    monkeypatch.setenv("POOLSCOPE_CACHE_GB", "0")
    clouds = open_clouds(address)
    assert len(list(open_remote(address).mirror.rglob("shard-*"))) == 1
    assert clouds[0].shape[1] == 8  # mapped, and readable


def test_a_server_that_refuses_is_told_in_words(bucket, model):
    with pytest.raises(StoreError, match="no-such-bucket-here/store: "):
        encode_to_store(as_encoder(model), TEXTS, "s3://no-such-bucket-here/store")


def test_the_command_line(bucket, model, tmp_path):
    address = f"{bucket}/store"
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS.texts))
    assert f"texts in {address}: " in run("encode", model, tmp_path / "texts.txt", "-o", address)
    assert "595 pairs" in run("socm", address)
    assert "35 texts" in run("corpus", address, "--engine", "local")
    assert audit(address, encode=False).corpus["texts"] == 35
    assert "ok" in run("verify", address)
    assert list(texts_for_store(tmp_path / "texts.txt", address)) == list(TEXTS.texts)


def test_addresses():
    assert is_remote("gs://b/x")
    assert not is_remote("http://host/x")
    assert not is_remote(3)
    assert located("s3:/b/x") == "s3://b/x"


@pytest.mark.parametrize("address", ["s3://", "s3:", "S3://bucket", "s3:///"])
def test_an_address_without_a_place_is_no_folder_here(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("one text\nanother text\n")
    with pytest.raises(InputError, match="no place"):
        run("encode", "builtin:wordllama", "texts.txt", "-o", address)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_a_store_that_cannot_be_reached_says_why(bucket):
    with pytest.raises(StoreError, match="s3://no-such-bucket-here/store"):
        run("socm", "s3://no-such-bucket-here/store")
    assert located("S3://b/x") == "s3://b/x"
    assert is_remote("s3://b/x\n")
