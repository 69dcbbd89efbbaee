"""`poolscope evaluate`: how good a model's vectors are on a task, and what a repair changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolscope.cli import arguments
from poolscope.cli.outputs import name_written, put_json
from poolscope.cli.tasks import Columns, TaskName, load_task, print_notes
from poolscope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from poolscope.evaluation import Difference, Evaluation
    from poolscope.repairs.repair_file import Repair

# Units drawn from the built-in corpus when the user names no texts.
DEFAULT_LIMIT = 500


@arguments.encoder_options(without=("role",))
def evaluate(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    task: TaskName = "split-half",
    columns: Columns = None,
    repair: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A repair that `poolscope tune -o` wrote, to compare with.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="TAU", help="An attention temperature, to compare with.")
    ] = None,
    pooling: Annotated[str | None, typer.Option(metavar="NAME", help="Another pooling, to compare with.")] = None,
    json: arguments.Json = None,
    limit: arguments.Limit = None,
    seed: arguments.Seed = 0,
    *,
    options: dict[str, Any],
) -> None:
    """The score of a model on a task with its interval; with a repair, both and the paired difference.

    split-half (one half of a text finds the other) and summary-body (the embedded corpus) need no labels. sts,
    retrieval, classification and clustering read a file: sentence1, sentence2, score; query, document; text, label.
    """
    from rich.console import Console

    screen = Console(stderr=json == "-", soft_wrap=False)
    chosen = _repair(repair, temperature, pooling)
    drawn = (DEFAULT_LIMIT if texts in (None, arguments.TEXTS) else None) if limit is None else limit or None
    loaded = load_task(task, texts, columns=columns, limit=drawn, seed=seed, screen=screen)
    content = _run(model, loaded, chosen, options=options, screen=screen)
    content["provenance"]["settings"] |= {"limit": drawn, "seed": seed}
    if json is not None:
        put_json(content, json)
        name_written(screen, json)


def _repair(file: Path | None, temperature: float | None, pooling: str | None) -> Repair | None:
    from poolscope.repairs.repair_file import Repair

    if file is None:
        chosen = None if temperature is None and pooling is None else Repair(temperature, pooling)
        if chosen is not None and chosen.pooling is not None and chosen.pooling.learns:
            raise InputError(
                f"--pooling: received {pooling!r}, which must be fitted on texts first; allowed: poolings that learn "
                f"nothing, such as cls or max. Use `poolscope tune`, which fits it, and --repair with its file."
            )
        return chosen
    if temperature is not None or pooling is not None:
        raise InputError("--repair: received --temperature or --pooling too; the file holds both. Leave one out.")
    return Repair.load(file)


def _run(model: str, task: Any, repair: Repair | None, *, options: dict[str, Any], screen: Console) -> dict[str, Any]:
    from poolscope.encoders import as_encoder
    from poolscope.evaluation import compare_scores
    from poolscope.evaluation import evaluate as evaluate_task
    from poolscope.evaluation.run import PROMPT_CHOICES
    from poolscope.repairs.repair_file import Repair
    from poolscope.results import plain, provenance

    proved = {} if repair is None else dict(repair.options)
    if any(name in options for name in PROMPT_CHOICES):  # at most one of them can be asked for
        proved = {name: value for name, value in proved.items() if name not in PROMPT_CHOICES}
    options = {**proved, **options}
    encoder = as_encoder(model, **options)
    before = evaluate_task(Repair().apply(encoder), task)
    screen.print(f"{encoder.card.name} · {task.name}", highlight=False, markup=False)
    print_notes(before.notes, screen)
    if proved:
        print_notes([f"Encoded as the repair was proved: {proved}."], screen)
    _print(Repair().label, before, screen)
    origin = provenance(settings=options)
    del origin["clouds"]
    content = {"model": encoder.card.to_dict(), "before": before.to_dict(), "provenance": plain(origin)}
    if repair is None:
        return content
    after = evaluate_task(repair.apply(encoder), task)
    difference = compare_scores(before, after)
    _print(repair.label, after, screen)
    screen.print(f"difference {difference}: {_meaning(difference)}", style="bold", highlight=False, markup=False)
    return {**content, "repair": repair.label, "after": after.to_dict(), "difference": plain(difference)}


def _print(label: str, evaluation: Evaluation, screen: Console) -> None:
    others = "".join(f"   {name} {scores.mean():.4f}" for name, scores in evaluation.others.items())
    units = f"{len(evaluation.observations):,} {evaluation.unit}"
    units += "" if evaluation.searched is None else f", {evaluation.searched:,} documents"
    interval = evaluation.interval() or f"({evaluation.why_no_interval()})"
    line = f"{label}: {evaluation.metric} {evaluation.value:.4f} {interval}{others}   ({units})"
    screen.print(line, highlight=False, markup=False)


def _meaning(difference: Difference) -> str:
    if difference.proves_gain:
        return "a gain beyond chance"
    return "a loss beyond chance" if difference.proves_loss else difference.shortage() or "no difference beyond chance"
