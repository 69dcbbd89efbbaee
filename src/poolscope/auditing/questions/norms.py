"""Are the vectors of one length, and does the search go by the right distance?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, Thresholds
from poolscope.auditing.subject import Subject, has_vectors_only
from poolscope.metrics.spectrum import Norms, norms
from poolscope.numbers.intervals import Estimate
from poolscope.numbers.items import odd_lengths
from poolscope.verdicts import Verdict

_NAMES = {"cosine": "cosine", "dot": "inner product", "l2": "Euclidean distance"}


def answer(subject: Subject) -> Answer:
    """The lengths, and the neighbours that cosine and the distance in use do not share."""
    if len(subject.distinct) < 3:
        return Answer.unchecked("norms", "neighbours need three different vectors or more")
    lengths = np.linalg.norm(subject.raw_vectors, axis=1)
    odd = odd_lengths(lengths)
    # Copies are left out, unless some vectors have another length, which those of copies may be: all are searched.
    rows = np.arange(len(subject)) if len(odd) else subject.distinct
    measured = norms(subject.raw_vectors[rows], seed=subject.seed)
    distance = None if subject.collection is None else subject.collection.distance
    declared = subject.reference is not None and "Normalize" in subject.reference.card.after
    return Answer(
        "norms",
        judge(measured, subject.thresholds, distance, declared=declared),
        {
            "norm_median": measured.median,
            "norm_variation": measured.variation,
            "changed_by_dot": measured.by_dot,
            "changed_by_l2": measured.by_l2,
            "distance_in_use": distance,
        },
        _action(odd),
        tables={"other_lengths": pa.table({"id": [subject.ids[k] for k in odd], "length": lengths[odd]})},
        number_name=f"ten nearest that {_NAMES[_other(measured, distance)]} changes",
        draw={"norms": measured.figure},
    )


def _action(odd: NDArray[np.int64]) -> Action:
    """Where only some vectors have another length, it is about these."""
    if len(odd):
        step = "bring the vectors that do not have the length 1 to it (table other_lengths), or search by cosine"
        return Action("configure", step, None, "one division for each of these; nothing is encoded again")
    step = (
        "search by cosine, or bring all vectors to length 1 when they are written, unless the model was trained with "
        "an inner product"
    )
    return Action("configure", step, None, "a setting of the index; nothing is encoded again")


def _other(measured: Norms, distance: str | None) -> str:
    """The distance that cosine is set beside: the one in use, or the one that changes more."""
    if distance in ("dot", "l2"):
        return distance
    return "dot" if measured.by_dot.known >= measured.by_l2.known else "l2"


def judge(measured: Norms, limits: Thresholds, distance: str | None = None, *, declared: bool = False) -> Verdict:
    """Lengths matter where the search goes by them: with cosine in use, or one length, they do not.

    A model may be trained for an inner product, so that other lengths are `watch` at most, unless the model is
    `declared` to bring its vectors to length 1, or some of these vectors have that length and others do not.
    """
    other = _other(measured, distance)
    changed: Estimate = measured.by_dot if other == "dot" else measured.by_l2
    size = f"{measured.median:.3g}" if measured.median < 1000 else f"{measured.median:,.0f}"
    odd = len(odd_lengths(measured.lengths))
    if measured.normalised and not odd:
        one = "All vectors have the length" if measured.unit else "All vectors have one length,"
        sentence = f"{one} {size}: cosine, inner product and Euclidean distance give one order."
        return Verdict("ok", sentence, changed.value, changed.interval, 0.0, _evidence(measured, distance))
    lengths = f"Lengths differ (median {size}, 5 to 95 %: {measured.low:.3g} to {measured.high:.3g})"
    judged = limits.judge("distance", changed.known, changed.interval)
    evidence = _evidence(measured, distance)
    if distance == "cosine":
        sentence = (
            f"{lengths}, which the cosine in use leaves aside; {_NAMES[other]} would change {changed.value:.0%} of the "
            f"ten nearest."
        )
        return Verdict("ok", sentence, changed.value, changed.interval, 0.0, evidence)
    used = f"the {_NAMES[other]} in use" if distance else _NAMES[other]
    sentence = f"{lengths}: {used} changes {changed.value:.0%} of the ten nearest by cosine."
    if odd:
        share = f"{odd:,} of {measured.vectors:,} vectors ({odd / measured.vectors:.1%})"
        sentence += f" {share} do not have the length 1, and the others do."
    if declared:
        sentence += " The model that is named brings its vectors to the length 1."
    if not (odd or declared):
        judged = judged.at_most_watch("untried")
    if distance is None:
        sentence += " Which of them your search goes by is not known here (--distance)."
        judged = judged.at_most_watch("untried")
        judged = judged if judged.basis is None else replace(judged, basis="untried")
    return Verdict(judged.level, sentence, changed.value, changed.interval, 0.0, evidence, judged.basis)


def _evidence(measured: Norms, distance: str | None) -> tuple[str, ...]:
    if measured.normalised:
        return (f"{measured.vectors:,} vectors; their lengths vary by {measured.variation:.1e} of their mean.",)
    return (
        f"{measured.vectors:,} vectors; their lengths vary by {measured.variation:.1%} of their mean.",
        f"Inner product changes {measured.by_dot.value:.1%} {measured.by_dot.interval} of the {measured.k} nearest by "
        f"cosine, Euclidean distance {measured.by_l2.value:.1%} {measured.by_l2.interval}.",
        f"The longest tenth stands {measured.long_among:.1f} times as often among the nearest by inner product as by "
        f"cosine.",
        *((f"In use: {_NAMES[distance]}.",) if distance else ()),
    )


QUESTION = Question(
    "norms",
    title="Lengths and distance",
    words="Are the vectors of one length, and does the search go by the right distance?",
    page="vectors.md#lengths-and-distance",
    number_name="ten nearest that change",
    number_format=".3f",
    metric="norms",
    answer=answer,
    needs="vectors",
    applies=has_vectors_only,
    judge=judge,
    thresholds=[
        Threshold(
            "distance_watch",
            0.1,
            "One of the ten nearest by cosine is another by the distance in use: a model trained for one of them is "
            "searched by the other.",
        ),
        Threshold(
            "distance_repair",
            0.3,
            "Three of the ten are others, and the vectors of the model have one length, or some of these vectors do.",
        ),
    ],
    judged_on="distance",
    numbers=[Number("norm_variation", "variation of the lengths", compared=False)],
    tables={"other_lengths": TableView("Vectors that do not have the length 1", 50, {"id": "Row", "length": "Length"})},
)
