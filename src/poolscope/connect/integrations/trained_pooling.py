"""Poolings with weights of their own, trained with the model: a weighted mean, and a Gaussian a text.

Both are modules of sentence-transformers that stand where `Pooling` stands. What `TrainedPooling` has learned is a
repair (`TrainedPooling.repair`), which every command reads; `GaussianHead` is the head of GaussCSE (Yoda et al., 2024),
whose vectors are a mean and the logarithm of a variance for every dimension.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from poolscope.errors import ModelError, require
from poolscope.numbers.pooling import LearnedPooling
from poolscope.repairs.repair_file import Repair

torch = require("torch", "train")
require("sentence_transformers", "train")

from sentence_transformers.base.modules import Module  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from poolscope.connect.integrations.regularizer import clouds_of  # noqa: E402

_FILE = "repair.safetensors"
_KINDS = ("token", "cache_folder", "revision", "local_files_only")  # of loading, what finds a file


class TrainedPooling(Module):  # type: ignore[misc]
    """A mean in which token x weighs e^(x·w). The direction w is trained with the model; it starts at 0, as the mean.

    >>> pooling = TrainedPooling(2)
    >>> tokens = torch.tensor([[[1.0, 1.0], [3.0, 1.0], [9.0, 9.0]]])
    >>> features = {"token_embeddings": tokens, "attention_mask": torch.tensor([[1, 1, 0]])}
    >>> pooling(features)["sentence_embedding"].tolist()
    [[2.0, 1.0]]
    """

    config_keys = ["dimension"]  # noqa: RUF012

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension
        self.direction = nn.Parameter(torch.zeros(dimension))

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """`sentence_embedding` from the tokens."""
        tokens, mask = clouds_of(features, include_prompt=True)
        scores = (tokens @ self.direction.to(tokens.dtype)).masked_fill(~mask, -torch.inf)
        kept = tokens.masked_fill(~mask.unsqueeze(-1), 0)  # padding may hold anything
        features["sentence_embedding"] = (scores.softmax(dim=1).unsqueeze(-1) * kept).sum(dim=1)
        return features

    def get_embedding_dimension(self) -> int:
        """Size of the vectors."""
        return self.dimension

    def repair(self) -> Repair:
        """The pooling as every command of poolscope reads it."""
        return Repair(pooling=LearnedPooling(self.direction.detach().double().cpu().numpy()))

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """The direction as a repair, beside the configuration."""
        self.save_config(output_path)
        self.repair().save(Path(output_path) / _FILE)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """From a folder or the hub; it can be trained on."""
        where = {"subfolder": subfolder, **{name: kwargs[name] for name in _KINDS if name in kwargs}}
        file = cls.load_file_path(model_name_or_path, filename=_FILE, **where)
        if file is None:
            raise ModelError(f"{model_name_or_path}: its module {subfolder!r} has no {_FILE}. Download it again.")
        module = cls(**cls.load_config(model_name_or_path, **where))
        with torch.no_grad():
            module.direction.copy_(torch.from_numpy(Repair.load(file).pooling.direction_))
        return module


class GaussianHead(Module):  # type: ignore[misc]
    """A Gaussian a text: from the mean of its tokens, two linear maps give its centre and log variances.

    `sentence_embedding` holds both, one behind the other (2d numbers).
    """

    config_keys = ["dimension"]  # noqa: RUF012

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension
        self.centre, self.spread = nn.Linear(dimension, dimension), nn.Linear(dimension, dimension)
        with torch.no_grad():  # it starts as the mean, with one variance for all
            self.centre.weight.copy_(torch.eye(dimension))
            for weights in (self.centre.bias, self.spread.weight, self.spread.bias):
                weights.zero_()

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """`sentence_embedding` from the tokens: the centre, then the logarithms of the variances."""
        tokens, mask = clouds_of(features, include_prompt=True)
        mean = tokens.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        features["sentence_embedding"] = torch.cat([self.centre(mean), self.spread(mean)], dim=1)
        return features

    def get_embedding_dimension(self) -> int:
        """Size of the vectors."""
        return 2 * self.dimension

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """The weights, beside the configuration."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """From a folder or the hub."""
        where = {"subfolder": subfolder, **{name: kwargs[name] for name in _KINDS if name in kwargs}}
        module = cls(**cls.load_config(model_name_or_path, **where))
        cls.load_torch_weights(model_name_or_path, model=module, **where)  # into the module itself
        return module


def gaussian_similarity(first: Tensor, second: Tensor) -> Tensor:
    """1/(1 + KL(N₁‖N₂)) of every Gaussian of one side with every one of the other: high where N₁ lies within N₂.

    >>> wide, narrow = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.0]])
    >>> bool(gaussian_similarity(narrow, wide) > gaussian_similarity(wide, narrow))
    True
    """
    (mean, log), (other, other_log) = (part.chunk(2, dim=1) for part in (first, second))
    precision = (-other_log).exp()
    # Σ (σ₁² + (μ₁ − μ₂)²)/σ₂², with the square multiplied out, so that no array of all pairs × dimensions is held.
    within = (log.exp() + mean.square()) @ precision.T - 2 * mean @ (other * precision).T
    within = within + (other.square() * precision).sum(dim=1)
    divergence = (within + other_log.sum(dim=1) - log.sum(dim=1, keepdim=True) - mean.shape[1]) / 2
    return 1 / (1 + divergence.clamp(min=0))


class GaussianLoss(nn.Module):
    """The loss of GaussCSE on pairs in which the second text says more than the first (it entails the first).

    The Gaussian of the second is to lie within that of its first: more than those of other pairs do, more than the
    first lies within it, and more than those of contradictions do, where a third column has them.
    """

    def __init__(self, model: Any, *, temperature: float = 0.05) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, sentence_features: Any, labels: Any = None) -> Tensor:
        """Cross-entropy of the right text among those of the batch, the pair in reverse, and contradictions."""
        first, second, *against = (self.model(features)["sentence_embedding"] for features in sentence_features)
        reverse = gaussian_similarity(first, second).diagonal().unsqueeze(1)
        others = [gaussian_similarity(other, first).T for other in against]
        scores = torch.cat([gaussian_similarity(second, first).T, reverse, *others], dim=1) / self.temperature
        wanted = torch.arange(len(scores), device=scores.device)
        return nn.functional.cross_entropy(scores, wanted)
