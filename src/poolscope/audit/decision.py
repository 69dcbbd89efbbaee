"""Answer 10, from the other nine: keep, repair, re-chunk or change the model, with its command, cost and certainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from poolscope.audit.result import KINDS, Action, Answer, Finding
from poolscope.audit.subject import Subject
from poolscope.verdicts import LEVELS, Verdict, worst_level

# So many answers to repair, and no single repair is likely to make the model right for these texts.
CHANGE_FROM = 5


def answer_decision(subject: Subject, answers: Sequence[Answer]) -> Finding:
    """10. Keep, repair, re-chunk or change the model: what first, what does it cost, how sure?"""
    open_answers = ranked(answers)
    level = worst_level([answer.verdict for answer in answers])
    action, sentence = _keep(subject, answers) if not open_answers else _first(subject, open_answers)
    asked = [answer for answer in answers if answer.verdict.value is not None]
    evidence = (
        f"{len(asked)} of {len(answers)} questions could be measured on these texts.",
        *(
            f"{answer.number}. {answer.verdict.level}: {answer.action.step}."
            for answer in open_answers
            if answer.action
        ),
    )
    verdict = Verdict(level, sentence, float(len(open_answers)), None, None, evidence)
    numbers = {"decision": action.kind, "decision_command": action.command, "decision_cost": action.cost}
    return Finding(
        verdict,
        {**numbers, "certainty": certainty(open_answers[0], subject.thresholds) if open_answers else _KEEP_CERTAINTY},
        {"actions": _table(open_answers, subject.thresholds)},
        lambda: _draw(answers),
        action,
    )


# Answers that are `repair` only where a trial on held-out texts won.
_TRIED = ("cone", "long", "averaging")
_KEEP_CERTAINTY = "no number lies beyond its threshold"


def ranked(answers: Sequence[Answer]) -> list[Answer]:
    """The answers that ask for something: most serious first, then what is cheapest to do, then by number.

    A wrong pooling comes before everything else: all other numbers describe the right one.
    """

    def place(answer: Answer) -> tuple[int, int, int]:
        kind = KINDS.index(answer.action.kind) if answer.action else len(KINDS)
        return -LEVELS.index(answer.verdict.level), kind, answer.number

    return sorted((answer for answer in answers if answer.verdict.level != "ok"), key=place)


def certainty(answer: Answer, limits: Mapping[str, float]) -> str:
    """How sure a step is, in words: what the level of the answer rests on."""
    if answer.verdict.level == "repair" and answer.key in _TRIED:
        return "high: the repair won on held-out texts, and the 99 % interval of the gain excludes none"
    if answer.verdict.level == "repair" and answer.key == "hubs":
        return "moderate: the share of texts that a hub reaches is an estimate; that there are hubs is beyond chance"
    if answer.key == "truncation" and (answer.numbers["truncation_twins"] or 0) >= limits["twins_repair"]:
        return "certain: a count, not an estimate"
    if answer.verdict.interval is None:
        return (
            "certain: a count, not an estimate" if answer.verdict.level == "repair" else "a sign, not measured further"
        )
    if answer.verdict.level == "repair":
        return "high: all of the 95 % interval lies beyond the threshold"
    return "moderate: the estimate is beyond the first threshold, its interval is not all beyond the second"


def _keep(subject: Subject, answers: Sequence[Answer]) -> tuple[Action, str]:
    cost = "nothing"
    asked = sum(answer.verdict.value is not None for answer in answers)
    sentence = f"Keep {subject.card.name} as it is: nothing to repair on these {len(subject):,} texts."
    if asked < len(answers) / 2:
        sentence = (
            f"Too little to tell: {asked} of {len(answers)} questions could be asked of these {len(subject):,} texts, "
            f"and they found nothing to repair."
        )
    return Action("keep", "keep the model and the chunks", subject.command("audit", "--fail-on watch"), cost), sentence


def _first(subject: Subject, found: Sequence[Answer]) -> tuple[Action, str]:
    first = found[0]
    action = first.action or Action("repair", "look at this answer", subject.command("audit"), "not known")
    broken = [answer for answer in found if answer.verdict.level == "repair"]
    sure = certainty(first, subject.thresholds)
    # Numbers of a wrong pooling say nothing against the model.
    if len(broken) >= CHANGE_FROM and action.kind != "configure":
        sure = "moderate: each of these answers has its own evidence, the sum of them none"
        action = Action(
            "change",
            f"try another model: {len(broken)} of 9 answers ask for a repair",
            "poolscope compare AUDIT AUDIT",
            "encode all texts with the other model, audit it, and compare both",
        )
    verb = {"configure": "Correct the runtime first", "repair": "Repair first", "re-chunk": "Re-chunk first"}
    head = verb.get(action.kind, "Change the model")
    if first.verdict.level == "watch":
        head = f"Keep the model, and watch one thing ({head.lower().removesuffix(' first')})"
    sentence = f"{head}: {action.step}. Cost: {action.cost}. Certainty: {sure}."
    return action, sentence


def _table(found: Sequence[Answer], limits: Mapping[str, float]) -> pa.Table:
    kept = [answer for answer in found if answer.action is not None]
    columns: dict[str, Any] = {
        "question": pa.array([answer.number for answer in kept], pa.int64()),
        "level": pa.array([answer.verdict.level for answer in kept], pa.string()),
        "certainty": pa.array([certainty(answer, limits) for answer in kept], pa.string()),
    }
    for name in ("kind", "step", "command", "cost"):
        columns[name] = pa.array([getattr(answer.action, name) for answer in kept], pa.string())
    return pa.table(columns)


def _draw(answers: Sequence[Answer]) -> Any:
    from poolscope.charts.audit import levels_figure

    return levels_figure([f"{answer.number}. {answer.key}" for answer in answers], [a.verdict.level for a in answers])
