"""`poolscope audit` explains misses, `fix` cures them, `compare` joins audits, `calibrate` checks the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, received, switch, to_card, to_file, to_folder
from poolscope.errors import InputError, did_you_mean
from poolscope.show.screen import SCREEN, Screen, is_quiet, put_json

if TYPE_CHECKING:
    from poolscope.auditing.compare import AuditChange
    from poolscope.auditing.watch import Watch

FAIL_ON = ("fix", "look", "unchecked")
BEYOND = 1  # the exit code where a level is as serious as --fail-on says


@arguments.encoder_options()
@arguments.reading_options()
@arguments.engine_options
def audit(
    context: typer.Context,
    model: arguments.ModelOrVectors = arguments.MODEL,
    texts: arguments.Texts = None,
    queries: arguments.Queries = None,
    query_columns: arguments.QueryColumns = None,
    query_prompt: Annotated[str | None, option("TEXT", "Prefix of every query, instead of the model's own.")] = None,
    output: Annotated[
        Path, option("FOLDER", "Folder for audit.json, the tables and report.html.", "--output", "-o")
    ] = Path("poolscope-audit"),
    no_page: Annotated[bool, switch("Write no report.html.", "--no-page")] = False,
    no_files: Annotated[bool, switch("Print the screen only, and write nothing.", "--no-files")] = False,
    details: Annotated[bool, switch("Show whole sentences, every cure and every yardstick.", "--details")] = False,
    json: arguments.Json = None,
    card: Annotated[
        Path | None, to_card("A card for a pull request (.md, .svg, .png), or a badge (.json).", "--card")
    ] = None,
    junit: Annotated[Path | None, to_file("Write JUnit for CI (.xml).", "--junit")] = None,
    sarif: Annotated[Path | None, to_file("Write SARIF for CI (.sarif).", "--sarif")] = None,
    annotate: Annotated[bool, switch("Print annotations of a GitHub workflow.", "--annotate")] = False,
    fail_on: Annotated[
        str | None, option("fix|look|unchecked", "For CI: exit with 1 if a cause has this level.")
    ] = None,
    against: Annotated[list[str] | None, option("MODEL", "Compare with another model; may be repeated.")] = None,
    top: Annotated[int, option("K", "A query is found if a relevant text is in the top K.", min=1)] = 10,
    matters: Annotated[float, option("X", "Smallest gain in nDCG that is worth having.")] = 0.01,
    no_encode: Annotated[bool, switch("Skip cures that re-encode texts.", "--no-encode")] = False,
    vectors: Annotated[
        Path | None, option("FILE", "Vectors of the same texts from your server (.npy, .npz, .parquet).")
    ] = None,
    vector_column: Annotated[
        str | None, option("NAME", "Vectors as MODEL: the column or field that holds them.")
    ] = None,
    distance: Annotated[
        str | None, option("cosine|dot|l2", "Vectors as MODEL: the distance that your search uses.")
    ] = None,
    reference: Annotated[
        str | None,
        option("MODEL", "Vectors as MODEL: the model that made them. It encodes queries and a sample of texts."),
    ] = None,
    server_model: Annotated[str | None, option("NAME", "Server as MODEL: the name that it gives the model.")] = None,
    key_variable: Annotated[
        str | None, option("NAME", "Server as MODEL: environment variable that holds its key.")
    ] = None,
    group: arguments.Group = None,
    no_cache: arguments.NoCache = False,
    *,
    where: dict[str, Any],
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Which queries miss, why, and what is proven to help.

    Example: poolscope audit sentence-transformers/all-MiniLM-L6-v2 texts.jsonl --queries queries.jsonl

    Without arguments: the built-in model on 1,000 built-in texts. Without --queries, queries are made from the
    texts. MODEL may also be vectors in a file or a vector store, or the address of a server.
    """
    from poolscope.auditing.commands import PIPE, Called, calling
    from poolscope.auditing.screen import print_screen
    from poolscope.cli.inputs import read_asked
    from poolscope.connectors import is_index
    from poolscope.connectors.base import without_secrets
    from poolscope.encoders.sources import as_vector_source, is_address
    from poolscope.files import held_folder
    from poolscope.replacing import finish_replacing
    from poolscope.texts.groups import document_columns

    if fail_on not in (None, *FAIL_ON):
        raise InputError(
            f"--fail-on {fail_on} is not known. Choose {', '.join(FAIL_ON)}.{did_you_mean(fail_on, FAIL_ON)}"
        )
    if card is not None:
        from poolscope.auditing.card import check_card_path

        check_card_path(card)
    folder = None
    if not no_files:  # what would stop the writing is said before the work, and so is another run into the folder
        folder = context.with_resource(held_folder(output))
        finish_replacing(folder)
    screen = Screen(json)
    judgements, texts, id_column = read_asked(queries, query_columns, texts, reading["id_column"])
    reading = {**reading, "id_column": id_column}
    if group is None and texts is not None:
        group, told = document_columns(texts, reading["column"], id_column)
        if is_index(model) and group is None and id_column is None:  # beside vectors ids are for joining
            group = told
        else:
            reading["id_column"] = told
    reading = {**reading, "group": group}
    settings: dict[str, Any] = {
        "queries": judgements,
        "query_prompt": query_prompt,
        "vectors": None if vectors is None else poolscope.read_vectors(vectors).vectors,
        "against": against or (),
        "k": top,
        "matters": matters,
        "encode": not no_encode,
        "cache": not no_cache,
        "engine": arguments.open_engine(where, options),
    }
    called = Called(
        str(output),
        without_secrets(model),
        None if texts == PIPE else texts,
        reading,
        options,
        {
            "queries": queries,
            "query_columns": query_columns,
            "query_prompt": query_prompt,
            "reference": reference,
            "distance": distance,
            "vector_column": vector_column,
            "top": top,
        },
    )
    if not is_address(model) and (server_model or key_variable):
        raise InputError(
            "--server-model, --key-variable: these are for the address of a server as MODEL. Leave them out."
        )
    of_vectors = {"distance": distance, "reference": reference}
    with calling(called):
        if is_index(model):
            chosen = {**reading, "vector_column": vector_column, "distance": distance}
            result = _of_vectors(model, texts, chosen, options, {**settings, "reference": reference})
        elif is_address(model):
            _refuse_for_models(model, vector_column=vector_column)
            named = {"model": server_model, "key_variable": key_variable}
            source = as_vector_source(model, **{name: value for name, value in named.items() if value is not None})
            result = _run(source, texts, reading, options, settings | of_vectors)
        else:
            _refuse_for_models(model, vector_column=vector_column, **of_vectors)
            result = _run(model, texts, reading, options, settings)
    print_screen(result, screen, details=details)
    if folder is not None:
        result.save_into(folder, page=not no_page)
        screen.print(f"\npage: {output / 'report.html'}" if not no_page else f"\nfolder: {output}", soft_wrap=True)
    if json is not None:
        put_json(result.to_dict(), json)
    if card is not None:
        from poolscope.auditing.card import save_card

        save_card(result, card)
    _put_for_ci(result, junit, sarif, annotate=annotate, texts=texts)
    screen.name_written(json, card, junit, sarif)
    if fail_on is not None and is_beyond(result, fail_on):
        screen.print(f"a cause is {fail_on} or worse (--fail-on {fail_on})", style="red")
        raise typer.Exit(BEYOND)


