"""Many models on the same texts: every audit, and the numbers of the papers beside their published values.

One folder a model, in which every part is kept as soon as it is measured: a call that was interrupted goes on with the
part that is missing, and a model that is whole for the same texts and settings is not opened again. What could not be
measured stays in the table with the reason.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from poolscope.auditing.compare import compare
from poolscope.auditing.pages import comparison_overview, section
from poolscope.auditing.run import audit
from poolscope.digests import check_seal, sealed
from poolscope.encoders import as_encoder
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import has, options_of, with_options
from poolscope.errors import InputError, PoolscopeError, StoreError, whole_number
from poolscope.files import check_folder, replaced_files, text_of, write_json
from poolscope.numbers.intervals import Estimate
from poolscope.report import ReportColumn, ReportSection, ReportTable, render_page
from poolscope.research.correlate.model_records import BY_NAME, EPS, SOCM_PAPER
from poolscope.research.reproduce.experiment import (
    MEASURED,
    NOT_MEASURED,
    NOT_REACHED,
    attempt,
    markdown_table,
    versions,
)
from poolscope.research.zoo.numbers import COLUMNS, PARTS, TABLES, Material, audit_numbers
from poolscope.results import Result, origin, plain, provenance, restored
from poolscope.texts import JudgedQueries, Queries, Texts, read_pairs, read_queries, read_texts
from poolscope.texts.groups import groups_of_ids
from poolscope.texts.queries import id_column_for
from poolscope.texts.records import BUILTIN

MODELS, AUDIT, AUDITED = "models", "audit", "audited"
TABLE, MARKDOWN, PAGE, JSON = "zoo.csv", "zoo.md", "zoo.html", "zoo.json"
_LONGEST_NAME = 200


@dataclass(frozen=True, repr=False)
class Zoo(Result):
    """What was measured on each model: `runs` has one row a model, with its status and its numbers by name.

    A number is a mapping of value, low, high and floor; one that was not measured is missing. `levels` of a run are
    those of its audit, by question.
    """

    corpus: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any] = origin()

    column_words: ClassVar[Mapping[str, str]] = COLUMNS

    @property
    def measured(self) -> int:
        """How many models have numbers."""
        return sum(run["status"] == MEASURED for run in self.runs)

    @property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """The numbers that are known, of the models that were measured, by model and name."""
        return {
            run["model"]: {
                name: restored(Estimate, number)
                for name, number in run["numbers"].items()
                if number is not None and number.get("value") is not None
            }
            for run in self.runs
            if run["status"] == MEASURED
        }

    def having(self, *names: str) -> dict[str, tuple[Estimate, ...]]:
        """Some numbers by model, of the models that have them all."""
        return {
            model: tuple(known[name] for name in names)
            for model, known in self.estimates.items()
            if all(name in known for name in names)
        }

    def headline(self) -> dict[str, Any]:
        """How many models, and how many could be measured."""
        return {"models": len(self.runs), "measured": self.measured, "texts": self.corpus["texts"]}

    def seen(self) -> tuple[str, ...]:
        """How many models were measured and on what, between which ends SOCM lies, and who is missing."""
        told = f"{self.measured:,} of {len(self.runs):,} models were measured on {self.corpus['texts']:,} texts of"
        sentences = [f"{told} {self.corpus['source']}."]
        ends = sorted((socm.known, name) for name, (socm,) in self.having("socm").items())
        if len(ends) > 1:
            (low, first), (high, last) = ends[0], ends[-1]
            sentences.append(f"The mean SOCM of their texts goes from {low:.3g} ({first}) to {high:.3g} ({last}).")
        if missing := [run["model"] for run in self.runs if run["status"] != MEASURED]:
            sentences.append(f"Not measured: {', '.join(missing)}.")
        return tuple(sentences)

    def figure(self) -> Any:
        """The models in the numbers that most of them have: a panel a number, a line a model, bars for intervals."""
        from poolscope.research.zoo.evidence import zoo_figure

        return zoo_figure(self)

    def rows(self) -> list[dict[str, Any]]:
        """One row a model: numbers flat, their intervals as `…_low` and `…_high`, levels as `level_…`."""
        return [_flat(run) for run in self.runs]

    def to_markdown(self) -> str:
        """The tables as Markdown: how they were made, numbers with their intervals, levels of the audits."""
        measured = [run for run in self.runs if run["status"] == MEASURED]
        lines = [self.about(), ""]
        for title, columns in TABLES.items() if measured else ():
            shown = {
                name: words for name, words in columns.items() if any(run["numbers"].get(name) for run in measured)
            }
            rows = (
                {"model": run["model"], **{words: written(run["numbers"].get(name)) for name, words in shown.items()}}
                for run in measured
            )
            lines += [f"**{title}**", "", *markdown_table(rows), ""]
        if audited := [run for run in measured if run["levels"]]:
            levels = markdown_table({"model": run["model"], **run["levels"]} for run in audited)
            lines += ["**Levels of the audit**", "", *levels, ""]
        if missing := [run for run in self.runs if run["status"] != MEASURED]:
            lines += [*(f"- {run['model']}: {run['status']}: {run['reason']}" for run in missing), ""]
        return "\n".join(lines)

    def about(self) -> str:
        """Which texts, how many, with what, and when."""
        made, packages = self.provenance["settings"], self.provenance["versions"]
        listed = ", ".join(f"{name} {version}" for name, version in packages.items())
        queries = self.corpus.get("queries")
        about = f", {queries:,} queries about them" if queries else ""
        longest = f", cut at {made['max_length']} tokens" if made.get("max_length") else ""
        return (
            f"{self.corpus['texts']:,} texts of {self.corpus['source']} (digest {self.corpus['digest'][:12]}{longest})"
            f"{about}, seed {made['seed']}, measured on {self.provenance['created'][:10]} with {listed}. Intervals are "
            f"95 %, over texts, queries or token types. Published values: {SOCM_PAPER}, on Wikipedia sentences with "
            f"eps = {EPS:g}."
        )


def zoo(
    models: Mapping[str, str] | Sequence[str],
    texts: Any = None,
    *,
    output: str | os.PathLike[str],
    queries: Any = None,
    limit: int | None = None,
    seed: int = 0,
    audits: bool = True,
    parts: Sequence[str] | None = None,
    cache: bool = True,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> Zoo:
    """Audit many models on the same texts, with the numbers of the papers, into one table and one page.

    Parameters
    ----------
    models : mapping from name to source, or sequence of sources
        What `as_encoder` takes by name: hub names, folders, GGUF files, `builtin:…`.
    texts
        Anything `read_texts` takes; by default the built-in corpus.
    output : path
        Folder of the results. Models that it holds already, for the same texts and settings, are not measured again.
    queries
        Queries with the ids of the texts that answer them, as `read_queries` takes them. "builtin:docstrings": the
        summaries of the docstrings, which ask for their bodies; the texts are then these. Without any, halves of texts
        ask for each other.
    limit : int, optional
        At most so many texts, drawn at random.
    seed : int
        Of every draw.
    audits : bool
        Audit every model too. Without, only audits that the folder holds already are in the table.
    parts : sequence of str, optional
        Measure only these of clouds, profile, search, tokens, layers and length, for models that take long; parts that
        the folder holds already are in the table too.
    cache : bool
        Keep clouds for later calls.
    say : callable, optional
        Told what is being done.
    **options
        Of the encoder, the same for all models. A `max_length` beyond the positions of a model is brought down to them.

    Returns
    -------
    Zoo
        One row a model; also written as zoo.csv, zoo.md, zoo.json and zoo.html, beside a folder with each audit.

    Examples
    --------
    >>> import tempfile
    >>> from poolscope import zoo
    >>> texts = [f"a short text about subject {k} and {k + 1}" for k in range(12)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = zoo({"table": "builtin:wordllama"}, texts, output=folder, cache=False)
    >>> result
    Zoo(models 1, measured 1, texts 12)

    """
    named = _named(models)
    seed = whole_number(seed, "seed", least=0)
    chosen = tuple(PARTS) if parts is None else tuple(parts)
    if unknown := [part for part in chosen if part not in PARTS]:
        raise InputError(f"parts: received {unknown[0]!r}; allowed: {', '.join(PARTS)}. Name some of these.")
    wanted = (*(part for part in PARTS if part in chosen), *([AUDITED] if audits else []))
    folder = check_folder(output)
    check_folder(folder / MODELS)
    corpus, known = _corpus(texts, queries, limit, seed)
    run = _Run(folder, corpus, known, seed, wanted, cache, options, say or (lambda message: None))
    (run.folder / MODELS).mkdir(parents=True, exist_ok=True)
    runs = tuple(run.of(name, source) for name, source in named.items())
    made = provenance(settings={"models": named, "limit": limit, "seed": seed, **options})
    del made["clouds"]
    result = Zoo(run.about, runs, provenance={**made, "versions": versions()})
    _save(result, run)
    return result


def _corpus(texts: Any, queries: Any, limit: int | None, seed: int) -> tuple[Texts, Queries | None]:
    """The texts, and the queries about them."""
    if isinstance(queries, str) and queries == BUILTIN:
        if texts not in (None, BUILTIN):
            raise InputError(f"queries: received {BUILTIN} about {texts!r}; they ask for docstrings. Leave texts out.")
        pairs = read_pairs(BUILTIN, limit=limit, seed=seed)
        ids = pairs.documents.ids
        return pairs.documents, read_queries({pairs.queries[int(q)]: [ids[int(d)]] for q, d in pairs.index})
    source = BUILTIN if texts is None else texts
    if queries is None:
        return read_texts(source, limit=limit, seed=seed), None
    known = read_queries(queries)
    corpus = read_texts(source, limit=limit, seed=seed, id_column=id_column_for(source, known))
    _judged(known, corpus)  # refuses queries none of which can be asked
    return corpus, known


def _judged(queries: Queries, corpus: Texts) -> JudgedQueries:
    return queries.among(corpus.ids, documents=[groups_of_ids(corpus.ids)], drawn=True)


def _named(models: Any) -> dict[str, str]:
    """The sources of the models by their names, each of which has a folder of its own."""
    if isinstance(models, str) or not isinstance(models, Iterable):
        raise InputError(f"models: received {models!r}; allowed: a list of sources, or names with sources. Pass one.")
    pairs = [*models.items()] if isinstance(models, Mapping) else [(source, source) for source in models]
    for word in (word for pair in pairs for word in pair):
        if not isinstance(word, str) or not word.strip() or not _is_writable(word):
            raise InputError(f"models: received {word!r}; allowed: names and sources that are strings. Pass such ones.")
    if not isinstance(models, Mapping):
        pairs = [(short_name(source), source) for _, source in pairs]
    named = dict(pairs)
    if not named or len(named) != len(pairs):
        sources = [source for _, source in pairs]
        raise InputError(f"models: received {sources!r}; needed: one or more models with different names.")
    folders: dict[str, str] = {}
    for name in named:
        folder = folder_name(name)
        if folder.strip(".") == "" or len(folder.encode()) > _LONGEST_NAME:
            raise InputError(
                f"models: received the name {name[:80]!r}; allowed: one that can name a folder, of at most "
                f"{_LONGEST_NAME} bytes and not of points alone. Give the model another name."
            )
        if folder in folders:
            raise InputError(
                f"models: received the names {folders[folder]!r} and {name!r}, which share the folder {folder!r}; each "
                f"needs one of its own. Rename one."
            )
        folders[folder] = name
    return named


def _is_writable(word: str) -> bool:
    """Whether it can be written as UTF-8: half of a surrogate pair cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def folder_name(name: str) -> str:
    """The folder of a model, from its name.

    >>> folder_name("thenlper/gte-small")
    'thenlper__gte-small'
    """
    return re.sub(r"[^\w.-]+", "__", name)


@dataclass(frozen=True)
class _Run:
    """What all models share."""

    folder: Path
    corpus: Texts
    queries: Queries | None
    seed: int
    wanted: tuple[str, ...]
    cache: bool
    options: Mapping[str, Any]
    say: Callable[[str], None]

    @property
    def about(self) -> dict[str, Any]:
        parts = json.dumps([list(self.corpus.ids), list(self.corpus.texts)], ensure_ascii=False)
        counted = {}
        if self.queries is not None:
            judged = _judged(self.queries, self.corpus)
            counted = {"queries": len(judged.texts), "queries_digest": self.queries.digest}
        return {
            "source": self.corpus.source,
            "texts": len(self.corpus.texts),
            "digest": hashlib.sha256(parts.encode()).hexdigest(),
            **counted,
        }

    def place(self, name: str) -> Path:
        """The folder of a model."""
        return self.folder / MODELS / folder_name(name)

    def of(self, name: str, source: str) -> dict[str, Any]:
        """The row of a model: its parts as they are kept for the same texts and settings, else measured and kept."""
        wanted = {**self.about, "seed": self.seed, "options": plain(dict(self.options)), "model_source": source}
        kept = _Kept(self.place(name), json.loads(json.dumps(wanted)))
        row: dict[str, Any] = {"model": name, "source": source}
        if all(kept.get(part) is not None for part in self.wanted):
            self.say(f"{name}: measured already")
        else:
            self.say(f"{name}: loading")
            encoder, reason = attempt(self._open, source)
            status = NOT_REACHED
            if encoder is not None:
                reason, status = attempt(self._measure, name, encoder, kept)[1], NOT_MEASURED
            if reason is not None:
                self.say(f"{name}: {status}: {reason}")
                return {**row, "status": status, "reason": reason, "numbers": {}}
        unknown: dict[str, Any] = {"numbers": {}, "reason": None, "card": {}, "levels": {}}
        parts = {part: kept.get(part) or unknown for part in (AUDITED, *PARTS)}
        numbers = {key: number for part in parts.values() for key, number in part["numbers"].items()}
        return {
            **row,
            "status": MEASURED,
            "reason": None,
            "numbers": {**_published(name, source), **numbers},
            "notes": [f"{part}: {content['reason']}" for part, content in parts.items() if content["reason"]],
            **{key: parts[AUDITED][key] for key in ("card", "levels")},
        }

    def _open(self, source: str) -> TokenEncoder:
        longest = self.options.get("max_length")
        encoder = as_encoder(source, **{name: value for name, value in self.options.items() if name != "max_length"})
        if longest is None or not has(encoder, "with_options"):
            return encoder
        longest = min(int(longest), encoder.card.positions or int(longest))
        return with_options(encoder, replace(options_of(encoder), max_length=longest))

    def _measure(self, name: str, encoder: TokenEncoder, kept: _Kept) -> None:
        """Measure the parts that are missing; each is kept before the next begins."""
        material = Material(encoder, self.corpus, self.queries, self.seed, self.cache)
        for part, measure in PARTS.items():
            if part in self.wanted and kept.get(part) is None:
                self.say(f"{name}: {part}")
                numbers, reason = attempt(measure, material)
                if numbers is None and part == "clouds":
                    raise PoolscopeError(reason)
                kept.put(part, {"numbers": plain(numbers or {}), "reason": reason})
        if AUDITED in self.wanted and kept.get(AUDITED) is None:
            self.say(f"{name}: {AUDIT}")
            self._audit(encoder, kept)

    def _audit(self, encoder: TokenEncoder, kept: _Kept) -> None:
        settings: dict[str, Any] = {"seed": self.seed, "cache": self.cache}
        result, reason = attempt(audit, encoder, self.corpus, queries=self.queries, **settings)
        if result is None:
            if self.queries is None:
                raise PoolscopeError(reason)
            reason = f"without the queries, because {reason}"  # such as a table that knows no word of a query
            result = audit(encoder, self.corpus, **settings)
        result.save(kept.folder / AUDIT)
        levels = {answer.key: answer.verdict.level for answer in result.answers}
        numbers = plain(audit_numbers(result.answers))
        kept.put(AUDITED, {"numbers": numbers, "reason": reason, "card": plain(result.model), "levels": levels})


@dataclass(frozen=True)
class _Kept:
    """What the folder of a model holds for the same texts and settings; what is torn or of others counts as absent."""

    folder: Path
    wanted: Mapping[str, Any]

    def get(self, part: str) -> dict[str, Any] | None:
        """One part: its numbers, and the reason where there are none."""
        try:
            path = self.folder / f"{part}.json"
            content = check_seal(json.loads(text_of(path)), path, "It is measured again.")
            whole = (
                content["for"] == self.wanted
                and "reason" in content
                and all(map(is_number, content["numbers"].values()))
            )
            whole = whole and (part != AUDITED or all(isinstance(content[key], dict) for key in ("card", "levels")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, StoreError):
            return None
        return dict(content) if whole else None

    def put(self, part: str, content: Mapping[str, Any]) -> None:
        """Keep one part."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / f"{part}.json", sealed({"for": self.wanted, **content}))


def is_number(kept: Any) -> bool:
    """Whether what a part kept is a number with its interval, as it was written; its parts may be absent."""
    if kept is None:
        return True
    interval = kept.get("interval") or {}
    values = (kept.get("value"), *(interval[end] for end in ("low", "high") if interval))
    return all(value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in values)


def _published(name: str, source: str) -> dict[str, Any]:
    model = BY_NAME.get(source) or next((known for full, known in BY_NAME.items() if full.endswith(f"/{name}")), None)
    return {} if model is None else {"socm_published": plain(Estimate(model.wiki))}


def short_name(source: str) -> str:
    """The name that a model goes by: the last part of a hub name or path, without its ending.

    >>> short_name("thenlper/gte-small"), short_name("models/SmolLM2.Q4_1.gguf"), short_name("builtin:minilm")
    ('gte-small', 'SmolLM2.Q4_1', 'builtin:minilm')
    """
    last = source.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return last.removesuffix(".gguf") or source


def _flat(run: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: run[name] for name in ("model", "status")}
    for name in COLUMNS:
        number = run["numbers"].get(name) or {}
        interval = number.get("interval") or {}
        row |= {name: number.get("value"), f"{name}_low": interval.get("low"), f"{name}_high": interval.get("high")}
    levels = {f"level_{key}": level for key, level in run.get("levels", {}).items()}
    return row | levels | {name: run[name] for name in ("source", "reason")}


def written(number: Mapping[str, Any] | None) -> str:
    """A number as the table shows it.

    >>> written({"value": 0.12345, "interval": {"low": 0.1, "high": 0.15}}), written({"value": 2.0}), written(None)
    ('0.123 [0.1, 0.15]', '2', '')
    """
    if number is None or number.get("value") is None:
        return ""
    interval = number.get("interval")
    reach = "" if not interval else f" [{interval['low']:.3g}, {interval['high']:.3g}]"
    return f"{number['value']:.3g}{reach}"


# -- the folder -----------------------------------------------------------------------------------------------------


def _save(result: Zoo, run: _Run) -> None:
    from pyarrow import csv

    page = _page(result, run)
    with replaced_files(run.folder, stale=(TABLE, MARKDOWN, PAGE, JSON)) as folder:
        csv.write_csv(result.to_table(), folder / TABLE)
        (folder / MARKDOWN).write_text(result.to_markdown(), encoding="utf-8")
        (folder / PAGE).write_text(page, encoding="utf-8")
        write_json(folder / JSON, sealed(result.to_dict()))


def _page(result: Zoo, run: _Run) -> str:
    """The table, and below it the questions of the audits side by side where two models or more were measured."""
    names = [row["model"] for row in result.runs if row["status"] == MEASURED and row["levels"]]
    sections = [_table_section(result)]
    if len(names) > 1:
        comparison = compare(*(run.place(name) / AUDIT for name in names))
        sections += [comparison_overview(comparison), *(section(comparison, key) for key in comparison.keys)]
    about = f"{result.corpus['texts']:,} texts of {result.corpus['source']}"
    return render_page(
        f"{result.measured} model{'s' * (result.measured != 1)} on one corpus",
        about,
        sections,
        provenance=result.provenance,
    )


def _table_section(result: Zoo) -> ReportSection:
    rows = [
        [run["model"], run["status"], *(written(run["numbers"].get(name)) or None for name in COLUMNS), run["reason"]]
        for run in result.runs
    ]
    columns = ["model", "status", *COLUMNS, "reason"]
    heads = {"model": "Model", "status": "Status", **COLUMNS, "reason": "Why not"}
    return ReportSection(
        key="zoo",
        title="Models",
        question="What was measured on each model?",
        tables=[ReportTable("Numbers of the models", columns, rows, view=[ReportColumn(n, heads[n]) for n in columns])],
        notes=[
            "Every model is one fact; a few of them are not a law about models.",
            f"Published values are of other texts ({SOCM_PAPER}).",
        ],
        explained_by="measured.md",
    )
