"""Answer from what the model declares: did the runtime pool as the model was trained?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.audit.result import Action, Finding, not_applicable
from poolscope.audit.subject import Subject
from poolscope.encoders.reports import PoolingReport
from poolscope.errors import InputError
from poolscope.intervals import Interval, bootstrap_interval
from poolscope.moments import mean
from poolscope.ranking import nearest_neighbours, unit_rows
from poolscope.repairs.pooling import pool
from poolscope.verdicts import Level, Verdict

Array = NDArray[np.float64]

# Poolings that a runtime may have done instead, and what is between two special tokens alone.
CANDIDATES = ("mean", "cls", "last", "max", "position")
CONTENT = "mean without special tokens"
_NEIGHBOURS = 10
# Texts whose neighbours are compared; more would not move the share.
_MOST_TEXTS = 2000
_UNIT = 1e-3


@dataclass(frozen=True)
class Match:
    """How near one pooling of the clouds comes: the mean over texts, its interval, and what wrong texts would give."""

    pooling: str
    value: float
    interval: Interval | None
    floor: float


def answer_pooling(subject: Subject) -> Finding:
    """3. Did my runtime pool the way this model was trained?"""
    poolings = pooled_ways(subject)
    if subject.runtime is not None:
        return _runtime_finding(subject, poolings)
    notes = subject.pooling_report.notes()
    if subject.clouds.lengths.max() == 1 or len(subject) < 3:
        return not_applicable("texts of a single token, or fewer than three texts, are the same in every pooling")
    matches = [_kept_neighbours(subject, name, table) for name, table in poolings.items() if name != subject.pooling]
    likely = next(m for m in matches if m.pooling == ("cls" if subject.pooling == "mean" else "mean"))
    level: Level = "watch" if _unclear(subject.pooling_report) else "ok"
    declared = "declares" if subject.card.pooling else "declares no pooling; taken as"
    sentence = (
        f"The model {declared} {subject.pooling} pooling; a runtime that pools by {likely.pooling} instead would keep "
        f"{likely.value:.0%} of the ten nearest neighbours. Hand in its vectors (--vectors) to see what it does."
    )
    verdict = Verdict(level, sentence, likely.value, likely.interval, likely.floor, notes)
    numbers = {"pooling": subject.pooling, "wrong_pooling_keeps": likely.value}
    action = Action(
        "configure",
        "check prompt and pooling of your runtime against what the model declares",
        subject.command("audit", "--vectors FILE"),
        "a setting of the runtime; vectors made with a wrong one must be made again",
    )
    title = f"Neighbours that survive another pooling than {subject.pooling}"
    return Finding(
        verdict,
        numbers,
        {"poolings": _table(matches)},
        lambda: _draw(matches, title),
        action,
        number_name=f"neighbours left if pooled by {likely.pooling}",
    )


def _unclear(report: PoolingReport) -> bool:
    """Does the declaration leave something open that changes the vectors?"""
    further = any(module != "Normalize" for module in report.after)
    return not report.declared or len(report.declared) > 1 or further or (bool(report.prompts) and not report.prompt)


def pooled_ways(subject: Subject) -> dict[str, Array]:
    """The texts pooled in each way that a runtime may have done (texts × d)."""
    ways = {name: pool(subject.clouds, name) for name in CANDIDATES}
    content = _without_special(subject)
    return ways if content is None else {**ways, CONTENT: content}


def _without_special(subject: Subject) -> Array | None:
    """Means of the tokens that stand for text; None where special tokens are not known, or are all there is."""
    vocabulary = subject.vocabulary
    if vocabulary is None or not vocabulary.special_ids:
        return None
    special, rows = list(vocabulary.special_ids), []
    for k, cloud in enumerate(subject.clouds):
        ids = subject.clouds.token_ids(k)
        keep = None if ids is None else ~np.isin(ids, special)
        if keep is None or not keep.any():
            return None
        rows.append(mean(cloud[keep]))
    return np.array(rows)


def _kept_neighbours(subject: Subject, name: str, table: Array) -> Match:
    """Share of the ten nearest neighbours that stay under another pooling; by chance k/(N − 1) of them would."""
    some = np.sort(np.random.default_rng(subject.seed).permutation(len(table))[:_MOST_TEXTS])
    k = min(_NEIGHBOURS, len(some) - 1)
    right, other = (nearest_neighbours(vectors[some], k)[0] for vectors in (subject.vectors, table))
    shared = (right[:, :, None] == other[:, None, :]).any(axis=2).mean(axis=1)
    return Match(name, float(shared.mean()), bootstrap_interval(shared, seed=subject.seed), k / (len(some) - 1))


# -- with the runtime's own vectors -------------------------------------------------------------------------------


def _runtime_finding(subject: Subject, poolings: Mapping[str, Array]) -> Finding:
    given = _checked_runtime(subject)
    matches = [_match(given, table, name, subject.seed) for name, table in poolings.items()]
    best = max(matches, key=lambda match: match.value)
    own = next(match for match in matches if match.pooling == subject.pooling)
    level, sentence = _judged(subject, given, best, own)
    verdict = Verdict(level, sentence, own.value, own.interval, own.floor, _runtime_evidence(subject, given, matches))
    lengths = np.linalg.norm(given, axis=1)
    numbers = {
        "pooling": subject.pooling,
        "runtime_pooling": best.pooling if best.value >= subject.thresholds["pooling_match"] else None,
        "runtime_cosine": own.value,
        "runtime_best_cosine": best.value,
        "runtime_normalised": bool(np.abs(lengths - 1).max() < _UNIT),
    }
    action = Action(
        "configure",
        f"set the pooling of your runtime to {subject.pooling}, then encode again",
        subject.command("audit", "--vectors FILE"),
        f"encode {len(subject):,} texts again with the right setting; no new model",
    )
    title = "Cosine of your runtime's vectors with each pooling of the tokens"
    return Finding(verdict, numbers, {"poolings": _table(matches)}, lambda: _draw(matches, title), action)


def _checked_runtime(subject: Subject) -> Array:
    given = np.asarray(subject.runtime, dtype=np.float64)
    if len(given) != len(subject) or given.shape[1] > subject.clouds.dimension:
        raise InputError(
            f"vectors: received {given.shape[0]} vectors of dimension {given.shape[1]}; needed: one for each of the "
            f"{len(subject)} texts, in their order, of dimension {subject.clouds.dimension} or less. A larger one is "
            f"that of another model, or of several poolings joined."
        )
    unit_rows(given, "vectors")  # names a row without direction
    return given


def _match(given: Array, table: Array, name: str, seed: int) -> Match:
    """Mean cosine row by row (of the first dimensions, where the runtime keeps fewer), and with the next text's row."""
    theirs, ours = unit_rows(given, "vectors"), unit_rows(table[:, : given.shape[1]], name)
    cosines = np.einsum("ij,ij->i", theirs, ours).astype(np.float64)
    wrong = np.einsum("ij,ij->i", theirs, np.roll(ours, 1, axis=0)).astype(np.float64)
    return Match(name, float(cosines.mean()), bootstrap_interval(cosines, seed=seed), float(wrong.mean()))


