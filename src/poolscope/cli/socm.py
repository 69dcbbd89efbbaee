"""`poolscope socm`: does mean pooling hide differences between these texts? `poolscope pair`: and of two of them?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, switch, to_figure, to_file
from poolscope.cli.opening import opened_model
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.show.screen import Screen, open_table, put_json

if TYPE_CHECKING:
    from poolscope.cli.inputs import Described
    from poolscope.engines import Engine
    from poolscope.evaluation.matches import TokenMatches
    from poolscope.metrics.socm.confusable import ConfusedPair, Confusion
    from poolscope.metrics.socm.floor import PermutationFloor
    from poolscope.metrics.socm.pair import PairProjection
    from poolscope.metrics.socm.result import SocmResult, WorstPair, WorstPairs

Folders = tuple[str, str | None] | None
TOO_HIGH = 1

# Beyond this many pairs the default is a sample: the answer in seconds, with its interval.
MOST_PAIRS = 2_000_000
SAMPLE = 20_000
# Of the collapse rate, on the scale of SOCM.
THRESHOLD = 0.5


@arguments.encoder_options()
@arguments.reading_options()
@arguments.engine_options
def socm(
    model: arguments.ModelOrClouds = arguments.MODEL,
    texts: arguments.Texts = None,
    against: Annotated[
        str | None, option("TEXTS", "Compare TEXTS with these texts (or clouds), not with each other.")
    ] = None,
    pairs: Annotated[
        str | None, option("N|FILE", "N random pairs, or a table of pairs with ids in columns i and j.")
    ] = None,
    neighbours: Annotated[int | None, option("K", "Compare each text with its K nearest.", min=1)] = None,
    all_pairs: Annotated[bool, switch("Compare all pairs, however many.", "--all")] = False,
    worst_only: Annotated[
        bool, switch("Show only the pairs of highest SOCM, even if no search confuses them.", "--worst-only")
    ] = False,
    group: arguments.Group = None,
    temperature: arguments.Temperature = None,
    scale: Annotated[
        str, option("paper|trace", "paper is as published; trace keeps d_Σ in [0, 1] for any model.")
    ] = "paper",
    a: Annotated[float, option("X", "Exponent of 1 − d_μ.", "--a")] = 1.0,
    b: Annotated[float, option("X", "Exponent of d_Σ.", "--b")] = 1.0,
    eps: Annotated[float, option("X", "0 is exact; 1e-9 is what the published code uses.")] = 0.0,
    top: Annotated[int, option("K", "Number of worst pairs to show.", min=1)] = 5,
    threshold: Annotated[float | None, option("X", "SOCM above X counts as collapse (default: 0.5).")] = None,
    details: arguments.Details = False,
    json: arguments.Json = None,
    parquet: Annotated[Path | None, to_file("Write the compared pairs as Parquet.")] = None,
    figure: Annotated[Path | None, to_figure("Draw d_μ and d_Σ of the pairs: .html, .png, .svg.")] = None,
    fail_above: Annotated[float | None, option("X", "For CI: exit with 1 if the mean exceeds X.")] = None,
    no_cache: arguments.NoCache = False,
    *,
    where: dict[str, Any],
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Which texts look alike to a search although their tokens differ?

    Example: poolscope socm builtin:minilm texts.jsonl --top 5

    Shows the pairs that a search may confuse: their documents differ, and their means are near. The column "by chance"
    deals the same tokens to the texts at random. --pairs FILE, --neighbours and --against choose the pairs instead.

    MODEL is a model, or clouds that `poolscope encode` wrote (then leave out TEXTS). Without arguments: the built-in
    model on the built-in texts.
    """
    from poolscope.cli.inputs import Described, Inputs
    from poolscope.encoders.named import stored_vocabulary
    from poolscope.stores.store import is_clouds
    from poolscope.texts.groups import document_columns

    screen = Screen(json, seen_first=not worst_only, details=details)
    _check_numbers(threshold, fail_above)
    _check_choice(worst_only, eps, against, pairs, neighbours, all_pairs, parquet, fail_above, threshold)
    engine, folders = arguments.open_engine(where, options, temperature), None
    if engine is None:
        if group is None and texts is not None:
            group, told = document_columns(texts, reading["column"], reading["id_column"])
            reading = {**reading, "id_column": told}
        reading = {**reading, "label_column": group}
    first = Inputs(model, texts, reading, options, screen, cache=not no_cache, temperature=temperature)
    second = None
    if against is not None:
        second = replace(first, model=against, texts=None) if is_clouds(against) else replace(first, texts=against)
    if engine is None:
        described, other = first.described(), None if second is None else second.described().clouds
    else:
        if group is not None:
            raise InputError(
                f"--group: received {group!r} with --engine, whose stores keep no columns; documents are known there "
                f"by ids like doc#3. Leave one of them out."
            )
        folders = (first.store(engine), None if second is None else second.store(engine))
        opened = poolscope.open_clouds(folders[0])
        described = Described(opened, stored_vocabulary(opened))
        other = None if folders[1] is None else poolscope.open_clouds(folders[1])
    clouds = described.clouds
    formula = {"scale": scale, "a": a, "b": b}
    if worst_only:
        pairs_of_all = _worst_only(clouds, top, formula, json, screen, engine, folders)
        _draw(pairs_of_all, figure, screen)
        return
    choice = _choice(clouds, other, pairs, neighbours, all_pairs, screen)
    settings = {**formula, **choice, "eps": eps, "seed": reading["seed"], "top": max(top, 100)}
    result = _compute(clouds, other, settings, parquet, engine, folders)
    threshold = THRESHOLD if threshold is None else threshold
    named = against is not None or neighbours is not None or not (pairs is None or pairs.isdecimal())
    alike = None if named else _confused(described, reading["seed"])
    names = None if described.vocabulary is None else described.vocabulary.names
    worst = [] if alike is None or not len(alike) else alike.worst(top, names=names)
    screen.print_in_words(*(() if alike is None else (alike,)), result)
    if alike is None:
        _print_worst(result.worst(min(top, len(result.top))), screen, _worst_title(result))
    else:
        _print_confused(alike, worst, screen)
    if screen.shows_details():
        _print_result(result, screen, threshold=threshold)
    if json is not None:
        put_json(_content(result, alike, worst, top, threshold), json)
    screen.name_written(json, parquet)
    _draw(result, figure, screen)
    if fail_above is not None and result.mean > fail_above:
        screen.print(f"mean SOCM {result.mean:.4f} is above {fail_above:g} (--fail-above)", style="red")
        raise typer.Exit(TOO_HIGH)


