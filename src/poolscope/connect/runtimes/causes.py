"""Named causes for vectors that are not the model's own, each computed from the reference model itself.

A cause changes what the model reads (prompt, truncation, padding, special tokens, letters), which layer is taken, how
the tokens are pooled, or what follows the pooling. `Reference.read` gives the clouds of one way of reading, and
`Reference.pooled` the vectors that each pooling makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.batching import Batch, TokenInputs
from poolscope.encoders.capabilities import (
    can_encode,
    has,
    options_of,
    planner_of,
    pooler_step,
    steps_after,
    takes_tokens,
    vocabulary_of,
    with_options,
)
from poolscope.encoders.pooling import TextPooling, finish, modules_after
from poolscope.encoders.tokens import Tokens
from poolscope.errors import InputError, ModelError
from poolscope.numbers.moments import mean
from poolscope.numbers.pooling import pool

Array = NDArray[np.float64]
Ids = NDArray[np.int32]
Index = NDArray[np.int64]

POOLINGS = ("mean", "cls", "last", "max", "position")
CONTENT = "mean without special tokens"
POOLER = "BERT's pooler on the first token"
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# Prefixes that widely used models were trained with, and that runtimes put before texts of any model.
COMMON_PROMPTS = (
    "query: ",
    "passage: ",
    "search_query: ",
    "search_document: ",
    "clustering: ",
    "classification: ",
    "Represent this sentence for searching relevant passages: ",
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
    "task: search result | query: ",
    "title: none | text: ",
)
# Bits a weight, from what changes hardly anything to what few would serve.
BITS = (8, 6, 5, 4, 3, 2)
WEIGHTS = "weights"
_SHOWN = 40
_LONGEST_PADDING = 512  # beyond that nobody pads every text to the limit, and it would take long


@dataclass(frozen=True)
class Cause:
    """One thing that a runtime may do otherwise.

    `kind` groups causes, `name` is short, `words` go on after "Your runtime", and `step` says what to do about it.
    """

    kind: str
    name: str
    words: str
    step: str


DECLARED = Cause("as declared", "as declared", "does as the model declares", "nothing")


@dataclass(frozen=True)
class Reading:
    """One way to read texts: its cause, and the clouds that it gives of the texts of a reference.

    `bits` is how many bits a weight has, where the weights are rounded; `limit` how many tokens are read of a text,
    where that is what differs.
    """

    cause: Cause
    clouds: Callable[[Reference], TokenClouds]
    bits: int | None = None
    limit: int | None = None


class Reference:
    """A model on some texts, which can be read and pooled in other ways.

    `clouds` are those of the texts, if they are known already; `batches` are the positions of the texts of each
    request, which padding goes by (by default all texts are one); `widths` is the longest text in the request of each,
    where it is known already.
    """

    def __init__(
        self,
        encoder: TokenEncoder,
        texts: Sequence[str] | None,
        *,
        clouds: TokenClouds | None = None,
        batches: Sequence[Sequence[int]] | None = None,
        widths: Index | None = None,
    ) -> None:
        self.encoder = encoder
        self.texts = None if texts is None else list(texts)
        self._clouds = clouds
        self.batches = None if batches is None else [list(batch) for batch in batches]
        self._widths = widths
        self.card = encoder.card
        self.steps = steps_after(encoder)
        self._pooling = TextPooling(replace(encoder.card, after=()))  # what comes after it are the steps

    def __len__(self) -> int:
        return len(self.clouds)

    @cached_property
    def clouds(self) -> TokenClouds:
        """The clouds of the texts as the model reads them."""
        return self.encoder.encode(self.texts or [])[-1] if self._clouds is None else self._clouds

    @property
    def pooling(self) -> str:
        """The pooling that the model declares; the mean where it declares none, or one that is not known."""
        return self._pooling.name

    @property
    def whole(self) -> bool:
        """Can its final vectors be computed: one pooling, and modules after it that could be read?"""
        return self.steps is not None and self._pooling.own is not False

    def at(self, positions: NDArray[np.int64]) -> Reference:
        """The cause for some of the texts; each stays in its request."""
        texts = None if self.texts is None else [self.texts[k] for k in positions]
        widths = self.widths[positions] if texts is not None and takes_tokens(self.encoder) else None
        return Reference(self.encoder, texts, clouds=self.clouds.select(positions), widths=widths)

    # -- poolings -------------------------------------------------------------------------------------------------

    def pooled(self, clouds: TokenClouds) -> dict[str, Array]:
        """The final vectors of clouds under each pooling, that of the model first (texts × d)."""
        tables = {name: pool(clouds, name) for name in dict.fromkeys((self.pooling, *POOLINGS))}
        content, pooler = self._content(clouds), self._pooler
        if content is not None:
            tables[CONTENT] = content
        if pooler is not None:
            tables[POOLER] = pooler(tables["cls"])
        return tables

    def finished(self, table: Array) -> Array:
        """Pooled vectors after the modules behind the pooling."""
        return finish(table, self.steps or ())

    @cached_property
    def _pooler(self) -> Any:
        return pooler_step(self.encoder)

    def _content(self, clouds: TokenClouds) -> Array | None:
        """Means of the tokens that stand for text; None where special tokens are not known, or are all there is."""
        special, rows = sorted(self._special_ids), []
        if not special:
            return None
        for k, cloud in enumerate(clouds):
            ids = clouds.token_ids(k)
            if ids is None:
                return None
            keep = ~np.isin(ids, special)
            rows.append(mean(cloud[keep] if keep.any() else cloud))  # an empty text has nothing but special tokens
        return np.array(rows)

    def pooling_cause(self, name: str) -> Cause:
        """Another pooling than the declared one."""
        right = f"set the pooling of your runtime to {self.pooling}"
        if name == CONTENT:
            return Cause("special tokens", name, "left the special tokens out of the mean", right)
        if name == POOLER:
            return Cause("pooling", name, "gave the output of BERT's pooler, not of a pooling of its tokens", right)
        return Cause("pooling", name, f"pooled by {name}", right)

    def missing_cause(self) -> Cause:
        """The modules after the pooling left out."""
        modules = ", ".join(modules_after(self.card.after))
        return Cause("modules", f"without {modules}", f"left out {modules}", f"let your runtime apply {modules}")

    # -- other ways to read ---------------------------------------------------------------------------------------

    def readings(self) -> Iterator[Reading]:
        """Every other way to read the texts that changes their tokens, the likeliest first."""
        if self.texts is None or not can_encode(self.encoder):
            return
        if has(self.encoder, "with_options"):
            yield from self._prompts()
            yield from self._lengths()
        if takes_tokens(self.encoder):
            yield from self._special()
            yield from self._padded()
        yield from self._letters()
        yield from self._layers()
        yield from self._rounded()

    def untested(self) -> tuple[str, ...]:
        """Kinds of causes that this reference cannot be asked about."""
        if self.texts is None or not can_encode(self.encoder):
            return ("prompt", "truncation", "padding", "letters", "layer")
        kinds = [] if has(self.encoder, "with_options") else ["prompt", "truncation"]
        kinds += [] if takes_tokens(self.encoder) else ["padding"]
        return (*kinds, *([] if (self.card.layers or 0) > 1 else ["layer"]))

    def _encoded(self, **changed: Any) -> TokenClouds:
        options = replace(options_of(self.encoder), **changed)
        return with_options(self.encoder, options).encode(self.texts or [])[-1]

    def _of_texts(self, texts: list[str]) -> TokenClouds:
        return self.encoder.encode(texts)[-1]

    def _prompts(self) -> Iterator[Reading]:
        own = getattr(self.encoder, "prompt", "")
        declared = {text: name for name, text in self.card.prompts.items()}
        right = f"let it put {_quoted(own)} before every text" if own else "let it put nothing before the texts"
        for prompt in dict.fromkeys(["", *declared, *COMMON_PROMPTS]):
            if prompt == own:
                continue
            name = f"prompt {_quoted(prompt)}" if prompt else "no prompt"
            known = f", which the model declares as {declared[prompt]!r}," if prompt in declared and prompt else ""
            words = (
                f"put {_quoted(prompt)}{known} before the texts" if prompt else f"left out the prompt {_quoted(own)}"
            )
            cause = Cause("prompt", name, words, right)
            yield Reading(cause, _changed(prompt=prompt, prompt_name=None, role=None))

    def _lengths(self) -> Iterator[Reading]:
        """Limits that cut other tokens than the model's own does, each twice the one before; `cut_at` makes others.

        Of limits that cut nothing one is enough.
        """
        longest_read = self.longest_read
        for limit in sorted({*LENGTHS, self.most_tokens}):
            if limit > self.most_tokens or min(limit, self.longest) == longest_read:
                continue
            yield self.cut_at(limit)
            if limit >= self.longest:
                return

    @property
    def longest(self) -> int:
        """The longest text in tokens, also those that the model does not read."""
        return int((self.clouds.lengths + self.clouds.truncated).max())

    @property
    def longest_read(self) -> int:
        """How many tokens the model reads of it."""
        own = getattr(self.encoder, "max_length", None)
        return self.longest if own is None else min(own, self.longest)

    @property
    def most_tokens(self) -> int:
        """How many tokens the model could read."""
        return self.card.positions or LENGTHS[-1]

    def cut_at(self, limit: int) -> Reading:
        """The texts cut at so many tokens."""
        own = getattr(self.encoder, "max_length", None)
        right = f"let it cut texts at {own} tokens" if own is not None else "let it cut no text"
        cause = Cause("truncation", f"cut at {limit} tokens", f"cut texts at {limit} tokens", right)
        return Reading(cause, _changed(max_length=limit), limit=limit)

    def _letters(self) -> Iterator[Reading]:
        ways: tuple[tuple[str, Callable[[str], str]], ...] = (
            ("lower case", str.lower),
            ("line breaks as blanks", lambda text: text.replace("\n", " ")),
            ("blanks at the ends removed", str.strip),
        )
        for name, change in ways:
            changed = list(map(change, self.texts or []))
            if changed != self.texts and all(changed):
                words, right = f"changed the letters of texts ({name})", "let it pass texts on unchanged"
                yield Reading(Cause("letters", name, words, right), partial(_of_letters, change=change))

    def _layers(self) -> Iterator[Reading]:
        depth = self.card.layers or 0
        if depth < 2:
            return
        try:
            self._layer_clouds  # noqa: B018
        except (InputError, ModelError):  # a graph shows its last layer only
            return
        for layer in reversed(range(depth)):
            words = f"took layer {layer} of {depth}" if layer else "took the embedding output, before the first layer"
            cause = Cause("layer", f"layer {layer}", words, f"let it take the last layer, {depth}")
            yield Reading(cause, partial(_of_layer, layer=layer))

    @cached_property
    def _layer_clouds(self) -> Mapping[int, TokenClouds]:
        """The clouds of every layer but the last, by one pass."""
        return self.encoder.encode(self.texts or [], layers=list(range(self.card.layers or 0)))

    def _rounded(self) -> Iterator[Reading]:
        """The model with its weights rounded to few bits, in the simplest way that is in use (blocks of 32)."""
        if not hasattr(getattr(self.encoder, "backend", None), "rounded_weights"):
            return
        for bits in BITS:
            words = f"ran the model with its weights rounded to {bits} bits"
            right = "let it run the model with 8 or 16 bits a weight"
            cause = Cause(WEIGHTS, f"weights in {bits} bits", words, right)
            yield Reading(cause, partial(_of_rounded, bits=bits), bits=bits)

    @cached_property
    def _special_ids(self) -> set[int]:
        """The ids that the tokenizer puts around every text; those for unknown words or padding are none of them."""
        vocabulary = vocabulary_of(self.encoder)
        special = set() if vocabulary is None else set(vocabulary.special_ids)
        if special and has(self.encoder, "tokenize"):
            around = self.encoder.tokenize([""], None).ids  # type: ignore[attr-defined]
            return special & set(around.tolist())
        return special

    # -- token by token -------------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> list[Ids]:
        """The ids of every text as the model reads it."""
        tokens = planner_of(self.encoder).plan(self.texts or []).tokens
        return [np.asarray(row, dtype=np.int32) for row in np.split(tokens.ids, tokens.offsets[1:-1])]

    def _special(self) -> Iterator[Reading]:
        special = self._special_ids
        first, last = (all(len(row) and int(row[k]) in special for row in self._rows) for k in (0, -1))
        right = "let it put the special tokens of the model's own tokenizer around every text, once"
        most = self.card.positions or max(len(row) + 1 for row in self._rows)
        if first or last:
            cause = Cause("special tokens", "no special tokens", "put no special tokens around the texts", right)
            yield Reading(cause, Reference._without_special)
        ways: tuple[tuple[bool, str, str, Callable[[Ids], Ids]], ...] = (
            (first, "first token twice", "put the first special token twice", lambda row: np.append(row[:1], row)),
            (last, "last token missing", "left out the last special token", lambda row: row[:-1]),
            (last, "last token twice", "put the last special token twice", lambda row: np.append(row, row[-1:])),
        )
        for there, name, words, change in ways:
            if there and all(len(change(row)) for row in self._rows):
                cause = Cause("special tokens", name, words, right)
                yield Reading(cause, partial(_of_changed_rows, change=change, most=most))

    def _without_special(self) -> TokenClouds:
        """Texts tokenised without special tokens, and cut only then: more words have room."""
        bare = with_options(self.encoder, replace(options_of(self.encoder), prompt="", prompt_name=None, role=None))
        rows = TokenInputs(bare).content([getattr(self.encoder, "prompt", "") + text for text in self.texts or []])
        limit = getattr(self.encoder, "max_length", None)
        return self._of_rows([row[:limit] if len(row) else own for row, own in zip(rows, self._rows, strict=True)])

    def _of_rows(self, rows: Sequence[Ids]) -> TokenClouds:
        """The clouds of lists of ids."""
        plan = replace(
            planner_of(self.encoder).plan((self.texts or [])[:1]),
            tokens=Tokens.join([row.tolist() for row in rows], [0] * len(rows)),
            skip=0,
        )
        return planner_of(self.encoder).encode_plan(self.texts or [], plan)[-1]

    def _padded(self) -> Iterator[Reading]:
        """Padding that is pooled like a token: up to the longest of a request, or to a fixed length; seen by the
        other tokens or not.
        """
        if not getattr(getattr(self.encoder, "backend", None), "padding", False):
            return
        limit = getattr(self.encoder, "max_length", None)
        widths: dict[str, int | None] = {"to the longest text": None}
        if limit is not None and limit <= _LONGEST_PADDING:
            widths[f"to {limit} tokens"] = limit
        right = "let it leave padding out of the pooling (attention mask)"
        for how, width in widths.items():
            for seen in (False, True):
                name = f"padding counted, {how}" + (", and attended to" if seen else "")
                words = f"pooled padding as if it were text ({how}" + (", attended to as well)" if seen else ")")
                cause = Cause("padding", name, words, right)
                yield Reading(cause, partial(_of_padded, width=width, seen=seen))

    @cached_property
    def widths(self) -> Index:
        """The longest text in the request of each text, in tokens."""
        if self._widths is not None:
            return self._widths
        lengths = np.array([len(row) for row in self._rows])
        widths = np.full(len(lengths), lengths.max())
        for batch in self.batches or []:
            widths[batch] = lengths[batch].max()
        return widths


# -- the clouds of each way to read -----------------------------------------------------------------------------------


def _changed(**options: Any) -> Callable[[Reference], TokenClouds]:
    """Encode with other options."""
    return lambda reference: reference._encoded(**options)


def _of_letters(reference: Reference, change: Callable[[str], str]) -> TokenClouds:
    return reference._of_texts([change(text) for text in reference.texts or []])


def _of_layer(reference: Reference, layer: int) -> TokenClouds:
    return reference._layer_clouds[layer]


def _of_rounded(reference: Reference, bits: int) -> TokenClouds:
    with reference.encoder.backend.rounded_weights(bits):  # type: ignore[attr-defined]
        return reference._of_texts(reference.texts or [])


def _of_changed_rows(reference: Reference, change: Callable[[Ids], Ids], most: int) -> TokenClouds:
    return reference._of_rows([change(row)[:most] for row in reference._rows])


def _of_padded(reference: Reference, *, width: int | None, seen: bool) -> TokenClouds:
    """Padding to a width, by default that of the request; `seen`: the other tokens attend to it."""
    rows, widths = reference._rows, reference.widths if width is None else np.full(len(reference._rows), width)
    backend, number = reference.encoder.backend, reference.card.last  # type: ignore[attr-defined]
    states: dict[int, tuple[Any, Ids]] = {}
    with backend.workers([number], 1) as workers:
        for size in np.unique(widths):
            batch = np.flatnonzero(widths == size)
            ids = np.full((len(batch), size), backend.pad_id, dtype=np.int64)
            mask = np.zeros(ids.shape, dtype=bool)
            for place, k in enumerate(batch):
                ids[place, : len(rows[k])] = rows[k]
                mask[place, : len(rows[k])] = True
            keep = np.ones_like(mask)
            padded = Batch(ids, keep if seen else mask, keep, None, np.arange(ids.size))
            given = workers[0](padded)[number].reshape(*ids.shape, -1)
            states |= {int(k): (given[place], ids[place].astype(np.int32)) for place, k in enumerate(batch)}
    order = range(len(rows))
    return TokenClouds.from_arrays([states[k][0] for k in order], token_ids=[states[k][1] for k in order])


def _quoted(prompt: str) -> str:
    short = prompt if len(prompt) <= _SHOWN else f"{prompt[: _SHOWN - 1]}…"
    return repr(short)
