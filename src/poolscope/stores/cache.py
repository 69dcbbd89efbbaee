"""The cache: stores that poolscope keeps for itself, so that no text is encoded twice by the same model.

An entry is a store named by the digest of its identity (model, options, layers, texts). Together the entries
may take 10 GB, or what POOLSCOPE_CACHE_GB says; beyond that, those that were used longest ago are removed.
An entry holds the texts, so that only its owner may read it. A cache must not stand in the way: where it cannot be
used, there is a warning and the work is done without.

Beside them stand the answers of a server to a run that was stopped, which goes on where it was. They are removed as
soon as all are there: a server has no revision, so nothing would tell when its model changes. Before a run goes on, one
text is asked again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.digests import digest_of
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.endpoint import VectorSource
from poolscope.encoders.http import EndpointError
from poolscope.encoders.reports import unknown_notes
from poolscope.errors import InputError, PoolscopeError, StoreError
from poolscope.files import atomic_file, keep, private_folder, refuse_special, user_cache_folder, writing
from poolscope.folder import Folder, StoreBusyError
from poolscope.stores.store import MANIFEST, POOLED, Manifest, Store
from poolscope.stores.writer import describe, encode_shard, encode_to_store, spans, store_lock
from poolscope.texts import Texts
from poolscope.words import logger, warn

Array = NDArray[np.float32]

_LOG = logger(__name__)
LIMIT_GB = 10.0
_ENTRY = re.compile("[0-9a-f]{40}")
# Answers that are older are asked again: nobody knows what a server runs the day after.
_OLDEST = 24 * 3600.0
_SAME = 1 - 1e-4
_WAIT = 10.0  # seconds for another process to remove an entry
_DIGEST = len(digest_of(b""))


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
            use.enter_context(_in_use(folder))
            if not _is_usable(folder, wanted):
                use.close()
                warn(f"The cache was damaged ({folder}): all of its shards are encoded again.")
                _remove(folder)
                use.enter_context(_in_use(folder))
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
def _in_use(folder: Path) -> Iterator[None]:
    """Let no other process remove the entry or the answers; in a cache that nobody may write, nobody does."""
    with ExitStack() as held:
        with suppress(OSError):
            home = held.enter_context(Folder.open(folder.parent, through_link=True))
            held.enter_context(home.shared_lock(_use_of(folder), wait=_WAIT))
        yield


def _use_of(folder: Path) -> str:
    return f".{folder.name}.used"


def _remove(folder: Path) -> None:
    """Remove an entry that no process fills or reads."""
    with (
        writing(folder),
        Folder.open(folder.parent, through_link=True) as home,
        home.lock(_use_of(folder)),
        store_lock(folder),
    ):
        home.remove(folder.name)


def _last_use(folder: Path) -> float:
    path = folder / MANIFEST
    return (path if path.exists() else folder).stat().st_mtime


def server_vectors(
    source: VectorSource, texts: Sequence[str], *, keep: bool = True, progress: Progress | None = None
) -> Array:
    """The vectors of texts in their order (texts × d); with `keep`, a run that is stopped can be taken up again."""
    source, texts = source.resolved(), list(texts)
    folder = _folder(source, texts) if keep else None
    with nullcontext() if folder is None else _in_use(folder):
        vectors = _answered(source, texts, folder, progress=progress)
    if folder is not None:
        _drop(folder)
    return vectors


def _drop(folder: Path) -> None:
    """Remove the answers of a run, unless another process uses them."""
    with (
        suppress(StoreBusyError, OSError),
        Folder.open(folder.parent, through_link=True) as home,
        home.lock(_use_of(folder)),
    ):
        home.remove(folder.name)


def _answered(
    source: VectorSource, texts: Sequence[str], folder: Path | None, *, progress: Progress | None = None
) -> Array:
    """The vectors of texts; what an earlier run left in the folder is not asked again."""
    batches = [texts[start : start + source.batch] for start in range(0, len(texts), source.batch)]
    answers = {} if folder is None else _kept(folder, source, batches)
    if answers:
        done = sum(len(batches[k]) for k in answers)
        _LOG.warning(
            "%s: %s of %s texts were answered before; the run goes on", source.name, f"{done:,}", f"{len(texts):,}"
        )
        if progress is not None:
            progress(done, 1)
    missing = [k for k in range(len(batches)) if k not in answers]
    try:
        for place, table in source.requests([batches[k] for k in missing], progress=progress):
            answers[missing[place]] = table
            _check_dimension(source, answers, missing[place])
            if folder is not None:
                _write(folder, missing[place], table)
    except EndpointError as error:
        done = sum(len(batches[k]) for k in answers)
        again = f" {done:,} of {len(texts):,} texts are answered and kept; run this again to go on." if folder else ""
        raise EndpointError(f"{error}{again}") from None
    return np.concatenate([answers[k] for k in range(len(batches))])


def _check_dimension(source: VectorSource, answers: dict[int, Array], newest: int) -> None:
    sizes = {table.shape[1] for table in answers.values()}
    if len(sizes) > 1:
        del answers[newest]
        raise EndpointError(
            f"{source.name}: gave vectors of the dimensions {', '.join(map(str, sorted(sizes)))}; needed: one. Check "
            f"that one model answers at this address."
        )


def _folder(source: VectorSource, texts: Sequence[str]) -> Path | None:
    """Folder of the kept answers to these texts, readable by the owner alone; None without a cache."""
    identity = json.dumps({name: value for name, value in source.to_dict().items() if name != "concurrency"})
    digest = hashlib.sha256(identity.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    folder = cache_folder() / "answers" / digest.hexdigest()[:40]
    try:
        private_folder(folder)
    except OSError:
        return None
    _remove_old(folder.parent)
    return folder


def _remove_old(place: Path) -> None:
    """Remove the answers of runs that nobody took up again."""
    for folder in place.iterdir():
        with suppress(FileNotFoundError):  # another process ends its run just now
            newest = max((path.stat().st_mtime for path in folder.glob("*.npy")), default=None)
            if newest is not None and time.time() - newest > _OLDEST:
                _drop(folder)


def _write(folder: Path, number: int, table: Array) -> None:
    """Write one answer, with its digest behind it: a byte that changed on the disk is no answer of the server."""
    content = io.BytesIO()
    np.save(content, table, allow_pickle=False)
    with atomic_file(folder / f"{number:08d}.npy", mode=0o600) as stream:
        stream.write(content.getvalue() + digest_of(content.getvalue()).encode())


def _kept(folder: Path, source: VectorSource, batches: Sequence[Sequence[str]]) -> dict[int, Array]:
    """Answers of an earlier run that fit, if the server still gives the same; damaged ones are asked again."""
    answers: dict[int, Array] = {}
    for number, batch in enumerate(batches):
        path = folder / f"{number:08d}.npy"
        try:
            refuse_special(path)
            content = path.read_bytes()
            if digest_of(content[:-_DIGEST]).encode() != content[-_DIGEST:]:
                continue
            table = np.load(io.BytesIO(content), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            continue
        if table.ndim == 2 and len(table) == len(batch) and np.isfinite(table).all():
            answers[number] = table
    if not answers:
        return {}
    first = min(answers)
    try:
        now = source.send(batches[first][:1])[0]
    except PoolscopeError:
        return answers  # the run itself will say what is wrong
    before = answers[first][0]
    same = now.shape == before.shape and now @ before >= _SAME * np.linalg.norm(now) * np.linalg.norm(before)
    if not same:
        _LOG.warning("%s: gives other vectors than before; all texts are asked again", source.name)
    return answers if same else {}
