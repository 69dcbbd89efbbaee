"""Does averaging hide something that matters here? Show me the pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, unchecked
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.auditing.trials import Trial, cloud_trial, judged_by
from poolscope.clouds import TokenClouds
from poolscope.errors import ModelError
from poolscope.metrics.layers.figure import layers_figure
from poolscope.metrics.layers.measure import layers
from poolscope.metrics.layers.result import LayersResult
from poolscope.metrics.socm.figure import pairs_figure
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.result import SocmResult
from poolscope.metrics.socm.score import trace_scores
from poolscope.numbers.intervals import Interval, dyadic_interval, paired_interval
from poolscope.report import PairExplorer, pair_explorer
from poolscope.results import plain
from poolscope.verdicts import Verdict

if TYPE_CHECKING:
    from poolscope.auditing.result import Audit

# Texts behind the floor, and behind the curves by layer, which take a pass through the model of their own.
_FLOOR_TEXTS, _LAYER_TEXTS = 80, 10
WORST = 50
# Pairs that the page lets the reader look at, by kind: each brings a picture, so there are few. All pairs of the table
# of worst pairs are among them.
EXPLORED = {"worst": WORST, "nearest": WORST, "random": 40}


def answer(subject: Subject) -> Answer:
    """SOCM of texts and their nearest neighbours; where it is large, a trial of whether the clouds tell them apart."""
    few = len(subject.distinct) < 3
    if few or subject.clouds.lengths.max() == 1:
        why = "there are fewer than three different texts" if few else "every text is a single token"
        return unchecked("averaging", f"{why}, so that no average is taken or compared")
    every, near, floor = subject.pairs, subject.neighbours, token_sampling_floor(subject)
    trial = cloud_trial(subject) if _stands_out(near, subject.thresholds, floor) else None
    verdict = judge(near, subject.thresholds, floor=floor, trial=trial)
    tables = {"pairs": every.to_table(), "neighbours": near.to_table(), "worst_pairs": _worst_table(every, near)}
    draw = {"averaging": lambda: pairs_figure({every.kind: every, "neighbours": near})}
    if (curves := layer_curves(subject)) is not None:
        tables["layers"] = curves.to_table()
        draw["layers"] = lambda: layers_figure(curves)
    return Answer(
        "averaging",
        replace(verdict, evidence=_evidence(subject, every, near, trial)),
        {**_numbers(subject, every, near, floor), **({} if trial is None else trial.numbers("cloud_reranking"))},
        Action(
            "repair",
            "try another pooling or a re-ranking by the clouds, and look at the worst pairs first",
            subject.command("tune"),
            "no new model; a second-order pooling makes vectors longer, a re-ranking needs the tokens of the first "
            "hits",
        ),
        tables=tables,
        draw=draw,
        explorer=lambda: explorer(subject),
    )


def explorer(subject: Subject) -> PairExplorer:
    """The pairs that the page lets the reader look at."""
    return pair_explorer(
        subject.clouds,
        subject.pairs,
        neighbours=subject.neighbours,
        vocabulary=subject.vocabulary,
        seed=subject.seed,
        section="averaging",
        **EXPLORED,
    )


def _numbers(subject: Subject, every: SocmResult, near: SocmResult, floor: float | None) -> dict[str, Any]:
    return {
        "socm": every.mean,
        "socm_interval": every.interval,
        "socm_trace": _on_the_trace_scale(subject, every),
        "socm_trace_neighbours": _on_the_trace_scale(subject, near),
        "socm_regression": None if every.regression is None else every.regression.mean,
        "socm_neighbours": near.mean,
        "socm_neighbours_interval": near.interval,
        "socm_floor": floor,
        "d_mu": every.mean_distance,
        "d_sigma": every.covariance_distance,
        "concentration_ratio": float(subject.moments.traces[subject.distinct].mean()),
        "trace_broken": every.trace_check.share,
    }


def judge(near: SocmResult, limits: Thresholds, *, floor: float | None = None, trial: Trial | None = None) -> Verdict:
    """SOCM among neighbours beyond its threshold and its floor counts by what a trial of the clouds has won."""
    number = f"SOCM {near.mean:.2f} between texts and their nearest neighbours"
    judged = Verdict("ok")
    if _stands_out(near, limits, floor):
        judged = judged_by([] if trial is None else [trial], limits["socm_gain"])
        outcome = "." if trial is None else f"; {trial.sentence}"
        sentence = f"Averaging hides how the tokens of neighbours differ ({number}){outcome}"
    elif near.mean >= limits["socm_watch"]:
        sentence = f"Neighbours differ no more than one text from itself with other tokens ({number}, {floor:.2f} so)."
    else:
        above = "" if floor is None else f", {floor:.2f} for one text against itself with other tokens"
        sentence = f"Averaging hides little that tells neighbours apart ({number}{above})."
    return Verdict(judged.level, sentence, near.mean, near.interval, floor, basis=judged.basis)


def _stands_out(near: SocmResult, limits: Thresholds, floor: float | None) -> bool:
    """Beyond the threshold, and beyond one text against itself with other tokens, with the whole interval?"""
    surely = near.mean if near.interval is None else near.interval.low
    return near.mean >= limits["socm_watch"] and (floor is None or surely > floor)


def _on_the_trace_scale(subject: Subject, result: SocmResult) -> float | None:
    """Mean SOCM with d_Σ relative to the traces, in [0, 1] for any model; None where the pairs were not kept."""
    if result.pairs is None:
        return None
    pairs, traces = result.pairs, subject.moments.traces
    return float(trace_scores(pairs.mean_distance, pairs.covariance_distance, traces[pairs.i] + traces[pairs.j]).mean())


def layer_curves(subject: Subject) -> LayersResult | None:
    """Where in the model clouds concentrate, on a few texts; None where there is no transformer to look into."""
    if subject.texts is None or not subject.has_attention:
        return None
    drawn = np.sort(np.random.default_rng(subject.seed).permutation(subject.distinct)[:_LAYER_TEXTS])
    ids, texts = [subject.ids[k] for k in drawn], [subject.texts[k] for k in drawn]
    try:
        return layers(subject.encoder, texts, ids=ids, socm_texts=0)
    except ModelError:  # an architecture that capture does not know
        return None


def token_sampling_floor(subject: Subject) -> float | None:
    """SOCM of two clouds of n tokens drawn anew, with replacement, from the n tokens of one text.

    That is what is found where nothing is hidden: the same text, other tokens of it. None where no text has two tokens.
    """
    random = np.random.default_rng(subject.seed)
    distinct = subject.distinct
    enough = random.permutation(distinct[subject.clouds.lengths[distinct] > 1])[:_FLOOR_TEXTS]
    if not len(enough):
        return None
    clouds = [subject.clouds[int(k)] for k in enough]
    drawn = (TokenClouds.from_arrays([X[random.integers(len(X), size=len(X))] for X in clouds]) for _ in range(2))
    return socm(*drawn, pairs=np.stack([np.arange(len(clouds))] * 2, axis=1)).mean


def _evidence(subject: Subject, every: SocmResult, near: SocmResult, trial: Trial | None) -> tuple[str, ...]:
    interval = "" if every.interval is None else f" {every.interval}"
    notes = [
        f"{near.count:,} pairs of neighbours; over {every.count:,} pairs ({every.kind}) {every.mean:.3f}{interval}.",
        "Published, on hard negatives: 0.02 to 0.13 for encoders trained for retrieval, 0.48 for the BERT backbone.",
        f"Among neighbours means differ by d_μ {near.mean_distance:.3f} and covariances by d_Σ "
        f"{near.covariance_distance:.3f}.",
        *(() if trial is None else trial.evidence),
    ]
    if every.trace_check.above:
        notes.append(
            f"{every.trace_check.share:.0%} of the texts break tr Σ ≤ 2, so d_Σ can exceed 1: compare models by "
            f"socm_trace, {_on_the_trace_scale(subject, every):.3f} over these pairs."
        )
    if subject.pooling != "mean":
        notes.append(f"The model pools by {subject.pooling}: this is what averaging would hide if it were used.")
    return (*notes, *subject.repeats())


def _worst_table(every: SocmResult, near: SocmResult) -> pa.Table:
    """The worst neighbours first, then the worst of all pairs that were looked at, with their texts."""
    rows = [("neighbours", pair) for pair in near.worst(WORST)] + [(every.kind, pair) for pair in every.worst(WORST)]
    names = ("socm", "text_i", "text_j", "d_mu", "d_sigma", "id_i", "id_j")
    columns = {name: [plain(pair)[name] for _, pair in rows] for name in names}
    return pa.table({"among": [among for among, _ in rows], **columns})


# -- beside other audits ------------------------------------------------------------------------------------------

_SAME_PAIRS = "paired over the same pairs (clustered by text)"


def _same_pairs(first: Audit, second: Audit) -> tuple[pa.Table, pa.Table] | None:
    left, right = first.tables.get("pairs"), second.tables.get("pairs")
    if left is None or right is None or not all(left[name].equals(right[name]) for name in ("i", "j")):
        return None
    return left, right


def _clustered(pairs: pa.Table, change: Any) -> tuple[Interval | None, str]:
    i, j = (pairs[name].to_numpy() for name in ("i", "j"))
    return dyadic_interval(change, i, j, crossed=False), _SAME_PAIRS


def _pair_socm(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """SOCM over the same pairs, clustered by text."""
    sides = _same_pairs(first, second)
    if sides is None:
        return None
    return _clustered(sides[0], sides[1]["socm"].to_numpy() - sides[0]["socm"].to_numpy())


def _pair_trace(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """SOCM on the scale that no model breaks, over the same pairs, clustered by text."""
    sides = _same_pairs(first, second)
    traces = [audit.column("texts", "concentration_ratio") for audit in (first, second)]
    if sides is None or any(side is None for side in traces):
        return None
    i, j = (sides[0][name].to_numpy() for name in ("i", "j"))
    scores = [
        trace_scores(pairs["d_mu"].to_numpy(), pairs["d_sigma"].to_numpy(), side[i] + side[j])
        for pairs, side in zip(sides, traces, strict=True)
    ]
    return _clustered(sides[0], scores[1] - scores[0])


def _pair_concentration(first: Audit, second: Audit) -> tuple[Interval | None, str] | None:
    """Mean over texts of the concentration ratio."""
    sides = [audit.column("texts", "concentration_ratio") for audit in (first, second)]
    if any(side is None for side in sides):
        return None
    return paired_interval(sides[1] - sides[0], unit="texts"), "paired over texts"


QUESTION = Question(
    "averaging",
    title="Averaging",
    words="Does averaging hide something that matters here? Show me the pairs.",
    page="socm.md",
    number_name="SOCM among neighbours",
    metric="socm",
    answer=answer,
    judge=judge,
    thresholds=[
        Threshold(
            "socm_watch",
            0.25,
            "SOCM among nearest neighbours, while its interval lies above the floor. Published averages on hard "
            "negatives: encoders trained for retrieval 0.02 to 0.13, the raw BERT backbone 0.48.",
        ),
        Threshold(
            "socm_gain", 0.01, "Points of nDCG@10 that using the clouds must win on held-out halves: then it matters."
        ),
    ],
    numbers=[
        Number("socm", "SOCM over pairs", headline=True, pair=_pair_socm),
        Number("socm_trace", "SOCM on the scale of the traces", headline=True, pair=_pair_trace),
        Number("socm_neighbours", "SOCM among neighbours", headline=True),
        Number("concentration_ratio", "spread of the tokens over their mean", headline=True, pair=_pair_concentration),
    ],
    tables={
        "worst_pairs": TableView(
            "Worst pairs",
            100,
            {
                "socm": "SOCM",
                "d_mu": "d_μ",
                "d_sigma": "d_Σ",
                "among": "Among",
                "text_i": "Text A",
                "text_j": "Text B",
            },
            searchable=True,
            below={"text_i": "id_i", "text_j": "id_j"},
            pair=("id_i", "id_j"),
        )
    },
    judged_on="socm",
)
