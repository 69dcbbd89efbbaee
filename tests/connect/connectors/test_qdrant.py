"""Qdrant, in the local mode of its client, and over the wire."""

from __future__ import annotations

import pickle
import re
import shutil
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from connector_data import COUNT, DIMENSION, IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees
from poolscope import audit, read_index
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError

client_module = pytest.importorskip("qdrant_client")
models = client_module.models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("qdrant")
    client = client_module.QdrantClient(path=str(path))
    client.create_collection("plain", models.VectorParams(size=DIMENSION, distance=models.Distance.EUCLID))
    payloads = [{"text": text, "source": source} for text, source in zip(TEXTS, SOURCES, strict=True)]
    client.upload_collection("plain", VECTORS, payloads, [int(name) for name in IDS])
    two = {name: models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE) for name in ("title", "body")}
    client.create_collection("two", two)
    client.upsert("two", [models.PointStruct(id=k, vector={"title": VECTORS[k].tolist()}) for k in range(3)])
    client.upsert("two", [models.PointStruct(id=3, vector={"body": VECTORS[3].tolist()}, payload={"body": "x"})])
    client.close()
    return path


def test_all_points_with_texts_and_groups(folder):
    held = read_index(f"qdrant:{folder}/plain")
    agrees(held)
    assert held.distance == "l2"
    assert "texts 'text', groups 'source'" in held.notes[0]
    assert held.search.exact
    read_index(f"qdrant:{folder}/plain")  # the first has let go of the folder


def test_one_of_several_vectors_must_be_named_and_points_without_it_are_counted(folder):
    with pytest.raises(InputError, match="title, body"):
        read_index(f"qdrant:{folder}/two")
    held = read_index(f"qdrant:{folder}/two", vector_column="title")
    assert (len(held), held.faults, held.distance) == (3, {"no vector": 1}, "cosine")


def test_an_audit_of_a_collection(folder):
    found = audit(f"qdrant:{folder}/plain")
    assert found.corpus["texts"] == COUNT
    assert found["index"].level == "ok"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plane", "/plane: .* plain, two"),
        ("", "no collection"),
    ],
)
def test_wrong_names(folder, name, message):
    with pytest.raises(InputError, match=message):
        read_index(f"qdrant:{folder}/{name}")


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(InputError, match=re.escape(f"{tmp_path} is no")):
        read_index(f"qdrant:{tmp_path}/plain")
    assert not list(tmp_path.iterdir())


class Evil:
    """What runs when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return (open, (str(self.place), "w"))


@pytest.mark.parametrize(
    "content",
    [
        lambda place: pickle.dumps(Evil(place)),
        lambda place: pickle.dumps(Evil(place), protocol=0),
        lambda place: pickle.dumps([1, 2, 3]),
        lambda place: b"\x80\x04]r\xff\xff\xff\xff.",  # a memo of 2³² places
        lambda place: b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b".",
        lambda place: b"",
        lambda place: "a text",
    ],
)
def test_a_point_of_a_folder_is_data_and_never_run(folder, tmp_path, content):
    shutil.copytree(folder, tmp_path / "base")
    storage = tmp_path / "base" / "collection" / "plain" / "storage.sqlite"
    with sqlite3.connect(storage) as base:
        base.execute("UPDATE points SET point = ? WHERE rowid = 1", (content(tmp_path / "written"),))
    before = storage.read_bytes()
    with pytest.raises(InputError, match="damaged"):
        read_index(f"qdrant:{tmp_path}/base/plain")
    assert not (tmp_path / "written").exists()
    assert storage.read_bytes() == before


def test_a_folder_is_read_as_its_client_reads_it(folder):
    client = client_module.QdrantClient(path=str(folder))
    points, _ = client.scroll("two", with_vectors=True)
    client.close()
    held = read_index(f"qdrant:{folder}/two", vector_column="title")
    expected = {str(point.id): point.vector["title"] for point in points if "title" in point.vector}
    assert list(held.ids) == list(expected)
    assert np.allclose(held.vectors, list(expected.values()), atol=1e-7)


def test_a_server_is_asked_page_by_page_and_its_search_turned_up(folder, tmp_path, monkeypatch):
    from qdrant_server import serving

    monkeypatch.setenv("QDRANT_API_KEY", SECRET)
    local = client_module.QdrantClient(path=str(folder))
    with serving(local, key=SECRET) as (place, asked):
        held = read_index(f"qdrant://{place}/plain")
        agrees(held)
        assert (held.distance, held.search.setting, held.search.exact) == ("l2", "hnsw_ef", False)
        result = audit(f"qdrant://{place}/plain")
        with pytest.raises(InputError, match=r"/plane: .* collection"):
            read_index(f"qdrant://{place}/plane")
        titles = read_index(f"qdrant://{place}/two", vector_column="title")
    local.close()
    assert (len(titles), titles.faults) == (3, {"no vector": 1})
    assert result["recall"].number.value == 0.0
    turned = [(body["searches"][0].get("params") or {}).get("hnsw_ef") for path, body in asked if "query" in path]
    written = [path.read_bytes() for path in result.save(tmp_path / "audit").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in content for content in written)
    assert turned[:2] == [None, 16]  # as it is set, and then the ladder
    assert all("points" in path or not body for path, body in asked)  # nothing but reading


class Refusing(BaseHTTPRequestHandler):
    """A server that knows no one."""

    def do_GET(self):
        self.send_response(401)
        self.end_headers()
        self.wfile.write(f"no entry for {self.headers.get('api-key')}".encode())

    def log_message(self, *_):
        pass


def test_a_server_that_refuses_or_is_not_there_in_one_line_without_the_key(monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", SECRET)
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ConnectionFailedError) as refused:
            read_index(f"qdrant://me:{SECRET}@127.0.0.1:{server.server_port}/plain")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(ConnectionFailedError) as absent:
        read_index(f"qdrant://127.0.0.1:{server.server_port}/plain")
    assert "401" in str(refused.value)
    for error in (refused.value, absent.value):
        assert SECRET not in str(error)
        assert "\n" not in str(error)
        assert "QDRANT_API_KEY" in str(error)
