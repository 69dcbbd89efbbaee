"""Pages of an audit and of a comparison, and figures that several answers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolscope.auditing.compare import Comparison, DifferenceRow, common_number, excludes_zero
from poolscope.auditing.question import NOT_APPLICABLE, QUESTIONS, Answer, Gauge, TextMark
from poolscope.auditing.result import Audit
from poolscope.auditing.screen import is_decision, ordered
from poolscope.charts import GREY, dots_figure, style
from poolscope.errors import InputError, require
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.report import (
    CorpusMap,
    MapColour,
    OverviewGauge,
    OverviewRow,
    ReportColumn,
    ReportSection,
    ReportTable,
    corpus_map,
    render_page,
)
from poolscope.report.sections import shown_number
from poolscope.verdicts import LEVEL_COLOURS, number_text
from poolscope.views import word

# -- where numbers stand between their floors and thresholds, on one scale: 0 floor, 1 watch, 2 repair ----------------

LEAST, MOST = -0.5, 3.0  # the ends of the common scale; what lies beyond is drawn at its end, as a triangle


@dataclass(frozen=True)
class Standing:
    """A number of an answer and what it is judged by; None where it has no interval or a threshold is missing."""

    key: str
    number: int
    name: str
    value: float
    interval: Interval | None
    floor: float
    watch: float | None
    repair: float | None
    level: str
    form: str = ".3g"
    falls: bool = False

    @property
    def zero(self) -> float:
        """What lies at 0 of the common scale: the floor; 0 itself where chance alone reaches the first threshold.

        Of a number that falls from 1 it is 1: the floor, which is what chance gives, lies far beyond the thresholds.
        """
        if self.falls:
            return 1.0
        first = self.repair if self.watch is None else self.watch
        return self.floor if first is not None and self.floor < first else 0.0

    def place(self, value: float) -> float:
        """On the common scale: 0 at the floor, 1 at the first threshold, 2 at the second, and in proportion between.

        Where there is only one of them, what lies between it and the floor is in proportion too.
        """
        if self.watch is None:
            assert self.repair is not None
            return 2 * (value - self.zero) / (self.repair - self.zero)
        place = (value - self.zero) / (self.watch - self.zero)
        if self.repair is None or place <= 1:
            return place
        return 1 + (value - self.watch) / (self.repair - self.watch)

    def shown(self, value: float) -> float:
        """The place, or the end of the scale where it lies beyond."""
        return min(max(self.place(value), LEAST), MOST)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The places of the ends of the interval; None where there is none."""
        interval = self.interval
        if interval is None:
            return None
        low, high = sorted((self.shown(interval.low), self.shown(interval.high)))
        return low, high


def standings(answers: Sequence[Answer], thresholds: Mapping[str, float]) -> list[Standing]:
    """Every number of the answers that thresholds judge, and whose thresholds follow each other."""
    known = [each for each in answers if each.key in QUESTIONS]
    rows = [_standing(each, gauge, thresholds) for each in known for gauge in QUESTIONS[each.key].scales]
    return [row for row in rows if row is not None]


def _standing(answer: Answer, gauge: Gauge, thresholds: Mapping[str, float]) -> Standing | None:
    verdict, numbers = answer.verdict, answer.numbers
    value = numbers.get(gauge.number) if gauge.number else verdict.value
    if not isinstance(value, int | float):
        return None
    interval = numbers.get(f"{gauge.number}_interval") if gauge.number else verdict.interval
    floor = (numbers.get(f"{gauge.number}_floor") if gauge.number else verdict.floor) or 0.0
    base = floor if gauge.above_floor else 0.0
    watch, repair = (base + thresholds[name] if name in thresholds else None for name in (gauge.watch, gauge.repair))
    edges = [edge for edge in (watch, repair) if edge is not None]
    away = [1 - edge for edge in edges] if gauge.falls else edges
    if not away or away[0] <= 0 or away != sorted(set(away)):  # thresholds of one's own need not be in order
        return None
    form = gauge.form or (answer.number_format if not gauge.number else None) or ".3g"
    words = gauge.words or answer.number_name
    return Standing(
        answer.key, answer.number, words, value, interval, floor, watch, repair, verdict.level, form, gauge.falls
    )


