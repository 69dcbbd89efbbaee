"""Matches of query tokens and text tokens, and the part of each match that the mean keeps.

Both scores are sums over the query tokens a, of n in the query and m that count. With q_a and x_b as the model gives
them, μ their means and cos the cosine:

    MaxSim = Σ_a 1/m · max_b cos(q_a, x_b)                    of the tokens that count
    cosine = Σ_a ‖q_a‖/(n‖μ_q‖) · cos(q_a, μ_x)

so each token has a part of MaxSim − cosine, and these parts add up to it. The cosine is a sum over text tokens in the
same way; MaxSim is, too, where each query token gives its part to the text token that it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import vocabulary_of
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.evaluation.match_drawing import drawing_of
from poolscope.evaluation.run import for_role
from poolscope.numbers import Array
from poolscope.results import Result, cells, origin, provenance


@dataclass(frozen=True)
class TokenMatch:
    """A query token and the text token that it found.

    `counts`: whether it is part of MaxSim; special tokens are not. `similarity`: its cosine with that text token;
    `to_mean`: with the mean of the text, which is all that pooling leaves. `in_maxsim`, `in_cosine`: its parts of the
    two scores.
    """

    token: str
    counts: bool
    match: str
    position: int
    similarity: float
    to_mean: float
    in_maxsim: float
    in_cosine: float

    @property
    def contribution(self) -> float:
        """Its part of MaxSim − cosine."""
        return self.in_maxsim - self.in_cosine


@dataclass(frozen=True)
class TextToken:
    """A token of the text: what query tokens found in it (part of MaxSim), and its part of the cosine."""

    token: str
    in_maxsim: float
    in_cosine: float


Parts = tuple[float, float, tuple[TokenMatch, ...], tuple[TextToken, ...]]
"""MaxSim, cosine, and their parts by query token and by text token."""


@dataclass(frozen=True, repr=False, kw_only=True)
class TokenMatches(Result):
    """A query and a text, token by token. `matches`: one a query token; `tokens`: those of the text, in order."""

    model: str
    query: str
    text: str
    maxsim: float
    cosine: float
    matches: tuple[TokenMatch, ...] = field(repr=False)
    tokens: tuple[TextToken, ...] = field(repr=False)
    provenance: Mapping[str, Any] = origin()

    @property
    def strongest(self) -> TokenMatch:
        """The query token whose best match the mean keeps least of: the largest similarity − to_mean."""
        counted = [match for match in self.matches if match.counts]
        return max(counted, key=lambda match: match.similarity - match.to_mean)

    def headline(self) -> dict[str, Any]:
        """Both scores, and the number of tokens."""
        counted = sum(match.counts for match in self.matches)
        return {"maxsim": self.maxsim, "cosine": self.cosine, "query_tokens": counted, "text_tokens": len(self.tokens)}

    def in_words(self) -> tuple[str, ...]:
        """Both scores, and the token whose match the mean loses most of."""
        best = self.strongest
        return (
            f"The query tokens find matches with a mean cosine of {self.maxsim:.2f} (MaxSim). The two means have a "
            f"cosine of {self.cosine:.2f}.",
            f"“{shown_token(best.token)}” finds “{shown_token(best.match)}” ({best.similarity:.2f}). Its cosine with "
            f"the mean of the text is {best.to_mean:.2f}.",
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a query token, in the order of the query."""
        names = ("token", "counts", "match", "position", "similarity", "to_mean", "in_maxsim", "in_cosine")
        return [
            cells({name: getattr(match, name) for name in names} | {"contribution": match.contribution})
            for match in self.matches
        ]

    def figure(self) -> Any:
        """Draw the query above the text: each query token's match, and the part that the mean keeps."""
        return drawing_of([self])


def shown_token(name: str) -> str:
    """The name of a token without the marks of its tokenizer.

    >>> shown_token("##ing"), shown_token("Ġcat"), shown_token("▁dog"), shown_token("#")
    ('ing', 'cat', 'dog', '#')
    """
    return name.removeprefix("##").lstrip("Ġ▁") or name


def lead_words(first: TokenMatches, second: TokenMatches) -> tuple[str, ...]:
    """Which of two texts leads for the same query, by the tokens and by the means, and the token that decides."""

    def leader(name: str, a: float, b: float) -> str:
        ahead, numbers = ("first", (a, b)) if a >= b else ("second", (b, a))
        return f"By the {name}, the {ahead} text leads by {abs(a - b):.2f} ({numbers[0]:.2f} against {numbers[1]:.2f})."

    leads = [(one.in_maxsim - other.in_maxsim, one) for one, other in zip(first.matches, second.matches, strict=True)]
    lead, match = max(leads, key=lambda pair: abs(pair[0]))
    ahead = "first" if lead >= 0 else "second"
    return (
        leader("tokens", first.maxsim, second.maxsim),
        leader("means", first.cosine, second.cosine),
        f"“{shown_token(match.token)}” decides most among the tokens: it adds {abs(lead):.2f} for the {ahead} text.",
    )


