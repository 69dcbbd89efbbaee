"""What a runtime did with a model: its vectors beside those that each named cause would give."""

from __future__ import annotations

from poolscope.runtimes.match import RuntimeMatch, match_runtime

__all__ = ["RuntimeMatch", "match_runtime"]
