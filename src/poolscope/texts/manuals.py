"""A second built-in corpus: manuals, cut into passages, with headings as queries.

The language reference of Python (what `help("topics")` shows) and the descriptions of the packages that poolscope
needs: documents of several passages each, as a search over documentation has them. The heading of a section, or the
one line that says what a package is, asks for the passages below it; it does not stand in them. All of it is on every
machine that runs poolscope. The reference is under the licence of Python, each description under that of its package.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from poolscope.errors import InputError
from poolscope.texts.records import MANUALS, PairRow, Pairs, ReadReport, Texts, scrub, share

_MIN_WORDS, _MAX_WORDS = 12, 160  # of a passage; a paragraph that is longer alone stays whole
_UNDERLINE = re.compile(r"([*=\-^~])\1{2,}\s*$")
_MARKDOWN_HEADING = re.compile(r"#{1,4}\s+(.+?)\s*#*$")
_BADGE = re.compile(r"\s*\[!\[.*")
_NO_PROSE = re.compile(r"\s*(\[!\[|!\[|<|\.\. (image|\|)|:target:|\[[^\]]+\]:\s|```|\|)")


class _Section(NamedTuple):
    document: str
    heading: str
    paragraphs: list[str]


class _Passage(NamedTuple):
    id: str
    document: str
    headings: tuple[str, ...]
    text: str


def manuals() -> Texts:
    """The passages; the id is `document#k`, and the label is the document. Of equal passages the first is kept."""
    passages = _passages()
    return Texts(
        ids=tuple(passage.id for passage in passages),
        texts=tuple(passage.text for passage in passages),
        labels=tuple(passage.document for passage in passages),
        source=MANUALS,
        report=ReadReport(read=len(passages), kept=len(passages)),
    )


def heading_pairs() -> Pairs:
    """Every heading that one section alone has, as a query for each passage of that section."""
    relevant = defaultdict[str, list[_Passage]](list)
    for passage in _passages():
        for heading in passage.headings:
            relevant[heading].append(passage)
    sections = defaultdict[str, set[str]](set)
    for section in _sections():
        sections[section.heading].add(section.document)
    rows = [
        PairRow(heading, heading, passage.id, passage.text)
        for heading, passages in relevant.items()
        if len(sections[heading]) == 1
        for passage in passages
    ]
    return share(rows, source=MANUALS, report=ReadReport(read=len(rows), kept=len(rows)))


@cache
def _passages() -> tuple[_Passage, ...]:
    """All passages in their order; one that stands in several sections answers the headings of all of them."""
    texts: dict[str, tuple[str, str]] = {}
    headings = defaultdict[str, list[str]](list)
    numbers = defaultdict[str, int](int)
    for section in _sections():
        for text in _cut(section.paragraphs):
            if text not in texts:
                texts[text] = f"{section.document}#{numbers[section.document]}", section.document
                numbers[section.document] += 1
            headings[text].append(section.heading)
    if not texts:
        raise InputError(
            f"{MANUALS}: this Python was installed without its reference (pydoc_data). Use builtin:docstrings, or "
            f"texts of your own."
        )
    return tuple(_Passage(id_, document, tuple(headings[text]), text) for text, (id_, document) in texts.items())


@cache
def _sections() -> tuple[_Section, ...]:
    return (*_reference(), *_descriptions())


def _reference() -> Iterator[_Section]:
    """The sections of Python's language reference."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for topic in sorted(topics):
        lines = scrub(topics[topic]).splitlines()
        heading, body = topic, list[str]()
        for k, line in enumerate(lines):
            if k + 1 < len(lines) and line.strip() and _UNDERLINE.fullmatch(lines[k + 1]):
                yield from _section(f"python/{topic}", heading, body)
                heading, body = line.strip(), []
            elif not _UNDERLINE.fullmatch(line):
                body.append(line)
        yield from _section(f"python/{topic}", heading, body)


def _descriptions() -> Iterator[_Section]:
    """What the packages that poolscope needs say of themselves: the summary asks for all of it, headings for a part."""
    try:
        needed = importlib.metadata.requires("poolscope") or []
    except importlib.metadata.PackageNotFoundError:
        return
    names = sorted({re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed if "extra ==" not in line})
    for name in names:
        try:
            about = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        heading, body, code = str(about["Summary"] or name), list[str](), False
        for line in scrub(str(about.json.get("description") or "")).splitlines():
            code ^= line.lstrip().startswith("```")  # where # begins a comment
            if not code and (title := _MARKDOWN_HEADING.fullmatch(_BADGE.sub("", line))):
                yield from _section(f"{name}/description", heading, body)
                heading, body = f"{name}: {title[1]}", []
            elif not _NO_PROSE.match(line):
                body.append(line)
        yield from _section(f"{name}/description", heading, body)


def _section(document: str, heading: str, lines: list[str]) -> Iterator[_Section]:
    paragraphs = [part.strip("\n") for part in re.split(r"\n[^\S\n]*\n+", "\n".join(lines)) if part.strip()]
    if paragraphs:
        yield _Section(document, heading, paragraphs)


def _cut(paragraphs: list[str]) -> Iterator[str]:
    """Paragraphs joined into passages of at most so many words; what is left and too short joins the one before."""
    passages, words = list[list[str]](), 0
    for paragraph in paragraphs:
        count = len(paragraph.split())
        if passages and words + count <= _MAX_WORDS:
            passages[-1].append(paragraph)
            words += count
        else:
            passages.append([paragraph])
            words = count
    if len(passages) > 1 and words < _MIN_WORDS:
        rest = passages.pop()
        passages[-1] += rest
    for passage in passages:
        text = "\n\n".join(passage)
        if len(text.split()) >= _MIN_WORDS:
            yield text
