"""The contract of what gives one vector a text: it is recognised by what it can do, whoever wrote it."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import Endpoint
from poolscope.connect.servers.endpoint import EmbeddingObject
from poolscope.encoders.sources import VectorSource, as_vector_source, is_vector_source


class Own:
    name, batch = "own", 8

    def resolved(self):
        return self

    def once(self):
        return self

    def send(self, texts):
        return np.ones((len(texts), 2), np.float32)

    def requests(self, batches, *, progress=None):
        return ((k, self.send(batch)) for k, batch in enumerate(batches))

    def vectors(self, texts, *, keep=False, progress=None):
        return self.send(texts)

    def to_dict(self):
        return {"name": self.name}


class Embeddings:
    def embed_documents(self, texts):
        return [[1.0, float(len(text))] for text in texts]


@pytest.mark.parametrize("source", [Own(), Endpoint("http://localhost:9"), EmbeddingObject(Embeddings())])
def test_a_source_passes_as_it_is(source):
    assert isinstance(source, VectorSource)
    assert as_vector_source(source) is source


def test_addresses_and_embedding_objects_are_opened():
    assert as_vector_source("http://localhost:9", model="small").name == "small at http://localhost:9"
    assert as_vector_source(Embeddings()).vectors(["one", "three"]).tolist() == [[1, 3], [1, 5]]


@pytest.mark.parametrize("other", ["org/model", Own, Embeddings, [[1.0]], None])
def test_what_gives_no_vectors_is_no_source(other):
    assert not is_vector_source(other)
