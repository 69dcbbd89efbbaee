"""What a page is made of: sections, each with a question, a verdict, figures and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from poolscope.errors import InputError
from poolscope.verdicts import Verdict

_KEY = re.compile(r"[a-z][a-z0-9_-]*")
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class ReportTable:
    """A table of the page: sortable, and searchable where that helps.

    A cell is a text, a number, True or False, or None for "not known". A column is one of numbers if every cell that is
    known is a number.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    searchable: bool = False

    def __post_init__(self) -> None:
        for position, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(
                    f"table '{self.name}': row {position} has {len(row)} cells; the table has {len(self.columns)} "
                    f"columns ({', '.join(self.columns)}). Pass one cell a column, None where nothing is known."
                )


@dataclass(frozen=True)
class ReportSection:
    """One question and its answer.

    `key` names the section in addresses (small letters, digits, _ and -). `verdict` makes a tile at the top of the
    page; a section without one has none. `figures` are pairs of a name and a plotly figure. `notes` are further
    sentences. `explained_by` names the page of poolscope's documentation that explains the analysis ("socm.md", or a
    heading of it, "socm.md#limits"): the report brings it along. `link` leads to a page of your own instead: http(s),
    or relative. `number_name` says what the number of the verdict is, and `number_format` how it is written (a format
    specification such as ".0%"; by default three significant digits).
    """

    key: str
    title: str
    question: str
    verdict: Verdict | None = None
    figures: Sequence[tuple[str, Any]] = ()
    tables: Sequence[ReportTable] = ()
    notes: Sequence[str] = ()
    link: str | None = None
    explained_by: str | None = field(default=None, kw_only=True)
    number_name: str = field(default="", kw_only=True)
    number_format: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise InputError(
                f"key: received {self.key!r}; allowed: a small letter, then small letters, digits, _ or -. "
                f"It becomes a part of an address."
            )
        if self.link is not None and _SCHEME.match(self.link) and not re.match(r"https?://", self.link):
            raise InputError(f"link: received {self.link!r}; allowed: http://…, https://… or a relative path.")


def check_keys(sections: Sequence[ReportSection]) -> None:
    """Refuse two sections of one key: links to them could not be told apart."""
    seen: set[str] = set()
    for section in sections:
        if section.key in seen:
            raise InputError(f"key: two sections are named {section.key!r}; each needs a key of its own.")
        seen.add(section.key)
