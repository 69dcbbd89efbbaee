"""A question of the audit is one object: its words, its metric, its thresholds, its judge, its tables and numbers.

`QUESTIONS` is the table. The audit, its page, the comparison, the correlation and the documentation iterate over it. A
new question is one file in `auditing/questions/` and one row there; a package outside poolscope adds one through
`register`, from a module that an entry point of the group `poolscope.extensions` names.
"""

from __future__ import annotations

import html
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from poolscope.errors import InputError
from poolscope.extensions import load_extensions
from poolscope.files import text_of
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.report import PairExplorer, ReportColumn, ReportTable
from poolscope.results import Result, plain, restored, transient
from poolscope.verdicts import LEVEL_COLOURS, Basis, Verdict, number_text

if TYPE_CHECKING:
    from poolscope.auditing.result import Audit
    from poolscope.auditing.subject import Subject
    from poolscope.encoders.pooling import TextPooling


@dataclass(frozen=True)
class Threshold:
    """One threshold: its name, its default, and why it has this value.

    NAME_watch and NAME_repair belong together: `Thresholds.judge` goes by both.
    """

    name: str
    value: float
    why: str


# How a difference is paired over what two audits both measured: its interval and how it was found; None where their
# tables do not hold it.
Pairing = Callable[["Audit", "Audit"], tuple[Interval | None, str] | None]


@dataclass(frozen=True)
class Number:
    """A number that answers hold under `name`, in plain words.

    `headline`: it says one thing of its own, so that `correlate` looks at it (no counts, floors or gains of repairs).
    `compared`: `compare` gives the difference of two audits, paired by `pair` where that can be; otherwise from both
    intervals (NAME_interval beside the number), as if the audits had nothing in common. `asked`: it is measured with
    the user's queries where there are some, so that audits with other queries measured another thing. `retrieval`: it
    says how well a search finds, so that `compare` begins with it.
    """

    name: str
    words: str
    headline: bool = False
    compared: bool = True
    pair: Pairing | None = None
    asked: bool = False
    retrieval: bool = False


@dataclass(frozen=True)
class Gauge:
    """A number of an answer that thresholds judge, so that it can be drawn between its floor and them.

    `number` is its name among the numbers of the answer (NAME_interval and NAME_floor stand beside it where there are
    such); `watch` and `repair` are names of thresholds, "" where there is none. `above_floor`: they count from the
    floor on. `falls`: the number is best at 1, and the thresholds lie below it. `form` is how the number is written.
    """

    number: str
    words: str
    watch: str = ""
    repair: str = ""
    above_floor: bool = False
    falls: bool = False
    form: str | None = None


@dataclass(frozen=True)
class TextMark:
    """What an answer says of single texts, to colour a map of them: a column of a table that has a column `id`.

    `number`: the column holds numbers, and the colour follows them. Otherwise `holds` says of a value whether the text
    is marked; None: every text that stands in the table is. `named`: it is called so in the list of colours.
    """

    named: str
    table: str
    column: str = "id"
    number: bool = False
    holds: Callable[[Any], bool] | None = None


@dataclass(frozen=True)
class TableView:
    """How a table stands in the page: its title, how many of its rows, and its headings in plain words.

    The Parquet file has all rows, and the CSV file all columns by their own names. Columns without a heading are not
    shown; those of an interval (NAME_low and NAME_high) stand with their number. `below` names the column whose text
    stands small below a cell, `pair` the columns of two ids; `chosen` takes the rows that are worth showing.
    """

    title: str
    rows: int
    headings: Mapping[str, str]
    searchable: bool = False
    below: Mapping[str, str] = field(default_factory=dict)
    pair: tuple[str, str] | None = None
    chosen: Callable[[pa.Table], pa.Table] | None = None

    def shown(self, name: str, table: pa.Table) -> ReportTable:
        """The first rows of the table called `name`; the title says where the others are."""
        table = table if self.chosen is None else self.chosen(table)
        rows = table.slice(0, self.rows)
        more = len(table) > len(rows)
        cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        return ReportTable(
            f"{self.title} (the first {len(rows):,} of {len(table):,}; all in {name}.parquet)" if more else self.title,
            rows.column_names,
            [list(row) for row in cells],
            searchable=self.searchable,
            view=self.view(rows.column_names),
            pair=self.pair,
        )

    def view(self, columns: Sequence[str]) -> list[ReportColumn]:
        """The columns to show, of those that the table has."""
        view = []
        for name, heading in self.headings.items():
            if name not in columns:
                continue
            ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
            low, high = ends if set(ends) <= set(columns) else (None, None)
            level = "level" if name == "level" else None
            below = self.below.get(name) if self.below.get(name) in columns else None
            view.append(ReportColumn(name, heading, low=low, high=high, level=level, below=below))
        return view


