"""Every missed query, opened: the query, its relevant text, the texts that rank before it, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.auditing.ledger import Ledger
from poolscope.auditing.search import Search
from poolscope.auditing.words import fill
from poolscope.encoders.capabilities import vocabulary_of
from poolscope.evaluation.matches import TokenMatch, match_clouds
from poolscope.numbers import Index
from poolscope.results import Result
from poolscope.texts.languages import language_of

SHOWN_BEFORE = 3
"""Texts that rank before a relevant one and are shown."""
SHOWN_CHARACTERS = 2000
"""Characters of a text that are kept with a miss."""
MOST_MISSES = 200
"""Misses that are opened on the page, with their tokens; the table `misses` has all."""
MOST_TOKENS = 32
"""Query tokens that are shown with what they found."""
# A text is called longer or shorter than the relevant one from this factor on, and a hub from this many times what an
# even share of all top results would be.
_FACTOR, _HUB = 1.5, 5.0
_RANK = "The best relevant text is at rank {rank:count}."


@dataclass(frozen=True)
class TextBefore:
    """A text that ranks before the relevant one, and how it differs: length, truncation, hub, copy or language."""

    id: str
    text: str
    rank: int
    score: float
    why: tuple[str, ...]


@dataclass(frozen=True)
class Inside:
    """Matches of a query's tokens in its relevant text, and the part of each match that the mean keeps.

    `cosine` is that of the two means. The contributions of all query tokens add up to `maxsim` − `cosine`; `matches`
    are those of the tokens that count, in the order of the query, and where they are many those that lose most.
    """

    maxsim: float
    cosine: float
    matches: tuple[TokenMatch, ...]

    @property
    def rest(self) -> float:
        """Contribution of special tokens and of tokens that are not shown."""
        return self.maxsim - self.cosine - sum(match.contribution for match in self.matches)


@dataclass(frozen=True, repr=False, kw_only=True)
class Miss(Result):
    """A query whose relevant texts all rank below the top k.

    `text` is the relevant one that ranks best, at `rank` with `score`; `needed` is the score of the last of the top k.
    `symptoms` are the causes that the text has, `before` the texts that come first, `ranks` its rank under each cure
    and yardstick that was tried. `inside` is what the query finds in the text, token by token; None where the model
    averages nothing, its tokens have no names, or more misses come first than are opened.
    """

    query: str
    query_id: str
    number: int
    text: str
    text_id: str
    rank: int
    score: float
    needed: float
    tokens: int
    truncated: int
    symptoms: tuple[str, ...]
    before: tuple[TextBefore, ...] = field(repr=False)
    ranks: Mapping[str, float] = field(repr=False)
    inside: Inside | None = field(default=None, repr=False)

    def in_words(self) -> tuple[str, ...]:
        """Where the relevant text is."""
        return (fill(_RANK, {"rank": self.rank}),)

    def headline(self) -> dict[str, Any]:
        """The query and where its text is."""
        return {"query": self.query, "text_id": self.text_id, "rank": self.rank}


def open_misses(search: Search, ledger: Ledger) -> tuple[Miss, ...]:
    """Open every missed query of a search."""
    return tuple(_opened(search, ledger))


def _opened(search: Search, ledger: Ledger) -> Iterator[Miss]:
    times = np.bincount(search.first[:, : search.k].ravel(), minlength=len(search.vectors))
    usual = search.k * len(search) / len(search.vectors)
    hubs = times > max(_HUB * usual, search.k)
    ranks = {**ledger.ranks, **ledger.yardsticks}
    missed, best = ledger.misses(), ledger.missed_rows()
    inside = _insides(search, missed, ledger.text[best])
    for query, row in zip(missed.tolist(), best.tolist(), strict=True):
        rows = np.flatnonzero(ledger.query == query)
        text = int(ledger.text[row])
        scores = search.query_vectors[query] @ search.vectors[text]
        yield Miss(
            query=search.queries[query],
            query_id=_name(search.query_ids, query),
            number=query,
            text=search.texts[text][:SHOWN_CHARACTERS],
            text_id=_name(search.text_ids, text),
            rank=round(float(ledger.rank[row])),
            score=float(scores),
            needed=float(search.before.whole.scores[query, min(search.k, len(search.vectors)) - 1]),
            tokens=int(search.lengths[text]),
            truncated=int(search.truncated[text]),
            symptoms=tuple(name for name, marks in ledger.symptoms.items() if marks[row]),
            before=tuple(_before(search, query, text, hubs)),
            ranks={name: float(np.nanmin(each[rows])) for name, each in ranks.items() if np.isfinite(each[rows]).any()},
            inside=inside.get(query),
        )


def _insides(search: Search, queries: Index, texts: Index) -> dict[int, Inside]:
    """What each of the first missed queries finds in its text."""
    vocabulary = vocabulary_of(search.encoder)
    clouds = search.query_tokens
    if not len(queries) or clouds is None or not search.has_tokens or vocabulary is None or not search.pooling.is_mean:
        return {}
    pairs = list(zip(queries.tolist(), texts.tolist(), strict=True))[:MOST_MISSES]
    inside = {}
    for numbers, answers in search.tokens_of(np.unique([text for _, text in pairs])):
        place = {text: k for k, text in enumerate(numbers.tolist())}
        for query, text in pairs:
            if text in place:
                maxsim, cosine, matches, _ = match_clouds(clouds, answers, vocabulary, query=query, text=place[text])
                counted = [match for match in matches if match.counts]
                least = sorted((match.contribution for match in counted), reverse=True)[:MOST_TOKENS][-1]
                most = [match for match in counted if match.contribution >= least][:MOST_TOKENS]
                inside[query] = Inside(maxsim, cosine, tuple(most))
    return inside


def _before(search: Search, query: int, text: int, hubs: Any) -> Iterator[TextBefore]:
    """The first texts of a query, beside the relevant one."""
    whole = search.lengths + search.truncated
    language = language_of(search.texts[text])
    for place, other in enumerate(search.first[query, :SHOWN_BEFORE].tolist()):
        reasons = {
            "longer": whole[other] > _FACTOR * whole[text],
            "shorter": _FACTOR * whole[other] < whole[text],
            "truncated": search.truncated[other] > 0,
            "hub": hubs[other],
            "same document": search.documents is not None and search.documents[other] == search.documents[text],
            "copy": search.first_equal[other] != other,
            "other language": "" != language != language_of(search.texts[other]) != "",
        }
        yield TextBefore(
            id=_name(search.text_ids, other),
            text=search.texts[other][:SHOWN_CHARACTERS],
            rank=place + 1,
            score=float(search.before.whole.scores[query, place]),
            why=tuple(name for name, holds in reasons.items() if holds),
        )


def _name(names: Sequence[str], position: int) -> str:
    return str(names[position]) if len(names) else str(position)
