"""Did my runtime pool the way this model was trained?

With the vectors of a runtime at hand the answer names what it did: as the model declares, another pooling, another
order, some texts, or no match. Each cause has its own step: a shuffled table needs sorting, not another pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.charts import bars_figure
from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, unchecked
from poolscope.auditing.subject import Subject
from poolscope.encoders.base import EncoderOptions, resolve_prompt
from poolscope.encoders.reports import PoolingReport
from poolscope.errors import InputError
from poolscope.numbers.intervals import Estimate, bootstrap_interval
from poolscope.numbers.moments import mean
from poolscope.numbers.pooling import pool
from poolscope.numbers.ranking import nearest_neighbours, unit_rows
from poolscope.verdicts import Verdict

Array = NDArray[np.float64]

# Poolings that a runtime may have done instead, and what is between two special tokens alone.
CANDIDATES = ("mean", "cls", "last", "max", "position")
CONTENT = "mean without special tokens"
_NEIGHBOURS = 10
# Texts whose neighbours are compared, and rows that are searched among all others to recognise another order.
_MOST_TEXTS = 2000
_UNIT = 1e-3
# Rows in another order find as many different texts as the texts find themselves; a little is left to rounding.
_ONE_TO_ONE = 0.9
_NAMED = 3


def answer(subject: Subject) -> Answer:
    """What the runtime's vectors tell; without them what a wrong pooling would cost."""
    if subject.runtime is not None:
        return _of_runtime(subject)
    if subject.clouds.lengths.max() == 1 or len(subject) < 3:
        return unchecked("pooling", "texts of a single token, or fewer than three texts, are the same in every pooling")
    ways = {name: table for name, table in pooled_ways(subject).items() if name != subject.pooling}
    kept = {name: _kept_neighbours(subject, table) for name, table in ways.items()}
    likely = "cls" if subject.pooling == "mean" else "mean"
    return Answer(
        "pooling",
        _of_declaration(subject, likely, kept[likely]),
        {"pooling": subject.pooling, "wrong_pooling_keeps": kept[likely].value},
        Action(
            "configure",
            "check prompt and pooling of your runtime against what the model declares",
            _with_prompt(subject),
            "a setting of the runtime; vectors made with a wrong one must be made again",
        ),
        number_name=f"neighbours left if pooled by {likely}",
        tables={"poolings": _table(kept)},
        draw={"pooling": lambda: _figure(kept, f"Neighbours that survive another pooling than {subject.pooling}")},
    )


def _of_declaration(subject: Subject, likely: str, kept: Estimate) -> Verdict:
    """`watch` where the declaration leaves something open that changes the vectors; otherwise nothing was checked."""
    declared = "declares" if subject.card.pooling else "declares no pooling; taken as"
    sentence = (
        f"The model {declared} {subject.pooling} pooling; a runtime that pools by {likely} instead would keep "
        f"{kept.value:.0%} of the ten nearest neighbours. What yours does was not checked: hand in its vectors "
        f"(--vectors)."
    )
    judged = Verdict("watch", basis="declared") if _unclear(subject.pooling_report) else Verdict("unchecked")
    notes = subject.pooling_report.notes()
    return Verdict(judged.level, sentence, kept.value, kept.interval, kept.floor, notes, judged.basis)


def _unclear(report: PoolingReport) -> bool:
    further = any(module != "Normalize" for module in report.after)
    return not report.declared or len(report.declared) > 1 or further or (bool(report.prompts) and not report.prompt)


def _with_prompt(subject: Subject) -> str | None:
    """The audit with the prompt that the model declares for documents; None if it has none, or one was chosen."""
    chosen = {"prompt", "prompt_name", "role"} & set(subject.named.options) or subject.pooling_report.prompt
    if chosen or not resolve_prompt(subject.card, EncoderOptions(role="document")):
        return None
    return subject.command("audit", role="document")


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


def _kept_neighbours(subject: Subject, table: Array) -> Estimate:
    """Share of the ten nearest neighbours that stay under another pooling; by chance k/(N − 1) of them would."""
    drawn = np.sort(np.random.default_rng(subject.seed).permutation(len(table))[:_MOST_TEXTS])
    k = min(_NEIGHBOURS, len(drawn) - 1)
    right, other = (nearest_neighbours(vectors[drawn], k)[0] for vectors in (subject.vectors, table))
    shared = (right[:, :, None] == other[:, None, :]).any(axis=2).mean(axis=1)
    return Estimate(float(shared.mean()), bootstrap_interval(shared, seed=subject.seed), k / (len(drawn) - 1))


