"""The built-in manuals: passages of documents, and headings that ask for them."""

from __future__ import annotations

import pytest

import poolscope
from poolscope.errors import InputError
from poolscope.texts.corpus import heading_pairs, manuals


@pytest.fixture(scope="module")
def corpus():
    return manuals()


def test_passages_of_documents(corpus):
    """Several passages a document, none twice, ids that name their document as those of chunks do."""
    assert len(corpus) > 300
    assert len(set(corpus.texts)) == len(set(corpus.ids)) == len(corpus)
    assert all(id_.rpartition("#")[0] == label for id_, label in zip(corpus.ids, corpus.labels, strict=True))
    assert len(corpus) / len(set(corpus.labels)) > 3
    assert {"python/assert", "numpy/description"} <= set(corpus.labels)


def test_a_heading_asks_for_the_passages_of_its_section_and_stands_in_none():
    pairs = heading_pairs()
    asked = {query: [] for query in pairs.queries}
    for query, document in pairs.index.tolist():
        asked[pairs.queries.texts[query]].append(pairs.documents.texts[document])
    assert len(asked) > 100
    answers = asked['The "assert" statement']
    assert any("__debug__" in text for text in answers)
    assert not any(text.startswith('The "assert" statement\n') for text in answers)


def test_queries_refer_to_the_corpus(corpus):
    pairs = heading_pairs()
    assert set(pairs.documents.ids) <= set(corpus.ids)


def test_by_name_as_any_source(corpus):
    assert poolscope.read_texts("builtin:manuals").ids == corpus.ids
    assert len(poolscope.read_texts("builtin:manuals", limit=10)) == 10
    assert len(poolscope.read_pairs("builtin:manuals").queries) == len(heading_pairs().queries)
    with pytest.raises(InputError, match=r"builtin:docstrings .*builtin:manuals"):
        poolscope.read_texts("builtin:novels")


def test_comments_in_code_are_no_headings():
    headings = list(heading_pairs().queries)
    assert "rich: Installing" in headings
    assert not [heading for heading in headings if "hasn't yet been imported" in heading or "badge" in heading]


def test_queries_by_name(corpus):
    queries = poolscope.read_queries("builtin:manuals")
    assert len(queries) == len(heading_pairs().queries)
    assert set(queries.named) <= set(corpus.ids)
