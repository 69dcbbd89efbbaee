"""`poolscope length`: do long texts look alike, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, received, switch, to_figure, to_file
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.show.screen import Screen, digits, put_json, with_ends, with_reach

if TYPE_CHECKING:
    from poolscope.cli.inputs import Inputs
    from poolscope.clouds import TokenClouds
    from poolscope.clouds.vectors import Vectors
    from poolscope.engines import Engine
    from poolscope.lab.length.mechanism import LengthMechanism
    from poolscope.lab.length.probes import LengthNulls
    from poolscope.lab.length.report import LengthReport
    from poolscope.lab.length.shift import SemanticShift
    from poolscope.metrics.length.profile import LengthProfile
    from poolscope.metrics.length.search import LengthRetrieval
    from poolscope.stores.store import Store
    from poolscope.texts import Pairs, Queries, Texts

# Pairs for the search that are drawn from the embedded corpus when the user names none.
DEFAULT_PAIRS = 300


@arguments.encoder_options()
@arguments.reading_options(labels=True)
@arguments.engine_options
def length(
    model: Annotated[
        str,
        argument(
            "[MODEL|CLOUDS|VECTORS]",
            "Model, clouds of `poolscope encode`, or a .npy, .npz or .parquet file of pooled vectors.",
        ),
    ] = arguments.MODEL,
    texts: arguments.Texts = None,
    bins: Annotated[
        str | None,
        option("N|EDGES", "N bins with equally many texts (default: up to 20), or their edges: 0,50,100."),
    ] = None,
    min_texts: Annotated[int, option("N", "Merge bins with fewer texts.", min=1)] = 20,
    pairs: Annotated[
        str | None, option("FILE", "Queries with their documents: which lengths win, and is the end found?")
    ] = None,
    queries: arguments.Queries = None,
    temperature: arguments.Temperature = None,
    labels: Annotated[bool, switch("Test how well labels are predicted, by length.", "--labels")] = False,
    probes: Annotated[
        bool, switch("Run null models and probes, which encode more texts.", "--probes/--no-probes")
    ] = True,
    details: arguments.Details = False,
    json: arguments.Json = None,
    table: Annotated[Path | None, to_file("Write one row per bin: .parquet or .csv.")] = None,
    figure: Annotated[Path | None, to_figure("Draw everything: .html, .png, .svg.")] = None,
    *,
    where: dict[str, Any],
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Do long texts look alike, do short ones win, is the end still found?

    Example: poolscope length builtin:minilm texts.jsonl --queries queries.jsonl

    Without arguments: the built-in model on 500 texts and 300 pairs of the built-in corpus. A file of VECTORS needs no
    model; if it holds neither texts nor lengths, name its TEXTS too.
    """
    from poolscope.cli.inputs import Inputs, read_asked
    from poolscope.clouds.vectors import is_vectors
    from poolscope.stores.store import is_clouds
    from poolscope.texts.groups import document_columns

    screen = Screen(json, seen_first=True, details=details)
    settings: dict[str, Any] = {"bins": parse_bins(bins), "min_texts": min_texts, "seed": reading["seed"]}
    engine = arguments.open_engine(where, options, temperature)
    of_models = {
        "pairs": pairs,
        "queries": queries,
        "temperature": temperature,
        "no_probes": None if probes else True,
    }
    if is_clouds(model):
        useless = {"TEXTS": texts, **of_models, **options}
        _refuse({**useless, **{name: reading[name] for name in ("column", "id_column", "limit")}}, model)
        report = _of_clouds(model, engine, labels=labels, settings=settings, screen=screen)
    elif is_vectors(model):
        _refuse({name: value or None for name, value in where.items()}, model)
        _refuse({**of_models, "limit": reading["limit"], **options}, model)
        columns = {name: reading[name] for name in ("column", "id_column", "label_column")}
        report = _of_vectors(model, texts, labels=labels, reading=columns, settings=settings, screen=screen)
    else:
        if queries is not None and pairs is not None:
            raise InputError(
                f"--pairs {pairs} and --queries {queries}: received both; allowed: queries that name texts of TEXTS, "
                f"or pairs with documents of their own. Leave one out."
            )
        judgements, texts, reading["id_column"] = read_asked(queries, None, texts, reading["id_column"])
        group = None
        if texts is not None:
            group, reading["id_column"] = document_columns(texts, reading["column"], reading["id_column"])
        inputs = Inputs(model, texts, reading, options, screen, temperature=temperature)
        corpus = inputs.corpus(tell=True)
        settings |= {
            "probes": probes,
            "pairs": _read_pairs(texts, pairs, seed=reading["seed"], probes=probes)
            if judgements is None
            else _pairs_among(judgements, corpus),
            "groups": _documents(texts, corpus, group, reading["id_column"]),
        }
        report = _of_model(inputs, corpus, engine, labels=labels, settings=settings)
    print_report(report, screen)
    if json is not None:
        put_json(report.to_dict(), json)
    screen.name_written(json)
    screen.put_result(report, table=table, figure=figure)


