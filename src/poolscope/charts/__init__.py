"""What all figures share: their look, bars of intervals, and files. A figure itself stands beside its metric."""

from __future__ import annotations

from poolscope.charts.files import check_figure_path, save_figure

__all__ = ["check_figure_path", "save_figure"]
