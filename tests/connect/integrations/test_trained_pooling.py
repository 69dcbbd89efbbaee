"""A pooling with weights and a Gaussian head: against numpy, against torch's own divergence, saved and read again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poolscope import Repair, as_encoder, pool
from poolscope.errors import InputError
from poolscope.numbers.pooling import LearnedPooling
from tiny_models import DIMENSION, TEXTS, save_model

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from poolscope.connect.integrations.trained_pooling import (
    GaussianHead,
    GaussianLoss,
    TrainedPooling,
    gaussian_similarity,
)

DIRECTION = np.random.default_rng(3).normal(size=DIMENSION) * 0.3


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return Transformer(str(save_model(tmp_path_factory.mktemp("model") / "tiny")))


def trained(backbone):
    pooling = TrainedPooling(DIMENSION)
    with torch.no_grad():
        pooling.direction.copy_(torch.from_numpy(DIRECTION))
    return SentenceTransformer(modules=[backbone, pooling], device="cpu")


def test_it_starts_as_the_mean_and_weighs_as_numpy_does(backbone):
    mean = SentenceTransformer(modules=[backbone, Pooling(DIMENSION, "mean")], device="cpu")
    fresh = SentenceTransformer(modules=[backbone, TrainedPooling(DIMENSION)], device="cpu")
    np.testing.assert_allclose(fresh.encode(TEXTS), mean.encode(TEXTS), atol=1e-6)
    clouds = as_encoder(mean).encode(TEXTS)[-1]
    for own, cloud in zip(trained(backbone).encode(TEXTS), clouds, strict=True):
        weights = np.exp(np.asarray(cloud) @ DIRECTION)
        np.testing.assert_allclose(own, weights @ cloud / weights.sum(), atol=1e-5)


def test_what_was_learned_is_a_repair_of_the_plain_model(backbone, tmp_path):
    model = trained(backbone)
    model[1].repair().save(tmp_path / "learned.safetensors")
    plain = SentenceTransformer(modules=[backbone, Pooling(DIMENSION, "mean")], device="cpu")
    made = Repair.load(tmp_path / "learned.safetensors").apply(plain).encode(TEXTS)
    units = model.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(made, units, atol=1e-5)
    assert np.abs(made - plain.encode(TEXTS, normalize_embeddings=True)).max() > 0.01


def test_both_are_saved_and_loaded(backbone, tmp_path):
    model = trained(backbone)
    model.save_pretrained(str(tmp_path / "learned"))
    again = SentenceTransformer(str(tmp_path / "learned"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    assert again[1].direction.requires_grad
    head = GaussianHead(DIMENSION)
    torch.nn.init.normal_(head.spread.weight)
    gauss = SentenceTransformer(modules=[backbone, head], device="cpu")
    gauss.save_pretrained(str(tmp_path / "gauss"))
    read = SentenceTransformer(str(tmp_path / "gauss"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(read.encode(TEXTS), gauss.encode(TEXTS), atol=1e-6)
    assert gauss.encode(TEXTS).shape == (len(TEXTS), 2 * DIMENSION)


def test_clouds_alone_teach_no_weights():
    clouds = as_encoder(lambda texts: [[[1.0, 0.0], [0.0, 1.0]] for _ in texts]).encode(["a", "b"])[-1]
    with pytest.raises(InputError, match="no loss"):
        pool(clouds, "learned")
    assert pool(clouds, LearnedPooling([100.0, 0.0])).tolist() == [pytest.approx([1, 0])] * 2


def test_similarities_are_those_of_torchs_divergence():
    torch.manual_seed(0)
    first, second = torch.randn(3, 8), torch.randn(4, 8)

    def normal(row):
        return torch.distributions.Normal(row[:4], (row[4:] / 2).exp())

    expected = [
        [1 / (1 + torch.distributions.kl_divergence(normal(a), normal(b)).sum()) for b in second] for a in first
    ]
    torch.testing.assert_close(gaussian_similarity(first, second), torch.tensor(expected))


def test_the_loss_falls_and_the_second_text_comes_to_lie_within_the_first(backbone):
    import copy

    torch.manual_seed(0)
    model = SentenceTransformer(modules=[copy.deepcopy(backbone), GaussianHead(DIMENSION)], device="cpu")
    short, long = ["a cat", "the dog ran", "a red tree"], ["a slow cat sat", "the fast dog ran on", "a tree of red"]
    sides = [model.tokenize(side) for side in (short, long)]
    loss, optimizer = GaussianLoss(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    model.eval()
    course = []
    for _ in range(40):
        optimizer.zero_grad()
        value = loss([dict(side) for side in sides])
        value.backward()
        optimizer.step()
        course.append(float(value.detach()))
    assert course[-1] < 0.5 * course[0]
    first, second = (torch.from_numpy(model.encode(side)) for side in (short, long))
    assert (gaussian_similarity(second, first).diagonal() > gaussian_similarity(first, second).diagonal()).all()


def test_a_contradiction_is_kept_out_of_the_first_text():
    """The loss by hand: for each text its own among all of the batch, the reverse, and every contradiction."""
    torch.manual_seed(1)
    first, second, third = torch.randn(3, 3, 8)
    vectors = iter([first, second, third])
    loss = GaussianLoss(lambda features: {"sentence_embedding": next(vectors)}, temperature=0.5)
    total = 0.0
    for k in range(3):
        own = gaussian_similarity(second, first[k : k + 1])[:, 0]
        reverse = gaussian_similarity(first[k : k + 1], second[k : k + 1])[0]
        against = gaussian_similarity(third, first[k : k + 1])[:, 0]
        total += -torch.log_softmax(torch.cat([own, reverse, against]) / 0.5, dim=0)[k]
    assert float(loss([{}, {}, {}])) == pytest.approx(float(total) / 3)
