"""A mark says that this user wrote something on this machine: what others hand over cannot have it."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any

from poolscope.errors import StoreError
from poolscope.files import user_cache_folder
from poolscope.folder import Folder

_KEY = "user.key"
_KEY_BYTES = 32


def mark_of(content: Mapping[str, Any]) -> str:
    """What only a process with the key of this user can write under a content of plain types.

    >>> mark_of({"a": 1}) == mark_of({"a": 1}), mark_of({"a": 1}) == mark_of({"a": 2})
    (True, False)
    """
    return hmac.new(_key(), json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def is_marked(content: Mapping[str, Any], mark: Any) -> bool:
    """Whether a mark is the one that this user would write under the content."""
    return isinstance(mark, str) and hmac.compare_digest(mark.encode(), mark_of(content).encode())


@cache
def _key() -> bytes:
    """A secret of this user, which lies in the private cache folder; where there is none, one of this process."""
    try:
        with Folder.open(user_cache_folder(), through_link=True) as folder, folder.lock(f".{_KEY}.lock", wait=10.0):
            if folder.kind(_KEY) == "file" and len(key := folder.read(_KEY)) == _KEY_BYTES:
                return key
            key = secrets.token_bytes(_KEY_BYTES)
            with folder.file(_KEY, mode=0o600) as stream:
                stream.write(key)
            return key
    except (OSError, StoreError):
        return secrets.token_bytes(_KEY_BYTES)
