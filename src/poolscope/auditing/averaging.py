"""Answer from the token clouds: does averaging hide something that matters here?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.basis import OK
from poolscope.auditing.result import Action, Finding, not_applicable
from poolscope.auditing.subject import Subject
from poolscope.auditing.trials import Trial, cloud_trial, judged_by
from poolscope.clouds import TokenClouds
from poolscope.errors import ModelError
from poolscope.metrics.layers.measure import layers
from poolscope.metrics.layers.result import LayersResult
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.result import SocmResult
from poolscope.metrics.socm.score import trace_scores
from poolscope.repairs.encoding import can_be_scaled
from poolscope.verdicts import Verdict

# Texts behind the floor, and behind the curves by layer, which take a pass through the model of their own.
_FLOOR_TEXTS, _LAYER_TEXTS = 80, 10
WORST = 50


def answer_averaging(subject: Subject) -> Finding:
    """8. Does averaging hide something that matters here? Show me the pairs."""
    few = len(subject.distinct) < 3
    if few or subject.clouds.lengths.max() == 1:
        why = "there are fewer than three different texts" if few else "every text is a single token"
        return not_applicable(f"{why}, so that no average is taken or compared")
    every, near, floor = subject.pairs, subject.neighbours, token_sampling_floor(subject)
    passed = near.mean >= subject.thresholds["socm_watch"]
    trial = cloud_trial(subject) if passed and _beyond(near, floor) else None
    judged = OK if trial is None else judged_by([trial], subject.thresholds["socm_gain"])
    verdict = Verdict(
        judged.level,
        _sentence(near, floor, passed, trial),
        near.mean,
        near.interval,
        floor,
        _evidence(subject, every, near, trial),
    )
    numbers = {
        "socm": every.mean,
        "socm_interval": every.interval,
        "socm_trace": _on_the_trace_scale(subject, every),
        "socm_trace_neighbours": _on_the_trace_scale(subject, near),
        "socm_regression": None if every.regression is None else every.regression.mean,
        "socm_neighbours": near.mean,
        "socm_neighbours_interval": near.interval,
        "socm_floor": floor,
        "d_mu": every.mean_d_mu,
        "d_sigma": every.mean_d_sigma,
        "concentration_ratio": float(subject.moments.traces[subject.distinct].mean()),
        "trace_broken": every.trace_check.share,
        **({} if trial is None else trial.numbers("cloud_reranking")),
    }
    tables = {"pairs": every.to_table(), "neighbours": near.to_table(), "worst_pairs": _worst_table(every, near)}
    action = Action(
        "repair",
        "try another pooling or a re-ranking by the clouds, and look at the worst pairs first",
        subject.command("tune"),
        "no new model; a second-order pooling makes vectors longer, a re-ranking needs the tokens of the first hits",
    )
    curves = layer_curves(subject)
    more = {}
    if curves is not None:
        tables["layers"] = curves.to_table()
        more["layers"] = lambda: _draw_layers(curves)
    return Finding(verdict, numbers, tables, lambda: _draw(every, near), action, more, basis=judged.basis)


def _beyond(near: SocmResult, floor: float | None) -> bool:
    """Do neighbours differ by more than one text from itself with other tokens, with the whole interval?"""
    surely = near.mean if near.interval is None else near.interval.low
    return floor is None or surely > floor


def _on_the_trace_scale(subject: Subject, result: SocmResult) -> float | None:
    """Mean SOCM with d_Σ relative to the traces, in [0, 1] for any model; None where the pairs were not kept."""
    if result.pairs is None:
        return None
    pairs, traces = result.pairs, subject.moments.traces
    return float(trace_scores(pairs.d_mu, pairs.d_sigma, traces[pairs.i] + traces[pairs.j]).mean())


def layer_curves(subject: Subject) -> LayersResult | None:
    """Where in the model clouds concentrate, on a few texts; None where there is no transformer to look into."""
    if subject.texts is None or not can_be_scaled(subject.encoder):
        return None
    some = np.sort(np.random.default_rng(subject.seed).permutation(subject.distinct)[:_LAYER_TEXTS])
    ids, texts = [subject.ids[k] for k in some], [subject.texts[k] for k in some]
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


def _sentence(near: SocmResult, floor: float | None, passed: bool, trial: Trial | None) -> str:
    number = f"SOCM {near.mean:.2f} between texts and their nearest neighbours"
    if trial is not None:
        return f"Averaging hides how the tokens of neighbours differ ({number}); {trial.sentence}"
    if passed:
        return f"Neighbours differ no more than one text from itself with other tokens ({number}, {floor:.2f} so)."
    above = "" if floor is None else f", {floor:.2f} for one text against itself with other tokens"
    return f"Averaging hides little that tells neighbours apart ({number}{above})."


def _evidence(subject: Subject, every: SocmResult, near: SocmResult, trial: Trial | None) -> tuple[str, ...]:
    interval = "" if every.interval is None else f" {every.interval}"
    notes = [
        f"{near.count:,} pairs of neighbours; over {every.count:,} pairs ({every.kind}) {every.mean:.3f}{interval}.",
        "Published, on hard negatives: 0.02 to 0.13 for encoders trained for retrieval, 0.48 for the BERT backbone.",
        f"Among neighbours means differ by d_μ {near.mean_d_mu:.3f} and covariances by d_Σ {near.mean_d_sigma:.3f}.",
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
    columns = {name: [getattr(pair, name) for _, pair in rows] for name in names}
    return pa.table({"among": [among for among, _ in rows], **columns})


def _draw_layers(curves: LayersResult) -> Any:
    from poolscope.metrics.layers.figure import layers_figure

    return layers_figure(curves)


def _draw(every: SocmResult, near: SocmResult) -> Any:
    from poolscope.auditing.charts import pairs_figure

    return pairs_figure(every, near)
