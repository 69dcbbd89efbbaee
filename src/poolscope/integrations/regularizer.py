"""SOCM as a loss term: it wraps any sentence-transformers loss and sees the tokens that the model pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from poolscope.errors import InputError, ModelError, require
from poolscope.metrics.socm.pair import SocmFormula

require("torch", "train")
require("sentence_transformers", "train")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import pad  # noqa: E402

from poolscope.integrations.differentiable import batch_socm  # noqa: E402

Clouds = tuple[Tensor, Tensor]  # tokens (texts × positions × d) and mask (texts × positions)


class SOCMRegularizer(torch.nn.Module):
    """A sentence-transformers loss plus `weight` × mean SOCM over pairs of the texts of the batch.

    The texts of all columns count alike. At most `pairs` random pairs are used a step (None: all). Returns the parts by
    name, the wrapped loss as "base" and the term as "socm"; the trainer adds them up and logs each. A batch of a single
    text has no pair, and its term is 0. `scale`, `a` and `b`: see `SocmFormula`; exponents of at least 1.

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
        super().__init__()
        if not 0 < weight < float("inf") or (pairs is not None and pairs < 1):
            raise InputError(f"received weight = {weight}, pairs = {pairs}; both must be positive (pairs may be None).")
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
