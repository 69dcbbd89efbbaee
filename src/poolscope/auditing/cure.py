"""A cure: what would be different if a cause were gone, tried as a second score for (query, text).

A cure changes nothing; it scores. `fix` carries one out, by its `step`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from poolscope.auditing.search import Search
from poolscope.auditing.words import fill

Needs = Literal["vectors", "tokens", "encoder"]
Scores = Callable[[slice], NDArray[Any]]
"""The scores of some queries with all texts (queries × texts), higher is better."""


@dataclass(frozen=True)
class Cost:
    """What a cure costs: texts and tokens to re-encode once, vectors more to store, and texts to read a query."""

    texts: int = 0
    tokens: int = 0
    vectors: int = 0
    per_query: int = 0

    @property
    def weight(self) -> tuple[int, int, int]:
        """For an order: what works on every query costs most, then encoding, then storing."""
        return self.per_query, self.tokens, self.vectors

    def sentence(self) -> str:
        """The cost in words."""
        if self.per_query:
            return fill(_PER_QUERY, {"count": self.per_query})
        if self.texts:
            return fill(_RE_ENCODE, {"count": self.texts, "tokens": self.tokens})
        if self.vectors:
            return fill(_STORE, {"count": self.vectors})
        return _NOTHING


_PER_QUERY = "Cost: store the tokens of all texts, and re-rank {count:count text} a query."
_RE_ENCODE = "Cost: re-encode {count:count text}, {tokens:count token}."
_STORE = "Cost: {count:count vector} more to store; nothing is re-encoded."
_NOTHING = "Cost: none; nothing is re-encoded."
COST_WORDS = (_PER_QUERY, _RE_ENCODE, _STORE, _NOTHING)


@dataclass(frozen=True)
class Tried:
    """A cure on trial: the search that it was tried on (a part of the whole where encoding is dear), and its scores."""

    search: Search
    scores: Scores
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cure:
    """One cure. `label` is a noun phrase of at most 32 characters, and `does` the imperative that `fix` carries out.

    `needs` is what must be at hand: the vectors, the tokens of texts, or the model itself. `tries` gives the scores;
    None where it does not apply, such as chunks that fit where nothing is truncated. `sample` gives the part of the
    search that a dear cure is tried on, where that is not all of it; such a cure is first tried on a third of that, and
    dropped if it gains nothing there. `step` names what `fix` writes: "chunks", "model", "vectors", "reranker" or
    "setting", and `setting` its parameters.
    """

    name: str
    label: str
    does: str
    needs: Needs
    tries: Callable[[Search], Tried | None]
    cost: Callable[[Search], Cost]
    step: Literal["chunks", "model", "vectors", "reranker", "setting", "none"]
    setting: Mapping[str, Any] = field(default_factory=dict)
    sample: Callable[[Search], Search] | None = None

    def can_try(self, search: Search) -> bool:
        """Is everything at hand that the cure needs?"""
        if self.needs == "encoder":
            return search.can_encode
        return self.needs == "vectors" or search.has_tokens


def free(search: Search) -> Cost:
    """The cost of what changes vectors or settings alone."""
    return Cost()
