"""Pairs that a search by averages may confuse, and whether their token clouds differ by more than chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from poolscope.clouds import TokenClouds, check_clouds
from poolscope.errors import InputError, whole_number
from poolscope.metrics.scores import MOST_TEXTS, ScoreDistribution, score_distribution
from poolscope.metrics.socm.floor import DealtColumns, dealt_pairs
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import over_trace, token_contributions
from poolscope.metrics.socm.result import PAIR_WORDS, PairColumns, SocmResult
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, Units, chosen_units, pair_estimate, share_estimate
from poolscope.numbers.moments import text_moments
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import pair_marks, smallest, text_marks
from poolscope.results import Result, bulk, column_rows, origin, provenance, transient
from poolscope.show.charts import COLOURS, dots, panel
from poolscope.surface import as_array
from poolscope.texts.groups import first_of_equal

# Confusable pairs that are measured: of more a draw.
MOST_ALIKE = 400
# Fewer pairs than this have a list, but no mean that says anything of others.
FEWEST_ALIKE = 10
# How many worst pairs one text may stand in.
EACH = 3
# Two clouds differ where at most this share of the deals of their tokens are as far apart, which chance gives as often.
DIFFERENT = 0.05
# Tokens of each text that are named as those where two clouds differ.
_NAMED, _TELLING = 4, 0.005
Names = Callable[[Sequence[int]], Sequence[str]]  # of ids of tokens


@dataclass(frozen=True)
class ConfusedPair:
    """Two texts that a search may confuse, and where their clouds differ: the tokens of each that add most to d_Σ.

    `differs_i` and `differs_j` name these tokens, by their place in the text where their names are not known, each with
    its share of what all tokens of both texts add. The floor of `d_sigma` is what dealing the same tokens gives.
    """

    i: int
    j: int
    id_i: str
    id_j: str
    cosine: float
    d_sigma: Estimate
    p: float
    d_sigma_bounded: float
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
    """Pairs of texts that a search is most likely to confuse, and how far their token clouds are apart.

    `count` pairs of `texts` texts look alike: their cosine reaches `cut_off`, which a share `false_hits` of the pairs
    of different `documents` reaches (of random pairs, where documents are None; without pairs enough, `placed` is false
    and it is the highest score seen; more reach it where many have that very score), or queries confuse them (then
    `cut_off` is None). `compared` counts the pairs that they are among. Of many a draw is measured.
    `d_sigma` is the mean of d_Σ over the pairs, with the mean of its permutation floors; `excess` the mean of what is
    beyond these; `differing` the share of the pairs whose p is 0.05 or less, which chance makes 5 %. Of each pair there
    are `cosine`, `bounded` (d_Σ on the scale from 0 to 1) and `dealt` (floor, range and p; see `permutation_floor`).
    """

    kind: str
    texts: int
    documents: int | None
    cut_off: float | None
    placed: bool
    count: int = field(metadata={"key": "pairs"})
    d_sigma: Estimate
    excess: Estimate
    differing: Estimate
    false_hits: float | None = None
    compared: int | None = None
    provenance: Mapping[str, Any] = origin()
    columns: PairColumns = bulk(required=True)
    cosine: Array = bulk(required=True)
    bounded: Array = bulk(required=True)
    dealt: DealtColumns = bulk(required=True)
    clouds: TokenClouds | None = transient()

    def __len__(self) -> int:
        return len(self.cosine)

    def __repr__(self) -> str:
        return f"Confusion({self.count:,} pairs, {len(self):,} measured, d_Σ {self.d_sigma})"

    def headline(self) -> dict[str, Any]:
        """How many pairs of how many texts, from which cosine on, and how far their clouds are apart."""
        cut_off = {} if self.cut_off is None else {"cut_off": self.cut_off}
        return {
            "texts": self.texts,
            "count": self.count,
            **cut_off,
            "d_sigma": self.d_sigma,
            "differing": self.differing,
        }

    field_words: ClassVar[Mapping[str, str]] = {
        "count": "pairs that look alike",
        "cut_off": "from the cosine",
        "d_sigma": "d_Σ, between the clouds",
        "excess": "d_Σ beyond chance",
        "differing": "pairs whose clouds differ",
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

    def in_words(self) -> tuple[str, ...]:
        """How many pairs look alike, and how many of them have clouds that differ."""
        different = "" if self.documents is None else " of different documents"
        likely = "have the nearest mean vectors, so a search may confuse them"
        pairs = "1 pair" if self.count == 1 else f"{self.count:,} pairs"
        if self.cut_off is None:
            alike = f"Queries rank a wrong text before a relevant one in {pairs}."
        elif self.compared is not None and self.count == self.compared:
            alike = f"All {self.count:,} pairs{different} have mean vectors that are equally near."
        elif self.placed and self.false_hits is not None:
            share = self.false_hits
            if self.compared and self.count > 1 + self.false_hits * self.compared:  # all that tie at the cut-off
                share = self.count / self.compared
            alike = f"{pairs}{different} ({100 * share:.3g}%) {likely}."
        else:
            alike = f"{pairs}{different} {likely}."
        if not self.enough or self.differing.value is None:
            return (alike, "That is too few pairs for a mean.")
        return (alike, f"The token clouds of {self.differing.value:.0%} of these pairs differ; by chance 5% would.")

    def figure(self) -> Any:
        """The cosine of each pair, and d_Σ over what chance gives."""
        hover = "cosine %{x:.3f}, %{y:.2f} times chance<extra></extra>"
        return panel(
            dots(self.cosine, self.over_chance, "pairs", COLOURS[0], hover, showlegend=False),
            title="How far the clouds of pairs that look alike are apart",
            across="cosine of the means",
            along="d_Σ, as a multiple of its permutation floor",
            height=440,
        )

    @property
    def over_chance(self) -> Array:
        """d_Σ of each pair as a multiple of its permutation floor; 1 where neither has any spread."""
        return _multiple(self.columns.covariance_distance, self.dealt.floor)

    def ranked(self, most: int, *, each: int = EACH) -> Index:
        """Rows of the pairs whose d_Σ is the largest multiple of the upper end of its deals; `each`: rows a text."""
        order = np.argsort(-_multiple(self.columns.covariance_distance, self.dealt.high), kind="stable")
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
            d_sigma=Estimate(
                float(self.columns.covariance_distance[row]),
                floor=float(self.dealt.floor[row]),
                floor_low=float(self.dealt.low[row]),
                floor_high=float(self.dealt.high[row]),
            ),
            p=float(self.dealt.p[row]),
            d_sigma_bounded=float(self.bounded[row]),
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
            d_sigma_floor=self.dealt.floor,
            d_sigma_low=self.dealt.low,
            d_sigma_high=self.dealt.high,
            p=self.dealt.p,
            d_sigma_bounded=self.bounded,
        )


def _multiple(distance: Array, chance: Array) -> Array:
    """A distance as a multiple of what chance gives; 1 where both are 0."""
    ratio = np.divide(distance, chance, out=np.full_like(distance, np.inf), where=chance > 0)
    return np.where((distance == 0) & (chance == 0), 1.0, ratio)


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
    """The pairs of texts that a search by averages may confuse, and whether their token clouds differ.

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
        Of the draws of texts (of more than 2,000), of pairs, and of the deals of tokens: by the words of the texts (or
        their vectors), so that their order is no matter.

    Returns
    -------
    Confusion
        The pairs, d_Σ beside what chance gives, and the share of them whose clouds differ.

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
    alike = confusable_pairs(vectors, scores.cut_off.value_or_raise, groups=members)
    drawn = draw_pairs(alike, marks, most)
    if not len(drawn):
        empty, none = np.zeros(0), np.zeros(0, np.int64)
        nothing: dict[str, Any] = dict.fromkeys(("cosine", "bounded"), empty)
        nothing |= dict.fromkeys(("d_sigma", "excess", "differing"), Estimate(None))
        return Confusion(
            **_of_scores(scores),
            count=0,
            provenance=provenance(settings={"false_hits": false_hits, "most": most, "seed": seed}),
            columns=PairColumns(none, none, empty, empty, empty),
            dealt=DealtColumns.empty(),
            **nothing,
        )
    result = socm(clouds, pairs=texts[drawn])
    cosine = np.einsum("nd,nd->n", vectors[drawn[:, 0]], vectors[drawn[:, 1]])
    units = chosen_units(len(clouds), groups)
    return confusion_of(clouds, result, cosine, units, scores=scores, count=len(alike), seed=seed)