def parse_bins(text: str | None) -> int | list[float] | None:
    """The bins that an option names.

    >>> parse_bins("8"), parse_bins("0,50,100.5"), parse_bins(None)
    (8, [0.0, 50.0, 100.5], None)
    """
    if text is None:
        return None
    try:
        return int(text) if "," not in text else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--bins: received {text!r}; allowed: a number of quantile bins such as 8, or edges such as 0,50,100,200."
        ) from None


def _refuse(useless: Mapping[str, Any], source: str) -> None:
    if names := received(useless):
        raise InputError(
            f"{source} holds ready vectors, so these cannot apply: {', '.join(names)}. Leave them out, or name a model."
        )


def _of_clouds(
    place: str, engine: Engine | None, *, labels: bool, settings: Mapping[str, Any], screen: Screen
) -> LengthReport:
    """The profile of a store, shard by shard, of any number of texts, or of a file of clouds."""
    from poolscope.cli.inputs import counting_progress, open_store
    from poolscope.lab.length.report import LengthReport
    from poolscope.metrics.length.bins import narrow_edges
    from poolscope.stores.store import is_store, open_clouds

    if labels:
        raise InputError(f"--labels: {place} is a store, whose texts are read once. Name the model and its texts.")
    if isinstance(settings["bins"], int):
        raise InputError(
            f"--bins: received {settings['bins']} quantile bins for a store, whose shards are cut into the same bins "
            f"before all lengths are known. Name edges such as 0,50,100,200."
        )
    if is_store(place):
        store = open_store(place, screen)
        count, measured = len(store), partial(_of_store, store, engine)
    elif engine is None:
        clouds = open_clouds(place)
        count, measured = len(clouds), partial(_of_file, clouds)
        screen.name_origin(f"{count:,} texts of {place}")
    else:
        raise InputError(f"--engine: {place} is one file, which is measured here. Leave the engine out.")
    if settings["bins"] is None:  # the bins of the audit: lengths are counted first
        edges = narrow_edges(*measured("corpus").counted_lengths, min_texts=settings["min_texts"])
        settings = {**settings, "bins": edges}
    with counting_progress("measuring", count, "texts") as progress:
        profile = measured("profile", progress=progress, **settings)
    note = "A store alone: whether plain averaging explains a rise takes the model (poolscope length MODEL TEXTS)."
    return LengthReport(profile=profile, notes=(note,))


def _of_store(store: Store, engine: Engine | None, name: str, **options: Any) -> Any:
    from poolscope.cli.inputs import measure_store
    from poolscope.metrics.base import METRICS

    return measure_store(METRICS[name], engine, store, **options)


def _of_file(clouds: TokenClouds, name: str, *, progress: Callable[[int], None] | None = None, **options: Any) -> Any:
    from poolscope.metrics.base import METRICS

    result = METRICS[name](clouds, **options)
    if progress is not None:
        progress(len(clouds))
    return result


def _of_vectors(
    path: str,
    texts: str | None,
    *,
    labels: bool,
    reading: Mapping[str, Any],
    settings: Mapping[str, Any],
    screen: Screen,
) -> LengthReport:
    from poolscope.clouds.vectors import WORDS
    from poolscope.lab.length.labels import labels_by_length
    from poolscope.lab.length.report import LengthReport
    from poolscope.texts.groups import groups_of_ids

    corpus = None if texts is None else poolscope.read_texts(texts, **reading)
    vectors = _with_texts(path, corpus) if corpus is not None else poolscope.read_vectors(path, **reading)
    if vectors.lengths is None:
        raise InputError(
            f"{path}: received vectors without texts or lengths; one of them is needed. Name the texts as the second "
            f"argument, or save an array 'lengths' beside the vectors."
        )
    names = vectors.labels or (None if corpus is None else corpus.labels)
    if corpus is not None and vectors.unit != WORDS and not (labels and vectors.labels is None):
        raise InputError(f"{path} holds lengths of its own, so TEXTS ({corpus.source}) cannot apply. Leave them out.")
    if labels and names is None:
        raise InputError(f"--labels: {path} holds no labels. Save them beside the vectors, or name --label-column.")
    screen.print(f"{vectors} · lengths in {vectors.unit}")
    groups = groups_of_ids(vectors.ids if corpus is None else corpus.ids)
    profile = poolscope.length_profile(
        vectors.vectors, vectors.lengths, groups=groups, texts=vectors.texts, unit=vectors.unit, **settings
    )
    predicted = None
    if labels and names:
        predicted = labels_by_length(vectors.vectors, vectors.lengths, names, groups=groups, **settings)
    note = "Vectors alone: whether plain averaging explains a rise takes the model (poolscope length MODEL TEXTS)."
    return LengthReport(profile=profile, labels=predicted, notes=(note,))


