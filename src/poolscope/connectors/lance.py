"""LanceDB: `lancedb:folder/table`; a folder `NAME.lance` is the table of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.arrow import ArrowConnector
from poolscope.connectors.base import Distance, Fields, Search, failed, is_folder
from poolscope.errors import InputError, panics_raised, require

PREFIX = "lancedb:"
ENDING = ".lance"
_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "dot": "dot", "l2": "l2"}
_VALUES = (1, 2, 4, 8, 16, 32, 64, 128)


def accepts(name: str) -> bool:
    """Is it a table of LanceDB, or the folder of one?"""
    return name.startswith(PREFIX) or (name.rstrip("/").endswith(ENDING) and is_folder(Path(name)))


def open_lance(name: str, fields: Fields) -> LanceConnector:
    """The table that the address names."""
    place = Path(name.removeprefix(PREFIX).partition("?")[0].rstrip("/")).expanduser()
    folder, table = place.parent, place.name.removesuffix(ENDING)
    shown = f"{PREFIX}{folder / table}"
    if not is_folder(folder):
        raise InputError(f"{shown}: there is no such folder. Check the spelling.")
    lancedb = require("lancedb", "lancedb")
    try:
        base = lancedb.connect(str(folder))
        listed = base.list_tables()
        names = list(getattr(listed, "tables", listed))
        if table not in names:
            raise InputError(f"{shown}: there is no such table; there are {', '.join(names) or 'none'}. Name one.")
        with panics_raised():
            return LanceConnector(shown, base.open_table(table), fields)
    except InputError:
        raise
    except Exception as error:
        raise failed(shown, error, "Check that the folder is one of LanceDB.") from error


class LanceConnector(ArrowConnector):
    """The rows of a table in the order of their fragments, which is that of insertion."""

    def __init__(self, name: str, table: Any, fields: Fields) -> None:
        def scan(columns: list[str], size: int) -> Any:
            return table.search().select(columns).to_batches(batch_size=size)

        super().__init__(name, table.schema, scan, fields)
        self._table = table
        self.distance, self.search = self._index()

    def _index(self) -> tuple[Distance | None, Search | None]:
        """The distance and the kind of the index on the column of vectors; None where every vector is looked at."""
        indexes = [each for each in self._table.list_indices() if self.fields.vector in each.columns]
        own = self.fields.id
        if not indexes:
            return None, None
        about = self._table.index_stats(indexes[0].name)
        distance = _DISTANCES.get(str(getattr(about, "distance_type", "")).lower())
        if own is None:
            return distance, None

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            found = []
            for query in queries:
                asked = (
                    self._table.search(np.asarray(query, dtype=np.float32), self.fields.vector).limit(k).select([own])
                )
                asked = asked if distance is None else asked.distance_type(distance)
                asked = asked if value is None else asked.nprobes(value)
                found.append([str(row[own]) for row in asked.to_list()])
            return found

        return distance, Search(find, str(indexes[0].index_type), setting="nprobes", values=_VALUES)
