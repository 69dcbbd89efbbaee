"""Frames of pandas and polars and relations of DuckDB as texts, queries and vectors."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import audit, read_queries, read_texts
from poolscope.errors import InputError

COLUMNS = {"id": ["a", "b", "c"], "text": ["one text", "another text", "a third"]}
VECTORS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def pandas(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def duckdb(columns):
    """A relation, which is a question that is answered when it is read."""
    import pyarrow

    return pytest.importorskip("duckdb").connect().from_arrow(pyarrow.table(columns))


KINDS = pytest.mark.parametrize("kind", [pandas, polars, duckdb], ids=lambda kind: kind.__name__)


@KINDS
def test_texts(kind):
    texts = read_texts(kind(COLUMNS), id_column="id")
    assert (list(texts), texts.ids) == (COLUMNS["text"], tuple(COLUMNS["id"]))
    with pytest.raises(InputError, match="column 'words'"):
        read_texts(kind(COLUMNS), column="words")


@KINDS
def test_queries(kind):
    asked = read_queries(kind({"query": ["one?", "three?"], "relevant": ["a", "c"]}))
    assert (asked.texts, asked.named) == (("one?", "three?"), ("a", "c"))


@KINDS
def test_vectors(kind):
    frame = kind({**COLUMNS, "embedding": VECTORS.tolist()})
    found = audit(frame)
    assert found.corpus["texts"] == 3
