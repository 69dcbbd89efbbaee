"""One word in a sentence: does the mean tell a change of meaning from a change of words, and do the tokens?

A sentence s, a change c of its meaning and a control k that means the same, all made by rule (`texts/fine_pairs.py`).
A score tells them apart where score(s, k) > score(s, c); equal scores count half, so chance is one half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress
from poolscope.encoders.capabilities import vocabulary_of
from poolscope.errors import InputError, require
from poolscope.evaluation.scores import Difference
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, Units, paired_difference, share_estimate
from poolscope.numbers.maxsim import UnitTokens, ordinary_tokens, unit_tokens
from poolscope.numbers.moments import text_moments
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import COLOURS, GREY, error_bars, style
from poolscope.texts.fine_pairs import CONTROLS, FinePair, fine_pairs

ALL = "all"


@dataclass(frozen=True)
class FineScore:
    """The shares told apart by the mean and by the tokens, of one change against one control ("all": mean over them).

    `gain`: tokens minus mean, over the same sentences.
    """

    change: str
    control: str
    sentences: int
    by_mean: Estimate
    by_tokens: Estimate
    gain: Difference


@dataclass(frozen=True, repr=False, kw_only=True)
class FineGrained(Result):
    """How often a model tells a change of meaning from a change of words; one row a change and control."""

    model: str
    sentences: int
    scores: tuple[FineScore, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    def __getitem__(self, key: tuple[str, str]) -> FineScore:
        """The score of a change against a control; "all" for either."""
        for score in self.scores:
            if (score.change, score.control) == key:
                return score
        raise InputError(f"received {key!r}; measured: {', '.join(f'{s.change}/{s.control}' for s in self.scores)}.")

    def headline(self) -> dict[str, Any]:
        """Sentences, and the shares over all changes and controls."""
        whole = self[ALL, ALL]
        return {"sentences": self.sentences, "by_mean": whole.by_mean, "by_tokens": whole.by_tokens}

    def in_words(self) -> tuple[str, ...]:
        """How often the mean and the tokens tell the two apart, and that the sentences are made by rule."""
        whole = self[ALL, ALL]
        mean, tokens = (side.value or 0.0 for side in (whole.by_mean, whole.by_tokens))
        often = "more often" if whole.gain.proves_gain else "less often" if whole.gain.proves_loss else "as often"
        beyond = "" if whole.gain.proves_gain or whole.gain.proves_loss else ", within chance"
        return (
            f"The mean tells a change of meaning from a change of words in {mean:.0%} of the cases (50% by chance).",
            f"The tokens do so {often}{beyond}: {tokens:.0%}.",
            f"The {self.sentences} sentences and their changes are made by rule; nobody has read them.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a change and control."""
        return [
            cells({"change": each.change, "control": each.control, "sentences": each.sentences})
            | cells({"by_mean": each.by_mean, "by_tokens": each.by_tokens, "gain": each.gain.change})
            for each in self.scores
        ]

    def figure(self) -> Any:
        """Shares told apart by the mean and by the tokens, one row a change."""
        go = require("plotly.graph_objects", "report")
        rows = [score for score in self.scores if score.control == ALL]
        figure = go.Figure()
        for name, colour, values in (
            ("by the mean", GREY, [score.by_mean for score in rows]),
            ("by the tokens", COLOURS[0], [score.by_tokens for score in rows]),
        ):
            figure.add_scatter(
                x=[value.value for value in values],
                y=[score.change for score in rows],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 10},
                error_x=error_bars(values, colour),
            )
        figure.add_vline(0.5, line={"color": GREY, "dash": "dash", "width": 1})
        figure = style(figure, title="A change of meaning told from a change of words", width=860, height=420)
        figure.update_xaxes(title_text="share told apart (dashed: chance)", tickformat=".0%")
        figure.update_yaxes(autorange="reversed", automargin=True)
        return figure


