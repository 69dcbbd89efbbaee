"""Stores in an object store (S3 and its like, through fsspec), each with a mirror on this machine.

An object appears whole or not at all, and shards of equal texts have equal bytes, so that no lock is needed: whoever
writes a shard, and however often, the store is the same. A shard is written in the mirror, sent, and removed there;
one that is read is fetched into the mirror when it is first needed. What the mirrors hold stays below the limit of the
cache (POOLSCOPE_CACHE_GB), the oldest files making room.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, StoreError, require
from poolscope.files import atomic_file, user_cache_folder
from poolscope.hosts import permit
from poolscope.keys import know_object_store_keys
from poolscope.texts import Texts
from poolscope.texts.spooled import ABOUT, TEXTS, open_spooled, save_spooled

_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss")
# A path that went through pathlib has lost one of the two strokes, or both where nothing follows.
_ADDRESS = re.compile(rf"({'|'.join(_SCHEMES)}):(?:/+(.*))?", re.IGNORECASE | re.DOTALL)
_FRESH = 1.0  # seconds for which a listing is taken as it is
MIRRORS = "mirrors"
SPOOL = (TEXTS, ABOUT)  # files of the texts, until a store is finished


def is_remote(place: object) -> bool:
    """Whether a place is an address in an object store.

    >>> is_remote("s3://bucket/store"), is_remote(Path("s3://bucket/store")), is_remote("folder/store")
    (True, True, False)
    """
    return isinstance(place, str | os.PathLike) and _ADDRESS.fullmatch(os.fspath(place)) is not None


def located(place: str | os.PathLike[str]) -> str:
    """A place as every process of this user finds it: an address, or an absolute path.

    >>> located("s3:/bucket/store/")
    's3://bucket/store'
    """
    match = _ADDRESS.fullmatch(os.fspath(place))
    return str(Path(place).absolute()) if match is None else f"{match[1].lower()}://{(match[2] or '').rstrip('/')}"


def open_remote(address: str) -> Remote:
    """The place of an address, one object a process.

    A client signs its requests with keys of the environment, so a bucket has to be named as it is: s3://bucket.
    """
    permit(bucket_of(address), name=address)
    know_object_store_keys()
    return _opened(address)


def bucket_of(address: str) -> str:
    """What an address in an object store has to be named by: its bucket, or container and account.

    >>> bucket_of("s3://localhost/bucket/store"), bucket_of("abfs://box@account.example/store")
    ('s3://localhost', 'abfs://box@account.example')
    """
    scheme, _, place = address.partition("://")
    return f"{scheme}://{place.partition('/')[0]}"


@cache
def _opened(address: str) -> Remote:
    if "::" in address:
        raise InputError(
            f"{address}: received '::', which chains addresses; allowed is one, such as s3://bucket/store."
        )
    fsspec = require("fsspec", "s3")
    try:
        system, root = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise InputError(
            f"{address}: {error}. Install what reads it, such as poolscope[s3], gcsfs or adlfs."
        ) from error
    if "/" not in root.strip("/"):
        example = address if root.strip("/") else f"{address}bucket"
        raise InputError(f"{address}: received no place in a bucket; allowed is one, such as {example}/store.")
    mirror = user_cache_folder() / MIRRORS / hashlib.sha256(address.encode()).hexdigest()[:24]
    return Remote(address, system, root.rstrip("/"), mirror)


class _AbsentError(Exception):
    """An object is not there; not an error of the disk, as which FileNotFoundError would count on the way."""


@dataclass
class Remote:
    """A place in an object store and its mirror. Names are relative, with strokes: "layer-last/shard-00000.arrow"."""

    address: str
    system: Any
    root: str
    mirror: Path

    def __post_init__(self) -> None:
        self._listing: tuple[float, dict[str, int]] = (0.0, {})

    def names(self, *, anew: bool = False) -> dict[str, int]:
        """The names that are there, with their sizes; `anew`: as of now, not of the last second."""
        read, listing = self._listing
        if anew or time.monotonic() - read > _FRESH or not read:
            entries: dict[str, Any] = {}
            with suppress(_AbsentError), self._in_words("read"):
                self.system.invalidate_cache()
                entries = self.system.find(self.root, detail=True)
            prefix = len(self.root) + 1
            listing = {name[prefix:]: int(entry.get("size") or 0) for name, entry in entries.items()}
            self._listing = time.monotonic(), listing
        return listing

    def fetch(self, name: str, *, anew: bool = False) -> Path:
        """The file of a name in the mirror; `anew` even if it is there. FileNotFoundError where it is nowhere."""
        if ".." in name.split("/"):
            raise StoreError(f"{self.address}: holds '{name}', which leads out of the store. Remove that object.")
        target = self.mirror / name
        if target.exists() and not anew:
            return target
        try:
            with (
                atomic_file(target) as stream,
                self._in_words("read"),
                self.system.open(f"{self.root}/{name}", "rb") as content,
            ):
                shutil.copyfileobj(content, stream, 2**20)
        except _AbsentError:
            raise FileNotFoundError(f"{self.address}/{name}") from None
        self._make_room(target)
        return target

    def send(self, path: Path, *, keep: bool = False) -> None:
        """Put a file of the mirror into the object store; it is then gone from the mirror unless `keep`."""
        name = path.relative_to(self.mirror).as_posix()
        with self._in_words("written"):
            self.system.put_file(str(path), f"{self.root}/{name}")
        self._listing[1][name] = path.stat().st_size
        if not keep:
            path.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Take a name away, here and there."""
        with self._in_words("written"):
            self.system.rm_file(f"{self.root}/{name}")
        self._listing[1].pop(name, None)
        (self.mirror / name).unlink(missing_ok=True)

    @contextmanager
    def _in_words(self, verb: str) -> Iterator[None]:
        """Turn a refusal of an object store into one line."""
        try:
            yield
        except Exception as error:  # every client has errors of its own
            if verb == "read" and isinstance(error, FileNotFoundError):
                raise _AbsentError from error
            reason = str(error).partition("\n")[0][:200]
            raise StoreError(
                f"{self.address}: cannot be {verb} ({type(error).__name__}: {reason}). Check the address and the "
                f"rights, then run the same again: it goes on from there."
            ) from error

    def _make_room(self, newest: Path) -> None:
        """Remove the files that were fetched longest ago until the limit holds; mapped files stay readable."""
        from poolscope.stores.cache import cache_limit

        files = []
        for path in self.mirror.parent.rglob("shard-*.arrow"):
            with suppress(OSError):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
        total, limit = sum(size for _, size, _ in files), cache_limit()
        for _, size, path in sorted(files):
            if total <= limit:
                return
            if path != newest:
                with suppress(OSError):
                    path.unlink()
                    total -= size


# -- texts that every writer of a store reads ------------------------------------------------------------------------


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
