"""From what the user named to clouds: a store or a cloud file as it is, otherwise texts encoded by a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolscope.cli.arguments import TEXTS
from poolscope.cli.progress import encoding_progress
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.stores.store import is_store, open_clouds

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.texts import Texts

# Texts drawn from the embedded corpus when the user names no texts: enough for a picture, done in a minute.
DEFAULT_LIMIT = 500


def load_clouds(
    source: str,
    texts: str | None,
    *,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    cache: bool,
    screen: Console,
) -> TokenClouds:
    """Clouds of `source` (a store or a cloud file), or of `texts` encoded by the model that `source` names.

    reading: column, id_column, limit, seed; options: those of the encoder that were given. What the user should
    know (texts dropped, truncation, unusual pooling) is printed.
    """
    if not is_clouds(source):
        return _encode(source, texts, reading, options, cache=cache, screen=screen)
    useless = [name for name, value in {"TEXTS": texts, **reading, **options}.items() if value and name != "seed"]
    if useless:
        raise InputError(
            f"{source} holds ready clouds, so these cannot apply: {', '.join(useless)}. Leave them out, or name a "
            f"model."
        )
    from poolscope.encoders.reports import cloud_notes

    clouds = open_clouds(source)
    _print_origin(clouds, cloud_notes(clouds), screen, name=source)
    return clouds


def read_corpus(
    texts: str | None, reading: Mapping[str, Any], *, default: int = DEFAULT_LIMIT, screen: Console | None = None
) -> Texts:
    """The texts that the user named, or `default` of the embedded corpus; `screen` is told what reading met.

    reading: column, id_column, label_column, limit (0: all) and seed, those that the command has.
    """
    from poolscope.texts import read_texts

    limit = reading.get("limit")
    drawn = default if texts is None and limit is None else limit
    columns = {name: reading.get(name) for name in ("column", "id_column", "label_column")}
    corpus = read_texts(texts or TEXTS, **columns, limit=drawn or None, seed=reading.get("seed", 0))
    if screen is not None:
        print_notes(corpus.report.notes(), screen)
    return corpus


def print_notes(notes: Sequence[str], screen: Console) -> None:
    """What the user should know, in small letters below what it is about."""
    for note in notes:
        screen.print(f"  {note}", style="dim", highlight=False, markup=False)


def is_clouds(source: str) -> bool:
    """Does the name mean a store or a cloud file, not a model?"""
    return is_store(source) or Path(source).suffix == ".arrow"


def _encode(
    model: str,
    texts: str | None,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    cache: bool,
    screen: Console,
) -> TokenClouds:
    from poolscope.encoders import EncoderOptions, as_encoder, pooling_report, truncation_report
    from poolscope.stores.cache import cached_clouds

    corpus = read_corpus(texts, reading)
    encoder = as_encoder(model, **options)
    with encoding_progress(len(corpus)) as progress:
        clouds = cached_clouds(encoder, corpus, options=EncoderOptions(**options), enabled=cache, progress=progress)
    notes = [*corpus.report.notes(), *pooling_report(encoder).notes(), *truncation_report(clouds).notes()]
    _print_origin(clouds, notes, screen, name=encoder.card.name)
    return clouds


def _print_origin(clouds: TokenClouds, notes: Sequence[str], screen: Console, *, name: str) -> None:
    """Which model, which texts, how many tokens; and what the user should know of them."""
    model, texts = (clouds.provenance.get(part) or {} for part in ("model", "texts"))
    source = f" of {texts['source']}" if "source" in texts else ""
    line = f"{model.get('name', name)} · {len(clouds):,} texts{source} · {clouds.lengths.sum():,} tokens"
    screen.print(line, highlight=False, markup=False)
    print_notes(notes, screen)
