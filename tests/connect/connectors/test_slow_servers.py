"""Servers that are silent, or send an answer drop by drop: each is waited for as long as was said, and no longer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

import poolscope
from poolscope.connect import redis, web
from poolscope.errors import PoolscopeError

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture
def dripping():
    """The port of a server that answers whatever comes with headers, and then a letter now and then."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip(connection):
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(HEADERS)
                while not ended.wait(0.2):
                    connection.sendall(b" ")
            except OSError:
                return

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    ended.set()
    listener.close()


@pytest.mark.parametrize("address", ["elastic://127.0.0.1:{}/docs", "weaviate://127.0.0.1:{}/Docs"])
def test_an_answer_drop_by_drop_has_a_limit_as_a_whole(dripping, monkeypatch, address):
    monkeypatch.setattr(web, "_SECONDS", 1)
    begin = time.monotonic()
    with pytest.raises(PoolscopeError, match="timed out"):
        poolscope.read_index(address.format(dripping))
    assert time.monotonic() - begin < 30


def test_a_silent_server_of_redis_is_asked_once(monkeypatch):
    pytest.importorskip("redis")
    monkeypatch.setattr(redis, "_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    asked.append(silent.accept()[0])

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(PoolscopeError, match="Timeout"):
            poolscope.read_index(f"redis://127.0.0.1:{silent.getsockname()[1]}/docs")
    assert len(asked) == 1
