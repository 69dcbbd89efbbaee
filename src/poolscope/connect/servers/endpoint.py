"""An endpoint as a source of vectors: a server that takes texts and gives one pooled vector each.

Three ways of speaking are known: OpenAI's `/v1/embeddings` (vLLM, llama.cpp, infinity and others), `/embed` of Text
Embeddings Inference, and Ollama's `/api/embed`. Requests run in threads with retries and time limits. A key is read
from an environment variable when a request is sent; no result, message, log or file holds it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from poolscope.connect.servers.answers import server_vectors
from poolscope.connect.servers.http import LONGEST_ANSWER, EndpointError, NotServedError, RefusedError, contacted, post
from poolscope.encoders.base import Progress
from poolscope.encoders.sources import METHODS, VectorSource, is_embedding_object
from poolscope.errors import InputError, PoolscopeError, did_you_mean, shorten, whole_number
from poolscope.hosts import secret_for
from poolscope.surface import check_fields

Array = NDArray[np.float32]

KEY_VARIABLE = "POOLSCOPE_API_KEY"
BATCH, CONCURRENCY, RETRIES, TIMEOUT = 32, 4, 4, 60.0
# Bytes of an answer that are read for each text: 16,384 numbers of 20 digits take a third of it.
_BYTES_A_TEXT = 2**20
_LONGEST_TIMEOUT = 86_400.0
# What no header may hold: it would be refused by a message that shows the key.
_NO_KEY = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


_SHOWN = 20


class _AnswerError(ValueError):
    """What is wrong with an answer, without the address it came from."""


@dataclass(frozen=True)
class Protocol:
    """A way of speaking: the end of its path, what a request says, and the vectors of an answer.

    `texts` is the field of the texts, `further` what is said beside them; `names_model`: the model too.
    """

    name: str
    path: str
    texts: str
    further: Mapping[str, Any]
    vectors: Callable[[Any], Any]
    names_model: bool = True

    def body(self, endpoint: Endpoint, texts: Sequence[str]) -> dict[str, Any]:
        """The body of a request."""
        model = {"model": endpoint.model or "default"} if self.names_model else {}
        dimensions = {} if endpoint.dimensions is None else {"dimensions": endpoint.dimensions}
        return {self.texts: list(texts), **model, **self.further, **dimensions}


def _openai_vectors(answer: Any) -> Any:
    """In the order of `index`, where the answer has one: it may come in another."""
    rows = answer["data"]
    indices = [row.get("index") for row in rows]
    if any(index is not None for index in indices):
        if not all(type(index) is int for index in indices) or sorted(indices) != list(range(len(rows))):
            listed = ", ".join(repr(index)[:_SHOWN] for index in indices[:4])
            raise _AnswerError(
                f"the vectors have the index {listed}{', …' if len(indices) > 4 else ''}; needed: each number from 0 "
                f"to {len(rows) - 1} once, or none at all. See to the server."
            )
        rows = sorted(rows, key=lambda row: row["index"])
    return [row["embedding"] for row in rows]


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("openai", "/v1/embeddings", "input", {"encoding_format": "float"}, _openai_vectors),
        Protocol("ollama", "/api/embed", "input", {"truncate": True}, lambda answer: answer["embeddings"]),
        Protocol("tei", "/embed", "inputs", {"truncate": True}, lambda answer: answer, names_model=False),
    )
}


@dataclass(frozen=True)
class Endpoint:
    """A server that embeds texts.

    `url` may be the address of the server alone: then the known paths are tried. `key_variable` names the environment
    variable that holds the key; a key in the address itself is refused. `batch` texts go into a request and
    `concurrency` requests run at a time; each may take `timeout` seconds, until the last byte of its answer, and is
    tried `retries` times more where the server is busy (429), fails (5xx) or cannot be reached.
    """

    url: str
    model: str | None = None
    protocol: str | None = None
    key_variable: str = KEY_VARIABLE
    batch: int = BATCH
    concurrency: int = CONCURRENCY
    retries: int = RETRIES
    timeout: float = TIMEOUT
    dimensions: int | None = None
    pause: float = field(default=0.5, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_address(self.url)
        if self.protocol not in (None, *PROTOCOLS):
            raise InputError(
                f"protocol: received {self.protocol!r}; allowed: {', '.join(PROTOCOLS)}."
                f"{did_you_mean(self.protocol, PROTOCOLS)}"
            )
        for name, least in (("batch", 1), ("concurrency", 1), ("retries", 0)):
            whole_number(getattr(self, name), name, least=least)
        if self.dimensions is not None:
            whole_number(self.dimensions, "dimensions")
        if not 0 < self.timeout <= _LONGEST_TIMEOUT:
            raise InputError(
                f"timeout: received {shorten(self.timeout)}; allowed: a number of seconds above 0, at most "
                f"{_LONGEST_TIMEOUT:,.0f} (a day). Try 60."
            )
        if not 0 <= self.pause <= _LONGEST_TIMEOUT:
            raise InputError(f"pause: received {shorten(self.pause)}; allowed: a number of seconds, 0 or more. Try 1.")
        if not self.key_variable:
            raise InputError(
                f"key_variable: received ''; allowed: the name of an environment variable, such as {KEY_VARIABLE!r}."
            )

    @property
    def name(self) -> str:
        """The model, and where it runs: without user, query and fragment, which may hold secrets."""
        return f"{self.model} at {shown(self.url)}" if self.model else shown(self.url)

    def resolved(self) -> Endpoint:
        """The endpoint with its whole path and its way of speaking; for an address alone the known paths are tried."""
        path = urlsplit(self.url).path.rstrip("/")
        if self.protocol is not None:
            return self if path.endswith(_ends(self.protocol)) else self._at(self.protocol)
        for name in PROTOCOLS:
            if path.endswith(_ends(name)):
                return replace(self, protocol=name)
        tried = []
        bare = replace(self, url=urlunsplit(urlsplit(self.url)._replace(path=f"{path}/embeddings")), protocol="openai")
        for candidate in (*(self._at(name) for name in PROTOCOLS), bare):
            tried.append(urlsplit(candidate.url).path)
            with suppress(NotServedError):
                candidate.send(["a"])
                return candidate
        raise EndpointError(
            f"{shown(self.url)}: no embeddings are served at {', '.join(tried)} (404). Write the whole address, such "
            f"as http://localhost:8000/v1/embeddings, or name --protocol."
        )

    def _at(self, protocol: str) -> Endpoint:
        parts = urlsplit(self.url)
        path, end = parts.path.rstrip("/"), PROTOCOLS[protocol].path
        if protocol == "openai" and path.endswith("/v1"):
            end = end.removeprefix("/v1")
        return replace(self, url=urlunsplit(parts._replace(path=path + end)), protocol=protocol)

    def send(self, texts: Sequence[str], *, stopped: Callable[[], bool] = lambda: False) -> Array:
        """The vectors of one request (texts × d), checked: as many as texts, of one length, finite."""
        speaking = PROTOCOLS[self.protocol or "openai"]
        headers = {} if (key := self.key()) is None else {"Authorization": f"Bearer {key}"}
        answer = post(
            self.url,
            speaking.body(self, texts),
            headers=headers,
            shown=shown(self.url),
            timeout=self.timeout,
            retries=self.retries,
            pause=self.pause,
            key_variable=self.key_variable,
            stopped=stopped,
            longest=min(LONGEST_ANSWER, (len(texts) + 1) * _BYTES_A_TEXT),
        )
        try:
            rows = speaking.vectors(answer)
        except _AnswerError as error:
            raise EndpointError(f"{shown(self.url)}: {error}") from None
        except (KeyError, TypeError, AttributeError):
            raise EndpointError(
                f"{shown(self.url)}: the answer is not that of {self.protocol or 'openai'} ({_start(answer)}). Check "
                f"the address and --protocol ({', '.join(PROTOCOLS)})."
            ) from None
        return checked_vectors(rows, texts, shown(self.url))

    def key(self) -> str | None:
        """The key, if there is one for this host; what cannot stand in a header is refused without being shown."""
        key = secret_for(contacted(self.url), self.key_variable)
        if key is not None and _NO_KEY.search(key):
            raise InputError(
                f"{self.key_variable}: the key in this variable holds a line break or another character that no header "
                f"may hold; allowed: letters, digits and signs. Set it again."
            )
        return key

    # -- many requests ----------------------------------------------------------------------------------------------

    def requests(
        self, batches: Sequence[Sequence[str]], *, progress: Progress | None = None
    ) -> Iterator[tuple[int, Array]]:
        """The vectors of each batch with its number, as they come; the first failure stops all others."""
        stop = threading.Event()
        with ThreadPoolExecutor(self.concurrency) as pool:
            waiting = {pool.submit(self.send, batch, stopped=stop.is_set): k for k, batch in enumerate(batches)}
            try:
                dimension: int | None = None
                for done in as_completed(waiting):
                    table = done.result()
                    if dimension not in (None, table.shape[1]):
                        raise EndpointError(
                            f"{shown(self.url)}: gave vectors of dimension {dimension} and then of {table.shape[1]}; "
                            f"needed: one. Check that one model answers at this address."
                        )
                    dimension = table.shape[1]
                    if progress is not None:
                        progress(len(table), 1)
                    yield waiting[done], table
            finally:
                stop.set()
                for future in waiting:
                    future.cancel()

    def vectors(self, texts: Sequence[str], *, keep: bool = False, progress: Progress | None = None) -> Array:
        """The vectors of texts in their order (texts × d); with `keep`, a run that is stopped can be taken up again."""
        return server_vectors(self, texts, keep=keep, progress=progress)

    def once(self) -> Endpoint:
        """The endpoint without further tries."""
        return replace(self, retries=0)

    def to_dict(self) -> dict[str, Any]:
        """What may stand in a file: no key, and no secret of the address."""
        shown_fields = ("model", "protocol", "batch", "concurrency", "dimensions")
        return {"url": shown(self.url), **{name: getattr(self, name) for name in shown_fields}}


def checked_vectors(rows: Any, texts: Sequence[str], where: str) -> Array:
    """The rows of an answer as a table (texts × d): as many as texts, of one length, finite."""
    if not isinstance(rows, list) or len(rows) != len(texts):
        many = len(rows) if isinstance(rows, list) else type(rows).__name__
        raise EndpointError(f"{where}: gave {many} vectors for {len(texts)} texts; one each is needed. See to it.")
    nested = next((row for row in rows if isinstance(row, list) and row and _is_listed(row[0])), None)
    if nested is not None:
        raise EndpointError(
            f"{where}: gave one vector a token ({len(nested)} × {len(nested[0])}), not one a text. Switch "
            f"pooling on in the server (for llama.cpp: --pooling mean)."
        )
    sizes = sorted({len(row) if isinstance(row, list) else 0 for row in rows})
    try:
        if len(sizes) > 1 or not all(isinstance(row, list) and _are_numbers(row) for row in rows):
            raise TypeError
        with np.errstate(over="ignore"):  # what is too large becomes infinity, which is refused below
            table = np.asarray(rows, dtype=np.float32).reshape(len(rows), -1)
    except (ValueError, TypeError, OverflowError):
        raise EndpointError(
            f"{where}: the vectors of one request have the dimensions {', '.join(map(str, sizes))}, or hold what "
            f"is no number; needed: one dimension. Check that one model answers at this address."
        ) from None
    if not table.shape[1] or not np.isfinite(table).all():
        wrong = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0]) if table.shape[1] else 0
        raise EndpointError(
            f"{where}: the vector of {texts[wrong][:40]!r} is empty, or holds NaN or infinity; needed: finite "
            f"numbers. Let the server compute in float32."
        )
    return table


def _is_listed(value: Any) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def _are_numbers(row: list[Any]) -> bool:
    """Are all entries single numbers, of JSON or of the library of an embedding object?"""
    kinds = set(map(type, row))
    return not any(issubclass(kind, str | bytes | bool | np.bool_ | list | dict | type(None)) for kind in kinds)


def _ends(protocol: str) -> tuple[str, ...]:
    return ("/embeddings",) if protocol == "openai" else (PROTOCOLS[protocol].path,)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable:
        raise InputError(
            f"url: received {str(url).split('@')[-1]!r}; allowed: an http or https address, such as "
            f"http://localhost:8000/v1/embeddings."
        )
    if parts.username or parts.password:
        raise InputError(
            f"url: {shown(url)} holds a user or password, which would be seen in lists of processes. Put the key into "
            f"an environment variable ({KEY_VARIABLE}) and leave it out of the address."
        )


def shown(url: str) -> str:
    """The address without user, query and fragment: what may be printed and kept.

    >>> shown("https://me:secret@host:81/v1/embeddings?key=secret")
    'https://host:81/v1/embeddings'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _start(answer: Any) -> str:
    if isinstance(answer, Mapping):
        return f"an object with {', '.join(map(str, list(answer)[:4])) or 'nothing'}"
    return f"a {type(answer).__name__}"


