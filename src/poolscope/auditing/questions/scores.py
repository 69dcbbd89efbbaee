"""What does an unrelated pair score here?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, Threshold, Thresholds
from poolscope.auditing.result import Audit
from poolscope.auditing.searches import MEAN_REMOVAL, MEAN_REMOVAL_COST
from poolscope.auditing.subject import Subject
from poolscope.metrics.queries import QueryScores, query_scores
from poolscope.metrics.scores import ScoreDistribution, scores_figure
from poolscope.numbers.intervals import Estimate, Interval, score_text
from poolscope.verdicts import Verdict

OTHER_SHARE = "no interval: cut-offs for different shares of false hits"

# Vectors of length 1 whose numbers differ by less are one vector, rounded.
_ONE_VECTOR = 1e-6

ALL_RELEVANT = "Your queries name every text as an answer: no wrong pair says where to cut, so pairs of texts do."


def answer(subject: Subject) -> Answer:
    """The distribution of the cosines of different texts, and the cut-off that lets a small share of them pass."""
    if len(subject.distinct) < 3:
        return Answer.unchecked("scores", "a distribution of scores needs three different texts or more")
    limits = subject.thresholds
    if subject.groups is not None and np.ptp(subject.groups[subject.distinct]) == 0:
        return Answer.unchecked("scores", "all texts come from one document, so that no two are unrelated")
    scores, queries = subject.scores, _of_queries(subject)
    everything: tuple[str, ...] = ()
    if queries is not None and not queries.wrong_pairs:
        queries, everything = None, (ALL_RELEVANT,)
    verdict = judge(scores, limits, queries, collapsed=_collapsed(subject))
    tables = {"scores": pa.table({"low": scores.edges[:-1], "high": scores.edges[1:], "pairs": scores.counts})}
    draw = {"scores": scores.figure}
    if queries is not None:
        tables["query_scores"] = queries.to_table()
        draw = {"scores": queries.figure, "unrelated pairs": scores.figure}
    name = scores.cut_off_name if queries is None else f"cut-off for {queries.share} false hits of your queries"
    return Answer(
        "scores",
        replace(verdict, evidence=(*verdict.evidence, *everything, *subject.repeats())),
        _numbers(scores, queries),
        _action(subject, scores, queries, verdict) if verdict.at_least("watch") else None,
        number_name=name,
        tables=tables,
        draw=draw,
    )


def _numbers(scores: ScoreDistribution, queries: QueryScores | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "unrelated_score": scores.mean.value,
        "unrelated_score_interval": scores.mean.interval,
        "unrelated_spread": scores.deviation,
        "cut_off": scores.cut_off.value,
        "cut_off_interval": scores.cut_off.interval,
        "isotropic_cut_off": scores.cut_off.floor,
        "nearest_score": scores.nearest,
        "score_pairs": scores.pairs,
    }
    if scores.related is not None:  # of random pairs, some of which may be related
        numbers |= {"related_pairs": scores.related, "others_below": scores.others_below}
    if queries is not None:
        numbers |= {
            "relevant_score": queries.relevant,
            "wrong_score": queries.wrong,
            "query_cut_off": queries.cut_off,
            "query_recall": queries.recall,
            "query_precision": queries.precision,
            "query_lost": share_lost(queries.recall),
            "query_passing": queries.passing,
        }
    return numbers


def _of_queries(subject: Subject) -> QueryScores | None:
    """What the user's queries score; None without any."""
    task = subject.query_task
    if task is None:
        return None
    groups = None if subject.groups is None else subject.groups[task.texts]
    return query_scores(
        task.vectors[0],
        task.vectors[1],
        task.task.relevant,
        counted=task.best,
        groups=groups,
        false_hits=subject.thresholds["false_hits"],
        seed=subject.seed,
    )


def share_lost(recall: Estimate) -> Estimate:
    """The share that a recall leaves out, with the ends of the interval turned round."""
    interval = recall.interval
    turned = None if interval is None else replace(interval, low=1 - interval.high, high=1 - interval.low)
    return Estimate(None if recall.value is None else 1 - recall.value, turned)


