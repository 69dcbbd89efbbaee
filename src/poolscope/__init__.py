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
    from poolscope.analyses.intervene import intervene
    from poolscope.analyses.layers import layers
    from poolscope.analyses.layers_result import LayersResult
    from poolscope.analyses.length import length_profile
    from poolscope.analyses.length_report import length_report
    from poolscope.analyses.socm import socm
    from poolscope.analyses.socm_result import SocmResult
    from poolscope.analyses.socm_score import SocmFormula, SocmPair, socm_pair
    from poolscope.analyses.tokens import token_statistics
    from poolscope.analyses.tokens_result import TokenStatistics
    from poolscope.analyses.transport import transport
    from poolscope.analyses.worst import worst_pairs
    from poolscope.audit.run import audit
    from poolscope.bures import bures_wasserstein
    from poolscope.chunks import chunk_texts
    from poolscope.cloud_writers import CloudBuilder, CloudWriter
    from poolscope.clouds import TokenClouds
    from poolscope.encoders import as_encoder, encode
    from poolscope.errors import PoolscopeError
    from poolscope.repairs.bake import bake
    from poolscope.repairs.repair_file import Repair
    from poolscope.repairs.tempscale import tempscale
    from poolscope.repairs.tune import tune
    from poolscope.store import open_clouds
    from poolscope.texts import read_pairs, read_texts
    from poolscope.vectors import read_vectors

__version__ = "0.1.0"

# Public names and where they live; each is imported when it is first used.
_HOMES = {
    "CloudBuilder": "cloud_writers",
    "CloudWriter": "cloud_writers",
    "CorrelationStudy": "evidence",
    "LayersResult": "analyses.layers_result",
    "PoolscopeError": "errors",
    "Repair": "repairs.repair_file",
    "SocmFormula": "analyses.socm_score",
    "SocmPair": "analyses.socm_score",
    "SocmResult": "analyses.socm_result",
    "TokenClouds": "clouds",
    "TokenStatistics": "analyses.tokens_result",
    "as_encoder": "encoders",
    "audit": "audit.run",
    "bake": "repairs.bake",
    "bures_wasserstein": "bures",
    "chunk_texts": "chunks",
    "correlate": "evidence",
    "encode": "encoders",
    "intervene": "analyses.intervene",
    "layers": "analyses.layers",
    "length_profile": "analyses.length",
    "length_report": "analyses.length_report",
    "open_clouds": "store",
    "read_pairs": "texts",
    "read_texts": "texts",
    "read_vectors": "vectors",
    "socm": "analyses.socm",
    "socm_pair": "analyses.socm_score",
    "tempscale": "repairs.tempscale",
    "token_statistics": "analyses.tokens",
    "transport": "analyses.transport",
    "tune": "repairs.tune",
    "worst_pairs": "analyses.worst",
}

__all__ = [
    "CloudBuilder",
    "CloudWriter",
    "CorrelationStudy",
    "LayersResult",
    "PoolscopeError",
    "Repair",
    "SocmFormula",
    "SocmPair",
    "SocmResult",
    "TokenClouds",
    "TokenStatistics",
    "as_encoder",
    "audit",
    "bake",
    "bures_wasserstein",
    "chunk_texts",
    "correlate",
    "encode",
    "intervene",
    "layers",
    "length_profile",
    "length_report",
    "open_clouds",
    "read_pairs",
    "read_texts",
    "read_vectors",
    "socm",
    "socm_pair",
    "tempscale",
    "token_statistics",
    "transport",
    "tune",
    "worst_pairs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'poolscope' has no attribute {name!r}")
    return getattr(importlib.import_module(f"poolscope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
