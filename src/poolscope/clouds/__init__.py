"""Token clouds: one matrix of tokens a text, in memory or in a file, and tables of pooled vectors."""

from __future__ import annotations

from poolscope.clouds.token_clouds import CloudBuilder, CloudWriter, TokenClouds, as_matrix, check_clouds

__all__ = ["CloudBuilder", "CloudWriter", "TokenClouds", "as_matrix", "check_clouds"]
