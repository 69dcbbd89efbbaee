"""How much text was cut off, and which documents became twins because of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poolscope.auditing.question import (
    Action,
    Answer,
    Gauge,
    Number,
    Question,
    TableView,
    TextMark,
    Threshold,
    Thresholds,
)
from poolscope.auditing.result import Audit
from poolscope.auditing.searches import fitting_trial
from poolscope.auditing.subject import Subject
from poolscope.charts import COLOURS, GREY, panel
from poolscope.encoders.reports import TruncationReport, truncation_report
from poolscope.errors import require
from poolscope.evaluation import Trial
from poolscope.evaluation.scores import LEAST_GAIN
from poolscope.numbers.intervals import Interval, bootstrap_sums, lost_interval, percentile_interval
from poolscope.numbers.items import Carriers, carriers
from poolscope.verdicts import Basis, Verdict

_CUT = "the tokens cut off"
# What a level rests on where the texts are surely to be split, so that what else was measured on them will change.
_SURE: tuple[Basis | None, ...] = ("counted", "cut", "trial")


def answer(subject: Subject) -> Answer:
    """What the encoder cut off, counted over these texts."""
    if subject.card.kind in ("arrays", "function"):
        return Answer.unchecked(
            "truncation", "the vectors were made elsewhere, and clouds do not tell what was cut off before"
        )
    drawn = report = truncation_report(subject.clouds)
    interval = _population(subject)
    notes = _limit_notes(subject)
    if subject.whole is not None:  # counted over all texts; which became equal is known of those that were drawn
        report, interval = subject.whole.truncation(report), None
        notes = (*notes, f"Counted over all {report.texts:,} texts; equal ones among the {drawn.texts:,} drawn.")
    lengths, cut, limit = subject.clouds.lengths, subject.clouds.truncated, subject.pooling_report.max_length
    few = carriers(cut, lengths + cut)
    trial = fitting_trial(subject) if report.cut_texts else None
    verdict = judge(
        report, subject.thresholds, interval, twins=_twins(drawn), few=few, trial=trial, ids=subject.ids, notes=notes
    )
    return Answer(
        "truncation",
        verdict,
        {
            **({} if trial is None else trial.numbers("fitting")),
            "share_cut": report.share_lost,
            "share_cut_interval": interval,
            "share_cut_without_few": None if few is None else few.without,
            "texts_cut": report.cut_texts / report.texts,
            "truncation_twins": _twins(drawn),
        },
        replace(_action(subject, report, few, verdict.basis), renews="texts" if verdict.basis in _SURE else ""),
        tables={"truncation": _table(subject, drawn), **({} if trial is None else trial.table("fitting"))},
        draw={"truncation": lambda: lengths_figure(lengths, cut, limit)},
    )


def judge(
    report: TruncationReport,
    limits: Thresholds,
    interval: Interval | None = None,
    *,
    twins: float | None = None,
    few: Carriers | None = None,
    trial: Trial | None = None,
    ids: Sequence[str] = (),
    notes: tuple[str, ...] = (),
) -> Verdict:
    """The level goes by what was cut of these texts, which is counted; the interval is for others like them.

    Where `few` texts, named by `ids`, hold most of it and the level is lower without them, it is `watch` at most; so it
    is where a `trial` with the user's queries could have seen that chunks that fit are found better, and did not.
    `twins` is the share of texts that became equal, where that is not known of all.
    """
    judged, twins = limits.count("cut", report.share_lost), _twins(report) if twins is None else twins
    if judged.basis == "counted":
        judged = replace(judged, basis="cut")
    if few is not None and limits.count("cut", few.without).level != judged.level:
        judged = replace(judged, level="watch", basis="few texts")
    if trial is not None and judged.level != "ok":
        if trial.gain > 0:
            judged = replace(judged, basis="trial" if trial.gain >= LEAST_GAIN else "small gain")
        elif trial.could_tell(LEAST_GAIN):
            judged = Verdict("watch", basis="no cure")
    if twins and twins >= limits["twins_repair"]:
        judged = Verdict("repair", basis="counted")
    elif twins and judged.level == "ok":
        judged = Verdict("watch", basis="counted")
    parts = [*report.notes(), *(() if few is None else (few.sentence(ids, _CUT, f"{few.without:.1%} of all are cut"),))]
    if trial is not None:
        parts.append(trial.advice(LEAST_GAIN))
        notes = (*notes, *trial.evidence)
    return Verdict(judged.level, " ".join(parts), report.share_lost, interval, None, notes, judged.basis)


def _twins(report: TruncationReport) -> float:
    """Share of the texts that became equal to another."""
    return sum(len(group) for group in report.identical) / report.texts


def _population(subject: Subject) -> Interval | None:
    """The share for the population of texts."""
    cut = subject.clouds.truncated.astype(np.float64)
    return lost_interval(cut, subject.clouds.lengths + cut)


def _action(subject: Subject, report: TruncationReport, few: Carriers | None, basis: Basis | None) -> Action:
    """Chunks that fit; but first the model's own limit, where the caller set a lower one."""
    if basis == "no cure":
        step = "keep the texts as they are: your queries find no more in chunks that fit"
        return Action("keep", step, None, "nothing is encoded again")
    lengths = subject.pooling_report
    limit, declared = lengths.max_length, lengths.declared_max_length
    share = report.tokens_lost / max(report.tokens_kept, 1)
    more = f"{report.tokens_lost:,} tokens more than now ({share:.0%} of what was encoded)"
    again = f"encode the {report.cut_texts:,} texts again"
    if limit is not None and declared is not None and limit < declared:
        return Action(
            "configure",
            f"leave out --max-length (max_length): you cut at {limit}, and the model declares {declared}; "
            f"then split what is still longer{'' if few is None else f' ({few.holding(subject.ids, _CUT)})'}",
            subject.command_without("max_length", "audit"),
            f"{again}, up to {more}; no new model",
        )
    return Action(
        "re-chunk",
        f"{'' if few is None else f'look at the longest first ({few.holding(subject.ids, _CUT)}); '}"
        f"split the {report.cut_texts:,} texts of more than {limit} tokens into chunks that fit",
        subject.named.rechunk(),
        f"{again} in chunks, {more}; no new model",
    )


