"""Why long texts look alike, from one pass over them: last-layer attention, deviations of the tokens, the words.

σₐ and its bound: Zhou et al. (ACL 2025). On real models σₐ was seen to grow with the length while ‖PA‖_F²/(n − 1)
shrinks, so both stand beside the bound, and the result says where the bound fails. No token outlives its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import ModelCard, Progress, TokenEncoder, as_encoder
from poolscope.encoders.base import check_texts
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import InputError, ModelError
from poolscope.metrics.length.bins import TOKENS, LengthPart, Panel, Series, row_panels
from poolscope.metrics.length.profile import LengthProfile, bin_slope
from poolscope.numbers import Array, Index
from poolscope.numbers.cosines import grouped_cosines
from poolscope.numbers.intervals import Estimate, chosen_units, mean_estimate
from poolscope.numbers.moments import cloud_moments
from poolscope.numbers.ranking import unit_rows

_COLUMNS = ("vectors", "lengths", "truncated", "spread", "mean_square")  # of every text, whatever the model shows


@dataclass(frozen=True)
class AttentionNumbers:
    """The attention of the last layer, per text and head (texts × heads); NaN for a text of one token.

    sigma_a: ‖PA‖₂; frobenius: ‖PA‖_F²/(n − 1); score_variance: variance of the attention scores within a row, mean over
    rows; bound: the published bound of σₐ for that length and variance.
    """

    sigma_a: Array
    frobenius: Array
    score_variance: Array
    bound: Array


@dataclass(frozen=True)
class MeasuredTexts:
    """What one pass gives for every text.

    vectors (N × d): one a text, pooled as the model declares (`pooling_notes`; none for the mean); lengths: tokens that
    attend to each other; truncated: tokens cut off; spread and mean_square: S(X) and ‖μ(X)‖² of the pooled tokens;
    words (N × d'): plain averages of the input word embeddings, special tokens left out. `attention` and `words` are
    None where the model does not show them; `notes` says why.
    """

    card: ModelCard
    vectors: Array = field(repr=False)
    lengths: Index = field(repr=False)
    truncated: Index = field(repr=False)
    spread: Array = field(repr=False)
    mean_square: Array = field(repr=False)
    attention: AttentionNumbers | None = field(default=None, repr=False)
    words: Array | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    pooling_notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """How many tokens were read."""
        return int(self.lengths.sum())

    def take(self, chosen: Index | NDArray[np.bool_]) -> MeasuredTexts:
        """Only these texts."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        attention = None
        if self.attention is not None:
            own = (getattr(self.attention, each.name) for each in fields(self.attention))
            attention = AttentionNumbers(*(column[chosen] for column in own))
        words = None if self.words is None else self.words[chosen]
        return replace(self, **columns, attention=attention, words=words)

    def joined(self, other: MeasuredTexts) -> MeasuredTexts:
        """Join the texts of two passes of the same model."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS
        }
        attention, words = None, None
        if self.attention is not None and other.attention is not None:
            both = [[getattr(part, each.name) for each in fields(part)] for part in (self.attention, other.attention)]
            attention = AttentionNumbers(*(np.concatenate(column) for column in zip(*both, strict=True)))
        if self.words is not None and other.words is not None:
            words = np.concatenate([self.words, other.words])
        notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        return replace(self, **columns, attention=attention, words=words, notes=notes)


def measure_texts(
    model: Any, texts: Sequence[str], *, progress: Progress | None = None, **options: Any
) -> MeasuredTexts:
    """Vectors, lengths, spreads, last-layer attention and averages of input embeddings, from one pass.

    `model` is anything `as_encoder` takes. A model whose attention cannot be watched (ONNX, static tables, functions,
    ready clouds) is encoded as usual, and the result says what is missing.
    """
    from poolscope.lab.length.attention import measure_attention

    checked = check_texts(texts)
    encoder = as_encoder(model, **options)
    try:
        measured = measure_attention(encoder, checked, progress)
    except ModelError as error:  # an architecture that capture does not know
        measured = _of_clouds(encoder, encoder.encode(checked, progress=progress)[-1])
        return replace(measured, notes=(f"The attention was not measured. {error}", *measured.notes))
    return measured


def _of_clouds(encoder: TokenEncoder, clouds: TokenClouds) -> MeasuredTexts:
    """Measure ready clouds, without attention; a static table is its own input embedding."""
    pooling, parts = TextPooling.of(encoder), []
    for block in clouds.blocks():
        moments = cloud_moments(block.tokens, block.offsets)
        parts.append((pooling.vectors(block.tokens, block.offsets), moments.spread, moments.mean_square))
    vectors, spread, mean_square = (np.concatenate(part) for part in zip(*parts, strict=True))
    static = encoder.card.kind == "static"
    notes = () if static else ("The model shows no table of input word embeddings to average.",)
    return MeasuredTexts(
        card=encoder.card,
        vectors=vectors,
        lengths=clouds.lengths,
        truncated=clouds.truncated.astype(np.int64),
        spread=spread,
        mean_square=mean_square,
        words=vectors if static else None,
        notes=notes,
        pooling_notes=pooling.notes,
    )


# -- by bin -------------------------------------------------------------------------------------------------------

_NOTHING = Estimate(None)


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


@dataclass(frozen=True, repr=False)
class LengthMechanism(LengthPart):
    """The mechanism by bin, and the slope of the cosine for averages of input embeddings beside that of the model."""

    bins: tuple[MechanismRow, ...]
    model_slope: Estimate
    words_slope: Estimate
    notes: tuple[str, ...]

    def figure_title(self) -> str:
        return "What the last layer does, by length"

    def panels(self) -> list[Panel]:
        """A panel for everything that the model shows; σₐ stands beside its bound."""
        labels = [row.label for row in self.bins]
        shown = {
            "sigma_a": ("Largest singular value of PA", "σ<sub>a</sub>, last layer"),
            "frobenius": ("What attention leaves", "‖PA‖²/(n − 1), last layer"),
            "high_frequency": ("Deviations of the tokens", "‖PX‖²/n"),
            "words": ("Plain averages of input words", "mean pairwise cosine"),
        }
        sigma, *others, words = row_panels(self.bins, labels, TOKENS, shown)
        bound = Series("published bound", labels, [row.bound for row in self.bins], 1, "dash")
        sigma = replace(sigma, series=[*sigma.series, bound])
        words = replace(words, series=[replace(words.series[0], name="input words")])
        panels = [sigma, *others, words]
        return [panel for panel in panels if any(value.value is not None for value in panel.series[0].values)]

    def derived(self) -> dict[str, Any]:
        """What was measured, in words."""
        return {"sentences": list(self.in_words())}

    def in_words(self) -> tuple[str, ...]:
        """What was measured, in words."""
        words = []
        if self.words_slope.value is not None and self.model_slope.value is not None:
            words.append(
                f"Plain averages of the input word embeddings have the slope {self.words_slope.value:+z.3f} per "
                f"doubling, the model's vectors {self.model_slope.value:+z.3f}."
            )
        seen = [row for row in self.bins if row.sigma_a.value is not None]
        if len(seen) > 1:
            first, last = seen[0], seen[-1]
            words.append(
                f"Last layer, {first.label} → {last.label}: σₐ {_change(first.sigma_a, last.sigma_a)} (bound "
                f"{_change(first.bound, last.bound)}), ‖PA‖²/(n − 1) {_change(first.frobenius, last.frobenius)}."
            )
            fails = np.average([row.bound_fails.value or 0.0 for row in seen], weights=[row.texts for row in seen])
            words.append(
                f"The published bound of σₐ fails for {fails:.0%} of texts × heads."
                if fails > 0
                else "The published bound of σₐ holds for every text and head."
            )
        return (*words, *self.notes)


def length_mechanism(
    measured: MeasuredTexts, profile: LengthProfile, documents: Sequence[Any] | None = None
) -> LengthMechanism:
    """What a pass saw, by the bins of the profile of the same texts; `documents`: that of each text, where known."""
    groups, count = profile.assignment, len(profile.bins)
    if groups is None or len(groups) != len(measured.lengths):
        raise InputError(
            f"received a profile of {0 if groups is None else len(groups)} texts and a pass over "
            f"{len(measured.lengths)}; both must be of the same texts. Make the profile from the vectors of the pass."
        )
    words, words_slope = [_NOTHING] * count, _NOTHING
    units = chosen_units(len(groups), documents)
    if measured.words is not None:
        cosines = grouped_cosines(unit_rows(measured.words, "averages of input embeddings"), groups, count, units)
        words = [cosine.estimate for cosine in cosines]
        words_slope = bin_slope(cosines, np.log2(np.maximum(measured.lengths, 1)), groups, units)
    rows = []
    for number, row in enumerate(profile.bins):
        member = groups == number
        spread = measured.spread[member]
        rows.append(
            MechanismRow(
                label=row.label,
                texts=row.texts,
                **_attention(measured.attention, member, units.of),
                high_frequency=mean_estimate(spread, units.of[member]),
                concentration_ratio=mean_estimate(spread / measured.mean_square[member], units.of[member]),
                words=words[number],
            )
        )
    return LengthMechanism(tuple(rows), profile.slope, words_slope, measured.notes)


def _attention(measured: AttentionNumbers | None, member: NDArray[np.bool_], units: Index) -> dict[str, Estimate]:
    names = ("sigma_a", "bound", "frobenius", "score_variance", "bound_fails")
    if measured is None:
        return dict.fromkeys(names, _NOTHING)
    values = {name: getattr(measured, name)[member] for name in names[:-1]}
    values["bound_fails"] = np.where(
        np.isnan(values["sigma_a"]), np.nan, (values["sigma_a"] > values["bound"]).astype(np.float64)
    )
    return {name: _over_heads(numbers, units[member]) for name, numbers in values.items()}


def _over_heads(values: Array, units: Index) -> Estimate:
    """Mean over heads of the texts that have the number (more than one token)."""
    known = np.isfinite(values).all(axis=1)
    return mean_estimate(values[known].mean(axis=1), units[known])


def _change(first: Estimate, last: Estimate) -> str:
    return f"{first.value:.3g} → {last.value:.3g}"
