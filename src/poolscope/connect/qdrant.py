"""Qdrant: `qdrant://host:port/collection`, `qdrants://…` for TLS, or `qdrant:folder/collection` on this machine.

A key is taken from the variable QDRANT_API_KEY, never from the address.
"""

from __future__ import annotations

import datetime
import io
import json
import pickle
import re
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.base import (
    BROKE,
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
    unencrypted,
)
from poolscope.connectors.received import plain_base, refuse_links
from poolscope.errors import InputError, reading, require
from poolscope.files import is_file, text_of
from poolscope.hosts import permit, secret_for

SCHEMES = ("qdrant://", "qdrants://")
PREFIX = "qdrant:"
_DISTANCES: dict[str, Distance] = {"Cosine": "cosine", "Dot": "dot", "Euclid": "l2"}
_VALUES = (16, 32, 64, 128, 256, 512, 1024)
_REMEDY = "Check the address, that the server runs, and the key (QDRANT_API_KEY)."
_ID = "id"  # the field of names that Qdrant does not allow as ids
_LOOK = 20  # rows that are looked at for the names of their fields


def open_qdrant(name: str, fields: Fields) -> QdrantConnector:
    """The collection that the address names."""
    place, _, collection = name.partition("?")[0].rpartition("/")
    if not collection or place.endswith((":", "/")):
        raise InputError(
            f"{safe_name(name)}: received no collection; allowed: qdrant://host:port/collection or "
            f"qdrant:folder/collection. Name it at the end."
        )
    shown, key = safe_name(name), None
    with asking(shown, _REMEDY):
        if name.startswith(SCHEMES):
            opened, key = _connected(name, shown)
        else:
            folder = Path(place.removeprefix(PREFIX)).expanduser()
            if not is_file(folder / "meta.json"):
                raise InputError(f"{shown}: {folder} is no folder of Qdrant. Check the spelling.")
            opened = LocalFolder(folder)
        try:
            connector = QdrantConnector(shown, opened, collection, fields)
        except Exception:
            opened.close()
            raise
    connector.notes = [*connector.notes, *unencrypted(name, "qdrant", key, "QDRANT_API_KEY")]
    return connector


def write_qdrant(name: str, rows: NewRows) -> None:
    """A new collection on a server, or in a new folder; ids that Qdrant does not allow stand in the field `id`."""
    place, _, collection = name.partition("?")[0].rpartition("/")
    shown = safe_name(name)
    with asking(shown, _REMEDY):
        models = require("qdrant_client.models", "qdrant")
        if name.startswith(SCHEMES):
            client, _ = _connected(name, shown)
        else:
            folder = Path(place.removeprefix(PREFIX)).expanduser()
            if folder.exists():  # its client would load the points of every collection there, which are pickles
                raise already_there(f"{PREFIX}{folder}")
            client = require("qdrant_client", "qdrant").QdrantClient(path=str(folder))
        try:
            if client.collection_exists(collection):
                raise already_there(shown)
            kinds = {distance: kind for kind, distance in _DISTANCES.items()}
            form = models.VectorParams(size=rows.vectors.shape[1], distance=models.Distance(kinds[rows.distance]))
            client.create_collection(collection, vectors_config=form)
            for part, beside in rows.parts():
                points = [
                    models.PointStruct(id=_allowed_id(each), vector=vector, payload={_ID: each, **row})
                    for each, vector, row in zip(rows.ids[part], rows.vectors[part].tolist(), beside, strict=True)
                ]
                client.upsert(collection, points=points)
        finally:
            client.close()


def _allowed_id(name: str) -> int | str:
    """The id of a point: a whole number or a UUID as it is; any other name becomes a UUID of its own.

    >>> _allowed_id("12"), _allowed_id("perlfaq4#3") == _allowed_id("perlfaq4#3")
    (12, True)
    """
    if name.isdecimal() and int(name) < 2**64 and str(int(name)) == name:
        return int(name)
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _is_named(point: Any) -> bool:
    """Was the id of a point made from the name in its payload, as `write_qdrant` makes it?"""
    name = (point.payload or {}).get(_ID)
    return name is not None and str(_allowed_id(str(name))) == str(point.id)


