"""Norm and variance of token embeddings, from one pass over any amount of text (arXiv 2409.11253).

For the tokens x of one type in one layer: Q = mean of ‖x‖², M = ‖mean of x‖², V = sum of the variances of the
dimensions, and Q = M + V. Over all tokens, with the types as clusters, Q = M + V_W + V_B. The texts are encoded in
pieces, and of each piece only moments are kept: the memory is that of one piece and of one mean a layer and type.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.encoders.base import Progress, TokenEncoder, check_layers, model_identity
from poolscope.encoders.tokens import Vocabulary
from poolscope.errors import InputError
from poolscope.metrics.tokens.keys import TokenKeys, most_frequent, token_ids
from poolscope.metrics.tokens.moments import TokenMoments
from poolscope.metrics.tokens.result import TokenStatistics
from poolscope.metrics.tokens.run import TokenRun, count_first, items_of, open_moments
from poolscope.metrics.tokens.summary import summarise
from poolscope.stores.store import Store, is_store
from poolscope.stores.writer import SHARD_TEXTS

MAX_TYPES = 10_000
MIN_COUNT = 10


def token_statistics(
    model: Any,
    texts: Iterable[str] | None = None,
    *,
    layers: Sequence[int] | None = None,
    groups: Iterable[Any] | None = None,
    min_count: int = MIN_COUNT,
    max_types: int = MAX_TYPES,
    vocabulary: Any = None,
    state: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> TokenStatistics:
    """Q, M and V of every token type in every layer, and what they add up to over the corpus.

    `model` is anything `as_encoder` takes, with its `options`, and `texts` any iterable of texts; or `model` is a
    store, clouds or a dictionary from layer to clouds, without texts. `layers`: all by default. `groups`: group by
    these labels and not by type, one entry a text: a label for all its tokens, or a sequence with one for each. At most
    `max_types` types are kept, the most frequent ones: they are counted first where the texts can be read twice; the
    rest is pooled. `min_count`, `seed`: see `summarise`. `vocabulary` (a model) names the ids of clouds and tells which
    are special. `state`: a file in which the run is saved every minute; the same call goes on where it stopped.

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
        moments = _from_clouds(stored, groups, max_types, _as_vocabulary(vocabulary))
        return summarise(moments, min_count=min_count, seed=seed)
    if not isinstance(texts, Iterable) or isinstance(texts, str):
        raise InputError("texts: a model needs a list of texts, or any iterable of them. Pass these, or ready clouds.")
    encoder = as_encoder(model, **options)
    known = getattr(encoder, "vocabulary", None) if vocabulary is None else _as_vocabulary(vocabulary)
    numbers = _all_layers(encoder, layers)
    own = getattr(encoder, "options", None)
    source = _source(encoder.card.to_dict(), {} if own is None else own.content(), known, groups)
    moments = open_moments(state, source, layers=numbers, max_types=max_types)
    if not moments.texts and groups is None:
        moments.allowed = count_first(encoder, texts, known, max_types)
    keys = TokenKeys(moments.names, known, by_label=groups is not None)
    run = TokenRun(encoder, numbers, moments, keys, state=state, progress=progress)
    items = items_of(texts, groups)
    run.skip_done(items)
    run.take(items)
    return summarise(moments, min_count=min_count, seed=seed)


def _all_layers(encoder: TokenEncoder, asked: Sequence[int] | None) -> list[int] | None:
    """The layers to ask for, counted from 0; None where a model has only its pooled layer."""
    depth = encoder.card.layers
    if depth is None:
        check_layers(asked, None, name=encoder.card.name)
        return None
    wanted = range(depth + 1) if asked is None else asked
    return sorted(set(check_layers(wanted, depth, name=encoder.card.name).values()))


def _source(model: Any, options: Any, vocabulary: Vocabulary | None, groups: Any) -> dict[str, Any]:
    """What is measured: equal for all shards of one measurement."""
    special = None if vocabulary is None else sorted(vocabulary.special_ids)
    grouping = "token type" if groups is None else "label"
    source = {"model": model_identity(model), "options": options, "grouping": grouping, "special": special}
    found: dict[str, Any] = json.loads(json.dumps(source))  # as it is read back from a file
    return found


def _as_clouds(model: Any, layers: Sequence[int] | None) -> dict[int, TokenClouds] | None:
    """Clouds by layer number if that is what was passed."""
    if isinstance(model, str | os.PathLike) and is_store(model):
        model = Store.open(model)
    if isinstance(model, Store):
        return _from_store(model, layers)
    if isinstance(model, str | os.PathLike) and Path(model).suffix == ".arrow":
        model = TokenClouds.open(model)
    if isinstance(model, TokenClouds):
        model = {int(model.provenance.get("layer", -1)): model}
    if not isinstance(model, Mapping) or not all(isinstance(part, TokenClouds) for part in model.values()):
        return None
    asked = sorted(model) if layers is None else layers
    wanted = list(asked) if isinstance(asked, Iterable) else []
    if not wanted or any(layer not in model for layer in wanted):
        raise InputError(
            f"layers: received {asked!r}; the clouds are of the layers {sorted(model)}. Choose among these."
        )
    return {int(layer): model[layer] for layer in wanted}


def _from_store(store: Store, layers: Sequence[int] | None) -> dict[int, TokenClouds]:
    depth, name = store.manifest.model.get("layers"), str(store.folder)
    held = {number: key for key, number in check_layers(store.manifest.keys, depth, name=name).items()}
    wanted = held if layers is None else check_layers(layers, depth, name=name).values()
    return {number: store.clouds(held.get(number, number)) for number in sorted(wanted)}


def _from_clouds(
    stored: dict[int, TokenClouds], groups: Iterable[Any] | None, max_types: int, vocabulary: Vocabulary | None
) -> TokenMoments:
    first = next(iter(stored.values()))
    origin = first.provenance
    source = _source(origin.get("model", {}), origin.get("options", {}), vocabulary, groups)
    moments = TokenMoments(source, max_types)
    labels = None if groups is None else list(groups)
    if labels is not None and len(labels) != len(first):
        raise InputError(f"groups: received {len(labels)} entries for {len(first)} texts; one per text is needed.")
    if labels is None:
        starts = range(0, len(first), SHARD_TEXTS)
        ids = (token_ids(first, start, min(start + SHARD_TEXTS, len(first))) for start in starts)
        special = vocabulary.special_ids if vocabulary else ()
        moments.allowed = most_frequent((part for part in ids if part is not None), special, max_types)
    TokenKeys(moments.names, vocabulary, by_label=groups is not None).add(moments, stored, labels)
    return moments


def _as_vocabulary(given: Any) -> Vocabulary | None:
    if given is None or isinstance(given, Vocabulary):
        return given
    vocabulary = getattr(as_encoder(given), "vocabulary", None)
    if not isinstance(vocabulary, Vocabulary):
        raise InputError(f"vocabulary: received {type(given).__name__}, which has none; pass a model with a tokenizer.")
    return vocabulary
