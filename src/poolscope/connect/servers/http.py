"""One request that is tried again where that can help, by the standard library alone.

A time limit is for the whole answer, its headers and all of its body: a server that sends a byte now and then has no
longer than one that sends nothing. Every failure is one line: what was asked, what came back, what to do. No message
holds a header, so none holds a key.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import re
import socket
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from poolscope.errors import PoolscopeError
from poolscope.hosts import permit

_LONGEST_PAUSE = 60.0
LONGEST_ANSWER = 2**28
_SHOWN = 160
# How servers say that a text is too long: llama.cpp (with 500), vLLM, OpenAI, Text Embeddings Inference.
_TOO_LONG = re.compile(
    r"too (large|long|many tokens)|context (length|size|window)|exceed\w* .*(token|length|context)|less than \d+ token",
    re.IGNORECASE,
)
_PORT = re.compile(r":\d*$")
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class EndpointError(PoolscopeError):
    """A server that cannot be reached, refuses, or answers what cannot be used."""


class RefusedError(EndpointError):
    """The server is there, and does not take this request."""


class NotServedError(EndpointError):
    """The server does not know the path, or the way in which it was asked (404, 405)."""


class TooLongError(RefusedError):
    """The server refuses a text because of its length."""


class _NoRedirect(HTTPRedirectHandler):
    """A redirected request would carry its key to another place."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        """Follow none."""
        return


class _TimedReader(io.RawIOBase):
    """The bytes of a connection until a moment of the monotonic clock; a read may take the time that is left."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until
        self._incoming = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """True: the reader is for reading."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what has come, or raise TimeoutError once the moment is past."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._incoming.readinto(buffer)

    def close(self) -> None:
        """Let go of the connection."""
        self._incoming.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """An answer that must have come before `until`."""

    def __init__(self, connection: socket.socket, *args: Any, until: float, **options: Any) -> None:
        super().__init__(connection, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(connection, until))


class _Timed(HTTPHandler, HTTPSHandler):
    """Connections whose answers must have come before `until`."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def do_open(self, http_class: Any, req: Request, **options: Any) -> Any:
        """Open a connection of that class, with a limit for its answer."""

        def connection(*args: Any, **settings: Any) -> http.client.HTTPConnection:
            made: Any = http_class(*args, **settings)
            made.response_class = partial(TimedResponse, until=self._until)
            return made  # type: ignore[no-any-return]

        return super().do_open(connection, req, **options)


class _PassingError(Exception):
    """A failure that may pass: its words, and how long the server asks to wait."""

    def __init__(self, words: str, wait: float | None = None) -> None:
        super().__init__(words)
        self.wait = wait


def contacted(url: str) -> str:
    """The host that a request to an address goes to, by the parser of the library that sends it.

    >>> contacted("http://[::1]:8000/embed"), contacted("http://localhost@elsewhere.example/embed")
    ('[::1]', 'localhost@elsewhere.example')
    """
    place = Request(url).host or ""
    return place if place.endswith("]") else _PORT.sub("", place)


def post(
    url: str,
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str],
    shown: str,
    timeout: float,
    retries: int,
    pause: float,
    key_variable: str,
    stopped: Callable[[], bool] = lambda: False,
    longest: int = LONGEST_ANSWER,
) -> Any:
    """The JSON that a server answers to JSON; what may pass is tried `retries` times more, each time after longer.

    `timeout` is for the whole answer of one try, and `longest` how many bytes of it are read.
    """
    permit(contacted(url), name=shown)
    sent = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "poolscope", **headers}
    request = Request(url, json.dumps(body).encode(), sent, method="POST")
    for attempt in range(retries + 1):
        try:
            return _once(request, shown=shown, timeout=timeout, key_variable=key_variable, longest=longest)
        except _PassingError as failure:
            if attempt == retries or stopped():
                tries = f", tried {attempt + 1} times" if attempt else ""
                raise EndpointError(
                    f"{shown}: {failure}{tries}. Start the server or correct the address, then run this again."
                ) from None
            wait = pause * 2**attempt * random.uniform(0.75, 1.25) if failure.wait is None else failure.wait
            time.sleep(min(wait, _LONGEST_PAUSE))
    raise AssertionError("unreachable")


