"""`compare`: two audits joined by query, so that it works across new chunks, other models and other stores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from poolscope.auditing.power import shown_sentence
from poolscope.auditing.result import FILES, Audit
from poolscope.auditing.words import fill
from poolscope.digests import digests_of_files, sealed
from poolscope.errors import InputError
from poolscope.files import folder_to_write
from poolscope.numbers.intervals import FEWEST_PAIRED, LEVEL, Estimate, PairedDifference, paired_difference
from poolscope.replacing import replaced_files
from poolscope.results import Result, cells
from poolscope.show.verdicts import Level

COMPARISON, _TABLE = "comparison.json", "comparison.parquet"
_CHANGE = (
    "From {first} to {second}: found {before:count} → {after:count} of {queries:count query}, nDCG@{k:count} "
    "{gain:signed} {gain:interval}."
)
_MOVED = "{rescued:count query} more found, {broken:count} lost."
_WORSE = "That is worse beyond chance."
_BETTER = "That is better beyond chance."
_CHANCE = "That may be chance."
COMPARE_WORDS = (_CHANGE, _MOVED, _WORSE, _BETTER, _CHANCE)


@dataclass(frozen=True, repr=False, kw_only=True)
class AuditChange(Result):
    """A later audit beside the first, on the queries that both asked.

    `gain` is the change of the mean nDCG@k with its interval; `rescued` and `broken` are queries that only the later
    one finds, and only the first. `smallest` is the smallest change that would have shown, 1 where none would.
    `levels` has the levels of each cause in both, where they differ.
    """

    first: str
    second: str
    k: int
    queries: int
    found_before: int
    found_after: int
    gain: Estimate
    p: float
    smallest: float
    rescued: tuple[str, ...] = field(repr=False)
    broken: tuple[str, ...] = field(repr=False)
    levels: tuple[tuple[str, Level, Level], ...] = ()

    @property
    def beyond_chance(self) -> bool:
        """Does the interval exclude 0; or, of too few documents for one, do hardly any flips of signs reach it?"""
        around = self.gain.interval
        return self.p <= 1 - LEVEL if around is None else not around.low <= 0 <= around.high

    @property
    def worse(self) -> bool:
        """Is the change a loss beyond chance, or does a cause become `fix` that was not?"""
        lower = self.beyond_chance and self.gain.value_or_raise < 0
        return lower or any(after == "fix" != before for _, before, after in self.levels)

    def in_words(self) -> tuple[str, ...]:
        """The change in words."""
        values = {
            "first": self.first,
            "second": self.second,
            "before": self.found_before,
            "after": self.found_after,
            "queries": self.queries,
            "k": self.k,
            "gain": self.gain,
            "rescued": len(self.rescued),
            "broken": len(self.broken),
            "smallest": self.smallest,
        }
        said = (fill(_CHANGE, values), fill(_MOVED, values))
        if not self.beyond_chance:
            return (*said, _CHANCE, shown_sentence(self.queries, self.smallest))
        return (*said, _WORSE if self.gain.value_or_raise < 0 else _BETTER)


@dataclass(frozen=True, repr=False, kw_only=True)
class Comparison(Result):
    """Audits beside the first one."""

    names: tuple[str, ...]
    changes: tuple[AuditChange, ...]

    def in_words(self) -> tuple[str, ...]:
        """Every change in words."""
        return tuple(sentence for change in self.changes for sentence in change.in_words())

    def worse(self) -> list[str]:
        """The audits that are worse than the first beyond chance."""
        return [change.second for change in self.changes if change.worse]

    def rows(self) -> list[dict[str, Any]]:
        """One row an audit after the first."""
        return [
            {
                "first": change.first,
                "second": change.second,
                "queries": change.queries,
                "found_before": change.found_before,
                "found_after": change.found_after,
                **cells({"gain": change.gain}, ends=True),
                "p": change.p,
                "rescued": len(change.rescued),
                "broken": len(change.broken),
            }
            for change in self.changes
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `comparison.json` and `comparison.parquet` into a folder, or one file (.json, .csv, .parquet)."""
        if Path(folder).suffix in (".json", ".csv", ".parquet"):
            super().save(folder)
            return
        stale = (COMPARISON, _TABLE)
        with folder_to_write(folder) as opened, replaced_files(opened, stale=stale) as written:
            with written.file(_TABLE) as stream:
                pq.write_table(self.to_table(), stream)
            written.write_json(COMPARISON, sealed({**self.to_dict(arrays=True), FILES: digests_of_files(written)}))


