"""Tasks on texts with one label each: classification and clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.encoders.base import check_texts
from poolscope.errors import InputError
from poolscope.evaluation.probes import cluster, cross_validated, split_contrasts
from poolscope.evaluation.scores import Evaluation
from poolscope.evaluation.statistics import STATISTICS
from poolscope.evaluation.tasks import Side, digest_of
from poolscope.numbers.ranking import unit_rows

Index = NDArray[np.int64]


@dataclass(frozen=True)
class _LabelledTask:
    """Texts with one label each, at least two labels, each on at least two texts."""

    texts: Sequence[str]
    labels: Sequence[str] = field(repr=False)
    name: str
    seed: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_texts(self.texts)
        kinds, counts = np.unique(np.asarray(self.labels, dtype=str), return_counts=True)
        if len(self.texts) != len(self.labels) or len(kinds) < 2 or counts.min() < 2:
            raise InputError(
                f"{self.name}: received {len(self.texts)} texts with {len(self.labels)} labels, {len(kinds)} distinct, "
                f"the rarest on {counts.min() if len(counts) else 0}; needed: one label a text, two labels or more, "
                f"each on two texts or more. Leave rare labels out."
            )

    @property
    def sides(self) -> tuple[Side, ...]:
        """All texts."""
        return (Side(None, self.texts),)

    @property
    def units(self) -> int:
        """Number of texts."""
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        """Of texts and labels."""
        return digest_of([self.texts, [str(label) for label in self.labels]], self.seed)

    @property
    def codes(self) -> Index:
        """The labels as whole numbers from 0."""
        return np.unique(np.asarray(self.labels, dtype=str), return_inverse=True)[1].astype(np.int64)

    def take(self, positions: Index) -> Self:
        """Some texts; a label that is left on one text alone is left out, and the notes say so."""
        positions = np.asarray(positions, dtype=np.int64)
        labels = np.asarray(self.labels, dtype=str)[positions]
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        kept = positions[counts[inverse] > 1]
        lonely = len(positions) - len(kept)
        note = (f"{lonely} texts alone with their label left out.",) if lonely else ()
        return replace(
            self,
            texts=[self.texts[k] for k in kept],
            labels=[self.labels[k] for k in kept],
            notes=(*self.notes, *note),
        )


@dataclass(frozen=True)
class ClassificationTask(_LabelledTask):
    """Accuracy of a logistic regression on the vectors, cross-validated: every text is predicted once, unseen."""

    name: str = "classification"
    folds: int = 5

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """1 for each text whose label is predicted, else 0."""
        table = unit_rows(vectors[0], "vectors").astype(np.float64)
        predicted = cross_validated(table, self.codes, folds=self.folds, seed=self.seed)
        correct = (predicted == self.codes).astype(np.float64)[:, None]
        return Evaluation(self.name, "accuracy", "texts", correct, notes=self.notes, digest=self.digest)


@dataclass(frozen=True)
class ClusteringTask(_LabelledTask):
    """The v-measure of k-means with as many clusters as there are labels: the mean over some starts."""

    name: str = "clustering"
    starts: int = 10

    def score(self, *vectors: ArrayLike) -> Evaluation:
        """The mean v-measure of labels and clusters; its interval holds other texts and other starts of k-means."""
        table = unit_rows(vectors[0], "vectors").astype(np.float64)
        codes = self.codes
        found = cluster(table, int(codes.max()) + 1, starts=self.starts, seed=self.seed)
        return Evaluation(
            self.name,
            "v-measure",
            "texts",
            np.column_stack([codes, found]).astype(np.float64),
            statistic="v-measure",
            notes=self.notes,
            contrasts=split_contrasts(table, codes, STATISTICS["v-measure"], starts=self.starts, seed=self.seed),
            digest=self.digest,
        )
