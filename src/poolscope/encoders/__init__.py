"""From any model to token clouds: one door, `encode`, and what a model declares about its pooling."""

from __future__ import annotations

from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder
from poolscope.encoders.door import as_encoder, encode

__all__ = [
    "EncoderOptions",
    "ModelCard",
    "Progress",
    "TokenEncoder",
    "as_encoder",
    "encode",
]
