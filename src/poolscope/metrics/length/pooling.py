"""The vectors of texts as the model itself pools them; what the analyses of length cannot do exactly is said."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders import ModelCard
from poolscope.errors import ModelError

if TYPE_CHECKING:
    from poolscope.repairs.pooling import Pooling

Array = NDArray[np.float64]

# Poolings of one layer that need nothing but the tokens.
_POSSIBLE = ("mean", "cls", "last", "max", "position")
# The sum over √n instead of n: the direction of the mean, another length.
_ROOT = ("mean_sqrt_len_tokens",)


class TextPooling:
    """The pooling that a model declares, the mean where it declares none or one that cannot be had from its tokens.

    `notes` is empty for the mean. For another pooling it names it, and it says where the vectors are not the model's
    own (modules such as Dense after pooling, several poolings at once).
    """

    def __init__(self, card: ModelCard) -> None:
        self._root = card.pooling == _ROOT
        self._pooling: Pooling | None = None
        self.notes: tuple[str, ...] = ()
        try:
            self._choose(card)
        except ModelError as error:
            self.notes = (
                f"Vectors are means of the tokens and not the model's own. {str(error).partition(';')[0]}. Encode the "
                f"texts elsewhere and pass the vectors as a file to measure those.",
            )

    def vectors(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Array:
        """One vector a text (N × d), not normalised, from pooled tokens in a row (Σ n × d) and offsets (N + 1)."""
        if self._pooling is not None:
            return np.stack([self._pooling.vector(tokens[start:stop], None) for start, stop in pairwise(offsets)])
        lengths = np.diff(offsets)[:, None]
        sums = np.add.reduceat(tokens.astype(np.float64), offsets[:-1])
        return np.asarray(sums / (np.sqrt(lengths) if self._root else lengths))

    def _choose(self, card: ModelCard) -> None:
        from poolscope.repairs.pooling import declared_pooling  # a later stage, needed only here

        found = declared_pooling(card)
        if found.name not in _POSSIBLE:
            raise ModelError(f"{card.name}: the model pools by {found.name}; allowed: {', '.join(_POSSIBLE)}.")
        if found.name == "mean":
            return
        self._pooling = found
        note = f"Vectors are pooled as the model declares: {', '.join(card.pooling)}."
        if found.name in ("cls", "position") and not card.include_prompt:
            note += " Where a prompt is left out of the pooling, places count from the first token after it."
        self.notes = (note,)
