"""A password in an address, of whatever kind, is shown nowhere: not where nobody listens, not where it is misspelt."""

from __future__ import annotations

import socket
import threading

import pytest
from typer.testing import CliRunner

from connector_data import SECRET
from poolscope import read_index
from poolscope.cli import app
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import PoolscopeError

NOWHERE = "127.0.0.1:9"  # nobody listens there
ADDRESSES = [
    f"postgresql://me:{SECRET}@{NOWHERE}/base?table=t",
    f"postgresql://me:{SECRET}@{NOWHERE}/base",
    f"postgresql://{NOWHERE}/base?table=t&password={SECRET}",
    f"postgresql://me:a@{SECRET}@{NOWHERE}/base?table=t",  # a password with an @ in it
    f"postgresql://me:a/{SECRET}@{NOWHERE}/base?table=t",
    f"postgresql://me:{SECRET}?b@{NOWHERE}/base?table=t",
    f"postgresql://me:{SECRET}#b@{NOWHERE}/base?table=t",
    f"postgresql+psycopg://me:{SECRET}@{NOWHERE}/base?table=t",
    f"qdrant://{NOWHERE}/c?api_key={SECRET}",
    f"qdrants://me:{SECRET}@{NOWHERE}/c",
    f"qdrant://me:a/{SECRET}@{NOWHERE}/c",
    f"chroma://me:{SECRET}@{NOWHERE}/c?token={SECRET}",
    f"chromas://me:{SECRET}@{NOWHERE}/c",
    f"chroma://me:{SECRET}@127.0.0.1:port/c",
    f"lancedb://me:{SECRET}@host/t",
    f"faiss:nowhere?texts=x&key={SECRET}",
    f"s3://me:{SECRET}@bucket",
    f"mysql://me:{SECRET}@{NOWHERE}/base",
    f"http://me:{SECRET}@{NOWHERE}/v1/embeddings",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_error_shows_a_password(address, tmp_path):
    with pytest.raises(PoolscopeError) as read:
        read_index(address)
    audited = CliRunner().invoke(app, ["audit", address, "--verbose", "-o", str(tmp_path / "audit")])
    assert isinstance(audited.exception, PoolscopeError)
    assert "\n" not in str(audited.exception)
    assert not list(tmp_path.rglob("*.json"))
    for seen in (str(read.value), str(audited.exception), audited.output):
        assert SECRET not in seen


def test_an_address_in_the_place_of_the_texts_shows_none_either():
    asked = CliRunner().invoke(app, ["audit", "builtin:minilm", f"mysql://me:{SECRET}@{NOWHERE}/base"])
    assert isinstance(asked.exception, PoolscopeError)
    assert SECRET not in f"{asked.exception}{asked.output}"


def test_a_token_of_chroma_goes_through_tls_where_that_is_asked_for(monkeypatch):
    pytest.importorskip("chromadb")
    monkeypatch.setenv("CHROMA_TOKEN", SECRET)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            caller, _ = listener.accept()
            with caller:
                heard.append(caller.recv(4096))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        with pytest.raises(ConnectionFailedError):
            read_index(f"chromas://127.0.0.1:{listener.getsockname()[1]}/c")
        thread.join(10)
    assert heard[0][:2] == b"\x16\x03"  # the greeting of TLS
    assert SECRET.encode() not in heard[0]
