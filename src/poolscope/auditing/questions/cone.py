"""Is everything in one cone, and does removing the mean help on my data?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, Threshold, Thresholds
from poolscope.auditing.result import Audit
from poolscope.auditing.searches import MEAN_REMOVAL, MEAN_REMOVAL_COST, decided_by
from poolscope.auditing.subject import Subject
from poolscope.errors import shorten
from poolscope.evaluation import Trial, compare_scores
from poolscope.evaluation.scores import LEAST_GAIN
from poolscope.metrics.scores import Cone, cone, cone_figure
from poolscope.numbers.intervals import Interval, jackknife_interval
from poolscope.texts.groups import BOILERPLATE, shared_words
from poolscope.verdicts import Verdict


def answer(subject: Subject) -> Answer:
    """How much the vectors share with their mean, and a trial without it."""
    if len(subject.distinct) < 3:
        return Answer.unchecked("cone", "a mean over pairs needs three different texts or more")
    shared, trial = cone(subject.vectors[subject.distinct]), subject.mean_removal
    mean_cosines = np.full(len(subject), np.nan)  # not known of texts that repeat another
    mean_cosines[subject.distinct] = shared.per_text
    columns = {"mean_cosine": pa.array(mean_cosines, from_pandas=True)}
    if subject.collection is None:
        columns["concentration_ratio"] = pa.array(subject.moments.traces)
    return Answer(
        "cone",
        judge(shared, subject.thresholds, trial, boilerplate=_boilerplate(subject), notes=subject.repeats()),
        {
            "anisotropy": shared.mean_cosine.value,
            "anisotropy_interval": shared.mean_cosine.interval,
            "mean_norm": shared.mean_norm,
            "split_half" if subject.queries is None else "query_ndcg": None
            if trial.before is None
            else trial.before.value,
            **trial.numbers("mean_removal"),
        },
        Action("repair", MEAN_REMOVAL, subject.command("tune"), MEAN_REMOVAL_COST),
        tables={"texts": pa.table({"id": subject.ids, **columns}), **trial.table("mean_removal")},
        draw={"cone": lambda: _figure(shared, trial)},
    )


def _boilerplate(subject: Subject) -> str:
    """Words that half of the texts or more begin or end with, in a sentence; "" where there are few."""
    if subject.texts is None:
        return ""
    texts, sentences = [subject.texts[k] for k in subject.distinct], []
    for verb, at_end in (("begin", False), ("end", True)):
        words, count = shared_words(texts, at_end=at_end)
        if len(words.split()) >= BOILERPLATE:
            same = f"the same {len(words.split())} words ({shorten(words)})"
            sentences.append(f"{count:,} of {len(texts):,} different texts {verb} with {same}.")
    return " ".join([*sentences, "A search without these words was not tried."]) if sentences else ""


def judge(
    shared: Cone, limits: Thresholds, trial: Trial, *, boilerplate: str = "", notes: tuple[str, ...] = ()
) -> Verdict:
    """A cone alone is nothing to repair: it counts where removing the mean won on held-out queries."""
    judged = decided_by(trial, limits["cone_gain"])
    where = f"A vector shares {shared.mean_norm:.0%} of its length with the mean of all"
    cosine = shared.mean_cosine
    tried = f"{trial.sentence} {trial.reach(limits['cone_gain'])}".rstrip()
    sentence = f"{where} (mean cosine {cosine.value:.2f}); {tried} {boilerplate}".rstrip()
    evidence = (*trial.evidence, *notes)
    return Verdict(judged.level, sentence, cosine.value, cosine.interval, cosine.floor, evidence, judged.basis)


def _figure(shared: Cone, trial: Trial) -> Any:
    """In the title what removing the mean does to retrieval."""
    before, after = trial.before, trial.after
    if before is None or after is None:
        return shared.figure()
    return cone_figure(shared, note=f"{before.metric} {before.value:.3f}, without the mean {after.value:.3f}")


# -- beside other audits ------------------------------------------------------------------------------------------


def _pair_mean_cosine(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """Mean cosine: a mean over pairs of texts, so texts are left out one at a time, in both at once."""
    sides = [audit.column("texts", "mean_cosine") for audit in (first, second)]
    if any(side is None for side in sides):
        return None
    change = sides[1] - sides[0]
    change = change[~np.isnan(change)]  # texts that repeat an earlier one have none
    count = len(change)
    if count < 3:
        return None
    sums = change * (count - 1)
    interval = jackknife_interval([sums], [count - 1], float(sums.sum() / 2), count * (count - 1) // 2)
    return interval, "paired over texts (jackknife)"


def _pair_queries(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """nDCG@10, query by query, where both asked the same."""
    left, right = first.tables.get("mean_removal"), second.tables.get("mean_removal")
    if left is None or right is None or not left["query"].equals(right["query"]):
        return None
    interval = compare_scores(*(side["before"].to_numpy() for side in (left, right))).interval
    return interval, "paired over queries"


QUESTION = Question(
    "cone",
    title="One cone",
    words="Is everything in one cone, and does removing the mean help on my data?",
    page="scores.md#how-to-read-it",
    number_name="mean cosine",
    metric="cone",
    answer=answer,
    seconds=0.5,
    needs="vectors",
    judge=judge,
    thresholds=[
        Threshold(
            "cone_gain",
            LEAST_GAIN,
            "Points of nDCG@10 that removing the mean must win on held-out queries: of 100 queries two more find their "
            "text first instead of not at all. An audit of 1,000 texts tells it from none: ±0.012.",
        )
    ],
    numbers=[
        Number("anisotropy", "mean cosine of all pairs", headline=True, pair=_pair_mean_cosine),
        Number("split_half", "split-half retrieval, nDCG@10", pair=_pair_queries, retrieval=True),
        Number("query_ndcg", "retrieval with the queries, nDCG@10", pair=_pair_queries, retrieval=True),
    ],
    gauges=[Gauge("mean_removal_gain", "nDCG@10 won by removing the mean", repair="cone_gain")],
)
