"""What adds metrics, commands, connectors, encoders or repairs to the core: its own two rooms, and other packages.

The core imports neither `lab` nor `connect`. Each of them has a module of rows: data that say what the room brings and
where it stands. The tables of the core take these rows in (`rows_of`). What the core can use but does not contain it
asks for by name (`service`), such as an engine on a cluster.

A package from outside names a module in its own pyproject.toml, which registers what it brings when it is imported:

    [project.entry-points."poolscope.extensions"]
    mine = "my_package.poolscope_rows"
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from poolscope.errors import InputError
from poolscope.words import warn

GROUP = "poolscope.extensions"
ROOMS = ("poolscope.lab.rows", "poolscope.connect.rows")  # data alone: importing them costs nothing


def rows_of(table: str) -> Iterator[Any]:
    """The rows that the rooms bring for a table of the core: "METRICS", "CAUSES", "COMMANDS", "CONNECTORS"."""
    for room in ROOMS:
        yield from getattr(importlib.import_module(room), table, ())


def service(name: str) -> Any:
    """What a room provides under this name, imported now.

    >>> service("engine")("local").name
    'local'
    """
    return resolve(dict(rows_of("SERVICES"))[name])


def resolve(thing: Any) -> Any:
    """A function or object itself, imported if only its place was named ("package.module:name", "…:Class.name").

    >>> resolve("math:sqrt")(4.0)
    2.0
    """
    if not isinstance(thing, str):
        return thing
    module, _, name = thing.partition(":")
    return attrgetter(name)(importlib.import_module(module))


def _may_be_named() -> bool:
    """Whether the metadata of an installed package may name the group, seen without parsing any of them.

    Python's own reader takes a tenth of a second of every command in a full environment, and mostly for nothing. What
    is no folder (a zip file) cannot be looked through here: then the reader is asked.
    """
    for folder in map(Path, dict.fromkeys(sys.path)):
        if folder.is_file() and folder.suffix in (".zip", ".whl", ".egg"):
            return True
        try:
            packages = [each for each in folder.iterdir() if each.suffix in (".dist-info", ".egg-info")]
        except OSError:  # no folder, or not ours to read
            continue
        for package in packages:
            with suppress(OSError):  # most have no such file
                if GROUP.encode() in (package / "entry_points.txt").read_bytes():
                    return True
    return False


def add_row(table: dict[str, Any], row: Any, what: str, *, first: bool = False) -> Any:
    """Add a row to a table under its name, which stands once; `first`: before the others, so that it is asked first.

    >>> from types import SimpleNamespace
    >>> table = {"old": None}
    >>> _ = add_row(table, SimpleNamespace(name="new"), "kind", first=True)
    >>> list(table)
    ['new', 'old']
    """
    if row.name in table:
        raise InputError(f"{what} {row.name!r} is in the table already. Give yours another name.")
    earlier = dict(table) if first else {}
    if first:
        table.clear()
    table[row.name] = row
    table.update(earlier)
    return row


@functools.cache
def load_extensions() -> tuple[str, ...]:
    """Import every extension once; the names of the extensions. One that fails is named and left out."""
    if not _may_be_named():
        return ()
    from importlib.metadata import entry_points

    loaded = []
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # whatever a foreign module raises, the rest of poolscope goes on
            message = (
                f"the extension {entry.name!r} ({entry.value}) could not be loaded: {type(error).__name__}: {error}"
            )
            warn(message)
        else:
            loaded.append(entry.name)
    return tuple(loaded)
