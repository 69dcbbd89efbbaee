"""`poolscope misses`: the run file of any search against judgements."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option
from poolscope.errors import InputError
from poolscope.show.screen import Screen

_SHOWN = 10  # misses on the screen


def misses(
    run: Annotated[str, argument("RUN", "Run file of TREC: qid Q0 docid rank score tag.")],
    queries: Annotated[str, argument("QUERIES", "Qrels file of TREC, BEIR folder, or a table of queries with ids.")],
    texts: arguments.Texts = None,
    top: Annotated[int, option("K", "A query is found if a relevant text is in the top K.", min=1)] = 10,
    fail_below: Annotated[float | None, option("SHARE", "For CI: exit with 1 if a smaller share is found.")] = None,
    json: arguments.Json = None,
) -> None:
    """What does any search miss? Needs its run file alone: no model, no vectors.

    Example: poolscope misses bm25.run qrels.txt texts.jsonl
    """
    if fail_below is not None and not 0 <= fail_below <= 1:
        raise InputError(f"--fail-below {fail_below} is no share. Choose a number from 0 to 1.")
    screen = Screen(json)
    result = poolscope.audit_run(run, queries, texts, k=top)
    screen.print_in_words(result)
    if result.misses:
        table = Table(box=None, header_style="bold")
        for name in ("query", "relevant", "rank", "first instead"):
            table.add_column(name, overflow="ellipsis", no_wrap=name != "query")
        for miss in result.misses[:_SHOWN]:
            rank = "–" if miss.rank is None else f"{miss.rank:g}"
            table.add_row(miss.query, miss.text_id, rank, miss.before[0] if miss.before else "–")
        screen.print_table(table)
    screen.put_result(result, json=json)
    if fail_below is not None and (result.found.value or 0.0) < fail_below:
        raise typer.Exit(1)
