"""Embedding objects of other libraries as sources of vectors, recognised by what they can do.

LangChain's objects have `embed_documents`, those of LlamaIndex `get_text_embedding_batch`. Neither library is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import Progress
from poolscope.encoders.endpoint import BATCH, Endpoint, VectorSource, checked_vectors, is_endpoint
from poolscope.encoders.http import EndpointError
from poolscope.errors import InputError, PoolscopeError, whole_number

Array = NDArray[np.float32]

# Methods that take a list of texts and give one vector each, by library.
METHODS = {"embed_documents": "LangChain", "get_text_embedding_batch": "LlamaIndex"}


def is_embedding_object(source: Any) -> bool:
    """Has it a method of one of the known libraries?

    >>> class Length:
    ...     def embed_documents(self, texts):
    ...         return [[float(len(text)), 1.0] for text in texts]
    >>> is_embedding_object(Length()), is_embedding_object("org/model")
    (True, False)
    """
    return not isinstance(source, type) and any(callable(getattr(source, name, None)) for name in METHODS)


@dataclass(frozen=True)
class EmbeddingObject:
    """An embedding object behind the same calls as an `Endpoint`; it is asked batch by batch, one at a time."""

    object: Any
    batch: int = BATCH

    def __post_init__(self) -> None:
        whole_number(self.batch, "batch")

    @property
    def name(self) -> str:
        """The class, and the model that it names."""
        model = next(
            (getattr(self.object, key, None) for key in ("model", "model_name") if hasattr(self.object, key)), ""
        )
        kind = type(self.object).__name__
        return f"{kind} ({model})" if isinstance(model, str) and model else kind

    @property
    def _embed(self) -> Callable[[list[str]], Any]:
        method: Callable[[list[str]], Any] = next(
            getattr(self.object, name) for name in METHODS if hasattr(self.object, name)
        )
        return method

    def resolved(self) -> EmbeddingObject:
        """The same: there is nothing to find out."""
        return self

    def once(self) -> EmbeddingObject:
        """The same: it is never asked twice."""
        return self

    def send(self, texts: Sequence[str]) -> Array:
        """The vectors of texts (texts × d), checked like those of a server."""
        try:
            rows = [list(row) for row in self._embed(list(texts))]
        except PoolscopeError:
            raise
        except Exception as error:  # whatever the library behind it raises
            reason = str(error).strip().partition("\n")[0][:160]
            raise EndpointError(
                f"{self.name}: refused the texts ({type(error).__name__}: {reason}). See to it."
            ) from error
        return checked_vectors(rows, texts, self.name)

    def requests(
        self, batches: Sequence[Sequence[str]], *, progress: Progress | None = None
    ) -> Iterator[tuple[int, Array]]:
        """The vectors of each batch with its number."""
        for k, batch in enumerate(batches):
            table = self.send(batch)
            if progress is not None:
                progress(len(table), 1)
            yield k, table

    def to_dict(self) -> dict[str, Any]:
        """What may stand in a file."""
        return {"object": self.name, "batch": self.batch}


def is_vector_source(source: Any) -> bool:
    """Does it give vectors for texts: an address, an `Endpoint` or an embedding object?"""
    return isinstance(source, Endpoint) or is_endpoint(source) or is_embedding_object(source)


def as_vector_source(source: Any, **settings: Any) -> VectorSource:
    """The source behind an address (with the fields of `Endpoint` as settings), or behind an object."""
    allowed = [setting.name for setting in fields(Endpoint) if setting.name != "url"]
    if unknown := [name for name in settings if name not in allowed]:
        raise InputError(
            f"endpoint: received the setting {str(unknown[0])[:40]!r}; allowed: {', '.join(allowed)}. Correct the "
            f"name, or leave it out."
        )
    if isinstance(source, Endpoint):
        return source
    if isinstance(source, str):
        return Endpoint(source, **settings)
    if is_embedding_object(source):
        return EmbeddingObject(source, **{name: value for name, value in settings.items() if name == "batch"})
    raise InputError(
        f"runtime: received {type(source).__name__}; allowed: an http address, an Endpoint, or an embedding object "
        f"with embed_documents (LangChain) or get_text_embedding_batch (LlamaIndex)."
    )
