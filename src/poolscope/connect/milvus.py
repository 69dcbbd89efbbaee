"""Milvus: `milvus:folder.db/collection` of Milvus Lite, or `milvus://host:19530/collection`, `milvuss://…` for TLS.

A token (or user:password) is taken from the variable MILVUS_TOKEN, never from the address. Milvus Lite opens its folder
for writing, even to read it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    metadata_fields,
    safe_name,
    split_address,
    string_or_none,
    unencrypted,
)
from poolscope.connectors.received import refuse_links
from poolscope.errors import InputError, reading, require
from poolscope.hosts import permit, secret_for
from poolscope.words import logger

SCHEMES = ("milvus://", "milvuss://")
PREFIX = "milvus:"
_DISTANCES: dict[str, Distance] = {"COSINE": "cosine", "IP": "dot", "L2": "l2"}
_REMEDY = "Check the address, that the server runs, and the token (MILVUS_TOKEN)."
_VALUES = (16, 32, 64, 128, 256, 512, 1024)
_LOOK = 20
_LONGEST = 65_535  # bytes of a string, the most that Milvus takes


def open_milvus(name: str, fields: Fields) -> MilvusConnector:
    """The collection that the address names; the only one where it names none."""
    shown = safe_name(name)
    with asking(shown, _REMEDY), _quiet():
        client, collection, token = _connected(name, shown, there=True)
        try:
            opened = MilvusConnector(shown, client, collection, fields)
        except Exception:
            client.close()
            raise
    opened.notes = [*opened.notes, *unencrypted(name, "milvus", token, "MILVUS_TOKEN")]
    return opened


def write_milvus(name: str, rows: NewRows) -> None:
    """A new collection with the fields id, vector, text and doc_id, and an HNSW index."""
    shown = safe_name(name)
    with asking(shown, _REMEDY), _quiet():
        client, collection, _ = _connected(name, shown, there=False)
        try:
            if client.has_collection(collection):
                raise already_there(shown)
            kinds = require("pymilvus", "milvus").DataType
            schema = client.create_schema(auto_id=False)
            for each in rows.columns():
                schema.add_field(each, kinds.VARCHAR, is_primary=each == "id", max_length=_LONGEST)
            schema.add_field("vector", kinds.FLOAT_VECTOR, dim=rows.vectors.shape[1])
            metric = next(metric for metric, distance in _DISTANCES.items() if distance == rows.distance)
            index = client.prepare_index_params()
            building = {"M": 16, "efConstruction": 200}
            index.add_index(field_name="vector", index_type="HNSW", metric_type=metric, params=building)
            client.create_collection(collection, schema=schema, index_params=index)
            for part, beside in rows.parts():
                whole = zip(rows.ids[part], rows.vectors[part], beside, strict=True)
                client.insert(collection, [{"id": own, "vector": vector, **row} for own, vector, row in whole])
            client.flush(collection)
        finally:
            client.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """What the client logs is not for a screen: errors are raised as well."""
    loggers = [logger(name) for name in ("pymilvus", "milvus_lite", "grpc")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def _connected(name: str, shown: str, *, there: bool) -> tuple[Any, str, str | None]:
    """A client, the collection that the address names, and the token that is sent."""
    client = require("pymilvus", "milvus").MilvusClient
    if not name.startswith(SCHEMES):
        folder, collection = _folder(name.removeprefix(PREFIX), shown)
        if there:
            _check(folder, shown)
        require("milvus_lite", "milvus")
        return client(str(folder)), collection, None
    parts, secure = split_address(name), name.startswith(SCHEMES[1])
    host = parts.hostname or "localhost"
    permit(host, name=shown)
    token = secret_for(host, "MILVUS_TOKEN")
    place = f"[{host}]" if ":" in host else host
    uri = f"http{'s' if secure else ''}://{place}:{parts.port or (443 if secure else 19530)}"
    return client(uri, token=token or ""), parts.path.strip("/"), token


def _folder(name: str, shown: str) -> tuple[Path, str]:
    """The folder of Milvus Lite, and what stands behind it."""
    whole = Path(name.partition("?")[0]).expanduser()
    for folder, collection in ((whole, ""), (whole.parent, whole.name)):
        if folder.suffix == ".db":  # by which the client knows it
            return folder, collection
    raise InputError(f"{shown}: received no folder of Milvus Lite; allowed: milvus:NAME.db/collection.")


def _check(folder: Path, shown: str) -> None:
    """Refuse a folder that the client would have to make, and links that lead out of the folder."""
    if not (folder / "collections").is_dir():
        raise InputError(f"{shown}: {folder} is no folder of Milvus Lite. Check the spelling.")
    with reading(folder, "Write it again.", kind=InputError, is_not="a folder of Milvus Lite"):
        refuse_links(folder)


class MilvusConnector:
    """The rows of a collection, in the order of their primary keys."""

    def __init__(self, name: str, client: Any, collection: str, fields: Fields) -> None:
        names = client.list_collections()
        if collection == "" and len(names) == 1:
            collection, name = names[0], f"{name.rstrip('/')}/{names[0]}"
        if collection not in names:
            raise InputError(
                f"{name}: received no collection of these: {', '.join(names) or 'none'}. Name one at the end."
            )
        self.name, self._client, self._collection = name, client, collection
        schema = client.describe_collection(collection)["fields"]
        dense = require("pymilvus", "milvus").DataType.FLOAT_VECTOR
        vectors = [each["name"] for each in schema if each["type"] == dense]
        only = vectors[0] if len(vectors) == 1 else guess(vectors, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, vectors, only, name)
        if vector is None:
            raise InputError(
                f"{name}: {len(vectors)} fields hold vectors in float32. Name one of {vectors} (--vector-column)."
            )
        key = next(each["name"] for each in schema if each.get("is_primary"))
        client.load_collection(collection)
        rows = [_plain(row) for row in client.query(collection, limit=_LOOK, output_fields=["*"])]
        names = [key, *dict.fromkeys(each for row in rows for each in row)]
        own = chosen("ids", fields.id, names, key, name)
        beside = [{each: value for each, value in row.items() if each != own} for row in rows]
        described = metadata_fields(beside, Fields(vector, fields.text, own, fields.group), name)
        self._fields = Fields(vector, described.text, own, described.group)
        self._beside = list(
            dict.fromkeys(each for each in (vector, own, described.text, described.group) if each is not None)
        )
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.distance, self.search = self._index(vector)

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page."""
        with asking(self.name, BROKE), _quiet():
            pages = self._client.query_iterator(self._collection, batch_size=size, output_fields=self._beside)
        try:
            while True:
                with asking(self.name, BROKE), _quiet():
                    rows = pages.next()
                if not rows:
                    return
                yield Batch(
                    [string_or_none(row.get(str(self._fields.id))) or "" for row in rows],
                    [row.get(str(self._fields.vector)) for row in rows],
                    column(rows, self._fields.text),
                    column(rows, self._fields.group),
                )
        finally:
            pages.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _index(self, vector: str) -> tuple[Distance | None, Search | None]:
        """The distance and the approximate search of the index of a field; None for both where it has none."""
        for name in self._client.list_indexes(self._collection):
            made = self._client.describe_index(self._collection, name)
            if made and made.get("field_name") == vector:
                distance, kind = _DISTANCES.get(str(made.get("metric_type"))), str(made.get("index_type"))
                setting = "ef" if kind.startswith("HNSW") else "nprobe" if "IVF" in kind else ""
                exact = kind.endswith("FLAT") and "IVF" not in kind
                return distance, Search(self._finder(setting), kind, setting, _VALUES if setting else (), None, exact)
        return None, None

    def _finder(self, setting: str) -> Any:
        own = str(self._fields.id)

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            parameters = {} if value is None else {"params": {setting: max(value, k) if setting == "ef" else value}}
            with asking(self.name, BROKE), _quiet():
                found = self._client.search(
                    self._collection,
                    data=[row.tolist() for row in queries],
                    anns_field=self._fields.vector,
                    limit=k,
                    search_params=parameters,
                    output_fields=[own],
                )
            return [[str(hit["entity"][own] if own in hit["entity"] else hit["id"]) for hit in hits] for hits in found]

        return find


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without its vectors."""
    return {name: value for name, value in row.items() if isinstance(value, str | int)}
