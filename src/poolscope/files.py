"""Writing files so that a reader sees the old file or the new one, never half of either.

A folder has one writer at a time, a system that refuses is told in plain words, and so is what an interrupt leaves.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from poolscope.errors import InputError, OutputError, PoolscopeError, StoreError, shorten
from poolscope.folder import Folder, json_bytes, literal, temporary_name

_FULL = {errno.ENOSPC, errno.EDQUOT}
_LONGEST_TEXT = 2**30  # bytes of a file of JSON; none that poolscope writes comes near
_PATIENCE = 10.0  # seconds that a writer waits for another
_FOLDERS = 10_000  # to look through, where the disk may have been named by mistake
# What is kept when a run is interrupted: work that saves as it goes says so here, and the command line tells it.
_under_way: list[Callable[[], str]] = []
_told: list[str] = []
_safe: dict[str, str] = {}


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a stream to write; on success it is flushed to disk and becomes the file `path` in one step.

    If the body raises, `path` is left as it was; what the system refuses is an `OutputError`. See `Folder.file`.
    """
    target = as_path(path, OutputError)
    with in_plain_words(target):
        _refuse_other_kinds(target)
        with Folder.open(target.parent, through_link=True) as folder, folder.file(target.name, mode=mode) as stream:
            yield stream


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Folder]:
    """Yield an empty folder beside `path`, where nothing is or an empty folder; on success move it there in one step.

    For the rest it is like `atomic_file`.
    """
    target = Path(path)
    with in_plain_words(target):
        _refuse_files_among((target, *target.parents), target)
        with Folder.open(target.parent, through_link=True) as parent:
            parent.remove_leftovers(f".{literal(target.name)}")
            temporary = temporary_name(target.name)
            try:
                with parent.folder(temporary) as folder:
                    yield folder
                    folder.flush(all_below=True)
                parent.rename(temporary, target.name)
                parent.flush()
            except BaseException:
                parent.remove(temporary)
                raise


@contextmanager
def held_folder(path: str | os.PathLike[str], *, wait: float = 0.0) -> Iterator[Folder]:
    """Open a folder as its only writer for a whole run, made if it is not there; another that writes is named.

    It is tried whether files can be written; what the system refuses is an `OutputError`. The body keeps its errors.
    """
    target = as_path(path, OutputError)
    with ExitStack() as opened:
        with in_plain_words(target):
            _refuse_files_among((target, *target.parents), target)
            folder = opened.enter_context(Folder.open(target))
            opened.enter_context(folder.lock(wait=wait))
            folder.try_to_write("file")
        yield folder


@contextmanager
def folder_to_write(path: str | os.PathLike[str]) -> Iterator[Folder]:
    """Do what `held_folder` does for as long as files are written: another writer is waited for.

    What the system refuses of the body, too, is an `OutputError`.
    """
    with held_folder(path, wait=_PATIENCE) as folder, in_plain_words(folder.path):
        yield folder


def as_path(value: Any, kind: type[PoolscopeError] = InputError) -> Path:
    """The path that a caller names; an error that names what no path can be.

    >>> as_path("a.arrow").name
    'a.arrow'
    """
    name = value if isinstance(value, str) else os.fspath(value) if isinstance(value, os.PathLike) else None
    if not isinstance(name, str) or name == "" or "\0" in name:
        raise kind(f"path: received {shorten(value)}; allowed: the name of a file or folder, such as 'report.json'.")
    return Path(name)


def files_below(folder: Path, ending: str) -> Iterator[Path]:
    """Files below a folder by how their names end; past folders that are closed, and not those of a whole disk."""
    for place, _, names in islice(os.walk(folder), _FOLDERS):
        yield from (Path(place, name) for name in names if name.endswith(ending))


def is_file(path: Path) -> bool:
    """Whether it is a plain file; a name that the system refuses, such as one too long, is none."""
    return os.path.isfile(path)  # noqa: PTH113 - that of a path raises over such a name


def is_folder(path: Path) -> bool:
    """Whether it is a folder; a name that the system refuses is none."""
    return os.path.isdir(path)  # noqa: PTH112


def is_there(path: Path) -> bool:
    """Whether there is anything of this name; a name that the system refuses has nothing."""
    return os.path.exists(path)  # noqa: PTH110


