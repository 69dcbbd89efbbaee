"""Pages of the documentation as parts of a report: what explains a number travels with it, and needs no network."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from poolscope.errors import InputError, require

_IMAGE_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_ELSEWHERE = re.compile(r"https?://")


@dataclass(frozen=True)
class Explanation:
    """One page of the documentation: where it stands in the report, its title, and its body as HTML."""

    anchor: str
    title: str
    body: str


def explanation_anchor(page: str) -> str:
    """Where a page of the documentation, or a heading of it, stands in the report.

    >>> explanation_anchor("encoders.md"), explanation_anchor("encoders.md#what-was-cut-off")
    ('Explained-encoders', 'Explained-encoders-what-was-cut-off')
    """
    name, _, heading = page.partition("#")
    return "-".join(filter(None, ("Explained", name.removesuffix(".md"), heading)))


def explanations(pages: Iterable[str]) -> list[Explanation]:
    """The pages of the documentation with these names (`scores.md`, or `scores.md#limits`), each once, in order.

    Links between them lead from one to the other; a link to a page that is not among them becomes plain text.
    """
    pages = list(pages)
    names = list(dict.fromkeys(page.partition("#")[0] for page in pages))
    found = [_explanation(name, among=names) for name in names]
    anchors = {anchor for part in found for anchor in (part.anchor, *re.findall(r'<h\d id="([^"]+)"', part.body))}
    for page in pages:
        if explanation_anchor(page) not in anchors:
            raise InputError(f"explained_by: received {page!r}; that page of the documentation has no such heading.")
    return found


def _explanation(name: str, *, among: Sequence[str]) -> Explanation:
    source = _documentation() / name
    if not source.is_file():
        raise InputError(f"explained_by: received {name!r}; the documentation has no such page.")
    markdown = require("markdown_it", "report").MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(source.read_text(encoding="utf-8"))
    title, body = tokens[1].content, tokens[3:]  # a page begins with its title: open, words, close
    for position, token in enumerate(body):
        if token.type == "heading_open":
            token.attrSet("id", explanation_anchor(f"{name}#{_slug(body[position + 1].content)}"))
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1:]) + 1}"  # the report's own headings are above those of a page
        if token.type == "fence":
            token.content = token.content.rstrip() + "\n"  # a doctest ends with an empty line
        if token.children:
            token.children = _with_addresses(token.children, page=name, among=among)
    return Explanation(explanation_anchor(name), title, markdown.renderer.render(body, markdown.options, {}))


def _documentation() -> Traversable:
    """The folder of pages: in an installed package beside the code, in a checkout beside `src`."""
    packed = resources.files("poolscope") / "docs"
    return packed if packed.is_dir() else Path(__file__).parents[3] / "docs"


def _with_addresses(tokens: Sequence[Any], *, page: str, among: Sequence[str]) -> list[Any]:
    """The parts of a paragraph: pictures become data, links lead into the report, and what leads nowhere is text."""
    kept: list[Any] = []
    reach = partial(_address, page=page, among=among)
    lost = False  # links do not nest: the next end belongs to the last beginning
    for token in tokens:
        if token.type == "image":
            token.attrSet("src", _data_address(str(token.attrs["src"])))
        if token.type == "link_open":
            address = reach(str(token.attrs["href"]))
            lost = address is None
            if address is not None:
                token.attrSet("href", address)
                token.attrSet("rel", "noreferrer")
        if not (lost and token.type in ("link_open", "link_close")):
            kept.append(token)
    return kept


def _address(target: str, *, page: str, among: Sequence[str]) -> str | None:
    if _ELSEWHERE.match(target):
        return target
    name, _, heading = target.partition("#")
    if (name or page) not in among:
        return None
    return f"#{explanation_anchor(f'{name or page}#{heading}')}"


def _data_address(source: str) -> str:
    content = base64.b64encode((_documentation() / source).read_bytes()).decode()
    return f"data:{_IMAGE_TYPES[Path(source).suffix]};base64,{content}"


def _slug(heading: str) -> str:
    """The name of a heading in addresses, as the documentation's site makes it.

    >>> _slug("What your runtime did (question 3)")
    'what-your-runtime-did-question-3'
    """
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
