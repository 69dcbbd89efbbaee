"""`poolscope research transport`: how much of the distance between token lists do two moments see, layer by layer?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json, to_figure

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.clouds import TokenClouds
    from poolscope.numbers.intervals import Estimate
    from poolscope.research.transport import TransportResult
    from poolscope.texts import Texts

# Texts drawn from the embedded corpus when the user names no texts.
DEFAULT_LIMIT = 100


@arguments.encoder_options()
def transport(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    layers: Annotated[
        str | None, typer.Option(metavar="0,3,…", help="Layers (0: embedding output); all without it.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=3, metavar="M", help="Random pairs of texts.")] = 100,
    column: arguments.Column = None,
    id_column: arguments.IdColumn = None,
    limit: arguments.Limit = None,
    seed: arguments.Seed = 0,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw the shares: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Exact 2-Wasserstein distance between token lists beside the Gaussian value that SOCM's two moments give.

    With nothing: the embedded model on 100 texts of the embedded corpus, all layers.
    """
    from rich.console import Console

    from poolscope.cli.inputs import read_corpus
    from poolscope.cli.progress import counting_progress
    from poolscope.research.transport import transport as measure

    screen = Console(stderr=json == "-", soft_wrap=False)
    chosen = arguments.parse_layers(layers)
    reading = {"column": column, "id_column": id_column, "limit": limit, "seed": seed}
    corpus = read_corpus(texts, reading, default=DEFAULT_LIMIT)
    clouds = _encode(model, corpus, chosen, options, screen)
    with counting_progress("transporting", pairs * len(clouds), "pairs") as progress:
        result = measure(clouds, pairs=pairs, seed=seed, progress=progress)
    _print(result, screen)
    if json is not None:
        put_json(result.to_dict(), json)
    if figure is not None:
        from poolscope.charts.files import save_figure

        save_figure(result.figure(), figure)
    name_written(screen, json, figure)


def _encode(
    model: str, corpus: Texts, layers: list[int] | None, options: Mapping[str, Any], screen: Console
) -> dict[int, TokenClouds]:
    """The clouds by layer; of all layers where none are asked for."""
    from poolscope.cli.inputs import print_notes
    from poolscope.cli.progress import encoding_progress
    from poolscope.encoders import as_encoder, pooling_report, truncation_report

    encoder = as_encoder(model, **options)
    depth = encoder.card.layers
    chosen = layers if layers is not None else [-1] if depth is None else list(range(depth + 1))
    with encoding_progress(len(corpus)) as progress:
        clouds = encoder.encode(corpus.texts, layers=chosen, progress=progress)
    line = f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}"
    screen.print(line, highlight=False, markup=False)
    truncation = truncation_report(clouds[chosen[0]])
    print_notes([*corpus.report.notes(), *pooling_report(encoder).notes(), *truncation.notes()], screen)
    return clouds


def _print(result: TransportResult, screen: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        *("layer", "exact", "Gaussian", "means", "two moments", "random lists", "beyond"),
        title=f"W₂² of {result.pairs:,} pairs, and what is seen of it in % (± 95 % interval)",
        title_justify="left",
        caption="random lists: two moments there; beyond: what the real lists are farther apart than random ones",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    for entry in result.layers:
        shares = (entry.means, entry.two_moments, entry.two_moments_surrogate, entry.beyond)
        distances = (f"{entry.exact.mean():.3f}", f"{entry.gaussian.mean():.3f}")
        table.add_row(str(entry.layer), *distances, *map(_share, shares))
    screen.print(table)


def _share(share: Estimate) -> str:
    """A share with the half of its interval, which is symmetric."""
    if share.value is None:
        return "–"
    interval = share.interval
    reach = "" if interval is None else f"±{50 * (interval.high - interval.low):.1f}"
    return f"{100 * share.value:.1f}{reach}"
