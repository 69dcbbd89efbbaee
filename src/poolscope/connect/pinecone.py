"""Pinecone: `pinecone://INDEX-HOST/namespace`, by TLS; on this machine (Pinecone Local) without.

The host of an index stands on its page and in `describe_index`. The key is taken from PINECONE_API_KEY, never from the
address. Ids are listed page by page, which serverless indexes can; vectors are fetched by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from numpy.typing import NDArray

from poolscope.connect.web import WebStore, in_requests, is_here
from poolscope.connectors.base import (
    Batch,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    column,
    guessed_notes,
    metadata_fields,
    safe_name,
    split_address,
)
from poolscope.errors import InputError
from poolscope.hosts import secret_for

SCHEMES = ("pinecone://",)
_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "dotproduct": "dot", "euclidean": "l2"}
_VERSION = "2025-04"
_LISTED = 100  # ids of one page, and of one fetch: their names have to fit into an address
_LONGEST_ID = 512
_LARGEST = 1_900_000  # bytes of one request, of which Pinecone takes two million
_REMEDY = "Check the host of the index and the key (PINECONE_API_KEY)."


def open_pinecone(name: str, fields: Fields) -> PineconeConnector:
    """The namespace of the index that the address names; the default one where it names none."""
    store, space = _connected(name)
    try:
        with asking(store.name, _REMEDY):
            return PineconeConnector(store, space, fields)
    except Exception:
        store.close()
        raise


def write_pinecone(name: str, rows: NewRows) -> None:
    """Rows for a namespace without any, of an index that is there: only its owner makes an index."""
    if wrong := [own for own in rows.ids if not own.isascii() or not 0 < len(own) <= _LONGEST_ID]:
        raise InputError(
            f"{safe_name(name)}: received the id {wrong[0][:40]!r}; allowed by Pinecone: 1 to {_LONGEST_ID} ASCII "
            "characters."
        )
    store, space = _connected(name)
    with asking(store.name, _REMEDY):
        try:
            stats = store.ask("POST", "/describe_index_stats", {})
            if ((stats.get("namespaces") or {}).get(space) or {}).get("vectorCount"):
                raise already_there(store.name)
            for vectors in in_requests(_vectors(rows), _LARGEST):
                store.ask("POST", "/vectors/upsert", {"vectors": vectors, "namespace": space})
        finally:
            store.close()


def _vectors(rows: NewRows) -> Iterator[dict[str, Any]]:
    for part, beside in rows.parts():
        for own, numbers, row in zip(rows.ids[part], rows.vectors[part].tolist(), beside, strict=True):
            yield {"id": own, "values": numbers, "metadata": row}


def _connected(name: str) -> tuple[WebStore, str]:
    """The server of the index, and the namespace."""
    shown, parts = safe_name(name), split_address(name)
    if not parts.hostname:
        raise InputError(f"{shown}: received no host; allowed: {SCHEMES[0]}INDEX-HOST/namespace.")
    secure = not is_here(parts.hostname)
    store = WebStore(name, shown, secure=secure, port=443 if secure else 5081, remedy=_REMEDY)
    store.headers["X-Pinecone-API-Version"] = _VERSION
    if key := secret_for(store.host, "PINECONE_API_KEY"):
        store.headers["Api-Key"] = key
    return store, parts.path.strip("/")


class PineconeConnector:
    """The vectors of one namespace, in the order in which their ids are listed."""

    def __init__(self, store: WebStore, space: str, fields: Fields) -> None:
        self.name, self._store, self._space = store.name, store, space
        stats = store.ask("POST", "/describe_index_stats", {})
        spaces = stats.get("namespaces") or {}
        if spaces and space not in spaces:
            listing = ", ".join(each or "(default)" for each in spaces)
            raise InputError(f"{self.name}: received no namespace of these: {listing}. Name one at the end.")
        self.distance: Distance | None = _DISTANCES.get(str(stats.get("metric", "")))
        first = self._fetched(next(self._pages(), []))
        rows = [each.get("metadata") or {} for each in first]
        described = metadata_fields(rows, Fields(None, fields.text, None, fields.group), self.name)
        self._fields = Fields(None, described.text, None, described.group)
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.search = Search(self._find, "Pinecone")

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page, at most a hundred rows each."""
        for names in self._pages(min(size, _LISTED)):
            vectors = self._fetched(names)
            rows = [each.get("metadata") or {} for each in vectors]
            yield Batch(
                names,
                [each.get("values") or None for each in vectors],
                column(rows, self._fields.text),
                column(rows, self._fields.group),
            )

    def close(self) -> None:
        """Let go of the connection."""
        self._store.close()

    def _pages(self, size: int = _LISTED) -> Iterator[list[str]]:
        following = ""
        while True:
            parameters = {"limit": size, "namespace": self._space}
            query = urlencode({**parameters, "paginationToken": following} if following else parameters)
            page = self._store.ask("GET", f"/vectors/list?{query}")
            if names := [each["id"] for each in page.get("vectors") or []]:
                yield names
            following = (page.get("pagination") or {}).get("next") or ""
            if not following:
                return

    def _fetched(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """The vectors of some ids, in their order; one that was deleted meanwhile has no values."""
        if not names:
            return []
        query = urlencode([*(("ids", each) for each in names), ("namespace", self._space)])
        found = self._store.ask("GET", f"/vectors/fetch?{query}").get("vectors") or {}
        return [found.get(each) or {} for each in names]

    def _find(self, queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
        found = []
        for row in queries:
            body = {"vector": row.tolist(), "topK": k, "namespace": self._space, "includeValues": False}
            found.append([match["id"] for match in self._store.ask("POST", "/query", body).get("matches") or []])
        return found