def _table(matches: Mapping[str, Estimate]) -> pa.Table:
    intervals = [match.interval for match in matches.values()]
    return pa.table(
        {
            "pooling": list(matches),
            "value": [match.value for match in matches.values()],
            "low": [None if interval is None else interval.low for interval in intervals],
            "high": [None if interval is None else interval.high for interval in intervals],
            "floor": [match.floor for match in matches.values()],
        }
    )


def _figure(matches: Mapping[str, Estimate], title: str) -> Any:
    parts = list(matches.values())
    values, intervals = [match.value for match in parts], [match.interval for match in parts]
    return bars_figure(list(matches), values, intervals, floor=parts[0].floor, title=title)


# -- a runtime's vectors ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuntimeMatch:
    """A runtime's vectors beside every pooling of the clouds: mean cosines, and as floor those of another text.

    `own` is the declared pooling, `best` the nearest; `differ` are the texts whose vectors are not the model's own.
    """

    vectors: Array
    matches: Mapping[str, Estimate]
    own: str
    best: str
    differ: NDArray[np.int64]

    @property
    def lengths(self) -> Array:
        """The lengths of the vectors."""
        return np.asarray(np.linalg.norm(self.vectors, axis=1))

    @property
    def normalised(self) -> bool:
        """Are all of length 1?"""
        return bool(np.abs(self.lengths - 1).max() < _UNIT)

    def cosine(self, pooling: str) -> float:
        """The mean cosine with one pooling."""
        return float(self.matches[pooling].value or 0.0)


def _of_runtime(subject: Subject) -> Answer:
    """The answer where the runtime's own vectors are at hand."""
    poolings = pooled_ways(subject)
    match = match_runtime(subject, poolings)
    verdict, step, cost = judge_runtime(subject, match, poolings)
    fits = match.cosine(match.best) >= subject.thresholds["pooling_match"]
    return Answer(
        "pooling",
        verdict,
        {
            "pooling": subject.pooling,
            "runtime_pooling": match.best if fits else None,
            "runtime_cosine": match.cosine(match.own),
            "runtime_best_cosine": match.cosine(match.best),
            "runtime_normalised": match.normalised,
        },
        Action("configure", step, subject.command("audit") if "vectors" in subject.named.settings else None, cost),
        tables={"poolings": _table(match.matches)},
        draw={
            "pooling": lambda: _figure(
                match.matches, "Cosine of your runtime's vectors with each pooling of the tokens"
            )
        },
    )


def match_runtime(subject: Subject, poolings: Mapping[str, Array]) -> RuntimeMatch:
    """The vectors of the subject's runtime beside each pooling (texts × d)."""
    vectors = _checked(subject)
    cosines = {name: _row_cosines(vectors, table, name) for name, table in poolings.items()}
    matches = {
        name: Estimate(float(own.mean()), bootstrap_interval(own, seed=subject.seed), float(other.mean()))
        for name, (own, other) in cosines.items()
    }
    best = max(matches, key=lambda name: float(cosines[name][0].mean()))
    differ = np.flatnonzero(cosines[subject.pooling][0] < subject.thresholds["pooling_match"])
    return RuntimeMatch(vectors, matches, subject.pooling, best, differ)


def _checked(subject: Subject) -> Array:
    vectors = np.asarray(subject.runtime, dtype=np.float64)
    if len(vectors) != len(subject) or vectors.shape[1] > subject.clouds.dimension:
        raise InputError(
            f"vectors: received {vectors.shape[0]} vectors of dimension {vectors.shape[1]}; needed: one for each of "
            f"the {len(subject)} texts, in their order, of dimension {subject.clouds.dimension} or less. A larger one "
            f"is that of another model, or of several poolings joined."
        )
    unit_rows(vectors, "vectors")  # names a row without direction
    return vectors


