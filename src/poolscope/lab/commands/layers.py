"""`poolscope layers` and `windows`: changes of the tokens in every layer, and losses by means of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, switch, to_figure, to_file
from poolscope.errors import InputError, whole_number
from poolscope.show.screen import Screen, digits, put_json, signed

if TYPE_CHECKING:
    from poolscope.cli.inputs import Inputs
    from poolscope.encoders import TokenEncoder
    from poolscope.lab.layers.best_layer import BestLayer
    from poolscope.lab.layers.result import LayersResult, StateSocm
    from poolscope.lab.likelihood import ContextLikelihood
    from poolscope.lab.windows import WindowsResult
    from poolscope.lab.writing import ContextWriting
    from poolscope.numbers.intervals import Estimate
    from poolscope.texts import Texts

LAYER_TEXTS, WINDOW_TEXTS = 200, 100  # of the embedded corpus, when the user names none


@arguments.encoder_options()
@arguments.reading_options()
def layers(
    model: Annotated[
        str, argument("[MODEL]", "A transformer on torch: hub name, folder or built-in model.")
    ] = arguments.MODEL,
    texts: arguments.Texts = None,
    compare: Annotated[str | None, option("MODEL", "Compare with a second model.")] = None,
    socm_texts: Annotated[
        int | None,
        option("N", "SOCM over all pairs of N texts (0: no SOCM; by default up to 100, in groups).", min=0),
    ] = None,
    temperature: arguments.Temperature = None,
    retrieval: Annotated[
        bool, switch("Also find the best layer to pool, by held-out retrieval.", "--retrieval")
    ] = False,
    details: arguments.Details = False,
    json: arguments.Json = None,
    parquet: Annotated[Path | None, to_file("Write every text and layer as Parquet.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the panels: .html, .png, .svg.")] = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """In which layer do the tokens of a text become alike, and what does it?

    Example: poolscope layers builtin:minilm texts.txt --retrieval

    Without arguments: the built-in model on 200 built-in texts. With --compare the same texts go through a
    second model, say a backbone beside its fine-tuned child.
    """
    from poolscope.cli.inputs import Inputs

    screen = Screen(json, seen_first=True, details=details)
    if parquet is not None and compare is not None:
        raise InputError("--parquet holds one model; received --compare too. Leave one out, or write both with --json.")
    inputs = Inputs(model, texts, reading, options, screen, default=LAYER_TEXTS, temperature=temperature)
    corpus = inputs.corpus(tell=True)
    settings = {"socm_texts": socm_texts, "seed": reading["seed"]}
    models = [inputs] if compare is None else [inputs, replace(inputs, model=compare)]
    results = [_measure(each, corpus, settings) for each in models]
    best = [_best(each, corpus) for each in models] if retrieval else []
    _write(results, best, json=json, parquet=parquet, figure=figure)
    screen.name_written(json, parquet, figure)


def _measure(inputs: Inputs, corpus: Texts, settings: Mapping[str, Any]) -> LayersResult:
    from poolscope.cli.inputs import encoding_progress

    encoder, screen = inputs.encoder(), inputs.screen
    with encoding_progress(len(corpus)) as progress:
        result = poolscope.layers(encoder, corpus.texts, ids=corpus.ids, progress=progress, **settings)
    origin = f"{result.model} · {len(corpus):,} texts of {corpus.source} · {result.lengths.sum():,} tokens"
    screen.name_origin(origin, [*poolscope.pooling_report(encoder).notes(), *notes(result)])
    _print(result, screen)
    return result


def notes(result: LayersResult) -> list[str]:
    """Notes on this model and these texts."""
    lines = []
    if cut := int((result.truncated > 0).sum()):
        lines.append(f"{cut:,} of the texts were too long; {result.truncated.sum():,} tokens were truncated.")
    if single := int((result.lengths == 1).sum()):
        lines.append(f"{single:,} texts have a single token, for which C and the logarithms are not defined.")
    if alike := int(result.constant.sum()):
        lines.append(
            f"{alike:,} texts have tokens that are all alike, but for rounding, in some layer, for which C and the "
            f"logarithms are not defined; the means leave them out there."
        )
    if any(result.pre_norm):
        lines.append("Pre-norm: attention reads U, a norm of the layer's input H; the files hold S(U) beside S(H).")
    if any(result.post_norm):
        lines.append(
            "A norm follows the output projection and is part of Z: λ and σₐ describe the branch before it; theorem 1 "
            "does not apply."
        )
    if "output" in result.states:
        lines.append("The model normalises after its last layer; 'output' is what it pools.")
    return lines


# Column heads of the table on the screen.
_SHOWN = {
    "lambda": "λ",
    "r": "r",
    "C": "C",
    "concentration_ratio": "S/‖μ‖²",
    "cosine": "cosine",
    "sigma_a": "σₐ",
    "high_frequency": "growth",
}
_WIDE = 120


def _print(result: LayersResult, screen: Screen) -> None:
    from poolscope.lab.layers.result import QUANTITIES

    screen.print_in_words(result)
    wide = screen.width >= _WIDE
    means = [result.means(name) for name in _SHOWN]
    around = f" ± half the 95% interval over {means[0].unit}" if wide else " (intervals: --json, --figure)"
    title = "means over texts" + (f" ({means[0].no_interval})" if means[0].no_interval else around)
    heads = ("layer", *_SHOWN.values(), *(["SOCM"] if result.socm else []))
    rows = []
    for state, label in enumerate(result.states):
        cells = []
        for curve in means:
            at = state - (len(curve.mean) < len(result.states))  # layer l gives state l
            inside = 0 <= at < len(curve.mean)
            cells.append(_cell(curve.mean[at], curve.low[at], curve.high[at], wide=wide) if inside else "")
        if result.socm is not None:
            pairs = result.socm[state]
            cells.append(_cell(pairs.mean, pairs.low, pairs.high, wide=wide))
        rows.append((label, *cells))
    screen.print_rows(heads, rows, title=title, title_style="bold")
    for line in _sink_lines(result):
        screen.say(line)
    if screen.shows_details():
        screen.say(f"{' · '.join(f'{head}: {QUANTITIES[name].meaning}' for name, head in _SHOWN.items())}.")
        for line in [_frequency_line(result), *_theorems(result)]:
            screen.say(line)


def _frequency_line(result: LayersResult) -> str:
    """Growth of the high-frequency part over the layers, and over the attention branch beside its bounds."""

    def span(name: str) -> str:
        means = [mean for mean in result.means(name).mean if mean == mean]
        return f"{signed(min(means), 2)} to {signed(max(means), 2)}" if means else "–"

    return (
        f"growth (log of ‖PX‖/‖PH‖) by layer {span('high_frequency')}; attention branch alone "
        f"{span('high_frequency_branch')}, its bound {span('high_frequency_bound')}, the published bound (without W_O) "
        f"{span('high_frequency_published')}"
    )


def _cell(mean: float, low: float | None, high: float | None, *, wide: bool) -> str:
    if mean != mean:
        return "–"
    if not wide or low is None or high is None or high != high:
        return digits(mean)
    return f"{digits(mean)} ±{(high - low) / 2:.3f}"


def _theorems(result: LayersResult) -> list[str]:
    """Both theorems in one line each: on how many texts and pairs they were checked, and how tight they are."""
    checks = [check for check in result.theorem_1() if check.texts]
    lines = []
    if checks:
        cases, holds = sum(check.texts for check in checks), sum(check.holds for check in checks)
        smallest = min(check.smallest_slack for check in checks if check.smallest_slack is not None)
        proven = sum(check.proven_holds for check in checks)
        met, bounds_hold = sum(check.premise for check in checks), sum(check.premise_holds for check in checks)
        lines.append(
            f"theorem 1: its premise, λ < 1 in every head, is met in {met:,} of {cases:,} texts × layers; its bound "
            f"(from λ) holds in {bounds_hold:,} of these and in {holds:,} of all, least slack {smallest:.2f} ×; its "
            f"proven form (from σₐ) in {proven:,}"
        )
    if result.socm is not None:
        pairs, broken = sum(state.pairs for state in result.socm), sum(state.violations for state in result.socm)
        share = max(state.largest_share for state in result.socm)
        lines.append(
            f"theorem 2 (d_Σ ≤ (tr Σ₁ + tr Σ₂)/4) holds in {pairs - broken:,} of {pairs:,} pairs; the nearest reaches "
            f"{share:.0%} of the bound"
        )
        if any(state.above_trace for state in result.socm):
            lines.append(_trace_line(result.socm))
    return lines


def _trace_line(states: Sequence[StateSocm]) -> str:
    """Where tr Σ ≤ 2 is broken, which keeps SOCM below 1: in every state that breaks it."""
    broken = [state for state in states if state.above_trace]
    shares = ", ".join(f"{state.state} ({state.above_trace:.0%})" for state in broken)
    low, high = (f(state.covariance_distance_over_trace for state in broken) for f in (min, max))
    return (
        f"tr Σ ≤ 2, which keeps d_Σ and SOCM below 1, is broken in {len(broken)} of {len(states)} states, by this "
        f"share of the texts: {shares}; there d_Σ over the trace, always in [0, 1], is {low:.3f} to {high:.3f}"
    )


def _sink_lines(result: LayersResult) -> list[str]:
    """The states whose first token is a sink, with and without it."""
    from poolscope.lab.layers.result import SINK_TIMES, sinks

    rows = sinks(result)
    if not rows:
        return []
    lines = [
        f"The first token is a sink in {len(rows)} of {len(result.states)} states: in most texts at least "
        f"{SINK_TIMES:g} × as long as the median of the others. There it decides every mean; without it:"
    ]
    for row in rows:
        numbers = ", ".join(f"{name} {whole:.3f} ({rest:.3f})" for name, (whole, rest) in row.numbers.items())
        lines.append(
            f"  state {row.state}: {row.times:.1f} × in the median text, a sink in {row.texts:.0%} of them; with it "
            f"(without it): {numbers}"
        )
    return lines


def _best(inputs: Inputs, corpus: Texts) -> BestLayer:
    """Which layer finds best, told in one sentence."""
    best = poolscope.best_layer(inputs.encoder(), corpus.texts, seed=inputs.reading["seed"])
    inputs.screen.say(best.sentence)
    return best


def _write(
    results: Sequence[LayersResult],
    best: Sequence[BestLayer],
    *,
    json: str | None,
    parquet: Path | None,
    figure: Path | None,
) -> None:
    if json is not None:
        parts = [result.to_dict() for result in results]
        parts = [part | {"best_layer": one.to_dict()} for part, one in zip(parts, best, strict=True)] if best else parts
        content = parts[0] if len(parts) == 1 else {"models": parts}
        put_json(content, json)
    if parquet is not None:
        results[0].save_parquet(parquet)
    if figure is not None:
        from poolscope.lab.layers.result import layers_sheet

        poolscope.save_figure(layers_sheet(*results), figure)


# -- windows ----------------------------------------------------------------------------------------------------------


@arguments.encoder_options()
@arguments.reading_options()
def windows(
    model: arguments.ModelOrClouds = arguments.MODEL,
    texts: arguments.Texts = None,
    ratio: Annotated[str, option("2,4,8", "Tokens per window.")] = "2,4,8,16,32,64,128",
    layer: Annotated[int, option("N", "Layer (0: embedding output, -1: the pooled layer).")] = -1,
    loss_limit: Annotated[
        float, option("SHARE", "Report the largest ratio that loses no more than SHARE.", min=0.0, max=1.0)
    ] = 0.5,
    likelihood: Annotated[
        bool, switch("For a decoder: how likely is the continuation, with windows as context?", "--likelihood")
    ] = False,
    context: Annotated[int, option("TOKENS", "With --likelihood and --generate: tokens of context.", min=2)] = 256,
    continuation: Annotated[int, option("TOKENS", "With --likelihood: tokens of continuation.", min=2)] = 64,
    generate: Annotated[
        int, option("TOKENS", "For a decoder: does it write the same tokens, with windows as context?", min=0)
    ] = 0,
    questions: Annotated[
        str | None, option("TABLE", "For a decoder: are questions answered (columns context, question, answer)?")
    ] = None,
    most: Annotated[int, option("N", "For a decoder: at most N texts or questions.", min=2)] = 32,
    details: arguments.Details = False,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write one row per ratio: .parquet or .csv.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the figure: .html, .png, .svg.")] = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """What is lost if every few tokens of a text are replaced by their mean?

    Example: poolscope windows builtin:minilm texts.jsonl --ratio 2,4,8

    Shows the share of a text's variance that is lost. Compared with: tokens in random order, windows with a second
    vector, and windows that end where the tokens change. Nothing is trained: a model that learned to read such means
    may do better.
    """
    from poolscope.cli.inputs import Inputs

    screen = Screen(json, seen_first=True, details=details)
    inputs = Inputs(model, texts, reading, options, screen, cache=False, default=WINDOW_TEXTS)
    sizes = arguments.parse_numbers(ratio, "--ratio", int, "2,8,32")
    ratios = sorted({whole_number(size, "--ratio", least=2) for size in sizes})
    settings = {"ratios": ratios, "loss_limit": loss_limit, "seed": reading["seed"]}
    asked = {
        "likelihood": {"context": context, "continuation": continuation, "most": most} if likelihood else None,
        "writing": {"context": context, "length": generate, "most": most} if generate else None,
        "answers": {"questions": questions, "most": most} if questions else None,
    }
    result, decoded = _measure_windows(inputs, layer, asked, settings)
    _print_windows(result, screen)
    for name, made in decoded.items():
        if made is not None:
            _PRINTED[name](made, screen)
    if json is not None:
        parts = {name: None if made is None else made.to_dict() for name, made in decoded.items()}
        put_json(result.to_dict() | parts, json)
    screen.put_result(result, table=table, figure=figure)
    screen.name_written(json)


_Decoded = dict[str, Any]  # by what was asked of a decoder: the result, or None
_BY_DECODER = {"likelihood": "context_likelihood", "writing": "context_writing", "answers": "context_answers"}


def _measure_windows(
    inputs: Inputs, layer: int, asked: Mapping[str, dict[str, Any] | None], settings: Mapping[str, Any]
) -> tuple[WindowsResult, _Decoded]:
    from poolscope.encoders.capabilities import vocabulary_of
    from poolscope.stores.store import is_clouds
    from poolscope.texts.groups import groups_of_ids

    if is_clouds(inputs.model):
        if any(asked.values()) or layer != -1:
            raise InputError(
                f"{inputs.model} holds ready clouds; --layer, --generate, --questions and --likelihood need a model. "
                f"Name the model."
            )
        return poolscope.windows(inputs.described().clouds, **settings), dict.fromkeys(asked)
    corpus, encoder = inputs.corpus(tell=True), inputs.encoder()
    decoded: _Decoded = dict.fromkeys(asked)
    for name, own in asked.items():  # first: a model that cannot do it is refused before the work
        if own is None:
            continue
        ratios = settings["ratios"]
        if "context" in own:
            fitting = [size for size in ratios if 2 * size <= own["context"]]
            own |= {"texts": corpus.texts, "groups": groups_of_ids(corpus.ids)}
            ratios = fitting or ratios
        decoded[name] = getattr(poolscope, _BY_DECODER[name])(encoder, ratios=ratios, **own)
    clouds = _encoded(encoder, corpus, layer, inputs.screen)
    return poolscope.windows(clouds, vocabulary=vocabulary_of(encoder), **settings), decoded


def _encoded(encoder: TokenEncoder, corpus: Texts, layer: int, screen: Screen) -> poolscope.TokenClouds:
    from poolscope.cli.inputs import encoding_progress

    with encoding_progress(len(corpus)) as progress:
        clouds = encoder.encode(corpus.texts, layers=None if layer == -1 else [layer], progress=progress)[layer]
    clouds = clouds.described(ids=corpus.ids, provenance={"texts": corpus.origin()})
    where = "" if layer == -1 else f" · layer {layer}"
    origin = f"{encoder.card.name}{where} · {len(clouds):,} texts · {clouds.lengths.sum():,} tokens"
    screen.name_origin(origin, poolscope.truncation_report(clouds).notes())
    return clouds


_COLUMNS = (
    "random: tokens in random order. Of the same storage: direction, half as many windows, each with its mean and "
    "first direction; adaptive, windows that end where the tokens change. In parentheses: in random order. SOCM: mean "
    "over pairs."
)


def _number(estimate: Estimate) -> str:
    if estimate.value is None:
        return "–"
    shown = [_short(value) for value in (estimate.value, estimate.floor) if value is not None]
    return shown[0] if len(shown) == 1 else f"{shown[0]} ({shown[1]})"


def _short(value: float) -> str:
    """Four digits, so that the table stays within a screen: SOCM of a sink is far above 1."""
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f}"


def _print_windows(result: WindowsResult, screen: Screen) -> None:
    screen.print_in_words(result)
    wide = screen.width >= _WIDE
    interval = "± half the 95% interval over texts" if wide else "(intervals: --json, --table)"
    screen.print(f"share of the variance of a text that lies inside windows {interval}")
    heads = ("ratio", "lost", "random", "direction", "adaptive", "SOCM within", "SOCM nearest")
    rows = []
    for row in result.ratios:
        random = "–" if row.lost.floor is None else f"{row.lost.floor:.1%}"
        others = (f"{part.percent(interval=wide)} ({part.floor or 0:.1%})" for part in (row.second_order, row.adaptive))
        losses = (row.lost.percent(interval=wide), random, *others)
        rows.append((str(row.ratio), *losses, _number(row.within_socm), _number(row.nearest_socm)))
    screen.print_rows(heads, rows)
    if not screen.shows_details():
        return
    screen.say(_COLUMNS)
    shown = result.largest_ratio or result.ratios[0].ratio
    for window in (window for window in result.worst if window.ratio == shown):
        words = "" if window.text is None else f": {window.text!r}"
        place = f"tokens {window.start} to {window.stop - 1} of text {window.id}"
        sentence = f"hurt most at {shown}: {window.times:.1f} × the mean spread, {place}{words}"
        screen.say(sentence, "  ", hanging="  ", style="dim")


def _print_likelihood(likely: ContextLikelihood, screen: Screen) -> None:
    wide = screen.width >= _WIDE
    screen.print(
        f"likelihood of {likely.continuation} tokens after {likely.context}, {likely.texts} texts (nats a token): full "
        f"context {likely.full.value_or_raise:.3f}, none {likely.none.value_or_raise:.3f}, gain {likely.gain}"
    )
    if likely.short:
        screen.print(f"  {likely.short:,} texts are too short for that and were left out", style="dim")
    rows = []
    for row in likely.ratios:
        shares = (row.kept, row.kept_adaptive, row.kept_truncated)
        rows.append((str(row.ratio), str(row.states), *(part.percent(interval=wide) for part in shares)))
    screen.print_rows(("ratio", "states", "windows keep", "adaptive", "last tokens"), rows)
    screen.print(
        "share of the gain of the full context that is kept (below 0: worse than no context); the model was not "
        "trained to read means"
    )


def _print_writing(made: ContextWriting, screen: Screen) -> None:
    """Which share of what should be written is written, by form of the context."""
    screen.print(f"{made.texts} texts, {made.target}: on average {made.tokens:.1f} tokens")
    rows = [
        (row.form if row.ratio is None else f"{row.form} of {row.ratio}", row.same.percent(), row.whole.percent())
        for row in made.forms
    ]
    screen.print_rows(("context", "tokens before the first other one", "word for word"), rows)


_PRINTED: dict[str, Callable[[Any, Screen], None]] = {
    "likelihood": _print_likelihood,
    "writing": _print_writing,
    "answers": _print_writing,
}
