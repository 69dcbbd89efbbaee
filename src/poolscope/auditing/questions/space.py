"""How much of their room do the vectors use, and does one dimension rule?"""

from __future__ import annotations

from poolscope.auditing.question import (
    NOT_APPLICABLE,
    Action,
    Answer,
    Gauge,
    Number,
    Question,
    TableView,
    Threshold,
    Thresholds,
)
from poolscope.auditing.subject import Subject, has_vectors_only
from poolscope.metrics.spectrum import Spectrum, spectrum
from poolscope.verdicts import Verdict, most_serious

# With fewer different vectors the rank is a matter of their number.
_LEAST_VECTORS = 30


def answer(subject: Subject) -> Answer:
    """The effective rank, and the neighbours that hang on one dimension."""
    vectors = subject.vectors[subject.distinct]
    if len(vectors) < _LEAST_VECTORS or vectors.shape[1] < 2:
        return Answer.unchecked("space", f"{len(vectors)} different vectors are too few ({_LEAST_VECTORS} are needed)")
    measured = spectrum(vectors, seed=subject.seed)
    rank = measured.effective_rank
    if rank.floor is None:
        return Answer("space", judge(measured, subject.thresholds))
    return Answer(
        "space",
        judge(measured, subject.thresholds),
        {
            "effective_rank": rank,
            "space_used": measured.used,
            "space_idle": 1 - measured.used,
            "rogue_dimension": measured.dimension_number,
            "rogue_share": measured.largest_share,
            "rogue_kept": measured.kept.value,
            "rogue_lost": (measured.kept.floor or 0.0) - measured.kept.known,
        },
        _action(measured, subject.thresholds),
        tables={"dimensions": measured.to_table().replace_schema_metadata(None)},
        draw={"space": measured.figure},
    )


def judge(measured: Spectrum, limits: Thresholds) -> Verdict:
    """The more serious of little room and of one dimension; `watch` at most, as both cost and neither breaks."""
    rank, kept = measured.effective_rank, measured.kept
    if rank.floor is None:
        return Verdict("unchecked", f"{NOT_APPLICABLE}all vectors point in one direction.")
    number = measured.dimension_number
    sentence = (
        f"The vectors spread in about {rank.value:.0f} of {measured.dimension} directions (as many without any "
        f"preferred direction: {rank.floor:.0f}); without dimension {number} {kept.value:.0%} of the ten nearest "
        f"remain, without a middling one {kept.floor:.0%}."
    )
    share = measured.largest_share
    evidence = (
        f"{measured.vectors:,} different vectors; effective rank {rank}.",
        f"Dimension {measured.dimension_number} holds {share.value:.1%} of the squared length; in a random basis the "
        f"largest would hold {share.floor:.1%}.",
    )
    worst = most_serious(*_judged(measured, limits))
    return Verdict(worst.level, sentence, rank.value, rank.interval, rank.floor, evidence, worst.basis)


def _judged(measured: Spectrum, limits: Thresholds) -> tuple[Verdict, Verdict]:
    """Of the room that is not used, and of the neighbours that one dimension decides."""
    idle = limits.judge("idle", 1 - measured.used)
    kept = measured.kept
    lost = (kept.floor or 0.0) - kept.known
    surely = None if kept.interval is None else (kept.floor or 0.0) - kept.interval.high
    rogue = limits.judge("rogue", lost)
    if rogue.level != "ok":
        enough = surely is not None and surely >= limits["rogue_watch"]
        rogue = Verdict("watch", basis="interval" if enough else "estimate")
    return idle, rogue


def _action(measured: Spectrum, limits: Thresholds) -> Action:
    _, rogue = _judged(measured, limits)
    if rogue.level != "ok":
        step = f"try a search without dimension {measured.dimension_number}, or with every dimension at one spread"
        return Action("repair", step, None, "no re-encoding: one operation a vector, of the index and of every query")
    step = f"store fewer dimensions: about {measured.effective_rank.value:.0f} principal directions hold what is there"
    return Action("repair", step, None, "no re-encoding: one projection a vector, of the index and of every query")


QUESTION = Question(
    "space",
    title="Room",
    words="How much of their room do the vectors use, and does one dimension rule?",
    page="vectors.md#room",
    number_name="effective rank",
    number_format=".1f",
    metric="spectrum",
    answer=answer,
    needs="vectors",
    applies=has_vectors_only,
    judge=judge,
    thresholds=[
        Threshold(
            "idle_watch",
            0.9,
            "Share of the room, by effective rank, that is left empty: nine tenths of every vector could be saved.",
        ),
        Threshold(
            "rogue_watch",
            0.2,
            "Share of the ten nearest that one dimension decides, beyond what a middling one does: two of ten.",
        ),
    ],
    gauges=[
        Gauge("space_idle", "room that is left empty", "idle_watch", form=".1%"),
        Gauge("rogue_lost", "nearest that one dimension decides", "rogue_watch", form=".1%"),
    ],
    numbers=[Number("effective_rank", "effective rank", headline=True)],
    tables={
        "dimensions": TableView(
            "Dimensions by their share of the squared length", 20, {"dimension": "Dimension", "share": "Share"}
        )
    },
)
