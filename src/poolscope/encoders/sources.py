"""What gives one pooled vector a text and shows no tokens: a server, or an embedding object of another library.

The core knows what such a source can do, and recognises one. What talks to it stands in `connect/servers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import Progress
from poolscope.extensions import service

# Methods that take a list of texts and give one vector each, by library.
METHODS = {"embed_documents": "LangChain", "get_text_embedding_batch": "LlamaIndex"}


@runtime_checkable
class VectorSource(Protocol):
    """Gives vectors for texts, in requests of `batch` texts; `name` is shown, so it holds no secret."""

    @property
    def name(self) -> str:
        """The model, and where it runs."""
        ...

    @property
    def batch(self) -> int:
        """Texts of one request."""
        ...

    def resolved(self) -> VectorSource:
        """The source with its whole address, found by asking where the address is that of a server alone."""
        ...

    def once(self) -> VectorSource:
        """The source without further tries."""
        ...

    def send(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of one request (texts × d)."""
        ...

    def requests(
        self, batches: Sequence[Sequence[str]], *, progress: Progress | None = None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The vectors of each batch with its number, as they come."""
        ...

    def vectors(
        self, texts: Sequence[str], *, keep: bool = False, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """The vectors of texts in their order (texts × d); with `keep`, a run that is stopped can be taken up again."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What may stand in a file."""
        ...


def is_address(source: Any) -> bool:
    """Is it the address of a server?

    >>> is_address("http://localhost:8080/v1/embeddings"), is_address("org/model")
    (True, False)
    """
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def is_embedding_object(source: Any) -> bool:
    """Has it a method of one of the known libraries?

    >>> class Length:
    ...     def embed_documents(self, texts):
    ...         return [[float(len(text)), 1.0] for text in texts]
    >>> is_embedding_object(Length()), is_embedding_object("org/model")
    (True, False)
    """
    return not isinstance(source, type) and any(callable(getattr(source, name, None)) for name in METHODS)


def is_vector_source(source: Any) -> bool:
    """Does it give vectors for texts: an address, an embedding object, or what says so itself?"""
    ready = isinstance(source, VectorSource) and not isinstance(source, type)
    return ready or is_address(source) or is_embedding_object(source)


def as_vector_source(source: Any, **settings: Any) -> VectorSource:
    """The source behind an address (with the fields of `Endpoint` as settings), or behind an embedding object."""
    opened: VectorSource = service("source of vectors")(source, **settings)
    return opened
