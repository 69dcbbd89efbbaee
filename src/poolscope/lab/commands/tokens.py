"""`poolscope tokens`: norm and variance of token embeddings, layer by layer.

Several sources may stand beside each other (--compare) or be joined (--merge): models with texts, stored clouds and
saved states. An option must apply to one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, received, to_figure, to_file
from poolscope.errors import InputError, ModelError, did_you_mean
from poolscope.files import keeping
from poolscope.show.screen import Screen, put_json, with_ends, with_reach

if TYPE_CHECKING:
    from poolscope.cli.inputs import Inputs
    from poolscope.engines import Engine
    from poolscope.lab.capture.norms import NormLayout
    from poolscope.numbers.intervals import Estimate

_MODEL, _CLOUDS, _STATE = "a model", "clouds", "a state"
LABEL, TYPE = "label", "type"
GROUPINGS = (TYPE, LABEL)

Measured = tuple["poolscope.TokenStatistics", "NormLayout | None"]


@arguments.encoder_options()
@arguments.reading_options(labels=True)
@arguments.engine_options
def tokens(
    model: Annotated[
        str, argument("[MODEL|CLOUDS|STATE]", "Model, clouds of `poolscope encode`, or a saved state.")
    ] = arguments.MODEL,
    texts: arguments.Texts = None,
    layers: Annotated[str | None, option("0,3,6", "Layers to measure (0: embedding output), all by default.")] = None,
    group_by: Annotated[
        str | None, option("type|label", "Group tokens by their type (default), or by the label of their text.")
    ] = None,
    min_count: Annotated[int, option("N", "Leave types with fewer than N tokens out of correlations.", min=1)] = 10,
    max_types: Annotated[
        int | None, option("N", "Keep the N most frequent types (default: 10,000), and pool the rest.", min=1)
    ] = None,
    vocabulary: Annotated[
        str | None, option("MODEL", "If MODEL is clouds: the model whose tokenizer names the tokens.")
    ] = None,
    temperature: arguments.Temperature = None,
    compare: Annotated[str | None, option("MODEL", "Compare with a second model, clouds or state.")] = None,
    state: Annotated[
        Path | None,
        to_file(
            "Save progress, and resume if the file exists (models only; otherwise a new file).", metavar="FILE.npz"
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None, option("FILE.npz", "Add the saved state of another shard (repeatable).")
    ] = None,
    details: arguments.Details = False,
    json: arguments.Json = None,
    parquet: Annotated[Path | None, to_file("Write every type and layer as Parquet.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the figures: .html, .png, .svg.")] = None,
    *,
    where: dict[str, Any],
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Which tokens dominate an average: by words, or by their contexts?

    Example: poolscope tokens builtin:minilm texts.jsonl

    MODEL is a model, a store that `poolscope encode --layers` wrote, or a state that --state saved. For a store or a
    state, leave out TEXTS. Texts are streamed: only running moments are kept in memory.
    """
    from poolscope.cli.inputs import Inputs

    screen = Screen(json, seen_first=True, details=details)
    shards = [str(path) for path in merge or ()]
    _check_states(model, compare, state, shards)
    request = Request(
        inputs=Inputs(model, texts, reading, options, screen, temperature=temperature),
        layers=arguments.parse_layers(layers),
        group_by=group_by,
        max_types=max_types,
        vocabulary=vocabulary,
        settings={"min_count": min_count, "seed": reading["seed"]},
        engine=arguments.open_engine(where, options, temperature),
    )
    if request.engine is not None and state is not None and is_model(model):
        raise InputError("--state keeps a run of this process; received an engine too. Leave out one of the two.")
    request.check([model, *shards] if compare is None else [model, compare])
    result, layout = request.measure(model, state=state)
    for path in shards:
        result = result.merge(request.measure(path)[0])
    measured = [(result, layout), *([] if compare is None else [request.measure(compare)])]
    for result, layout in measured:
        _print_tokens(result, layout, screen)
    if state is not None and not is_model(model):  # a run keeps its own
        measured[0][0].save_state(state)
    _write(measured, json, parquet, figure)
    screen.name_written(json, parquet, figure, state)


def _check_states(model: str, compare: str | None, state: Path | None, shards: Sequence[str]) -> None:
    from poolscope.lab.tokens.moments import SUFFIX, is_state

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


def _write(measured: Sequence[Measured], json: str | None, parquet: Path | None, figure: Path | None) -> None:
    if json is not None:
        parts = [{**result.to_dict(), "norms": layout and layout.to_dict()} for result, layout in measured]
        content = parts[0] if len(parts) == 1 else {"models": parts}
        put_json(content, json)
    if parquet is not None:
        _write_parquet([result for result, _ in measured], parquet)
    if figure is not None:
        from poolscope.lab.tokens.result import tokens_figure

        poolscope.save_figure(tokens_figure(*(result for result, _ in measured)), figure)