def fine_grained(
    model: Any, pairs: Sequence[FinePair] | None = None, *, progress: Progress | None = None, **options: Any
) -> FineGrained:
    """How often the mean, and how often the tokens, put a control nearer to a sentence than a change of its meaning.

    Parameters
    ----------
    model
        A model as `as_encoder` takes it; its tokens are averaged.
    pairs : sequence of FinePair, optional
        By default 60 sentences of the built-in texts for each of five changes, made by rule.
    progress : callable, optional
        Called with texts and tokens while encoding.
    **options
        Those of `as_encoder`.

    Returns
    -------
    FineGrained
        Tokens are compared by MaxSim in both directions, special tokens left out.

    Examples
    --------
    >>> letters = lambda texts: [[[float(c == letter) + 0.1 for letter in "abcd"] for c in text] for text in texts]
    >>> found = fine_grained(letters, [FinePair("ab", "negation", "ad", {"case": "ba"})] * 12)
    >>> found["negation", "case"].by_mean.value
    1.0

    """
    chosen = fine_pairs() if pairs is None else tuple(pairs)
    if not chosen:
        raise InputError("pairs: received none; needed: one or more. Leave the argument out for those of the package.")
    texts = list(
        dict.fromkeys(text for pair in chosen for text in (pair.sentence, pair.changed, *pair.controls.values()))
    )
    place = {text: k for k, text in enumerate(texts)}
    encoder = as_encoder(model, **options)
    clouds = encoder.encode(texts, progress=progress)[-1]
    vocabulary = vocabulary_of(encoder)
    special = frozenset[int]() if vocabulary is None else vocabulary.special_ids
    both = _Scores.of(clouds, special)
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for pair in chosen:
        changed = both.of_pair(place[pair.sentence], place[pair.changed])
        for name, control in pair.controls.items():
            unchanged = both.of_pair(place[pair.sentence], place[control])
            rows.setdefault((pair.change, name), []).append((place[pair.sentence], *_told_apart(unchanged, changed)))
    return FineGrained(
        model=encoder.card.name,
        sentences=len(chosen),
        scores=tuple(_summaries({key: np.array(values) for key, values in rows.items()})),
        provenance=provenance(clouds, settings={"pairs": "built in" if pairs is None else "given"}),
    )


def _told_apart(unchanged: tuple[float, float], changed: tuple[float, float]) -> tuple[float, float]:
    """1, 0 or, where both are equal, 1/2, by the mean and by the tokens."""
    mean, tokens = (0.5 if abs(a - b) < 1e-6 else float(a > b) for a, b in zip(unchanged, changed, strict=True))
    return mean, tokens


def _summaries(rows: Mapping[tuple[str, str], Array]) -> list[FineScore]:
    """Each change against each control and against all; then all changes. The first column numbers the sentences."""
    changes = list(dict.fromkeys(change for change, _ in rows))
    controls = [name for name in CONTROLS if any(control == name for _, control in rows)]
    controls += [name for name in dict.fromkeys(control for _, control in rows) if name not in controls]
    scores = []
    for change in (*changes, ALL):
        parts = {name: [rows[key] for key in rows if key[1] == name and change in (key[0], ALL)] for name in controls}
        tables = {name: np.concatenate(part) for name, part in parts.items() if part}
        scores += [_summary(change, name, table) for name, table in tables.items()]
        if len({len(table) for table in tables.values()}) == 1:  # a sentence has all controls: its share over them
            scores.append(_summary(change, ALL, np.mean(list(tables.values()), axis=0)))
    return scores


def _summary(change: str, control: str, table: Array) -> FineScore:
    sentences, by_mean, by_tokens = table.T
    units = Units("sentences", np.unique(sentences, return_inverse=True)[1].ravel())  # one may be changed in many ways
    mean, tokens = (share_estimate(side, units=units) for side in (by_mean, by_tokens))
    gain = paired_difference(by_mean, by_tokens, units)
    told = Difference(gain.change, "score", gain.unit, gain.units, gain.changed, gain.p_value, gain.smallest_gain)
    return FineScore(change, control, len(table), mean, tokens, told)


@dataclass(frozen=True)
class _Scores:
    """Means and tokens at unit length."""

    means: Array
    tokens: UnitTokens

    @classmethod
    def of(cls, clouds: TokenClouds, special: frozenset[int]) -> _Scores:
        means = text_moments(clouds).unit_means
        return cls(means, unit_tokens(clouds, tokens=ordinary_tokens(clouds, special)))

    def of_pair(self, first: int, second: int) -> tuple[float, float]:
        """The cosine of the means, and MaxSim averaged over both directions."""
        a, b = (self.tokens.floats(k, k + 1) for k in (first, second))
        cosines = a @ b.T
        chamfer = (cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2
        return float(self.means[first] @ self.means[second]), float(chamfer)
