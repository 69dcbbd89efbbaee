"""Checks of a runtime: its vectors beside the vectors that each named cause would give."""

from __future__ import annotations

from poolscope.runtimes.match import RuntimeMatch, match_runtime
from poolscope.runtimes.rows import RowMatches, match_rows

__all__ = ["RowMatches", "RuntimeMatch", "match_rows", "match_runtime"]