def different_texts(clouds: TokenClouds) -> Index:
    """Positions of the texts that equal no earlier one but for letter case and blanks."""
    return np.arange(len(clouds)) if clouds.texts is None else np.unique(first_of_equal(list(clouds.texts)))


def confusion_of(
    clouds: TokenClouds,
    result: SocmResult,
    cosine: Array,
    units: Units,
    *,
    scores: ScoreDistribution | None,
    count: int | None = None,
    seed: int = 0,
) -> Confusion:
    """How far the clouds of pairs whose distances are measured are apart, beside their permutation floors.

    `scores` gave the cut-off; None where queries confuse the pairs. `count`: of so many these were drawn.
    """
    pairs = result.all_pairs()
    texts, places = np.unique(np.stack([pairs.i, pairs.j]), return_inverse=True)
    traces = text_moments(clouds, texts).traces[places.reshape(2, -1)].sum(axis=0)
    named = {"kind": result.kind, "texts": len(texts), "documents": None, "cut_off": None, "placed": True}
    _, dealt = dealt_pairs(clouds, np.stack([pairs.i, pairs.j], axis=1), seed=seed)
    return Confusion(
        **(named if scores is None else _of_scores(scores)),
        count=len(pairs) if count is None else count,
        d_sigma=_over_pairs(pairs.covariance_distance, pairs, units, floor=float(dealt.floor.mean())),
        excess=_over_pairs(pairs.covariance_distance - dealt.floor, pairs, units, floor=0.0),
        differing=_share_differing(dealt.p, pairs, units),
        provenance=result.provenance,
        columns=pairs,
        cosine=np.asarray(cosine, dtype=np.float64),
        bounded=over_trace(pairs.covariance_distance, traces),
        dealt=dealt,
        clouds=clouds,
    )


