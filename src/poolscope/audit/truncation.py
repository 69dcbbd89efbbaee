"""Answer from what was cut off: how much of the texts never reached the model, and which became twins by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.audit.result import Action, Finding, not_applicable
from poolscope.audit.subject import Subject
from poolscope.encoders.reports import TruncationReport, truncation_report
from poolscope.intervals import bootstrap_interval
from poolscope.verdicts import Verdict


def answer_truncation(subject: Subject) -> Finding:
    """4. How much text was cut off, and which documents became twins because of it?"""
    if subject.card.kind in ("arrays", "function"):
        return not_applicable("the vectors were made elsewhere, and clouds do not tell what was cut off before")
    report = truncation_report(subject.clouds)
    limits = subject.thresholds
    lost, total = subject.clouds.truncated.astype(np.float64), subject.clouds.lengths + subject.clouds.truncated
    # The bootstrap of a ratio, to first order: texts as they move it.
    influence = report.share_lost + (lost - report.share_lost * total) / total.mean()
    interval = bootstrap_interval(influence, seed=subject.seed) if report.cut_texts else None
    twins = sum(len(group) for group in report.identical) / report.texts
    level = limits.level("cut", report.share_lost, interval)
    if twins >= limits["twins_repair"]:
        level = "repair"
    elif twins:
        level = "repair" if level == "repair" else "watch"
    verdict = Verdict(level, " ".join(report.notes()), report.share_lost, interval, None, _limit_notes(subject))
    numbers = {
        "share_cut": report.share_lost,
        "share_cut_interval": interval,
        "texts_cut": report.cut_texts / report.texts,
        "truncation_twins": twins,
    }
    tables = {"truncation": _cut_table(subject, report)}
    return Finding(verdict, numbers, tables, lambda: _draw_lengths(subject), _cut_action(subject, report))


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
        subject.command("audit", texts="CHUNKS"),
        f"encode {report.tokens_lost:,} more tokens "
        f"({report.tokens_lost / max(report.tokens_kept, 1):.0%} of what was encoded); no new model",
    )


def _cut_table(subject: Subject, report: TruncationReport) -> pa.Table:
    """Every text: tokens kept and cut, and the group of texts that it became equal to."""
    group = np.full(len(subject), -1)
    for number, members in enumerate(report.identical):
        group[list(members)] = number
    known = [None if k < 0 else int(k) for k in group]
    columns = {"tokens": subject.clouds.lengths, "cut": subject.clouds.truncated, "twins": pa.array(known, pa.int64())}
    return pa.table({"id": subject.ids, **columns})


def _draw_lengths(subject: Subject) -> Any:
    from poolscope.charts.audit import lengths_figure

    clouds = subject.clouds
    return lengths_figure(clouds.lengths, clouds.truncated, subject.pooling_report.max_length)
