"""The page of an audit: the decision, where all numbers stand, a map of the texts, and the answers, findings first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from poolscope.auditing.charts import LEAST, MOST, Standing, standings
from poolscope.auditing.question import NOT_APPLICABLE, QUESTIONS, Answer, TextMark
from poolscope.auditing.result import Audit
from poolscope.auditing.screen import is_decision, ordered
from poolscope.report import CorpusMap, MapColour, OverviewGauge, OverviewRow, corpus_map, render_page
from poolscope.verdicts import number_text

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
        rows.append(
            OverviewRow(
                answer.key,
                str(answer.number),
                answer.title or answer.key,
                answer.verdict.level,
                note="" if own else _note(answer),
                gauges=[_gauge(each) for each in own],
                limits=_limits(answer, own),
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


def _limits(answer: Answer, own: Sequence[Standing]) -> dict[str, float]:
    """The thresholds of the number of the verdict itself, where it is judged by some."""
    question = QUESTIONS.get(answer.key)
    if question is None or question.judged_on is None or not own:
        return {}
    first = own[0]
    return {name: edge for name, edge in (("watch", first.watch), ("repair", first.repair)) if edge is not None}


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


# -- the map ------------------------------------------------------------------------------------------------------


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
    from collections import Counter

    kept = {name for name, _ in Counter(names).most_common(_MOST_NAMES)}
    return [name if name in kept else "others" for name in names]
