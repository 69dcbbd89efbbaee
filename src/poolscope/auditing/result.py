"""The result of an audit: queries found, causes of the misses, and the decision; its folder and its page."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope.auditing.cause import STAGES, Stage
from poolscope.auditing.cure import Cost
from poolscope.auditing.decision import Decision
from poolscope.auditing.ledger import Ledger
from poolscope.auditing.map import TextMap
from poolscope.auditing.misses import Miss
from poolscope.auditing.rule import WHY, Reason, Rule
from poolscope.auditing.words import fill
from poolscope.digests import check_seal, digest_of, digests_of_files, sealed
from poolscope.errors import InputError, StoreError, reading
from poolscope.evaluation.paired import CureTrial
from poolscope.files import folder_to_write, in_plain_words, is_file, refuse_special, text_of
from poolscope.folder import Folder
from poolscope.metrics.queries import QueryScores
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate
from poolscope.replacing import current_file, replaced_files
from poolscope.results import Result, cells, origin, transient
from poolscope.show.verdicts import LEVELS, Level

JSON, PAGE, TABLES = "audit.json", "report.html", "tables"
FILES = "files"
"""The key of the digests of all other files in the JSON."""
_FILE = re.compile(rf"{re.escape(PAGE)}|{TABLES}/\w+\.parquet")  # so that no name leads out of the folder
_ALLOWED = "allowed are folders that `poolscope audit MODEL TEXTS --output FOLDER` wrote."

_FOUND = "{found:count} of {queries:count query} {found:number has} a relevant text in the top {k:count}."
_SELF_MADE = "{found:count} of {queries:count self-made query} {found:number has} their text in the top {k:count}."
_ALL_FOUND = "No query is missed."
_MISSED = (
    "{missed:count query} {missed:number is} missed; cures that find more than they lose would find {explained:count}."
)
_NO_QUERIES = "No queries: symptoms are counted, and nothing could be tried. Name a file with --queries."
HEADLINE_WORDS = (_FOUND, _SELF_MADE, _ALL_FOUND, _MISSED, _NO_QUERIES)


@dataclass(frozen=True, repr=False, kw_only=True)
class Finding(Result):
    """What the audit says about one cause.

    `number` is its symptom with interval and floor (None: not looked at), shown by `label` and `form`; `floor` says
    what its floor is. `affected` of the relevant texts have it, which `marked` says in words, and `loss` is what that
    costs: how much more often they are missed, times their share.
    `cures` names those that were tried. `values` fill the sentence.
    """

    cause: str
    title: str
    page: str
    level: Level
    reason: Reason
    sentence: str
    label: str
    form: str
    floor: str = "by chance"
    marked: str = ""
    stage: Stage = "model"
    number: Estimate | None = None
    affected: int | None = None
    loss: Estimate | None = None
    cures: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def examples(self) -> str:
        """A few rows to look up; "" where none are named."""
        names = self.values.get("examples") or ()
        return f"For example: {', '.join(map(str, names))}." if names else ""

    @property
    def urgency(self) -> tuple[int, bool, int, float]:
        """For an order, the most serious first: the level, defects, the stage, what the symptom is proven to cost."""
        around = None if self.loss is None else self.loss.interval
        costs = self.loss.value_or_raise if self.loss is not None and around is not None and around.low > 0 else 0.0
        place = 1 if self.level == "unchecked" else -LEVELS.index(self.level)
        return place, self.reason != "defect", STAGES.index(self.stage), -costs

    def in_words(self) -> tuple[str, ...]:
        """The sentence of the symptom, and the reason of the level where that says more."""
        return (self.sentence,) if self.reason == "no symptom" else (self.sentence, WHY[self.reason])

    def rows(self) -> list[dict[str, Any]]:
        """One row."""
        known = {"number": self.number or Estimate(None), "loss": self.loss or Estimate(None)}
        words = {"cause": self.cause, "level": self.level, "reason": self.reason, "sentence": self.sentence}
        return [{**words, **cells(known, ends=True), "affected": self.affected}]


@dataclass(frozen=True, repr=False, kw_only=True)
class Audit(Result):
    """How much a search finds, where its misses go, and what to do first.

    `found` is the share of queries with a relevant text in the top k, `relevant_found` that of all relevant texts.
    `findings` has one row a cause, `trials` one a cure, `yardsticks` one for each other way to search. `ledger` has one
    row a query and relevant text, `misses` one record a missed query, `map` their places among the texts, `per_query`
    the nDCG@k and the best rank of each. `threshold` are the scores of queries, with the threshold between relevant and
    other texts. `self_made` says how queries were made; "" where they are the user's. Without queries (`queries` is 0)
    there are symptoms only. `search` holds vectors and tokens; an audit that was loaded has none.
    """

    model: Mapping[str, Any]
    corpus: Mapping[str, Any]
    queries: int
    self_made: str
    rule: Rule
    unit: str
    units: int
    found: Estimate
    relevant_found: Estimate
    ndcg: Estimate
    recall: Estimate
    mrr: Estimate
    findings: tuple[Finding, ...]
    trials: tuple[CureTrial, ...]
    yardsticks: tuple[CureTrial, ...]
    costs: Mapping[str, Cost]
    labels: Mapping[str, str]
    decision: Decision
    threshold: QueryScores | None = None
    misses: tuple[Miss, ...] = field(default=(), repr=False)
    map: TextMap | None = field(default=None, repr=False)
    query_texts: tuple[str, ...] = field(default=(), repr=False)
    query_units: tuple[int, ...] = field(default=(), repr=False)
    query_ndcg: Array | None = field(default=None, repr=False, metadata={"bulk": True})
    ledger: Ledger | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = origin()
    search: Any = transient()

    def __getitem__(self, cause: str) -> Finding:
        known = {finding.cause: finding for finding in self.findings}
        if cause not in known:
            raise InputError(f"received the cause {cause!r}; the causes of this audit are {', '.join(known)}.")
        return known[cause]

    def __contains__(self, cause: object) -> bool:
        return any(finding.cause == cause for finding in self.findings)

    def __repr__(self) -> str:
        levels = ", ".join(f"{each.cause} {each.level}" for each in self.findings if each.level in ("fix", "look"))
        return f"Audit({self.model['name']} on {self.texts:,} texts: {levels or 'nothing to fix'})"

    def __str__(self) -> str:
        """The screen of `poolscope audit`, as plain text."""
        from poolscope.auditing.screen import as_text

        return as_text(self)

    @property
    def texts(self) -> int:
        """How many texts were searched."""
        return int(self.corpus["texts"])

    @property
    def level(self) -> Level:
        """The most serious level among the causes."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")

    @property
    def missed(self) -> int:
        """How many queries are missed."""
        return 0 if self.ledger is None else len(self.ledger.misses())

    @property
    def gaining(self) -> list[str]:
        """Cures that rescue more queries than they break, tried on the whole search."""
        if self.ledger is None:
            return []
        whole = (trial for trial in self.trials if trial.queries == self.queries and trial.name in self.ledger.ranks)
        return [trial.name for trial in whole if len(trial.rescued) > len(trial.broken)]

    @property
    def looked(self) -> tuple[Finding, ...]:
        """The causes that were looked at, the most serious first.

        Of one level defects come first, then what is wrong in the index, in the texts and in the model, of these what
        costs most; what is unchecked comes last.
        """
        looked = (finding for finding in self.findings if finding.reason != "not looked at")
        return tuple(sorted(looked, key=lambda each: each.urgency))

    @property
    def unlooked(self) -> tuple[Finding, ...]:
        """The causes that were not looked at, for one line at the end."""
        return tuple(finding for finding in self.findings if finding.reason == "not looked at")

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables of the folder: causes, cures and yardsticks, misses, and the ledger."""
        named = {
            "causes": [row for finding in self.findings for row in finding.rows()],
            "cures": [self._trial_row(trial, "cure") for trial in self.trials]
            + [self._trial_row(trial, "yardstick") for trial in self.yardsticks],
            "misses": [self._miss_row(miss) for miss in self.misses],
            "ledger": [] if self.ledger is None else self.ledger.rows(),
        }
        return {name: pa.Table.from_pylist(rows) for name, rows in named.items() if rows}

    def _trial_row(self, trial: CureTrial, kind: str) -> dict[str, Any]:
        counts = {"queries": trial.queries, "rescued": len(trial.rescued), "broken": len(trial.broken)}
        gains = cells({"gain": trial.gain, "found_gain": trial.found_gain}, ends=True)
        return {
            "name": trial.name,
            "label": self.labels.get(trial.name, trial.name),
            "kind": kind,
            **counts,
            **gains,
            "p": trial.p,
            "smallest": trial.smallest,
        }

    @staticmethod
    def _miss_row(miss: Miss) -> dict[str, Any]:
        row = {
            name: getattr(miss, name)
            for name in ("query_id", "query", "text_id", "text", "rank", "score", "needed", "tokens", "truncated")
        }
        before = [each.id for each in miss.before]
        return {
            **row,
            "symptoms": list(miss.symptoms),
            "before": before,
            **{f"rank_{k}": v for k, v in miss.ranks.items()},
        }

    def sentences(self) -> tuple[str, ...]:
        """What the search finds and where its misses go."""
        if not self.queries or self.ledger is None:
            return (_NO_QUERIES,)
        found = self.queries - self.missed
        values = {"found": found, "queries": self.queries, "k": self.rule.k, "missed": self.missed}
        said = (fill(_SELF_MADE if self.self_made else _FOUND, values),)
        if not self.missed:
            return (*said, _ALL_FOUND)
        explained = self.missed - len(self.ledger.unexplained(self.gaining))
        return (*said, fill(_MISSED, {**values, "explained": explained}))

    def in_words(self) -> tuple[str, ...]:
        """Headline and decision in words."""
        return (*self.sentences(), *self.decision.in_words())

    def rows(self) -> list[dict[str, Any]]:
        """One row a cause, in the order of the screen."""
        return [row for finding in (*self.looked, *self.unlooked) for row in finding.rows()]

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], *, page: bool = True) -> Path:  # type: ignore[override]
        """Write `audit.json`, `tables/*.parquet` and, with `page`, `report.html` into a folder.

        An audit that is there already stays until the new one is whole, and is then replaced in one step; other files
        of the folder stay.
        """
        with folder_to_write(folder) as opened:
            self.save_into(opened, page=page)
        return Path(folder)

    def save_into(self, folder: Folder, *, page: bool = True) -> None:
        """Do what `save` does in a folder that is open and locked already, as a run keeps it from its begin."""
        content = self.to_html() if page else None
        stale = (JSON, PAGE, f"{TABLES}/*.parquet")
        with in_plain_words(folder.path), replaced_files(folder, stale=stale) as written:
            for name, table in self.tables.items():
                with written.file(f"{TABLES}/{name}.parquet") as stream:
                    pq.write_table(table, stream)
            if content is not None:
                written.write_text(PAGE, content)
            written.write_json(JSON, sealed({**self.to_dict(arrays=True), FILES: digests_of_files(written)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The audit of a folder that `save` wrote; vectors and tokens are not kept."""
        folder = audit_folder(path)
        if is_file(folder):
            raise InputError(f"{folder}: received a file; {_ALLOWED}")
        path = current_file(folder, JSON)
        try:
            with reading(path, "Run the audit again.", is_not="an audit"):
                content = check_seal(json.loads(text_of(path, StoreError)), path, "Run the audit again.")
                if content.get("result") != cls.__name__:
                    raise ValueError(f"it holds {content.get('result')!r}")
        except FileNotFoundError:
            raise InputError(f"{folder}: no {JSON} here; {_ALLOWED}") from None
        for name, digest in dict(content.pop(FILES, None) or {}).items():
            if not _FILE.fullmatch(str(name)):
                raise StoreError(f"{path}: it names the file {str(name)[:60]!r}, which leads out of it. Audit again.")
            _check(folder, str(name), str(digest))
        with reading(path, "Run the audit again.", is_not="an audit"):
            loaded = cls.from_dict(content)
            loaded._refuse_what_does_not_fit()
        return loaded

    def _refuse_what_does_not_fit(self) -> None:
        """Refuse what poolscope would not have written: other numbers of queries, or what cannot be shown."""
        from poolscope.auditing.screen import as_text

        parts = (self.query_texts, self.query_units, () if self.query_ndcg is None else self.query_ndcg)
        if {len(part) for part in parts} - {self.queries} or (self.ledger and self.ledger.queries != self.queries):
            raise ValueError(f"its parts hold other numbers of queries than {self.queries:,}")
        as_text(self, details=True)

    # -- what is shown --------------------------------------------------------------------------------------------

    def to_html(self) -> str:
        """One self-contained page (needs the extra 'report')."""
        from poolscope.auditing.page import audit_page

        return audit_page(self)

    def figure(self) -> Any:
        """The gain of every cure and yardstick in nDCG@k with its interval."""
        from poolscope.auditing.page import gains_figure

        return gains_figure(self)


def _check(folder: Path, name: str, digest: str) -> None:
    """Refuse a folder in which a file of the audit is missing or another."""
    path = current_file(folder, name)
    with reading(path, "Run the audit again."):
        refuse_special(path, StoreError)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"{path}: this file of the audit is missing. Copy the folder again.") from None
        if digest_of(data) != digest:
            raise ValueError("it is not what was written, since its digest differs")


def audit_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of an audit, named itself or by its `audit.json`."""
    return Path(path).parent if Path(path).name == JSON else Path(path)
