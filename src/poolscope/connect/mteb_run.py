"""`poolscope lab mteb`: score models on a benchmark of mteb, task by task, into a folder that is gone on with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, to_folder
from poolscope.errors import InputError, PoolscopeError, require
from poolscope.files import folder_to_write
from poolscope.results import Result, origin, provenance
from poolscope.show.screen import Screen, tell

BENCHMARK = "MTEB(eng, v2)"
NO_SCORES = 1


@dataclass(frozen=True, repr=False)
class BenchmarkScores(Result):
    """Main scores of models on the tasks of a benchmark, in per cent.

    scores: one row a model and task, with its type; failed: one sentence a task that gave no score.
    """

    benchmark: str
    output: str
    scores: tuple[Mapping[str, Any], ...]
    failed: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """The benchmark, and how many scores there are."""
        return {"benchmark": self.benchmark, "models": len(self.means()), "scores": len(self.scores)}

    def means(self) -> list[dict[str, Any]]:
        """One row a model: how many tasks, the mean over tasks, and the mean over the means of the task types."""
        rows = []
        for model in dict.fromkeys(row["model"] for row in self.scores):
            own = [row for row in self.scores if row["model"] == model]
            types: dict[str, list[float]] = {}
            for row in own:
                types.setdefault(row["type"], []).append(row["score"])
            by_type = float(np.mean([np.mean(values) for values in types.values()]))
            by_task = float(np.mean([row["score"] for row in own]))
            rows.append({"model": model, "tasks": len(own), "mean_of_tasks": by_task, "mean_of_types": by_type})
        return rows

    def in_words(self) -> tuple[str, ...]:
        """Where the results are, and which tasks gave none."""
        counted = f"{len(self.scores)} scores of {len(self.means())} models are in {self.output}."
        return (counted, *(f"{sentence}." for sentence in self.failed[:3]))

    def rows(self) -> list[dict[str, Any]]:
        """One row a model and task."""
        return [dict(row) for row in self.scores]

    def figure(self) -> Any:
        """Scores have no drawing of their own."""
        raise InputError("scores are drawn beside SOCM: poolscope lab paper socm --figure 5 --texts scores=FOLDER.")


def benchmark_tasks(name: str | None, chosen: Sequence[str] = ()) -> list[Any]:
    """The tasks of a benchmark of mteb, or those of them that are named."""
    mteb = require("mteb", "mteb")
    try:
        tasks = list(mteb.get_benchmark(name or BENCHMARK).tasks)
    except KeyError as error:
        raise InputError(f"--benchmark {name} is not known to mteb. Choose a name such as '{BENCHMARK}'.") from error
    known = {task.metadata.name: task for task in tasks}
    if unknown := [each for each in chosen if each not in known]:
        raise InputError(f"--task {unknown[0]} is not in {name or BENCHMARK}. Choose among: {', '.join(known)}.")
    return [known[each] for each in chosen] if chosen else tasks


def run_benchmark(
    models: Mapping[str, Any],
    tasks: Sequence[Any],
    output: str | os.PathLike[str],
    *,
    benchmark: str = BENCHMARK,
    say: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> BenchmarkScores:
    """Score every model on every task with mteb; results that the folder holds are not made again.

    mteb writes one file a task as soon as the task is done, so a run that was stopped goes on with the next task. A
    task that fails is named, and the others go on. The folder can be read as `scores=FOLDER` by the paper's figures.
    """
    mteb = require("mteb", "mteb")
    from poolscope.connect.integrations.mteb import mteb_model

    cache = mteb.ResultCache(Path(output))
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    seconds: list[float] = []
    total = len(models) * len(tasks)
    for place, (name, source) in enumerate(models.items()):
        try:
            encoder = mteb_model(source, name=name if "/" in name else None, **options)
        except PoolscopeError as error:
            failed.append(f"{name}: {' '.join(str(error).split())}")
            continue
        for number, task in enumerate(tasks):
            done = place * len(tasks) + number
            left = f" · about {np.mean(seconds) * (total - done) / 60:.0f} min left" if seconds else ""
            title = task.metadata.name
            cached = cache.load_task_result(title, encoder.mteb_model_meta) is not None
            say(f"{done + 1} of {total}: {name} · {title}{' · kept' if cached else left}")
            began = time.perf_counter()
            found = mteb.evaluate(encoder, [task], cache=cache, raise_error=False, show_progress_bar=False)
            if not found.task_results:
                why = found.exceptions[0].exception if found.exceptions else "mteb gave no result"
                failed.append(f"{name} · {title}: {' '.join(str(why).split())[:200]}")
                continue
            if not cached:
                seconds.append(time.perf_counter() - began)
            score = 100 * float(found.task_results[0].get_score())
            rows.append({"model": name, "task": title, "type": str(task.metadata.type), "score": score})
    made = provenance(settings={"benchmark": benchmark, "models": list(models), "tasks": len(tasks)})
    del made["clouds"]
    return BenchmarkScores(benchmark, os.fspath(output), tuple(rows), tuple(failed), provenance=made)


@arguments.encoder_options(without=("role", "revision"))
def mteb(
    models: Annotated[list[str], argument("MODEL...", "Hub names, folders, built-in models, or ORG/NAME=SOURCE.")],
    output: Annotated[
        Path, to_folder("Folder for mteb's results; tasks already there are not run again.", "--output", "-o")
    ],
    benchmark: Annotated[str, option("NAME", "A benchmark of mteb.", "--benchmark")] = BENCHMARK,
    task: Annotated[list[str] | None, option("NAME", "Run only this task; may be repeated.", "--task")] = None,
    details: arguments.Details = False,
    json: arguments.Json = None,
    *,
    options: dict[str, Any],
) -> None:
    """How do models score on a benchmark of mteb, MTEB(eng, v2) by default?

    Example: poolscope lab mteb builtin:minilm -o scores

    One file a task, in mteb's own form: a run that was stopped goes on, and a task that fails leaves the others. The
    folder is what `poolscope lab paper socm --figure 5 --texts scores=FOLDER` and `poolscope lab correlate` read.
    Exit code 1: no scores.
    """
    tasks = benchmark_tasks(benchmark, task or ())
    named = {each.partition("=")[0]: each.partition("=")[2] or each for each in models}
    with folder_to_write(output):
        result = run_benchmark(named, tasks, output, benchmark=benchmark, say=tell, **options)
    screen = Screen(json, details=details)
    screen.print_in_words(result)
    rows = [
        (row["model"], str(row["tasks"]), f"{row['mean_of_tasks']:.2f}", f"{row['mean_of_types']:.2f}")
        for row in result.means()
    ]
    screen.print_rows(("model", "tasks", "mean of tasks", "mean of types"), rows, words=1)
    if screen.shows_details():
        scores = ((row["model"], row["task"], row["type"], f"{row['score']:.2f}") for row in result.scores)
        screen.print_rows(("model", "task", "type", "score"), scores, words=3)
    screen.put_result(result, json=json)
    if not result.scores:
        raise typer.Exit(NO_SCORES)
