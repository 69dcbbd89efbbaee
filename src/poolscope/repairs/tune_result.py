"""What `tune` found: every candidate on the half that chose, the chosen one on the half that reports, the verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolscope.evaluation import Difference, Evaluation
from poolscope.files import write_json
from poolscope.repairs.candidates import Candidate
from poolscope.repairs.repair_file import Repair
from poolscope.results import plain
from poolscope.verdicts import Verdict

# Units that the half that reports must have: 95 % intervals of the bootstrap miss the truth in 10 of 100 cases at 10
# normal units and in 8 at 20, and what is proven here changes an index.
FEWEST_HELD_OUT = 20


@dataclass(frozen=True)
class Trial:
    """One candidate on the half that chooses: its evaluation, and the difference to the model as it is.

    `candidate` and `repair` (fitted on that half) are None for what is compared only and cannot be recommended.
    """

    label: str
    family: str
    evaluation: Evaluation = field(repr=False)
    search: Difference
    candidate: Candidate | None = field(repr=False)
    repair: Repair | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TuneResult:
    """The search with its outcome.

    `chosen_on` and `reported_on` are the model as it is on the two halves; `difference` is that of the `selected` trial
    on the half that had no part in choosing it (None if no candidate gained); `recommendation` is a fitted repair, or
    None where there is nothing to repair.
    """

    model: str
    chosen_on: Evaluation
    reported_on: Evaluation
    trials: tuple[Trial, ...] = field(repr=False)
    selected: Trial | None
    difference: Difference | None
    verdict: Verdict
    recommendation: Repair | None
    notes: tuple[str, ...] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    @property
    def outcome(self) -> str:
        """One of "repair", "nothing to repair" and "too few to tell"."""
        if self.recommendation is not None:
            return "repair"
        return "too few to tell" if len(self.reported_on.observations) < FEWEST_HELD_OUT else "nothing to repair"

    def __repr__(self) -> str:
        return f"TuneResult({self.model}: {self.verdict.level}, {len(self.trials)} candidates; {self.verdict.sentence})"

    def table(self) -> list[dict[str, Any]]:
        """One row a candidate, best first. Differences of the choosing half compare; they claim nothing."""
        return [
            {
                "candidate": trial.label,
                "family": trial.family,
                "score": trial.evaluation.value,
                "difference": trial.search.mean,
                "low": None if trial.search.interval is None else trial.search.interval.low,
                "high": None if trial.search.interval is None else trial.search.interval.high,
                "selected": trial is self.selected,
            }
            for trial in sorted(self.trials, key=lambda trial: -trial.search.mean)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        return {
            "model": self.model,
            "outcome": self.outcome,
            "verdict": self.verdict.to_dict(),
            "recommendation": None if self.recommendation is None else self.recommendation.label,
            "selected": None if self.selected is None else self.selected.label,
            "held_out_difference": plain(self.difference),
            "chosen_on": self.chosen_on.to_dict(),
            "reported_on": self.reported_on.to_dict(),
            "candidates": plain(self.table()),
            "notes": list(self.notes),
            "provenance": plain(self.provenance),
        }

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict()` as JSON, atomically."""
        write_json(path, self.to_dict())


def decide(
    trials: Sequence[Trial],
    selected: Trial | None,
    difference: Difference | None,
    *,
    chosen_on: Evaluation,
    reported_on: Evaluation,
) -> Verdict:
    """`repair` if the interval of the selected candidate on the other half excludes no gain, otherwise `ok`.

    Fewer than 20 units there, or fewer than 6 that changed, prove nothing, whatever the interval. With fewer than 20
    the sentence says that it cannot be told, which is another answer than that nothing helps.
    """
    metric, count = reported_on.metric, len(reported_on.observations)
    tried = sum(trial.candidate is not None for trial in trials)
    evidence = [
        f"{metric} of the model as it is: {chosen_on.value:.4f} {_interval(chosen_on)} on the half that chose, "
        f"{reported_on.value:.4f} {_interval(reported_on)} on the half that reports.",
        *_compared_only(trials),
    ]
    if selected is None or difference is None:
        where = f"{len(chosen_on.observations):,} {chosen_on.unit}"
        found = f"none of {tried} candidates is better than the model as it is on {where}"
        sentence = f"{_answer(reported_on)}: {found}."
        return Verdict("ok", sentence, evidence=tuple(evidence))
    evidence.insert(
        0,
        f"On the half that chose, '{selected.label}' was chosen among {tried} candidates with {selected.search}; "
        f"the best of many flatters itself there, so only the other half counts.",
    )
    numbers: dict[str, Any] = {"value": difference.mean, "interval": difference.interval, "floor": 0.0}
    where = f"{metric} by {difference} on {count:,} {difference.unit} that had no part in choosing it"
    shortage = difference.shortage(FEWEST_HELD_OUT)
    if difference.proves_gain and shortage is None:
        return Verdict("repair", f"'{selected.label}' raises {where}.", evidence=tuple(evidence), **numbers)
    outcome = shortage or ("a loss" if difference.proves_loss else "no proof of a gain")
    sentence = f"{_answer(reported_on)}: the chosen candidate, '{selected.label}', changes {where}: {outcome}."
    return Verdict("ok", sentence, evidence=tuple(evidence), **numbers)


def _interval(found: Evaluation) -> str:
    return str(found.interval() or f"({found.why_no_interval()})")


def _answer(reported_on: Evaluation) -> str:
    count, unit = len(reported_on.observations), reported_on.unit
    if count >= FEWEST_HELD_OUT:
        return "Nothing to repair"
    return f"Cannot be told with {count:,} held-out {unit} (needed: {FEWEST_HELD_OUT}), pass more texts"


def _compared_only(trials: Sequence[Trial]) -> list[str]:
    return [
        f"For comparison, on the half that chose: {trial.label} {trial.search}; it needs the clouds at query time and "
        f"is no repair of the vectors."
        for trial in trials
        if trial.candidate is None
    ]
