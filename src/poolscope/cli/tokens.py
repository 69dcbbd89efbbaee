"""`poolscope tokens`: norm and variance of token embeddings, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments as given
from poolscope.cli.outputs import name_written, put_json
from poolscope.cli.tokens_screen import print_tokens
from poolscope.errors import InputError, ModelError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.analyses.norm_layout import NormLayout
    from poolscope.analyses.tokens_result import TokenStatistics

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended
GROUPINGS = ("type", "label")


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
    limit: given.Limit = None,
    seed: given.Seed = 0,
    layers: Annotated[str | None, typer.Option(metavar="0,3,6", help="Layers (0: embedding output), not all.")] = None,
    group_by: Annotated[
        str, typer.Option(metavar="type|label", help="Group tokens by their type, or by the label of their text.")
    ] = "type",
    min_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Correlations are over types with N tokens or more.")
    ] = 10,
    max_types: Annotated[
        int, typer.Option(min=1, metavar="N", help="Keep the N most frequent, pool the rest.")
    ] = 10_000,
    vocabulary: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Name the tokens of clouds with the tokenizer of this model.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Measure a second model (or clouds, or a state) beside it.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Save the run here, and go on with what is there.")
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(metavar="FILE.npz", help="Add the saved state of another shard (repeatable).")
    ] = None,
    json: given.Json = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every type and layer as Parquet.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the figures: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Norm and variance of the tokens in every layer: how far from the origin, how spread within a type and between.

    MODEL is a model, a store that `poolscope encode --layers` wrote, or a state that --state saved; in the last two
    cases TEXTS is left out. The texts are streamed: nothing but running moments is kept.
    """
    from rich.console import Console

    screen = Console(stderr=json == "-", soft_wrap=False)
    if group_by not in GROUPINGS:
        raise InputError(f"--group-by: received {group_by!r}; allowed: {', '.join(GROUPINGS)}.")
    if figure is not None:
        from poolscope.charts import check_figure_path

        check_figure_path(figure)  # before the work, not after it
    _check_states(compare, state, merge or [])
    request = _Request(
        texts=texts,
        reading={"column": column, "id_column": id_column, "label_column": label_column, "limit": limit, "seed": seed},
        settings={"layers": given.parse_layers(layers), "min_count": min_count, "max_types": max_types, "seed": seed},
        options=options,
        by_label=group_by == "label",
        vocabulary=vocabulary,
        state=state,
        screen=screen,
    )
    measured = [request.measure(model)]
    for path in merge or ():
        measured[0] = (measured[0][0].merge(request.measure(str(path))[0]), measured[0][1])
    if compare is not None:
        measured.append(request.measure(compare))
    _write(measured, json, parquet, figure)
    for result, layout in measured:
        print_tokens(result, layout, screen)
    name_written(screen, json, parquet, figure, state)


def _check_states(compare: str | None, state: Path | None, merge: Sequence[Path]) -> None:
    from poolscope.analyses.token_state import SUFFIX, is_state

    if compare is not None and (merge or state):
        raise InputError("--compare measures two models; --state and --merge are for one. Leave out one of the two.")
    if state is not None and state.suffix != SUFFIX:
        raise InputError(f"--state: received {state}; the name of a state ends in {SUFFIX}. Add the ending.")
    for path in merge:
        if not is_state(path):
            raise InputError(f"--merge: received {path}; needed: a {SUFFIX} file that --state saved. Check the name.")


