"""Vectors of many texts from a server; a run that was stopped goes on where it was.

The answers stand in the cache folder, readable by their owner alone, and are removed as soon as all are there: a server
has no revision, so nothing would tell when its model changes. Before a run goes on, one text is asked again.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poolscope.connect.servers.http import EndpointError
from poolscope.digests import digest_of
from poolscope.encoders.base import Progress
from poolscope.encoders.sources import VectorSource
from poolscope.errors import PoolscopeError
from poolscope.files import atomic_file, private_folder, refuse_special
from poolscope.folder import Folder, StoreBusyError
from poolscope.stores.cache import cache_folder, in_use, use_of
from poolscope.words import logger

Array = NDArray[np.float32]

_LOG = logger(__name__)
# Answers that are older are asked again: nobody knows what a server runs the day after.
_OLDEST = 24 * 3600.0
_SAME = 1 - 1e-4
_DIGEST = len(digest_of(b""))


def server_vectors(
    source: VectorSource, texts: Sequence[str], *, keep: bool = True, progress: Progress | None = None
) -> Array:
    """The vectors of texts in their order (texts × d); with `keep`, a run that is stopped can be taken up again."""
    source, texts = source.resolved(), list(texts)
    folder = _folder(source, texts) if keep else None
    with nullcontext() if folder is None else in_use(folder):
        vectors = _answered(source, texts, folder, progress=progress)
    if folder is not None:
        _drop(folder)
    return vectors


def _drop(folder: Path) -> None:
    """Remove the answers of a run, unless another process uses them."""
    with (
        suppress(StoreBusyError, OSError),
        Folder.open(folder.parent, through_link=True) as home,
        home.lock(use_of(folder)),
    ):
        home.remove(folder.name)


def _answered(
    source: VectorSource, texts: Sequence[str], folder: Path | None, *, progress: Progress | None = None
) -> Array:
    """The vectors of texts; what an earlier run left in the folder is not asked again."""
    batches = [texts[start : start + source.batch] for start in range(0, len(texts), source.batch)]
    answers = {} if folder is None else _earlier(folder, source, batches)
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


def _earlier(folder: Path, source: VectorSource, batches: Sequence[Sequence[str]]) -> dict[int, Array]:
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
