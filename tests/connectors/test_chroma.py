"""Chroma, by its persistent client."""

from __future__ import annotations

import pytest

from connector_data import IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import read_index
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError

chromadb = pytest.importorskip("chromadb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chroma")
    client = chromadb.PersistentClient(path=str(path))  # of this process, with settings of its own
    plain = client.create_collection("plain", configuration={"hnsw": {"space": "l2"}}, embedding_function=None)
    sources = [{"source": source} for source in SOURCES]
    plain.add(ids=IDS, embeddings=VECTORS.tolist(), documents=TEXTS, metadatas=sources)
    other = client.create_collection("other", configuration={"hnsw": {"space": "ip"}}, embedding_function=None)
    other.add(ids=["a", "b"], embeddings=[[1.0, 2.0], [2.0, 1.0]], metadatas=[{"chunk": "one"}, {"chunk": "two"}])
    return path


def test_all_rows_with_texts_and_groups(folder):
    held = read_index(f"chroma:{folder}/plain")
    agrees(held)
    assert held.ids[:3] == ("1", "2", "3")  # as they were added
    assert held.distance == "l2"
    assert held.notes == ("Fields taken by their names: texts 'document', groups 'source'.",)
    queries = VECTORS[:5] + 0.01
    found = [set(ids) for ids in held.search.find(queries, 5, None)]
    assert sum(len(a & b) for a, b in zip(found, exact_neighbours(queries, 5), strict=True)) > 20
    assert held.search.current


def test_texts_in_the_metadata_and_another_distance(folder):
    held = read_index(f"chroma:{folder}/other")
    assert (held.texts, held.groups, held.distance) == (("one", "two"), None, "dot")


def test_wrong_names(folder, tmp_path):
    for name in ("", "/plane"):
        with pytest.raises(InputError, match=r"no collection of these: (plain, other|other, plain)"):
            read_index(f"chroma:{folder}{name}")
    with pytest.raises(InputError, match=r"holds a chroma\.sqlite3"):
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
    with pytest.raises(InputError, match="no data base of SQLite"):
        read_index(f"chroma:{tmp_path}/any")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]