def _action(subject: Subject, scores: ScoreDistribution, queries: QueryScores | None, verdict: Verdict) -> Action:
    """The cut-off of the queries, unless it would lose what is near; removing the mean too, where that won on trial.

    Between texts no cut-off is advised: queries are shorter, and score lower with the texts that answer them.
    """
    if verdict.basis == "counted":  # all vectors are one
        step = "use another model or checkpoint, or mend this one: it gives all texts one vector"
        return Action("change", step, None, "encode all texts again with it", renews="vectors")
    lost = queries is not None and verdict.basis in ("lost", "lost by estimate")
    if lost or (queries is None and _above_nearest(scores)):
        step = "let no cut-off decide: take the first hits of every query, and let a re-ranker or the reader choose"
    elif queries is None:
        step = (
            f"ask with queries of your own (--queries) before you set a cut-off: {score_text(verdict.value)} is one "
            f"between texts, and what queries score with their answers may lie below it"
        )
    else:
        step = f"set the cut-off of your search to {score_text(verdict.value)}"
    # As question 2 has it, a cone alone is nothing to repair: removing the mean must have won what it asks for there.
    if lost or subject.mean_removal.gain < subject.thresholds["cone_gain"]:
        if queries is None and not _above_nearest(scores):
            return Action("undecided", step, None, "encode the queries")
        return Action("configure", step, None, "a setting of your search; nothing is encoded again")
    return Action(
        "repair", f"{step}, or {MEAN_REMOVAL}, which helps on trial", subject.command("tune"), MEAN_REMOVAL_COST
    )


def _above_nearest(scores: ScoreDistribution) -> bool:
    """Would most texts lose even their nearest other text at the cut-off that is proposed?"""
    return scores.cut_off.known > scores.nearest


def _placed(cut_off: Estimate, limits: Thresholds) -> Verdict:
    """A cut-off against its thresholds, if there are pairs enough to place it."""
    if cut_off.interval is None:
        return Verdict("unchecked", value=cut_off.value)
    return limits.judge("cut_off", cut_off.known, cut_off.interval)


def judge(
    scores: ScoreDistribution, limits: Thresholds, queries: QueryScores | None = None, *, collapsed: bool = False
) -> Verdict:
    """The cut-off against its thresholds; `unchecked` without an interval: too few pairs tell of so rare a share.

    With `queries` it is the cut-off of queries, and what it loses of the relevant texts counts too. `collapsed`: the
    vectors of all texts are the same.
    """
    if collapsed:
        sentence = (
            f"All {scores.texts:,} texts have one vector, but for rounding: every pair scores 1, and no search can "
            f"tell them apart."
        )
        return Verdict("repair", sentence, scores.cut_off.value, None, scores.cut_off.floor, (), "counted")
    judged = _judge_pairs(scores, limits).at_most_watch("between texts")
    return judged if queries is None else _judge_queries(queries, limits, judged.evidence)


