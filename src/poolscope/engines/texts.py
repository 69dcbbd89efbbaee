"""What encodes texts and keeps numbers only, on an engine: a worker opens the encoder and takes runs of the texts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.capabilities import EncoderSpec, spec_of
from poolscope.engines.base import Engine, as_engine, merged
from poolscope.metrics.base import resolve
from poolscope.metrics.length.mechanism import MeasuredTexts
from poolscope.metrics.tokens.measure import MAX_TYPES, MIN_COUNT
from poolscope.metrics.tokens.moments import TokenMoments
from poolscope.metrics.tokens.parts import TokenChoices, choose_for_store, choose_for_texts, stored_shard
from poolscope.metrics.tokens.result import TokenStatistics
from poolscope.metrics.tokens.summary import summarise
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
        outcomes = _told(as_engine(engine).run(job, range(len(cuts))), cuts, progress)
        return merged(outcomes, range(len(cuts)), merge)


def _told(
    outcomes: Iterator[tuple[int, Any]], cuts: Sequence[tuple[int, int]], progress: Progress | None
) -> Iterator[tuple[int, Any]]:
    for shard, outcome in outcomes:
        if progress is not None:
            start, stop = cuts[shard]
            progress(stop - start, getattr(outcome, "tokens", stop - start))
        yield shard, outcome


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

    def told() -> Iterator[tuple[int, Any]]:
        for shard, outcome in as_engine(engine).run(job, shards):
            if progress is not None:
                progress(sizes[shard])
            yield shard, outcome

    return summarise(merged(told(), shards, TokenMoments.merge), min_count=min_count, seed=seed)


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
    function = "poolscope.metrics.tokens.parts:moments_of_texts"
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
