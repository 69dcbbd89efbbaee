"""A folder that is opened once: what lies below it is reached through its descriptor, and never through a link.

A folder may come from someone else, and then others decided what is in it. They shall not decide where is written: no
link below the folder is followed, no file that is there is opened for writing (a new one takes its name, so that a hard
link, a pipe or a device keeps what it had), and a folder that is exchanged for another one after it was opened gets
nothing. Python on Windows has no such descriptors: there every part of a name is looked at, and a link refused.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from poolscope.errors import OutputError, StoreError
from poolscope.words import as_json, warn

LOCK = ".lock"
_BY_DESCRIPTOR = {os.open, os.mkdir, os.rename, os.unlink, os.rmdir, os.stat} <= os.supports_dir_fd
# A pipe that nobody writes is not waited for; programs that are started do not inherit what is open here.
_CAREFUL = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}
_LONGEST_TEXT = 2**30  # bytes of a file that is read into memory; none that poolscope writes comes near
_PAUSE = 0.2  # seconds between two looks at a lock that another process holds


class StoreBusyError(StoreError):
    """Another process is writing the same folder now."""


class Folder:
    """An open folder. Names are relative and have strokes: "tables/socm.parquet"; none leads out of the folder.

    >>> import tempfile
    >>> with Folder.open(tempfile.mkdtemp()) as folder:
    ...     folder.write("tables/a.txt", b"content")
    ...     folder.read("tables/a.txt"), sorted(folder.files())
    (b'content', ['tables/a.txt'])
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path  # for messages, and where the system has no descriptors of folders
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def open(cls, path: str | os.PathLike[str], *, through_link: bool = False) -> Iterator[Folder]:
        """Open the folder that a user named, made if it is not there; one that was made and stays empty goes again.

        The name is followed up to its last part. That part may be a link only for `through_link`, where the user named
        a file in the folder and not the folder.
        """
        target = Path(path)
        missing = [part for part in (target, *target.parents) if not os.path.lexists(part)]
        if not through_link:
            _refuse_link(target)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if _BY_DESCRIPTOR:
                flags = os.O_RDONLY | os.O_DIRECTORY | _CAREFUL
                descriptor = os.open(target, flags & ~os.O_NOFOLLOW if through_link else flags)
                try:
                    yield cls(target, descriptor)
                finally:
                    os.close(descriptor)
            else:
                yield cls(target.resolve(strict=True), None)
        finally:
            for part in missing:
                with suppress(OSError):
                    part.rmdir()

    @contextmanager
    def folder(self, name: str = "", *, make: bool = True) -> Iterator[Folder]:
        """Open a folder below this one, part by part, and make what is not there; a link on the way is refused."""
        with ExitStack() as opened:
            place = self
            for part in _parts(name):
                place = opened.enter_context(place._child(part, make=make))
            yield place

    @contextmanager
    def _child(self, part: str, *, make: bool) -> Iterator[Folder]:
        path = self.path / part
        if make:
            with suppress(FileExistsError):
                os.mkdir(self._at(part), dir_fd=self._descriptor)
        kind = self._mode(part)
        if kind is not None and not stat.S_ISDIR(kind):
            what = "a link" if stat.S_ISLNK(kind) else "a file"
            raise OutputError(f"{path} is {what}; allowed is a folder. Remove it, or name another folder.")
        if self._descriptor is None:
            if kind is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            _refuse_link(path)
            yield Folder(path, None)
            return
        descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _CAREFUL, dir_fd=self._descriptor)
        try:
            yield Folder(path, descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _around(self, name: str, *, make: bool = False) -> Iterator[tuple[Folder, str]]:
        """The folder in which a name stands, and its last part."""
        *above, last = _parts(name)
        with self.folder("/".join(above), make=make) as place:
            yield place, last

    def _at(self, part: str) -> str:
        """What the system calls a name that stands directly in this folder."""
        return part if self._descriptor is not None else str(self.path / part)

    def _mode(self, part: str) -> int | None:
        """Kind and rights of an entry of this folder; links are not followed."""
        try:
            return os.stat(self._at(part), dir_fd=self._descriptor, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def for_libraries(self) -> Path:
        """A way to this folder for libraries that write by paths; on Linux it leads through the descriptor."""
        way = Path(f"/proc/self/fd/{self._descriptor}")
        try:
            same = self._descriptor is not None and os.path.samestat(way.stat(), os.fstat(self._descriptor))
        except OSError:
            same = False
        return way if same else self.path

    # -- reading ------------------------------------------------------------------------------------------------------

    def kind(self, name: str) -> str | None:
        """What a name is: "file", "folder", "link" or "other"; None where nothing has it."""
        try:
            with self._around(name) as (place, last):
                mode = place._mode(last)
        except FileNotFoundError:
            return None
        if mode is None:
            return None
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
        return kinds.get(stat.S_IFMT(mode), "other")

    def entries(self) -> list[os.DirEntry[str]]:
        """What stands directly in it."""
        with os.scandir(self.path if self._descriptor is None else self._descriptor) as listing:
            return list(listing)

    def match(self, pattern: str) -> list[str]:
        """The names that fit a pattern such as "tables/*.parquet", in order; no part of one fits a stroke."""
        first, _, rest = pattern.partition("/")
        names = sorted(entry.name for entry in self.entries() if fnmatch.fnmatchcase(entry.name, first))
        if not rest:
            return names
        matches = []
        for name in names:
            if self.kind(name) in ("folder", "link"):  # a link is refused there
                with self.folder(name, make=False) as below:
                    matches += [f"{name}/{found}" for found in below.match(rest)]
        return matches

    def files(self) -> dict[str, int]:
        """The size of every file below it, by name; an error where something is neither a file nor a folder."""
        sizes: dict[str, int] = {}
        for entry in sorted(self.entries(), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                with self.folder(entry.name, make=False) as below:
                    sizes |= {f"{entry.name}/{name}": size for name, size in below.files().items()}
            elif entry.is_file(follow_symlinks=False):
                sizes[entry.name] = os.stat(
                    self._at(entry.name), dir_fd=self._descriptor, follow_symlinks=False
                ).st_size
            else:
                raise OutputError(f"{self.path / entry.name} is neither a file nor a folder. Remove it.")
        return sizes

    @contextmanager
    def reading(self, name: str) -> Iterator[BufferedReader]:
        """Open a regular file to read it."""
        with self._around(name) as (place, last):
            if stat.S_ISLNK(place._mode(last) or 0):
                raise OutputError(f"{place.path / last} is a link, and links are not followed. Remove it.")
            descriptor = os.open(place._at(last), os.O_RDONLY | _CAREFUL, dir_fd=place._descriptor)
            with os.fdopen(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OutputError(f"{place.path / last} is not a regular file. Remove it.")
                yield stream

    def read(self, name: str) -> bytes:
        """All of a small file."""
        with self.reading(name) as stream:
            size = os.fstat(stream.fileno()).st_size  # asked for, since `read` takes the memory of its argument at once
            if size > _LONGEST_TEXT:
                raise OutputError(f"{self.path / name} has more than {_LONGEST_TEXT:,} bytes. Remove it.")
            return stream.read(size)

    # -- writing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def file(self, name: str, *, mode: int = 0o666) -> Iterator[BinaryIO]:
        """Yield a stream to write; on success it is flushed to disk and takes the name in one step.

        If the body raises, what had the name before stays. A process that is killed leaves a hidden
        `.name.HOST.PID.….tmp`, which the next one that writes the name removes.
        """
        with self._around(name, make=True) as (place, last):
            place.remove_leftovers(f".{literal(last)}")
            temporary = temporary_name(last)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL
            descriptor = os.open(place._at(temporary), flags, mode, dir_fd=place._descriptor)
            try:
                try:
                    with os.fdopen(descriptor, "wb", closefd=False) as stream:  # libraries may close the stream
                        yield stream
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                place._rename(temporary, place, last)
                place.flush()
            except BaseException:
                place.remove(temporary)
                raise

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, in one step."""
        with self.file(name) as stream:
            stream.write(content)

    def write_text(self, name: str, content: str) -> None:
        """Write a text in UTF-8, in one step."""
        self.write(name, content.encode("utf-8"))

    def write_json(self, name: str, value: Any) -> None:
        """Write `value` as indented JSON, in one step. NaN and infinity are refused: they are not JSON."""
        self.write(name, json_bytes(value))

    def append(self, name: str, content: str) -> None:
        """Add to the end of a small text file, in one step; a link of that name is replaced, not followed."""
        before = self.read(name) if self.kind(name) == "file" else b""
        self.write(name, before + content.encode("utf-8"))

    def take(self, other: Folder, name: str) -> None:
        """Move a file of another folder to the same name here, over what has it; also from one device to another."""
        with other._around(name) as (source, last), self._around(name, make=True) as (place, _):
            try:
                source._rename(last, place, last)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with source.reading(last) as content, place.file(last) as stream:
                    shutil.copyfileobj(content, stream, 2**20)
                source.remove(last)

    def rename(self, name: str, new: str) -> None:
        """Give a file or folder that stands directly in this folder another name, over a file or an empty folder."""
        self._rename(name, self, new)

    def _rename(self, name: str, place: Folder, new: str) -> None:
        os.replace(self._at(name), place._at(new), src_dir_fd=self._descriptor, dst_dir_fd=place._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, a link itself, or a folder with all that is in it; what is not there is no error."""
        with suppress(FileNotFoundError), self._around(name) as (place, last):
            mode = place._mode(last)
            if mode is not None and stat.S_ISDIR(mode):
                shutil.rmtree(place._at(last), dir_fd=place._descriptor, ignore_errors=True)
            elif mode is not None:
                os.unlink(place._at(last), dir_fd=place._descriptor)

    def remove_empty(self, name: str) -> None:
        """Remove a folder if nothing is in it."""
        with suppress(OSError), self._around(name) as (place, last):
            os.rmdir(place._at(last), dir_fd=place._descriptor)

    def remove_leftovers(self, pattern: str) -> None:
        """Remove what killed writers on this machine left, of names that fit the pattern; the living keep theirs."""
        for name in self.match(f"{pattern}.{_host()}.*.tmp"):
            number = name.split(".")[-3]
            if number.isdigit() and not _lives(int(number)):
                with suppress(OSError):
                    self.remove(name)

    def try_to_write(self, name: str) -> None:
        """Make a file and remove it: what the system refuses shows before the work whose result it is for."""
        self.remove_leftovers(f".{literal(name)}")
        name = temporary_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL
        os.close(os.open(self._at(name), flags, 0o600, dir_fd=self._descriptor))
        self.remove(name)

    def make_private(self) -> None:
        """Let nobody but the owner read it and what is below it: rights 700 for folders and 600 for files."""
        if self._descriptor is None:  # Windows has other rights, which come from the folder above
            return
        os.fchmod(self._descriptor, 0o700)
        for entry in self.entries():
            if entry.is_dir(follow_symlinks=False):
                with self.folder(entry.name, make=False) as below:
                    below.make_private()
            elif entry.is_file(follow_symlinks=False):
                with self.reading(entry.name) as stream:
                    if os.fstat(stream.fileno()).st_nlink == 1:  # a hard link may be of a file elsewhere
                        os.fchmod(stream.fileno(), 0o600)

    def flush(self, *, all_below: bool = False) -> None:
        """Ask the system to put its entries on disk, with `all_below` also the files and folders below it."""
        if all_below:
            for entry in self.entries():
                if entry.is_dir(follow_symlinks=False):
                    with self.folder(entry.name, make=False) as below:
                        below.flush(all_below=True)
                elif entry.is_file(follow_symlinks=False) and self._descriptor is not None:
                    with self.reading(entry.name) as stream:
                        os.fsync(stream.fileno())
        if self._descriptor is not None:  # Windows cannot open folders, and does not need it
            os.fsync(self._descriptor)

    # -- one writer at a time -----------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, name: str = LOCK, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the folder for writing; `StoreBusyError` names the process and host that hold it already.

        `name` is that of the lock file, for locks on parts of a folder; `wait` says for how many seconds to wait. The
        lock is one of the system on an open file, gone when its process is gone, however it died: the file that a
        killed writer leaves locks nothing. The file goes with the lock; whoever waits for one that went makes it anew.
        """
        descriptor = self._locked(name, time.monotonic() + wait)
        try:
            with suppress(OSError):  # on a full disk others do not learn who holds the lock
                os.ftruncate(descriptor, 0)
                os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
            yield
        finally:
            if sys.platform != "win32":  # Windows cannot remove an open file; there the empty lock file stays
                with suppress(OSError):
                    self.remove(name)
            os.close(descriptor)

    @contextmanager
    def shared_lock(self, name: str, *, wait: float = 0.0) -> Iterator[None]:
        """Hold a lock together with all others that share it; whoever wants it alone (`lock`) waits or is refused."""
        descriptor = self._locked(name, time.monotonic() + wait, shared=True)
        try:
            yield
        finally:
            with suppress(OSError):  # of those that share it, the last one gets it alone and removes the file
                _lock(descriptor)
                if self._is_still(name, descriptor):
                    self.remove(name)
            os.close(descriptor)

    def _locked(self, name: str, until: float, *, shared: bool = False) -> int:
        while True:
            descriptor = self._lock_file(name)
            try:
                _lock(descriptor, shared=shared)
                if self._is_still(name, descriptor):
                    return descriptor
            except BlockingIOError:
                if time.monotonic() >= until:
                    holder = self._holder(name)
                    os.close(descriptor)
                    raise StoreBusyError(
                        f"{self.path}: {holder} is writing here now, and one writer at a time is allowed. "
                        f"Wait until it is done, or choose another folder."
                    ) from None
                time.sleep(_PAUSE)
            except OSError as error:
                if error.errno not in _NO_LOCKS_HERE:
                    os.close(descriptor)
                    raise
                warn("this file system has no locks: make sure that one process at a time writes the folder.")
                return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _lock_file(self, name: str) -> int:
        """Open the lock file. It is written into, so that a link, a hard link or a pipe of its name is replaced."""
        flags = os.O_RDWR | os.O_CREAT | _CAREFUL
        for _ in range(3):  # others may remove it, and make it anew, in between
            self._replace_unfit(name)
            descriptor = os.open(self._at(name), flags, 0o644, dir_fd=self._descriptor)
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode) and about.st_nlink <= 1:  # none: removed just now
                return descriptor
            os.close(descriptor)
        return os.open(self._at(name), flags | os.O_EXCL, 0o644, dir_fd=self._descriptor)

    def _replace_unfit(self, name: str) -> None:
        """Remove what is no file of its own; a folder is left, and so is the file of another user."""
        with suppress(FileNotFoundError):
            about = os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)
            regular = stat.S_ISREG(about.st_mode) and about.st_nlink <= 1
            if not regular and not stat.S_ISDIR(about.st_mode):
                self.remove(name)

    def _is_still(self, name: str, descriptor: int) -> bool:
        """Whether the name is still that of the open file, and not of one that another process made anew."""
        try:
            there = os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _holder(self, name: str) -> str:
        try:
            owner = json.loads(self.read(name))
            return f"process {int(owner['pid'])} on {owner['host']}"
        except (OSError, ValueError, TypeError, KeyError):  # it has locked the file and not signed it yet
            return "another process"


def _lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file for this process, or for all that share it, or raise BlockingIOError."""
    if sys.platform == "win32":
        import msvcrt

        if shared:  # there are none; an open file, such as a mapped one, cannot be removed there
            return
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
    else:
        import fcntl

        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def json_bytes(value: Any) -> bytes:
    """`value` as indented JSON. NaN and infinity are refused: they are not JSON."""
    return (as_json(value, indent=2) + "\n").encode("utf-8")


def _parts(name: str) -> list[str]:
    """The parts of a relative name; an error for one that could lead out of a folder.

    >>> _parts("tables/a.txt"), _parts("")
    (['tables', 'a.txt'], [])
    """
    parts = name.split("/") if name else []
    windows = os.name == "nt" and any(mark in name for mark in "\\:")
    if windows or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise OutputError(f"{name!r} is no name of a file below a folder.")
    return parts


def literal(name: str) -> str:
    """A name as a pattern that fits it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _refuse_link(path: Path) -> None:
    if path.is_symlink() or (os.name == "nt" and getattr(path, "is_junction", bool)()):
        raise OutputError(f"{path} is a link to {path.readlink()}. Name that folder itself.")


def temporary_name(name: str) -> str:
    """Make a hidden name for a writer of `name`, unique to this machine and process."""
    return f".{name}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


@cache
def _host() -> str:
    """Eight letters for this machine: a process number means nothing on another."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _lives(process: int) -> bool:
    if process == os.getpid() or os.name == "nt":  # Windows refuses to remove an open file itself, and asks differently
        return process == os.getpid()
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is there and belongs to someone else, or is no number of a process
        return True
    return True
