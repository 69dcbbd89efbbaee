"""What the gains and biases of a model's norms do to its token norms: replace them, measure again, put them back.

Behind a norm, x = gain ⊙ z + bias with ‖z‖² = d for every token. With equal gains and no bias every token has the same
norm, Q does not vary, and M and V of a type are two parts of one constant; what varies in a real model comes from here.
In a pre-norm model the tokens between the layers are sums that no norm has touched, and Q varies with or without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

from poolscope.capture.norms import QUERY_KEY, NormLayout, norm_layout
from poolscope.charts import curves_figure
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import InputError
from poolscope.metrics.tokens.measure import MIN_COUNT, token_statistics
from poolscope.metrics.tokens.result import TokenStatistics
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result, origin, plain, transient


@dataclass(frozen=True)
class Replacement:
    """What to put in place of gains and biases.

    `gain`: None (as it is), "mean" (of each norm) or "one"; `bias`: None or "zero".
    """

    gain: str | None = None
    bias: str | None = None

    def __post_init__(self) -> None:
        if self.gain not in (None, "mean", "one") or self.bias not in (None, "zero"):
            raise InputError(
                f"received gain={self.gain!r}, bias={self.bias!r}; allowed: gain None, 'mean' or 'one', bias None or "
                f"'zero'."
            )

    def __str__(self) -> str:
        parts = [f"{name} → {value}" for name, value in (("gain", self.gain), ("bias", self.bias)) if value]
        return ", ".join(parts) or "as it is"


REPLACEMENTS = (
    Replacement(),
    Replacement(bias="zero"),
    Replacement(gain="mean"),
    Replacement(gain="mean", bias="zero"),
    Replacement(gain="one", bias="zero"),
)


@dataclass(frozen=True, repr=False)
class NormAblation(Result):
    """What the tokens of one model do on the same texts under each replacement, and its norms as they were.

    layers: one row a replacement and layer, with the columns of `TokenStatistics.layer_table`; statistics: those behind
    them, one a replacement, in this process only.
    """

    norms: NormLayout
    replacements: tuple[Replacement, ...]
    layers: tuple[Mapping[str, Any], ...]
    statistics: tuple[TokenStatistics, ...] | None = transient()
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """The model, the layout of its norms, and how many replacements."""
        return {"model": self.norms.model, "layout": self.norms.layout, "replacements": len(self.replacements)}

    def _shares(self) -> dict[str, dict[int, Estimate]]:
        """By replacement and layer, the share of the squared length that is a direction of all tokens."""
        shares: dict[str, dict[int, Estimate]] = {}
        for row in self.layers:
            shares.setdefault(row["replacement"], {})[row["layer"]] = Estimate(row["mean_share"])
        return shares

    def seen(self) -> tuple[str, ...]:
        """What the norms do to the direction that all tokens share, in the last layer."""
        last = [f"{share[max(share)].known:.0%} ({name})" for name, share in self._shares().items()]
        return (f"In the last layer a direction of all tokens holds of their squared length: {', '.join(last)}.",)

    def figure(self) -> Any:
        """The direction that all tokens share, layer by layer, a line a replacement."""
        title = "How much of the tokens one direction holds, with other norms"
        return curves_figure(self._shares(), title=title, along="share of the squared length")

    def rows(self) -> list[dict[str, Any]]:
        """One row a replacement and layer."""
        return [dict(row) for row in self.layers]


def norm_ablation(
    model: Any,
    texts: Sequence[str],
    *,
    replacements: Sequence[Replacement] = REPLACEMENTS,
    min_count: int = MIN_COUNT,
    **options: Any,
) -> NormAblation:
    """Measure the tokens of a model under each replacement of the gains and biases of its norms, then restore them.

    All norms are replaced at once but those of queries and keys. `model` and `options` are as `as_encoder` takes them;
    a loaded model is changed for the time of a pass and is bit by bit the same afterwards, whatever happens.
    """
    encoder = as_encoder(model, **options)
    layout = norm_layout(encoder)
    statistics = []
    for replacement in replacements:
        with replaced_norms(attention_of(encoder), layout, replacement):
            statistics.append(token_statistics(encoder, texts, min_count=min_count))
    layers = [
        {"replacement": str(replacement), **row}
        for replacement, measured in zip(replacements, statistics, strict=True)
        for row in measured.layer_table().to_pylist()
    ]
    return NormAblation(
        layout, tuple(replacements), tuple(layers), tuple(statistics), provenance=plain(statistics[0].provenance)
    )


@contextmanager
def replaced_norms(networks: Sequence[Any], layout: NormLayout, replacement: Replacement) -> Iterator[None]:
    """Put other gains and biases into the norms of torch models (copies of one) while the body runs."""
    import torch

    kept: list[tuple[Any, Any]] = []

    def put(parameter: Any, value: float) -> None:
        kept.append((parameter, parameter.detach().clone()))
        parameter.fill_(value)

    try:
        with torch.no_grad():
            for network, norm in product(networks, layout.norms):
                module = network.get_submodule(norm.name)
                weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
                if norm.role == QUERY_KEY:
                    continue
                if replacement.gain is not None and weight is not None:
                    # Some norms store the gain less one; the difference of the means tells, and is 0 or 1.
                    offset = round(float(norm.gain.mean()) - float(weight.double().mean()))
                    put(weight, (float(norm.gain.mean()) if replacement.gain == "mean" else 1.0) - offset)
                if replacement.bias is not None and bias is not None:
                    put(bias, 0.0)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value)
