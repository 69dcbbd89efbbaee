"""Encoding a corpus into a store, shard by shard, so that a run that dies loses one shard and no more.

The places where the texts are cut into shards depend on the texts and the model alone and are written down
first. A shard is encoded by one call of the encoder, so a resumed run makes the calls that the first run would
have made, and the files come out byte for byte the same. So do those of several writers: `begin_store` writes the plan,
`write_shard` one shard, whoever calls it, and `finish_store` marks what is complete; only the first and the last lock.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope import __version__
from poolscope.clouds import TokenClouds
from poolscope.clouds.vectors import write_vectors
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder, check_layers
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import InputError, ModelError, StoreError, did_you_mean, whole_number
from poolscope.files import keeping, writing
from poolscope.folder import LOCK, Folder, StoreBusyError
from poolscope.numbers.streaming import marks_of
from poolscope.replacing import finish_replacing, is_replacing, replace_files
from poolscope.stores.remote import SPOOL, Remote, is_remote, located, open_remote
from poolscope.stores.store import (
    KEEP,
    LABELS,
    MANIFEST,
    POOLED,
    SHARDS,
    Manifest,
    Store,
    clouds_name,
    condensed,
    is_store,
    labels_digest,
    read_remote,
    vectors_name,
)
from poolscope.texts import Texts, read_texts
from poolscope.texts.plain import is_packed
from poolscope.texts.sources import STREAM, exists, table_files
from poolscope.texts.spooled import TEXTS as SPOOLED
from poolscope.texts.spooled import remove_spooled, spool_texts

SHARD_TEXTS = 4096
SHARD_BYTES = 256 * 2**20  # of vectors, all layers together: what one run holds in memory, and loses if killed
_WAIT = 600.0  # seconds for another process to begin or to finish a store, which it does in a moment
_MOMENT = 2.0  # the same where nobody said that there are others
_PAUSE = 0.5  # seconds between two looks at what other processes are writing
NEXT = ".next"  # the folder in which a store is made that will replace the one around it
_CLAIM = ".shard-{:05d}.lock"  # held while a process writes a shard, so that no two encode the same texts
_USUAL_DIMENSION = 1024  # taken for functions, which show theirs only when they are called


def encode_to_store(
    encoder: TokenEncoder,
    texts: Texts,
    folder: str | os.PathLike[str],
    *,
    part: tuple[int, int] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **choices: Any,
) -> Store:
    """Encode the texts into a store, going on where an earlier run of the same call stopped.

    A finished store of the same model, options, layers and texts is returned as it is, without encoding; one
    of others is refused with the differences, or replaced if `overwrite`: in one step, when the new one is whole, and
    until then the old one stands. The `choices` are those of `describe`. `progress` is called first with the texts that
    are stored already and 0 tokens, then after every batch.

    `part` (k, n) does the k-th of n parts of the shards, counted from 1, so that n processes or machines write one
    store; the one that comes last finishes it. Several that do the same part, or all, share the shards out among them.
    """
    check_vectors(encoder, choices.get("keep", "tokens"))
    wait = _MOMENT if part is None else _WAIT
    begun = begin_store(encoder.card, texts, folder, overwrite=overwrite, wait=wait, **choices)
    if begun.reused == len(begun):
        return begun
    with keeping(lambda: _stored_so_far(begun)):
        filled = _fill(begun, encoder, texts, part=part, progress=progress)
    return replace(finish_store(filled), reused=filled.reused, damaged=filled.damaged)


def begin_store(
    card: ModelCard,
    texts: Texts,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    wait: float = 0.0,
    **choices: Any,
) -> Store:
    """The store that these choices ask for, ready to be written: its manifest, with the shards, and its labels.

    Under a lock, for which it waits `wait` seconds; the shards are then written without. Where the store is finished
    already, `reused` is the number of its texts. One that will replace another is made in a hidden folder inside it, to
    which `finish_store` gives its place.
    """
    wanted, explicit = describe(card, texts, **choices), choices.get("shard_texts") is not None
    if is_remote(folder):
        return begin_remote(open_remote(located(folder)), wanted, texts, explicit_shards=explicit)
    target = Path(folder)
    stored = _matching(target, wanted, explicit_shards=explicit, overwrite=overwrite)
    if stored is not None and stored.complete and not is_replacing(target):
        store = Store(target, stored)
        # only reading: this works on a store that nobody may write, and needs no lock
        if store.has_labels(texts.labels) and not absent_shards(store, texts.ids):
            return replace(store, reused=len(store))
    with store_lock(target, wait=wait) as opened, writing(target):
        finish_replacing(opened)
        # read again: another process may have written between the first look and the lock
        stored = _matching(target, wanted, explicit_shards=explicit, overwrite=overwrite)
        if stored is None and any(_shard_files(target)):
            return _begin_beside(opened, wanted, texts)
        _remove_given_up(opened)
        return _begin(opened, stored or wanted, texts, begins=stored is None)


def write_shard(
    store: Store, encoder: TokenEncoder, texts: Texts, shard: int, *, progress: Progress | None = None
) -> None:
    """Encode the texts of one shard (`texts` are these alone) and put their files in place, each whole or not at all.

    Any process or machine may write any shard at any time: equal texts and encoders give equal bytes.
    """
    manifest, last = store.manifest, check_vectors(encoder, store.manifest.keep)
    # No module stands behind the layers before the last.
    others = None if last is None else TextPooling(replace(encoder.card, after=()))
    encoded = encode_shard(encoder, texts, layers=manifest.layers, progress=progress)
    safe = f"{store.stored():,} of {len(store):,} texts are stored and stay so. "
    with writing(store.folder, safe=safe), open_folder(store.folder) as folder:
        for layer in manifest.keys:
            drawn = range(len(texts)) if manifest.keep == "tokens" else store.sampled(texts.ids)
            if drawn:
                with folder.file(clouds_name(layer, shard)) as stream:
                    (encoded[layer] if manifest.keep == "tokens" else encoded[layer].select(drawn)).write(stream)
            if manifest.keep != "tokens":
                pooling = last if layer in (POOLED, encoder.card.last) else others
                vectors = condensed(encoded[layer], manifest.keep, pooling)
                with folder.file(vectors_name(layer, shard)) as stream:
                    write_vectors(vectors, stream)
        if store.remote is not None:
            # that of the vectors comes last: where it is there, the tokens of its draw are, too
            for path in sorted(store.files_of(shard, texts.ids)):
                store.remote.send(path)


def check_vectors(encoder: TokenEncoder, keep: str) -> TextPooling | None:
    """What makes the vectors that are kept, None where none are; refused where the model's own cannot be computed."""
    if keep != "vectors":
        return None
    pooling = TextPooling.of(encoder)
    if pooling.own is False:
        raise ModelError(
            f"{encoder.card.name}: received keep = 'vectors', and the model's own vectors cannot be computed here (it "
            f"declares {', then '.join([' + '.join(encoder.card.pooling), *pooling.modules])}). Keep tokens or moments."
        )
    return pooling


