"""`poolscope lab predict`: do properties of the clouds predict the cost of pooling?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, to_figure, to_folder
from poolscope.errors import InputError
from poolscope.show.screen import QUIET, Screen, digits, tell, with_ends

if TYPE_CHECKING:
    from poolscope.evaluation import RetrievalTask
    from poolscope.lab.predict import CostPrediction

BUILTIN = ("builtin:manuals", "builtin:docstrings")


@arguments.encoder_options(without=("role", "revision"))
def predict(
    models: Annotated[list[str], argument("MODEL...", "Hub names, folders, built-in models, or NAME=SOURCE.")],
    output: Annotated[
        Path, to_folder("Folder for the results; what is already there is not measured again.", "--output", "-o")
    ],
    corpus: Annotated[
        list[str] | None,
        option("FOLDER", "texts.jsonl and queries.jsonl, or a built-in corpus; may be repeated.", "--corpus"),
    ] = None,
    layers: Annotated[str | None, option("0,2,…", "Also use these layers of each model as points.")] = None,
    limit: Annotated[int | None, option("N", "Use at most N queries of each corpus.", min=10)] = 200,
    seed: arguments.Seed = 0,
    details: arguments.Details = False,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw cost against SOCM: .html, .png, .svg.")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Does SOCM, or any number without queries, predict what pooling costs?

    Example: poolscope lab predict builtin:minilm builtin:wordllama --corpus builtin:manuals -o predicted

    The table shows Spearman's ρ; its p shuffles whole corpora or whole models. A skill above 0 means that a fitted line
    predicts the cost of a model family, or of a corpus, that it was not fitted on. The p of the skill is corrected for
    all quantities. Models whose names agree up to a comma are one family.
    """
    from poolscope.lab.predict import measure_all, predict_cost

    screen = Screen(json, details=details)
    named = {each.partition("=")[0]: each.partition("=")[2] or each for each in models}
    tasks = {Path(place).name if ":" not in place else place: _task(place, limit, seed) for place in corpus or BUILTIN}
    chosen = arguments.parse_layers(layers)
    cells = measure_all(named, tasks, output, layers=chosen, seed=seed, say=tell, **options)
    result = predict_cost(cells, seed=seed)
    print_result(result, screen)
    result.save_cells(output / "cells.csv")
    screen.name_written(output / "cells.csv")
    screen.put_result(result, json=json, table=output / "predictors.csv", figure=figure)


def _task(place: str, limit: int | None, seed: int) -> Callable[[], RetrievalTask]:
    """What reads a corpus with its queries when it is needed."""
    from poolscope.evaluation import query_task
    from poolscope.evaluation.reading import summary_body_task

    if place == "builtin:docstrings":
        return partial(summary_body_task, limit=limit, seed=seed)
    if place == "builtin:manuals":
        return partial(query_task, place, place, limit=limit, seed=seed)
    files = [Path(place) / name for name in ("texts.jsonl", "queries.jsonl")]
    if missing := [file.name for file in files if not file.is_file()]:
        raise InputError(f"--corpus {place}: has no {missing[0]}. Name a folder with texts.jsonl and queries.jsonl.")
    return partial(query_task, *map(str, files), limit=limit, seed=seed)


def print_result(result: CostPrediction, screen: Screen) -> None:
    """What is seen in words, and one row a quantity; with details over points, new families, and the slope."""
    from poolscope.lab.predict import QUANTITIES

    screen.print_in_words(result)
    counts = f"{len(result.points)} points of {len(result.families)} families × {len(result.corpora)} corpora"
    screen.say(counts, style=QUIET)
    rows = (
        (QUANTITIES[each.name], *_numbers(each.over_corpora, each.corpora_p, each.new_corpus, each.skill_p))
        for each in result.predictors
    )
    screen.print_rows(("quantity", "ρ over corpora", "p", "skill, new corpus", "p"), rows, words=1)
    if screen.shows_details():
        more = (
            (
                QUANTITIES[each.name],
                *_numbers(each.over_points, each.points_p, each.new_family),
                "–" if each.slope is None else with_ends(each.slope, "+z.3f"),
            )
            for each in result.predictors
        )
        screen.print_rows(("quantity", "ρ over points", "p", "skill, new family", "slope"), more, words=1)


def _numbers(*values: float | None) -> list[str]:
    return [digits(value, 2) for value in values]
