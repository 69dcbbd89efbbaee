"""Answer from what was cut off: how much of the texts never reached the model, and which became twins by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.basis import Judgement
from poolscope.auditing.result import Action, Finding, not_applicable
from poolscope.auditing.subject import Subject
from poolscope.encoders.reports import TruncationReport, truncation_report
from poolscope.numbers.intervals import Interval, bootstrap_sums, percentile_interval
from poolscope.verdicts import Verdict


def answer_truncation(subject: Subject) -> Finding:
    """4. How much text was cut off, and which documents became twins because of it?"""
    if subject.card.kind in ("arrays", "function"):
        return not_applicable("the vectors were made elsewhere, and clouds do not tell what was cut off before")
    report = truncation_report(subject.clouds)
    twins = sum(len(group) for group in report.identical) / report.texts
    judged = _judged(subject, report, twins)
    interval = _population(subject) if report.cut_texts else None
    verdict = Verdict(judged.level, " ".join(report.notes()), report.share_lost, interval, None, _limit_notes(subject))
    numbers = {
        "share_cut": report.share_lost,
        "share_cut_interval": interval,
        "texts_cut": report.cut_texts / report.texts,
        "truncation_twins": twins,
    }
    tables = {"truncation": _cut_table(subject, report)}
    action = _cut_action(subject, report)
    return Finding(verdict, numbers, tables, lambda: _draw_lengths(subject), action, basis=judged.basis)


def _judged(subject: Subject, report: TruncationReport, twins: float) -> Judgement:
    """The level goes by what was cut of these texts, which is counted; the interval is for others like them."""
    judged = subject.thresholds.count("cut", report.share_lost)
    if twins and twins >= subject.thresholds["twins_repair"]:
        return Judgement("repair", "counted")
    return Judgement("watch", "counted") if twins and judged.level == "ok" else judged


def _population(subject: Subject) -> Interval | None:
    """The share for the population of texts: a ratio of sums in every bootstrap draw, so within 0 and 1."""
    if len(subject) < 2:
        return None
    cut = subject.clouds.truncated.astype(np.float64)
    lost, total = bootstrap_sums(np.stack([cut, subject.clouds.lengths + cut], axis=1), seed=subject.seed).T
    return percentile_interval(lost / total)


def _limit_notes(subject: Subject) -> tuple[str, ...]:
    positions, limit = subject.card.positions, subject.pooling_report.max_length
    if positions is None or limit is None or positions <= limit:
        return ()
    return (f"The model has positions for {positions} tokens; it declares {limit}, as it was trained.",)


def _cut_action(subject: Subject, report: TruncationReport) -> Action:
    limit = subject.pooling_report.max_length
    return Action(
        "re-chunk",
        f"split the {report.cut_texts:,} texts of more than {limit} tokens into chunks that fit",
        subject.rechunk_command(),
        f"encode {report.tokens_lost:,} more tokens "
        f"({report.tokens_lost / max(report.tokens_kept, 1):.0%} of what was encoded); no new model",
    )


def _cut_table(subject: Subject, report: TruncationReport) -> pa.Table:
    """Every text: tokens kept and cut, and its group of texts that became equal, counted from 1, if it has one."""
    group = np.zeros(len(subject), np.int64)
    for number, members in enumerate(report.identical, 1):
        group[list(members)] = number
    known = [int(k) or None for k in group]
    columns = {"tokens": subject.clouds.lengths, "cut": subject.clouds.truncated, "twins": pa.array(known, pa.int64())}
    return pa.table({"id": subject.ids, **columns})


def _draw_lengths(subject: Subject) -> Any:
    from poolscope.auditing.charts import lengths_figure

    clouds = subject.clouds
    return lengths_figure(clouds.lengths, clouds.truncated, subject.pooling_report.max_length)