def _over_pairs(values: Array, pairs: PairColumns, units: Units, *, floor: float) -> Estimate:
    """The mean over pairs, clustered by unit; without an interval where there are too few."""
    return pair_estimate(values, units.of[pairs.i], units.of[pairs.j], floor=floor, unit=units.name)


def _share_differing(p: Array, pairs: PairColumns, units: Units) -> Estimate:
    """The share of the pairs whose clouds differ by more than chance, and what chance gives."""
    differs = (p <= DIFFERENT).astype(np.float64)
    estimate = _over_pairs(differs, pairs, units, floor=DIFFERENT)
    binomial = share_estimate(differs, each="texts").interval
    if estimate.interval is None or binomial is None:
        return estimate
    low, high = min(estimate.interval.low, binomial.low), max(estimate.interval.high, binomial.high)
    method = f"wider of Clopper-Pearson and {estimate.interval.method}"
    return replace(estimate, interval=replace(estimate.interval, low=max(0.0, low), high=min(1.0, high), method=method))


def _of_scores(scores: ScoreDistribution) -> dict[str, Any]:
    """Settings of confusable pairs: the score threshold and its counts."""
    named = {"kind": "confusable pairs", "texts": scores.texts, "documents": scores.documents}
    named |= {"cut_off": scores.cut_off.value_or_raise, "placed": scores.placed, "false_hits": scores.false_hits}
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