def token_matches(model: Any, query: str, text: str, **options: Any) -> TokenMatches:
    """Match each query token with a text token, and measure the part of the match that the mean keeps.

    Parameters
    ----------
    model
        A model as `as_encoder` takes it; its tokens are averaged.
    query, text : str
        Encoded in these roles, where the model declares prompts for them.
    **options
        Those of `as_encoder`.

    Returns
    -------
    TokenMatches
        MaxSim and the cosine of the means as sums over the tokens; `figure()` draws them.

    Examples
    --------
    >>> letters = lambda texts: [[[float(c == letter) + 0.1 for letter in "abcd"] for c in text] for text in texts]
    >>> found = token_matches(letters, "ad", "abbb")
    >>> [(match.token, match.match, round(match.similarity, 2)) for match in found.matches]
    [('0', '0', 1.0), ('1', '0', 0.19)]
    >>> round(sum(match.contribution for match in found.matches) - (found.maxsim - found.cosine), 9)
    0.0

    """
    for name, value in (("query", query), ("text", text)):
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{name}: received {value!r}; needed: a text of one word or more.")
    encoder = as_encoder(model, **options)
    query_clouds, answers = (
        for_role(encoder, role).encode([side])[-1] for role, side in (("query", query), ("document", text))
    )
    maxsim, cosine, matches, tokens = match_clouds(query_clouds, answers, vocabulary_of(encoder))
    return TokenMatches(
        model=encoder.card.name,
        query=query,
        text=text,
        maxsim=maxsim,
        cosine=cosine,
        matches=matches,
        tokens=tokens,
        provenance=provenance(query_clouds, answers, settings={}),
    )


def match_clouds(
    queries: TokenClouds, texts: TokenClouds, vocabulary: Vocabulary | None, *, query: int = 0, text: int = 0
) -> Parts:
    """What `match_tokens` gives for one of the queries and one of the texts; tokens without a name are numbered."""
    ids = queries.token_ids(query), texts.token_ids(text)
    names = [
        [str(k) for k in range(length)] if known is None or vocabulary is None else vocabulary.names(known)
        for known, length in zip(ids, (int(queries.lengths[query]), int(texts.lengths[text])), strict=True)
    ]
    special = None if ids[0] is None or vocabulary is None else np.isin(ids[0], list(vocabulary.special_ids))
    return match_tokens(queries[query], texts[text], *names, special=special)


def match_tokens(
    query: ArrayLike,
    text: ArrayLike,
    query_names: Sequence[str],
    text_names: Sequence[str],
    *,
    special: NDArray[np.bool_] | None = None,
) -> Parts:
    """MaxSim, cosine, and their parts by query and text token, from the tokens of both (n × d each).

    special: which query tokens are left out of MaxSim; where all are, none is. A mean of zero has no direction: an
    error. Of equal matches the first is taken.
    """
    Q, X = (np.asarray(side, dtype=np.float64) for side in (query, text))
    counts = np.ones(len(Q), dtype=bool) if special is None or special.all() else ~special
    (unit_q, parts_q, mean_q), (unit_x, parts_x, mean_x) = _directions(Q, "query"), _directions(X, "text")
    cosines = unit_q @ unit_x.T
    best = cosines.argmax(axis=1)
    similarity, to_mean = cosines[np.arange(len(Q)), best], unit_q @ mean_x
    in_maxsim = np.where(counts, similarity, 0.0) / counts.sum()
    in_cosine = parts_q * to_mean
    matches = tuple(
        TokenMatch(
            token=str(query_names[a]),
            counts=bool(counts[a]),
            match=str(text_names[best[a]]),
            position=int(best[a]),
            similarity=float(similarity[a]),
            to_mean=float(to_mean[a]),
            in_maxsim=float(in_maxsim[a]),
            in_cosine=float(in_cosine[a]),
        )
        for a in range(len(Q))
    )
    landed = np.bincount(best, weights=in_maxsim, minlength=len(X))
    of_text = parts_x * (unit_x @ mean_q)
    tokens = tuple(
        TextToken(str(name), float(found), float(part))
        for name, found, part in zip(text_names, landed, of_text, strict=True)
    )
    return float(in_maxsim.sum()), float(in_cosine.sum()), matches, tokens


def _directions(tokens: Array, name: str) -> tuple[Array, Array, Array]:
    """Tokens at unit length, ‖x‖/(n‖μ‖) of each, and the mean at unit length."""
    mean, lengths = tokens.mean(axis=0), np.linalg.norm(tokens, axis=1)
    norm = float(np.linalg.norm(mean))
    if not np.isfinite(norm) or norm == 0:
        raise InputError(
            f"{name}: its tokens have a mean of length {norm:g}, which has no direction. Take another text."
        )
    return tokens / np.where(lengths > 0, lengths, 1.0)[:, None], lengths / (len(tokens) * norm), mean / norm