def _connected(name: str, shown: str) -> tuple[Any, str | None]:
    """A client of the server that the address names, and the key that it sends."""
    parts, secure = split_address(name), name.startswith(SCHEMES[1])
    host = parts.hostname or "localhost"
    permit(host, name=shown)
    key = secret_for(host, "QDRANT_API_KEY")
    prefix = parts.path.strip("/").rpartition("/")[0]
    place = f"[{host}]" if ":" in host else host  # which the client puts into an address again
    client = require("qdrant_client", "qdrant").QdrantClient
    with warnings.catch_warnings():  # that a key goes without TLS is one of the notes
        warnings.filterwarnings("ignore", message=".*insecure")
        opened = client(
            host=place,
            port=parts.port or 6333,
            https=secure,
            prefix=prefix or None,
            api_key=key,
            timeout=30,
            check_compatibility=False,
        )
    return opened, key


class QdrantConnector:
    """The points of a collection, by scrolling: in the order of their ids."""

    def __init__(self, name: str, client: Any, collection: str, fields: Fields) -> None:
        names = [each.name for each in client.get_collections().collections]
        if collection not in names:
            raise InputError(
                f"{name}: there is no such collection; there are {', '.join(names) or 'none'}. "
                f"End the address with the name of a collection."
            )
        self.name, self._client, self._collection = name, client, collection
        params = client.get_collection(collection).config.params.vectors
        named = params if isinstance(params, dict) else {"": params}
        only = next(iter(named)) if len(named) == 1 else guess(named, VECTORS)
        vector = chosen("vectors", fields.vector, list(named), only, name)
        if vector is None:
            raise InputError(f"{name}: there are the vectors {', '.join(named)}. Name one with --vector-column NAME.")
        self._vector = vector
        self.distance = _DISTANCES.get(getattr(named[vector].distance, "value", ""))
        first, _ = client.scroll(collection, limit=_LOOK, with_payload=True, with_vectors=False)
        payloads = [point.payload or {} for point in first]
        names = list(dict.fromkeys(each for row in payloads for each in row))
        known = chosen("ids", fields.id, names, _ID if first and all(map(_is_named, first)) else None, name)
        self._fields = metadata_fields(payloads, Fields(vector or None, fields.text, known, fields.group), name)
        self.notes: Sequence[str] = guessed_notes(Fields(vector or None, fields.text, None, fields.group), self._fields)
        self.search = self._search()

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page."""
        place: Any = None
        named = (self._fields.id, self._fields.text, self._fields.group)
        wanted = [name for name in named if name is not None]
        while True:
            with asking(self.name, BROKE):
                points, place = self._client.scroll(
                    self._collection,
                    limit=size,
                    offset=place,
                    with_payload=wanted or False,
                    with_vectors=[self._vector] if self._vector else True,
                )
            payloads = [point.payload or {} for point in points]
            with asking(self.name, "Check its points."):
                vectors = [self._vector_of(point.vector) for point in points]
            yield Batch(
                ids=[self._name_of(point) for point in points],
                vectors=vectors,
                texts=column(payloads, self._fields.text),
                groups=column(payloads, self._fields.group),
            )
            if place is None:
                return

    def close(self) -> None:
        """Of a folder: so that another process can open it."""
        self._client.close()

    def _name_of(self, point: Any) -> str:
        """The id of a point, or the name that stands in its payload."""
        name = None if self._fields.id is None else (point.payload or {}).get(self._fields.id)
        return str(point.id if name is None else name)

    def _vector_of(self, stored: Any) -> Any:
        if isinstance(stored, dict):
            stored = stored.get(self._vector)
        return None if stored is None else np.asarray(stored, dtype=np.float32)

    def _search(self) -> Search:
        """By `hnsw_ef`; in a folder on this machine every vector is looked at."""
        if isinstance(self._client, LocalFolder):
            return Search(lambda queries, k, value: [], "a local folder, which looks at every vector", exact=True)
        models = require("qdrant_client.models", "qdrant")

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            params = None if value is None else models.SearchParams(hnsw_ef=value)
            how = {"using": self._vector or None, "limit": k, "params": params}
            if self._fields.id is not None:
                how["with_payload"] = [self._fields.id]
            wanted = [models.QueryRequest(query=query.tolist(), **how) for query in queries]
            answers = self._client.query_batch_points(self._collection, requests=wanted)
            return [[self._name_of(point) for point in answer.points] for answer in answers]

        return Search(find, "HNSW", setting="hnsw_ef", values=_VALUES)


# -- a folder that the client wrote in its local mode, read without that client and without a change to it ------------
#
# The client keeps each point as a pickle, and would run whatever one of them says. Here a pickle is data: only
# operations that build numbers, strings, lists and dictionaries are let through, and no class but those of points.

# Operations with the bytes that follow each, and those that are followed by a length of so many bytes. What is not
# here names classes in other ways (GLOBAL, INST, EXT), or asks for memory that the pickle does not fill (LONG_BINPUT).
_PLAIN = re.compile(
    rb"(?:G.{8}|[(.012NRabelstu)\]}\x81\x85-\x89\x8f-\x91\x93\x94]|[Khq\x80].|M..|[Jj].{4}|\x95.{8})*", re.DOTALL
)
_WITH_LENGTH = {0x8C: 1, 0x58: 4, 0x8D: 8, 0x43: 1, 0x42: 4, 0x8A: 1}  # strings, bytes, large whole numbers


class LocalFolder:
    """As much of the client as reading needs: the names of collections, their vectors, and page after page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with self._reading():
            self._collections: dict[str, Any] = dict(json.loads(text_of(folder / "meta.json"))["collections"])

    def get_collections(self) -> SimpleNamespace:
        """The collections, by name."""
        return SimpleNamespace(collections=[SimpleNamespace(name=name) for name in self._collections])

    def get_collection(self, name: str) -> SimpleNamespace:
        """What a collection says of its vectors; several of them have names."""
        with self._reading():
            declared = self._collections[name]["vectors"]
            single = "size" in declared
            params = _params(declared) if single else {each: _params(one) for each, one in declared.items()}
        return SimpleNamespace(config=SimpleNamespace(params=SimpleNamespace(vectors=params)))

    def scroll(self, name: str, *, limit: int, offset: int | None = None, **_: Any) -> tuple[list[Any], int | None]:
        """The points from one place on, in the order in which they were written, and the place of the next."""
        with self._reading():
            rows = self._rows(name, -1 if offset is None else offset, limit)
            points = [_point(content) for _, content in rows]
        return points, rows[-1][0] if len(rows) == limit else None

    def close(self) -> None:
        """Nothing is held open."""

    def _rows(self, name: str, place: int, limit: int) -> list[tuple[int, Any]]:
        if Path(name).name != name:
            raise ValueError(f"the collection {name!r} leads out of the folder")
        path = self._folder / "collection" / name / "storage.sqlite"
        if not is_file(path):
            raise ValueError(f"there is no file {path.relative_to(self._folder)}")
        refuse_links(path.parent)
        with plain_base(path) as base:
            if base.execute("SELECT type FROM sqlite_master WHERE name = 'points'").fetchone() != ("table",):
                raise ValueError(f"{path.name} has no table of points")
            wanted = "SELECT rowid, point FROM points WHERE rowid > ? ORDER BY rowid LIMIT ?"
            rows: list[tuple[int, Any]] = base.execute(wanted, (place, limit)).fetchall()
            return rows

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._folder, "Write it again.", kind=InputError, is_not="a folder of Qdrant")


