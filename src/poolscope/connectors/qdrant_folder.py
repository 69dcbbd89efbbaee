"""A folder that the client of Qdrant wrote in its local mode, read without that client and without a change to it.

The client keeps each point as a pickle, and would run whatever one of them says. Here a pickle is data: only operations
that build numbers, strings, lists and dictionaries are let through, and no class but those that hold points.
"""

from __future__ import annotations

import datetime
import io
import json
import pickle
import re
import sqlite3
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from poolscope.connectors.base import is_file
from poolscope.errors import InputError, reading
from poolscope.files import text_of

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
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            if base.execute("SELECT type FROM sqlite_master WHERE name = 'points'").fetchone() != ("table",):
                raise ValueError(f"{path.name} has no table of points")
            wanted = "SELECT rowid, point FROM points WHERE rowid > ? ORDER BY rowid LIMIT ?"
            return base.execute(wanted, (place, limit)).fetchall()

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
