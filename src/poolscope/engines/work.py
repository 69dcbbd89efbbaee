"""What is done with shards, by whichever engine: a store is written, a store is measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.vectors import Vectors
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.capabilities import EncoderSpec, spec_of
from poolscope.engines.base import Engine, LocalEngine, as_engine, merged
from poolscope.engines.texts import tokens_with
from poolscope.errors import InputError, ModelError, PoolscopeError, StoreError, shorten, whole_number
from poolscope.extensions import load_extensions
from poolscope.metrics.base import METRICS, Metric, resolve
from poolscope.metrics.socm.measure import measured_pairs
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.result import Largest, SocmResult, WorstPairs
from poolscope.metrics.socm.selection import (
    TILE_TEXTS,
    AllPairs,
    ListedPairs,
    PairSelection,
    PairTally,
    TallyOptions,
    WorstSearch,
    tallied,
    worst_result,
)
from poolscope.numbers.bures.pairs import reduced_caches
from poolscope.results import Result
from poolscope.stores.remote import located, share_texts, shared_texts
from poolscope.stores.store import Store, condensed, open_clouds
from poolscope.stores.writer import (
    absent_shards,
    begin_store,
    encode_to_store,
    finish_store,
    spans,
    write_shard,
)
from poolscope.texts import Texts

_SHOWN = 5  # texts that could not be encoded, in a message


@dataclass(frozen=True)
class Encoded:
    """What became of a shard: how many texts and tokens, and the texts that the encoder refused, with the reason."""

    texts: int = 0
    tokens: int = 0
    failed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class EncodeJob:
    """Encodes shards of a store whose plan is written; the encoder is opened from its specification."""

    spec: Mapping[str, Any]
    folder: str

    def start(self) -> Callable[[int], Encoded]:
        """Open the encoder, the texts and the store."""
        encoder = EncoderSpec.from_dict(self.spec).open()
        texts, store = shared_texts(self.folder), Store.open(self.folder)
        cuts = spans(store.manifest.shard_sizes)
        return lambda shard: _encoded(store, encoder, texts[cuts[shard]], shard)


def _encoded(store: Store, encoder: TokenEncoder, texts: Texts, shard: int) -> Encoded:
    if store.is_there(shard) and store.is_whole(shard, texts.ids):  # of a worker that died after it, or another driver
        return Encoded(len(texts), _tokens(store.shard(shard, store.manifest.keys[0])))
    tokens: list[int] = []
    try:
        write_shard(store, encoder, texts, shard, progress=lambda done, count: tokens.append(count))
    except StoreError:
        raise  # of the disk, not of a text
    except Exception as error:
        return Encoded(failed=tuple(_poisoned(encoder, texts, store.manifest.keep, error)))
    return Encoded(len(texts), sum(tokens))


def _tokens(shard: TokenClouds | Vectors) -> int:
    return len(shard) if shard.lengths is None else int(shard.lengths.sum())


def _poisoned(encoder: TokenEncoder, texts: Texts, keep: str, error: Exception) -> list[tuple[str, str]]:
    """The texts that cannot be encoded by themselves, found by halving; all of them where each can, alone."""
    waiting, refused = [range(len(texts))], []
    while waiting:
        part = waiting.pop()
        try:
            for clouds in encoder.encode(list(texts.texts[part.start : part.stop])).values():
                condensed(clouds, keep)
        except Exception as reason:
            if len(part) == 1:
                refused.append((texts.ids[part.start], f"{type(reason).__name__}: {reason}"))
            else:
                middle = part.start + len(part) // 2
                waiting += [range(middle, part.stop), range(part.start, middle)]
    return refused or [(f"{texts.ids[0]} … {texts.ids[-1]}", f"{type(error).__name__}: {error}")]


def encode_with(
    engine: Engine | str | None,
    encoder: TokenEncoder,
    texts: Texts,
    folder: str | os.PathLike[str],
    *,
    options: EncoderOptions | None = None,
    layers: Sequence[int] | None = None,
    shard_texts: int | None = None,
    keep: str = "tokens",
    keep_tokens: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Store:
    """Encode texts into a store on an engine; for the rest it is `encode_to_store`, and so are the bytes.

    A text on which the encoder raises is named by its id when everything else is stored. The same call goes on where an
    earlier one stopped, on this engine or another.

    Parameters
    ----------
    engine : Engine, str or None
        Where the shards are encoded: what `make_engine` gives, or its name.
    encoder : TokenEncoder
        The model, from `as_encoder`. Workers in other processes rebuild it from its name and options.
    texts : Texts
        What `read_texts` gives.
    folder : path
        The store, begun anew or gone on with.
    options : EncoderOptions, optional
        What the workers rebuild the encoder with; those of `encoder` itself by default.
    layers : list of int, optional
        The layers to keep; the one that the model pools by default.
    shard_texts : int, optional
        How many texts one shard holds.
    keep : str
        "tokens", "moments" or "vectors" of every text.
    keep_tokens : int
        Where `keep` is not "tokens": of how many texts, drawn by their ids, the tokens are kept too.
    overwrite : bool
        Replace a store of other texts or another model in one step.
    progress : Progress, optional
        Is told how many texts are done.

    Returns
    -------
    Store
        The finished store, byte for byte that of one process.

    Examples
    --------
    >>> import tempfile
    >>> from poolscope import as_encoder, read_texts
    >>> texts = read_texts(["one text", "another text"])
    >>> folder = tempfile.mkdtemp()
    >>> len(encode_with("local", as_encoder("builtin:wordllama"), texts, folder).clouds())
    2

    """
    choices: dict[str, Any] = {"options": options, "layers": layers, "shard_texts": shard_texts}
    choices |= {"keep": keep, "keep_tokens": keep_tokens, "overwrite": overwrite}
    engine = as_engine(engine)
    if not isinstance(texts, Texts):
        raise InputError(f"texts: received {shorten(texts)}; needed: what read_texts gives. Read them first.")
    if not hasattr(encoder, "card"):
        raise InputError(f"encoder: received {shorten(encoder)}; needed: what as_encoder gives. Open it first.")
    if isinstance(engine, LocalEngine):
        return encode_to_store(encoder, texts, folder, progress=progress, **choices)
    spec = spec_of(encoder).to_dict()
    begun = begin_store(encoder.card, texts, folder, wait=600.0, **choices)
    if begun.reused == len(begun):
        return begun
    target = located(folder)
    share_texts(texts, target)
    absent = absent_shards(begun, texts.ids)
    reused = len(begun) - sum(begun.manifest.shard_sizes[shard] for shard in absent)
    if progress is not None and reused:
        progress(reused, 0)
    failed: list[tuple[str, str]] = []
    for _, outcome in engine.run(EncodeJob(spec, target), absent):
        failed += outcome.failed
        if progress is not None and outcome.texts:
            progress(outcome.texts, outcome.tokens)
    if failed:
        raise ModelError(_refusal(encoder.card.name, failed, begun))
    return replace(finish_store(begun), reused=reused)


def _refusal(name: str, failed: Sequence[tuple[str, str]], store: Store) -> str:
    shown = "; ".join(f"'{id_}' ({reason.partition(chr(10))[0][:120]})" for id_, reason in failed[:_SHOWN])
    more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return (
        f"{name}: raised an error on the text{'s' * (len(failed) > 1)} with the id {shown}{more}. The shards without "
        f"them are stored ({store.stored():,} of {len(store):,} texts). Leave these texts out, or change them."
    )


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartJob:
    """Computes the part of a metric from each shard of a finished store."""

    metric: str
    folder: str
    layer: int | None = None
    starts: tuple[int, ...] = field(default=(), repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> Callable[[int], Any]:
        """Open the store."""
        load_extensions()
        metric, store = METRICS[self.metric], Store.open(self.folder)
        pooled = metric.needs == "vectors"
        return lambda k: metric.part_of(store.shard(k, self.layer, pooled=pooled), self.starts[k], **self.options)


def measure_with(
    engine: Engine | str | None,
    metric: Metric | str,
    folder: str | os.PathLike[str],
    *,
    layer: int | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Result:
    """A metric of a finished store, computed in parts on an engine, which are merged in one order.

    Parameters
    ----------
    engine
        What `make_engine` gave, its name ("local", "processes", "ray"), or None for this process. The result is, bit
        for bit, the same on every engine.
    metric
        The name of a metric whose parts merge: "socm", "tokens", "profile", "corpus", "scores", "windows", or one of
        your own.
    folder
        A finished store. Every worker must see it.
    layer
        Which layer; None: the one that the model pools, or the only one there is.
    progress
        Called with the number of texts (of `socm`: pairs) just done.
    **options
        Of the metric: those of `socm`, of `token_statistics`, or of what finishes the parts.

    Returns
    -------
    Result
        What the metric returns.

    Examples
    --------
    >>> import tempfile
    >>> from poolscope import as_encoder, encode_with, read_texts
    >>> texts = read_texts([f"text {k} of many words" for k in range(30)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = encode_with("local", as_encoder("builtin:wordllama"), texts, folder)
    ...     measure_with("local", "corpus", folder).texts, measure_with("local", "socm", folder, pairs=40).count
    (30, 40)

    """
    if isinstance(metric, str) and metric not in METRICS:
        load_extensions()  # a metric of another package
    row = METRICS.get(metric) if isinstance(metric, str) else metric
    if not isinstance(row, Metric):
        raise InputError(f"metric: received {metric!r}; allowed: {', '.join(METRICS)}, or a Metric. Name one.")
    if layer is not None:
        layer = whole_number(layer, "layer", least=-(2**31))
    engine = as_engine(engine)
    if row.name in _OWN:
        return _OWN[row.name](engine, folder, layer=layer, progress=progress, **options)
    row.require_parts()
    store = Store.open(folder)
    if not store.manifest.complete:
        raise PoolscopeError(f"{folder}: the store is not finished. Finish it with the command that began it.")
    sizes = store.manifest.shard_sizes
    starts = tuple(span.start for span in spans(sizes))
    shared = {name: options.pop(name) for name in row.part_options() & options.keys()}
    job = PartJob(row.name, located(folder), layer, starts, shared)
    merge = resolve(row.merge or "")
    whole = merged(engine, job, range(len(sizes)), merge, progress, lambda shard, _: (sizes[shard],))
    return row.finished(whole, **options)


def socm_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    layer: int | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> SocmResult:
    """`socm` of a finished store (with another, `against`), its pairs on an engine; `options` are those of `socm`.

    Which pairs belong together is decided by the pairs alone, so that every engine gives the same bytes. The nearest
    texts of `neighbours` are searched by the process that asks.
    """
    clouds = open_clouds(folder, layer=layer)
    other = None if against is None else open_clouds(against, layer=layer)

    def in_parts(selection: PairSelection, wanted: TallyOptions) -> PairTally:
        pairs = selection.pairs if isinstance(selection, ListedPairs) else None
        places = located(folder), None if against is None else located(against)
        job, parts = PairsJob(*places, layer, wanted, pairs), range(selection.parts)
        each = max(1, selection.count // len(parts))
        tally: PairTally = merged(engine, job, parts, PairTally.merge, progress, lambda *_: (each,))
        return tally

    return measured_pairs(clouds, other, in_parts=in_parts, **options)


def worst_with(
    engine: Engine | str | None,
    folder: str | os.PathLike[str],
    k: int = 100,
    *,
    layer: int | None = None,
    progress: Callable[[int], None] | None = None,
    **formula: Any,
) -> WorstPairs:
    """`worst_pairs` of a finished store on an engine: blocks of texts are searched by workers."""
    clouds = open_clouds(folder, layer=layer)
    selection, chosen = AllPairs(clouds), SocmFormula(**formula)
    if not 1 <= (k := whole_number(k, "worst")) <= selection.count:
        raise InputError(f"worst: received k = {k}; allowed is 1 to {selection.count}, the number of pairs.")
    job, parts = WorstJob(located(folder), layer, chosen, k), range(selection.parts)
    each = max(1, selection.count // len(parts))
    largest, evaluated = merged(engine, job, parts, merge_worst, progress, lambda *_: (each,))
    return worst_result(clouds, chosen, largest, evaluated)


# -- parts that any process computes: each is told where the store lies and which pairs are its own -------------------


@dataclass(frozen=True)
class PairsJob:
    """Tallies parts of a selection of pairs of a store, or of one with another; `pairs` is a list of them, or None."""

    folder: str
    against: str | None
    layer: int | None
    wanted: TallyOptions
    pairs: NDArray[np.int64] | None = field(default=None, repr=False)

    def start(self) -> Callable[[int], PairTally]:
        """Open the stores; the reduced texts of a list are kept from part to part."""
        left = open_clouds(self.folder, layer=self.layer)
        right = left if self.against is None else open_clouds(self.against, layer=self.layer)
        selection = self._selection(left, right)
        eps = self.wanted.formula.eps
        return lambda part: tallied(selection, selection.part_distances(part, eps=eps), self.wanted)

    def _selection(self, left: TokenClouds, right: TokenClouds) -> PairSelection:
        if self.pairs is None:
            return AllPairs(left, None if left is right else right)
        caches = reduced_caches(left, right, published=bool(self.wanted.formula.eps))
        return ListedPairs(left, right, self.pairs, "", caches)


@dataclass(frozen=True)
class WorstJob:
    """Searches the worst pairs of one block of texts of a store with another; parts are numbered as `AllPairs` does."""

    folder: str
    layer: int | None
    formula: SocmFormula
    top: int

    def start(self) -> Callable[[int], tuple[Largest, int]]:
        """Open the store."""
        clouds = open_clouds(self.folder, layer=self.layer)
        rows, columns = np.triu_indices(-(-len(clouds) // TILE_TEXTS))
        return lambda part: self._searched(clouds, int(rows[part]) * TILE_TEXTS, int(columns[part]) * TILE_TEXTS)

    def _searched(self, clouds: TokenClouds, row: int, column: int) -> tuple[Largest, int]:
        left = clouds[row : row + TILE_TEXTS]
        right = left if row == column else clouds[column : column + TILE_TEXTS]
        if left is right and len(left) < 2:
            return Largest(self.top), 0
        search = WorstSearch(left, right, self.formula, self.top, lambda settled: None)
        search.run()
        i, j, *distances = search.largest.columns
        largest = Largest(self.top)
        largest.add(search.largest.values, i + row, j + column, *distances)
        return largest, search.evaluated


def merge_worst(first: tuple[Largest, int], second: tuple[Largest, int]) -> tuple[Largest, int]:
    """The worst pairs of both, and how many were evaluated."""
    largest, evaluated = first
    if second[0].columns:
        largest.add(second[0].values, *second[0].columns)
    return largest, evaluated + second[1]


# Metrics of a store that are cut otherwise than text by text.
_OWN: dict[str, Callable[..., Result]] = {"socm": socm_with, "tokens": tokens_with}