def _row_cosines(vectors: Array, table: Array, name: str) -> tuple[Array, Array]:
    """Cosines row by row (of the first dimensions, where the runtime keeps fewer), and with the next text's row."""
    theirs, ours = unit_rows(vectors, "vectors"), unit_rows(table[:, : vectors.shape[1]], name)
    own, other = (np.einsum("ij,ij->i", theirs, rows) for rows in (ours, np.roll(ours, 1, axis=0)))
    return own.astype(np.float64), other.astype(np.float64)


# -- why the vectors are as they are ------------------------------------------------------------------------------

# How serious and in words, what to do about it, and what that costs.
Cause = tuple[Verdict, str, str]


def judge_runtime(subject: Subject, match: RuntimeMatch, poolings: Mapping[str, Array]) -> Cause:
    """The verdict on a runtime, what to do, and what that costs."""
    least = subject.thresholds["pooling_match"]
    if match.cosine(match.own) >= least:
        cause = _as_declared(subject, match)
    elif match.cosine(match.best) >= least:
        cause = _other_pooling(subject, match)
    elif (order := _other_order(subject, match.vectors, poolings)) is not None:
        cause = _shuffled(subject, order)
    elif len(match.differ) < len(subject) / 2:
        cause = _some_texts(subject, match)
    else:
        cause = _no_match(subject, match)
    judged, step, cost = cause
    own = match.matches[match.own]
    evidence = (*_cosines(match), *_rows(subject, match.differ), *subject.pooling_report.notes())
    verdict = Verdict(judged.level, judged.sentence, own.value, own.interval, own.floor, evidence, judged.basis)
    return verdict, step, cost


def _below(subject: Subject, match: RuntimeMatch, sentence: str) -> Verdict:
    """`repair` where all of the interval of the mean cosine is below what rounding explains."""
    interval = match.matches[match.own].interval
    if interval is None:
        return Verdict("repair", sentence, basis="no interval")
    if interval.high < subject.thresholds["pooling_match"]:
        return Verdict("repair", sentence, basis="interval")
    return Verdict("watch", sentence, basis="estimate")


def _kept(subject: Subject, vectors: Array) -> str:
    return "" if vectors.shape[1] == subject.clouds.dimension else f" (its first {vectors.shape[1]} dimensions)"


def _again(subject: Subject) -> str:
    return f"encode {len(subject):,} texts again with the right setting; no new model"


def _as_declared(subject: Subject, match: RuntimeMatch) -> Cause:
    """The declared pooling; a model that declares Normalize and vectors of other lengths rank by length."""
    kept = _kept(subject, match.vectors)
    pooled = f"Your runtime pools as the model declares, by {match.own}{kept}: cosine {match.cosine(match.own):.4f}."
    verdict = Verdict("ok", pooled)
    if "Normalize" in subject.card.after and not match.normalised:
        note = "But the model normalises its vectors and your runtime does not: search by cosine, not by dot product."
        verdict = Verdict("watch", f"{pooled} {note}", basis="counted")
    return (
        verdict,
        "search by cosine, or bring your runtime's vectors to length 1",
        "no re-encoding: one division a vector",
    )


def _other_pooling(subject: Subject, match: RuntimeMatch) -> Cause:
    sentence = (
        f"Your runtime pooled by {match.best}{_kept(subject, match.vectors)} (cosine {match.cosine(match.best):.4f}); "
        f"the model was trained with {match.own} pooling, and with that its vectors agree to "
        f"{match.cosine(match.own):.2f} only."
    )
    step = f"set the pooling of your runtime to {match.own}, then encode again"
    return _below(subject, match, sentence), step, _again(subject)


def _other_order(subject: Subject, vectors: Array, poolings: Mapping[str, Array]) -> str | None:
    """The pooling under which the rows are found again among the texts, one row a text; None if there is none."""
    drawn = np.sort(np.random.default_rng(subject.seed).permutation(len(vectors))[:_MOST_TEXTS])
    fitting: dict[str, float] = {}
    for name, table in poolings.items():
        ours = table[:, : vectors.shape[1]]
        nearest, cosines = nearest_neighbours(vectors[drawn], 1, among=ours)
        itself, _ = nearest_neighbours(ours[drawn], 1, among=ours)
        one_to_one = len(np.unique(nearest)) >= _ONE_TO_ONE * len(np.unique(itself))
        if cosines.mean() >= subject.thresholds["pooling_match"] and one_to_one:
            fitting[name] = float(cosines.mean())
    return max(fitting, key=lambda name: fitting[name], default=None)


