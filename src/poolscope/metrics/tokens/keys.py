"""From clouds to the key of every token (its type, or a label that the caller gave), and to their vectors in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.metrics.tokens.moments import TokenMoments, special_key
from poolscope.metrics.tokens.sample import mark_of
from poolscope.numbers.streaming import Index


def token_ids(clouds: TokenClouds, start: int, stop: int) -> Index | None:
    """Vocabulary ids of all tokens of the texts `start` to `stop`, end to end; None if a text lacks them."""
    column = clouds.to_table().column("token_ids").slice(start, stop - start)
    if column.null_count:
        return None
    return np.asarray(pc.list_flatten(column).to_numpy(), dtype=np.int64)


def pieces(layers: Mapping[int, TokenClouds]) -> Iterator[tuple[int, int, dict[int, NDArray[Any]]]]:
    """The texts in order, in runs whose tokens lie in one matrix in every layer: (start, stop, matrix by layer)."""
    sets = list(layers.values())
    if any(not np.array_equal(clouds.lengths, sets[0].lengths) for clouds in sets[1:]):
        raise InputError(
            f"the layers {list(layers)} hold clouds of other texts or of other lengths; all layers must be of the same "
            f"tokens. Encode them in one call: encode(model, texts, layers=[…])."
        )
    blocks = {layer: list(clouds.blocks()) for layer, clouds in layers.items()}
    starts = {layer: np.array([block.start for block in found]) for layer, found in blocks.items()}
    bounds = np.unique(np.concatenate([*starts.values(), [len(sets[0])]]))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = {}
        for layer, found in blocks.items():
            block = found[int(np.searchsorted(starts[layer], start, side="right")) - 1]
            rows[layer] = block.tokens[block.offsets[start - block.start] : block.offsets[stop - block.start]]
        yield start, stop, rows


class TokenKeys:
    """Gives every token its key and every key its name (in `names`, which is that of the moments)."""

    def __init__(self, names: dict[int, str], vocabulary: Vocabulary | None, *, by_label: bool) -> None:
        self._names = names
        self._vocabulary = vocabulary
        self._special = np.array(sorted(vocabulary.special_ids) if vocabulary else [], np.int64)
        self._numbers = {name: key for key, name in names.items() if key >= 0} if by_label else None

    def add(self, moments: TokenMoments, layers: Mapping[int, TokenClouds], labels: Sequence[Any] | None) -> None:
        """Take the tokens of clouds into the moments; `labels` has an entry a text where the groups are labels."""
        first = next(iter(layers.values()))
        for start, stop, rows in pieces(layers):
            lengths = first.lengths[start:stop]
            ids = token_ids(first, start, stop)
            keys = self._types(ids) if labels is None else self._labels(labels[start:stop], lengths, ids)
            self._name(keys)
            moments.add(keys, rows)
            marks = _marks(first, start, stop, rows[min(rows)], labels)
            moments.sample.take(marks, lengths, keys, rows)
        moments.texts += len(first)
        moments.truncated_texts += int((first.truncated > 0).sum())
        moments.truncated_tokens += int(first.truncated.sum())

    def _types(self, ids: Index | None) -> Index:
        if ids is None:
            raise InputError(
                "the clouds have no token ids, so the tokens cannot be grouped by type. Encode with a model that "
                "poolscope loads, or pass groups: a label for each text, or one for each token."
            )
        return np.where(np.isin(ids, self._special), special_key(ids), ids)

    def _labels(self, labels: Sequence[Any], lengths: Index, ids: Index | None) -> Index:
        each = [_of_tokens(label, int(length)) for label, length in zip(labels, lengths, strict=True)]
        distinct, member = np.unique(np.concatenate(each), return_inverse=True)
        assert self._numbers is not None
        numbers = [self._numbers.setdefault(str(name), len(self._numbers)) for name in distinct]
        self._names.update(zip(numbers, map(str, distinct), strict=True))
        keys = np.array(numbers, np.int64)[member]
        return keys if ids is None else np.where(np.isin(ids, self._special), special_key(ids), keys)

    def _name(self, keys: Index) -> None:
        new = [key for key in np.unique(keys).tolist() if key not in self._names]
        ids = [special_key(key) if key < 0 else key for key in new]
        names = [f"#{k}" for k in ids] if self._vocabulary is None else self._vocabulary.names(ids)
        self._names.update(zip(new, names, strict=True))


def label_names(label: Any) -> str | list[str]:
    """The name of the group of a whole text, or those of its tokens: of anything, what `str` makes of it.

    >>> label_names(3), label_names(np.array(["DET", "NOUN"]))
    ('3', ['DET', 'NOUN'])
    """
    listed = isinstance(label, Sequence) and not isinstance(label, str | bytes)
    return [str(name) for name in label] if listed or np.ndim(label) else str(label)


def _of_tokens(label: Any, length: int) -> NDArray[Any]:
    """The label of each token of a text, from one label for all or one for each."""
    names = label_names(label)
    if isinstance(names, list) and len(names) != length:
        raise InputError(
            f"groups: received {len(names)} labels for a text of {length} tokens; allowed: one label for the text, or "
            f"one for each token that the model keeps, special ones included. Check the tokenizer, or max_length."
        )
    return np.full(length, names)


def _marks(clouds: TokenClouds, start: int, stop: int, rows: NDArray[Any], labels: Sequence[Any] | None) -> list[int]:
    """The marks of texts by their content, labels included; by their vectors where the clouds have no texts."""
    if clouds.texts is not None:
        contents = [text.encode() for text in clouds.texts[start:stop]]
    else:
        parts = np.split(rows, np.cumsum(clouds.lengths[start : stop - 1]))
        contents = [np.ascontiguousarray(part).tobytes() for part in parts]
    if labels is not None:
        labelled = zip(contents, labels[start:stop], strict=True)
        contents = [b"%b\n%b" % (content, label_content(label).encode()) for content, label in labelled]
    return [mark_of(content) for content in contents]


def label_content(label: Any) -> str:
    """One label, or those of the tokens of a text, as a string that tells them from all others.

    >>> label_content("news"), label_content(np.array(["DET", "NOUN"]))
    ('"news"', '["DET", "NOUN"]')
    """
    return json.dumps(label_names(label))


def most_frequent(ids: Iterable[Index], special: Iterable[int], most: int) -> Index | None:
    """The `most` ids that come most often, in rising order, special ones left out; None if there are no more than that.

    >>> most_frequent([np.array([5, 7, 7]), np.array([7, 9, 5, 101, 101])], [101], 2).tolist()
    [5, 7]
    """
    counts = np.zeros(0, np.int64)
    for part in ids:
        found = np.bincount(part, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    counts[[k for k in special if k < len(counts)]] = 0
    if np.count_nonzero(counts) <= most:
        return None
    return np.sort(np.argsort(-counts, kind="stable")[:most]).astype(np.int64)