def _judge_pairs(scores: ScoreDistribution, limits: Thresholds) -> Verdict:
    """Where more random pairs score high than the rest predicts, they may be related, or only texts of one kind.

    The cut-off for unrelated pairs is then the bound for the others, or that of all: `watch` at most, and `unchecked`
    where the two are judged differently.
    """
    bounded = _bounded(scores)
    verdict = _placed(scores.cut_off, limits)
    if bounded and verdict.level != "unchecked":
        others = limits.judge("cut_off", scores.others_below or 0.0)
        same = (others.level == "ok") == (verdict.level == "ok")
        verdict = verdict.at_most_watch("no interval") if same else Verdict("unchecked", value=verdict.value)
    known = scores.documents is not None
    pair, pairs = ("Two texts of different documents", "such pairs") if known else ("Two random texts", "random pairs")
    sentence = f"{pair} score {scores.mean.value:.2f} on average (spread {scores.deviation:.2f})"
    if scores.placed:
        sentence += f"; cut at {score_text(scores.cut_off.value)}, and {scores.share} of {pairs} still pass."
        if scores.cut_off.interval is None:
            sentence += f" {scores.pairs:,} pairs are too few to say how far that holds for others."
        if bounded:
            below = score_text(scores.others_below)
            sentence += (
                f" If those are related, as chunks of one document are (--group), {below} or less would do; if they "
                f"are only texts of one kind, it would not."
            )
        if _above_nearest(scores):
            nearest = f"which scores {score_text(scores.nearest)} (median)"
            sentence += f" Most texts would lose even their nearest text there, {nearest}."
    else:
        few = f"{scores.pairs:,} pairs are too few to place a cut-off for {scores.share} of them"
        sentence += f"; {few}: the highest scores {score_text(scores.cut_off.value)}."
    if verdict.at_least("watch"):
        common = f"Common cut-offs of {limits['cut_off_watch']:g}"
        sentence += f" {common} do not hold here." if known else f" {common} let more random pairs pass."
    of = f" of {scores.documents:,} documents, pairs of one document left out" if known else ""
    over = f"{scores.pairs:,} pairs of {scores.texts:,} texts{of}; mean {scores.mean.value:.3f}"
    evidence = (
        f"{over}{'' if scores.mean.interval is None else f' {scores.mean.interval}'}.",
        *(() if known else (_random_pairs(scores),)),
        f"The nearest other text of a text scores {score_text(scores.nearest)} (median); identical texts score 1.",
        f"Vectors without a preferred direction would need a cut-off of {scores.cut_off.floor:.2f}.",
    )
    return replace(verdict, sentence=sentence, floor=scores.cut_off.floor, evidence=evidence)


def _collapsed(subject: Subject) -> bool:
    """Are the vectors of all texts the same, up to single precision?"""
    vectors = subject.vectors[subject.distinct]
    return bool(np.abs(vectors - vectors[0]).max() < _ONE_VECTOR)


def _bounded(scores: ScoreDistribution) -> bool:
    """Do some random pairs score so high that less than the cut-off would do for the others?"""
    return scores.others_below is not None and scores.others_below < scores.cut_off.known - 0.005


def _random_pairs(scores: ScoreDistribution) -> str:
    """What random pairs cannot tell, and how many of them seem related."""
    unknown = "Which texts come from one document is not known (--group), so that these are random pairs"
    related = scores.related
    if related is None or related.interval is None or scores.others_below is None:
        told = " (no excess of high scores tells of any)" if related is not None else ""
        return f"{unknown}: related ones may be among them{told}, and the cut-off for the others lies here or below."
    return (
        f"{unknown}: {max(related.interval.low, 0):.2%} to {related.interval.high:.2%} of them score higher than a "
        f"normal tail of the rest predicts, as related ones do, and also those of a second language or kind; without "
        f"them the cut-off lies at {score_text(scores.others_below)} or below."
    )


def _judge_queries(queries: QueryScores, limits: Thresholds, of_pairs: tuple[str, ...]) -> Verdict:
    verdict = _placed(queries.cut_off, limits)
    recall = queries.recall.interval
    if verdict.level == "ok" and recall is not None and 1 - queries.recall.known >= limits["lost_watch"]:
        sure = 1 - recall.high >= limits["lost_watch"]
        verdict = replace(verdict, level="watch", basis="lost" if sure else "lost by estimate")
    where = (
        f"Your queries score {queries.relevant.value:.2f} on average with the texts that answer them, "
        f"{queries.wrong.value:.2f} with others"
    )
    if queries.placed:
        sentence = (
            f"{where}; cut at {score_text(queries.cut_off.value)}, and {queries.share} of the others still pass, with "
            f"{queries.recall.value:.0%} of the relevant ones."
        )
        if verdict.level == "unchecked":
            few = f"{queries.queries:,} queries with {queries.wrong_pairs:,} wrong pairs"
            sentence += f" {few} are too few to say how far that holds for others."
    else:
        sentence = f"{where}; {queries.wrong_pairs:,} pairs are too few to place a cut-off for {queries.share} of them."
    if verdict.basis == "lost":
        sentence += f" None that lets so few pass keeps {1 - limits['lost_watch']:.0%} of them."
    elif verdict.basis == "lost by estimate":
        sentence += f" It loses the other {1 - queries.recall.known:.0%}."
    elif verdict.at_least("watch"):
        sentence += f" Common cut-offs of {limits['cut_off_watch']:g} do not hold here."
    evidence = (*_at_the_cut_off(queries), *of_pairs)
    return replace(verdict, sentence=sentence, floor=queries.cut_off.floor, evidence=evidence)


