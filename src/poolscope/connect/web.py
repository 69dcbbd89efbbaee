"""JSON over HTTP for stores whose interface is that: one connection, no redirect, no proxy, no client package."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from poolscope.connect.servers.http import TimedResponse
from poolscope.connectors.base import ConnectionFailedError, split_address
from poolscope.errors import InputError
from poolscope.hosts import LOOPBACK, permit, secret_for

_SECONDS = 60  # for a whole answer
_LONGEST = 2**28
_SHOWN, _HEAD = 160, 40
_ROWS = 1000


class NotThereError(ConnectionFailedError):
    """A store that answers 404."""


class WebStore:
    """A server that is asked in JSON. `name` is the address as it may be shown; `remedy` is what to check."""

    def __init__(self, address: str, name: str, *, secure: bool, port: int, remedy: str) -> None:
        parts = split_address(address)
        self.name, self._remedy = name, remedy
        self.host = parts.hostname or "localhost"
        try:
            place = parts.port or port
        except ValueError as error:
            raise InputError(f"{name}: received a port that is no number up to 65535. Write host:port.") from error
        permit(self.host, name=name)
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(self.host, place, timeout=_SECONDS)
        self.headers: dict[str, str] = {"Accept": "application/json", "User-Agent": "poolscope"}

    def ask(self, method: str, path: str, body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None) -> Any:
        """The JSON that the server answers; a sequence is sent as lines of JSON."""
        headers, content = self.headers, None
        if isinstance(body, Mapping):
            headers, content = {**headers, "Content-Type": "application/json"}, json.dumps(body).encode()
        elif body is not None:
            lines = "".join(f"{json.dumps(line)}\n" for line in body)
            headers, content = {**headers, "Content-Type": "application/x-ndjson"}, lines.encode()
        made: Any = self._connection
        made.response_class = partial(TimedResponse, until=time.monotonic() + _SECONDS)
        if made.sock is not None:  # the last answer left it with the time that it had not taken
            made.sock.settimeout(_SECONDS)
        try:
            self._connection.request(method, path, content, headers)
            answer = self._connection.getresponse()
            received = answer.read(_LONGEST + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            reason = str(getattr(error, "strerror", None) or error)[:_SHOWN] or type(error).__name__
            raise ConnectionFailedError(f"{self.name}: no answer ({reason}). {self._remedy}") from error
        if len(received) > _LONGEST:
            self._connection.close()
            raise ConnectionFailedError(f"{self.name}: the answer is longer than {_LONGEST:,} bytes. {self._remedy}")
        return self._understood(answer.status, received)

    def _understood(self, status: int, received: bytes) -> Any:
        try:
            said = json.loads(received) if received else {}
        except (ValueError, RecursionError):
            said = None
        if status == 404:
            raise NotThereError(f"{self.name}: there is no such thing (404{_reason(said)}). Check the spelling.")
        if status >= 300:
            raise ConnectionFailedError(f"{self.name}: refused ({status}{_reason(said)}). {self._remedy}")
        if said is None:
            raise ConnectionFailedError(f"{self.name}: answered something else than JSON. {self._remedy}")
        return said

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def in_requests(rows: Iterable[Mapping[str, Any]], bytes_: int = 8_000_000) -> Iterator[list[Mapping[str, Any]]]:
    """Rows in lists for one request each: at most a thousand rows, and so many bytes of JSON unless one row has more.

    >>> list(map(len, in_requests([{"a": 1}] * 7, 30)))
    [3, 3, 1]
    """
    taken: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        more = len(json.dumps(row)) + 2
        if taken and (size + more > bytes_ or len(taken) == _ROWS):
            yield taken
            taken, size = [], 0
        taken.append(row)
        size += more
    if taken:
        yield taken


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    return host.casefold() in LOOPBACK


def login(address: str, host: str, variable: str) -> str | None:
    """The value of a Basic header: user and password of the address, the password else from a variable."""
    parts = split_address(address)
    if parts.username is None:
        return None
    password = unquote(parts.password) if parts.password else secret_for(host, variable)
    return "Basic " + base64.b64encode(f"{unquote(parts.username)}:{password or ''}".encode()).decode()


def reason_of(said: Any) -> str:
    """What a server says of its refusal, in a few words; "" where it says nothing that can be read.

    A cause stands before the sentence about it: "all shards failed" has its cause beside it.

    >>> reason_of({"error": {"root_cause": [{"reason": "k is too large"}], "reason": "all shards failed"}})
    'k is too large'
    """
    while isinstance(said, dict | list) and said:
        inner = said if isinstance(said, dict) else {"root_cause": said}
        said = next((inner[name] for name in ("error", "message", "root_cause", "reason") if inner.get(name)), "")
        said = said[0] if isinstance(said, list) and said else said
    words = " ".join(said.split()) if isinstance(said, str) else ""
    return words if len(words) <= _SHOWN else f"{words[:_HEAD]} … {words[_HEAD + 3 - _SHOWN :]}"  # a cause comes last


def _reason(said: Any) -> str:
    words = reason_of(said)
    return f": {words}" if words else ""