def _confused(described: Described, seed: int) -> Confusion | None:
    """The pairs that a search is most likely to confuse; None where there are too few texts for a cut-off."""
    from poolscope.metrics.socm.confusable import different_texts
    from poolscope.texts.groups import groups_of_ids, tells

    if len(different_texts(described.clouds)) < 3:
        return None
    labels = described.labels
    groups = labels if labels is not None and tells(labels) else groups_of_ids(list(described.clouds.ids))
    return poolscope.confusion(described.clouds, groups=groups, seed=seed)


def _content(
    result: SocmResult, alike: Confusion | None, worst: Sequence[ConfusedPair], top: int, threshold: float
) -> dict[str, Any]:
    """What is written as JSON: the pairs that a search is most likely to confuse stand for themselves."""
    from poolscope.results import plain

    if alike is None:
        return result.to_dict(worst=top, threshold=threshold)
    confusable = {**alike.to_dict(), "worst": plain(list(worst))}
    return {**result.to_dict(worst=top, threshold=threshold), "confusable": confusable}


def _check_numbers(threshold: float | None, fail_above: float | None) -> None:
    for name, value in (("--threshold", threshold), ("--fail-above", fail_above)):
        if value is not None and not isfinite(value):
            raise InputError(f"{name}: received {value}; allowed is a finite number. Pass one, such as 0.5.")


def _check_choice(worst_only: bool, eps: float, *others: Any) -> None:
    if worst_only and (eps or any(value not in (None, False) for value in others)):
        raise InputError(
            "--worst-only searches all pairs of one corpus and gives no mean and no rate; received another choice of "
            "pairs or an option that needs all of them. Leave out --worst-only, or that option."
        )


def _choice(
    clouds: poolscope.TokenClouds,
    other: poolscope.TokenClouds | None,
    pairs: str | None,
    neighbours: int | None,
    all_pairs: bool,
    screen: Screen,
) -> dict[str, Any]:
    """Which pairs; a large corpus with no choice made is sampled, and that is said."""
    if pairs is not None:
        return {"neighbours": neighbours, **_named_pairs(pairs, clouds, clouds if other is None else other)}
    count = len(clouds) * (len(clouds) - 1) // 2 if other is None else len(clouds) * len(other)
    if neighbours is not None or all_pairs or count <= MOST_PAIRS:
        return {"neighbours": neighbours}
    worst = "" if other is not None else " --worst-only finds the highest SOCM of all."
    screen.print(f"{count:,} pairs: {SAMPLE:,} of them drawn at random. --all computes every one.{worst}")
    return {"pairs": SAMPLE}


