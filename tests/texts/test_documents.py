"""Documents of LangChain, LlamaIndex and Haystack as texts, with the real packages."""

from __future__ import annotations

import os

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when it is imported
from haystack import Document as HaystackDocument
from langchain_core.documents import Document as LangChainDocument
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import TextNode

from poolscope.texts import read_texts
from poolscope.texts.reading import as_texts


@pytest.mark.parametrize(
    "documents",
    [
        [LangChainDocument(page_content=f"text {k}", metadata={"source": "a.md"}, id=f"d{k}") for k in range(3)],
        [LlamaDocument(text=f"text {k}", metadata={"source": "a.md"}, id_=f"d{k}") for k in range(3)],
        [TextNode(text=f"text {k}", metadata={"source": "a.md"}, id_=f"d{k}") for k in range(3)],
        [HaystackDocument(content=f"text {k}", meta={"source": "a.md"}, id=f"d{k}") for k in range(3)],
    ],
    ids=["LangChain", "LlamaIndex", "nodes", "Haystack"],
)
def test_a_list_of_documents_is_read_with_its_ids_and_metadata(documents):
    texts = read_texts(documents, label_column="source")
    assert list(texts) == ["text 0", "text 1", "text 2"]
    assert texts.ids == ("d0", "d1", "d2")
    assert set(texts.labels) == {"a.md"}
    assert list(as_texts(documents)) == list(texts)


def test_documents_without_ids_are_numbered():
    texts = read_texts([LangChainDocument(page_content="one"), LangChainDocument(page_content="two")])
    assert texts.ids == ("0", "1")
