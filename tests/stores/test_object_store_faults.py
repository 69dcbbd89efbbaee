"""An object store that fails now and then: what is stored is whole, what is read is right, the same call goes on."""

from __future__ import annotations

import http.client
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from engine_data import SHARD_TEXTS, corpus, write_vectors
from poolscope import open_clouds, verify
from poolscope.encoders import as_encoder
from poolscope.errors import StoreError
from poolscope.stores.remote import _opened, open_remote
from poolscope.stores.writer import encode_to_store
from store_fakes import contents

moto_server = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
TEXTS = corpus(12)
# What goes wrong with one request: the server fails or refuses, the answer is cut, or comes after the work was done.
FAULTS = ["fails", "refuses", "cut", "lost"]


class Faulty(ThreadingHTTPServer):
    """A server in front of the object store; from its `first` request on, `count` of them go wrong."""

    daemon_threads = True

    def __init__(self, behind: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind, self.lock = behind, threading.Lock()
        self.fault, self.first, self.count, self.requests = "", 0, 0, 0

    def set(self, fault: str = "", first: int = 0, count: int = 0) -> None:
        with self.lock:
            self.fault, self.first, self.count, self.requests = fault, first, count, 0

    def next_fault(self) -> str:
        with self.lock:
            self.requests += 1
            return self.fault if 0 <= self.requests - 1 - self.first < self.count else ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Faulty

    def _answer(self) -> None:
        body = self._body()
        fault = self.server.next_fault()
        if fault in ("fails", "refuses"):
            status, code = (500, "InternalError") if fault == "fails" else (403, "AccessDenied")
            self._send(status, {}, f"<Error><Code>{code}</Code><Message>made up</Message></Error>".encode())
            return
        behind = http.client.HTTPConnection(*self.server.behind, timeout=30)
        behind.request(self.command, self.path, body, dict(self.headers.items()))
        answer = behind.getresponse()
        content = answer.read()
        behind.close()
        if fault == "lost":  # what was asked is done, and nobody hears of it
            self.close_connection = True
            return
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _PER_CONNECTION}
        self._send(answer.status, headers, content, cut=fault == "cut")

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        del self.headers["Transfer-Encoding"]
        return b"".join(parts)

    def _send(self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in map(str.lower, headers):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_PER_CONNECTION = {"connection", "transfer-encoding", "server", "date"}


@pytest.fixture(scope="module")
def faulty() -> Iterator[Faulty]:
    behind = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    behind.start()
    server = Faulty(behind.get_host_and_port())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
    behind.stop()


@pytest.fixture
def bucket(faulty, tmp_path, monkeypatch) -> Iterator[str]:
    import boto3
    import s3fs

    address = f"http://127.0.0.1:{faulty.server_address[1]}"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": address, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # the client of Amazon waits long between its own attempts
    _opened.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{os.urandom(4).hex()}"
    faulty.set()
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket=name)
    yield f"s3://{name}"
    faulty.set()
    _opened.cache_clear()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("model") / "vectors.txt")


@pytest.fixture(scope="module")
def local(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "store"
    encode_to_store(as_encoder(model), TEXTS, folder, shard_texts=SHARD_TEXTS)
    return folder


def objects(address: str) -> dict[str, bytes]:
    remote = open_remote(address)
    remote.system.invalidate_cache()
    return {name[len(remote.root) + 1 :]: remote.system.cat_file(name) for name in remote.system.find(remote.root)}


def goes_wrong(faulty: Faulty, work: Callable[[], object], **fault: object) -> bool:
    """Whether work ends with one of our errors, in one line, where requests go wrong."""
    faulty.set(**fault)  # type: ignore[arg-type]
    said = None
    try:
        work()
    except StoreError as error:
        said = str(error)
    finally:
        faulty.set()
    assert said is None or "\n" not in said
    return said is not None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("count", [1, 1000])
def test_a_store_is_written_to_its_end_by_the_next_call(faulty, bucket, model, local, fault, count):
    encode_to_store(as_encoder(model), TEXTS, f"{bucket}/count", shard_texts=SHARD_TEXTS)
    faulty.set()
    encode_to_store(as_encoder(model), TEXTS, f"{bucket}/whole", shard_texts=SHARD_TEXTS)
    requests = faulty.requests
    assert requests > 5
    for first in range(0, requests, 1 if count == 1 else 5):
        address = f"{bucket}/{first}"

        def write(address: str = address) -> None:
            encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS)

        failed = goes_wrong(faulty, write, fault=fault, first=first, count=count)
        if count > 1 and fault != "cut":  # the answers to what is sent are empty, and cannot be cut
            assert failed
        write()
        assert objects(address) == contents(local)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_read_is_right_or_refused(faulty, bucket, model, local, fault):
    address = f"{bucket}/store"
    encode_to_store(as_encoder(model), TEXTS, address, shard_texts=SHARD_TEXTS)
    expected = open_clouds(local)
    mirror = open_remote(address).mirror

    def read() -> None:
        clouds = open_clouds(address)
        assert verify(address).in_words()
        for row in range(len(expected)):
            np.testing.assert_array_equal(clouds[row], expected[row])

    shutil.rmtree(mirror)
    faulty.set()
    read()
    for first in range(faulty.requests):
        shutil.rmtree(mirror)
        goes_wrong(faulty, read, fault=fault, first=first, count=1)
        read()  # nothing half is left in the mirror
