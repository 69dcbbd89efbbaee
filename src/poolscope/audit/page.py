"""An audit as sections of a page; the page itself is made by `poolscope.report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from threadpoolctl import threadpool_limits

from poolscope.audit.questions import QUESTIONS
from poolscope.audit.result import Answer, Audit
from poolscope.report import PairExplorer, ReportSection, ReportTable, pair_explorer, render_page

# Pairs that the page lets the reader look at, by kind: each brings a picture, so there are few.
EXPLORED = {"worst": 50, "nearest": 30, "random": 60}


@dataclass(frozen=True)
class Shown:
    """How a table stands in the page: its title, and how many of its rows; the Parquet file has all of them."""

    title: str
    rows: int
    searchable: bool = False


# Tables of the page; the others go to files only.
SHOWN: Mapping[str, Shown] = {
    "poolings": Shown("Poolings", 20),
    "truncation": Shown("Texts that were cut", 100, searchable=True),
    "retrieval_by_length": Shown("Answers by length", 40),
    "length": Shown("Profile by length", 40),
    "position": Shown("Position of the answer", 10),
    "worst_pairs": Shown("Worst pairs", 100, searchable=True),
    "hubs": Shown("Texts that come back most", 50, searchable=True),
    "duplicates": Shown("Near-duplicates and equal texts", 100, searchable=True),
    "actions": Shown("What to do, in order", 10),
}


def audit_page(audit: Audit) -> str:
    """The whole page of one audit, as a string."""
    return render_page(
        f"Audit of {audit.model['name']}",
        f"{audit.corpus['texts']:,} texts of {audit.corpus['source']} · {audit.corpus['tokens']:,} tokens",
        [answer_section(answer) for answer in audit.answers],
        explorer=_explorer(audit),
        provenance={"model": audit.model, "corpus": audit.corpus, **audit.provenance},
        overall=audit["decision"].verdict,
    )


def answer_section(answer: Answer) -> ReportSection:
    """One answer as a section: verdict, figure, tables and the page that explains it."""
    question = QUESTIONS[answer.number - 1]
    return ReportSection(
        key=answer.key,
        title=f"{answer.number}. {question.title}",
        question=answer.question,
        verdict=answer.verdict,
        figures=[
            (question.title if name == answer.key else name.capitalize(), drawn) for name, drawn in answer.figures()
        ],
        tables=[_shown(name, table) for name, table in answer.tables.items() if name in SHOWN and len(table)],
        notes=_notes(answer),
        explained_by=answer.page,
        number_name=answer.number_name,
        number_format=answer.number_format,
    )


def _notes(answer: Answer) -> list[str]:
    if answer.action is None:
        return []
    action = answer.action
    return [f"What to do: {action.step}. Cost: {action.cost}.", f"Command: {action.command}"]


def _shown(name: str, table: pa.Table) -> ReportTable:
    """The first rows of a table; of the truncated texts those that lost most."""
    kind = SHOWN[name]
    if name == "truncation":
        table = table.filter(pc.greater(table["cut"], 0)).sort_by([("cut", "descending")])
    rows = table.slice(0, kind.rows)
    cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    left = len(table) - len(rows)
    title = f"{kind.title} (the first {len(rows):,} of {len(table):,}; all in {name}.parquet)" if left else kind.title
    return ReportTable(title, rows.column_names, [list(row) for row in cells], searchable=kind.searchable)


def _explorer(audit: Audit) -> PairExplorer | None:
    subject = audit.subject
    if subject is None or audit["averaging"].verdict.value is None:
        return None
    with threadpool_limits(1, user_api="blas"):  # many small decompositions: threads would wait for each other
        return pair_explorer(
            subject.clouds,
            subject.pairs,
            neighbours=subject.neighbours,
            vocabulary=subject.vocabulary,
            seed=subject.seed,
            section="averaging",
            **EXPLORED,
        )