def _at_the_cut_off(queries: QueryScores) -> tuple[str, ...]:
    """Recall, precision and what passes, with intervals; and what counts as wrong."""
    notes = [
        f"{queries.queries:,} queries, {queries.relevant_pairs:,} relevant and {queries.wrong_pairs:,} other pairs; "
        f"mean score {queries.relevant} and {queries.wrong}.",
    ]
    if queries.precision.value is not None:
        notes.append(
            f"At the cut-off {queries.cut_off.value:.3f} {queries.cut_off.interval or ''}: recall {queries.recall}, "
            f"precision {queries.precision}; a query gets {queries.passing:.1f} texts on average. A text that the "
            f"queries do not name counts as wrong."
        )
    if queries.left_out:
        notes.append(
            f"Left out: {queries.left_out:,} pairs of a query with another text of a document that answers it."
        )
    return tuple(notes)


# -- beside other audits ------------------------------------------------------------------------------------------


def _pair(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """Cut-offs for different shares of false hits differ by what was asked: no interval tells of the models then."""
    shares = [audit.thresholds.get("false_hits") for audit in (first, second)]
    return (None, OTHER_SHARE) if shares[0] != shares[1] else None


def _overlay(audits: Mapping[str, Audit]) -> Any | None:
    """The distributions of several audits in one figure."""
    known = {name: kept for name, audit in audits.items() if (kept := _distribution(audit)) is not None}
    return scores_figure(*known.values(), names=list(known)) if len(known) > 1 else None


def _distribution(audit: Audit) -> ScoreDistribution | None:
    """The distribution of the scores again, from its histogram and numbers."""
    table, numbers = audit.tables.get("scores"), audit.numbers
    if table is None:
        return None
    low, high = (table[name].to_numpy() for name in ("low", "high"))
    before = "unrelated_score" not in numbers  # other names, up to version 0.1
    return ScoreDistribution(
        texts=audit.corpus["texts"],
        pairs=int(numbers["score_pairs"]),
        mean=Estimate(numbers["floor" if before else "unrelated_score"]),
        deviation=numbers["floor_spread" if before else "unrelated_spread"],
        false_hits=audit.thresholds["false_hits"],
        cut_off=Estimate(numbers["cut_off"], floor=numbers["isotropic_cut_off"]),
        nearest=numbers["nearest_score"],
        counts=table["pairs"].to_numpy(),
        edges=np.append(low, high[-1]),
        positions=np.zeros(0, np.int64),
    )


QUESTION = Question(
    "scores",
    title="Unrelated pairs",
    words="What does an unrelated pair score here?",
    page="scores.md",
    number_name="cut-off for unrelated pairs",
    metric="scores",
    answer=answer,
    seconds=0.5,
    needs="vectors",
    judge=judge,
    thresholds=[
        Threshold("false_hits", 0.01, "The cut-off lets this share of unrelated pairs pass; users ask for 1 %."),
        Threshold(
            "cut_off_watch",
            0.7,
            "Tools and tutorials cut at 0.7 to 0.8; from here on such a default lets unrelated pairs pass.",
        ),
        Threshold(
            "cut_off_repair",
            0.9,
            "Less than a tenth of the scale is left for everything that is related: thresholds set by hand do not "
            "hold. Only your queries can show it: between texts it is watched.",
        ),
        Threshold(
            "lost_watch",
            0.2,
            "Share of the relevant texts that the cut-off of your queries loses: every fifth answer is thrown away.",
        ),
    ],
    numbers=[
        Number("cut_off", "cut-off for unrelated pairs", headline=True, pair=_pair),
        Number("query_cut_off", "cut-off of the queries", pair=_pair),
        Number("query_recall", "relevant texts that pass the cut-off of the queries"),
        Number("query_precision", "relevant texts among those that pass it"),
    ],
    judged_on="cut_off",
    gauges=[Gauge("query_lost", "relevant texts that this cut-off loses", "lost_watch", form=".1%")],
    overlay=_overlay,
)
