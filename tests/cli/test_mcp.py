"""The tools for assistants, through the SDK's own client: in this process, and over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import numpy as np
import pytest
from mcp import Client, StdioServerParameters

import poolscope
from audit_data import sentences
from poolscope.connect.mcp import build_server
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


def test_tools_are_listed_with_their_words():
    async def tools():
        async with Client(build_server()) as client:
            return {tool.name: tool.description for tool in (await client.list_tools()).tools}

    listed = asyncio.run(tools())
    named = ["audit_texts", "check_runtime", "check_seal", "explain_miss", "explain_pair", "pooling_cost"]
    assert sorted(listed) == named
    assert all(listed.values())


def test_a_pair_is_explained(folder):
    texts = ("the cat sat on the mat", "a red dog ran under the blue tree")
    answer = call("explain_pair", first=texts[0], second=texts[1], model=str(folder))
    clouds = as_encoder(folder).encode(list(texts))[-1]
    means = [cloud.mean(axis=0) for cloud in clouds]
    cosine = means[0] @ means[1] / np.prod([np.linalg.norm(mean) for mean in means])
    assert answer["cosine"] == pytest.approx(cosine, abs=1e-6)
    pair = socm_pair(clouds[0], clouds[1])
    assert answer["d_sigma"] == pytest.approx(pair.covariance_distance)
    low, high = answer["d_sigma_range"]
    assert low <= answer["d_sigma_floor"] <= high
    assert 0 < answer["p"] <= 1


def test_a_file_is_audited(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(sentences(40, high=20)))
    answer = call("audit_texts", texts=str(tmp_path / "texts.txt"), model=str(folder), limit=30)
    assert answer["texts"] == 30
    assert {entry["level"] for entry in answer["causes"]} <= {"ok", "unchecked", "look", "fix"}


def written(tmp_path, count=40):
    texts = [f"{text} {k}" for k, text in enumerate(sentences(count, high=20))]
    rows = [{"id": str(k), "text": text} for k, text in enumerate(texts)]
    asked = [{"query": f"nothing like it {k} " + "w " * 400, "relevant": [str(k)]} for k in range(count)]
    for name, lines in (("texts.jsonl", rows), ("queries.jsonl", asked)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    return {"texts": str(tmp_path / "texts.jsonl"), "queries": str(tmp_path / "queries.jsonl")}


def test_a_miss_is_explained_in_few_words(folder, tmp_path):
    files = written(tmp_path)
    answer = call("explain_miss", **files, model=str(folder))
    assert answer["missed"] > 0
    assert answer["rank"] > 10
    assert len(answer["query"]) <= 200
    assert len(json.dumps(answer)) < 6000
    audited = call("audit_texts", **files, model=str(folder))
    assert len(audited["missed"]) <= 10
    assert len(json.dumps(audited)) < 12000
    assert "not missed" in call("explain_miss", **files, model=str(folder), query="another")


def test_the_cost_of_averaging_is_told(folder, tmp_path):
    answer = call("pooling_cost", **written(tmp_path), model=str(folder))
    assert answer["queries"] == 40
    assert isinstance(answer["gain"], float)


def test_a_seal_is_checked_on_this_machine_and_nowhere_else(folder, tmp_path):
    poolscope.seal(str(folder)).save(tmp_path / "index.seal")
    with serving(Model(folder, limit=128), way="cls") as server:
        answer = call("check_seal", seal=str(tmp_path / "index.seal"), target=server.url)
    assert (answer["state"], answer["exit_code"]) == ("other pooling", 4)
    elsewhere = "https://elsewhere.example/v1/embeddings"
    assert "'elsewhere.example'" in call("check_seal", seal=str(tmp_path / "index.seal"), target=elsewhere)


def test_a_runtime_is_checked_on_this_machine_and_nowhere_else(folder):
    with serving(Model(folder, limit=24), way="cls") as server:
        answer = call("check_runtime", url=server.url, reference=str(folder))
    assert answer["level"] == "fix"
    assert "cls" in answer["sentences"][0]
    refused = call("check_runtime", url="https://elsewhere.example/v1/embeddings", reference=str(folder))
    assert "'elsewhere.example'" in refused
    assert "poolscope mcp --host elsewhere.example" in refused


def test_models_of_the_other_tools_are_asked_nowhere_else(folder):
    address = "s3:/elsewhere.example/store"
    assert "no hub" in call("explain_pair", first="a", second="b", model=address)
    refused = call("check_runtime", url="http://localhost:1/v1/embeddings", reference="organisation/model")
    assert "'huggingface.co'" in refused


def test_what_is_no_address(folder):
    assert "url: received '/etc/passwd'" in call("check_runtime", url="/etc/passwd", reference=str(folder))


def test_an_error_is_one_line(tmp_path):
    message = call("audit_texts", texts=str(tmp_path / "none.txt"))
    assert "no such" in message
    assert "\n" not in message


def test_the_command_serves_over_standard_input_and_output(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = StdioServerParameters(command=sys.executable, args=["-m", "poolscope", "mcp"], env=environment)
    answer = call("explain_pair", started, first="the cat", second="a dog ran", model=str(folder))
    assert -1 <= answer["cosine"] <= 1
    # What comes there are messages, not texts.
    assert "assistant" in call("audit_texts", started, texts="-", model=str(folder))
