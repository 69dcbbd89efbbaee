"""Do short chunks win just because they are short?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, Thresholds, by_queries
from poolscope.auditing.searches import Pieces, cut_pieces, query_pieces
from poolscope.auditing.subject import Subject
from poolscope.metrics.length.search import LengthRetrieval, RetrievalRow, retrieval_by_length
from poolscope.verdicts import LEVELS, Verdict

_K = 10
# Fewer queries than this in a fifth tell nothing of how often its documents are found.
_FEWEST = 8
# An interval of a share of queries that is wider than this tells nothing: too few queries ask for the others.
_TELLS_NOTHING = 0.5
# Rows of the table: the fifths, so that each of them holds queries.
_BINS = 5


def judge(result: LengthRetrieval, thresholds: Thresholds) -> Verdict:
    """Does the shortest fifth (or the longest) stand among wrong answers more often than its number explains?

    `watch` where it does beyond chance: the interval of its ratio lies above 1, and the ratio above what shuffled
    lengths give. `repair` where, besides, the whole interval lies beyond the threshold and the others are found less
    often for it: more of them are found once the fifth is left out than once as many others are. `unchecked` where the
    interval leaves room for what would be `repair`, or where hardly a query asks for one of the fifths.
    """
    if result.unjudged:
        return Verdict("unchecked", f"Whether short or long documents win cannot be judged here: {result.unjudged}.")
    side, judged = _crowding(result, thresholds)
    crowding = _fifths(result)[side]
    ratio = crowding.ratio
    sentence = (
        f"Among the first {result.k} wrong answers the shortest fifth of the texts stands "
        f"{_number(result.shortest.ratio.value)} times as often as its number explains, the longest fifth "
        f"{_number(result.longest.ratio.value)} times"
    )
    if judged.level in ("watch", "repair"):
        sentence += _harm(result, crowding)
    elif judged.level == "unchecked":
        counts = " and ".join(f"{row.queries} for the {name}" for name, row in _fifths(result).items())
        sentence += f"; {result.queries} queries ({counts}) are too few to tell whether that is more than chance"
    elif ratio.interval is not None and ratio.interval.low > 1 and (ratio.value or 0.0) > (ratio.floor_high or 0.0):
        sentence += f", which is more than chance and less than the {thresholds['short_watch']:g} times that count"
    evidence = (_quality(result), *result.notes)
    return Verdict(judged.level, f"{sentence}.", ratio.value, ratio.interval, ratio.floor, evidence, judged.basis)


def answer(subject: Subject) -> Answer:
    """The user's queries, or pieces of texts of every length that ask for the rest, with all others in the way."""
    task = cut_pieces(subject) if subject.query_task is None else query_pieces(subject, subject.query_task)
    if isinstance(task, str):
        return Answer.unchecked("short", f"it takes queries, made of pieces of the texts, and {task}")
    if len(task.documents) <= _K or np.ptp(task.lengths) == 0:
        return Answer.unchecked("short", "all texts are of one length, or there are not more than ten")
    result = retrieval_by_length(
        task.queries,
        task.documents,
        task.relevant,
        task.lengths,
        k=_K,
        bins=_BINS,
        counted=task.counted,
        seed=subject.seed,
    )
    if result.unjudged:
        return Answer.unchecked("short", result.unjudged)
    verdict = judge(result, subject.thresholds)
    evidence = (*verdict.evidence, _asked_with(subject, task, result))
    numbers = {
        "short_share": result.shortest.ratio.value,
        "short_share_interval": result.shortest.ratio.interval,
        "long_share": result.longest.ratio.value,
        "short_hit": result.shortest.hit.value,
        "long_hit": result.longest.hit.value,
        "short_cost": result.shortest.cost.value,
        "short_cost_interval": result.shortest.cost.interval,
        "long_cost": result.longest.cost.value,
    }
    side, judged = _crowding(result, subject.thresholds)
    return Answer(
        "short",
        replace(verdict, evidence=evidence),
        numbers,
        _action(subject, side, judged),
        number_name=by_queries(f"{side} fifth among wrong answers, over its share", subject.query_task is not None),
        tables={"retrieval_by_length": result.to_table()},
        draw={"short": result.figure},
    )


def _asked_with(subject: Subject, task: Pieces, result: LengthRetrieval) -> str:
    """Who asked: the user's queries, or pieces of the texts."""
    if subject.query_task is not None:
        return f"Asked with your {result.queries:,} queries, among all texts."
    return (
        f"Self-made queries (--queries takes your own): {task.words} words in a row of {result.queries} texts, as many "
        f"of every fifth of the lengths; they search among all texts, their own without these words. So few words are "
        f"hard to find a text by: their rates compare the fifths, and say nothing of a real search."
    )