def _put_for_ci(
    result: Any, junit: Path | None, sarif: Path | None, *, annotate: bool, texts: str | None = None
) -> None:
    """Write JUnit and SARIF, and print annotations, as far as they were asked for."""
    from poolscope.auditing.ci import save_for_ci, workflow_lines

    save_for_ci(result, junit_file=junit, sarif_file=sarif, texts=texts)
    for line in workflow_lines(result) if annotate else ():
        typer.echo(line)


def is_beyond(result: poolscope.Audit, fail_on: str) -> bool:
    """Is a cause as serious as was said? What was not looked at counts for nothing."""
    from poolscope.show.verdicts import LEVELS

    looked = [finding.level for finding in result.findings if finding.reason != "not looked at"]
    return any(LEVELS.index(level) >= LEVELS.index(fail_on) for level in looked)


def _refuse_for_models(model: str, **chosen: str | None) -> None:
    from poolscope.connectors.base import without_secrets

    if useless := received(chosen):
        raise InputError(
            f"{', '.join(useless)}: this is for vectors, and {without_secrets(model)} was taken for a model. Leave it "
            f"out, or name a file of vectors, or a store as in chroma:FOLDER/collection."
        )


def _of_vectors(
    source: str, texts: str | None, reading: Mapping[str, Any], options: Mapping[str, Any], settings: Mapping[str, Any]
) -> poolscope.Audit:
    """Read the vectors and the texts beside them; columns belong to the file of texts where there is one."""
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
    """What shows the phases while an audit runs: a line on a terminal, elsewhere one a minute."""
    from poolscope.auditing.watch import Bar, Minutes

    console = Screen(SCREEN)  # standard error
    return None if is_quiet() else Bar(console) if console.is_terminal else Minutes()


