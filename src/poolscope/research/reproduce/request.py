"""Which models and texts a reproduction takes, where they come from, and why some could not be reached."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.errors import InputError, PoolscopeError

P = ParamSpec("P")
T = TypeVar("T")
MEASURED, NOT_REACHED, NOT_MEASURED = "measured", "not reached", "not measured"


def _quiet(message: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Request:
    """What to run. `models` and `texts` map names to where they are loaded from (a hub name, a folder, a file).

    `limit`: texts (or pairs) of each set; None for the published number. `options` are those of the encoder, and `say`
    is told what is being done.
    """

    models: Mapping[str, str]
    texts: Mapping[str, str]
    limit: int | None = None
    seed: int = 0
    options: EncoderOptions = field(default_factory=EncoderOptions)
    cache: bool = True
    say: Callable[[str], None] = _quiet

    def substitutes(self, models: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
        """What was loaded from elsewhere than the published experiment would, for the README."""
        moved = [
            f"The model {name} was loaded from {source}, not from {models[name]}: published values are not its own."
            for name, source in self.models.items()
            if models.get(name, source) != source
        ]
        return moved + [
            f"The set {name} was read from {source}, not from {texts[name]}: published values are of other texts."
            for name, source in self.texts.items()
            if texts[name] != source
        ]

    def each_model(self, handle: Callable[[str, TokenEncoder | None, str | None], None]) -> None:
        """Call `handle(name, encoder, reason)` for each model: the encoder, or the reason why there is none.

        A model is loaded when its turn comes and freed after it: two at once may not fit.
        """
        options = {key: value for key, value in vars(self.options).items() if value not in (None, False)}
        for name, source in self.models.items():
            self.say(f"{name}: loading" + ("" if source == name else f" from {source}"))
            encoder, reason = attempt(as_encoder, source, **options)
            if reason is not None:
                self.say(f"{name}: {NOT_REACHED}: {reason}")
            handle(name, encoder, reason)
            del encoder
            gc.collect()  # a model and its hooks refer to each other


@dataclass(frozen=True)
class Reproduction:
    """What came of it: the folder, and one row a model and set with its status."""

    folder: Path
    runs: tuple[Mapping[str, Any], ...]

    @property
    def measured(self) -> int:
        """How many of the rows have numbers."""
        return sum(run["status"] == MEASURED for run in self.runs)

    @property
    def complete(self) -> bool:
        """Was everything measured?"""
        return self.measured == len(self.runs)

    def __repr__(self) -> str:
        return f"Reproduction({self.folder}: {self.measured} of {len(self.runs)} measured)"


def choose(
    published: Mapping[str, str],
    *,
    only: Sequence[str] = (),
    sources: Mapping[str, str] | None = None,
    what: str,
    add: bool = True,
) -> dict[str, str]:
    """Names and sources: the published ones, or some of them only, and those that `sources` names.

    `sources` says where a name is loaded from; with `add` it may hold further names.
    """
    given = dict(sources or {})
    known = {**published, **(given if add else {})}
    if unknown := [name for name in (*only, *given) if name not in known]:
        raise InputError(f"{what}: received {', '.join(unknown)}; known: {', '.join(known)}. Choose among these.")
    return {name: given.get(name, source) for name, source in known.items() if not only or name in (*only, *given)}


def attempt(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> tuple[T | None, str | None]:
    """What the function returns, or in one line why poolscope refused; other errors pass through."""
    try:
        return function(*given, **named), None
    except PoolscopeError as error:
        return None, " ".join(str(error).split())


def parse_named(given: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=SOURCE` options as a dictionary.

    >>> parse_named(["wiki=texts.txt"], "--texts")
    {'wiki': 'texts.txt'}
    """
    found = {}
    for entry in given:
        name, equals, source = entry.partition("=")
        if not (name and equals and source):
            raise InputError(f"{option}: received {entry!r}; allowed: NAME=SOURCE, such as wiki=texts.txt.")
        found[name] = source
    return found
