"""`poolscope research correlate`: do the numbers of audits go with task scores over models?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json, to_figure, to_file
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from poolscope.research.correlate.study import Association, CorrelationStudy, MetricScore


def correlate(
    audits: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[AUDITS]...", help="audit.json of each model, or its folder; or one table of metrics."),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="TABLE|FOLDER", help="Table with one row a model, or folder of MTEB results.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Table of metrics, one row a model, in place of audits.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this metric (repeatable; any number of audits).")
    ] = None,
    score: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this score (repeatable).")] = None,
    benchmark: Annotated[
        str | None, typer.Option(metavar="NAME", help="MTEB results: the tasks of this benchmark.")
    ] = None,
    control: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Account for this number (repeatable; none: for nothing).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of resamples and permutations.")] = 0,
    json: arguments.Json = None,
    parquet: Annotated[Path | None, to_file("Write one row a metric as Parquet.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the points: .html, .png, .svg.")] = None,
) -> None:
    """Spearman, Pearson and Kendall correlations of the audits' headline numbers with task scores, over models.

    With bootstrap intervals, permutation p-values, Holm's correction, partial correlations and each family left out
    once. Models match by name; those without a partner are named.
    """
    from rich.console import Console

    from poolscope.research.correlate.model_records import read_scores
    from poolscope.research.correlate.run import correlate

    if scores is None:
        raise InputError("no scores were named; needed: --scores with a table (.csv) or a folder of MTEB results.")
    source = audits or metrics
    if source is None or (audits and metrics):
        raise InputError("received both audits and --metrics, or neither; needed: the audits, or --metrics TABLE.")
    controls = {} if control is None else {"controls": [name for name in control if name != "none"]}
    study = correlate(
        source,
        read_scores(scores, benchmark=benchmark),
        only_metrics=metric or (),
        only_scores=score or (),
        seed=seed,
        **controls,
    )
    screen = Console(stderr=json == "-", soft_wrap=False)
    _print(study, screen)
    _write(study, json, parquet, figure)
    name_written(screen, json, parquet, figure)


def _print(study: CorrelationStudy, screen: Console) -> None:
    screen.print(f"{len(study.models)} models: {', '.join(study.models)}", highlight=False, markup=False)
    for where, names in (("metrics, and no scores", study.only_metrics), ("scores, and no metrics", study.only_scores)):
        if names:
            screen.print(
                f"Not compared, with {where}: {', '.join(names)}", style="yellow", highlight=False, markup=False
            )
    for score in dict.fromkeys(row.score for row in study.correlations):
        rows = [row for row in study.correlations if row.score == score]
        _print_correlations(score, rows, screen)
        _print_partials(rows, screen)
    for note in study.notes:
        screen.print(note, style="dim", highlight=False, markup=False)


def _print_correlations(score: str, rows: list[MetricScore], screen: Console) -> None:
    """ρ with all that qualifies it, and below it the two other coefficients."""
    main = _table(f"against {score}", "n", "Spearman ρ", "p", "Holm", "without a family")
    others = _table("by the other coefficients", "Kendall τ", "p", "Pearson r", "p")
    for row in rows:
        edges = row.range_without
        main.add_row(
            row.metric,
            str(len(row.models)),
            *_with_p(row.spearman),
            "–" if row.holm is None else f"{row.holm:.2g}",
            "–" if edges is None else f"{edges[0]:.2f} to {edges[1]:.2f}",
        )
        others.add_row(row.metric, *_with_p(row.kendall), *_with_p(row.pearson))
    screen.print(main)
    screen.print(others)


def _table(title: str, *columns: str) -> Table:
    """A table with a column for the metric before the others."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _with_p(association: Association) -> tuple[str, str]:
    return str(association), "–" if association.p is None else str(association.p)


def _print_partials(rows: list[MetricScore], screen: Console) -> None:
    """ρ once the controls are accounted for; a reason in place of the number where it was refused."""
    from rich import box
    from rich.table import Table

    table = Table(title="accounting for", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("metric", "controls", "partial ρ", "p"):
        table.add_column(head, overflow="fold")
    for row in rows:
        for part in row.partials:
            if part.spearman is not None:
                table.add_row(row.metric, ", ".join(part.controls), str(part.spearman), str(part.spearman.p))
    for metrics, controls, reason in _refusals(rows):
        table.add_row(_briefly(metrics, [row.metric for row in rows]), "; ".join(controls), reason, "–")
    if table.row_count:
        screen.print(table)


def _refusals(rows: list[MetricScore]) -> list[tuple[tuple[str, ...], list[str], str]]:
    """(metrics, controls, reason) of the partial correlations that were refused, those of one reason together."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for part in row.partials:
            if part.refused is not None:
                metrics.setdefault((part.refused, ", ".join(part.controls)), []).append(row.metric)
    controls: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (reason, names), refused in metrics.items():
        controls.setdefault((tuple(refused), reason), []).append(names)
    return [(refused, names, reason) for (refused, reason), names in controls.items()]


def _briefly(chosen: tuple[str, ...], known: list[str]) -> str:
    """The chosen names, or those that are left out where these are fewer."""
    missing = [name for name in known if name not in chosen]
    if len(missing) >= len(chosen) or len(known) == 1:
        return ", ".join(chosen)
    return f"all but {', '.join(missing)}" if missing else "all metrics"


def _write(study: CorrelationStudy, json: str | None, parquet: Path | None, figure: Path | None) -> None:
    if json is not None:
        put_json(study.to_dict(), json)
    if parquet is not None:
        study.save_parquet(parquet)
    if figure is not None:
        from poolscope.charts.files import save_figure

        save_figure(study.figure(), figure)
