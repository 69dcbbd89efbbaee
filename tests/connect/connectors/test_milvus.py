"""Milvus: a folder of Milvus Lite, and its own server on loopback."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from connector_data import DIMENSION, IDS, SECRET, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import read_index
from poolscope.connect.kit import certify
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError
from poolscope.hosts import confined

pymilvus = pytest.importorskip("pymilvus")
milvus_lite = pytest.importorskip("milvus_lite")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A collection with a key of numbers, fields outside its schema, and two fields of vectors."""
    path = tmp_path_factory.mktemp("milvus") / "own.db"
    client, kinds = pymilvus.MilvusClient(str(path)), pymilvus.DataType
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("key", kinds.INT64, is_primary=True)
    schema.add_field("embedding", kinds.FLOAT_VECTOR, dim=DIMENSION)
    schema.add_field("other", kinds.FLOAT_VECTOR, dim=2)
    index = client.prepare_index_params()
    index.add_index(field_name="embedding", index_type="IVF_FLAT", metric_type="L2", params={"nlist": 4})
    index.add_index(field_name="other", index_type="FLAT", metric_type="IP")
    client.create_collection("texts", schema=schema, index_params=index)
    rows = zip(IDS, VECTORS, TEXTS, SOURCES, strict=True)
    client.insert("texts", [{"key": int(own), "embedding": vector, "other": [1.0, 2.0], "text": text, "source": source}
                            for own, vector, text, source in rows])  # fmt: skip
    client.flush("texts")
    return path


@pytest.fixture(scope="module")
def place(folder):
    """HOST:PORT of the server that Milvus Lite is, in a thread of this process."""
    from milvus_lite.server_manager import server_manager_instance

    return server_manager_instance.start_and_get_uri(str(folder)).removeprefix("http://")


@pytest.mark.parametrize("address", ["milvus:{folder}", "milvus:{folder}/texts", "milvus://{place}/texts"])
def test_rows_of_a_folder_and_of_a_server(address, folder, place):
    found = read_index(address.format(folder=folder, place=place))
    agrees(found)
    assert found.distance == "l2"
    assert (found.search.kind, found.search.setting, found.search.exact) == ("IVF_FLAT", "nprobe", False)
    queries = VECTORS[:20] + np.float32(0.01)
    answers = found.search.find(queries, 5, 128)  # all lists
    assert [set(each) for each in answers] == exact_neighbours(queries, 5)
    found.close()


def test_the_kit_and_what_is_there_already(tmp_path):
    address = f"milvus:{tmp_path}/new.db/kit"
    made = certify(address, count=2100)
    assert (made.rows, made.distance, made.largest_error) == (2100, "cosine", 0.0)
    assert made.recall > 0.9
    with pytest.raises(InputError, match="already"):
        certify(address, count=3)
    assert logging.getLogger("pymilvus").level != logging.CRITICAL  # given back


def test_fields_that_are_named(folder):
    found = read_index(f"milvus:{folder}/texts", vector_column="other", id_column="source", limit=0)
    assert found.vectors.shape == (len(IDS), 2)
    assert set(found.ids) <= {name for source in SOURCES for name in (source, f"{source}#2")} or found.distance == "dot"
    with pytest.raises(InputError, match=r"received 'text' .* embedding, other"):
        read_index(f"milvus:{folder}/texts", vector_column="text")


def test_what_is_no_collection_is_named(folder, tmp_path, monkeypatch, place):
    monkeypatch.setenv("MILVUS_TOKEN", SECRET)
    for address, words in (
        (f"milvus:{tmp_path}/none.db/texts", r"/none\.db is no"),
        (f"milvus:{tmp_path}/texts", "allowed: milvus:NAME.db"),
        (f"milvus:{folder}/nothing", "collection .*: texts"),
        (f"milvus://{place}/nothing", "collection .*: texts"),
    ):
        with pytest.raises(InputError, match=words):
            read_index(address)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "linked.db" / "collections").mkdir(parents=True)
    (tmp_path / "linked.db" / "collections" / "texts").symlink_to(folder)
    with pytest.raises(InputError, match=r"linked\.db: .* link"):
        read_index(f"milvus:{tmp_path}/linked.db/texts")
    with confined([]), pytest.raises(InputError, match="not named"):
        read_index("milvus://127.0.0.2:9/texts")
    with pytest.raises(ConnectionFailedError) as absent:
        read_index("milvus://127.0.0.1:9/texts")
    assert SECRET not in str(absent.value)
