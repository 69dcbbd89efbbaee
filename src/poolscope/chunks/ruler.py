"""How many tokens a model sees in a text, prompt and special tokens included, and how many it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import tokenizer_of
from poolscope.errors import InputError

# Long words are weighed in slices of so many characters, to know where in the word its tokens are.
_SLICE = 32


@dataclass(frozen=True)
class Measured:
    """Of every text: `tokens` as the model reads them (all of them, cut or not), and whether nothing is cut off."""

    tokens: NDArray[np.int64]
    fits: NDArray[np.bool_]


class TokenRuler:
    """Measures texts with the tokenizer of an encoder, as the encoder itself will.

    `limit` is the most tokens that a chunk may have and `added` how many of them the prompt and the special tokens
    take; the rest is the `room` for the text.
    """

    def __init__(self, encoder: TokenEncoder, tokens: int | None = None) -> None:
        self._encoder = tokenizer_of(encoder)
        self._longest = self._encoder.max_length
        self.added = int(self._encoder.tokenize([self._encoder.prompt], None).lengths[0])
        self._special = int(self._encoder.tokenize([""], None).lengths[0])
        self.limit = self._limit(tokens)
        self.room = self.limit - self.added

    def measure(self, texts: Sequence[str]) -> Measured:
        """The tokens of whole texts, each tokenised alone with the prompt before it."""
        prompt = self._encoder.prompt
        found = self._encoder.tokenize([prompt + text for text in texts] if prompt else texts, self._longest)
        tokens = found.lengths + found.cut
        return Measured(tokens, (found.cut == 0) & (tokens <= self.limit))

    def weigh(self, strings: Sequence[str]) -> NDArray[np.float64]:
        """About how many tokens each string is in the middle of a text; equal strings are tokenised once."""
        distinct = {string: k for k, string in enumerate(dict.fromkeys(strings))}
        lengths = self._encoder.tokenize(list(distinct), None).lengths - self._special
        return np.maximum(lengths, 0)[[distinct[string] for string in strings]].astype(np.float64)

    def weigh_characters(self, word: str) -> NDArray[np.float64]:
        """About how many tokens each character of a long word is, up to a factor."""
        slices = [word[start : start + _SLICE] for start in range(0, len(word), _SLICE)]
        sizes = np.array([len(part) for part in slices])
        return np.repeat((self.weigh(slices) + 1e-3) / sizes, sizes)

    def _limit(self, tokens: int | None) -> int:
        name = self._encoder.card.name
        if tokens is None and self._longest is None:
            raise InputError(
                f"tokens: received none, and {name} declares no limit. Say how many tokens a chunk may have."
            )
        limit = self._longest if tokens is None else tokens
        assert limit is not None
        if isinstance(limit, bool) or not isinstance(limit, int) or limit <= self.added:
            raise InputError(
                f"tokens: received {limit!r}; allowed: a whole number of more than {self.added}, which the special "
                f"tokens and the prompt of {name} take. Ask for more."
            )
        if self._longest is not None and limit > self._longest:
            raise InputError(
                f"tokens: received {limit}, but {name} takes {self._longest} tokens (special tokens and prompt "
                f"included) and cuts off the rest. Ask for at most {self._longest}."
            )
        return limit
