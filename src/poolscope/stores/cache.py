"""The cache: stores that poolscope keeps for itself, so that no text is encoded twice by the same model.

An entry is a store named by the digest of its identity (model, options, layers, texts). Together the entries
may take 10 GB, or what POOLSCOPE_CACHE_GB says; beyond that, those that were used longest ago are removed.
An entry holds the texts, so that only its owner may read it. A cache must not stand in the way: where it cannot be
used, there is a warning and the work is done without.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.reports import unknown_notes
from poolscope.errors import InputError, StoreError
from poolscope.files import keep, user_cache_folder, writing
from poolscope.folder import Folder
from poolscope.stores.store import MANIFEST, POOLED, Manifest, Store
from poolscope.stores.writer import describe, encode_shard, encode_to_store, spans, store_lock
from poolscope.texts import Texts
from poolscope.words import logger, warn

_LOG = logger(__name__)
LIMIT_GB = 10.0
_ENTRY = re.compile("[0-9a-f]{40}")
_WAIT = 10.0  # seconds for another process to remove an entry


def cached_store(
    encoder: TokenEncoder,
    texts: Texts,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    write: Callable[..., Store] = encode_to_store,
    **choices: Any,
) -> Store | None:
    """The entry of these texts in the cache, written if it is not there; None where that cannot be, with a warning.

    `write` is what encodes, by default in this process; the choices are those of `describe`.
    """
    if encoder.card.revision is None:
        return None
    wanted = describe(encoder.card, texts, **choices)
    folder = (cache_folder() if cache_dir is None else Path(cache_dir)) / _name(wanted)
    limit = cache_limit()  # asked before the work is done, not after: it may be refused
    with ExitStack() as use:
        try:
            use.enter_context(in_use(folder))
            if not _is_usable(folder, wanted):
                use.close()
                warn(f"The cache was damaged ({folder}): all of its shards are encoded again.")
                _remove(folder)
                use.enter_context(in_use(folder))
            _keep_private(folder)
            store = write(encoder, texts, folder, progress=progress, **choices)
            if store.reused < len(store):
                _keep_private(folder)
            _note_use(store, limit)
        except StoreError as error:
            warn(f"The cache cannot be used and the texts are encoded in memory. {error}")
            return None
        weakref.finalize(store, use.pop_all().close)  # in use for as long as someone has it
    keep("cache", "Texts that were encoded are kept in the cache: the same command does not encode them again.")
    return store


@overload
def cached_clouds(encoder: TokenEncoder, texts: Texts, *, layers: None = None, **options: Any) -> TokenClouds: ...
@overload
def cached_clouds(
    encoder: TokenEncoder, texts: Texts, *, layers: Sequence[int], **options: Any
) -> dict[int, TokenClouds]: ...
def cached_clouds(
    encoder: TokenEncoder,
    texts: Texts,
    *,
    layers: Sequence[int] | None = None,
    options: EncoderOptions | None = None,
    shard_texts: int | None = None,
    enabled: bool = True,
    progress: Progress | None = None,
    **where: Any,
) -> TokenClouds | dict[int, TokenClouds]:
    """Clouds from the cache where they are in it, otherwise encoded and put there; by layer if `layers` is given.

    With the cache or without, the texts are encoded in the same pieces: the vectors agree to the last bit. A model
    without a revision is never cached, since nothing would tell when it changes. `where`: options of `cached_store`.
    """
    unlabelled = replace(texts, labels=None)  # labels change no cloud: they shall not cause a second encoding
    choices: dict[str, Any] = {"layers": layers, "options": options, "shard_texts": shard_texts}
    wanted = describe(encoder.card, unlabelled, **choices)
    clouds = None
    store = cached_store(encoder, unlabelled, progress=progress, **choices, **where) if enabled else None
    if store is not None:
        try:
            clouds = {layer: store.clouds(layer) for layer in wanted.keys}
            for note in unknown_notes(clouds[wanted.keys[0]]) if store.reused else ():
                _LOG.warning(note)  # what the encoder says when it encodes, and here did not
        except StoreError as error:
            warn(f"The cache cannot be used and the texts are encoded in memory. {error}")
    if clouds is None:
        clouds = _encode_in_memory(encoder, unlabelled, wanted, progress=progress)
    # Not what the entry says of its texts: the same ones may have come from another place before.
    clouds = {layer: part.described(provenance={"texts": texts.origin()}) for layer, part in clouds.items()}
    return clouds[POOLED] if layers is None else clouds


def _encode_in_memory(
    encoder: TokenEncoder, texts: Texts, wanted: Manifest, *, progress: Progress | None
) -> dict[int, TokenClouds]:
    # What can never be cached has no pieces to agree with, and ready arrays cannot be asked for a part.
    pieces = [slice(None)] if encoder.card.revision is None else spans(wanted.shard_sizes)
    parts = [encode_shard(encoder, texts[piece], layers=wanted.layers, progress=progress) for piece in pieces]
    return {layer: TokenClouds.concatenate([part[layer] for part in parts]) for layer in wanted.keys}


def cache_folder() -> Path:
    """Where the cache is: $POOLSCOPE_CACHE, or `clouds` in the user's cache folder for poolscope."""
    if chosen := os.environ.get("POOLSCOPE_CACHE"):
        return Path(chosen).expanduser()
    return user_cache_folder() / "clouds"


