"""Models with their numbers, read from audits, tables and MTEB result folders and matched by name."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, require
from poolscope.files import is_folder, text_of
from poolscope.lab.papers.models import SOCM_MODELS
from poolscope.texts.records import row_place
from poolscope.texts.sources import exists, looks_like_hub, open_table
from poolscope.texts.tables import Table

# -- models with their numbers ----------------------------------------------------------------------------------------

TRAITS = {"parameters": "n_parameters", "dimension": "embed_dim"}
"""What a model is, not how well it does, and what its card in MTEB calls it: never a metric or a score, and there to be
controlled for."""

_NAME, _ALIASES, _FAMILY = "model", "aliases", "family"
AUDIT_FILE = "audit.json"


@dataclass(frozen=True)
class ModelRecord:
    """One model: its name, other names it goes by, its family, its numbers by name, and its traits."""

    name: str
    numbers: Mapping[str, float]
    aliases: tuple[str, ...] = ()
    family: str | None = None
    traits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRecords:
    """The models of one source. `tasks`: the numbers are scores of tasks, of which the mean over tasks is wanted.

    `headlines`: the numbers that are looked at unless others are named; empty for all.
    """

    source: str
    records: tuple[ModelRecord, ...]
    notes: tuple[str, ...] = ()
    tasks: bool = False
    headlines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [record.name for record in self.records]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"{self.source}: received more than one row or audit of {', '.join(twice)}; a model is one point. "
                f"Leave one of them, or give them different names."
            )

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers, in the order of their first appearance."""
        return tuple(dict.fromkeys(name for record in self.records for name in record.numbers))


Source = ModelRecords | str | os.PathLike[str]


def read_metrics(source: Source | Sequence[str | os.PathLike[str]]) -> ModelRecords:
    """Metrics of models: audits (files or folders, a list), or a table with one row a model."""
    if isinstance(source, ModelRecords):
        return source
    if not isinstance(source, str | os.PathLike) and len(source) == 1:
        source = source[0]  # one name in a list, as the command line has it: an audit, or a table
    if isinstance(source, str | os.PathLike):
        is_audit = is_folder(Path(source)) or Path(source).suffix == ".json"
        return read_audits([source]) if is_audit else read_model_table(_present(source, "metrics"))
    return read_audits(source)


def read_scores(source: Source, *, benchmark: str | None = None) -> ModelRecords:
    """Scores of models: a table with one row a model, or a folder of MTEB results, all or those of a benchmark."""
    if isinstance(source, ModelRecords):
        return source
    if is_folder(Path(source)):
        return read_mteb_results(source, benchmark=benchmark)
    table = _present(source, "scores")
    if benchmark is not None:
        raise InputError(f"benchmark is for a folder of MTEB results; received the table {source}. Leave it out.")
    return read_model_table(table)


def _present(source: str | os.PathLike[str], what: str) -> str | os.PathLike[str]:
    if exists(Path(source)) or (isinstance(source, str) and looks_like_hub(source)):
        return source
    raise InputError(
        f"{what}: received {os.fspath(source)}; there is no such file or folder. Needed: a table with one row a model "
        f"(.csv, .jsonl, .parquet){' or a folder of MTEB results' if what == 'scores' else ''}. Check the spelling."
    )


# -- tables and audits --------------------------------------------------------------------------------------------


def read_model_table(source: str | os.PathLike[str]) -> ModelRecords:
    """One row a model: the column `model`, if there are any `aliases` (with ; between), `family`, traits, and numbers.

    Any table that `read_texts` reads. An empty cell is a number that is not known; columns of words are named in the
    notes and not used. A word among numbers is refused.
    """
    table = open_table(source)
    if _NAME not in table.kinds:
        raise InputError(
            f"{table.name}: there is no column '{_NAME}'; the columns are {table.listing()}. The names of the models "
            f"stand in a column called '{_NAME}'."
        )
    known = (_NAME, _ALIASES, _FAMILY)
    words = [name for name, kind in table.kinds.items() if kind in ("text", "other") and name not in known]
    unused = [name for name in words if not _mostly_numbers(table, name)]
    numeric = [name for name, kind in table.kinds.items() if kind != "missing" and name not in (*known, *unused)]
    notes = (f"{table.name}: columns without numbers are not used: {', '.join(unused)}.",) if unused else ()
    return ModelRecords(table.name, tuple(_rows(table, numeric)), notes)


