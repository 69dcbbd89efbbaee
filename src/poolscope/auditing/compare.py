"""Several audits of the same corpus beside each other: their answers, and differences with intervals.

What was measured text by text, pair by pair or query by query is in the tables of an audit, so that what both models
share cancels; each question knows how its numbers are paired.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from poolscope.auditing.question import QUESTIONS
from poolscope.auditing.result import FILES, Audit, audit_folder, coloured
from poolscope.charts import short_name
from poolscope.digests import digests_of_files, sealed
from poolscope.errors import InputError
from poolscope.files import check_folder, current_file, replaced_files, write_json
from poolscope.numbers.intervals import Interval, signed
from poolscope.results import Result, plain
from poolscope.verdicts import LEVELS

COMPARISON, COMPARISON_PAGE = "comparison.json", "comparison.html"
NOT_PAIRED = "not paired: both intervals as if independent"
OTHER_QUERIES = "no interval: the audits had different queries"
# Levels that differ while their number does not, as far as can be told.
_WITHIN = "Across a threshold, but within chance"


@dataclass(frozen=True)
class DifferenceRow:
    """Second minus first of one number, with its interval and how that was found (None: no interval can be given)."""

    number: str
    first: str
    second: str
    first_value: float
    second_value: float
    difference: float
    interval: Interval | None
    how: str

    @property
    def words(self) -> str:
        """What the number is, in plain words; its name where no question knows it."""
        known = {number.name: number.words for question in QUESTIONS.values() for number in question.numbers}
        return known.get(self.number, self.number)


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Audits of one corpus beside each other; differences are those of each later audit with the first.

    `audits` are their names and models, `facts` what tells them apart (one value an audit: folder, model, settings and
    thresholds that differ), `answers` one row a question and audit. `records` are the audits themselves, by name; a
    comparison that was loaded has none.
    """

    audits: Sequence[Mapping[str, str]]
    corpus: Mapping[str, Any]
    facts: Mapping[str, list[Any]]
    answers: Sequence[Mapping[str, Any]]
    differences: tuple[DifferenceRow, ...]
    records: Mapping[str, Audit] = field(default_factory=dict, compare=False, metadata={"transient": True})

    @property
    def names(self) -> list[str]:
        """The names of the audits."""
        return [audit["name"] for audit in self.audits]

    @property
    def keys(self) -> list[str]:
        """The questions that an audit has answered, in the order of the table; those that it does not know last."""
        present = dict.fromkeys(row["key"] for row in self.answers)
        return [key for key in QUESTIONS if key in present] + [key for key in present if key not in QUESTIONS]

    def heading(self, key: str) -> str:
        """Number and title of a question: its place here, as audits of other sources number it differently."""
        titles = [audit[key].title for audit in self.records.values() if key in audit]
        return f"{self.keys.index(key) + 1}. {titles[0]}"

    def headline(self) -> dict[str, Any]:
        """The names, and how many numbers are compared."""
        return {"audits": ", ".join(self.names), "differences": len(self.differences)}

    def rows(self) -> list[dict[str, Any]]:
        """One row a question and audit: level, number and what it is, interval, floor and sentence."""
        return [dict(row) for row in self.answers]

    def headlines(self) -> list[str]:
        """One sentence for each later audit beside the first: how many answers ask for something, and what changed."""
        first, *others = self.names
        return [_headline(self, first, second) for second in others]

    def worse(self) -> list[str]:
        """What a later audit shows to be worse than the first: a search that finds less, and levels beyond chance."""
        first, *others = self.names
        told = []
        for second in others:
            row = _retrieval(self, second)
            if row is not None and row.interval is not None and row.interval.high < 0:
                told.append(f"{second}: {row.words} {signed(row.difference)} {row.interval}")
            told += [f"{second}: {title}" for title in _changed(self, first, second)["Worse"]]
        return told

    def _repr_html_(self) -> str:
        """The sentences about each pair, and the level and number of every question side by side; for notebooks."""
        told = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.headlines())
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("question", *self.names))
        rows = {key: [row for row in self.answers if row["key"] == key] for key in self.keys}
        body = "".join(
            f"<tr><td style='text-align:left'>{html.escape(QUESTIONS[key].title if key in QUESTIONS else key)}</td>"
            + "".join(_cell([row for row in rows[key] if row["audit"] == name]) for name in self.names)
            + "</tr>"
            for key in rows
        )
        return f"{told}<table><tr>{head}</tr>{body}</table>"

    def to_html(self) -> str:
        """One self-contained page in the style of the audit's (needs the extra 'report')."""
        from poolscope.auditing.pages import comparison_page

        return comparison_page(self)

    def save(self, folder: str | os.PathLike[str], *, page: bool = True) -> Path:  # type: ignore[override]
        """Write `comparison.json` and, with `page`, `comparison.html` into a folder."""
        target = check_folder(folder)
        content = self.to_html() if page else None
        with replaced_files(target, stale=(COMPARISON, COMPARISON_PAGE)) as written:
            if content is not None:
                (written / COMPARISON_PAGE).write_text(content, encoding="utf-8")
            write_json(written / COMPARISON, sealed({**self.to_dict(), FILES: digests_of_files(written)}))
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The comparison of a folder that `save` wrote, without the audits themselves."""
        return super().load(current_file(Path(path), COMPARISON) if Path(path).is_dir() else path)


def compare(*audits: Audit | str | os.PathLike[str]) -> Comparison:
    """Two or more audits of the same corpus beside each other, and their differences with intervals.

    Parameters
    ----------
    *audits
        Audits as objects, or the folders that `Audit.save` and `poolscope audit --output` wrote.

    Returns
    -------
    Comparison
        Levels and numbers of all audits, and each later audit minus the first: paired over texts, pairs or queries
        wherever both measured the same.

    Examples
    --------
    >>> import poolscope
    >>> texts = [f"a short text about subject {k}" for k in range(12)]
    >>> first, second = (poolscope.audit("builtin:wordllama", texts, trial_texts=0, seed=seed) for seed in (0, 1))
    >>> poolscope.compare(first, second).names
    ['l2_supercat_256 (1)', 'l2_supercat_256 (2)']

    """
    if len(audits) < 2:
        received = "1 audit" if len(audits) == 1 else f"{len(audits)} audits"
        raise InputError(f"received {received}; a comparison needs two or more of the same corpus.")
    folders = [None if isinstance(audit, Audit) else str(audit_folder(audit)) for audit in audits]
    opened = [audit if isinstance(audit, Audit) else Audit.load(audit) for audit in audits]
    names = audit_names([str(audit.model["name"]) for audit in opened], folders)
    records = dict(zip(names, opened, strict=True))
    _check_corpora(records)
    first, *others = records.items()
    return Comparison(
        audits=[{"name": name, "model": str(audit.model["name"])} for name, audit in records.items()],
        corpus=plain(opened[0].corpus),
        facts=differing_facts(opened, folders),
        answers=_answer_rows(records),
        differences=tuple(row for other in others for row in differences(first, other)),
        records=records,
    )


def _cell(answers: Sequence[Mapping[str, Any]]) -> str:
    """Level and number of one audit's answer, as a cell of a notebook's table."""
    if not answers:
        return "<td>not asked</td>"
    (answer,) = answers
    number = "" if answer["value"] is None else f" {answer['value']:.3g}"
    return f"<td>{coloured(answer['level'])}{number}</td>"


def _headline(comparison: Comparison, first: str, second: str) -> str:
    rows, own = _both(comparison, first, second)
    told = [_asks(rows[name].values()) for name in (second, first)]
    same = "as before" if told[0] == told[1] else f"where {first} has {told[1]}"
    sentence = f"{second} against {first}: {_finds(comparison, second)}{told[0]}, {same}."
    for word, titles in _changed(comparison, first, second).items():
        sentence += f" {word}: {', '.join(titles)}." if titles else ""
    for word, here, there in (("No longer answered", first, second), ("Answered now", second, first)):
        titles = [
            f"{QUESTIONS[key].title} ({rows[here][key]['level']})"
            for key in own
            if rows[there][key]["level"] == "unchecked" != rows[here][key]["level"]
        ]
        sentence += f" {word}: {', '.join(titles)}." if titles else ""
    compared = [row for row in comparison.differences if row.second == second]
    if not compared:
        return sentence
    beyond = sum(excludes_zero(row.interval) is True for row in compared)
    chance = f"chance alone gives about {len(compared) / 20:.1f}"
    return f"{sentence} {beyond} of {len(compared)} compared numbers differ beyond their 95 % intervals; {chance}."


def _both(comparison: Comparison, first: str, second: str) -> tuple[dict[str, dict[str, Mapping[str, Any]]], list[str]]:
    """The answers of two audits by question, and the questions that both were asked, without those made of others."""
    rows = {name: {row["key"]: row for row in comparison.answers if row["audit"] == name} for name in (first, second)}
    both = [key for key in rows[first] if key in rows[second] and key in QUESTIONS]
    return rows, [key for key in both if not QUESTIONS[key].from_answers]


def _changed(comparison: Comparison, first: str, second: str) -> dict[str, list[str]]:
    """Which questions have become better, worse, or crossed a threshold within chance, each with its levels."""
    rows, own = _both(comparison, first, second)
    changed: dict[str, list[str]] = {"Better": [], "Worse": [], _WITHIN: []}
    for key in own:
        before, after = rows[first][key], rows[second][key]
        if before["level"] == after["level"] or "unchecked" in (before["level"], after["level"]):
            continue
        better = LEVELS.index(after["level"]) < LEVELS.index(before["level"])
        word = _WITHIN if _within_chance(comparison, before, after) else "Better" if better else "Worse"
        changed[word].append(f"{QUESTIONS[key].title} ({before['level']} → {after['level']})")
    return changed


def _retrieval(comparison: Comparison, second: str) -> DifferenceRow | None:
    """The difference of what a search finds, with the queries or with halves of texts; None where it has none."""
    names = {number.name for question in QUESTIONS.values() for number in question.numbers if number.retrieval}
    compared = (row for row in comparison.differences if row.second == second and row.number in names)
    return next((row for row in compared if row.interval is not None), None)


def _finds(comparison: Comparison, second: str) -> str:
    """Whether a search finds more or less, in words: levels tell of symptoms, and a ruined model may have few."""
    row = _retrieval(comparison, second)
    if row is None or row.interval is None:
        return ""
    found = "finds more" if row.interval.low > 0 else "finds less" if row.interval.high < 0 else ""
    measured = f"{row.words} {signed(row.difference)} {row.interval}"
    return f"it {found} ({measured}); " if found else f"whether it finds more or less cannot be told ({measured}); "


def _within_chance(comparison: Comparison, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Was the number behind two levels compared, and is there no difference that can be told from chance?

    That number, where it is one of those compared; otherwise all of the question. A count has no chance in it.
    """
    if {"counted", "cut"} & {before.get("basis"), after.get("basis")}:
        return False
    names = {number.name for number in QUESTIONS[before["key"]].numbers}
    compared = [row for row in comparison.differences if row.number in names and row.second == after["audit"]]
    judged = [row for row in compared if (row.first_value, row.second_value) == (before["value"], after["value"])]
    told = [excludes_zero(row.interval) for row in judged or compared]
    return False in told and True not in told


