"""Position ids that lie apart: the rule by which the authors of E5-4k run their model on short texts."""

from __future__ import annotations

from typing import Any

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import ModelError

SHORT = 512  # tokens up to which positions lie apart


def spread_positions(encoder: TokenEncoder, factor: int) -> None:
    """Run a model from now on with the position ids 0, f, 2f, … for texts of up to 512 tokens; longer ones as they are.

    The window of the model was stretched by this factor in training. Each text counts by its own tokens, whatever
    stands beside it in a batch.
    """
    for model in attention_of(encoder):
        places = getattr(model.config, "max_position_embeddings", 0)
        if places < factor * (SHORT - 1) + 1:
            raise ModelError(
                f"{encoder.card.name}: it has {places} positions, and {SHORT} tokens at every {factor}th need "
                f"{factor * (SHORT - 1) + 1}. Name the published model."
            )
        model.register_forward_pre_hook(_with_positions(factor), with_kwargs=True)


def _with_positions(factor: int) -> Any:
    def add(module: Any, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = named["attention_mask"]
        place = (mask.cumsum(dim=1) - 1).clamp(min=0)
        short = mask.sum(dim=1, keepdim=True) <= SHORT
        return given, {**named, "position_ids": place * short.long() * (factor - 1) + place}

    return add
