"""Is a file still what poolscope wrote? All digests of stores, cloud files, states, repairs, audits and results.

Reading a part of a file compares the digests of that part. `verify` compares all of them, and says of every file
whether it is `ok`, `damaged`, `missing`, or `unchecked` because it has no digest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np

from poolscope.auditing.compare import COMPARISON
from poolscope.auditing.result import FILES, JSON
from poolscope.clouds import TokenClouds
from poolscope.clouds.file import has_digests
from poolscope.clouds.vectors import Vectors, open_vectors
from poolscope.digests import KEY, check_seal, digest_of_arrays, digest_of_file
from poolscope.errors import InputError, PoolscopeError, StoreError, reading, shorten
from poolscope.extensions import service
from poolscope.files import refuse_special, text_of
from poolscope.repairs.vectors import open_arrays
from poolscope.replacing import current_file
from poolscope.results import Result
from poolscope.stores.remote import is_remote
from poolscope.stores.store import LABELS, MANIFEST, Store, checked_shard, fetched
from poolscope.texts import Texts
from poolscope.texts.records import ReadReport
from poolscope.texts.sources import exists

State = Literal["ok", "damaged", "missing", "unchecked"]
_REMEDY = "Make it again with the command that wrote it."


@dataclass(frozen=True)
class CheckedFile:
    """One file: its name, its state, and a sentence on the comparison or the fault."""

    name: str
    state: State
    words: str


@dataclass(frozen=True, repr=False)
class Verification(Result):
    """What `verify` found, file by file."""

    path: str
    files: tuple[CheckedFile, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing is damaged or missing; what has no digest was not checked."""
        return not any(file.state in ("damaged", "missing") for file in self.files)

    def headline(self) -> dict[str, Any]:
        """How many files there are of each state."""
        return {state: sum(file.state == state for file in self.files) for state in ("ok", *_WRONG, "unchecked")}

    def in_words(self) -> tuple[str, ...]:
        """What was found, in one sentence."""
        count = self.headline()
        parts = [f"{count[state]:,} {state}" for state in ("ok", *_WRONG, "unchecked") if count[state]]
        right = "Nothing is damaged or missing" if self.is_right else "Something is not as it was written"
        return (f"{right}: {', '.join(parts)}.",)

    def rows(self) -> list[dict[str, Any]]:
        """One row a file."""
        return [{"file": file.name, "state": file.state, "words": file.words} for file in self.files]


_WRONG = ("damaged", "missing")


