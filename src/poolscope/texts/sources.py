"""The one door to every table: a reader for each file type, hub data set and object in memory."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, not_permitted, require, shorten
from poolscope.hosts import hub_host, permit
from poolscope.keys import know_hub_token
from poolscope.texts.plain import kind_of_file
from poolscope.texts.records import Texts, is_missing
from poolscope.texts.tables import (
    Table,
    csv_table,
    ipc_table,
    is_table,
    joined_table,
    json_file_table,
    json_table,
    memory_table,
    parquet_table,
)

PREFIX = "hub:"
STREAM = "stream:"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"(?P<name>{_PART}(?:/{_PART})?)(?:/(?P<config>{_PART}))?(?::(?P<split>.+))?")
_BARE = re.compile(rf"(?P<owner>{_PART})/{_PART}(?::.+)?")
_PACKED = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")  # read from .gz too
_SUFFIXES = (*_PACKED, ".parquet", ".arrow", ".feather")


def open_table(source: object, *, encoding: str | None = None) -> Table:
    """The table that a path, a hub name, a data frame, an Arrow table or a data set stands for."""
    if is_table(source):
        return memory_table(source)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"received {shorten(source)} ({type(source).__name__}); a table is a path, a hub name, a data "
            "frame, an Arrow table or a data set. Pass one of these."
        )
    refuse_no_name(source)
    path = Path(source)
    if (files := table_files(source)) is not None:
        return joined_table(path.name, [_open_file(file, encoding) for file in files])
    if exists(path):
        return _open_file(path, encoding)
    if isinstance(source, str) and looks_like_hub(source):
        return hub_table(source)
    raise InputError(
        f"received {shorten(str(source))}; there is no such file or folder. Check the spelling; a data set of "
        f"the hub is written {PREFIX}ORGANISATION/NAME, and texts in memory are passed as a list."
    )


def refuse_no_name(source: object) -> None:
    """Refuse the empty string, which Python takes for the current folder."""
    if source == "":
        raise InputError("received '' as a path; allowed: a file or folder. Write . for the current folder.")


def exists(path: Path) -> bool:
    """Whether there is a file or folder; False for what cannot be a path (too long, a NUL inside).

    What is there, or may be, and cannot be read is an error: it must not be taken for something else.
    """
    try:
        kind = path.stat().st_mode
    except PermissionError as error:
        raise not_permitted(path, error) from error
    except (OSError, ValueError):
        return False
    if not os.access(path, os.R_OK | os.X_OK if stat.S_ISDIR(kind) else os.R_OK):
        raise not_permitted(path)
    return True


def is_pattern(source: object) -> bool:
    """Whether a string that is no existing path names files by a pattern, such as `data/*.parquet`."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    return isinstance(text, str) and any(mark in text for mark in "*?") and not exists(Path(text))


def matching_files(pattern: str | os.PathLike[str]) -> list[Path]:
    """The files that a pattern names, sorted by path; `**` goes through folders."""
    files = sorted(Path(name) for name in glob.glob(os.fspath(pattern), recursive=True))  # noqa: PTH207 - absolute patterns too
    files = [path for path in files if path.is_file()]
    if not files:
        raise InputError(f"received the pattern {os.fspath(pattern)!r}; no file fits it. Check the spelling.")
    return files


def table_files(source: str | os.PathLike[str]) -> list[Path] | None:
    """The files of tables that a pattern or a folder names, sorted; None where it is neither, or holds none."""
    if is_pattern(source):
        return matching_files(source)
    path = Path(source)
    if not (exists(path) and path.is_dir()):
        return None
    files = sorted(file for file in path.rglob("*") if file.is_file() and is_table_file(file))
    return [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)] or None


def is_table_file(path: Path) -> bool:
    """Whether its name is that of a table, packed or not."""
    return path.suffix.lower() in _SUFFIXES or (path.suffix.lower() == ".gz" and kind_of_file(path) in _PACKED)


def _open_file(path: Path, encoding: str | None) -> Table:
    match kind_of_file(path):
        case ".csv" | ".tsv":
            return csv_table(path, encoding)
        case ".jsonl" | ".ndjson":
            return json_table(path, encoding)
        case ".json":
            return json_file_table(path, encoding)
        case ".parquet":
            return parquet_table(path)
        case ".arrow" | ".feather":
            return ipc_table(path)
    received = "a folder" if path.is_dir() else f"a file of type '{path.suffix}'"
    plain = ", plain texts from .txt (a line a text) or from a folder of .txt and .md files"
    if kind_of_file(path) == ".txt":  # where lines would do, they were read as such
        received, plain = f"{received}, which has no columns", ""
    tables = f"tables are read from {', '.join(_SUFFIXES)}"
    raise InputError(f"{path.name}: received {received}; {tables}{plain}. Convert it to one of these.")