def standings_figure(standings: Sequence[Standing]) -> Any:
    """Where the numbers lie between their floors and their thresholds: one row a number, all on one scale."""
    go = require("plotly.graph_objects", "report")
    figure = go.Figure()
    names = [f"{row.number}. {row.name}" for row in standings]
    for level, colour in LEVEL_COLOURS.items():
        rows = [(name, row) for name, row in zip(names, standings, strict=True) if row.level == level]
        if not rows:
            continue
        places = [row.place(row.value) for _, row in rows]
        shown = [row.shown(row.value) for _, row in rows]
        ends = [row.ends or (x, x) for (_, row), x in zip(rows, shown, strict=True)]
        figure.add_trace(
            go.Scatter(
                x=shown,
                y=[name for name, _ in rows],
                mode="markers",
                name=level,
                marker={"color": colour, "size": 13, "symbol": [_symbol(place) for place in places]},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [max(high - x, 0) for x, (_, high) in zip(shown, ends, strict=True)],
                    "arrayminus": [max(x - low, 0) for x, (low, _) in zip(shown, ends, strict=True)],
                    "color": colour,
                    "thickness": 3,
                    "width": 0,
                },
                customdata=[[row.value, row.floor] for _, row in rows],
                hovertemplate="%{y}: %{customdata[0]:.4g}<br>floor %{customdata[1]:.4g}<extra></extra>",
            )
        )
    for place in (0, 1, 2):
        figure.add_vline(place, line={"color": GREY, "width": 1, "dash": "dash"}, layer="below")
    title = "Numbers that thresholds judge, between floor and thresholds; bars: 95 % intervals"
    figure = style(figure, title=title, width=860, height=200 + 40 * len(standings))
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    marks = ["floor", "watch", "repair"]
    figure.update_xaxes(tickvals=[0, 1, 2], ticktext=marks, range=[LEAST - 0.1, MOST + 0.1], showgrid=False)
    return figure


def _symbol(place: float) -> str:
    return "triangle-right" if place > MOST else "triangle-left" if place < LEAST else "circle"


# -- the page of an audit: decision, where all numbers stand, a map of the texts, and answers, findings first ---------

_MOST_NAMES = 9  # documents that have a colour of their own; the others share one


def audit_page(audit: Audit) -> str:
    """The whole page, as a string."""
    explorers = [answer.explorer for answer in audit.answers if answer.explorer is not None]
    stored = f" · weights: {audit.model['quantization']}" if audit.model.get("quantization") else ""
    decisions = [answer for answer in audit.answers if is_decision(answer)]
    # Their figure and their step stand at the top of the page already.
    shown = [replace(answer, draw={}, action=None) for answer in decisions]
    others = [answer for _, answers in ordered(audit.answers) for answer in answers]
    return render_page(
        f"Audit of {audit.model['name']}",
        f"{audit.extent}{stored}",
        [*shown, *others],
        explorer=explorers[0]() if explorers else None,
        provenance={"model": audit.model, "corpus": audit.corpus, **audit.provenance},
        overall=decisions[0].verdict if decisions else None,
        command=decisions[0].action.command if decisions and decisions[0].action else None,
        overview=overview(others, audit.thresholds),
        texts_map=texts_map(audit),
    )


def overview(answers: Sequence[Answer], thresholds: Mapping[str, float]) -> list[OverviewRow]:
    """One row an answer, with every number that thresholds judge."""
    rows = []
    standing = standings(answers, thresholds)
    for answer in answers:
        own = [each for each in standing if each.key == answer.key]
        judged = own and QUESTIONS[answer.key].judged_on is not None  # the first is the number of the verdict itself
        edges = {"watch": own[0].watch, "repair": own[0].repair} if judged else {}
        rows.append(
            OverviewRow(
                answer.key,
                str(answer.number),
                answer.title or answer.key,
                answer.verdict.level,
                note="" if own else _note(answer),
                gauges=[_gauge(each) for each in own],
                limits={name: edge for name, edge in edges.items() if edge is not None},
            )
        )
    return rows


def _note(answer: Answer) -> str:
    """What stands where no number can: why there is none, or that no threshold judges the one that there is."""
    verdict = answer.verdict
    if verdict.value is None:
        return verdict.sentence.removeprefix(NOT_APPLICABLE)
    number = number_text(verdict, answer.number_format or ".3g")
    return f"{answer.number_name}: {number}. It is told and not judged: no threshold is on its scale."


