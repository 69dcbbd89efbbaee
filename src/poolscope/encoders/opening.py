"""Every foreign model is opened in a process of its own first, where it may fail, hang or grow within limits.

Lists of bad names and sizes lose the race against those who look for the next one. So the files of a model (a folder,
a GGUF file, an ONNX graph) go to a second process, which does with them what this one is about to do (`rehearsal.py`),
confined (`confinement.py`). What does not come back in time, or in memory, is refused in one line that says which
limit it was; what comes back is loaded here, if the files are still the same.

The second process is a server, which forks for each model, so no model meets there what another one left. It is a copy
of this process, made once torch is imported and before a model is loaded, so that nothing is imported twice
(`copied.py`). Where other threads run in this process, it is a new one, which imports torch while this process does.
Where no process can be forked safely (macOS, Windows), a server opens one model and ends.
A model that came through is not opened again while it and the installation stay as they are (`opened.py`).
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from poolscope import errors
from poolscope.encoders import confinement
from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.confinement import Limits
from poolscope.encoders.copied import Copy, can_be_copied, copy_at
from poolscope.encoders.opened import MOST_FILES, name_of_note, note, noted
from poolscope.encoders.rehearsal import ending, environment, import_before, serve
from poolscope.errors import ModelError, PoolscopeError

FACTOR = "POOLSCOPE_OPENING_LIMITS"  # the variable of the environment that raises all limits
SECONDS = 20.0  # of processor time, whatever the size
MEMORY = 4 * 2**30  # bytes, whatever the size
START = 120.0  # seconds that the server may take to import what it needs
_PATIENCE = 10  # wall time for each second of processor time: other programs work too


@dataclass(frozen=True)
class Allowance:
    """What opening may take for each byte of the files: bytes of memory, and how many bytes a second are read."""

    memory: float
    speed: float


# A folder of transformers is opened without its weights. A GGUF file becomes float32, of 2 to 8 bits a number.
ALLOWANCES = {
    "transformers": Allowance(3, 20e6),
    "patches": Allowance(3, 20e6),
    "static": Allowance(12, 20e6),
    "onnx": Allowance(8, 20e6),
    "gguf": Allowance(48, 1e6),
    "gguf declaration": Allowance(8, 20e6),
}


def limits_for(kind: str, files: Mapping[str, Any]) -> Limits:
    """The limits of one opening, from the bytes of its files that are really on the disk."""
    size = sum(entry[-1] for entry in files.values())
    allowance, factor = ALLOWANCES[kind], _factor()
    seconds = factor * (SECONDS + size / allowance.speed)
    memory = int(factor * (MEMORY + size * allowance.memory))
    written = {"written": 4 * 8 * size + 2**24} if kind == "gguf" else {}  # at 1 bit a number
    return Limits(memory, seconds, _PATIENCE * seconds, **written)


def _factor() -> float:
    chosen = os.environ.get(FACTOR, "1")
    try:
        factor = float(chosen)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise errors.InputError(f"{FACTOR}={chosen} is no factor of the limits. Set a number above 0, such as 10.")
    return factor


def stamp(path: Path) -> dict[str, tuple[Any, ...]]:
    """What tells files from changed ones, by name: where each one is, when it changed, its size; bytes on the disk.

    Bytes on the disk are fewer than the size for a file of holes.
    """
    names = [path] if not path.is_dir() else sorted(islice(path.rglob("*"), MOST_FILES))
    stamps = {}
    for name in names:
        with suppress(OSError):  # a link that leads nowhere
            status = name.stat()
            stored = min(status.st_size, getattr(status, "st_blocks", status.st_size) * 512)
            if not name.is_dir():
                stamps[str(name)] = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, stored)
    return stamps


# -- one opening ------------------------------------------------------------------------------------------------------

_opened: dict[str, dict[str, Any]] = {}  # the facts of what was opened in this process, by request and stamp


@dataclass
class Opening:
    """An opening in the other process that is under way; `facts` waits for it."""

    name: str
    path: Path
    files: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    limits: Limits | None = None
    server: _Server | None = None  # None once it has answered

    def facts(self) -> dict[str, Any]:
        """What the other process learned of the model; the error in one line where the model is refused."""
        if self.server is not None and self.limits is not None:
            self.answer, self.server = self.server.answer(START + self.limits.wall), None
            _LOCK.release()
            if "facts" not in self.answer:
                raise _refusal(self.name, self.answer, self.limits, self.files)
            _opened[self.key] = self.answer
        facts: dict[str, Any] = self.answer.get("facts", {})
        return facts

    @property
    def confined(self) -> list[str]:
        """The limits that the system set for the other process."""
        return list(self.answer.get("confined", ()))

    def check_unchanged(self) -> None:
        """Refuse files that are no longer those that were opened."""
        if self.files and stamp(self.path) != self.files:
            raise ModelError(
                f"{self.name}: its files changed while it was opened; refused. Wait until nothing writes there, and "
                f"try again."
            )


@contextmanager
def opening(
    kind: str,
    path: Path,
    *,
    name: str,
    options: EncoderOptions | None = None,
    foreign: bool = True,
    output: Path | None = None,
    **settings: Any,
) -> Iterator[Opening]:
    """Begin to open a model in the other process; the body may do other work, then asks for `facts`, then loads.

    `foreign` is False for files whose digests are known. `output` is a folder that the other process may write to.
    """
    options = options or EncoderOptions()
    if confinement.inside or not foreign:
        yield Opening(name, path)
        return
    files = stamp(path)
    request = {
        "kind": kind,
        "path": str(path),
        "name": name,
        "options": asdict(options),
        "settings": settings,
        "cwd": str(Path.cwd()),
        "readable": sorted({str(path), str(path.resolve()), *(str(Path(file).resolve()) for file in files)}),
        "output": None if output is None else str(output),
        "limits": limits_for(kind, files).to_dict(),
    }
    key = json.dumps([request, sorted(files.items())])
    own_note = None if key in _opened else name_of_note(request, files)
    known = _opened.get(key) if output is None else None
    if (answer := known or noted(own_note)) is not None:
        yield (under_way := Opening(name, path, files, answer))
        under_way.check_unchanged()
        return
    under_way = _begin(request, files, key)
    try:
        yield under_way
        under_way.facts()
        under_way.check_unchanged()
        note(own_note, under_way.answer)
    finally:
        if under_way.server is not None:  # interrupted before the answer, which nobody will read
            stop()
            _LOCK.release()


def _begin(request: Mapping[str, Any], files: dict[str, tuple[Any, ...]], key: str) -> Opening:
    _LOCK.acquire()
    try:
        server, limits = _ask(request), Limits.from_dict(request["limits"])
        return Opening(request["name"], Path(request["path"]), files, key=key, limits=limits, server=server)
    except BaseException:
        _LOCK.release()
        raise


def _refusal(name: str, answer: Mapping[str, Any], limits: Limits, files: Mapping[str, Any]) -> PoolscopeError:
    """The one line for a model that did not come through."""
    if "error" in answer:
        kind = getattr(errors, str(answer.get("kind")), ModelError)
        return kind(answer["error"]) if issubclass(kind, PoolscopeError) else ModelError(answer["error"])
    size = sum(entry[-1] for entry in files.values())
    more = f"Set {FACTOR}=10 for ten times as much, if you trust the source."
    match answer.get("limit"):
        case "memory":
            reason = f"opening it takes more than {limits.memory / 2**30:.1f} GB of memory"
        case "processor":
            reason = f"opening it takes more than {limits.processor:.0f} s of processor time"
        case "wall":
            reason = f"opening it takes more than {limits.wall:.0f} s"
        case _:
            reason = f"the process that opened it ended ({answer.get('died', 'without a word')})"
            more = "Download it again from a source that you trust."
    return ModelError(f"{name}: refused: {reason}, for files of {bytes_in_words(size)}. {more}")


def bytes_in_words(count: int) -> str:
    """Bytes in words.

    >>> bytes_in_words(193), bytes_in_words(1_340_612_432)
    ('193 bytes', '1,340.6 MB')
    """
    return f"{count:,} bytes" if count < 10**5 else f"{count / 1e6:,.1f} MB"


# -- the server -------------------------------------------------------------------------------------------------------

_LOCK = threading.Lock()  # one opening at a time
_server: _Server | None = None


class _Server:
    """The other process, and the thread that reads its answers."""

    def __init__(self, process: subprocess.Popen[bytes] | Copy, *, copied_for: str | None = None) -> None:
        self.process, self.copied_for = process, copied_for
        self.owner = os.getpid()
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, name="poolscope-opening", daemon=True).start()

    @classmethod
    def copied(cls, request: Mapping[str, Any]) -> _Server | None:
        """A copy of this process, which imports what it needs anyway; None where no copy can be had."""
        if not can_be_copied():
            return None
        import_before(request)
        copy = copy_at(serve)
        return None if copy is None else cls(copy, copied_for=request["kind"])

    @classmethod
    def begun(cls) -> _Server:
        """A new process, which imports all by itself."""
        paths = [str(Path(place).absolute()) for place in sys.path]
        begin = "from poolscope.encoders.rehearsal import serve_as_program; serve_as_program()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", f"import sys; sys.path[:] = {paths!r}; {begin}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        return cls(process)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request; `OSError` where the process is gone."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The answer, within so many seconds."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            stop()
            return {"limit": "wall"}
        if not line:
            status = self.process.wait()
            stop()
            return {"died": ending(status)}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def is_here(self) -> bool:
        """Whether it can be asked from this process."""
        return self.owner == os.getpid() and self.process.poll() is None

    def end(self) -> None:
        """End the process; models that it has under way end with it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()


def _ask(request: Mapping[str, Any]) -> _Server:
    """Send a request to the server, which is started if there is none, or none any more."""
    global _server
    for _ in range(2):
        here = _server if _server is not None and _server.is_here() else None
        if here is None or here.copied_for not in (None, request["kind"]):  # or imported too little
            copied = _Server.copied(request)
            if copied is not None or here is None:
                stop()
                _server = copied or _Server.begun()
        assert _server is not None
        with suppress(OSError):  # it ended just now, since nobody had asked it anything
            _server.ask(request)
            return _server
        stop()
    raise ModelError(
        f"{request['name']}: the process that opens models first cannot be started with {sys.executable}. Check that "
        f"this Python can start itself."
    )


def stop() -> None:
    """End the server; the next model starts another."""
    global _server
    if _server is not None and _server.owner == os.getpid():
        _server.end()
    _server = None


def _forget() -> None:
    """A fork of this process has neither the server nor whoever held the lock."""
    global _server, _LOCK
    _server, _LOCK = None, threading.Lock()


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
