"""How the analyses of length look on a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from poolscope.metrics.length.mechanism import LengthMechanism
    from poolscope.metrics.length.nulls import LengthNulls
    from poolscope.metrics.length.report import LengthReport
    from poolscope.metrics.length.result import LengthProfile
    from poolscope.metrics.length.retrieval import LengthRetrieval
    from poolscope.numbers.intervals import Estimate
    from poolscope.verdicts import Verdict

_COLOURS = {"ok": "green", "watch": "yellow", "repair": "red"}


def print_report(report: LengthReport, screen: Console) -> None:
    """The verdict first, then the profile, then what else was measured, most telling first."""
    _print_verdict("length", report.verdict, screen)
    _print_profile(report.profile, screen)
    if report.mechanism is not None:
        _print_mechanism(report.mechanism, screen)
    if report.nulls is not None:
        _print_nulls(report.nulls, screen)
    for probe in report.probes:
        screen.print(probe.sentence(), highlight=False, markup=False)
    if report.retrieval is not None:
        _print_retrieval(report.retrieval, screen)
    if report.position is not None:
        _print_verdict("position", report.position.verdict, screen)
        for line in report.position.verdict.evidence:
            screen.print(f"  {line}", highlight=False, markup=False)
    if report.labels is not None:
        _print_verdict("labels", report.labels.verdict, screen)
    if report.truncated:
        screen.print(f"{report.truncated:,} texts were cut at the model's limit.", style="dim", highlight=False)
    for note in (*report.profile.notes, *report.notes):
        screen.print(note, style="dim", highlight=False, markup=False)
    if report.encoded_tokens:
        screen.print(
            f"Null models and probes encoded {report.encoded_tokens:,} tokens on top of the texts (--no-probes).",
            style="dim",
            highlight=False,
        )


def _print_verdict(name: str, verdict: Verdict, screen: Console) -> None:
    from rich.text import Text

    screen.print(
        Text.assemble((f"{name}: {verdict.level}", f"bold {_COLOURS[verdict.level]}"), f"  {verdict.sentence}")
    )


def _print_profile(profile: LengthProfile, screen: Console) -> None:
    table = _table(profile.unit, "texts", "cosine", "chance", "dist.", "norm", "eff.rank", "own bin")
    for row in profile.bins:
        table.add_row(
            row.label,
            f"{row.texts:,}",
            _cell(row.cosine),
            _number(row.cosine.floor),
            _number(row.distance.value),
            _number(row.norm.value, 2),
            _number(row.effective_rank.value, 1),
            f"{_number(row.same_bin_neighbours.value, 2)} ({_number(row.same_bin_neighbours.floor, 2)})",
        )
    screen.print(table)
    if profile.slope is not None:
        screen.print(
            f"slope {profile.slope:+.4f} {profile.slope_interval} per doubling of length; chance stays below "
            f"{profile.slope_floor:.4f}",
            highlight=False,
            markup=False,
        )


def _print_mechanism(mechanism: LengthMechanism, screen: Console) -> None:
    if any(row.sigma_a.value is not None for row in mechanism.rows):
        table = _table("tokens", "σₐ", "bound", "above it", "‖PA‖²/(n−1)", "‖PX‖²/n", "words")
        for row in mechanism.rows:
            share = "–" if row.bound_fails.value is None else f"{row.bound_fails.value:.0%}"
            numbers = (row.frobenius, row.high_frequency, row.words)
            table.add_row(
                row.label,
                _number(row.sigma_a.value),
                _number(row.bound.value),
                share,
                *(_number(found.value, digits) for found, digits in zip(numbers, (4, 1, 3), strict=True)),
            )
        screen.print(table)
    for sentence in mechanism.sentences():
        screen.print(sentence, highlight=False, markup=False)


def _print_nulls(nulls: LengthNulls, screen: Console) -> None:
    table = _table("tokens", "whole", "averaged", "in place", "whole − averaged")
    for row in nulls.averaging:
        table.add_row(
            f"{row.tokens}{' *' if row.beyond else ''}",
            _number(row.full.value),
            f"{_number(row.averaged.value)} (of {row.chunks})",
            "–" if row.placed is None else _number(row.placed.value),
            "" if row.chunks == 1 else f"{row.excess.value:+.3f} {row.excess.interval}",
        )
    screen.print(table)
    if any(row.beyond for row in nulls.averaging):
        screen.print(f"* beyond the limit of {nulls.limit} tokens", style="dim", highlight=False)
    for sentence in nulls.sentences():
        screen.print(sentence, highlight=False, markup=False)


def _print_retrieval(retrieval: LengthRetrieval, screen: Console) -> None:
    _print_verdict("search", retrieval.verdict, screen)
    table = _table("tokens", "docs", "queries", "hit", "nDCG", "MRR", "rank", "share/exp.")
    named = [(row.label, row) for row in retrieval.rows]
    named += [("shortest 1/5", retrieval.shortest), ("longest 1/5", retrieval.longest)]
    for name, row in named:
        table.add_row(
            name,
            f"{row.documents:,}",
            f"{row.queries:,}",
            *(_number(found.value) for found in (row.hit, row.ndcg, row.mrr)),
            _number(row.rank.value, 1),
            _cell(row.ratio, 2),
        )
    screen.print(table)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")  # a number that is too wide is never cut
    return table


def _cell(found: Estimate, digits: int = 3) -> str:
    if found.value is None or found.interval is None:
        return _number(found.value, digits)
    return f"{found.value:.{digits}f} ±{(found.interval.high - found.interval.low) / 2:.{digits}f}"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