def finish_store(store: Store) -> Store:
    """The store, marked as complete if every shard is there; otherwise as it is, for other writers to go on.

    One that replaces another is then put in its place.
    """
    if store.remote is not None:
        with open_folder(store.folder) as mirror:
            _remove_claims(mirror)
        return finish_remote(store, store.remote)
    if store.folder.name != NEXT:
        return _marked(store)
    folder = store.folder.parent
    with store_lock(folder, wait=_WAIT) as opened, writing(folder, safe="All texts are stored. "):
        if is_store(store.folder):  # no other process was faster
            store = _marked(store)
            if not store.manifest.complete:
                return store
            replace_files(opened, NEXT, stale=(MANIFEST, LABELS, *SHARDS))
            for emptied in [*opened.match("layer-*"), *opened.match("moments-*")]:
                opened.remove_empty(emptied)
            remove_spooled(opened)
    return Store.open(folder)


def _marked(store: Store) -> Store:
    if not store.is_filled():
        return store
    with store_lock(store.folder, wait=_WAIT) as opened, writing(store.folder, safe="All texts are stored. "):
        _remove_claims(opened)
        remove_spooled(opened)
        finished = replace(Manifest.read(store.folder), complete=True)
        if finished != Manifest.read(store.folder):
            finished.write(opened)
    return Store(store.folder, finished)