def private_folder(folder: Path) -> Path:
    """The folder, made if it is not there, which nobody but its owner may read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


_ROOM, _FOLD = 2**28, 100  # bytes that a file with holes may have, and how many more for each one on the disk


def refuse_special(path: Path, kind: type[PoolscopeError] = InputError) -> None:
    """Refuse to read anything but a regular file, and files that are nearly all holes.

    A pipe would be waited for, a device read without end, and holes are zeros that take memory and no disk.
    """
    there = is_there(path)
    if there and not is_file(path):
        raise kind(f"{path.name} is not a regular file, but a folder, a pipe or a device. Name a file.")
    if there and (stored := _stored(path)) is not None:
        size = path.stat().st_size
        raise kind(f"{path.name} has {size:,} bytes, and {stored:,} are on the disk. Fetch or write it again.")


def _stored(path: Path) -> int | None:
    """The bytes on the disk of a file that is next to nothing but holes, None for any other."""
    status = path.stat()
    stored = getattr(status, "st_blocks", status.st_size) * 512  # Windows does not say
    if status.st_size <= _ROOM + _FOLD * stored:
        return None
    with path.open("rb") as stream:  # some systems name no blocks; those have no holes either
        return stored if os.lseek(stream.fileno(), 0, os.SEEK_HOLE) < status.st_size else None


def text_of(path: str | os.PathLike[str], kind: type[PoolscopeError] = InputError) -> str:
    """Read a small text file in UTF-8, such as JSON; refuse endless and irregular files."""
    place = Path(path)
    refuse_special(place, kind)
    if (size := place.stat().st_size) > _LONGEST_TEXT:
        raise kind(f"{place.name} has {size:,} bytes, more than {_LONGEST_TEXT:,}. poolscope writes no such file.")
    return place.read_text(encoding="utf-8")


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a name under which no file can be written, before the work whose result it is for.

    It is tried: a file is made beside it and removed, and so are the folders that were not there.
    """
    target = Path(path)
    with in_plain_words(target):
        _refuse_other_kinds(target)
        with Folder.open(target.parent, through_link=True) as folder:
            folder.try_to_write(target.name)


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The folder to write into, there or not; an error where none can be, or nothing can be written into it."""
    target = Path(path)
    with in_plain_words(target):
        _refuse_files_among((target, *target.parents), target)
        with Folder.open(target) as folder:
            folder.try_to_write("file")
    return target


def _refuse_other_kinds(target: Path) -> None:
    """Refuse a folder or a device where a file is to be."""
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no file that can be replaced"
        raise OutputError(
            f"output: received {target}, which is {what}; allowed is a file. Add a name to it, or use another."
        )
    _refuse_files_among(target.parents, target)


def _refuse_files_among(folders: Iterable[Path], target: Path) -> None:
    for part in folders:
        if part.exists() and not part.is_dir():
            raise OutputError(f"output: received {target}, but {part} is a file; allowed is a folder, such as results.")


@contextmanager
def in_plain_words(target: Path) -> Iterator[None]:
    """Turn a refusal of the system into one line: the file, the reason, and the next step."""
    try:
        yield
    except OutputError:
        raise
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, UnicodeEncodeError) and error.object[error.start : error.end] not in str(target):
            raise  # of what is written, not of a name that no file can have
        name = str(target).encode(errors="backslashreplace").decode()
        reason = getattr(error, "strerror", None) or error
        refused = OutputError(
            f"{name}: cannot be written ({reason}). Name another place, or see to it that there is "
            f"room and the right to write."
        )
        refused.errno = getattr(error, "errno", None)
        raise refused from error


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinity are refused: they are not JSON."""
    content = json_bytes(value)
    with atomic_file(path) as stream:
        stream.write(content)


def user_cache_folder() -> Path:
    """The folder for what poolscope can make again: the usual place of the platform, as platformdirs knows it.

    It holds texts and names of models, so that nobody but its owner may look into it.
    """
    import platformdirs

    folder = platformdirs.user_cache_path("poolscope", appauthor=False)
    with suppress(OSError):  # a place that cannot be written is for its user to find out
        private_folder(folder)
    return folder


@contextmanager
def writing(folder: Path, *, safe: str = "") -> Iterator[None]:
    """Turn a full disk, missing rights and the like into a `StoreError`; `safe` says what is safe already."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        reason = (isinstance(error, OutputError) and error.__cause__) or error
        raise StoreError(
            f"{folder}: {'the disk is full' if full else f'cannot be written ({reason})'}. {safe}"
            f"{'Make room' if full else 'Remove the cause'}, then run the same again: it goes on from there."
        ) from error


@contextmanager
def keeping(sentence: Callable[[], str]) -> Iterator[None]:
    """While the body runs, `sentence` says what would be kept of it just now, and how to go on."""
    _under_way.append(sentence)
    try:
        yield
    except KeyboardInterrupt:
        _told.append(sentence())
        raise
    finally:
        _under_way.remove(sentence)


def keep(name: str, sentence: str) -> None:
    """Say what is kept from here on, whatever comes; a later sentence under the same name replaces it."""
    _safe[name] = sentence


def what_is_kept() -> list[str]:
    """The sentences that hold now, the innermost work first."""
    sentences = [*_told, *(sentence() for sentence in reversed(_under_way)), *_safe.values()]
    return list(dict.fromkeys(filter(None, sentences)))
