"""FAISS: flat, HNSW and IVF indexes from files, with texts beside them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from connector_data import COUNT, DIMENSION, IDS, TEXTS, VECTORS, exact_neighbours
from poolscope import audit, read_index
from poolscope.connectors.base import ConnectionFailedError
from poolscope.errors import InputError

faiss = pytest.importorskip("faiss")


def index_file(folder, kind: str, *, metric=None) -> str:
    metric = faiss.METRIC_L2 if metric is None else metric
    index = faiss.index_factory(DIMENSION, kind, metric)
    index.train(VECTORS)
    if kind.startswith("IDMap"):
        index.add_with_ids(VECTORS, np.array(IDS, dtype=np.int64))
    else:
        index.add(VECTORS)
    path = folder / f"{kind.replace(',', '-')}.faiss"
    faiss.write_index(index, str(path))
    return f"faiss:{path}"


@pytest.mark.parametrize("kind", ["Flat", "HNSW16,Flat", "IVF4,Flat"])
def test_vectors_of_every_kind(tmp_path, kind):
    held = read_index(index_file(tmp_path, kind))
    np.testing.assert_allclose(held.vectors, VECTORS, atol=1e-6)
    assert held.ids == tuple(str(k) for k in range(COUNT))
    assert (held.distance, held.texts) == ("l2", None)


def test_a_file_is_known_by_its_ending(tmp_path):
    name = index_file(tmp_path, "Flat").removeprefix("faiss:")
    assert read_index(name).ids == tuple(str(k) for k in range(COUNT))


def test_ids_of_their_own_and_texts_beside_them(tmp_path):
    name = index_file(tmp_path, "IDMap,Flat", metric=faiss.METRIC_INNER_PRODUCT)
    assert read_index(name).ids == tuple(IDS)
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    held = read_index(f"{name}?texts={tmp_path / 't.txt'}")
    assert (held.texts, held.distance) == (tuple(TEXTS), "dot")
    lines = [json.dumps({"key": name, "text": text}) for name, text in zip(IDS[::-1], TEXTS[::-1], strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    by_id = read_index(f"{name}?texts={tmp_path / 't.jsonl'}", id_column="key")
    assert (by_id.texts, by_id.groups) == (tuple(TEXTS), None)
    lines = [json.dumps({"source": k // 2, "text": text}) for k, text in enumerate(TEXTS)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert read_index(f"{name}?texts={tmp_path / 't.jsonl'}").groups == tuple(str(k // 2) for k in range(COUNT))
    assert audit(name, TEXTS).corpus["digest"] is not None


@pytest.mark.parametrize("kind", ["IVF4,PQ4x4fs", "IVF4,PQ4x4fsr", "PCA8,IVF4,PQ4x4fs"])
def test_a_quantizer_that_faiss_forgets_when_it_reads(tmp_path, kind):
    index = faiss.index_factory(DIMENSION, kind)
    index.train(VECTORS)
    index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "x.faiss"))
    np.testing.assert_array_equal(
        read_index(f"faiss:{tmp_path / 'x.faiss'}").vectors, index.reconstruct_n(0, len(VECTORS))
    )


@pytest.mark.parametrize("length", [2**30, 2**36, 2**39])
def test_a_damaged_length_does_not_ask_for_memory(tmp_path, length):
    path = tmp_path / "x.faiss"
    index_file(tmp_path, "Flat")
    data, held = (tmp_path / "Flat.faiss").read_bytes(), (VECTORS.nbytes // 4).to_bytes(8, "little")
    assert data.count(held) == 1
    path.write_bytes(data.replace(held, length.to_bytes(8, "little")))
    limit = faiss.get_deserialization_vector_byte_limit()
    with pytest.raises(InputError, match="size < ") as refused:
        read_index(f"faiss:{path}")
    assert "bad_alloc" not in str(refused.value)
    assert faiss.get_deserialization_vector_byte_limit() == limit


def test_more_vectors_than_bytes(tmp_path):
    index_file(tmp_path, "Flat")
    path = tmp_path / "Flat.faiss"
    data = bytearray(path.read_bytes())
    data[8:16] = (2**40).to_bytes(8, "little")  # behind the kind and the dimension: how many
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"Flat\.faiss"):
        read_index(f"faiss:{path}")


@pytest.mark.parametrize(("kind", "setting"), [("HNSW16,Flat", "efSearch"), ("IVF4,Flat", "nprobe")])
def test_the_search_and_its_setting(tmp_path, kind, setting):
    search = read_index(index_file(tmp_path, kind)).search
    assert (search.setting, search.current is not None, search.exact) == (setting, True, False)
    queries = VECTORS[:6] + 0.01
    found = [{str(int(name) + 1) for name in ids} for ids in search.find(queries, 5, search.values[-1])]
    assert found == exact_neighbours(queries, 5)


def test_a_search_that_fails_does_so_in_one_line(tmp_path):
    held = read_index(index_file(tmp_path, "HNSW16,Flat"))
    with pytest.raises(ConnectionFailedError, match="search failed"):
        held.search.find(VECTORS[:2, :3], 3, None)


def test_what_cannot_be_used_is_named(tmp_path):
    with pytest.raises(InputError, match="/none: "):
        read_index(f"faiss:{tmp_path / 'none'}")
    (tmp_path / "bad.faiss").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"bad\.faiss: damaged"):
        read_index(f"faiss:{tmp_path / 'bad.faiss'}")
    (tmp_path / "t.txt").write_text("one\ntwo", encoding="utf-8")
    with pytest.raises(InputError, match=r"2 texts .* 240 vectors"):
        read_index(f"{index_file(tmp_path, 'Flat')}?texts={tmp_path / 't.txt'}")


@pytest.mark.parametrize("kind", ["IVF4,Flat", "IVF4,SQ8"])
def test_ivf_with_ids_of_its_own(tmp_path, kind):
    index = faiss.index_factory(DIMENSION, kind)
    index.train(VECTORS)
    own = np.random.default_rng(0).permutation(COUNT) * 7 + 3
    index.add_with_ids(VECTORS, own)
    index.remove_ids(own[:5])
    faiss.write_index(index, str(tmp_path / "i.faiss"))
    held = read_index(f"faiss:{tmp_path / 'i.faiss'}")
    rows = {int(name): row for name, row in zip(held.ids, held.vectors, strict=True)}
    assert sorted(rows) == sorted(own[5:].tolist())
    np.testing.assert_allclose([rows[k] for k in own[5:]], VECTORS[5:], atol=0.1 if "SQ" in kind else 1e-6)
    assert held.search.find(VECTORS[7:8], 1, 4) == [[str(own[7])]]
    (tmp_path / "t.txt").write_text("\n".join(TEXTS[5:]), encoding="utf-8")
    with pytest.raises(InputError, match="ids"):
        read_index(f"faiss:{tmp_path / 'i.faiss'}?texts={tmp_path / 't.txt'}")


def test_ivf_after_removal_and_with_ids_twice(tmp_path):
    index = faiss.index_factory(DIMENSION, "IVF4,Flat")
    index.train(VECTORS)
    index.add(VECTORS)
    index.remove_ids(np.arange(5))
    faiss.write_index(index, str(tmp_path / "removed.faiss"))
    held = read_index(f"faiss:{tmp_path / 'removed.faiss'}")
    np.testing.assert_allclose(held.vectors, VECTORS[5:], atol=1e-6)
    index.add_with_ids(VECTORS[:1], np.array([9]))
    faiss.write_index(index, str(tmp_path / "twice.faiss"))
    with pytest.raises(InputError, match=r"236 vectors .* 235 ids"):
        read_index(f"faiss:{tmp_path / 'twice.faiss'}")