def by_queries(name: str, asked: bool) -> str:
    """The name of a number, with who measured it where that were the user's queries: another thing without them."""
    return f"{name}, by your queries" if asked else name


# -- answers ------------------------------------------------------------------------------------------------------

NOT_APPLICABLE = "Not applicable, because "
# Kinds of actions in their order: from the cheapest to the dearest, then those that change nothing.
KINDS = ("configure", "merge", "repair", "re-chunk", "change", "undecided", "keep")


@dataclass(frozen=True)
class Action:
    """What to do about an answer: its kind (one of KINDS), the step in words, what to run, and what it costs.

    `command` runs as it stands: a command line, or a call in Python where the audit was of objects in memory; None
    where no command does the step. `renews`: the step surely makes these anew, so that the numbers of all other answers
    change with it, and so does what they ask for; "" where they stay, or where it is not sure.
    """

    kind: str
    step: str
    command: str | None
    cost: str
    renews: Literal["", "texts", "vectors"] = ""


def _in_memory() -> Any:
    """A mapping that only files of its own, or this process, hold."""
    return field(default_factory=dict, repr=False, compare=False, metadata={"transient": True})


@dataclass(frozen=True, repr=False)
class Answer(Result):
    """One question and its answer; what a page shows of it is asked of it directly.

    `numbers` are named once in a whole audit; an estimate among them is kept as NAME, NAME_interval and, where it has
    one, NAME_floor. `tables` go to Parquet; `draw` makes figures by name when they are asked
    for, that of the answer under its key; `explorer` makes the pairs that the reader can look at. `action` is what the
    answer asks for. `number_name` says what the number of the verdict is, and `number_format` how it is written. What
    the question says of itself (number, title, words, page) is filled in by `Question.ask`.
    """

    key: str
    verdict: Verdict
    numbers: Mapping[str, Any] = field(default_factory=dict)
    action: Action | None = None
    number_name: str = ""
    number_format: str | None = None
    number: int = 0
    title: str = ""
    question: str = ""
    page: str = ""
    tables: Mapping[str, pa.Table] = _in_memory()
    draw: Mapping[str, Callable[[], Any]] = _in_memory()
    explorer: Callable[[], PairExplorer] | None = transient()

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", _flat(self.numbers))

    @classmethod
    def unchecked(cls, key: str, reason: str, **parts: Any) -> Self:
        """The defined answer where a question cannot be asked: `unchecked`, without a number, and why.

        >>> Answer.unchecked("hubs", "there is one text only").verdict.sentence
        'Not applicable, because there is one text only.'
        """
        return cls(key, Verdict("unchecked", f"{NOT_APPLICABLE}{reason}."), **parts)

    def _opening(self) -> str:
        """The level in its colour, the sentence and the number, for notebooks."""
        level = f"<b style='color:{LEVEL_COLOURS[self.verdict.level]}'>{self.verdict.level}</b>"
        title = html.escape(self.title or self.key)
        number = number_text(self.verdict, self.number_format or ".3g")
        told = "" if self.verdict.value is None else f"{self.number_name or 'number'} {number}"
        sentence = html.escape(self.verdict.sentence)
        return f'<p>{level} <b>{title}</b><br>{sentence}</p><p style="opacity:0.75">{html.escape(told)}</p>'

    @property
    def basis(self) -> Basis | None:
        """What a level of `watch` or `repair` rests on."""
        return self.verdict.basis

    def headline(self) -> dict[str, Any]:
        """Level, number, interval and floor."""
        verdict = self.verdict
        values = {"key": self.key, "level": verdict.level, "value": verdict.value, "floor": verdict.floor}
        if verdict.interval is not None:
            values |= {"low": verdict.interval.low, "high": verdict.interval.high}
        return {**{name: value for name, value in values.items() if value is not None}, "sentence": verdict.sentence}

    def to_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Plain types only, the verdict flat; of the tables their names."""
        content = super().to_dict()
        return {**content, **content.pop("verdict"), "tables": sorted(self.tables)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The answer that `to_dict` described, also one of an older version; its tables are in files of their own."""
        verdict: Verdict = restored(Verdict, content)
        if verdict.value is None and verdict.sentence.startswith(NOT_APPLICABLE):
            verdict = replace(verdict, level="unchecked")  # `ok` up to version 0.1
        numbers = {
            name: Interval(**value) if name.endswith("_interval") and value is not None else value
            for name, value in dict(content["numbers"]).items()
        }
        question = QUESTIONS.get(content["key"])
        words = {} if question is None else {"title": question.title, "number_format": question.number_format}
        parts = {**words, **content, "result": "Answer", "verdict": plain(verdict), "numbers": numbers}
        return super().from_dict(parts)

    # -- what a page asks of a section ----------------------------------------------------------------------------

    @property
    def heading(self) -> str:
        """Number and title."""
        return f"{self.number}. {self.title}"

    @property
    def explained_by(self) -> str | None:
        """The page of poolscope's documentation; None where a question from outside has one of its own."""
        return None if self.link else self.page or None

    @property
    def link(self) -> str | None:
        """The page of a question from outside, which stands elsewhere."""
        return self.page if self.page.startswith(("http://", "https://")) else None

    @property
    def notes(self) -> Sequence[str]:
        """Further sentences: none, the evidence stands in the verdict."""
        return ()

    def figure(self) -> Any:
        """The figure (plotly); an error where there is nothing to draw."""
        return self.draw[self.key]() if self.key in self.draw else super().figure()

    def figures(self) -> list[tuple[str, Any]]:
        """All figures, each with its name: that of the answer, and further ones."""
        return [(name, draw()) for name, draw in self.draw.items()]

    def drawn(self) -> list[tuple[str, Any]]:
        """All figures with their names in the page."""
        return [(self.title if name == self.key else name.capitalize(), figure) for name, figure in self.figures()]

    def shown(self) -> list[ReportTable]:
        """The tables that stand in the page."""
        views = QUESTIONS[self.key].tables if self.key in QUESTIONS else {}
        return [views[name].shown(name, table) for name, table in self.tables.items() if name in views and len(table)]


