"""A model that this user has opened needs no second opening while neither the model nor the installation changes.

To open one costs as much as all imports of transformers. So a note of what was learned stays in the user's cache.
Its name is a digest of everything that the opening depended on, and only this user can write one (`poolscope.marks`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from poolscope.encoders.folders import LARGEST_VOCABULARY, file_digest
from poolscope.errors import StoreError
from poolscope.files import user_cache_folder
from poolscope.folder import Folder
from poolscope.marks import is_marked, mark_of

Stamps = Mapping[str, tuple[Any, ...]]

MOST_FILES = 10_000
# Of these kinds no weight is read by the opening. The others are opened soon: their libraries are small.
_WITHOUT_WEIGHTS = ("transformers", "patches")
_WEIGHTS = (".safetensors", ".bin", ".onnx", ".onnx_data", ".data", ".gguf", ".h5", ".msgpack", ".pt", ".pth")
_FOLDER = "opened"


def name_of_note(request: Mapping[str, Any], files: Stamps) -> str | None:
    """The name of the note on an opening, a digest of all that it depends on; None where that cannot be told.

    Weights count by their stamps (place, times, size), and every other file by its content too.
    """
    path = Path(request["path"])
    if request["kind"] not in _WITHOUT_WEIGHTS or request["output"] is not None or not _all_are_seen(path):
        return None
    others = [Path(name) for name in files if not name.endswith(_WEIGHTS)]
    try:
        if not all(file.is_file() for file in others):  # a pipe would be read for ever
            return None
        if sum(file.stat().st_size for file in others) > LARGEST_VOCABULARY:
            return None
        contents = {str(file): file_digest(file) for file in others}
    except OSError:
        return None
    question = {key: value for key, value in request.items() if key != "cwd"}
    whole = json.dumps([question, sorted(files.items()), sorted(contents.items()), _installation()], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def _all_are_seen(path: Path) -> bool:
    """Whether the stamps of a folder cover all that lies below it; they do not follow a link to a folder."""
    names = list(islice(path.rglob("*"), MOST_FILES))
    return path.is_dir() and len(names) < MOST_FILES and not any(name.is_symlink() and name.is_dir() for name in names)


def _installation() -> list[Any]:
    """What changes whenever a package is added, removed or exchanged, or a file of poolscope itself is."""
    own = Path(__file__).resolve().parents[1]
    packages = sorted({place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")})
    places = [*map(Path, packages), *sorted(own.rglob("*.py"))]
    return [sys.version, [[str(place), place.stat().st_mtime_ns] for place in places if place.exists()]]


def noted(name: str | None) -> dict[str, Any] | None:
    """What was learned when the model was opened; None without a note that this user wrote."""
    if name is None:
        return None
    try:
        with Folder.open(user_cache_folder(), through_link=True) as cache, cache.folder(_FOLDER, make=False) as folder:
            note = json.loads(folder.read(name))
        answer: dict[str, Any] = note["answer"]
        return answer if is_marked({"opened": name, "answer": answer}, note["mark"]) else None
    except (OSError, StoreError, ValueError, TypeError, KeyError, RecursionError):
        return None


def note(name: str | None, answer: Mapping[str, Any]) -> None:
    """Remember that a model was opened, and what was learned; a cache that cannot be written remembers nothing."""
    if name is None:
        return
    content = {"answer": answer, "mark": mark_of({"opened": name, "answer": answer})}
    with (
        suppress(OSError, StoreError),
        Folder.open(user_cache_folder(), through_link=True) as cache,
        cache.folder(_FOLDER) as folder,
        folder.file(name, mode=0o600) as stream,
    ):
        stream.write(json.dumps(content).encode())
