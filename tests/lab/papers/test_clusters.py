"""Clusters of tokens and their indices beside scikit-learn, words of pieces, and norms that are swept or removed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics

from poolscope import as_encoder, read_texts
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask
from poolscope.lab.capture.norms import Replacement, norm_layout, replaced_norms
from poolscope.lab.papers import clusters, norm_variance
from poolscope.lab.papers.cell import Material
from tiny_models import WORDS, save_model, tiny_model, tiny_tokenizer

RANDOM = np.random.default_rng(4)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(6, 18, size=24)]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    encoder = as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"))
    return Material(encoder, read_texts(TEXTS), {}, cache=False)


@pytest.mark.parametrize("seed", range(3))
def test_indices_are_those_of_scikit_learn(seed):
    random = np.random.default_rng(seed)
    tokens, labels = random.normal(size=(60, 5)), random.integers(0, 4, size=60)
    tokens[labels == 2] += 3
    found = clusters.validity(tokens, labels)
    assert found["silhouette"] == pytest.approx(metrics.silhouette_score(tokens, labels))
    assert found["davies_bouldin"] == pytest.approx(metrics.davies_bouldin_score(tokens, labels))
    assert found["calinski_harabasz"] == pytest.approx(metrics.calinski_harabasz_score(tokens, labels))
    other = random.integers(0, 3, size=60)
    assert clusters.adjusted_rand(labels, other) == pytest.approx(metrics.adjusted_rand_score(labels, other))


def test_shares_add_up():
    tokens, labels = RANDOM.normal(size=(40, 3)) + 1, RANDOM.integers(0, 4, size=40)
    assert sum(clusters.decomposition(tokens, labels).values()) == pytest.approx(1)


def test_clusterings_of_a_model(material):
    rows = clusters.clusterings(material).rows
    assert {row["layer"] for row in rows} == {0, 1, 2}
    by_name = {(row["layer"], row["clusters"]): row for row in rows}
    assert by_name[0, "types"]["rand_with_types"] == 1
    assert abs(by_name[0, "random"]["rand_with_types"]) < 0.1
    assert by_name[2, "k-means 8"]["between_share"] > by_name[2, "random"]["between_share"]


def test_pieces_and_words(material):
    rows = {row["level"]: row for row in clusters.levels(material).rows}
    assert rows["pieces"]["types"] == rows["words"]["types"]  # every word of the tiny tokenizer is one piece
    assert "words of several pieces" not in rows


def test_swept_and_removed_norms_and_the_model_is_the_same_afterwards():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm.weight" in name:
                parameter.copy_(1 + torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) / 2)
    encoder = as_encoder((model, tokenizer))
    before = np.asarray(encoder.encode(TEXTS[:2])[-1][0])
    layout = norm_layout(encoder)
    outputs = {}
    for replacement in (
        Replacement(gain=0.0),
        Replacement(gain="mean"),
        Replacement(gain=1.0),
        Replacement(removed=True),
    ):
        with replaced_norms([model], layout, replacement):
            outputs[str(replacement)] = np.asarray(encoder.encode(TEXTS[:2])[-1][0])
    np.testing.assert_allclose(outputs["gain → 0 of its deviation"], outputs["gain → mean"], atol=1e-5)
    np.testing.assert_allclose(outputs["gain → 1 of its deviation"], before, atol=1e-5)
    assert np.abs(outputs["removed"] - before).max() > 0.1
    np.testing.assert_array_equal(np.asarray(encoder.encode(TEXTS[:2])[-1][0]), before)


def test_the_sweep_as_a_cell(material):
    rows = norm_variance.swept_norms(material).rows
    names = {row["replacement"] for row in rows}
    assert "removed" in names
    assert len(names) == 6


@pytest.mark.parametrize("odd", [{"gain": "two"}, {"gain": float("nan")}, {"removed": True, "bias": "zero"}])
def test_odd_replacements_are_refused(odd):
    with pytest.raises(InputError):
        Replacement(**odd)


@pytest.fixture(scope="module")
def labelled(material):
    texts = list(material.data.texts)
    return replace(material, data=ClassificationTask(texts, [str(k % 2) for k in range(len(texts))]))


def test_types_of_each_label_alone(labelled):
    rows = {row["label"]: row for row in clusters.types_by_label(labelled).rows}
    clouds = labelled.encoder.encode(labelled.data.texts)[-1]
    tokens = [np.concatenate([np.asarray(clouds[k]) for k in range(side, len(clouds), 2)]) for side in (0, 1)]
    every = np.concatenate(tokens)
    between = sum(len(own) * ((own.mean(axis=0) - every.mean(axis=0)) ** 2).sum() for own in tokens)
    total = ((every - every.mean(axis=0)) ** 2).sum()
    assert rows["all"]["between_labels"] == pytest.approx(between / total, rel=1e-4)
    ids = {int(token) for k in range(0, len(clouds), 2) for token in clouds.token_ids(k)}
    assert rows["0"]["types"] == len(ids)


def test_a_label_that_is_a_word_is_told_from_types_and_not_from_random_clusters(labelled):
    texts = [f"{'cat ' * 3 if k % 2 else 'dog ' * 3}{text}" for k, text in enumerate(labelled.data.texts)]
    data = ClassificationTask(texts, [str(k % 2) for k in range(len(texts))])
    rows = {
        row["clusters"]: row["accuracy"].value_or_raise for row in clusters.meaning(replace(labelled, data=data)).rows
    }
    assert rows["types"] > 0.9
    assert rows["random"] < 0.75


def test_characters_are_read_alone(material):
    rows = {row["level"]: row for row in clusters.levels(material).rows}
    assert rows["characters"]["types"] <= rows["pieces"]["types"]


def test_gains_and_biases_stand_beside_the_norm_of_tokens(material):
    rows = norm_variance.norm_parameters(material).rows
    assert [row["layer"] for row in rows] == [0, 1, 2]
    encoder = material.encoder
    norms = [module for module in attention_of(encoder)[0].modules() if type(module).__name__ == "LayerNorm"]
    last = norms[-1]
    even = float((last.weight**2).sum().detach() + (last.bias**2).sum().detach())
    assert rows[-1]["Q_of_even_tokens"] == pytest.approx(even, rel=1e-3)
    assert rows[-1]["mean_square"] > 0


def test_a_trend_over_layers():
    rows = [{"model": "m", "layer": k, "variation": 0.5, "norm_of_mean": float(k)} for k in range(9)]
    found = {row["finding"]: row for row in norm_variance.findings(rows, {})}
    assert found["M(X) rises with depth"]["trend"] == 1.0
    assert found["M(X) rises with depth"]["trend_p"] < 0.01
    assert found["Q varies little over types in the middle layers"]["trend"] != 1.0
