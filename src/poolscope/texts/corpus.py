"""The built-in corpus: docstrings of Python's standard library, numpy and scipy.

It is on every machine that runs poolscope, has texts of all lengths (5 words to several thousand), module
names as labels and, with the summary line of a docstring as a query for its body, a retrieval task. The
source files are parsed, never imported: nothing runs, and the result depends on the files alone.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import sysconfig
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope.errors import InputError
from poolscope.files import atomic_file, user_cache_folder
from poolscope.texts.records import BUILTIN, MANUALS, PairRow, Pairs, ReadReport, Texts, scrub, share

STDLIB = "stdlib"
_DEFAULT_PACKAGES = ("numpy", "scipy")
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_MIN_WORDS = 5
_SUMMARY_WORDS = range(4, 41)
_MIN_BODY_WORDS = 20
_NO_PLACE = (OSError, RuntimeError)  # for the cache: the disk refuses, or there is no home folder
_GATHERING = 1  # raise it when the same files give other texts: it is part of the cache key

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_COMPOUND = (
    *(ast.If, ast.Try, ast.TryStar, ast.ExceptHandler, ast.With, ast.AsyncWith),
    *(ast.For, ast.AsyncFor, ast.While, ast.Match, ast.match_case),
)


class _Root(NamedTuple):
    """Where the source files of the standard library (no package name) or of a package are."""

    package: str
    folder: Path
    version: str


class _Source(NamedTuple):
    module: str
    path: Path


def docstrings(*, packages: Sequence[str] | None = None) -> Texts:
    """The docstrings of the standard library, numpy and scipy (where installed), each text once.

    A text is a cleaned docstring of at least 5 words; its id is `module:qualname` (the module alone for a
    module docstring) and its label the top-level module, or the first two levels within a package, such as
    `numpy.linalg`. Sorted by id; of equal texts the first is kept. `packages` names others instead, with
    `"stdlib"` for the standard library. The result is cached on disk, by the versions and files it came from.
    """
    roots = _roots(packages)
    sources = sorted(source for root in roots for source in _sources(root))
    key = _key(roots, sources)
    texts = _load(key)
    if texts is None:
        with _without_collector():
            texts = _unique(_gather(sources))
        _store(key, texts)
    names = {root.package for root in roots}
    if not texts:
        raise InputError(
            f"received the packages {sorted(names)}; no docstring was found in their folders "
            f"({', '.join(str(root.folder) for root in roots)}). A Python without its .py files has none: "
            "pass texts of your own."
        )
    labels = tuple(_label(id_, names) for id_ in texts)
    return Texts(tuple(texts), tuple(texts.values()), labels, BUILTIN, ReadReport(len(texts), len(texts)))


def summary_body_pairs(*, packages: Sequence[str] | None = None) -> Pairs:
    """Retrieval pairs from the docstrings: the summary as query, the rest as its document.

    The summary is the first paragraph on one line, 4 to 40 words; the body has at least 20 words. A
    summary that several docstrings share answers no question and is left out with all of them.
    """
    texts = docstrings(packages=packages)
    split = [(id_, *parts) for id_, text in zip(texts.ids, texts, strict=True) if (parts := _summary_and_body(text))]
    uses = Counter(summary for _, summary, _ in split)
    rows = [PairRow(id_, summary, id_, body) for id_, summary, body in split if uses[summary] == 1]
    return share(rows, source=BUILTIN, report=ReadReport(read=len(rows), kept=len(rows)))


def _summary_and_body(text: str) -> tuple[str, str] | None:
    paragraph, *rest = re.split(r"\n[^\S\n]*\n", text, maxsplit=1)
    words = paragraph.split()
    body = rest[0].strip("\n") if rest else ""
    if len(words) not in _SUMMARY_WORDS or len(body.split()) < _MIN_BODY_WORDS:
        return None
    return " ".join(words), body


def _roots(packages: Sequence[str] | None) -> list[_Root]:
    if packages is None:
        defaults = [_root(STDLIB), *map(_root, _DEFAULT_PACKAGES)]
        return [root for root in defaults if root is not None]
    roots = []
    for package in packages:
        root = _root(package)
        if root is None:
            raise InputError(
                f"received the package '{package}', which is not installed as a folder of .py files; allowed are "
                f"'{STDLIB}' and the top-level names of installed packages. Install it or leave it out."
            )
        roots.append(root)
    return roots


def _root(package: str) -> _Root | None:
    """The folder of a package, found without importing it; None if there is none."""
    if package == STDLIB:
        return _Root("", Path(sysconfig.get_paths()["stdlib"]), sys.version)
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return _Root(package, Path(spec.submodule_search_locations[0]), version)


def _sources(root: _Root) -> Iterator[_Source]:
    """The modules below a folder; names that no import statement could write are no modules."""
    for parent, folders, files in os.walk(root.folder):
        folders[:] = [name for name in folders if name.isidentifier() and name not in _SKIPPED_FOLDERS]
        for file in files:
            path = Path(parent, file)
            if path.suffix == ".py" and path.stem.isidentifier():
                parts = [root.package, *path.relative_to(root.folder).with_suffix("").parts]
                yield _Source(".".join(part for part in parts if part and part != "__init__"), path)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Syntax trees have no cycles, so looking for some among millions of nodes only costs time (a fifth)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _gather(sources: Iterable[_Source]) -> Iterator[tuple[str, str]]:
    """(id, docstring) of everything documented, a file that does not parse left out."""
    for source in sources:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # old escapes in other people's strings
                module = ast.parse(source.path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        yield source.module, ast.get_docstring(module) or ""
        for qualname, node in _definitions(module.body, prefix=""):
            yield f"{source.module}:{qualname}", ast.get_docstring(node) or ""


def _definitions(body: Iterable[ast.AST], *, prefix: str) -> Iterator[tuple[str, _Definition]]:
    """Classes and functions with their qualified names, also those inside `if`, `try`, `with` and loops."""
    for node in body:
        if isinstance(node, _Definition):
            qualname = prefix + node.name
            yield qualname, node
            local = "." if isinstance(node, ast.ClassDef) else ".<locals>."
            yield from _definitions(node.body, prefix=qualname + local)
        elif isinstance(node, _COMPOUND):
            for block in ("body", "handlers", "orelse", "finalbody", "cases"):
                yield from _definitions(getattr(node, block, ()), prefix=prefix)


def _unique(documented: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Texts by id, sorted by id: of equal ids the first in the file, of equal texts the first id."""
    by_id: dict[str, str] = {}
    for id_, text in documented:
        if len(text.split()) >= _MIN_WORDS:
            by_id.setdefault(id_, scrub(text))
    by_text: dict[str, str] = {}
    for id_ in sorted(by_id):
        by_text.setdefault(by_id[id_], id_)
    return {id_: text for text, id_ in by_text.items()}