def describe(
    card: ModelCard,
    texts: Texts,
    *,
    options: EncoderOptions | None = None,
    layers: Sequence[int] | None = None,
    shard_texts: int | None = None,
    keep: str = "tokens",
    keep_tokens: int = 0,
) -> Manifest:
    """The manifest of the store that these choices ask for, with the places where the texts are cut.

    `shard_texts` is the largest number of texts in a shard (4,096; fewer where the texts are long, to bound memory).
    `keep`: "tokens", or one vector a text: "moments" (the mean of the tokens and their spread) or "vectors" (as the
    model pools); then the tokens of `keep_tokens` texts are kept too, drawn by their ids.
    """
    if not len(texts):
        raise InputError(f"{texts.source}: received no texts; at least one is needed.")
    check_layers(layers, card.layers, name=card.name)
    if layers is not None and len(set(layers)) < len(layers):
        raise InputError(f"layers: received {list(layers)}; name each layer once.")
    if shard_texts is not None:
        shard_texts = whole_number(shard_texts, "shard_texts")
    _check_keep(keep, keep_tokens)
    choices = options or EncoderOptions()
    values = {
        "model": card.to_dict(),
        "options": choices.content(),
        "layers": None if layers is None else [int(layer) for layer in layers],
        "texts": {**texts.origin(), "labels": None if texts.labels is None else labels_digest(texts.labels)},
        "shard_texts": shard_texts or SHARD_TEXTS,
        "shard_sizes": shard_sizes(
            texts.texts,
            shard_texts=shard_texts or SHARD_TEXTS,
            token_bytes=4 * (card.dimension or _USUAL_DIMENSION) * (1 if layers is None else len(layers)),
            max_length=choices.max_length or card.max_length,
        ),
        "poolscope": __version__,
        "keep": keep,
        "sample": _sample(texts.ids, keep_tokens) if keep_tokens else None,
    }
    return Manifest(**json.loads(json.dumps(values)))  # as it will be read back: tuples are lists


def _check_keep(keep: str, keep_tokens: int) -> None:
    if keep not in KEEP:
        raise InputError(f"keep: received {keep!r}; allowed: {', '.join(KEEP)}.{did_you_mean(keep, KEEP)}")
    keep_tokens = whole_number(keep_tokens, "keep_tokens", least=0)
    if keep_tokens and keep == "tokens":
        raise InputError(
            f"keep_tokens: received {keep_tokens} with keep = {keep!r}; allowed: the number of texts whose tokens are "
            f"kept beside moments or vectors. Leave it out, or keep moments."
        )


def _sample(ids: Sequence[str], count: int) -> dict[str, int]:
    """The texts with the smallest marks: how many, and the largest mark among them."""
    marks = np.sort(marks_of(ids))
    return {"texts": min(count, len(marks)), "below": int(marks[min(count, len(marks)) - 1])}