def _asks(answers: Iterable[Mapping[str, Any]]) -> str:
    """How many answers ask for something; the decision, which is made of them, does not count."""
    from_answers = {key for key, question in QUESTIONS.items() if question.from_answers}
    own = [row["level"] for row in answers if row["key"] not in from_answers]
    return f"{own.count('repair')} to repair and {own.count('watch')} to watch"


def _answer_rows(records: Mapping[str, Audit]) -> list[dict[str, Any]]:
    """One row a question and audit that was asked it, those of one question together."""
    rows = [
        {"audit": name, "number_name": answer.number_name, "basis": answer.verdict.basis, **row}
        for name, audit in records.items()
        for answer, row in zip(audit.answers, audit.rows(), strict=True)
    ]
    keys = list(dict.fromkeys(row["key"] for row in rows))
    return sorted(rows, key=lambda row: keys.index(row["key"]))


def _check_corpora(records: Mapping[str, Audit]) -> None:
    corpora = {name: audit.corpus for name, audit in records.items()}
    unknown = [name for name, corpus in corpora.items() if corpus["digest"] is None]
    if unknown:
        raise InputError(
            f"{unknown[0]} was audited from clouds or vectors without their texts, so nothing tells whether the "
            f"corpus is the same. Audit a model on texts, or name the texts of the vectors."
        )
    if len({corpus["digest"] for corpus in corpora.values()}) > 1:
        listed = "; ".join(
            f"{name}: {corpus['texts']:,} texts of {corpus['source']} ({corpus['digest'][:12]})"
            for name, corpus in corpora.items()
        )
        raise InputError(
            f"the audits are of different corpora ({listed}); only audits of the same texts with the same ids, in the "
            f"same order, can be compared. Run them again with the same texts, --id-column (--queries takes a column "
            f"of ids by itself), --limit and --seed."
        )


