"""Pairs that a search by averages may confuse, and how much of their difference the averages do not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from poolscope.charts import COLOURS, dots, panel
from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.scores import MOST_TEXTS, ScoreDistribution, score_distribution
from poolscope.metrics.socm.floor import sampling_floors
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import over_trace, token_contributions
from poolscope.metrics.socm.result import PAIR_WORDS, PairColumns, SocmResult
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, dyadic_interval, share_estimate
from poolscope.numbers.moments import text_moments
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import pair_marks, smallest, text_marks
from poolscope.results import Result, bulk, column_rows, origin, provenance, transient
from poolscope.surface import as_array
from poolscope.texts.groups import first_of_equal

# Confusable pairs that are measured: of more a draw.
MOST_ALIKE = 400
# Fewer pairs than this have a list, but no mean that says anything of others.
FEWEST_ALIKE = 10
# How many worst pairs one text may stand in.
EACH = 3
# From this hidden share on most of the difference of two texts is nothing that their averages see.
DIFFERENT = 0.5
# Tokens of each text that are named as those where two clouds differ.
_NAMED, _TELLING = 4, 0.005
Names = Callable[[Sequence[int]], Sequence[str]]  # of ids of tokens


@dataclass(frozen=True)
class ConfusedPair:
    """Two texts that a search may confuse, and where their clouds differ: the tokens of each that add most to d_Σ.

    `differs_i` and `differs_j` name these tokens, by their place in the text where their names are not known, each with
    its share of what all tokens of both texts add.
    """

    i: int
    j: int
    id_i: str
    id_j: str
    cosine: float
    d_sigma_bounded: float
    d_sigma_floor: float
    hidden: float
    socm: float
    differs_i: tuple[tuple[str, float], ...]
    differs_j: tuple[tuple[str, float], ...]
    text_i: str | None
    text_j: str | None

    @property
    def where(self) -> str:
        """The tokens of both texts where their clouds differ, in one line."""
        sides = [" ".join(f"{name} {share:.0%}" for name, share in side) for side in (self.differs_i, self.differs_j)]
        return f"A: {sides[0] or 'none'}; B: {sides[1] or 'none'}"


@dataclass(frozen=True, repr=False, kw_only=True)
class Confusion(Result):
    """Pairs of texts that a search is most likely to confuse, and what their averages hide.

    `count` pairs of `texts` texts look alike: their cosine reaches `cut_off`, which a share `false_hits` of the pairs
    of different `documents` reaches (of random pairs, where documents are None; without pairs enough, `placed` is false
    and it is the highest score seen; more reach it where many have that very score), or queries confuse them (then
    `cut_off` is None). `compared` counts the pairs that they are among. Of many a draw is measured.
    `share` is the mean hidden share: the part of W₂² that the means do not see, after what one text gives against
    itself is taken off. Of each pair there are `cosine`, `bounded` (d_Σ on the scale from 0 to 1), `floors` (what one
    text gives against itself, on that scale) and `hidden`.
    """

    kind: str
    texts: int
    documents: int | None
    cut_off: float | None
    placed: bool
    count: int = field(metadata={"key": "pairs"})
    share: Estimate
    false_hits: float | None = None
    compared: int | None = None
    provenance: Mapping[str, Any] = origin()
    columns: PairColumns = bulk(required=True)
    cosine: Array = bulk(required=True)
    bounded: Array = bulk(required=True)
    floors: Array = bulk(required=True)
    hidden: Array = bulk(required=True)
    clouds: TokenClouds | None = transient()

    def __len__(self) -> int:
        return len(self.hidden)

    def __repr__(self) -> str:
        return f"Confusion({self.count:,} pairs, {len(self):,} measured, hidden share {self.share})"

    def headline(self) -> dict[str, Any]:
        """How many pairs of how many texts, from which cosine on, and what is hidden."""
        cut_off = {} if self.cut_off is None else {"cut_off": self.cut_off}
        return {"texts": self.texts, "count": self.count, **cut_off, "share": self.share}

    field_words: ClassVar[Mapping[str, str]] = {
        "count": "pairs that look alike",
        "cut_off": "from the cosine",
        "share": "hidden share",
    }
    column_words = PAIR_WORDS

    @property
    def pairs(self) -> Index:
        """The positions of the texts of the pairs that were measured (m × 2)."""
        return np.stack([self.columns.i, self.columns.j], axis=1)

    @property
    def enough(self) -> bool:
        """Are there pairs enough for a mean?"""
        return len(self) >= FEWEST_ALIKE

    def seen(self) -> tuple[str, ...]:
        """How many pairs look alike, and how much of their difference averages miss."""
        different = "" if self.documents is None else " of different documents"
        likely = f"whose mean vectors are nearest ({self.count:,}) are those that a search is most likely to confuse."
        if self.cut_off is None:
            pairs = "1 pair" if self.count == 1 else f"{self.count:,} pairs"
            alike = f"Queries rank a wrong text before a relevant one in {pairs}."
        elif self.compared is not None and self.count == self.compared:
            alike = f"All {self.count:,} pairs{different} have mean vectors that are equally near."
        elif self.placed and self.false_hits is not None:
            share = self.false_hits
            if self.compared and self.count > 1 + self.false_hits * self.compared:  # all that tie at the cut-off
                share = self.count / self.compared
            alike = f"The {100 * share:.3g} % of pairs{different} {likely}"
        else:
            alike = f"The pairs{different} {likely}"
        if not self.enough or self.share.value is None:
            return (f"{alike} That is too few to say what averages hide.",)
        return (f"{alike} Averages miss up to {self.share.value:.0%} of what their tokens differ in.",)

    def figure(self) -> Any:
        """The cosine of each pair, and the share of its difference that the means do not see."""
        hover = "cosine %{x:.3f}, hidden %{y:.0%}<extra></extra>"
        return panel(
            dots(self.cosine, self.hidden, "pairs", COLOURS[0], hover, showlegend=False),
            title="What averages hide of pairs that look alike",
            across="cosine of the means",
            along="share that the means do not see",
            height=440,
            y={"tickformat": ".0%"},
        )

    def collapse_rate(self, threshold: float = DIFFERENT) -> Estimate:
        """Of the pairs that look alike, the share that differs: with a hidden share of `threshold` or more."""
        if not (isinstance(threshold, int | float) and np.isfinite(threshold)):
            raise InputError(f"threshold: received {threshold!r}; allowed is a finite number. Pass one, such as 0.5.")
        differs = (self.hidden >= threshold).astype(float)
        if not self.enough:
            return Estimate(float(differs.mean()) if len(differs) else None)
        clustered = dyadic_interval(differs, self.columns.i, self.columns.j, crossed=False)
        wilson = share_estimate(differs, unit="texts").interval
        if clustered is None or wilson is None:
            return Estimate(float(differs.mean()))
        ends = max(0.0, min(clustered.low, wilson.low)), min(1.0, max(clustered.high, wilson.high))
        method = "wider of Wilson and clustered by text (dyadic)"
        return Estimate(float(differs.mean()), replace(clustered, low=ends[0], high=ends[1], method=method))

    def ranked(self, most: int, *, each: int = EACH) -> Index:
        """Rows of the pairs whose d_Σ, from 0 to 1, exceeds its floor most; a text stands in `each` of them at most."""
        order = np.argsort(self.floors - self.bounded, kind="stable")
        return few_a_text(self.pairs, order, most=whole_number(most, "worst"), each=each)

    def worst(self, k: int = 10, *, names: Names | None = None) -> list[ConfusedPair]:
        """The k pairs that differ most, with their texts and the tokens where they do; `names` names ids of tokens."""
        if self.clouds is None:
            raise InputError("worst: a result that was read from a file has no clouds. Measure again.")
        return [self._described(int(row), self.clouds, names) for row in self.ranked(k)]

    def _described(self, row: int, clouds: TokenClouds, names: Names | None) -> ConfusedPair:
        i, j = self.pairs[row].tolist()
        adds = token_contributions(clouds[i], clouds[j])
        total = float(adds[0].sum() + adds[1].sum())
        return ConfusedPair(
            i=i,
            j=j,
            id_i=clouds.ids[i],
            id_j=clouds.ids[j],
            cosine=float(self.cosine[row]),
            d_sigma_bounded=float(self.bounded[row]),
            d_sigma_floor=float(self.floors[row]),
            hidden=float(self.hidden[row]),
            socm=float(self.columns.socm[row]),
            differs_i=_telling(adds[0], total, _token_names(clouds, i, names)),
            differs_j=_telling(adds[1], total, _token_names(clouds, j, names)),
            text_i=None if clouds.texts is None else clouds.texts[i],
            text_j=None if clouds.texts is None else clouds.texts[j],
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair that was measured."""
        return column_rows(
            i=self.columns.i,
            j=self.columns.j,
            cosine=self.cosine,
            d_mu=self.columns.mean_distance,
            d_sigma=self.columns.covariance_distance,
            d_sigma_bounded=self.bounded,
            d_sigma_floor=self.floors,
            hidden=self.hidden,
        )


