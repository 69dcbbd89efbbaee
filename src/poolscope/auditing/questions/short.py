"""Do short chunks win just because they are short?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, unchecked
from poolscope.metrics.length.search import LengthRetrieval, RetrievalRow, retrieval_by_length
from poolscope.verdicts import LEVELS, Verdict

if TYPE_CHECKING:
    from poolscope.auditing.subject import Subject
    from poolscope.auditing.thresholds import Thresholds

THRESHOLDS: tuple[Threshold, ...] = (
    Threshold(
        "short_watch",
        1.25,
        "The shortest fifth stands this many times as often among wrong answers as its number explains: seen on every "
        "result page.",
    ),
    Threshold("short_repair", 2.0, "Twice as often, while the longest fifth is found less often for it."),
)

_K = 10
# Fewer queries than this in a fifth tell nothing of how often its documents are found.
_FEWEST = 8


def judge(result: LengthRetrieval, thresholds: Thresholds, *, halves: bool = False) -> Verdict:
    """Does the shortest fifth (or the longest) stand among wrong answers more often than its number explains?

    `watch` where it does beyond chance: the interval of its ratio lies above 1, and the ratio above what shuffled
    lengths give. `repair` where, besides, the whole interval lies beyond the threshold and the other fifth is found
    less often for it. `halves`: the queries are halves of the texts.
    """
    if result.unjudged:
        return Verdict("unchecked", f"Whether short or long documents win cannot be judged here: {result.unjudged}.")
    side, judged = _crowding(result, thresholds)
    ratio = _fifths(result)[side].ratio
    sentence = (
        f"Among the first {result.k} wrong answers the shortest fifth of the texts stands "
        f"{_number(result.shortest.ratio.value)} times as often as its number explains, the longest fifth "
        f"{_number(result.longest.ratio.value)} times"
    )
    if judged.level != "ok":
        sentence += _harm(result, side)
    evidence = (_quality(result, halves=halves), *result.notes)
    return Verdict(judged.level, f"{sentence}.", ratio.value, ratio.interval, ratio.floor, evidence, judged.basis)


def answer(subject: Subject) -> Answer:
    """The user's queries, or halves of texts that ask for the other halves, with every other text in the way."""
    task = subject.asked or subject.halves
    if isinstance(task, str):
        return unchecked("short", f"it takes queries, made of the first halves of texts, and {task}")
    documents, lengths = task.searched
    if len(documents) <= _K or np.ptp(lengths) == 0:
        return unchecked("short", "all texts are of one length, or there are not more than ten")
    result = retrieval_by_length(task.vectors[0], documents, task.task.relevant, lengths, k=_K, seed=subject.seed)
    if result.unjudged:
        return unchecked("short", result.unjudged)
    verdict = judge(result, subject.thresholds, halves=subject.asked is None)
    verdict = replace(verdict, evidence=(subject.asked_with(), *verdict.evidence))
    numbers = {
        "short_share": result.shortest.ratio.value,
        "short_share_interval": result.shortest.ratio.interval,
        "long_share": result.longest.ratio.value,
        "short_hit": result.shortest.hit.value,
        "long_hit": result.longest.hit.value,
    }
    action = Action(
        "re-chunk",
        "even out the lengths of the chunks: merge the shortest with their neighbours",
        subject.command("length"),
        "cut the texts again and encode them; no new model",
    )
    side, _ = _crowding(result, subject.thresholds)
    return Answer(
        "short",
        verdict,
        numbers,
        action,
        number_name=f"{side} fifth among wrong answers, over its share",
        tables={"retrieval_by_length": result.to_table()},
        draw={"short": result.figure},
    )


def _crowding(result: LengthRetrieval, thresholds: Thresholds) -> tuple[str, Verdict]:
    """The fifth that the verdict is about, and its judgement: the one that stands out more; the shortest if none."""
    sides = {side: _judged(result, side, thresholds) for side in _fifths(result)}

    def weight(side: str) -> tuple[int, float]:
        level = sides[side].level
        return LEVELS.index(level), 0.0 if level == "ok" else _fifths(result)[side].ratio.value or 0.0

    chosen = max(sides, key=weight)
    return chosen, sides[chosen]


def _judged(result: LengthRetrieval, side: str, thresholds: Thresholds) -> Verdict:
    ratio = _fifths(result)[side].ratio
    if ratio.value is None or ratio.interval is None or ratio.floor_high is None:
        return Verdict("ok")
    if ratio.interval.low <= 1 or ratio.value <= ratio.floor_high:
        return Verdict("ok")
    judged = thresholds.judge("short", ratio.value, ratio.interval)
    if _too_few(result):
        return replace(judged, level="watch", basis="too few") if judged.level != "ok" else judged
    return judged if _others_lose(result, side) else judged.at_most_watch("harmless")


def _too_few(result: LengthRetrieval) -> bool:
    """Do too few queries ask for one of the fifths to tell whether it is found less often?"""
    return result.hit_gap.interval is None or min(row.queries for row in _fifths(result).values()) < _FEWEST


def _harm(result: LengthRetrieval, side: str) -> str:
    """What the crowding does to the others, in words."""
    if _too_few(result):
        counts = " and ".join(f"{row.queries} for the {name}" for name, row in _fifths(result).items())
        return f"; whether the others are found less often cannot be told from so few queries ({counts})"
    if _others_lose(result, side):
        return ", and the others are found less often for it"
    return "; that the others are found less often for it is not shown"


def _others_lose(result: LengthRetrieval, side: str) -> bool:
    """Is the other fifth found less often, surely?"""
    gap = result.hit_gap.interval
    return gap is not None and (gap.low > 0 if side == "shortest" else gap.high < 0)


def _fifths(result: LengthRetrieval) -> dict[str, RetrievalRow]:
    return {"shortest": result.shortest, "longest": result.longest}


def _quality(result: LengthRetrieval, *, halves: bool) -> str:
    """How often the relevant documents of both fifths are found, and whether that differs beyond chance."""
    parts = [
        f"{_number(row.hit.value)} of {row.queries} queries for the {side} fifth "
        f"{'' if row.hit.interval is None else f'[{row.hit.interval.low:.2f}, {row.hit.interval.high:.2f}]'}".rstrip()
        for side, row in _fifths(result).items()
    ]
    gap = result.hit_gap.interval
    if _too_few(result) or gap is None:
        told = "too few to compare"
    elif gap.low <= 0 <= gap.high:
        told = "no difference that can be told from chance"
    else:
        told = "a difference beyond chance"
        told += ", which the halves themselves may make: short ones say less" if halves else ""
    return f"Found among the first {result.k}: {', '.join(parts)}; {told}."


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


QUESTION = Question(
    "short",
    title="Short texts",
    words="Do short chunks win just because they are short?",
    page="length.md#who-wins-a-search-and-from-where",
    number_name="short texts in answers, observed over expected",
    metric="length",
    answer=answer,
    judge=judge,
    thresholds=THRESHOLDS,
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
