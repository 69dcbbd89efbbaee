"""Is everything in one cone, and does removing the mean help on my data?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, Threshold, Thresholds
from poolscope.auditing.result import Audit
from poolscope.auditing.searches import MEAN_REMOVAL, MEAN_REMOVAL_COST, decided_by, stripping_trial
from poolscope.auditing.subject import Subject
from poolscope.errors import shorten
from poolscope.evaluation import Trial, compare_scores
from poolscope.evaluation.scores import LEAST_GAIN
from poolscope.metrics.scores import Cone, cone, cone_figure
from poolscope.numbers.intervals import Interval, jackknife_interval
from poolscope.texts.groups import Boilerplate, boilerplate
from poolscope.verdicts import Verdict, most_serious


def answer(subject: Subject) -> Answer:
    """How much the vectors share with their mean, and a trial without it."""
    if len(subject.distinct) < 3:
        return Answer.unchecked("cone", "a mean over pairs needs three different texts or more")
    shared, trial = cone(subject.vectors[subject.distinct]), subject.mean_removal
    words = boilerplate([] if subject.texts is None else [subject.texts[k] for k in subject.distinct])
    stripping = stripping_trial(subject, words) if words else None
    mean_cosines = np.full(len(subject), np.nan)  # not known of texts that repeat another
    mean_cosines[subject.distinct] = shared.per_text
    columns = {"mean_cosine": pa.array(mean_cosines, from_pandas=True)}
    if subject.collection is None:
        columns["concentration_ratio"] = pa.array(subject.moments.traces)
    return Answer(
        "cone",
        judge(
            shared,
            subject.thresholds,
            trial,
            stripping=stripping,
            asked=subject.queries is not None,
            boilerplate=_named(words, len(subject.distinct)),
            notes=subject.repeats(),
        ),
        {
            "anisotropy": shared.mean_cosine.value,
            "anisotropy_interval": shared.mean_cosine.interval,
            "mean_norm": shared.mean_norm,
            "split_half" if subject.queries is None else "query_ndcg": None
            if trial.before is None
            else trial.before.value,
            **trial.numbers("mean_removal"),
            **({} if stripping is None else stripping.numbers("stripping")),
        },
        # Words that all share are a cause of the cone, and go first: then the mean is another. What removing the mean
        # wins is no measure for that: halves of texts have these words at one end only.
        _strip(words)
        if stripping is not None and stripping.gain >= subject.thresholds["cone_gain"]
        else Action("repair", MEAN_REMOVAL, subject.command("tune"), MEAN_REMOVAL_COST),
        tables={
            "texts": pa.table({"id": subject.ids, **columns}),
            **trial.table("mean_removal"),
            **({} if stripping is None else stripping.table("stripping")),
        },
        draw={"cone": lambda: _figure(shared, trial)},
    )


def _ends(words: Boilerplate) -> list[tuple[str, str, int]]:
    """What texts do, with which words, and how many of them."""
    ends = (("begin", words.head, words.heads), ("end", words.tail, words.tails))
    return [end for end in ends if end[1]]


def _named(words: Boilerplate, texts: int) -> str:
    """Words that half of the texts or more begin or end with, in sentences; "" where there are few."""
    return " ".join(
        f"{count:,} of {texts:,} different texts {verb} with the same {len(same.split())} words ({shorten(same)})."
        for verb, same, count in _ends(words)
    )


def _strip(words: Boilerplate) -> Action:
    ends = " and ".join(f"{verb} with ({shorten(same)})" for verb, same, _ in _ends(words))
    step = f"strip the words that most texts {ends} before encoding"
    return Action("merge", step, None, "encode these texts again; no new model", renews="texts")


def judge(
    shared: Cone,
    limits: Thresholds,
    trial: Trial,
    *,
    stripping: Trial | None = None,
    asked: bool = False,
    boilerplate: str = "",
    notes: tuple[str, ...] = (),
) -> Verdict:
    """A cone alone is nothing to repair: it counts where removing the mean won on held-out queries.

    So it is with words that most texts share, which make a cone too: they count where `stripping` them won. Unless the
    user's queries were `asked`, what removing the mean wins beside such words tells nothing: a half that has them looks
    for one that has not.
    """
    least, trials = limits["cone_gain"], [trial] if stripping is None else [trial, stripping]
    told = [decided_by(each, least) for each in trials]
    by_header = stripping is not None and not asked and told[0].at_least("watch")
    if by_header:
        told[0] = Verdict("unchecked")
    judged = most_serious(*told)
    where = f"A vector shares {shared.mean_norm:.0%} of its length with the mean of all"
    cosine = shared.mean_cosine
    tried = f"{trial.sentence} {trial.reach(least)}".rstrip()
    if by_header:
        tried += " That tells nothing here, since only one half of a text has the words below: --queries would."
    without = "" if stripping is None else stripping.advice(least)
    sentence = " ".join(filter(None, (f"{where} (mean cosine {cosine.value:.2f}); {tried}", boilerplate, without)))
    evidence = (*(line for each in trials for line in each.evidence), *notes)
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
            "Points of nDCG@10 that removing the mean, or words that most texts share, must win on held-out queries: "
            "of 100 queries two more find their text first instead of not at all. An audit of 1,000 texts tells it "
            "from none: ±0.012.",
        )
    ],
    numbers=[
        Number("anisotropy", "mean cosine of all pairs", headline=True, pair=_pair_mean_cosine),
        Number("split_half", "split-half retrieval, nDCG@10", pair=_pair_queries, retrieval=True),
        Number("query_ndcg", "retrieval with the queries, nDCG@10", pair=_pair_queries, retrieval=True),
    ],
    gauges=[
        Gauge("mean_removal_gain", "nDCG@10 won by removing the mean", repair="cone_gain"),
        Gauge("stripping_gain", "nDCG@10 won by stripping words that texts share", repair="cone_gain"),
    ],
)
