"""Token statistics whose shards are counted on an engine: nothing but moments comes back from the workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import Progress, TokenEncoder, check_layers
from poolscope.engines import Engine, merged
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.lab.tokens.measure import (
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
from poolscope.lab.tokens.moments import TokenMoments
from poolscope.lab.tokens.result import TokenStatistics
from poolscope.lab.tokens.summary import summarise
from poolscope.numbers import Index
from poolscope.stores.remote import located
from poolscope.stores.store import Store
from poolscope.stores.writer import spans
from poolscope.texts import Texts


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
    if by_label and store.labels is None:
        raise InputError(f"groups: {store.folder} has no labels. Encode the texts with --label-column.")
    stored = from_store(store, layers if layer is None else [layer])
    # Types are counted over all of the store, from their numbers alone.
    allowed = None if by_label else frequent_types(next(iter(stored.values())), as_vocabulary(vocabulary), max_types)
    job = partial(_counting_tokens, located(folder), tuple(stored), by_label, max_types, vocabulary, allowed)
    sizes = store.manifest.shard_sizes
    moments = merged(engine, job, range(len(sizes)), TokenMoments.merge, progress, lambda shard, _: (sizes[shard],))
    return summarise(moments, min_count=min_count, seed=seed)


def _counting_tokens(
    folder: str, layers: Sequence[int], by_label: bool, max_types: int, vocabulary: str | None, allowed: Index | None
) -> Callable[[int], TokenMoments]:
    """The moments of the tokens of each shard of a store, all layers together."""
    store, known = Store.open(folder), as_vocabulary(vocabulary)
    cuts, labels = spans(store.manifest.shard_sizes), store.labels if by_label else None
    depth, name = store.manifest.model.get("layers"), str(store.folder)
    stored_keys = {number: key for key, number in check_layers(store.manifest.keys, depth, name=name).items()}

    def counted(shard: int) -> TokenMoments:
        parts = {number: store.shard(shard, stored_keys.get(number, number)) for number in layers}
        clouds = {number: part for number, part in parts.items() if isinstance(part, TokenClouds)}
        if len(clouds) < len(parts):
            raise InputError(f"{store.folder}: keeps vectors, and statistics of tokens need tokens. Encode with them.")
        return moments_of_clouds(clouds, None if labels is None else labels[cuts[shard]], max_types, known, allowed)

    return counted


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
    if by_label and texts.labels is None:
        raise InputError(f"groups: {texts.source} has no labels. Name their column with --label-column.")
    # Types are counted first, by tokenising alone, where that can be done.
    known = getattr(encoder, "vocabulary", None)
    allowed = None if by_label else count_first(encoder, texts.texts, known, max_types)
    measure = partial(_moments_of_texts, all_layers(encoder, layers), by_label, max_types, allowed)
    over_texts = service("texts on an engine")
    moments = over_texts(engine, measure, TokenMoments.merge, encoder, texts, progress)
    return summarise(moments, min_count=min_count, seed=seed)


def _moments_of_texts(
    layers: Sequence[int] | None,
    by_label: bool,
    max_types: int,
    allowed: Index | None,
    encoder: TokenEncoder,
    texts: Texts,
) -> TokenMoments:
    known, groups = getattr(encoder, "vocabulary", None), texts.labels if by_label else None
    own = getattr(encoder, "options", None)
    source = source_of(encoder.card.to_dict(), {} if own is None else own.content(), known, groups)
    moments = TokenMoments(source, max_types)
    moments.allowed = allowed
    keys = TokenKeys(moments.names, known, by_label=by_label)
    TokenRun(encoder, layers, moments, keys).take(items_of(texts.texts, groups))
    return moments
