"""Does averaging hide something that matters here? Show me the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.question import (
    Action,
    Answer,
    Gauge,
    Number,
    Question,
    TableView,
    Threshold,
    Thresholds,
    by_queries,
)
from poolscope.auditing.result import Audit
from poolscope.auditing.searches import Mistakes, cloud_trial, decided_by
from poolscope.auditing.subject import Subject
from poolscope.encoders.capabilities import has_attention
from poolscope.errors import ModelError
from poolscope.evaluation import Trial
from poolscope.metrics.layers.measure import layers
from poolscope.metrics.layers.result import LayersResult, layers_figure
from poolscope.metrics.socm.confusable import Confusion
from poolscope.metrics.socm.floor import sampling_floors
from poolscope.metrics.socm.pair import trace_scores
from poolscope.metrics.socm.result import PAIR_WORDS, SocmResult, pairs_figure
from poolscope.numbers.intervals import Estimate, Interval, dyadic_interval, paired_interval, score_text
from poolscope.numbers.items import carriers, pair_carriers
from poolscope.report import PairExplorer, pair_explorer
from poolscope.verdicts import Verdict

# Texts behind the floor of SOCM, and behind the curves by layer, which take a pass through the model of their own.
_FLOOR_TEXTS, _LAYER_TEXTS = 80, 10
# Worst pairs in the table; from how many pairs on the headline need not say how few they are.
WORST, _FEW_ALIKE = 50, 30
# Pairs that the page lets the reader look at, by kind: each brings a picture, so there are few. All pairs of the table
# of worst pairs are among them.
_PAIR_NUMBERS = ("cosine", "d_sigma_bounded", "d_sigma_floor", "hidden", "socm")
_NUMBER = "hidden share among confusable pairs"
EXPLORED = {"worst": WORST, "nearest": WORST, "random": 40}


def answer(subject: Subject) -> Answer:
    """How much of the difference of confusable texts averages hide, and a trial of whether using it wins anything."""
    few = len(subject.distinct) < 3
    if few or subject.clouds.lengths.max() == 1:
        why = "there are fewer than three different texts" if few else "every text is a single token"
        return Answer.unchecked("averaging", f"{why}, so that no average is taken or compared")
    every, near, alike, trial = subject.pairs, subject.neighbours, subject.confusable, cloud_trial(subject)
    verdict = judge(
        alike,
        subject.thresholds,
        trial,
        asked=subject.mistakes is not None,
        documents=subject.groups is not None,
        averaged=subject.pooling == "mean",
    )
    tables = {"pairs": every.to_table(), "neighbours": near.to_table(), "worst_pairs": _worst_table(subject, alike)}
    draw = {"averaging": lambda: pairs_figure({every.kind: every, "neighbours": near})}
    if (curves := layer_curves(subject)) is not None:
        tables["layers"] = curves.to_table()
        draw["layers"] = lambda: layers_figure(curves)
    return Answer(
        "averaging",
        replace(verdict, evidence=_evidence(subject, every, near, alike, trial)),
        {**_numbers(subject, every, near, alike), **trial.numbers("cloud_reranking")},
        Action(
            "repair",
            "put the first hits in order by their clouds, which won on trial",
            subject.command("tune"),
            "no new model; a re-ranking needs the tokens of the first hits, a second-order pooling longer vectors",
        ),
        number_name=by_queries(_NUMBER, subject.mistakes is not None),
        tables=tables,
        draw=draw,
        explorer=lambda: explorer(subject, alike),
    )


def explorer(subject: Subject, alike: Confusion | None = None) -> PairExplorer:
    """The pairs that the page lets the reader look at: the worst of those that a search may confuse among them."""
    result = subject.pairs
    if alike is not None:
        result = subject.pairs_of(alike.pairs[alike.ranked(WORST)], "worst confusable pairs")
    return pair_explorer(
        subject.clouds,
        result,
        neighbours=subject.neighbours,
        vocabulary=subject.vocabulary,
        seed=subject.seed,
        section="averaging",
        **EXPLORED,
    )


def _numbers(subject: Subject, every: SocmResult, near: SocmResult, alike: Confusion | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "socm": Estimate(every.mean, every.interval),
        "socm_trace": _on_the_trace_scale(subject, every),
        "socm_trace_neighbours": _on_the_trace_scale(subject, near),
        "socm_regression": None if every.regression is None else every.regression.mean,
        "socm_neighbours": Estimate(near.mean, near.interval),
        "socm_floor": token_sampling_floor(subject),
        "d_mu": every.mean_distance,
        "d_sigma": every.covariance_distance,
        "concentration_ratio": float(subject.moments.traces[subject.distinct].mean()),
        "trace_broken": every.trace_check.share,
        "hidden_share": None,
    }
    if alike is not None and alike.enough:
        numbers |= {
            "hidden_share": alike.share,
            "collapse_rate": alike.collapse_rate(),
            "d_sigma_bounded": float(alike.bounded.mean()),
            "d_sigma_bounded_floor": float(alike.floors.mean()),
        }
    numbers["confusable_pairs"] = 0 if alike is None else len(alike)
    if (wrong := subject.mistakes) is not None:
        numbers |= {"mistakes": wrong.count, "mistakes_mended": float(wrong.mended.mean()) if len(wrong) else None}
    return numbers


def judge(
    alike: Confusion | None,
    limits: Thresholds,
    trial: Trial,
    *,
    asked: bool = False,
    documents: bool = False,
    averaged: bool = True,
) -> Verdict:
    """The trial decides: what averages hide counts where using it finds more; the hidden share says how much it is.

    `asked`: the pairs are the relevant and the wrong text of queries. `documents`: those of one document are left out.
    `averaged`: the model pools by the mean of its tokens; otherwise averages would miss, if they were used.
    """
    judged = decided_by(trial, limits["socm_gain"])
    of = "a relevant text and a wrong one that your queries rank before it"
    of = of if asked else "two texts that a search is most likely to confuse"
    estimate = alike.share if alike is not None and alike.enough else Estimate(None)
    if alike is None:
        which = (" of another document" if asked else " of different documents") if documents else ""
        head = f"No two texts{which} are near enough to be confused by their vectors"
        head = f"Your queries rank no wrong text{which} before a relevant one" if asked else head
    elif estimate.value is None:
        pairs = "one pair" if len(alike) == 1 else f"{len(alike)} pairs"
        head = f"There {'is' if len(alike) == 1 else 'are'} {pairs} of {of}, too few to say what averages hide of such"
    else:
        few = f" ({len(alike)} pairs)" if len(alike) < _FEW_ALIKE else ""
        miss = "Averages miss" if averaged else "Averages of the tokens, which this model does not use, would miss"
        head = f"{miss} up to {estimate.value:.0%} of the difference between {of}{few}"
    wins = "and using it wins nothing here: " if judged.level == "ok" and estimate.value is not None else ""
    sentence = f"{head}; {wins}{trial.sentence} {trial.reach(limits['socm_gain'])}".rstrip()
    return Verdict(judged.level, sentence, estimate.value, estimate.interval, estimate.floor, basis=judged.basis)


def _on_the_trace_scale(subject: Subject, result: SocmResult) -> float | None:
    """Mean SOCM with d_Σ relative to the traces, in [0, 1] for any model; None where the pairs were not kept."""
    if result.pairs is None:
        return None
    pairs, traces = result.pairs, subject.moments.traces
    return float(trace_scores(pairs.mean_distance, pairs.covariance_distance, traces[pairs.i] + traces[pairs.j]).mean())


def layer_curves(subject: Subject) -> LayersResult | None:
    """Where in the model clouds concentrate, on a few texts; None where there is no transformer to look into."""
    if subject.texts is None or not has_attention(subject.encoder):
        return None
    drawn = np.sort(subject.shuffled[:_LAYER_TEXTS])
    ids, texts = [subject.ids[k] for k in drawn], [subject.texts[k] for k in drawn]
    try:
        return layers(subject.encoder, texts, ids=ids, socm_texts=0)
    except ModelError:  # an architecture that capture does not know
        return None


def token_sampling_floor(subject: Subject) -> float | None:
    """SOCM of one text against itself with its tokens drawn anew; None where no text has two tokens."""
    order = subject.shuffled
    enough = order[subject.clouds.lengths[order] > 1][:_FLOOR_TEXTS]
    return float(sampling_floors(subject.clouds, enough, seed=subject.seed).socm.mean()) if len(enough) else None


def _evidence(
    subject: Subject, every: SocmResult, near: SocmResult, alike: Confusion | None, trial: Trial
) -> tuple[str, ...]:
    interval = "" if every.interval is None else f" {every.interval}"
    documents = "" if subject.groups is None else " of different documents"
    notes = list(trial.evidence)
    if subject.mistakes is not None:
        notes.append(
            _mistake_note(
                subject.mistakes,
                documents=subject.groups is not None,
                tried=trial.after is not None,
                means=not subject.text_pooling.is_mean,
            )
        )
    if alike is not None:
        notes.append(_confused_note(alike, documents, asked=subject.mistakes is not None))
    notes += [
        f"On the published scale: SOCM {near.mean:.3f} over {near.count:,} pairs of neighbours, {every.mean:.3f}"
        f"{interval} over {every.count:,} pairs ({every.kind}); it goes by how concentrated a model is.",
    ]
    notes += _few_texts(subject, every)
    if every.trace_check.above:
        notes.append(
            f"{every.trace_check.share:.0%} of the texts break tr Σ ≤ 2, so d_Σ can exceed 1: compare models by "
            f"socm_trace, {_on_the_trace_scale(subject, every):.3f} over these pairs."
        )
    if subject.pooling != "mean":
        notes.append(f"The model pools by {subject.pooling}: this is what averaging would hide if it were used.")
    return (*notes, *subject.repeats())


def _confused_note(alike: Confusion, documents: str, *, asked: bool) -> str:
    """Which pairs look alike, and how much of them averages hide."""
    kind = "of a relevant and a wrong text that a query confuses"
    if not asked:
        unrelated = "unrelated" if documents else "random"
        reached = f"the cut-off of {unrelated} pairs" if alike.placed else "the highest score seen"
        kind = f"with a cosine of {score_text(alike.cut_off)} or more, {reached}"
    drawn = f" ({len(alike):,} of them measured)" if len(alike) < alike.count else ""
    which = f"{'1 pair' if alike.count == 1 else f'{alike.count:,} pairs'}{documents} {kind}{drawn}"
    if not alike.enough:
        return f"{which}: see the table worst_pairs."
    rate = alike.collapse_rate()
    return (
        f"{which}: hidden share {alike.share}, after what one text gives against itself is taken off (an upper bound: "
        f"of few tokens that takes off too little). Averages miss most of the difference of {rate.value:.0%} of them. "
        f"d_Σ on the scale from 0 to 1 is {alike.bounded.mean():.2f}, and {alike.floors.mean():.2f} for one text "
        f"against itself."
    )


def _mistake_note(mistakes: Mistakes, *, documents: bool, tried: bool, means: bool = False) -> str:
    """How many mistakes there are, and how many of them the clouds would put right; `means`: and their means alone."""
    wrong = "a wrong text of another document" if documents else "a wrong text"
    if not len(mistakes):
        return f"No query has {wrong} before its best relevant one."
    whose = "1 query has" if mistakes.queries == 1 else f"{mistakes.queries:,} queries have"
    alone = f" (their means alone {mistakes.by_means.mean():.0%})" if means else ""
    drawn = f"{len(mistakes):,} drawn of " if len(mistakes) < mistakes.count else ""
    return (
        f"{whose} {wrong} among the first ten before the best relevant one. "
        f"Of {drawn}{mistakes.count:,} such pairs the clouds would put {mistakes.mended.mean():.0%} right{alone}"
        f"{'; what they put wrong instead is in the trial' if tried else ''}."
    )


def _few_texts(subject: Subject, every: SocmResult) -> list[str]:
    """Sentences about few texts that hold most of a mean over texts or pairs."""
    sentences, pairs, distinct = [], every.pairs, subject.distinct
    if pairs is not None and (few := pair_carriers(pairs.covariance_distance, pairs.i, pairs.j)) is not None:
        sentences.append(few.sentence(subject.ids, "d_Σ over pairs", f"it is {few.without:.3g} on average"))
    if (few := carriers(subject.moments.traces[distinct])) is not None:
        names = [subject.ids[k] for k in distinct]
        sentences.append(few.sentence(names, "the concentration ratio", f"it is {few.without:.3g} on average"))
    return sentences


def _worst_table(subject: Subject, alike: Confusion | None) -> pa.Table:
    """The confusable pairs whose clouds differ most, with the tokens where they do, and their texts."""
    vocabulary = subject.vocabulary
    worst = [] if alike is None else alike.worst(WORST, names=None if vocabulary is None else vocabulary.names)
    rows = np.zeros(0, np.int64) if alike is None else alike.ranked(WORST)
    columns: dict[str, Any] = {name: [getattr(pair, name) for pair in worst] for name in _PAIR_NUMBERS}
    if alike is not None:
        kept = alike.columns.take(rows)
        columns |= {"d_mu": kept.mean_distance, "d_sigma": kept.covariance_distance}
    table = {name: pa.array(columns.get(name, []), pa.float64()) for name in (*_PAIR_NUMBERS, "d_mu", "d_sigma")}
    if subject.mistakes is not None and subject.query_task is not None:
        pairs = np.array([(pair.i, pair.j) for pair in worst], dtype=np.int64).reshape(-1, 2)
        table |= _mistake_columns(subject.mistakes, subject.query_task.task.queries, pairs)
    for side in ("i", "j"):
        table[f"id_{side}"] = pa.array([getattr(pair, f"id_{side}") for pair in worst], pa.string())
        table[f"text_{side}"] = pa.array([getattr(pair, f"text_{side}") for pair in worst], pa.large_string())
    table["differs"] = pa.array([pair.where for pair in worst], pa.large_string())
    return pa.table(table)


def _mistake_columns(mistakes: Mistakes, queries: Sequence[str], pairs: NDArray[np.int64]) -> dict[str, Any]:
    """Of each pair (relevant, wrong) the query that confuses them most, its cosines, and whether the clouds mend it."""
    worst = np.argsort(mistakes.relevant_cosine - mistakes.wrong_cosine, kind="stable")
    first: dict[tuple[int, ...], int] = {}
    for row in worst.tolist():
        first.setdefault(tuple(mistakes.pairs[row].tolist()), row)
    rows = [first[tuple(pair)] for pair in pairs.tolist()]
    return {
        "query": pa.array([queries[mistakes.query[row]] for row in rows], pa.large_string()),
        "relevant_cosine": pa.array(mistakes.relevant_cosine[rows], pa.float64()),
        "wrong_cosine": pa.array(mistakes.wrong_cosine[rows], pa.float64()),
        "mended": pa.array(mistakes.mended[rows].tolist(), pa.bool_()),
    }


# -- beside other audits ------------------------------------------------------------------------------------------


def _pair_socm(first: Audit, second: Audit, *, on_traces: bool = False) -> tuple[Interval | None, str] | None:
    """SOCM over the same pairs, clustered by text; `on_traces`: on the scale that no model breaks."""
    left, right = first.tables.get("pairs"), second.tables.get("pairs")
    if left is None or right is None or not all(left[name].equals(right[name]) for name in ("i", "j")):
        return None
    i, j = (left[name].to_numpy() for name in ("i", "j"))
    scores = [pairs["socm"].to_numpy() for pairs in (left, right)]
    if on_traces:
        traces = [audit.column("texts", "concentration_ratio") for audit in (first, second)]
        if any(side is None for side in traces):
            return None
        scores = [
            trace_scores(pairs["d_mu"].to_numpy(), pairs["d_sigma"].to_numpy(), side[i] + side[j])
            for pairs, side in zip((left, right), traces, strict=True)
        ]
    interval = dyadic_interval(scores[1] - scores[0], i, j, crossed=False)
    return interval, "paired over the same pairs (clustered by text)"


_pair_on_traces = partial(_pair_socm, on_traces=True)


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
    number_name=_NUMBER,
    metric="socm",
    answer=answer,
    of_vectors=True,
    seconds=4,
    judge=judge,
    thresholds=[
        Threshold(
            "socm_gain",
            0.03,
            "Points of nDCG@10 that using the clouds must win on held-out queries. It takes the tokens of all texts, a "
            "hundred vectors instead of one, so that less is not worth it. 1,000 texts tell it from none: ±0.017.",
        ),
    ],
    numbers=[
        Number("socm", "SOCM over pairs", headline=True, pair=_pair_socm),
        Number("socm_trace", "SOCM on the scale of the traces", headline=True, pair=_pair_on_traces),
        Number("socm_neighbours", "SOCM among neighbours", headline=True),
        Number("hidden_share", "share of the difference that averages hide", headline=True, asked=True),
        Number("collapse_rate", "share of the confusable pairs of which averages miss most", asked=True),
        Number("concentration_ratio", "spread of the tokens over their mean", headline=True, pair=_pair_concentration),
    ],
    tables={
        "worst_pairs": TableView(
            "Pairs that a search is most likely to confuse, and whose tokens differ most",
            WORST,
            {
                "query": "Query that has B before A",
                "cosine": "Cosine",
                **{name: PAIR_WORDS[name] for name in ("d_sigma_bounded", "d_sigma_floor")},
                "hidden": "Hidden share",
                "differs": "Where they differ: tokens, and their part of d_Σ",
                "mended": "Clouds put A first",
                "text_i": "Text A",
                "text_j": "Text B",
            },
            searchable=True,
            below={"text_i": "id_i", "text_j": "id_j"},
            pair=("id_i", "id_j"),
        )
    },
    gauges=[Gauge("cloud_reranking_gain", "nDCG@10 won by comparing the clouds", repair="socm_gain")],
)
