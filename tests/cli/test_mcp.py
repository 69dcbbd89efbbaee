"""The tools for assistants, through the SDK's own client: in this process, and over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys

import numpy as np
import pytest
from mcp import Client, StdioServerParameters

from audit_data import sentences
from poolscope.cli.mcp import build_server
from poolscope.encoders import as_encoder
from poolscope.metrics.socm.pair import socm_pair
from runtime_server import Model, serving
from tiny_models import declare, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), max_position_embeddings=128), after=["Normalize"])


def call(tool, server=None, **values):
    """The structured answer of a tool, or the text of its error."""

    async def ask():
        async with Client(server or build_server()) as client:
            result = await client.call_tool(tool, values)
            return result.structured_content if not result.is_error else result.content[0].text

    return asyncio.run(ask())


def test_three_tools_are_listed_with_their_words():
    async def tools():
        async with Client(build_server()) as client:
            return {tool.name: tool.description for tool in (await client.list_tools()).tools}

    listed = asyncio.run(tools())
    assert sorted(listed) == ["audit_texts", "check_runtime", "explain_pair"]
    assert all(listed.values())


def test_a_pair_is_explained(folder):
    texts = ("the cat sat on the mat", "a red dog ran under the blue tree")
    answer = call("explain_pair", first=texts[0], second=texts[1], model=str(folder))
    clouds = as_encoder(folder).encode(list(texts))[-1]
    means = [cloud.mean(axis=0) for cloud in clouds]
    cosine = means[0] @ means[1] / np.prod([np.linalg.norm(mean) for mean in means])
    assert answer["cosine"] == pytest.approx(cosine, abs=1e-6)
    pair = socm_pair(clouds[0], clouds[1])
    assert answer["hidden_share"] == pytest.approx(pair.bures / pair.squared_wasserstein)


def test_a_file_is_audited(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(sentences(40, high=20)))
    answer = call("audit_texts", texts=str(tmp_path / "texts.txt"), model=str(folder), limit=30)
    assert answer["texts"] == 30
    assert {entry["level"] for entry in answer["answers"]} <= {"ok", "unchecked", "watch", "repair"}


def test_a_runtime_is_checked_on_this_machine_and_nowhere_else(folder):
    with serving(Model(folder, limit=24), way="cls") as server:
        answer = call("check_runtime", url=server.url, reference=str(folder))
    assert answer["level"] == "repair"
    assert "pooled by cls" in answer["sentence"]
    refused = call("check_runtime", url="https://elsewhere.example/v1/embeddings", reference=str(folder))
    assert "received the host 'elsewhere.example'" in refused
    assert "poolscope mcp --host elsewhere.example" in refused


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://elsewhere.example/v1/embeddings", "the host 'elsewhere.example'"),
        ("https://localhost@elsewhere.example/embed", "the host 'elsewhere.example'"),
        ("qdrant://elsewhere.example:6333/texts", "the host 'elsewhere.example'"),
        ("postgresql://me@elsewhere.example/base?table=t", "the host 'elsewhere.example'"),
        ("postgresql://localhost,elsewhere.example/base?table=t", "received the host"),
        ("postgresql://localhost/base?table=t&host=elsewhere.example", "'host' in the query"),
        ("postgresql:///base?service=other", "received the host None"),
        ("http://[::1", "cannot be read"),
        ("s3:/elsewhere.example/store", "the host 'elsewhere.example'"),
    ],
)
@pytest.mark.parametrize("part", ["model", "texts"])
def test_no_text_and_no_key_goes_to_a_server_that_nobody_named(tmp_path, address, message, part):
    (tmp_path / "texts.txt").write_text("a text\nanother\n")
    refused = call("audit_texts", **{"texts": str(tmp_path / "texts.txt"), part: address})
    assert message in refused
    assert "\n" not in refused


def test_models_of_the_other_tools_are_asked_nowhere_else(folder):
    address = "s3:/elsewhere.example/store"
    assert "the host 'elsewhere.example'" in call("explain_pair", first="a", second="b", model=address)
    refused = call("check_runtime", url="http://localhost:1/v1/embeddings", reference=address)
    assert "reference: received the host 'elsewhere.example'" in refused


def test_what_is_no_address(folder):
    assert "allowed: an address" in call("check_runtime", url="/etc/passwd", reference=str(folder))


def test_an_error_is_one_line(tmp_path):
    message = call("audit_texts", texts=str(tmp_path / "none.txt"))
    assert "Check the spelling" in message
    assert "\n" not in message


def test_the_command_serves_over_standard_input_and_output(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = StdioServerParameters(command=sys.executable, args=["-m", "poolscope", "mcp"], env=environment)
    answer = call("explain_pair", started, first="the cat", second="a dog ran", model=str(folder))
    assert -1 <= answer["cosine"] <= 1
    # What comes there are messages, not texts.
    assert "taken by the assistant" in call("audit_texts", started, texts="-", model=str(folder))
