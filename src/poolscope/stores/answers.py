"""The vectors of many texts from a server, request by request: a run that was stopped goes on where it was.

Answers that have come are kept in a private folder of the cache until all are there, and are then removed: a server has
no revision, so nothing would tell when its model changes. Before a run goes on, one text is asked again.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poolscope.digests import digest_of
from poolscope.encoders.base import Progress
from poolscope.encoders.endpoint import VectorSource
from poolscope.encoders.http import EndpointError
from poolscope.errors import PoolscopeError
from poolscope.files import atomic_path, refuse_special
from poolscope.stores.cache import cache_folder

Array = NDArray[np.float32]

_LOG = logging.getLogger(__name__)
# Answers that are older are asked again: nobody knows what a server runs the day after.
_OLDEST = 24 * 3600.0
_SAME = 1 - 1e-4
_DIGEST = len(digest_of(b""))


def server_vectors(
    source: VectorSource, texts: Sequence[str], *, keep: bool = True, progress: Progress | None = None
) -> Array:
    """The vectors of texts in their order (texts × d); with `keep`, a run that is stopped can be taken up again."""
    source, texts = source.resolved(), list(texts)
    batches = [texts[start : start + source.batch] for start in range(0, len(texts), source.batch)]
    folder = _folder(source, texts) if keep else None
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
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
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
    """Where the answers to these texts are kept, readable by the owner alone; None where there is no such place."""
    identity = json.dumps({name: value for name, value in source.to_dict().items() if name != "concurrency"})
    digest = hashlib.sha256(identity.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    folder = cache_folder() / "answers" / digest.hexdigest()[:40]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError:
        return None
    _remove_old(folder.parent)
    return folder


def _remove_old(place: Path) -> None:
    """Remove the answers of runs that nobody took up again."""
    for folder in place.iterdir():
        newest = max((path.stat().st_mtime for path in folder.glob("*.npy")), default=None)
        if newest is not None and time.time() - newest > _OLDEST:
            shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, number: int, table: Array) -> None:
    """Write one answer, with its digest behind it: a byte that changed on the disk is no answer of the server."""
    content = io.BytesIO()
    np.save(content, table, allow_pickle=False)
    with atomic_path(folder / f"{number:08d}.npy") as temporary, temporary.open("wb") as stream:
        temporary.chmod(0o600)
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