# -- the hub ----------------------------------------------------------------------------------------------------------


def looks_like_hub(source: str) -> bool:
    """Whether a string that is no existing path asks for a data set of the hub.

    `hub:...` always does; `owner/name` does unless a local folder has the owner's name or the name ends
    like a file: then a mistyped path is more likely.

    >>> looks_like_hub("hub:imdb"), looks_like_hub("stanfordnlp/imdb:test"), looks_like_hub("data/a.csv")
    (True, True, False)
    """
    if source.startswith((PREFIX, STREAM)):
        return True
    bare = _BARE.fullmatch(source)
    return bare is not None and not Path(source).suffix and not Path(bare["owner"]).exists()


def parse(source: str) -> tuple[str, str | None, str | None]:
    """What `NAME[/CONFIG][:SPLIT]` says; a config needs the full name, ORGANISATION/NAME/CONFIG.

    >>> parse("hub:mteb/banking77:test[:100]")
    ('mteb/banking77', None, 'test[:100]')
    >>> parse("nyu-mll/glue/cola:validation")
    ('nyu-mll/glue', 'cola', 'validation')
    """
    match = _NAME.fullmatch(source.removeprefix(STREAM).removeprefix(PREFIX))
    if match is None:
        raise InputError(
            f"received the data set name {source!r}; allowed is hub:ORGANISATION/NAME with /CONFIG and :SPLIT "
            "after it where needed. Write it like hub:nyu-mll/glue/cola:validation."
        )
    return match["name"], match["config"], match["split"]


def hub_table(source: str) -> Table:
    """The table of a hub data set, from the local cache of `datasets` where it is there already.

    `stream:` in place of `hub:` reads it row by row as it comes from the hub, and keeps nothing.
    """
    name, config, split = parse(source)
    permit(hub_host(), name=source)
    know_hub_token()
    streamed = source.startswith(STREAM)
    datasets = require("datasets", "hub")
    try:
        loaded = datasets.load_dataset(name, config, split=split, streaming=streamed, trust_remote_code=False)
    except Exception as error:  # the network, hub and file libraries below raise families of their own
        raise InputError(_unreachable(source, error)) from error
    if isinstance(loaded, dict) and len(loaded) == 1:
        (loaded,) = loaded.values()
    return memory_table(loaded, name=source if streamed else PREFIX + source.removeprefix(PREFIX))


def _unreachable(source: str, error: Exception) -> str:
    received = source if source.startswith((PREFIX, STREAM)) else f"{source}: no such file, and as a hub data set it"
    reason = str(error).partition("\n")[0] or type(error).__name__
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        advice = "HF_HUB_OFFLINE is set: unset it, or fetch the data set once while online."
    else:
        advice = "Check the name, the config, the split and the network."
    return f"{received} cannot be loaded ({reason}). {advice}"


# -- further columns --------------------------------------------------------------------------------------------------

# The columns of a table that are neither texts nor ids: what a row says besides, kept with its text.


def other_columns(
    source: Any, texts: Texts, *, id_column: str | None = None, taken: Sequence[str | None] = ()
) -> Mapping[str, Mapping[str, Any]]:
    """The other columns of the row of each text, by its id; none for what is no table.

    `texts` were read from `source`; `taken` are columns that are not asked for, beside those of texts and ids.

    >>> from poolscope.texts import read_texts
    >>> table = {"text": ["one", "", "two"], "url": ["a", "b", "c"]}
    >>> other_columns(table, read_texts(table))
    {'0': {'url': 'a'}, '2': {'url': 'c'}}
    """
    if not isinstance(source, str | os.PathLike) and not is_table(source):
        return {}
    try:
        table = open_table(source)
    except InputError:  # lines of text, a folder of documents
        return {}
    names = [name for name in table.kinds if name not in (texts.column, id_column, *taken)]
    wanted, columns = frozenset(texts.ids), {}
    for number, row in enumerate(table.rows([*names, *([] if id_column is None else [id_column])])):
        key = str(number if id_column is None else row[-1])
        if key in wanted:
            columns[key] = {name: value for name, value in zip(names, row, strict=False) if not is_missing(value)}
    return columns


# -- benchmark folders as BEIR and mteb keep them: a corpus, queries, and judgements (qrels) by split -----------------

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


def _split(folder: Path, files: Sequence[Path], named: str | None) -> tuple[str, list[Path]]:
    """The judgements of the split that was asked for: test unless said, or the only one there is."""
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(_SHARD.sub("", path.name.partition(".")[0]), []).append(path)
    wanted = named or (_SPLIT if _SPLIT in splits or len(splits) > 1 else next(iter(splits)))
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