def shard_sizes(
    texts: Iterable[str],
    *,
    shard_texts: int,
    token_bytes: int,
    max_length: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> list[int]:
    """Cut texts, in order, into runs of at most `shard_texts` and of about `shard_bytes` of vectors.

    The tokens of a text are taken as a third of its UTF-8 bytes and two special ones, which is on the high
    side for European scripts (four to five bytes a token) and about right for Chinese or Japanese (three).

    >>> shard_sizes(["a short text"] * 10, shard_texts=4, token_bytes=1536)
    [4, 4, 2]
    >>> shard_sizes(["long " * 30_000] * 3, shard_texts=4, token_bytes=4096)
    [1, 1, 1]
    """
    sizes, filled = [0], 0
    for text in texts:
        tokens = 2 + len(text.encode("utf-8", "surrogatepass")) // 3
        size = token_bytes * (tokens if max_length is None else min(tokens, max_length))
        if sizes[-1] and (sizes[-1] == shard_texts or filled + size > shard_bytes):
            sizes.append(0)
            filled = 0
        sizes[-1] += 1
        filled += size
    return sizes


def spans(sizes: Sequence[int]) -> list[slice]:
    """The texts of each shard."""
    ends = list(accumulate(sizes))
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def encode_shard(
    encoder: TokenEncoder, texts: Texts, *, layers: Sequence[int] | None, progress: Progress | None = None
) -> dict[int, TokenClouds]:
    """The clouds of the texts of one shard by layer, under their ids."""
    encoded = encoder.encode(texts.texts, layers=layers, progress=progress)
    counts = {layer: len(clouds) for layer, clouds in encoded.items()}
    expected = dict.fromkeys((POOLED,) if layers is None else layers, len(texts))
    if counts != expected:
        raise ModelError(
            f"{encoder.card.name}: returned {counts} clouds by layer where {expected} were asked for: one a text, "
            f"for each layer. Check the encoder's encode method."
        )
    return {layer: clouds.described(ids=texts.ids, texts=texts.texts) for layer, clouds in encoded.items()}


def _matching(folder: Path, wanted: Manifest, *, explicit_shards: bool, overwrite: bool) -> Manifest | None:
    """The manifest that is there if it is of the same choices; None if a new store shall be begun."""
    if not (folder / MANIFEST).exists():
        _refuse_foreign(folder)
        return None
    stored = Manifest.read(folder)  # a foreign manifest is refused even with overwrite: it is not ours to remove
    differences = stored.differences(wanted, shards=explicit_shards)
    if not differences:
        return stored
    if overwrite or not any(_shard_files(folder)):  # nothing is stored yet: nothing can be lost
        return None
    raise StoreError(
        f"{folder}: holds clouds of other choices than those asked for: {'; '.join(differences)}. Choose another "
        f"folder, ask for the same, or replace the store with --overwrite (overwrite=True)."
    )


def _shard_files(folder: Path) -> list[Path]:
    return [path for pattern in SHARDS for path in folder.glob(pattern)]


def _refuse_foreign(folder: Path) -> None:
    """Stop before writing among other people's files. Hidden files may be left over from a killed run."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(
            f"output: received {folder}, which is a file; a store is a folder. Use another name, such as store."
        )
    with writing(folder):
        entries = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    others = [name for name in entries if not name.startswith(".")]
    if others:
        raise StoreError(
            f"{folder}: not a cloud store and not empty (it holds {others[0]!r}). Choose a new or empty folder."
        )


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """The folder of a store, open to write; that of a replacement is reached through the store around it."""
    if path.name != NEXT:
        with Folder.open(path) as folder:
            yield folder
    else:
        with Folder.open(path.parent) as around, around.folder(NEXT) as folder:
            yield folder


@contextmanager
def store_lock(path: Path, name: str = LOCK, *, wait: float = 0.0) -> Iterator[Folder]:
    """The folder of a store, open, with its lock or that of a part of it (`Folder.lock`)."""
    with ExitStack() as opened:
        with writing(path):
            folder = opened.enter_context(open_folder(path))
            opened.enter_context(folder.lock(name, wait=wait))
        yield folder


def _begin_beside(around: Folder, wanted: Manifest, texts: Texts) -> Store:
    """A store that will replace the one around it; a run of the same choices that was stopped there goes on."""
    beside = around.path / NEXT
    own = around.kind(NEXT) == "folder"
    stored = Manifest.read(beside) if own and is_store(beside) else None
    if stored is not None and stored.differences(wanted, shards=True):
        stored = None
    if stored is None:
        around.remove(NEXT)
    with around.folder(NEXT) as folder:
        return _begin(folder, stored or wanted, texts, begins=stored is None)


def _remove_given_up(around: Folder) -> None:
    """Remove a replacement that nobody is writing."""
    if around.kind(NEXT) == "folder":
        with suppress(StoreBusyError), around.folder(NEXT, make=False) as beside:
            _remove_claims(beside, busy_too=False)
            around.remove(NEXT)


def _begin(folder: Folder, manifest: Manifest, texts: Texts, *, begins: bool) -> Store:
    """A store ready to be filled: left-overs of killed writers removed, manifest and labels in place."""
    for name in (f".{MANIFEST}", f".{LABELS}", "layer-*/.shard-*", "moments-*/.shard-*"):
        folder.remove_leftovers(name)  # of dead processes: others may be writing shards
    if begins:
        folder.remove(LABELS)
        manifest.write(folder)
    store = Store(folder.path, manifest)
    if not store.has_labels(texts.labels):
        write_labels(folder, texts)
    return store


def absent_shards(store: Store, ids: Sequence[str]) -> list[int]:
    """The shards that are missing or damaged."""
    parts = spans(store.manifest.shard_sizes)
    return [shard for shard, span in enumerate(parts) if not store.is_whole(shard, ids[span])]


def _stored_so_far(store: Store) -> str:
    """What is kept of a store whose filling is interrupted."""
    beside = store.folder.name == NEXT
    folder = store.folder.parent if beside else store.place
    before = " The earlier store is kept until the new one is whole." if beside else ""
    return (
        f"{store.stored():,} of {len(store):,} texts are stored in {folder}: the same command goes on from there "
        f"(texts are stored {max(store.manifest.shard_sizes):,} at a time).{before}"
    )


def _fill(
    store: Store,
    encoder: TokenEncoder,
    texts: Texts,
    *,
    part: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Store:
    """Encode the absent shards of a part; wait for shards that another process writes, or take them over."""
    sizes, spans_of = store.manifest.shard_sizes, spans(store.manifest.shard_sizes)
    mine = shards_of_part(len(sizes), part)
    absent = [shard for shard in mine if not store.is_whole(shard, texts.ids[spans_of[shard]])]
    reused = sum(sizes[shard] for shard in mine) - sum(sizes[shard] for shard in absent)
    damaged = [shard for shard in absent if store.is_damaged(shard, texts.ids[spans_of[shard]])]
    repaired = len(damaged)
    if progress is not None and reused:
        progress(reused, 0)
    while absent:
        busy = []
        for shard in absent:
            own = texts[spans_of[shard]]
            if not is_store(store.folder):  # a replacement that another process has finished and put in its place
                return replace(store, reused=reused, damaged=repaired)
            try:
                with store_lock(store.folder, _CLAIM.format(shard)):
                    if shard in damaged or not store.is_whole(shard, own.ids):
                        write_shard(store, encoder, own, shard, progress=progress)
            except StoreBusyError:
                busy.append(shard)
        if busy and len(busy) == len(absent):
            time.sleep(_PAUSE)  # all that is left is in other hands; if they die, their locks are gone
        absent, damaged = busy, []
    return replace(store, reused=reused, damaged=repaired)


def shards_of_part(count: int, part: tuple[int, int] | None) -> list[int]:
    """The numbers of the shards of part k of n (from 1), every n-th one; None: all of them.

    >>> shards_of_part(5, (2, 3)), shards_of_part(3, None)
    ([1, 4], [0, 1, 2])
    """
    if part is None:
        return list(range(count))
    number, of = part
    if not 1 <= number <= of:
        raise InputError(f"part: received {number}/{of}; allowed: from 1/{of} to {of}/{of}, such as 3/16.")
    return list(range(number - 1, count, of))


def _remove_claims(folder: Folder, *, busy_too: bool = True) -> None:
    """Remove the lock files that killed writers of shards left behind; one in use is left, or else an error."""
    for name in folder.match(_CLAIM.replace("{:05d}", "*")):
        with suppress(StoreBusyError) if busy_too else nullcontext(), folder.lock(name):
            pass


# -- the same in an object store --------------------------------------------------------------------------------------


def begin_remote(remote: Remote, wanted: Manifest, texts: Texts, *, explicit_shards: bool) -> Store:
    """Begin a store in an object store, which needs no lock: every writer puts the same bytes there."""
    try:
        stored = read_remote(remote)
    except StoreError:
        if remote.names(anew=True):
            raise
        stored = None
    if stored is not None:
        if differences := stored.differences(wanted, shards=explicit_shards):
            raise StoreError(
                f"{remote.address}: holds clouds of other choices than those asked for: {'; '.join(differences)}. "
                f"Choose another place, or remove it: an object store is not replaced in one step."
            )
        store = Store(remote.mirror, stored, remote=remote)
        return replace(store, reused=len(store)) if stored.complete and store.is_filled() else store
    shutil.rmtree(remote.mirror, ignore_errors=True)  # of a store that was there before
    with Folder.open(remote.mirror) as mirror:
        if texts.labels is not None:
            write_labels(mirror, texts)
            remote.send(remote.mirror / LABELS)
        wanted.write(mirror)
        remote.send(remote.mirror / MANIFEST, keep=True)
    return Store(remote.mirror, wanted, remote=remote)


def finish_remote(store: Store, remote: Remote) -> Store:
    """The store, marked as complete if every shard is there."""
    if not store.is_filled():
        return store
    finished = replace(store.manifest, complete=True)
    with Folder.open(store.folder) as mirror:
        finished.write(mirror)
        remote.send(store.folder / MANIFEST, keep=True)
        for name in SPOOL:
            if name in remote.names():
                remote.remove(name)
            mirror.remove(name)
    return replace(store, manifest=finished)


def write_labels(folder: Folder, texts: Texts) -> None:
    """Write the labels of the texts of a store."""
    from pyarrow import parquet

    with folder.file(LABELS) as stream:
        parquet.write_table(pa.table({"id": texts.ids, "label": texts.labels}), stream)


# -- texts that do not fit into memory --------------------------------------------------------------------------------

LARGE = 32 * 2**20


def texts_for_store(source: object, folder: str | os.PathLike[str], *, large: int = LARGE, **columns: Any) -> Texts:
    """The texts of a source, read into memory or, where they are many, into a file in the folder of their store.

    Such a file is read once by whoever comes first, and the others open it. `remove_spooled` takes it away when the
    store is finished. large: bytes of files from which on they are many. columns: those of `read_texts`.
    """
    if not _is_large(source, large):
        return read_texts(source, **columns)
    target = open_remote(located(folder)).mirror if is_remote(folder) else Path(folder)
    if not is_remote(folder) and not (target / MANIFEST).exists():
        _refuse_foreign(target)
    with store_lock(target, f"{SPOOLED}.lock", wait=_WAIT), writing(target):
        return spool_texts(source, target, **columns)


def _is_large(source: object, large: int) -> bool:
    """Whether a source is a stream, or files of more bytes than that."""
    if not isinstance(source, str | os.PathLike):
        return False
    if source == "-" or str(source).startswith(STREAM):
        return True
    files = table_files(source) if not str(source).startswith(("builtin:", "hub:")) else None
    if files is None:
        files = [Path(source)] if exists(Path(source)) and Path(source).is_file() else []
    return sum(file.stat().st_size * (4 if is_packed(file) else 1) for file in files) > large
