"""`poolscope pair`: two texts, their distances, and their clouds in one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.arguments import name_written, put_json, to_figure

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.clouds import TokenClouds
    from poolscope.encoders import TokenEncoder
    from poolscope.metrics.pair import PairProjection


@arguments.encoder_options(without=("encoding",))
def pair(
    first: Annotated[str, typer.Argument(metavar="TEXT", help="One text.")],
    second: Annotated[str, typer.Argument(metavar="TEXT", help="The other text.")],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="Hub name, folder, ONNX file or built-in model.")
    ] = arguments.MODEL,
    output: Annotated[Path | None, to_figure("Draw both clouds: .html, .png, .svg, .pdf.", "--output", "-o")] = None,
    layer: Annotated[
        int | None, typer.Option(metavar="N", help="A layer (0: embedding output), not the one that is pooled.")
    ] = None,
    json: arguments.Json = None,
    *,
    options: dict[str, Any],
) -> None:
    """d_μ, d_Σ and SOCM of two texts; with -o a picture of their tokens, means and covariances.

    High SOCM: the means agree while the clouds differ, so that mean pooling hides the difference.
    """
    from rich.console import Console

    from poolscope.encoders import as_encoder
    from poolscope.metrics.pair import project_pair

    encoder = as_encoder(model, **options)
    (clouds,) = encoder.encode([first, second], layers=None if layer is None else [layer]).values()
    projection = project_pair(clouds[0], clouds[1])
    name = encoder.card.name if layer is None else f"{encoder.card.name}, layer {layer}"
    screen = Console(stderr=json == "-", soft_wrap=True)
    _print(projection, clouds, name, screen)
    if output is not None:
        _draw(projection, clouds, [first, second], encoder, name, output)
    if json is not None:
        _write_json(projection, clouds, encoder.card.name, layer, json)
    name_written(screen, output, json)


def _draw(
    projection: PairProjection, clouds: TokenClouds, texts: list[str], encoder: TokenEncoder, name: str, output: Path
) -> None:
    from poolscope.charts.files import save_figure
    from poolscope.metrics.pair import pair_figure

    vocabulary = getattr(encoder, "vocabulary", None)
    ids = [clouds.token_ids(k) for k in (0, 1)]
    tokens = None if vocabulary is None else [vocabulary.names(row) for row in ids if row is not None]
    save_figure(pair_figure(projection, names=texts, tokens=tokens or None, model=name), output)


def _write_json(projection: PairProjection, clouds: TokenClouds, model: str, layer: int | None, path: str) -> None:
    from poolscope.results import plain, provenance

    numbers = {
        "d_mu": projection.distances.mean_distance,
        "d_sigma": projection.distances.covariance_distance,
        "socm": projection.distances.socm,
        "traces": projection.traces,
        "above_trace": projection.above_trace,
        "d_sigma_trace": projection.covariance_distance_over_trace,
        "kept_in_plane": projection.kept,
        "model": model,
        "layer": layer,
        "texts": list(clouds.texts or ()),
        "tokens": clouds.lengths,
        "truncated": clouds.truncated,
        "provenance": provenance(clouds, settings={}),
    }
    put_json(plain(numbers), path)


def _print(projection: PairProjection, clouds: TokenClouds, name: str, screen: Console) -> None:
    (n, m), (cut, cut_too) = clouds.lengths, clouds.truncated
    pair = projection.distances
    lines = [f"{name} · {n} and {m} tokens"]
    if cut or cut_too:
        lines.append(f"  too long: {cut} and {cut_too} tokens were cut off")
    lines.append(
        f"SOCM {pair.socm:.4f}   means d_μ {pair.mean_distance:.4f}   covariances d_Σ {pair.covariance_distance:.4f}"
    )
    if projection.above_trace:
        lines.append(
            f"  tr Σ {projection.traces[0]:.2f} and {projection.traces[1]:.2f}: above 2, d_Σ and SOCM may "
            f"exceed 1; d_Σ over the trace, always in [0, 1]: {projection.covariance_distance_over_trace:.4f}"
        )
    for line in lines:
        screen.print(line, highlight=False, markup=False)
