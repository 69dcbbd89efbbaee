"""What encodes texts and keeps numbers only, on an engine: a worker opens the encoder and takes runs of the texts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import Progress, TokenEncoder, check_layers
from poolscope.encoders.capabilities import EncoderSpec, spec_of
from poolscope.engines.base import Engine, merged
from poolscope.errors import InputError
from poolscope.metrics.base import resolve
from poolscope.metrics.length.mechanism import MeasuredTexts
from poolscope.metrics.tokens.measure import (
    MAX_TYPES,
    MIN_COUNT,
    TokenKeys,
    TokenRun,
    all_layers,
    as_vocabulary,
    count_first,
    frequent_types,
    from_store,
    items_of,
    moments_of_clouds,
    source_of,
)
from poolscope.metrics.tokens.moments import TokenMoments
from poolscope.metrics.tokens.result import TokenStatistics
from poolscope.metrics.tokens.summary import summarise
from poolscope.numbers import Index
from poolscope.stores.cache import cache_folder
from poolscope.stores.remote import located
from poolscope.stores.store import Store
from poolscope.stores.writer import describe, spans
from poolscope.texts import Texts
from poolscope.texts.spooled import open_spooled, save_spooled


@dataclass(frozen=True)
class TextsJob:
    """Calls `function(encoder, texts, **options)` ("package.module:name") with the texts of each shard."""

    function: str
    spec: Mapping[str, Any]
    folder: str
    cuts: tuple[tuple[int, int], ...] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> Callable[[int], Any]:
        """Open the encoder and the texts."""
        encoder, texts = EncoderSpec.from_dict(self.spec).open(), open_spooled(self.folder)
        work = resolve(self.function)
        return lambda shard: work(encoder, texts[slice(*self.cuts[shard])], **self.options)


def over_texts(
    engine: Engine | str | None,
    function: str,
    merge: Callable[[Any, Any], Any],
    encoder: TokenEncoder,
    texts: Texts,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Any:
    """What a function of an encoder and texts gives for runs of the texts, merged in order.

    The texts lie in a file in the cache folder while it runs; on several machines that must be one that all see
    (POOLSCOPE_CACHE).
    """
    cuts = tuple((part.start, part.stop) for part in spans(describe(encoder.card, texts).shard_sizes))
    home = cache_folder()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".texts-", dir=home) as folder:
        save_spooled(texts, folder)
        job = TextsJob(function, spec_of(encoder).to_dict(), str(Path(folder).absolute()), cuts, options)
        sizes = [stop - start for start, stop in cuts]
        return merged(
            engine,
            job,
            range(len(cuts)),
            merge,
            progress,
            lambda shard, outcome: (sizes[shard], getattr(outcome, "tokens", sizes[shard])),
        )


# -- token statistics -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredTokensJob:
    """The moments of the tokens of each shard of a store, all layers together."""

    folder: str
    choices: TokenChoices

    def start(self) -> Callable[[int], TokenMoments]:
        """Open the store."""
        store = Store.open(self.folder)
        return lambda shard: stored_shard(store, shard, self.choices)


def tokens_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    *,
    layer: int | None = None,
    layers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
    by_label: bool = False,
    max_types: int = MAX_TYPES,
    vocabulary: str | None = None,
    min_count: int = MIN_COUNT,
    seed: int = 0,
) -> TokenStatistics:
    """`token_statistics` of a finished store, its shards on an engine; `by_label` groups by the labels of the store."""
    store = Store.open(folder)
    chosen = layers if layer is None else [layer]
    choices = choose_for_store(store, chosen, by_label=by_label, max_types=max_types, vocabulary=vocabulary)
    sizes = store.manifest.shard_sizes
    job, shards = StoredTokensJob(located(folder), choices), range(len(sizes))
    moments = merged(engine, job, shards, TokenMoments.merge, progress, lambda shard, _: (sizes[shard],))
    return summarise(moments, min_count=min_count, seed=seed)


def tokens_of_texts(
    engine: Engine | str | None,
    encoder: TokenEncoder,
    texts: Texts,
    *,
    layers: Sequence[int] | None = None,
    by_label: bool = False,
    max_types: int = MAX_TYPES,
    min_count: int = MIN_COUNT,
    seed: int = 0,
    progress: Progress | None = None,
) -> TokenStatistics:
    """`token_statistics` of a model and texts on an engine: nothing but moments comes back from the workers."""
    choices = choose_for_texts(encoder, texts, layers, by_label=by_label, max_types=max_types)
    function = "poolscope.engines.texts:moments_of_texts"
    moments = over_texts(engine, function, TokenMoments.merge, encoder, texts, progress=progress, choices=choices)
    return summarise(moments, min_count=min_count, seed=seed)


# -- length -----------------------------------------------------------------------------------------------------------


def measured_with(
    engine: Engine | str | None, encoder: TokenEncoder, texts: Texts, *, progress: Progress | None = None
) -> MeasuredTexts:
    """`measure_texts` on an engine: what one pass gives for every text, for `length_report`."""
    function = "poolscope.metrics.length.mechanism:measure_texts"
    unlabelled = replace(texts, labels=None)
    whole: MeasuredTexts = over_texts(engine, function, MeasuredTexts.joined, encoder, unlabelled, progress=progress)
    return whole


# -- token statistics in parts, which other processes compute: shards of a store, or runs of texts --------------------


@dataclass(frozen=True)
class TokenChoices:
    """What all parts of a measurement share: the layers, the types that have a group of their own, how tokens group."""

    layers: tuple[int, ...] | None
    allowed: Index | None
    by_label: bool
    max_types: int
    vocabulary: str | None = None


def choose_for_store(
    store: Store, layers: Sequence[int] | None, *, by_label: bool, max_types: int, vocabulary: str | None
) -> TokenChoices:
    """The choices for the shards of a store: types are counted over all of it, from their numbers alone."""
    if by_label and store.labels is None:
        raise InputError(f"groups: {store.folder} has no labels. Encode the texts with --label-column.")
    stored = from_store(store, layers)
    allowed = None if by_label else frequent_types(next(iter(stored.values())), as_vocabulary(vocabulary), max_types)
    return TokenChoices(tuple(stored), allowed, by_label, max_types, vocabulary)


def stored_shard(store: Store, shard: int, choices: TokenChoices) -> TokenMoments:
    """The moments of one shard of a store."""
    span, labels = spans(store.manifest.shard_sizes)[shard], store.labels if choices.by_label else None
    depth, name = store.manifest.model.get("layers"), str(store.folder)
    held = {number: key for key, number in check_layers(store.manifest.keys, depth, name=name).items()}
    parts = {number: store.shard(shard, held.get(number, number)) for number in choices.layers or ()}
    clouds = {number: part for number, part in parts.items() if isinstance(part, TokenClouds)}
    if len(clouds) < len(parts):
        raise InputError(f"{store.folder}: keeps vectors, and statistics of tokens need tokens. Encode with them.")
    groups = None if labels is None else labels[span]
    return moments_of_clouds(clouds, groups, choices.max_types, as_vocabulary(choices.vocabulary), choices.allowed)


def choose_for_texts(
    encoder: TokenEncoder, texts: Texts, layers: Sequence[int] | None, *, by_label: bool, max_types: int
) -> TokenChoices:
    """The choices for runs of texts: types are counted first, by tokenising alone, where that can be done."""
    if by_label and texts.labels is None:
        raise InputError(f"groups: {texts.source} has no labels. Name their column with --label-column.")
    numbers = all_layers(encoder, layers)
    known = getattr(encoder, "vocabulary", None)
    allowed = None if by_label else count_first(encoder, texts.texts, known, max_types)
    return TokenChoices(None if numbers is None else tuple(numbers), allowed, by_label, max_types)


def moments_of_texts(encoder: TokenEncoder, texts: Texts, *, choices: TokenChoices) -> TokenMoments:
    """The moments of some texts, encoded here."""
    known, groups = getattr(encoder, "vocabulary", None), texts.labels if choices.by_label else None
    own = getattr(encoder, "options", None)
    source = source_of(encoder.card.to_dict(), {} if own is None else own.content(), known, groups)
    moments = TokenMoments(source, choices.max_types)
    moments.allowed = choices.allowed
    keys = TokenKeys(moments.names, known, by_label=choices.by_label)
    TokenRun(encoder, choices.layers, moments, keys).take(items_of(texts.texts, groups))
    return moments
