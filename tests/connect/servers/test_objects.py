"""Embedding objects of LangChain and LlamaIndex as sources of vectors, with the real packages."""

from __future__ import annotations

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from llama_index.core.base.embeddings.base import BaseEmbedding

from audit_data import topics
from poolscope import audit, check_runtime
from poolscope.connect.servers.endpoint import EmbeddingObject
from poolscope.connect.servers.http import EndpointError
from poolscope.encoders.sources import is_embedding_object
from runtime_server import Words


class OfLangChain(Embeddings):
    def embed_documents(self, texts):
        return Words().embed(texts)

    def embed_query(self, text):
        return Words().embed([text])[0]


class OfLlamaIndex(BaseEmbedding):
    def _get_text_embedding(self, text):
        return Words().embed([text])[0]

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


def reference(texts):
    """Clouds of one token, which every pooling leaves as they are."""
    return [[row] for row in Words().embed(texts)]


@pytest.mark.parametrize("kind", [OfLangChain, OfLlamaIndex])
def test_objects_of_both_libraries_are_recognised_checked_and_audited(kind):
    assert is_embedding_object(kind())
    assert check_runtime(kind(), reference).level == "ok"
    texts = topics(40)
    found = audit(kind(), texts)
    alone = audit(np.array(Words().embed(texts), dtype=np.float32), texts)
    assert found["hubs"].number.value == pytest.approx(alone["hubs"].number.value)


def test_a_ready_object_of_langchain_gives_its_vectors():
    made = DeterministicFakeEmbedding(size=8)
    ((_, table),) = EmbeddingObject(made).requests([["one", "two"]])
    assert np.allclose(table, made.embed_documents(["one", "two"]))


def test_what_a_library_raises_is_one_line():
    class Broken(OfLangChain):
        def embed_documents(self, texts):
            raise RuntimeError("no such model\nat line 1")

    with pytest.raises(EndpointError, match=r"Broken: .*\(RuntimeError: no such model\)"):
        EmbeddingObject(Broken()).send(["a"])
