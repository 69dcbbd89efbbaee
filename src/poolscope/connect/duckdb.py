"""DuckDB: `duckdb:file.duckdb/table`, with or without an HNSW index of its extension vss.

The file is attached for reading in a data base that can neither load extensions by itself nor open other files. Only
tables are read: a view is a program of whoever made the file. The search of an index needs vss, from the package
duckdb-extension-vss or installed in DuckDB.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
    guess,
    guessed_notes,
    table_fields,
)
from poolscope.errors import InputError, require
from poolscope.files import is_file

PREFIX = "duckdb:"
_DISTANCES: dict[str, tuple[Distance, str]] = {
    "cosine": ("cosine", "array_cosine_distance"),
    "ip": ("dot", "array_negative_inner_product"),
    "l2sq": ("l2", "array_distance"),
}
_VALUES = (16, 32, 64, 128, 256, 512, 1024)
_CLOSED = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_REMEDY = "Check that it is a file of DuckDB which no other program has open for writing."
_NO_SEARCH = "The index of vss was not searched: the extension is not here. Run: pip install duckdb-extension-vss"


def open_duckdb(name: str, fields: Fields) -> DuckConnector:
    """The table that the address names; the only one with vectors where it names none."""
    path, table = _place(name)
    if not is_file(path):
        raise InputError(f"{name}: {path} is no file. Write {PREFIX}file.duckdb/table.")
    duckdb = require("duckdb", "duckdb")
    with asking(name, _REMEDY):
        base = duckdb.connect(":memory:", config=_CLOSED)
        try:
            has_search = _with_vss(base)
            base.execute(f"ATTACH '{_quoted(str(path))}' AS given (READ_ONLY)")
            base.execute("SET enable_external_access = false")
            _refuse_computed(base, name)
            return DuckConnector(f"{PREFIX}{path}", base, table, fields, has_search)
        except BaseException:
            base.close()
            raise


def _refuse_computed(base: Any, name: str) -> None:
    """Refuse columns that are computed as they are read: a few bytes would become any number of them."""
    computed = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'given' AND sql ILIKE ?"
    if row := base.execute(computed, ["%GENERATED ALWAYS AS%"]).fetchone():
        raise InputError(
            f"{name}: the table {row[0]} has a generated column, which a store does not need. Leave it out."
        )


def write_duckdb(name: str, rows: NewRows) -> None:
    """A new table, in a new file or one that is there; with an HNSW index where vss is here."""
    path, table = _place(name)
    if not table:
        raise InputError(f"{name}: received no table; allowed: {PREFIX}file.duckdb/TABLE.")
    duckdb, pyarrow = require("duckdb", "duckdb"), require("pyarrow", "duckdb")
    with asking(name, _REMEDY):
        base = duckdb.connect(str(path), config=_CLOSED)
        try:
            if base.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchone():
                raise already_there(name)
            size = rows.vectors.shape[1]
            numbers = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.vectors.reshape(-1)), size)
            base.register("new_rows", pyarrow.table({**rows.columns(), "embedding": numbers}))
            has_search = _with_vss(base)
            base.execute(f"CREATE TABLE {_name(table)} AS SELECT * FROM new_rows")
            if has_search:
                base.execute("SET hnsw_enable_experimental_persistence = true")
                metric = {distance: kind for kind, (distance, _) in _DISTANCES.items()}[rows.distance]
                base.execute(
                    f"CREATE INDEX {_name(table + '_hnsw')} ON {_name(table)} USING HNSW (embedding) "
                    f"WITH (metric = '{metric}')"
                )
        finally:
            base.close()


def _with_vss(base: Any) -> bool:
    """Load the extension vss, of its package or of DuckDB's own folder; whether it is here. Nothing is downloaded."""
    found = importlib.util.find_spec("duckdb_extension_vss")
    places = (
        [] if found is None or found.origin is None else sorted(Path(found.origin).parent.rglob("*.duckdb_extension"))
    )
    for place in (*(f"'{_quoted(str(each))}'" for each in places), "vss"):
        try:
            base.execute(f"LOAD {place}")
        except Exception:  # of another version, or not there
            continue
        return True
    return False


def _place(name: str) -> tuple[Path, str]:
    """The file, and the table behind it."""
    whole = Path(name.removeprefix(PREFIX)).expanduser()
    return (whole, "") if is_file(whole) else (whole.parent, whole.name)


def _quoted(words: str) -> str:
    return words.replace("'", "''")


def _name(words: str) -> str:
    return '"' + words.replace('"', '""') + '"'


def _is_vector(kind: str) -> bool:
    """Whether a type is a list or an array of numbers.

    >>> _is_vector("FLOAT[384]"), _is_vector("DOUBLE[]"), _is_vector("VARCHAR[]"), _is_vector("FLOAT[3][3]")
    (True, True, False, False)
    """
    inner, _, size = kind.partition("[")
    return inner in ("FLOAT", "DOUBLE", "REAL") and size.endswith("]") and "[" not in size


