"""Batches by token budget: texts of like length together, rows selected by the mask, put back in order.

And texts as token ids that can be cut, joined and moved before a model encodes them.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import (
    EncoderOptions,
    ModelCard,
    Progress,
    TokenEncoder,
    check_layers,
    check_texts,
    resolve_prompt,
)
from poolscope.encoders.capabilities import EncoderSpec, attention_of, has_attention, planner_of
from poolscope.encoders.pooling import Step, TextPooling
from poolscope.encoders.tokens import Tokens, Vocabulary, offsets_of, tokenize_prompted
from poolscope.errors import InputError, ModelError, explained

Ids = NDArray[np.int32]
Array = NDArray[np.float64]
J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True)
class Batch:
    """Padded texts (texts × positions): `mask` marks real tokens, `keep` those that the pooling averages.

    `rows` are the places of the kept tokens in the finished token matrix. Padding is on the right whatever
    the tokenizer prefers: so no token's position depends on its neighbours, in causal models neither.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    keep: NDArray[np.bool_]
    type_ids: NDArray[np.int64] | None
    rows: NDArray[np.int64]

    def end_to_end(self) -> Batch:
        """The same tokens in one row, without padding."""
        types = None if self.type_ids is None else self.type_ids[self.mask][None]
        mask, keep = self.mask[self.mask][None], self.keep[self.mask][None]
        return Batch(self.ids[self.mask][None], mask, keep, types, self.rows)


# What beginning a batch costs, as a share of the tokens of a full one (measured on a CPU).
_BATCH_SHARE = 16

# The kept tokens of a batch, one matrix (kept tokens × dimension) per layer number.
Forward = Callable[[Batch], dict[int, NDArray[Any]]]


