"""Gradients of d_μ, d_Σ and SOCM against finite differences in float64, also where singular values repeat or vanish."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from cloud_data import random_cloud
from poolscope.connect.integrations.regularizer import batch_socm, nuclear_norm
from poolscope.errors import DegenerateCloudError, InputError
from poolscope.metrics.socm.pair import SocmFormula, socm_pair


def padded(*clouds: np.ndarray, filler: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Clouds of any length as one float64 batch and its mask."""
    width = max(len(cloud) for cloud in clouds)
    tokens = np.full((len(clouds), width, clouds[0].shape[1]), filler)
    mask = np.zeros((len(clouds), width), dtype=np.int64)
    for k, cloud in enumerate(clouds):
        tokens[k, : len(cloud)], mask[k, : len(cloud)] = cloud, 1
    return torch.tensor(tokens), torch.tensor(mask)


def random_batch(seed: int, lengths: tuple[int, ...], d: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random_cloud(random, n, d) for n in lengths]


def gradient(clouds: list[np.ndarray], name: str = "socm", **settings) -> torch.Tensor:
    tokens, mask = padded(*clouds)
    getattr(batch_socm(tokens.requires_grad_(), mask, **settings), name).sum().backward()
    assert tokens.grad is not None
    return tokens.grad


def central_differences(clouds: list[np.ndarray], name: str = "socm", step: float = 1e-5) -> torch.Tensor:
    tokens, mask = padded(*clouds)
    found = torch.zeros_like(tokens)
    for place in np.argwhere(mask.numpy()):
        for axis in range(tokens.shape[2]):
            sides = []
            for sign in (1, -1):
                moved = tokens.clone()
                moved[place[0], place[1], axis] += sign * step
                sides.append(getattr(batch_socm(moved, mask), name).sum())
            found[place[0], place[1], axis] = (sides[0] - sides[1]) / (2 * step)
    return found


# -- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", [SocmFormula(), SocmFormula(scale="trace"), SocmFormula(a=2.0, b=1.5)])
def test_values_are_those_of_the_library(formula):
    clouds = random_batch(0, (5, 1, 9, 3), 6)
    tokens, mask = padded(*clouds, filler=np.nan)  # padding may hold anything
    found = batch_socm(tokens, mask, formula=formula)
    assert list(zip(found.i.tolist(), found.j.tolist(), strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3),
    ]  # fmt: skip
    for row, (i, j) in enumerate(zip(found.i.tolist(), found.j.tolist(), strict=True)):
        expected = socm_pair(clouds[i], clouds[j], formula=formula)
        assert found.mean_distance[row].item() == pytest.approx(expected.mean_distance, abs=1e-12)
        assert found.covariance_distance[row].item() == pytest.approx(expected.covariance_distance, abs=1e-12)
        assert found.socm[row].item() == pytest.approx(expected.socm, abs=1e-12)


def test_given_pairs_and_no_mask():
    tokens = torch.tensor(np.stack(random_batch(1, (4, 4, 4), 5)))
    every = batch_socm(tokens).socm
    chosen = batch_socm(tokens, pairs=torch.tensor([[2, 0], [1, 2]])).socm
    torch.testing.assert_close(chosen, every[[1, 2]])


def test_half_precision_is_computed_in_single():
    tokens, mask = padded(*random_batch(2, (6, 4), 8))
    exact = batch_socm(tokens.bfloat16().double(), mask).socm
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = batch_socm(tokens.bfloat16().requires_grad_(), mask).socm
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-6)


# -- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "d", "formula"),
    [
        ((3, 4), 7, SocmFormula()),  # fewer tokens than dimensions
        ((6, 5), 2, SocmFormula()),  # more
        ((2, 5, 3), 4, SocmFormula(scale="trace")),
        ((3, 3), 4, SocmFormula(a=2.0, b=1.5)),
    ],
)
def test_gradients_pass_the_check_of_torch(lengths, d, formula):
    tokens, mask = padded(*random_batch(3, lengths, d))

    def distances(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = batch_socm(batch, mask, formula=formula)
        return found.mean_distance, found.covariance_distance, found.socm

    assert torch.autograd.gradcheck(distances, tokens.requires_grad_(), eps=1e-6, atol=1e-8)


def test_repeated_singular_values():
    """Both clouds have the same singular value in every direction, so that all gaps between them are zero."""
    rows = np.concatenate([np.eye(3), -np.eye(3)]) * 0.7
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
    clouds = [rows + np.array([1.0, 0, 0]), 1.5 * rows @ turn + np.array([0, 1.0, 0.5])]
    values = np.linalg.svd((clouds[0] - clouds[0].mean(axis=0)) @ (clouds[1] - clouds[1].mean(axis=0)).T)[1]
    np.testing.assert_allclose(values[:3], values[0])
    torch.testing.assert_close(gradient(clouds), central_differences(clouds), rtol=0, atol=1e-8)


def test_repeated_tokens_keep_the_gradient_finite_and_true():
    """A token that stands twice adds a zero singular value; along the token (both copies moved) the slope exists."""
    base = random_batch(5, (4, 5), 6)
    doubled = [np.concatenate([base[0], base[0]]), base[1]]
    found = gradient(doubled)
    assert torch.isfinite(found).all()
    once = gradient(base)
    torch.testing.assert_close(found[0, :4] + found[0, 4:], once[0, :4], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1, :5], once[1, :5], rtol=0, atol=1e-12)