def _with_texts(path: str, corpus: Texts) -> Vectors:
    """The vectors with the texts beside them; where their numbers differ, what was left out in reading is said."""
    try:
        return poolscope.read_vectors(path, texts=corpus.texts)
    except InputError as error:
        raise InputError(
            " ".join([str(error), *(f"{corpus.source}: {note}" for note in corpus.report.notes())])
        ) from error


def _read_pairs(texts: str | None, pairs: str | None, *, seed: int, probes: bool) -> Pairs | None:
    """Pairs of the search: the file that was named, or pairs of the embedded corpus if that is read."""
    if pairs is None and (texts is not None or not probes):
        return None
    limit = DEFAULT_PAIRS if pairs in (None, arguments.TEXTS) else None
    return poolscope.read_pairs(pairs or arguments.TEXTS, limit=limit, seed=seed)


def _pairs_among(queries: Queries, corpus: Texts) -> Pairs:
    """Queries with the texts of the corpus that answer them, as an audit reads them: they search among all texts."""
    from poolscope.evaluation import query_task
    from poolscope.texts import records

    task = query_task(corpus, queries)
    asking = task.sides[0].texts
    ids = tuple(map(str, range(len(asking))))
    query_texts = records.Texts(
        ids, tuple(asking), None, queries.source, records.ReadReport(read=len(ids), kept=len(ids))
    )
    return records.Pairs(query_texts, corpus, task.relevant)


def _documents(source: str | None, corpus: Texts, group: str | None, id_column: str | None) -> Sequence[str] | None:
    """The document of each text: by the column that names it, else by ids like doc#3."""
    from poolscope.texts.groups import groups_of_ids
    from poolscope.texts.sources import other_columns

    if group is None:
        return groups_of_ids(corpus.ids)
    rows = other_columns(source, corpus, id_column=id_column)
    return [str(rows.get(name, {}).get(group, name)) for name in corpus.ids]


def _of_model(
    inputs: Inputs, corpus: Texts, engine: Engine | None, *, labels: bool, settings: Mapping[str, Any]
) -> LengthReport:
    from poolscope.cli.inputs import counting_progress
    from poolscope.lab.length.mechanism import MeasuredTexts, measure_texts

    if labels and corpus.labels is None:
        raise InputError(f"--labels: {corpus.source} has no labels. Name their column with --label-column.")
    with counting_progress("encoding", None, "tokens") as advance:

        def progress(texts: int, tokens: int) -> None:
            advance(tokens)

        measured = None
        if engine is not None:  # every text; null models and probes, of a few texts, follow in this process
            over_texts, bare = service("texts on an engine"), replace(corpus, labels=None)
            measured = over_texts(engine, measure_texts, MeasuredTexts.joined, inputs.encoder(), bare, progress)
        report = poolscope.length_report(
            inputs.encoder(),
            corpus.texts,
            measured=measured,
            labels=corpus.labels if labels else None,
            progress=progress,
            **settings,
        )
    name = "" if report.model is None else report.model["name"]
    inputs.screen.name_origin(f"{name} · {len(corpus):,} texts of {corpus.source}")
    return report


# -- the screen, of 80 columns or more -----------------------------------------------------------------------------

_NARROW: dict[str, Any] = {"show_edge": False, "padding": (0, 1, 0, 0)}  # the look of its tables


def print_report(report: LengthReport, screen: Screen) -> None:
    """Print the sentences and the profile; with --details the other measurements, most telling first."""
    screen.print_in_words(report)
    _print_profile(report.profile, screen)
    if not screen.shows_details():
        return
    if report.mechanism is not None:
        _print_mechanism(report.mechanism, screen)
    if report.nulls is not None:
        _print_nulls(report.nulls, screen)
    for probe in report.probes:
        screen.say(probe.sentence())
    if report.shift is not None:
        _print_shift(report.shift, screen)
        screen.say(report.shift.sentence())
    if report.retrieval is not None:
        _print_retrieval(report.retrieval, screen)
    if report.texts_truncated:
        screen.print(f"{report.texts_truncated:,} texts are truncated at the model's limit.", style="dim")
    for note in (*report.profile.notes, *report.notes):
        screen.say(note, style="dim")
    if report.encoded_tokens:
        screen.say(_cost(report), style="dim")