def _once(request: Request, *, shown: str, timeout: float, key_variable: str, longest: int) -> Any:
    timed = _Timed(time.monotonic() + timeout)
    try:
        with build_opener(_NoRedirect, timed).open(request, timeout=timeout) as answer:
            kind, content = answer.headers.get("Content-Type", ""), answer.read(longest + 1)
            if answer.length and len(content) <= longest:  # what was promised and did not come
                raise http.client.IncompleteRead(content, answer.length)
    except HTTPError as error:
        with error:  # which holds the connection open
            raise _refused(error, shown, key_variable) from None
    except (http.client.IncompleteRead, ConnectionError, http.client.RemoteDisconnected) as error:
        raise _PassingError(f"the connection broke off ({type(error).__name__})") from None
    except (TimeoutError, URLError) as error:
        reason = getattr(error, "reason", error)
        late = isinstance(reason, TimeoutError)
        words = f"no answer within {timeout:g} seconds" if late else f"cannot be reached ({_reason(reason)})"
        raise _PassingError(words) from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise EndpointError(f"{shown}: no answer of HTTP ({_reason(error)}). Check the address and its port.") from None
    if len(content) > longest:
        raise EndpointError(
            f"{shown}: the answer is longer than {longest:,} bytes, more than one vector a text needs. Switch pooling "
            f"on in the server, or send smaller batches."
        )
    return _read_json(content, kind, shown)


def _read_json(content: bytes, kind: str, shown: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        page = b"<html" in content[:1000].lower() or "html" in kind
        begins = content[:40].decode("utf-8", "replace")
        remedy = "Write the address of the embeddings, not of a page or proxy." if page else "See to the server."
        raise EndpointError(
            f"{shown}: answered {'HTML' if page else kind or 'no known type'} that is not JSON (it begins with "
            f"{begins!r}). {remedy}"
        ) from None


def _refused(error: HTTPError, shown: str, key_variable: str) -> Exception:
    """What an HTTP status means, in one line."""
    code, said = error.code, _said(error)
    if code in (401, 403):
        return RefusedError(
            f"{shown}: refused ({code}){said}. Put the key into the environment variable {key_variable}, or name "
            f"another one by --key-variable (key_variable)."
        )
    if code in (404, 405):
        return NotServedError(
            f"{shown}: not served there ({code}){said}. Check the path and the model's name (--model)."
        )
    if code in (400, 413, 422, 500) and _TOO_LONG.search(said):
        return TooLongError(
            f"{shown}: refused a text as too long ({code}){said}. Cut the texts (poolscope chunk), or let the server "
            f"take longer ones."
        )
    if code in _AGAIN:
        words = "too many requests (429)" if code == 429 else f"the server failed ({code}){said}"
        return _PassingError(words, _retry_after(error.headers.get("Retry-After")))
    if 300 <= code < 400:
        return EndpointError(f"{shown}: redirected ({code}), which is not followed with a key. Write the new address.")
    return RefusedError(f"{shown}: refused the request ({code}){said}. Check the model's name, and the texts' length.")


def _said(error: HTTPError) -> str:
    """What the server says of its refusal, shortened; "" for a page or nothing."""
    try:
        answer = json.loads(error.read(100_000))
    except (ValueError, OSError, http.client.HTTPException, RecursionError):
        return ""
    detail = answer.get("error", answer.get("detail", answer.get("message", ""))) if isinstance(answer, dict) else ""
    detail = detail.get("message", "") if isinstance(detail, dict) else detail
    words = " ".join(str(detail).split())[:_SHOWN]
    return f": {words.rstrip('.')}" if words else ""


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number or a date; None where the server says nothing that can be read.

    >>> _retry_after("3"), _retry_after("soon"), _retry_after(None)
    (3.0, None, None)
    """
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def _reason(error: Any) -> str:
    return str(getattr(error, "strerror", None) or error).strip().partition("\n")[0][:_SHOWN]