def test_equal_clouds_are_at_rest():
    cloud = random_batch(6, (5,), 4)[0]
    found = gradient([cloud, cloud], name="covariance_distance")
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-12)


def test_clouds_without_spread_and_orthogonal_clouds():
    one = np.array([[1.0, 0.5, 0.0, 0.0]])
    equal = np.repeat(one, 3, axis=0) * 2
    flat = gradient([one, equal, equal], formula=SocmFormula(scale="trace"))
    torch.testing.assert_close(flat, torch.zeros_like(flat))
    left = np.array([[1.0, 1, 0, 0], [1, -1, 0, 0]])
    right = np.array([[1.0, 0, 0, 2], [1, 0, 0, -2]])  # deviations orthogonal to those of `left`: ‖F₁F₂ᵀ‖_* = 0
    found = gradient([left, right], name="covariance_distance")
    # d_Σ = (tr Σ₁ + tr Σ₂)/4 there: the shortest subgradient of the norm is zero, and that of the traces is left
    torch.testing.assert_close(found[0, :, 1], torch.tensor([0.25, -0.25], dtype=torch.float64))
    torch.testing.assert_close(found[1, :, 3], torch.tensor([0.5, -0.5], dtype=torch.float64))
    assert (found[0, :, 3] == 0).all()  # any other subgradient would pull one cloud along the other
    assert (found[1, :, 1] == 0).all()


def test_padding_gets_no_gradient_whatever_it_holds():
    clouds = random_batch(7, (2, 5), 3)
    expected = gradient(clouds)
    tokens, mask = padded(*clouds, filler=np.inf)
    batch_socm(tokens.requires_grad_(), mask).socm.sum().backward()
    torch.testing.assert_close(tokens.grad, expected)
    assert (expected[0, 2:] == 0).all()


def test_the_norm_is_the_sum_of_singular_values_and_differentiable_once():
    matrices = torch.randn(3, 4, 2, dtype=torch.float64, generator=torch.manual_seed(0)).requires_grad_()
    torch.testing.assert_close(nuclear_norm(matrices), torch.linalg.svdvals(matrices).sum(dim=-1))
    with pytest.raises(InputError, match="differentiable once"):
        torch.autograd.grad(nuclear_norm(matrices).sum(), matrices, create_graph=True)


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        np.full((3, 4), np.nan),
        np.array([[1.0, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0]]),  # its mean is zero
        np.array([[0.1, 0, 0, 0], [0.2, 0, 0, 0], [0.3, 0, 0, 0]]) - 0.2 * np.eye(4)[0],  # zero but for rounding
        np.zeros((0, 4)),
    ],
    ids=["not finite", "zero mean", "rounding", "no tokens"],
)
def test_degenerate_clouds_are_named(broken):
    tokens, mask = padded(*random_batch(8, (3,), 4), broken)
    with pytest.raises(DegenerateCloudError, match="text 1 "):
        batch_socm(tokens, mask)


def test_what_has_no_slope_is_refused():
    tokens, mask = padded(*random_batch(9, (3, 3), 4))
    for formula in (SocmFormula(a=0.5), SocmFormula(b=0.5), SocmFormula(eps=1e-9)):
        with pytest.raises(InputError, match=f"a = {formula.a}, b = {formula.b}, eps = {formula.eps}"):
            batch_socm(tokens, mask, formula=formula)
    with pytest.raises(InputError, match="allowed: tokens"):
        batch_socm(tokens[0], mask)
    with pytest.raises(InputError, match="allowed: tokens"):
        batch_socm(tokens, mask[:, :2])
    with pytest.raises(InputError, match="2 texts"):
        batch_socm(tokens, mask, pairs=torch.tensor([[0, 2]]))
    with pytest.raises(InputError, match="whole numbers"):
        batch_socm(tokens, mask, pairs=torch.tensor([[0.0, 1.0]]))


# -- other tokens than those of texts ---------------------------------------------------------------------------------


def patches_of_images():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **sizes), add_pooling_layer=False)
    return model, {"pixel_values": torch.rand(4, 3, 16, 16)}


def frames_of_sound():
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    more = {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 60}
    config = transformers.WhisperConfig(max_source_positions=20, num_mel_bins=8, pad_token_id=0, **sizes, **more)
    return transformers.WhisperModel(config).encoder, {"input_features": torch.rand(4, 8, 40)}


@pytest.mark.parametrize("make", [patches_of_images, frames_of_sound])
@pytest.mark.parametrize("sign", [1, -1])
def test_vision_and_speech_are_trained_with_it(make, sign):
    torch.manual_seed(0)
    model, inputs = make()
    model.double().eval()  # what untrained models give is nearly alike
    inputs = {name: values.double() for name, values in inputs.items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    course = []
    for _ in range(5):
        optimizer.zero_grad()
        tokens = model(**inputs).last_hidden_state
        values = [
            socm_pair(tokens[i].detach().numpy(), tokens[j].detach().numpy()).socm for i in range(4) for j in range(i)
        ]
        course.append(np.mean(values))
        (sign * batch_socm(tokens).socm.mean()).backward()
        optimizer.step()
    assert sign * (course[-1] - course[0]) < 0
