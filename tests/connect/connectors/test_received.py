"""Folders of vector stores that somebody crafted: nothing runs, nothing outside is read, a refusal is one line."""

from __future__ import annotations

import json
import pickle
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

import poolscope
from poolscope.errors import PoolscopeError

VECTORS = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
NEVER_ENDS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS id, 'k' AS key FROM r"


def refusal(address: object) -> str:
    with pytest.raises(PoolscopeError) as refused:
        poolscope.read_index(str(address))
    assert "\n" not in str(refused.value)
    return str(refused.value)


# -- Chroma -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def chroma(tmp_path):
    chromadb = pytest.importorskip("chromadb")
    client = chromadb.PersistentClient(path=str(tmp_path / "store"))
    held = client.create_collection("docs", embedding_function=None)
    held.add(ids=list(map(str, range(40))), embeddings=VECTORS.tolist(), documents=[f"text {k}" for k in range(40)])
    client.close()
    return tmp_path / "store"


def change(folder, *statements):
    base = sqlite3.connect(folder / "chroma.sqlite3")
    for statement in statements:
        base.execute(*statement)
    base.commit()
    base.close()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            [("ALTER TABLE embedding_metadata RENAME TO old",), (f"CREATE VIEW embedding_metadata AS {NEVER_ENDS}",)],
            "view",
        ),
        ([("CREATE TRIGGER t AFTER INSERT ON embeddings BEGIN DELETE FROM collections; END",)], "trigger"),
        ([("ALTER TABLE collections ADD COLUMN x GENERATED ALWAYS AS (zeroblob(999999999))",)], "generated column"),
    ],
)
def test_a_data_base_of_chroma_that_is_a_program_is_refused(chroma, statements, message):
    change(chroma, *statements)
    assert message in refusal(f"chroma:{chroma}/docs")


def test_a_link_in_a_folder_of_chroma_is_refused(chroma, tmp_path):
    outside = tmp_path / "outside.bin"
    inside = next(chroma.rglob("data_level0.bin"))
    outside.write_bytes(inside.read_bytes())
    inside.unlink()
    inside.symlink_to(outside)
    assert "data_level0.bin" in refusal(f"chroma:{chroma}/docs")


def test_neither_an_embedding_function_nor_a_pickle_of_a_collection_is_run(chroma, tmp_path):
    model, mark = tmp_path / "model", tmp_path / "ran"
    model.mkdir()
    (model / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")
    (model / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]))
    options = {"model_name": str(model), "device": "cpu", "normalize_embeddings": False}
    options["kwargs"] = {"trust_remote_code": True}
    function = {"type": "known", "name": "sentence_transformer", "config": options}
    change(chroma, ("UPDATE collections SET config_json_str = ?", (json.dumps({"embedding_function": function}),)))
    assert len(poolscope.read_index(f"chroma:{chroma}/docs")) == 40
    assert not mark.exists()


class _Evil:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


@pytest.mark.parametrize(
    "content", ["CHROMA_API_IMPL=evil.Evil\nCHROMA_SYSDB_IMPL=evil.Evil\n", "IS_PERSISTENT=perhaps\n"]
)
def test_a_file_env_of_the_current_folder_names_no_class(chroma, tmp_path, content):
    """In a process of its own: what the client reads when it is imported is read once."""
    (tmp_path / ".env").write_text(content)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nclass Evil: pass\n")
    code = f"import poolscope\ntry: print(len(poolscope.read_index('chroma:{chroma}/docs')))\n"
    code += "except poolscope.errors.PoolscopeError as error: print(error)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("40" if "evil" in content else "chroma:")
    assert len(done.stdout.splitlines()) == 1
    assert not (tmp_path / "ran").exists()


# -- Qdrant -----------------------------------------------------------------------------------------------------------


def qdrant(folder, table: str, *rows: bytes):
    (folder / "collection" / "docs").mkdir(parents=True)
    declared = {"collections": {"docs": {"vectors": {"size": 8, "distance": "Cosine"}}}}
    (folder / "meta.json").write_text(json.dumps(declared))
    base = sqlite3.connect(folder / "collection" / "docs" / "storage.sqlite")
    base.execute(table)
    for k, row in enumerate(rows):
        base.execute("INSERT INTO points (id, point) VALUES (?, ?)", (str(k), row))
    base.commit()
    base.close()
    return f"qdrant:{folder}/docs"


def test_a_point_of_qdrant_that_is_computed_is_refused(tmp_path):
    table = "CREATE TABLE points (id TEXT, point BLOB GENERATED ALWAYS AS (zeroblob(999999999)))"
    assert "generated column" in refusal(qdrant(tmp_path / "store", table))


@pytest.mark.parametrize("vector", ["abcd", [[1.0], [2.0, 3.0]], {"": ["x"]}])
def test_a_point_of_qdrant_whose_vector_is_none_is_refused(tmp_path, vector):
    models = pytest.importorskip("qdrant_client.http.models")
    points = [models.PointStruct.model_construct(id=1, vector=vector, payload={"text": "a"})]
    table = "CREATE TABLE points (id TEXT, point BLOB)"
    assert "its points" in refusal(qdrant(tmp_path / "store", table, *map(pickle.dumps, points)))