def _named_pairs(pairs: str, left: poolscope.TokenClouds, right: poolscope.TokenClouds) -> dict[str, Any]:
    """So many random pairs, or those of a table."""
    if pairs.lstrip("-").isdecimal():
        if int(pairs) < 2:
            raise InputError(f"--pairs: received {pairs}; allowed: 2 random pairs or more, or a file of pairs.")
        return {"pairs": int(pairs)}
    from poolscope.texts import read_index_pairs

    return {"pairs": read_index_pairs(Path(pairs), ids=(left.ids, right.ids))}


def _compute(
    clouds: poolscope.TokenClouds,
    other: poolscope.TokenClouds | None,
    settings: dict[str, Any],
    parquet: Path | None,
    engine: Engine | None,
    folders: Folders,
) -> SocmResult:
    from poolscope.cli.inputs import counting_progress
    from poolscope.metrics.socm.measure import KEEP_PAIRS, pair_count

    total = pair_count(clouds, other, pairs=settings.get("pairs"), neighbours=settings.get("neighbours"))
    if engine is not None and parquet is not None and (total or 0) > KEEP_PAIRS:
        raise InputError(
            f"--parquet: {total:,} pairs are written as they come, by one process; an engine keeps {KEEP_PAIRS:,}. "
            f"Leave out the engine, or draw fewer with --pairs."
        )
    with counting_progress("comparing", total, "pairs") as progress:
        if engine is not None and folders is not None:
            measure = service("metric on an engine")
            result: SocmResult = measure(engine, "socm", folders[0], against=folders[1], progress=progress, **settings)
            if parquet is not None:
                result.save(parquet)
            return result
        if parquet is None:
            return poolscope.socm(clouds, other, progress=progress, **settings)
        return poolscope.socm_table(clouds, parquet, other, progress=progress, **settings)


def _worst_only(
    clouds: poolscope.TokenClouds,
    top: int,
    formula: dict[str, Any],
    json: str | None,
    screen: Screen,
    engine: Engine | None,
    folders: Folders,
) -> WorstPairs:
    from poolscope.cli.inputs import counting_progress

    with counting_progress("searching", None, "pairs") as progress:
        if engine is not None and folders is not None:
            search = service("worst pairs on an engine")
            result: WorstPairs = search(engine, folders[0], top, progress=progress, **formula)
        else:
            result = poolscope.worst_pairs(clouds, top, progress=progress, **formula)
    if json is not None:
        put_json(result.to_dict(), json)
    _print_worst(result.pairs, screen, "highest SOCM of all pairs, which a search may tell apart")
    share = result.evaluated / result.count
    screen.print(f"{result.evaluated:,} of {result.count:,} pairs evaluated ({share:.1%}); the rest cannot be worse.")
    return result


def _draw(result: SocmResult | WorstPairs, figure: Path | None, screen: Screen) -> None:
    if figure is not None:
        poolscope.save_figure(result.figure(), figure)
        screen.name_written(figure)


def _print_result(result: SocmResult, screen: Screen, *, threshold: float) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    over = f"  mean over {result.count:,} pairs ({result.kind})"
    table.add_row("SOCM", Text.assemble(f"{result.mean:.4f}", over))
    for interval in (result.interval, result.corpus_interval):
        if interval is not None:
            table.add_row("", f"{interval}  {interval.level:.0%} for {interval.answers}")
    if result.interval is None:
        table.add_row("", result.estimate.no_interval)
    if result.regression is not None:
        estimate = result.regression
        table.add_row(
            "", f"{estimate.mean:.4f} {estimate.interval}  all pairs of this corpus, by regression on known covariates"
        )
    low, middle, high = (result.quantile(q) for q in (0.05, 0.5, 0.95))
    table.add_row("quantiles", f"5% {low:.4f} · median {middle:.4f} · 95% {high:.4f}")
    table.add_row("collapse rate", f"{result.collapse_rate(threshold):.2%} of the pairs at {threshold:g} or above")
    distances = f"means d_μ {result.mean_distance:.4f} · covariances d_Σ {result.covariance_distance:.4f}"
    table.add_row("distances", distances)
    table.add_row("tr Σ ≤ 2", _trace_sentence(result))
    screen.print(table)


