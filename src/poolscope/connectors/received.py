"""What a folder of a store that others made must not hold, before a client opens it.

A link leads out of the folder, and some clients write where they are only asked to read. A view, a trigger or a
generated column of a data base is a program, which can be endless.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

_SHORTEST_LIMIT = 1_000_000  # bytes; also the text of a query counts against the limit
_PROGRAMS = "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index')"
_COMPUTED = (
    "SELECT 'generated column', m.name || '.' || x.name FROM sqlite_master m, pragma_table_xinfo(m.name) x "
    "WHERE m.type = 'table' AND m.rootpage > 0 AND x.hidden IN (2, 3)"
)


def refuse_links(folder: Path) -> None:
    """Refuse a folder that holds a link, with a ValueError that names it."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (path := Path(place) / name).is_symlink():
                raise ValueError(f"{path.relative_to(folder)} is a link, which no store makes")


@contextmanager
def plain_base(path: Path) -> Iterator[Any]:
    """A data base of SQLite, for reading, in which only data lie and no value is longer than the file."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(path.stat().st_size, _SHORTEST_LIMIT))
        for query in (_PROGRAMS, _COMPUTED):
            if row := base.execute(query).fetchone():
                raise ValueError(f"{path.name} has a {row[0]} ({row[1]}), which a store does not need")
        yield base
