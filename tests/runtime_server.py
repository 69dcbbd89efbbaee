"""A server of embeddings on loopback that can be told to embed wrongly, or to answer badly.

Its model is a tiny transformer, run here by torch alone: nothing of poolscope takes part, so that what poolscope says
of it is not its own word.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

CUT = 32
PROMPT = "query: "
LONGEST = 600  # characters, for a server that refuses what is longer


class Model:
    """A folder of transformers that embeds by the mean of its last layer at length 1, cut at `limit` tokens."""

    def __init__(self, folder: Path, *, limit: int = 64) -> None:
        self.network = transformers.AutoModel.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.limit = limit

    def embed(self, texts: list[str], way: str = "right") -> list[list[float]]:
        """One vector a text, made in the way of that name."""
        texts = [PROMPT + text for text in texts] if way == "prompt" else texts
        encoded = self.tokenizer(
            texts,
            padding="longest",
            truncation=True,
            max_length=CUT if way == "truncation" else self.limit,
            add_special_tokens=way != "special tokens",
            return_tensors="pt",
        )
        mask = encoded["attention_mask"][..., None].float()
        network = self._rounded if way == "four bits" else self.network
        with torch.inference_mode():
            if way == "batch":  # padding is attended to, and left out of the pooling
                encoded["attention_mask"] = torch.ones_like(encoded["attention_mask"])
            output = network(**encoded, output_hidden_states=True)
        states = output.hidden_states[-2] if way == "layer" else output.last_hidden_state
        if way == "cls":
            vectors = states[:, 0]
        elif way == "last":
            vectors = states[torch.arange(len(texts)), mask[..., 0].sum(dim=1).long() - 1]
        elif way == "max":
            vectors = states.masked_fill(mask == 0, -torch.inf).max(dim=1).values
        elif way == "padding":
            vectors = states.mean(dim=1)
        else:
            vectors = (states * mask).sum(dim=1) / mask.sum(dim=1)
        return self._stored(vectors.double().numpy(), way).tolist()

    @cached_property
    def _rounded(self) -> torch.nn.Module:
        """Every matrix in four bits with one scale a row, which is not how any cause of poolscope rounds."""
        network = copy.deepcopy(self.network)
        with torch.no_grad():
            for weights in network.parameters():
                if weights.ndim == 2:
                    scale = weights.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 7
                    weights.copy_((weights / scale).round() * scale)
        return network

    def _stored(self, vectors: np.ndarray, way: str) -> np.ndarray:
        if way == "normalize":
            return vectors * 3
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        if way == "dimensions":
            return vectors[:, :8]
        if way == "int8":
            return np.round(vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127)
        if way == "binary":
            return (vectors > 0).astype(int)
        if way == "order":
            return np.roll(vectors, 1, axis=0)
        if way == "chance":
            return vectors + np.random.default_rng().normal(size=vectors.shape) * 0.1
        return vectors


# Each way to embed wrongly, and the beginning of the cause that must be named.
WRONG = {
    "cls": "cls",
    "last": "last",
    "max": "max",
    "prompt": "prompt 'query: '",
    "truncation": f"cut at {CUT} tokens",
    "padding": "padding counted, to the longest text",
    "special tokens": "no special tokens",
    "layer": "layer 1",
}


@dataclass
class Server:
    """What the handler asks: how to embed, and which fault to show; `asked` keeps the bodies of all requests."""

    model: Any
    way: str = "right"
    fault: str = ""
    key: str | None = None
    failures: int | None = None  # how many requests show a fault of HTTP (None: all)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def embed(self, texts: list[str]) -> list[Any]:
        """The vectors of a request, with the fault."""
        vectors = self.model.embed(texts, self.way)
        if self.fault == "nan":
            vectors[-1][0] = float("nan")
        if self.fault == "few":
            vectors = vectors[:-1]
        if self.fault == "ragged":
            vectors[0] = vectors[0][:-1]
        if self.fault == "changing" and len(self.asked) > 1:
            vectors = [row[:-2] for row in vectors]
        if self.fault == "wide":
            vectors = [[*row, *row] for row in vectors]
        if self.fault == "tokens":
            vectors = [[row, row] for row in vectors]
        if self.fault == "one token":
            vectors = [[row] for row in vectors]
        if self.fault.startswith("number "):  # in place of every number
            vectors = [[json.loads(self.fault.removeprefix("number "))] * len(row) for row in vectors]
        return vectors


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append(body)
            server.headers.append(dict(self.headers))
            answer = self._answer(body)
            if answer is not None:
                self._send(*answer)

        def _answer(self, body: dict[str, Any]) -> tuple[int, Any] | None:
            if server.key is not None and self.headers.get("Authorization") != f"Bearer {server.key}":
                return 401, {"error": {"message": "no such key"}}
            if server.fault.isdigit() and server.failures != 0:
                server.failures = None if server.failures is None else server.failures - 1
                return int(server.fault), {"detail": "always"}
            if server.fault == "html":
                return 200, "<html><body>Sign in</body></html>"
            if server.fault == "stops":
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                self.wfile.write(b'{"data": [')
                self.close_connection = True
                return None
            if server.fault.startswith("drips"):
                self._drip(in_headers=server.fault == "drips headers")
                return None
            if server.fault == "long":
                return 200, [0.0] * 2_000_000
            if server.fault == "slow":
                time.sleep(2)
            texts = body.get("input", body.get("inputs"))
            if server.fault == "too long" and max(map(len, texts)) > LONGEST:  # as llama.cpp says it
                return 500, {"error": {"code": 500, "message": "input (835 tokens) is too large to process. increase"}}
            if "" in texts and server.fault == "no empty":
                return 422, {"error": "empty"}
            return self._embedded(texts)

        def _drip(self, *, in_headers: bool) -> None:
            """A byte now and then, for longer than any test waits."""
            self.close_connection = True
            start = b"HTTP/1.1 200 OK\r\nX: " if in_headers else b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
            self.wfile.write(start)
            for _ in range(60):
                self.wfile.write(b"1")
                time.sleep(0.05)

        def _embedded(self, texts: list[str]) -> tuple[int, Any]:
            path = self.path
            if path == "/v1/embeddings":
                rows = [{"embedding": row, "index": k} for k, row in enumerate(server.embed(texts))]
                if server.fault.startswith("index "):
                    rows = [row | {"index": json.loads(server.fault.removeprefix("index "))} for row in rows]
                return 200, {"data": rows[::-1]}  # in any order: `index` says which is which
            if path == "/embed":
                return 200, server.embed(texts)
            if path == "/api/embed":
                return 200, {"embeddings": server.embed(texts)}
            return 404, {"error": "no such path"}

        def _send(self, status: int, content: Any) -> None:
            raw = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(raw)))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def serving(model: Any, **settings: Any) -> Iterator[Server]:
    """A server on a free port of loopback while the body runs."""
    server = Server(model, **settings)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    listener.daemon_threads = True
    listener.handle_error = lambda *_: None  # a client that gave up waiting is part of the test
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listener.server_address[1]}/v1/embeddings"
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


class Words:
    """A model of no weight: a vector that hangs on the words alone, for tests of the wire."""

    def embed(self, texts: list[str], way: str = "right") -> list[list[float]]:
        """Six numbers a text."""
        return [[1.0, *(float(sum(map(ord, text[k::5])) % 97) for k in range(5))] for text in texts]


Embed = Callable[[list[str]], list[list[float]]]
