"""From texts to vocabulary ids: tokenised once, in bulk, with what truncation cut off counted exactly.

And what a tokenizer knows about its ids: their names, which of them are special, whether they are the model's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.errors import InputError, ModelError, explained

# Texts handed to the tokenizer at once: enough for its threads, few enough to stop soon on Ctrl-C.
_CHUNK = 1024


@dataclass(frozen=True)
class Tokens:
    """The ids of all texts end to end: text k is `ids[offsets[k]:offsets[k+1]]`, after `cut[k]` were cut off.

    `type_ids` (segment ids) are kept only where a tokenizer gives other values than zero. `unknown` counts what a
    static table lacks of each text and leaves out (None: nothing).
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.int32]
    type_ids: NDArray[np.int32] | None = None
    unknown: NDArray[np.int64] | None = None

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text."""
        return np.diff(self.offsets)

    @classmethod
    def join(cls, ids: Sequence[Sequence[int]], cut: Sequence[int], type_ids: Sequence[Sequence[int]] = ()) -> Tokens:
        """From one list of ids a text."""
        types = _flat(type_ids)
        offsets = offsets_of([len(row) for row in ids])
        return cls(_flat(ids), offsets, np.asarray(cut, dtype=np.int32), types if types.any() else None)


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Where each of some stretches end to end begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _flat(rows: Iterable[Sequence[int]]) -> NDArray[np.int32]:
    return np.concatenate([np.zeros(0, np.int32), *(np.asarray(row, dtype=np.int32) for row in rows)])


def tokenize(tokenizer: Any, texts: Sequence[str], max_length: int | None, *, end: str = "") -> Tokens:
    """With a tokenizer of transformers, its own special tokens and its own side of truncation; `end` follows a text."""
    run = _fast if getattr(tokenizer, "is_fast", False) else _slow
    return _in_chunks(texts, lambda chunk: run(tokenizer, [text + end for text in chunk] if end else chunk, max_length))


def end_of(tokenizer: Any) -> str:
    """The end token of a tokenizer, to be put behind texts; "" where it has none, or puts it there itself."""
    ids = tokenizer("a", return_attention_mask=False)["input_ids"]
    end: str | None = tokenizer.eos_token
    return "" if end is None or (ids and ids[-1] == tokenizer.eos_token_id) else end


def tokenize_prompted(
    run: Callable[[Sequence[str], int | None], Tokens], prompt: str, texts: Sequence[str], max_length: int | None
) -> Tokens:
    """Texts with a prompt: before each of them, or where a chat template puts it (`prompted`)."""
    prompted = getattr(run, "prompted", None)
    if prompted is not None:
        tokens: Tokens = prompted(prompt, texts, max_length)
        return tokens
    return run([prompt + text for text in texts] if prompt else texts, max_length)


def tokenize_plain(tokenizer: Any, texts: Sequence[str], max_length: int | None, *, special: bool = True) -> Tokens:
    """With a `tokenizers.Tokenizer`; the padding and truncation stored in its file are put aside."""
    direction = (tokenizer.truncation or {}).get("direction", "right")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_length is not None:
        tokenizer.enable_truncation(max_length, direction=direction)
    added = tokenizer.num_special_tokens_to_add(False) if special else 0

    def run(chunk: list[str]) -> Tokens:
        encodings = tokenizer.encode_batch_fast(chunk, add_special_tokens=special)
        types = [encoding.type_ids for encoding in encodings]
        return Tokens.join([encoding.ids for encoding in encodings], _overflow(encodings, max_length, added), types)

    return _in_chunks(texts, run)


def _in_chunks(texts: Sequence[str], run: Callable[[list[str]], Tokens]) -> Tokens:
    parts = []
    for start in range(0, len(texts), _CHUNK):
        chunk = list(texts[start : start + _CHUNK])
        with explained(
            f"the tokenizer gave up on one of the texts {start + 1} to {start + len(chunk)}",
            "Download the model again from a source that you trust, or leave the text out.",
        ):
            try:
                parts.append(run(chunk))
            except (TypeError, UnicodeError):
                _name_unreadable(chunk, start)
                raise
    types = [np.zeros_like(part.ids) if part.type_ids is None else part.type_ids for part in parts]
    return Tokens(
        np.concatenate([part.ids for part in parts]),
        offsets_of(np.concatenate([part.lengths for part in parts])),
        np.concatenate([part.cut for part in parts]),
        np.concatenate(types) if any(part.type_ids is not None for part in parts) else None,
    )


def _fast(tokenizer: Any, texts: list[str], max_length: int | None) -> Tokens:
    encoded = tokenizer(
        texts,
        truncation=max_length is not None,
        max_length=max_length,
        padding=False,
        return_attention_mask=False,
        verbose=False,
    )
    added = tokenizer.num_special_tokens_to_add(False)
    cut = _overflow(encoded.encodings, max_length, added)
    return Tokens.join(encoded["input_ids"], cut, encoded.get("token_type_ids", ()))


def _overflow(encodings: Sequence[Any], max_length: int | None, added: int) -> list[int]:
    """Tokens that truncation cut off each text. The tokenizer keeps them as further pieces of the text,
    each with the `added` special tokens of its own; only a text that fills `max_length` can have any.
    """
    if max_length is None:
        return [0] * len(encodings)
    return [
        sum(len(piece) - added for piece in encoding.overflowing) if len(encoding) >= max_length else 0
        for encoding in encodings
    ]


def _slow(tokenizer: Any, texts: list[str], max_length: int | None) -> Tokens:
    """Tokenizers written in Python: they count what they cut, one text at a time."""
    rows = [
        tokenizer(
            text,
            truncation=max_length is not None,
            max_length=max_length,
            return_overflowing_tokens=max_length is not None,
            return_attention_mask=False,
            verbose=False,
        )
        for text in texts
    ]
    types = [row["token_type_ids"] for row in rows if "token_type_ids" in row]
    return Tokens.join([row["input_ids"] for row in rows], [row.get("num_truncated_tokens", 0) for row in rows], types)


def _name_unreadable(texts: list[str], start: int) -> None:
    for position, text in enumerate(texts, start):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"texts: entry {position} holds a lone surrogate ({error.reason}), which is no valid Unicode. "
                f"Read the file with errors='replace', or leave the text out."
            ) from error


# -- vocabularies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """The name of every id, and the ids of special tokens: put in by the tokenizer, no part of a text ([CLS], <s>).

    `joined` makes a text of ids again, where the tokenizer can.

    >>> Vocabulary.of_words(["cat", "dog"]).names([1, 0, 7])
    ['dog', 'cat', '#7']
    >>> Vocabulary.of_words(["cat", "dog"]).text([1, 0])
    'dog cat'
    """

    name_of: Callable[[int], str | None]
    size: int
    special_ids: frozenset[int] = frozenset()
    joined: Callable[[list[int]], str] | None = None

    @classmethod
    def of_transformers(cls, tokenizer: Any) -> Vocabulary:
        """Of a tokenizer of transformers."""
        try:
            special = frozenset(tokenizer.all_special_ids)
        except RecursionError as error:  # its id is asked for, which is that of the unknown token
            raise InputError(
                f"received a tokenizer whose unknown token {tokenizer.unk_token!r} is not in its vocabulary; needed: "
                f"one that is. Get the files of the tokenizer again."
            ) from error
        return cls(tokenizer.convert_ids_to_tokens, len(tokenizer), special, tokenizer.decode)

    @classmethod
    def of_tokenizers(cls, tokenizer: Any) -> Vocabulary:
        """Of a `tokenizers.Tokenizer`."""
        special = (k for k, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        decode = partial(tokenizer.decode, skip_special_tokens=False)
        return cls(tokenizer.id_to_token, tokenizer.get_vocab_size(), frozenset(special), decode)

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Vocabulary:
        """Of a list of words, none of them special."""
        return cls(lambda k: words[k] if 0 <= k < len(words) else None, len(words))

    def names(self, ids: Iterable[int]) -> list[str]:
        """The names of ids; an id that the tokenizer lacks is named by its number."""
        named = ((int(k), self.name_of(int(k))) for k in ids)
        return [f"#{k}" if name is None else name for k, name in named]

    def text(self, ids: Iterable[int]) -> str:
        """The ids as people read them; the names with blanks between them where they cannot be joined."""
        numbers = [int(k) for k in ids]
        return " ".join(self.names(numbers)) if self.joined is None else self.joined(numbers)


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


# -- chat templates ---------------------------------------------------------------------------------------------------
#
# A model that declares one reads each text as the message of a user, its prompt as that of the system. The rules are
# those of sentence-transformers 6: a text too long is cut, and what the template puts behind a text is written over its
# last tokens again, since a pooling by the last token reads it.

# What a folder may hand to its template, each a plain value.
ARGUMENTS = ("add_generation_prompt", "continue_final_message", "enable_thinking")
_FORMATS = ("flat", "structured")


@dataclass(frozen=True)
class ChatTemplate:
    """How messages are handed to the template of the tokenizer: `structured` contents are lists of parts.

    `restored`: is what the template puts behind a text kept where the text is cut?
    """

    structured: bool = False
    restored: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def messages(self, prompt: str, text: str) -> list[dict[str, Any]]:
        """The conversation of one text.

        >>> ChatTemplate().messages("be brief", "a text")
        [{'role': 'system', 'content': 'be brief'}, {'role': 'user', 'content': 'a text'}]
        """
        said = [("system", prompt)] if prompt else []
        return [
            {"role": role, "content": [{"type": "text", "text": words}] if self.structured else words}
            for role, words in [*said, ("user", text)]
        ]


def declared_template(modalities: Any, processing: Any, *, name: str) -> ChatTemplate | None:
    """What a Transformer module declares (`modality_config`, `processing_kwargs`); None where it reads plain texts."""
    if not isinstance(modalities, Mapping) or "message" not in modalities:
        return None
    kind = dict(modalities["message"]).get("format")
    given = dict(processing or {})
    arguments = dict(given.pop("chat_template", None) or {})
    restored = bool(arguments.pop("restore_suffix", True))
    odd = [key for key, value in given.items() if value]
    odd += [key for key, value in arguments.items() if key not in ARGUMENTS or not isinstance(value, bool)]
    if kind not in _FORMATS or odd:
        what = f"asks for {', '.join(map(str, odd))} beside it" if odd else f"does not say in which format ({kind!r})"
        raise ModelError(
            f"{name}: it wraps texts in a chat template and {what}; allowed: the format {' or '.join(_FORMATS)}, and "
            f"of its arguments {', '.join(ARGUMENTS)}. Pass a function from texts to token arrays."
        )
    return ChatTemplate(kind == "structured", restored, arguments)


class ChatTokenizer:
    """From texts to ids through the chat template of a tokenizer of transformers."""

    def __init__(self, tokenizer: Any, template: ChatTemplate, *, name: str) -> None:
        source = getattr(tokenizer, "chat_template", None)
        if not isinstance(source, str):
            raise ModelError(
                f"{name}: it declares that texts are wrapped in a chat template, and its tokenizer has "
                f"{'none' if source is None else 'several'}; needed: one. Put the files of its own tokenizer there."
            )
        if re.search(r"\btask\b", source):
            raise ModelError(
                f"{name}: its chat template asks for the task of a text, which poolscope does not tell it. Pass a "
                f"function from texts to token arrays."
            )
        self._tokenizer, self._template, self._name = tokenizer, template, name
        self._behind = cache(self._ending)

    def __call__(self, texts: Sequence[str], max_length: int | None) -> Tokens:
        """Without a prompt."""
        return self.prompted("", texts, max_length)

    def prompted(self, prompt: str, texts: Sequence[str], max_length: int | None) -> Tokens:
        """The ids of texts, with the prompt as the message of the system."""
        rows, lost = [], []
        for row in self._render([self._template.messages(prompt, text) for text in texts]):
            fits = max_length is None or len(row) < max_length
            rows.append(row if fits else self._cut(row, prompt, int(max_length or 0)))
            lost.append(len(row) - len(rows[-1]))
        return Tokens.join(rows, lost)

    def _render(self, conversations: list[Any]) -> list[list[int]]:
        with explained(f"{self._name}: its chat template fails", "Put the files of its own tokenizer there."):
            made = self._tokenizer.apply_chat_template(
                conversations, tokenize=True, return_dict=True, **self._template.arguments
            )
        return made["input_ids"]  # type: ignore[no-any-return]

    def _cut(self, row: list[int], prompt: str, longest: int) -> list[int]:
        left = getattr(self._tokenizer, "truncation_side", "right") == "left"
        part = row[-longest:] if left else row[:longest]
        ending = self._behind(prompt)[-longest:] if self._template.restored else ()
        return [*part[: longest - len(ending)], *ending]

    def _ending(self, prompt: str) -> tuple[int, ...]:
        """What two conversations of different texts have in common at their end."""
        one, other = self._render([self._template.messages(prompt, text) for text in ("0", "1 2 3 4")])
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(reversed(one), reversed(other), strict=False)))
        return tuple(one[len(one) - len(shared) :]) if len(shared) < min(len(one), len(other)) else ()
