"""What is done with shards, by whichever engine: a store is written, a store is measured, texts become numbers.

Each kind of work has a function that opens what it needs, wherever it runs, and gives the function of a shard: bound to
its arguments (`partial`) it is the `Job` that travels.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.clouds.vectors import Vectors
from poolscope.connect.engines.base import LocalEngine
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.capabilities import EncoderSpec, spec_of
from poolscope.engines import Engine, as_engine, merged
from poolscope.errors import InputError, ModelError, PoolscopeError, StoreError, did_you_mean, shorten, whole_number
from poolscope.extensions import load_extensions, resolve
from poolscope.metrics.base import METRICS, Metric
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
from poolscope.stores.cache import cache_folder
from poolscope.stores.remote import located, share_texts, shared_texts
from poolscope.stores.store import Store, condensed, open_clouds
from poolscope.stores.writer import (
    absent_shards,
    begin_store,
    check_vectors,
    describe,
    encode_to_store,
    finish_store,
    spans,
    write_shard,
)
from poolscope.texts import Texts
from poolscope.texts.spooled import open_spooled, save_spooled

_SHOWN = 5  # texts that could not be encoded, in a message


@dataclass(frozen=True)
class Encoded:
    """What became of a shard: how many texts and tokens, and the texts that the encoder refused, with the reason."""

    texts: int = 0
    tokens: int = 0
    failed: tuple[tuple[str, str], ...] = ()


def _encoding(spec: Mapping[str, Any], folder: str) -> Callable[[int], Encoded]:
    """Encodes shards of a store whose plan is written; the encoder is opened from its specification."""
    encoder = EncoderSpec.from_dict(spec).open()
    texts, store = shared_texts(folder), Store.open(folder)
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
    check_vectors(encoder, keep)
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
    for _, outcome in engine.run(partial(_encoding, spec, target), absent):
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


def _measuring(name: str, folder: str, layer: int | None, options: Mapping[str, Any]) -> Callable[[int], Any]:
    """Computes the part of a metric from each shard of a finished store."""
    load_extensions()
    metric, store = METRICS[name], Store.open(folder)
    pooled, cuts = metric.needs == "vectors", spans(store.manifest.shard_sizes)
    return lambda shard: metric.part_of(store.shard(shard, layer, pooled=pooled), cuts[shard].start, **options)


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
        raise InputError(
            f"metric: received {metric!r}; allowed: {', '.join(METRICS)}, or a Metric. Try 'socm'."
            f"{did_you_mean(metric, METRICS)}"
        )
    if layer is not None:
        layer = whole_number(layer, "layer", least=-(2**31))
    engine = as_engine(engine)
    if (own := socm_with if row.name == "socm" else row.on_engine) is not None:  # cut otherwise than text by text
        result: Result = resolve(own)(engine, folder, layer=layer, progress=progress, **options)
        return result
    row.require_parts()
    store = Store.open(folder)
    if not store.manifest.complete:
        raise PoolscopeError(f"{folder}: the store is not finished. Finish it with the command that began it.")
    sizes = store.manifest.shard_sizes
    shared = {name: options.pop(name) for name in row.part_options() & options.keys()}
    job = partial(_measuring, row.name, located(folder), layer, shared)
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
        job, parts = partial(_tallying, *places, layer, wanted, pairs), range(selection.parts)
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
    job, parts = partial(_searching, located(folder), layer, chosen, k), range(selection.parts)
    each = max(1, selection.count // len(parts))
    largest, evaluated = merged(engine, job, parts, _merge_worst, progress, lambda *_: (each,))
    return worst_result(clouds, chosen, largest, evaluated)


def _tallying(
    folder: str, against: str | None, layer: int | None, wanted: TallyOptions, pairs: NDArray[np.int64] | None
) -> Callable[[int], PairTally]:
    """Tallies parts of a selection of pairs of a store, or of one with another; `pairs` is a list of them, or None.

    The reduced texts of a list are kept from part to part.
    """
    left = open_clouds(folder, layer=layer)
    right = left if against is None else open_clouds(against, layer=layer)
    eps = wanted.formula.eps
    selection: PairSelection
    if pairs is None:
        selection = AllPairs(left, None if left is right else right)
    else:
        selection = ListedPairs(left, right, pairs, "", reduced_caches(left, right, published=bool(eps)))
    return lambda part: tallied(selection, selection.part_distances(part, eps=eps), wanted)


def _searching(folder: str, layer: int | None, formula: SocmFormula, top: int) -> Callable[[int], tuple[Largest, int]]:
    """Searches the worst pairs of one block of texts of a store with another; parts are numbered as `AllPairs` does."""
    clouds = open_clouds(folder, layer=layer)
    rows, columns = TILE_TEXTS * np.stack(np.triu_indices(-(-len(clouds) // TILE_TEXTS)))

    def searched(part: int) -> tuple[Largest, int]:
        row, column = int(rows[part]), int(columns[part])
        left = clouds[row : row + TILE_TEXTS]
        right = left if row == column else clouds[column : column + TILE_TEXTS]
        largest = Largest(top)
        if left is right and len(left) < 2:
            return largest, 0
        search = WorstSearch(left, right, formula, top, lambda settled: None)
        search.run()
        i, j, *distances = search.largest.columns
        largest.add(search.largest.values, i + row, j + column, *distances)
        return largest, search.evaluated

    return searched


def _merge_worst(first: tuple[Largest, int], second: tuple[Largest, int]) -> tuple[Largest, int]:
    """The worst pairs of both, and how many were evaluated."""
    largest, evaluated = first
    if second[0].columns:
        largest.add(second[0].values, *second[0].columns)
    return largest, evaluated + second[1]


# -- what encodes texts and keeps numbers only: a worker opens the encoder and takes runs of the texts ----------------


def over_texts(
    engine: Engine | str | None,
    measure: Callable[[TokenEncoder, Texts], Any],
    merge: Callable[[Any, Any], Any],
    encoder: TokenEncoder,
    texts: Texts,
    progress: Progress | None,
) -> Any:
    """What a function of an encoder and texts gives for runs of the texts, merged in order.

    The texts lie in a file in the cache folder while it runs; on several machines that must be one that all see
    (POOLSCOPE_CACHE).
    """
    cuts = spans(describe(encoder.card, texts).shard_sizes)
    sizes = [cut.stop - cut.start for cut in cuts]
    home = cache_folder()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".texts-", dir=home) as folder:
        save_spooled(texts, folder)
        job = partial(_reading, measure, spec_of(encoder).to_dict(), str(Path(folder).absolute()), cuts)
        return merged(
            engine,
            job,
            range(len(cuts)),
            merge,
            progress,
            lambda shard, outcome: (sizes[shard], getattr(outcome, "tokens", sizes[shard])),
        )


def _reading(
    measure: Callable[[TokenEncoder, Texts], Any], spec: Mapping[str, Any], folder: str, cuts: Sequence[slice]
) -> Callable[[int], Any]:
    encoder, texts = EncoderSpec.from_dict(spec).open(), open_spooled(folder)
    return lambda shard: measure(encoder, texts[cuts[shard]])
