"""What an assistant can let poolscope contact, held against listeners that keep every byte.

127.0.0.2 stands for a host that nobody named: it is another address of this machine, so that no test leaves it.
"""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

import poolscope
from listening import listening
from poolscope.connect.mcp import build_server
from poolscope.errors import InputError, PoolscopeError
from poolscope.hosts import confined, is_permitted

# The client of Chroma closes no connection.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

ELSEWHERE = "127.0.0.2"
SECRET = "open-sesame-1234567890"
VARIABLES = ("PGPASSWORD", "QDRANT_API_KEY", "CHROMA_TOKEN", "POOLSCOPE_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN")


def tool(name, hosts=(), **values):
    """The text of what a tool answers."""
    from mcp import Client

    async def ask():
        async with Client(build_server(hosts)) as client:
            return (await client.call_tool(name, values)).content[0].text

    return asyncio.run(ask())


@pytest.fixture
def secrets(monkeypatch, tmp_path):
    """An environment full of secrets, also in files that clients read by themselves."""
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("CHROMA_CLIENT_AUTH_PROVIDER", "chromadb.auth.token_authn.TokenAuthClientProvider")
    monkeypatch.setenv("CHROMA_CLIENT_AUTH_CREDENTIALS", SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".pgpass").write_text(f"*:*:*:*:{SECRET}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    (tmp_path / "texts.txt").write_text("the cat sat\na dog ran\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Addresses that name 127.0.0.2, each in a way that some parser reads as this machine; PORT is the listener's.
BEHIND = [
    "postgresql://me@localhost:1,127.0.0.2:PORT/base?table=t",
    "postgresql://me@[::1]:1,127.0.0.2:PORT/base?table=t",
    "postgresql://me@localhost:PORT/base?table=t&host=127.0.0.2",
    "postgresql://me@localhost:PORT/base?table=t&hostaddr=127.0.0.2",
    "postgresql://me@localhost:PORT/base?table=t&service=other",
    "postgresql:///base?table=t&service=other",
    "postgres://localhost@127.0.0.2:PORT/base?table=t",
    "qdrant://127.0.0.2:PORT/texts",
    "qdrant://me@localhost/x@127.0.0.2:PORT/texts",
    "qdrant://localhost//127.0.0.2:PORT/texts",
    "qdrant://localhost\\@127.0.0.2:PORT/texts",
    "chroma://127.0.0.2:PORT/texts",
    "chroma://localhost@127.0.0.2:PORT/texts",
    "milvus://127.0.0.2:PORT/texts",
    "milvus://localhost@127.0.0.2:PORT/texts",
    "redis://127.0.0.2:PORT/texts",
    "redis://localhost@127.0.0.2:PORT/texts",
    "elastic://127.0.0.2:PORT/texts",
    "weaviate://127.0.0.2:PORT/Texts",
    "pinecone://127.0.0.2:PORT/texts",
    "http://127.0.0.2:PORT/v1/embeddings",
    "http://localhost@127.0.0.2:PORT/v1/embeddings",
    "http://localhost:PORT@127.0.0.2:PORT/v1/embeddings",
    "http://localhost\\@127.0.0.2:PORT/v1/embeddings",
    "http://localhost#@127.0.0.2:PORT/v1/embeddings",
    "http://2130706434:PORT/v1/embeddings",
    "http://[::ffff:127.0.0.2]:PORT/v1/embeddings",
    "s3://localhost/bucket/store",
    "s3:/127.0.0.1/store",
    "S3://::1/store",
    "s3://localhost/x::http://127.0.0.2:PORT/store",
    "gs://localhost/store",
    "az://localhost/store",
    "organisation/model",
    "hub:organisation/data",
    "stream:organisation/data",
    "lancedb:db://127.0.0.2:PORT/t",
    "lancedb:s3://127.0.0.2:PORT/t",
]


@pytest.mark.parametrize("part", ["model", "texts"])
@pytest.mark.parametrize("address", BEHIND)
def test_nothing_reaches_a_host_that_nobody_named(address, part, secrets, monkeypatch):
    monkeypatch.setenv("PGSERVICEFILE", str(secrets / "services"))
    with listening(ELSEWHERE) as listener:
        (secrets / "services").write_text(f"[other]\nhost={ELSEWHERE}\nport={listener.port}\n")
        for name in ("AWS_ENDPOINT_URL", "HF_ENDPOINT", "STORAGE_EMULATOR_HOST"):
            monkeypatch.setenv(name, f"http://{ELSEWHERE}:{listener.port}")
        given = {"texts": str(secrets / "texts.txt"), part: address.replace("PORT", str(listener.port))}
        answer = tool("audit_texts", **given)
    assert listener.received == []
    assert answer.startswith("Error executing tool")
    assert "\n" not in answer
    assert SECRET not in answer


# Servers on this machine, which may be asked without being named; those that are named get their key.
HERE = {
    "Postgres": "postgresql://me@127.0.0.1:PORT/base?table=t",
    "Qdrant": "qdrant://127.0.0.1:PORT/texts",
    "Chroma": "chroma://127.0.0.1:PORT/texts",
    "embeddings": "http://127.0.0.1:PORT/v1/embeddings",
}


@pytest.mark.parametrize("kind", HERE)
def test_a_secret_goes_only_where_it_was_named(kind, secrets):
    for hosts, expected in (((), False), (("127.0.0.1",), True)):
        with listening() as listener:
            given = {"texts": str(secrets / "texts.txt"), "model": HERE[kind].replace("PORT", str(listener.port))}
            tool("audit_texts", hosts, **given)
        assert listener.received
        assert any(SECRET.encode() in content for content in listener.received) == expected


@pytest.mark.parametrize("way", ["PGPASSWORD", "PGPASSFILE", ".pgpass", "PGSERVICE"])
def test_no_password_that_libpq_finds_by_itself(way, secrets, monkeypatch):
    monkeypatch.delenv("PGPASSWORD")
    (secrets / "other").write_bytes((secrets / ".pgpass").read_bytes())
    (secrets / "other").chmod(0o600)
    if way != ".pgpass":
        (secrets / ".pgpass").unlink()
    (secrets / "services").write_text(
        f"[other]\npassword={SECRET}\nhostaddr={ELSEWHERE}\npassfile={secrets / 'other'}\n"
    )
    if way == "PGSERVICE":
        monkeypatch.setenv("PGSERVICEFILE", str(secrets / "services"))
        monkeypatch.setenv("PGSERVICE", "other")
    elif way == "PGPASSFILE":
        monkeypatch.setenv("PGPASSFILE", str(secrets / "other"))
    elif way == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", SECRET)
    with listening() as listener, confined([]), pytest.raises(PoolscopeError):
        poolscope.read_index(f"postgresql://me@127.0.0.1:{listener.port}/base?table=t")
    assert listener.received
    assert not any(SECRET.encode() in content for content in listener.received)


def test_the_environment_names_no_host(secrets, monkeypatch):
    with listening(ELSEWHERE) as listener:
        for name, value in {"PGHOST": ELSEWHERE, "PGHOSTADDR": ELSEWHERE, "PGPORT": str(listener.port)}.items():
            monkeypatch.setenv(name, value)
        for address in ("postgresql:///base?table=t", "postgresql://localhost/base?table=t"):
            with confined([]), pytest.raises(PoolscopeError):
                poolscope.read_index(address)
    assert listener.received == []


def test_a_call_stays_confined_while_another_ends():
    first, second = confined([]), confined(["db.example"])
    first.__enter__()
    second.__enter__()
    assert not is_permitted("db.example")  # it has to be named in both
    first.__exit__(*sys.exc_info())
    assert is_permitted("db.example")
    assert not is_permitted("other.example")
    second.__exit__(*sys.exc_info())
    assert is_permitted("other.example")


@pytest.mark.parametrize("name", ["http://host.example", "host.example:8000", "s3://bucket/store", ""])
def test_a_name_that_no_host_would_equal_is_refused(name):
    with pytest.raises(InputError, match=f"--host {re.escape(name)}"):
        build_server([name])


def test_a_model_of_the_hub_that_lies_here_is_used_without_a_request(secrets, monkeypatch):
    """A model in the cache of the hub is opened, though the hub may not be asked."""
    from tiny_models import declare, save_model

    commit = "0" * 40
    cached = secrets / "hub" / "models--organisation--model"
    declare(save_model(cached / "snapshots" / commit))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(secrets / "hub"))
    with confined([]):
        assert poolscope.as_encoder("organisation/model").card.revision == commit