def _mostly_numbers(table: Table, column: str) -> bool:
    """Whether at least half of what stands in the column are numbers: the rest are mistakes then, no words."""
    filled = [value for (value,) in table.rows([column]) if value not in (None, "")]
    return 2 * sum(map(_is_number, filled)) >= max(len(filled), 1)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def _rows(table: Table, numeric: Sequence[str]) -> Iterable[ModelRecord]:
    columns = [name for name in (_NAME, _ALIASES, _FAMILY) if name in table.kinds]
    for number, row in enumerate(table.rows([*columns, *numeric])):
        words = {name: str(value).strip() for name, value in zip(columns, row, strict=False) if value is not None}
        if not words.get(_NAME):
            if all(value in (None, "") for value in row):
                continue  # an empty line at the end of a file
            raise InputError(f"{table.name}: {row_place(number)} names no model. Fill in the column '{_NAME}'.")
        values = {
            name: _number(value, f"{table.name}: {row_place(number)}, column '{name}'")
            for name, value in zip(numeric, row[len(columns) :], strict=True)
            if value not in (None, "")
        }
        yield ModelRecord(
            name=words[_NAME],
            numbers={name: value for name, value in values.items() if name not in TRAITS},
            aliases=tuple(part.strip() for part in words.get(_ALIASES, "").split(";") if part.strip()),
            family=words.get(_FAMILY) or None,
            traits={name: value for name, value in values.items() if name in TRAITS},
        )


def read_audits(paths: Iterable[str | os.PathLike[str]]) -> ModelRecords:
    """The flat numbers of audits, one a model: files of `poolscope audit`, or folders that hold `audit.json`.

    A note tells where the audits are of different texts.
    """
    audits = [_audit(Path(path) / AUDIT_FILE if is_folder(Path(path)) else Path(path)) for path in paths]
    corpora = {corpus for _, corpus in audits}
    notes = (
        () if len(corpora) < 2 else (f"The audits are of {len(corpora)} corpora: part of a difference is the texts'.",)
    )
    return ModelRecords(f"{len(audits)} audits", tuple(record for record, _ in audits), notes)