# -- embedding objects of other libraries, recognised by what they can do; none is imported ---------------------------


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
        """The object itself: an object has no address to find out."""
        return self

    def once(self) -> EmbeddingObject:
        """The object itself: an object is never asked twice."""
        return self

    def send(self, texts: Sequence[str]) -> Array:
        """The vectors of texts (texts × d), checked like those of a server."""
        try:
            rows = [list(row) for row in self._embed(list(texts))]
        except PoolscopeError:
            raise
        except Exception as error:  # whatever the library behind it raises
            reason = str(error).strip().partition("\n")[0][:160]
            raise RefusedError(
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

    def vectors(self, texts: Sequence[str], *, keep: bool = False, progress: Progress | None = None) -> Array:
        """The vectors of texts in their order (texts × d); with `keep`, a run that is stopped can be taken up again."""
        return server_vectors(self, texts, keep=keep, progress=progress)

    def to_dict(self) -> dict[str, Any]:
        """What may stand in a file."""
        return {"object": self.name, "batch": self.batch}


def as_vector_source(source: Any, **settings: Any) -> VectorSource:
    """The source behind an address (with the fields of `Endpoint` as settings), or behind an object."""
    allowed = [setting.name for setting in fields(Endpoint) if setting.name != "url"]
    if unknown := [name for name in settings if name not in allowed]:
        raise InputError(
            f"endpoint: received the setting {str(unknown[0])[:40]!r}; allowed: {', '.join(allowed)}. Correct the "
            f"name, or leave it out."
        )
    if isinstance(source, VectorSource) and not isinstance(source, type):
        return source
    if isinstance(source, str):
        return Endpoint(source, **settings)
    if is_embedding_object(source):
        return EmbeddingObject(source, **{name: value for name, value in settings.items() if name == "batch"})
    raise InputError(
        f"runtime: received {type(source).__name__}; allowed: an http address, an Endpoint, or an embedding object "
        f"with embed_documents (LangChain) or get_text_embedding_batch (LlamaIndex)."
    )
