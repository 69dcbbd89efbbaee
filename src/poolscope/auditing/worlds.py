"""Worlds: searches made from given texts in which there is nothing to find, or one cause that was planted.

Each world is a function from a draw of texts and queries to an audit of it. In a null world nothing may be `fix`; in
the others the planted cause has to be named first. Planted causes are large enough to be seen with 50 queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poolscope.auditing.result import Audit
from poolscope.auditing.run import audit
from poolscope.auditing.selfmade import make_queries
from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder, resolve_prompt
from poolscope.encoders.capabilities import has, longest_of, options_of, with_options
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import InputError
from poolscope.numbers import Array, Index
from poolscope.numbers.streaming import marks_of
from poolscope.texts.groups import first_of_equal

LONGEST = 200
"""Words that a text keeps, so that a run takes seconds."""
WORDS = 40
"""Words that a text of a planted world keeps, so that no other cause is in it."""
OTHER_WORDS = 60
"""Words of other texts that are put before a text whose end is asked for."""
SHARED_WORDS = 200
"""Words of planted boilerplate; fewer where a model would not read on behind them."""
LIMIT = 64
"""Tokens that a model reads where truncation is planted."""
PART, MOST = 0.3, 0.6
"""The share of texts that have a planted defect (a copy, the vector of another model, another length), and of those
that have boilerplate."""
_HELD = 2**29  # bytes of tokens that are kept for the next world

Random = np.random.Generator


# -- encoders of worlds -----------------------------------------------------------------------------------------------


class WorldEncoder:
    """A model that encodes each text once for all worlds. A subclass changes its tokens."""

    def __init__(self, base: TokenEncoder, known: dict[str, Any] | None = None, role: str | None = None) -> None:
        self.base = base
        self.card: ModelCard = base.card
        self.options = options_of(base)
        self.role = role
        self._known: dict[str, Any] = {} if known is None else known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def with_options(self) -> Callable[..., TokenEncoder] | None:
        """The same model with other options; None where the model takes none."""
        return self._with_options if has(self.base, "with_options") else None

    def _with_options(self, options: EncoderOptions, *, role: str | None = None) -> TokenEncoder:
        return type(self)(with_options(self.base, options, role=role), self._known, role)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """The clouds of the texts; those of the last layer are kept."""
        if layers is not None:
            return self.base.encode(texts, layers=layers, progress=progress)
        key = str(sorted(self.options.content().items(), key=str)) + str(self.role)
        rows, clouds = self._known.get(key, ({}, None))
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new:
            if clouds is not None and int(clouds.lengths.sum()) * clouds.dimension * clouds.dtype.itemsize > _HELD:
                rows, clouds, new = {}, None, list(dict.fromkeys(texts))
            encoded = self.base.encode(new, progress=progress)[-1]
            rows = {**rows, **{text: len(rows) + k for k, text in enumerate(new)}}
            clouds = encoded if clouds is None else TokenClouds.concatenate([clouds, encoded])
            self._known[key] = rows, clouds
        assert clouds is not None
        return {-1: self.changed(clouds.select([rows[text] for text in texts]))}

    def changed(self, clouds: TokenClouds) -> TokenClouds:
        """The tokens as this world has them."""
        return clouds


def _with_tokens(clouds: TokenClouds, change: Callable[[Array, Index], Array]) -> TokenClouds:
    """The same clouds with other vectors; `change` takes tokens and the place of each in its text."""
    arrays = [change(np.asarray(cloud), np.arange(len(cloud))).astype(cloud.dtype) for cloud in clouds]
    changed = np.concatenate(arrays)
    offsets = np.concatenate([[0], np.cumsum(clouds.lengths)])
    ids = [clouds.token_ids(k) for k in range(len(clouds))]
    return TokenClouds.from_matrix(
        changed,
        offsets,
        truncated=clouds.truncated,
        token_ids=None if any(each is None for each in ids) else ids,  # type: ignore[arg-type]
        provenance=clouds.provenance,
    )


class FadingEncoder(WorldEncoder):
    """A model whose token vectors get shorter along a text, so that the mean shows its start."""

    def changed(self, clouds: TokenClouds) -> TokenClouds:
        """Half as long every 16 tokens."""
        return _with_tokens(clouds, lambda tokens, place: tokens * 0.5 ** (place[:, None] / 16))


class PromptedEncoder(WorldEncoder):
    """A model that declares a prompt for queries, and turns queries without it out of the space of the texts."""

    prompt_text = "query: "

    def __init__(self, base: TokenEncoder, known: dict[str, Any] | None = None, role: str | None = None) -> None:
        super().__init__(base, known, role)
        self.card = replace(base.card, prompts={"query": self.prompt_text})

    def _with_options(self, options: EncoderOptions, *, role: str | None = None) -> TokenEncoder:
        """The model behind it never sees the prompt: having it or not is all that counts."""
        plain = replace(options, prompt=None, prompt_name=None, role=None)
        other = PromptedEncoder(with_options(self.base, plain), self._known, role or options.role)
        other.options = options
        return other

    @property
    def prompt(self) -> str:
        """What stands before every text."""
        return resolve_prompt(self.card, self.options)

    def changed(self, clouds: TokenClouds) -> TokenClouds:
        """Queries without the prompt are mixed with a turned copy of themselves, as long as they were."""
        if self.role != "query" or self.prompt:
            return clouds
        turn = _turned(self.card.dimension)
        return _with_tokens(clouds, lambda tokens, place: 0.4 * tokens + 0.917 * (tokens @ turn))


def _turned(dimension: int, seed: int = 0) -> Array:
    """A random rotation: the space of a model is as good turned, but the two have nothing in common."""
    random = np.random.default_rng(seed)
    return np.asarray(np.linalg.qr(random.standard_normal((dimension, dimension)))[0])


# -- what worlds are made from ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """Some texts and queries of the given ones. `relevant` has the positions of the texts that answer each query.

    `spare` are further texts that nobody asks for, `everything` are all that were given, and `random` draws what the
    world draws.
    """

    encoder: TokenEncoder
    texts: list[str]
    relevant: Mapping[str, Sequence[int]]
    spare: Sequence[str]
    everything: Sequence[str] = field(repr=False)
    random: Random = field(repr=False)
    seed: int = 0

    @property
    def cut(self) -> list[str]:
        """The first words of every text."""
        return [" ".join(text.split()[:WORDS]) for text in self.texts]

    def vectors(self, texts: Sequence[str]) -> Array:
        """The vectors of texts, as long as the model makes them."""
        return np.asarray(TextPooling.of(self.encoder).pool(self.encoder.encode(texts)[-1]))

    def filler(self, words: int) -> str:
        """So many words of other texts, in a row."""
        pool = self.spare if len(self.spare) > 1 else self.texts
        chosen: list[str] = []
        while len(chosen) < words:
            chosen += pool[int(self.random.integers(len(pool)))].split()
        return " ".join(chosen[:words])

    def audit(self, texts: Sequence[str], encoder: Any = None, **settings: Any) -> Audit:
        """The audit of these texts with the queries of the draw."""
        judgements = {query: [str(text) for text in places] for query, places in self.relevant.items()}
        settings = {"queries": judgements, **settings}
        return audit(self.encoder if encoder is None else encoder, list(texts), seed=self.seed, **settings)


@dataclass(frozen=True)
class Source:
    """The given texts, each once, and queries for some of them; without queries, self-made ones."""

    encoder: TokenEncoder
    texts: list[str]
    relevant: Mapping[str, Sequence[int]]
    self_made: str = ""

    @classmethod
    def of(cls, encoder: TokenEncoder, texts: Sequence[str], relevant: Mapping[str, Sequence[int]] | None) -> Source:
        """From texts and queries as they were named."""
        made = ""
        texts = [" ".join(text.split()[:LONGEST]) for text in texts]
        if relevant is None:
            cut = make_queries(list(texts), most=len(texts))
            if cut is None:
                raise InputError("received no queries, and too few could be made from these texts. Add --queries FILE.")
            texts, made = cut.texts, cut.kind
            rows = cut.queries.relevant.tolist()
            relevant = {
                query: [text for row, text in rows if row == number] for number, query in enumerate(cut.queries.texts)
            }
        first = first_of_equal(texts)
        places = {int(old): new for new, old in enumerate(np.unique(first))}
        moved = {query: sorted({places[int(first[text])] for text in answers}) for query, answers in relevant.items()}
        return cls(WorldEncoder(encoder), [texts[k] for k in places], moved, made)

    def pool(self, texts: int, queries: int, seed: int) -> Source:
        """So many texts and queries, from which every run draws its own, so that few texts are encoded."""
        some = self.drawn(texts, queries, seed)
        return replace(self, texts=some.texts, relevant=some.relevant)

    def drawn(self, texts: int, queries: int, seed: int) -> Draw:
        """So many queries with their relevant texts, filled up with others to so many texts."""
        random = np.random.default_rng(seed)
        names = list(self.relevant)
        drawn_queries = [names[k] for k in random.permutation(len(names))[:queries]]
        while len(needed := {text for query in drawn_queries for text in self.relevant[query]}) > texts:
            drawn_queries.pop()
        others = [k for k in random.permutation(len(self.texts)).tolist() if k not in needed]
        chosen = random.permutation([*sorted(needed), *others[: texts - len(needed)]]).tolist()
        place = {old: new for new, old in enumerate(chosen)}
        return Draw(
            self.encoder,
            [self.texts[k] for k in chosen],
            {query: [place[text] for text in self.relevant[query]] for query in drawn_queries},
            [self.texts[k] for k in others[texts - len(needed) :]],
            self.texts,
            random,
            seed,
        )


# -- null worlds ------------------------------------------------------------------------------------------------------


def random_relevance(draw: Draw) -> Audit:
    """Every query asks for a text by chance."""
    any_text = draw.random.integers(len(draw.texts), size=len(draw.relevant)).tolist()
    return replace(draw, relevant={q: [t] for q, t in zip(draw.relevant, any_text, strict=True)}).audit(draw.texts)


def shuffled_words(draw: Draw) -> Audit:
    """Texts of words of any text, as long as any text: nothing in them is asked for.

    A text is drawn by its own words, so that it is encoded once for all runs.
    """
    words = [text.split() for text in draw.everything]
    texts = []
    for mark in marks_of(draw.texts).tolist():
        random = np.random.default_rng(mark % 2**63)
        length = len(words[random.integers(len(words))])
        rows = random.integers(len(words), size=length).tolist()
        texts.append(" ".join(words[row][random.integers(len(words[row]))] for row in rows))
    return draw.audit(texts)


def one_document(draw: Draw) -> Audit:
    """All texts are of one document, which is one draw and proves nothing."""
    return draw.audit(draw.texts, groups=["one"] * len(draw.texts))


def sound_index(draw: Draw) -> Audit:
    """An index with the vectors of its model."""
    vectors = _unit(draw.vectors(draw.texts))
    return draw.audit(draw.texts, vectors, queries=None, distance="dot", reference=draw.encoder)


def sound_index_alone(draw: Draw) -> Audit:
    """A sound index without the name of the model that made it."""
    return draw.audit(draw.texts, _unit(draw.vectors(draw.texts)), queries=None, distance="dot")


# -- planted worlds ---------------------------------------------------------------------------------------------------


def truncation(draw: Draw) -> Audit:
    """Half of the texts come after words of other texts, and the model stops reading before they begin."""
    if not has(draw.encoder, "with_options"):
        raise InputError(f"{draw.encoder.card.name}: takes no other length, so truncation cannot be planted.")
    late = draw.random.random(len(draw.texts)) < 0.5
    texts = [f"{draw.filler(OTHER_WORDS)} {own}" if k else own for k, own in zip(late, draw.cut, strict=True)]
    return draw.audit(texts, with_options(draw.encoder, replace(options_of(draw.encoder), max_length=LIMIT)))


def boilerplate(draw: Draw) -> Audit:
    """Most texts begin with the same words, and the others stand out."""
    limit = longest_of(draw.encoder)
    # A word is at most 1.7 tokens in most texts.
    head = draw.filler(SHARED_WORDS if limit is None else min(SHARED_WORDS, max(int(limit / 1.7) - WORDS, WORDS)))
    marked = draw.random.random(len(draw.texts)) < MOST
    return draw.audit([f"{head} {own}" if k else own for k, own in zip(marked, draw.cut, strict=True)])


def first_token_rows(draw: Draw) -> Audit:
    """A server gives the vector of the first token in place of the mean."""
    texts = draw.cut
    first = np.array([cloud[0] for cloud in draw.encoder.encode(texts)[-1]])
    return draw.audit(texts, vectors=first)


def copies(draw: Draw) -> Audit:
    """Some texts are in the index twice."""
    texts = draw.cut
    twice = draw.random.permutation(len(texts))[: int(PART * len(texts))]
    return draw.audit([*texts, *(texts[k] for k in twice)])


def missing_prompt(draw: Draw) -> Audit:
    """The model needs a prompt before queries, and they are encoded without it."""
    return draw.audit(draw.cut, PromptedEncoder(draw.encoder), query_prompt="")


def lost_normalisation(draw: Draw) -> Audit:
    """Some rows of an index that is searched by dot product kept the length that the model gave them."""
    raw = draw.vectors(draw.texts)
    rows = _unit(raw)
    some = draw.random.permutation(len(rows))[: int(PART * len(rows))]
    rows[some] = raw[some]
    return draw.audit(draw.texts, rows, queries=None, distance="dot")


def mixed_models(draw: Draw) -> Audit:
    """Some rows of an index are those of another model."""
    rows = _unit(draw.vectors(draw.texts))
    some = draw.random.permutation(len(rows))[: int(PART * len(rows))]
    rows[some] = rows[some] @ _turned(rows.shape[1], draw.seed)
    return draw.audit(draw.texts, rows, queries=None)


def position(draw: Draw) -> Audit:
    """Half of the texts stand before words of other texts and half after, and vectors show the start of a text."""
    late = draw.random.random(len(draw.texts)) < 0.5
    fillers = [draw.filler(OTHER_WORDS) for _ in draw.texts]
    texts = [f"{more} {own}" if k else f"{own} {more}" for k, more, own in zip(late, fillers, draw.cut, strict=True)]
    return draw.audit(texts, FadingEncoder(draw.encoder))


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """One world: what is in it, and the cause that is planted ("" where there is nothing to find)."""

    name: str
    make: Callable[[Draw], Audit]
    cause: str = ""


WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        World("random relevance", random_relevance),
        World("shuffled words", shuffled_words),
        World("one document", one_document),
        World("sound index", sound_index),
        World("sound index alone", sound_index_alone),
        World("truncation", truncation, "truncation"),
        World("boilerplate", boilerplate, "boilerplate"),
        World("first-token rows", first_token_rows, "server"),
        World("copies", copies, "duplicates"),
        World("missing prompt", missing_prompt, "prompt"),
        World("lost normalisation", lost_normalisation, "index"),
        World("mixed models", mixed_models, "one_space"),
        World("position", position, "position"),
    )
}
