"""Norm and variance of token embeddings, from one pass over any amount of text (arXiv 2409.11253).

For the tokens x of one type in one layer: Q = mean of ‖x‖², M = ‖mean of x‖², V = sum of the variances of the
dimensions, and Q = M + V. Over all tokens, with the types as clusters, Q = M + V_W + V_B. The texts are encoded in
pieces, and of each piece only moments are kept: the memory is that of one piece and of one mean a layer and type.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import (
    Progress,
    TokenEncoder,
    as_progress,
    check_layers,
    check_texts,
    model_identity,
    not_a_text,
)
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError, StoreError, whole_number
from poolscope.lab.tokens.moments import (
    TokenMoments,
    load_state,
    save_state,
    source_differences,
    special_key,
)
from poolscope.lab.tokens.result import TokenStatistics
from poolscope.lab.tokens.summary import summarise
from poolscope.numbers import Index
from poolscope.numbers.streaming import mark_of
from poolscope.stores.store import Store, is_store
from poolscope.stores.writer import SHARD_TEXTS, shard_sizes, spans
from poolscope.texts import as_texts

MAX_TYPES = 10_000
MIN_COUNT = 10
_USUAL_DIMENSION = 1024  # taken for functions, which show theirs only when they are called
_NO_LABEL, _END = object(), object()

# A text and its label(s); `_NO_LABEL` where the groups are token types.
Item = tuple[str, Any]


def token_statistics(
    model: Any,
    texts: Any = None,
    *,
    layers: Sequence[int] | None = None,
    groups: Iterable[Any] | None = None,
    min_count: int = MIN_COUNT,
    max_types: int = MAX_TYPES,
    vocabulary: Any = None,
    state: str | os.PathLike[str] | None = None,
    shard_texts: int = SHARD_TEXTS,
    seed: int = 0,
    progress: bool | Progress | None = None,
    **options: Any,
) -> TokenStatistics:
    """Q, M and V of every token type in every layer, and what they add up to over the corpus.

    Parameters
    ----------
    model
        Anything that `as_encoder` takes; or, without texts, a store, clouds or a dictionary from layer to clouds.
    texts : iterable of str, optional
        The texts, read once or, where they are a list, twice: the most frequent types are counted first. Or what
        `read_texts` reads: a path, a data frame, an Arrow table, a data set.
    layers : list of int, optional
        Which layers, 0 being the embedding output; all if left out.
    groups : iterable, optional
        Group by these labels and not by type, one entry a text: a label for all its tokens, or one for each.
    min_count : int
        Correlations and the variation of Q are over the types with at least so many tokens.
    max_types : int
        At most so many types are kept, the most frequent ones; the rest is pooled.
    vocabulary
        A model that names the ids of clouds and tells which are special.
    state : path, optional
        A file in which the run is saved every minute; the same call goes on where it stopped.
    shard_texts : int
        At most so many texts are encoded at a time; fewer where they are long, to bound memory.
    seed : int
        Of the bootstrap over types.
    progress : bool or callable, optional
        True for a bar on standard error; or what is called with the number of texts and tokens just done.
    **options
        Of the encoder.

    Returns
    -------
    TokenStatistics
        One entry a layer, with the numbers of every type.

    Examples
    --------
    >>> clouds = TokenClouds.from_arrays([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0]]], token_ids=[[5, 9], [5]])
    >>> layer = token_statistics(clouds, min_count=1)[-1]
    >>> layer.types.norms_of_means.tolist(), layer.types.variances.tolist()
    ([4.0, 4.0], [1.0, 0.0])

    """
    if (stored := _as_clouds(model, layers)) is not None:
        if texts is not None or state is not None or options:
            raise InputError(
                "received clouds together with texts, state or options of an encoder; clouds are ready as they are. "
                "Leave these out, or pass a model."
            )
        moments = _from_clouds(stored, groups, max_types, as_vocabulary(vocabulary))
        return summarise(moments, min_count=min_count, seed=seed)
    if texts is None:
        raise InputError("texts: a model needs a list of texts, or any iterable of them. Pass these, or ready clouds.")
    if not isinstance(texts, Iterator) or hasattr(texts, "readline"):  # an iterator is read once, as it comes
        texts = as_texts(texts)
    encoder = as_encoder(model, **options)
    known = getattr(encoder, "vocabulary", None) if vocabulary is None else as_vocabulary(vocabulary)
    numbers = all_layers(encoder, layers)
    own = getattr(encoder, "options", None)
    source = source_of(encoder.card.to_dict(), {} if own is None else own.content(), known, groups)
    moments = open_moments(state, source, layers=numbers, max_types=max_types)
    if not moments.texts and groups is None:
        moments.allowed = count_first(encoder, texts, known, max_types)
    keys = TokenKeys(moments.names, known, by_label=groups is not None)
    run = TokenRun(
        encoder,
        numbers,
        moments,
        keys,
        state=state,
        shard_texts=whole_number(shard_texts, "shard_texts"),
        progress=as_progress(progress, len(texts) if isinstance(texts, Sized) else None),
    )
    items = items_of(texts, groups)
    run.skip_done(items)
    run.take(items)
    return summarise(moments, min_count=min_count, seed=seed)


def all_layers(encoder: TokenEncoder, layers: Sequence[int] | None) -> list[int] | None:
    """The layers to ask for, counted from 0; None where a model has only its pooled layer."""
    depth = encoder.card.layers
    if depth is None:
        check_layers(layers, None, name=encoder.card.name)
        return None
    wanted = range(depth + 1) if layers is None else layers
    return sorted(set(check_layers(wanted, depth, name=encoder.card.name).values()))


def source_of(model: Any, options: Any, vocabulary: Vocabulary | None, groups: Any) -> dict[str, Any]:
    """What is measured: equal for all shards of one measurement."""
    special = None if vocabulary is None else sorted(vocabulary.special_ids)
    grouping = "token type" if groups is None else "label"
    source = {"model": model_identity(model), "options": options, "grouping": grouping, "special": special}
    stored: dict[str, Any] = json.loads(json.dumps(source))  # as it is read back from a file
    return stored


def _as_clouds(model: Any, layers: Sequence[int] | None) -> dict[int, TokenClouds] | None:
    """Clouds by layer number if that is what was passed."""
    if isinstance(model, str | os.PathLike) and is_store(model):
        model = Store.open(model)
    if isinstance(model, Store):
        return from_store(model, layers)
    if isinstance(model, str | os.PathLike) and Path(model).suffix == ".arrow":
        model = TokenClouds.open(model)
    if isinstance(model, TokenClouds):
        model = {int(model.provenance.get("layer", -1)): model}
    if not isinstance(model, Mapping) or not all(isinstance(part, TokenClouds) for part in model.values()):
        return None
    chosen = sorted(model) if layers is None else layers
    wanted = list(chosen) if isinstance(chosen, Iterable) else []
    if not wanted or any(layer not in model for layer in wanted):
        raise InputError(
            f"layers: received {chosen!r}; the clouds are of the layers {sorted(model)}. Choose among these."
        )
    return {int(layer): model[layer] for layer in wanted}


def from_store(store: Store, layers: Sequence[int] | None) -> dict[int, TokenClouds]:
    """The clouds of a store by layer number; None: of all its layers."""
    depth, name = store.manifest.model.get("layers"), str(store.folder)
    stored_keys = {number: key for key, number in check_layers(store.manifest.keys, depth, name=name).items()}
    wanted = stored_keys if layers is None else check_layers(layers, depth, name=name).values()
    return {number: store.clouds(stored_keys.get(number, number)) for number in sorted(wanted)}


def token_moments(shard: TokenClouds, *, max_types: int = MAX_TYPES) -> TokenMoments:
    """The running state of the tokens of some clouds, by type: a part of a measurement, which `merge` joins."""
    stored = _as_clouds(shard, None)
    if stored is None:
        raise InputError(f"received {type(shard).__name__}; needed: clouds, or a dictionary from layer to clouds.")
    return _from_clouds(stored, None, max_types, None)


def _from_clouds(
    stored: dict[int, TokenClouds], groups: Iterable[Any] | None, max_types: int, vocabulary: Vocabulary | None
) -> TokenMoments:
    first = next(iter(stored.values()))
    allowed = frequent_types(first, vocabulary, max_types) if groups is None else None
    return moments_of_clouds(stored, groups, max_types, vocabulary, allowed)


def frequent_types(clouds: TokenClouds, vocabulary: Vocabulary | None, max_types: int) -> Index | None:
    """The most frequent types of clouds; None where all fit."""
    starts = range(0, len(clouds), SHARD_TEXTS)
    ids = (token_ids(clouds, start, min(start + SHARD_TEXTS, len(clouds))) for start in starts)
    special = vocabulary.special_ids if vocabulary else ()
    return most_frequent((part for part in ids if part is not None), special, max_types)


def moments_of_clouds(
    stored: dict[int, TokenClouds],
    groups: Iterable[Any] | None,
    max_types: int,
    vocabulary: Vocabulary | None,
    allowed: Index | None,
) -> TokenMoments:
    """The moments of clouds by layer; the types in `allowed` have a group of their own (None: as many as fit)."""
    first = next(iter(stored.values()))
    origin = first.provenance
    source = source_of(origin.get("model", {}), origin.get("options", {}), vocabulary, groups)
    moments = TokenMoments(source, max_types)
    labels = None if groups is None else list(groups)
    if labels is not None and len(labels) != len(first):
        raise InputError(f"groups: received {len(labels)} entries for {len(first)} texts; one per text is needed.")
    moments.allowed = allowed
    TokenKeys(moments.names, vocabulary, by_label=groups is not None).add(moments, stored, labels)
    return moments


def as_vocabulary(source: Any) -> Vocabulary | None:
    """The vocabulary of a model that is named; None for none."""
    if source is None or isinstance(source, Vocabulary):
        return source
    vocabulary = getattr(as_encoder(source), "vocabulary", None)
    if not isinstance(vocabulary, Vocabulary):
        raise InputError(
            f"vocabulary: received {type(source).__name__}, which has none; pass a model with a tokenizer."
        )
    return vocabulary


# -- taking texts in, piece by piece, so that a run that dies can go on ---------------------------------------------


def items_of(texts: Iterable[str], groups: Iterable[Any] | None) -> Iterator[Item]:
    """Each text with its label(s)."""
    pairs = ((text, _NO_LABEL) for text in texts) if groups is None else zip_longest(texts, groups, fillvalue=_END)
    for position, (text, label) in enumerate(pairs):
        if text is _END or label is _END:
            short = "texts" if text is _END else "groups"
            raise InputError(f"{short}: ended after {position} entries; texts and groups need one entry a text each.")
        if not isinstance(text, str):
            raise not_a_text(text, position)
        yield text, label


@dataclass
class TokenRun:
    """One pass: the encoder, the layers to ask it for (None: the only one it has), and where the tokens go.

    `state` is the file in which the moments are saved every so many seconds and at the end, however it comes.
    """

    encoder: TokenEncoder
    layers: Sequence[int] | None
    moments: TokenMoments
    keys: TokenKeys
    state: str | os.PathLike[str] | None = None
    shard_texts: int = SHARD_TEXTS
    save_seconds: float = 60.0
    progress: Progress | None = None

    def take(self, items: Iterator[Item]) -> None:
        """Encode all texts and take in their tokens."""
        self._saved, self._saved_at = self.moments.texts, time.monotonic()
        for chunk in self._chunks(items):
            self._take_chunk(chunk)  # in a call of its own, so that its clouds are gone before the next are made
            if time.monotonic() - self._saved_at >= self.save_seconds:
                self._save()
        self._save()
        if not self.moments.texts:
            raise InputError("texts: received none; at least one text is needed.")

    def _take_chunk(self, chunk: list[Item]) -> None:
        try:
            clouds = self.encoder.encode([text for text, _ in chunk], layers=self.layers, progress=self.progress)
        except BaseException:  # Ctrl-C, a text that cannot be encoded, a device that fails: keep what is done
            self._save()
            raise
        labels = None if chunk[0][1] is _NO_LABEL else [label for _, label in chunk]
        self.keys.add(self.moments, clouds, labels)
        self.moments.digest = _extended(self.moments.digest, chunk)

    def skip_done(self, items: Iterator[Item]) -> None:
        """Pass over the texts that an earlier run took in, and make sure that they are the same."""
        done, digest, count = self.moments.texts, "", 0
        while part := list(islice(items, min(SHARD_TEXTS, done - count))):
            digest, count = _extended(digest, part), count + len(part)
        if digest != self.moments.digest:
            raise StoreError(
                f"{self.state}: the saved run took in {done:,} texts, and the first {count:,} given now are not the "
                f"same ones in the same order. Name another file, or pass the texts of that run (more may follow them)."
            )
        if self.progress is not None and count:
            self.progress(count, 0)

    def _chunks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Runs of texts whose vectors of all layers fit into memory, cut as the shards of a store are.

        The windows lie at the same places wherever a run was interrupted, so the rest is cut as it would have been.
        """
        card = self.encoder.card
        bytes_a_token = 4 * (card.dimension or _USUAL_DIMENSION) * len(self.layers or [-1])
        longest = getattr(self.encoder, "max_length", card.max_length)
        while window := list(islice(items, self.shard_texts - self.moments.texts % self.shard_texts)):
            texts = [text for text, _ in window]
            sizes = shard_sizes(texts, shard_texts=self.shard_texts, token_bytes=bytes_a_token, max_length=longest)
            yield from (window[span] for span in spans(sizes))

    def _save(self) -> None:
        if self.state is not None and self.moments.texts > self._saved:
            save_state(self.moments, self.state)
            self._saved, self._saved_at = self.moments.texts, time.monotonic()


