"""Encoding a corpus into a store, shard by shard, so that a run that dies loses one shard and no more.

The places where the texts are cut into shards depend on the texts and the model alone and are written down
first. A shard is encoded by one call of the encoder, so a resumed run makes the calls that the first run would
have made, and the files come out byte for byte the same.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from poolscope import __version__
from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder, check_layers
from poolscope.errors import InputError, ModelError, StoreError
from poolscope.files import atomic_path, finish_replacing, is_replacing, replace_files
from poolscope.interrupts import keeping
from poolscope.locks import folder_lock, writing
from poolscope.stores.store import LABELS, MANIFEST, POOLED, SHARDS, Manifest, Store, is_store, labels_digest
from poolscope.texts import Texts

SHARD_TEXTS = 4096
SHARD_BYTES = 256 * 2**20  # of vectors, all layers together: what one run holds in memory, and loses if killed
NEXT = ".next"  # the folder in which a store is made that will replace the one around it
_USUAL_DIMENSION = 1024  # taken for functions, which show theirs only when they are called


def encode_to_store(
    encoder: TokenEncoder,
    texts: Texts,
    folder: str | os.PathLike[str],
    *,
    options: EncoderOptions | None = None,
    layers: Sequence[int] | None = None,
    shard_texts: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Store:
    """Encode the texts into a store, going on where an earlier run of the same call stopped.

    A finished store of the same model, options, layers and texts is returned as it is, without encoding; one
    of others is refused with the differences, or replaced if `overwrite`: in one step, when the new one is whole, and
    until then the old one stands. `shard_texts` is the largest number
    of texts in a shard (4,096; fewer where the texts are long, to bound memory). `progress` is called first
    with the texts that are stored already and 0 tokens, then after every batch.
    """
    target = Path(folder)
    wanted = describe(encoder.card, texts, options=options, layers=layers, shard_texts=shard_texts)
    stored = _matching(target, wanted, explicit_shards=shard_texts is not None, overwrite=overwrite)
    if stored is not None and stored.complete and not is_replacing(target):
        store = Store(target, stored)
        # only reading: this works on a store that nobody may write, and needs no lock
        if store.has_labels(texts.labels) and not _absent(store, texts.ids):
            return replace(store, reused=len(store))
    with folder_lock(target):
        with writing(target):
            finish_replacing(target)
        # read again: another process may have written between the first look and the lock
        stored = _matching(target, wanted, explicit_shards=shard_texts is not None, overwrite=overwrite)
        if stored is None and any(target.glob(SHARDS)):
            return _exchanged(target, wanted, encoder, texts, progress=progress)
        with writing(target):
            shutil.rmtree(target / NEXT, ignore_errors=True)  # of a replacement that was given up
            store = _begin(target, stored or wanted, texts, begins=stored is None)
        return _fill(store, encoder, texts, progress=progress)


def describe(
    card: ModelCard,
    texts: Texts,
    *,
    options: EncoderOptions | None = None,
    layers: Sequence[int] | None = None,
    shard_texts: int | None = None,
) -> Manifest:
    """The manifest of the store that these choices ask for, with the places where the texts are cut."""
    if not len(texts):
        raise InputError(f"{texts.source}: received no texts; at least one is needed.")
    check_layers(layers, card.layers, name=card.name)
    if layers is not None and len(set(layers)) < len(layers):
        raise InputError(f"layers: received {list(layers)}; name each layer once.")
    if shard_texts is not None and shard_texts < 1:
        raise InputError(f"shard_texts: received {shard_texts}; a shard holds at least one text.")
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
    }
    return Manifest(**json.loads(json.dumps(values)))  # as it will be read back: tuples are lists


def shard_sizes(
    texts: Iterable[str], *, shard_texts: int, token_bytes: int, max_length: int | None = None
) -> list[int]:
    """Cut texts, in order, into runs of at most `shard_texts` and of about `SHARD_BYTES` of vectors.

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
        if sizes[-1] and (sizes[-1] == shard_texts or filled + size > SHARD_BYTES):
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
    differences = stored.differences(wanted)
    if explicit_shards and stored.shard_texts != wanted.shard_texts:
        differences.append(f"texts in a shard: {stored.shard_texts} in the store, {wanted.shard_texts} asked for")
    if not differences:
        return stored
    if overwrite or not any(folder.glob(SHARDS)):  # nothing is stored yet: nothing can be lost
        return None
    raise StoreError(
        f"{folder}: holds clouds of other choices than those asked for:\n  "
        + "\n  ".join(differences)
        + "\nChoose another folder, ask for the same, or replace the store with --overwrite (overwrite=True)."
    )


