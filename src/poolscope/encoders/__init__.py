"""From any model to token clouds: one door, `encode`, and what a model declares about its pooling."""

from __future__ import annotations

from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder
from poolscope.encoders.door import ENCODERS, EncoderKind, Source, as_encoder, encode, register_encoder
from poolscope.encoders.reports import PoolingReport, TruncationReport, pooling_report, truncation_report

__all__ = [
    "ENCODERS",
    "EncoderKind",
    "EncoderOptions",
    "ModelCard",
    "PoolingReport",
    "Progress",
    "Source",
    "TokenEncoder",
    "TruncationReport",
    "as_encoder",
    "encode",
    "pooling_report",
    "register_encoder",
    "truncation_report",
]
