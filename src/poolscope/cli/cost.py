"""`poolscope cost`: what averaging costs a search, seen by keeping the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import option, switch, to_figure, to_file
from poolscope.cli.opening import opened_model
from poolscope.errors import InputError
from poolscope.show.screen import Screen

if TYPE_CHECKING:
    from poolscope.evaluation import RetrievalTask
    from poolscope.evaluation.fine_grained import FineGrained
    from poolscope.repairs.cost import CostWay, PoolingCost

Column = Annotated[str | None, option("NAME", "Column of the texts.")]

_MINOR = (  # shown by --details only
    "MaxSim, special too",
    "BERTScore F",
    "relaxed transport",
    "MaxSim, 4 clusters",
    "MaxSim, 16 clusters",
    "MaxSim, float16",
    "best of 2 clusters",
)
_VARIANTS = (" spans", " merged")  # likewise, by the end of their names


@arguments.encoder_options(without=("role",))
def cost(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    queries: arguments.Queries = None,
    query_columns: arguments.QueryColumns = None,
    column: Column = None,
    id_column: arguments.IdColumn = None,
    limit: Annotated[int | None, option("N", "Use a random sample of N queries (0: all).", min=0)] = None,
    seed: arguments.Seed = 0,
    candidates: Annotated[int, option("N", "Texts that transports and Gaussian W₂ re-order.", min=1)] = 50,
    stop_words: Annotated[Path | None, option("FILE", "Words that MaxSim ignores, one per line.")] = None,
    pairs: Annotated[
        bool, switch("Use sentences made by rule: is one changed word told from a paraphrase?", "--pairs")
    ] = False,
    details: Annotated[
        bool, switch("Show every method by itself too, with MRR, recall and work.", "--details")
    ] = False,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write the table of all methods: .parquet or .csv.")] = None,
    figure: Annotated[Path | None, to_figure("Draw quality against bytes: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """What does averaging cost your search? The tokens that the mean is made of answer the same queries.

    Example: poolscope cost builtin:minilm texts.jsonl --queries queries.jsonl

    Nothing is trained, and no text is encoded twice. Each method that keeps the tokens is added to the mean, with a
    weight that other queries chose. Without arguments: the built-in model on the built-in manuals and their headings.
    With --pairs: sentences of the built-in texts, changed by rule.
    """
    from poolscope.cli.inputs import counting_progress, encoding_progress
    from poolscope.files import text_of

    screen = Screen(json)
    if pairs:
        named = {"TEXTS": texts, "queries": queries, "query_columns": query_columns, "stop_words": stop_words}
        if useless := arguments.received(named):
            raise InputError(f"--pairs brings its own sentences: leave out {', '.join(useless)}, or --pairs.")
        told_apart = _measure_pairs(model, screen, options, details=details)
        screen.put_result(told_apart, json=json, table=table, figure=figure)
        return
    reading = {"column": column, "id_column": id_column, "limit": limit or None, "seed": seed}
    task = _read(texts, queries, query_columns, reading)
    encoder = opened_model(model, options)
    words = None if stop_words is None else text_of(stop_words, InputError).split()
    total = sum(len(side.texts) for side in task.sides)
    with counting_progress("scoring", None, "ways") as scored, encoding_progress(total) as progress:
        result = poolscope.pooling_cost(
            encoder, task, candidates=candidates, stop_words=words, seed=seed, progress=progress, scored=scored
        )
    print_result(result, task, screen, details=details)
    screen.put_result(result, json=json, table=table, figure=figure)


def _measure_pairs(model: str, screen: Screen, options: dict[str, Any], *, details: bool) -> FineGrained:
    """How often the mean and the tokens tell a change of meaning from a change of words, by change."""
    from poolscope.cli.inputs import encoding_progress
    from poolscope.evaluation.fine_grained import ALL
    from poolscope.repairs.cost import gain_text
    from poolscope.show.screen import with_ends
    from poolscope.texts.fine_pairs import CONTROLS, fine_pairs

    encoder, chosen = opened_model(model, options), fine_pairs()
    with encoding_progress(len(chosen) * (2 + len(CONTROLS))) as progress:
        result = poolscope.fine_grained(encoder, chosen, progress=progress)
    screen.print_in_words(result)
    screen.print(f"{result.model} · {result.sentences} sentences", style="dim")
    against = ["against"] if details else []
    headings = ("change", *against, "by the mean", "by the tokens", "tokens − mean")
    rows = [
        [
            score.change,
            *([score.control] if details else []),
            *map(with_ends, (score.by_mean, score.by_tokens)),
            gain_text(score.gain),
        ]
        for score in result.scores
        if details or score.control == ALL
    ]
    screen.print_rows(headings, rows, words=1 + len(against))
    screen.print_notes(["Shares told apart; 0.50 by chance. tokens: MaxSim in both directions."], indent="")
    return result


def _read(texts: str | None, queries: str | None, columns: str | None, reading: dict[str, Any]) -> RetrievalTask:
    """The queries with the texts that answer them; of the manuals their own headings where no others are named."""
    from poolscope.cli.inputs import read_asked
    from poolscope.evaluation import query_task
    from poolscope.texts.records import MANUALS

    if queries is None and texts in (None, MANUALS):
        texts = queries = MANUALS
    if queries is None:
        raise InputError(
            f"{texts}: received no queries, and what a search loses is seen on queries. Add --queries FILE: each query "
            f"with the ids of the texts that answer it."
        )
    read, source, reading["id_column"] = read_asked(queries, columns, texts, reading["id_column"])
    if source is None:
        raise InputError(f"--queries {queries}: received no TEXTS. Name the file with the texts that these ids mean.")
    return query_task(source, read, **reading)


def print_result(result: PoolingCost, task: RetrievalTask, screen: Screen, *, details: bool) -> None:
    """Print the result in words, and a table of the mean and what is added to the mean; with `details` of every way."""
    screen.print_in_words(result)
    screen.print(f"{result.model} · {result.texts:,} texts · {result.queries:,} queries", style="dim")
    screen.print_notes(task.notes)
    headings = [result.cost.metric, "gain over the mean", "found", "kB"]
    if details:
        headings += ["MRR", "recall", "products", "weight"]
    rows = ([_short(way, details=details), *_cells(way, details=details)] for way in _shown(result, details=details))
    first = "way" if details or result.keeps_tokens else "added to the mean"
    screen.print_rows([first, *headings], rows, words=1)
    screen.print_notes(result.legend(details=details), indent="")


def _shown(result: PoolingCost, *, details: bool) -> Iterator[CostWay]:
    """The mean and what is blended with it, without ways that are variants of another; with `details` all.

    Where the model itself keeps tokens, the ways by themselves stand there instead of blends.
    """
    for way in result.ways:
        minor = (way.adds or way.name) in _MINOR or way.name.endswith(_VARIANTS)
        listed = (way.weight is None) == result.keeps_tokens and not minor
        if details or way.gain is None or listed:
            yield way


def _short(way: CostWay, *, details: bool) -> str:
    return way.name if details or way.adds is None else way.adds


def _cells(way: CostWay, *, details: bool) -> list[str]:
    """Quality, gain with its interval, queries found, and the price."""
    from poolscope.repairs.cost import gain_text

    gain = "" if way.gain is None else gain_text(way.gain)
    turned = "" if way.gain is None else f" +{way.rescued:.0f} −{way.broken:.0f}"
    cells = [f"{way.ndcg.value:.3f}", gain, f"{way.found:.0f}{turned}", f"{way.bytes_a_text / 1000:,.1f}"]
    if details:
        weight = "" if way.weight is None else f"{way.weight:.2f}"
        cells += [f"{way.mrr:.3f}", f"{way.recall:.3f}", f"{way.products_a_query:,.0f}", weight]
    return cells
