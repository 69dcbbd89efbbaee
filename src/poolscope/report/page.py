"""One self-contained HTML page: it opens from disk, loads nothing, and runs no code but its own.

Pages of the documentation are parts of it: what explains a number travels with it, and needs no network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from poolscope import __version__
from poolscope.charts import COLOURS
from poolscope.errors import InputError, require
from poolscope.files import atomic_path
from poolscope.lines import paragraphs
from poolscope.report.pairs import PairExplorer
from poolscope.report.sections import (
    CorpusMap,
    OverviewRow,
    Section,
    figure_data,
    json_block,
    kept_text,
    readable,
    shown_number,
    table_data,
)
from poolscope.results import plain
from poolscope.verdicts import LEVEL_COLOURS, LEVELS, Verdict, worst_level

# -- explanations -----------------------------------------------------------------------------------------------------


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
    parts = [_explanation(name, among=names) for name in names]
    anchors = {anchor for part in parts for anchor in (part.anchor, *re.findall(r'<h\d id="([^"]+)"', part.body))}
    for page in pages:
        if explanation_anchor(page) not in anchors:
            raise InputError(f"explained_by: received {page!r}; that page of the documentation has no such heading.")
    return parts


def _explanation(name: str, *, among: Sequence[str]) -> Explanation:
    source = _documentation() / name
    if not source.is_file():
        raise InputError(f"explained_by: received {name!r}; the documentation has no such page.")
    markdown = require("markdown_it", "report").MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(source.read_text(encoding="utf-8"))
    # A page begins with its title: open, words, close. Code and pictures stay in the documentation: here are numbers.
    title, body = tokens[1].content, _prose(tokens[3:])
    for position, token in enumerate(body):
        if token.type == "heading_open":
            token.attrSet("id", explanation_anchor(f"{name}#{_slug(body[position + 1].content)}"))
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1:]) + 1}"  # the report's own headings are above those of a page
        if token.children:
            token.children = _with_addresses(token.children, page=name, among=among)
    return Explanation(explanation_anchor(name), title, markdown.renderer.render(body, markdown.options, {}))


def _prose(tokens: Sequence[Any]) -> list[Any]:
    """The tokens without code, and without paragraphs of pictures only."""
    body: list[Any] = []
    skipped = 0
    for position, token in enumerate(tokens):
        if token.type == "paragraph_open" and _only_pictures(tokens[position + 1]):
            skipped = 3  # open, words, close
        if skipped or token.type in ("fence", "code_block"):
            skipped = max(skipped - 1, 0)
            continue
        body.append(token)
    return body


def _only_pictures(paragraph: Any) -> bool:
    parts = [part for part in paragraph.children or [] if part.type not in ("softbreak", "hardbreak")]
    return bool(parts) and all(part.type == "image" for part in parts)


def _documentation() -> Traversable:
    """The folder of pages: in an installed package beside the code, in a checkout beside `src`."""
    packed = resources.files("poolscope") / "docs"
    return packed if packed.is_dir() else Path(__file__).parents[3] / "docs"


def _with_addresses(tokens: Sequence[Any], *, page: str, among: Sequence[str]) -> list[Any]:
    """The parts of a paragraph: pictures become data, links lead into the report, and what leads nowhere is text."""
    kept: list[Any] = []
    lost = False  # links do not nest: the next end belongs to the last beginning
    for token in tokens:
        if token.type == "link_open":
            address = _address(str(token.attrs["href"]), page=page, among=among)
            lost = address is None
            if address is not None:
                token.attrSet("href", address)
                token.attrSet("rel", "noreferrer")
        if not (lost and token.type in ("link_open", "link_close")):
            kept.append(token)
    return kept


def _address(target: str, *, page: str, among: Sequence[str]) -> str | None:
    if target.startswith(("http://", "https://")):
        return target
    name, _, heading = target.partition("#")
    if (name or page) not in among:
        return None
    return f"#{explanation_anchor(f'{name or page}#{heading}')}"


def _slug(heading: str) -> str:
    """The name of a heading in addresses, as the documentation's site makes it.

    >>> _slug("What your runtime did (question 3)")
    'what-your-runtime-did-question-3'
    """
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


# -- the page ---------------------------------------------------------------------------------------------------------

# In the order they run: each uses what those before it define.
_SCRIPTS = (
    *("text.js", "exports.js", "panels.js", "figures.js", "tables.js", "pairs.js", "explorer.js", "map.js", "page.js"),
)
_FOLDED = ("ok", "unchecked")  # levels whose figures and tables are folded where an overview tells the rest
_PROVENANCE_CHARACTERS = 300
_BASIC = {"bar", "scatter"}  # kinds of traces that the small build of plotly draws
# How much of black or white is in the letters of a level, and of the ground in what stands behind them.
_LETTERS, _SOFT = 0.4, 0.88


def render_page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    *,
    explorer: PairExplorer | None = None,
    provenance: Mapping[str, Any] | None = None,
    overall: Verdict | None = None,
    command: str | None = None,
    headlines: Sequence[str] = (),
    overview: Sequence[OverviewRow] = (),
    texts_map: CorpusMap | None = None,
) -> str:
    """The page as a string: a tile for each verdict, the sections, what explains them, where everything came from.

    `overall` is the line under the title; by default it counts the verdicts; `command` stands below it, and `headlines`
    are sentences beside it. With an `overview` of all answers it stands in place of the tiles, and answers that are ok
    or unchecked are folded. `texts_map` is drawn before the answers. Texts of all kinds are data: they are escaped, and
    shown as text only. A content security policy in the page forbids any request and any foreign code.
    """
    keys = [section.key for section in sections]
    if twice := [key for key in keys if keys.count(key) > 1]:  # links to them could not be told apart
        raise InputError(f"key: two sections are named {twice[0]!r}; each needs a key of its own.")
    if explorer is not None and explorer.section not in (None, *keys):
        raise InputError(
            f"explorer: received the section {explorer.section!r}; allowed: {', '.join(keys)}, or None for one of its "
            f"own."
        )
    data: dict[str, Any] = {
        "title": title,
        "colorway": COLOURS,
        "mark": LEVEL_COLOURS["repair"],
        "sections": {section.key: _section_data(section) for section in sections},
        "explorer": None if explorer is None else explorer.data,
        "map": None if texts_map is None else texts_map.data,
    }
    scripts, theme, plotly = list(map(_asset, _SCRIPTS)), _asset("theme.js"), _plotly(data["sections"])
    limits = {row.key: row.limits for row in overview}
    verdicts = [section.verdict for section in sections if section.verdict is not None]
    told = overall or _counted(verdicts)
    return str(
        _template().render(
            title=title,
            subtitle=subtitle,
            overall=told,
            overall_parts=[] if told is None else _parts(told.sentence),
            command=command,
            headlines=headlines,
            overview=overview,
            sections=[_section_view(each, limits.get(each.key, {}), folds=bool(overview)) for each in sections],
            explorer=explorer,
            texts_map=texts_map,
            explanations=_explained(sections),
            provenance=_rows(plain(provenance or {})),
            version=__version__,
            policy=_policy([theme, *scripts, plotly]),
            style=page_style(),
            theme=theme,
            data=json_block(data),
            drawing=_deflated(plotly),
            scripts=scripts,
        )
    )


def save_page(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def _template() -> Any:
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: readable(value) if type(value) is str else value,
    )
    environment.filters["whole_options"] = _whole_options
    return environment.from_string(_asset("template.html"))


def _whole_options(sentence: str) -> Any:
    """A sentence in which no line ends inside an option of the command line, at its hyphens."""
    markupsafe = require("markupsafe", "report")
    safe = str(markupsafe.escape(readable(sentence)))
    return markupsafe.Markup(re.sub(r"--[a-z][a-z-]*", r'<span class="option">\g<0></span>', safe))


def _asset(name: str) -> str:
    return (resources.files("poolscope.report") / "assets" / name).read_text(encoding="utf-8")


def _plotly(sections: Mapping[str, Any]) -> str:
    """The smallest build of plotly that draws these figures: the one that comes with poolscope, or all of plotly."""
    kinds = {trace["type"] for part in sections.values() for figure in part["figures"] for trace in figure["data"]}
    if kinds <= _BASIC:
        return _asset("plotly-basic.min.js")
    return str(require("plotly.offline", "report").get_plotlyjs())


def _deflated(script: str) -> str:
    """A script packed for the page, which unpacks it after it is painted: less than half the size, and no wait.

    >>> len(_deflated("0" * 1000)) < 100
    True
    """
    packing = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return base64.b64encode(packing.compress(script.encode()) + packing.flush()).decode()


def page_style() -> str:
    """The style sheet, with the colours of levels filled in for both grounds."""
    return re.sub(r"/\* levels on (#\w+) \*/", lambda place: _level_colours(place[1]), _asset("page.css"))


def _level_colours(ground: str) -> str:
    """Letters of each level, darker on white and lighter on black, and a soft ground for them."""
    away = "#000000" if ground == "#ffffff" else "#ffffff"
    return " ".join(
        f"--{level}: {_mixed(colour, away, _LETTERS)}; --{level}-soft: {_mixed(colour, ground, _SOFT)};"
        for level, colour in LEVEL_COLOURS.items()
    )


def _mixed(colour: str, other: str, share: float) -> str:
    """A colour with a share of another in it.

    >>> _mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    parts = [(int(colour[k : k + 2], 16), int(other[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round((1 - share) * own + share * added):02x}" for own, added in parts)


def _policy(scripts: Sequence[str]) -> str:
    """Only these scripts run; nothing is fetched. Plotly sets styles of its own, and draws PNG through a blob."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _section_data(section: Section) -> dict[str, Any]:
    return {
        "figures": [figure_data(name, figure) for name, figure in section.drawn()],
        "tables": [table_data(table) for table in section.shown()],
    }


def _section_view(section: Section, limits: Mapping[str, float], *, folds: bool) -> dict[str, Any]:
    verdict = section.verdict
    return {
        "section": section,
        "verdict": verdict,
        "folded": folds and verdict is not None and verdict.level in _FOLDED,
        "number": None if verdict is None else shown_number(verdict, section.number_format, limits),
        "link": f"#{explanation_anchor(section.explained_by)}" if section.explained_by else section.link,
    }


def _explained(sections: Sequence[Section]) -> list[tuple[Explanation, list[Section]]]:
    """Each explanation with the sections that it explains: their own numbers stand at its beginning."""
    named = [section for section in sections if section.explained_by]
    return [
        (part, [each for each in named if explanation_anchor(str(each.explained_by).partition("#")[0]) == part.anchor])
        for part in explanations(str(section.explained_by) for section in named)
    ]


def _counted(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The overall line: how many questions have which answer."""
    if not verdicts:
        return None
    counts = {level: sum(verdict.level == level for verdict in verdicts) for level in LEVELS}
    words = {"repair": "to repair", "watch": "to watch", "unchecked": "unchecked", "ok": "ok"}
    parts = [f"{counts[level]} {words[level]}" for level in reversed(LEVELS) if counts[level]]
    if counts["ok"] == len(verdicts):
        return Verdict("ok", f"Nothing to repair: all {len(verdicts)} answers are ok.")
    return Verdict(worst_level(list(verdicts)), f"Of {len(verdicts)} answers {', '.join(parts)}.")


def _parts(sentence: str) -> list[str]:
    """The first sentence of a decision, which is its heading, and its other parts.

    >>> _parts("Re-chunk first: split 3 texts. Cost: no new model. How sure? Certain.")
    ['Re-chunk first: split 3 texts.', 'Cost: no new model.', 'How sure? Certain.']
    """
    first, *others = paragraphs(sentence)
    head, dot, rest = first.partition(". ")
    return [head + dot.rstrip(), *filter(None, (rest, *others))]


def _rows(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Nested provenance as rows of a name and a value, long values cut."""
    if isinstance(value, dict):
        return [row for key, item in value.items() for row in _rows(item, f"{path} · {key}" if path else str(key))]
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return [row for number, item in enumerate(value, 1) for row in _rows(item, f"{path} {number}")]
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    kept = kept_text(text, _PROVENANCE_CHARACTERS)
    return [(path, kept if isinstance(kept, str) else f"{kept['text']}… ({kept['length']:,} characters)")]
