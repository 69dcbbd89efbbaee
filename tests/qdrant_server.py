"""Qdrant's REST interface on loopback, answered by the local mode of its client: for tests of what goes over the wire.

The server itself is on no package index. So the routes that are asked here are answered as its OpenAPI description has
them, by the same client in local mode, and `asked` keeps paths and bodies.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models


def _answer(client: QdrantClient, path: str, body: dict[str, Any]) -> Any:
    parts = path.partition("?")[0].strip("/").split("/")
    if parts == ["collections"]:
        return client.get_collections()
    if parts[2:] == ["exists"]:
        return {"exists": client.collection_exists(parts[1])}
    if len(parts) == 2 and body:
        return client.create_collection(parts[1], models.VectorParams.model_validate(body["vectors"]))
    if len(parts) == 2:
        return client.get_collection(parts[1])
    if parts[2:] == ["points"]:
        return client.upsert(parts[1], [models.PointStruct.model_validate(point) for point in body["points"]])
    if parts[2:] == ["points", "scroll"]:
        names = ("limit", "offset", "with_payload")
        points, following = client.scroll(
            parts[1], with_vectors=body.get("with_vector", False), **{n: body[n] for n in names if n in body}
        )
        return {"points": points, "next_page_offset": following}
    if parts[2:] == ["points", "query", "batch"]:
        searches = [models.QueryRequest.model_validate({**search, "params": None}) for search in body["searches"]]
        return [{"points": answer.points} for answer in client.query_batch_points(parts[1], searches)]
    raise KeyError(path)


def _plain(value: Any) -> Any:
    return json.loads(value.model_dump_json()) if hasattr(value, "model_dump_json") else str(value)


@contextmanager
def serving(client: QdrantClient, *, key: str | None = None) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """host:port while the body runs, and what was asked; with `key` no one enters without it."""
    asked: list[tuple[str, dict[str, Any]]] = []
    lock = threading.Lock()  # local mode is for one thread at a time

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            asked.append((self.path, body))
            if key is not None and self.headers.get("api-key") != key:
                self._send(401, "Must provide an API key")
                return
            try:
                with lock:
                    result = _answer(client, self.path, body)
            except KeyError:
                self._send(404, {"status": {"error": "Not found"}})
            else:
                self._send(200, {"result": result, "status": "ok", "time": 0.0})

        def do_GET(self) -> None:
            self.do_POST()

        def do_PUT(self) -> None:
            self.do_POST()

        def _send(self, status: int, content: Any) -> None:
            raw = json.dumps(content, default=_plain).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
