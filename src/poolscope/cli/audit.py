"""Verdicts: `poolscope audit` on a model, `compare` on audits beside each other, `runtime` on a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, received, switch, to_file, to_folder
from poolscope.cli.screen import SCREEN, Screen, is_quiet, open_table, put_json
from poolscope.errors import InputError
from poolscope.lines import wrapped

if TYPE_CHECKING:
    from poolscope.auditing.compare import Comparison, DifferenceRow
    from poolscope.auditing.judges import RuntimeCheck
    from poolscope.auditing.screen import Watch

FAIL_ON = ("unchecked", "watch", "repair")
_NAMES = 20  # columns for the words of a difference, beside its numbers
_CAUSES = 5  # of a server that are shown
BEYOND = 1  # the exit code where an answer is as serious as --fail-on says


@arguments.encoder_options()
@arguments.reading_options()
@arguments.engine_options
def audit(
    model: arguments.ModelOrVectors = arguments.MODEL,
    texts: arguments.Texts = None,
    output: Annotated[Path, option("FOLDER", "Where audit.json, tables and report.html go.", "--output", "-o")] = Path(
        "poolscope-audit"
    ),
    no_page: Annotated[bool, switch("No report.html.", "--no-page")] = False,
    no_files: Annotated[bool, switch("The screen only: nothing is written.", "--no-files")] = False,
    details: Annotated[bool, switch("Whole sentences, evidence and steps.", "--details")] = False,
    json: arguments.Json = None,
    fail_on: Annotated[
        str | None, option("unchecked|watch|repair", "Exit with 1 if an answer is that serious, for CI.")
    ] = None,
    vector_column: Annotated[
        str | None, option("NAME", "Vectors alone: their column or field, where it cannot be told.")
    ] = None,
    distance: Annotated[str | None, option("cosine|dot|l2", "Vectors alone: what you search by.")] = None,
    reference: Annotated[
        str | None, option("MODEL", "Vectors alone: the model that made them; some are made again.")
    ] = None,
    server_model: Annotated[str | None, option("NAME", "A server's address as MODEL: its name for the model.")] = None,
    key_variable: Annotated[str | None, option("NAME", "The same: environment variable that holds its key.")] = None,
    vectors: Annotated[
        Path | None, option("FILE", "Vectors of the same texts from your runtime (.npy, .npz, .parquet).")
    ] = None,
    queries: arguments.Queries = None,
    query_columns: arguments.QueryColumns = None,
    query_prompt: Annotated[
        str | None, option("TEXT", "Prefix of every query, not the one that the model declares.")
    ] = None,
    thresholds: arguments.ThresholdFile = None,
    threshold: arguments.ThresholdSettings = None,
    trial: Annotated[int | None, option("N", "Texts that trials of repairs encode anew (0: no trials).", min=0)] = None,
    group: arguments.Group = None,
    precision: Annotated[
        float | None, option("X", "Many texts: draw as many for pairs and trials as intervals of ±X need.")
    ] = None,
    no_cache: arguments.NoCache = False,
    *,
    where: dict[str, Any],
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Every question about MODEL on TEXTS, answered with verdicts, numbers, intervals and floors.

    With nothing: the embedded model on 1,000 texts of the embedded corpus. MODEL may be clouds that `poolscope encode`
    wrote; then TEXTS is left out, and what needs the model is not asked. It may be vectors too, in a file or a vector
    store, with or without TEXTS: all that vectors tell is answered, and the rest says which command would.
    """
    from poolscope.auditing.commands import PIPE, Named, calling
    from poolscope.auditing.question import read_thresholds
    from poolscope.auditing.screen import print_screen
    from poolscope.cli.inputs import read_asked
    from poolscope.connectors import is_index
    from poolscope.connectors.base import without_secrets
    from poolscope.encoders.endpoint import KEY_VARIABLE, is_endpoint
    from poolscope.files import check_folder
    from poolscope.stores.store import is_clouds
    from poolscope.texts.groups import document_columns
    from poolscope.texts.plain import asked_encoding

    if fail_on not in (None, *FAIL_ON):
        raise InputError(f"--fail-on: received {fail_on!r}; allowed: {' or '.join(FAIL_ON)}.")
    if not no_files:  # what would stop the writing is said before the work, not after it
        check_folder(output)
    screen = Screen(json)
    limits = read_thresholds(thresholds, threshold or ())
    judgements, texts, id_column = read_asked(queries, query_columns, texts, reading["id_column"])
    reading = {**reading, "id_column": id_column}
    if group is None and texts is not None:
        group, told = document_columns(texts, reading["column"], id_column)
        if is_index(model) and group is None and id_column is None:  # beside vectors ids are for joining
            group = told
        else:
            reading["id_column"] = told
    reading = {**reading, "group": group}
    settings: dict[str, Any] = {"thresholds": limits, "trial_texts": trial, "cache": not no_cache, "vectors": None}
    if vectors is not None:
        settings["vectors"] = poolscope.read_vectors(vectors).vectors
    settings |= {"queries": judgements, "query_prompt": query_prompt, "precision": precision}
    settings["engine"] = arguments.open_engine(where, options)
    again: dict[str, Any] = {"trial": trial, "vectors": vectors, "threshold": limits.changed}
    again |= {"precision": precision, "vector_column": vector_column, "distance": distance, "reference": reference}
    named = Named(
        without_secrets(model),
        None if texts == PIPE else texts or "",
        {**reading, "encoding": asked_encoding()},
        options,
        {name: value for name, value in again.items() if value is not None},
        clouds=is_index(model) or is_endpoint(model) or is_clouds(model),
        queries=queries or "",
        asking={"query_columns": query_columns, "query_prompt": query_prompt},
    )
    if not is_endpoint(model) and (server_model or key_variable):
        raise InputError(
            "--server-model, --key-variable: these are for the address of a server as MODEL. Leave them out."
        )
    of_vectors = {"distance": distance, "reference": reference}
    with calling(named):
        if is_index(model):
            chosen = {**reading, "vector_column": vector_column, "distance": distance}
            result = _of_vectors(model, texts, chosen, options, {**settings, "reference": reference})
        elif is_endpoint(model):
            _refuse_for_models(vector_column=vector_column)
            source = poolscope.Endpoint(model, model=server_model, key_variable=key_variable or KEY_VARIABLE)
            result = _run(source, texts, reading, options, settings | of_vectors)
        else:
            _refuse_for_models(vector_column=vector_column, **of_vectors)
            result = _run(model, texts, reading, options, settings)
    print_screen(result, screen, details=details)
    if not no_files:
        with Screen(SCREEN).status("writing the page" if not no_page else "writing"):
            result.save(output, page=not no_page)
    if json is not None:
        put_json(result.to_dict(), json)
    if not no_files:
        screen.print(f"page: {output / 'report.html'}" if not no_page else f"folder: {output}", soft_wrap=True)
    screen.name_written(json, None if no_files else output / "audit.json")
    if fail_on is not None and any(answer.verdict.at_least(fail_on) for answer in result.answers):  # type: ignore[arg-type]
        screen.print(f"an answer is {fail_on} or worse (--fail-on {fail_on})", style="red")
        raise typer.Exit(BEYOND)


