"""Qdrant: `qdrant://host:port/collection`, `qdrants://…` for TLS, or `qdrant:folder/collection` on this machine.

A key is taken from the variable QDRANT_API_KEY, never from the address.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.base import (
    VECTORS,
    Batch,
    Distance,
    Fields,
    Search,
    chosen,
    failed,
    guess,
    guessed_notes,
    is_file,
    metadata_fields,
    safe_name,
    string_or_none,
    unencrypted,
)
from poolscope.connectors.qdrant_folder import LocalFolder
from poolscope.errors import InputError, PoolscopeError, require

SCHEMES = ("qdrant://", "qdrants://")
PREFIX = "qdrant:"
_DISTANCES: dict[str, Distance] = {"Cosine": "cosine", "Dot": "dot", "Euclid": "l2"}
_VALUES = (16, 32, 64, 128, 256, 512, 1024)
_REMEDY = "Check the address, that the server runs, and the key (QDRANT_API_KEY)."
_LOOK = 20  # rows that are looked at for the names of their fields


def accepts(name: str) -> bool:
    """Is it an address of Qdrant?"""
    return name.startswith((*SCHEMES, PREFIX))


def open_qdrant(name: str, fields: Fields) -> QdrantConnector:
    """The collection that the address names."""
    place, _, collection = name.partition("?")[0].rpartition("/")
    if not collection or place.endswith((":", "/")):
        raise InputError(
            f"{safe_name(name)}: received no collection; allowed: qdrant://host:port/collection or "
            f"qdrant:folder/collection. Name it at the end."
        )
    shown = safe_name(name)
    key = os.environ.get("QDRANT_API_KEY")
    try:
        if name.startswith(SCHEMES):
            scheme = "https" if name.startswith("qdrants") else "http"
            address = f"{scheme}://{place.partition('://')[2].rpartition('@')[2]}"
            client = require("qdrant_client", "qdrant").QdrantClient
            with warnings.catch_warnings():  # that a key goes without TLS is one of the notes
                warnings.filterwarnings("ignore", message=".*insecure")
                opened = client(url=address, api_key=key, timeout=30, check_compatibility=False)
        else:
            folder = Path(place.removeprefix(PREFIX)).expanduser()
            if not is_file(folder / "meta.json"):
                raise InputError(f"{shown}: {folder} is no folder of Qdrant. Check the spelling.")
            opened = LocalFolder(folder)
    except PoolscopeError:
        raise
    except Exception as error:  # whatever the client raises: refused, timed out, 401
        raise failed(shown, error, _REMEDY, key) from error
    try:
        connector = QdrantConnector(shown, opened, collection, fields)
        connector.notes = [*connector.notes, *unencrypted(name, "qdrant", key, "QDRANT_API_KEY")]
        return connector
    except InputError:
        opened.close()
        raise
    except Exception as error:
        opened.close()
        raise failed(shown, error, _REMEDY, key) from error


class QdrantConnector:
    """The points of a collection, by scrolling: in the order of their ids."""

    def __init__(self, name: str, client: Any, collection: str, fields: Fields) -> None:
        names = [each.name for each in client.get_collections().collections]
        if collection not in names:
            raise InputError(f"{name}: there is no such collection; there are {', '.join(names) or 'none'}. Name one.")
        self.name, self._client, self._collection = name, client, collection
        params = client.get_collection(collection).config.params.vectors
        named = params if isinstance(params, dict) else {"": params}
        only = next(iter(named)) if len(named) == 1 else guess(named, VECTORS)
        vector = chosen("vectors", fields.vector, list(named), only, name)
        if vector is None:
            raise InputError(
                f"{name}: received the vectors {', '.join(named)}; which of them? Name it (--vector-column)."
            )
        self._vector = vector
        self.distance = _DISTANCES.get(getattr(named[vector].distance, "value", ""))
        first, _ = client.scroll(collection, limit=_LOOK, with_payload=True, with_vectors=False)
        payloads = [point.payload or {} for point in first]
        self._fields = metadata_fields(payloads, Fields(vector or None, fields.text, fields.id, fields.group), name)
        self.notes: Sequence[str] = guessed_notes(Fields(vector or None, fields.text, None, fields.group), self._fields)
        self.search = self._search()

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page."""
        place: Any = None
        wanted = [name for name in (self._fields.text, self._fields.group) if name is not None]
        while True:
            try:
                points, place = self._client.scroll(
                    self._collection,
                    limit=size,
                    offset=place,
                    with_payload=wanted or False,
                    with_vectors=[self._vector] if self._vector else True,
                )
            except InputError:
                raise
            except Exception as error:
                raise failed(self.name, error, "The connection broke; nothing was kept. Run it again.") from error
            payloads = [point.payload or {} for point in points]
            yield Batch(
                ids=[str(point.id) for point in points],
                vectors=[self._vector_of(point.vector) for point in points],
                texts=self._column(payloads, self._fields.text),
                groups=self._column(payloads, self._fields.group),
            )
            if place is None:
                return

    def close(self) -> None:
        """Of a folder: so that another process can open it."""
        self._client.close()

    def _vector_of(self, stored: Any) -> Any:
        if isinstance(stored, dict):
            stored = stored.get(self._vector)
        return None if stored is None else np.asarray(stored, dtype=np.float32)

    def _column(self, payloads: Sequence[dict[str, Any]], name: str | None) -> list[str | None] | None:
        return None if name is None else [string_or_none(payload.get(name)) for payload in payloads]

    def _search(self) -> Search:
        """By `hnsw_ef`; in a folder on this machine every vector is looked at."""
        if isinstance(self._client, LocalFolder):
            return Search(lambda queries, k, value: [], "a local folder, which looks at every vector", exact=True)
        models = require("qdrant_client.models", "qdrant")

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            params = None if value is None else models.SearchParams(hnsw_ef=value)
            asked = [
                models.QueryRequest(query=query.tolist(), using=self._vector or None, limit=k, params=params)
                for query in queries
            ]
            answers = self._client.query_batch_points(self._collection, requests=asked)
            return [[str(point.id) for point in answer.points] for answer in answers]

        return Search(find, "HNSW", setting="hnsw_ef", values=_VALUES)