def verify(path: str | os.PathLike[str]) -> Verification:
    """Compare all digests of a file or folder that poolscope wrote.

    Parameters
    ----------
    path
        A store, a cloud file, a state of token statistics, a repair, an audit or a comparison, a result as `.json`; or
        a folder with such.

    Returns
    -------
    Verification
        One line a file; `is_right` says whether nothing is damaged or missing.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "clouds.arrow"
    >>> TokenClouds.from_arrays([[[1.0, 0.0]], [[0.0, 1.0]]]).save(path)
    >>> verify(path)
    Verification(ok 1, damaged 0, missing 0, unchecked 0)
    >>> data = path.read_bytes()
    >>> _ = path.write_bytes(data.replace(np.float64(1.0).tobytes(), np.float64(1.5).tobytes()))
    >>> verify(path).is_right
    False

    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) or path == "":
        raise InputError(
            f"path: received {shorten(path)}; allowed: the name of a file or folder, such as 'report.json'."
        )
    target = fetched(path) if is_remote(path) else Path(path)
    if not exists(target):
        raise InputError(f"{shorten(str(path))}: there is no such file or folder. Name what poolscope wrote.")
    if not target.is_dir():
        refuse_special(target)
    files = tuple(_of_folder(target, "")) if target.is_dir() else (_of_file(target, target.name),)
    if not files:
        raise InputError(f"{path}: nothing in this folder was written by poolscope. Name what poolscope wrote.")
    return Verification(str(path), files)


def _of_folder(folder: Path, name: str) -> Iterator[CheckedFile]:
    """Every file of an output that is a folder; of any other folder the outputs in it."""
    if current_file(folder, MANIFEST).is_file():
        yield from _of_store(folder, name)
        return
    own = [part for part in (JSON, COMPARISON) if current_file(folder, part).is_file()]
    for part in own:
        yield from _of_listed(folder, part, name)
    listed = (JSON, COMPARISON) if own else ()
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir() and not own:
            yield from _of_folder(path, f"{name}{path.name}/")
        elif path.suffix.lower() in _KINDS and path.name not in listed and path.is_file():
            yield _of_file(path, f"{name}{path.name}")


def _checked(name: str, check: Callable[[], tuple[State, str]]) -> CheckedFile:
    try:
        return CheckedFile(name, *check())
    except FileNotFoundError:
        return CheckedFile(name, "missing", _REMEDY)
    except PoolscopeError as error:
        return CheckedFile(name, "damaged", str(error).replace("\n", " "))


def _without(written_by: object = None) -> tuple[State, str]:
    by = f"poolscope {written_by}" if written_by else "an earlier version or another program"
    return "unchecked", f"no digest: written by {by}"


# -- files ------------------------------------------------------------------------------------------------------------


def _of_file(path: Path, name: str) -> CheckedFile:
    check = _KINDS.get(path.suffix.lower())
    if check is None:
        return CheckedFile(name, "unchecked", f"no digest: files of the kind '{path.suffix}' carry none")

    def checked() -> tuple[State, str]:
        refuse_special(path, StoreError)
        return check(path)

    return _checked(name, checked)


def _check_clouds(path: Path) -> tuple[State, str]:
    shard = checked_shard(path)
    if isinstance(shard, Vectors):
        return ("ok", f"vectors of {len(shard):,} texts") if has_digests(path) else _without()
    if not shard.has_digests:
        return _without(shard.provenance.get("poolscope"))
    return "ok", f"{len(shard):,} texts, {shard.lengths.sum():,} tokens"


def _check_state(path: Path) -> tuple[State, str]:
    with reading(path, _REMEDY), np.load(path, allow_pickle=False) as file:
        if "header" not in file.files:
            return "unchecked", "no digest: no state of token statistics"
    texts = service("state of token statistics")(path)
    return ("ok", f"moments of {texts:,} texts") if texts is not None else _without()


def _check_repair(path: Path) -> tuple[State, str]:
    content, arrays = open_arrays(path)
    if KEY not in content:
        return _without(content.get("version"))
    check_seal(content, path, _REMEDY, beside=digest_of_arrays(arrays))
    return "ok", f"{content.get('kind')}, {len(arrays)} arrays"


def _check_json(path: Path) -> tuple[State, str]:
    content = _sealed_content(path)
    return ("ok", str(content.get("result") or "JSON")) if KEY in content else _without(content.get("poolscope"))


_KINDS: Mapping[str, Callable[[Path], tuple[State, str]]] = {
    ".arrow": _check_clouds,
    ".npz": _check_state,
    ".safetensors": _check_repair,
    ".json": _check_json,
}


def _sealed_content(path: Path) -> dict[str, Any]:
    """The content of a JSON file, whose digest agrees where it has one."""
    with reading(path, _REMEDY):
        content = json.loads(text_of(path, StoreError))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
    check_seal(content, path, _REMEDY)
    return content


# -- folders ----------------------------------------------------------------------------------------------------------


def _of_listed(folder: Path, part: str, name: str) -> Iterator[CheckedFile]:
    """A JSON file that lists the digests of the files beside it: an audit, a comparison."""
    summary = _of_file(current_file(folder, part), f"{name}{part}")
    yield summary
    if summary.state == "damaged":
        return
    listed = _sealed_content(current_file(folder, part)).get(FILES, {})
    if not isinstance(listed, dict):
        yield CheckedFile(f"{name}{part}", "damaged", f"its list of files is {shorten(listed)}. {_REMEDY}")
        return
    for file, digest in sorted(listed.items()):
        yield _checked(f"{name}{file}", lambda file=file, digest=digest: _check_bytes(folder, file, digest))  # type: ignore[misc]


def _check_bytes(folder: Path, file: str, digest: object) -> tuple[State, str]:
    try:
        path = current_file(folder, file)
        if not path.resolve().is_relative_to(folder.resolve()):  # whoever wrote the list
            return "damaged", "it lies outside of the folder"
        refuse_special(path, StoreError)
        size, own = path.stat().st_size, digest_of_file(path)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # a name that no file can have, a link to itself
        raise StoreError(f"it cannot be read ({type(error).__name__}). {_REMEDY}") from error
    if own != digest:
        raise StoreError(f"it is not what was written, since its digest differs. {_REMEDY}")
    return "ok", f"{size:,} bytes"


def _of_store(folder: Path, name: str) -> Iterator[CheckedFile]:
    """The manifest, the labels, every shard of every layer, and whether the texts are those of the manifest."""
    manifest = _of_file(current_file(folder, MANIFEST), f"{name}{MANIFEST}")
    yield manifest
    if manifest.state == "damaged":
        return
    try:
        store = Store.open(folder)
    except StoreError as error:
        yield CheckedFile(f"{name}{MANIFEST}", "damaged", str(error))
        return
    if store.manifest.texts["labels"] is not None:
        yield _checked(f"{name}{LABELS}", lambda: _check_labels(store))
    whole = True
    ends = list(accumulate(store.manifest.shard_sizes))
    for layer in store.manifest.keys:
        for shard, size in enumerate(store.manifest.shard_sizes):
            own, drawn = store.file_of(layer, shard), store.shard_path(layer, shard)
            for path in dict.fromkeys([own, drawn] if drawn.exists() else [own]):
                expected = size if path == own else None
                checked = _of_shard(path, f"{name}{path.parent.name}/{path.name}", expected, store)
                whole &= checked.state in ("ok", "unchecked")
                yield checked
    if whole:
        yield _checked(f"{name}(texts)", lambda: _check_texts(store, ends[-1]))


def _check_labels(store: Store) -> tuple[State, str]:
    refuse_special(current_file(store.folder, LABELS), StoreError)
    return "ok", f"{len(store.labels or ()):,} labels"


def _of_shard(path: Path, name: str, size: int | None, store: Store) -> CheckedFile:
    if not path.exists():
        reason = "not written yet: the store is unfinished. " if not store.manifest.complete else ""
        return CheckedFile(name, "missing", reason + store.remedy("Finish"))
    checked = _of_file(path, name)
    if checked.state == "unchecked":
        return CheckedFile(name, *_without(store.manifest.poolscope))
    if checked.state == "ok" and size is not None and (count := _count(path)) != size:
        return CheckedFile(name, "damaged", f"{count} texts where {size} belong. {store.remedy('Repair')}")
    return checked


def _count(path: Path) -> int:
    return len(open_vectors(path) if path.parent.name.startswith("moments-") else TokenClouds.open(path))


def _check_texts(store: Store, count: int) -> tuple[State, str]:
    """Ids and texts of every layer against the digest of the manifest: no shard is of another store or misplaced."""
    for layer in store.manifest.keys:
        tokens = store.manifest.keep == "tokens"
        stored = store.clouds(layer, allow_partial=True) if tokens else store.vectors(layer)
        try:
            texts = Texts(tuple(stored.ids), tuple(stored.texts or ()), None, "", ReadReport(count, count))
            same = texts.digest == store.manifest.texts["digest"]
        except InputError:  # one text twice, or fewer texts than ids
            same = False
        if not same:
            raise StoreError(f"the texts of layer {layer} are not those of the manifest. {store.remedy('Repair')}")
    return "ok", "ids and texts of all layers are those of the manifest"