def _refuse_for_models(**chosen: str | None) -> None:
    if useless := received(chosen):
        raise InputError(f"{', '.join(useless)}: this is for vectors alone, and a model was named. Leave it out.")


def _of_vectors(
    source: str, texts: str | None, reading: Mapping[str, Any], options: Mapping[str, Any], settings: Mapping[str, Any]
) -> poolscope.Audit:
    """Read the vectors, and the texts beside them; columns are those of the texts where these have a file."""
    columns = {name: reading[name] for name in ("column", "id_column", "group")}
    own = columns if texts is None else {}
    names = ("vector_column", "distance", "limit", "seed")
    collection = poolscope.read_index(source, **own, **{name: reading[name] for name in names})
    corpus = None
    if texts is not None:
        corpus = poolscope.read_texts(
            texts, column=columns["column"], id_column=columns["id_column"], label_column=columns["group"]
        )
    try:
        return poolscope.audit(collection, corpus, seed=reading["seed"], progress=_watch(), **{**settings, **options})
    finally:
        collection.close()


def _watch() -> Watch | None:
    """What shows the phases while an audit runs: a bar on a terminal, elsewhere the plan of a large corpus."""
    from poolscope.auditing.screen import Bar, PlanOnly

    console = Screen(SCREEN)  # standard error
    return None if is_quiet() else Bar(console) if console.is_terminal else PlanOnly()


