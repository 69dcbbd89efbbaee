"""A listener on one address of this machine that keeps every byte it gets, whatever the client speaks."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_TLS, _GSS = 80877103, 80877104
_REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def _is_whole(request: bytes) -> bool:
    """Whether a request of HTTP has come to its end."""
    head, end, body = bytes(request).partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


@dataclass
class Listener:
    """What came: `received` holds the bytes of one connection each."""

    port: int
    received: list[bytes] = field(default_factory=list)

    def answer(self, connection: socket.socket) -> None:
        """Ask a client of Postgres for its password in plain words, and refuse a request of HTTP."""
        content = bytearray()
        self.received.append(b"")
        place = len(self.received) - 1
        connection.settimeout(5)
        with suppress(OSError, struct.error):
            while part := connection.recv(65536):
                content += part
                self.received[place] = bytes(content)
                if b"HTTP/1." in content:
                    if _is_whole(content):
                        connection.sendall(_REFUSED)
                        return
                elif len(part) == 8 and struct.unpack("!II", part)[1] in (_TLS, _GSS):
                    connection.sendall(b"N")
                elif part[:1] == b"\0":
                    connection.sendall(b"R" + struct.pack("!II", 8, 3))
                else:
                    return


@contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[Listener]:
    """A listener on a free port of the address, as long as this runs."""
    with socket.create_server((address, 0)) as server:
        made = Listener(server.getsockname()[1])

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    made.answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
