"""What a layer does: H, U, Z, Y, X, attention weights and projections of any transformer, in batches."""

from __future__ import annotations

from poolscope.capture.model import (
    CapturedBatch,
    CapturedText,
    LayerCapture,
    OpenModel,
    TextBatch,
    TextLayer,
    capture,
    to_numpy,
    token_rows,
    weights_to_numpy,
)
from poolscope.capture.sites import Projections, Site

__all__ = [
    "CapturedBatch",
    "CapturedText",
    "LayerCapture",
    "OpenModel",
    "Projections",
    "Site",
    "TextBatch",
    "TextLayer",
    "capture",
    "to_numpy",
    "token_rows",
    "weights_to_numpy",
]