def _cost(report: LengthReport) -> str:
    """Extra tokens encoded, by step; steps that --no-probes skips name that option."""
    parts = {
        "null models": report.nulls,
        "probes": report.probes or None,
        "the change of subject": report.shift,
        "the position of an answer": report.position,
    }
    names = [name for name, part in parts.items() if part is not None]
    listed = " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
    option = "" if names == ["the position of an answer"] else " (--no-probes)"
    return f"Encoded on top of the texts: {report.encoded_tokens:,} tokens, for {listed}{option}."


def _print_profile(profile: LengthProfile, screen: Screen) -> None:
    heads = (profile.unit, "texts", "cosine", "chance", "dist.", "norm", "eff.rank", "own bin")
    rows = (
        (
            row.label,
            f"{row.texts:,}",
            with_reach(row.cosine),
            digits(row.cosine.floor),
            digits(row.distance.value),
            digits(row.norm.value, 2),
            digits(row.effective_rank.value, 1),
            f"{digits(row.same_bin_neighbours.value, 2)} ({digits(row.same_bin_neighbours.floor, 2)})",
        )
        for row in profile.bins
    )
    screen.print_rows(heads, rows, **_NARROW)
    slope = profile.slope
    if slope.value is not None:
        below = f"chance stays below {slope.floor_high:.4f}"
        screen.say(f"slope {with_ends(slope, '+z.4f')} per doubling of length; {below}")
    if not screen.details:
        return
    screen.say(
        "cosine: of two texts of the bin, on average · chance: the same with lengths shuffled · dist.: from the centre "
        "of all texts · norm: length of the vectors · eff.rank: directions that equally many texts fill · own bin: "
        "nearest neighbours that are in the bin (with lengths shuffled)."
    )


def _print_mechanism(mechanism: LengthMechanism, screen: Screen) -> None:
    if any(row.sigma_a.value is not None for row in mechanism.bins):
        heads = ("tokens", "σₐ", "bound", "above it", "‖PA‖²/(n−1)", "‖PX‖²/n", "words")
        rows = (
            (
                row.label,
                digits(row.sigma_a.value),
                digits(row.bound.value),
                "–" if row.bound_fails.value is None else f"{row.bound_fails.value:.0%}",
                digits(row.frobenius.value, 4),
                digits(row.high_frequency.value, 1),
                digits(row.words.value),
            )
            for row in mechanism.bins
        )
        screen.print_rows(heads, rows, **_NARROW)
        screen.say(
            "In the last layer, σₐ: largest singular value of attention without its mean (PA) · bound: the published "
            "limit of it · above it: how often that fails · ‖PX‖²/n: how far tokens are from their mean · words: "
            "cosine of plain averages of input embeddings."
        )
    for sentence in mechanism.in_words():
        screen.say(sentence)


def _print_nulls(nulls: LengthNulls, screen: Screen) -> None:
    rows = (
        (
            f"{row.tokens}{' *' if row.beyond else ''}",
            digits(row.full.value),
            f"{digits(row.averaged.value)} (of {row.chunks})",
            "–" if row.placed is None else digits(row.placed.value),
            "" if row.chunks == 1 else with_ends(row.excess, "+z.3f"),
        )
        for row in nulls.averaging
    )
    screen.print_rows(("tokens", "whole", "averaged", "in place", "whole − averaged"), rows, **_NARROW)
    if any(row.beyond for row in nulls.averaging):
        screen.print(f"* beyond the limit of {nulls.limit} tokens", style="dim")
    for sentence in nulls.in_words():
        screen.say(sentence)


def _print_shift(shift: SemanticShift, screen: Screen) -> None:
    parts = f"L {with_reach(shift.local)}, D {with_reach(shift.dispersion)}, L·D {with_reach(shift.shift)}"
    screen.say(f"change of subject: {parts} ({shift.texts} texts)")
    if shift.made:
        heads = (f"{shift.sentences} sentences of", "texts", "words", "L·D", "cosine")
        rows = (
            (row.label, f"{row.texts:,}", f"{row.words:.0f}", with_reach(row.shift), with_reach(row.cosine))
            for row in shift.made
        )
        screen.print_rows(heads, rows, **_NARROW)


def _print_retrieval(retrieval: LengthRetrieval, screen: Screen) -> None:
    named = [(row.label, row) for row in retrieval.bins]
    named += [("shortest 1/5", retrieval.shortest), ("longest 1/5", retrieval.longest)]
    rows = (
        (
            name,
            f"{row.documents:,}",
            f"{row.queries:,}",
            *(digits(number.value) for number in (row.hit, row.ndcg, row.mrr)),
            digits(row.rank.value, 1),
            with_reach(row.ratio, 2),
        )
        for name, row in named
    )
    screen.print_rows(("tokens", "docs", "queries", "hit", "nDCG", "MRR", "rank", "share/exp."), rows, **_NARROW)
