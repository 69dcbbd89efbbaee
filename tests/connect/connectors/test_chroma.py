"""Chroma: its persistent client, and its own server on loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from connector_data import IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import audit, read_index
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError

chromadb = pytest.importorskip("chromadb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chroma")
    fill(chromadb.PersistentClient(path=str(path)))  # of this process, with settings of its own
    return path


def fill(client) -> None:
    plain = client.create_collection("plain", configuration={"hnsw": {"space": "l2"}}, embedding_function=None)
    sources = [{"source": source} for source in SOURCES]
    plain.add(ids=IDS, embeddings=VECTORS.tolist(), documents=TEXTS, metadatas=sources)
    other = client.create_collection("other", configuration={"hnsw": {"space": "ip"}}, embedding_function=None)
    other.add(ids=["a", "b"], embeddings=[[1.0, 2.0], [2.0, 1.0]], metadatas=[{"chunk": "one"}, {"chunk": "two"}])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """`chroma run` with the same rows: its address."""
    program = Path(sys.executable).with_name("chroma")
    program = str(program) if program.exists() else shutil.which("chroma")
    if program is None:
        pytest.skip("chromadb was installed without its program")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = str(tmp_path_factory.mktemp("chroma_server"))
    running = subprocess.Popen(
        [program, "run", "--path", place, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/v2/heartbeat", running)
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        fill(chromadb.HttpClient(host="127.0.0.1", port=port, settings=settings))
        yield f"chroma://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


def _wait_for(address: str, running: subprocess.Popen) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            assert running.poll() is None, "chroma run has ended"
            assert time.monotonic() < until, "chroma run does not answer"
            time.sleep(0.1)


def test_all_rows_with_texts_and_groups(folder):
    held = read_index(f"chroma:{folder}/plain")
    agrees(held)
    assert held.ids[:3] == ("1", "2", "3")  # as they were added
    assert held.distance == "l2"
    assert "texts 'document', groups 'source'" in held.notes[0]
    queries = VECTORS[:5] + 0.01
    found = [set(ids) for ids in held.search.find(queries, 5, None)]
    assert sum(len(a & b) for a, b in zip(found, exact_neighbours(queries, 5), strict=True)) > 20
    assert held.search.current


def test_a_server_gives_the_same_rows_and_searches(server):
    held = read_index(f"{server}/plain")
    agrees(held)
    assert held.ids[:3] == ("1", "2", "3")
    assert (held.distance, held.source) == ("l2", f"{server}/plain")
    found = held.search.find(VECTORS[:5], 5, None)
    assert [ids[0] for ids in found] == IDS[:5]


def test_an_audit_of_a_server_measures_its_search_and_keeps_no_token(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CHROMA_TOKEN", SECRET)
    result = audit(f"{server}/plain")
    folder = result.save(tmp_path / "audit")
    assert not any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert result.corpus["texts"] == len(IDS)
    assert result["recall"].number.value_or_raise < 0.1
    with pytest.raises(InputError, match=r"/plane: .*: (plain, other|other, plain)"):
        audit(f"{server}/plane")


def test_texts_in_the_metadata_and_another_distance(folder):
    held = read_index(f"chroma:{folder}/other")
    assert (held.texts, held.groups, held.distance) == (("one", "two"), None, "dot")


def test_wrong_names(folder, tmp_path):
    for name in ("", "/plane"):
        with pytest.raises(InputError, match=r"collection .*: (plain, other|other, plain)"):
            read_index(f"chroma:{folder}{name}")
    with pytest.raises(InputError, match=r"chroma\.sqlite3"):
        read_index(f"chroma:{tmp_path}/nothing")
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CHROMA_TOKEN", SECRET)
    with pytest.raises(ConnectionFailedError, match="CHROMA_TOKEN") as absent:
        read_index(f"chroma://me:{SECRET}@127.0.0.1:9/plain")
    assert SECRET not in str(absent.value)


@pytest.mark.parametrize("content", [b"", b"SQLite", b"no data base at all"])
def test_a_file_that_is_no_data_base_stays_as_it_is(tmp_path, content):
    (tmp_path / "chroma.sqlite3").write_bytes(content)
    with pytest.raises(InputError, match=r"chroma\.sqlite3 is no"):
        read_index(f"chroma:{tmp_path}/any")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]


def test_a_panic_of_the_client_is_one_line(folder, monkeypatch):
    Panic = type("PanicException", (BaseException,), {})

    def panicking(**settings):
        raise Panic("called unwrap on an Err value")

    monkeypatch.setattr(chromadb, "PersistentClient", panicking)
    with pytest.raises(ConnectionFailedError, match="called unwrap"):
        read_index(f"chroma:{folder}/plain")
