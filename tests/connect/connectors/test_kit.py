"""The test kit on stores that start here, and on stand-ins for servers that cannot be had."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from poolscope import read_index, write_index
from poolscope.connect.kit import certify, kit_rows
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError
from poolscope.hosts import confined
from web_stores import serving, stand_in

COUNT = 2100  # more than two pages
SECRET = "open-sesame-1234567890"


@pytest.mark.parametrize("address", ["sqlite-vec:new.db/t", "duckdb:new.duckdb/t", "faiss:new.faiss"])
def test_stores_on_this_machine(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if address.startswith("faiss"):
        with pytest.raises(InputError, match="texts"):  # a file of faiss holds none
            certify(address, count=COUNT)
        return
    made = certify(address, count=COUNT)
    assert (made.rows, made.distance) == (COUNT, "cosine")
    assert made.largest_error < 1e-6
    assert (made.recall is None) == address.startswith("sqlite")
    assert made.recall is None or made.recall > 0.8
    with pytest.raises(InputError, match="already"):
        certify(address, count=COUNT)


ADDRESSES = {
    "elastic": "elastic://me@{}/idx",
    "opensearch": "opensearch://me@{}/idx",
    "weaviate": "weaviate://{}/Idx",
    "pinecone": "pinecone://{}/ns",
}
VARIABLES = ("ELASTIC_PASSWORD", "OPENSEARCH_PASSWORD", "ELASTIC_API_KEY", "WEAVIATE_API_KEY", "PINECONE_API_KEY")


@pytest.mark.parametrize("kind", ADDRESSES)
def test_stand_ins_of_servers(kind):
    held = stand_in(kind)
    with serving(held) as place:
        address = ADDRESSES[kind].format(place)
        made = certify(address, count=COUNT)
        assert (made.rows, made.distance, made.recall) == (COUNT, "cosine", 1.0)
        assert not getattr(held, "scrolls", None)  # each was ended
        with pytest.raises(InputError, match="already"):
            write_index(address, np.eye(2))


@pytest.mark.parametrize("kind", ADDRESSES)
def test_long_vectors_are_written_in_requests_that_a_server_takes(kind):
    held = stand_in(kind)
    random = np.random.default_rng(0).standard_normal((130, 3072)).astype(np.float32)
    with serving(held) as place:
        write_index(ADDRESSES[kind].format(place), random)
        found = read_index(ADDRESSES[kind].format(place))
        np.testing.assert_array_equal(found.vectors[np.argsort([int(name) for name in found.ids])], random)
        found.close()
    assert max(len(asked.body) for asked in held.asked) < (2e6 if kind == "pinecone" else 8.1e6)


@pytest.mark.parametrize("wrong", ["ü", "x" * 513, ""])
def test_an_id_that_pinecone_refuses_is_refused_before_anything_is_written(wrong):
    held = stand_in("pinecone")
    with serving(held) as place, pytest.raises(InputError, match="ASCII"):
        write_index(ADDRESSES["pinecone"].format(place), np.eye(2), ids=["fine", wrong])
    assert held.asked == []


def test_a_document_that_is_refused_is_said():
    held = stand_in("elastic")
    held.wrong = lambda index, source: "no such thing" if source["text"] == "b" else ""
    with serving(held) as place, pytest.raises(ConnectionFailedError, match="no such thing"):
        write_index(ADDRESSES["elastic"].format(place), np.eye(2), texts=["a", "b"])


@pytest.mark.parametrize("kind", ADDRESSES)
def test_a_secret_goes_only_to_a_host_that_was_named(kind, monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    for hosts in ((), ("127.0.0.1",)):
        held = stand_in(kind)
        with serving(held) as place:
            address = ADDRESSES[kind].format(place)
            with confined(hosts):
                certify(address, count=30)
        words = [str(value) for asked in held.asked for value in asked.headers.values()]
        sent = [word for word in words if SECRET in word or word.startswith("Basic")]
        opened = [base64.b64decode(w[6:]).decode() if w.startswith("Basic") else w for w in sent]
        assert any(SECRET in word for word in opened) == bool(hosts)
    with confined([]), pytest.raises(InputError, match="not named"):
        read_index(ADDRESSES[kind].format("127.0.0.2:9"))
    with pytest.raises(ConnectionFailedError) as absent:
        read_index(ADDRESSES[kind].format("127.0.0.1:9").replace("me@", f"me:{SECRET}@"))
    assert SECRET not in str(absent.value)


def test_vec0_with_deleted_rows_partitions_and_metadata(tmp_path):
    apsw, extension = pytest.importorskip("apsw"), pytest.importorskip("sqlite_vec")
    base = apsw.Connection(str(tmp_path / "own.db"))
    base.enable_load_extension(True)
    base.load_extension(extension.loadable_path())
    base.execute("CREATE VIRTUAL TABLE v USING vec0(id integer primary key, e float[4], lang text partition key, "
                 "source text, +text text, chunk_size=8)")  # fmt: skip
    rows = kit_rows(40).vectors[:, :4]
    for k, row in enumerate(rows):
        source = f"a long name of a document {k}" if k % 2 else "short"
        base.execute("INSERT INTO v(id, e, lang, source, text) VALUES (?, ?, ?, ?, ?)",
                     (k + 1, row.tobytes(), "de" if k % 3 else "en", source, f"text {k}"))  # fmt: skip
    base.execute("DELETE FROM v WHERE id = 7")
    base.close()
    found = read_index(f"sqlite-vec:{tmp_path}/own.db")
    assert sorted(map(int, found.ids)) == [k for k in range(1, 41) if k != 7]
    for name, vector, text, group in zip(found.ids, found.vectors, found.texts, found.groups, strict=True):
        k = int(name) - 1
        np.testing.assert_array_equal(vector, rows[k])
        assert (text, group) == (f"text {k}", f"a long name of a document {k}" if k % 2 else "short")
    assert found.distance == "l2"


def test_a_view_of_duckdb_is_not_run(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    secret = tmp_path / "secret.csv"
    secret.write_text("id,embedding\n1,2\n")
    with duckdb.connect(str(tmp_path / "b.duckdb")) as base:
        base.execute(f"CREATE VIEW v AS SELECT * FROM read_csv('{secret}')")
    with pytest.raises(InputError, match="no table"):
        read_index(f"duckdb:{tmp_path}/b.duckdb/v")
