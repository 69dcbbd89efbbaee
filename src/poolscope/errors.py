"""The errors poolscope raises, and the one check for optional packages.

Every message has three parts: what was received, what is allowed, what to do next.
"""

from __future__ import annotations

import importlib
from types import ModuleType


class PoolscopeError(Exception):
    """Base of every error that poolscope raises on purpose."""


class InputError(PoolscopeError, ValueError):
    """An argument, a file or a text that cannot be used as it is."""


class DegenerateCloudError(InputError):
    """A token cloud for which the requested quantity is not defined (empty, zero mean, not finite)."""


class ModelError(PoolscopeError):
    """A model that cannot be reached, loaded safely, or understood."""


class StoreError(PoolscopeError):
    """A cloud file or store that is missing, foreign, damaged or belongs to other settings."""


class MissingExtraError(PoolscopeError, ImportError):
    """An optional package is needed and not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra of poolscope brings it.

    >>> require("json", "torch").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is there but broken: its own message says more than ours
        raise MissingExtraError(
            f"this needs the package '{module.partition('.')[0]}', which is not installed. "
            f"It comes with the extra '{extra}': pip install 'poolscope[{extra}]'"
        ) from error
