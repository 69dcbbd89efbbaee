"""How an audit was called: kept with it, so that `fix` can do it again, and written as a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from poolscope.marks import is_marked, mark_of
from poolscope.results import plain

PIPE = "-"
"""Texts from the standard input are gone when the next command starts."""


@dataclass(frozen=True)
class Called:
    """The arguments of `poolscope audit`, without secrets.

    `reading` says how the texts are read (column, id_column, limit, seed, group), `options` are those of the encoder,
    `settings` all others (queries, query_columns, query_prompt, reference, distance).
    """

    folder: str
    model: str
    texts: str | None
    reading: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, with the mark of this user: `fix` opens what is named here."""
        parts = {name: {k: v for k, v in getattr(self, name).items() if v is not None} for name in _PARTS}
        content = plain({"folder": self.folder, "model": self.model, "texts": self.texts, **parts})
        return {**content, _MADE_BY: mark_of(content)}


_PARTS = ("reading", "options", "settings")
_MADE_BY = "made_by"


def is_own_call(content: Mapping[str, Any]) -> bool:
    """Whether this user called an audit so on this machine, by what `Called.to_dict` wrote."""
    return is_marked({name: value for name, value in content.items() if name != _MADE_BY}, content.get(_MADE_BY))


_CALLED: ContextVar[Called | None] = ContextVar("_CALLED", default=None)


@contextmanager
def calling(called: Called) -> Iterator[None]:
    """Inside, an audit was called so on the command line."""
    token = _CALLED.set(called)
    try:
        yield
    finally:
        _CALLED.reset(token)


def called_as() -> Called | None:
    """What `calling` was told; None for an audit that was called in Python."""
    return _CALLED.get()


def command_line(verb: str, *names: str | None, **options: Any) -> str:
    """A command of poolscope, quoted for a shell; what is None or False is left out.

    >>> command_line("audit", "org/model", "my texts.csv", id_column="id", seed=0)
    "poolscope audit org/model 'my texts.csv' --id-column id"
    """
    words = ["poolscope", verb, *(name for name in names if name)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False and (name, value) != ("seed", 0):
            written = str(value)
            words += [f"{flag}={written}"] if written.startswith("-") else [flag, written]
    return shlex.join(words)
