"""A search: queries, texts, which texts are relevant, and the vectors and tokens of a model for both.

Everything that an audit tries is a second score for (query, text) on the same search. Scores come in blocks of queries.
Tokens of texts are held while they fit into a share of the memory that is there; of a larger corpus only those of
candidates are encoded, which are the first texts of each query, and dropped again block by block. A search without
queries has vectors and symptoms, and nothing can be tried on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.connectors import Collection
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.capabilities import can_encode, has, options_of, vocabulary_of, with_options
from poolscope.encoders.pooling import TextPooling
from poolscope.evaluation.outcome import Block, Judgements, Outcome
from poolscope.machine import available_memory
from poolscope.numbers import Array, Index, intervals
from poolscope.numbers.intervals import query_units
from poolscope.numbers.maxsim import UnitTokens, ordinary_tokens, unit_tokens
from poolscope.numbers.ranking import unit_rows
from poolscope.numbers.streaming import marks_of, numbered_by_words
from poolscope.texts.groups import first_of_equal
from poolscope.texts.queries import JudgedQueries

Units = NDArray[np.float32]
Value = TypeVar("Value")

K = 10
"""A query is found if a relevant text is among so many."""
CANDIDATES = 50
"""The first texts of a query, which a re-ranker would look at."""
_BLOCK = 2**22  # scores at a time
# Tokens of texts are held up to so many bytes, and up to this share of the memory that is there.
_HELD_BYTES, _HELD_SHARE = 2**30, 0.25
# Texts that are encoded at a time where their tokens are not held.
_TEXTS = 1024


@dataclass(frozen=True, eq=False, repr=False)
class Search:
    """Queries over texts, by the vectors of one model.

    `lengths` are the tokens that the model reads of each text, `truncated` those that it does not. `tokens` are the
    clouds of all texts, None where only some are encoded when they are needed. `documents` numbers the document of each
    text (None: not known). `self_made` says how queries were made from the texts; "" where they are the user's.
    `runtime` are the vectors that the user's own server or index gave for the same texts, and `collection` the index
    itself. There are no `query_tokens` where a server encodes. `positions` are those of the queries in the whole
    search, where this is a part of one.
    """

    queries: tuple[str, ...]
    texts: Sequence[str]
    judgements: Judgements
    query_vectors: Units
    vectors: Units
    query_tokens: TokenClouds | None
    tokens: TokenClouds | None
    lengths: Index
    truncated: Index
    encoder: TokenEncoder
    asking: TokenEncoder
    documents: Index | None = None
    self_made: str = ""
    k: int = K
    candidates: int = CANDIDATES
    seed: int = 0
    runtime: NDArray[Any] | None = None
    collection: Collection | None = None
    query_ids: tuple[str, ...] = ()
    text_ids: Sequence[str] = ()
    positions: Index | None = None
    _memory: dict[str, Any] = field(default_factory=dict)
    _shared: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        made = f", self-made by {self.self_made}" if self.self_made else ""
        return f"Search({len(self.queries):,} queries{made}, {len(self.texts):,} texts, {self.encoder.card.name})"

    # -- what is computed once for all cures --------------------------------------------------------------------------

    def once(self, name: str, make: Callable[[], Value]) -> Value:
        """What `make` gives, made at the first call of this name and handed out again."""
        if name not in self._memory:
            self._memory[name] = make()
        value: Value = self._memory[name]
        return value

    def once_for_all(self, name: str, make: Callable[[], Value]) -> Value:
        """Like `once`, for this search and every part of it."""
        if name not in self._shared:
            self._shared[name] = make()
        value: Value = self._shared[name]
        return value

    @cached_property
    def pooling(self) -> TextPooling:
        """What makes vectors from tokens."""
        return TextPooling.of(self.encoder)

    @property
    def can_encode(self) -> bool:
        """Can other texts be encoded, or are the vectors all there is?"""
        return can_encode(self.encoder)

    @property
    def has_tokens(self) -> bool:
        """Are the tokens of queries and texts at hand, or can they be encoded?"""
        return self.query_tokens is not None and (self.tokens is not None or self.can_encode)

    @property
    def counts_tokens(self) -> bool:
        """Are the tokens of the texts counted? Of vectors that came without their model only words are."""
        return bool(len(self.texts)) and (self.can_encode or self.collection is None)

    @cached_property
    def first_equal(self) -> Index:
        """For each text the position of the first one that it equals, often its own."""
        return first_of_equal(self.texts)

    @cached_property
    def before(self) -> Outcome:
        """The search by the model's own vectors, with the candidates of each query."""
        blocks = ((rows.start, self.own_scores(rows)) for rows in self.blocks())
        return self.judgements.outcome(blocks, k=self.k, first=self.candidates)

    @property
    def first(self) -> Index:
        """The candidates of each query, best first (queries × candidates)."""
        return self.before.whole.top[:, : self.candidates]

    @cached_property
    def _chosen_units(self) -> intervals.Units:
        return query_units(self.judgements.relevant, self.documents)

    @cached_property
    def units(self) -> Index:
        """The unit of each query: those that share a relevant text, or its document, are one.

        Units are numbered by the words of their queries, so that nothing depends on the order of texts or queries.
        """
        return numbered_by_words(self._chosen_units.of, list(self.queries), seed=self.seed)

    @property
    def unit(self) -> str:
        """What the units are, in one word: queries where each is one by itself."""
        return self._chosen_units.name if len(self) else "queries"

    @cached_property
    def folds(self) -> Index:
        """A number from 0 to 4 for each query, the same for queries of one unit: what is fitted leaves out its fold."""
        order = np.argsort(np.random.default_rng(self.seed).random(int(self.units.max()) + 1))
        return np.asarray(order[self.units] % 5)

    # -- scores -------------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[slice]:
        """Queries in blocks, so few at a time that their scores with all texts fit into memory."""
        step = max(1, _BLOCK // max(len(self.texts), 1))
        for start in range(0, len(self.queries), step):
            yield slice(start, min(start + step, len(self.queries)))

    def own_scores(self, rows: slice) -> NDArray[Any]:
        """The cosines of some queries with all texts."""
        return np.asarray(self.query_vectors[rows] @ self.vectors.T)

    def outcome(self, scores: Callable[[slice], NDArray[Any]]) -> Outcome:
        """What another score gives."""
        blocks: Iterator[Block] = ((rows.start, scores(rows)) for rows in self.blocks())
        return self.judgements.outcome(blocks, k=self.k)

    def reordered(self, table: Array) -> Callable[[slice], NDArray[Any]]:
        """The scores of a re-ranker: its own for the candidates (queries × candidates), all other texts behind them.

        Texts behind the candidates keep the order of the model.
        """

        def scores(rows: slice) -> NDArray[Any]:
            behind = self.own_scores(rows).astype(np.float64)
            new = table[rows]
            low, high = new.min(axis=1, keepdims=True), new.max(axis=1, keepdims=True)
            lifted = 2 + (new - low) / np.maximum(high - low, 1e-12)  # above every cosine
            np.put_along_axis(behind, self.first[rows], lifted, axis=1)
            return behind

        return scores

    # -- tokens -------------------------------------------------------------------------------------------------------

    @cached_property
    def candidate_texts(self) -> Index:
        """Every text that is a candidate of some query."""
        return np.unique(self.first)

    def tokens_of(self, texts: Index) -> Iterator[tuple[Index, TokenClouds]]:
        """The tokens of some texts, block by block: held ones, or encoded for the block and dropped."""
        if self.tokens is not None:
            yield texts, self.tokens if len(texts) == len(self.tokens) else self.tokens.select(texts)
            return
        for start in range(0, len(texts), _TEXTS):
            some = texts[start : start + _TEXTS]
            yield some, self.encoder.encode([self.texts[k] for k in some])[-1]

    @cached_property
    def query_words(self) -> UnitTokens:
        """The tokens of each query at length 1, without special tokens unless there is nothing else."""
        if self.query_tokens is None:
            raise RuntimeError("asked of a search without tokens")
        vocabulary = vocabulary_of(self.asking)
        special = frozenset() if vocabulary is None else vocabulary.special_ids
        return unit_tokens(self.query_tokens, tokens=ordinary_tokens(self.query_tokens, special))

    # -- encoding -----------------------------------------------------------------------------------------------------

    def encoded(self, texts: Sequence[str], *, way: str = "", by: Callable[[list[str]], Units] | None = None) -> Units:
        """The vectors of other texts, each different one encoded once for all cures and parts.

        `by` encodes them in another way, which `way` names.
        """
        known: dict[str, NDArray[Any]] = self.once_for_all(f"encoded {way}", dict)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            vectors = vectors_of(self.encoder, self.pooling, new) if by is None else by(new)
            known.update(zip(new, vectors, strict=True))
        return np.stack([known[text] for text in texts])

    def encoded_queries(self, prompt: str) -> Units:
        """The vectors of the queries with another prompt."""
        encoder = query_encoder(self.encoder, prompt)
        return vectors_of(encoder, TextPooling.of(encoder), list(self.queries))

    def drawn(self, most: int) -> Index:
        """At most so many texts, drawn by their words: whatever their order, the same ones."""
        if len(self.vectors) <= most:
            return np.arange(len(self.vectors))
        keys = self.texts if len(self.texts) else self.text_ids
        marks = self.once("marks", lambda: marks_of(list(keys), seed=self.seed))
        return np.sort(np.argsort(marks, kind="stable")[:most])

    # -- a smaller search ---------------------------------------------------------------------------------------------

    @cached_property
    def _drawing(self) -> Index:
        """The order in which units are drawn, by the words of their queries: a part of a part is a part of the whole.

        Marks are marked again, as the least mark of many queries would put large units first.
        """
        least = np.full(int(self.units.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, self.units, marks_of(list(self.queries), seed=self.seed))
        return np.asarray(np.argsort(np.argsort(marks_of(map(str, least.tolist())), kind="stable"))[self.units])

    def part(self, tokens: int) -> Search:
        """Some of the queries over some of the texts, of about so many tokens in all; itself where it is no larger.

        Drawn are whole units of queries with their relevant texts, and as many others as fill up the tokens. A smaller
        part lies in a larger one, but for texts at its edge.
        """
        if int(self.lengths.sum()) <= tokens:
            return self
        relevant, rank = self.judgements.relevant, self._drawing
        rows = np.argsort(rank[relevant[:, 0]], kind="stable")
        cost = np.zeros(len(rows))
        _, first = np.unique(relevant[rows, 1], return_index=True)
        cost[first] = self.lengths[relevant[rows[first], 1]]
        idle = np.setdiff1d(np.arange(len(self.texts)), relevant[:, 1])
        # Half of the tokens, or more where few texts are left to fill up the other half.
        asked = max(tokens / 2, tokens - int(self.lengths[idle].sum()))
        last = max(int((np.cumsum(cost) <= asked).sum()) - 1, 0)
        chosen = np.flatnonzero(rank <= rank[relevant[rows[last], 0]])
        needed = np.unique(relevant[np.isin(relevant[:, 0], chosen), 1])
        idle = idle[np.argsort(marks_of([self.texts[k] for k in idle], seed=self.seed), kind="stable")]
        left = tokens - int(self.lengths[needed].sum())
        idle = idle[np.cumsum(self.lengths[idle]) <= max(left, 0)]
        return self.among(chosen, np.union1d(needed, idle))

    def among(self, queries: Index, texts: Index) -> Search:
        """Cut the search to some queries and texts; all texts that are relevant to the queries must be among them."""
        judged = self.judgements
        rows = np.flatnonzero(np.isin(judged.relevant[:, 0], queries) & np.isin(judged.relevant[:, 1], texts))
        relevant = np.stack(
            [np.searchsorted(side, judged.relevant[rows, k]) for k, side in enumerate((queries, texts))], axis=1
        )
        whole = np.arange(len(self.queries)) if self.positions is None else self.positions
        return replace(
            self,
            queries=tuple(self.queries[k] for k in queries),
            texts=[self.texts[k] for k in texts],
            judgements=Judgements.of(
                len(queries), len(texts), relevant, grade=judged.grade[rows], answer=judged.answer[rows]
            ),
            query_vectors=self.query_vectors[queries],
            vectors=self.vectors[texts],
            query_tokens=None if self.query_tokens is None else self.query_tokens.select(queries),
            tokens=None if self.tokens is None else self.tokens.select(texts),
            lengths=self.lengths[texts],
            truncated=self.truncated[texts],
            documents=None if self.documents is None else np.unique(self.documents[texts], return_inverse=True)[1],
            runtime=None if self.runtime is None else self.runtime[texts],
            collection=None,
            query_ids=tuple(self.query_ids[k] for k in queries) if self.query_ids else (),
            text_ids=[self.text_ids[k] for k in texts] if len(self.text_ids) else (),
            positions=whole[queries],
            _memory={},  # what parts share stays
        )


def vectors_of(encoder: TokenEncoder, pooling: TextPooling, texts: Sequence[str]) -> Units:
    """The vectors of texts at length 1; tokens are dropped block by block."""
    parts = [pooling.pool(encoder.encode(texts[start : start + _TEXTS])[-1]) for start in range(0, len(texts), _TEXTS)]
    return unit_rows(np.concatenate(parts), "vectors")


def query_encoder(encoder: TokenEncoder, prompt: str | None) -> TokenEncoder:
    """The encoder as it reads queries: with this prompt, or the one that its model declares for queries.

    A prompt that the caller wrote out for the texts stays for the queries too, unless another is named.
    """
    if not has(encoder, "with_options"):
        return encoder
    options = options_of(encoder)
    if prompt is not None:
        return with_options(encoder, replace(options, prompt=prompt, prompt_name=None, role=None), role="query")
    if options.prompt is not None:
        return with_options(encoder, options, role="query")
    return with_options(encoder, replace(options, prompt_name=None, role="query"), role="query")


def held_bytes() -> int:
    """Bytes of tokens that an audit holds at most; of a larger corpus it holds vectors alone."""
    return int(min(_HELD_BYTES, available_memory() * _HELD_SHARE))


@dataclass(frozen=True, eq=False)
class TextVectors:
    """The texts in the model: one vector each, tokens read and tokens truncated, and the tokens while they are few."""

    vectors: NDArray[Any]
    lengths: Index
    truncated: Index
    tokens: TokenClouds | None = None

    @classmethod
    def of_clouds(cls, clouds: TokenClouds, pooling: TextPooling) -> TextVectors:
        """From tokens at hand."""
        return cls(pooling.pool(clouds), clouds.lengths, clouds.truncated.astype(np.int64), clouds)

    @classmethod
    def encode(cls, encoder: TokenEncoder, texts: Sequence[str], progress: Progress | None = None) -> TextVectors:
        """Encode the texts, block by block."""
        pooling, parts, fits = TextPooling.of(encoder), list[TokenClouds](), True
        vectors: Units = np.empty((0, 0), np.float32)
        lengths, truncated = (np.empty(len(texts), np.int64) for _ in range(2))
        size, most = 0, held_bytes()
        for start in range(0, len(texts), _TEXTS):
            clouds = encoder.encode(list(texts[start : start + _TEXTS]), progress=progress)[-1]
            block, rows = pooling.pool(clouds), slice(start, start + len(clouds))
            if not start:
                vectors = np.empty((len(texts), block.shape[1]), np.float32)
            vectors[rows] = at_unit_length(block)
            lengths[rows], truncated[rows] = clouds.lengths, clouds.truncated
            size += int(clouds.lengths.sum()) * clouds.dimension * clouds.dtype.itemsize
            # Held only if all of them will fit, by those so far: what is dropped later was held for nothing.
            parts = [*parts, clouds] if (fits := fits and size * len(texts) / rows.stop <= most) else []
        tokens = parts[0] if len(parts) == 1 else TokenClouds.concatenate(parts) if parts else None
        return cls(vectors, lengths, truncated, tokens)


def at_unit_length(vectors: Array) -> Array:
    """The rows at length 1; one without a direction stays as it is, for `unit_rows` to name it."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    return np.asarray(vectors / np.where(usable, lengths, 1.0))


def make_search(
    encoder: TokenEncoder,
    texts: Sequence[str],
    queries: JudgedQueries | None,
    *,
    encoded: TextVectors | None = None,
    query_vectors: NDArray[Any] | None = None,
    documents: Sequence[Any] | None = None,
    query_prompt: str | None = None,
    runtime: NDArray[Any] | None = None,
    collection: Collection | None = None,
    self_made: str = "",
    text_ids: Sequence[str] = (),
    k: int = K,
    candidates: int = CANDIDATES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Search:
    """Encode texts and queries where they are not, and search.

    Parameters
    ----------
    encoder
        The model.
    texts, queries
        What is searched, and the queries with the positions of their relevant texts; None without any.
    encoded
        The texts in the model, where they are encoded.
    query_vectors
        The vectors of the queries, where a server gave them.
    documents
        The document of each text, where they are known.
    query_prompt
        What comes before each query; by default the prompt that the model declares for queries.
    runtime
        The vectors that a server or an index gave for the same texts.
    collection
        The index, where the vectors come from one.
    self_made
        How the queries were made from the texts; "" where they are the user's.
    text_ids
        The names of the texts.
    k, candidates, seed
        How many texts count as found, how many a re-ranker looks at, and the seed of what is drawn.
    progress
        Called after every batch with the number of texts and tokens just encoded.

    """
    asking = query_encoder(encoder, query_prompt)
    known = TextVectors.encode(encoder, texts, progress) if encoded is None else encoded
    query_clouds = None
    if queries is not None and query_vectors is None:
        query_clouds = asking.encode(list(queries.texts))[-1]
        query_vectors = TextPooling.of(asking).pool(query_clouds)
    if query_vectors is None:
        query_vectors = np.empty((0, known.vectors.shape[1]))
    judgements = Judgements(0, len(texts), np.empty((0, 2), np.int64), np.empty(0), np.empty(0, np.int64))
    return Search(
        queries=() if queries is None else tuple(queries.texts),
        texts=texts,
        judgements=judgements if queries is None else judgements_of(queries, texts),
        query_vectors=unit_rows(query_vectors, "queries") if len(query_vectors) else query_vectors.astype(np.float32),
        vectors=unit_rows(known.vectors, "texts"),
        query_tokens=query_clouds,
        tokens=known.tokens,
        lengths=known.lengths,
        truncated=known.truncated,
        encoder=encoder,
        asking=asking,
        documents=None if documents is None else np.unique(list(map(str, documents)), return_inverse=True)[1].ravel(),
        self_made=self_made,
        k=k,
        candidates=min(candidates, len(texts)),
        seed=seed,
        runtime=runtime,
        collection=collection,
        query_ids=() if queries is None else tuple(queries.ids),
        text_ids=text_ids,
    )


def judgements_of(queries: JudgedQueries, texts: Sequence[str]) -> Judgements:
    """The judgements, with every text that equals a relevant one as another way to the same answer.

    Where a document of several texts answers, a copy in another document does not: words that many documents share are
    no sign of this one.
    """
    equal = first_of_equal(texts)
    own = np.arange(len(queries.relevant)) if queries.answers is None else queries.answers
    alone = np.bincount(own)[own] == 1
    # Rows about equal texts share an answer, as do rows of one named document.
    kind = np.where(alone, equal[queries.relevant[:, 1]], len(texts) + own)
    keys = queries.relevant[:, 0] * (len(texts) + len(own)) + kind
    same = np.unique(keys, return_inverse=True)[1].ravel()
    shared = np.full(int(same.max()) + 1, len(own))
    np.minimum.at(shared, same, own)
    answer = shared[same]
    order = np.argsort(equal, kind="stable")
    starts = np.searchsorted(equal[order], np.arange(len(texts)))
    ends = np.searchsorted(equal[order], np.arange(len(texts)), side="right")
    rows: dict[tuple[int, int], tuple[float, int]] = {}
    for (query, text), grade, number, by_text in zip(
        queries.relevant.tolist(), queries.grades.tolist(), answer.tolist(), alone.tolist(), strict=True
    ):
        for copy in order[starts[equal[text]] : ends[equal[text]]].tolist() if by_text else [text]:
            known = rows.get((query, copy))
            rows[query, copy] = (grade, number) if known is None else (max(grade, known[0]), known[1])
    pairs = np.array(list(rows), dtype=np.int64)
    grades, numbers = (np.array(column) for column in zip(*rows.values(), strict=True))
    sort = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return Judgements.of(
        len(queries.texts), len(texts), pairs[sort], grade=grades[sort], answer=numbers[sort].astype(np.int64)
    )
