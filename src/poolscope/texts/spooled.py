"""A corpus that need not fit into memory: read once, row by row, into an Arrow file that is memory-mapped after.

    FOLDER/.texts.arrow    id, text and label of every text that is not empty, in order
    FOLDER/.texts.json     what was met while reading, the digest of the texts, and which files they came from

The second file is written last, so that the first is whole where it is there. Any process opens any row range of the
first, whatever the texts stood in before: packed files, standard input, a stream of the hub.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from poolscope.errors import StoreError, reading
from poolscope.files import refuse_special, text_of
from poolscope.folder import Folder
from poolscope.texts.plain import asked_encoding
from poolscope.texts.reading import admit, open_feed
from poolscope.texts.records import ArrowStrings, ReadReport, Tally, Texts, add_strings
from poolscope.texts.sources import exists, table_files

TEXTS, ABOUT = ".texts.arrow", ".texts.json"
_SCHEMA = pa.schema([("id", pa.string()), ("text", pa.large_string()), ("label", pa.string())])
_BATCH = 4096


class SpooledTexts(Texts):
    """Texts that lie in a file. Their ids were checked while they were read, and so was their digest."""

    def __post_init__(self) -> None:
        """Nothing: to look for equal ids would hold them all."""


def spool_texts(
    source: object,
    folder: str | os.PathLike[str],
    *,
    column: str | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    encoding: str | None = None,
) -> Texts:
    """`read_texts` for a corpus of any size: the texts are in a file of `folder` after it, and not in memory.

    Where the same call was made before and the files that it reads are the same (names, sizes, times), nothing is read
    again. About 100 bytes a text are held while reading, to count texts that equal an earlier one.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> texts = spool_texts(["one", "", "two"], folder)
    >>> list(texts), texts.ids[1], texts.report.empty, texts[1:].texts
    (['one', 'two'], '2', 1, ('two',))
    """
    target = Path(folder)
    columns = {"column": column, "id_column": id_column, "label_column": label_column}
    files = _files(source)
    request = {**columns, "encoding": encoding or asked_encoding(), "source": str(source), "files": files}
    if files is not None:
        known = _about(target)
        if known is not None and known["asked"] == json.loads(json.dumps(request)):
            return _open(target, known)
    feed = open_feed(source, column, id_column, label_column, encoding)
    tally = Tally(feed.name)
    with Folder.open(target) as opened:
        digest = _write(admit(feed, tally), opened, tally.report)
        report = tally.report(other_files=feed.other_files, guessed_column=feed.guessed_column)
        about = {"asked": request, "digest": digest, "report": asdict(report), "name": feed.name}
        opened.write_json(ABOUT, {**about, "column": feed.column, "labels": feed.has_labels, "seed": None})
    return open_spooled(target)


def save_spooled(texts: Texts, folder: str | os.PathLike[str]) -> None:
    """Put texts that were read already into the file of a folder, unless it holds them."""
    target = Path(folder)
    known = _about(target)
    if known is not None and known["digest"] == texts.digest and known["labels"] == (texts.labels is not None):
        return
    rows = zip(texts.ids, texts.texts, texts.texts if texts.labels is None else texts.labels, strict=True)
    about: dict[str, Any] = {
        "asked": None,
        "digest": texts.digest,
        "report": asdict(texts.report),
        "name": texts.source,
    }
    about |= {"column": texts.column, "labels": texts.labels is not None, "seed": texts.seed}
    with Folder.open(target) as opened:
        _write(iter(rows), opened, lambda: None)
        opened.write_json(ABOUT, about)


def _write(rows: Iterator[tuple[str, str, str]], folder: Folder, check: Callable[[], object]) -> str:
    """Write (id, text, label) rows; `check` may refuse all of them at the end. Returns the digest of `Texts.digest`."""
    digest = hashlib.sha256()
    folder.remove(ABOUT)
    with folder.file(TEXTS) as stream, pa.ipc.new_file(stream, _SCHEMA) as writer:
        for batch in _batches(rows):
            for id_, text, _ in batch:
                add_strings(digest, id_, text)
            writer.write_batch(pa.record_batch([list(part) for part in zip(*batch, strict=True)], schema=_SCHEMA))
        check()
    return digest.hexdigest()


def open_spooled(folder: str | os.PathLike[str]) -> Texts:
    """The texts that `spool_texts` put into a folder, memory-mapped."""
    target = Path(folder)
    with reading(target / ABOUT, "Read the texts again."):
        about = json.loads(text_of(target / ABOUT, StoreError))
    return _open(target, about)


def remove_spooled(folder: Folder) -> None:
    """Remove the files; what is mapped stays readable where the system lets open files be removed."""
    for name in (ABOUT, TEXTS):
        folder.remove(name)


def _open(folder: Path, about: Mapping[str, Any]) -> Texts:
    path = folder / TEXTS
    refuse_special(path, StoreError)
    with reading(path, "Read the texts again."), pa.memory_map(os.fspath(path)) as source:
        table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        texts = SpooledTexts(
            ArrowStrings(table.column("id")),
            ArrowStrings(table.column("text")),
            ArrowStrings(table.column("label")) if about["labels"] else None,
            str(about["name"]),
            ReadReport(**about["report"]),
            column=about["column"],
            seed=about["seed"],
        )
        texts.__dict__["digest"] = str(about["digest"])  # what the cached property would compute from all texts
        return texts


def _about(folder: Path) -> dict[str, Any] | None:
    """What was written of the texts that are there; None if there are none, or it cannot be read."""
    try:
        about: dict[str, Any] = json.loads(text_of(folder / ABOUT))
        return about if (folder / TEXTS).is_file() and "asked" in about else None
    except (OSError, ValueError, RecursionError):
        return None


def _files(source: object) -> list[list[Any]] | None:
    """Name, size and times of every file that a path or a pattern stands for; None where there are none to compare."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    files = table_files(source)
    if files is None and exists(path):
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    if files is None:
        return None
    # The time of a file can be set, and is where files are unpacked or copied; that of its last change here cannot.
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns, file.stat().st_ctime_ns] for file in files]


def _batches(rows: Iterator[tuple[str, str, str]]) -> Iterator[list[tuple[str, str, str]]]:
    while batch := list(islice(rows, _BATCH)):
        yield batch
