"""Answer 10, from the other nine: keep, repair, re-chunk or change the model, with its command, cost and certainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from poolscope.auditing.charts import standings_figure
from poolscope.auditing.result import KINDS, NOT_APPLICABLE, Action, Answer, Finding
from poolscope.auditing.standings import standings
from poolscope.auditing.subject import Subject
from poolscope.verdicts import LEVELS, Basis, Verdict, worst_level

# So many answers to repair, and no single repair is likely to make the model right for these texts.
CHANGE_FROM = 5

# How sure a step is: what the level of its answer rests on, in words.
CERTAINTY: Mapping[Basis, str] = {
    "counted": "certain: counted over these texts",
    "interval": "high: all of the 95 % interval lies beyond the threshold",
    "estimate": "moderate: the estimate lies beyond the threshold, but not all of its 95 % interval",
    "no interval": "moderate: the estimate lies beyond the threshold, and has no interval",
    "beyond chance": "moderate: that there is an excess is beyond chance, its size is an estimate",
    "trial": "high: the repair won on held-out texts, and the 99 % interval of its gain lies above zero",
    "small gain": "high that a repair helps, as it won on held-out texts; but by less than the threshold asks",
    "no cure": "moderate: the number lies beyond its threshold, but nothing that was tried against it has helped",
    "untried": "moderate: the number lies beyond its threshold; whether a repair helps was not tried",
    "harmless": "moderate: the number lies beyond its threshold, but no answer is shown to be found worse for it",
    "declared": "a sign: read from what the model declares, not measured",
}
_OF_KEEPING = "no number lies beyond its threshold"
_OF_LITTLE = "none: most questions could not be asked"
_OF_CHANGE = "moderate: each of these answers has its own evidence, the sum of them none"


def answer_decision(subject: Subject, answers: Sequence[Answer]) -> Finding:
    """10. Keep, repair, re-chunk or change the model: what first, what does it cost, how sure?"""
    open_answers = ranked(answers)
    level = worst_level([answer.verdict for answer in answers])
    action, sentence, sure = _first(open_answers) if open_answers else _keep(subject, answers)
    asked, left = _asked(answers)
    if 2 * len(asked) < len(answers) and open_answers:
        sentence = f"{sentence} {_little(answers)}"
    evidence = (
        f"{len(asked)} of {len(answers)} questions could be measured on these texts.",
        *(
            f"{answer.number}. {answer.verdict.level}: {answer.action.step}."
            for answer in open_answers
            if answer.action
        ),
        *(f"{answer.number}. {answer.verdict.sentence}" for answer in left),
    )
    verdict = Verdict(level, sentence, float(len(open_answers)), None, None, evidence)
    numbers = {"decision": action.kind, "decision_command": action.command, "decision_cost": action.cost}
    tables = {"actions": _table(open_answers)}
    return Finding(verdict, {**numbers, "certainty": sure}, tables, _draw(answers, subject.thresholds), action)


def ranked(answers: Sequence[Answer]) -> list[Answer]:
    """The answers that ask for something: most serious first, then what is cheapest to do, then by number.

    A wrong pooling comes before everything else, as all other numbers describe the right one, and duplicates come next,
    as they are in all other numbers.
    """

    def place(answer: Answer) -> tuple[int, int, int]:
        kind = KINDS.index(answer.action.kind) if answer.action else len(KINDS)
        return -LEVELS.index(answer.verdict.level), kind, answer.number

    return sorted((answer for answer in answers if answer.verdict.level != "ok"), key=place)


def certainty(answer: Answer) -> str:
    """How sure the step of an answer is, in words."""
    return _OF_KEEPING if answer.basis is None else CERTAINTY[answer.basis]


def _asked(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """The answers with a number, and the others."""
    asked = [answer for answer in answers if answer.verdict.value is not None]
    return asked, [answer for answer in answers if answer.verdict.value is None]


def _little(answers: Sequence[Answer]) -> str:
    """How many questions could be asked, and why the first of the others could not."""
    asked, left = _asked(answers)
    why = left[0].verdict.sentence.removeprefix(NOT_APPLICABLE)
    return (
        f"Only {len(asked)} of {len(answers)} questions could be asked of these texts; number {left[0].number} could "
        f"not, because {why}"
    )


def _keep(subject: Subject, answers: Sequence[Answer]) -> tuple[Action, str, str]:
    texts = "this one text" if len(subject) == 1 else f"these {len(subject):,} texts"
    if 2 * len(_asked(answers)[0]) < len(answers):
        action = Action("undecided", "audit more texts, or the model itself, before deciding", None, "another audit")
        return action, f"Too little to tell, and nothing to repair found on {texts}. {_little(answers)}", _OF_LITTLE
    action = Action("keep", "keep the model and the chunks", subject.command("audit", fail_on="watch"), "nothing")
    return action, f"Keep {subject.card.name} as it is: nothing to repair on {texts}.", _OF_KEEPING


def _first(found: Sequence[Answer]) -> tuple[Action, str, str]:
    first = found[0]
    action = first.action or Action("repair", "look at this answer", None, "not known")
    broken = [answer for answer in found if answer.verdict.level == "repair"]
    sure = certainty(first)
    # Numbers of a wrong pooling, or of texts that repeat each other, say nothing against the model.
    if len(broken) >= CHANGE_FROM and action.kind not in ("configure", "merge"):
        sure = _OF_CHANGE
        action = Action(
            "change",
            f"try another model: {len(broken)} of 9 answers ask for a repair",
            None,
            "encode all texts with the other model, audit it, and set both side by side with `poolscope compare`",
        )
    verb = {
        "configure": "Correct the runtime first",
        "merge": "Clean the texts first",
        "repair": "Repair first",
        "re-chunk": "Re-chunk first",
    }
    head = verb.get(action.kind, "Change the model")
    if first.verdict.level == "watch":
        head = f"Keep the model, and watch one thing ({head.lower().removesuffix(' first')})"
    return action, f"{head}: {action.step}. Cost: {action.cost}. How sure? {sure[:1].upper()}{sure[1:]}.", sure


def _table(found: Sequence[Answer]) -> pa.Table:
    kept = [answer for answer in found if answer.action is not None]
    columns: dict[str, Any] = {
        "question": pa.array([answer.number for answer in kept], pa.int64()),
        "level": pa.array([answer.verdict.level for answer in kept], pa.string()),
        "certainty": pa.array([certainty(answer) for answer in kept], pa.string()),
    }
    for name in ("kind", "step", "command", "cost"):
        columns[name] = pa.array([getattr(answer.action, name) for answer in kept], pa.string())
    return pa.table(columns)


def _draw(answers: Sequence[Answer], thresholds: Mapping[str, float]) -> Callable[[], Any] | None:
    """Draws where the numbers stand; None where none of them is judged on its own scale."""
    found = standings(answers, thresholds)
    return (lambda: standings_figure(found)) if found else None
