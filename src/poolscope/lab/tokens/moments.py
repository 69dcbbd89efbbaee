"""The running state of the token statistics: what is kept of every group of tokens, layer by layer.

A group is a token type or a label. Its key is a whole number: the vocabulary id of the type, the number of the label;
special tokens have negative keys and are groups of their own whatever the others are. At most `max_types` groups are
kept; the tokens of all others are one further group, the pool. A kept group holds *all* tokens of its key, from the
first on: a group that was ever put into the pool stays there. The counts of all keys are kept in any case.

Beside the moments stands a sample of the texts, with their token vectors: those with the smallest marks (see
`numbers/streaming.py`), up to a number of texts or of tokens, so that parts merge to exactly the sample of the whole.
"""

from __future__ import annotations

import json
import os
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.digests import KEY, check_seal, digest_of_arrays, sealed
from poolscope.errors import DegenerateCloudError, InputError, StoreError, reading, whole_number
from poolscope.files import atomic_file, refuse_special
from poolscope.numbers import Index
from poolscope.numbers.streaming import DirectionSum, GroupedMoments, Grouping, measure

# -- the sample of texts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledText:
    """A text that came `copies` times: the keys (n) and, by layer, the vectors (n × d) of its ordinary tokens."""

    copies: int
    keys: Index
    rows: Mapping[int, NDArray[Any]]


@dataclass
class TextSample:
    """The texts with the smallest marks, by mark; copies of one text are one entry that counts them.

    With 256 texts the estimated width of an interval is within 9 % of its true one (95 times in 100). No further text
    is taken in once there are `most_tokens`: 8,192 of 384 float32 numbers are 12 MB a layer.

    >>> sample = TextSample()
    >>> for mark in (7, 3, 7):
    ...     sample.add(mark, SampledText(1, np.array([5, 5]), {0: np.ones((2, 4))}))
    >>> [(mark, text.copies) for mark, text in sample.items()], sample.tokens
    ([(3, 1), (7, 2)], 4)
    """

    most_texts: int = 256
    most_tokens: int = 8192
    tokens: int = field(default=0, init=False)
    _marks: list[int] = field(default_factory=list, init=False)  # rising
    _texts: dict[int, SampledText] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._marks)

    def items(self) -> list[tuple[int, SampledText]]:
        """Marks and texts, in rising order of the marks."""
        return [(mark, self._texts[mark]) for mark in self._marks]

    def take(self, marks: Sequence[int], lengths: Index, keys: Index, rows: Mapping[int, NDArray[Any]]) -> None:
        """Take in texts that lie end to end: the mark and number of tokens of each, the key and vectors of all tokens.

        Special tokens (negative keys) are left out. What is kept is copied.
        """
        ends = np.cumsum(lengths)
        for mark, start, stop in zip(marks, (ends - lengths).tolist(), ends.tolist(), strict=True):
            if self._wants(mark):
                part = keys[start:stop]
                grouped = part >= 0
                self.add(
                    mark, SampledText(1, part[grouped], {layer: m[start:stop][grouped] for layer, m in rows.items()})
                )

    def add(self, mark: int, text: SampledText) -> None:
        """Take in one text if its mark is among the smallest, and drop what is no longer."""
        if not self._wants(mark):
            return
        if (known := self._texts.get(mark)) is not None:
            self._texts[mark] = replace(known, copies=known.copies + text.copies)
            return
        insort(self._marks, mark)
        self._texts[mark] = text
        self.tokens += len(text.keys)
        while len(self) > self.most_texts or self.tokens - len(self._texts[self._marks[-1]].keys) >= self.most_tokens:
            self.tokens -= len(self._texts.pop(self._marks.pop()).keys)

    def merge(self, other: TextSample) -> TextSample:
        """The sample of the texts of both; both are left as they are."""
        result = TextSample(self.most_texts, self.most_tokens)
        for mark, text in [*self.items(), *other.items()]:
            result.add(mark, text)
        return result

    def renumbered(self, numbers: Mapping[int, int]) -> TextSample:
        """The texts with other keys: `numbers` gives the new key of each key."""
        result = TextSample(self.most_texts, self.most_tokens)
        for mark, text in self.items():
            keys = np.array([numbers[key] for key in text.keys.tolist()], np.int64)
            result.add(mark, replace(text, keys=keys))
        return result

    def _wants(self, mark: int) -> bool:
        full = len(self) >= self.most_texts or self.tokens >= self.most_tokens
        return not full or mark <= self._marks[-1]


