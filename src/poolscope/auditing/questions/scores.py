"""What does an unrelated pair score here?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Number, Question, Threshold, unchecked
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.metrics.scores import ScoreDistribution, scores_figure
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.verdicts import Verdict

if TYPE_CHECKING:
    from poolscope.auditing.result import Audit

_RANDOM = (
    "Which texts come from one document is not known (--group): related pairs are among the random ones, so that the "
    "cut-off for unrelated pairs alone lies at this one or below."
)
OTHER_SHARE = "no interval: cut-offs for different shares of false hits"


def answer(subject: Subject) -> Answer:
    """The distribution of the cosines of different texts, and the cut-off that lets a small share of them pass."""
    if len(subject.distinct) < 3:
        return unchecked("scores", "a distribution of scores needs three different texts or more")
    limits = subject.thresholds
    if subject.groups is not None and np.ptp(subject.groups[subject.distinct]) == 0:
        return unchecked("scores", "all texts come from one document, so that no two are unrelated")
    scores = subject.scores
    verdict = judge(scores, limits)
    action = _action(subject, scores) if verdict.at_least("watch") else None
    return Answer(
        "scores",
        replace(verdict, evidence=(*verdict.evidence, *subject.repeats())),
        {
            "floor": scores.mean.value,
            "floor_interval": scores.mean.interval,
            "floor_spread": scores.deviation,
            "cut_off": scores.cut_off.value,
            "cut_off_interval": scores.cut_off.interval,
            "isotropic_cut_off": scores.cut_off.floor,
            "nearest_score": scores.nearest,
            "score_pairs": scores.pairs,
        },
        action,
        number_name=scores.cut_off_name,
        tables={"scores": pa.table({"low": scores.edges[:-1], "high": scores.edges[1:], "pairs": scores.counts})},
        draw={"scores": scores.figure},
    )


def _action(subject: Subject, scores: ScoreDistribution) -> Action:
    """A cut-off of one's own; removing the mean too, unless it was tried and has not helped."""
    if not scores.placed:
        return Action("repair", "audit more texts to place a cut-off of your own", None, "encode more texts")
    step = f"set the cut-off of your search to {scores.cut_off.value:.2f}"
    trial = subject.mean_removal
    if trial.difference is not None and trial.gain == 0:
        return Action("repair", step, None, "a setting of your search; nothing is encoded again")
    other = "removing the mean, which helps on trial, widens the band" if trial.gain else "try a removal of the mean"
    return Action("repair", f"{step}, or {other}", subject.command("tune"), "no re-encoding: one subtraction a vector")


def judge(scores: ScoreDistribution, limits: Thresholds) -> Verdict:
    """The cut-off against its thresholds; without an interval there are too few pairs to be sure of so rare a share."""
    verdict = limits.judge("cut_off", scores.cut_off.known, scores.cut_off.interval)
    if scores.cut_off.interval is None:
        verdict = verdict.at_most_watch("no interval")
    known = scores.documents is not None
    pair, pairs = ("Two texts of different documents", "such pairs") if known else ("Two random texts", "random pairs")
    sentence = f"{pair} score {scores.mean.value:.2f} on average (spread {scores.deviation:.2f})"
    if scores.placed:
        sentence += f"; cut at {scores.cut_off.value:.2f}, and {scores.share} of {pairs} still pass."
    else:
        few = f"{scores.pairs:,} pairs are too few to place a cut-off for {scores.share} of them"
        sentence += f"; {few}: the highest scores {scores.cut_off.value:.2f}."
    if verdict.level != "ok":
        instead = "use this one" if scores.placed else "audit more texts to place one"
        sentence += f" Common cut-offs of {limits['cut_off_watch']:g} do not hold here: {instead}."
    of = f" of {scores.documents:,} documents, pairs of one document left out" if known else ""
    over = f"{scores.pairs:,} pairs of {scores.texts:,} texts{of}; mean {scores.mean.value:.3f}"
    evidence = (
        f"{over}{'' if scores.mean.interval is None else f' {scores.mean.interval}'}.",
        *(() if known else (_RANDOM,)),
        f"The nearest other text of a text scores {scores.nearest:.2f} (median); identical texts score 1.",
        f"Vectors without a preferred direction would need a cut-off of {scores.cut_off.floor:.2f}.",
    )
    return replace(verdict, sentence=sentence, floor=scores.cut_off.floor, evidence=evidence)


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
    return ScoreDistribution(
        texts=audit.corpus["texts"],
        pairs=int(numbers["score_pairs"]),
        mean=Estimate(numbers["floor"]),
        deviation=numbers["floor_spread"],
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
            "hold.",
        ),
    ],
    numbers=[Number("cut_off", "cut-off for unrelated pairs", headline=True, pair=_pair)],
    judged_on="cut_off",
    overlay=_overlay,
)
