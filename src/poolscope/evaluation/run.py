"""From a model and a task to an evaluation: texts in a role become clouds, pooled vectors, and a score."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder, check_texts
from poolscope.encoders.capabilities import has, is_encoder, longest_of, options_of, takes_tokens, with_options
from poolscope.encoders.pooling import own_pooling
from poolscope.errors import InputError, shorten, whole_number
from poolscope.evaluation.scores import Evaluation
from poolscope.evaluation.tasks import Side, Task
from poolscope.numbers.pooling import Pooling
from poolscope.numbers.ranking import unit_rows

Vectors = NDArray[np.float32]

PROMPT_CHOICES = ("prompt", "prompt_name", "role")  # of which at most one is made
_ENCODERS = {"query": "encode_query", "document": "encode_document", None: "encode"}


def evaluate(model: Any, task: Task, **options: Any) -> Evaluation:
    """The score of a model on a task.

    Parameters
    ----------
    model
        A name, a folder or an encoder, as `as_encoder` takes it; or what gives one vector a text itself: an object
        with `encode`, `encode_query` and `encode_document` (a SentenceTransformer, or what `Repair.apply` returns),
        or a function from a list of texts to vectors. Ready clouds are those of one list of texts: they have a score
        where the task encodes one (classification, clustering).
    task
        A task of `poolscope.evaluation`: from texts alone (`split_half_task`, `summary_body_task`), from a file
        with labels (`read_task`), or made of lists (`RetrievalTask`, `SimilarityTask`, …).
    **options
        Those of `as_encoder`, for a name, a folder or an encoder: prompt, max_length, dtype, …

    Returns
    -------
    Evaluation
        The value with its interval, and the scores unit by unit; `compare_scores` takes two of them.

    Examples
    --------
    >>> from poolscope.evaluation import split_half_task
    >>> texts = ["a a a a b a a a", "b b a b b b b b", "c c a c b c c c"]
    >>> letters = lambda texts: [[text.count(letter) for letter in "abc"] for text in texts]
    >>> evaluate(letters, split_half_task(texts)).value
    1.0

    """
    if _must_be_pooled(model):
        model = PooledModel(as_encoder(model, **options))
    elif options:
        raise InputError(
            f"received the options {sorted(options)} for {type(model).__name__}, which encodes by itself; allowed: "
            f"options for a name, a folder or an encoder. Set them where the vectors are made."
        )
    check_task(model, task)
    return task.score(*(_vectors_of(model, side) for side in task.sides))


def _must_be_pooled(model: Any) -> bool:
    """Is it a name, or something that gives clouds?"""
    if isinstance(model, str | os.PathLike | tuple | TokenClouds):
        return True
    return is_encoder(model) and not hasattr(model, "encode_query")


def check_task(model: Any, task: Task) -> None:
    """Refuse a value that is no task, and ready clouds where a task needs two lists of texts."""
    if isinstance(task, type) or not (hasattr(task, "score") and hasattr(task, "sides")):
        raise InputError(
            f"task: received {shorten(task)} ({type(task).__name__}); allowed: a task, such as RetrievalTask. Texts "
            f"become one with split_half_task(texts)."
        )
    ready = getattr(getattr(model, "card", None), "kind", None) == "arrays"
    if ready and len(task.sides) > 1:
        raise InputError(
            f"model: received ready clouds for the task {task.name}, which encodes {len(task.sides)} lists of texts; "
            f"ready clouds are those of one list. Pass the model that made them."
        )


def _vectors_of(model: Any, side: Side) -> Any:
    """The vectors of the texts of one side, with the prompts of their role."""
    encode = getattr(model, _ENCODERS[side.role], None)
    if encode is None and callable(model):
        encode = model
    if encode is None:
        raise InputError(
            f"model: received {type(model).__name__}; allowed: a name, a folder, an encoder, an object with encode, "
            f"encode_query and encode_document, or a function from texts to vectors."
        )
    function: Callable[[Sequence[str]], Any] = encode
    vectors = function(list(side.texts))
    if np.ndim(vectors) == 0 or len(vectors) != len(side.texts):
        raise InputError(
            f"model: it gave {shorten(vectors)} for {len(side.texts)} texts; needed: one vector a text, in their order."
        )
    return vectors


class PooledModel:
    """A model as it pools: texts to vectors of length 1, with the names that sentence-transformers uses."""

    piece: ClassVar[int] = 2_048  # texts whose clouds are in memory at a time

    def __init__(self, encoder: TokenEncoder, pooling: Pooling | None = None) -> None:
        self.encoder = encoder
        self.pooling = own_pooling(encoder) if pooling is None else pooling

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.card.name}: {self.pooling.label})"

    @property
    def card(self) -> ModelCard:
        """What the model declares."""
        return self.encoder.card

    def encode(
        self,
        texts: Sequence[str] | str,
        *,
        role: str | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Vectors:
        """One vector a text, of length 1 (float32); `role` picks the prompt and the temperature of that role.

        A single string gives its vector alone. Texts go through in pieces: the clouds of one piece are in memory at a
        time. Batches are made by tokens; `batch_size` bounds their memory to that of as many texts of full length.
        """
        if isinstance(texts, str):
            one: Vectors = self.encode([texts], role=role, batch_size=batch_size, progress=progress)[0]
            return one
        if batch_size is not None:
            smaller = copy(self)
            smaller.encoder = in_batches(self.encoder, batch_size)
            return smaller.encode(texts, role=role, progress=progress)
        texts = check_texts(texts)
        # Ready clouds cannot be asked for a part of their texts.
        step = len(texts) if self.card.kind == "arrays" else self.piece
        pieces = [texts[start : start + step] for start in range(0, len(texts), step)]
        return np.concatenate([self.pooled(self.clouds(part, role=role, progress=progress)) for part in pieces])

    def encode_query(self, texts: Sequence[str] | str, *, batch_size: int | None = None) -> Vectors:
        """The vectors of queries."""
        return self.encode(texts, role="query", batch_size=batch_size)

    def encode_document(self, texts: Sequence[str] | str, *, batch_size: int | None = None) -> Vectors:
        """The vectors of documents."""
        return self.encode(texts, role="document", batch_size=batch_size)

    def clouds(
        self, texts: Sequence[str], *, role: str | None = None, progress: Progress | None = None
    ) -> Mapping[int, TokenClouds]:
        """The clouds that are pooled, by layer."""
        return encode_layers(for_role(self.encoder, role), texts, self.pooling.layers, progress=progress)

    def pooled(self, clouds: Mapping[int, TokenClouds]) -> Vectors:
        """Vectors of length 1 from clouds by layer."""
        return unit_rows(self.pooling.transform(clouds), "vectors")


# -- the same encoder with other choices ------------------------------------------------------------------------------


def encode_layers(
    encoder: TokenEncoder, texts: Sequence[str], layers: Sequence[int], *, progress: Progress | None = None
) -> Mapping[int, TokenClouds]:
    """The clouds of the texts by layer; the pooled layer alone is what every encoder gives unasked."""
    return encoder.encode(texts, layers=None if tuple(layers) == (-1,) else list(layers), progress=progress)


def for_role(encoder: TokenEncoder, role: str | None) -> TokenEncoder:
    """The encoder for texts in a role: with the prompt that its model declares for it, and by the rule of that role
    where the model keeps a temperature rule. What the caller chose himself stays.
    """
    if role is None or not has(encoder, "with_options"):
        return encoder
    options = options_of(encoder)
    if encoder.card.prompts and not asks_for_prompt(options):
        options = replace(options, role=role)
    return with_options(encoder, options, role=options.role or role)


def in_batches(encoder: TokenEncoder, batch_size: int) -> TokenEncoder:
    """The encoder with batches of at most the padded tokens of so many texts of full length, where it makes batches."""
    texts, longest = whole_number(batch_size, "batch_size"), longest_of(encoder)
    if not takes_tokens(encoder) or longest is None:
        return encoder
    return with_options(encoder, replace(options_of(encoder), batch_tokens=texts * longest))


def asks_for_prompt(options: EncoderOptions) -> bool:
    """Whether the caller chose a prompt himself."""
    return any(getattr(options, name) is not None for name in PROMPT_CHOICES)
