"""`poolscope windows`: what is lost when tokens are replaced by the means of adjacent windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from poolscope.cli import arguments
from poolscope.cli.arguments import option, switch, to_figure, to_file
from poolscope.cli.screen import Screen, open_table, put_json
from poolscope.errors import InputError, whole_number

if TYPE_CHECKING:
    from poolscope.cli.inputs import Inputs
    from poolscope.clouds import TokenClouds
    from poolscope.encoders import TokenEncoder
    from poolscope.metrics.likelihood import ContextLikelihood
    from poolscope.metrics.windows import WindowsResult
    from poolscope.numbers.intervals import Estimate
    from poolscope.texts import Texts

DEFAULT_LIMIT = 100  # texts of the embedded corpus when the user names none


@arguments.encoder_options()
@arguments.reading_options()
def windows(
    model: arguments.ModelOrClouds = arguments.MODEL,
    texts: arguments.Texts = None,
    ratio: Annotated[str, option("2,4,8", "Tokens of a window.")] = "2,4,8,16,32,64,128",
    layer: Annotated[int, option("N", "Layer (0: embedding output; -1: what is pooled).")] = -1,
    loss_limit: Annotated[
        float, option("SHARE", "Name the largest ratio that loses no more than this.", min=0.0, max=1.0)
    ] = 0.5,
    likelihood: Annotated[
        bool, switch("Of a decoder: how likely is what follows, with windows as context?", "--likelihood")
    ] = False,
    context: Annotated[int, option("TOKENS", "With --likelihood: tokens of context.", min=2)] = 256,
    continuation: Annotated[int, option("TOKENS", "With --likelihood: tokens that follow.", min=2)] = 64,
    most: Annotated[int, option("N", "With --likelihood: at most so many texts.", min=2)] = 32,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write one row a ratio: .parquet or .csv.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the figure: .html, .png, .svg.")] = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """What is lost when the tokens of a text are replaced by the means of adjacent windows.

    For each number of tokens a window: the share of the variance of a text that is lost, beside tokens in random order,
    windows with a second vector and windows that are cut where the tokens change; SOCM between windows; the windows
    that are hurt most. Nothing is trained: a model that learned to read such means may do better.
    """
    from poolscope.cli.inputs import Inputs

    screen = Screen(json)
    inputs = Inputs(model, texts, reading, options, screen, cache=False, default=DEFAULT_LIMIT)
    settings = {"ratios": _ratios(ratio), "loss_limit": loss_limit, "seed": reading["seed"]}
    lengths = {"context": context, "continuation": continuation, "most": most} if likelihood else None
    result, likely = _measure(inputs, layer, lengths, settings)
    _print(result, screen)
    if likely is not None:
        _print_likelihood(likely, screen)
    if json is not None:
        put_json(result.to_dict() | {"likelihood": None if likely is None else likely.to_dict()}, json)
    screen.put_result(result, table=table, figure=figure)
    screen.name_written(json)


def _ratios(text: str) -> list[int]:
    try:
        sizes = {int(part) for part in text.split(",")}
    except ValueError:
        raise InputError(f"--ratio: received {text!r}; allowed: whole numbers with commas, such as 2,8,32.") from None
    return sorted(whole_number(size, "--ratio", least=2) for size in sizes)


def _measure(
    inputs: Inputs, layer: int, lengths: Mapping[str, int] | None, settings: Mapping[str, Any]
) -> tuple[WindowsResult, ContextLikelihood | None]:
    from poolscope.cli.inputs import is_clouds
    from poolscope.encoders.capabilities import vocabulary_of
    from poolscope.metrics.likelihood import context_likelihood
    from poolscope.metrics.windows import windows

    if is_clouds(inputs.model):
        if lengths is not None or layer != -1:
            raise InputError(
                f"{inputs.model} holds ready clouds; --likelihood and --layer need a model. Name the model."
            )
        return windows(inputs.described().clouds, **settings), None
    corpus, encoder = inputs.corpus(tell=True), inputs.encoder()
    likely = None
    if lengths is not None:  # first: a model that cannot do it is refused before the work
        ratios = settings["ratios"]
        fitting = [size for size in ratios if 2 * size <= lengths["context"]]
        likely = context_likelihood(encoder, corpus.texts, ratios=fitting or ratios, **lengths)
    clouds = _encoded(encoder, corpus, layer, inputs.screen)
    return windows(clouds, vocabulary=vocabulary_of(encoder), **settings), likely


def _encoded(encoder: TokenEncoder, corpus: Texts, layer: int, screen: Screen) -> TokenClouds:
    from poolscope.cli.inputs import encoding_progress
    from poolscope.encoders import truncation_report

    with encoding_progress(len(corpus)) as progress:
        clouds = encoder.encode(corpus.texts, layers=None if layer == -1 else [layer], progress=progress)[layer]
    clouds = clouds.described(ids=corpus.ids, provenance={"texts": corpus.origin()})
    where = "" if layer == -1 else f" · layer {layer}"
    screen.print(f"{encoder.card.name}{where} · {len(clouds):,} texts · {clouds.lengths.sum():,} tokens")
    screen.print_notes(truncation_report(clouds).notes())
    return clouds


_WIDE = 120
_COLUMNS = (
    "random: tokens in random order. Of the same storage: direction, half as many windows, each with its mean and "
    "first direction; adaptive, windows cut where the tokens change. SOCM: mean over pairs (in random order)."
)


def _number(estimate: Estimate) -> str:
    if estimate.value is None:
        return "–"
    shown = [_short(value) for value in (estimate.value, estimate.floor) if value is not None]
    return shown[0] if len(shown) == 1 else f"{shown[0]} ({shown[1]})"


def _short(value: float) -> str:
    """Four digits, so that the table stays within a screen: SOCM of a sink is far above 1."""
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f}"


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen) -> None:
    shown = open_table(*heads)
    for row in rows:
        shown.add_row(*row)
    screen.print_table(shown)


def _print(result: WindowsResult, screen: Screen) -> None:
    screen.print_seen(result)
    wide = screen.width >= _WIDE
    interval = "± half the 95 % interval over texts" if wide else "(intervals: --json, --table)"
    screen.print(f"share of the variance of a text that lies inside windows {interval}")
    heads = ("ratio", "lost", "random", "direction", "adaptive", "SOCM within", "SOCM nearest")
    rows = []
    for row in result.ratios:
        random = "–" if row.lost.floor is None else f"{row.lost.floor:.1%}"
        lost, *others = (part.percent(interval=wide) for part in (row.lost, row.second_order, row.adaptive))
        losses = (lost, random, *others)
        rows.append((str(row.ratio), *losses, _number(row.within_socm), _number(row.nearest_socm)))
    _print_table(heads, rows, screen)
    screen.say(_COLUMNS)
    shown = result.largest_ratio or result.ratios[0].ratio
    for window in (window for window in result.worst if window.ratio == shown):
        words = "" if window.text is None else f": {window.text!r}"
        place = f"tokens {window.start} to {window.stop - 1} of text {window.id}"
        told = f"hurt most at {shown}: {window.times:.1f} × the mean spread, {place}{words}"
        screen.say(told, "  ", hanging="  ", style="dim")


def _print_likelihood(likely: ContextLikelihood, screen: Screen) -> None:
    wide = screen.width >= _WIDE
    screen.print(
        f"likelihood of {likely.continuation} tokens after {likely.context}, {likely.texts} texts (nats a token): full "
        f"context {likely.full.known:.3f}, none {likely.none.known:.3f}, gain {likely.gain}"
    )
    if likely.short:
        screen.print(f"  {likely.short:,} texts are too short for that and were left out", style="dim")
    rows = [
        (str(row.ratio), str(row.states), *(kept.percent(interval=wide) for kept in (row.kept, row.kept_adaptive)),
         row.kept_truncated.percent(interval=wide))
        for row in likely.ratios
    ]  # fmt: skip
    _print_table(("ratio", "states", "windows keep", "adaptive", "last tokens"), rows, screen)
    screen.print(
        "share of the gain of the full context that is kept (below 0: worse than no context); the model was not "
        "trained to read means"
    )