def _params(declared: Mapping[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(distance=SimpleNamespace(value=declared["distance"]))


class _Held:
    """What a point or a sparse vector holds, by name."""

    id: Any = None
    vector: Any = None
    payload: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["__dict__"])


class _Unpickler(pickle.Unpickler):
    _KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("qdrant_client.http.models.models", "PointStruct"): _Held,
        ("qdrant_client.http.models.models", "SparseVector"): _Held,
        ("datetime", "datetime"): datetime.datetime,
        ("datetime", "date"): datetime.date,
        ("uuid", "UUID"): uuid.UUID,
    }

    def find_class(self, module: str, name: str) -> Any:
        """One of the classes that hold points and their values."""
        if (module, name) not in self._KNOWN:
            raise ValueError(f"a point is made by {module}.{name}, which could run anything and was not called")
        return self._KNOWN[module, name]


def _point(content: Any) -> _Held:
    """The point of one row."""
    if not isinstance(content, bytes) or not _is_plain(content):
        raise ValueError("a point is written in another way than by the client of Qdrant")
    point: _Held = _Unpickler(io.BytesIO(content)).load()
    sound = isinstance(point, _Held) and isinstance(point.id, int | str) and isinstance(point.payload, dict | None)
    if not sound:
        raise ValueError("a row holds something else than a point")
    point.payload = {name: value for name, value in (point.payload or {}).items() if _is_word(value)}
    return point


def _is_word(value: Any) -> bool:
    """Whether a value can be a text or a group; lists, whose words may be endless, cannot."""
    return isinstance(value, str | int | float | datetime.date | uuid.UUID)


def _is_plain(content: bytes) -> bool:
    """Whether a pickle consists of operations that are let through."""
    place = 0
    while True:
        run = _PLAIN.match(content, place)
        place = place if run is None else run.end()
        if place == len(content):
            return True
        width = _WITH_LENGTH.get(content[place])
        if width is None:
            return False
        place += 1 + width + int.from_bytes(content[place + 1 : place + 1 + width], "little")
