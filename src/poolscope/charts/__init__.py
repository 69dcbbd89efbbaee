"""Figures: each function takes a result and returns a plotly figure; `save_figure` writes it."""

from __future__ import annotations

from poolscope.charts.correlate import correlation_figure
from poolscope.charts.files import check_figure_path, save_figure
from poolscope.charts.layers import cosine_figure, frequency_figure, layers_figure, layers_sheet, socm_figure
from poolscope.charts.length import (
    labels_figure,
    length_figure,
    length_sheet,
    mechanism_figure,
    nulls_figure,
    position_figure,
    probes_figure,
    retrieval_figure,
)
from poolscope.charts.pair import pair_figure
from poolscope.charts.tokens import norm_variance_figure, shares_figure, tokens_figure, variation_figure
from poolscope.charts.tune import tune_figure

__all__ = [
    "check_figure_path",
    "correlation_figure",
    "cosine_figure",
    "frequency_figure",
    "labels_figure",
    "layers_figure",
    "layers_sheet",
    "length_figure",
    "length_sheet",
    "mechanism_figure",
    "norm_variance_figure",
    "nulls_figure",
    "pair_figure",
    "position_figure",
    "probes_figure",
    "retrieval_figure",
    "save_figure",
    "shares_figure",
    "socm_figure",
    "tokens_figure",
    "tune_figure",
    "variation_figure",
]