def _gauge(standing: Standing) -> OverviewGauge:
    form, interval, ends = standing.form, standing.interval, standing.ends
    written = format(standing.value, form)
    if interval is not None:
        written += f" [{interval.low:{form}}, {interval.high:{form}}]"
    start = {"best": 1.0} if standing.falls else {"floor": standing.floor}
    edges = {**start, "watch": standing.watch, "repair": standing.repair}
    limits = ", ".join(f"{name} {edge:{form}}" for name, edge in edges.items() if edge is not None)
    return OverviewGauge(
        standing.name,
        written,
        limits,
        _percent(standing.shown(standing.value)),
        None if ends is None else _percent(ends[0]),
        None if ends is None else _percent(ends[1]),
        *(None if edge is None else _percent(standing.shown(edge)) for edge in edges.values()),
    )


def _percent(place: float) -> float:
    return round(100 * (place - LEAST) / (MOST - LEAST), 2)


def texts_map(audit: Audit) -> CorpusMap | None:
    """The texts as points, coloured by what the answers say of them; None for an audit without its vectors."""
    subject = audit.subject
    if subject is None or len(subject) < 3:
        return None
    ids = subject.ids
    colours = [_colour(answer, mark, ids) for answer, mark in _marks(audit)]
    if subject.documents is not None:
        colours.append(MapColour("document", _frequent(subject.documents)))
    if subject.card.kind != "vectors":
        lengths = subject.clouds.lengths + subject.clouds.truncated
        colours.append(MapColour("length in tokens", lengths.tolist()))
    return corpus_map(
        subject.vectors, ids, subject.texts, [colour for colour in colours if colour is not None], seed=subject.seed
    )


def _marks(audit: Audit) -> list[tuple[Answer, TextMark]]:
    """What the answers say of single texts: those of findings first."""
    answers = [answer for _, group in ordered(audit.answers) for answer in group]
    return [
        (answer, mark)
        for answer in answers
        for mark in (QUESTIONS[answer.key].marks if answer.key in QUESTIONS else ())
        if mark.table in answer.tables
    ]


def _colour(answer: Answer, mark: TextMark, ids: Sequence[str]) -> MapColour | None:
    """One value a text; None where the table says nothing of any text."""
    table = answer.tables[mark.table]
    known: dict[Any, Any] = dict(zip(table["id"].to_pylist(), table[mark.column].to_pylist(), strict=True))
    if mark.number:
        return MapColour(mark.named, [known.get(key) for key in ids]) if known else None
    holds = mark.holds or (lambda value: True)
    flags = [key in known and bool(holds(known[key])) for key in ids]
    return MapColour(mark.named, flags) if any(flags) else None


def _frequent(names: Sequence[str]) -> list[str]:
    """The names of the largest documents; "others" for the rest."""
    kept = {name for name, _ in Counter(names).most_common(_MOST_NAMES)}
    return [name if name in kept else "others" for name in names]


# -- a comparison of audits as a page, in the style of the page of one audit ------------------------------------------


def comparison_page(comparison: Comparison) -> str:
    """The whole page, as a string."""
    if not comparison.records:
        raise InputError(
            "received a comparison that was loaded; its page needs the audits. Compare their folders again."
        )
    corpus = comparison.corpus
    return render_page(
        f"Comparison of {len(comparison.names)} audits",
        f"{', '.join(comparison.names)} · {corpus['texts']:,} texts of {corpus['source']}",
        [
            comparison_overview(comparison),
            difference_tables(comparison),
            *(section(comparison, key) for key in comparison.keys),
        ],
        provenance={name: audit.provenance for name, audit in comparison.records.items()},
        headlines=comparison.headlines(),
    )


def comparison_overview(comparison: Comparison) -> ReportSection:
    """Questions × audits with levels and numbers, and what tells the audits apart."""
    names = comparison.names
    return ReportSection(
        key="overview",
        title="Overview",
        question="What does each audit answer?",
        tables=[
            _answers_table(comparison),
            ReportTable(
                "What tells the audits apart",
                ["fact", *names],
                [
                    [fact.replace("_", " "), *("–" if value is None else word(value) for value in values)]
                    for fact, values in comparison.facts.items()
                ],
                view=[ReportColumn("fact", "What"), *(ReportColumn(name, name) for name in names)],
            ),
        ],
        explained_by="audit.md#compare",
    )


