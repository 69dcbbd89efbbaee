"""The commands that answers suggest: quoted, with the options of the audit, and only where they would run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poolscope.chunks.chunking import OWN
from poolscope.texts.records import BUILTIN

# Texts from a pipe are gone when the next command starts.
PIPE = "-"

# What an audit was told about its texts, and every command calls alike; those of `tune` need no ids.
_READING = ("column", "id_column", "limit", "seed", "encoding")
# Commands in Python, for models and texts that have no name on the command line.
_CALLS = {
    "audit": "poolscope.audit",
    "tune": "poolscope.tune",
    "length": "poolscope.length_report",
}


# Commands that ask the user's queries.
_ASKING = ("audit", "tune")


class _Written(str):
    """A name that stands in a call as it is, without quotes."""

    __repr__ = str.__str__


@dataclass(frozen=True)
class Named:
    """What an audit was told, in the words of the command line.

    `model` and `texts` are None where they have no name there (objects in memory, a pipe); `texts` is empty where none
    were named. `reading` (column, id_column, limit, seed, encoding) and `options` (of the encoder) are kept by every
    command, `settings` (trial, vectors, threshold) by another audit, and the thresholds by `length`, which judges by
    them too. `clouds`: the model is a file of ready clouds, which can only be audited. `queries` is their file, empty
    without any and None for those in memory; `asking` (query_columns, query_prompt) is kept with it. `python`: the
    audit was called in Python, and so is what it suggests, where there is a call for it.
    """

    model: str | None = None
    texts: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    clouds: bool = False
    queries: str | None = ""
    asking: Mapping[str, Any] = field(default_factory=dict)
    python: bool = False

    def command(self, verb: str, *, prompt: str = "", **more: Any) -> str | None:
        """A command about the same model and texts; a call in Python where they have no name; None for neither.

        `prompt` is what stands before the texts, for commands that do not know roles.

        >>> Named("org/model", "my texts.csv", {"column": "body"}).command("audit", fail_on="watch")
        "poolscope audit org/model 'my texts.csv' --column body --fail-on watch"
        """
        if self.clouds and verb != "audit":
            return None
        kept = {"audit": tuple(self.settings), "length": ("threshold",)}.get(verb, ())
        settings = {**{name: value for name, value in self.settings.items() if name in kept}, **more}
        asks = verb in _ASKING and self.queries != ""
        if verb == "tune" and self.asking.get("query_prompt") is not None:
            return None  # it knows the prompts that a model declares, and one for all texts
        nameless = self.model is None or self.texts is None or (asks and self.queries is None)
        call = self._call(verb, settings) if nameless or (self.python and not asks) else None
        if call is not None or self.model is None or self.texts is None or nameless:
            return call
        reading = {name: self.reading[name] for name in _READING if name in self.reading}
        if verb == "audit" and self.reading.get("group"):
            reading["group"] = self.reading["group"]
        if verb == "tune" and not asks:
            reading.pop("id_column", None)
        if asks:
            reading |= {"queries": self.queries, **{k: v for k, v in self.asking.items() if v is not None}}
        options = dict(self.options)
        if verb == "tune" and options.pop("role", None) is not None:
            options["prompt"] = prompt
        return _line(verb, self.model, self.texts, {**reading, **options, **settings})

    def without(self, option: str) -> Named:
        """The same audit with an option of the encoder left out."""
        return replace(self, options={name: value for name, value in self.options.items() if name != option})

    def rechunk(self, **more: Any) -> str | None:
        """Cut the texts to fit, and audit what comes of it; None where they have no name on the command line."""
        if self.clouds or not self.model or self.texts is None:
            return None
        output = chunk_file(self.texts)
        reading = {"id_column": "id", "seed": self.reading.get("seed")}  # chunks are read whole, and in UTF-8
        group = self.reading.get("group")
        if group and group == self.reading.get("id_column"):
            reading["group"] = "document_id"
        elif group not in OWN:  # other columns of the texts stay under their names
            reading["group"] = group
        settings = {**self.settings, "vectors": None}
        chunks = replace(self, texts=output, reading=reading, settings=settings)
        return f"{self.command('chunk', output=output, **more)} && {chunks.command('audit')}"

    def _call(self, verb: str, settings: Mapping[str, Any]) -> str | None:
        if self.clouds or verb not in _CALLS or set(settings) - {"trial", "threshold", "role"}:
            return None
        parts = ["model" if self.model is None else repr(self.model), *self._texts_in_python(verb)]
        arguments = {"seed": self.reading.get("seed") or None, **self.options, "role": settings.get("role")}
        queries = _Written("queries") if self.queries is None else self.queries or None
        arguments["queries"] = queries if verb in _ASKING else None
        arguments["trial_texts"] = settings.get("trial")
        thresholds = dict(settings.get("threshold") or {})
        if verb == "audit" and thresholds:
            arguments["thresholds"] = thresholds
        keywords = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
        call = f"{_CALLS[verb]}({', '.join([*parts, *keywords])})"
        return f"poolscope.length_verdicts({call}, {thresholds!r})" if verb == "length" and thresholds else call

    def _texts_in_python(self, verb: str) -> list[str]:
        """The texts as an argument; only `audit` takes their name, or none."""
        if self.texts is None:
            return ["texts"]
        if verb == "audit":
            return [repr(self.texts)] if self.texts else []
        return [f"poolscope.read_texts({self.texts or BUILTIN!r}, limit={self.reading.get('limit')})"]


_CALLED: ContextVar[Named | None] = ContextVar("_CALLED", default=None)


@contextmanager
def calling(named: Named) -> Iterator[None]:
    """Inside, an audit was called so on the command line, and its answers suggest commands in these words."""
    token = _CALLED.set(named)
    try:
        yield
    finally:
        _CALLED.reset(token)


def called_as() -> Named | None:
    """What `calling` was told; None for an audit that was called in Python."""
    return _CALLED.get()


def chunk_file(texts: str) -> str:
    """Where chunks of these texts go: never the file that they are made of.

    >>> chunk_file("corpus/chunks.jsonl"), chunk_file("builtin:docstrings"), chunk_file("")
    ('chunks-chunks.jsonl', 'chunks.jsonl', 'chunks.jsonl')
    """
    path = Path(texts)
    return f"{path.stem}-chunks.jsonl" if path.suffix else "chunks.jsonl"


def _line(verb: str, model: str, texts: str, options: Mapping[str, Any]) -> str:
    words = ["poolscope", verb, model, *([texts] if texts else [])]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            words += [word for key, number in value.items() for word in (flag, f"{key}={number}")]
        elif value is True:
            words.append(flag)
        elif value is not None and value is not False and (name, value) != ("seed", 0):
            written = str(value)
            words += [f"{flag}={written}"] if written.startswith("-") else [flag, written]
    return shlex.join(words)