def _run(
    model: Any,
    texts: str | None,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> poolscope.Audit:
    """Read, encode and ask, with a bar that names what is done and gives way to the result."""
    from poolscope.auditing.material import DEFAULT_TEXTS
    from poolscope.cli.inputs import Inputs
    from poolscope.stores.store import is_clouds

    inputs = Inputs(
        str(model), texts, {**reading, "label_column": reading["group"]}, options, Screen(SCREEN), default=DEFAULT_TEXTS
    )
    if isinstance(model, str) and is_clouds(model):
        inputs.refuse_with_clouds()
        return poolscope.audit(model, seed=reading["seed"], progress=_watch(), **settings)
    keep = () if settings["queries"] is None else settings["queries"].named
    with TemporaryDirectory() as spool:
        corpus = replace(inputs.whole_corpus(Path(spool) / "texts", keep=keep), source=texts or arguments.TEXTS)
        groups = corpus.labels if reading["group"] else None  # the embedded corpus has labels of its own
        return poolscope.audit(
            model, corpus, groups=groups, seed=reading["seed"], progress=_watch(), **settings, **options
        )


# -- compare ----------------------------------------------------------------------------------------------------------


def compare(
    audits: Annotated[list[Path], argument("AUDIT...", "Folders that `poolscope audit --output` wrote.")],
    output: Annotated[Path | None, to_folder("Write comparison.json and comparison.html.", "--output", "-o")] = None,
    no_page: Annotated[bool, switch("With --output: no comparison.html.", "--no-page")] = False,
    json: arguments.Json = None,
    fail_on: Annotated[
        str | None, option("worse", "Exit code 1 if a search finds less, or a level is worse beyond chance.")
    ] = None,
) -> None:
    """Two or more audits of the same texts: levels, numbers, and differences to the first with their intervals."""
    from poolscope.auditing.compare import LETTERS

    if fail_on not in (None, "worse"):
        raise InputError(f"--fail-on: received {fail_on!r}; allowed: worse.")
    screen = Screen(json)
    result = poolscope.compare(*audits)
    marks = {name: LETTERS[k] if k < len(LETTERS) else name for k, name in enumerate(result.names)}
    for sentence in result.headlines():
        screen.say(sentence)
    screen.print()
    _print_audits(result, marks, screen)
    _print_levels(result, marks, screen)
    for name in result.names[1:]:
        _print_differences([row for row in result.differences if row.second == name], marks, screen)
    if output is not None:
        result.save(output, page=not no_page)
    screen.put_result(result, json=json)
    screen.name_written(output)
    if fail_on is not None and (worse := result.worse()):
        screen.print(f"worse than {result.names[0]} (--fail-on worse): {'; '.join(worse)}", style="red")
        raise typer.Exit(BEYOND)


def _print_audits(result: Comparison, marks: Mapping[str, str], screen: Screen) -> None:
    """A letter for each audit, and below it what tells it apart."""
    from poolscope.views import word

    facts = result.facts
    told = [name for name in facts if name == "folder" or name.startswith(("setting ", "threshold ", "encoded "))]
    for place, (name, mark) in enumerate(marks.items()):
        screen.print(Text.assemble(f"{mark}  ", (name, "bold")))
        notes = [f"{fact} {word(facts[fact][place])}" for fact in told if facts[fact][place] is not None]
        if notes:
            screen.print(Padding(", ".join(notes), (0, 0, 0, 3)), style="dim")
    screen.print()


def _print_levels(result: Comparison, marks: Mapping[str, str], screen: Screen) -> None:
    """Questions × audits: the level, the number and what it is; marked where the audits measured different things."""
    from poolscope.auditing.compare import common_number
    from poolscope.verdicts import LEVEL_COLOURS

    levels = open_table("Question", *marks.values(), "The number", words=len(marks) + 2)
    for column in levels.columns[:-1]:
        column.no_wrap = True
    marked = False
    for key in result.keys:
        answers = {name: audit[key] for name, audit in result.records.items() if key in audit}
        same = common_number([row for row in result.answers if row["key"] == key])
        marked |= same is None
        cells = []
        for name in marks:
            if name not in answers:
                cells.append(Text("not asked"))
                continue
            verdict, form = answers[name].verdict, answers[name].number_format or ".3g"
            value = "" if verdict.value is None else f" {verdict.value:{form}}"
            cells.append(Text.assemble((verdict.level, LEVEL_COLOURS[verdict.level]), value))
        told = any(answer.verdict.value is not None for answer in answers.values())
        what = "†" if same is None else same if told else ""
        levels.add_row(f"{result.heading(key)}{' †' if same is None else ''}", *cells, Text(what, style="dim"))
    screen.print_table(levels)
    if marked:
        note = (
            "† These audits measured different things here, so that these numbers cannot be subtracted; what can be "
            "stands below, and the page (--output) names each."
        )
        screen.say(note, style="dim")


def _print_differences(rows: Sequence[DifferenceRow], marks: Mapping[str, str], screen: Screen) -> None:
    """One audit minus the first: what differs beyond chance, then the rest, under how the intervals were made."""
    from poolscope.auditing.compare import excludes_zero

    if not rows:
        return
    first, second = marks[rows[0].first], marks[rows[0].second]
    titles = {
        True: "differences beyond chance",
        False: "no difference that can be told from chance",
        None: "no interval, so that nothing can be told",
    }
    for beyond, title in titles.items():
        chosen = [row for row in rows if excludes_zero(row.interval) is beyond]
        if not chosen:
            continue
        screen.print(f"{second} minus {first}: {title} ({len(chosen)} of {len(rows)})", style="bold")
        screen.print(_columns("", first, second, "difference", "95 % interval", screen.width), soft_wrap=True)
        for way in dict.fromkeys(row.how for row in chosen):
            screen.say(f"Interval: {way}", "  ", style="dim")
            for row in (row for row in chosen if row.how == way):
                screen.print(_difference(row, screen.width), soft_wrap=True)
        screen.print()


def _difference(row: DifferenceRow, width: int) -> str:
    interval = row.interval
    reach = "none" if interval is None else f"[{_four(interval.low, '+')}, {_four(interval.high, '+')}]"
    return _columns(
        row.words, _four(row.first_value), _four(row.second_value), _four(row.difference, "+"), reach, width
    )


def _four(value: float, sign: str = "") -> str:
    """Four decimals, fewer of large numbers, and two digits of very small ones.

    >>> _four(0.25), _four(-1234.5, "+"), _four(0.000061)
    ('0.2500', '-1,234', '6.1e-05')
    """
    if 0 < abs(value) < 0.001:
        return f"{value:{sign}.1e}"
    return f"{value:{sign},.{4 if abs(value) < 100 else 0}f}"


def _columns(words: str, first: str, second: str, difference: str, interval: str, width: int) -> str:
    """One line of the differences; words that are too long for their column go on below."""
    numbers = f"  {first:>8}  {second:>8}  {difference:>10}  {interval:>20}"
    room = width - len(numbers) - 2
    if room < _NAMES:  # a narrow screen: the numbers stand below the words
        return "\n".join(filter(None, [wrapped(words, width, "  ", hanging="  "), f"  {numbers}"]))
    head, *others = wrapped(words, room).splitlines() or [""]
    return "\n".join([f"  {head:<{room}}{numbers}", *(f"    {other}" for other in others)])


# -- runtime ----------------------------------------------------------------------------------------------------------


@arguments.encoder_options(without=("device", "batch_tokens"))
@arguments.reading_options()
def runtime(
    url: Annotated[str, argument("URL", "Server: /v1/embeddings (OpenAI), /embed (TEI) or /api/embed (Ollama).")],
    texts: arguments.Texts = None,
    reference: Annotated[
        str, option("MODEL", "What it is said to run: hub name, folder, ONNX or GGUF file.")
    ] = arguments.MODEL,
    server_model: Annotated[str | None, option("NAME", "The server's name for the model.", "--model")] = None,
    protocol: Annotated[
        str | None, option("openai|tei|ollama", "How it is spoken to, where the address does not tell.")
    ] = None,
    key_variable: Annotated[str, option("NAME", "Environment variable that holds the key.")] = "POOLSCOPE_API_KEY",
    served: Annotated[
        Path | None, option("PATH", "File or folder that it loads, to compare what that declares.")
    ] = None,
    dimensions: Annotated[int | None, option("N", "Ask for so many dimensions.", min=1)] = None,
    batch: Annotated[int, option("N", "Texts of a request.", min=1)] = 16,
    concurrency: Annotated[int, option("N", "Requests at a time.", min=1)] = 4,
    retries: Annotated[int, option("N", "How often a failed request is tried again.", min=0)] = 4,
    timeout: Annotated[float, option("SECONDS", "Time limit of a request.", min=0.1)] = 60.0,
    fail_on: Annotated[
        str, option("never|unchecked|watch|repair", "Exit with 1 if the verdict is that serious.")
    ] = "repair",
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write all causes (.parquet or .csv).")] = None,
    thresholds: arguments.ThresholdFile = None,
    threshold: arguments.ThresholdSettings = None,
    *,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Send probes to the server at URL, and say whether its vectors are those of MODEL; if not, what it does instead.

    Each cause is computed from MODEL: pooling, prompt, truncation, padding, special tokens, missing modules,
    dimensions, rounding, order. TEXTS are sent beside the built-in probes. A key is read from an environment variable
    and kept nowhere.
    """
    from poolscope.auditing.judges import MOST_TEXTS
    from poolscope.auditing.question import read_thresholds
    from poolscope.cli.inputs import Inputs, counting_progress

    if fail_on not in ("never", *FAIL_ON):
        raise InputError(f"--fail-on: received {fail_on!r}; allowed: never, {', '.join(FAIL_ON)}.")
    screen = Screen(json)
    limits = read_thresholds(thresholds, threshold or ())
    corpus = None
    if texts is not None:
        reading = {**reading, "limit": reading["limit"] or MOST_TEXTS}
        corpus = Inputs(reference, texts, reading, options, screen).corpus(tell=True)
    settings = {"protocol": protocol, "key_variable": key_variable, "batch": batch, "concurrency": concurrency}
    more = {"retries": retries, "timeout": timeout, "dimensions": dimensions}
    with counting_progress("asking", None, "texts") as advance:
        result = poolscope.check_runtime(
            url,
            reference,
            corpus,
            model=server_model,
            served=served,
            thresholds=limits,
            endpoint={**settings, **more},
            progress=lambda count, _: advance(count),
            **options,
        )
    _print_check(result, screen)
    screen.put_result(result, json=json, table=table)
    if fail_on != "never" and result.verdict.at_least(fail_on):  # type: ignore[arg-type]
        screen.print(f"the verdict is {fail_on} or worse (--fail-on {fail_on})", style="red")
        raise typer.Exit(BEYOND)


def _print_check(result: RuntimeCheck, screen: Screen) -> None:
    """One screen: the verdict, the causes that explain best, and what was seen besides."""
    match, verdict = result.match, result.verdict
    screen.print_verdict(verdict)
    told = (
        f"{result.runtime['url']} beside {match.model} · {match.texts} probes of dimension {match.dimension} · "
        f"{result.requests} requests in {result.seconds:.1f} s"
    )
    screen.say(told)
    causes = open_table("what it would be", "cosine", "lowest", "texts explained", words=4)
    for test in sorted((match.own, *match.others[:_CAUSES]), key=lambda test: -test.mean):
        value = "" if test.cosine.value is None else f"{test.mean:.4f}"
        causes.add_row(test.name, value, f"{test.least:.4f}", f"{test.share:.0%} of {test.texts}")
    screen.print_table(causes)
    screen.print_notes(verdict.evidence)
    if verdict.level != "ok":
        screen.print("Next", style="bold")
        screen.say(f"{result.step} ({result.cost})")
