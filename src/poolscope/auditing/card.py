"""A card for a pull request: what the search finds, the first fix and its gain, as Markdown or as a picture.

A name that ends in .json makes the badge of an audit, in the form of an endpoint of shields.io.
"""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import Any

from poolscope.auditing.result import Audit
from poolscope.auditing.screen import subject
from poolscope.auditing.words import interval_text, number_text
from poolscope.errors import InputError
from poolscope.files import atomic_file
from poolscope.show.charts import Drawing, save_figure
from poolscope.show.lines import wrapped
from poolscope.show.verdicts import LEVEL_COLOURS, LEVELS, Level
from poolscope.words import clean

_WIDTH, _LINE, _COLUMNS = 720, 24, 78
_MARKDOWN, _BADGE, _PICTURES = ".md", ".json", (".svg", ".png")


def card_lines(audit: Audit) -> list[str]:
    """The lines of a card: the headline, the quality, and the decision."""
    quality = f"nDCG@{audit.rule.k} {number_text(audit.ndcg, 'score')} {interval_text(audit.ndcg, 'score')}".rstrip()
    return [audit.sentences()[0], *([quality] if audit.queries else []), *audit.decision.in_words()[:2]]


def card_markdown(audit: Audit) -> str:
    """The card as Markdown; words of others are code, so that they are no markup."""
    head, *rest = card_lines(audit)
    lines = [f"**{head}**", "", *(f"- {line}" for line in rest), "", f"`{subject(audit).replace('`', ' ')}`"]
    return clean("\n".join(lines)) + "\n"


def badge(audit: Audit) -> dict[str, Any]:
    """The badge of an audit: how many queries find a text, in the colour of the most serious cause."""
    levels = {finding.level for finding in audit.looked}
    worst: Level = next((level for level in reversed(LEVELS) if level in levels), "unchecked")
    found = audit.queries - audit.missed
    message = f"{found:,} of {audit.queries:,} found" if audit.queries else worst
    return {"schemaVersion": 1, "label": "search audit", "message": message, "color": LEVEL_COLOURS[worst].lstrip("#")}


def card_svg(audit: Audit) -> Drawing:
    """The card as a picture."""
    rows = [
        (line, place == 0)
        for place, part in enumerate(card_lines(audit))
        for line in wrapped(part, _COLUMNS).split("\n")
    ]
    height = _LINE * (len(rows) + 2) + 16
    body = "".join(
        f'<text x="20" y="{36 + _LINE * place}" font-size="15" font-weight="{700 if bold else 400}">'
        f"{escape(clean(line))}</text>"
        for place, (line, bold) in enumerate(rows)
    )
    foot = f'<text x="20" y="{height - 16}" font-size="12" fill="#525c6b">{escape(clean(subject(audit)))}</text>'
    frame = (
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="10" fill="#ffffff" stroke="#dfe3e8"/>'
    )
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" fill="#1c2430">'
        f"{frame}{body}{foot}</svg>\n"
    )
    return Drawing(drawn, _WIDTH, height)


def save_card(audit: Audit, path: str | os.PathLike[str]) -> None:
    """Write the card (.md, .svg, or .png, which a browser on this machine draws) or the badge (.json)."""
    check_card_path(path)
    if Path(path).suffix.lower() == _BADGE:
        with atomic_file(path) as stream:
            stream.write(json.dumps(badge(audit)).encode() + b"\n")
        return
    if Path(path).suffix.lower() == _MARKDOWN:
        with atomic_file(path) as stream:
            stream.write(card_markdown(audit).encode())
    else:
        save_figure(card_svg(audit), path)


def check_card_path(path: str | os.PathLike[str]) -> None:
    """Refuse a name whose ending says no format of a card, before any work is done."""
    ending = Path(path).suffix.lower()
    if ending not in (_MARKDOWN, _BADGE, *_PICTURES):
        shown = f"the ending {ending} is not known" if ending else "the name has no ending"
        raise InputError(f"--card {path}: {shown}. Choose .md, .svg or .png, or .json for a badge.")
