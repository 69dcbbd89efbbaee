"""`poolscope research intervene`: what follows when the means are kept and the second moment is changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json, to_figure
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.clouds import TokenClouds
    from poolscope.research.interventions import Change, Effect, InterveneResult
    from poolscope.texts import Pairs

# From this width on the table has room for the intervals; --json and --figure have them always.
WIDE = 140

# Queries that are drawn, each with its document, when the user names no number: each is compared with every document.
DEFAULT_LIMIT = 200


@arguments.encoder_options(without=("prompt", "prompt_name", "role"))
def intervene(
    model: arguments.Model = arguments.MODEL,
    pairs: Annotated[
        str, typer.Argument(metavar="[PAIRS]", help="Table of queries and documents, or built-in texts.")
    ] = arguments.TEXTS,
    do: Annotated[
        list[str] | None, typer.Option(metavar="WHAT", help="scale=X, rotate, match, noise, top=K; may be repeated.")
    ] = None,
    query_column: Annotated[str, typer.Option(metavar="NAME", help="Column of the queries.")] = "query",
    document_column: Annotated[str, typer.Option(metavar="NAME", help="Column of the documents.")] = "document",
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="Draw N queries with their documents (0: all).")
    ] = DEFAULT_LIMIT,
    seed: arguments.Seed = 0,
    socm_texts: Annotated[int, typer.Option(min=3, metavar="N", help="SOCM over all pairs of N documents.")] = 150,
    k: Annotated[int, typer.Option("--k", min=1, help="Quality is nDCG@K.")] = 10,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw the effects: .html, .png, .svg.")] = None,
    no_cache: arguments.NoCache = False,
    *,
    options: dict[str, Any],
) -> None:
    """SOCM and retrieval before and after interventions on the token clouds that keep every mean.

    With nothing: the embedded model on 200 pairs (summary, body) of the embedded docstrings. The query and document
    prompts are those the model declares.
    """
    from rich.console import Console

    from poolscope.cli.progress import counting_progress
    from poolscope.research.interventions import INTERVENTIONS, parse_intervention
    from poolscope.research.interventions import intervene as measure
    from poolscope.texts import read_pairs

    screen = Console(stderr=json == "-", soft_wrap=False)
    interventions = tuple(do) if do else INTERVENTIONS
    for name in interventions:
        parse_intervention(name)  # what cannot be done is refused before any work
    _refuse_plain_texts(pairs)
    corpus = read_pairs(
        pairs, query_column=query_column, document_column=document_column, limit=limit or None, seed=seed
    )
    documents, queries = _encode(model, corpus, options, cache=not no_cache, screen=screen)
    with counting_progress("intervening", len(interventions), "interventions") as progress:
        settings: dict[str, Any] = {"socm_texts": socm_texts, "k": k, "seed": seed, "progress": progress}
        result = measure(documents, queries, corpus.index, interventions=interventions, **settings)
    _print(result, screen)
    if json is not None:
        put_json(result.to_dict(), json)
    if figure is not None:
        from poolscope.charts.files import save_figure

        save_figure(result.figure(), figure)
    name_written(screen, json, figure)


def _refuse_plain_texts(pairs: str) -> None:
    if Path(pairs).suffix.lower() in (".txt", ".md"):
        raise InputError(
            f"pairs: received {pairs}, which holds texts and no pairs; needed: a table (.csv, .jsonl, .parquet) with "
            f"the columns query and document. Name such a table; other columns are named with --query-column and "
            f"--document-column."
        )


def _encode(
    model: str, pairs: Pairs, options: Mapping[str, Any], *, cache: bool, screen: Console
) -> tuple[TokenClouds, TokenClouds]:
    """Documents and queries, each with the prompt that the model declares for it."""
    from poolscope.cli.inputs import print_notes
    from poolscope.cli.progress import encoding_progress
    from poolscope.encoders import EncoderOptions, as_encoder, pooling_report, truncation_report
    from poolscope.stores.cache import cached_clouds

    clouds = []
    for texts, role in ((pairs.documents, "document"), (pairs.queries, "query")):
        settings = {**options, "role": role}
        encoder = as_encoder(model, **settings)
        with encoding_progress(len(texts)) as progress:
            part = cached_clouds(encoder, texts, options=EncoderOptions(**settings), enabled=cache, progress=progress)
        clouds.append(part)
        words = f"{encoder.card.name} · {len(part):,} texts as {role} · {part.lengths.sum():,} tokens"
        screen.print(words, highlight=False, markup=False)
        reports = [] if role == "query" else pooling_report(encoder).notes()
        print_notes([*reports, *truncation_report(part).notes()], screen)
    return clouds[0], clouds[1]


def _print(result: InterveneResult, screen: Console) -> None:
    from rich.table import Table

    for line in sentences(result):
        screen.print(line, highlight=False, markup=False)
    wide = screen.width >= WIDE
    intervals = "; changes with their 95 % intervals" if wide else " (intervals: --json, --figure)"
    heads = ("after", "tr Σ", "SOCM", "change", "nDCG by W₂", "change", "by d_Σ", "change")
    table = Table(*heads, title=f"after each intervention{intervals}", title_justify="left")
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for effect in result.effects:
        table.add_row(*_cells(effect, wide=wide))
    screen.print(table)


def sentences(result: InterveneResult) -> list[str]:
    """What holds before any intervention, and what none of them can change."""
    first = result.effects[0]
    lines = [f"SOCM as it is: {first.socm.before:.4f} over all pairs of {result.socm_texts:,} documents"]
    if (baseline := result.baseline) is not None:
        quality, gain = baseline.quality, baseline.second_order
        lines += [
            f"nDCG@{baseline.k} by the cosine of the means: {quality.value:.4f} {quality.interval or ''} "
            f"(at random {quality.floor:.4f}); no intervention can change it, since every mean is kept",
            f"nDCG@{baseline.k} by W₂ of mean and covariance: {gain.after:.4f}, {gain.difference.value:+.4f} "
            f"{gain.difference.interval or ''} against the means",
        ]
    shift = max(effect.mean_shift for effect in result.effects)
    lines.append(f"largest change of a mean vector: {shift:.1e} of its norm (rounding)")
    if result.without_spread:
        lines.append(f"{result.without_spread:,} texts have no spread (a single token) and stay as they are")
    return lines


def _cells(effect: Effect, *, wide: bool) -> list[str]:
    cells = [effect.name, f"{effect.trace.after:.3f}", f"{effect.socm.after:.4f}", _difference(effect.socm, wide=wide)]
    for key in ("wasserstein", "covariance"):
        change = effect.quality.get(key)
        cells += ["–", "–"] if change is None else [f"{change.after:.4f}", _difference(change, wide=wide)]
    return cells


def _difference(change: Change, *, wide: bool) -> str:
    value, interval = change.difference.value, change.difference.interval
    if not wide or interval is None:
        return f"{value:+.3f}"
    return f"{value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