class DuckConnector:
    """The rows of a table in the order in which they lie there."""

    def __init__(self, name: str, base: Any, table: str, fields: Fields, has_search: bool) -> None:
        self._base = base
        found = base.execute(
            "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE database_name = 'given' AND table_name IN "
            "(SELECT table_name FROM duckdb_tables() WHERE database_name = 'given') ORDER BY column_index"
        ).fetchall()
        tables: dict[str, dict[str, str]] = {}
        for schema, each, field, kind in found:
            tables.setdefault(each if schema == "main" else f"{schema}.{each}", {})[field] = kind
        own = [each for each, kinds in tables.items() if any(map(_is_vector, kinds.values()))]
        if not table and len(own) == 1:
            table = own[0]
        if table not in tables:
            raise InputError(
                f"{name}: received no table of these: {', '.join(own or tables) or 'none'}. Name one at the end."
            )
        self.name = f"{name}/{table}"
        kinds = tables[table]
        schema, _, bare = table.rpartition(".") if table.count(".") else ("main", "", table)
        self._table = f"given.{_name(schema)}.{_name(bare)}"
        vectors = [each for each, kind in kinds.items() if _is_vector(kind)]
        only = vectors[0] if len(vectors) == 1 else guess(vectors, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, list(kinds), only, self.name)
        if vector is None or vector not in vectors:
            raise InputError(
                f"{self.name}: {len(vectors)} of the columns {', '.join(kinds)} are vectors. Name one: --vector-column."
            )
        words = [each for each, kind in kinds.items() if kind == "VARCHAR"]
        plain = [each for each in kinds if each not in vectors]
        self._fields = table_fields(fields, vector, list(kinds), words, plain, self.name)
        self._kind = kinds[vector]
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.distance, self.search = self._index(bare, vector, has_search)

    def batches(self, size: int) -> Iterator[Batch]:
        """A batch of rows at a time."""
        taken = self._fields
        names = [name for name in (taken.id, taken.text, taken.group) if name is not None]
        columns = ", ".join([_name(str(taken.vector)), *(f"CAST({_name(name)} AS VARCHAR)" for name in names)])
        start = 0
        with asking(self.name, BROKE):
            cursor = self._base.execute(f"SELECT {columns} FROM {self._table}")
        while True:
            with asking(self.name, BROKE):
                rows = cursor.fetchmany(size)
            if not rows:
                return
            named = [dict(zip(names, row[1:], strict=True)) for row in rows]
            ids = column(named, taken.id)
            yield Batch(
                [str(start + k) for k in range(len(rows))] if ids is None else [each or "" for each in ids],
                [row[0] for row in rows],
                column(named, taken.text),
                column(named, taken.group),
            )
            start += len(rows)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def _index(self, table: str, vector: str, has_search: bool) -> tuple[Distance | None, Search | None]:
        """The distance and the search of an HNSW index on the column; None for both where there is none."""
        made = self._base.execute(
            "SELECT index_name, expressions FROM duckdb_indexes() WHERE database_name = 'given' AND table_name = ? "
            "AND sql ILIKE '%USING HNSW%'",
            [table],
        ).fetchall()
        if not any(vector in str(expressions) for _, expressions in made) or self._fields.id is None:
            return None, None
        if not has_search:
            self.notes = [*self.notes, _NO_SEARCH]
            return None, None
        self._base.execute(f"SELECT 1 FROM {self._table} LIMIT 1").fetchall()
        metrics = dict(
            self._base.execute(
                "SELECT index_name, metric FROM pragma_hnsw_index_info() WHERE table_name = ?", [table]
            ).fetchall()
        )
        metric = next(
            (metrics[name] for name, expressions in made if vector in str(expressions) and name in metrics), ""
        )
        if metric not in _DISTANCES:
            return None, None
        distance, function = _DISTANCES[metric]

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            return self._find(function, queries, k, value)

        return distance, Search(find, "HNSW", "hnsw_ef_search", _VALUES, 64)

    def _find(self, function: str, queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
        if value is None:
            self._base.execute("RESET hnsw_ef_search")
        else:
            self._base.execute(f"SET hnsw_ef_search = {int(value)}")
        own, vector = _name(str(self._fields.id)), _name(str(self._fields.vector))
        found = []
        for row in queries:
            written = "[" + ",".join(repr(float(number)) for number in row) + "]"
            order = f"{function}({vector}, {written}::{self._kind})"
            rows = self._base.execute(f"SELECT {own} FROM {self._table} ORDER BY {order} LIMIT {int(k)}").fetchall()
            found.append([str(name) for (name,) in rows])
        return found
