"""Many models on the same texts: every audit, and the numbers of the papers beside their published values.

One folder a model, written whole when the model is done; a model whose folder stands there for the same texts and
settings is not measured again. What could not be measured stays in the table with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.auditing.compare import compare
from poolscope.auditing.compare_page import overview, section
from poolscope.auditing.question import Answer
from poolscope.auditing.result import Audit
from poolscope.auditing.run import audit
from poolscope.clouds import TokenClouds
from poolscope.encoders import EncoderOptions, as_encoder
from poolscope.encoders.base import TokenEncoder
from poolscope.errors import InputError, whole_number
from poolscope.files import check_folder, replaced_files, text_of, write_json
from poolscope.metrics.layers.measure import layers
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.tokens.measure import token_statistics
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.moments import text_moments
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
from poolscope.results import Result, origin, plain, provenance
from poolscope.stores.cache import cached_clouds
from poolscope.texts import Texts, read_texts
from poolscope.texts.records import BUILTIN

MODELS, NUMBERS, AUDIT = "models", "numbers.json", "audit"
TABLE, MARKDOWN, PAGE, JSON = "zoo.csv", "zoo.md", "zoo.html", "zoo.json"
LAYER_TEXTS, TRACE_BOUND = 64, 2.0
_LONGEST_NAME = 200

# Numbers of the table in their order, and what the heading of their column says.
COLUMNS = {
    "socm": "SOCM, exact",
    "socm_eps": f"SOCM, eps={EPS:g}",
    "socm_published": "SOCM, published (other texts)",
    "socm_trace": "SOCM, scale trace",
    "concentration": "concentration ratio, median",
    "above_trace_bound": f"share of texts with tr Σ > {TRACE_BOUND:g}",
    "anisotropy": "mean cosine of two texts",
    "length_slope": "rise of the cosine per doubling",
    "position_drop": "loss from start to end",
    "hub_skewness": "hub skewness",
    "hidden_share": "hidden share",
    "sigma_a": "σₐ, last layer",
    "mean_share": "share of the mean in Q",
    "variation": "variation of Q",
    "mean_and_variance": "ρ of M and V",
    "split_half": "split-half nDCG@10",
}


@dataclass(frozen=True, repr=False)
class Zoo(Result):
    """What was measured on each model: `runs` has one row a model, with its status and its numbers by name.

    A number is a mapping of value, low, high and floor; one that was not measured is missing. `levels` of a run are
    those of its audit, by question.
    """

    corpus: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any] = origin()

    @property
    def measured(self) -> int:
        """How many models have numbers."""
        return sum(run["status"] == MEASURED for run in self.runs)

    def headline(self) -> dict[str, Any]:
        """How many models, and how many could be measured."""
        return {"models": len(self.runs), "measured": self.measured, "texts": self.corpus["texts"]}

    def rows(self) -> list[dict[str, Any]]:
        """One row a model: numbers flat, their intervals as `…_low` and `…_high`, levels as `level_…`."""
        return [_flat(run) for run in self.runs]

    def to_markdown(self) -> str:
        """The table as Markdown, numbers with their intervals, with how it was made."""
        made, packages = self.provenance["settings"], self.provenance["versions"]
        rows = [
            {"model": run["model"], **{words: written(run["numbers"].get(name)) for name, words in COLUMNS.items()}}
            for run in self.runs
            if run["status"] == MEASURED
        ]
        shown = [words for words in ("model", *COLUMNS.values()) if words == "model" or any(row[words] for row in rows)]
        listed = ", ".join(f"{name} {version}" for name, version in packages.items())
        lines = [
            f"{self.corpus['texts']:,} texts of {self.corpus['source']} (digest {self.corpus['digest'][:12]}), seed "
            f"{made['seed']}, with {listed}. Intervals are 95 % over texts. Published values: {SOCM_PAPER}, on "
            f"Wikipedia sentences with eps = {EPS:g}.",
            "",
            *(markdown_table({name: row[name] for name in shown} for row in rows) if rows else []),
        ]
        if missing := [run for run in self.runs if run["status"] != MEASURED]:
            lines += ["", *(f"- {run['model']}: {run['status']}: {run['reason']}" for run in missing)]
        return "\n".join([*lines, ""])


def zoo(
    models: Mapping[str, str] | Sequence[str],
    texts: Any = None,
    *,
    output: str | os.PathLike[str],
    limit: int | None = None,
    seed: int = 0,
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
    limit : int, optional
        At most so many texts, drawn at random.
    seed : int
        Of every draw.
    cache : bool
        Keep clouds for later calls.
    say : callable, optional
        Told what is being done.
    **options
        Of the encoder, the same for all models.

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
    folder = check_folder(output)
    check_folder(folder / MODELS)
    corpus = read_texts(BUILTIN if texts is None else texts, limit=limit, seed=seed)
    run = _Run(folder, corpus, seed, cache, options, say or (lambda message: None))
    (run.folder / MODELS).mkdir(parents=True, exist_ok=True)
    runs = tuple(run.of(name, source) for name, source in named.items())
    made = provenance(settings={"models": named, "limit": limit, "seed": seed, **options})
    del made["clouds"]
    result = Zoo(run.about, runs, provenance={**made, "versions": versions()})
    _save(result, run)
    return result


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
        folder = _folder_name(name)
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


def _folder_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "__", name)


@dataclass(frozen=True)
class _Run:
    """What all models share."""

    folder: Path
    corpus: Texts
    seed: int
    cache: bool
    options: Mapping[str, Any]
    say: Callable[[str], None]

    @property
    def about(self) -> dict[str, Any]:
        parts = json.dumps([list(self.corpus.ids), list(self.corpus.texts)], ensure_ascii=False)
        return {
            "source": self.corpus.source,
            "texts": len(self.corpus.texts),
            "digest": hashlib.sha256(parts.encode()).hexdigest(),
        }

    def place(self, name: str) -> Path:
        """The folder of a model."""
        return self.folder / MODELS / _folder_name(name)

    def of(self, name: str, source: str) -> dict[str, Any]:
        """The row of a model: read where it is there for the same texts and settings, else measured and written."""
        wanted = {**self.about, "seed": self.seed, "options": plain(dict(self.options)), "model_source": source}
        kept = self._kept(name, wanted)
        if kept is not None:
            self.say(f"{name}: measured already")
            return kept
        self.say(f"{name}: loading")
        encoder, reason = attempt(as_encoder, source, **self.options)
        if encoder is None:
            self.say(f"{name}: {NOT_REACHED}: {reason}")
            return {"model": name, "source": source, "status": NOT_REACHED, "reason": reason, "numbers": {}}
        measured, reason = attempt(self._measure, encoder)
        if measured is None:
            self.say(f"{name}: {NOT_MEASURED}: {reason}")
            return {"model": name, "source": source, "status": NOT_MEASURED, "reason": reason, "numbers": {}}
        numbers, result, notes = measured
        row = {
            "model": name,
            "source": source,
            "status": MEASURED,
            "reason": None,
            "card": plain(result.model),
            "numbers": {key: plain(value) for key, value in _with_published(numbers, name, source).items()},
            "levels": {answer.key: answer.verdict.level for answer in result.answers},
            "notes": notes,
        }
        result.save(self.place(name) / AUDIT)
        write_json(self.place(name) / NUMBERS, {"for": wanted, "row": row})  # last: where it stands, all is there
        return row

    def _kept(self, name: str, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            content = json.loads(text_of(self.place(name) / NUMBERS))
            row = dict(content["row"])
            same = content["for"] == json.loads(json.dumps(wanted)) and row["model"] == name
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        whole = row.get("status") == MEASURED and {"source", "reason", "numbers", "levels"} <= set(row)
        whole = whole and all(isinstance(row[part], dict) for part in ("numbers", "levels"))
        return row if same and whole else None

    def _measure(self, encoder: TokenEncoder) -> tuple[dict[str, Estimate], Audit, list[str]]:
        texts, notes = self.corpus.texts, list[str]()
        self.say(f"{encoder.card.name}: encoding {len(texts):,} texts")
        clouds = cached_clouds(encoder, self.corpus, options=EncoderOptions(**self.options), enabled=self.cache)
        self.say(f"{encoder.card.name}: SOCM, tokens, layers")
        numbers = _cloud_numbers(clouds)
        for words, measure in (("tokens", _token_numbers), ("layers", _layer_numbers)):
            further, reason = attempt(measure, encoder, texts, clouds, self.seed)
            numbers |= further or {}
            if reason is not None:
                notes.append(f"{words}: {reason}")
        self.say(f"{encoder.card.name}: audit")
        result = audit(encoder, self.corpus, seed=self.seed, cache=self.cache)
        return numbers | _audit_numbers(result.answers), result, notes


def _cloud_numbers(clouds: TokenClouds) -> dict[str, Estimate]:
    """SOCM on the three scales over all pairs, and how far the tokens spread."""
    moments = text_moments(clouds)
    scales: dict[str, dict[str, Any]] = {"socm": {}, "socm_eps": {"eps": EPS}, "socm_trace": {"scale": "trace"}}
    numbers = {name: socm(clouds, top=1, **settings).estimate for name, settings in scales.items()}
    return numbers | {
        "concentration": Estimate(float(np.median(moments.traces))),
        "above_trace_bound": Estimate(float(np.mean(moments.traces > TRACE_BOUND))),
    }


def _token_numbers(encoder: TokenEncoder, texts: Any, clouds: TokenClouds, seed: int) -> dict[str, Estimate]:
    """Q = M + V of the last layer: the share of the mean, how much Q varies, how M and V go together."""
    last = token_statistics(clouds, seed=seed).layers[-1]
    return {
        "mean_share": last.estimate("mean_share"),
        "variation": last.variation,
        "mean_and_variance": last.corrected.mean_and_variance.spearman,
    }


def _layer_numbers(encoder: TokenEncoder, texts: Sequence[str], clouds: TokenClouds, seed: int) -> dict[str, Estimate]:
    """σₐ of the last layer, mean over heads and some texts."""
    means = layers(encoder, list(texts[:LAYER_TEXTS]), socm_texts=0, seed=seed).means("sigma_a")
    low, high = float(means.low[-1]), float(means.high[-1])
    interval = Interval(low, high, means.level, "the population of texts", "t") if np.isfinite(low) else None
    return {"sigma_a": Estimate(float(means.mean[-1]), interval)}


def _audit_numbers(answers: Sequence[Answer]) -> dict[str, Estimate]:
    """The numbers of the table that the audit has measured, with intervals and floors where its answers have them."""
    numbers: dict[str, Estimate] = {}
    for answer in answers:
        for name, value in answer.numbers.items():
            if name in COLUMNS and name not in ("socm", "socm_trace") and value is not None:
                same = answer.verdict.value is not None and np.isclose(float(value), answer.verdict.value)
                numbers[name] = Estimate(
                    float(value), answer.verdict.interval if same else None, answer.verdict.floor if same else None
                )
    return numbers


def _with_published(numbers: Mapping[str, Estimate], name: str, source: str) -> dict[str, Estimate]:
    model = BY_NAME.get(source) or next((known for full, known in BY_NAME.items() if full.endswith(f"/{name}")), None)
    return dict(numbers) if model is None else {**numbers, "socm_published": Estimate(model.wiki)}


def short_name(source: str) -> str:
    """The name that a model goes by: the last part of a hub name or path, without its ending.

    >>> short_name("thenlper/gte-small"), short_name("models/SmolLM2.Q4_1.gguf"), short_name("builtin:minilm")
    ('gte-small', 'SmolLM2.Q4_1', 'builtin:minilm')
    """
    last = source.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return last.removesuffix(".gguf") or source


def _flat(run: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: run[name] for name in ("model", "source", "status", "reason")}
    for name in COLUMNS:
        number = run["numbers"].get(name) or {}
        interval = number.get("interval") or {}
        row |= {name: number.get("value"), f"{name}_low": interval.get("low"), f"{name}_high": interval.get("high")}
    return row | {f"level_{key}": level for key, level in run.get("levels", {}).items()}


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
        write_json(folder / JSON, result.to_dict())


def _page(result: Zoo, run: _Run) -> str:
    """The table, and below it the questions of the audits side by side where two models or more were measured."""
    names = [row["model"] for row in result.runs if row["status"] == MEASURED]
    sections = [_table_section(result)]
    if len(names) > 1:
        comparison = compare(*(run.place(name) / AUDIT for name in names))
        sections += [overview(comparison), *(section(comparison, key) for key in comparison.keys)]
    about = f"{result.corpus['texts']:,} texts of {result.corpus['source']}"
    return render_page(f"{len(names)} models", about, sections, provenance=result.provenance)


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
            f"{result.measured} models are {result.measured} facts, not a law about models.",
            f"Published values are of other texts ({SOCM_PAPER}).",
        ],
        explained_by="measured.md",
    )
