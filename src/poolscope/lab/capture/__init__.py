"""What a layer does: H, U, Z, Y, X, attention weights and projections of any transformer, in batches."""

from __future__ import annotations

from poolscope.lab.capture.model import OpenModel, capture

__all__ = ["OpenModel", "capture"]
