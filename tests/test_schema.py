"""The JSON Schema that is shipped is that of the classes, and the files that are written keep to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import poolscope
from audit_data import asking, bag_of_words, topics
from poolscope.connect.runtimes.seal import seal
from poolscope.encoders import as_encoder
from poolscope.numbers.intervals import Estimate
from poolscope.schema import bundled, schema_of
from poolscope.stores.writer import encode_to_store
from poolscope.texts import read_texts
from result_data import against_the_schema

ROOT = Path(__file__).parents[1]
TEXTS_AND_QUERIES = topics(40), asking(topics(40))


def test_what_is_shipped_is_what_the_classes_make():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from schema import made
    finally:
        sys.path.remove(str(ROOT / "tools"))
    assert made() == bundled(), "run python tools/schema.py"


def test_a_type_that_a_field_declares():
    assert schema_of(dict[str, int]) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert schema_of(tuple[str, int])["maxItems"] == 2
    assert schema_of(Estimate)["properties"]["floor"]["anyOf"][-1] == {"type": "null"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One file of each kind that is more than a metric's result."""
    folder = tmp_path_factory.mktemp("written")
    texts, queries = TEXTS_AND_QUERIES
    audit = poolscope.audit(bag_of_words, texts, queries=queries, encode=False)
    audit.save(folder / "audit", page=False)
    poolscope.compare(audit, audit).save(folder / "compared")
    poolscope.tune(bag_of_words, texts).save(folder / "tune.json")
    seal(bag_of_words, texts).save(folder / "index.seal")
    encode_to_store(as_encoder(bag_of_words), read_texts(texts), folder / "store")
    return {
        "audit": folder / "audit" / "audit.json",
        "compared": folder / "compared" / "comparison.json",
        "tune": folder / "tune.json",
        "seal": folder / "index.seal",
        "store": folder / "store" / "manifest.json",
    }


@pytest.mark.parametrize("name", ["audit", "compared", "tune", "seal", "store"])
def test_a_file_that_is_written_keeps_to_the_schema(written, name):
    assert against_the_schema(written[name]) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [(("ndcg",), 0.5), (("findings", 0, "level"), "watch"), (("queries",), "40"), (("result",), "Other")],
)
def test_what_does_not_fit_is_named(written, tmp_path, path, value):
    content = json.loads(written["audit"].read_text(encoding="utf-8"))
    part = content
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content), encoding="utf-8")
    assert against_the_schema(changed)