def _limit_notes(subject: Subject) -> tuple[str, ...]:
    """Where the limit in use, the declared one and the positions of the weights differ."""
    lengths, positions = subject.pooling_report, subject.card.positions
    limit, declared = lengths.max_length, lengths.declared_max_length
    if limit is None:
        return ()
    room = f"has positions for {positions} tokens"
    if limit == declared:
        beyond = positions is not None and positions > limit
        return (f"The model {room}; it declares {declared}, as it was trained.",) if beyond else ()
    declares = "the model declares no limit" if declared is None else f"the model declares {declared}"
    return (f"You cut at {limit}; {declares}{'' if positions is None else f' and {room}'}.",)


def _table(subject: Subject, report: TruncationReport) -> pa.Table:
    """Every text: tokens kept and cut, and its group of texts that became equal, counted from 1, if it has one."""
    group = np.zeros(len(subject), np.int64)
    for number, members in enumerate(report.identical, 1):
        group[list(members)] = number
    known = [int(k) or None for k in group]
    columns = {"tokens": subject.clouds.lengths, "cut": subject.clouds.truncated, "twins": pa.array(known, pa.int64())}
    return pa.table({"id": subject.ids, **columns})


def _most_cut(table: pa.Table) -> pa.Table:
    """The texts that lost something, most first."""
    return table.filter(pc.greater(table["cut"], 0)).sort_by([("cut", "descending")])


def lengths_figure(lengths: Any, truncated: Any, limit: int | None) -> Any:
    """Texts by their full length on a log scale, and the limit of the model."""
    go = require("plotly.graph_objects", "report")
    full = np.asarray(lengths) + np.asarray(truncated)
    edges = np.geomspace(1, max(float(full.max()), 2.0) * 1.01, 50)
    bars = [
        go.Bar(
            x=np.sqrt(edges[:-1] * edges[1:]),
            y=np.histogram(full[member], edges)[0],
            width=np.diff(edges),
            name=name,
            marker={"color": colour},
            hovertemplate="%{x:.0f} tokens: %{y} texts<extra></extra>",
        )
        for name, member, colour in (("whole", truncated == 0, COLOURS[0]), ("cut", truncated > 0, COLOURS[1]))
    ]
    title = f"Lengths of the texts; {int(np.sum(truncated)):,} tokens beyond the limit"
    figure = panel(*bars, title=title, across="tokens", along="texts", height=380, x={"type": "log"})
    figure.update_layout(barmode="stack")
    if limit is not None:
        figure.add_vline(limit, line={"color": GREY, "dash": "dash"})
        # On a logarithmic axis the place of a text is given by its logarithm.
        figure.add_annotation(
            x=np.log10(limit), y=1, yref="paper", xanchor="left", text=f" limit {limit}", showarrow=False
        )
    return figure


def _pair(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """Share of the tokens that was cut: both ratios of sums over the same drawn texts."""
    columns = []
    for audit in (first, second):
        kept, cut = audit.column("truncation", "tokens"), audit.column("truncation", "cut")
        if kept is None or len(kept) < 2:
            return None
        columns += [cut, kept + cut]
    sums = bootstrap_sums(np.stack(columns, axis=1).astype(np.float64))
    return percentile_interval(sums[:, 2] / sums[:, 3] - sums[:, 0] / sums[:, 1]), "paired over texts (bootstrap)"


QUESTION = Question(
    "truncation",
    title="Cut off",
    words="How much text was cut off, and which documents became twins because of it?",
    page="encoders.md#what-was-cut-off",
    number_name="tokens cut off",
    number_format=".1%",
    answer=answer,
    judge=judge,
    thresholds=[
        Threshold(
            "cut_watch", 0.01, "Share of the tokens that never reached the model: from 1 % on it is worth a look."
        ),
        Threshold(
            "cut_repair", 0.1, "Every tenth token is lost: whole sections cannot be found, whatever the model is worth."
        ),
        Threshold(
            "twins_repair",
            0.01,
            "Share of texts that truncation made equal to another text: no ranking can part them.",
        ),
    ],
    numbers=[Number("share_cut", "share of the tokens cut off", headline=True, pair=_pair)],
    tables={
        "truncation": TableView(
            "Texts that were cut",
            100,
            {"id": "Text", "tokens": "Tokens kept", "cut": "Tokens cut off", "twins": "Group of equal texts"},
            searchable=True,
            chosen=_most_cut,
        )
    },
    judged_on="cut",
    gauges=[Gauge("truncation_twins", "texts that cutting made equal", repair="twins_repair", form=".1%")],
    marks=[TextMark("cut off", "truncation", "cut", holds=lambda tokens: tokens > 0)],
)