@dataclass(frozen=True)
class _Request:
    """What the user asked for, but for the model."""

    texts: str | None
    reading: dict[str, Any]
    settings: dict[str, Any]
    options: dict[str, Any]
    by_label: bool
    vocabulary: str | None
    state: Path | None
    screen: Console

    def measure(self, source: str) -> tuple[TokenStatistics, NormLayout | None]:
        """The statistics of a model, of clouds or of a saved state, and the norms where there is a model to look at."""
        from poolscope.analyses.token_state import is_state, load_state
        from poolscope.analyses.tokens import token_statistics
        from poolscope.analyses.tokens_summary import summarise
        from poolscope.cli.inputs import is_clouds

        if not is_state(source) and not is_clouds(source):
            return self._measure_texts(source)
        useless = [name for name, value in self._of_texts().items() if value]
        if useless:
            raise InputError(
                f"{source} is measured already or holds ready clouds, so these cannot apply: {', '.join(useless)}. "
                f"Leave them out, or name a model."
            )
        if is_state(source):
            settings = {name: self.settings[name] for name in ("min_count", "seed")}
            return summarise(load_state(source), **settings), None
        groups = self._stored_labels(source) if self.by_label else None
        return token_statistics(source, groups=groups, vocabulary=self.vocabulary, **self.settings), None

    def _of_texts(self) -> dict[str, Any]:
        """What can only be asked of a model with texts, when one of several sources is none."""
        return {"TEXTS": self.texts, **{k: v for k, v in self.reading.items() if k != "seed"}, **self.options}

    def _stored_labels(self, source: str) -> Sequence[Any]:
        from poolscope.store import Store, is_store

        labels = Store.open(source).labels if is_store(source) else None
        if labels is None:
            raise InputError(f"--group-by label: {source} has no labels. Encode the texts with --label-column.")
        return labels

    def _measure_texts(self, model: str) -> tuple[TokenStatistics, NormLayout | None]:
        from poolscope.analyses.tokens import token_statistics
        from poolscope.cli.inputs import DEFAULT_LIMIT
        from poolscope.cli.progress import encoding_progress
        from poolscope.encoders import as_encoder
        from poolscope.texts import read_texts

        reading = dict(self.reading)
        limit = DEFAULT_LIMIT if self.texts is None and reading["limit"] is None else reading["limit"]
        columns = {name: reading[name] for name in ("column", "id_column", "label_column")}
        corpus = read_texts(self.texts or given.TEXTS, **columns, sample=limit or None, seed=reading["seed"])
        if self.by_label and corpus.labels is None:
            raise InputError(f"--group-by label: {corpus.source} has no labels. Name their column with --label-column.")
        encoder = as_encoder(model, **self.options)
        layout = _layout(encoder, self.screen)
        self.screen.print(
            f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}", highlight=False, markup=False
        )
        for note in corpus.report.notes():
            self.screen.print(f"  {note}", style="dim", highlight=False, markup=False)
        labels = corpus.labels if self.by_label else None
        try:
            with encoding_progress(len(corpus)) as progress:
                result = token_statistics(
                    encoder, corpus.texts, groups=labels, state=self.state, progress=progress, **self.settings
                )
        except KeyboardInterrupt:
            if self.state is None:
                raise
            typer.echo(f"Interrupted. The same command goes on where this one stopped ({self.state}).", err=True)
            raise typer.Exit(INTERRUPTED) from None
        return result, layout


def _layout(encoder: Any, screen: Console) -> NormLayout | None:
    """The norms of a transformer; None for models that have none to look at (tables, ONNX)."""
    from poolscope.analyses.norm_layout import norm_layout

    if encoder.card.kind != "transformers":
        return None
    try:
        return norm_layout(encoder)
    except ModelError as error:
        screen.print(f"  The norms are not known: {error}", style="dim", highlight=False, markup=False)
        return None


def _write(
    measured: Sequence[tuple[TokenStatistics, NormLayout | None]],
    json: str | None,
    parquet: Path | None,
    figure: Path | None,
) -> None:
    if json is not None:
        parts = [{**result.to_dict(), "norms": layout and layout.to_dict()} for result, layout in measured]
        content = parts[0] if len(parts) == 1 else {"models": parts}
        put_json(content, json)
    if parquet is not None:
        _write_parquet([result for result, _ in measured], parquet)
    if figure is not None:
        from poolscope.charts import save_figure, tokens_figure

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
