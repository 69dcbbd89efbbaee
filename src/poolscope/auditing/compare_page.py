"""A comparison of audits as a page, in the style of the page of one audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poolscope.auditing.charts import bars_figure
from poolscope.auditing.compare import Comparison
from poolscope.auditing.compare_names import common_number, excludes_zero
from poolscope.auditing.differences import DifferenceRow, Record
from poolscope.auditing.questions import QUESTIONS, Question
from poolscope.metrics.hubs_figure import hubs_figure
from poolscope.metrics.scores import ScoreDistribution
from poolscope.metrics.scores_figure import scores_figure
from poolscope.numbers.intervals import Interval
from poolscope.report import ReportColumn, ReportSection, ReportTable, render_page
from poolscope.report.numbers import shown_number
from poolscope.verdicts import Verdict

# What the numbers are that are compared, in plain words; their names in audit.json stand below.
WORDS: Mapping[str, str] = {
    "anisotropy": "mean cosine of all pairs",
    "cut_off": "cut-off for unrelated pairs",
    "split_half": "split-half retrieval, nDCG@10",
    "share_cut": "share of the tokens cut off",
    "short_share": "shortest fifth among wrong answers, over its share",
    "length_slope": "rise of the mean cosine per doubling of the length",
    "position_drop": "loss from the start to the end",
    "socm": "SOCM over pairs",
    "socm_trace": "SOCM on the scale of the traces",
    "socm_neighbours": "SOCM among neighbours",
    "concentration_ratio": "spread of the tokens over their mean",
    "hub_skewness": "skewness of the times found",
}


def comparison_page(comparison: Comparison) -> str:
    """The whole page, as a string."""
    corpus = comparison.records[0].document["corpus"]
    sections = [_overview(comparison), _differences(comparison)]
    sections += [_section(comparison, question) for question in QUESTIONS]
    return render_page(
        f"Comparison of {len(comparison.records)} audits",
        f"{', '.join(comparison.names)} · {corpus['texts']:,} texts of {corpus['source']}",
        sections,
        provenance={record.name: record.document["provenance"] for record in comparison.records},
    )


# -- overview -----------------------------------------------------------------------------------------------------


def _overview(comparison: Comparison) -> ReportSection:
    """Questions × audits with levels and numbers, and what tells the audits apart."""
    facts = comparison.facts()
    return ReportSection(
        key="overview",
        title="Overview",
        question="What does each audit answer?",
        tables=[
            _answers_table(comparison),
            ReportTable(
                "What tells the audits apart",
                ["fact", *comparison.names],
                [[name, *("–" if value is None else str(value) for value in values)] for name, values in facts.items()],
                view=[ReportColumn("fact", ""), *(ReportColumn(name, name) for name in comparison.names)],
            ),
        ],
        explained_by="audit.md#compare",
    )


def _answers_table(comparison: Comparison) -> ReportTable:
    names = comparison.names
    rows = []
    for question in QUESTIONS:
        answers = _answers(comparison, question)
        same = common_number(answers)
        row: list[Any] = [f"{question.number}. {question.title}", same or "not the same number in all"]
        for answer in answers:
            row += [answer["level"], _written(answer, question), answer["number_name"] if same is None else None]
        rows.append(row)
    columns = ["question", "number", *(f"{name}: {part}" for name in names for part in ("level", "answer", "number"))]
    view = [ReportColumn("question", "Question", below="number")]
    view += [ReportColumn(f"{name}: answer", name, level=f"{name}: level", below=f"{name}: number") for name in names]
    return ReportTable("Levels and numbers", columns, rows, view=view)


def _answers(comparison: Comparison, question: Question) -> list[Mapping[str, Any]]:
    return [record.answers[question.number - 1] for record in comparison.records]


def _interval(answer: Mapping[str, Any]) -> Interval | None:
    return None if answer["interval"] is None else Interval(**answer["interval"])


def _written(answer: Mapping[str, Any], question: Question) -> str:
    """The number as the page of its audit writes it, with its interval."""
    verdict = Verdict(answer["level"], "", answer["value"], _interval(answer), answer["floor"])
    number = shown_number(verdict, question.number_format)
    if number is None:
        return "no number"
    return number.value if number.interval is None else f"{number.value} [{number.interval.replace(' to ', ', ')}]"


# -- differences --------------------------------------------------------------------------------------------------


def _differences(comparison: Comparison) -> ReportSection:
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
            "An interval that holds 0 tells no difference. Split-half retrieval (split_half) screens models; "
            "only labelled data of your own can crown one."
        ],
        explained_by="audit.md#compare",
    )


def _difference_table(first: str, second: str, found: Sequence[DifferenceRow]) -> ReportTable:
    columns = ["number", "words", "first", "second", "difference", "low", "high", "beyond_chance", "how"]
    rows = []
    for row in found:
        low, high = (None, None) if row.interval is None else (row.interval.low, row.interval.high)
        words = {None: None, True: "● yes", False: "no"}[excludes_zero(row.interval)]
        cells = [row.first_value, row.second_value, row.difference, low, high, words, row.how]
        rows.append([row.number, WORDS.get(row.number, row.number), *cells])
    view = [
        ReportColumn("words", "Number", below="number"),
        ReportColumn("first", first),
        ReportColumn("second", second),
        ReportColumn("difference", "Difference [95 %]", low="low", high="high"),
        ReportColumn("beyond_chance", "Beyond chance"),
        ReportColumn("how", "Interval"),
    ]
    return ReportTable(f"{second} minus {first}", columns, rows, view=view)


# -- answers ------------------------------------------------------------------------------------------------------


def _section(comparison: Comparison, question: Question) -> ReportSection:
    answers = _answers(comparison, question)
    intervals = [_interval(answer) for answer in answers]
    values = [answer["value"] for answer in answers]
    known = {answer["number_name"] for answer in answers if answer["value"] is not None}
    figures = []
    if len(known) == 1:
        bars = bars_figure(comparison.names, values, intervals, title=next(iter(known)))
        figures.append((question.title, bars))
    figures += [(f"{question.title}, overlaid", figure) for figure in _overlaid(comparison.records, question.key)]
    columns = ["audit", "level", "number_name", "value", "low", "high", "floor", "sentence"]
    rows = [
        [
            name,
            *(answer[part] for part in ("level", "number_name", "value")),
            *_ends(interval),
            *(answer[part] for part in ("floor", "sentence")),
        ]
        for name, answer, interval in zip(comparison.names, answers, intervals, strict=True)
    ]
    view = [
        ReportColumn("audit", "Audit", below="number_name"),
        ReportColumn("level", "Level", level="level"),
        ReportColumn("value", "Number [95 %]", low="low", high="high"),
        ReportColumn("floor", "Floor"),
        ReportColumn("sentence", "Answer"),
    ]
    note = "The numbers of these audits are not the same thing, so they are not drawn on one axis."
    return ReportSection(
        key=question.key,
        title=f"{question.number}. {question.title}",
        question=question.words,
        figures=figures,
        tables=[ReportTable("Answers", columns, rows, view=view)],
        notes=[note] if len(known) > 1 else [],
        explained_by=question.page,
    )


def _ends(interval: Interval | None) -> list[float | None]:
    return [None, None] if interval is None else [interval.low, interval.high]


def _overlaid(records: Sequence[Record], key: str) -> list[Any]:
    """Curves of all models in one figure, where the tables hold them."""
    if key == "scores":
        found = [(record.name, _distribution(record)) for record in records]
        shown = [(name, result) for name, result in found if result is not None]
        return [scores_figure(*(r for _, r in shown), names=[name for name, _ in shown])] if len(shown) > 1 else []
    if key == "hubs":
        counts = {record.name: record.column("hubs", "times_found") for record in records}
        known = {name: values for name, values in counts.items() if values is not None}
        return [hubs_figure(known, k=10)] if len(known) > 1 else []
    return []


def _distribution(record: Record) -> ScoreDistribution | None:
    """The distribution of the scores again, from its histogram and numbers."""
    table, numbers = record.read("scores"), record.numbers
    if table is None:
        return None
    low, high = (table[name].to_numpy() for name in ("low", "high"))
    return ScoreDistribution(
        texts=record.document["corpus"]["texts"],
        pairs=int(numbers["score_pairs"]),
        floor=numbers["floor"],
        floor_interval=None,
        deviation=numbers["floor_spread"],
        false_hits=record.document["thresholds"]["false_hits"],
        cut_off=numbers["cut_off"],
        cut_off_interval=None,
        isotropic_cut_off=numbers["isotropic_cut_off"],
        nearest=numbers["nearest_score"],
        counts=table["pairs"].to_numpy(),
        edges=np.append(low, high[-1]),
        positions=np.zeros(0, np.int64),
    )