def _print_confused(alike: Confusion, worst: Sequence[ConfusedPair], screen: Screen) -> None:
    """Print the worst pairs; with details the numbers of confusable pairs, and the tokens that tell them apart."""
    if screen.details:
        _print_shares(alike, screen)
    if not worst:
        return
    rows = []
    for pair in worst:
        apart = pair.d_sigma
        chance = f"{apart.floor:.2f} [{apart.floor_low:.2f}, {apart.floor_high:.2f}]"
        numbers = [f"{pair.cosine:.2f}", f"{apart.value:.2f}", chance, f"{pair.p:.3f}"]
        parts = (pair.differs_i, pair.differs_j) if screen.details else (None, None)
        rows.append((numbers, ((pair.id_i, pair.text_i, parts[0]), (pair.id_j, pair.text_j, parts[1]))))
    caption = "d_Σ: how far the clouds are apart. by chance: the same tokens dealt at random, mean and 95% range."
    if screen.details:
        caption += " p: the share of deals that are as far apart. %: a token's part of d_Σ."
    _print_pairs(
        ("cosine", "d_Σ", "by chance", "p", "texts, and tokens that make d_Σ" if screen.details else "texts"),
        rows,
        screen,
        title="pairs that a search is most likely to confuse, and whose tokens differ most",
        caption=caption,
    )


def _print_shares(alike: Confusion, screen: Screen) -> None:
    """How many pairs look alike, and how many of these differ by their tokens."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    kind = "random pairs" if alike.documents is None else f"the pairs across {alike.documents:,} documents"
    reached = f"which 1% of {kind} reach" if alike.placed else f"the highest of {kind}, too few to place 1%"
    grid.add_row(
        "look alike", f"{alike.count:,} pairs of {alike.texts:,} texts: cosine {alike.cut_off:.3f} or more, {reached}"
    )
    if not alike.enough:
        grid.add_row("clouds differ", f"unchecked: {len(alike)} such pairs are too few")
    else:
        drawn = f", {len(alike):,} of them measured" if len(alike) < alike.count else ""
        grid.add_row("d_Σ", f"{alike.d_sigma.value_or_raise:.4f}  by chance {alike.d_sigma.floor:.4f}{drawn}")
        if (beyond := alike.excess.interval) is not None:
            grid.add_row(
                "", f"{alike.excess.value_or_raise:.4f} {beyond} beyond chance, {beyond.level:.0%} for {beyond.answers}"
            )
        share, ends = alike.differing, alike.differing.interval
        around = "" if ends is None else f" [{ends.low:.1%}, {ends.high:.1%}]"
        grid.add_row(
            "clouds differ", f"in {share.value_or_raise:.1%}{around} of these pairs (p ≤ 0.05; by chance 5.0%)"
        )
    screen.print(grid)


def _print_pairs(
    headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Sequence[Any]]], screen: Screen, **looks: Any
) -> None:
    """A line a pair: its numbers, and its two texts (id, text, and the tokens with their parts of d_Σ, or None)."""
    from rich.text import Text

    table = open_table(caption_justify="left", expand=True, show_lines=True, **looks)
    for name in headings[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(headings[-1], ratio=1)
    for numbers, sides in rows:
        texts = Text()
        for name, text, differs in sides:
            texts.append(f"{name}  ", style="dim")
            texts.append(f"{_shortened(text or '', 160 if screen.details else 60)}\n")
            if differs is not None:
                tokens = ", ".join(f"{_shortened(token, 24)} {share:.0%}" for token, share in differs)
                texts.append(f"  {tokens or 'no token'}\n", style="cyan")
        texts.rstrip()
        table.add_row(*numbers, texts)
    screen.print_table(table)


def _trace_sentence(result: SocmResult) -> str:
    check = result.trace_check
    single = f"; {check.one_token:,} texts have a single token and no spread" if check.one_token else ""
    sides = [result.left, None if result.right is result.left else result.right]
    compared = " compared" if check.texts < sum(len(side) for side in sides if side is not None) else ""
    if not check.above:
        return f"holds for all {check.texts:,} texts{compared} (largest {check.largest:.2f}){single}"
    scale = result.provenance["settings"]["scale"]
    advice = "; d_Σ can exceed 1, compare models with --scale trace" if scale == "paper" else ""
    broken = f"broken by {check.share:.1%} of {check.texts:,} texts{compared}"
    return f"{broken} (largest {check.largest:.2f}){advice}{single}"


def _worst_title(result: SocmResult) -> str:
    """The worst of a sample are not the worst of all, and are not to look like them."""
    if result.provenance["settings"]["sample"] is None:
        return "worst pairs"
    return "worst of the sampled pairs" + (
        " (--worst-only finds the worst of all)" if result.left is result.right else ""
    )


def _print_worst(pairs: Sequence[WorstPair], screen: Screen, title: str) -> None:
    rows = (
        (
            [f"{number:.4f}" for number in (pair.socm, pair.mean_distance, pair.covariance_distance)],
            [(pair.id_i, pair.text_i, None), (pair.id_j, pair.text_j, None)],
        )
        for pair in pairs
    )
    _print_pairs(("SOCM", "d_μ", "d_Σ", "texts"), rows, screen, title=f"{title}: near means, unlike clouds")


def _shortened(text: str, width: int = 160) -> str:
    """One line of printable characters: a text must not be able to write to the terminal's controls."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


