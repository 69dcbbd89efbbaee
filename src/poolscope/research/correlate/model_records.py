"""Models with their numbers: from audits, or from a table with one row a model."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poolscope.errors import InputError
from poolscope.texts.sources import open_table
from poolscope.texts.tables import Table

TRAITS = ("parameters", "dimension")
"""What a model is, not how well it does: never a metric or a score, and there to be controlled for."""

_NAME, _ALIASES, _FAMILY = "model", "aliases", "family"
AUDIT_FILE = "audit.json"

HEADLINES = (
    "cut_off",
    "anisotropy",
    "wrong_pooling_keeps",
    "share_cut",
    "short_share",
    "length_slope",
    "position_drop",
    "socm",
    "socm_trace",
    "socm_neighbours",
    "concentration_ratio",
    "hub_skewness",
    "near_duplicates",
)
"""Of the numbers of an audit those that each say one thing: no counts, floors, gains of repairs, or the same again."""


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
            raise InputError(f"{table.name}: row {number} names no model. Fill in the column '{_NAME}'.")
        values = {
            name: _number(value, f"{table.name}: row {number}, column '{name}'")
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
    found = [_audit(Path(path) / AUDIT_FILE if Path(path).is_dir() else Path(path)) for path in paths]
    corpora = {corpus for _, corpus in found}
    notes = (
        () if len(corpora) < 2 else (f"The audits are of {len(corpora)} corpora: part of a difference is the texts'.",)
    )
    return ModelRecords(f"{len(found)} audits", tuple(record for record, _ in found), notes, headlines=HEADLINES)


def _audit(path: Path) -> tuple[ModelRecord, str]:
    """The model of an audit, and what tells its texts apart."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        model, numbers = content["model"], content["numbers"]
        name, values = str(model["name"]), dict(numbers)
        corpus = str(content.get("corpus", {}).get("digest"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: cannot be read as an audit ({type(error).__name__}: {error}); needed: the JSON of `poolscope "
            f"audit`, with 'model' and 'numbers'. Name such a file, or a folder with {AUDIT_FILE} in it; a table of "
            f"metrics stands alone (--metrics)."
        ) from error
    known = {key: _number(value, f"{path}: number '{key}'") for key, value in values.items() if value is not None}
    traits = {trait: float(model[trait]) for trait in TRAITS if isinstance(model.get(trait), int | float)}
    traits |= {trait: known[trait] for trait in TRAITS if trait in known}
    measured = {key: value for key, value in known.items() if key not in TRAITS}
    return ModelRecord(name, measured, traits=traits), corpus


def _number(value: Any, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place} holds {value!r}; a finite number is needed. Correct it, or leave it empty.")
    return number
