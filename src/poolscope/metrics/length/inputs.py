"""Texts as token ids that can be cut, joined and moved before a model encodes them.

Cutting ids instead of strings keeps every token as it was: nothing is tokenised anew, so that only the length changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders import Progress, TokenEncoder
from poolscope.encoders.base import check_layers
from poolscope.encoders.batching import BatchedEncoder, BatchPlan, run_batches
from poolscope.encoders.pooling import TextPooling
from poolscope.encoders.tokens import Tokens
from poolscope.encoders.torch_backend import TorchBackend
from poolscope.errors import InputError, ModelError

Ids = NDArray[np.int32]
Array = NDArray[np.float64]

_POSITION_TABLES = ("position_embeddings", "position_embedding", "wpe")
_WORD = "the"


class TokenInputs:
    """A model that takes lists of token ids, to which it adds its prompt and special tokens.

    `added` is how many tokens that are; `limit` the longest input that the model declares and `positions` the longest
    that its weights can take (None: no limit).
    """

    def __init__(self, encoder: TokenEncoder) -> None:
        if not isinstance(encoder, BatchedEncoder):
            raise ModelError(
                f"{encoder.card.name}: received a model of kind '{encoder.card.kind}', which takes no tokens; probes "
                f"of the length need a transformer (transformers, sentence-transformers or ONNX)."
            )
        self.encoder = encoder
        self._whole = copy.copy(encoder)  # the same model and tokenizer, and no text is cut
        self._whole.max_length = None
        self._before, self._after = self._frame()
        self.added = len(self._before) + len(self._after)
        self.limit = encoder.max_length
        self.positions = encoder.card.positions

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
        backend, card = self.encoder.backend, self.encoder.card
        plan = BatchPlan(
            Tokens.join([row.tolist() for row in framed], [0] * len(framed)),
            self.encoder.options.batch_tokens or backend.budget,
            skip=self._whole.plan([_WORD]).skip,
            pad_id=backend.pad_id,
            padding=backend.padding,
        )
        number = check_layers(None, card.layers, name=card.name)[-1]
        with backend.workers([number], len(plan)) as workers:
            matrix = run_batches(plan, workers, progress=progress)[number]
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
        if not isinstance(self.encoder.backend, TorchBackend):
            return []
        import torch

        return [
            module
            for model in self.encoder.backend.models
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

        handles = [table.register_forward_pre_hook(move) for table in self.position_tables()]
        if not handles:
            raise ModelError(f"{self.encoder.card.name} has no table of absolute positions that could be moved along.")
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