# -- pair -------------------------------------------------------------------------------------------------------------


@arguments.encoder_options(without=("encoding",))
def pair(
    first: Annotated[str, argument("TEXT", "One text.")],
    second: Annotated[str | None, argument("[TEXT]", "The other text; optional with --query.")] = None,
    query: Annotated[str | None, option("TEXT", "Show which tokens of the texts this query finds.")] = None,
    model: Annotated[
        str, option("MODEL", "Hub name, folder, ONNX file or built-in model.", "--model", "-m")
    ] = arguments.MODEL,
    output: Annotated[Path | None, to_figure("Draw it: .html, .png, .svg, .pdf.", "--figure", "--output", "-o")] = None,
    layer: Annotated[
        int | None, option("N", "Layer to compare (0: embedding output), the pooled layer by default.")
    ] = None,
    details: arguments.Details = False,
    json: arguments.Json = None,
    *,
    options: dict[str, Any],
) -> None:
    """How far are two texts apart, by their means and by their tokens?

    Example: poolscope pair "A man bites a dog." "A dog bites a man."

    High SOCM: the means agree while the tokens differ, so mean pooling hides the difference. With --query: which tokens
    of each text the query finds, and how much of that the mean keeps. -o draws it.
    """
    if query is not None:
        _matches(query, [first] if second is None else [first, second], model, layer, output, json, options, details)
        return
    if second is None:
        raise InputError("received one TEXT; needed: two to compare, or one and --query TEXT. Add one of them.")
    encoder = opened_model(model, options)
    (clouds,) = encoder.encode([first, second], layers=None if layer is None else [layer]).values()
    projection = poolscope.project_pair(clouds[0], clouds[1])
    name = encoder.card.name if layer is None else f"{encoder.card.name}, layer {layer}"
    screen = Screen(json, seen_first=True, details=details)
    chance = poolscope.permutation_floor(clouds)
    _print_pair(projection, chance, clouds, name, screen)
    if output is not None:
        from poolscope.metrics.socm.pair import pair_figure

        vocabulary = getattr(encoder, "vocabulary", None)
        ids = [clouds.token_ids(k) for k in (0, 1)]
        tokens = None if vocabulary is None else [vocabulary.names(row) for row in ids if row is not None]
        drawn = pair_figure(projection, names=[first, second], tokens=tokens or None, model=name)
        poolscope.save_figure(drawn, output)
    if json is not None:
        put_json(_pair_content(projection, chance, clouds, encoder.card.name, layer), json)
    screen.name_written(output, json)


