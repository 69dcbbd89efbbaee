"""Labelled texts by length: how well a logistic regression on the vectors tells the labels, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolscope.errors import InputError
from poolscope.metrics.length.bins import MIN_TEXTS, TOKENS, LengthPart, Panel, length_bins, row_panels
from poolscope.numbers.intervals import Estimate, chosen_units, difference_of_means, mean_estimate, share_estimate
from poolscope.numbers.learning import predict_unseen
from poolscope.numbers.ranking import unit_rows
from poolscope.surface import as_lengths
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
class LengthLabels(LengthPart):
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

    def figure_title(self) -> str:
        return f"{self.labels} labels · {self.texts:,} texts"

    def panels(self) -> list[Panel]:
        shown = {"accuracy": ("Are labels told?", "accuracy"), "entropy": ("How sure?", "entropy in bits")}
        return row_panels(self.bins, [row.label for row in self.bins], TOKENS, shown)

    def in_words(self) -> tuple[str, ...]:
        """How many labels are told, and what length changes."""
        floor = "" if self.accuracy.floor is None else f" (always the most frequent: {self.accuracy.floor:.0%})"
        sentence = f"The labels of {self.accuracy.value_or_raise:.0%} of the texts are told from their vectors{floor}."
        if self.difference.value is None:
            return (sentence,)
        reach = self.difference.interval
        ends = "" if reach is None else f" [{reach.low:+.0%}, {reach.high:+.0%}]"
        return (sentence, f"From the shortest to the longest texts that changes by {self.difference.value:+.0%}{ends}.")


def labels_by_length(
    vectors: ArrayLike,
    lengths: ArrayLike,
    labels: Sequence[str],
    *,
    groups: Sequence[Any] | None = None,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    seed: int = 0,
) -> LengthLabels:
    """Accuracy and entropy of a logistic regression by length bin.

    vectors (N × d), lengths (N), labels (N), groups (N): the document of each, where known. Every text is predicted by
    a fit on four of five folds, drawn label by label; texts without a label (None, NaN) and labels with fewer texts
    than folds are left out and counted.
    """
    units = unit_rows(vectors, "vectors")
    counted = as_lengths(lengths, len(units), "lengths")
    if len(labels) != len(units):
        raise InputError(f"labels: received {len(labels)} for {len(units)} vectors; one a vector is needed.")
    missing = np.array([is_missing(label) for label in labels])
    names, numbers, counts = np.unique(
        ["" if none else str(label) for label, none in zip(labels, missing, strict=True)],
        return_inverse=True,
        return_counts=True,
    )
    usable = (counts[numbers] >= FOLDS) & ~missing
    frequent = len(np.unique(numbers[usable]))
    if frequent < 2:
        raise InputError(
            f"labels: received {len(names)} different ones, of which {frequent} have {FOLDS} texts or more; at "
            f"least two are needed. Use coarser labels, or more texts."
        )
    units, counted, numbers = units[usable], counted[usable], numbers[usable]
    kinds, numbers = np.unique(numbers, return_inverse=True)  # numbered anew: what was left out has no number
    # Numbers of size 1, so that the regularisation is the same for every d; two labels share one vector of weights.
    scaled = units * np.sqrt(units.shape[1])
    strength = 0.5 if len(kinds) == 2 else 1.0
    predicted = predict_unseen(scaled, numbers, folds=FOLDS, seed=seed, strength=strength, most_steps=_MOST_ITERATIONS)
    right = (predicted.labels == numbers).astype(np.float64)
    units = chosen_units(len(usable), groups).of[usable]
    entropy = -(predicted.shares * np.log2(np.maximum(predicted.shares, 1e-300))).sum(axis=1)
    by_bin = length_bins(counted, bins, min_texts=min_texts)
    first = numbers == np.bincount(numbers).argmax()
    rows = []
    for number, label in enumerate(by_bin.labels):
        member = by_bin.of == number
        floor = float(first[member].mean())
        accuracy = share_estimate(right[member], units=units[member], each="texts")
        accuracy = replace(accuracy, floor=floor, floor_low=floor, floor_high=floor)
        rows.append(LabelRow(label, int(member.sum()), accuracy, mean_estimate(entropy[member], units[member])))
    single, shortest, longest = len(by_bin) == 1, by_bin.of == 0, by_bin.of == len(by_bin) - 1
    sides = [None if groups is None else units[side] for side in (longest, shortest)]
    notes = [*by_bin.notes()]
    if rare := int((~usable & ~missing).sum()):
        notes.append(f"{rare:,} texts have a label with fewer than {FOLDS} texts and were left out.")
    if missing.any():
        notes.append(f"{missing.sum():,} texts have no label and were left out.")
    if not predicted.converged:
        notes.append(f"A fit did not converge within {_MOST_ITERATIONS:,} iterations.")
    return LengthLabels(
        texts=len(units),
        labels=len(kinds),
        dropped=int((~usable).sum()),
        folds=FOLDS,
        accuracy=share_estimate(right, units=units, each="texts"),
        bins=tuple(rows),
        difference=Estimate(None) if single else difference_of_means(right[longest], right[shortest], *sides),
        converged=predicted.converged,
        notes=tuple(notes),
    )
