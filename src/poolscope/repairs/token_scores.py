"""Ways to score a query and a text by the same token clouds, from one mean to all tokens, each with its price."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.tokens import Vocabulary, offsets_of
from poolscope.numbers import Array, Index
from poolscope.numbers.bures.pairs import given_pairs
from poolscope.numbers.maxsim import (
    STORAGES,
    UnitTokens,
    blend,
    first_candidates,
    maxsim,
    maxsim_of_candidates,
    ordinary_tokens,
    standardised,
    unit_tokens,
)
from poolscope.numbers.pooling import MeanPooling, SecondOrderPooling
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.transport import transport_cost
from poolscope.repairs.adaptive import PARTS, TOKEN_POOLINGS, AdaptivePooling, attended_tokens, pooled_tokens

Mask = NDArray[np.bool_]
_FLOAT = 4  # bytes of a number
# A token that stands in more of the texts than this tells few of them apart.
FREQUENT = 0.3
ROTATOR = "word rotator's distance"
# By this much, in standard deviations, texts that are no candidates follow those that are.
_BEHIND = 1e6


@dataclass(frozen=True)
class Way:
    """One way: its scores (queries × texts, or × candidates), bytes a text, products a query.

    `candidates`: the texts that were scored, the rest follow in the order of the mean; None for all. `adds_mean`:
    whether a blend has to store the mean beside it.
    """

    scores: Array
    bytes: float
    products: float
    candidates: Index | None = None
    adds_mean: bool = True

    def table(self, cosines: Array) -> Array:
        """Scores of all texts."""
        return self.scores if self.candidates is None else _in_front(self.candidates, self.scores, cosines)

    def blended(self, cosines: Array, weight: float) -> Array:
        """z(cosine) + weight · z(score) of all texts, z over the texts that were scored."""
        if self.candidates is None:
            return blend(cosines, self.scores, weight)
        near = np.take_along_axis(cosines, self.candidates, axis=1)
        return _in_front(self.candidates, blend(near, self.scores, weight), cosines)


def _in_front(candidates: Index, scores: Array, cosines: Array) -> Array:
    """All texts: the candidates by their scores, and behind them the others by their cosines."""
    table = standardised(cosines) - _BEHIND
    np.put_along_axis(table, candidates, standardised(scores), axis=1)
    return table


def mean_way(queries: TokenClouds, texts: TokenClouds) -> Way:
    """The cosine of the two means: one vector a text."""
    means = (MeanPooling().transform(side) for side in (queries, texts))
    return Way(_cosines(*means), float(_FLOAT * texts.dimension), float(len(texts)))


@dataclass(frozen=True)
class TokenWays:
    """The ways that keep more than the mean, over the clouds of queries and texts.

    `candidates`: how many texts, the first by the mean, are scored by the ways that cost too much for all; `vectors`:
    numbers of clusters a text; `stop_words`: names of query tokens to leave out, None for those of more than 30 % of
    the texts; `special_too`: special query tokens count, as in a late-interaction model; `salience`: how
    much each token of the texts matters, for groups of tokens around those that matter most.
    """

    queries: TokenClouds
    texts: TokenClouds
    vocabulary: Vocabulary | None
    candidates: int
    vectors: Sequence[int]
    stop_words: Collection[str] | None
    special_too: bool = False
    salience: Sequence[ArrayLike] | None = None

    @property
    def ordinary(self) -> Mask | None:
        """Which query tokens are not special; None where no special token is known, or special ones count too."""
        if self.special_too:
            return None
        special = frozenset[int]() if self.vocabulary is None else self.vocabulary.special_ids
        mask = ordinary_tokens(self.queries, special)
        return None if mask is None or mask.all() else mask

    def left_out(self) -> dict[str, str]:
        """Ways that could not be tried, and why."""
        missing: dict[str, str] = {}
        if importlib.util.find_spec("ot") is None:
            needs_pot = ("exact transport", ROTATOR, "MoverScore")
            missing |= dict.fromkeys(needs_pot, "needs POT: pip install 'poolscope[transport]'")
        if self._frequencies() is None:
            by_ids = ("MaxSim, IDF weights", "MaxSim, rare words", "MoverScore")
            missing |= dict.fromkeys(by_ids, "the ids of tokens are not known")
        return missing

    def __call__(self, mean: Way) -> Iterator[tuple[str, Way]]:
        """Each way by its name, beside the mean."""
        yield from self._whole()
        yield from self._of_candidates(mean)
        yield from self._in_few_vectors(mean)

    # -- all tokens, all texts ------------------------------------------------------------------------------------

    def _price(self, sought: UnitTokens) -> tuple[float, float]:
        """Bytes of all tokens of a text, and the products of all query tokens with all text tokens."""
        lengths = self.texts.lengths
        work = float(np.diff(sought.offsets).mean() * lengths.sum())
        return float(_FLOAT * self.texts.dimension * lengths.mean()), work

    def _whole(self) -> Iterator[tuple[str, Way]]:
        texts, ordinary = self.texts, self.ordinary
        sought = unit_tokens(self.queries, tokens=ordinary)
        price = self._price(sought)

        def way(scores: NDArray[np.floating]) -> Way:
            # The mean can be had from the tokens that are kept, so a blend with it stores nothing more.
            return Way(scores.astype(np.float64), *price, adds_mean=False)

        forward = maxsim(sought, texts).astype(np.float64)
        backward = maxsim(texts, sought).T.astype(np.float64)
        both = forward + backward
        yield "MaxSim", way(forward)
        for storage in STORAGES[1:]:
            stored = unit_tokens(texts, storage=storage)
            scores = maxsim(sought, stored).astype(np.float64)
            yield f"MaxSim, {storage}", Way(scores, stored.bytes / len(texts), price[1])
        if (frequencies := self._frequencies()) is not None:
            rarity = np.log((len(texts) + 1) / (frequencies + 1))
            yield "MaxSim, IDF weights", way(maxsim(self.queries, texts, query_tokens=ordinary, query_weights=rarity))
            rare = self._rare(frequencies)
            counts = rare if ordinary is None else rare & ordinary
            yield "MaxSim, rare words", way(maxsim(self.queries, texts, query_tokens=counts))
        if ordinary is not None:
            yield "MaxSim, special too", way(maxsim(self.queries, texts))
        yield "Chamfer", way(both / 2)
        yield "BERTScore F", way(np.divide(2 * forward * backward, both, out=np.zeros_like(both), where=both > 0))
        sides = maxsim(sought, texts, distances=True), maxsim(texts, sought, distances=True).T
        yield "relaxed transport", way(np.minimum(*sides))

    def _frequencies(self, side: TokenClouds | None = None) -> Index | None:
        """Of every token of the queries, or of a side, the number of texts that have it; None where ids are unknown."""
        sought = (self.queries if side is None else side).token_ids(slice(None))
        ids = [part for k in range(len(self.texts)) if (part := self.texts.token_ids(k)) is not None]
        if sought is None or len(ids) < len(self.texts):
            return None
        kinds, counts = np.unique(np.concatenate([np.unique(part) for part in ids]), return_counts=True)
        place = np.searchsorted(kinds, sought).clip(max=len(kinds) - 1)
        return np.where(kinds[place] == sought, counts[place], 0)

    def _rare(self, frequencies: Index) -> Mask:
        """Which query tokens are no stop words."""
        if self.stop_words is None or self.vocabulary is None:
            return np.asarray(frequencies <= FREQUENT * len(self.texts))
        unwanted = {word.casefold() for word in self.stop_words}
        ids = self.queries.token_ids(slice(None))
        assert ids is not None  # else there are no frequencies
        names = (name.lstrip("Ġ▁#").casefold() for name in self.vocabulary.names(ids))
        return np.array([name not in unwanted for name in names])

    # -- the first texts by the mean only --------------------------------------------------------------------------

    def _of_candidates(self, mean: Way) -> Iterator[tuple[str, Way]]:
        near = first_candidates(mean.scores, self.candidates)
        sought = unit_tokens(self.queries, tokens=self.ordinary)
        size, work = self._price(sought)
        share = near.shape[1] / len(self.texts)

        def way(scores: Array) -> Way:
            return Way(scores, size, mean.products + work * share, candidates=near, adds_mean=False)

        yield "MaxSim, candidates", way(maxsim_of_candidates(sought, self.texts, near).astype(np.float64))
        yield "Gaussian W₂", way(self._gaussian(near))
        if importlib.util.find_spec("ot") is not None:
            for name, scores in self._transported(sought, near).items():
                yield name, way(scores)

    def _gaussian(self, near: Index) -> Array:
        """−(d_μ + d_Σ) of each query with its candidates: squared W₂ of Gaussians with the moments of the clouds."""
        pairs = np.stack([np.repeat(np.arange(len(near)), near.shape[1]), near.ravel()], axis=1)
        scores = np.empty(len(pairs))
        for rows, distances in given_pairs(self.queries, pairs, self.texts):
            scores[rows] = -(distances.mean_distance + distances.bures / 4)
        return scores.reshape(near.shape)

    def _transported(self, sought: UnitTokens, near: Index) -> dict[str, Array]:
        """− the cost of carrying the tokens of each query to those of its candidates, by three rules.

        Word mover's distance carries ‖q_a − x_b‖ with equal weights, and MoverScore with rare words weighing more; word
        rotator's distance carries 1 − cosine with the lengths of the tokens as weights.
        """
        tokens_of_texts, ordinary = unit_tokens(self.texts), self.ordinary
        weights = [self._token_weights(side, mask) for side, mask in ((self.queries, ordinary), (self.texts, None))]
        by_rule = {name: np.empty(near.shape) for name in weights[0]}
        for query, texts in enumerate(near.tolist()):
            tokens = sought.floats(query, query + 1)
            for place, text in enumerate(texts):
                turned = 1 - (tokens @ tokens_of_texts.floats(text, text + 1).T).astype(np.float64)
                apart = np.sqrt(np.maximum(2 * turned, 0))
                for name, scores in by_rule.items():
                    costs = np.maximum(turned, 0) if name == ROTATOR else apart
                    scores[query, place] = -transport_cost(costs, weights[0][name][query], weights[1][name][text])
        return by_rule

    def _token_weights(self, side: TokenClouds, tokens: Mask | None) -> dict[str, list[Array | None]]:
        """By rule, how much each of the tokens of every text weighs; MoverScore only where ids are known."""
        count = len(side)
        places = [slice(start, stop) for start, stop in pairwise(offsets_of(side.lengths).tolist())]
        chosen = [slice(None) if tokens is None else tokens[place] for place in places]
        lengths = [np.linalg.norm(np.asarray(side[k], dtype=np.float64), axis=1)[chosen[k]] for k in range(count)]
        weights: dict[str, list[Array | None]] = {"exact transport": [None] * count, ROTATOR: list(lengths)}
        frequencies = self._frequencies(side)
        if frequencies is not None and self._frequencies() is not None:
            rarity = np.log((len(self.texts) + 1) / (frequencies + 1))
            weights["MoverScore"] = [rarity[place][own] for place, own in zip(places, chosen, strict=True)]
        return weights

    # -- a few vectors a text --------------------------------------------------------------------------------------

    def _in_few_vectors(self, mean: Way) -> Iterator[tuple[str, Way]]:
        texts, dimension = self.texts, self.texts.dimension
        sought = unit_tokens(self.queries, tokens=self.ordinary)
        pooled = {by: pooled_tokens(texts, self.vectors, by=by) for by in TOKEN_POOLINGS}
        if self.salience is not None:
            pooled["attended"] = attended_tokens(texts, self.vectors, self.salience)
        for by, groups in pooled.items():
            for count, several in groups.items():
                centres = TokenClouds.from_arrays(np.split(several.vectors, several.offsets[1:-1]))
                price = _FLOAT * dimension * len(several.vectors) / len(texts)
                work = float(np.diff(sought.offsets).mean() * len(several.vectors))
                yield f"MaxSim, {count} {by}", Way(maxsim(sought, centres).astype(np.float64), float(price), work)
        query_means = MeanPooling().transform(self.queries)
        for part in PARTS:
            several = AdaptivePooling(2, most=8, parts=part).transform(texts)
            count = len(several.vectors)
            price = float(_FLOAT * dimension * count / len(texts))
            yield f"best of 2 {part}", Way(several.scores(query_means), price, float(count))
        rank = int((np.sqrt(8 * (dimension - 1) + 1) - 1) / 2)  # its sketch takes as many numbers as one vector more
        sketch = SecondOrderPooling(rank=max(1, min(rank, dimension))).fit(texts)
        moments = [sketch.transform(side) for side in (self.queries, texts)]
        yield "second order", Way(_cosines(*moments), float(_FLOAT * moments[1].shape[1]), mean.products)


def _cosines(queries: Array, documents: Array) -> Array:
    return np.asarray(unit_rows(queries, "queries") @ unit_rows(documents, "documents").T, dtype=np.float64)
