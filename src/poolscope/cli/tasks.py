"""`poolscope tune` and `poolscope evaluate`: a model on a task, as it is and repaired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import TEXTS, option, switch, to_figure, to_file
from poolscope.cli.opening import opened_model
from poolscope.errors import InputError, did_you_mean
from poolscope.show.screen import QUIET, Screen, put_json, signed

if TYPE_CHECKING:
    from poolscope.evaluation import Evaluation, Task
    from poolscope.evaluation.scores import Difference
    from poolscope.numbers.intervals import Interval
    from poolscope.repairs.tune import TuneResult

LABEL_FREE = ("split-half", "summary-body")
LABELLED = ("sts", "retrieval", "classification", "clustering", "reranking", "summarisation")

TaskName = Annotated[
    str, option("TASK", f"What the vectors must be good for: {', '.join((*LABEL_FREE, *LABELLED))}.", "--task")
]
Columns = Annotated[
    str | None,
    option("A[,B[,C]]", "Column of the texts; of a labelled file all columns that the task reads.", "--column"),
]


_TASK_OPTIONS: dict[str, Any] = {
    "task": TaskName,
    "columns": Columns,
    "queries": arguments.Queries,
    "query_columns": arguments.QueryColumns,
    "id_column": arguments.IdColumn,
    "limit": arguments.Limit,
    "seed": arguments.Seed,
}


def task_options(command: arguments.Command) -> arguments.Command:
    """Give a command the options of a task; it receives them as one dictionary, `task_options`."""
    return arguments.gathering(command, "task_options", _TASK_OPTIONS, command, {"task": LABEL_FREE[0]})


def read_chosen_task(texts: str | None, task_options: Mapping[str, Any], limit: int | None, screen: Screen) -> Task:
    """The task of the user's queries, or the one that was named; what was noticed while reading texts is printed."""
    from poolscope.cli.inputs import read_asked
    from poolscope.evaluation import query_task, read_task, summary_body_task

    name, columns, draw = task_options["task"], task_options["columns"], {"limit": limit, "seed": task_options["seed"]}
    if task_options["queries"] is not None:
        if name != LABEL_FREE[0]:
            raise InputError(f"--queries: received --task {name} too; the queries are the task. Leave one out.")
        read, source, id_column = read_asked(
            task_options["queries"], task_options["query_columns"], texts, task_options["id_column"]
        )
        return query_task(source or TEXTS, read, column=columns, id_column=id_column, **draw)
    if task_options["query_columns"] is not None or task_options["id_column"] is not None:
        raise InputError("--query-columns and --id-column go with --queries. Name the file of the queries.")
    if name not in (*LABEL_FREE, *LABELLED):
        tasks = (*LABEL_FREE, *LABELLED)
        raise InputError(f"--task {name} is not known. Choose {', '.join(tasks)}.{did_you_mean(name, tasks)}")
    if name in LABELLED:
        if texts is None:
            raise InputError(f"--task {name}: received no TEXTS; name a file with its labels.")
        return read_task(name, texts, columns=tuple(columns.split(",")) if columns else (), **draw)
    if name == "summary-body":
        if texts not in (None, TEXTS):
            raise InputError(f"--task summary-body: received {texts!r}; it is made of {TEXTS} alone. Leave TEXTS out.")
        return summary_body_task(**draw)
    if columns and "," in columns:
        raise InputError(
            f"--column: received {columns!r}; {name} reads one column of texts. "
            f"Try --column {columns.partition(',')[0]}."
        )
    corpus = poolscope.read_texts(texts or TEXTS, column=columns, **draw)
    screen.print_notes(corpus.report.notes())
    return poolscope.split_half_task(corpus.texts)


# -- tune -------------------------------------------------------------------------------------------------------------

# Units drawn from the built-in corpus, and from texts of the user; both halves together.
BUILTIN_LIMIT, LIMIT = 400, 1_000
_BEST = 5  # candidates that are shown without --details
FAMILIES = "reading,temperature,pooling,vectors"