def test_a_pickle_of_qdrant_is_not_run(tmp_path):
    mark = tmp_path / "ran"
    table = "CREATE TABLE points (id TEXT, point BLOB)"
    assert "not called" in refusal(qdrant(tmp_path / "store", table, pickle.dumps(_Evil(mark))))
    assert not mark.exists()


# -- FAISS and LanceDB ------------------------------------------------------------------------------------------------


def test_an_index_of_faiss_whose_vectors_lie_elsewhere_is_refused(tmp_path):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(8), 8, 1)
    index.train(VECTORS)
    index.add(VECTORS)
    lists = faiss.OnDiskInvertedLists(1, index.code_size, str(tmp_path / "outside"))
    own = faiss.InvertedListsPtrVector()
    own.push_back(index.invlists)
    lists.merge_from_multiple(own.data(), own.size())
    index.replace_invlists(lists, False)
    faiss.write_index(index, str(tmp_path / "index.faiss"))
    assert "another file" in refusal(f"faiss:{tmp_path}/index.faiss")


def test_a_table_of_lancedb_with_a_link_is_refused(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    rows = [{"id": str(k), "vector": row.tolist()} for k, row in enumerate(VECTORS)]
    lancedb.connect(str(tmp_path / "store")).create_table("docs", rows)
    assert len(poolscope.read_index(f"lancedb:{tmp_path}/store/docs")) == 40
    part = next((tmp_path / "store" / "docs.lance" / "data").iterdir())
    part.rename(tmp_path / "outside")
    part.symlink_to(tmp_path / "outside")
    assert f"{part.name} is a" in refusal(f"lancedb:{tmp_path}/store/docs")


# -- sqlite-vec -------------------------------------------------------------------------------------------------------


def base_of_vec0(path, declared, *, chunk=None, vectors=None):
    """A data base in which a table of vec0 is declared, with the tables beside it that hold its rows."""
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE docs(a)")
    base.execute("CREATE TABLE docs_chunks(chunk_id, size, validity, rowids)")
    base.execute("CREATE TABLE docs_vector_chunks00(vectors)")
    base.execute("INSERT INTO docs_vector_chunks00 VALUES (?)", (vectors,))
    if chunk is not None:
        base.execute("INSERT INTO docs_chunks VALUES (?, ?, ?, ?)", chunk)
    base.execute("PRAGMA writable_schema = on")
    base.execute("UPDATE sqlite_master SET rootpage = 0, sql = ? WHERE name = 'docs'", (declared,))
    base.commit()
    base.close()
    return f"sqlite-vec:{path}/docs"


PLACES = np.arange(40, dtype="<i8").tobytes()
WHOLE_CHUNK = (1, 40, b"\xff" * 5, PLACES)


def test_a_chunk_of_vec0_is_read(tmp_path):
    declared = "CREATE VIRTUAL TABLE docs USING vec0(v float[8])"
    address = base_of_vec0(tmp_path / "a.db", declared, chunk=WHOLE_CHUNK, vectors=VECTORS.tobytes())
    np.testing.assert_array_equal(poolscope.read_index(address).vectors, VECTORS)


@pytest.mark.parametrize("place", range(1, 5))
@pytest.mark.parametrize("value", [None, "words", b"", -3, 1.5, 2**62])
def test_values_of_any_kind_in_a_chunk_of_vec0(tmp_path, place, value):
    parts = [*WHOLE_CHUNK, VECTORS.tobytes()]
    parts[place] = value
    declared = "CREATE VIRTUAL TABLE docs USING vec0(v float[8])"
    refusal(base_of_vec0(tmp_path / "a.db", declared, chunk=parts[:4], vectors=parts[4]))


@pytest.mark.parametrize(
    "arguments", [" " * 100_000 + "1", "v float[" + "9" * 5000 + "]", "'" + "using vec0(" * 50_000 + "'"]
)
def test_what_declares_a_table_takes_time_by_its_length(tmp_path, arguments):
    begin = time.process_time()
    refusal(base_of_vec0(tmp_path / "a.db", f"CREATE VIRTUAL TABLE docs USING vec0({arguments})"))
    assert time.process_time() - begin < 10


def test_a_virtual_table_of_another_module_is_no_table(tmp_path):
    base = sqlite3.connect(tmp_path / "a.db")
    base.execute("CREATE VIRTUAL TABLE docs USING fts5(v)")
    base.close()
    assert "no table of these" in refusal(f"sqlite-vec:{tmp_path}/a.db/docs")


# -- DuckDB -----------------------------------------------------------------------------------------------------------


def test_a_column_of_duckdb_that_is_computed_is_refused(tmp_path):
    base = pytest.importorskip("duckdb").connect(str(tmp_path / "base.duckdb"))
    computed = "text VARCHAR GENERATED ALWAYS AS (repeat(id, 100000000)) VIRTUAL"
    base.execute(f"CREATE TABLE t (id VARCHAR, v FLOAT[2], {computed})")
    base.execute("INSERT INTO t SELECT '1', [1, 1]::FLOAT[2] FROM range(10)")
    base.close()
    assert "generated column" in refusal(f"duckdb:{tmp_path}/base.duckdb/t")
