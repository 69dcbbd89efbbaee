"""Packages outside poolscope that add metrics, questions, encoders or repairs.

Such a package names a module in its own pyproject.toml; the module registers what it brings when it is imported:

    [project.entry-points."poolscope.extensions"]
    mine = "my_package.poolscope_rows"
"""

from __future__ import annotations

import functools
import warnings
from importlib.metadata import entry_points

GROUP = "poolscope.extensions"


@functools.cache
def load_extensions() -> tuple[str, ...]:
    """Import every extension once; the names of those that could be. One that fails is named and left out."""
    loaded = []
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # whatever a foreign module raises, the rest of poolscope goes on
            message = (
                f"the extension {entry.name!r} ({entry.value}) could not be loaded: {type(error).__name__}: {error}"
            )
            warnings.warn(message, stacklevel=2)
        else:
            loaded.append(entry.name)
    return tuple(loaded)