def cache_limit() -> int:
    """The size in bytes beyond which entries are removed: $POOLSCOPE_CACHE_GB × 10⁹."""
    setting = os.environ.get("POOLSCOPE_CACHE_GB", str(LIMIT_GB))
    try:
        limit = float(setting)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise InputError(f"POOLSCOPE_CACHE_GB: received {setting!r}; allowed: a number of gigabytes, such as 10.")
    return int(limit * 1e9)


def trim_cache(folder: Path, *, limit: int, keep: Path | None = None) -> list[Path]:
    """Remove the entries used longest ago until the rest fit into `limit` bytes; return what was removed.

    Only folders named like an entry are looked at, so a cache that shares its folder with other things takes
    none of them away. `keep` and entries that another process is writing, or another user owns, stay.
    """
    entries = sorted((_last_use(path), path) for path in folder.iterdir() if _ENTRY.fullmatch(path.name))
    sizes = {path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) for _, path in entries}
    total, removed = sum(sizes.values()), []
    for _, path in entries:
        if total <= limit:
            break
        if path != keep:
            with suppress(StoreError):
                _remove(path)
                total -= sizes[path]
                removed.append(path)
    return removed


def _note_use(store: Store, limit: int) -> None:
    """Mark the entry as used now, and make room among the others."""
    if store.damaged:
        warn(f"The cache was damaged ({store.folder}): {store.damaged} of its shards encoded again.")
    with suppress(OSError):  # a cache that may be read and not written
        os.utime(store.folder / MANIFEST)
        trim_cache(store.folder.parent, limit=limit, keep=store.folder)


def _keep_private(folder: Path) -> None:
    """Let nobody but the owner read an entry, which holds the texts: rights 700 for folders and 600 for files.

    Called before anything is in it, so that there is no moment at which others can read.
    """
    with suppress(OSError):  # what belongs to someone else, or cannot be written, is for the writer to say
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder.open(folder) as opened:
            opened.make_private()


def _name(manifest: Manifest) -> str:
    identity = json.dumps(manifest.identity(), sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:40]


def _is_usable(folder: Path, wanted: Manifest) -> bool:
    """Whether an entry can be filled or read: its manifest says what is wanted, or nothing is there yet.

    Shards are checked by the writer.
    """
    if not (folder / MANIFEST).exists() and not any(folder.glob("*/shard-*")):
        return True
    try:
        return not Manifest.read(folder).differences(wanted)
    except StoreError:
        return False


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Let no other process remove a folder of the cache; in a cache that nobody may write, nobody does."""
    with ExitStack() as locks:
        with suppress(OSError):
            home = locks.enter_context(Folder.open(folder.parent, through_link=True))
            locks.enter_context(home.shared_lock(use_of(folder), wait=_WAIT))
        yield


def use_of(folder: Path) -> str:
    """The name of the lock that says that a folder of the cache is in use."""
    return f".{folder.name}.used"


def _remove(folder: Path) -> None:
    """Remove an entry that no process fills or reads."""
    with (
        writing(folder),
        Folder.open(folder.parent, through_link=True) as home,
        home.lock(use_of(folder)),
        store_lock(folder),
    ):
        home.remove(folder.name)


def _last_use(folder: Path) -> float:
    path = folder / MANIFEST
    return (path if path.exists() else folder).stat().st_mtime
