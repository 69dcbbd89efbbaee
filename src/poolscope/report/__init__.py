"""Pages: sections with verdicts, figures and tables become one HTML file that needs nothing else."""

from __future__ import annotations

from poolscope.report.page import render_page, save_page
from poolscope.report.pairs import PairExplorer, pair_explorer
from poolscope.report.sections import (
    CorpusMap,
    MapColour,
    OverviewGauge,
    OverviewRow,
    ReportAction,
    ReportColumn,
    ReportSection,
    ReportTable,
    corpus_map,
)

__all__ = [
    "CorpusMap",
    "MapColour",
    "OverviewGauge",
    "OverviewRow",
    "PairExplorer",
    "ReportAction",
    "ReportColumn",
    "ReportSection",
    "ReportTable",
    "corpus_map",
    "pair_explorer",
    "render_page",
    "save_page",
]
