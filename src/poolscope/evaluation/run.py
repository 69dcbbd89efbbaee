"""From a model and a task to an evaluation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from poolscope.clouds import TokenClouds
from poolscope.encoders.capabilities import is_encoder
from poolscope.errors import InputError
from poolscope.evaluation.scores import Evaluation
from poolscope.evaluation.tasks import Side, Task

_ENCODERS = {"query": "encode_query", "document": "encode_document", None: "encode"}


def evaluate(model: Any, task: Task, **options: Any) -> Evaluation:
    """The score of a model on a task.

    `model` is a name, a folder or an encoder, as `as_encoder` takes it with its `options`; or what gives one vector a
    text itself: an object with `encode`, `encode_query` and `encode_document` (a SentenceTransformer, or what
    `Repair.apply` returns), or a function from a list of texts to vectors. Ready clouds are those of one list of texts:
    they have a score where the task encodes one (classification, clustering).

    >>> from poolscope.evaluation import split_half_task
    >>> texts = ["a a a a b a a a", "b b a b b b b b", "c c a c b c c c"]
    >>> letters = lambda texts: [[text.count(letter) for letter in "abc"] for text in texts]
    >>> evaluate(letters, split_half_task(texts)).value
    1.0
    """
    if _must_be_pooled(model):
        from poolscope.repairs.repair_file import Repair  # which is made of evaluations, so imported when asked for

        model = Repair().apply(model, **options)
    elif options:
        raise InputError(
            f"received the options {sorted(options)} for {type(model).__name__}, which encodes by itself; allowed: "
            f"options for a name, a folder or an encoder. Set them where the vectors are made."
        )
    _refuse_ready_clouds(model, task)
    return task.score(*(vectors_of(model, side) for side in task.sides))


def _must_be_pooled(model: Any) -> bool:
    """Is it a name, or something that gives clouds?"""
    if isinstance(model, str | os.PathLike | tuple | TokenClouds):
        return True
    return is_encoder(model) and not hasattr(model, "encode_query")


def _refuse_ready_clouds(model: Any, task: Task) -> None:
    """Ready clouds cannot be those of two lists of texts."""
    ready = getattr(getattr(model, "card", None), "kind", None) == "arrays"
    if ready and len(task.sides) > 1:
        raise InputError(
            f"model: received ready clouds for the task {task.name}, which encodes {len(task.sides)} lists of texts; "
            f"ready clouds are those of one list. Pass the model that made them."
        )


def vectors_of(model: Any, side: Side) -> Any:
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
    return function(list(side.texts))
