"""What an audit returns: one answer a question, and where the numbers came from; its folder and its page."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from poolscope import __version__
from poolscope.auditing.question import Answer
from poolscope.digests import check_seal, digest_of, digests_of_files, sealed
from poolscope.errors import InputError, StoreError, reading
from poolscope.files import check_folder, current_file, refuse_special, replaced_files, text_of, write_json
from poolscope.lines import command_lines, paragraphs
from poolscope.results import Result, cells, plain
from poolscope.verdicts import LEVEL_COLOURS, Level, Verdict, number_text, worst_level

if TYPE_CHECKING:
    from poolscope.auditing.subject import Subject

JSON, PAGE, TABLES = "audit.json", "report.html", "tables"
FILES = "files"  # of the digests of all other files, in the JSON
_ALLOWED = "allowed are folders that `poolscope audit MODEL TEXTS --output FOLDER` wrote."
_TABLE_NAME = re.compile(r"\w[\w.-]*")  # so that none leads out of the folder


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """The answers about one model on one corpus, and where they came from.

    `model` is what the model declares, `corpus` what is known of the texts (its digest tells corpora apart),
    `thresholds` those that were used, `provenance` versions, settings and seconds. `subject` holds clouds and pairs;
    an audit that was loaded has none, and no figures.
    """

    model: Mapping[str, Any]
    corpus: Mapping[str, Any]
    answers: tuple[Answer, ...]
    thresholds: Mapping[str, float] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    subject: Subject | None = field(default=None, compare=False, metadata={"transient": True})

    def __repr__(self) -> str:
        levels = ", ".join(f"{answer.number} {answer.verdict.level}" for answer in self.answers)
        return f"Audit({self.model['name']} on {self.corpus['texts']:,} texts: {levels})"

    def __str__(self) -> str:
        """The screen of `poolscope audit`, as plain text."""
        from poolscope.auditing.screen import as_text

        return as_text(self)

    def __getitem__(self, key: str) -> Answer:
        """The answer of a key, such as `audit["scores"]`."""
        known = {answer.key: answer for answer in self.answers}
        if key not in known:
            raise InputError(f"received the question {key!r}; the questions of this audit are {', '.join(known)}.")
        return known[key]

    def __contains__(self, key: object) -> bool:
        return any(answer.key == key for answer in self.answers)

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
    def tables(self) -> Mapping[str, pa.Table]:
        """All tables of all answers by name; those of a folder are read when they are asked for."""
        return _Tables({name: partial(a.tables.__getitem__, name) for a in self.answers for name in a.tables})

    def column(self, table: str, name: str) -> Any:
        """A column of a table as an array; None where the audit has no such table."""
        content = self.tables.get(table)
        if content is None:
            return None
        if name not in content.column_names:
            raise StoreError(f"the table {table!r} of the audit has no column {name!r}; it was changed. Audit again.")
        return content[name].to_numpy()

    @property
    def extent(self) -> str:
        """What was audited, in a few words: how many texts with how many tokens, or how many vectors."""
        corpus, tokens = self.corpus, self.corpus.get("tokens")
        if tokens is None:
            return f"{corpus['texts']:,} vectors of dimension {self.model['dimension']}, without their tokens"
        return f"{corpus['texts']:,} texts of {corpus['source']} · {tokens:,} tokens"

    def rows(self) -> list[dict[str, Any]]:
        """One row an answer."""
        parts = ("key", "level", "value", "low", "high", "floor", "sentence")
        return [{"number": a.number, **dict.fromkeys(parts), **cells(a.headline())} for a in self.answers]

    # -- files ----------------------------------------------------------------------------------------------------

    def to_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Everything but the tables in plain types: the content of `audit.json`."""
        flat = {name: value for name, value in plain(self.numbers).items() if isinstance(value, int | float)}
        return {
            "result": "Audit",
            "poolscope": __version__,
            "model": plain(self.model),
            "corpus": plain(self.corpus),
            "level": self.level,
            "answers": [answer.to_dict() for answer in self.answers],
            "numbers": flat,
            "thresholds": dict(self.thresholds),
            "provenance": plain(self.provenance),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The audit that `to_dict` described, without tables and figures."""
        return cls(
            model=content["model"],
            corpus=content["corpus"],
            answers=tuple(Answer.from_dict(answer) for answer in content["answers"]),
            thresholds=content["thresholds"],
            provenance=content.get("provenance", {}),
        )

    def save(self, folder: str | os.PathLike[str], *, page: bool = True) -> Path:  # type: ignore[override]
        """Write `audit.json`, `tables/*.parquet` and, with `page`, `report.html` into a folder.

        An audit that is there already stands until the new one is whole, and is then replaced in one step; other files
        of the folder stay.
        """
        target = check_folder(folder)
        content = self.to_html() if page else None
        with replaced_files(target, stale=(JSON, PAGE, f"{TABLES}/*.parquet")) as written:
            (written / TABLES).mkdir()
            for name, table in self.tables.items():
                pq.write_table(table, written / TABLES / f"{name}.parquet")
            if content is not None:
                (written / PAGE).write_text(content, encoding="utf-8")
            write_json(written / JSON, sealed({**self.to_dict(), FILES: digests_of_files(written)}))
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The audit of a folder that `save` wrote, also one of an older version: answers, numbers and tables.

        Figures, clouds and pairs are not kept: their page is in the folder.
        """
        folder = audit_folder(path)
        if folder.is_file():
            raise InputError(f"{folder}: received a file; {_ALLOWED}")
        path = current_file(folder, JSON)
        try:
            with reading(path, "Run the audit again.", is_not="an audit"):
                content = check_seal(json.loads(text_of(path, StoreError)), path, "Run the audit again.")
                str(content["model"]["name"])
        except FileNotFoundError:
            raise InputError(f"{folder}: no {JSON} here; {_ALLOWED}") from None
        if not {"answers", "numbers", "corpus", "thresholds"} <= set(content):
            raise StoreError(f"{folder / JSON}: it lacks answers, numbers, thresholds or corpus. Run the audit again.")
        with reading(path, "Run the audit again.", is_not="an audit"):
            audit = cls.from_dict(content)
            # Only tables of this audit: an earlier one may have left others in the folder.
            named = zip(audit.answers, (answer.get("tables", ()) for answer in content["answers"]), strict=True)
            digests = content.get(FILES)
            answers = tuple(replace(each, tables=_stored(folder, tables, digests)) for each, tables in named)
            return replace(audit, answers=answers)

    # -- what is shown --------------------------------------------------------------------------------------------

    def figure(self) -> Any:
        """Where the numbers of the answers stand between their floors and thresholds, all on one scale."""
        from poolscope.auditing.pages import standings, standings_figure

        rows = standings(self.answers, self.thresholds)
        return standings_figure(rows) if rows else super().figure()

    def to_html(self) -> str:
        """One self-contained page (needs the extra 'report')."""
        from poolscope.auditing.pages import audit_page

        return audit_page(self)

    def _repr_html_(self) -> str:
        """The decision, and the answers as a table, findings first; for notebooks."""
        from poolscope.auditing.screen import is_decision, ordered

        rows = "".join(
            f"<tr><td>{answer.number}</td><td>{coloured(answer.verdict.level)}</td>"
            f"<td style='text-align:left'><b>{html.escape(answer.title or answer.key)}</b><br>"
            f"{html.escape(_in_python(answer.verdict.sentence))}</td>"
            f"<td style='text-align:left;white-space:nowrap'>{_number_lines(answer)}</td></tr>"
            for _, answers in ordered(self.answers)
            for answer in answers
        )
        title = f"{self.model['name']} · {self.extent}"
        decision = "".join(_decided(answer) for answer in self.answers if is_decision(answer))
        return f"<p><b>{html.escape(title)}</b></p>{decision}{self._drawing()}<table>{rows}</table>"


def coloured(level: Level) -> str:
    """A level in its colour, for notebooks."""
    return f"<b style='color:{LEVEL_COLOURS[level]}'>{level}</b>"


def _decided(answer: Answer) -> str:
    """The decision in a notebook, with what to run."""
    command = None if answer.action is None else answer.action.command
    run = "" if command is None else f"<pre>{html.escape(command_lines(command, 100))}</pre>"
    border = f"border-left:4px solid {LEVEL_COLOURS[answer.verdict.level]};padding-left:10px"
    step, *others = map(html.escape, map(_in_python, paragraphs(answer.verdict.sentence)))
    return f"<div style='{border}'><b>{step}</b>{''.join(f'<br>{part}' for part in others)}{run}</div>"


def _in_python(sentence: str) -> str:
    """A sentence with the options of the command line as arguments.

    >>> _in_python("It is not known (--group, or --limit 0).")
    'It is not known (group=, or limit=0).'
    """
    return re.sub(r"--([a-z][a-z-]*)( (?=\d))?", lambda option: f"{option[1].replace('-', '_')}=", sentence)


def _number_lines(answer: Answer) -> str:
    """Number, interval and floor of an answer below each other."""
    parts = number_text(answer.verdict, answer.number_format or ".3g").replace(" [", "\n[").replace(" (", "\n(")
    return html.escape(parts).replace("\n", "<br>")


def audit_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of an audit, named itself or by its `audit.json`."""
    return Path(path).parent if Path(path).name == JSON else Path(path)


class _Tables(Mapping[str, pa.Table]):
    """Tables by name, each read when it is asked for."""

    def __init__(self, readers: Mapping[str, Callable[[], pa.Table]]) -> None:
        self._readers = readers

    def __getitem__(self, name: str) -> pa.Table:
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:  # without reading it
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def _stored(folder: Path, names: Iterable[Any], digests: Mapping[str, str] | None) -> _Tables:
    """These tables, read when they are asked for; `digests` by file, None in an audit of an earlier version.

    An earlier version named tables that it did not write; what was written and is gone is missed when it is read.
    """
    readers: dict[str, Callable[[], pa.Table]] = {}
    for name in map(str, names):
        if not _TABLE_NAME.fullmatch(name):
            raise StoreError(f"{folder / JSON}: it names the table {name!r}, which is no name of one. Audit again.")
        file = f"{TABLES}/{name}.parquet"
        if file in (digests or ()) or current_file(folder, file).exists():
            readers[name] = partial(_read, folder, file, digests)
    return _Tables(readers)


def _read(folder: Path, name: str, digests: Mapping[str, str] | None) -> pa.Table:
    path = current_file(folder, name)
    with reading(path, "Run the audit again."):
        refuse_special(path, StoreError)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            again = "Copy the folder again, or run the audit again."
            raise StoreError(f"{path}: this table of the audit is missing. {again}") from None
        if digests is not None and digests.get(name) != digest_of(data):
            raise ValueError("it is not what was written, since its digest differs")
        table = pq.read_table(pa.BufferReader(data))
        table.validate(full=True)
    return table
