"""LanceDB, in a folder."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connector_data import DIMENSION, IDS, SOURCES, TEXTS, VECTORS, agrees, exact_neighbours
from poolscope import read_index
from poolscope.errors import InputError

lancedb = pytest.importorskip("lancedb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("lance")
    base = lancedb.connect(str(path))
    vectors = pa.array(VECTORS.tolist(), pa.list_(pa.float32(), DIMENSION))
    content = pa.table({"id": IDS, "embedding": vectors, "body": TEXTS, "source": SOURCES})
    base.create_table("plain", content.slice(0, 100)).add(content.slice(100))
    indexed = base.create_table("indexed", content)
    indexed.create_index("embedding", config=lancedb.index.IvfFlat(distance_type="l2", num_partitions=4))
    return path


def test_all_rows_in_the_order_of_insertion(folder):
    held = read_index(f"lancedb:{folder}/plain")
    agrees(held)
    assert list(held.ids) == IDS
    assert (held.distance, held.search) == (None, None)
    assert "'embedding', texts 'body', groups 'source'" in held.notes[0]
    agrees(read_index(folder / "plain.lance"))


def test_the_search_of_an_index_and_its_setting(folder):
    held = read_index(f"lancedb:{folder}/indexed")
    assert (held.distance, held.search.setting) == ("l2", "nprobes")
    queries = VECTORS[:4] + 0.01
    assert [set(ids) for ids in held.search.find(queries, 5, 4)] == exact_neighbours(queries, 5)


def test_wrong_names(folder):
    with pytest.raises(InputError, match=r"/plane: .*: indexed, plain|/plane: .* indexed, plain"):
        read_index(f"lancedb:{folder}/plane")
    with pytest.raises(InputError, match=r"nowhere.*: .* folder"):
        read_index("lancedb:nowhere/plain")
