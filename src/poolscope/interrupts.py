"""What is kept when a run is interrupted: work that saves as it goes says so here, and the command line tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_under_way: list[Callable[[], str]] = []
_told: list[str] = []
_kept: dict[str, str] = {}


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
