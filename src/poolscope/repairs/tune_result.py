"""What `tune` found: every candidate on the half that chose, the chosen one on the half that reports, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolscope.charts.files import COLOURS, GREY, short_name, style
from poolscope.errors import require
from poolscope.evaluation import Difference, Evaluation, Trial
from poolscope.results import Result, origin, transient
from poolscope.verdicts import Verdict

# Units that the half that reports must have: 95 % intervals of the bootstrap miss the truth in 10 of 100 cases at 10
# normal units and in 8 at 20, and what is proven here changes an index.
FEWEST_HELD_OUT = 20
_ROW = 26  # pixels


@dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """The search with its outcome.

    `trials` are those of the half that chose, in the order in which they were made. `chosen_on` and `reported_on` are
    the model as it is on the two halves; `chosen` is the place of the selected trial among them and `difference` its
    difference on the half that had no part in choosing it (both None if no candidate gained). `recommendation` is a
    fitted repair, or None where there is nothing to repair; a file of the result keeps its label (`recommended`) alone.
    """

    model: str
    chosen_on: Evaluation = field(repr=False)
    reported_on: Evaluation = field(repr=False)
    trials: tuple[Trial, ...] = field(repr=False, metadata={"bulk": True, "required": True})
    chosen: int | None
    verdict: Verdict
    difference: Difference | None = field(default=None, repr=False, metadata={"key": "held_out_difference"})
    recommended: str | None = field(default=None, metadata={"key": "recommendation"})
    notes: tuple[str, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = origin()
    recommendation: Any = transient()

    @property
    def selected(self) -> Trial | None:
        """The trial of the chosen candidate on the half that chose; None if none gained."""
        return None if self.chosen is None else self.trials[self.chosen]

    @property
    def outcome(self) -> str:
        """One of "repair", "nothing to repair" and "too few to tell"."""
        if self.recommended is not None:
            return "repair"
        return "too few to tell" if len(self.reported_on.observations) < FEWEST_HELD_OUT else "nothing to repair"

    def __repr__(self) -> str:
        return f"TuneResult({self.model}: {self.verdict.level}, {len(self.trials)} candidates; {self.verdict.sentence})"

    def rows(self) -> list[dict[str, Any]]:
        """One row a candidate, best first. Differences of the choosing half compare; they claim nothing."""
        order = sorted(range(len(self.trials)), key=lambda k: -self.trials[k].change.mean)
        return [self._row(k) for k in order]

    def _row(self, place: int) -> dict[str, Any]:
        trial = self.trials[place]
        interval = trial.change.interval
        return {
            "candidate": trial.name,
            "family": trial.family,
            "score": trial.evaluation.value,
            "difference": trial.change.mean,
            "low": None if interval is None else interval.low,
            "high": None if interval is None else interval.high,
            "selected": place == self.chosen,
        }

    def derived(self) -> dict[str, Any]:
        """Outcome, the name of the selected candidate, and the table of all."""
        return {
            "outcome": self.outcome,
            "selected": None if self.selected is None else self.selected.name,
            "candidates": self.rows(),
        }

    def figure(self) -> Any:
        """Candidates from top to bottom, best first: difference to the model as it is, bars are 95 % intervals.

        Grey: on the half that chose, where the best flatters itself. Coloured: the chosen one on the half that reports,
        the only one that counts.
        """
        go = require("plotly.graph_objects", "report")
        trials = sorted(self.trials, key=lambda trial: trial.change.mean)
        figure = go.Figure()
        chose = f"half that chose ({len(self.chosen_on.observations):,} {self.chosen_on.unit})"
        labels = [trial.name for trial in trials]
        figure.add_trace(_points(go, labels, [trial.change for trial in trials], chose, GREY))
        if self.selected is not None and self.difference is not None:
            reports = f"half that reports ({self.difference.count:,} {self.difference.unit})"
            selected = [self.selected.name]
            figure.add_trace(_points(go, selected, [self.difference], reports, COLOURS[1], symbol="diamond", size=12))
        figure.add_vline(0, line={"color": GREY, "width": 1, "dash": "dash"})
        metric = self.chosen_on.metric
        verdict = self.recommended or self.outcome
        title = f"<b>{verdict}</b>   {short_name(self.model)}, {self.chosen_on.task}"
        style(figure, title=title, width=860, height=_ROW * max(len(trials), 4) + 190)
        figure.update_layout(margin={"l": 300})
        figure.update_xaxes(title_text=f"difference in {metric} to the model as it is ({self.chosen_on.value:.3f})")
        figure.update_yaxes(categoryorder="array", categoryarray=labels)
        return figure


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
    tried = sum(trial.repair is not None for trial in trials)
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
        f"On the half that chose, '{selected.name}' was chosen among {tried} candidates with {selected.change}; "
        f"the best of many flatters itself there, so only the other half counts.",
    )
    numbers: dict[str, Any] = {"value": difference.mean, "interval": difference.interval, "floor": 0.0}
    where = f"{metric} by {difference} on {count:,} {difference.unit} that had no part in choosing it"
    shortage = difference.shortage(FEWEST_HELD_OUT)
    if difference.proves_gain and shortage is None:
        return Verdict("repair", f"'{selected.name}' raises {where}.", evidence=tuple(evidence), **numbers)
    outcome = shortage or ("a loss" if difference.proves_loss else "no proof of a gain")
    sentence = f"{_answer(reported_on)}: the chosen candidate, '{selected.name}', changes {where}: {outcome}."
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
        f"For comparison, on the half that chose: {trial.name} {trial.change}; it needs the clouds at query time and "
        f"is no repair of the vectors."
        for trial in trials
        if trial.repair is None
    ]


def _points(
    go: Any,
    labels: Sequence[str],
    differences: Sequence[Difference],
    name: str,
    colour: str,
    *,
    symbol: str = "circle",
    size: int = 8,
) -> Any:
    means = [found.mean for found in differences]
    high = [0.0 if found.interval is None else found.interval.high - found.mean for found in differences]
    low = [0.0 if found.interval is None else found.mean - found.interval.low for found in differences]
    return go.Scatter(
        x=means,
        y=list(labels),
        mode="markers",
        name=name,
        marker={"color": colour, "size": size, "symbol": symbol},
        error_x={"type": "data", "array": high, "arrayminus": low, "color": colour, "thickness": 1.5, "width": 4},
        text=[str(found) for found in differences],
        hovertemplate="%{y}<br>%{text}<extra></extra>",
    )
