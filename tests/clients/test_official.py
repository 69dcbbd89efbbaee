"""Our connectors beside the official clients: each reads and finds what the other wrote, and asks for it alike.

The servers cannot be had from a package index, so both speak to our stand-ins: what this shows is that the stand-ins
speak the protocol of the clients, and that the connectors ask nothing that a client does not ask. The clients ask for
versions of their own, so they have environments of their own, which `make test-clients` builds.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from poolscope import read_index, write_index
from web_stores import serving, stand_in

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("official.py")
ADDRESSES = {
    "elastic": "elastic://{}/idx",
    "opensearch": "opensearch://{}/idx",
    "weaviate": "weaviate://{}/Idx",
    "pinecone": "pinecone://{}/ns",
}
TOP = 5
RANDOM = np.random.default_rng(3)
VECTORS = RANDOM.standard_normal((60, 8)).astype(np.float32)
QUERIES = RANDOM.standard_normal((4, 8)).astype(np.float32)
COSINES = QUERIES @ (VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)).T
GROUPS = [f"document {k // 4}" for k in range(60)]


def official(kind, place, rows, *, write):
    """What the official client read and found."""
    python = Path(os.environ.get("POOLSCOPE_CLIENTS", ROOT)) / f".venv-clients-{kind}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the client is not here: there is no {python}, which `make test-clients` would make")
    told = json.dumps({"rows": rows, "queries": QUERIES.tolist()})
    command = [python, SCRIPT, kind, place, "yes" if write else "no"]
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def shapes(requests):
    """Requests without their values: method and path, and the names in the query and in the body."""
    made = set()
    for asked in requests:
        bulk = asked.path.endswith("_bulk")
        lines = asked.body.splitlines() if bulk else [asked.body or b"{}"]
        method = "POST" if bulk else asked.method  # POST and PUT are the same there
        made |= {(method, asked.path, frozenset({*asked.query, *json.loads(line)})) for line in lines}
    return made


def unknown(ours, theirs):
    """Requests of ours unlike any of theirs: a client may tell more, but we nothing that no client tells."""
    known = shapes(theirs)
    return [
        (method, path, sorted(names))
        for method, path, names in shapes(ours)
        if not any((method, path) == each[:2] and names <= each[2] for each in known)
    ]


@pytest.mark.parametrize("kind", ADDRESSES)
def test_each_reads_and_finds_what_the_other_wrote_and_asks_for_it_alike(kind):
    names = [f"row {k}/{'u' if kind == 'pinecone' else 'ü'}" for k in range(60)]  # ids of Pinecone are ASCII
    texts = [f"text of {name}, 漢字" for name in names]
    keys = ("id", "vector", "text", "group")
    rows = [dict(zip(keys, row, strict=True)) for row in zip(names, VECTORS.tolist(), texts, GROUPS, strict=True)]
    best = [[names[k] for k in np.argsort(-row)[:TOP]] for row in COSINES]
    asked = []
    for theirs in (True, False):
        held = stand_in(kind)
        with serving(held) as place:
            address = ADDRESSES[kind].format(place)
            if not theirs:
                write_index(address, VECTORS, ids=names, texts=texts, groups=GROUPS)
                assert unknown(held.asked, asked) == []
                held.asked.clear()
            told = official(kind, place, rows, write=theirs)
            asked = held.asked.copy()
            held.asked.clear()
            found = read_index(address, limit=0)
            order = [names.index(name) for name in found.ids]
            assert sorted(order) == list(range(60)) == sorted(names.index(name) for name in told["rows"])
            np.testing.assert_array_equal(found.vectors, VECTORS[order])
            np.testing.assert_array_equal([told["rows"][name] for name in found.ids], VECTORS[order])
            assert list(found.texts) == [texts[k] for k in order]
            assert list(found.groups) == [GROUPS[k] for k in order]
            assert found.distance == "cosine"
            assert found.search.find(QUERIES, TOP, None) == best == told["found"]
            found.close()
            assert unknown(held.asked, asked) == []
