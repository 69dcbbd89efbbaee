"""Beginning, finishing and finding stores in an object store; shards are written and read as everywhere."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa

from poolscope.errors import StoreError
from poolscope.files import atomic_path
from poolscope.stores.remote import Remote, is_remote, located, open_remote
from poolscope.stores.store import LABELS, MANIFEST, SHARDS, Manifest, Store
from poolscope.texts import Texts
from poolscope.texts.spooled import ABOUT, TEXTS, open_spooled, save_spooled

SPOOL = (TEXTS, ABOUT)


def read_remote(remote: Remote) -> Manifest:
    """The manifest of a store in an object store, as it is there now; a mirror of another store is emptied."""
    mirrored = remote.mirror / MANIFEST
    before = mirrored.read_bytes() if mirrored.exists() else b""
    with suppress(FileNotFoundError):
        remote.fetch(MANIFEST, anew=True)
        manifest = Manifest.read(remote.mirror)
        if before and before != mirrored.read_bytes() and _other(before, manifest):
            for path in [*remote.mirror.glob(LABELS), *(p for shards in SHARDS for p in remote.mirror.glob(shards))]:
                path.unlink(missing_ok=True)
        return manifest
    raise StoreError(
        f"{remote.address}: not a cloud store, it has no {MANIFEST}. Write one with "
        f"`poolscope encode MODEL TEXTS -o {remote.address}`."
    )


def _other(before: bytes, manifest: Manifest) -> bool:
    """Whether an earlier manifest in the mirror was of other clouds, or cut otherwise."""
    try:
        content, now = json.loads(before), json.loads(json.dumps(asdict(manifest)))
        return any(
            content[name] != now[name] for name in ("model", "options", "layers", "texts", "shard_sizes", "keep")
        )
    except (ValueError, KeyError, TypeError):
        return True


def fetched(place: str | os.PathLike[str]) -> Path:
    """A copy on this machine of everything that a store in an object store holds now."""
    remote = open_remote(located(place))
    read_remote(remote)
    for name in remote.names(anew=True):
        remote.fetch(name, anew=True)
    return remote.mirror


def begin_remote(remote: Remote, wanted: Manifest, texts: Texts, *, explicit_shards: bool) -> Store:
    """The same in an object store. It has no locks and needs none: every writer puts the same bytes there."""
    try:
        stored = read_remote(remote)
    except StoreError:
        if remote.names(anew=True):
            raise
        stored = None
    if stored is not None:
        if differences := stored.differences(wanted, shards=explicit_shards):
            raise StoreError(
                f"{remote.address}: holds clouds of other choices than those asked for:\n  "
                + "\n  ".join(differences)
                + "\nChoose another place, or remove it: an object store is not replaced in one step."
            )
        store = Store(remote.mirror, stored, remote=remote)
        there = all(store.is_there(shard) for shard in range(len(stored.shard_sizes)))
        return replace(store, reused=len(store)) if stored.complete and there else store
    shutil.rmtree(remote.mirror, ignore_errors=True)  # of a store that was there before
    remote.mirror.mkdir(parents=True)
    if texts.labels is not None:
        write_labels(remote.mirror, texts)
        remote.send(remote.mirror / LABELS)
    wanted.write(remote.mirror)
    remote.send(remote.mirror / MANIFEST, keep=True)
    return Store(remote.mirror, wanted, remote=remote)


def finish_remote(store: Store, remote: Remote) -> Store:
    """The store, marked as complete if every shard is there."""
    if not all(store.is_there(shard) for shard in range(len(store.manifest.shard_sizes))):
        return store
    finished = replace(store.manifest, complete=True)
    finished.write(store.folder)
    remote.send(store.folder / MANIFEST, keep=True)
    for name in SPOOL:
        if name in remote.names():
            remote.remove(name)
        (store.folder / name).unlink(missing_ok=True)
    return replace(store, manifest=finished)


def share_texts(texts: Texts, folder: str | os.PathLike[str]) -> None:
    """Put the texts where every writer of a store finds them (`shared_texts`) until it is finished."""
    if not is_remote(folder):
        save_spooled(texts, folder)
        return
    remote = open_remote(located(folder))
    save_spooled(texts, remote.mirror)
    for name in SPOOL:
        remote.send(remote.mirror / name, keep=True)


def shared_texts(folder: str | os.PathLike[str]) -> Texts:
    """The texts that `share_texts` put there."""
    if not is_remote(folder):
        return open_spooled(folder)
    remote = open_remote(located(folder))
    for name in SPOOL:
        remote.fetch(name)
    return open_spooled(remote.mirror)


def write_labels(folder: Path, texts: Texts) -> None:
    """Write the labels of the texts of a store."""
    from pyarrow import parquet

    with atomic_path(folder / LABELS) as temporary:
        parquet.write_table(pa.table({"id": texts.ids, "label": texts.labels}), temporary)
