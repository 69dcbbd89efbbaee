"""Why long texts look alike, by length bin: the attention of the last layer, the deviations of the tokens, the words.

σₐ and its bound: Zhou et al. (ACL 2025). On real models σₐ was seen to grow with the length while ‖PA‖_F²/(n − 1)
shrinks, so both stand beside the bound, and the result says where the bound fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poolscope.errors import InputError
from poolscope.metrics.length.passes import AttentionNumbers, MeasuredTexts
from poolscope.metrics.length.result import LengthProfile, estimate_cells
from poolscope.metrics.length.statistics import Array, bin_line, grouped_cosines, mean_estimate
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.ranking import unit_rows
from poolscope.results import plain


@dataclass(frozen=True)
class MechanismRow:
    """One bin; means over its texts (and heads), with intervals over texts. None where the model does not show it.

    sigma_a, bound, frobenius and score_variance are of the last layer (see `AttentionNumbers`); bound_fails is the
    share of texts × heads whose σₐ is above the bound. high_frequency: ‖PX‖_F²/n, the energy of the deviations a
    token; concentration_ratio: the same over ‖μ‖². words: mean pairwise cosine of plain averages of input embeddings.
    """

    label: str
    texts: int
    sigma_a: Estimate
    bound: Estimate
    bound_fails: Estimate
    frobenius: Estimate
    score_variance: Estimate
    high_frequency: Estimate
    concentration_ratio: Estimate
    words: Estimate


_NOTHING = Estimate(None)


@dataclass(frozen=True)
class LengthMechanism:
    """The mechanism by bin, and the slope of the cosine for averages of input embeddings beside that of the model."""

    rows: tuple[MechanismRow, ...]
    model_slope: float | None
    words_slope: float | None
    words_interval: Interval | None
    notes: tuple[str, ...]

    def table(self) -> list[dict[str, Any]]:
        """One row a bin: value, low and high of everything."""
        names = [name for name in MechanismRow.__dataclass_fields__ if name not in ("label", "texts")]
        return [
            {
                "bin": row.label,
                "texts": row.texts,
                **{cell: value for name in names for cell, value in estimate_cells(name, getattr(row, name)).items()},
            }
            for row in self.rows
        ]

    def sentences(self) -> tuple[str, ...]:
        """What was measured, in words."""
        found = []
        seen = [row for row in self.rows if row.sigma_a.value is not None]
        if len(seen) > 1:
            first, last = seen[0], seen[-1]
            found.append(
                f"Last layer, {first.label} → {last.label}: σₐ {_change(first.sigma_a, last.sigma_a)} (bound "
                f"{_change(first.bound, last.bound)}), ‖PA‖²/(n − 1) {_change(first.frobenius, last.frobenius)}."
            )
            fails = np.average([row.bound_fails.value or 0.0 for row in seen], weights=[row.texts for row in seen])
            found.append(
                f"The published bound of σₐ fails for {fails:.0%} of texts × heads."
                if fails > 0
                else "The published bound of σₐ holds for every text and head."
            )
        if self.words_slope is not None and self.model_slope is not None:
            found.append(
                f"Plain averages of the input word embeddings have the slope {self.words_slope:+.3f} per doubling, the "
                f"model's vectors {self.model_slope:+.3f}."
            )
        return (*found, *self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        content: dict[str, Any] = plain(self)
        return {**content, "sentences": list(self.sentences())}


def length_mechanism(measured: MeasuredTexts, profile: LengthProfile) -> LengthMechanism:
    """What a pass saw, by the bins of the profile of the same texts."""
    groups, count = profile.assignment, len(profile.bins)
    if len(groups) != len(measured.lengths):
        raise InputError(
            f"received a profile of {len(groups)} texts and a pass over {len(measured.lengths)}; both must be of the "
            f"same texts. Make the profile from the vectors of the pass."
        )
    words, line = [_NOTHING] * count, None
    if measured.words is not None:
        cosines = grouped_cosines(unit_rows(measured.words, "averages of input embeddings"), groups, count)
        words = [cosine.estimate for cosine in cosines]
        line = bin_line(cosines, np.log2(np.maximum(measured.lengths, 1)), groups)
    rows = []
    for number, row in enumerate(profile.bins):
        member = groups == number
        spread = measured.spread[member]
        rows.append(
            MechanismRow(
                label=row.label,
                texts=row.texts,
                **_attention(measured.attention, member),
                high_frequency=mean_estimate(spread),
                concentration_ratio=mean_estimate(spread / measured.mean_square[member]),
                words=words[number],
            )
        )
    seen = line is not None and not np.isnan(line.slope)
    return LengthMechanism(
        rows=tuple(rows),
        model_slope=profile.slope,
        words_slope=line.slope if seen and line is not None else None,
        words_interval=line.interval if seen and line is not None else None,
        notes=measured.notes,
    )


def _attention(numbers: AttentionNumbers | None, member: Array) -> dict[str, Estimate]:
    names = ("sigma_a", "bound", "frobenius", "score_variance", "bound_fails")
    if numbers is None:
        return dict.fromkeys(names, _NOTHING)
    values = {name: getattr(numbers, name)[member] for name in names[:-1]}
    values["bound_fails"] = np.where(
        np.isnan(values["sigma_a"]), np.nan, (values["sigma_a"] > values["bound"]).astype(np.float64)
    )
    return {name: mean_estimate(_over_heads(found)) for name, found in values.items()}


def _over_heads(values: Array) -> Array:
    """Mean over heads of the texts that have the number (more than one token)."""
    return np.asarray(values[np.isfinite(values).all(axis=1)].mean(axis=1))


def _change(first: Estimate, last: Estimate) -> str:
    return f"{first.value:.3g} → {last.value:.3g}"