def _label(id_: str, packages: set[str]) -> str:
    parts = id_.partition(":")[0].split(".")
    return ".".join(parts[: 2 if parts[0] in packages else 1])


def _key(roots: Iterable[_Root], sources: Iterable[_Source]) -> str:
    """Versions alone do not tell two builds of the same Python apart: sizes of the files are in the key too."""
    sha = hashlib.sha256(repr((_GATHERING, [(root.package, root.version) for root in roots])).encode())
    for source in sources:
        sha.update(f"{source.module}\0{source.path.name}\0{source.path.stat().st_size}\n".encode())
    return sha.hexdigest()[:32]


def _cache_path(key: str) -> Path:
    return user_cache_folder() / f"docstrings-{key}.parquet"


def _load(key: str) -> dict[str, str] | None:
    """The cached texts, or None if they are not there or not exactly what was written."""
    try:
        table = pq.read_table(_cache_path(key), page_checksum_verification=True)
        texts = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        intact = table.schema.metadata[b"digest"].decode() == _digest(texts)
    except (*_NO_PLACE, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError):
        return None
    return texts if intact else None


def _store(key: str, texts: dict[str, str]) -> None:
    """Keep the texts for the next time. Without a place to write they are simply gathered again."""
    schema = pa.schema([("id", pa.string()), ("text", pa.string())], metadata={"digest": _digest(texts)})
    table = pa.table([list(texts), list(texts.values())], schema=schema)
    with suppress(*_NO_PLACE), atomic_file(_cache_path(key)) as stream:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)


def _digest(texts: dict[str, str]) -> str:
    return Texts(tuple(texts), tuple(texts.values()), None, BUILTIN, ReadReport(len(texts), len(texts))).digest


# -- manuals, the second corpus ---------------------------------------------------------------------------------------

# A second built-in corpus: manuals, cut into passages, with headings as queries.
#
# The language reference of Python (what `help("topics")` shows) and the descriptions of the packages that poolscope
# needs: documents of several passages each, as a search over documentation has them. The heading of a section, or the
# one line that says what a package is, asks for the passages below it; it does not stand in them. All of it is on every
# machine that runs poolscope. The reference is under the licence of Python, each description under that of its package.

# Named here, so that a new dependency does not change the corpus and every number that was measured on it.
_DESCRIBED = ("numpy", "platformdirs", "pyarrow", "rich", "scipy", "threadpoolctl", "typer")
_MIN_PASSAGE, _MAX_PASSAGE = 12, 160  # of a passage; a paragraph that is longer alone stays whole
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
    rows = [(passage.id, passage.text, passage.document) for passage in _passages()]
    ids, texts, labels = zip(*rows, strict=True)
    return Texts(ids, texts, labels, MANUALS, ReadReport(len(rows), len(rows)))


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
    """What packages that poolscope needs say of themselves: the summary asks for all of it, headings for a part."""
    for name in _DESCRIBED:
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
        if passages and words + count <= _MAX_PASSAGE:
            passages[-1].append(paragraph)
            words += count
        else:
            passages.append([paragraph])
            words = count
    if len(passages) > 1 and words < _MIN_PASSAGE:
        rest = passages.pop()
        passages[-1] += rest
    for passage in passages:
        text = "\n\n".join(passage)
        if len(text.split()) >= _MIN_PASSAGE:
            yield text
