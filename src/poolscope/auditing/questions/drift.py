"""Are the stored vectors those that the model gives today, and since when not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from poolscope.runtimes.match import EXPLAINS, NEAR, Tested, match_rows
from poolscope.verdicts import Verdict

# Texts that are encoded again, one of each of so many stretches of the rows in their order.
SAMPLE = 200
# A change must part the rows more clearly than all but so many shuffles.
_CHANCE = 0.01
# And rows on one side of it deviate at most this often, beside those on the other: else both are to be encoded again.
_SELDOM = 0.1
_NO_PLACE = "In the order of the rows no single place is found that parts them from the others."


@dataclass(frozen=True)
class Part:
    """Rows of the sample, how many of them deviate, and what explains these; all rows where `whole`.

    `cosine` is the mean over all rows of the part with the vectors that the model gives. Without rows that deviate
    there is no match.
    """

    where: str
    rows: int
    deviating: int
    cosine: float
    match: RuntimeMatch | None = None
    whole: bool = False

    @property
    def cause(self) -> Tested | None:
        """What explains the rows that deviate, or comes clearly nearer than the model as declared."""
        return None if self.match is None else self.match.cause


@dataclass(frozen=True)
class Drift:
    """Stored vectors beside those of the reference: all of the sample, or both sides of a change where there is one.

    `rows` are the places of the sample in the source, in their order, `ids` their names, `total` all rows that could
    have been drawn; `deviating` says of each whether its vector is another.
    """

    reference: str
    rows: NDArray[np.int64]
    ids: tuple[str, ...]
    cosines: NDArray[np.float64]
    whole: RuntimeMatch
    stale: Estimate
    deviating: NDArray[np.bool_]
    total: int
    parts: tuple[Part, ...]
    change: ChangePoint | None = None

    @property
    def main(self) -> Part:
        """The part with most of the rows that deviate."""
        return max(self.parts, key=lambda part: part.deviating)


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
    order = np.argsort(~measured.deviating, kind="stable")
    table = {
        "row": measured.rows[order],
        "id": [measured.ids[k] for k in order],
        "cosine": measured.cosines[order],
    }
    cause = measured.main.cause
    return Answer(
        "drift",
        judge(measured, subject.thresholds),
        {
            "stale": measured.stale,
            "drift_row": None if measured.change is None else int(measured.rows[measured.change.position]),
            "drift_cause": None if cause is None else cause.name,
        },
        _action(measured),
        tables={"drift": pa.table(table)},
        draw={"drift": lambda: _figure(measured)},
    )


def drawn_rows(count: int, size: int, *, seed: int) -> NDArray[np.int64]:
    """One of each of `size` stretches of the rows, in their order.

    At even distances every second row could be seen up to a place and never after it, as if something began there.
    """
    edges = np.linspace(0, count, size + 1).round().astype(np.int64)
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def parting_place(deviating: NDArray[np.bool_], *, seed: int) -> ChangePoint | None:
    """The place on one side of which rows deviate, beyond chance, and hardly any on the other; None without one.

    It goes by which rows deviate: by how much is a matter of their texts, which may be in an order of their own.
    """
    change = change_point(deviating, seed=seed)
    if change is None or change.p_value >= _CHANCE:
        return None
    seldom, often = sorted((change.before, change.after))
    return change if seldom <= _SELDOM * often else None


def measure(subject: Subject, reference: TokenEncoder, known: Sequence[str]) -> Drift:
    """Encode a sample of the known texts again, find the change that parts it best, and name the cause on each side."""
    collection = subject.held
    size = min(SAMPLE if subject.trial_texts in (None, 0) else subject.trial_texts or SAMPLE, len(collection))
    chosen = drawn_rows(len(collection), size, seed=subject.seed)
    texts = [known[k] for k in chosen]
    vectors = np.asarray(collection.vectors[chosen], dtype=np.float64)
    whole = match_runtime(reference, texts, vectors, seed=subject.seed)
    cosines = np.asarray(whole.cosines, dtype=np.float64)
    deviating = cosines < subject.thresholds["stale_cosine"]
    stale = share_estimate(deviating.astype(np.float64), unit="vectors")
    # What explains all rows has no place: it moves the rows of other texts less.
    change = None if _explains_all(whole) else parting_place(deviating, seed=subject.seed)

    def part(where: str, rows: NDArray[np.int64]) -> Part:
        """A few rows that deviate are explained by themselves: over all rows they would be outvoted."""

        def matched(positions: NDArray[np.int64]) -> RuntimeMatch:
            if len(positions) == len(texts):
                return whole
            if whole.rest is not None and positions.tolist() == list(whole.differ):
                return whole.rest
            return match_rows(reference, texts, vectors, positions, seed=subject.seed)

        others = rows[deviating[rows]]
        mean = float(cosines[rows].mean())
        if len(others) == 0:
            return Part(where, len(rows), 0, mean)
        if len(rows) == len(texts) and 2 * len(others) > len(rows) and whole.order is not None:
            return Part(where, len(rows), len(others), mean, whole, whole=True)
        if len(rows) == len(texts) and _explains_all(whole):  # also rows that it moved too little to deviate
            return Part(where, len(rows), len(others), mean, whole, whole=True)
        if len(others) >= EXPLAINS * len(rows):
            match = matched(rows)
            if len(others) == len(rows) or (match.best is not None and match.best.explains):
                return Part(where, len(rows), len(others), mean, match, whole=True)
        return Part(where, len(rows), len(others), mean, matched(others))

    every = np.arange(len(texts))
    parts = (
        (part("All rows", every),)
        if change is None
        else (part("Before the change", every[: change.position]), part("After it", every[change.position :]))
    )
    return Drift(
        reference=reference.card.name,
        rows=collection.order[chosen],
        ids=tuple(collection.ids[k] for k in chosen),
        cosines=cosines,
        whole=whole,
        stale=stale,
        deviating=deviating,
        total=len(collection),
        parts=parts,
        change=change,
    )


def _explains_all(match: RuntimeMatch) -> bool:
    """Does one cause explain all rows, which are not as the model declares?"""
    return match.best is not None and match.best.explains and match.own.share < EXPLAINS


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
        sentence = f"{others}{_since(measured)}"
    change = measured.change
    evidence = (
        f"Cosine of stored and new vectors: median {np.median(measured.cosines):.4f}, lowest "
        f"{measured.cosines.min():.4f}; below {limits['stale_cosine']:g}: {stale}.",
        *(() if change is None else (_by_chance(change),)),
        *map(_cause, measured.parts),
        *((f"Stored as: {whole.form}.",) if whole.form else ()),
    )
    return Verdict(judged.level, sentence, stale.value, stale.interval, None, evidence, judged.basis)


def _by_chance(change: ChangePoint) -> str:
    return (
        f"If nothing began anywhere, rows that follow each other as these do would part so clearly with probability "
        f"{change.p_value:.3f}."
    )


def _since(measured: Drift) -> str:
    """Where the change lies; without one what explains them and, unless it is all rows, that no place parts them."""
    change = measured.change
    if change is not None:
        first, last = max(change.low - 1, 0), min(change.high, len(measured.rows) - 1)
        place = f"about row {measured.rows[change.position]:,}"
        where = f"from {place} on" if change.after > change.before else f"before {place}"
        return f", most of them {where} (a change between rows {measured.rows[first]:,} and {measured.rows[last]:,})."
    cause, scattered = measured.main.cause, "" if measured.main.whole else f" {_NO_PLACE}"
    by = f": what wrote them {cause.words}" if cause is not None and cause.explains else ""
    return f"{by}.{scattered}"


def _cause(part: Part) -> str:
    """What explains the rows of a part that deviate; only rows that do not are as the model declares."""
    if part.match is None:
        return f"{part.where}: as the model declares (mean cosine {part.cosine:.4f})."
    declared, cause = f"as declared {part.match.own.mean:.4f}", part.cause
    them = "it" if part.deviating == 1 else "them"
    if cause is not None:
        sure = f"explains {them}" if cause.explains else "comes nearest"
        told = f"{cause.words} {sure} (mean cosine {cause.mean:.4f}; {declared})"
    elif part.match.order is not None:
        told = f"they are the model's vectors of these texts, pooled by {part.match.order}, in another order"
    else:
        told = (
            f"none of the known causes explains {them} (mean cosine {declared}); the vectors may belong to other "
            f"texts, or to another model"
        )
    if part.whole:
        return f"{part.where}: {told}."
    which = "row that deviates" if part.deviating == 1 else "rows that deviate"
    return f"{part.where}, the {part.deviating:,} {which}: {told}; the others are as the model declares."


def _action(measured: Drift) -> Action:
    cost, part = "encode those rows again", measured.main
    by = f", where what wrote them {part.cause.words}" if part.cause is not None and part.cause.explains else ""
    if measured.change is not None:
        row = measured.rows[measured.change.position]
        side = "from" if measured.change.after > measured.change.before else "before"
        step = (
            f"encode the rows {side} about row {row:,}{' on' if side == 'from' else ''} again{by}: one model, prompt "
        )
        return Action("configure", f"{step}and pooling for all", None, cost, renews="vectors")
    if part.match is not None and not part.whole:
        step = f"encode the rows that deviate again (first in table drift){by}, as the others were"
        if measured.total > part.rows:
            step += f"; {part.rows:,} of {measured.total:,} rows were compared, and --trial {measured.total} does all"
        return Action("configure", step, None, cost, renews="vectors")
    step = "find out which model, prompt and pooling wrote the index"
    if part.cause is not None and part.cause.explains:
        step = part.cause.step
    elif part.match is not None and part.match.order is not None:
        step = "put vectors and texts into the same order, and audit them again"
        return Action("configure", step, None, "no re-encoding: sort the table, or the ids", renews="vectors")
    elif part.match is not None and part.match.own.mean < NEAR:
        step = f"look whether vectors and texts are in the same order; if they are, {step}"
    return Action("configure", step, None, "a setting of the runtime, and all rows encoded again", renews="vectors")


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