def _refuse_foreign(folder: Path) -> None:
    """Stop before writing among other people's files. Hidden files may be left over from a killed run."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder}: a file, and a store is a folder. Choose another name.")
    with writing(folder):
        entries = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    others = [name for name in entries if not name.startswith(".")]
    if others:
        raise StoreError(
            f"{folder}: not a cloud store and not empty (it holds {others[0]!r}). Choose a new or empty folder."
        )


def _exchanged(
    folder: Path, wanted: Manifest, encoder: TokenEncoder, texts: Texts, *, progress: Progress | None
) -> Store:
    """Another store in the place of the one that is there, which stands until the other is whole.

    It is made in a hidden folder inside, where a run that was stopped goes on too.
    """
    beside = folder / NEXT
    stored = Manifest.read(beside) if is_store(beside) else None
    if stored is not None and (stored.differences(wanted) or stored.shard_texts != wanted.shard_texts):
        stored = None
    with writing(folder):
        if stored is None:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir()
        store = _begin(beside, stored or wanted, texts, begins=stored is None)
    filled = _fill(store, encoder, texts, progress=progress)
    with writing(folder, kept="All texts are stored. "):
        replace_files(folder, beside, stale=(MANIFEST, LABELS, SHARDS))
        for emptied in folder.glob("layer-*"):
            if emptied.is_dir() and not any(emptied.iterdir()):
                emptied.rmdir()
    return replace(filled, folder=folder)


def _begin(folder: Path, manifest: Manifest, texts: Texts, *, begins: bool) -> Store:
    """A store ready to be filled: left-overs of killed writers removed, manifest and labels in place."""
    for name in (f".{MANIFEST}", f".{LABELS}", "layer-*/.shard-*"):
        for leftover in folder.glob(f"{name}.*.tmp"):
            leftover.unlink()
    if begins:
        (folder / LABELS).unlink(missing_ok=True)
        manifest.write(folder)
    store = Store(folder, manifest)
    if not store.has_labels(texts.labels):
        from pyarrow import parquet

        with atomic_path(folder / LABELS) as temporary:
            parquet.write_table(pa.table({"id": texts.ids, "label": texts.labels}), temporary)
    return store


def _absent(store: Store, ids: Sequence[str]) -> list[int]:
    """The shards that are missing or damaged."""
    parts = spans(store.manifest.shard_sizes)
    return [shard for shard, span in enumerate(parts) if not store.is_whole(shard, ids[span])]


def _kept(store: Store, done: int) -> str:
    """What is kept of a store whose filling is interrupted."""
    beside = store.folder.name == NEXT
    folder = store.folder.parent if beside else store.folder
    before = " The store before it stands until the new one is whole." if beside else ""
    return (
        f"{done:,} of {len(store):,} texts are stored in {folder}: the same command goes on from there "
        f"(texts are stored {max(store.manifest.shard_sizes):,} at a time).{before}"
    )


def _fill(store: Store, encoder: TokenEncoder, texts: Texts, *, progress: Progress | None) -> Store:
    """Encode what is absent, then mark the store as complete."""
    manifest, parts = store.manifest, spans(store.manifest.shard_sizes)
    absent = _absent(store, texts.ids)
    done = reused = len(store) - sum(manifest.shard_sizes[shard] for shard in absent)
    damaged = [shard for shard in absent if store.is_damaged(shard, texts.ids[parts[shard]])]
    if progress is not None and done:
        progress(done, 0)
    with keeping(lambda: _kept(store, done)):
        for shard in absent:
            encoded = encode_shard(encoder, texts[parts[shard]], layers=manifest.layers, progress=progress)
            with writing(store.folder, kept=f"{done:,} of {len(store):,} texts are stored and stay so. "):
                for layer in manifest.keys:
                    encoded[layer].save(store.shard_path(layer, shard))
            done += manifest.shard_sizes[shard]
    finished = replace(manifest, complete=True)
    if finished != manifest:
        with writing(store.folder, kept="All texts are stored. "):
            finished.write(store.folder)
    return Store(store.folder, finished, reused=reused, damaged=len(damaged))
