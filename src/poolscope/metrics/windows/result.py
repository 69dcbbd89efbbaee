"""What the measurement of windows returns, and its figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolscope.charts.files import COLOURS, GREY, error_bars, style
from poolscope.errors import require
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result, cells, origin


@dataclass(frozen=True)
class WindowRatio:
    """Windows of `ratio` tokens, each kept as its mean.

    `lost` is the share of the variance of a text that lies inside its windows; its floor is what windows of tokens in
    random order lose on average, and `shuffled` what they lost in one random order. `without_first` is `lost` when the
    first token of every text is left out, which in a decoder may be a sink. `second_order` and `adaptive` are the share
    that is lost by other windows of the same storage, and `saved_…` how much less that is.

    `within_socm` and `within_collapse` are SOCM and the share of pairs from `collapse_at` on among windows of one text;
    `nearest_…` those of a window with the nearest window of another text. Their floors are the same for windows of the
    tokens of each text in random order. No value where texts are too short to have two windows of two tokens.
    """

    ratio: int
    windows: float
    lost: Estimate
    shuffled: float | None
    without_first: Estimate
    second_order: Estimate
    adaptive: Estimate
    saved_second_order: Estimate
    saved_adaptive: Estimate
    within_socm: Estimate
    within_collapse: Estimate
    nearest_socm: Estimate
    nearest_collapse: Estimate


@dataclass(frozen=True)
class WorstWindow:
    """A window that loses much: tokens `start` to `stop` of the text `id`, and their words where they are known.

    `times` is its spread over the mean spread of all texts.
    """

    ratio: int
    id: str
    start: int
    stop: int
    times: float
    text: str | None


@dataclass(frozen=True, repr=False, kw_only=True)
class WindowsResult(Result):
    """What is lost when the tokens of texts are replaced by the means of adjacent windows.

    `largest_ratio` is the largest measured ratio up to which the whole interval of `lost` stays within `loss_limit`;
    None if there is none. `single` counts texts of one token, which have nothing to lose. `first_share` is the part of
    the variance that is gone without the first token of every text: near 0, or nearly all of it where that is a sink.
    `documents` texts were drawn for the distances between windows.
    """

    texts: int
    tokens: int
    single: int
    loss_limit: float
    largest_ratio: int | None
    first_share: Estimate
    collapse_at: float = field(repr=False)
    documents: int = field(repr=False)
    ratios: tuple[WindowRatio, ...] = field(repr=False)
    worst: tuple[WorstWindow, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def at(self, ratio: int) -> WindowRatio:
        """The numbers of one ratio."""
        return next(row for row in self.ratios if row.ratio == ratio)

    def seen(self) -> tuple[str, ...]:
        """What the shortest windows lose, the longest that lose little, and what to know of the first token."""
        first, limit = self.ratios[0], f"{self.loss_limit:.0%}"
        lost = f"Means of {first.ratio} neighbouring tokens lose {first.lost.percent()} of the variance of a text"
        lost += "; " if first.lost.floor is None else f" ({first.lost.floor:.1%} with the tokens in random order); "
        largest = f"the longest that lose {limit} or less are of {self.largest_ratio}"
        told = [f"{lost}{largest if self.largest_ratio else f'none of those measured loses {limit} or less'}."]
        if (self.first_share.value or 0) > 0.5:
            without = ", ".join(f"{row.without_first.percent()} at {row.ratio}" for row in self.ratios)
            told.append(
                f"The first token of a text makes {self.first_share.known:.0%} of the variance (a sink) and decides "
                f"that. Without it windows lose {without}."
            )
        if self.single:
            told.append(f"{self.single:,} texts have a single token, which loses nothing.")
        return tuple(told)

    def rows(self) -> list[dict[str, Any]]:
        """One row a ratio, every estimate with its interval and its floor."""
        return [cells(vars(row)) for row in self.ratios]

    def figure(self) -> Any:
        """The share of variance that is lost by ratio, for every kind of window, beside random order."""
        go = require("plotly.graph_objects", "report")
        figure = go.Figure()
        ratios = [row.ratio for row in self.ratios]
        names = ("lost", "without_first", "second_order", "adaptive")
        words = ("windows", "without the first token", "mean and first direction", "cut where the vectors change")
        for name, word, colour in zip(names, words, COLOURS, strict=False):
            estimates = [getattr(row, name) for row in self.ratios]
            values, bars = [estimate.value for estimate in estimates], error_bars(estimates, colour)
            figure.add_scatter(x=ratios, y=values, error_y=bars, name=word, line={"color": colour, "width": 2.5})
        floors = [row.lost.floor for row in self.ratios]
        line = {"color": GREY, "dash": "dash"}
        figure.add_scatter(x=ratios, y=floors, name="tokens in random order", line=line)
        figure = style(figure, title="What windows lose of the variance of a text", width=860, height=440)
        figure.update_xaxes(
            title_text="tokens a window", type="log", tickvals=ratios, ticktext=[str(k) for k in ratios]
        )
        figure.update_yaxes(title_text="share of the variance lost", tickformat=".0%", range=[0, 1.02])
        return figure
