"""Where the numbers of the answers lie between their floors and the thresholds that judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poolscope.auditing.charts import Standing
from poolscope.auditing.result import Answer

# Answers whose number is judged by thresholds on its own scale; the others are judged by a trial or by several numbers.
_JUDGED = {"scores": "cut_off", "truncation": "cut", "short": "short", "position": "position", "averaging": "socm"}


def standings(answers: Sequence[Answer], thresholds: Mapping[str, float]) -> list[Standing]:
    """The answers whose number, floor and thresholds lie on one scale, in the order of the questions."""
    found = []
    for answer in answers:
        verdict, name = answer.verdict, _JUDGED.get(answer.key)
        if name is None or verdict.value is None:
            continue
        floor = verdict.floor or 0.0
        watch, repair = thresholds[f"{name}_watch"], thresholds.get(f"{name}_repair")
        if floor < watch and (repair is None or watch < repair):
            label = f"{answer.number}. {answer.number_name}"
            found.append(Standing(label, verdict.value, verdict.interval, floor, watch, repair, verdict.level))
    return found
