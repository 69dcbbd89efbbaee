"""What a runtime did, from its vectors: as the model declares, another pooling, another order, some texts, or no match.

Each cause has its own step: a shuffled table needs sorting, not another pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.auditing.basis import OK, Judgement
from poolscope.auditing.subject import Subject
from poolscope.errors import InputError
from poolscope.numbers.intervals import Interval, bootstrap_interval
from poolscope.numbers.ranking import nearest_neighbours, unit_rows

Array = NDArray[np.float64]

_UNIT = 1e-3
# Rows that are searched among all others to recognise another order.
_MOST_ROWS = 2000
# Rows in another order find as many different texts as the texts find themselves; a little is left to rounding.
_ONE_TO_ONE = 0.9
_NAMED = 3


@dataclass(frozen=True)
class Match:
    """How near one pooling of the clouds comes: the mean over texts, its interval, and what wrong texts would give."""

    pooling: str
    value: float
    interval: Interval | None
    floor: float


@dataclass(frozen=True)
class Cause:
    """Why the vectors are as they are: how serious, in words, what to do about it, and what that costs."""

    judged: Judgement
    sentence: str
    step: str
    cost: str


@dataclass(frozen=True)
class RuntimeMatch:
    """A runtime's vectors beside every pooling of the clouds; `own` is the declared one, `fits` the one that agrees."""

    cause: Cause
    matches: tuple[Match, ...]
    own: Match
    best: Match
    fits: str | None
    normalised: bool
    evidence: tuple[str, ...]


def compare_runtime(subject: Subject, poolings: Mapping[str, Array]) -> RuntimeMatch:
    """The vectors of the subject's runtime beside each pooling (texts × d), with the cause of what is found."""
    given = _checked(subject)
    cosines = {name: _row_cosines(given, table, name) for name, table in poolings.items()}
    matches = tuple(
        Match(name, float(own.mean()), bootstrap_interval(own, seed=subject.seed), float(other.mean()))
        for name, (own, other) in cosines.items()
    )
    best = max(matches, key=lambda match: match.value)
    own = next(match for match in matches if match.pooling == subject.pooling)
    lengths = np.linalg.norm(given, axis=1)
    normalised = bool(np.abs(lengths - 1).max() < _UNIT)
    least = subject.thresholds["pooling_match"]
    differ = np.flatnonzero(cosines[own.pooling][0] < least)
    if own.value >= least:
        cause = _as_declared(subject, given, own, normalised)
    elif best.value >= least:
        cause = _other_pooling(subject, given, own, best)
    elif (order := _other_order(subject, given, poolings)) is not None:
        cause = _shuffled(subject, order)
    elif len(differ) < len(subject) / 2:
        cause = _some_texts(subject, own, differ)
    else:
        cause = _no_match(subject, own, best)
    evidence = (*_evidence(matches, lengths, normalised), *_rows(subject, differ), *subject.pooling_report.notes())
    return RuntimeMatch(cause, matches, own, best, best.pooling if best.value >= least else None, normalised, evidence)


def _checked(subject: Subject) -> Array:
    given = np.asarray(subject.runtime, dtype=np.float64)
    if len(given) != len(subject) or given.shape[1] > subject.clouds.dimension:
        raise InputError(
            f"vectors: received {given.shape[0]} vectors of dimension {given.shape[1]}; needed: one for each of the "
            f"{len(subject)} texts, in their order, of dimension {subject.clouds.dimension} or less. A larger one is "
            f"that of another model, or of several poolings joined."
        )
    unit_rows(given, "vectors")  # names a row without direction
    return given


def _row_cosines(given: Array, table: Array, name: str) -> tuple[Array, Array]:
    """Cosines row by row (of the first dimensions, where the runtime keeps fewer), and with the next text's row."""
    theirs, ours = unit_rows(given, "vectors"), unit_rows(table[:, : given.shape[1]], name)
    own, other = (np.einsum("ij,ij->i", theirs, rows) for rows in (ours, np.roll(ours, 1, axis=0)))
    return own.astype(np.float64), other.astype(np.float64)


def _beyond(subject: Subject, own: Match) -> Judgement:
    """`repair` where all of the interval of the mean cosine is below what rounding explains."""
    if own.interval is None:
        return Judgement("repair", "no interval")
    surely = own.interval.high < subject.thresholds["pooling_match"]
    return Judgement("repair", "interval") if surely else Judgement("watch", "estimate")


def _kept(subject: Subject, given: Array) -> str:
    return "" if given.shape[1] == subject.clouds.dimension else f" (its first {given.shape[1]} dimensions)"


def _again(subject: Subject) -> str:
    return f"encode {len(subject):,} texts again with the right setting; no new model"


