"""Redis: `redis://[user@]host:6379/NAME`, `rediss://…` for TLS. NAME is a search index, or the prefix of `NAME:…`.

The password is taken from the variable REDIS_PASSWORD where the address has none. Rows are hashes whose vectors are
bytes of float32, as redisvl and LangChain write them. A server without the search module has hashes but no search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.base import (
    BROKE,
    VECTOR_HINTS,
    VECTORS,
    Batch,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    chosen,
    column,
    guess,
    guessed_notes,
    metadata_fields,
    safe_name,
    split_address,
    unencrypted,
)
from poolscope.errors import InputError, require
from poolscope.hosts import permit, secret_for

SCHEMES = ("redis://", "rediss://")
_DISTANCES: dict[str, Distance] = {"COSINE": "cosine", "IP": "dot", "L2": "l2"}
_VALUES = (16, 32, 64, 128, 256, 512, 1024)
_REMEDY = "Check the address, that the server runs, and the password (REDIS_PASSWORD)."
_LOOK = 20
_SECONDS = 60
_KINDS: dict[str, np.dtype[Any]] = {"FLOAT32": np.dtype("<f4"), "FLOAT64": np.dtype("<f8"), "FLOAT16": np.dtype("<f2")}


def open_redis(name: str, fields: Fields) -> RedisConnector:
    """The index or the hashes that the address names."""
    client, index, password = _connected(name)
    shown = safe_name(name)
    try:
        with asking(shown, _REMEDY):
            opened = RedisConnector(shown, client, index, fields)
    except Exception:
        client.close()
        raise
    opened.notes = [*opened.notes, *unencrypted(name, "redis", password, "REDIS_PASSWORD")]
    return opened


def write_redis(name: str, rows: NewRows) -> None:
    """New hashes NAME:id with the fields vector, text and doc_id, and an HNSW index where the server has search."""
    client, index, _ = _connected(name)
    shown = safe_name(name)
    try:
        with asking(shown, _REMEDY):
            prefix = f"{index}:"
            if _described(client, index) is not None or next(_keys(client, [prefix.encode()], _LOOK), None):
                raise already_there(shown)
            metric = next(metric for metric, distance in _DISTANCES.items() if distance == rows.distance)
            vectors = ["VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", rows.vectors.shape[1], "DISTANCE_METRIC", metric]
            schema = ["SCHEMA", "text", "TEXT", "doc_id", "TAG", "vector", *vectors]
            _answer(client, "FT.CREATE", index, "ON", "HASH", "PREFIX", 1, prefix, *schema)
            for part, beside in rows.parts():
                pipe = client.pipeline(transaction=False)
                for own, vector, row in zip(rows.ids[part], rows.vectors[part], beside, strict=True):
                    pipe.hset(prefix + own, mapping={"vector": vector.astype("<f4").tobytes(), **row})
                pipe.execute()
    finally:
        client.close()


def _connected(name: str) -> tuple[Any, str, str | None]:
    """A client, the name behind the host, and the password that is sent."""
    library = require("redis", "redis")
    shown, parts = safe_name(name), split_address(name)
    index = unquote(parts.path.strip("/"))
    if not index:
        raise InputError(f"{shown}: received no name; allowed: redis://host:6379/NAME, an index or a prefix of keys.")
    host = parts.hostname or "localhost"
    permit(host, name=shown)
    password = unquote(parts.password) if parts.password else secret_for(host, "REDIS_PASSWORD")
    user = None if parts.username is None else unquote(parts.username)
    secure = name.startswith(SCHEMES[1])
    with asking(shown, _REMEDY):
        never = library.retry.Retry(library.backoff.NoBackoff(), 0)  # else a server is silent four times as long
        client = library.Redis(
            host,
            parts.port or 6379,
            username=user,
            password=password,
            ssl=secure,
            protocol=2,
            socket_timeout=_SECONDS,
            retry=never,
        )
    return client, index, password


def _answer(client: Any, *command: Any) -> Any:
    """The answer of the server to a command; None where the server does not know the command or its index."""
    try:
        return client.execute_command(*command)
    except require("redis.exceptions", "redis").ResponseError as error:
        if re.search("unknown (command|index)|no such index", str(error), re.IGNORECASE):
            return None
        raise


def _described(client: Any, index: str) -> dict[str, Any] | None:
    """What the server says of an index; None where it has none of this name, or no search."""
    answer = _answer(client, "FT.INFO", index)
    return None if answer is None else _named(answer)


def _named(flat: Sequence[Any]) -> dict[str, Any]:
    """A list of names and values, as the server answers, as a dictionary.

    >>> _named([b"dim", 64, "metric", b"L2"])
    {'dim': 64, 'metric': 'L2'}
    """
    return {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=False)}


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _keys(client: Any, prefixes: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """The keys of some prefixes, each once, though the server may name one twice."""
    before: set[bytes] = set()
    waiting: list[bytes] = []
    for prefix in prefixes:
        pattern = b"".join(b"\\" + bytes([each]) if each in b"*?[]\\^" else bytes([each]) for each in prefix) + b"*"
        for key in client.scan_iter(match=pattern, count=max(size, _LOOK), _type="HASH"):
            if key not in before:
                before.add(key)
                waiting.append(key)
            if len(waiting) == size:
                yield waiting
                waiting = []
    if waiting:
        yield waiting


class RedisConnector:
    """Hashes, in the order in which the server names their keys."""

    def __init__(self, name: str, client: Any, index: str, fields: Fields) -> None:
        self.name, self._client, self._index = name, client, index
        described = _described(client, index)
        forms: dict[str, dict[str, Any]] = {}
        self._prefixes = [f"{index}:".encode()]
        if described is not None:
            definition = _named(described.get("index_definition") or [])
            if definition.get("key_type", "HASH") != "HASH":
                raise InputError(f"{name}: the index is of JSON documents; allowed: an index of hashes.")
            self._prefixes = [bytes(each) for each in definition.get("prefixes") or [b""]]
            attributes = [_named(each) for each in described.get("attributes") or []]
            forms = {each["identifier"]: each for each in attributes if each.get("type") == "VECTOR"}
        keys = next(_keys(client, self._prefixes, _LOOK), [])
        if not keys:
            raise InputError(f"{name}: received no index and no hashes of this name. Check the spelling.")
        rows = [{_text(each): value for each, value in row.items()} for row in self._hashes(keys)]
        names = list(dict.fromkeys(each for row in rows for each in row))
        candidates = list(forms) or names
        only = candidates[0] if len(candidates) == 1 else guess(candidates, VECTORS, VECTOR_HINTS)
        vector = chosen("vectors", fields.vector, names, only, name)
        if vector is None:
            raise InputError(
                f"{name}: it is not clear which field of {', '.join(names)} holds vectors (--vector-column)."
            )
        form = forms.get(vector, {})
        kind = str(form.get("data_type", "FLOAT32"))
        if kind not in _KINDS:
            raise InputError(f"{name}: vectors are {kind}; allowed: {', '.join(_KINDS)}.")
        self._kind = _KINDS[kind]
        wordy = [{each: _text(value) for each, value in row.items() if each != vector} for row in rows]
        own = chosen("ids", fields.id, names, None, name)
        told = metadata_fields(wordy, Fields(vector, fields.text, own, fields.group), name)
        self._fields = Fields(vector, told.text, own, told.group)
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        self.distance: Distance | None = _DISTANCES.get(str(form.get("distance_metric")))
        alias = str(form.get("attribute", vector))  # a question names the vectors by their alias
        self._asked = re.sub(r"(\W)", r"\\\1", alias)
        self.search = self._search(form) if form.get("algorithm") else None

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page: the names of the keys, then their hashes."""
        with asking(self.name, BROKE):
            for keys in _keys(self._client, self._prefixes, size):
                raw = self._hashes(keys)
                vectors = [self._numbers(row.get(str(self._fields.vector).encode())) for row in raw]
                rows = [{_text(each): _text(value) for each, value in row.items()} for row in raw]
                own = column(rows, self._fields.id)
                yield Batch(
                    [self._own(key) for key in keys] if own is None else [each or "" for each in own],
                    vectors,
                    column(rows, self._fields.text),
                    column(rows, self._fields.group),
                )

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _hashes(self, keys: Sequence[bytes]) -> list[Mapping[bytes, bytes]]:
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.hgetall(key)
        return list(pipe.execute())

    def _numbers(self, value: bytes | None) -> NDArray[Any] | None:
        """The numbers of a vector; None where the bytes are no such numbers."""
        if not value or len(value) % self._kind.itemsize:
            return None
        return np.frombuffer(value, self._kind)

    def _own(self, key: bytes) -> str:
        """A key without the prefix that all of them have, and the colon that redisvl puts behind it."""
        only = self._prefixes[0] if len(self._prefixes) == 1 else b""
        rest = key.removeprefix(only)
        return str(_text(rest if not only or only.endswith(b":") else rest.removeprefix(b":")))

    def _search(self, form: Mapping[str, Any]) -> Search:
        kind = str(form["algorithm"])
        setting = "EF_RUNTIME" if kind == "HNSW" else ""
        return Search(self._find, kind, setting, _VALUES if setting else (), form.get("ef_runtime"), kind == "FLAT")

    def _find(self, queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
        more = "" if value is None else f" EF_RUNTIME {int(value)}"
        question = f"*=>[KNN {int(k)} @{self._asked} $vector{more} AS distance]"
        back = ["RETURN", 1, self._fields.id] if self._fields.id else ["NOCONTENT"]
        found = []
        for row in queries:
            numbers = np.asarray(row, dtype=self._kind).tobytes()
            with asking(self.name, BROKE):
                answer = self._client.execute_command(
                    *("FT.SEARCH", self._index, question, "SORTBY", "distance", *back, "LIMIT", 0, int(k)),
                    *("PARAMS", 2, "vector", numbers, "DIALECT", 2),
                )
            if self._fields.id:
                found.append([str(_named(pair).get(self._fields.id, "")) for pair in answer[2::2]])
            else:
                found.append([self._own(key) for key in answer[1:]])
        return found
