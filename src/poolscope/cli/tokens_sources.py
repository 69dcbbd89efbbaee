"""What `poolscope tokens` measures: models with texts, stored clouds and saved states, and which options apply to each.

Several sources may stand beside each other (--compare) or be joined (--merge); an option must apply to one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from poolscope.cli import arguments as given
from poolscope.errors import InputError, ModelError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.capture.norms import NormLayout
    from poolscope.metrics.tokens.result import TokenStatistics

INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended
_MODEL, _CLOUDS, _STATE = "a model", "clouds", "a state"
LABEL, TYPE = "label", "type"
GROUPINGS = (TYPE, LABEL)

Measured = tuple["TokenStatistics", "NormLayout | None"]


@dataclass(frozen=True)
class Request:
    """What the user asked for, but for the source; None is what was not said.

    `reading`: how texts are read; `options`: of the encoder; `settings`: min_count and seed, which apply to everything.
    """

    texts: str | None
    reading: Mapping[str, Any]
    options: Mapping[str, Any]
    layers: list[int] | None
    group_by: str | None
    max_types: int | None
    vocabulary: str | None
    settings: Mapping[str, Any]
    screen: Console

    def check(self, sources: Sequence[str]) -> None:
        """Refuse options that apply to none of the sources."""
        if self.group_by not in (None, *GROUPINGS):
            raise InputError(f"--group-by: received {self.group_by!r}; allowed: {', '.join(GROUPINGS)}.")
        kinds = {kind_of(source) for source in sources}
        measured = {"layers": self.layers, "group_by": self.group_by, "max_types": self.max_types}
        applies = (
            ({_MODEL}, {"TEXTS": self.texts, **self.reading, **self.options}),
            ({_MODEL, _CLOUDS}, measured),
            ({_CLOUDS}, {"vocabulary": self.vocabulary}),
        )
        for fitting, options in applies:
            useless = [_spelled(name) for name, value in options.items() if value is not None]
            if useless and not kinds & fitting:
                raise InputError(
                    f"{', '.join(sources)}: received {' and '.join(sorted(kinds))}, so these cannot apply: "
                    f"{', '.join(useless)}. They are for {' or '.join(sorted(fitting))}; leave them out, or name one."
                )

    def measure(self, source: str, *, state: Path | None = None) -> Measured:
        """The statistics of a source, and the norms where there is a model to look at; `state` keeps the run of one."""
        from poolscope.metrics.tokens.measure import token_statistics
        from poolscope.metrics.tokens.moments import load_state
        from poolscope.metrics.tokens.summary import summarise

        kind = kind_of(source)
        if kind == _STATE:
            return summarise(load_state(source), **self.settings), None
        if kind == _CLOUDS:
            groups = _stored_labels(source) if self.group_by == LABEL else None
            return token_statistics(source, groups=groups, vocabulary=self.vocabulary, **self._choices()), None
        return self._measure_texts(source, state)

    def _choices(self) -> dict[str, Any]:
        most = {} if self.max_types is None else {"max_types": self.max_types}
        return {"layers": self.layers, **most, **self.settings}

    def _measure_texts(self, model: str, state: Path | None) -> Measured:
        from poolscope.cli.inputs import DEFAULT_LIMIT
        from poolscope.cli.progress import encoding_progress
        from poolscope.encoders import as_encoder
        from poolscope.metrics.tokens.measure import token_statistics
        from poolscope.texts import read_texts

        columns = {name: self.reading[name] for name in ("column", "id_column", "label_column")}
        limit = self.reading["limit"]
        drawn = DEFAULT_LIMIT if self.texts is None and limit is None else limit
        corpus = read_texts(self.texts or given.TEXTS, **columns, sample=drawn or None, seed=self.settings["seed"])
        labels = corpus.labels if self.group_by == LABEL else None
        if self.group_by == LABEL and labels is None:
            raise InputError(f"--group-by label: {corpus.source} has no labels. Name their column with --label-column.")
        encoder = as_encoder(model, **self.options)
        layout = _layout(encoder, self.screen)
        title = f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}"
        self.screen.print(title, highlight=False, markup=False)
        for note in corpus.report.notes():
            self.screen.print(f"  {note}", style="dim", highlight=False, markup=False)
        try:
            with encoding_progress(len(corpus)) as progress:
                result = token_statistics(
                    encoder, corpus.texts, groups=labels, state=state, progress=progress, **self._choices()
                )
        except KeyboardInterrupt:
            if state is None:
                raise
            typer.echo(f"Interrupted. The same command goes on where this one stopped ({state}).", err=True)
            raise typer.Exit(INTERRUPTED) from None
        return result, layout


def kind_of(source: str) -> str:
    """What a name means: a saved state, stored clouds, or else a model."""
    from poolscope.cli.inputs import is_clouds
    from poolscope.metrics.tokens.moments import is_state

    return _STATE if is_state(source) else _CLOUDS if is_clouds(source) else _MODEL


def is_model(source: str) -> bool:
    """Does the name mean a model, which encodes texts?"""
    return kind_of(source) == _MODEL


def _spelled(name: str) -> str:
    return name if name.isupper() else f"--{name.replace('_', '-')}"


def _stored_labels(source: str) -> Sequence[Any]:
    from poolscope.stores.store import Store, is_store

    labels = Store.open(source).labels if is_store(source) else None
    if labels is None:
        raise InputError(f"--group-by label: {source} has no labels. Encode the texts with --label-column.")
    return labels


def _layout(encoder: Any, screen: Console) -> NormLayout | None:
    """The norms of a transformer; None for models that have none to look at (tables, ONNX)."""
    from poolscope.capture.norms import norm_layout

    if encoder.card.kind != "transformers":
        return None
    try:
        return norm_layout(encoder)
    except ModelError as error:
        screen.print(f"  The norms are not known: {error}", style="dim", highlight=False, markup=False)
        return None
