"""From any model to token clouds: one door, `encode`, and what a model declares about its pooling."""

from __future__ import annotations

from poolscope.encoders.base import EncoderOptions as EncoderOptions
from poolscope.encoders.base import ModelCard as ModelCard
from poolscope.encoders.base import Progress as Progress
from poolscope.encoders.base import TokenEncoder as TokenEncoder
from poolscope.encoders.door import ENCODERS as ENCODERS
from poolscope.encoders.door import EncoderKind as EncoderKind
from poolscope.encoders.door import Source as Source
from poolscope.encoders.door import as_encoder as as_encoder
from poolscope.encoders.door import encode as encode
from poolscope.encoders.door import register_encoder as register_encoder
from poolscope.encoders.reports import PoolingReport as PoolingReport
from poolscope.encoders.reports import TruncationReport as TruncationReport
from poolscope.encoders.reports import pooling_report as pooling_report
from poolscope.encoders.reports import truncation_report as truncation_report
