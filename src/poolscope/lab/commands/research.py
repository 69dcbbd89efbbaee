"""`poolscope lab`: the papers' experiments, and many models on the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, to_figure, to_file
from poolscope.errors import InputError
from poolscope.show.screen import QUIET, Screen, digits, open_table, with_ends

if TYPE_CHECKING:
    from poolscope.cli.inputs import Inputs
    from poolscope.lab.correlate.study import Association, CorrelationStudy, MetricScore
    from poolscope.lab.interventions import Change, Effect, InterveneResult
    from poolscope.lab.transport import TransportResult
    from poolscope.texts import Pairs

# -- correlate --------------------------------------------------------------------------------------------------------


def correlate(
    audits: Annotated[
        list[Path] | None, argument("[AUDITS]...", "audit.json of each model or its folder, or one table of metrics.")
    ] = None,
    scores: Annotated[
        Path | None, option("TABLE|FOLDER", "Table with one row per model, or folder of MTEB results.")
    ] = None,
    metrics: Annotated[
        Path | None, option("TABLE", "Table of metrics with one row per model, instead of audits.")
    ] = None,
    metric: Annotated[list[str] | None, option("NAME", "Use only this metric; may be repeated.")] = None,
    score: Annotated[list[str] | None, option("NAME", "Use only this score; may be repeated.")] = None,
    benchmark: Annotated[str | None, option("NAME", "MTEB results: use the tasks of this benchmark.")] = None,
    control: Annotated[
        list[str] | None, option("NAME", "Control for this number; may be repeated (none: control for nothing).")
    ] = None,
    seed: Annotated[int, option("N", "Seed of resamples and permutations.")] = 0,
    details: arguments.Details = False,
    json: arguments.Json = None,
    parquet: Annotated[Path | None, to_file("Write one row per metric as Parquet.")] = None,
    figure: Annotated[Path | None, to_figure("Draw the points: .html, .png, .svg.")] = None,
) -> None:
    """Do audit numbers correlate with task scores across models?

    Example: poolscope lab correlate first second third --scores scores.csv --metric socm

    Reports bootstrap intervals, permutation p-values, Holm's correction, partial correlations, and the result without
    each family. Models are matched by name; those without a partner are listed.
    """
    from poolscope.lab.correlate.model_records import read_scores

    if scores is None:
        raise InputError("--scores is missing. Add --scores TABLE.csv, or --scores FOLDER with results of MTEB.")
    source = audits or metrics
    if source is None or (audits and metrics):
        raise InputError("received both audits and --metrics, or neither; needed: the audits, or --metrics TABLE.")
    controls = {} if control is None else {"controls": [name for name in control if name != "none"]}
    study = poolscope.correlate(
        source,
        read_scores(scores, benchmark=benchmark),
        only_metrics=metric or (),
        only_scores=score or (),
        seed=seed,
        **controls,
    )
    screen = Screen(json, details=details)
    _print_study(study, screen)
    if parquet is not None:
        study.save_parquet(parquet)
    screen.put_result(study, json=json, figure=figure)
    screen.name_written(parquet)


def _print_study(study: CorrelationStudy, screen: Screen) -> None:
    """Print the correlations, one table a score; with details the other coefficients and partial correlations."""
    screen.print_in_words(study)
    screen.say(f"{len(study.models)} models: {', '.join(study.models)}", style=QUIET)
    for where, names in (("metrics, and no scores", study.only_metrics), ("scores, and no metrics", study.only_scores)):
        if names:
            sentence = f"Not compared, with {where}: {', '.join(names)}"
            screen.say(sentence, style="yellow")
    by_score = {
        score: [row for row in study.correlations if row.score == score]
        for score in dict.fromkeys(row.score for row in study.correlations)
    }
    for score, rows in by_score.items():
        _print_correlations(score, rows, screen)
    if screen.shows_details():
        for score, rows in by_score.items():
            _print_others(score, rows, screen)
            _print_partials(rows, screen)
        screen.print_notes(study.notes, indent="")


def _print_correlations(score: str, rows: list[MetricScore], screen: Screen) -> None:
    """ρ with all that qualifies it."""
    main = open_table("metric", "n", "Spearman ρ", "p", "Holm", "without a family", words=1, title=f"against {score}")
    for row in rows:
        edges = row.range_without
        main.add_row(
            row.metric,
            str(len(row.models)),
            *_with_p(row.spearman),
            "–" if row.holm is None else f"{row.holm:.2g}",
            "–" if edges is None else f"{edges[0]:.2f} to {edges[1]:.2f}",
        )
    screen.print_table(main)


def _print_others(score: str, rows: list[MetricScore], screen: Screen) -> None:
    """The two other coefficients."""
    cells = ((row.metric, *_with_p(row.kendall), *_with_p(row.pearson)) for row in rows)
    screen.print_rows(("metric", "Kendall τ", "p", "Pearson r", "p"), cells, words=1, title=f"against {score}")


def _with_p(association: Association) -> tuple[str, str]:
    return str(association), "–" if association.p is None else str(association.p)


def _print_partials(rows: list[MetricScore], screen: Screen) -> None:
    """ρ once the controls are accounted for; a reason in place of the number where it was refused."""
    table = open_table("metric", "controls", "partial ρ", "p", words=4, title="accounting for")
    for row in rows:
        for part in row.partials:
            if part.spearman is not None:
                table.add_row(row.metric, ", ".join(part.controls), str(part.spearman), str(part.spearman.p))
    for metrics, controls, reason in _refusals(rows):
        table.add_row(_briefly(metrics, [row.metric for row in rows]), "; ".join(controls), reason, "–")
    if table.row_count:
        screen.print_table(table)


def _refusals(rows: list[MetricScore]) -> list[tuple[tuple[str, ...], list[str], str]]:
    """(metrics, controls, reason) of the partial correlations that were refused, those of one reason together."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for part in row.partials:
            if part.refused is not None:
                metrics.setdefault((part.refused, ", ".join(part.controls)), []).append(row.metric)
    controls: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (reason, names), refused in metrics.items():
        controls.setdefault((tuple(refused), reason), []).append(names)
    return [(refused, names, reason) for (refused, reason), names in controls.items()]


