"""Coverage of the five documents, item by item, and a check of every proof that an item names.

`coverage.csv` has one row an item of the papers, their reviews and their summaries: its grade when the work began, its
grade now, what shows it, and what is missing. A: done and verified; B: done otherwise; C: partly; D: absent; N: no
matter for software. A row is shown by entries of a paper, tests, public names, commands or pages.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from poolscope.errors import InputError

GRADES = {"A": "done and verified", "B": "done otherwise", "C": "partly", "D": "absent", "N": "no matter for software"}
DOCUMENTS = {
    "000": "Hara et al. 2026, the SOCM paper",
    "001": "a review of it",
    "002": "a news article on it",
    "003": "Zhou et al. 2025, length collapse",
    "004": "a summary of Yamagiwa and Shimodaira 2024, norm and variance",
}
PAGE = "coverage.md"
_ABOUT = (
    "What of the papers is here, and what is missing? The counts are of all items. A table below lists each that is "
    "not done, or done otherwise. `poolscope lab paper coverage` checks every item and writes this page; all of "
    "them, with what shows each, are in `poolscope/lab/papers/coverage.csv`."
)
_GRADED = (
    "A grade is about the software. An item may need a model or a data set that is not here: it is done where a "
    "command measures it as soon as they are."
)
_SOURCES = Path(__file__).resolve().parents[4]  # the checkout, where there is one: tests and pages are looked for there


@dataclass(frozen=True)
class Item:
    """One item of a document."""

    id: str
    section: str
    item: str
    before: str
    after: str
    proof: str
    reason: str

    @property
    def proofs(self) -> list[tuple[str, str]]:
        """Proofs of the item as (kind, name), such as ("entry", "socm/figure-3")."""
        return [(kind, name) for kind, _, name in (part.partition(":") for part in self.proof.split("; ") if part)]


def items() -> tuple[Item, ...]:
    """All items, in the order of the documents."""
    lines = files(__package__).joinpath("coverage.csv").read_text(encoding="utf-8").splitlines()
    return tuple(Item(**row) for row in csv.DictReader(lines))


def missing_proofs(listed: Iterable[Item]) -> list[str]:
    """Items with a proof that does not exist, and items without the proof or the reason that their grade needs."""
    faults = []
    for item in listed:
        if item.after == "A" and not item.proofs:
            faults.append(f"{item.id}: done, and nothing shows it")
        if item.after in ("B", "C", "D") and not item.reason:
            faults.append(f"{item.id}: not done, and no reason")
        faults += [f"{item.id}: there is no {kind} {name}" for kind, name in item.proofs if not is_there(kind, name)]
    return faults


def is_there(kind: str, name: str) -> bool:
    """Whether an entry, a test, a public name, a command or a page exists; an installed package has no tests to check.

    >>> is_there("entry", "socm/figure-3"), is_there("entry", "socm/figure-99"), is_there("name", "socm")
    (True, False, True)
    """
    match kind:
        case "entry":
            from poolscope.lab.papers.catalogue import PAPERS

            paper, _, key = name.partition("/")
            return paper in PAPERS and key in {entry.key for entry in PAPERS[paper].entries}
        case "name":
            import poolscope

            return hasattr(poolscope, name)
        case "command":
            from poolscope.cli import COMMANDS, GROUPS, rows_in

            return any(name == row.name for rows in (COMMANDS, *map(rows_in, GROUPS)) for row in rows)
        case "test":
            path, _, function = name.partition("::")
            if not (_SOURCES / "tests").is_dir():
                return True
            file = _SOURCES / path
            return file.is_file() and (not function or f"def {function}(" in file.read_text(encoding="utf-8"))
        case "page":
            return not (_SOURCES / "docs").is_dir() or (_SOURCES / "docs" / name).is_file()
    raise InputError(f"coverage.csv: received the proof {kind}:{name}; allowed: entry, name, command, test, page.")


def counts(listed: Sequence[Item]) -> list[dict[str, str]]:
    """Grades by document, before and now."""
    rows = []
    for document in (*DOCUMENTS, "all"):
        own = [item for item in listed if document == "all" or item.id.startswith(document)]
        before, after = Counter(item.before for item in own), Counter(item.after for item in own)
        grades = {grade: f"{before[grade]} → {after[grade]}" for grade in GRADES}
        rows.append({"document": document, **grades, "items": str(len(own))})
    return rows


def page(listed: Sequence[Item]) -> str:
    """Page of the documentation: counts of all items, then those that are not done, or done otherwise."""
    lines = [
        "# What is covered",
        "",
        _ABOUT,
        "",
        f"{_GRADED} {' '.join(f'{grade}: {words}.' for grade, words in GRADES.items())}",
        "",
        "| document | " + " | ".join(GRADES) + " | items |",
        "|---" * (len(GRADES) + 2) + "|",
        *(f"| {' | '.join(row.values())} |" for row in counts(listed)),
    ]
    lines += ["", *(f"- {document}: {words}" for document, words in DOCUMENTS.items())]
    for document in DOCUMENTS:
        missing = [item for item in listed if item.id.startswith(document) and item.after in ("B", "C", "D")]
        if missing:
            lines += ["", f"## {document}", "", "| id | item | grade | missing |", f"|{'---|' * 4}"]
        for item in missing:
            cells = (item.id, f"{item.section}: {item.item}", item.after, item.reason)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
