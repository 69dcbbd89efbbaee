"""Sentences of the built-in texts, each with a change of meaning and with changes that keep it, all made by rule.

Nobody has read these pairs, and a rule can miss: some changed sentences are odd, some synonyms are not quite the same.
They ask for what an average may lose, one word in a sentence, and do not measure how well a model understands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from poolscope.errors import whole_number
from poolscope.texts.reading import read_texts
from poolscope.texts.records import BUILTIN

_WORDS = (6, 24)  # of a sentence
_AUXILIARY = r"\b(is|are|was|were|can|will|must|should|does|do)\b"
_NEGATED = re.compile(r"\b(not|no|never|none|neither|nor|cannot|without)\b|n't", re.I)
_ROLES = re.compile(
    r"\b(the|a|an) ([a-z]{3,}) ([a-z]{3,}s|with|from|into|before|after|by) (the|a|an) ([a-z]{3,})"
    r"(?=[.,;]| (?:and|or|to|of|in|that|which|is|are|was|for|with|at|on|as|when|if|being)\b)"
)
_NUMBERS = {
    "one": "three", "two": "five", "three": "eight", "four": "seven", "five": "two", "six": "nine", "seven": "four",
    "eight": "three", "ten": "four", "first": "third", "second": "fourth", "third": "first", "twice": "four times",
    "zero": "seven", "single": "double",
}  # fmt: skip
_ENTITIES = {
    "Python": "Java", "Unix": "Windows", "Windows": "Linux", "Linux": "Windows", "HTTP": "SMTP", "XML": "CSV",
    "HTML": "LaTeX", "UTF-8": "Latin-1", "ASCII": "Unicode", "Unicode": "ASCII", "TCP": "UDP", "IPv6": "IPv4",
    "IPv4": "IPv6", "URL": "UUID", "JSON": "XML", "GMT": "PST", "SQL": "JSON", "POSIX": "DOS", "stdin": "stderr",
    "stdout": "stdin", "True": "False", "False": "True", "None": "True", "Monday": "Friday", "January": "August",
    "Sunday": "Tuesday", "string": "socket", "strings": "sockets", "file": "thread", "list": "tuple",
    "dictionary": "matrix", "integer": "string", "server": "printer", "directory": "database",
}  # fmt: skip
_ORDER = {
    "before": "after", "after": "before", "left": "right", "right": "left", "last": "first", "start": "end",
    "end": "start", "beginning": "end", "ascending": "descending", "descending": "ascending", "next": "previous",
    "previous": "next", "earlier": "later", "later": "earlier", "above": "below", "below": "above", "less": "more",
    "more": "less", "greater": "smaller", "smaller": "greater", "highest": "lowest", "lowest": "highest",
    "smallest": "largest", "largest": "smallest", "minimum": "maximum", "maximum": "minimum", "oldest": "newest",
}  # fmt: skip
_SYNONYMS = {
    "return": "give back", "returns": "gives back", "returned": "given back", "create": "make", "creates": "makes",
    "used": "employed", "contain": "hold", "contains": "holds", "remove": "delete", "removes": "deletes",
    "removed": "deleted", "show": "display", "shown": "displayed", "find": "locate", "finds": "locates",
    "error": "fault", "errors": "faults", "current": "present", "large": "big", "small": "little", "quickly": "fast",
    "specified": "stated", "given": "supplied", "allows": "permits", "allow": "permit", "convert": "turn",
    "raised": "thrown", "raises": "throws", "called": "invoked", "argument": "parameter", "arguments": "parameters",
    "method": "procedure", "only": "solely", "provided": "supplied", "default": "standard", "function": "routine",
    "functions": "routines", "data": "information",
}  # fmt: skip
_FILLER = "Please note that, generally speaking, "


@dataclass(frozen=True)
class FinePair:
    """A sentence, the `change` of its meaning by name, the sentence so changed, and `controls` that mean the same."""

    sentence: str
    change: str
    changed: str
    controls: Mapping[str, str]


def _negated(sentence: str) -> str | None:
    if _NEGATED.search(sentence):
        return None
    return _changed(sentence, re.sub(_AUXILIARY, r"\1 not", sentence, count=1))


def _swapped_roles(sentence: str) -> str | None:
    match = _ROLES.search(sentence)
    if match is None or match[2] == match[5]:
        return None
    article, first, between, other, second = match.groups()
    return sentence[: match.start()] + f"{article} {second} {between} {other} {first}" + sentence[match.end() :]


def _other_number(sentence: str) -> str | None:
    digits = re.sub(r"(?<![\w.])(\d{1,4})(?![\w.]*\w)", lambda match: str(int(match[1]) * 3 + 4), sentence, count=1)
    return _changed(sentence, digits) or _replaced(_NUMBERS)(sentence)


def _replaced(words: Mapping[str, str]) -> Callable[[str], str | None]:
    """What replaces the first word of a list, with a capital where it had one."""
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, words)) + r")\b")

    def replace(sentence: str) -> str | None:
        return _changed(sentence, pattern.sub(lambda match: words[match[1]], sentence, count=1))

    return replace


def _changed(before: str, after: str) -> str | None:
    return None if before == after else after


CHANGES: Mapping[str, Callable[[str], str | None]] = {
    "negation": _negated,
    "roles swapped": _swapped_roles,
    "number changed": _other_number,
    "entity replaced": _replaced(_ENTITIES),
    "order reversed": _replaced(_ORDER),
}
_SYNONYM = re.compile(r"\b(" + "|".join(map(re.escape, _SYNONYMS)) + r")\b")
CONTROLS: Mapping[str, Callable[[str], str | None]] = {
    "case": lambda sentence: _changed(sentence, sentence.upper()),
    "synonyms": lambda sentence: _changed(sentence, _SYNONYM.sub(lambda match: _SYNONYMS[match[1]], sentence)),
    "filler": lambda sentence: _FILLER + sentence[:1].lower() + sentence[1:],
}


def fine_pairs(each: int = 60) -> tuple[FinePair, ...]:
    """The first `each` sentences of every change, by the digest of their words, that have all controls.

    They come from the built-in docstrings, so they hang on the version of Python and on nothing else.

    >>> pairs = fine_pairs(2)
    >>> [pair.change for pair in pairs][::2]
    ['negation', 'roles swapped', 'number changed', 'entity replaced', 'order reversed']
    """
    whole_number(each, "each")
    sentences = sorted(_sentences(), key=lambda sentence: hashlib.sha256(sentence.encode()).digest())
    found: list[FinePair] = []
    for name, change in CHANGES.items():
        count = 0
        for sentence in sentences:
            if count < each and (pair := _pair(sentence, name, change)) is not None:
                found.append(pair)
                count += 1
    return tuple(found)


def _pair(sentence: str, name: str, change: Callable[[str], str | None]) -> FinePair | None:
    changed = change(sentence)
    controls = {word: control(sentence) for word, control in CONTROLS.items()}
    if changed is None or None in controls.values():
        return None
    return FinePair(sentence, name, changed, {word: text for word, text in controls.items() if text is not None})


def _sentences() -> Iterator[str]:
    """Plain sentences of the built-in docstrings: words, no code, each once."""
    known = set[str]()
    for text in read_texts(BUILTIN).texts:
        for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", text):
            sentence = " ".join(part.split())
            plain = re.fullmatch(r"[A-Z][A-Za-z0-9 ,;'\-]+\.", sentence)
            if plain and _WORDS[0] <= len(sentence.split()) <= _WORDS[1] and sentence not in known:
                known.add(sentence)
                yield sentence