def _as_declared(subject: Subject, given: Array, own: Match, normalised: bool) -> Cause:
    """The declared pooling; a model that declares Normalize and vectors of other lengths rank by length."""
    scaled = "Normalize" in subject.card.after and not normalised
    pooled = (
        f"Your runtime pools as the model declares, by {own.pooling}{_kept(subject, given)}: cosine {own.value:.4f}."
    )
    note = " But the model normalises its vectors and your runtime does not: search by cosine, not by dot product."
    return Cause(
        Judgement("watch", "counted") if scaled else OK,
        pooled + (note if scaled else ""),
        "search by cosine, or bring your runtime's vectors to length 1",
        "no re-encoding: one division a vector",
    )


def _other_pooling(subject: Subject, given: Array, own: Match, best: Match) -> Cause:
    sentence = (
        f"Your runtime pooled by {best.pooling}{_kept(subject, given)} (cosine {best.value:.4f}); the model was "
        f"trained with {own.pooling} pooling, and with that its vectors agree to {own.value:.2f} only."
    )
    step = f"set the pooling of your runtime to {own.pooling}, then encode again"
    return Cause(_beyond(subject, own), sentence, step, _again(subject))


def _other_order(subject: Subject, given: Array, poolings: Mapping[str, Array]) -> str | None:
    """The pooling under which the rows are found again among the texts, one row a text; None if there is none."""
    some = np.sort(np.random.default_rng(subject.seed).permutation(len(given))[:_MOST_ROWS])
    fitting: dict[str, float] = {}
    for name, table in poolings.items():
        ours = table[:, : given.shape[1]]
        found, cosines = nearest_neighbours(given[some], 1, among=ours)
        itself, _ = nearest_neighbours(ours[some], 1, among=ours)
        one_to_one = len(np.unique(found)) >= _ONE_TO_ONE * len(np.unique(itself))
        if cosines.mean() >= subject.thresholds["pooling_match"] and one_to_one:
            fitting[name] = float(cosines.mean())
    return max(fitting, key=lambda name: fitting[name], default=None)


def _shuffled(subject: Subject, pooling: str) -> Cause:
    found = f"Your runtime's vectors are this model's, pooled by {pooling}, but in another order than the texts"
    step = "put the vectors of your runtime in the order of the texts"
    judged = Judgement("repair", "counted")
    if pooling == subject.pooling:
        return Cause(
            judged, f"{found}: sort them as the texts are.", step, "no re-encoding: sort the table, or the ids"
        )
    return Cause(
        judged,
        f"{found}; and the model was trained with {subject.pooling} pooling.",
        f"{step}, set its pooling to {subject.pooling}, and encode again",
        _again(subject),
    )


def _some_texts(subject: Subject, own: Match, differ: NDArray[np.int64]) -> Cause:
    """Most vectors agree, so pooling and model do too: it is about the others."""
    sentence = (
        f"{len(subject) - len(differ):,} of your runtime's {len(subject):,} vectors are the model's own, pooled by "
        f"{own.pooling}; {len(differ):,} are not (texts {_listed(subject, differ)}): mean cosine {own.value:.2f}."
    )
    step = f"compare the {len(differ):,} texts whose vectors differ: other words, another limit or prompt"
    return Cause(_beyond(subject, own), sentence, step, f"encode {len(differ):,} texts again; no new model")


def _no_match(subject: Subject, own: Match, best: Match) -> Cause:
    further = [module for module in subject.card.after if module != "Normalize"]
    layers = f", the layers after pooling ({', '.join(further)})" if further else ""
    check = f"check the model and its revision, the prompt{layers} and the order of the texts"
    sentence = (
        f"Your runtime's vectors are no pooling of this model's tokens (nearest: {best.pooling}, {best.value:.2f}). "
        f"{check[0].upper()}{check[1:]}."
    )
    return Cause(_beyond(subject, own), sentence, f"{check} in your runtime, then encode again", _again(subject))


def _listed(subject: Subject, texts: NDArray[np.int64]) -> str:
    return ", ".join(subject.ids[k] for k in texts[:_NAMED]) + (", …" if len(texts) > _NAMED else "")


def _rows(subject: Subject, differ: NDArray[np.int64]) -> tuple[str, ...]:
    """Which vectors differ, where most agree: a mean may hide them."""
    if not len(differ) or len(differ) >= len(subject) / 2:
        return ()
    least = subject.thresholds["pooling_match"]
    many = f"{len(differ):,} of {len(subject):,} vectors are below a cosine of {least:g} with the model's own"
    return (f"{many}: texts {_listed(subject, differ)}.",)


def _evidence(matches: tuple[Match, ...], lengths: Array, normalised: bool) -> tuple[str, ...]:
    ranked = sorted(matches, key=lambda match: -match.value)
    scale = (
        "They have length 1." if normalised else f"Their lengths run from {lengths.min():.3g} to {lengths.max():.3g}."
    )
    cosines = ", ".join(f"{match.pooling} {match.value:.4f}" for match in ranked)
    return (
        f"Cosines: {cosines}; with the vector of another text {ranked[0].floor:.3f}.",
        scale,
    )
