"""Are the stored vectors those that the model gives today, and since when not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, Thresholds
from poolscope.auditing.subject import Subject, has_vectors_only
from poolscope.charts import COLOURS, GREY, dots, panel
from poolscope.encoders.base import TokenEncoder
from poolscope.errors import InputError
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.items import ChangePoint, change_point
from poolscope.runtimes import RuntimeMatch, match_runtime
from poolscope.verdicts import Verdict

# Texts that are encoded again, evenly over the rows in their order.
SAMPLE = 200
# A change must part the rows more clearly than all but so many shuffles.
_CHANCE = 0.01


@dataclass(frozen=True)
class Drift:
    """Stored vectors beside those of the reference: all of the sample, and both sides of a change where there is one.

    `rows` are the places of the sample in the source, in their order, and `ids` their names.
    """

    reference: str
    rows: NDArray[np.int64]
    ids: tuple[str, ...]
    cosines: NDArray[np.float64]
    whole: RuntimeMatch
    stale: Estimate
    change: ChangePoint | None = None
    before: RuntimeMatch | None = None
    after: RuntimeMatch | None = None


def answer(subject: Subject) -> Answer:
    """A sample encoded again with the named model."""
    if subject.reference is None:
        return Answer.unchecked("drift", "the model that made the vectors was not named (--reference MODEL)")
    if subject.held.texts is None:
        return Answer.unchecked("drift", "the texts of the vectors are not at hand, so that none can be encoded again")
    try:
        measured = measure(subject, subject.reference, subject.held.texts)
    except InputError as error:  # a dimension that the model does not give
        return Answer(
            "drift",
            judge(error, subject.thresholds),
            {"stale": 1.0},
            Action("configure", "name the model that wrote the index", None, "another audit"),
        )
    table = {"row": measured.rows, "id": list(measured.ids), "cosine": measured.cosines}
    return Answer(
        "drift",
        judge(measured, subject.thresholds),
        {
            "stale": measured.stale,
            "drift_row": None if measured.change is None else int(measured.rows[measured.change.position]),
            "drift_cause": None if measured.whole.best is None else measured.whole.best.name,
        },
        _action(measured),
        tables={"drift": pa.table(table)},
        draw={"drift": lambda: _figure(measured)},
    )


def measure(subject: Subject, reference: TokenEncoder, known: Sequence[str]) -> Drift:
    """Encode a sample of the known texts again, find the change that parts it best, and name the cause on each side."""
    collection = subject.held
    size = min(SAMPLE if subject.trial_texts in (None, 0) else subject.trial_texts or SAMPLE, len(collection))
    chosen = np.unique(np.linspace(0, len(collection) - 1, size).round().astype(np.int64))
    texts = [known[k] for k in chosen]
    vectors = np.asarray(collection.vectors[chosen], dtype=np.float64)
    whole = match_runtime(reference, texts, vectors, seed=subject.seed)
    cosines = np.asarray(whole.cosines, dtype=np.float64)
    stale = share_estimate((cosines < subject.thresholds["stale_cosine"]).astype(np.float64), unit="vectors")
    drift = Drift(
        reference.card.name, collection.order[chosen], tuple(collection.ids[k] for k in chosen), cosines, whole, stale
    )
    change = change_point(cosines, seed=subject.seed) if stale.known > 0 else None
    if change is None or change.p_value >= _CHANCE:
        return drift
    sides = [
        match_runtime(reference, texts[part], vectors[part], seed=subject.seed)
        for part in (slice(0, change.position), slice(change.position, None))
    ]
    return replace(drift, change=change, before=sides[0], after=sides[1])


def judge(measured: Drift | InputError, limits: Thresholds) -> Verdict:
    """By the share of the sample whose vector is not the one that the model gives; an error says that none can be."""
    if isinstance(measured, InputError):
        return Verdict("repair", f"The stored vectors cannot be those of this model: {measured}", basis="counted")
    stale, whole = measured.stale, measured.whole
    judged = limits.judge("stale", stale.known, stale.interval)
    count = len(measured.cosines)
    if stale.known == 0:
        sentence = (
            f"All {count} vectors that were encoded again are those of {measured.reference} (lowest cosine "
            f"{measured.cosines.min():.4f})."
        )
    else:
        others = f"{stale.value:.0%} of {count} vectors are not those that {measured.reference} gives today"
        sentence = f"{others}{_since(measured)}."
    evidence = (
        f"Cosine of stored and new vectors: median {np.median(measured.cosines):.4f}, lowest "
        f"{measured.cosines.min():.4f}; below {limits['stale_cosine']:g}: {stale}.",
        *_causes(measured),
    )
    if whole.form:
        evidence += (f"Stored as: {whole.form}.",)
    return Verdict(judged.level, sentence, stale.value, stale.interval, None, evidence, judged.basis)


def _since(measured: Drift) -> str:
    """Where the change lies, or what explains them all."""
    change = measured.change
    if change is not None:
        first, last = max(change.low - 1, 0), min(change.high, len(measured.rows) - 1)
        place = f"about row {measured.rows[change.position]:,}"
        where = f"from {place} on" if change.after < change.before else f"before {place}"
        return f", most of them {where} (a change between rows {measured.rows[first]:,} and {measured.rows[last]:,})"
    best = measured.whole.best
    if best is not None and best.explains:
        return f": they are those of {best.words}"
    return ""


def _causes(measured: Drift) -> tuple[str, ...]:
    """What explains the vectors, on each side of a change where there is one."""
    if measured.change is None or measured.before is None or measured.after is None:
        return (_cause("All rows", measured.whole),)
    return (
        f"Chance parts rows so clearly with probability {measured.change.p_value:.3f}.",
        _cause("Before the change", measured.before),
        _cause("After it", measured.after),
    )


def _cause(where: str, match: RuntimeMatch) -> str:
    own, best = match.own, match.best
    if best is None:
        return f"{where}: as the model declares (mean cosine {own.mean:.4f})."
    sure = "explains them" if best.explains else "comes nearest"
    return f"{where}: {best.words} {sure} (mean cosine {best.mean:.4f}; as declared {own.mean:.4f})."


def _action(measured: Drift) -> Action:
    if measured.change is not None:
        step = "encode the rows on the wrong side of the change again, with one model, prompt and pooling for all"
        return Action("configure", step, None, "encode those rows again")
    best = measured.whole.best
    step = (
        best.step if best is not None and best.explains else "find out which model, prompt and pooling wrote the index"
    )
    return Action("configure", step, None, "a setting of the runtime, or all rows encoded again")


def _figure(measured: Drift) -> Any:
    """The cosine of every vector of the sample with the one that the model gives, in the order of the rows."""
    points = dots(measured.rows, measured.cosines, "", COLOURS[0], "row %{x}: %{y:.4f}<extra></extra>")
    title = "Stored vectors beside those that the model gives today"
    figure = panel(points, title=title, across="row of the source", along="cosine", height=400)
    if measured.change is not None:
        figure.add_vline(float(measured.rows[measured.change.position]), line={"color": GREY, "dash": "dash"})
    return figure


QUESTION = Question(
    "drift",
    title="Same model",
    words="Are the stored vectors those that the model gives today, and since when not?",
    page="vectors.md#same-model",
    number_name="vectors that are others today",
    number_format=".3f",
    answer=answer,
    needs="vectors",
    applies=has_vectors_only,
    judge=judge,
    thresholds=[
        Threshold(
            "stale_cosine", 0.99, "Two vectors of a text with this cosine are one but for rounding to 16 or 8 bits."
        ),
        Threshold("stale_watch", 0.005, "One vector in two hundred was made in another way than the rest."),
        Threshold(
            "stale_repair", 0.05, "One vector in twenty was: searches mix two spaces, in which scores do not compare."
        ),
    ],
    judged_on="stale",
    numbers=[Number("stale", "vectors that are others today", compared=False)],
    tables={"drift": TableView("Encoded again", 20, {"row": "Row", "id": "Id", "cosine": "Cosine"})},
)
