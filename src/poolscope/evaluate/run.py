"""From a model and a task to an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poolscope.errors import InputError
from poolscope.evaluate.scores import Evaluation
from poolscope.evaluate.tasks import Side, Task

_ENCODERS = {"query": "encode_query", "document": "encode_document", None: "encode"}


def evaluate(model: Any, task: Task) -> Evaluation:
    """The score of a model on a task.

    `model` gives one vector a text: an object with `encode`, `encode_query` and `encode_document` (a
    SentenceTransformer, or what `Repair.apply` returns), or a function from a list of texts to vectors.

    >>> from poolscope.evaluate import split_half_task
    >>> texts = ["a a a a b a a a", "b b a b b b b b", "c c a c b c c c"]
    >>> letters = lambda texts: [[text.count(letter) for letter in "abc"] for text in texts]
    >>> evaluate(letters, split_half_task(texts)).value
    1.0
    """
    return task.score(*(vectors_of(model, side) for side in task.sides))


def vectors_of(model: Any, side: Side) -> Any:
    """The vectors of the texts of one side, with the prompts of their role."""
    encode = getattr(model, _ENCODERS[side.role], None)
    if encode is None and callable(model):
        encode = model
    if encode is None:
        raise InputError(
            f"model: received {type(model).__name__}; allowed: an object with encode, encode_query and "
            f"encode_document, or a function from texts to vectors. From a model's name: Repair().apply(name)."
        )
    function: Callable[[Sequence[str]], Any] = encode
    return function(list(side.texts))
