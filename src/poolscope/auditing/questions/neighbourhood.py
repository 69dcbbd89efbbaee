"""Can the nearest be told from the rest, and is anything out of reach?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, TableView, Threshold, Thresholds
from poolscope.auditing.subject import Subject, has_vectors_only
from poolscope.metrics.neighbourhood import Neighbourhood, different_rows, neighbourhood
from poolscope.verdicts import Verdict, most_serious

# Fewer vectors than this have no neighbourhood to speak of: ten nearest are almost all.
_LEAST_VECTORS = 50


def answer(subject: Subject) -> Answer:
    """Contrast, outliers and islands, beside Gaussian vectors of the same shape."""
    chosen = subject.distinct
    if len(chosen) < _LEAST_VECTORS:
        return Answer.unchecked(
            "neighbourhood", f"{len(chosen)} different vectors are too few ({_LEAST_VECTORS} are needed)"
        )
    vectors = subject.vectors[chosen]
    if len(different_rows(vectors)) < _LEAST_VECTORS:
        return Answer.unchecked("neighbourhood", "almost all vectors are copies of a few")
    measured = neighbourhood(vectors, seed=subject.seed)
    contrast, outlying = measured.contrast, _table(subject, chosen, measured)
    return Answer(
        "neighbourhood",
        judge(measured, subject.thresholds),
        {
            "contrast": contrast,
            "outliers": measured.outliers,
            "islands": measured.islands,
            "flatness": (contrast.floor or 1.0) / contrast.known,
            "parts": measured.parts,
        },
        _action(len(outlying)),
        tables={"outlying": outlying},
        draw={"neighbourhood": measured.figure},
    )


def _action(outlying: int) -> Action:
    if not outlying:
        step = "check that these vectors are embeddings of texts: no vector stands out, and none has a near neighbour"
        return Action("undecided", step, None, "the work of finding out what wrote them")
    return Action(
        "repair",
        "look at the vectors that nobody leads to: broken texts, another language, another model (table outlying)",
        None,
        "the work on those texts; encode again what changes",
    )


def judge(measured: Neighbourhood, limits: Thresholds) -> Verdict:
    """The most serious of the three; `watch` at most: whether a search suffers is asked of the recall."""
    contrast, outliers, islands = measured.contrast, measured.outliers, measured.islands
    floor = contrast.floor or 1.0
    parts = "one part" if measured.parts == 1 else f"{measured.parts:,} parts"
    sentence = (
        f"Two vectors lie {contrast.value:.2f} times as far apart as a vector and its nearest (by chance {floor:.2f}); "
        f"{outliers.value:.1%} have no near neighbour (by chance {outliers.floor:.1%}); {islands.value:.1%} lie "
        f"outside the largest part of the graph of neighbours (by chance {islands.floor:.1%})."
    )
    evidence = (
        f"{measured.vectors:,} different vectors; contrast {contrast}; chance is that of Gaussian vectors of the same "
        f"mean and covariance.",
        f"No near neighbour: the nearest lies beyond the upper quartile of all nearest by more than three times the "
        f"distance of the quartiles ({outliers}).",
        f"The graph joins every vector with its {measured.k} nearest: {parts} ({islands}).",
    )
    flat = limits.judge("flat", floor / contrast.known)
    if flat.level != "ok":
        flat = Verdict("watch", basis="no interval")
        sentence += " So the nearest is hardly nearer than among random vectors."
    worst = most_serious(
        flat,
        limits.judge("outlier", outliers.excess, outliers.interval),
        limits.judge("island", islands.excess, islands.interval),
    )
    return Verdict(worst.level, sentence, contrast.value, contrast.interval, floor, evidence, worst.basis)


def _table(subject: Subject, chosen: np.ndarray, measured: Neighbourhood) -> pa.Table:
    """The vectors that are outliers or lie apart, the farthest first."""
    sizes = np.bincount(measured.part)
    apart = measured.part != sizes.argmax()
    rows = np.flatnonzero(measured.outlying | apart)
    rows = rows[np.argsort(-measured.nearest_distance[rows], kind="stable")]
    places = chosen[measured.positions[rows]]
    return pa.table(
        {
            "id": pa.array([subject.ids[k] for k in places], pa.string()),
            "outlier": measured.outlying[rows],
            "nearest_distance": measured.nearest_distance[rows],
            "part": measured.part[rows],
            "part_size": sizes[measured.part[rows]],
            "text": subject.text_column(places),
        }
    )


QUESTION = Question(
    "neighbourhood",
    title="Neighbours",
    words="Can the nearest be told from the rest, and is anything out of reach?",
    page="vectors.md#neighbours",
    number_name="contrast",
    number_format=".2f",
    metric="contrast",
    answer=answer,
    needs="vectors",
    applies=has_vectors_only,
    judge=judge,
    thresholds=[
        Threshold(
            "flat_watch",
            0.9,
            "The contrast of chance over that of these vectors: above nine tenths the nearest is hardly nearer than it "
            "would be among vectors that mean nothing.",
        ),
        Threshold("outlier_watch", 0.01, "One vector in a hundred, beyond chance, is far from all others."),
        Threshold(
            "island_watch",
            0.05,
            "One vector in twenty, beyond chance, lies where no neighbour of the others leads: a search that walks "
            "from neighbour to neighbour may not get there.",
        ),
    ],
    gauges=[
        Gauge("flatness", "contrast of chance over that of these vectors", "flat_watch"),
        Gauge("outliers", "vectors without a near neighbour", "outlier_watch", above_floor=True, form=".1%"),
        Gauge("islands", "vectors out of reach of the others", "island_watch", above_floor=True, form=".1%"),
    ],
    numbers=[Number("contrast", "contrast of the nearest", headline=True)],
    tables={
        "outlying": TableView(
            "Vectors without near neighbours, or in parts of their own",
            50,
            {
                "text": "Text",
                "nearest_distance": "Distance to the nearest",
                "outlier": "No near neighbour",
                "part_size": "Vectors in its part",
            },
            searchable=True,
            below={"text": "id"},
        )
    },
)
