"""d_μ, d_Σ and SOCM of a batch of token clouds in torch, with exact gradients.

The same definition as `poolscope.socm`, for training: padded clouds in, one value a pair out, differentiable with
respect to every token vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poolscope.errors import DegenerateCloudError, InputError, require
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.numbers.moments import largest_trace

require("torch", "train")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402


class _NuclearNorm(torch.autograd.Function):
    """Sum of the singular values of each matrix of a stack (… × n × m).

    The derivative of ‖C‖_* is U_r V_rᵀ over the singular values above zero. It needs no gap between singular values, so
    repeated ones do no harm; at a zero singular value, where there are many subgradients, this is the shortest.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        left, values, right = torch.linalg.svd(matrices, full_matrices=False)
        rounding = max(matrices.shape[-2:]) * torch.finfo(values.dtype).eps
        positive = values > rounding * values.amax(dim=-1, keepdim=True)
        ctx.save_for_backward(left @ (positive.unsqueeze(-1) * right))
        norms: Tensor = values.sum(dim=-1)
        return norms

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # create_graph=True: the second derivative would silently lack a part
            raise InputError(
                "received create_graph=True; SOCM is differentiable once here, since the second derivative does not "
                "exist where singular values vanish. Leave create_graph out."
            )
        polar: Tensor = ctx.saved_tensors[0]
        return gradient[..., None, None] * polar


def nuclear_norm(matrices: Tensor) -> Tensor:
    """‖C‖_* of each matrix of a stack (… × n × m), differentiable once also where singular values repeat or vanish.

    >>> C = torch.eye(2, requires_grad=True)
    >>> nuclear_norm(C).backward(); C.grad.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    value: Tensor = _NuclearNorm.apply(matrices)  # type: ignore[no-untyped-call]
    return value


@dataclass(frozen=True)
class BatchSocm:
    """Distances of pairs of clouds of a batch: positions i and j, d_μ, d_Σ and SOCM, one entry a pair."""

    i: Tensor
    j: Tensor
    mean_distance: Tensor
    covariance_distance: Tensor
    socm: Tensor


def batch_socm(
    tokens: Tensor, mask: Tensor | None = None, *, pairs: Tensor | None = None, formula: SocmFormula | None = None
) -> BatchSocm:
    """d_μ, d_Σ and SOCM of pairs of clouds, differentiable.

    tokens (texts × positions × d) with a 0/1 mask (texts × positions; None: all are tokens): what the mask leaves out
    may hold anything, and gets no gradient. pairs (m × 2): positions of texts; None: all i < j. Half precision is
    computed in float32. A cloud without tokens, with NaN or infinity, or with a zero mean is an error.

    >>> clouds = torch.tensor([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 2.0], [1.0, -2.0]]], requires_grad=True)
    >>> found = batch_socm(clouds)            # d_μ = 0, BW² = (2 − 1)²
    >>> found.socm.item()
    0.25
    >>> found.socm.sum().backward(); clouds.grad[0]
    tensor([[ 0.2500, -0.2500],
            [ 0.2500,  0.2500]])
    """
    chosen = _differentiable(formula or SocmFormula())
    # Mixed precision would put the products, and so the small differences, into half precision.
    with torch.autocast(tokens.device.type, enabled=False):
        means, factors, traces = _unit_mean_factors(tokens, token_mask(tokens, mask))
        i, j = _positions(pairs, len(tokens), tokens.device)
        trace_sum = traces[i] + traces[j]
        # Rounding can leave equal covariances slightly below zero, which is the least BW² can be.
        bures = (trace_sum - 2 * nuclear_norm(factors[i] @ factors[j].transpose(1, 2))).clamp(min=0)
        mean_distance = (means[i] - means[j]).square().sum(dim=1) / 4
        scale = 4.0 if chosen.scale == "paper" else torch.where(trace_sum > 0, trace_sum, 1.0)
        covariance_distance = bures / scale
        socm = (1 - mean_distance).clamp(min=0) ** chosen.a * covariance_distance**chosen.b
    return BatchSocm(i, j, mean_distance, covariance_distance, socm)


def _differentiable(formula: SocmFormula) -> SocmFormula:
    if formula.eps or formula.a < 1 or formula.b < 1:
        raise InputError(
            f"received a = {formula.a}, b = {formula.b}, eps = {formula.eps}; exponents below 1 have an infinite slope "
            f"at 0, and eps is for comparison with published numbers. Allowed: a ≥ 1, b ≥ 1, eps = 0."
        )
    return formula


def token_mask(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """The mask as true and false on the device of the tokens, all true for None; shapes are checked."""
    if tokens.ndim != 3 or not tokens.is_floating_point() or (mask is not None and mask.shape != tokens.shape[:2]):
        raise InputError(
            f"received tokens {tuple(tokens.shape)} of {tokens.dtype} and a mask "
            f"{None if mask is None else tuple(mask.shape)}; allowed: tokens (texts × positions × dimensions) of real "
            f"numbers and a mask (texts × positions)."
        )
    if mask is None:
        return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    return mask.to(tokens.device) != 0


def _unit_mean_factors(tokens: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unit means (texts × d), factors (texts × positions × d, zero rows where there is no token) and traces."""
    if tokens.dtype in (torch.float16, torch.bfloat16):
        tokens = tokens.float()
    inside = keep.unsqueeze(-1)
    counts = keep.sum(dim=1, keepdim=True).to(tokens.dtype)
    kept = torch.where(inside, tokens, 0.0)
    centres = kept.sum(dim=1) / counts
    norms = torch.linalg.vector_norm(centres, dim=1, keepdim=True)
    precision = torch.finfo(tokens.dtype).eps
    limits = counts * largest_trace(counts, stored=precision, summed=precision)
    rounding = torch.linalg.vector_norm(kept.detach(), dim=(1, 2)).unsqueeze(1) / limits.sqrt()
    sound = (torch.isfinite(tokens).all(dim=-1) | ~keep).all(dim=1) & (norms > rounding).squeeze(1)
    if not bool(sound.all()):
        k = int(torch.nonzero(~sound)[0])
        raise DegenerateCloudError(
            f"text {k} of the batch has no tokens, NaN or infinite values, or the zero vector, up to rounding, as its "
            f"mean; a cloud needs finite vectors with a mean other than zero. Lower the learning rate if training made "
            f"it so."
        )
    factors = torch.where(inside, tokens - centres.unsqueeze(1), 0.0) / (norms * counts.sqrt()).unsqueeze(-1)
    return centres / norms, factors, factors.square().sum(dim=(1, 2))


def _positions(pairs: Tensor | None, texts: int, device: torch.device) -> tuple[Tensor, Tensor]:
    if pairs is None:
        i, j = torch.triu_indices(texts, texts, offset=1, device=device)
        return i, j
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or pairs.is_complex():
        raise InputError(f"pairs: received {pairs.dtype} of shape {tuple(pairs.shape)}; allowed: whole numbers, m × 2.")
    if len(pairs) and (int(pairs.min()) < 0 or int(pairs.max()) >= texts):
        raise InputError(
            f"pairs: received positions from {int(pairs.min())} to {int(pairs.max())}; there are {texts} texts, "
            f"counted from 0."
        )
    i, j = pairs.to(device).unbind(dim=1)
    return i, j
