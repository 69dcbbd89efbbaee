"""Scores of models from a local folder of MTEB results, through mteb's own loader."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, require
from poolscope.research.correlate.model_records import ModelRecord, ModelRecords

# What the card of a model in MTEB calls the traits.
_TRAITS = {"parameters": "n_parameters", "dimension": "embed_dim"}


def read_mteb_results(
    folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None, benchmark: str | None = None
) -> ModelRecords:
    """Main scores by model and task from a folder of results (model/revision/task.json).

    `folder` is a cache of mteb, a copy of its published results, or the folder `results` in one of them. `tasks` limits
    the tasks; `benchmark`, such as "MTEB(eng, v2)", takes its tasks, splits and languages, as mteb defines them.
    Without it a score is the mean over the splits and languages in the file. Several revisions of a model are joined by
    mteb's rule: the registered revision first, then the newest run.
    """
    cache, remote = _cache(Path(folder))
    if tasks is not None and benchmark is not None:
        raise InputError("received tasks and a benchmark; a benchmark has its tasks. Leave out one of the two.")
    results = cache.load_results(
        tasks=list(tasks) if tasks is not None else _benchmark(benchmark),
        require_model_meta=False,
        include_remote=remote,
        validate_and_filter=benchmark is not None,
    ).join_revisions()
    scores: dict[str, dict[str, float]] = {}
    traits: dict[str, dict[str, float]] = {}
    for result in results:
        own = scores.setdefault(result.model_name, {})
        own |= {task.task_name: float(task.get_score()) for task in result.task_results}
        traits.setdefault(result.model_name, {}).update(_traits(result.model_meta))
    if not scores:
        asked = "" if tasks is None and benchmark is None else f" of {benchmark or ', '.join(tasks or ())}"
        raise InputError(
            f"{folder}: no results{asked} were found; needed: results/ORGANISATION__MODEL/REVISION/TASK.json in it. "
            f"Name the folder that holds 'results'."
        )
    records = tuple(ModelRecord(name, numbers, traits=traits[name]) for name, numbers in sorted(scores.items()))
    return ModelRecords(str(folder), records, tasks=True)


def _cache(folder: Path) -> tuple[Any, bool]:
    """mteb's cache around the folder, and whether its copy of the published results belongs to what was asked."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: there is no such folder. Name a local folder of MTEB results, or a .csv of scores."
        )
    mteb = require("mteb", "mteb")
    if (folder / "results").is_dir() or (folder / "remote" / "results").is_dir():
        return mteb.ResultCache(folder), True
    if folder.name == "results":
        return mteb.ResultCache(folder.parent), False
    raise InputError(
        f"{folder}: received a folder without 'results' or 'remote/results' in it; needed: "
        f"results/ORGANISATION__MODEL/REVISION/TASK.json. Name the folder that holds 'results'."
    )


def _benchmark(name: str | None) -> Any:
    if name is None:
        return None
    try:
        return require("mteb", "mteb").get_benchmark(name)
    except KeyError as error:
        raise InputError(
            f"benchmark: received {name!r}, which mteb does not know ({error.args[0]}). Give a name such as "
            f"'MTEB(eng, v2)'."
        ) from error


def _traits(card: Any) -> dict[str, float]:
    found = {trait: getattr(card, name, None) for trait, name in _TRAITS.items()}
    return {trait: float(value) for trait, value in found.items() if isinstance(value, int | float)}