def _answers_table(comparison: Comparison) -> ReportTable:
    names, rows = comparison.names, []
    for key in comparison.keys:
        answers = _answers(comparison, key)
        same = common_number([row for row in comparison.answers if row["key"] == key])
        row: list[Any] = [comparison.heading(key), same or "not the same number in all"]
        for name in names:
            answer = answers.get(name)
            row += (
                [None, "not asked", None]
                if answer is None
                else [answer.verdict.level, _written(answer), answer.number_name if same is None else None]
            )
        rows.append(row)
    columns = ["question", "number", *(f"{name}: {part}" for name in names for part in ("level", "answer", "number"))]
    view = [ReportColumn("question", "Question", below="number")]
    view += [ReportColumn(f"{name}: answer", name, level=f"{name}: level", below=f"{name}: number") for name in names]
    return ReportTable("Levels and numbers", columns, rows, view=view)


def _answers(comparison: Comparison, key: str) -> dict[str, Answer]:
    return {name: audit[key] for name, audit in comparison.records.items() if key in audit}


def _written(answer: Answer) -> str:
    """The number as the page of its audit writes it, with its interval."""
    number = shown_number(answer.verdict, answer.number_format)
    if number is None:
        return "no number"
    return number.value if number.interval is None else f"{number.value} [{number.interval.replace(' to ', ', ')}]"


def difference_tables(comparison: Comparison) -> ReportSection:
    """One table for each later audit: it minus the first."""
    first = comparison.names[0]
    return ReportSection(
        key="differences",
        title="Differences",
        question="What differs between the models, beyond chance?",
        tables=[
            _difference_table(first, second, [row for row in comparison.differences if row.second == second])
            for second in comparison.names[1:]
        ],
        notes=[
            "An interval that holds 0 proves neither a difference nor that there is none: it bounds one. "
            "Split-half retrieval screens models; only labelled data of your own can crown one."
        ],
        explained_by="audit.md#compare",
    )


def _difference_table(first: str, second: str, compared: Sequence[DifferenceRow]) -> ReportTable:
    columns = ["number", "words", "first", "second", "difference", "low", "high", "beyond_chance", "how"]
    rows = []
    for row in compared:
        low, high = (None, None) if row.interval is None else (row.interval.low, row.interval.high)
        beyond = {None: None, True: "● yes", False: "no"}[excludes_zero(row.interval)]
        cells = [row.first_value, row.second_value, row.difference, low, high, beyond, row.how]
        rows.append([row.number, row.words, *cells])
    view = [
        ReportColumn("words", "Number"),
        ReportColumn("first", first),
        ReportColumn("second", second),
        ReportColumn("difference", "Difference [95 %]", low="low", high="high"),
        ReportColumn("beyond_chance", "Beyond chance"),
        ReportColumn("how", "Interval"),
    ]
    return ReportTable(f"{second} minus {first}", columns, rows, view=view)


def section(comparison: Comparison, key: str) -> ReportSection:
    """The answers to one question: on one axis where they measured the same thing, and in a table."""
    answers = _answers(comparison, key)
    first = next(iter(answers.values()))
    known = {answer.number_name for answer in answers.values() if answer.verdict.value is not None}
    note = "The numbers of these audits are not the same thing, so they are not drawn on one axis."
    columns = ["audit", "level", "number_name", "value", "low", "high", "floor", "sentence"]
    view = [
        ReportColumn("audit", "Audit", below="number_name"),
        ReportColumn("level", "Level", level="level"),
        ReportColumn("value", "Number [95 %]", low="low", high="high"),
        ReportColumn("floor", "Floor"),
        ReportColumn("sentence", "Answer"),
    ]
    rows = [[row[name] for name in columns] for row in comparison.answers if row["key"] == key]
    return ReportSection(
        key=key,
        title=comparison.heading(key),
        question=first.question,
        figures=_figures(comparison, answers, first, known),
        tables=[ReportTable("Answers", columns, rows, view=view)],
        notes=[note] if len(known) > 1 else [],
        explained_by=first.explained_by,
        link=first.link,
    )


def _figures(
    comparison: Comparison, answers: Mapping[str, Answer], first: Answer, known: set[str]
) -> list[tuple[str, Any]]:
    figures = []
    if len(known) == 1:
        numbers = {name: Estimate(each.verdict.value, each.verdict.interval) for name, each in answers.items()}
        figures.append((first.title, dots_figure(numbers, title=next(iter(known)))))
    overlay = QUESTIONS[first.key].overlay if first.key in QUESTIONS else None
    drawn = None if overlay is None else overlay({name: comparison.records[name] for name in answers})
    return figures if drawn is None else [*figures, (f"{first.title}, overlaid", drawn)]
