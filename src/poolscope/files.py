"""Writing files so that a reader sees the old file or the new one, never half of either.

A folder has one writer at a time, a system that refuses is told in plain words, and so is what an interrupt leaves.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, OutputError, PoolscopeError, StoreError, shorten

LOCK = ".lock"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}
# What is kept when a run is interrupted: work that saves as it goes says so here, and the command line tells it.
_under_way: list[Callable[[], str]] = []
_told: list[str] = []
_kept: dict[str, str] = {}


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and move it there in one step.

    If the body raises, the temporary file is removed and `path` is left as it was; what the system refuses is an
    `OutputError`. A process that is killed leaves `path` untouched and one hidden `.name.HOST.PID.tmp` file beside it,
    which the next one that writes `path` removes.
    """
    target = as_path(path, OutputError)
    with _in_plain_words(target):
        _refuse_other_kinds(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        temporary = _beside(target)
        try:
            yield temporary
            _flush(temporary)
            temporary.replace(target)
            _flush(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder beside `path`, where nothing is or an empty folder; on success move it there in one step.

    For the rest it is like `atomic_path`.
    """
    target = Path(path)
    with _in_plain_words(target):
        _refuse_files_among((target, *target.parents), target)
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        temporary = _beside(target)
        try:
            temporary.mkdir()
            yield temporary
            _flush_all(temporary)
            temporary.replace(target)
            _flush(target.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


# -- several files as one ---------------------------------------------------------------------------------------------

_LONGEST_TEXT = 2**30  # bytes of a file of JSON; none that poolscope writes comes near
_FOLDERS = 10_000  # to look through, where the disk may have been named by mistake
_REPLACING, _REMOVED = ".replacing", ".removed"


@contextmanager
def replaced_files(folder: str | os.PathLike[str], *, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder; on success its files take the places of those in `folder`, all of them in one step.

    Files of `folder` whose names match one of the patterns `stale` and that were not written go in the same step; all
    others stay. The step is one renaming: before it the old files stand as they were, and after it readers see the new
    ones (`current_file`), also where the process was killed before it had moved them, which the next writer does.
    """
    target = check_folder(folder)
    with _in_plain_words(target):
        target.mkdir(parents=True, exist_ok=True)
        finish_replacing(target)
        written = _beside(target / "file")  # whose leftovers `check_folder` has removed
        try:
            written.mkdir()
            yield written
            _decide(target, written, stale)
        except BaseException:
            shutil.rmtree(written, ignore_errors=True)
            raise
        finish_replacing(target)


def replace_files(folder: Path, written: Path, *, stale: Iterable[str] = ()) -> None:
    """Let the files of `written`, a hidden folder in `folder` that the caller filled, take their places in one step.

    For the rest it is like `replaced_files`; where it fails, `written` stays.
    """
    with _in_plain_words(folder):
        _decide(folder, written, stale)
        finish_replacing(folder)


def _decide(folder: Path, written: Path, stale: Iterable[str]) -> None:
    """The step: from here on readers see the files of `written`."""
    old = {path.relative_to(folder) for pattern in stale for path in folder.glob(pattern)}
    gone = sorted(path.as_posix() for path in old if not (written / path).exists())
    (written / _REMOVED).write_text(json.dumps(gone), encoding="utf-8")
    _flush_all(written)
    written.rename(folder / _REPLACING)
    _flush(folder)


def is_replacing(folder: Path) -> bool:
    """Whether a replacement was decided there, and is not finished."""
    return (folder / _REPLACING).is_dir()


def finish_replacing(folder: Path) -> None:
    """Move the files of a replacement that was decided, and not finished, to their places."""
    decided = folder / _REPLACING
    if not decided.is_dir():
        return
    with suppress(FileNotFoundError, ValueError):  # another process does the same just now
        for name in json.loads((decided / _REMOVED).read_text(encoding="utf-8")):
            place = folder / str(name)
            if place.resolve().is_relative_to(folder.resolve()):  # whoever wrote the list
                place.unlink(missing_ok=True)
    for path in sorted(decided.rglob("*")):
        if path.is_file() and path.name != _REMOVED:
            place = folder / path.relative_to(decided)
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                path.replace(place)
    shutil.rmtree(decided, ignore_errors=True)
    _flush(folder)


def current_file(folder: Path, name: str) -> Path:
    """Where a file of a folder is, also while its replacement is decided and not finished."""
    decided = folder / _REPLACING / name
    return decided if is_file(decided) else folder / name


def as_path(value: Any, kind: type[PoolscopeError] = InputError) -> Path:
    """The path that a caller names; an error that names what no path can be.

    >>> as_path("a.arrow").name
    'a.arrow'
    """
    name = value if isinstance(value, str) else os.fspath(value) if isinstance(value, os.PathLike) else None
    if not isinstance(name, str) or name == "" or "\0" in name:
        raise kind(f"path: received {shorten(value)}; allowed: the name of a file or folder. Pass one.")
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


def private_folder(folder: Path) -> Path:
    """The folder, made if it is not there, which nobody but its owner may read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def refuse_special(path: Path, kind: type[PoolscopeError] = InputError) -> None:
    """Refuse to read what is there and is no regular file: a pipe would be waited for, a device read without end."""
    if path.exists() and not path.is_file():
        raise kind(f"{path.name} is not a regular file, but a folder, a pipe or a device. Name a file.")


def text_of(path: str | os.PathLike[str], kind: type[PoolscopeError] = InputError) -> str:
    """All of a small text file in UTF-8, such as JSON; what is no regular file, or has no end in sight, is refused."""
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
    with _in_plain_words(target):
        _refuse_other_kinds(target)
        with _made(target.parent):
            _try(target)


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The folder to write into, there or not; an error where none can be, or nothing can be written into it."""
    target = Path(path)
    with _in_plain_words(target):
        _refuse_files_among((target, *target.parents), target)
        with _made(target):
            _try(target / "file")
    return target


def _refuse_other_kinds(target: Path) -> None:
    """Refuse a folder or a device where a file is to be."""
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no file that can be replaced"
        raise OutputError(f"output: received {target}, which is {what}; allowed is a file. Name another one.")
    _refuse_files_among(target.parents, target)


def _refuse_files_among(folders: Iterable[Path], target: Path) -> None:
    for part in folders:
        if part.exists() and not part.is_dir():
            raise OutputError(
                f"output: received {target}, but {part} is a file; allowed is a folder. Name another one."
            )


@contextmanager
def _in_plain_words(target: Path) -> Iterator[None]:
    """Say what could not be written, why, and what to do, where the system refuses."""
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


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{_host()}.{os.getpid()}.tmp")


@cache
def _host() -> str:
    """Eight letters for this machine: a process number means nothing on another."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _remove_leftovers(target: Path) -> None:
    """Remove what killed writers of `target` on this machine left behind; that of a process that lives stays."""
    remove_leftovers(target.parent, f".{glob.escape(target.name)}")


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed writers on this machine left below a folder, of all files whose names fit the pattern."""
    for path in folder.glob(f"{pattern}.{_host()}.*.tmp"):
        number = path.name.split(".")[-2]
        if number.isdigit() and not _lives(int(number)):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _lives(process: int) -> bool:
    if process == os.getpid() or os.name == "nt":  # Windows refuses to remove an open file itself, and asks differently
        return process == os.getpid()
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there and belongs to someone else
        return True
    return True


def _try(target: Path) -> None:
    _remove_leftovers(target)
    path = _beside(target)
    path.touch()
    path.unlink()


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """The folder is there inside; those that were not there before are gone again after it."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for part in missing:
            with suppress(OSError):
                part.rmdir()


def _flush_all(folder: Path) -> None:
    """Ask the system to put a folder with all its files on disk."""
    for path in (*folder.rglob("*"), folder):
        _flush(path)


def _flush(path: Path) -> None:
    """Ask the system to put a file, or the entries of a folder, on disk."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open folders, and does not need it
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinity are refused: they are not JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def user_cache_folder() -> Path:
    """The folder for what poolscope can make again: the usual place of the platform, as platformdirs knows it.

    It holds texts and names of models, so that nobody but its owner may look into it.
    """
    import platformdirs

    folder = platformdirs.user_cache_path("poolscope", appauthor=False)
    with suppress(OSError):  # a place that cannot be written is for its user to find out
        private_folder(folder)
    return folder


class StoreBusyError(StoreError):
    """Another process is writing the same folder now."""


@contextmanager
def writing(folder: Path, *, kept: str = "") -> Iterator[None]:
    """Turn a full disk, missing rights and the like into a `StoreError`; `kept` says what is safe already."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        reason = error.__cause__ if isinstance(error, OutputError) else error
        raise StoreError(
            f"{folder}: {'the disk is full' if full else f'cannot be written ({reason})'}. {kept}"
            f"{'Make room' if full else 'Remove the cause'}, then run the same again: it goes on from there."
        ) from error


@contextmanager
def folder_lock(folder: Path, name: str = LOCK, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the folder for writing; `StoreBusyError` names the process and host that hold it already.

    `name` is that of the lock file, for locks on parts of a folder; `wait` says for how many seconds to wait for it.
    The lock is one of the system on an open file, gone when its process is gone, however it died: the `.lock`
    file that a killed writer leaves locks nothing. The file goes with the lock; whoever waits for a file that went
    makes it anew.
    """
    from filelock import FileLock, Timeout

    path = folder / name
    lock = FileLock(path, timeout=wait, mode=0o644, fallback_to_soft=False)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(poll_interval=0.2)
        except Timeout:
            raise StoreBusyError(
                f"{folder}: {_holder(path)} is writing here now, and one writer at a time is allowed. "
                f"Wait until it is done, or choose another folder."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            warnings.warn(
                "this file system has no locks: make sure that one process at a time writes the folder.", stacklevel=3
            )
    try:
        _sign(path)
        yield
    finally:
        if sys.platform != "win32":  # Windows cannot remove an open file; there the empty lock file stays
            path.unlink(missing_ok=True)
        lock.release()


def _sign(path: Path) -> None:
    """Leave word of who holds the lock, for the message that others get; on a full disk, do without."""
    with suppress(OSError):
        path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))


def _holder(path: Path) -> str:
    try:
        owner = json.loads(text_of(path))
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, TypeError, KeyError):  # it has locked the file and not signed it yet
        return "another process"


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
    _kept[name] = sentence


def what_is_kept() -> list[str]:
    """The sentences that hold now, the innermost work first."""
    sentences = [*_told, *(sentence() for sentence in reversed(_under_way)), *_kept.values()]
    return list(dict.fromkeys(filter(None, sentences)))
