"""Benchmark folders as BEIR and mteb keep them: a corpus, queries, and judgements (qrels) by split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolscope.errors import InputError
from poolscope.texts.sources import exists, is_table_file, open_table, refuse_no_name
from poolscope.texts.tables import Table, joined_table

_QRELS = ("qrels", "default")  # mteb keeps judgements under either name
_SHARD = re.compile(r"[-_]\d+[-_]of[-_]\d+$")
_SPLIT = "test"


@dataclass(frozen=True)
class Benchmark:
    """The tables of a benchmark `folder`; `name` is that of the folder, with the split of the judgements."""

    folder: str
    name: str
    corpus: Table
    queries: Table
    qrels: Table

    def texts(self) -> Iterator[tuple[Any, Any]]:
        """(id, text) of every text; a title stands before its text, as both libraries put it."""
        ids = next((name for name in ("_id", "id") if name in self.corpus.kinds), None)
        if ids is None or "text" not in self.corpus.kinds:
            raise InputError(
                f"{self.corpus.name}: the columns are {self.corpus.listing()}; needed: '_id' (or 'id') and 'text'."
            )
        columns = [ids, "text", *(["title"] if "title" in self.corpus.kinds else [])]
        for name, text, *title in self.corpus.rows(columns):
            yield name, f"{title[0]} {text or ''}".strip() if title and title[0] else text


def open_benchmark(source: str | os.PathLike[str], *, encoding: str | None = None) -> Benchmark | None:
    """The benchmark of a folder, or of FOLDER:SPLIT; None for everything else."""
    refuse_no_name(source)
    path, split = Path(source), None
    if not exists(path) and ":" in str(source):
        folder, _, split = str(source).rpartition(":")
        path = Path(folder)
    if not exists(path) or not path.is_dir():
        return None
    parts = {name: _files(path, name) for name in ("corpus", "queries", *_QRELS)}
    qrels = parts["qrels"] or parts["default"]
    if not (parts["corpus"] and parts["queries"] and qrels):
        return None
    chosen, judged = _split(path, qrels, split)
    tables = [_joined(path, files, encoding) for files in (parts["corpus"], parts["queries"], judged)]
    return Benchmark(str(path), f"{path.resolve().name}:{chosen}", *tables)


def _files(folder: Path, name: str) -> list[Path]:
    """The tables of a part: one file beside the others, or all files of a folder of that name."""
    single = sorted(path for path in folder.glob(f"{name}.*") if path.is_file() and is_table_file(path))
    inside = folder / name
    return single[:1] or (sorted(filter(is_table_file, inside.iterdir())) if inside.is_dir() else [])


def _split(folder: Path, files: Sequence[Path], asked: str | None) -> tuple[str, list[Path]]:
    """The judgements of the split that was asked for: test unless said, or the only one there is."""
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(_SHARD.sub("", path.name.partition(".")[0]), []).append(path)
    wanted = asked or (_SPLIT if _SPLIT in splits or len(splits) > 1 else next(iter(splits)))
    if wanted not in splits:
        raise InputError(
            f"{folder}: there are no judgements of the split {wanted!r}; there are {', '.join(splits)}. Name one: "
            f"{folder}:{next(iter(splits))}."
        )
    return wanted, splits[wanted]


def _joined(folder: Path, files: Sequence[Path], encoding: str | None) -> Table:
    """One table of files with the same columns."""
    name = f"{folder.resolve().name}/{files[0].relative_to(folder).as_posix()}"
    return joined_table(name, [open_table(path, encoding=encoding) for path in files])
