"""Several audits of the same corpus beside each other: their answers, and differences with intervals."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope.auditing.compare_names import audit_names, differing_facts
from poolscope.auditing.differences import DifferenceRow, Record, differences
from poolscope.auditing.result import JSON, TABLES, Audit
from poolscope.errors import InputError, StoreError
from poolscope.files import atomic_path, check_folder, write_json
from poolscope.results import plain

COMPARISON, COMPARISON_PAGE = "comparison.json", "comparison.html"


@dataclass(frozen=True)
class Comparison:
    """Audits of one corpus beside each other; differences are those of each later audit with the first.

    `folders` are those that the audits were read from (None for one that was given as an object).
    """

    records: tuple[Record, ...]
    differences: tuple[DifferenceRow, ...]
    folders: tuple[str | None, ...]

    @property
    def names(self) -> list[str]:
        """The names of the audits."""
        return [record.name for record in self.records]

    def facts(self) -> dict[str, list[Any]]:
        """What tells the audits apart, one value an audit: folder, model, settings and thresholds that differ."""
        return differing_facts([record.document for record in self.records], self.folders)

    def table(self) -> list[dict[str, Any]]:
        """One row a question and audit: level, number and what it is, interval, floor and sentence."""
        rows = []
        for answers in zip(*(record.answers for record in self.records), strict=True):
            for record, answer in zip(self.records, answers, strict=True):
                interval = answer["interval"] or {}
                row = {"number": answer["number"], "key": answer["key"], "audit": record.name}
                row |= {name: answer[name] for name in ("level", "number_name", "value", "floor", "sentence")}
                rows.append({**row, "low": interval.get("low"), "high": interval.get("high")})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        return {
            "audits": [{"name": record.name, "model": record.document["model"]["name"]} for record in self.records],
            "corpus": self.records[0].document["corpus"],
            "facts": plain(self.facts()),
            "answers": plain(self.table()),
            "differences": plain(list(self.differences)),
        }

    def to_html(self) -> str:
        """One self-contained page in the style of the audit's (needs the extra 'report')."""
        from poolscope.auditing.compare_page import comparison_page

        return comparison_page(self)

    def save(self, folder: str | os.PathLike[str], *, page: bool = True) -> Path:
        """Write `comparison.json` and, with `page`, `comparison.html` into a folder."""
        target = check_folder(folder)
        if page:
            with atomic_path(target / COMPARISON_PAGE) as temporary:
                temporary.write_text(self.to_html(), encoding="utf-8")
        write_json(target / COMPARISON, self.to_dict())
        return target


def compare(*audits: Audit | str | os.PathLike[str]) -> Comparison:
    """Two or more audits of the same corpus, as objects or as folders that `Audit.save` wrote."""
    if len(audits) < 2:
        raise InputError(f"received {len(audits)} audits; a comparison needs two or more of the same corpus.")
    folders = [None if isinstance(audit, Audit) else _folder(audit) for audit in audits]
    records = [_record(audit) for audit in audits]
    shown = [None if folder is None else str(folder) for folder in folders]
    names = audit_names([record.name for record in records], shown)
    records = [Record(name, record.document, record.read) for name, record in zip(names, records, strict=True)]
    _check_corpora(records)
    rows = [row for other in records[1:] for row in differences(records[0], other)]
    return Comparison(tuple(records), tuple(rows), tuple(shown))


def _folder(audit: str | os.PathLike[str]) -> Path:
    return Path(audit).parent if Path(audit).name == JSON else Path(audit)


def _record(audit: Audit | str | os.PathLike[str]) -> Record:
    if isinstance(audit, Audit):
        return Record(str(audit.model["name"]), audit.to_dict(), audit.tables.get)
    folder = _folder(audit)
    try:
        document = json.loads((folder / JSON).read_text(encoding="utf-8"))
        name = document["model"]["name"]
        complete = {"answers", "numbers", "corpus", "thresholds"} <= set(document)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: no {JSON} here; allowed are folders that `poolscope audit MODEL TEXTS --output FOLDER` wrote."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{folder / JSON}: not an audit, or damaged ({error}). Run the audit again.") from error
    if not complete:
        raise StoreError(f"{folder / JSON}: it lacks answers, numbers, thresholds or corpus. Run the audit again.")
    # Only tables of this audit: an earlier one may have left others in the folder.
    written = {table for answer in document["answers"] for table in answer["tables"]}
    return Record(str(name), document, lambda table: _table(folder, table) if table in written else None)


def _table(folder: Path, name: str) -> pa.Table | None:
    path = folder / TABLES / f"{name}.parquet"
    return pq.read_table(path) if path.exists() else None


def _check_corpora(records: Sequence[Record]) -> None:
    corpora = [record.document["corpus"] for record in records]
    digests = [corpus["digest"] for corpus in corpora]
    if None in digests:
        unknown = records[digests.index(None)].name
        raise InputError(
            f"{unknown} was audited from clouds without their texts, so nothing tells whether the corpus is the same. "
            f"Audit a model on texts, or clouds that carry their texts."
        )
    if len(set(digests)) > 1:
        listed = "; ".join(
            f"{record.name}: {corpus['texts']:,} texts of {corpus['source']} ({corpus['digest'][:12]})"
            for record, corpus in zip(records, corpora, strict=True)
        )
        raise InputError(
            f"the audits are of different corpora ({listed}); only audits of the same texts, in the same order, can be "
            f"compared. Run them again with the same texts, --limit and --seed."
        )
