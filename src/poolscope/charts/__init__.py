"""Figures: each function takes a result and returns a plotly figure; `save_figure` writes it."""

from __future__ import annotations

from poolscope.charts.files import check_figure_path, save_figure
from poolscope.charts.layers import cosine_figure, frequency_figure, layers_figure, layers_sheet, socm_figure
from poolscope.charts.pair import pair_figure
from poolscope.charts.tokens import norm_variance_figure, shares_figure, tokens_figure, variation_figure

__all__ = [
    "check_figure_path",
    "cosine_figure",
    "frequency_figure",
    "layers_figure",
    "layers_sheet",
    "norm_variance_figure",
    "pair_figure",
    "save_figure",
    "shares_figure",
    "socm_figure",
    "tokens_figure",
    "variation_figure",
]
