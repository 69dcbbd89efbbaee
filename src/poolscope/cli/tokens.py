"""`poolscope tokens`: norm and variance of token embeddings, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments as given
from poolscope.cli.outputs import name_written, put_json, to_figure, to_file
from poolscope.cli.tokens_screen import print_tokens
from poolscope.cli.tokens_sources import Measured, Request, is_model
from poolscope.errors import InputError

if TYPE_CHECKING:
    from poolscope.metrics.tokens.result import TokenStatistics


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("tokens")(tokens)


@given.encoder_options()
def tokens(
    model: Annotated[
        str,
        typer.Argument(metavar="[MODEL|CLOUDS|STATE]", help="Model, clouds of `poolscope encode`, or a saved state."),
    ] = given.MODEL,
    texts: given.Texts = None,
    column: given.Column = None,
    id_column: given.IdColumn = None,
    label_column: given.LabelColumn = None,
    limit: given.Sample = None,
    seed: given.Seed = 0,
    layers: Annotated[str | None, typer.Option(metavar="0,3,6", help="Layers (0: embedding output), not all.")] = None,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="type|label", help="Group tokens by their type (default), or by the label of their text."),
    ] = None,
    min_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Correlations are over types with N tokens or more.")
    ] = 10,
    max_types: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the N most frequent (default 10,000), pool the rest.")
    ] = None,
    vocabulary: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Name the tokens of clouds with the tokenizer of this model.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Measure a second model (or clouds, or a state) beside it.")
    ] = None,
    state: Annotated[
        Path | None,
        to_file("Save the run of a model, and go on with what is there; of others a new file.", metavar="FILE.npz"),
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(metavar="FILE.npz", help="Add the saved state of another shard (repeatable).")
    ] = None,
    json: given.Json = None,
    parquet: Annotated[Path | None, to_file("Write every type and layer as Parquet.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the figures: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Norm and variance of the tokens in every layer: how far from the origin, how spread within a type and between.

    MODEL is a model, a store that `poolscope encode --layers` wrote, or a state that --state saved; in the last two
    cases TEXTS is left out. The texts are streamed: nothing but running moments is kept.
    """
    from rich.console import Console

    screen = Console(stderr=json == "-", soft_wrap=False)
    shards = [str(path) for path in merge or ()]
    _check_states(model, compare, state, shards)
    request = Request(
        texts=texts,
        reading={"column": column, "id_column": id_column, "label_column": label_column, "limit": limit},
        options=options,
        layers=given.parse_layers(layers),
        group_by=group_by,
        max_types=max_types,
        vocabulary=vocabulary,
        settings={"min_count": min_count, "seed": seed},
        screen=screen,
    )
    request.check([model, *shards] if compare is None else [model, compare])
    measured = _measure(request, model, shards, compare, state)
    for result, layout in measured:
        print_tokens(result, layout, screen)
    if state is not None and not is_model(model):  # a run keeps its own
        measured[0][0].save_state(state)
    _write(measured, json, parquet, figure)
    name_written(screen, json, parquet, figure, state)


def _check_states(model: str, compare: str | None, state: Path | None, shards: Sequence[str]) -> None:
    from poolscope.metrics.tokens.moments import SUFFIX, is_state

    if compare is not None and (shards or state):
        raise InputError("--compare measures two models; --state and --merge are for one. Leave out one of the two.")
    for path in shards:
        if not is_state(path):
            raise InputError(f"--merge: received {path}; needed: a {SUFFIX} file that --state saved. Check the name.")
    if state is None:
        return
    if state.suffix != SUFFIX:
        raise InputError(f"--state: received {state}; the name of a state ends in {SUFFIX}. Add the ending.")
    if is_model(model) and shards:
        raise InputError(
            f"--state keeps the run of {model}, and with --merge there would be others in it. Leave out --merge; then "
            f"`poolscope tokens {state} --merge …` joins them, and takes a --state of its own."
        )
    if not is_model(model) and state.exists():
        raise InputError(f"--state: {state} is there already, and {model} has no run to go on with. Name a new file.")


def _measure(
    request: Request, model: str, shards: Sequence[str], compare: str | None, state: Path | None
) -> list[Measured]:
    """The source with its shards, and the one to compare it with."""
    result, layout = request.measure(model, state=state)
    for path in shards:
        result = result.merge(request.measure(path)[0])
    return [(result, layout)] if compare is None else [(result, layout), request.measure(compare)]


def _write(measured: Sequence[Measured], json: str | None, parquet: Path | None, figure: Path | None) -> None:
    if json is not None:
        parts = [{**result.to_dict(), "norms": layout and layout.to_dict()} for result, layout in measured]
        content = parts[0] if len(parts) == 1 else {"models": parts}
        put_json(content, json)
    if parquet is not None:
        _write_parquet([result for result, _ in measured], parquet)
    if figure is not None:
        from poolscope.charts.files import save_figure
        from poolscope.metrics.tokens.figure import tokens_figure

        save_figure(tokens_figure(*(result for result, _ in measured)), figure)


def _write_parquet(results: Sequence[TokenStatistics], path: Path) -> None:
    """The table of one model, or of several one below the other with a column for the model."""
    if len(results) == 1:
        results[0].save_parquet(path)
        return
    import pyarrow as pa
    from pyarrow import parquet

    from poolscope.files import atomic_path

    tables = [result.to_table() for result in results]
    named = [
        table.replace_schema_metadata(None).add_column(0, "model", pa.array([result.model] * len(table), pa.string()))
        for result, table in zip(results, tables, strict=True)
    ]
    with atomic_path(path) as temporary:
        parquet.write_table(pa.concat_tables(named), temporary)