def _audit(path: Path) -> tuple[ModelRecord, str]:
    """The model of an audit, and what tells its texts apart."""
    try:
        content = json.loads(text_of(path))
        model = content["model"]
        name, values = str(model["name"]), _audit_numbers(content)
        corpus = str(content.get("corpus", {}).get("digest"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read as an audit ({type(error).__name__}: {error}); needed: the JSON of `poolscope "
            f"audit`, with 'model' and 'findings'. Name such a file, or a folder with {AUDIT_FILE} in it; a table of "
            f"metrics is passed alone, by --metrics."
        ) from error
    known = {key: _number(value, f"{path}: number '{key}'") for key, value in values.items() if value is not None}
    traits = {trait: float(model[trait]) for trait in TRAITS if isinstance(model.get(trait), int | float)}
    traits |= {trait: known[trait] for trait in TRAITS if trait in known}
    measured = {key: value for key, value in known.items() if key not in TRAITS}
    return ModelRecord(name, measured, traits=traits), corpus


def _audit_numbers(content: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of an audit by name: what its search finds, and the symptom of each cause."""
    quality = {name: content[name] for name in ("found", "relevant_found", "ndcg", "recall", "mrr")}
    symptoms = {finding["cause"]: finding["number"] or {} for finding in content["findings"]}
    return {name: number.get("value") for name, number in {**quality, **symptoms}.items()}


def _number(value: Any, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place} holds {value!r}; a finite number is needed. Correct it, or leave it empty.")
    return number


# -- MTEB ---------------------------------------------------------------------------------------------------------


def read_mteb_results(folder: str | os.PathLike[str], *, benchmark: str | None = None) -> ModelRecords:
    """Main scores by model and task from a folder of results (model/revision/task.json).

    `folder` is a cache of mteb, a copy of its published results, or the folder `results` in one of them. `benchmark`,
    such as "MTEB(eng, v2)", takes its tasks, splits and languages, as mteb defines them. Without it a score is the mean
    over the splits and languages in the file. Several revisions of a model are joined by mteb's rule: the registered
    revision first, then the newest run.
    """
    cache, remote = _cache(Path(folder))
    results = cache.load_results(
        tasks=_benchmark(benchmark),
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
        which = "" if benchmark is None else f" of {benchmark}"
        raise InputError(
            f"{folder}: no results{which} were found; needed: results/ORGANISATION__MODEL/REVISION/TASK.json in it. "
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
    known = {trait: getattr(card, name, None) for trait, name in TRAITS.items()}
    return {trait: float(value) for trait, value in known.items() if isinstance(value, int | float)}


# -- which model is which -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinedModel:
    """One model that has metrics and scores."""

    name: str
    family: str
    metrics: dict[str, float]
    scores: dict[str, float]
    traits: dict[str, float]

    def control(self, name: str) -> float | None:
        """A number to control for: a trait, else a metric, else a score."""
        return next((part[name] for part in (self.traits, self.metrics, self.scores) if name in part), None)


@dataclass(frozen=True)
class Joined:
    """The models of both sources, and those that only one of them has."""

    models: tuple[JoinedModel, ...]
    only_metrics: tuple[str, ...]
    only_scores: tuple[str, ...]
    families_given: bool


def join(metrics: ModelRecords, scores: ModelRecords) -> Joined:
    """Match the models of two sources.

    Names are equal without regard to case, with `org__model` for `org/model`; an alias counts as a name. A name without
    an organisation stands for the one model that has it as the last part of its name. The family is that of the tables,
    else the backbone that the SOCM paper gives, else the model itself.
    """
    partners: dict[str, ModelRecord] = {}
    models = []
    for record in metrics.records:
        partner = _partner(record, scores)
        if partner is None:
            continue
        if partner.name in partners:
            raise InputError(
                f"{partner.name} ({scores.source}) goes with {partners[partner.name].name} and with {record.name}; a "
                f"model is one point. Give full names, or put one of them in the column 'aliases' of its row."
            )
        partners[partner.name] = record
        models.append(
            JoinedModel(
                name=record.name,
                family=record.family or partner.family or _published_family(record, partner) or record.name,
                metrics=dict(record.numbers),
                scores=dict(partner.numbers),
                traits={**partner.traits, **record.traits},
            )
        )
    matched = {record.name for record in partners.values()}
    return Joined(
        models=tuple(models),
        only_metrics=tuple(record.name for record in metrics.records if record.name not in matched),
        only_scores=tuple(record.name for record in scores.records if record.name not in partners),
        families_given=any(model.family != model.name for model in models),
    )


def _partner(record: ModelRecord, others: ModelRecords) -> ModelRecord | None:
    """The one record of the other source that is this model; None if there is none."""
    names = _names(record)
    for same in (operator.eq, _equal_last_part):
        matches = [other for other in others.records if any(same(a, b) for a in names for b in _names(other))]
        if len(matches) > 1:
            raise InputError(
                f"{record.name} may be any of {', '.join(other.name for other in matches)} ({others.source}). Give its "
                f"full name, or name it in the column 'aliases' of the right row."
            )
        if matches:
            return matches[0]
    return None


def _names(record: ModelRecord) -> list[str]:
    return [normal_name(name) for name in (record.name, *record.aliases)]


def normal_name(name: str) -> str:
    """The form in which names are compared.

    >>> normal_name("Intfloat__e5-base-v2")
    'intfloat/e5-base-v2'
    """
    return name.strip().rstrip("/").replace("__", "/", 1).lower()


def _equal_last_part(a: str, b: str) -> bool:
    """Equal last parts, where at least one of the two names has no organisation."""
    return ("/" not in a or "/" not in b) and a.rpartition("/")[2] == b.rpartition("/")[2]


def _published_family(*records: ModelRecord) -> str | None:
    families = {normal_name(model.hub): model.family for model in SOCM_MODELS}
    known: Iterable[str] = (name for record in records for name in _names(record))
    return next((families[name] for name in known if name in families), None)


def listed(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(names) or "none"
