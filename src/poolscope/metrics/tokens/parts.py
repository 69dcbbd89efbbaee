"""Token statistics in parts, which other processes compute: shards of a store, or runs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import TokenEncoder, check_layers
from poolscope.errors import InputError
from poolscope.metrics.tokens.measure import (
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
from poolscope.numbers.streaming import Index
from poolscope.stores.store import Store
from poolscope.stores.writer import spans
from poolscope.texts import Texts


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