@arguments.encoder_options(without=("role",))
@task_options
def tune(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    temperatures: Annotated[
        str | None, option("A,B,…", "Attention temperatures to try (default: the published grid).")
    ] = None,
    families: Annotated[
        str, option(FAMILIES, "Families of repairs to try, or single repairs by name.", "--search")
    ] = FAMILIES,
    output: Annotated[Path | None, to_file("Write the recommended repair (.safetensors).", "--output", "-o")] = None,
    force: Annotated[bool, switch("Replace the file of -o; remove it if nothing is recommended.", "--force")] = False,
    details: arguments.Details = False,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw the differences: .html, .png, .svg.")] = None,
    *,
    task_options: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Which repair helps on your texts, if any?

    Example: poolscope tune builtin:minilm texts.jsonl --queries queries.jsonl -o repair.safetensors

    Readings of decoders, attention temperatures, poolings and vector repairs are tried on half of the queries.

    A repair is recommended only if the interval on the half that had no part in choosing it excludes no gain. Otherwise
    there is nothing to repair, or too few queries to tell. Without arguments: the built-in model on the built-in texts.
    """
    from poolscope.cli.inputs import encoding_progress
    from poolscope.repairs.tune import readings_for, texts_to_encode

    screen = Screen(json, seen_first=True, details=details)
    _check_output(output, force=force)
    search = _search(families, temperatures)
    drawn = task_options["limit"] or None
    if task_options["limit"] is None:
        drawn = BUILTIN_LIMIT if texts in (None, TEXTS) else LIMIT
    loaded = read_chosen_task(texts, task_options, drawn, screen)
    encoder = opened_model(model, options)
    readings = len(readings_for(encoder, search.get("readings")))
    with encoding_progress(texts_to_encode(loaded, search.get("temperatures"), readings)) as progress:
        # The rows were drawn when the file was read; the limit is named again for the record.
        result = poolscope.tune(encoder, loaded, limit=drawn, seed=task_options["seed"], progress=progress, **search)
    print_result(result, screen)
    if output is not None and result.recommendation is None:
        older = ", and the older file of that name is removed" if output.exists() else ""
        output.unlink(missing_ok=True)
        screen.print(f"{output} is not written{older}: {result.outcome}.")
    elif output is not None and result.recommendation is not None:
        result.recommendation.save(output)
        screen.name_written(output)
    screen.put_result(result, json=json, figure=figure)


def _check_output(output: Path | None, *, force: bool) -> None:
    if output is not None and output.suffix != ".safetensors":
        raise InputError(
            f"--output: received {output.name}; a repair is a .safetensors file. Try {output.stem}.safetensors."
        )
    if output is not None and output.exists() and not force:
        raise InputError(
            f"--output: {output} exists already; where nothing is recommended nothing is written, and it would pass "
            f"for the result of this run. Name another file, or pass --force, which replaces or removes it."
        )


def _search(named: str, temperatures: str | None) -> dict[str, Any]:
    """The arguments of `tune` that say what is searched: whole families, and of others the repairs that are named."""
    from poolscope.extensions import load_extensions
    from poolscope.repairs.registry import FAMILIES as KNOWN
    from poolscope.repairs.registry import REPAIRS
    from poolscope.repairs.temperature.rules import checked_temperature

    load_extensions()
    names = dict.fromkeys(part.strip() for part in named.split(","))
    if unknown := [name for name in names if name not in (*KNOWN, *REPAIRS)]:
        raise InputError(
            f"--search {', '.join(unknown)} is not known. Choose {', '.join(KNOWN)}, or repairs with commas between: "
            f"{', '.join(REPAIRS)}.{did_you_mean(unknown[0], (*KNOWN, *REPAIRS))}"
        )
    keywords = {"reading": "readings", "temperature": "temperatures", "pooling": "poolings", "vectors": "repairs"}
    search: dict[str, Any] = {}
    for family in KNOWN:
        if family not in names:
            rows = [REPAIRS[name] for name in names if name in REPAIRS and REPAIRS[name].family == family]
            search[keywords[family]] = [part for row in rows for part in row.candidates()]
    if "temperature" in names and temperatures is not None:
        numbers = arguments.parse_numbers(temperatures, "--temperatures", float, "0.8,0.9")
        search["temperatures"] = [checked_temperature(tau, subject="--temperatures") for tau in numbers]
    return search


def print_result(result: TuneResult, screen: Screen) -> None:
    """The verdict, and the table of the best candidates; with details of all, and the evidence of the verdict."""
    from poolscope.show.verdicts import LEVEL_COLOURS

    screen.say(result.verdict.sentence, style=LEVEL_COLOURS[result.verdict.level])
    chosen = result.chosen_on
    screen.name_origin(f"{result.model} · {chosen.task} · {len(chosen.observations):,} {chosen.unit} chose", ())
    screen.release()
    rows = result.rows()
    best = [row for place, row in enumerate(rows) if screen.details or row["selected"] or place < _BEST]
    as_it_is = ("the model as it is", f"{chosen.value:.3f}", "", "", "")
    screen.print_rows(
        ("candidate", chosen.metric, "change", "95% interval", "cost"),
        [as_it_is, *(_cells(row, result.width) for row in best)],
        words=1,
        show_edge=False,
    )
    if len(best) < len(rows):
        screen.say(f"{len(rows) - len(best):,} more candidates gain less.", style=QUIET)
    if screen.shows_details():
        for sentence in result.verdict.evidence:
            screen.say(sentence)
        screen.say("The half that chose compares candidates; only the other half proves a gain.")
        screen.print_notes(result.notes, indent="")


def _cells(row: dict[str, Any], width: int | None) -> tuple[str, ...]:
    """A candidate as a row of the table."""
    interval = "–" if row["low"] is None else f"[{signed(row['low'])}, {signed(row['high'])}]"
    name = f"{'→ ' * bool(row['selected'])}{row['candidate']}"
    return (name, f"{row['score']:.3f}", signed(row["difference"]), interval, _cost(row, width))


def _cost(row: dict[str, Any], width: int | None) -> str:
    """What a candidate costs beyond the model as it is: tokens that are read, numbers of a vector; empty for nothing.

    >>> _cost({"reads": 2.04, "width": 192}, 576)
    '2.0 × tokens, 192 numbers'
    """
    read, size = row["reads"], row["width"]
    parts = [] if read is None or read == 1 else [f"{read:.1f} × tokens"]
    parts += [] if size is None or size == width else [f"{size:,} numbers"]
    return ", ".join(parts)


# -- evaluate ---------------------------------------------------------------------------------------------------------

# Units drawn from the built-in corpus when the user names no texts.
DEFAULT_LIMIT = 500


@arguments.encoder_options(without=("role",))
@task_options
def evaluate(
    model: arguments.Model = arguments.MODEL,
    texts: arguments.Texts = None,
    repair: Annotated[Path | None, option("FILE", "Compare with a repair that `poolscope tune -o` wrote.")] = None,
    temperature: arguments.Temperature = None,
    pooling: Annotated[str | None, option("NAME", "Compare with another pooling, such as max or cls.")] = None,
    details: arguments.Details = False,
    json: arguments.Json = None,
    *,
    task_options: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """How well does a model search, with and without a repair?

    Example: poolscope evaluate builtin:minilm texts.jsonl --queries queries.jsonl --pooling max

    split-half (one half of a text finds the other) and summary-body (the built-in texts) need no labels. The
    others read a file: sts the columns sentence1, sentence2 and score, retrieval query and document, classification and
    clustering text and label. reranking reads query, positive and negative, summarisation machine_summaries,
    human_summaries and relevance.
    """
    screen = Screen(json, seen_first=True, details=details)
    chosen = _repair(repair, temperature, pooling)
    drawn = DEFAULT_LIMIT if task_options["limit"] is None and texts in (None, TEXTS) else task_options["limit"] or None
    loaded = read_chosen_task(texts, task_options, drawn, screen)
    content = _before_and_after(model, loaded, chosen, options=options, screen=screen)
    content["provenance"]["settings"] |= {"limit": drawn, "seed": task_options["seed"]}
    if json is not None:
        put_json(content, json)
        screen.name_written(json)


def _repair(file: Path | None, temperature: str | None, pooling: str | None) -> poolscope.Repair | None:
    from poolscope.repairs.temperature.rules import rule_from_words

    if file is None:
        rule = None if temperature is None else rule_from_words(temperature)
        chosen = None if rule is None and pooling is None else poolscope.Repair(rule, pooling)
        if chosen is not None and chosen.pooling is not None and chosen.pooling.learns:
            raise InputError(
                f"--pooling: received {pooling!r}, which must be fitted on texts first; allowed: poolings that learn "
                f"nothing, such as cls or max. Use `poolscope tune`, which fits it, and --repair with its file."
            )
        return chosen
    if temperature is not None or pooling is not None:
        raise InputError("--repair: received --temperature or --pooling too; the file holds both. Leave one out.")
    return poolscope.Repair.load(file)


def _before_and_after(
    model: str, task: Any, repair: poolscope.Repair | None, *, options: dict[str, Any], screen: Screen
) -> dict[str, Any]:
    from poolscope.evaluation.run import PROMPT_CHOICES
    from poolscope.results import plain, provenance

    proved = {} if repair is None else dict(repair.options)
    if any(name in options for name in PROMPT_CHOICES):  # at most one of them can be asked for
        proved = {name: value for name, value in proved.items() if name not in PROMPT_CHOICES}
    options = {**proved, **options}
    encoder = opened_model(model, options)
    before = poolscope.evaluate(poolscope.Repair().apply(encoder), task)
    after = None if repair is None else poolscope.evaluate(repair.apply(encoder), task)
    difference = None if after is None else poolscope.compare_scores(before, after)
    for sentence in (*before.in_words(), *(() if difference is None else difference.in_words())):
        screen.say(sentence)
    screen.name_origin(f"{encoder.card.name} · {task.name} · {_counts(before)}", before.notes)
    chose = set() if repair is None else set(before.names) & set(repair.evidence.get("chosen_by", ()))
    if chose:
        also = f"{len(chose):,} of these {len(before.names):,} {before.unit} had a part in choosing the repair"
        screen.print_notes([f"{also}, which flatters it: what it wins for others is what `poolscope tune` reported."])
    if proved:
        screen.print_notes([f"Encoded as the repair was proved: {proved}."])
    screen.release()
    labels = [poolscope.Repair().label, *([] if repair is None else [repair.label])]
    _print_scores(labels, [before, *([] if after is None else [after])], difference, screen)
    origin = provenance(settings=options)
    del origin["clouds"]
    content = {"model": encoder.card.to_dict(), "before": before.to_dict(), "provenance": plain(origin)}
    if repair is None or after is None or difference is None:
        return content
    return {**content, "repair": repair.label, "after": after.to_dict(), "difference": plain(difference)}


def _counts(evaluation: Evaluation) -> str:
    searched = "" if evaluation.searched is None else f" · {evaluation.searched:,} documents"
    return f"{len(evaluation.observations):,} {evaluation.unit}{searched}"


def _print_scores(
    labels: Sequence[str], evaluations: Sequence[Evaluation], difference: Difference | None, screen: Screen
) -> None:
    """The score as it is and repaired, with intervals; with details by every measure."""
    first = evaluations[0]
    rows = [
        (label, f"{each.value:.4f}", _ends(each.interval(), each.why_no_interval(), ".4f"))
        for label, each in zip(labels, evaluations, strict=True)
    ]
    if difference is not None:
        ends = _ends(difference.interval, difference.change.no_interval or "no interval", "+z.4f")
        rows.append(("change", signed(difference.mean, 4), ends))
    unit = getattr(first.interval(), "unit", first.unit)
    screen.print_rows(("", first.metric, f"95% interval over {unit}"), rows, words=1, show_edge=False)
    if first.others and screen.shows_details():
        others = ((name, *(f"{each.others[name].mean():.4f}" for each in evaluations)) for name in first.others)
        screen.print_rows(("also measured", *labels), others, words=1, show_edge=False)


def _ends(interval: Interval | None, why: str, form: str) -> str:
    """Both ends of an interval, or why there is none."""
    ends = f"({why})" if interval is None else f"[{interval.low:{form}}, {interval.high:{form}}]"
    return ends.replace("-", "−")
