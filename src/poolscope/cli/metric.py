"""The command of a metric that has none of its own: measured on a model and texts, printed from its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from poolscope.cli import arguments
from poolscope.cli.arguments import to_figure, to_file
from poolscope.metrics.base import METRICS
from poolscope.show.lines import short
from poolscope.show.screen import QUIET, Screen, open_table

if TYPE_CHECKING:
    from pyarrow import Table

    from poolscope.results import Result

_PLACES = ("position", "nearest")  # columns that count texts: the screen names these
_ID = 28  # letters of an id


def command(name: str) -> Callable[..., None]:
    """The command that measures the metric of a name."""
    metric = METRICS[name]

    @arguments.encoder_options()
    @arguments.reading_options()
    @arguments.engine_options
    def measure(
        model: arguments.ModelOrClouds = arguments.MODEL,
        texts: arguments.Texts = None,
        queries: arguments.Queries = None,
        details: arguments.Details = False,
        json: arguments.Json = None,
        table: Annotated[Path | None, to_file("Write the table: .parquet or .csv.")] = None,
        figure: Annotated[Path | None, to_figure("Draw the figure: .html, .png, .svg.")] = None,
        no_cache: arguments.NoCache = False,
        *,
        where: dict[str, Any],
        reading: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        from poolscope.cli.inputs import Inputs, read_asked
        from poolscope.texts.groups import document_columns

        screen = Screen(json, seen_first=True, details=details)
        engine = arguments.open_engine(where, options)
        judgements, texts, id_column = read_asked(queries, None, texts, reading["id_column"])
        group = None
        if texts is not None:  # as an audit tells documents
            group, id_column = document_columns(texts, reading["column"], id_column)
        reading = {**reading, "id_column": id_column, "label_column": group}
        inputs = Inputs(model, texts, reading, options, screen, cache=not no_cache)
        result, ids = inputs.measured(metric, engine, judgements)
        _print(result, screen, ids)
        screen.put_result(result, json=json, table=table, figure=figure)

    measure.__doc__ = (
        f"{metric.words}\n\nExample: poolscope {name} builtin:minilm texts.jsonl\n\n"
        "Without arguments: the built-in model on a sample of the built-in texts."
    )
    return measure if metric.takes_queries else _without(measure, "queries")


def _without(command: Callable[..., None], option: str) -> Callable[..., None]:
    """The command without an option that its metric has no use for."""
    signature = inspect.signature(command)
    parameters = [each for name, each in signature.parameters.items() if name != option]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__.pop(option, None)
    return command


def _print(result: Result, screen: Screen, ids: Sequence[str] | None) -> None:
    """What is seen in words, and one table: the first rows, or the numbers where a row says little; then the rest."""
    rows = result.to_table()
    is_list = result.shown_rows > 0 and len(rows) > 1
    screen.print_in_words(result)
    if is_list:
        _print_rows(result, rows, screen, ids)
    else:
        screen.print_numbers(result.summary_rows())
    parts = result.members()
    if not (is_list or parts) or not screen.shows_details():
        return
    if is_list:
        screen.print_numbers(result.summary_rows())
    for part in parts:
        screen.print()
        for sentence in part.in_words():
            screen.say(sentence)
        screen.print_numbers(part.summary_rows())
        if part.shown_rows:
            _print_rows(part, part.to_table(), screen, ids)


def _print_rows(result: Result, rows: Table, screen: Screen, ids: Sequence[str] | None) -> None:
    """The first rows of the table, texts by their ids."""
    from poolscope.show.notebook import heading, is_numeric, shown_columns

    names = shown_columns(rows)
    shown = open_table()
    for name in names:
        shown.add_column(
            "text" if name == "position" else heading(name, result.column_words),
            justify="right" if is_numeric(rows[name].type) and name not in _PLACES else "left",
        )
    kept = min(result.shown_rows, len(rows))
    for row in rows.slice(0, kept).to_pylist():
        shown.add_row(*(_cell(name, row[name], ids) for name in names))
    screen.print_table(shown, whole="--table FILE has all of them")
    if (more := len(rows) - kept) > 0:
        screen.say(f"{more:,} more row{'' if more == 1 else 's'}: --table writes all of them", style=QUIET)


def _cell(name: str, value: Any, ids: Sequence[str] | None) -> str:
    from poolscope.show.notebook import word

    if name in _PLACES and ids is not None and isinstance(value, int) and 0 <= value < len(ids):
        return short(ids[value], _ID)
    return word(value)
