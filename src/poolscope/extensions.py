"""Packages outside poolscope that add rows to its tables: a metric, a question, an encoder, a repair.

Such a package declares an entry point of the group `poolscope.extensions`. Its module is imported once, before a table
is read for the first time, and calls `register` of the tables it adds to:

    [project.entry-points."poolscope.extensions"]
    mine = "my_package.poolscope_rows"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from poolscope.errors import PoolscopeError

GROUP = "poolscope.extensions"

_loaded: set[EntryPoint] = set()


def load_extensions() -> None:
    """Import the module of every entry point of the group, each once in a process."""
    for entry in entry_points(group=GROUP):
        if entry in _loaded:
            continue
        _loaded.add(entry)  # before the import: the module may read a table, which asks for the extensions
        try:
            entry.load()
        except PoolscopeError:
            raise
        except Exception as error:
            package = "an unknown package" if entry.dist is None else entry.dist.name
            raise PoolscopeError(
                f"extension '{entry.name}' ({entry.value}, of {package}) cannot be loaded: {type(error).__name__}: "
                f"{error}. Update that package, or uninstall it."
            ) from error