def _write_parquet(results: Sequence[poolscope.TokenStatistics], path: Path) -> None:
    """The table of one model, or of several one below the other with a column for the model."""
    if len(results) == 1:
        results[0].save_parquet(path)
        return
    from pyarrow.parquet import write_table

    from poolscope.files import atomic_file
    from poolscope.results import stacked

    with atomic_file(path) as stream:
        write_table(stacked(*((result.model, result.to_table()) for result in results)), stream)


# -- what is measured -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """Options of one call; None where the user did not pass one.

    `inputs`: the first source, and how texts are read and encoded; `settings`: min_count and seed, of all sources.
    """

    inputs: Inputs
    layers: list[int] | None
    group_by: str | None
    max_types: int | None
    vocabulary: str | None
    settings: Mapping[str, Any]
    engine: Engine | None = None

    def check(self, sources: Sequence[str]) -> None:
        """Refuse options that apply to none of the sources."""
        if self.group_by not in (None, *GROUPINGS):
            raise InputError(
                f"--group-by: received {self.group_by!r}; allowed: {', '.join(GROUPINGS)}."
                f"{did_you_mean(self.group_by, GROUPINGS)}"
            )
        kinds = {kind_of(source) for source in sources}
        measured = {"layers": self.layers, "group_by": self.group_by, "max_types": self.max_types}
        reading = {name: value for name, value in self.inputs.reading.items() if name != "seed"}
        applies = (
            (
                {_MODEL},
                {"TEXTS": self.inputs.texts, "temperature": self.inputs.temperature, **reading, **self.inputs.options},
            ),
            ({_MODEL, _CLOUDS}, measured),
            ({_CLOUDS}, {"vocabulary": self.vocabulary}),
        )
        for fitting, options in applies:
            useless = received(options)
            if useless and not kinds & fitting:
                raise InputError(
                    f"{', '.join(sources)}: received {' and '.join(sorted(kinds))}, so these cannot apply: "
                    f"{', '.join(useless)}. They are for {' or '.join(sorted(fitting))}; leave them out, or name one."
                )

    def measure(self, source: str, *, state: Path | None = None) -> Measured:
        """The statistics of a source, and the norms where there is a model to look at; `state` keeps the run of one."""
        from poolscope.lab.tokens.moments import load_state
        from poolscope.lab.tokens.summary import summarise

        kind = kind_of(source)
        if kind == _STATE:
            return summarise(load_state(source), **self.settings), None
        if kind == _CLOUDS and self.engine is not None:
            return self._on_engine(source, self.engine), None
        if kind == _CLOUDS:
            groups = _stored_labels(source) if self.group_by == LABEL else None
            return poolscope.token_statistics(
                source, groups=groups, vocabulary=self.vocabulary, **self._choices()
            ), None
        return self._measure_texts(source, state)

    def _on_engine(self, source: str, engine: Engine) -> poolscope.TokenStatistics:
        """The statistics of a store, its shards on an engine."""
        from poolscope.cli.inputs import counting_progress
        from poolscope.lab.tokens.on_engines import tokens_with
        from poolscope.stores.store import Store, is_store

        if not is_store(source):
            raise InputError(f"--engine: received the cloud file {source}; allowed: a store, or a model and texts.")
        own = {"by_label": self.group_by == LABEL, "vocabulary": self.vocabulary, **self._choices()}
        with counting_progress("measuring", len(Store.open(source)), "texts") as progress:
            return tokens_with(engine, source, progress=progress, **own)

    def _choices(self) -> dict[str, Any]:
        most = {} if self.max_types is None else {"max_types": self.max_types}
        return {"layers": self.layers, **most, **self.settings}

    def _measure_texts(self, model: str, state: Path | None) -> Measured:
        from poolscope.cli.inputs import encoding_progress

        inputs, screen = replace(self.inputs, model=model), self.inputs.screen
        corpus = inputs.corpus()
        labels = corpus.labels if self.group_by == LABEL else None
        if self.group_by == LABEL and labels is None:
            raise InputError(f"--group-by label: {corpus.source} has no labels. Name their column with --label-column.")
        encoder = inputs.encoder()
        layout = _layout(encoder, screen)
        screen.name_origin(f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}", corpus.report.notes())
        if self.engine is not None:
            from poolscope.lab.tokens.on_engines import tokens_of_texts

            own = {"by_label": self.group_by == LABEL, **self._choices()}
            with encoding_progress(len(corpus)) as progress:
                return tokens_of_texts(self.engine, encoder, corpus, progress=progress, **own), layout
        with keeping(lambda: _kept_in(state)), encoding_progress(len(corpus)) as progress:
            result = poolscope.token_statistics(
                encoder, corpus.texts, groups=labels, state=state, progress=progress, **self._choices()
            )
        return result, layout


def _kept_in(state: Path | None) -> str:
    """What is kept of a measurement that is interrupted."""
    if state is None or not state.exists():
        return ""
    return f"Progress is saved in {state}: the same command resumes there."


def kind_of(source: str) -> str:
    """What a name means: a saved state, stored clouds, or else a model."""
    from poolscope.lab.tokens.moments import is_state
    from poolscope.stores.store import is_clouds

    return _STATE if is_state(source) else _CLOUDS if is_clouds(source) else _MODEL


def is_model(source: str) -> bool:
    """Does the name mean a model, which encodes texts?"""
    return kind_of(source) == _MODEL


def _stored_labels(source: str) -> Sequence[Any]:
    from poolscope.stores.store import Store, is_store

    labels = Store.open(source).labels if is_store(source) else None
    if labels is None:
        raise InputError(f"--group-by label: {source} has no labels. Encode the texts with --label-column.")
    return labels


def _layout(encoder: Any, screen: Screen) -> NormLayout | None:
    """The norms of a transformer; None for models that have none to look at (tables, ONNX)."""
    if encoder.card.kind != "transformers":
        return None
    try:
        return poolscope.norm_layout(encoder)
    except ModelError as error:
        screen.print_notes([f"The norms are not known: {error}"])
        return None


# -- how it looks on 80 columns ---------------------------------------------------------------------------------------


_LEGEND = (
    "length²: the mean squared length, Q. Of it: the share that all tokens share (M/Q), the share that the context "
    "adds to a type (V_W/Q), and the share that tells types apart (V_B/Q). Below, M, V and n are those of one type: "
    "the squared length of its mean, its variance and its tokens; ρ is Spearman's correlation."
)


def _print_tokens(result: poolscope.TokenStatistics, layout: NormLayout | None, screen: Screen) -> None:
    """Print the sentences, two tables by layer, the special tokens, and the notes."""
    screen.print_in_words(result)
    parts, spread = {}, {}
    for layer in result.layers:
        shares = map(layer.estimate, ("mean_share", "within_share", "between_share", "mean_cosine"))
        mean_square = _of_any_size(layer.estimate("mean_square"))
        parts[layer.layer] = [mean_square, *(with_reach(share, gap="") for share in shares)]
        correlations = (layer.associations.mean_and_variance, layer.corrected.mean_and_frequency)
        spread[layer.layer] = [*map(with_ends, (layer.variation, *(both.spearman for both in correlations)))]
    screen.print(f"{result.model}: what the squared length of tokens is made of", style="bold")
    _print_layers(("length²", "all share", "context", "type", "mean cosine"), parts, screen)
    if not screen.shows_details():
        return
    screen.say(_LEGEND, style="dim")
    screen.print(f"how it varies over {result.coverage.counted:,} {result.grouping}s", style="bold")
    _print_layers(("variation of length²", "ρ(M, V)", "ρ(M, log n), corrected"), spread, screen)
    _print_special(result, screen)
    if layout is not None:
        screen.say(f"norms: {layout}{_gains(layout)}")
    screen.print_notes(result.notes(), indent="")
    tables = {
        "corpus": "± in the first table",
        "variation": "[low, high] of the variation",
        "correlations": "[low, high] of ρ",
    }
    for kind, meaning in result.interval_meanings().items():
        screen.say(f"{tables[kind]}: {meaning}.", style="dim")


def _print_layers(headings: Sequence[str | Text], cells: Mapping[int, Sequence[str]], screen: Screen) -> None:
    rows = (("last" if layer < 0 else str(layer), *row) for layer, row in cells.items())
    screen.print_rows(("layer", *headings), rows, padding=(0, 1, 0, 0))


def _of_any_size(estimate: Estimate) -> str:
    """A positive number of any size with the half of its interval, both to the fourth digit of the number.

    >>> from poolscope.numbers.intervals import Estimate
    >>> _of_any_size(Estimate(30.768)), _of_any_size(Estimate(1234.5)), _of_any_size(Estimate(0.05))
    ('30.77', '1234', '0.0500')
    """
    value = abs(estimate.value or 0.0)
    places = 3 if value == 0 else max(0, min(4, 3 - math.floor(math.log10(value))))
    return with_reach(estimate, places, gap="")


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


def _print_special(result: poolscope.TokenStatistics, screen: Screen) -> None:
    if not len(result.special):
        return
    shown = range(min(4, len(result.special)))
    names = [Text(f"{result.special.names[k]} · {result.special.counts[k]:,}") for k in shown]
    cells = {}
    for layer in result.layers:
        squares, means = layer.special.mean_squares, layer.special.norms_of_means
        cells[layer.layer] = [f"{squares[k]:.4g} ({means[k] / (squares[k] or 1):.3f})" for k in shown]
    screen.print("special tokens, left out above: Q (M/Q)", style="bold")
    _print_layers(names, cells, screen)
