"""Hosts that may be contacted, and hosts that may receive a secret of the environment.

On the command line a person names every address. Behind `poolscope mcp` an assistant does, which may be talked into
anything. There a call runs `confined`: it may ask this machine and what the person named (`--host`), and only what the
person named gets a key, a password or a token of the environment.

Every door to the network calls `permit` with what its client will contact, parsed by that client. No address is judged
before it gets there, since each client reads an address in its own way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from poolscope.errors import InputError
from poolscope.words import secret_of

_WITH_PORT = re.compile(r"[^:]*:\d+")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

# One entry a running call; a host has to be named in all of them, whichever call ends first.
_confinements: list[frozenset[str]] = []


@contextmanager
def confined(named: Iterable[str]) -> Iterator[None]:
    """Let what runs inside ask this machine and the named hosts only, in every thread of the process."""
    confinement = frozenset(map(_plain, named))
    _confinements.append(confinement)
    try:
        yield
    finally:
        _confinements.remove(confinement)


def check_names(named: Iterable[str]) -> None:
    """Refuse names that no host would ever equal."""
    for name in named:
        bare = name.partition("://")[0] not in ("http", "https") and "/" not in name.partition("://")[2]
        if not name or not bare or _WITH_PORT.fullmatch(name):
            raise InputError(
                f"--host {name}: is no host alone. Write its name without protocol, port and path, such as --host "
                f"embeddings.example.org; a bucket is written s3://BUCKET."
            )


def is_confined() -> bool:
    """Whether only named hosts may be asked now."""
    return bool(_confinements)


def is_named(host: str) -> bool:
    """Whether a host may get a secret of the environment: always, unless the call is confined to others.

    >>> with confined(["db.example.org"]):
    ...     is_named("DB.example.org"), is_named("localhost")
    (True, False)
    """
    return all(_plain(host) in named for named in _confinements)


def is_permitted(host: str) -> bool:
    """Whether a host may be asked; `host` is as its client contacts it.

    >>> with confined([]):
    ...     is_permitted("[::1]"), is_permitted("::1,elsewhere.example"), is_permitted("s3://localhost")
    (True, False, False)
    """
    return is_named(host) or _plain(host) in LOOPBACK


def permit(*hosts: str, name: str) -> None:
    """Refuse a call that would contact a host which nobody named; `name` is the address as it may be shown."""
    for host in hosts:
        if not is_permitted(host):
            raise InputError(
                f"{name}: would ask {_plain(host)!r}, which was not named. Allowed: this machine, and what "
                f"`poolscope mcp --host {_plain(host)}` names."
            )


def secret_for(host: str, variable: str) -> str | None:
    """The secret in an environment variable, for a host that may get it; None for others, and where it is not set."""
    secret = secret_of(variable)  # known, whoever gets it
    return secret if is_named(host) else None


def hub_host() -> str:
    """The host of the Hugging Face hub."""
    return urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname or ""


def _plain(host: str) -> str:
    """A host as it is compared: in small letters and without the brackets of IPv6."""
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host).casefold()
