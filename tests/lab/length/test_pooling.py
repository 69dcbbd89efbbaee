"""The analyses of length measure the vectors that the model itself would give, or say that they do not."""

from __future__ import annotations

import numpy as np
import pytest

from length_data import word_texts, word_tokenizer
from poolscope import as_encoder, encode
from poolscope.encoders.batching import TokenInputs
from poolscope.lab.length.mechanism import measure_texts
from poolscope.lab.length.report import length_report
from tiny_models import add_dense, declare, export_onnx, save_model, tiny_model

TEXTS = word_texts(40, most=60)
SIZES = {"vocab_size": 47, "pad_token_id": 0, "max_position_embeddings": 128}


def stored(folder, pooling, after=()):
    save_model(folder, tokenizer=word_tokenizer(), **SIZES)
    return str(declare(folder, pooling={"pooling_mode": pooling}, after=after, bert={"max_seq_length": 64}))


@pytest.fixture(scope="module")
def cls_model(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("cls"), "cls", ["Normalize"])


def test_a_cls_model_is_measured_by_its_first_token(cls_model):
    expected = [cloud[0] for cloud in encode(cls_model, TEXTS)]
    measured = measure_texts(cls_model, TEXTS)
    np.testing.assert_allclose(measured.vectors, expected, atol=1e-5)
    (note,) = measured.pooling_notes
    assert note.endswith(": cls.")
    inputs = TokenInputs(as_encoder(cls_model))
    np.testing.assert_allclose(inputs.encode(inputs.content(TEXTS)), expected, atol=1e-5)


def test_the_vectors_are_those_of_sentence_transformers(cls_model):
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer(cls_model, device="cpu").encode(TEXTS)
    measured = measure_texts(cls_model, TEXTS).vectors
    np.testing.assert_allclose(measured / np.linalg.norm(measured, axis=1, keepdims=True), own, atol=1e-5)


def test_a_model_without_layers_pools_as_declared_too(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    folder = stored(tmp_path, "lasttoken")
    expected = [cloud[-1] for cloud in encode(folder, TEXTS)]
    (tmp_path / "config.json").unlink()  # without it nobody knows what the graph is made of
    measured = measure_texts(export_onnx(tiny_model(**SIZES), tmp_path / "model.onnx"), TEXTS)
    assert measured.attention is None
    np.testing.assert_allclose(measured.vectors, expected, atol=1e-4)


def test_a_dense_layer_behind_the_pooling_is_applied(tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = stored(tmp_path, "mean")
    add_dense(tmp_path)
    own = SentenceTransformer(folder, device="cpu").encode(TEXTS)
    measured, inputs = measure_texts(folder, TEXTS), TokenInputs(as_encoder(folder))
    for vectors in (measured.vectors, inputs.encode([inputs.cut(row, 24) for row in inputs.content(TEXTS)])):
        np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), own, atol=1e-5)
    (note,) = measured.pooling_notes
    assert note.endswith(": mean, then Dense.")


def test_what_is_not_the_models_own_vector_is_said(tmp_path):
    folder = stored(tmp_path, "mean", ["Dense"])
    report = length_report(folder, TEXTS, probes=False, min_texts=5)
    assert len(report.notes) == 1
    assert "not the" in report.notes[0]
    assert "Dense" in report.notes[0]
    assert report.to_dict()["notes"] == list(report.notes)