def _action(subject: Subject, side: str, judged: Verdict) -> Action:
    """Other chunks only where the others are found less often; otherwise nothing asks for them."""
    if judged.basis == "too few":
        step = "ask with more queries: too few of them tell whether the other texts are found less often"
        return Action("undecided", step, None, "another audit")
    if judged.level != "repair" and judged.basis == "harmless":
        step = f"keep the chunks: that the {side} fifth takes the place of right answers is not shown"
        has_queries = subject.named.queries != ""
        return Action("keep", step, None if has_queries else _asking(subject), "nothing is encoded again")
    how = "merge the shortest with their neighbours" if side == "shortest" else "cut the longest into several"
    step, cost = f"even out the lengths of the chunks: {how}", "cut the texts again and encode them; no new model"
    return Action("re-chunk", step, _asking(subject), cost)


def _asking(subject: Subject) -> str | None:
    """The audit with the user's queries, which tell who wins; FILE stands for queries that are still to be given."""
    named = subject.named
    if named.clouds:
        return None  # clouds encode no queries
    return replace(named, queries=named.queries if named.queries != "" else "FILE").command("audit")


def _crowding(result: LengthRetrieval, thresholds: Thresholds) -> tuple[str, Verdict]:
    """The fifth that the verdict is about, and its judgement: the one that stands out more; the shortest if none."""
    fifths = _fifths(result)
    sides = {side: _judged(result, row, thresholds) for side, row in fifths.items()}

    def weight(side: str) -> tuple[int, float]:
        level = sides[side].level
        return LEVELS.index(level), 0.0 if level == "ok" else fifths[side].ratio.value or 0.0

    chosen = max(sides, key=weight)
    return chosen, sides[chosen]


def _judged(result: LengthRetrieval, row: RetrievalRow, thresholds: Thresholds) -> Verdict:
    ratio = row.ratio
    if ratio.value is None or ratio.interval is None or ratio.floor_high is None:
        return Verdict("unchecked")
    if ratio.interval.low <= 1 or ratio.value <= ratio.floor_high:
        judged = thresholds.within_chance("short", ratio.value, ratio.interval.high)
        return replace(judged, level="unchecked") if _hardly_asked(result) else judged
    judged = thresholds.judge("short", ratio.value, ratio.interval)
    if judged.level == "ok":
        return judged
    if _harm_unknown(result, row):
        return replace(judged, level="watch", basis="too few")
    return judged if _others_lose(row) else replace(judged, level="watch", basis="harmless")


def _hardly_asked(result: LengthRetrieval) -> bool:
    """Do too few queries ask for one of the fifths?"""
    return min(row.queries for row in _fifths(result).values()) < _FEWEST


def _harm_unknown(result: LengthRetrieval, row: RetrievalRow) -> bool:
    """Do too few queries ask for the other texts, or change, to tell whether they are found less often?"""
    ends = row.cost.interval
    return ends is None or result.queries - row.queries < _FEWEST or ends.high - ends.low > _TELLS_NOTHING


def _harm(result: LengthRetrieval, row: RetrievalRow) -> str:
    """What the crowding does to the others, in words."""
    cost, asking = row.cost, result.queries - row.queries
    if _harm_unknown(result, row) or cost.value is None:
        return f"; whether the others are found less often for it cannot be told from {asking} queries for them"
    ends = "" if cost.interval is None else f"[{cost.interval.low:+.1%}, {cost.interval.high:+.1%}]"
    measured = (
        f"leaving it out, not as many others, changes the share of their queries that find them by {cost.value:+.1%}"
    )
    measured = f"{measured} {ends}".rstrip()
    if _others_lose(row):
        return f", and the others are found less often for it ({measured})"
    return f"; that the others are found less often for it is not shown ({measured})"


def _others_lose(row: RetrievalRow) -> bool:
    """Are the other texts found less often because of this fifth, surely?"""
    return row.cost.interval is not None and row.cost.interval.low > 0


def _fifths(result: LengthRetrieval) -> dict[str, RetrievalRow]:
    return {"shortest": result.shortest, "longest": result.longest}


def _quality(result: LengthRetrieval) -> str:
    """How often the relevant documents of both fifths are found, and whether that differs beyond chance."""
    parts = [
        f"{_number(row.hit.value)} of {row.queries} queries for the {side} fifth "
        f"{'' if row.hit.interval is None else f'[{row.hit.interval.low:.2f}, {row.hit.interval.high:.2f}]'}".rstrip()
        for side, row in _fifths(result).items()
    ]
    gap = result.hit_gap.interval
    if _hardly_asked(result) or gap is None:
        told = "too few to compare"
    elif gap.low <= 0 <= gap.high:
        told = "no difference that can be told from chance"
    else:
        told = "a difference beyond chance, which the texts themselves may make"
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
    of_vectors=True,
    seconds=0.5,
    judge=judge,
    thresholds=[
        Threshold(
            "short_watch",
            1.25,
            "The shortest fifth stands this many times as often among wrong answers as its number explains: seen on "
            "every result page.",
        ),
        Threshold(
            "short_repair", 2.0, "Twice as often, while the others are found less often than if it were left out."
        ),
    ],
    numbers=[Number("short_share", "shortest fifth among wrong answers, over its share", headline=True, asked=True)],
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
                "cost": "What it costs the others, hits",
            },
        )
    },
    judged_on="short",
)