def _run(
    model: Any,
    texts: str | None,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> poolscope.Audit:
    """Read, encode and try, with a line that names what is done and gives way to the result."""
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
    output: Annotated[
        Path | None, to_folder("Folder for comparison.json and comparison.parquet.", "--output", "-o")
    ] = None,
    json: arguments.Json = None,
    junit: Annotated[Path | None, to_file("Write JUnit for CI (.xml).", "--junit")] = None,
    sarif: Annotated[Path | None, to_file("Write SARIF for CI (.sarif).", "--sarif")] = None,
    annotate: Annotated[bool, switch("Print annotations of a GitHub workflow.", "--annotate")] = False,
    details: arguments.Details = False,
    fail_on: Annotated[
        str | None,
        option("worse", "For CI: exit with 1 if a search is worse than the first beyond chance, or has a new cause."),
    ] = None,
) -> None:
    """Does another audit find more than the first, on the same queries?

    Example: poolscope compare before after --fail-on worse

    Audits are joined by query: chunks, models and stores may differ.
    """
    from poolscope.auditing.screen import LEVEL_WORDS
    from poolscope.show.verdicts import LEVEL_COLOURS

    if fail_on not in (None, "worse"):
        raise InputError(f"--fail-on {fail_on} is not known. Choose worse.")
    screen = Screen(json, details=details)
    result = poolscope.compare(*audits)
    for change in result.changes:
        for place, sentence in enumerate(change.in_words()):
            screen.say(sentence, style="bold" if place == 0 else None)
        rows = (
            (title, LEVEL_WORDS[before], Text(LEVEL_WORDS[after], LEVEL_COLOURS[after]))
            for title, before, after in change.levels
        )
        if change.levels:
            screen.print_rows(("cause", change.first, change.second), rows, words=3, show_edge=False)
    if screen.shows_details():
        for change in result.changes:
            screen.print_numbers([*change.summary_rows(), *_moved(change)])
    if output is not None:
        result.save(output)
    screen.put_result(result, json=json)
    _put_for_ci(result, junit, sarif, annotate=annotate)
    screen.name_written(output, junit, sarif)
    if fail_on is not None and (worse := result.worse()):
        screen.print(f"worse than {result.names[0]} (--fail-on worse): {', '.join(worse)}", style="red")
        raise typer.Exit(BEYOND)


def _moved(change: AuditChange) -> list[tuple[str, str]]:
    """The queries that one of two audits finds and the other does not."""
    sides = (("found only now", change.rescued), ("no longer found", change.broken))
    return [(words if place == 0 else "", query) for words, side in sides for place, query in enumerate(side)]


# -- fix --------------------------------------------------------------------------------------------------------------