def _matches(
    query: str,
    texts: Sequence[str],
    model: str,
    layer: int | None,
    output: Path | None,
    json: str | None,
    options: dict[str, Any],
    details: bool,
) -> None:
    """What the tokens of a query find in one text, or in two."""
    from poolscope.evaluation.match_drawing import drawing_of
    from poolscope.evaluation.matches import lead_words

    if layer is not None:
        raise InputError(f"--layer {layer}: --query searches by the layer that is pooled. Leave one of them out.")
    screen, encoder = Screen(json, details=details), opened_model(model, options)
    found = [poolscope.token_matches(encoder, query, text) for text in texts]
    for sentence in lead_words(*found) if len(found) > 1 else found[0].in_words():
        screen.say(sentence)
    screen.print(encoder.card.name, style="dim")
    for each, place in zip(found, ("First text", "Second text"), strict=False):
        if len(found) > 1:
            screen.print(f"{place}: MaxSim {each.maxsim:.2f}, cosine of the means {each.cosine:.2f}", style="bold")
        screen.print_rows(("query", "finds", "cosine", "mean", "part"), _match_rows(each), words=4)
    if screen.shows_details():
        screen.say("cosine: with the token that it finds. mean: with the mean of the text, all that averaging leaves.")
        screen.say("part: of MaxSim − cosine. Parts of special tokens are left out here; --json has them.")
    if output is not None:
        poolscope.save_figure(drawing_of(found), output)
    if json is not None:
        put_json({"query": query, "texts": [each.to_dict() for each in found]}, json)
    screen.name_written(output, json)


def _match_rows(found: TokenMatches) -> Iterator[list[str]]:
    """One row a query token: its best match, and bars for its cosines with the match and with the mean."""
    from poolscope.evaluation.matches import shown_token

    for match in found.matches:
        if match.counts:
            names = (_shortened(shown_token(name), _TOKEN) for name in (match.token, match.match))
            bars = (f"{_bar(value)} {value:.2f}".replace("-", "−") for value in (match.similarity, match.to_mean))
            yield [*names, *bars, f"{match.contribution:+.3f}".replace("-", "−")]


def _bar(value: float) -> str:
    """A bar as long as the value in `_BAR` cells; below 0 there is none.

    >>> _bar(0.5), _bar(-1)
    ('███████       ', '              ')
    """
    eighths = round(8 * _BAR * min(max(value, 0.0), 1.0))
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(_BAR)


_TOKEN, _BAR = 13, 14  # letters of a token, and cells of a cosine of 1


def _pair_content(
    projection: PairProjection,
    chance: PermutationFloor,
    clouds: poolscope.TokenClouds,
    model: str,
    layer: int | None,
) -> dict[str, Any]:
    from poolscope.results import plain, provenance

    numbers = {
        "d_mu": projection.distances.mean_distance,
        "d_sigma": projection.distances.covariance_distance,
        "socm": projection.distances.socm,
        "d_sigma_floor": float(chance.dealt.floor[0]),
        "d_sigma_range": [float(chance.dealt.low[0]), float(chance.dealt.high[0])],
        "p": float(chance.dealt.p[0]),
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
    return dict(plain(numbers))


def _print_pair(
    projection: PairProjection, chance: PermutationFloor, clouds: poolscope.TokenClouds, name: str, screen: Screen
) -> None:
    """Both distances in words, and beside chance; with details the paper's numbers."""
    pair, lengths, cut = projection.distances, clouds.lengths, clouds.truncated
    over_trace, (first, second) = projection.covariance_distance_over_trace, projection.traces
    screen.say(
        f"The mean vectors have a cosine of {1 - 2 * pair.mean_distance:.3f}; around them the token clouds differ by "
        f"{over_trace:.3f} on a scale from 0 to 1."
    )
    screen.name_origin(
        f"{name} · {lengths[0]} and {lengths[1]} tokens",
        [f"Too long: {cut[0]} and {cut[1]} tokens were truncated."] if cut.any() else [],
    )
    screen.release()
    dealt = chance.dealt
    by_chance = f"{dealt.floor[0]:.4f} [{dealt.low[0]:.4f}, {dealt.high[0]:.4f}]"
    rows = (
        ("SOCM", f"{pair.socm:.4f}", ""),
        ("distance of the means, d_μ", f"{pair.mean_distance:.4f}", ""),
        ("distance of the clouds, d_Σ", f"{pair.covariance_distance:.4f}", by_chance),
    )
    screen.print_rows(("", "these texts", "same tokens dealt at random"), rows, words=1, show_edge=False)
    if screen.shows_details():
        for sentence in chance.in_words():
            screen.say(sentence)
        screen.print_numbers([("tr Σ", f"{first:.2f} and {second:.2f}"), ("d_Σ over the trace", f"{over_trace:.4f}")])
        if projection.above_trace:
            screen.say("A tr Σ above 2 lets d_Σ and SOCM exceed 1; d_Σ over the trace is always in [0, 1].")