def open_moments(
    state: str | os.PathLike[str] | None, source: dict[str, Any], *, layers: Sequence[int] | None, max_types: int
) -> TokenMoments:
    """The moments of an earlier run of the same choices from its state, or new ones."""
    if state is None or not Path(state).exists():
        return TokenMoments(source, max_types)
    moments = load_state(state)
    stored = {**moments.source, "layers": sorted(moments.layers), "max_types": moments.max_types}
    choices = {**source, "layers": [-1] if layers is None else list(layers), "max_types": max_types}
    if differences := source_differences(stored, choices):
        raise StoreError(
            f"{state}: holds a run of other choices than those asked for (stored and asked):\n  "
            + "\n  ".join(differences)
            + "\nName another file, or ask for the same."
        )
    return moments


def count_first(encoder: Any, texts: Any, vocabulary: Vocabulary | None, most: int) -> Index | None:
    """The most frequent types, from tokenising alone; None where all fit, or the texts can be read only once."""
    if vocabulary is None or vocabulary.size <= most or not hasattr(encoder, "plan") or not isinstance(texts, Sequence):
        return None

    checked = check_texts(texts)

    def ids() -> Iterator[Index]:
        for start in range(0, len(checked), SHARD_TEXTS):
            plan = encoder.plan(checked[start : start + SHARD_TEXTS])
            counted = np.ones(len(plan.tokens.ids), bool)
            for position in range(plan.skip):  # the tokens of a prompt, which are left out of the clouds
                counted[plan.tokens.offsets[:-1] + position] = False
            yield plan.tokens.ids[counted]

    return most_frequent(ids(), vocabulary.special_ids, most)