# -- the running state ------------------------------------------------------------------------------------------------

FORMAT = "poolscope token moments 2"
SUFFIX = ".npz"
POOLED = -1  # the slot of a key whose tokens are in the pool


def special_key(token_id: Any) -> Any:
    """The key of a special token, from its vocabulary id and back.

    >>> special_key(101), special_key(-102)
    (-102, 101)
    """
    return -1 - token_id


@dataclass
class KeyTable:
    """Every key seen (rising), how many tokens it has, and its slot among the kept groups (`POOLED`: none)."""

    keys: Index = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Index = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: Index = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def grouped(self) -> NDArray[np.bool_]:
        """Which keys have a group of their own."""
        return np.asarray(self.slots != POOLED)

    def ranked(self) -> Index:
        """Places of the kept keys that are not special, most tokens first (of equal counts the smaller key)."""
        places = np.flatnonzero(self.grouped & (self.keys >= 0))
        return places[np.argsort(-self.counts[places], kind="stable")]

    def find(self, keys: Index) -> tuple[Index, NDArray[np.bool_]]:
        """Where the keys are, and which of them are there at all."""
        place = np.searchsorted(self.keys, keys)
        there = place < len(self.keys)
        there[there] = self.keys[place[there]] == keys[there]
        return place, there

    def add(self, keys: Index, counts: Index, *, allowed: Index | None) -> Index:
        """Count tokens of these different keys; new keys get the next slots if they are `allowed` (None: all are)."""
        place, there = self.find(keys)
        self.counts[place[there]] += counts[there]
        if not there.all():
            new = keys[~there]
            slots = np.full(len(new), POOLED)
            admitted = np.full(len(new), True) if allowed is None else np.isin(new, allowed) | (new < 0)
            slots[admitted] = self.slots.max(initial=POOLED) + 1 + np.arange(admitted.sum())
            joined = np.concatenate([self.keys, new])
            order = np.argsort(joined)
            self.keys = joined[order]
            self.counts = np.concatenate([self.counts, counts[~there]])[order]
            self.slots = np.concatenate([self.slots, slots])[order]
        return self.slots[self.find(keys)[0]]


@dataclass
class LayerMoments:
    """One layer: the kept groups by slot, the pool (one group), and the directions of the ordinary tokens."""

    groups: GroupedMoments
    pool: GroupedMoments
    directions: DirectionSum

    @classmethod
    def empty(cls, dimension: int) -> LayerMoments:
        """No tokens yet."""
        return cls(
            GroupedMoments.empty(0, dimension), GroupedMoments.empty(1, dimension), DirectionSum(np.zeros(dimension))
        )

    def to_pool(self, moments: GroupedMoments) -> None:
        """Put the tokens of groups into the pool."""
        if len(moments):
            self.pool.merge(np.array([0]), moments.union())


