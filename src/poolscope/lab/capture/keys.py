"""Queries and keys of the last attention, one text at a time, so that no padding is among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import as_numpy
from poolscope.errors import ModelError
from poolscope.lab.capture.model import OpenModel

Array = NDArray[np.float64]
_QUERY, _KEY = ("query", "q_proj", "q_lin", "q"), ("key", "k_proj", "k_lin", "k")


def queries_and_keys(encoder: TokenEncoder, texts: Sequence[str]) -> Iterator[tuple[Array, Array]]:
    """The queries and keys (n × width) of every text, as the projections of the last layer give them out.

    A model that merges its projections into one shows neither, and is refused.
    """
    block = OpenModel(encoder).sites[-1].block
    named = {name.rpartition(".")[2]: module for name, module in block.named_modules()}
    modules = [next((named[name] for name in names if name in named), None) for names in (_QUERY, _KEY)]
    if None in modules:
        raise ModelError(
            f"{encoder.card.name}: its last layer has no projection of queries or of keys by itself; known names: "
            f"{', '.join((*_QUERY, *_KEY))}. Take a model that keeps them apart."
        )
    seen: list[Any] = [None, None]

    def keep(place: int) -> Any:
        def hook(module: Any, given: Any, output: Any) -> None:
            seen[place] = output

        return hook

    handles = [module.register_forward_hook(keep(place)) for place, module in enumerate(modules)]  # type: ignore[union-attr]
    try:
        for text in texts:
            encoder.encode([text])
            queries, keys = (np.asarray(as_numpy(each, "float64")) for each in seen)
            yield queries.reshape(-1, queries.shape[-1]), keys.reshape(-1, keys.shape[-1])
    finally:
        for handle in handles:
            handle.remove()
