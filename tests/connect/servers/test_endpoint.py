"""An endpoint as a source of vectors: three ways of speaking, many requests, and every bad answer in one line."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from poolscope.connect.servers.endpoint import Endpoint
from poolscope.connect.servers.http import EndpointError
from poolscope.errors import InputError
from runtime_server import Words, serving

TEXTS = [f"text number {k}" for k in range(23)]
SECRET = "sk-never-to-be-seen"


@pytest.fixture
def server():
    with serving(Words()) as running:
        yield running


def endpoint(server, **settings):
    return Endpoint(server.url, **{"pause": 0.001, "retries": 2, "batch": 5, **settings})


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed", "/api/embed"])
def test_three_ways_of_speaking_give_the_vectors_in_the_order_of_the_texts(server, path):
    source = Endpoint(server.url.replace("/v1/embeddings", path), batch=4).resolved()
    assert np.allclose(source.vectors(TEXTS), Words().embed(TEXTS))
    assert len(server.asked) == 6


@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_of_an_address_alone_the_path_is_tried(server, end):
    source = Endpoint(server.url.replace("/v1/embeddings", end)).resolved()
    assert (source.url, source.protocol) == (server.url, "openai")


def test_a_named_protocol_completes_the_address(server):
    source = Endpoint(server.url.replace("/v1/embeddings", ""), protocol="ollama", model="m").resolved()
    assert source.url.endswith("/api/embed")
    source.send(["a"])
    assert server.asked[-1]["model"] == "m"


def test_dimensions_are_asked_for(server):
    endpoint(server, dimensions=3, protocol="openai").send(["a"])
    assert server.asked[-1]["dimensions"] == 3


@pytest.mark.parametrize("fault", ["429", "500", "503"])
def test_what_passes_is_tried_again(server, fault):
    server.fault, server.failures = fault, 2
    assert len(endpoint(server, protocol="openai", concurrency=1).send(["a"])) == 1
    assert len(server.asked) == 3


FAULTS = {
    "429": r"too many requests \(429\), tried 3 times",
    "500": r"the server failed \(500\): always, tried 3 times",
    "400": r"refused the request \(400\): always",
    "html": r"answered HTML that is not JSON \(it begins with '<html>",
    "stops": "the connection broke off",
    "nan": "NaN or infinity",
    "few": "gave 4 vectors for 5 texts",
    "ragged": "have the dimensions 5, 6",
    "changing": "gave vectors of dimension",
    "tokens": r"one vector a token \(2 × 6\)",
    "slow": "no answer within 0.3 seconds",
    "drips body": "no answer within 0.3 seconds",
    "drips headers": "no answer within 0.3 seconds",
    "long": "the answer is longer than 6,291,456 bytes",
    "one token": r"one vector a token \(1 × 6\)",
    "index 0": "the vectors have the index 0, 0, 0, 0, …; needed: each number from 0 to 4 once",
    "index -1": "the vectors have the index -1",
    'index "x"': "the vectors have the index 'x'",
    "index true": "the vectors have the index True",
    f"index {10**30}": "the vectors have the index 1000000000",
    'number "1.0"': "hold what is no number",
    "number true": "hold what is no number",
    "number null": "hold what is no number",
    "number {}": "hold what is no number",
    f"number {10**4000}": "hold what is no number",
    "number 1e39": "NaN or infinity",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_bad_answer_is_one_line(server, fault):
    server.fault = fault
    quick = {"timeout": 0.3, "retries": 0} if fault == "slow" or "drips" in fault else {}
    with pytest.raises(EndpointError, match=FAULTS[fault]) as caught:
        endpoint(server, protocol="openai", concurrency=1, **quick).vectors(TEXTS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(server.url)


def test_the_first_failure_stops_the_requests_that_wait(server):
    server.fault = "400"
    with pytest.raises(EndpointError):
        endpoint(server, protocol="openai", concurrency=1, batch=1).vectors(TEXTS)
    assert len(server.asked) < len(TEXTS)


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match=r"\(Connection refused\), .* 2 times"):
        Endpoint(f"http://127.0.0.1:{port}/embed", protocol="tei", retries=1, pause=0.001).send(["a"])


def test_a_path_that_is_not_served_names_those_that_were_tried(server):
    with pytest.raises(EndpointError, match=r"\(404\): no such path"):
        Endpoint(server.url.replace("/v1/", "/v2/").replace("embeddings", "x/embeddings")).resolved().send(["a"])
    with pytest.raises(EndpointError, match="/there/v1/embeddings, /there/api/embed, /there/embed"):
        Endpoint(server.url.replace("/v1/embeddings", "/there"), retries=0).resolved()


def test_a_key_is_sent_and_seen_nowhere_else(server, monkeypatch):
    server.key = SECRET
    source = endpoint(server, protocol="openai")
    with pytest.raises(EndpointError, match=r"\(401\): no such key.* POOLSCOPE_API_KEY") as caught:
        source.send(["a"])
    monkeypatch.setenv("OTHER_KEY", SECRET)
    other = endpoint(server, protocol="openai", key_variable="OTHER_KEY")
    assert len(other.send(["a"])) == 1
    assert server.headers[-1]["Authorization"] == f"Bearer {SECRET}"
    server.fault = "500"
    with pytest.raises(EndpointError) as failed:
        other.send(["a"])
    for seen in (repr(other), str(other.to_dict()), str(caught.value), str(failed.value), other.name):
        assert SECRET not in seen


def test_a_key_that_no_header_can_hold_is_not_shown(server, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_API_KEY", f"{SECRET}\n{SECRET}")
    with pytest.raises(InputError, match=r"POOLSCOPE_API_KEY: .* line break") as caught:
        endpoint(server, protocol="openai").send(["a"])
    assert SECRET not in str(caught.value)


def test_secrets_of_an_address_are_refused_or_left_out():
    with pytest.raises(InputError, match="https://host/embed holds") as caught:
        Endpoint(f"https://me:{SECRET}@host/embed")
    assert SECRET not in str(caught.value)
    source = Endpoint(f"https://host/embed?code={SECRET}")
    assert SECRET not in source.name
    assert SECRET not in str(source.to_dict())


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/embed", "http://", "http://host:port/embed"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(InputError, match=r"url: .*https"):
        Endpoint(url)


@pytest.mark.parametrize(
    "settings",
    [
        {"batch": 0},
        {"batch": "a"},
        {"concurrency": 0},
        {"retries": -1},
        {"timeout": 0},
        {"timeout": "a"},
        {"timeout": 1e30},
        {"timeout": True},
        {"timeout": float("nan")},
        {"protocol": "x"},
        {"key_variable": 5},
        {"key_variable": ""},
        {"model": 5},
        {"dimensions": 0},
        {"pause": -1},
    ],
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(InputError, match=f"{next(iter(settings))}: received"):
        Endpoint("http://host/embed", **settings)