@dataclass
class TokenMoments:
    """Moments of the tokens of a model, by layer and group; `add` takes in tokens, `merge` another set of moments.

    `source` says what is measured (model, options, grouping, special ids); only equal sources merge. `allowed` are the
    keys that may have a group (None: any, and the rarest are put into the pool whenever there are more than twice
    `max_types`). `names` are the names of the keys. `sample` holds some of the texts with their tokens. `digest` is
    that of the texts taken in, in their order ("" after a merge, when there is no order).
    """

    source: Mapping[str, Any]
    max_types: int
    allowed: Index | None = None
    table: KeyTable = field(default_factory=KeyTable)
    layers: dict[int, LayerMoments] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    sample: TextSample = field(default_factory=TextSample)
    texts: int = 0
    truncated_texts: int = 0
    truncated_tokens: int = 0
    digest: str = ""

    def __post_init__(self) -> None:
        self.max_types = whole_number(self.max_types, "max_types")

    @property
    def tokens(self) -> int:
        """Tokens taken in, special ones too."""
        return int(self.table.counts.sum())

    def add(self, keys: Index, rows: Mapping[int, NDArray[Any]], *, elements: int = 1 << 23) -> None:
        """Take in tokens: the key of each (n) and, for every layer, its vector (n × d).

        So many elements of a matrix are taken in at a time: its rows are read in the order of their groups, back and
        forth, and must not be fetched from a file again and again meanwhile.
        """
        if not self.layers:
            self.layers = {layer: LayerMoments.empty(matrix.shape[1]) for layer, matrix in rows.items()}
        if rows.keys() != self.layers.keys() or any(len(matrix) != len(keys) for matrix in rows.values()):
            shapes = {layer: matrix.shape for layer, matrix in rows.items()}
            raise InputError(
                f"received the layers {shapes} for {len(keys)} tokens; needed: one row a token for each of the layers "
                f"{sorted(self.layers)}. Take all layers from the same texts."
            )
        step = max(1, elements // max(matrix.shape[1] for matrix in rows.values()))
        for start in range(0, len(keys), step):
            piece = slice(start, start + step)
            self._add_piece(Grouping.of(keys[piece]), {layer: matrix[piece] for layer, matrix in rows.items()})
            if len(self.table.ranked()) > 2 * self.max_types:
                self._keep_most_frequent()

    def _add_piece(self, grouping: Grouping, rows: Mapping[int, NDArray[Any]]) -> None:
        slots = self.table.add(grouping.keys, grouping.sizes, allowed=self.allowed)
        grouped = slots != POOLED
        for layer, matrix in rows.items():
            state = self.layers[layer]
            try:
                moments, directions = measure(matrix, grouping, directed=grouping.keys >= 0)
            except DegenerateCloudError as error:
                raise DegenerateCloudError(f"layer {layer}: {error}") from error
            state.groups.grow(int(self.table.slots.max(initial=POOLED)) + 1)
            state.groups.merge(slots[grouped], moments if grouped.all() else moments.select(grouped))
            state.to_pool(moments.select(~grouped))
            state.directions.add(directions)

    def _keep_most_frequent(self) -> None:
        table = self.table
        rare = table.ranked()[self.max_types :]
        demoted = table.slots[rare]
        table.slots[rare] = POOLED
        frequent = np.flatnonzero(table.grouped)
        remaining = table.slots[frequent]
        table.slots[frequent] = np.arange(len(frequent))
        for state in self.layers.values():
            state.to_pool(state.groups.select(demoted))
            state.groups = state.groups.select(remaining)

    def merge(self, other: TokenMoments) -> TokenMoments:
        """The moments of the tokens of both, as if taken in by one; exact up to rounding, in any order.

        A type keeps a group of its own where neither side has put it into its pool. Shards that shall keep the same
        types share `allowed`, or are large enough in `max_types` to keep all.
        """
        if different := source_differences(self.source, other.source):
            raise InputError(
                f"cannot merge moments of different sources: {'; '.join(different)}. Measure both with the same model, "
                f"options and grouping."
            )
        if self.layers and other.layers and self.layers.keys() != other.layers.keys():
            raise InputError(
                f"cannot merge moments of the layers {sorted(self.layers)} with those of {sorted(other.layers)}; both "
                f"need the same layers. Compute one of them again."
            )
        other = _renumbered(other, self.names) if self.source.get("grouping") == "label" else other
        result = TokenMoments(self.source, min(self.max_types, other.max_types))
        if self.allowed is not None and other.allowed is not None and np.array_equal(self.allowed, other.allowed):
            result.allowed = self.allowed
        result.names = {**self.names, **other.names}
        for name in ("texts", "truncated_texts", "truncated_tokens"):
            setattr(result, name, getattr(self, name) + getattr(other, name))
        result.sample = self.sample.merge(other.sample)
        result.table = _joined(self.table, other.table)
        dimensions = {
            layer: len(state.directions.total) for part in (self, other) for layer, state in part.layers.items()
        }
        result.layers = {layer: LayerMoments.empty(dimension) for layer, dimension in dimensions.items()}
        for part in (self, other):
            place, _ = result.table.find(part.table.keys)
            own, slots = part.table.grouped, result.table.slots[place]
            for layer, state in part.layers.items():
                merged = result.layers[layer]
                merged.groups.grow(int(result.table.grouped.sum()))
                stays, leaves = own & (slots != POOLED), own & (slots == POOLED)
                merged.groups.merge(slots[stays], state.groups.select(part.table.slots[stays]))
                merged.to_pool(state.groups.select(part.table.slots[leaves]))
                merged.pool.merge(np.array([0]), state.pool)
                merged.directions.add(state.directions)
        return result


def _joined(first: KeyTable, second: KeyTable) -> KeyTable:
    """All keys of both; kept are those that no side has in its pool."""
    keys = np.union1d(first.keys, second.keys)
    counts, grouped = np.zeros(len(keys), np.int64), np.full(len(keys), True)
    for table in (first, second):
        place = np.searchsorted(keys, table.keys)
        counts[place] += table.counts
        grouped[place] &= table.grouped
    return KeyTable(keys, counts, np.where(grouped, np.cumsum(grouped) - 1, POOLED))


def _renumbered(moments: TokenMoments, names: Mapping[int, str]) -> TokenMoments:
    """Moments of labels, each label under its number in `names`, new labels behind."""
    numbers = {name: key for key, name in names.items() if key >= 0}
    new = {key: numbers.setdefault(name, len(numbers)) for key, name in sorted(moments.names.items()) if key >= 0}
    keys = np.array([new[key] if key >= 0 else key for key in moments.table.keys.tolist()], np.int64)
    order = np.argsort(keys)
    table = KeyTable(keys[order], moments.table.counts[order], moments.table.slots[order])
    renamed = {new.get(key, key): name for key, name in moments.names.items()}
    sample = moments.sample.renumbered(new)
    return replace(moments, table=table, names=renamed, sample=sample, allowed=None, digest="")


def source_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """One line for each thing in which two sources differ."""
    return [
        f"{name}: {first.get(name)!r} and {second.get(name)!r}"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]


# -- on disk: one file, written whole or not at all, so that a run can be continued or shards merged ----------------


_PLAIN = ("source", "max_types", "texts", "truncated_texts", "truncated_tokens", "digest")
_HEADER = "header"
_MOMENTS = ("counts", "means", "scatters", "squares")


def save_state(moments: TokenMoments, path: str | os.PathLike[str]) -> None:
    """Write moments as an uncompressed `.npz` file, atomically."""
    directions = {layer: (state.directions.count, state.directions.zeros) for layer, state in moments.layers.items()}
    header = {name: getattr(moments, name) for name in _PLAIN}
    header |= {"format": FORMAT, "names": moments.names, "layers": directions}
    arrays: dict[str, NDArray[Any]] = {
        f"table.{name}": getattr(moments.table, name) for name in ("keys", "counts", "slots")
    }
    if moments.allowed is not None:
        arrays["allowed"] = moments.allowed
    sample = moments.sample.items()
    arrays["sample.marks"] = np.array([mark for mark, _ in sample], np.int64)
    arrays["sample.copies"] = np.array([text.copies for _, text in sample], np.int64)
    arrays["sample.lengths"] = np.array([len(text.keys) for _, text in sample], np.int64)
    arrays["sample.keys"] = np.concatenate([np.zeros(0, np.int64), *(text.keys for _, text in sample)])
    used = int(moments.table.grouped.sum())
    for layer, state in moments.layers.items():
        arrays[f"{layer}.direction"] = state.directions.total
        if sample:
            arrays[f"{layer}.sample"] = np.concatenate([text.rows[layer] for _, text in sample])
        for name in _MOMENTS:
            arrays[f"{layer}.groups.{name}"] = getattr(state.groups, name)[:used]
            arrays[f"{layer}.pool.{name}"] = getattr(state.pool, name)
    text = json.dumps(sealed(header, beside=digest_of_arrays(arrays)))
    arrays[_HEADER] = np.frombuffer(text.encode(), np.uint8)
    with atomic_file(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle


def load_state(path: str | os.PathLike[str]) -> TokenMoments:
    """Read what `save_state` wrote; bit by bit the same moments."""
    remedy = "Remove it, and measure the texts again."
    refuse_special(Path(path), StoreError)
    try:
        with (
            reading(path, remedy, is_not="a file of token moments"),
            Path(path).open("rb") as stream,
            np.load(stream, allow_pickle=False) as file,
        ):
            content, arrays = read_header(file), {name: file[name] for name in file.files if name != _HEADER}
            written = content.get("format")
            if written == FORMAT:
                return _read(check_seal(content, path, remedy, beside=digest_of_arrays(arrays)), arrays)
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; needed: token moments that poolscope saved. Check the name.") from None
    raise StoreError(
        f"{path}: written in the format {written!r}, and this version of poolscope reads {FORMAT!r}. Measure again."
    )


def read_header(file: Any) -> dict[str, Any]:
    """What an opened file of moments says of itself."""
    content = json.loads(bytes(file[_HEADER]))
    return dict(content)


def check_state(path: str | os.PathLike[str]) -> int | None:
    """The number of texts of a file of moments whose digest agrees; None for a file that has no digest."""
    with np.load(path, allow_pickle=False) as file:
        has_digest = KEY in read_header(file)
    texts = load_state(path).texts
    return texts if has_digest else None


def _read(header: dict[str, Any], arrays: Any) -> TokenMoments:
    layers = {
        int(layer): LayerMoments(
            GroupedMoments(*(arrays[f"{layer}.groups.{name}"] for name in _MOMENTS)),
            GroupedMoments(*(arrays[f"{layer}.pool.{name}"] for name in _MOMENTS)),
            DirectionSum(arrays[f"{layer}.direction"], *counts),
        )
        for layer, counts in header["layers"].items()
    }
    return TokenMoments(
        **{name: header[name] for name in _PLAIN},
        allowed=arrays.get("allowed"),
        table=KeyTable(*(arrays[f"table.{name}"] for name in ("keys", "counts", "slots"))),
        layers=layers,
        sample=_read_sample(list(layers), arrays),
        names={int(key): name for key, name in header["names"].items()},
    )


def _read_sample(layers: list[int], arrays: Any) -> TextSample:
    sample = TextSample()
    cuts = np.cumsum(arrays["sample.lengths"])[:-1]
    if not len(arrays["sample.marks"]):
        return sample
    keys = np.split(arrays["sample.keys"], cuts)
    rows = {layer: np.split(arrays[f"{layer}.sample"], cuts) for layer in layers}
    for number, (mark, copies) in enumerate(zip(arrays["sample.marks"], arrays["sample.copies"], strict=True)):
        own = {layer: parts[number] for layer, parts in rows.items()}
        sample.add(int(mark), SampledText(int(copies), keys[number], own))
    return sample


def is_state(path: str | os.PathLike[str]) -> bool:
    """Whether a name means a file of token moments: it ends in `.npz` and is there."""
    return Path(path).suffix == SUFFIX and Path(path).is_file()