def _judged(subject: Subject, given: Array, best: Match, own: Match) -> tuple[Level, str]:
    least = subject.thresholds["pooling_match"]
    kept = "" if given.shape[1] == subject.clouds.dimension else f" (its first {given.shape[1]} dimensions)"
    if own.value >= least:
        scale = _scale_note(subject, given)
        level: Level = "watch" if scale else "ok"
        return (
            level,
            f"Your runtime pools as the model declares, by {own.pooling}{kept}: cosine {own.value:.4f}.{scale}",
        )
    if best.value >= least:
        return "repair", (
            f"Your runtime pooled by {best.pooling}{kept} (cosine {best.value:.4f}); the model was trained with "
            f"{own.pooling} pooling, and with that its vectors agree to {own.value:.2f} only."
        )
    why = _why_nothing_fits(subject, given, best)
    return (
        "repair",
        f"Your runtime's vectors are no pooling of this model's tokens (nearest: {best.pooling}, {best.value:.2f}). "
        f"{why}",
    )


def _scale_note(subject: Subject, given: Array) -> str:
    """A model that declares Normalize, and vectors of other lengths: dot products then rank by length."""
    if "Normalize" not in subject.card.after or np.abs(np.linalg.norm(given, axis=1) - 1).max() < _UNIT:
        return ""
    return " But the model normalises its vectors and your runtime does not: search by cosine, not by dot product."


def _why_nothing_fits(subject: Subject, given: Array, best: Match) -> str:
    """Rows in another order are found again among the texts; otherwise it is another model, prompt or further layer."""
    from poolscope.ranking import rank_documents

    ours = pool(subject.clouds, best.pooling if best.pooling != CONTENT else "mean")[:, : given.shape[1]]
    own = np.stack([np.arange(len(given))] * 2, axis=1)
    scores = rank_documents(given, ours, own, k=1).scores[:, 0]
    if scores.mean() >= subject.thresholds["pooling_match"]:
        return "They are this model's vectors in another order: sort them as the texts are."
    further = [module for module in subject.card.after if module != "Normalize"]
    layers = f", the layers after pooling ({', '.join(further)})" if further else ""
    return f"Check the model and its revision, the prompt{layers}, and the order of the texts."


def _runtime_evidence(subject: Subject, given: Array, matches: list[Match]) -> tuple[str, ...]:
    ranked = sorted(matches, key=lambda match: -match.value)
    lengths = np.linalg.norm(given, axis=1)
    normalised = np.abs(lengths - 1).max() < _UNIT
    scale = (
        "They have length 1." if normalised else f"Their lengths run from {lengths.min():.3g} to {lengths.max():.3g}."
    )
    cosines = ", ".join(f"{match.pooling} {match.value:.4f}" for match in ranked)
    return (
        f"Cosines: {cosines}; with the vector of another text {ranked[0].floor:.3f}.",
        scale,
        *subject.pooling_report.notes(),
    )


def _table(matches: list[Match]) -> pa.Table:
    return pa.table(
        {
            "pooling": [match.pooling for match in matches],
            "value": [match.value for match in matches],
            "low": [None if match.interval is None else match.interval.low for match in matches],
            "high": [None if match.interval is None else match.interval.high for match in matches],
            "floor": [match.floor for match in matches],
        }
    )


def _draw(matches: list[Match], title: str) -> Any:
    from poolscope.charts.audit import bars_figure

    intervals = [match.interval for match in matches]
    return bars_figure(
        [m.pooling for m in matches], [m.value for m in matches], intervals, floor=matches[0].floor, title=title
    )
