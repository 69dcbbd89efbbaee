"""How the token statistics look on a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from poolscope.capture.norms import NormLayout
    from poolscope.metrics.tokens.result import TokenStatistics
    from poolscope.numbers.intervals import Estimate


def print_tokens(result: TokenStatistics, layout: NormLayout | None, screen: Console) -> None:
    """Two tables by layer, the special tokens apart, and what a reader should know."""
    parts = _table("Q", "M/Q", "V_W/Q", "V_B/Q", "mean cosine")
    spread = _table("variation of Q", "ρ(M, V)", "ρ(M, log n), corrected")
    for layer in result.layers:
        name = "last" if layer.layer < 0 else str(layer.layer)
        numbers = map(layer.estimate, ("mean_share", "within_share", "between_share", "mean_cosine"))
        parts.add_row(name, _relative(layer.estimate("mean_square")), *map(_reach, numbers))
        correlations = (layer.associations.mean_and_variance, layer.corrected.mean_and_frequency)
        spread.add_row(name, *map(_estimate, (layer.variation, *(found.spearman for found in correlations))))
    _print_title(f"{result.model}: what the mean squared norm Q is made of", screen)
    screen.print(parts)
    _print_title(f"how Q, M and V vary over {result.coverage.counted:,} {result.grouping}s", screen)
    screen.print(spread)
    _print_special(result, screen)
    if layout is not None:
        screen.print(f"norms: {layout}{_gains(layout)}", highlight=False, markup=False)
    for note in result.notes():
        screen.print(note, style="dim", highlight=False, markup=False)
    tables = {
        "corpus": "± in the first table",
        "variation": "[low, high] of the variation",
        "correlations": "[low, high] of ρ",
    }
    for kind, meaning in result.interval_meanings().items():
        screen.print(f"{tables[kind]}: {meaning}.", style="dim", highlight=False, markup=False)


def _print_title(title: str, screen: Console) -> None:
    screen.print(title, style="bold", highlight=False, markup=False)


def _table(*columns: str | Text) -> Table:
    """A table with a column for the layer before the others."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("layer", *columns):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _reach(estimate: Estimate) -> str:
    """A number with the half of its interval, which is symmetric."""
    if estimate.value is None:
        return "–"
    interval = estimate.interval
    return f"{estimate.value:.3f}" + ("" if interval is None else f"±{interval.high - estimate.value:.3f}")


def _relative(estimate: Estimate) -> str:
    """The same for a positive number of any size: the half of its interval in percent of it."""
    value, interval = estimate.value or 0.0, estimate.interval
    share = "" if interval is None or not value else f"±{(interval.high - value) / value:.1%}"
    return f"{value:.4g}{share}"


def _estimate(estimate: Estimate) -> str:
    if estimate.value is None:
        return "–"
    interval = estimate.interval
    return f"{estimate.value:.2f}" + ("" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]")


def _gains(layout: NormLayout) -> str:
    """How gains and biases differ, in one line; nothing for a model without norms."""
    if not layout.norms:
        return ""
    means = [float(norm.gain.mean()) for norm in layout.norms]
    unequal = [float(norm.gain.std()) / (abs(mean) or 1.0) for norm, mean in zip(layout.norms, means, strict=True)]
    largest = max(float(abs(norm.bias).max()) for norm in layout.norms)
    return (
        f"; gains: means {min(means):.2f} to {max(means):.2f}, unequal by {min(unequal):.0%} to {max(unequal):.0%}; "
        f"largest bias {largest:.2f}"
    )


def _print_special(result: TokenStatistics, screen: Console) -> None:
    from rich.text import Text

    if not len(result.special):
        return
    shown = range(min(4, len(result.special)))
    names = [Text(f"{result.special.names[k]} · {result.special.counts[k]:,}") for k in shown]
    table = _table(*names)
    for layer in result.layers:
        squares, means = layer.special.mean_squares, layer.special.norms_of_means
        cells = (f"{squares[k]:.4g} ({means[k] / (squares[k] or 1):.3f})" for k in shown)
        table.add_row("last" if layer.layer < 0 else str(layer.layer), *cells)
    _print_title("special tokens, left out above: Q (M/Q)", screen)
    screen.print(table)