def _shuffled(subject: Subject, pooling: str) -> Cause:
    shuffled = f"Your runtime's vectors are this model's, pooled by {pooling}, but in another order than the texts"
    step = "put the vectors of your runtime in the order of the texts"
    if pooling == subject.pooling:
        verdict = Verdict("repair", f"{shuffled}: sort them as the texts are.", basis="counted")
        return verdict, step, "no re-encoding: sort the table, or the ids"
    sentence = f"{shuffled}; and the model was trained with {subject.pooling} pooling."
    step = f"{step}, set its pooling to {subject.pooling}, and encode again"
    return Verdict("repair", sentence, basis="counted"), step, _again(subject)


def _some_texts(subject: Subject, match: RuntimeMatch) -> Cause:
    """Most vectors agree, so pooling and model do too: it is about the others."""
    differ = match.differ
    sentence = (
        f"{len(subject) - len(differ):,} of your runtime's {len(subject):,} vectors are the model's own, pooled by "
        f"{match.own}; {len(differ):,} are not (texts {_listed(subject, differ)}): mean cosine "
        f"{match.cosine(match.own):.2f}."
    )
    step = f"compare the {len(differ):,} texts whose vectors differ: other words, another limit or prompt"
    return _below(subject, match, sentence), step, f"encode {len(differ):,} texts again; no new model"


def _no_match(subject: Subject, match: RuntimeMatch) -> Cause:
    further = [module for module in subject.card.after if module != "Normalize"]
    layers = f", the layers after pooling ({', '.join(further)})" if further else ""
    check = f"check the model and its revision, the prompt{layers} and the order of the texts"
    sentence = (
        f"Your runtime's vectors are no pooling of this model's tokens (nearest: {match.best}, "
        f"{match.cosine(match.best):.2f}). {check[0].upper()}{check[1:]}."
    )
    return _below(subject, match, sentence), f"{check} in your runtime, then encode again", _again(subject)


def _listed(subject: Subject, texts: NDArray[np.int64]) -> str:
    return ", ".join(subject.ids[k] for k in texts[:_NAMED]) + (", …" if len(texts) > _NAMED else "")


def _rows(subject: Subject, differ: NDArray[np.int64]) -> tuple[str, ...]:
    """Which vectors differ, where most agree: a mean may hide them."""
    if not len(differ) or len(differ) >= len(subject) / 2:
        return ()
    least = subject.thresholds["pooling_match"]
    many = f"{len(differ):,} of {len(subject):,} vectors are below a cosine of {least:g} with the model's own"
    return (f"{many}: texts {_listed(subject, differ)}.",)


def _cosines(match: RuntimeMatch) -> tuple[str, ...]:
    lengths = match.lengths
    ranked = sorted(match.matches, key=lambda name: -match.cosine(name))
    cosines = ", ".join(f"{name} {match.cosine(name):.4f}" for name in ranked)
    return (
        f"Cosines: {cosines}; with the vector of another text {match.matches[ranked[0]].floor:.3f}.",
        "They have length 1."
        if match.normalised
        else f"Their lengths run from {lengths.min():.3g} to {lengths.max():.3g}.",
    )


QUESTION = Question(
    "pooling",
    title="Pooling",
    words="Did my runtime pool the way this model was trained?",
    page="audit.md#what-your-runtime-did-question-3",
    number_name="cosine of your runtime's vectors with the model's pooling",
    answer=answer,
    door="poolscope audit MODEL TEXTS --vectors FILE",
    thresholds=[
        Threshold(
            "pooling_match",
            0.99,
            "Cosine of a runtime's vector with ours: rounding to 16 or 8 bits stays above it, another pooling does "
            "not.",
        )
    ],
    numbers=[
        Number("wrong_pooling_keeps", "neighbours left under a wrong pooling", headline=True, compared=False),
    ],
    # Shares of neighbours or, beside a runtime's vectors, cosines: the figure above the table says which.
    tables={"poolings": TableView("Poolings", 20, {"pooling": "Pooling", "value": "Agreement", "floor": "Floor"})},
)