def fix(
    audited: Annotated[Path, argument("AUDIT", "The folder that `poolscope audit --output` wrote.")],
    cure: Annotated[
        str | None, option("NAME", "The cure to carry out (default: the one that the audit proposes).")
    ] = None,
    output: Annotated[Path, to_folder("Folder for the results; nothing is changed in place.", "--output", "-o")] = Path(
        "poolscope-fix"
    ),
    into: Annotated[
        str | None, option("PLACE", "Write changed vectors to this new file, or new collection of a vector store.")
    ] = None,
    dry_run: Annotated[bool, switch("Only say what would be written.", "--dry-run")] = False,
    trust: Annotated[bool, switch("Open files that an audit made by someone else names.", "--trust")] = False,
    json: arguments.Json = None,
) -> None:
    """Carry out the cure of an audit, and audit again with the same queries.

    Example: poolscope fix poolscope-audit --cure maxsim

    Writes what the cure needs: chunks, changed vectors with a repair file, offsets of texts, or a setting. --into takes
    .npy, .npz and .parquet files, and new collections of FAISS, LanceDB, Chroma, Qdrant and Postgres.
    """
    screen = Screen(json)
    result = poolscope.fix(audited, output, cure=cure, into=into, dry_run=dry_run, trust=trust, progress=_watch())
    screen.say(result.does, style="bold")
    for sentence in result.in_words():
        screen.say(sentence)
    screen.put_result(result, json=json)
    if not dry_run:
        screen.name_written(*result.files)


# -- calibrate --------------------------------------------------------------------------------------------------------


@arguments.encoder_options()
def calibrate(
    texts: Annotated[str, argument("TEXTS", "File, folder, hub data set or built-in texts.")],
    model: Annotated[str, option("MODEL", "Hub name, folder, ONNX file or built-in model.", "--model")] = (
        arguments.MODEL
    ),
    queries: arguments.Queries = None,
    query_columns: arguments.QueryColumns = None,
    column: Annotated[str | None, option("NAME", "Column of the texts.")] = None,
    id_column: arguments.IdColumn = None,
    text_count: Annotated[int, option("N", "Texts that each run draws.", "--texts", min=20)] = 300,
    query_count: Annotated[int, option("N", "Queries that each run draws.", "--queries-count", min=10)] = 100,
    runs: Annotated[int, option("N", "Runs of each world.", min=1)] = 20,
    world: Annotated[list[str] | None, option("NAME", "Run only this world; may be repeated.")] = None,
    seed: arguments.Seed = 0,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write one row per world (.parquet, .csv).", "--table")] = None,
    *,
    options: dict[str, Any],
) -> None:
    """How often is the audit wrong? Worlds made from your texts answer.

    Example: poolscope calibrate texts.jsonl --queries queries.jsonl --runs 50

    In some worlds there is nothing to find, and fix is a false alarm. In others a cause is planted, which should be
    named first. Without --queries, queries are made from the texts.
    """
    from poolscope.auditing.calibration import calibration_cells
    from poolscope.auditing.worlds import WORLDS
    from poolscope.cli.inputs import counting_progress, read_asked

    screen = Screen(json)
    judgements, source, ids = read_asked(queries, query_columns, texts, id_column)
    corpus = poolscope.read_texts(source or texts, column=column, id_column=ids)
    total = runs * len(world or WORLDS)
    with counting_progress("calibrating", total, "runs") as done:
        result = poolscope.calibrate(
            corpus,
            model,
            queries=judgements,
            text_count=text_count,
            query_count=query_count,
            runs=runs,
            worlds=world,
            seed=seed,
            progress=done,
            **options,
        )
    screen.print_in_words(result)
    made = f" (self-made from {result.self_made}s)" if result.self_made else ""
    name = result.model.rpartition("/")[2]
    screen.say(f"{name} · {result.texts:,} texts · {result.queries:,} queries{made} a run", style="dim")
    screen.print_rows(
        ("world", "planted", "runs", "fix", "named first"), map(calibration_cells, result.worlds), words=2
    )
    screen.put_result(result, json=json, table=table)
