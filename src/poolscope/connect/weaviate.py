"""Weaviate: `weaviate://host:8080/Class`, `weaviates://…` for TLS; a named vector is chosen by --vector-column.

A key is taken from the variable WEAVIATE_API_KEY, never from the address.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from numpy.typing import NDArray

from poolscope.connect.web import NotThereError, WebStore, in_requests, reason_of
from poolscope.connectors.base import (
    Batch,
    ConnectionFailedError,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    chosen,
    column,
    guessed_notes,
    metadata_fields,
    safe_name,
    split_address,
    unencrypted,
)
from poolscope.errors import InputError
from poolscope.hosts import secret_for

SCHEMES = ("weaviate://", "weaviates://")
_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "dot": "dot", "l2-squared": "l2"}
_CLASS = re.compile(r"[A-Za-z][_0-9A-Za-z]*")
_REMEDY = "Check the address, that the server runs, and the key (WEAVIATE_API_KEY)."
_LOOK = 20


def open_weaviate(name: str, fields: Fields) -> WeaviateConnector:
    """The collection that the address names."""
    store, collection, key = _connected(name)
    try:
        with asking(store.name, _REMEDY):
            opened = WeaviateConnector(store, collection, fields)
    except Exception:
        store.close()
        raise
    opened.notes = [*opened.notes, *unencrypted(name, "weaviate", key, "WEAVIATE_API_KEY")]
    return opened


def write_weaviate(name: str, rows: NewRows) -> None:
    """A new collection; ids that are no UUID stand in the property `row_id`."""
    store, collection, _ = _connected(name)
    with asking(store.name, _REMEDY):
        try:
            with suppress(NotThereError):
                store.ask("GET", f"/v1/schema/{collection}")
                raise already_there(store.name)
            distances = {distance: kind for kind, distance in _DISTANCES.items()}
            names = ["row_id", *(each for each in rows.columns() if each != "id")]
            form = {
                "class": collection,
                "vectorizer": "none",
                "vectorIndexConfig": {"distance": distances[rows.distance]},
                "properties": [{"name": each, "dataType": ["text"]} for each in names],
            }
            store.ask("POST", "/v1/schema", form)
            for objects in in_requests(_objects(collection, rows)):
                for answer in store.ask("POST", "/v1/batch/objects", {"objects": objects}):
                    if errors := (answer.get("result") or {}).get("errors"):
                        raise ConnectionFailedError(f"{store.name}: an object was refused ({reason_of(errors)}).")
        finally:
            store.close()


def _objects(collection: str, rows: NewRows) -> Iterator[dict[str, Any]]:
    for part, beside in rows.parts():
        for own, vector, row in zip(rows.ids[part], rows.vectors[part].tolist(), beside, strict=True):
            name = str(uuid.uuid5(uuid.NAMESPACE_URL, own))
            yield {"class": collection, "id": name, "properties": {"row_id": own, **row}, "vector": vector}


def _connected(name: str) -> tuple[WebStore, str, str | None]:
    """The server, the name of the collection, and the key that is sent."""
    shown, collection = safe_name(name), split_address(name).path.strip("/")
    if not _CLASS.fullmatch(collection):
        raise InputError(
            f"{shown}: received {collection!r} as the collection; allowed: letters, digits and _, as in "
            f"{SCHEMES[0]}host:8080/Name."
        )
    secure = name.startswith(SCHEMES[1])
    store = WebStore(name, shown, secure=secure, port=443 if secure else 8080, remedy=_REMEDY)
    if key := secret_for(store.host, "WEAVIATE_API_KEY"):
        store.headers["Authorization"] = f"Bearer {key}"
    return store, collection[0].upper() + collection[1:], key  # as Weaviate itself writes its collections


class WeaviateConnector:
    """The objects of a collection in the order of their ids, by Weaviate's cursor."""

    def __init__(self, store: WebStore, collection: str, fields: Fields) -> None:
        self.name, self._store, self._collection = store.name, store, collection
        schema = store.ask("GET", f"/v1/schema/{collection}")
        named = schema.get("vectorConfig") or {}
        only = next(iter(named)) if len(named) == 1 else None
        self._vector = chosen("vectors", fields.vector, list(named), only, self.name)
        if named and self._vector is None:
            raise InputError(
                f"{self.name}: there are the vectors {', '.join(named)}. Name one with --vector-column NAME."
            )
        form = named[self._vector] if self._vector else schema
        setup = form.get("vectorIndexConfig") or {}
        self.distance: Distance | None = _DISTANCES.get(str(setup.get("distance", "cosine")))
        kind = str(form.get("vectorIndexType") or "hnsw")
        current = setup.get("ef")
        known = current if isinstance(current, int) and current > 0 else None  # -1: chosen by the server
        rows = [each.get("properties") or {} for each in self._page("", _LOOK)]
        described = metadata_fields(rows, Fields(None, fields.text, None, fields.group), self.name)
        self._own = fields.id or ("row_id" if rows and all("row_id" in row for row in rows) else None)
        self._fields = Fields(self._vector, described.text, self._own, described.group)
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.search = Search(self._find, kind, "ef", current=known, exact=kind == "flat")

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page; each begins after the last id of the page before."""
        after = ""
        while objects := self._page(after, size):
            rows: list[dict[str, Any]] = [each.get("properties") or {} for each in objects]
            own = column(rows, self._own)
            yield Batch(
                [each["id"] for each in objects] if own is None else [name or "" for name in own],
                [self._numbers(each) for each in objects],
                column(rows, self._fields.text),
                column(rows, self._fields.group),
            )
            after = objects[-1]["id"]

    def close(self) -> None:
        """Let go of the connection."""
        self._store.close()

    def _page(self, after: str, size: int) -> list[Mapping[str, Any]]:
        query = urlencode({"class": self._collection, "limit": size, "after": after, "include": "vector"})
        return self._store.ask("GET", f"/v1/objects?{query}").get("objects") or []

    def _numbers(self, each: Mapping[str, Any]) -> Any:
        return (each.get("vectors") or {}).get(self._vector) if self._vector else each.get("vector")

    def _find(self, queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
        """`ef` belongs to the collection and is not changed here: the store is only read."""
        wanted = self._own if self._own and re.fullmatch(r"[_A-Za-z][_0-9A-Za-z]*", self._own) else ""
        target = f", targetVectors: [{json.dumps(self._vector)}]" if self._vector else ""
        found = []
        for row in queries:
            near = f"nearVector: {{vector: {json.dumps(row.tolist())}{target}}}, limit: {int(k)}"
            question = f"{{Get {{{self._collection}({near}) {{{wanted} _additional {{id}}}}}}}}"
            answer = self._store.ask("POST", "/v1/graphql", {"query": question})
            if answer.get("errors"):
                raise ConnectionFailedError(f"{self.name}: the search failed ({reason_of(answer['errors'])}).")
            hits = answer["data"]["Get"][self._collection]
            found.append([str(hit[wanted]) if wanted else hit["_additional"]["id"] for hit in hits])
        return found
