"""Several files of a folder are replaced as one: whenever the writer dies, readers see all of the old or of the new.

The new files are written into a hidden folder. One renaming, to `.replacing`, decides: from there on readers see them,
and the writer moves them to their places. A writer that was killed in between left that folder to the next one, which
takes it up only if a process of the same user made it, by a key that nobody else can read, and if its list agrees with
its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from poolscope.errors import OutputError
from poolscope.files import is_file
from poolscope.folder import Folder, temporary_name
from poolscope.marks import is_marked, mark_of

_REPLACING, _LIST = ".replacing", ".list"


@contextmanager
def replaced_files(folder: Folder, *, stale: Iterable[str] = ()) -> Iterator[Folder]:
    """Yield an empty folder; on success its files take the places of those in `folder`, all of them in one step.

    Files of `folder` whose names match one of the patterns `stale` and that were not written go in the same step; all
    others stay. The caller holds the lock of the folder.
    """
    finish_replacing(folder)
    folder.remove_leftovers(".file")
    name = temporary_name("file")
    try:
        with folder.folder(name) as written:
            yield written
        replace_files(folder, name, stale=stale)
    except BaseException:
        folder.remove(name)
        raise


def replace_files(folder: Folder, name: str, *, stale: Iterable[str] = ()) -> None:
    """Let the files of a hidden folder of that name, which the caller filled, take their places in one step.

    For the rest it is like `replaced_files`; where it fails, the hidden folder stays.
    """
    with folder.folder(name, make=False) as written:
        written.remove_leftovers(f".{_LIST}")  # of one that was killed here: it is none of the files
        files = {file: size for file, size in written.files().items() if file != _LIST}
        old = {file for pattern in stale for file in folder.match(pattern)}
        plan = {"files": files, "removed": sorted(old - set(files))}
        written.write_json(_LIST, {**plan, "made_by": mark_of(plan)})
        written.flush(all_below=True)
    folder.rename(name, _REPLACING)  # the step: from here on readers see the new files
    folder.flush()
    finish_replacing(folder)


def finish_replacing(folder: Folder) -> None:
    """Move the files of a replacement that was decided, and not finished, to their places."""
    if folder.kind(_REPLACING) is None:
        return
    with folder.folder(_REPLACING, make=False) as decided:
        files = {file: size for file, size in decided.files().items() if file != _LIST}
        if files:
            removed = _checked(folder, decided, files)
            for name in removed:
                folder.remove(name)
            for name in files:
                folder.take(decided, name)
    folder.remove(_REPLACING)
    folder.flush()


def _checked(folder: Folder, decided: Folder, files: dict[str, int]) -> list[str]:
    """The names that a replacement removes, if it is one of this user and every file is what its list says."""
    where = f"{decided.path}: an unfinished replacement of files"
    remedy = "Remove that hidden folder, or name another folder."
    try:
        content: dict[str, Any] = json.loads(decided.read(_LIST))
        plan: dict[str, Any] = {"files": dict(content["files"]), "removed": list(content["removed"])}
        made_here = is_marked(plan, content["made_by"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        made_here = False
    if not made_here:
        raise OutputError(f"{where} that was not begun by you on this machine. {remedy}")
    moved = set(plan["files"]) - set(files)
    agrees = all(plan["files"].get(name) == size for name, size in files.items())
    if not agrees or any(folder.kind(name) != "file" for name in moved):
        raise OutputError(f"{where} whose files are not those of its list. {remedy}")
    return [str(name) for name in plan["removed"]]


# -- for readers ------------------------------------------------------------------------------------------------------


def is_replacing(folder: Path) -> bool:
    """Whether a replacement was decided there, and is not finished."""
    return (folder / _REPLACING).is_dir()


def current_file(folder: Path, name: str) -> Path:
    """Where a file of a folder is, also while its replacement is decided and not finished."""
    decided = folder / _REPLACING / name
    return decided if is_file(decided) else folder / name