def compare(*audits: Audit | str | os.PathLike[str], names: Sequence[str] = ()) -> Comparison:
    """Compare audits with the first one, on the queries that both asked.

    Parameters
    ----------
    *audits
        Audits, or folders that `poolscope audit --output` wrote.
    names
        A name for each; by default those of the folders, or of the models.

    Returns
    -------
    Comparison
        For each later audit what it finds more and less, with a paired interval.

    Examples
    --------
    >>> from poolscope import audit
    >>> texts = [f"text number {k} about subject {k % 7}" for k in range(40)]
    >>> found = audit("builtin:wordllama", texts, queries={f"number {k}": str(k) for k in range(40)})
    >>> compare(found, found).changes[0].gain.value_or_raise
    0.0

    """
    if len(audits) < 2:
        raise InputError(
            f"received {len(audits)} audit; needed: two or more. Name folders that `poolscope audit` wrote."
        )
    loaded = [each if isinstance(each, Audit) else Audit.load(each) for each in audits]
    called = _names(audits, loaded, names)
    changes = tuple(
        _change(loaded[0], other, called[0], name) for other, name in zip(loaded[1:], called[1:], strict=True)
    )
    return Comparison(names=tuple(called), changes=changes)


def _names(audits: Sequence[Any], loaded: Sequence[Audit], names: Sequence[str]) -> list[str]:
    if names and len(names) != len(loaded):
        raise InputError(f"names: received {len(names)} for {len(loaded)} audits; needed: one for each.")
    known = [
        str(audit.model["name"]).rpartition("/")[2] if isinstance(each, Audit) else Path(each).resolve().name
        for each, audit in zip(audits, loaded, strict=True)
    ]
    known = list(names) or known
    return known if len(set(known)) == len(known) else [f"{name} ({place})" for place, name in enumerate(known, 1)]


def _change(first: Audit, second: Audit, first_name: str, second_name: str) -> AuditChange:
    """The change from one audit to another, over the queries that both asked."""
    places = [{query: place for place, query in enumerate(audit.query_texts)} for audit in (first, second)]
    common = [query for query in first.query_texts if query in places[1]]
    if not common or first.query_ndcg is None or second.query_ndcg is None:
        raise InputError(
            f"{first_name} and {second_name} share no query, so that nothing can be compared. Audit both with the same "
            f"--queries."
        )
    if first.rule.k != second.rule.k:
        raise InputError(f"{first_name} looks at the top {first.rule.k}, {second_name} at the top {second.rule.k}.")
    rows = [np.array([where[query] for query in common]) for where in places]
    units = np.array(first.query_units)[rows[0]]
    paired: PairedDifference = paired_difference(first.query_ndcg[rows[0]], second.query_ndcg[rows[1]], units)
    provable = paired.units >= FEWEST_PAIRED and (paired.change.interval is not None or not paired.changed)
    missed = [{audit.query_texts[place] for place in _missed(audit)} for audit in (first, second)]
    found = [[query not in side for query in common] for side in missed]
    levels = {finding.cause: finding.level for finding in first.findings}
    return AuditChange(
        first=first_name,
        second=second_name,
        k=first.rule.k,
        queries=len(common),
        found_before=sum(found[0]),
        found_after=sum(found[1]),
        gain=paired.change,
        p=paired.p_value,
        smallest=paired.smallest_gain if provable else 1.0,
        rescued=tuple(query for query, one, two in zip(common, *found, strict=True) if two and not one),
        broken=tuple(query for query, one, two in zip(common, *found, strict=True) if one and not two),
        levels=tuple(
            (finding.title, levels[finding.cause], finding.level)
            for finding in second.findings
            if finding.cause in levels and levels[finding.cause] != finding.level
        ),
    )


def _missed(audit: Audit) -> Sequence[int]:
    return () if audit.ledger is None else audit.ledger.misses().tolist()
