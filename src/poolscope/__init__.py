"""poolscope: see what pooling hides.

>>> import poolscope
>>> clouds = poolscope.TokenClouds.from_arrays([[[1, 1], [1, -1]], [[1, 2], [1, -2]]])
>>> poolscope.socm(clouds)
SocmResult(all pairs: 1 pairs, mean 0.2500)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolscope.analyses.layers import layers
    from poolscope.analyses.layers_result import LayersResult
    from poolscope.analyses.socm import socm
    from poolscope.analyses.socm_result import SocmResult
    from poolscope.analyses.socm_score import SocmFormula, SocmPair, socm_pair
    from poolscope.analyses.tokens import token_statistics
    from poolscope.analyses.tokens_result import TokenStatistics
    from poolscope.analyses.worst import worst_pairs
    from poolscope.bures import bures_wasserstein
    from poolscope.cloud_writers import CloudBuilder, CloudWriter
    from poolscope.clouds import TokenClouds
    from poolscope.encoders import as_encoder, encode
    from poolscope.errors import PoolscopeError
    from poolscope.store import open_clouds
    from poolscope.texts import read_pairs, read_texts

__version__ = "0.1.0"

# Public names and where they live; each is imported when it is first used.
_HOMES = {
    "CloudBuilder": "cloud_writers",
    "CloudWriter": "cloud_writers",
    "LayersResult": "analyses.layers_result",
    "PoolscopeError": "errors",
    "SocmFormula": "analyses.socm_score",
    "SocmPair": "analyses.socm_score",
    "SocmResult": "analyses.socm_result",
    "TokenClouds": "clouds",
    "TokenStatistics": "analyses.tokens_result",
    "as_encoder": "encoders",
    "bures_wasserstein": "bures",
    "encode": "encoders",
    "layers": "analyses.layers",
    "open_clouds": "store",
    "read_pairs": "texts",
    "read_texts": "texts",
    "socm": "analyses.socm",
    "socm_pair": "analyses.socm_score",
    "token_statistics": "analyses.tokens",
    "worst_pairs": "analyses.worst",
}

__all__ = [
    "CloudBuilder",
    "CloudWriter",
    "LayersResult",
    "PoolscopeError",
    "SocmFormula",
    "SocmPair",
    "SocmResult",
    "TokenClouds",
    "TokenStatistics",
    "as_encoder",
    "bures_wasserstein",
    "encode",
    "layers",
    "open_clouds",
    "read_pairs",
    "read_texts",
    "socm",
    "socm_pair",
    "token_statistics",
    "worst_pairs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poolscope' has no attribute {name!r}")
    return getattr(importlib.import_module(f"poolscope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