def _flat(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name, an estimate as its parts.

    >>> _flat({"stale": Estimate(0.25, floor=0.5), "rows": 3})
    {'stale': 0.25, 'stale_interval': None, 'stale_floor': 0.5, 'rows': 3}
    """
    flat: dict[str, Any] = {}
    for name, value in numbers.items():
        if not isinstance(value, Estimate):
            flat[name] = value
            continue
        flat |= {name: value.value, f"{name}_interval": value.interval}
        if value.floor is not None:
            flat[f"{name}_floor"] = value.floor
    return flat


# -- questions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """One question, in one file: what it asks in words, the page that explains it, and all that it knows.

    `answer(subject)` measures, judges and gives an `Answer`; with `from_answers` it takes the answers so far too, and
    is asked after all others. `judge(result, thresholds)` gives the verdict on what its metric measured, for commands
    that measure without an audit. `metric` is its name in METRICS. `tables` are those that the page shows, `numbers`
    those that are compared or correlated. `judged_on`: its number lies on the scale of the thresholds NAME_watch and
    NAME_repair; `gauges` are further numbers that thresholds judge. `marks` are what it says of single texts, for the
    map of the corpus. `overlay` draws several audits in one figure (None where their tables do not hold it).

    `needs`: where only vectors are at hand, a question that needs "clouds" is not answered but names its `door`, which
    is the command that would. `of_vectors`: it needs clouds, and what it says is about the vectors made of them; such
    an answer, like one that needs vectors, says where these are not the model's own. `of_all`: of a planned audit, it
    is about the vectors of all texts. `applies(subject)`: a question
    that is about some sources only is left out elsewhere. `seconds` is what it takes of 1,000 texts on two cores, for
    the time left where nothing was measured yet.
    """

    key: str
    title: str
    words: str
    page: str
    number_name: str
    answer: Callable[..., Answer]
    judge: Callable[..., Verdict] | None = None
    metric: str | None = None
    thresholds: Sequence[Threshold] = ()
    numbers: Sequence[Number] = ()
    tables: Mapping[str, TableView] = field(default_factory=dict)
    number_format: str | None = None
    judged_on: str | None = None
    gauges: Sequence[Gauge] = ()
    marks: Sequence[TextMark] = ()
    overlay: Callable[[Mapping[str, Audit]], Any | None] | None = None
    from_answers: bool = False
    needs: Literal["clouds", "vectors"] = "clouds"
    of_vectors: bool = False
    of_all: bool = False
    door: str = "poolscope audit MODEL TEXTS"
    applies: Callable[[Subject], bool] | None = None
    seconds: float = 0.0

    @property
    def scales(self) -> list[Gauge]:
        """Every number that thresholds judge: that of the verdict first, if it is on the scale of some."""
        name = self.judged_on
        own = [] if name is None else [Gauge("", "", f"{name}_watch", f"{name}_repair")]
        return [*own, *self.gauges]

    def ask(self, subject: Subject, earlier: Sequence[Answer]) -> Answer:
        """The answer for a subject, with what the question says of itself; an action only where one is needed."""
        if self.needs == "clouds" and not self.from_answers and subject.collection is not None:
            answer = Answer.unchecked(
                self.key, f"it asks for the tokens of each text, and only vectors are at hand; `{self.door}` answers it"
            )
        else:
            answer = self.answer(subject, earlier) if self.from_answers else self.answer(subject)
        own = subject.text_pooling.own if subject.whole is None or not self.of_all else subject.whole.own
        if (self.of_vectors or self.needs == "vectors") and answer.numbers and own is False:
            answer = replace(answer, verdict=_of_means(answer.verdict, subject.text_pooling))
        needed = self.from_answers or answer.verdict.at_least("watch")
        return replace(
            answer,
            key=self.key,
            action=answer.action if needed else None,
            number_name=answer.number_name or self.number_name,
            number_format=answer.number_format or self.number_format,
            number=len(earlier) + 1,
            title=self.title,
            question=self.words,
            page=self.page,
        )


def _of_means(verdict: Verdict, pooling: TextPooling) -> Verdict:
    """A verdict on vectors that are means of tokens because the model's own could not be computed, or were not kept."""
    notes = pooling.notes if pooling.own is False else ()
    sentence = f"{verdict.sentence} This is of the means of the tokens, which are not the model's own vectors."
    return replace(verdict, sentence=sentence, evidence=(*verdict.evidence, *notes))


class QuestionTable(Mapping[str, Question]):
    """The questions by key, in the order in which they are asked: those from answers last.

    It fills itself when it is first read, so that a question's file can import this one.
    """

    def __init__(self) -> None:
        self._questions: dict[str, Question] = {}
        self._complete = False

    def register(self, question: Question) -> Question:
        """Add a question; a key stands once, and so does the name of a threshold and of a number."""
        self._own()
        if question.key in self._questions:
            raise InputError(f"question {question.key!r} is in the table already. Give yours another key.")
        for part in ("thresholds", "numbers"):
            known = {entry.name for other in self._questions.values() for entry in getattr(other, part)}
            if twice := sorted(known & {entry.name for entry in getattr(question, part)}):
                raise InputError(
                    f"question {question.key!r}: {part} {', '.join(twice)} are those of another question. Give yours "
                    f"other names."
                )
        self._questions[question.key] = question
        return question

    def _own(self) -> None:
        if not self._questions:
            from poolscope.auditing.questions import OWN

            self._questions = {question.key: question for question in OWN}

    def _known(self) -> dict[str, Question]:
        self._own()
        if not self._complete:
            self._complete = True  # before the extensions, which may read the table
            load_extensions()
        return dict(sorted(self._questions.items(), key=lambda item: item[1].from_answers))

    def __getitem__(self, key: str) -> Question:
        return self._known()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())