# -- differences --------------------------------------------------------------------------------------------------


def differences(first: tuple[str, Audit], second: tuple[str, Audit]) -> list[DifferenceRow]:
    """Second minus first for every number that questions compare and both audits have; each audit with its name."""
    (name, audit), (other_name, other) = first, second
    other_queries = _queries(audit) != _queries(other)
    rows = []
    for number in (each for question in QUESTIONS.values() for each in question.numbers if each.compared):
        before, after = audit.numbers.get(number.name), other.numbers.get(number.name)
        if not isinstance(before, int | float) or not isinstance(after, int | float):
            continue
        paired = None if number.pair is None else number.pair(audit, other)
        interval, how = paired if paired is not None else _independent(audit, other, number.name)
        if number.asked and other_queries:
            interval, how = None, OTHER_QUERIES
        rows.append(DifferenceRow(number.name, name, other_name, before, after, after - before, interval, how))
    return rows


def _queries(audit: Audit) -> str | None:
    """The digest of the queries that an audit was given; None for those made of the texts."""
    settings: Mapping[str, Any] = audit.provenance.get("settings", {})
    return settings.get("queries")


def _independent(first: Audit, second: Audit, name: str) -> tuple[Interval | None, str]:
    """From the two intervals, as if the audits had nothing in common: too wide rather than too narrow."""
    before, after = (audit.numbers.get(f"{name}_interval") for audit in (first, second))
    if before is None or after is None:
        return None, "no interval: a number without one"
    left, right = (audit.numbers[name] for audit in (first, second))
    # The difference is least where the second is low and the first high: each arm has its own reach.
    low = right - left - float(np.hypot(right - after.low, before.high - left))
    high = right - left + float(np.hypot(after.high - right, left - before.low))
    return Interval(low, high, 0.95, "the population of texts", NOT_PAIRED), NOT_PAIRED


