"""Texts as token ids that can be cut, joined and moved before a model encodes them.

Cutting ids instead of strings keeps every token as it was: nothing is tokenised anew, so that only the length changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.batching import run_batches
from poolscope.encoders.capabilities import attention_of, has_attention, planner_of
from poolscope.encoders.pooling import TextPooling
from poolscope.encoders.tokens import Tokens
from poolscope.errors import InputError, ModelError

Ids = NDArray[np.int32]
Array = NDArray[np.float64]

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
        self._whole = copy.copy(self.encoder)  # the same model and tokenizer, and no text is cut
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
        """The vectors of inputs (N × d), pooled as the model declares (`TextPooling`), not normalised."""
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
        return TextPooling(card).vectors(matrix, plan.offsets)

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
        """While open, every token but those before the text (such as [CLS]) stands `offset` positions further on."""
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
    """The inputs of an encoder; those that are given stay, with what they have encoded."""
    return encoder if isinstance(encoder, TokenInputs) else TokenInputs(encoder)