@dataclass(frozen=True)
class BatchPlan:
    """How to cut tokenised texts into batches.

    `skip` leading tokens of each text (the prompt) take part in attention but not in the cloud, as many of every text
    or a number for each. `padding=False` puts only texts of equal length together, for models that cannot be told what
    is padding. `room` says how many of all tokens make a batch if the backend lays texts end to end, 0 if it does not.
    """

    tokens: Tokens
    budget: int
    skip: int | NDArray[np.int64] = 0
    pad_id: int = 0
    padding: bool = True
    room: Callable[[int], int] | None = None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many tokens of each text are in its cloud."""
        return np.asarray(self.tokens.lengths - self.skip)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where the cloud of each text starts and ends in the finished token matrix."""
        return offsets_of(self.sizes)

    def __len__(self) -> int:
        return len(self._cuts) - 1

    def groups(self) -> Iterator[NDArray[np.int64]]:
        """Positions of the texts of each batch, longest texts first (ties in the given order)."""
        for start, stop in pairwise(self._cuts):
            yield self._order[start:stop]

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(-self.tokens.lengths, kind="stable")

    @cached_property
    def _cuts(self) -> list[int]:
        """Where the ordered texts are cut: of all ways within the budget the one with the least padding, where every
        batch costs as much as some tokens.
        """
        lengths, begun = self.tokens.lengths[self._order], self.budget // _BATCH_SHARE
        count, total = len(lengths), int(lengths.sum())
        if self.room is not None and (room := self.room(total)) > 0:  # nothing is padded: as many tokens in each
            batch = (np.cumsum(lengths) - 1) * -(-total // room) // total
            return [0, *(np.flatnonzero(np.diff(batch)) + 1).tolist(), count]
        most = np.minimum(np.maximum(1, self.budget // lengths), count - np.arange(count))
        if not self.padding:
            most = np.minimum(most, np.searchsorted(-lengths, -lengths, side="right") - np.arange(count))
        least, following = np.zeros(count + 1, dtype=np.int64), np.full(count + 1, count)
        for start, (longest, texts) in reversed(list(enumerate(zip(lengths.tolist(), most.tolist(), strict=True)))):
            costs = longest * np.arange(1, texts + 1) + least[start + 1 : start + texts + 1]
            taken = int(costs.argmin())
            least[start], following[start] = begun + costs[taken], start + taken + 1
        cuts = [0]
        while cuts[-1] < count:
            cuts.append(int(following[cuts[-1]]))
        return cuts

    def __iter__(self) -> Iterator[Batch]:
        offsets, sizes = self.offsets, self.sizes
        for group in self.groups():
            lengths = self.tokens.lengths[group]
            positions = np.arange(lengths.max())
            mask = positions < lengths[:, None]
            source = _ragged(self.tokens.offsets[group], lengths)
            ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
            ids[mask] = self.tokens.ids[source]
            types = None
            if self.tokens.type_ids is not None:
                types = np.zeros(mask.shape, dtype=np.int64)
                types[mask] = self.tokens.type_ids[source]
            rows = _ragged(offsets[group], sizes[group])
            yield Batch(ids, mask, mask & (positions >= (lengths - sizes[group])[:, None]), types, rows)


def _ragged(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The whole numbers starts[k] … starts[k] + lengths[k] - 1 of every k, end to end."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def run_batches(
    plan: BatchPlan, workers: Sequence[Forward], *, progress: Progress | None = None
) -> dict[int, NDArray[Any]]:
    """All batches through the workers; one token matrix per layer, texts in the given order.

    The memory is that of the result and of one batch per worker (two with several workers).
    """
    matrices: dict[int, NDArray[Any]] = {}
    total = int(plan.offsets[-1])
    for batch, layers in in_order(iter(plan), workers):
        for number, rows in layers.items():
            if number not in matrices:
                matrices[number] = np.empty((total, rows.shape[1]), dtype=rows.dtype)
            matrices[number][batch.rows] = rows
        if progress is not None:
            progress(len(batch.ids), len(batch.rows))
    return matrices


def in_order(jobs: Iterable[J], workers: Sequence[Callable[[J], R]]) -> Iterator[tuple[J, R]]:
    """Each job with its result, in order.

    Job k always goes to worker k mod n: equal calls, equal bytes. Where a worker is listed several times it is
    called from as many threads, each of which takes the next job when it is free.
    """
    if len(workers) == 1:
        for job in jobs:
            yield job, workers[0](job)
        return
    with ExitStack() as stack:
        pools = {worker: stack.enter_context(ThreadPoolExecutor(workers.count(worker))) for worker in set(workers)}
        waiting: deque[tuple[J, Future[R]]] = deque()
        stack.callback(lambda: [future.cancel() for _, future in waiting])  # on an error or Ctrl-C
        for k, job in enumerate(jobs):
            worker = workers[k % len(workers)]
            waiting.append((job, pools[worker].submit(worker, job)))
            if len(waiting) >= 2 * len(workers):
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()


class Backend(Protocol):
    """What runs padded batches: torch or ONNX. `budget` is the number of padded tokens that suits it."""

    budget: int
    pad_id: int
    padding: bool

    def describe(self, card: ModelCard) -> ModelCard:
        """The card of the model as it runs just now."""
        ...

    def in_role(self, role: str) -> Backend:
        """The backend for texts in that role."""
        ...

    def workers(self, numbers: Sequence[int], batches: int = 1) -> AbstractContextManager[Sequence[Forward]]:
        """Functions from a batch to the token rows of the layers `numbers`, to be called from a thread each.

        `batches` is how many there will be: for a single one all cores work together, for many each on its own.
        """
        ...


class BatchedEncoder:
    """An encoder made of a tokenizer and a backend; the order of the steps is the same for all of them."""

    def __init__(
        self,
        card: ModelCard,
        options: EncoderOptions,
        *,
        backend: Backend,
        tokenize: Callable[[Sequence[str], int | None], Tokens],
        vocabulary: Vocabulary,
        finishing: Callable[[], tuple[Step, ...]] | None = None,
    ) -> None:
        self._card = card
        self.options = options
        self.spec: EncoderSpec | None = None  # the door knows by which name it was opened
        self.prompt = resolve_prompt(card, options)
        self.max_length = chosen_length(card, options)
        self.backend = backend
        self.tokenize = tokenize
        self.vocabulary = vocabulary
        self.finishing = finishing  # reads the modules after pooling when they are asked for
        self._skip = 0 if card.include_prompt else self._prompt_length(vocabulary.special_ids)

    @property
    def card(self) -> ModelCard:
        """The declared card, with the attention temperature in force."""
        return self.backend.describe(self._card)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """Clouds of the texts for each asked layer; see `TokenEncoder.encode`."""
        texts = check_texts(texts)
        return self.encode_plan(texts, self.plan(texts), layers=layers, progress=progress)

    def encode_plan(
        self,
        texts: Sequence[str],
        plan: BatchPlan,
        *,
        layers: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> dict[int, TokenClouds]:
        """Clouds of texts whose tokens were planned otherwise than `plan` does, for each asked layer."""
        wanted = check_layers(layers, self.card.layers, name=self.card.name)
        with self.workers(sorted(set(wanted.values())), len(plan)) as workers:
            matrices = run_batches(plan, workers, progress=progress)
        about = {"model": self.card.to_dict(), "options": self.options.content()}
        return {
            layer: token_clouds(texts, plan.tokens, matrices[number], {**about, "layer": layer}, skip=plan.skip)
            for layer, number in wanted.items()
        }

    def with_options(self, options: EncoderOptions, *, role: str | None = None) -> BatchedEncoder:
        """The same model with other options; in a role it may run at a temperature of its own."""
        role = role or options.role
        card = replace(self.card, temperature=None)  # the backend says at which one it runs
        backend = self.backend if role is None else self.backend.in_role(role)
        other = BatchedEncoder(
            card,
            options,
            backend=backend,
            tokenize=self.tokenize,
            vocabulary=self.vocabulary,
            finishing=self.finishing,
        )
        other.spec = None if self.spec is None else replace(self.spec, options=options, role=role or self.spec.role)
        return other

    @property
    def attention(self) -> Sequence[Any] | None:
        """The torch models, one copy a device; None where the backend has none."""
        models: Sequence[Any] | None = getattr(self.backend, "models", None)
        return models

    @property
    def both_ways(self) -> Callable[[], BatchedEncoder] | None:
        """A function that opens the decoder with attention both ways; None where the backend has no such attention."""
        if not hasattr(self.backend, "both_ways"):
            return None

        def opened() -> BatchedEncoder:
            other = copy.copy(self)
            other.backend = self.backend.both_ways()  # type: ignore[attr-defined]
            return other

        return opened

    @property
    def unembedding(self) -> Callable[[], NDArray[np.float32]] | None:
        """What gives the table of the output words; None where the model has none."""
        table: Callable[[], NDArray[np.float32]] | None = getattr(self.backend, "unembedding", None)
        return table

    @property
    def lacking(self) -> str:
        """Why there is no `attention`, where the backend knows more than that it is no torch."""
        return str(getattr(self.backend, "lacking", ""))

    @contextmanager
    def workers(self, numbers: Sequence[int], batches: int = 1) -> Iterator[Sequence[Forward]]:
        """Functions from a batch to the token rows of the layers `numbers`; see `Backend.workers`."""
        with self.backend.workers(numbers, batches) as functions:
            # A function that is listed several times stays one.
            explaining = {function: partial(self._run_explained, function) for function in functions}
            yield [explaining[function] for function in functions]

    def _run_explained(self, forward: Forward, batch: Batch) -> dict[int, NDArray[Any]]:
        """Run a batch; what a library raises over a model of others is one line, objects of the caller raise as is."""
        if self.spec is None:
            return forward(batch)
        with explained(
            f"{self._card.name}: it cannot read a batch of {len(batch.ids)} texts, {batch.ids.shape[1]} tokens long",
            "Check that its tokenizer, settings and weights are of one model, and that the memory is enough.",
        ):
            return forward(batch)

    def plan(self, texts: Sequence[str]) -> BatchPlan:
        """The texts with their prompt, tokenised and cut into batches."""
        tokens = tokenize_prompted(self.tokenize, self.prompt, texts, self.max_length)
        _check_tokens(tokens, texts, skip=self._skip, max_length=self.max_length)
        return BatchPlan(
            tokens,
            self.options.batch_tokens or self.backend.budget,
            skip=self._skip,
            pad_id=self.backend.pad_id,
            padding=self.backend.padding,
            room=None if self.options.batch_tokens else getattr(self.backend, "room", None),
        )

    def _prompt_length(self, special_ids: frozenset[int]) -> int:
        """How many leading tokens are the prompt's: its own and the special ones before it, without a special
        token after it. So sentence-transformers counts what `include_prompt=False` leaves out.
        """
        if not self.prompt:
            return 0
        ids = self.tokenize([self.prompt], self.max_length).ids
        return len(ids) - int(len(ids) > 0 and int(ids[-1]) in special_ids)


def token_clouds(
    texts: Sequence[str],
    tokens: Tokens,
    matrix: NDArray[Any],
    provenance: Mapping[str, Any],
    *,
    skip: int | NDArray[np.int64] = 0,
) -> TokenClouds:
    """The clouds of texts from the finished matrix of their tokens (Σ kept × d), of which `skip` were left out."""
    sizes = np.asarray(tokens.lengths - skip)
    offsets = offsets_of(sizes)
    ids = tokens.ids[_ragged(tokens.offsets[1:] - sizes, sizes)]
    return TokenClouds.from_matrix(
        matrix,
        offsets,
        texts=texts,
        truncated=tokens.cut,
        token_ids=np.split(ids, offsets[1:-1]),
        provenance=dict(provenance),
    )


def chosen_length(card: ModelCard, options: EncoderOptions) -> int | None:
    """The tokens at which texts are cut: the caller's choice, if the weights have the positions, or the card's."""
    if options.max_length is not None and card.positions is not None and options.max_length > card.positions:
        raise InputError(
            f"max_length (--max-length): received {options.max_length}, but {card.name} has positions for "
            f"{card.positions} tokens only. Ask for at most {card.positions}, or split the texts."
        )
    return card.max_length if options.max_length is None else options.max_length


def not_finite(card: ModelCard) -> ModelError:
    """The error for NaN and infinity: a model that overflows must not pass for one that was measured."""
    return ModelError(
        f"{card.name} gave NaN or infinite token vectors in {card.dtype}; they must be finite. "
        f"Try --dtype float32 (dtype='float32'), or check the weights."
    )


def _check_tokens(tokens: Tokens, texts: Sequence[str], *, skip: int, max_length: int | None) -> None:
    if max_length is not None and tokens.lengths.max() > max_length:  # so tokenizers treat what they cannot cut
        raise InputError(
            f"max_length (--max-length): received {max_length}, which leaves no room beside the special tokens that "
            f"the tokenizer adds to every text. Use {tokens.lengths.max() + 1} or more."
        )
    empty = np.flatnonzero(tokens.lengths <= skip)
    if len(empty):
        why = "once the prompt's are left out" if skip else "for this tokenizer"
        raise InputError(
            f"{len(empty)} of {len(texts)} texts have no token {why} (positions {empty[:10].tolist()}; first: "
            f"{texts[int(empty[0])][:40]!r}). Leave these texts out, or raise --max-length (max_length) if the "
            f"prompt fills it."
        )


# -- texts as token ids -----------------------------------------------------------------------------------------------
#
# Cutting ids instead of strings keeps every token as it was: nothing is tokenised anew, and only the length changes.

_POSITION_TABLES = ("position_embeddings", "position_embedding", "wpe")
_WORD = "the"


class TokenInputs:
    """A model that takes lists of token ids, to which it adds its prompt and special tokens.

    `added` is how many tokens that are; `limit` the longest input that the model declares and `positions` the longest
    that its weights can take (None: no limit). An input is encoded once: its vector is kept for whoever asks again.
    `encoded` counts the tokens that the model read.
    """

    def __init__(self, encoder: TokenEncoder) -> None:
        self.encoded = 0
        self._known: dict[tuple[int, bytes], Array] = {}
        self._offset = 0
        self.encoder = planner_of(encoder)
        self._pooling = TextPooling.of(encoder)
        self._whole = copy.copy(self.encoder)  # the same model and tokenizer, and no text is truncated
        self._whole.max_length = None
        self._before, self._after = self._frame()
        self.added = len(self._before) + len(self._after)
        self.limit = self.encoder.max_length
        self.positions = encoder.card.positions

    @property
    def frame(self) -> tuple[Ids, Ids]:
        """The ids that stand before and after those of every text."""
        return self._before, self._after

    def content(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of whole texts, without prompt and special tokens."""
        tokens = self._whole.plan(texts).tokens
        stop = -len(self._after) or None
        rows = np.split(tokens.ids, tokens.offsets[1:-1])
        return [row[len(self._before) : stop] for row in rows]

    def cut(self, row: Ids, tokens: int) -> Ids:
        """The beginning of a text such that, with all that the model adds, it has at most `tokens` tokens."""
        return row[: max(tokens - self.added, 0)]

    def encode(self, rows: Sequence[Ids], *, progress: Progress | None = None) -> Array:
        """The vectors of inputs (N × d), as the model gives them (`TextPooling`), not normalised."""
        framed = [np.concatenate([self._before, row, self._after]) for row in rows]
        longest, most = max(map(len, framed), default=0), self.positions
        if most is not None and longest > most:
            raise InputError(f"received an input of {longest} tokens; {self.encoder.card.name} has {most} positions.")
        keys = [self._key(row) for row in framed]
        new = {key: row for key, row in zip(keys, framed, strict=True) if key not in self._known}
        if new:
            self._known.update(zip(new, self._vectors(list(new.values()), progress), strict=True))
        return np.stack([self._known[key] for key in keys])

    def remember(self, texts: Sequence[str], vectors: Array) -> None:
        """Vectors that the encoder gave for whole texts, for inputs that turn out to have the same tokens."""
        tokens = self.encoder.plan(texts).tokens
        rows = np.split(tokens.ids, tokens.offsets[1:-1])
        self._known.update(zip(map(self._key, rows), np.asarray(vectors, dtype=np.float64), strict=True))

    def _key(self, row: Ids) -> tuple[int, bytes]:
        return self._offset, row.astype(np.int32).tobytes()

    def _vectors(self, framed: Sequence[Ids], progress: Progress | None) -> Array:
        card, tokens = self.encoder.card, Tokens.join([row.tolist() for row in framed], [0] * len(framed))
        self.encoded += len(tokens.ids)
        plan = replace(self._whole.plan([_WORD]), tokens=tokens)
        with self.encoder.workers([card.last], len(plan)) as workers:
            matrix = run_batches(plan, workers, progress=progress)[card.last]
        return self._pooling.vectors(matrix, plan.offsets)

    def _frame(self) -> tuple[Ids, Ids]:
        """What stands before and after the ids of every text: the input for no text, found again around a word."""
        bare = copy.copy(self._whole)
        bare.prompt = bare.prompt.rstrip()  # a blank at its end belongs to the word that follows
        try:
            frame = bare.plan([""]).tokens.ids
        except InputError:  # nothing is added, so no text is no input
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        row = self._whole.plan([_WORD]).tokens.ids
        for before in range(len(frame), -1, -1):
            after = len(frame) - before
            if (row[:before] == frame[:before]).all() and (row[len(row) - after :] == frame[before:]).all():
                return frame[:before], frame[before:]
        raise ModelError(
            f"{self.encoder.card.name}: its tokenizer joins the prompt {self.encoder.prompt!r} with the text, so that "
            f"inputs cannot be put together from tokens. Leave the prompt out."
        )

    # -- positions ------------------------------------------------------------------------------------------------

    def position_tables(self) -> list[Any]:
        """The tables of absolute positions of a model on torch, as modules; none for rotary or relative positions."""
        if not has_attention(self.encoder):
            return []
        import torch

        return [
            module
            for model in attention_of(self.encoder)
            for name, module in model.named_modules()
            if name.rpartition(".")[2] in _POSITION_TABLES
            and isinstance(module, torch.nn.Embedding)
            and type(module).forward is torch.nn.Embedding.forward  # others compute positions inside
        ]

    @contextmanager
    def moved(self, offset: int) -> Iterator[None]:
        """While open, shift every token by `offset` positions, except special tokens before the text, such as [CLS]."""
        fixed = len(self._before)

        def move(module: Any, args: Any) -> Any:
            positions = args[0].clone()
            positions[..., fixed:] += offset
            # Padding may be moved past the end of the table; nobody looks at it.
            return (positions.clamp_(max=module.num_embeddings - 1), *args[1:])

        tables = self.position_tables()
        if not tables:
            raise ModelError(f"{self.encoder.card.name} has no table of absolute positions that could be moved along.")
        before, self._offset = self._offset, offset
        with ExitStack() as hooks:
            hooks.callback(setattr, self, "_offset", before)
            for table in tables:
                hooks.enter_context(table.register_forward_pre_hook(move))
            yield


def as_inputs(encoder: TokenEncoder | TokenInputs) -> TokenInputs:
    """The inputs of an encoder; inputs that are passed stay as they are, with their cache."""
    return encoder if isinstance(encoder, TokenInputs) else TokenInputs(encoder)
