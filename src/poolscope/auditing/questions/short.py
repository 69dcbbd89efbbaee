"""Do short chunks win just because they are short?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, unchecked
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.metrics.length.retrieval import (
    REPAIR_RATIO,
    WATCH_RATIO,
    LengthRetrieval,
    RetrievalRow,
    retrieval_by_length,
)
from poolscope.verdicts import LEVELS, Verdict

_K = 10


def answer(subject: Subject) -> Answer:
    """Which lengths stand among the wrong answers more often than their number explains."""
    task = subject.halves
    if isinstance(task, str):
        return unchecked("short", f"it takes queries, made of the first halves of texts, and {task}")
    documents = np.concatenate([task.vectors[1], task.others])
    lengths = np.concatenate([task.clouds[1].lengths, task.other_lengths])
    if len(documents) <= _K or np.ptp(lengths) == 0:
        return unchecked("short", "all texts are of one length, or there are not more than ten")
    measured = retrieval_by_length(task.vectors[0], documents, task.halves.relevant, lengths, k=_K, seed=subject.seed)
    if measured.unjudged:
        return unchecked("short", measured.unjudged)
    return Answer(
        "short",
        judge(measured, subject.thresholds),
        {
            "short_share": measured.shortest.ratio.value,
            "short_share_interval": measured.shortest.ratio.interval,
            "long_share": measured.longest.ratio.value,
            "short_hit": measured.shortest.hit.value,
            "long_hit": measured.longest.hit.value,
        },
        Action(
            "re-chunk",
            "even out the lengths of the chunks: merge the shortest with their neighbours",
            subject.command("length"),
            "cut the texts again and encode them; no new model",
        ),
        number_name=f"{_crowding(measured, subject.thresholds)[1]} fifth among wrong answers, over its share",
        tables={"retrieval_by_length": pa.Table.from_pylist(measured.table())},
        draw={"short": lambda: _figure(measured)},
    )


def judge(measured: LengthRetrieval, limits: Thresholds) -> Verdict:
    """`watch` where a fifth is in the way beyond chance; `repair` where the other one is found less often for it."""
    judged, side = _crowding(measured, limits)
    ratio = (measured.shortest if side == "shortest" else measured.longest).ratio

    def times(row: RetrievalRow) -> str:
        return "–" if row.ratio.value is None else f"{row.ratio.value:.2f}"

    sentence = (
        f"Among the first {measured.k} wrong answers the shortest fifth of the texts stands "
        f"{times(measured.shortest)} times as often as its number explains, the longest fifth "
        f"{times(measured.longest)} times."
    )
    evidence = measured.verdict.evidence
    return Verdict(judged.level, sentence, ratio.value, ratio.interval, ratio.floor, evidence, judged.basis)


def _crowding(measured: LengthRetrieval, limits: Thresholds) -> tuple[Verdict, str]:
    """The judgement, and which fifth it is about: the longest where only that one stands out."""
    gap = measured.hit_gap.interval
    losses = {"shortest": gap is not None and gap.low > 0, "longest": gap is not None and gap.high < 0}
    sides: dict[str, Verdict] = {}
    for side, row in (("shortest", measured.shortest), ("longest", measured.longest)):
        ratio, sides[side] = row.ratio, Verdict("ok")
        if ratio.value is None or ratio.interval is None or ratio.interval.low <= 1:
            continue
        if ratio.floor_high is None or ratio.value > ratio.floor_high:
            judged = limits.judge("short", ratio.value, ratio.interval)
            sides[side] = judged if losses[side] else judged.at_most_watch("harmless")
    side = max(sides, key=lambda name: LEVELS.index(sides[name].level))
    return sides[side], side


def _figure(measured: LengthRetrieval) -> Any:
    from poolscope.metrics.length.figure import retrieval_figure

    return retrieval_figure(measured)


QUESTION = Question(
    "short",
    title="Short texts",
    words="Do short chunks win just because they are short?",
    page="length.md#who-wins-a-search-and-from-where",
    number_name="short texts in answers, observed over expected",
    metric="length",
    answer=answer,
    judge=judge,
    thresholds=[
        Threshold(
            "short_watch",
            WATCH_RATIO,
            "The shortest fifth stands this many times as often among wrong answers as its number explains: seen on "
            "every result page.",
        ),
        Threshold("short_repair", REPAIR_RATIO, "Twice as often, while the longest fifth is found less often for it."),
    ],
    numbers=[Number("short_share", "shortest fifth among wrong answers, over its share", headline=True)],
    tables={
        "retrieval_by_length": TableView(
            "Answers by length",
            40,
            {
                "bin": "Tokens",
                "documents": "Texts",
                "queries": "Queries",
                "hit": "Hit rate",
                "ndcg": "nDCG",
                "rank": "Mean rank",
                "ratio": "Among wrong answers, over expected",
            },
        )
    },
    judged_on="short",
)
