"""A comparison of audits as a page, in the style of the page of one audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poolscope.auditing.charts import bars_figure
from poolscope.auditing.compare import Comparison, DifferenceRow, common_number, excludes_zero
from poolscope.auditing.question import QUESTIONS, Answer
from poolscope.errors import InputError
from poolscope.report import ReportColumn, ReportSection, ReportTable, render_page
from poolscope.report.sections import shown_number


def comparison_page(comparison: Comparison) -> str:
    """The whole page, as a string."""
    if not comparison.records:
        raise InputError(
            "received a comparison that was loaded; its page needs the audits. Compare their folders again."
        )
    corpus = comparison.corpus
    return render_page(
        f"Comparison of {len(comparison.names)} audits",
        f"{', '.join(comparison.names)} · {corpus['texts']:,} texts of {corpus['source']}",
        [overview(comparison), difference_tables(comparison), *(section(comparison, key) for key in comparison.keys)],
        provenance={name: audit.provenance for name, audit in comparison.records.items()},
        headlines=comparison.headlines(),
    )


# -- overview -----------------------------------------------------------------------------------------------------


def overview(comparison: Comparison) -> ReportSection:
    """Questions × audits with levels and numbers, and what tells the audits apart."""
    names = comparison.names
    return ReportSection(
        key="overview",
        title="Overview",
        question="What does each audit answer?",
        tables=[
            _answers_table(comparison),
            ReportTable(
                "What tells the audits apart",
                ["fact", *names],
                [
                    [fact.replace("_", " "), *("–" if value is None else str(value) for value in values)]
                    for fact, values in comparison.facts.items()
                ],
                view=[ReportColumn("fact", "What"), *(ReportColumn(name, name) for name in names)],
            ),
        ],
        explained_by="audit.md#compare",
    )


def _answers_table(comparison: Comparison) -> ReportTable:
    names, rows = comparison.names, []
    for key in comparison.keys:
        answers = _answers(comparison, key)
        same = common_number([row for row in comparison.answers if row["key"] == key])
        row: list[Any] = [comparison.heading(key), same or "not the same number in all"]
        for name in names:
            answer = answers.get(name)
            row += (
                [None, "not asked", None]
                if answer is None
                else [answer.verdict.level, _written(answer), answer.number_name if same is None else None]
            )
        rows.append(row)
    columns = ["question", "number", *(f"{name}: {part}" for name in names for part in ("level", "answer", "number"))]
    view = [ReportColumn("question", "Question", below="number")]
    view += [ReportColumn(f"{name}: answer", name, level=f"{name}: level", below=f"{name}: number") for name in names]
    return ReportTable("Levels and numbers", columns, rows, view=view)


def _answers(comparison: Comparison, key: str) -> dict[str, Answer]:
    """The answers to one question by the names of their audits."""
    return {name: audit[key] for name, audit in comparison.records.items() if key in audit}


def _written(answer: Answer) -> str:
    """The number as the page of its audit writes it, with its interval."""
    number = shown_number(answer.verdict, answer.number_format)
    if number is None:
        return "no number"
    return number.value if number.interval is None else f"{number.value} [{number.interval.replace(' to ', ', ')}]"


# -- differences --------------------------------------------------------------------------------------------------


def difference_tables(comparison: Comparison) -> ReportSection:
    """One table for each later audit: it minus the first."""
    first = comparison.names[0]
    return ReportSection(
        key="differences",
        title="Differences",
        question="What differs between the models, beyond chance?",
        tables=[
            _difference_table(first, second, [row for row in comparison.differences if row.second == second])
            for second in comparison.names[1:]
        ],
        notes=[
            "An interval that holds 0 proves neither a difference nor that there is none: it bounds one. "
            "Split-half retrieval screens models; only labelled data of your own can crown one."
        ],
        explained_by="audit.md#compare",
    )


def _difference_table(first: str, second: str, compared: Sequence[DifferenceRow]) -> ReportTable:
    columns = ["number", "words", "first", "second", "difference", "low", "high", "beyond_chance", "how"]
    rows = []
    for row in compared:
        low, high = (None, None) if row.interval is None else (row.interval.low, row.interval.high)
        beyond = {None: None, True: "● yes", False: "no"}[excludes_zero(row.interval)]
        cells = [row.first_value, row.second_value, row.difference, low, high, beyond, row.how]
        rows.append([row.number, row.words, *cells])
    view = [
        ReportColumn("words", "Number"),
        ReportColumn("first", first),
        ReportColumn("second", second),
        ReportColumn("difference", "Difference [95 %]", low="low", high="high"),
        ReportColumn("beyond_chance", "Beyond chance"),
        ReportColumn("how", "Interval"),
    ]
    return ReportTable(f"{second} minus {first}", columns, rows, view=view)


# -- answers ------------------------------------------------------------------------------------------------------


def section(comparison: Comparison, key: str) -> ReportSection:
    """The answers to one question: on one axis where they measured the same thing, and in a table."""
    answers = _answers(comparison, key)
    first = next(iter(answers.values()))
    known = {answer.number_name for answer in answers.values() if answer.verdict.value is not None}
    note = "The numbers of these audits are not the same thing, so they are not drawn on one axis."
    columns = ["audit", "level", "number_name", "value", "low", "high", "floor", "sentence"]
    view = [
        ReportColumn("audit", "Audit", below="number_name"),
        ReportColumn("level", "Level", level="level"),
        ReportColumn("value", "Number [95 %]", low="low", high="high"),
        ReportColumn("floor", "Floor"),
        ReportColumn("sentence", "Answer"),
    ]
    rows = [[row[name] for name in columns] for row in comparison.answers if row["key"] == key]
    return ReportSection(
        key=key,
        title=comparison.heading(key),
        question=first.question,
        figures=_figures(comparison, answers, first, known),
        tables=[ReportTable("Answers", columns, rows, view=view)],
        notes=[note] if len(known) > 1 else [],
        explained_by=first.explained_by,
        link=first.link,
    )


def _figures(
    comparison: Comparison, answers: Mapping[str, Answer], first: Answer, known: set[str]
) -> list[tuple[str, Any]]:
    figures = []
    if len(known) == 1:
        verdicts = [answer.verdict for answer in answers.values()]
        values, intervals = [verdict.value for verdict in verdicts], [verdict.interval for verdict in verdicts]
        figures.append((first.title, bars_figure(list(answers), values, intervals, title=next(iter(known)))))
    overlay = QUESTIONS[first.key].overlay if first.key in QUESTIONS else None
    drawn = None if overlay is None else overlay({name: comparison.records[name] for name in answers})
    return figures if drawn is None else [*figures, (f"{first.title}, overlaid", drawn)]
