"""An audit as sections of a page; the page itself is made by `poolscope.report`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from poolscope.auditing.averaging import WORST
from poolscope.auditing.page_tables import SHOWN
from poolscope.auditing.questions import QUESTIONS
from poolscope.auditing.result import Answer, Audit
from poolscope.report import PairExplorer, ReportAction, ReportSection, ReportTable, pair_explorer, render_page

# Pairs that the page lets the reader look at, by kind: each brings a picture, so there are few. All pairs of the table
# of worst pairs are among them.
EXPLORED = {"worst": WORST, "nearest": WORST, "random": 40}


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
    """One answer as a section: verdict, what to do, figure, tables and the page that explains it."""
    question, action = QUESTIONS[answer.number - 1], answer.action
    return ReportSection(
        key=answer.key,
        title=f"{answer.number}. {question.title}",
        question=answer.question,
        verdict=answer.verdict,
        figures=[
            (question.title if name == answer.key else name.capitalize(), drawn) for name, drawn in answer.figures()
        ],
        tables=[_shown(name, table) for name, table in answer.tables.items() if name in SHOWN and len(table)],
        action=None if action is None else ReportAction(action.step, action.cost, action.command),
        explained_by=answer.page,
        number_name=answer.number_name,
        number_format=answer.number_format,
    )


def _shown(name: str, table: pa.Table) -> ReportTable:
    """The first rows of a table; of the truncated texts those that lost most."""
    kind = SHOWN[name]
    if name == "truncation":
        table = table.filter(pc.greater(table["cut"], 0)).sort_by([("cut", "descending")])
    rows = table.slice(0, kind.rows)
    cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    left = len(table) - len(rows)
    title = f"{kind.title} (the first {len(rows):,} of {len(table):,}; all in {name}.parquet)" if left else kind.title
    return ReportTable(
        title,
        rows.column_names,
        [list(row) for row in cells],
        searchable=kind.searchable,
        view=kind.view(rows.column_names),
        pair=kind.pair,
    )


def _explorer(audit: Audit) -> PairExplorer | None:
    subject = audit.subject
    if subject is None or audit["averaging"].verdict.value is None:
        return None
    return pair_explorer(
        subject.clouds,
        subject.pairs,
        neighbours=subject.neighbours,
        vocabulary=subject.vocabulary,
        seed=subject.seed,
        section="averaging",
        **EXPLORED,
    )