def _token_names(clouds: TokenClouds, text: int, names: Names | None) -> Sequence[str]:
    """The names of the tokens of a text, or their places counted from 1."""
    ids = None if names is None else clouds.token_ids(text)
    if names is None or ids is None:
        return [f"position {place}" for place in range(1, int(clouds.lengths[text]) + 1)]
    return names(ids.tolist())


def _telling(adds: Array, total: float, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """The tokens, each name once, that add most to BW², with the share of it that they add; half a percent or more."""
    sums: dict[str, float] = {}
    for name, part in zip(names, adds.tolist(), strict=True):
        word = name.strip("▁Ġ ").removeprefix("##") or name  # with and without the mark of a word's beginning or end
        sums[word] = sums.get(word, 0.0) + part
    most = sorted(sums.items(), key=lambda item: -item[1])[:_NAMED]
    return tuple((word, part / total) for word, part in most if total > 0 and part >= _TELLING * total)


def confusion(
    clouds: TokenClouds,
    *,
    groups: ArrayLike | None = None,
    false_hits: float = 0.01,
    most: int = MOST_ALIKE,
    seed: int = 0,
) -> Confusion:
    """The pairs of texts that a search by averages may confuse, and what the averages hide of their difference.

    Two texts are confusable where their cosine reaches the cut-off of unrelated pairs and they are of different groups.
    Texts that repeat another but for letter case and blanks are left out.

    Parameters
    ----------
    clouds : TokenClouds
        The token clouds of the texts.
    groups : list, optional
        The document of each text. Without it pairs of one document are among those that look alike.
    false_hits : float
        The share of unrelated pairs that reaches the cut-off.
    most : int
        Of more confusable pairs that many are drawn.
    seed : int
        Of the draws of texts (of more than 2,000), of pairs, and of tokens for the floor: by the words of the texts (or
        their vectors), so that their order is no matter.

    Returns
    -------
    Confusion
        The pairs, their hidden share and the collapse rate.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> clouds = TokenClouds.from_arrays([1 + scale * random.normal(size=(30, 8)) for scale in (0.2, 2.0) * 20])
    >>> alike = confusion(clouds, false_hits=0.1)
    >>> alike.count, len(alike.worst(5))
    (78, 5)

    """
    check_clouds(clouds, "confusion")
    most, seed = whole_number(most, "most"), whole_number(seed, "seed", least=0)
    texts = different_texts(clouds)
    if len(texts) < 3:
        raise InputError(f"confusion: received {len(texts)} different texts; needed: three or more. Pass more texts.")
    groups = None if groups is None else as_array(groups, "groups")
    if groups is not None and np.shape(groups) != (len(clouds),):
        raise InputError(f"groups: received shape {np.shape(groups)} for {len(clouds)} texts; needed: one for each.")
    marks = text_marks(clouds, texts, seed=seed)
    if len(texts) > MOST_TEXTS:
        chosen = smallest(marks, MOST_TEXTS)
        texts, marks = texts[chosen], marks[chosen]
    members = None if groups is None else np.asarray(groups)[texts]
    vectors = text_moments(clouds, texts).unit_means
    scores = score_distribution(vectors, groups=members, false_hits=false_hits, seed=seed)
    alike = confusable_pairs(vectors, scores.cut_off.known, groups=members)
    drawn = draw_pairs(alike, marks, most)
    if not len(drawn):
        empty, none = np.zeros(0), np.zeros(0, np.int64)
        nothing: dict[str, Any] = dict.fromkeys(("cosine", "bounded", "floors", "hidden"), empty)
        return Confusion(
            **_of_scores(scores),
            count=0,
            share=Estimate(None),
            provenance=provenance(settings={"false_hits": false_hits, "most": most, "seed": seed}),
            columns=PairColumns(none, none, empty, empty, empty),
            **nothing,
        )
    result = socm(clouds, pairs=texts[drawn])
    cosine = np.einsum("nd,nd->n", vectors[drawn[:, 0]], vectors[drawn[:, 1]])
    return confusion_of(clouds, result, cosine, scores=scores, count=len(alike), seed=seed)


def different_texts(clouds: TokenClouds) -> Index:
    """Positions of the texts that equal no earlier one but for letter case and blanks."""
    return np.arange(len(clouds)) if clouds.texts is None else np.unique(first_of_equal(list(clouds.texts)))


def confusion_of(
    clouds: TokenClouds,
    result: SocmResult,
    cosine: Array,
    *,
    scores: ScoreDistribution | None,
    count: int | None = None,
    seed: int = 0,
) -> Confusion:
    """What averages hide of pairs whose distances are measured, the sampling floor of both texts taken off.

    `scores` gave the cut-off; None where queries confuse the pairs. `count`: of so many these were drawn.
    """
    pairs = result.kept()
    texts, places = np.unique(np.stack([pairs.i, pairs.j]), return_inverse=True)
    places = places.reshape(2, -1)
    floors = sampling_floors(clouds, texts, seed=seed).covariance_distance[places].mean(axis=0)
    traces = text_moments(clouds, texts).traces[places].sum(axis=0)
    hidden = hidden_share(pairs.mean_distance, pairs.covariance_distance, floors)
    bounded, own = (over_trace(part, traces) for part in (pairs.covariance_distance, floors))
    interval = dyadic_interval(hidden, pairs.i, pairs.j, crossed=False)
    named = {"kind": result.kind, "texts": len(texts), "documents": None, "cut_off": None, "placed": True}
    return Confusion(
        **(named if scores is None else _of_scores(scores)),
        count=len(pairs) if count is None else count,
        share=Estimate(float(hidden.mean()), interval, floor=0.0),
        provenance=result.provenance,
        columns=pairs,
        cosine=np.asarray(cosine, dtype=np.float64),
        bounded=bounded,
        floors=own,
        hidden=hidden,
        clouds=clouds,
    )


def _of_scores(scores: ScoreDistribution) -> dict[str, Any]:
    """What the scores of all pairs say of those that look alike."""
    named = {"kind": "confusable pairs", "texts": scores.texts, "documents": scores.documents}
    named |= {"cut_off": scores.cut_off.known, "placed": scores.placed, "false_hits": scores.false_hits}
    return {**named, "compared": scores.pairs}


def draw_pairs(pairs: Index, marks: Index, most: int) -> Index:
    """At most so many of the pairs, in their order, by the marks of their texts."""
    return pairs if len(pairs) <= most else pairs[smallest(pair_marks(*marks[pairs.T]), most)]


def confusable_pairs(vectors: ArrayLike, cut_off: float, *, groups: ArrayLike | None = None) -> Index:
    """The pairs (m × 2) of different groups whose cosine reaches the cut-off.

    >>> confusable_pairs([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]], 0.9, groups=["a", "a", "b", "b"]).tolist()
    [[0, 2], [1, 2]]
    """
    unit = unit_rows(vectors, "vectors")
    alike = np.triu(unit @ unit.T >= cut_off, 1)
    if groups is not None:
        members = np.asarray(groups)
        alike &= members[:, None] != members
    return np.argwhere(alike)


def hidden_share(mean_distance: Array, covariance_distance: Array, floor: Array) -> Array:
    """(d_Σ − f)/(d_μ + d_Σ − f), the part of W₂² that the means do not see, after the sampling floor f; at least 0.

    It stays the same under a change of scale of all tokens. It is an upper bound: tokens drawn anew from a few stay in
    their span, so that f takes off less than sampling gives. Two clouds of one distribution in 12 dimensions, their
    means moved, had a share of 0.67 at 10 tokens, 0.18 at 40 and 0.03 at 150.

    >>> hidden_share(np.array([0.1, 0.1]), np.array([0.4, 0.05]), np.array([0.1, 0.1]))
    array([0.75, 0.  ])
    """
    beyond = np.maximum(covariance_distance - floor, 0.0)
    whole = mean_distance + beyond
    return np.divide(beyond, whole, out=np.zeros_like(beyond), where=whole > 0)


def few_a_text(pairs: Index, order: Index, *, most: int, each: int) -> Index:
    """The first `most` rows of `pairs` in this order that use no text more than `each` times.

    >>> few_a_text(np.array([[0, 1], [0, 2], [1, 2]]), np.array([2, 0, 1]), most=3, each=1).tolist()
    [2]
    """
    used: dict[int, int] = {}
    rows: list[int] = []
    for row in order.tolist():
        texts = pairs[row].tolist()
        if len(rows) < most and all(used.get(text, 0) < each for text in texts):
            rows.append(row)
            used |= {text: used.get(text, 0) + 1 for text in texts}
    return np.array(rows, dtype=np.int64)