def _extended(digest: str, chunk: Sequence[Item]) -> str:
    """The digest of all texts and labels so far, after some more: the same however they are cut into chunks."""
    for text, label in chunk:
        labels = "" if label is _NO_LABEL else label_content(label)
        entry = f"{digest}\n{len(text)}\n{text}\n{labels}"
        digest = hashlib.sha256(entry.encode("utf-8", "surrogatepass")).hexdigest()
    return digest


# -- the key of every token: its type, or a label that the caller gave ----------------------------------------------


def token_ids(clouds: TokenClouds, start: int, stop: int) -> Index | None:
    """Vocabulary ids of all tokens of the texts `start` to `stop`, end to end; None if a text lacks them."""
    ids = clouds.token_ids(slice(start, stop))
    return None if ids is None else ids.astype(np.int64)


def pieces(layers: Mapping[int, TokenClouds]) -> Iterator[tuple[int, int, dict[int, NDArray[Any]]]]:
    """The texts in order, in runs whose tokens lie in one matrix in every layer: (start, stop, matrix by layer)."""
    sets = list(layers.values())
    if any(not np.array_equal(clouds.lengths, sets[0].lengths) for clouds in sets[1:]):
        raise InputError(
            f"the layers {list(layers)} hold clouds of other texts or of other lengths; all layers must be of the same "
            f"tokens. Encode them in one call: encode(model, texts, layers=[…])."
        )
    blocks = {layer: list(clouds.blocks()) for layer, clouds in layers.items()}
    starts = {layer: np.array([block.start for block in own]) for layer, own in blocks.items()}
    bounds = np.unique(np.concatenate([*starts.values(), [len(sets[0])]]))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = {}
        for layer, own in blocks.items():
            block = own[int(np.searchsorted(starts[layer], start, side="right")) - 1]
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
    """Group names of a text or of its tokens, as strings.

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
        more = np.bincount(part, minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    counts[[k for k in special if k < len(counts)]] = 0
    if np.count_nonzero(counts) <= most:
        return None
    return np.sort(np.argsort(-counts, kind="stable")[:most]).astype(np.int64)
