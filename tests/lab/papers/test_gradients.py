"""What the contrastive loss asks of spread and temperature, against small steps taken and measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poolscope import as_encoder, read_texts, tempscale
from poolscope.encoders.capabilities import attention_of
from poolscope.evaluation import RetrievalTask
from poolscope.lab.papers import gradients
from poolscope.lab.papers.cell import Material
from tiny_models import WORDS, save_model

RANDOM = np.random.default_rng(11)
TEXTS = [" ".join(RANDOM.choice(WORDS, size=length)) for length in RANDOM.integers(9, 20, size=40)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return as_encoder(save_model(tmp_path_factory.mktemp("model") / "tiny"), dtype="float64")


def ratio_and_loss(encoder, texts):
    """The mean logarithm of S/‖μ‖², and the loss, from vectors alone."""
    clouds = [np.asarray(cloud, dtype=np.float64) for cloud in encoder.encode(texts)[-1]]
    logs = [np.log(cloud.var(axis=0).sum() / (cloud.mean(axis=0) ** 2).sum()) for cloud in clouds]
    units = np.array([cloud.mean(axis=0) / np.linalg.norm(cloud.mean(axis=0)) for cloud in clouds])
    half = len(units) // 2
    scores = units[:half] @ units[half:].T / gradients._TAU
    return np.mean(logs), np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))


def test_the_pull_is_what_a_small_step_changes(encoder):
    texts = [half for side in gradients.halves(TEXTS[:8]) for half in side]
    found = gradients.pull(encoder, texts)
    network = attention_of(encoder)[0]
    kept = {name: weights.detach().clone() for name, weights in network.named_parameters()}
    ratio, loss = ratio_and_loss(encoder, texts)
    with gradients._trainable(network) as weights:
        value = gradients.contrastive_loss(*gradients.tokens_with_gradients(encoder, texts))
        assert value.item() == pytest.approx(loss, rel=1e-6)
        steps = torch.autograd.grad(value, weights, allow_unused=True)
        with torch.no_grad():
            for own, step in zip(weights, steps, strict=True):
                if step is not None:
                    own -= 1e-4 * step
    after, less = ratio_and_loss(encoder, texts)
    with torch.no_grad():
        for name, own in network.named_parameters():
            own.copy_(kept[name])
    assert less < loss
    assert (after - ratio) / (loss - less) == pytest.approx(found.ratio, rel=0.02)
    assert found.ratio == pytest.approx(found.spread - found.square)
    assert found.direct == pytest.approx(0, abs=1e-9)  # all tokens of a text are moved alike
    assert not any(weights.grad is not None for weights in network.parameters())


def test_pull_on_spread(encoder):
    one, two = gradients.pull_on_spread(Material(encoder, read_texts(TEXTS), {}, cache=False)).rows
    assert (one["pairs"], two["pairs"], one["batches"]) == ("halves of one text", "halves of two texts", 2)
    assert one["ratio"].value != two["ratio"].value


def test_the_temperature_follows_its_slope(encoder):
    first, second = (side[:6] for side in gradients.halves(TEXTS))
    course = gradients.learn_temperature(encoder, first, second, steps=2)

    def loss(tau):
        with tempscale(encoder, tau):
            return ratio_and_loss(encoder, [*first, *second])[1]

    assert course[0] == (1.0, pytest.approx(loss(1.0), rel=1e-5))
    slope = (loss(1.01) - loss(0.99)) / 0.02
    assert np.sign(course[1][0] - 1) == -np.sign(slope)
    assert len(course) == 3


def test_a_learned_temperature_is_proven_on_other_queries(encoder):
    task = RetrievalTask([" ".join(text.split()[:4]) for text in TEXTS], TEXTS, [(k, k) for k in range(40)])
    *course, summary = gradients.learned_temperature(Material(encoder, task, {}, cache=False)).rows
    assert course[0]["tau"] == 1.0
    assert summary["queries"] == 20
    assert summary["learned"] == course[-1]["tau"] != 1.0