QUESTIONS = QuestionTable()
register = QUESTIONS.register


# -- the thresholds of one audit: those that the questions declare, some of them set anew ---------------------------
#
# A number is `watch` when its estimate reaches the first threshold, and `repair` only when its whole interval lies
# beyond the second, when it is a count over these texts, or when a repair that was tried has won on held-out texts:
# what is not sure is not called broken. All of them can be set, because what is tolerable depends on the use.


def defaults() -> dict[str, float]:
    """Every threshold of every question by name, as the questions set it."""
    return {threshold.name: threshold.value for question in QUESTIONS.values() for threshold in question.thresholds}


class Thresholds(Mapping[str, float]):
    """The thresholds of one audit; immutable.

    >>> chosen = Thresholds({"cut_off_watch": 0.8})
    >>> chosen["cut_off_watch"], chosen["cut_watch"], chosen.changed
    (0.8, 0.01, {'cut_off_watch': 0.8})
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        values = {} if values is None else values
        if not isinstance(values, Mapping):
            raise InputError(
                f"thresholds: received {type(values).__name__}; allowed is a mapping of names to numbers, such as "
                f"{{'cut_off_watch': 0.8}}."
            )
        self._defaults = defaults()
        if unknown := sorted(str(name) for name in values if name not in self._defaults):
            raise InputError(f"thresholds: received {', '.join(unknown)}; known are {', '.join(self._defaults)}.")
        set_anew = {name: _number(name, value, self._defaults[name]) for name, value in values.items()}
        self._values = {**self._defaults, **set_anew}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Thresholds({self.changed or 'defaults'})"

    @property
    def changed(self) -> dict[str, float]:
        """Those that differ from the defaults."""
        return {name: value for name, value in self._values.items() if value != self._defaults[name]}

    def judge(self, name: str, value: float, interval: Interval | None = None) -> Verdict:
        """`watch` from NAME_watch on; `repair` where all of the interval is at NAME_repair or above.

        The verdict has no sentence yet: the question that judges has the words.

        >>> Thresholds().judge("cut_off", 0.75).level, Thresholds().judge("cut_off", 0.95).level
        ('watch', 'repair')
        """
        surely = value if interval is None else interval.low
        basis: Basis = "no interval" if interval is None else "interval"
        if f"{name}_repair" in self._values and surely >= self[f"{name}_repair"]:
            return Verdict("repair", value=value, interval=interval, basis=basis)
        watch = self[f"{name}_watch"]
        if value < watch:
            return Verdict("ok", value=value, interval=interval)
        return Verdict("watch", value=value, interval=interval, basis=basis if surely >= watch else "estimate")

    def within_chance(self, name: str, value: float, highest: float) -> Verdict:
        """The verdict on a number that chance explains, of which the interval ends at `highest`.

        `ok` below NAME_watch and without room for NAME_repair; otherwise it cannot be told, which is `unchecked`.

        >>> Thresholds().within_chance("short", 1.1, 1.6).level, Thresholds().within_chance("short", 1.1, 2.4).level
        ('ok', 'unchecked')
        """
        told = value < self[f"{name}_watch"] and highest < self[f"{name}_repair"]
        return Verdict("ok" if told else "unchecked", value=value)

    def count(self, name: str, value: float) -> Verdict:
        """The same for a number that is counted, not estimated."""
        judged = self.judge(name, value)
        return judged if judged.level == "ok" else replace(judged, basis="counted")


def read_thresholds(path: str | os.PathLike[str] | None = None, settings: Iterable[str] = ()) -> Thresholds:
    """Thresholds from a TOML or JSON file of names and numbers, and from single settings NAME=VALUE, which win.

    >>> read_thresholds(settings=["hub_watch=0.2"])["hub_watch"]
    0.2
    """
    values = {} if path is None else _read(Path(path))
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"threshold: received {setting!r}; allowed is NAME=VALUE, such as cut_off_watch=0.8.")
        values[name.strip()] = value.strip()
    return Thresholds(values)


def _read(path: Path) -> dict[str, Any]:
    readers = {".toml": tomllib.loads, ".json": json.loads}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: received the ending '{path.suffix}'; thresholds are read from .toml or .json files.")
    try:
        content = readers[path.suffix.lower()](text_of(path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Name a .toml or .json file of thresholds.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Write one NAME = VALUE a line (.toml).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {type(content).__name__}; allowed is a table of names and numbers.")
    return content


def _number(name: str, value: Any, default: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"threshold {name}: received {value!r}; allowed is a number, such as {default:g}.")
    return number
