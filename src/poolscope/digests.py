"""Digests of what poolscope writes: a byte that changed on the disk is noticed when it is read.

They find accidents, not forgers: whoever can write a file can write its digest too.

Small content (JSON, names, offsets) has a BLAKE2 digest. Vectors are many and are read at the speed of memory, which
no hash reaches (`benchmarks/digests.py`). Theirs is the digest of sums: the bytes, as whole numbers of 64 bits, stand
in rows of 509, and each column is added up, modulo 2⁶⁴. A change of one number always changes the sum of its column; of
changes by chance in several numbers one in 2⁶⁴ or fewer does not. Pages of memory or of a disk that changed places are
noticed too: columns meet pages at the same place again after 2 MB only (509 is prime), twice the length of a piece.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import StoreError
from poolscope.folder import Folder

KEY = "checksum"  # of the digest in a JSON object
PIECE = 2**20  # bytes of vectors under one digest
_COLUMNS = 509
_WORD = np.dtype("<u8")


def digest_of(*parts: Any, size: int = 16) -> str:
    """The digest of bytes, or of several parts of bytes with the places where they are parted, as hexadecimal digits.

    >>> digest_of(b"one text", size=4), digest_of(b"one", b"text", size=4) == digest_of(b"on", b"etext", size=4)
    ('cf398c9a', False)
    """
    hashed = hashlib.blake2b(digest_size=size)
    for part in parts:
        if len(parts) > 1:
            hashed.update(memoryview(part).nbytes.to_bytes(8, "little"))
        hashed.update(part)
    return hashed.hexdigest()


def digest_of_numbers(content: Any) -> str:
    """The digest of many bytes (anything with the buffer protocol, contiguous), by sums; see the module.

    >>> digest_of_numbers(np.arange(1000.0)) == digest_of_numbers(np.arange(1000.0)[::-1].copy())
    False
    """
    raw = np.frombuffer(content, np.uint8)
    whole = len(raw) // (8 * _COLUMNS) * (8 * _COLUMNS)
    sums = raw[:whole].view(_WORD).reshape(-1, _COLUMNS).sum(axis=0, dtype=_WORD)
    rest = np.zeros(_COLUMNS, _WORD)
    rest.view(np.uint8)[: len(raw) - whole] = raw[whole:]
    return digest_of((sums + rest).tobytes() + len(raw).to_bytes(8, "little"), size=8)


def pieces_of(content: Any) -> list[str]:
    """The digests of the pieces of many bytes, one a `PIECE`."""
    raw = np.frombuffer(content, np.uint8)
    return [digest_of_numbers(raw[start : start + PIECE]) for start in range(0, len(raw), PIECE)]


def digest_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """One digest of arrays by name: of names, types, shapes and numbers."""
    parts = [
        f"{name} {array.dtype.str} {array.shape} {digest_of_numbers(np.ascontiguousarray(array).reshape(-1))}"
        for name, array in sorted(arrays.items())
    ]
    return digest_of("\n".join(parts).encode())


def digest_of_file(path: Path) -> str:
    """`digest_of` the bytes of a file of any size, a piece at a time."""
    with path.open("rb") as stream:
        return _digest_of_stream(stream)


def digests_of_files(folder: Folder) -> dict[str, str]:
    """The digest of every file below a folder, by its name there."""
    digests = {}
    for name in sorted(folder.files()):
        with folder.reading(name) as stream:
            digests[name] = _digest_of_stream(stream)
    return digests


def _digest_of_stream(stream: BufferedReader) -> str:
    return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def sealed(content: Mapping[str, Any], *, beside: str = "") -> dict[str, Any]:
    """The content of a JSON file with its own digest in it; `beside` is a digest of what stands beside the JSON.

    >>> check_seal(sealed({"a": 1}), "a.json", "Write it again.")
    {'a': 1}
    """
    return {**content, KEY: _digest_of_json(content, beside)}


def check_seal(content: Mapping[str, Any], path: object, remedy: str, *, beside: str = "") -> dict[str, Any]:
    """The content without its digest, which is compared; a file of an earlier version has none, and passes."""
    own = {name: value for name, value in content.items() if name != KEY}
    if KEY in content and content[KEY] != _digest_of_json(own, beside):
        raise StoreError(f"{path}: damaged: it is not what was written, since its digest differs. {remedy}")
    return own


def _digest_of_json(content: Mapping[str, Any], beside: str) -> str:
    read_back = json.loads(json.dumps(content))  # keys are strings then, and in the order of strings
    return digest_of((json.dumps(read_back, sort_keys=True) + beside).encode())