def _briefly(chosen: tuple[str, ...], known: list[str]) -> str:
    """The shorter of two lists: the chosen names, or the names left out."""
    missing = [name for name in known if name not in chosen]
    if len(missing) >= len(chosen) or len(known) == 1:
        return ", ".join(chosen)
    return f"all but {', '.join(missing)}" if missing else "all metrics"


# -- transport --------------------------------------------------------------------------------------------------------

# Texts drawn from the embedded corpus when the user names no texts.
TRANSPORT_TEXTS = 100


@arguments.encoder_options()
@arguments.reading_options()
def transport(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    layers: Annotated[str | None, option("0,3,…", "Layers to measure (0: embedding output), all by default.")] = None,
    pairs: Annotated[int, option("M", "Number of random pairs of texts.", min=3)] = 100,
    details: arguments.Details = False,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw the shares: .html, .png, .svg.")] = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """How much of the exact transport distance do mean and covariance see?

    Example: poolscope lab transport builtin:minilm texts.jsonl --pairs 60

    Without arguments: the built-in model on 100 built-in texts, all layers.
    """
    from poolscope.cli.inputs import Inputs, counting_progress

    screen = Screen(json, seen_first=True, details=details)
    inputs = Inputs(model, texts, reading, options, screen, default=TRANSPORT_TEXTS)
    clouds = _encode_layers(inputs, arguments.parse_layers(layers))
    with counting_progress("transporting", pairs * len(clouds), "pairs") as progress:
        result = poolscope.transport(clouds, pairs=pairs, seed=reading["seed"], progress=progress)
    _print_transport(result, screen)
    screen.put_result(result, json=json, figure=figure)


def _encode_layers(inputs: Inputs, layers: list[int] | None) -> dict[int, poolscope.TokenClouds]:
    """The clouds by layer; of all layers where none are asked for."""
    from poolscope.cli.inputs import encoding_progress

    corpus, encoder = inputs.corpus(), inputs.encoder()
    depth = encoder.card.layers
    chosen = layers if layers is not None else [-1] if depth is None else list(range(depth + 1))
    with encoding_progress(len(corpus)) as progress:
        clouds = encoder.encode(corpus.texts, layers=chosen, progress=progress)
    truncation = poolscope.truncation_report(clouds[chosen[0]])
    notes = [*corpus.report.notes(), *poolscope.pooling_report(encoder).notes(), *truncation.notes()]
    inputs.screen.name_origin(f"{encoder.card.name} · {len(corpus):,} texts of {corpus.source}", notes)
    return clouds


def _print_transport(result: TransportResult, screen: Screen) -> None:
    """What the means and two moments see of the distance; with details the distances, and random lists of tokens."""
    screen.print_in_words(result)
    rows = (
        (str(entry.layer), *(share.percent() for share in (entry.means, entry.two_moments))) for entry in result.layers
    )
    title = f"share of W₂² that is seen, over {result.pairs:,} pairs, ± half its 95% interval"
    screen.print_rows(("layer", "by the means", "by mean and covariance"), rows, title=title)
    if screen.shows_details():
        more = (
            (
                str(entry.layer),
                f"{entry.exact.mean():.3f}",
                f"{entry.gaussian.mean():.3f}",
                entry.two_moments_surrogate.percent(),
                entry.beyond.percent(),
            )
            for entry in result.layers
        )
        screen.print_rows(("layer", "exact W₂²", "Gaussian W₂²", "two moments of random lists", "beyond"), more)
        screen.say("beyond: how much farther apart the real lists of tokens are than random ones.")


# -- intervene --------------------------------------------------------------------------------------------------------

# Queries that are drawn, each with its document, when the user names no number: each is compared with every document.
INTERVENE_PAIRS = 200


@arguments.encoder_options(without=("prompt", "prompt_name", "role"))
def intervene(
    model: arguments.Model = arguments.MODEL,
    pairs: Annotated[str, argument("[PAIRS]", "Table of queries and documents, or built-in texts.")] = arguments.TEXTS,
    do: Annotated[list[str] | None, option("WHAT", "scale=X, rotate, match, noise, top=K; may be repeated.")] = None,
    query_column: Annotated[str, option("NAME", "Column of the queries.")] = "query",
    document_column: Annotated[str, option("NAME", "Column of the documents.")] = "document",
    limit: Annotated[
        int, option("N", "Use a random sample of N queries with their documents (0: all).", min=0)
    ] = INTERVENE_PAIRS,
    seed: arguments.Seed = 0,
    socm_texts: Annotated[int, option("N", "SOCM over all pairs of N documents.", min=3)] = 150,
    k: Annotated[int, typer.Option("--k", min=1, help="Quality is nDCG@K.")] = 10,
    details: arguments.Details = False,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw the effects: .html, .png, .svg.")] = None,
    no_cache: arguments.NoCache = False,
    *,
    options: dict[str, Any],
) -> None:
    """What follows if the token clouds change and every mean is kept?

    Example: poolscope lab intervene builtin:minilm pairs.csv --do rotate --do top=4

    Without arguments: the built-in model on 200 pairs (summary, body) of built-in docstrings. The query and document
    prompts are those the model declares.
    """
    from poolscope.cli.inputs import counting_progress
    from poolscope.lab.interventions import INTERVENTIONS, parse_intervention

    screen = Screen(json, seen_first=True, details=details)
    interventions = tuple(do) if do else INTERVENTIONS
    for name in interventions:
        parse_intervention(name)  # what cannot be done is refused before any work
    _refuse_plain_texts(pairs)
    corpus = poolscope.read_pairs(
        pairs, query_column=query_column, document_column=document_column, limit=limit or None, seed=seed
    )
    documents, queries = _encode_pairs(model, corpus, options, cache=not no_cache, screen=screen)
    with counting_progress("intervening", len(interventions), "interventions") as progress:
        settings: dict[str, Any] = {"socm_texts": socm_texts, "k": k, "seed": seed, "progress": progress}
        result = poolscope.intervene(documents, queries, corpus.index, interventions=interventions, **settings)
    _print_effects(result, screen)
    screen.put_result(result, json=json, figure=figure)


def _refuse_plain_texts(pairs: str) -> None:
    if Path(pairs).suffix.lower() in (".txt", ".md"):
        raise InputError(
            f"pairs: received {pairs}, which holds texts and no pairs; needed: a table (.csv, .jsonl, .parquet) with "
            f"the columns query and document. Name such a table; other columns are named with --query-column and "
            f"--document-column."
        )


def _encode_pairs(
    model: str, pairs: Pairs, options: Mapping[str, Any], *, cache: bool, screen: Screen
) -> tuple[poolscope.TokenClouds, poolscope.TokenClouds]:
    """Documents and queries, each with the prompt that the model declares for it."""
    from poolscope.cli.inputs import encoding_progress
    from poolscope.encoders import EncoderOptions
    from poolscope.stores.cache import cached_clouds

    clouds = []
    for texts, role in ((pairs.documents, "document"), (pairs.queries, "query")):
        settings = {**options, "role": role}
        encoder = poolscope.as_encoder(model, **settings)
        with encoding_progress(len(texts)) as progress:
            part = cached_clouds(encoder, texts, options=EncoderOptions(**settings), enabled=cache, progress=progress)
        clouds.append(part)
        reports = [] if role == "query" else poolscope.pooling_report(encoder).notes()
        screen.name_origin(
            f"{encoder.card.name} · {len(part):,} texts as {role} · {part.lengths.sum():,} tokens",
            [*reports, *poolscope.truncation_report(part).notes()],
        )
    return clouds[0], clouds[1]


def _print_effects(result: InterveneResult, screen: Screen) -> None:
    """What each intervention changes; with details every change with its interval."""
    screen.print_in_words(result)
    measured = [_changes_of(effect) for effect in result.effects]
    rows = (
        (
            effect.name,
            f"{effect.trace.after:.3f}",
            *(digits(None if change is None else change.after, 4) for change in changes.values()),
        )
        for effect, changes in zip(result.effects, measured, strict=True)
    )
    screen.print_rows(("after", "tr Σ", *measured[0]), rows, words=1)
    if screen.shows_details():
        changes = (
            (
                effect.name,
                *("–" if change is None else with_ends(change.difference, "+z.3f") for change in changes.values()),
            )
            for effect, changes in zip(result.effects, measured, strict=True)
        )
        screen.print_rows(("change of", *measured[0]), changes, words=1, title="with 95% intervals")


def _changes_of(effect: Effect) -> dict[str, Change | None]:
    """The changes that are shown, by their headings."""
    quality = effect.quality
    return {"SOCM": effect.socm, "nDCG by W₂": quality.get("wasserstein"), "nDCG by d_Σ": quality.get("covariance")}
