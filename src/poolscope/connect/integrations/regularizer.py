"""SOCM to train with: d_μ, d_Σ and SOCM of a batch of token clouds in torch, and as a term of a loss.

`batch_socm` is the same definition as `poolscope.socm`: padded clouds in, one value a pair out, with exact gradients to
every token vector. `SOCMRegularizer` wraps any loss of sentence-transformers, and sees the tokens that the model pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from poolscope.errors import DegenerateCloudError, InputError, ModelError, require
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.numbers.moments import largest_trace

require("torch", "train")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import pad  # noqa: E402

Clouds = tuple[Tensor, Tensor]  # tokens (texts × positions × d) and mask (texts × positions)


# -- a batch, with gradients ------------------------------------------------------------------------------------------


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
    real = torch.where(inside, tokens, 0.0)
    centres = real.sum(dim=1) / counts
    norms = torch.linalg.vector_norm(centres, dim=1, keepdim=True)
    precision = torch.finfo(tokens.dtype).eps
    limits = counts * largest_trace(counts, stored=precision, summed=precision)
    rounding = torch.linalg.vector_norm(real.detach(), dim=(1, 2)).unsqueeze(1) / limits.sqrt()
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


# -- a loss of sentence-transformers ----------------------------------------------------------------------------------


class SOCMRegularizer(torch.nn.Module):
    """A sentence-transformers loss plus `weight` × mean SOCM over pairs of the texts of the batch.

    A negative weight raises SOCM, for experiments. The texts of all columns count alike. At most `pairs` random pairs
    are used a step (None: all). Returns the parts by name, the wrapped loss as "base" and the term as "socm"; the
    trainer adds them up and logs each. A batch of a single text has no pair, and its term is 0. `scale`, `a` and `b`:
    see `SocmFormula`; exponents of at least 1.

    The tokens are taken where the model's own Pooling takes them, in the wrapped loss's forward pass: nothing is
    encoded twice. Losses that embed without gradients first (Cached…) or that pool several layers (AdaptiveLayerLoss)
    are refused. Put it outermost: SOCMRegularizer(model, MatryoshkaLoss(…)).
    """

    def __init__(
        self,
        model: Any,
        loss: torch.nn.Module,
        *,
        weight: float = 0.1,
        pairs: int | None = 128,
        scale: str = "paper",
        a: float = 1.0,
        b: float = 1.0,
    ) -> None:
        require("sentence_transformers", "train")
        super().__init__()
        if weight == 0 or not isfinite(weight) or (pairs is not None and pairs < 1):
            raise InputError(
                f"received weight = {weight}, pairs = {pairs}; allowed: a finite weight other than 0, and 1 or more "
                f"pairs (None: all). Correct it, or train without this term."
            )
        _check_loss(loss)
        _mean_poolings(model)
        self.model = model  # under this name the trainer puts its wrapped model in place
        self.loss = loss
        self.weight = weight
        self.pairs = pairs
        self.formula = SocmFormula(scale=scale, a=a, b=b)

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> dict[str, Tensor]:
        with _pooled_clouds(self.model) as seen:
            base = self.loss(sentence_features, labels)
        tokens, mask = _joined(seen)
        parts = dict(base) if isinstance(base, Mapping) else {"base": base}
        return {**parts, "socm": self.weight * self._term(tokens, mask)}

    def _term(self, tokens: Tensor, mask: Tensor) -> Tensor:
        if len(tokens) < 2:
            return tokens.new_zeros(())
        every = torch.triu_indices(len(tokens), len(tokens), offset=1).T
        chosen = every if self.pairs is None else every[torch.randperm(len(every))[: self.pairs]]
        return batch_socm(tokens, mask, pairs=chosen, formula=self.formula).socm.mean()

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of this loss."""
        return {"loss": type(self.loss).__name__, "weight": self.weight, "pairs": self.pairs, **self.formula.to_dict()}


def _check_loss(loss: torch.nn.Module) -> None:
    for part in loss.modules():
        names = {kind.__name__ for kind in type(part).__mro__}
        cached = getattr(part, "uses_gradient_cache", False) is True or any(n.startswith("Cached") for n in names)
        if cached or "AdaptiveLayerLoss" in names:
            reason = "embeds the texts first without gradients" if cached else "pools several layers of the model"
            raise InputError(
                f"received {type(part).__name__}, which {reason}, so the tokens of a batch cannot be taken from its "
                f"forward pass. Allowed: losses of one forward pass, such as MultipleNegativesRankingLoss; use its "
                f"plain form, with a batch that fits in memory."
            )


def _mean_poolings(model: Any) -> list[Any]:
    """The Pooling modules of the model (several in a Router); each must average tokens."""
    poolings = [module for module in model.modules() if type(module).__name__ == "Pooling"]
    modes = [(mode,) if isinstance(mode := pooling.pooling_mode, str) else tuple(mode) for pooling in poolings]
    if not poolings or any("mean" not in part for part in modes):
        raise ModelError(
            f"received a model with the pooling {modes or 'none'}; SOCM measures what mean pooling hides, so a Pooling "
            f"module with the mode 'mean' is needed. Train without this term, or pool by the mean."
        )
    return poolings


@contextmanager
def _pooled_clouds(model: Any) -> Iterator[list[Clouds]]:
    """Collect what the Pooling modules average while the body runs."""
    seen: list[Clouds] = []

    def note(pooling: Any, arguments: tuple[Any, ...], output: Any) -> None:
        seen.append(clouds_of(arguments[0], include_prompt=pooling.include_prompt))

    hooks = [pooling.register_forward_hook(note) for pooling in _mean_poolings(model)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def clouds_of(features: Mapping[str, Any], *, include_prompt: bool) -> Clouds:
    """The tokens of a batch and which of them the pooling averages: not padding, and no prompt where it is left out."""
    tokens: Tensor = features["token_embeddings"]
    if "cu_seq_lens_q" in features:  # texts end to end, without padding
        bounds = features["cu_seq_lens_q"].tolist()
        texts = [tokens[0, start:stop] for start, stop in pairwise(bounds)]
        lengths = torch.tensor([len(text) for text in texts], device=tokens.device)
        tokens = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
    elif "attention_mask" in features and features["attention_mask"].shape[-1] == tokens.shape[1]:
        mask = features["attention_mask"] != 0
    else:
        mask = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    if not include_prompt and (length := features.get("prompt_length")) is not None:
        prompt = int(length.flatten()[0]) if isinstance(length, Tensor) else int(length)
        mask = mask & (mask.cumsum(dim=1) > prompt)
    return tokens, mask


def _joined(seen: list[Clouds]) -> Clouds:
    """The clouds of all forward passes of a step in one padded batch."""
    if not seen or (torch.is_grad_enabled() and not all(tokens.requires_grad for tokens, _ in seen)):
        raise InputError(
            f"the wrapped loss ran the pooling {len(seen)} times, not always with gradients to the tokens, so SOCM "
            f"cannot be trained through it. Allowed: losses that embed each column once with gradients, and a model "
            f"whose token layers are not frozen."
        )
    width = max(tokens.shape[1] for tokens, _ in seen)
    tokens = torch.cat([pad(part, (0, 0, 0, width - part.shape[1])) for part, _ in seen])
    return tokens, torch.cat([pad(mask, (0, width - mask.shape[1])) for _, mask in seen])
