"""Labelled texts by length: how well a logistic regression on the vectors tells the labels, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.clouds.vectors import as_lengths
from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, length_bins, table_rows
from poolscope.numbers.intervals import Estimate, difference_of_means, mean_estimate
from poolscope.numbers.learning import predict_unseen
from poolscope.numbers.ranking import unit_rows
from poolscope.results import Result
from poolscope.texts.records import is_missing

FOLDS = 5
_MOST_ITERATIONS = 2000


@dataclass(frozen=True)
class LabelRow:
    """One bin: accuracy of the predictions (floor: always the most frequent label), and their entropy in bits."""

    label: str
    texts: int
    accuracy: Estimate
    entropy: Estimate


@dataclass(frozen=True, repr=False)
class LengthLabels(Result):
    """Accuracy and entropy by length, from predictions of texts that the regression did not see.

    `dropped` texts have no label, or one with fewer texts than folds. `difference` is the accuracy of the longest bin
    minus that of the shortest. `converged` is False where a fit ran out of iterations.
    """

    texts: int
    labels: int
    dropped: int
    folds: int
    accuracy: Estimate
    bins: tuple[LabelRow, ...]
    difference: Estimate
    converged: bool
    notes: tuple[str, ...]

    def seen(self) -> tuple[str, ...]:
        """How many labels are told, and what length changes."""
        floor = "" if self.accuracy.floor is None else f" (always the most frequent: {self.accuracy.floor:.0%})"
        told = f"The labels of {self.accuracy.known:.0%} of the texts are told from their vectors{floor}."
        if self.difference.value is None:
            return (told,)
        reach = self.difference.interval
        ends = "" if reach is None else f" [{reach.low:+.0%}, {reach.high:+.0%}]"
        return (told, f"From the shortest to the longest texts that changes by {self.difference.value:+.0%}{ends}.")

    def rows(self) -> list[dict[str, Any]]:
        """One row a bin."""
        return table_rows(self.bins)

    def figure(self) -> Any:
        """Accuracy and entropy by bin."""
        from poolscope.metrics.length.figure import labels_figure

        return labels_figure(self)


def labels_by_length(
    vectors: ArrayLike,
    lengths: ArrayLike,
    labels: Sequence[str],
    *,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    folds: int = FOLDS,
    seed: int = 0,
) -> LengthLabels:
    """Accuracy and entropy of a logistic regression by length bin.

    vectors (N × d), lengths (N), labels (N). Every text is predicted by a fit on the other folds, drawn label by label;
    texts without a label (None, NaN) and labels with fewer texts than folds are left out and counted.
    """
    units = unit_rows(vectors, "vectors")
    counted = as_lengths(lengths, len(units), "lengths")
    if len(labels) != len(units):
        raise InputError(f"labels: received {len(labels)} for {len(units)} vectors; one a vector is needed.")
    if folds < 2:
        raise InputError(f"folds: received {folds}; at least 2 are needed to predict texts that the fit did not see.")
    missing = np.array([is_missing(label) for label in labels])
    names, numbers, counts = np.unique(
        ["" if none else str(label) for label, none in zip(labels, missing, strict=True)],
        return_inverse=True,
        return_counts=True,
    )
    kept = (counts[numbers] >= folds) & ~missing
    frequent = len(np.unique(numbers[kept]))
    if frequent < 2:
        raise InputError(
            f"labels: received {len(names)} different ones, of which {frequent} have {folds} texts or more; at "
            f"least two are needed. Use coarser labels, more texts or fewer folds."
        )
    units, counted, numbers = units[kept], counted[kept], numbers[kept]
    kinds, numbers = np.unique(numbers, return_inverse=True)  # numbered anew: what was left out has no number
    # Numbers of size 1, so that the regularisation is the same for every d; two labels share one vector of weights.
    scaled = units * np.sqrt(units.shape[1])
    strength = 0.5 if len(kinds) == 2 else 1.0
    predicted = predict_unseen(scaled, numbers, folds=folds, seed=seed, strength=strength, most_steps=_MOST_ITERATIONS)
    right = (predicted.labels == numbers).astype(np.float64)
    entropy = -(predicted.shares * np.log2(np.maximum(predicted.shares, 1e-300))).sum(axis=1)
    by_bin = length_bins(counted, bins, min_texts=min_texts)
    first = numbers == np.bincount(numbers).argmax()
    rows = []
    for number, label in enumerate(by_bin.labels):
        member = by_bin.of == number
        accuracy = mean_estimate(right[member])
        floor = float(first[member].mean())
        accuracy = Estimate(accuracy.value, accuracy.interval, floor, floor, floor)
        rows.append(LabelRow(label, int(member.sum()), accuracy, mean_estimate(entropy[member])))
    single, last = len(by_bin) == 1, by_bin.of == len(by_bin) - 1
    notes = [*by_bin.notes()]
    if rare := int((~kept & ~missing).sum()):
        notes.append(f"{rare:,} texts have a label with fewer than {folds} texts and were left out.")
    if missing.any():
        notes.append(f"{missing.sum():,} texts have no label and were left out.")
    if not predicted.converged:
        notes.append(f"A fit did not converge within {_MOST_ITERATIONS:,} iterations.")
    return LengthLabels(
        texts=len(units),
        labels=len(kinds),
        dropped=int((~kept).sum()),
        folds=folds,
        accuracy=mean_estimate(right),
        bins=tuple(rows),
        difference=Estimate(None) if single else difference_of_means(right[last], right[by_bin.of == 0]),
        converged=predicted.converged,
        notes=tuple(notes),
    )
