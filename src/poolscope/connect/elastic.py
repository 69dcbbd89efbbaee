"""Elasticsearch and OpenSearch: `elastic://host:9200/index`, `opensearch://host:9200/index`; `elastics://…` for TLS.

A key is taken from the variable ELASTIC_API_KEY; the password of a user in the address from ELASTIC_PASSWORD or
OPENSEARCH_PASSWORD. Rows are read by a scroll, which both servers have, in the order in which they lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from numpy.typing import NDArray

from poolscope.connect.web import NotThereError, WebStore, in_requests, login, reason_of
from poolscope.connectors.base import (
    VECTOR_HINTS,
    VECTORS,
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
    guess,
    guessed_notes,
    metadata_fields,
    safe_name,
    split_address,
    unencrypted,
)
from poolscope.errors import InputError
from poolscope.hosts import secret_for

SCHEMES = ("elastic://", "elastics://", "opensearch://", "opensearchs://")
_DISTANCES: dict[str, Distance] = {
    "cosine": "cosine",
    "dot_product": "dot",
    "max_inner_product": "dot",
    "l2_norm": "l2",
    "cosinesimil": "cosine",
    "innerproduct": "dot",
    "l2": "l2",
}
_VALUES = (16, 32, 64, 128, 256, 512, 1024)
_REMEDY = "Check the address, that the server runs, and the key (ELASTIC_API_KEY) or the user and password."
_KEPT = "2m"  # how long the server keeps a scroll between two pages
_LOOK = 20
_HIDES_VECTORS = (9, 2)  # from this version on Elasticsearch leaves vectors out of the source unless they are asked for


def open_elastic(name: str, fields: Fields) -> ElasticConnector:
    """The index that the address names."""
    store, index, secret = _connected(name)
    try:
        with asking(store.name, _REMEDY):
            opened = ElasticConnector(store, index, fields)
    except Exception:
        store.close()
        raise
    scheme = name.partition("://")[0].rstrip("s") if name.startswith("elastic") else "opensearch"
    opened.notes = [*opened.notes, *unencrypted(name, scheme, secret, "ELASTIC_API_KEY")]
    return opened


def write_elastic(name: str, rows: NewRows) -> None:
    """A new index with the fields embedding, text and doc_id."""
    store, index, _ = _connected(name)
    with asking(store.name, _REMEDY):
        try:
            is_open = _is_opensearch(store.ask("GET", "/"))
            with suppress(NotThereError):
                store.ask("GET", f"/{quote(index)}/_mapping")
                raise already_there(store.name)
            size = rows.vectors.shape[1]
            words = {key: {"type": "text" if key == "text" else "keyword"} for key in rows.columns() if key != "id"}
            if is_open:
                space = {"cosine": "cosinesimil", "dot": "innerproduct", "l2": "l2"}[rows.distance]
                vector: dict[str, Any] = {"type": "knn_vector", "dimension": size, "space_type": space}
                settings: dict[str, Any] = {"settings": {"index": {"knn": True}}}
            else:
                similarity = {"cosine": "cosine", "dot": "max_inner_product", "l2": "l2_norm"}[rows.distance]
                vector = {"type": "dense_vector", "dims": size, "index": True, "similarity": similarity}
                settings = {}
            store.ask(
                "PUT", f"/{quote(index)}", {**settings, "mappings": {"properties": {"embedding": vector, **words}}}
            )
            for documents in in_requests(_documents(rows)):
                lines = [line for each in documents for line in ({"index": {"_id": each["_id"]}}, each["source"])]
                answer = store.ask("POST", f"/{quote(index)}/_bulk", lines)
                if answer.get("errors"):
                    errors = [item["index"]["error"] for item in answer["items"] if "error" in item["index"]]
                    raise ConnectionFailedError(f"{store.name}: a document was refused ({reason_of(errors[0])}).")
            store.ask("POST", f"/{quote(index)}/_refresh")
        finally:
            store.close()


def _documents(rows: NewRows) -> Iterator[dict[str, Any]]:
    for part, beside in rows.parts():
        for own, numbers, row in zip(rows.ids[part], rows.vectors[part].tolist(), beside, strict=True):
            yield {"_id": own, "source": {"embedding": numbers, **row}}


def _connected(name: str) -> tuple[WebStore, str, str | None]:
    """The server, the name of the index, and the secret that is sent."""
    shown, index = safe_name(name), split_address(name).path.strip("/")
    if not index or "/" in index or re.search(r'[*,"<>|? ]', index) or index.startswith(("_", "-")):
        raise InputError(
            f"{shown}: received {index!r} as the index; allowed: one name, as in {SCHEMES[0]}host:9200/NAME."
        )
    secure = name.partition("://")[0].endswith("s")
    store = WebStore(name, shown, secure=secure, port=9200, remedy=_REMEDY)
    variable = "OPENSEARCH_PASSWORD" if name.startswith("opensearch") else "ELASTIC_PASSWORD"
    secret = login(name, store.host, variable)
    if secret is None and (key := secret_for(store.host, "ELASTIC_API_KEY")):
        secret = f"ApiKey {key}"
    if secret is not None:
        store.headers["Authorization"] = secret
    return store, index, secret


def _is_opensearch(root: Mapping[str, Any]) -> bool:
    return str((root.get("version") or {}).get("distribution", "")) == "opensearch"


def _version(root: Mapping[str, Any]) -> tuple[int, ...]:
    """The first two numbers of a version; (0,) where there is none, as on a service without versions."""
    found = re.match(r"(\d+)\.(\d+)", str((root.get("version") or {}).get("number", "")))
    return tuple(map(int, found.groups())) if found else (0,)


class ElasticConnector:
    """The documents of an index, read by a scroll."""

    def __init__(self, store: WebStore, index: str, fields: Fields) -> None:
        self.name, self._store, self._path = store.name, store, f"/{quote(index)}"
        root = store.ask("GET", "/")
        self._is_open = _is_opensearch(root)
        self._source: Any = True
        if not self._is_open and _version(root) >= _HIDES_VECTORS:
            self._source = {"exclude_vectors": False}
        mappings = store.ask("GET", f"{self._path}/_mapping")
        if len(mappings) != 1:
            raise InputError(f"{self.name}: the name stands for {len(mappings)} indexes. Name one of them.")
        properties = next(iter(mappings.values()))["mappings"].get("properties") or {}
        kinds = {each: form for each, form in properties.items() if form.get("type") in ("dense_vector", "knn_vector")}
        only = next(iter(kinds)) if len(kinds) == 1 else guess(kinds, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, list(properties), only, self.name)
        if vector is None or vector not in kinds:
            listing = ", ".join(properties) or "none"
            raise InputError(
                f"{self.name}: {len(kinds)} of the fields {listing} are vectors. Name one with --vector-column NAME."
            )
        self.distance, self.search = self._index(vector, kinds[vector])
        first = self._search({"size": _LOOK, "query": {"match_all": {}}, "_source": {"excludes": [vector]}})
        rows = [_flat(hit.get("_source") or {}) for hit in first["hits"]["hits"]]
        described = metadata_fields(rows, Fields(vector, fields.text, None, fields.group), self.name)
        self._own = fields.id
        self._fields = Fields(vector, described.text, None, described.group)
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page; the scroll is ended whatever happens."""
        body = {"size": size, "query": {"match_all": {}}, "sort": ["_doc"], "_source": self._source}
        page = self._search(body, f"?scroll={_KEPT}")
        scroll = page["_scroll_id"]
        try:
            while hits := page["hits"]["hits"]:
                rows = [_flat(hit.get("_source") or {}) for hit in hits]
                ids = [hit["_id"] for hit in hits]
                own = column(rows, self._own)
                yield Batch(
                    ids if own is None else [name or "" for name in own],
                    [row.get(str(self._fields.vector)) for row in rows],
                    column(rows, self._fields.text),
                    column(rows, self._fields.group),
                )
                page = self._whole(self._store.ask("POST", "/_search/scroll", {"scroll": _KEPT, "scroll_id": scroll}))
                scroll = page.get("_scroll_id", scroll)
        finally:
            with suppress(ConnectionFailedError):
                self._store.ask("DELETE", "/_search/scroll", {"scroll_id": [scroll]})

    def close(self) -> None:
        """Let go of the connection."""
        self._store.close()

    def _search(self, body: Mapping[str, Any], more: str = "") -> Any:
        return self._whole(self._store.ask("POST", f"{self._path}/_search{more}", body))

    def _whole(self, page: Any) -> Any:
        """An answer of all shards: with a success a server also says that some of them did not answer."""
        shards = page.get("_shards") or {}
        total = shards.get("total", 0)
        silent = max(shards.get("failed", 0), total - shards.get("successful", total) - shards.get("skipped", 0))
        if silent > 0 or page.get("timed_out"):
            why = reason_of(shards.get("failures") or "") or "no reason is given"
            raise ConnectionFailedError(
                f"{self.name}: {silent} of {total} shards did not answer in time ({why}). "
                "Rows are missing from the answer. Run it again."
            )
        return page

    def _index(self, vector: str, form: Mapping[str, Any]) -> tuple[Distance | None, Search | None]:
        """The distance of a field of vectors, and its approximate search where it has an index."""
        method = form.get("method") or {}
        if self._is_open:
            space = str(method.get("space_type") or form.get("space_type") or "l2")
            current = (method.get("parameters") or {}).get("ef_search")
            kind = f"{method.get('engine') or 'HNSW'} {method.get('name') or ''}".strip()
            return _DISTANCES.get(space), Search(self._finder(vector), kind, "ef_search", _VALUES, current)
        distance = _DISTANCES.get(str(form.get("similarity", "cosine")))
        if form.get("index") is False:
            return distance, None
        options = str((form.get("index_options") or {}).get("type") or "hnsw")
        exact = options.endswith("flat")
        return distance, Search(self._finder(vector), options, "num_candidates", _VALUES, None, exact)

    def _finder(self, vector: str) -> Any:
        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            return [self._ids(self._question(vector, row.tolist(), k, value)) for row in queries]

        return find

    def _question(self, vector: str, numbers: list[float], k: int, value: int | None) -> dict[str, Any]:
        if self._is_open:
            near: dict[str, Any] = {"vector": numbers, "k": k}
            if value is not None:
                near["method_parameters"] = {"ef_search": value}
            return {"size": k, "query": {"knn": {vector: near}}}
        candidates = max(k, value or max(100, k + k // 2))
        return {"size": k, "knn": {"field": vector, "query_vector": numbers, "k": k, "num_candidates": candidates}}

    def _ids(self, question: dict[str, Any]) -> list[str]:
        source = False if self._own is None else [self._own]
        hits = self._search({**question, "_source": source})["hits"]["hits"]
        if not hits:
            raise ConnectionFailedError(
                f"{self.name}: the search finds nothing at all. Is the index made for it (index.knn in OpenSearch)?"
            )
        if self._own is None:
            return [hit["_id"] for hit in hits]
        return [str(_flat(hit.get("_source") or {}).get(self._own, "")) for hit in hits]


def _flat(source: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Fields of a document by their whole names: {"metadata": {"title": 1}} has the field metadata.title.

    >>> _flat({"text": "a", "metadata": {"doc": "b"}})
    {'text': 'a', 'metadata.doc': 'b'}
    """
    flat: dict[str, Any] = {}
    for name, value in source.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {before + name: value}
    return flat
