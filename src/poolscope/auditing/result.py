"""What an audit returns: ten answers, each a verdict with its numbers, its tables and its figure."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope import __version__
from poolscope.files import atomic_path, check_folder, write_json
from poolscope.results import plain
from poolscope.verdicts import Basis, Level, Verdict, worst_level

if TYPE_CHECKING:
    from poolscope.auditing.subject import Subject

JSON, PAGE, TABLES = "audit.json", "report.html", "tables"

# Kinds of actions, from the cheapest to the dearest.
KINDS = ("keep", "undecided", "configure", "merge", "repair", "re-chunk", "change")


@dataclass(frozen=True)
class Action:
    """What to do about an answer: its kind (one of KINDS), the step in words, what to run, and what it costs.

    `command` runs as it stands: a command line, or a call in Python where the audit was of objects in memory; None
    where no command does the step.
    """

    kind: str
    step: str
    command: str | None
    cost: str


@dataclass(frozen=True)
class Finding:
    """What the function behind a question returns.

    `numbers` are named once in a whole audit; `tables` go to Parquet; `draw` makes the figure when it is asked for, and
    `more` further ones by name; `action` is what the finding asks for where it is not `ok`; `number_name` says what the
    number of the verdict is, where it is not what the question says; `basis` is what a level above `ok` rests on.
    """

    verdict: Verdict
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    draw: Callable[[], Any] | None = None
    action: Action | None = None
    more: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    number_name: str | None = None
    basis: Basis | None = None


NOT_APPLICABLE = "Not applicable, because "


def not_applicable(reason: str, **numbers: Any) -> Finding:
    """The defined answer where a question cannot be asked: `ok`, without a number, and why.

    >>> not_applicable("there is one text only").verdict.sentence
    'Not applicable, because there is one text only.'
    """
    return Finding(Verdict("ok", f"{NOT_APPLICABLE}{reason}."), numbers)


@dataclass(frozen=True)
class Answer:
    """One question and its answer; `page` is the page of the documentation that explains it.

    `number_name` says what the number of the verdict is, `number_format` how it is written, and `basis` what its level
    rests on (None for `ok`).
    """

    number: int
    key: str
    question: str
    verdict: Verdict
    numbers: Mapping[str, Any]
    page: str
    number_name: str = ""
    number_format: str | None = None
    tables: Mapping[str, pa.Table] = field(default_factory=dict, repr=False)
    draw: Callable[[], Any] | None = field(default=None, repr=False)
    more: Mapping[str, Callable[[], Any]] = field(default_factory=dict, repr=False)
    action: Action | None = None
    basis: Basis | None = None

    def figure(self) -> Any | None:
        """The figure (plotly), or None where there is nothing to draw."""
        return None if self.draw is None else self.draw()

    def figures(self) -> list[tuple[str, Any]]:
        """The figure and all further ones, each with its name."""
        drawn = {} if self.draw is None else {self.key: self.draw}
        return [(name, draw()) for name, draw in {**drawn, **self.more}.items()]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        return {
            "number": self.number,
            "key": self.key,
            "question": self.question,
            **self.verdict.to_dict(),
            "number_name": self.number_name,
            "numbers": plain(self.numbers),
            "action": plain(self.action),
            "basis": self.basis,
            "page": self.page,
            "tables": sorted(self.tables),
        }


@dataclass(frozen=True)
class Audit:
    """Ten answers about one model on one corpus, and where they came from.

    `model` is what the model declares, `corpus` what is known of the texts (its digest tells corpora apart),
    `thresholds` those that were used, `provenance` versions, settings and seconds. `subject` holds clouds
    and pairs for the page.
    """

    model: Mapping[str, Any]
    corpus: Mapping[str, Any]
    answers: tuple[Answer, ...]
    thresholds: Mapping[str, float] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    subject: Subject | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        levels = ", ".join(f"{answer.number} {answer.verdict.level}" for answer in self.answers)
        return f"Audit({self.model['name']} on {self.corpus['texts']:,} texts: {levels})"

    def __getitem__(self, key: str) -> Answer:
        """The answer of a key, such as `audit["scores"]`."""
        return {answer.key: answer for answer in self.answers}[key]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict of each question, by key."""
        return {answer.key: answer.verdict for answer in self.answers}

    @property
    def level(self) -> Level:
        """The most serious level among the answers."""
        return worst_level(list(self.verdicts.values()))

    @property
    def numbers(self) -> dict[str, Any]:
        """All numbers of all answers by name; a name stands once in an audit."""
        return {name: value for answer in self.answers for name, value in answer.numbers.items()}

    @property
    def tables(self) -> dict[str, pa.Table]:
        """All tables of all answers by name."""
        return {name: table for answer in self.answers for name, table in answer.tables.items()}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tables in plain types: the content of `audit.json`."""
        flat = {name: value for name, value in plain(self.numbers).items() if isinstance(value, int | float)}
        return {
            "poolscope": __version__,
            "model": plain(self.model),
            "corpus": plain(self.corpus),
            "level": self.level,
            "answers": [answer.to_dict() for answer in self.answers],
            "numbers": flat,
            "thresholds": dict(self.thresholds),
            "provenance": plain(self.provenance),
        }

    def to_html(self) -> str:
        """One self-contained page (needs the extra 'report')."""
        from poolscope.auditing.page import audit_page

        return audit_page(self)

    def save(self, folder: str | os.PathLike[str], *, page: bool = True) -> Path:
        """Write `audit.json`, `tables/*.parquet` and, with `page`, `report.html` into a folder.

        Each file is whole or absent, and `audit.json` comes last: where it is, all the others are.
        """
        target = check_folder(folder)
        content = self.to_html() if page else None
        for stale in (JSON, PAGE):
            (target / stale).unlink(missing_ok=True)
        for name, table in self.tables.items():
            with atomic_path(target / TABLES / f"{name}.parquet") as temporary:
                pq.write_table(table, temporary)
        if content is not None:
            with atomic_path(target / PAGE) as temporary:
                temporary.write_text(content, encoding="utf-8")
        write_json(target / JSON, self.to_dict())
        return target

    def _repr_html_(self) -> str:
        """The answers as a table, for notebooks."""
        rows = "".join(
            f"<tr><td>{answer.number}</td><td><b style='color:{_COLOURS[answer.verdict.level]}'>"
            f"{answer.verdict.level}</b></td><td style='text-align:left'>{html.escape(answer.question)}<br>"
            f"{html.escape(answer.verdict.sentence)}</td><td>{html.escape(number_text(answer.verdict))}</td></tr>"
            for answer in self.answers
        )
        title = f"{self.model['name']} · {self.corpus['texts']:,} texts of {self.corpus['source']}"
        return f"<p><b>{html.escape(title)}</b></p><table>{rows}</table>"


# Dark enough on white and light enough on black.
_COLOURS = {"ok": "#2e9e5b", "watch": "#c98a00", "repair": "#d1495b"}


def number_text(verdict: Verdict, form: str = ".3g") -> str:
    """The number with its interval and floor in one line; empty where there is none.

    >>> number_text(Verdict("ok", "…", value=0.1234, floor=0.05))
    '0.123 (floor 0.05)'
    """
    if verdict.value is None:
        return ""
    parts = [format(verdict.value, form)]
    if verdict.interval is not None:
        parts.append(f"[{verdict.interval.low:{form}}, {verdict.interval.high:{form}}]")
    if verdict.floor is not None:
        parts.append(f"(floor {verdict.floor:{form}})")
    return " ".join(parts)
