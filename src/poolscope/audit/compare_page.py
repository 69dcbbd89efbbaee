"""A comparison of audits as a page, in the style of the page of one audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poolscope.analyses.scores import ScoreDistribution
from poolscope.audit.compare import Comparison
from poolscope.audit.differences import Record
from poolscope.audit.questions import QUESTIONS, Question
from poolscope.charts.audit import bars_figure
from poolscope.charts.hubs import hubs_figure
from poolscope.charts.scores import scores_figure
from poolscope.intervals import Interval
from poolscope.report import ReportSection, ReportTable, render_page


def comparison_page(comparison: Comparison) -> str:
    """The whole page, as a string."""
    corpus = comparison.records[0].document["corpus"]
    sections = [_differences(comparison)]
    sections += [_section(comparison, question) for question in QUESTIONS]
    return render_page(
        f"Comparison of {len(comparison.records)} audits",
        f"{', '.join(comparison.names)} · {corpus['texts']:,} texts of {corpus['source']}",
        sections,
        provenance={record.name: record.document["provenance"] for record in comparison.records},
    )


def _differences(comparison: Comparison) -> ReportSection:
    rows = [
        [
            row.number,
            row.first,
            row.second,
            row.first_value,
            row.second_value,
            row.difference,
            None if row.interval is None else row.interval.low,
            None if row.interval is None else row.interval.high,
            row.how,
        ]
        for row in comparison.differences
    ]
    columns = ["number", "first", "second", "of first", "of second", "difference", "low", "high", "interval"]
    return ReportSection(
        key="differences",
        title="Differences",
        question="What differs between the models, beyond chance?",
        tables=[ReportTable("Second minus first, with 95 % intervals", columns, rows, searchable=True)],
        notes=[
            "An interval that holds 0 tells no difference. Split-half retrieval (split_half) screens models; "
            "only labelled data of your own can crown one."
        ],
        explained_by="audit.md#compare",
    )


def _section(comparison: Comparison, question: Question) -> ReportSection:
    answers = [record.answers[question.number - 1] for record in comparison.records]
    intervals = [None if answer["interval"] is None else Interval(**answer["interval"]) for answer in answers]
    values = [answer["value"] for answer in answers]
    figures = []
    if any(value is not None for value in values):
        bars = bars_figure(comparison.names, values, intervals, title=question.number_name)
        figures.append((question.title, bars))
    figures += [(f"{question.title}, overlaid", figure) for figure in _overlaid(comparison.records, question.key)]
    columns = ["audit", "level", "value", "low", "high", "floor", "sentence"]
    rows = [
        [name, answer["level"], answer["value"], *_ends(interval), answer["floor"], answer["sentence"]]
        for name, answer, interval in zip(comparison.names, answers, intervals, strict=True)
    ]
    return ReportSection(
        key=question.key,
        title=f"{question.number}. {question.title}",
        question=question.words,
        figures=figures,
        tables=[ReportTable("Answers", columns, rows)],
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
