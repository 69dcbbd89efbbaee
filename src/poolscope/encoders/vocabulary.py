"""What a tokenizer knows about its ids: their names, which of them are special, whether they are the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from poolscope.errors import ModelError


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


def check_vocabulary(vocabulary: Vocabulary, rows: int | None, *, name: str) -> None:
    """Refuse a tokenizer that is not the model's: without its files one of special tokens alone is made silently.

    Every word would be the unknown token, and every number about it meaningless. `rows` are those of the model's table
    of token vectors (None: unknown). Tables are padded to a round number of rows, and some keep rows for later use;
    a tokenizer that reaches less than half of them belongs to another model.

    >>> check_vocabulary(Vocabulary.of_words(["cat", "dog"]), 3, name="m")
    """
    ordinary = vocabulary.size - len(vocabulary.special_ids)
    if ordinary < 1 or (rows is not None and vocabulary.size < rows / 2):
        table = "" if rows is None else f", for a table of {rows:,} token vectors"
        raise ModelError(
            f"{name}: its tokenizer has {vocabulary.size:,} entries, {len(vocabulary.special_ids):,} of them special"
            f"{table}; it is not the one that the model was trained with. Put the model's own tokenizer files "
            f"beside its weights (tokenizer.json, vocab.txt, …), or pass its own tokenizer."
        )


def _readable(name: str | None, number: int) -> str:
    return f"#{number}" if name is None else name
