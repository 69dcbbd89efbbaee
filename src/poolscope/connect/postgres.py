"""Postgres with pgvector: `postgresql://user@host/base?table=…&column=…`, with the fields `text`, `id` and `group`.

The password comes from PGPASSWORD or a file .pgpass, as for every program of Postgres. One that stands in the address
is used, and shown nowhere. Everything runs in one transaction that can only read. Where hosts have to be named
(`hosts.confined`), libpq's own parser says which ones it will contact, and the environment decides nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlunsplit

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.base import (
    BROKE,
    VECTOR_HINTS,
    VECTORS,
    Batch,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    chosen,
    column,
    failed,
    guess,
    guessed_notes,
    safe_name,
    split_address,
    table_fields,
)
from poolscope.errors import InputError, require
from poolscope.hosts import is_confined, is_named, permit
from poolscope.keys import know_postgres_passwords

SCHEMES = ("postgresql://", "postgres://")
OWN = ("table", "column", "text", "id", "group")
_DISTANCES: dict[str, tuple[Distance, str]] = {
    "vector_cosine_ops": ("cosine", "<=>"),
    "vector_ip_ops": ("dot", "<#>"),
    "vector_l2_ops": ("l2", "<->"),
    "halfvec_cosine_ops": ("cosine", "<=>"),
    "halfvec_ip_ops": ("dot", "<#>"),
    "halfvec_l2_ops": ("l2", "<->"),
}
_SETTINGS = {
    "hnsw": ("hnsw.ef_search", (10, 20, 40, 80, 160, 320, 640, 1000)),
    "ivfflat": ("ivfflat.probes", (1, 2, 4, 8, 16, 32, 64, 128)),
}
_CURRENT = {"hnsw": 40, "ivfflat": 1}
_REMEDY = "Check host, port, user, data base and password (PGPASSWORD)."


def open_postgres(name: str, fields: Fields) -> PostgresConnector:
    """The table that the address names."""
    shown, connection, settings = _connected(name)
    connection.read_only = True
    wanted = Fields(
        fields.vector or settings.get("column"),
        fields.text or settings.get("text"),
        fields.id or settings.get("id"),
        fields.group or settings.get("group"),
    )
    table = settings["table"]
    try:
        with asking(shown, "Check the name of the table."):
            return PostgresConnector(f"{shown}?table={table}", connection, table, wanted)
    except Exception:
        connection.close()
        raise


def write_postgres(name: str, rows: NewRows) -> None:
    """A new table with the columns id, doc_id, text and embedding; in one transaction, so whole or not at all."""
    shown, connection, settings = _connected(name)
    sql = require("psycopg.sql", "pgvector")
    table = sql.Identifier(*spellings(settings["table"])[0])
    with connection, asking(shown, "Check that the user may make tables, and that the extension vector is there."):
        found = connection.execute("SELECT to_regclass(%s)", (table.as_string(connection),)).fetchone()
        if found[0] is not None:
            raise already_there(f"{shown}?table={settings['table']}")
        columns = rows.columns()
        made = [sql.SQL("{} text").format(sql.Identifier(column)) for column in columns]
        size = sql.SQL("embedding vector({})").format(sql.Literal(rows.vectors.shape[1]))
        connection.execute(
            sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY (id))").format(table, sql.SQL(", ").join([*made, size]))
        )
        names = sql.SQL(", ").join(map(sql.Identifier, [*columns, "embedding"]))
        with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, names)) as copy:
            for beside in zip(*columns.values(), rows.vectors.tolist(), strict=True):
                copy.write_row((*beside[:-1], str(beside[-1])))


def _connected(name: str) -> tuple[str, Any, dict[str, str]]:
    """The address as it is shown, a connection to its data base, and what its query says of the table."""
    psycopg = require("psycopg", "pgvector")
    parts = split_address(name)
    settings = dict(parse_qsl(parts.query))
    table = settings.get("table")
    shown = safe_name(name)
    if not table:
        raise InputError(f"{shown}: received no table; allowed: {shown}?table=NAME, and &column=NAME of the vectors.")
    user, at, place = parts.netloc.rpartition("@")
    netloc = f"{user.replace('@', '%40')}{at}{place}"  # libpq ends a password at the first @, and shows the rest
    query = urlencode({key: value for key, value in settings.items() if key not in OWN})
    address = urlunsplit(parts._replace(netloc=netloc, query=query))
    know_postgres_passwords()
    with asking(shown, _REMEDY):
        settled = _settled(address, shown) if is_confined() else {}
        return shown, psycopg.connect(address, connect_timeout=15, **settled), settings


# What an address may say where hosts have to be named: others lead to files and services.
_SAYABLE = ("host", "hostaddr", "port", "dbname", "user", "password", "sslmode")
# What keeps libpq from taking a secret of the environment or of a file: an empty value is one, and no file is there.
_NOWHERE = f"{os.devnull}/none"
_NO_SECRETS = {
    "password": "",
    "passfile": _NOWHERE,
    "sslpassword": "",
    "sslcert": _NOWHERE,
    "sslkey": _NOWHERE,
    "gssencmode": "disable",
    "require_auth": "none,password,md5,scram-sha-256",
}


def destinations(address: str) -> list[str]:
    """The hosts that libpq contacts for an address, whatever the environment says; a socket of this machine is none.

    >>> destinations("postgresql://[::1],db.example/base?hostaddr=::1,10.0.0.1")
    ['::1', 'db.example', '::1', '10.0.0.1']
    """
    said = require("psycopg.conninfo", "pgvector").conninfo_to_dict(address)
    lists = (str(said.get(part) or "") for part in ("host", "hostaddr"))
    return [host for hosts in lists for host in hosts.split(",") if host and not host.startswith(("/", "@"))]


def _settled(address: str, shown: str) -> dict[str, str]:
    """What libpq is told beside the address, so that only hosts that may be asked are, and only named ones get more."""
    said = require("psycopg.conninfo", "pgvector").conninfo_to_dict(address)
    if unknown := [key for key in said if key not in _SAYABLE]:
        raise InputError(
            f"{shown}: received {unknown[0]!r} in the query of an address; allowed here: "
            f"{', '.join((*OWN, *_SAYABLE))}. Leave it out."
        )
    hosts = destinations(address)
    permit(*hosts, name=shown)
    settled = {"host": "", "hostaddr": ""}
    if not hosts or not all(map(is_named, hosts)):
        known = {option.keyword.decode() for option in require("psycopg.pq", "pgvector").Conninfo.get_defaults()}
        settled |= {key: value for key, value in _NO_SECRETS.items() if key in known}
    return {key: value for key, value in settled.items() if key not in said}


_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


def spellings(table: str) -> list[tuple[str, ...]]:
    """What a name of a table may mean, the likeliest first: as it is written, with a dot in it, in small letters.

    >>> spellings("Documents"), spellings('public."My.Table"')
    ([('Documents',), ('documents',)], [('public', 'My.Table')])
    """
    parts = [(quoted.replace('""', '"'), bare) for quoted, bare in _PART.findall(table)]
    written = tuple(quoted or bare for quoted, bare in parts)
    small = tuple(quoted or bare.lower() for quoted, bare in parts)
    whole = [] if '"' in table else [(table,)]
    return [name for name in dict.fromkeys((written, *whole, small)) if 1 <= len(name) <= 2]


class PostgresConnector:
    """The rows of a table in the order in which they lie there, through a cursor of the server."""

    def __init__(self, name: str, connection: Any, table: str, fields: Fields) -> None:
        self.name, self._connection = name, connection
        sql = require("psycopg.sql", "pgvector")
        self._sql = sql
        self._table, self._oid = self._found(table)
        kinds = self._columns()
        row = connection.execute("SELECT relkind = 'v' FROM pg_class WHERE oid = %s", (self._oid,)).fetchone()
        self._is_view = bool(row and row[0])  # whose rows lie nowhere, so that they have no order but their own
        vectors = [each for each, kind in kinds.items() if kind.startswith(("vector", "halfvec"))]
        names = list(kinds)
        only = vectors[0] if len(vectors) == 1 else guess(vectors, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, names, only, name)
        if vector is None or vector not in vectors:
            raise InputError(
                f"{name}: {len(vectors)} of the columns {', '.join(names)} are vectors of pgvector. "
                f"Name the column with --vector-column NAME."
            )
        words = [each for each, kind in kinds.items() if kind in ("text", "varchar") or kind.startswith("character")]
        self._fields = table_fields(fields, vector, names, words, names, name)
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.distance, self.search = self._index()

    def _found(self, table: str) -> tuple[Any, int]:
        """The name of the table as SQL writes it, and its number in the catalogue."""
        for parts in spellings(table):
            name = self._sql.Identifier(*parts)
            written = name.as_string(self._connection)
            row = self._connection.execute("SELECT to_regclass(%s)::oid", (written,)).fetchone()
            if row[0] is not None:
                return name, row[0]
        raise InputError(f"{self.name}: there is no such table. Check the spelling; a schema is written SCHEMA.TABLE.")

    def _columns(self) -> dict[str, str]:
        rows = self._connection.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
            "WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            (self._oid,),
        ).fetchall()
        return dict(rows)

    def batches(self, size: int) -> Iterator[Batch]:
        """Read the rows in batches; the client holds one batch at a time."""
        taken = self._fields
        names = [name for name in (taken.id, taken.text, taken.group) if name is not None]
        columns = self._sql.SQL(", ").join(
            [
                self._sql.SQL("{}::text").format(self._sql.Identifier(taken.vector)),
                *(self._sql.SQL("{}::text").format(self._sql.Identifier(name)) for name in names),
            ]
        )
        order = "" if self._is_view else " ORDER BY ctid"
        query = self._sql.SQL("SELECT {} FROM {}" + order).format(columns, self._table)
        row = 0
        try:
            with self._connection.cursor(name="poolscope") as cursor:
                cursor.itersize = size
                cursor.execute(query)
                while rows := cursor.fetchmany(size):
                    yield self._batch(rows, names, row)
                    row += len(rows)
        except (psycopg := require("psycopg", "pgvector")).Error as error:
            broke = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            remedy = BROKE if broke else "Check its rows."
            raise failed(self.name, error, remedy) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _batch(self, rows: Sequence[Sequence[Any]], names: Sequence[str], first: int) -> Batch:
        named = [dict(zip(names, row[1:], strict=True)) for row in rows]
        ids = column(named, self._fields.id)
        return Batch(
            ids=[str(first + k) for k in range(len(rows))] if ids is None else [name or "" for name in ids],
            vectors=[None if row[0] is None else np.fromstring(row[0][1:-1], np.float32, sep=",") for row in rows],
            texts=column(named, self._fields.text),
            groups=column(named, self._fields.group),
        )

    def _index(self) -> tuple[Distance | None, Search | None]:
        """The distance and the kind of the first index on the column; None for both where there is none."""
        rows = self._connection.execute(
            "SELECT am.amname, oc.opcname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_am am ON am.oid = c.relam JOIN pg_opclass oc ON oc.oid = i.indclass[0] "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "WHERE i.indrelid = %s AND a.attname = %s AND am.amname IN ('hnsw', 'ivfflat')",
            (self._oid, self._fields.vector),
        ).fetchall()
        known = [(kind, *_DISTANCES[name]) for kind, name in rows if name in _DISTANCES]
        if not known or self._fields.id is None:
            return (known[0][1] if known else None), None
        kind, distance, operator = known[0]
        setting, values = _SETTINGS[kind]

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            return self._find(queries, k, operator, setting, value)

        return distance, Search(find, kind, setting=setting, values=values, current=_CURRENT[kind])

    def _find(self, queries: NDArray[Any], k: int, operator: str, setting: str, value: int | None) -> list[list[str]]:
        query = self._sql.SQL("SELECT {}::text FROM {} ORDER BY {} {} %s LIMIT %s").format(
            self._sql.Identifier(self._fields.id),
            self._table,
            self._sql.Identifier(self._fields.vector),
            self._sql.SQL(operator),
        )
        ids = []
        with self._connection.transaction():
            # An index is what is asked about: without this a small table is read from end to end.
            self._connection.execute("SET LOCAL enable_seqscan = off")
            if value is not None:
                self._connection.execute(f"SET LOCAL {setting} = {int(value)}")
            for row in queries:
                written = "[" + ",".join(repr(float(number)) for number in row) + "]"
                ids.append([name for (name,) in self._connection.execute(query, (written, k)).fetchall()])
        return ids
