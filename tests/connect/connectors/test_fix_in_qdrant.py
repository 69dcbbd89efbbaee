"""An index in Qdrant is audited, and a cure of its vectors goes into a new collection, which can be audited again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit_data import topics
from command_line import run
from poolscope import as_encoder, pool, read_index, write_index
from poolscope.errors import InputError

client_module = pytest.importorskip("qdrant_client")
MODEL = "builtin:wordllama"
TEXTS = topics(60)
IDS = [f"doc{k // 2}#{k % 2}" for k in range(len(TEXTS))]  # names that Qdrant does not allow as ids


@pytest.fixture(params=["folder", "server"])
def places(request, tmp_path):
    """The address of a collection, and that of a new one beside it."""
    if request.param == "folder":
        yield f"qdrant:{tmp_path}/old/mine", f"qdrant:{tmp_path}/new/mine"
        return
    from qdrant_server import serving

    with serving(client_module.QdrantClient(":memory:")) as (place, _):
        yield f"qdrant://{place}/mine", f"qdrant://{place}/repaired"


def test_a_cure_is_written_beside_the_collection_and_never_into_it(places, tmp_path):
    old, new = places
    vectors = pool(as_encoder(MODEL).encode(TEXTS)[-1]) + 0.3
    write_index(old, vectors, ids=IDS, texts=TEXTS)
    asked = [{"query": " ".join(text.split()[:4]), "relevant": [IDS[k]]} for k, text in enumerate(TEXTS)]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    audit = ("audit", "--reference", MODEL, "--queries", tmp_path / "q.jsonl", "--no-page")
    run(*audit, old, "-o", tmp_path / "a")
    before = read_index(old)
    fix = ("fix", tmp_path / "a", "--cure", "mean-subtracted", "--into", new, "-o", tmp_path / "f")
    run(*fix, "--json", tmp_path / "f.json")
    change = json.loads((tmp_path / "f.json").read_text())["change"]
    assert change["queries"] == len(TEXTS)
    after, written = read_index(old), read_index(new)
    assert np.array_equal(after.vectors, before.vectors)
    assert sorted(written.ids) == sorted(before.ids) == sorted(IDS)
    expected = before.vectors / np.linalg.norm(before.vectors, axis=1, keepdims=True)
    expected = expected - expected.mean(axis=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    order = [written.ids.index(name) for name in before.ids]
    assert written.vectors[order] == pytest.approx(expected, abs=1e-5)
    run(*fix[:-1], tmp_path / "g")  # a fix that was interrupted goes on: the same vectors are there already
    other = ["mean-projected" if each == "mean-subtracted" else each for each in fix[:-1]]
    with pytest.raises(InputError, match="already"):
        run(*other, tmp_path / "h")
    run(*audit, new, "-o", tmp_path / "b")
    assert json.loads((tmp_path / "b" / "audit.json").read_text())["queries"] == len(TEXTS)
