"""What a tokenizer knows about its ids: their names, and which of them are special."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vocabulary:
    """The name of every id, and the ids of special tokens: put in by the tokenizer, no part of a text ([CLS], <s>).

    >>> Vocabulary.of_words(["cat", "dog"]).names([1, 0, 7])
    ['dog', 'cat', '#7']
    """

    name_of: Callable[[int], str | None]
    size: int
    special_ids: frozenset[int] = frozenset()

    @classmethod
    def of_transformers(cls, tokenizer: Any) -> Vocabulary:
        """Of a tokenizer of transformers."""
        return cls(tokenizer.convert_ids_to_tokens, len(tokenizer), frozenset(tokenizer.all_special_ids))

    @classmethod
    def of_tokenizers(cls, tokenizer: Any) -> Vocabulary:
        """Of a `tokenizers.Tokenizer`."""
        special = (k for k, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        return cls(tokenizer.id_to_token, tokenizer.get_vocab_size(), frozenset(special))

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Vocabulary:
        """Of a list of words, none of them special."""
        return cls(lambda k: words[k] if 0 <= k < len(words) else None, len(words))

    def names(self, ids: Iterable[int]) -> list[str]:
        """The names of ids; an id that the tokenizer lacks is named by its number."""
        return [_readable(self.name_of(int(k)), int(k)) for k in ids]


def _readable(name: str | None, number: int) -> str:
    return f"#{number}" if name is None else name
