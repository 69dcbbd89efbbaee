"""The best layer to pool: chosen on one half of the queries, reported on the other."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import TokenClouds, best_layer
from poolscope.encoders.base import ModelCard
from poolscope.errors import ModelError
from poolscope.evaluation import RetrievalTask

COUNT = 60


class Planted:
    """Three layers: noise, the number of the text with noise on the first token, and what the model pools."""

    card = ModelCard("planted", "planted", dimension=COUNT, revision="1", layers=2, pooling=("mean",))

    def __init__(self, noise=3.0):
        self.noise = noise

    def encode(self, texts, *, layers=None, progress=None):
        clouds = {0: [], 1: [], 2: []}
        for text in texts:
            random = np.random.default_rng(sum(map(ord, text)))
            number = int(text.split()[-1])
            truth = np.eye(COUNT)[[number] * 4]
            clouds[0].append(random.normal(size=(4, COUNT)))
            clouds[1].append(truth + np.vstack([40 * random.normal(size=COUNT), np.zeros((3, COUNT))]))
            clouds[2].append(truth + self.noise * random.normal(size=(4, COUNT)))
        numbers = {k: k if k >= 0 else 3 + k for k in layers or [-1]}
        return {k: TokenClouds.from_arrays(clouds[number]) for k, number in numbers.items()}


def task():
    queries, documents = ([f"{side} {k}" for k in range(COUNT)] for side in ("asks", "answers"))
    return RetrievalTask(queries, documents, [(k, k) for k in range(COUNT)])


def test_the_planted_layer_is_told_and_proven():
    result = best_layer(Planted(), task())
    assert (result.layer, result.pooling) == (1, "mean without first")
    assert result.score.value == 1
    assert result.difference.proves_gain
    assert "layer 1" in result.sentence
    assert len(result.scores) == 6
    assert type(result).from_dict(result.to_dict(arrays=True)).rows() == result.rows()


def test_a_model_that_pools_its_best_layer_keeps_it():
    result = best_layer(Planted(noise=0.0), task())
    assert not result.difference.proves_gain
    assert result.layer == 2
    assert result.sentence.startswith("No layer ")


def test_one_layer_is_refused():
    with pytest.raises(ModelError, match="one layer"):
        best_layer([[[1.0]], [[2.0]]], ["a", "b"])