def excludes_zero(interval: Interval | None) -> bool | None:
    """Does the interval of a difference tell that there is one? None where there is no interval.

    >>> excludes_zero(Interval(0.1, 0.2, 0.95, "texts", "bootstrap")), excludes_zero(None)
    (True, None)
    """
    return None if interval is None else interval.low > 0 or interval.high < 0


# -- names and facts ----------------------------------------------------------------------------------------------


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def audit_names(models: Sequence[str], folders: Sequence[str | None]) -> list[str]:
    """Short names that tell the audits apart.

    That of a model without its owner, if that is enough; with its owner where two models end alike; with its folder
    where audits are of one model; and with a number where nothing else helps.

    >>> audit_names(["org/a", "org/b"], [None, None])
    ['a', 'b']
    >>> audit_names(["org/a", "other/a", "org/a"], ["runs/one", None, "runs/two"])
    ['org/a · one', 'other/a', 'org/a · two']
    >>> audit_names(["org/a", "org/a"], [None, None])
    ['a (1)', 'a (2)']
    """
    short = [short_name(model) or model for model in models]
    alike = len(set(short)) < len(set(models))
    names = list(models) if alike else short
    last_parts = [None if folder is None else Path(folder).resolve().name for folder in folders]
    for parts in (last_parts, folders):
        named = [
            f"{name} · {part}" if part is not None and names.count(name) > 1 else name
            for name, part in zip(names, parts, strict=True)
        ]
        if len(set(named)) == len(named):
            return named
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]


def differing_facts(audits: Sequence[Audit], folders: Sequence[str | None]) -> dict[str, list[Any]]:
    """The model, the folder and the time of each audit, and of its settings those that are not the same in all."""
    facts: dict[str, list[Any]] = {
        "model": [audit.model["name"] for audit in audits],
        "folder": list(folders),
        "created": [audit.provenance.get("created") for audit in audits],
    }
    facts = {name: values for name, values in facts.items() if any(value is not None for value in values)}
    known = [_settings(audit) for audit in audits]
    for name in dict.fromkeys(name for settings in known for name in settings):
        values = [settings.get(name) for settings in known]
        if any(value != values[0] for value in values):
            facts[name] = values
    return facts


def _settings(audit: Audit) -> dict[str, Any]:
    """What the audit was run with, flat: what the model declares, how it encoded, settings and thresholds."""
    model, provenance = plain(audit.model), plain(audit.provenance)
    clouds = provenance.get("clouds") or [{}]
    parts = {
        "": model,
        "encoded with ": clouds[0].get("options") or {},
        "setting ": provenance.get("settings", {}),
        "threshold ": audit.thresholds,
    }
    flat = {f"{prefix}{name}": _short(value) for prefix, part in parts.items() for name, value in part.items()}
    told_elsewhere = ("name", "setting thresholds_changed")
    return {name: value for name, value in flat.items() if name not in told_elsewhere}


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 40:  # a digest of the weights
        return f"{value[:12]}…"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None
    return str(value) if isinstance(value, Mapping) else value


def common_number(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """What the numbers of all answers to one question are; None where they are not the same thing.

    Answers without a number do not count, unless none has one.

    >>> rate, cosine = ({"number_name": name, "value": 0.5} for name in ("hit rate", "cosine"))
    >>> common_number([rate, rate]), common_number([rate, cosine]), common_number([rate, {**cosine, "value": None}])
    ('hit rate', None, 'hit rate')
    """
    counted = [answer for answer in answers if answer["value"] is not None]
    names = {answer["number_name"] for answer in counted or answers}
    return names.pop() if len(names) == 1 else None
