"""Search for a repair that helps a model: chosen on one half of the texts, proven on the other.

The half that chooses flatters what it chooses (the winner's curse), so its numbers claim nothing. Only the chosen
candidate is tested on the other half, and it is recommended only if the interval there excludes no gain. The result
holds every candidate on the half that chose, the chosen one on the half that reports, and the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poolscope.encoders.base import Progress, TokenEncoder, as_progress, check_texts
from poolscope.encoders.capabilities import options_of
from poolscope.errors import InputError, require, whole_number
from poolscope.evaluation import (
    Difference,
    Evaluation,
    Task,
    Trial,
    compare_scores,
    query_task,
    split_half_task,
)
from poolscope.evaluation.scores import LEAST_GAIN
from poolscope.evaluation.tasks import halve, shared_texts, shuffled
from poolscope.numbers.intervals import FEWEST_PAIRED
from poolscope.numbers.pooling import Pooling
from poolscope.repairs.readings import Reading
from poolscope.repairs.registry import candidates, make_part, make_rules
from poolscope.repairs.repair_file import Repair, RepairedModel, plain_encoder
from poolscope.repairs.search import Search
from poolscope.repairs.temperature.rules import TemperatureRule
from poolscope.repairs.vectors import VectorRepair
from poolscope.results import Result, origin, provenance, transient
from poolscope.show.charts import COLOURS, GREY, error_bars, panel, short_name
from poolscope.show.verdicts import Verdict

# -- what `tune` returns ----------------------------------------------------------------------------------------------

_ROW = 26  # pixels


@dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """The search with its outcome.

    `trials` are those of the half that chose, in the order in which they were made. `chosen_on` and `reported_on` are
    the model as it is on the two halves; `chosen` is the place of the selected trial among them and `difference` its
    difference on the half that had no part in choosing it (both None if no candidate gained). `recommendation` is a
    fitted repair, or None where none is shown to help; a file of the result keeps its label (`recommended`) alone.
    `width` is the numbers of a vector of the model as it is.
    """

    model: str
    chosen_on: Evaluation = field(repr=False)
    reported_on: Evaluation = field(repr=False)
    trials: tuple[Trial, ...] = field(repr=False, metadata={"bulk": True, "required": True})
    chosen: int | None
    verdict: Verdict
    difference: Difference | None = field(default=None, repr=False, metadata={"key": "held_out_difference"})
    recommended: str | None = field(default=None, metadata={"key": "recommendation"})
    width: int | None = field(default=None, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = origin()
    recommendation: Any = transient()

    @property
    def selected(self) -> Trial | None:
        """The trial of the chosen candidate on the half that chose; None if none gained."""
        return None if self.chosen is None else self.trials[self.chosen]

    @property
    def outcome(self) -> str:
        """One of "repair", "nothing to repair", "too few to tell" and "nothing was tried"."""
        if self.recommended is not None:
            return "repair"
        if all(trial.family == "re-ranking" for trial in self.trials):
            return "nothing was tried"
        return "nothing to repair" if self.verdict.level == "ok" else "too few to tell"

    def in_words(self) -> tuple[str, ...]:
        """The verdict, in its own words."""
        return (self.verdict.sentence,)

    def summary_rows(self) -> list[tuple[str, str]]:
        """Rows of the headline: the repairs that were tried, and the texts."""
        return [("model", self.model), ("verdict", self.verdict.level), ("candidates", f"{len(self.trials):,}")]

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
            "reads": trial.reads,
            "width": trial.width,
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
        trials = sorted(self.trials, key=lambda trial: trial.change.mean)
        chose = f"half that chose ({len(self.chosen_on.observations):,} {self.chosen_on.unit})"
        labels, changes = [trial.name for trial in trials], [trial.change for trial in trials]
        points = [_points(labels, changes, chose, GREY, symbol="circle", size=8)]
        if self.selected is not None and self.difference is not None:
            reports = f"half that reports ({self.difference.count:,} {self.difference.unit})"
            look: dict[str, Any] = {"symbol": "diamond", "size": 12}
            points.append(_points([self.selected.name], [self.difference], reports, COLOURS[1], **look))
        figure = panel(
            *points,
            title=f"<b>{self.recommended or self.outcome}</b>   {short_name(self.model)}, {self.chosen_on.task}",
            across=f"difference in {self.chosen_on.metric} to the model as it is ({self.chosen_on.value:.3f})",
            along="",
            height=_ROW * max(len(trials), 4) + 190,
            y={"categoryorder": "array", "categoryarray": labels},
        )
        figure.add_vline(0, line={"color": GREY, "width": 1, "dash": "dash"})
        return figure.update_layout(margin={"l": 300})


def decide(
    trials: Sequence[Trial],
    selected: Trial | None,
    difference: Difference | None,
    *,
    chosen_on: Evaluation,
    reported_on: Evaluation,
) -> Verdict:
    """`fix` if the interval of the selected candidate on the other half excludes no gain.

    Without one `ok` if a gain that matters would have been seen (`Difference.could_tell`), otherwise `unchecked`, with
    the smallest gain that could have been. Fewer than 30 units there, or fewer than 6 that changed, prove nothing,
    whatever the interval. Where no candidate was better on the half that chose, that half must have had the power.
    """
    metric, count = reported_on.metric, len(reported_on.observations)
    fitted = [trial for trial in trials if trial.repair is not None]
    evidence = [
        f"{metric} of the model as it is: {chosen_on.value:.4f} {_interval(chosen_on)} on the half that chose, "
        f"{reported_on.value:.4f} {_interval(reported_on)} on the half that reports.",
        *(
            f"For comparison, on the half that chose: {trial.name} {trial.change}; it needs the clouds at query time "
            f"and is no repair of the vectors."
            for trial in trials
            if trial.repair is None
        ),
    ]
    if selected is None or difference is None:
        return replace(_none_gained(fitted, chosen_on, count), evidence=tuple(evidence))
    chosen = (
        f"On the half that chose, '{selected.name}' was chosen among {len(fitted)} candidates with {selected.change}; "
        f"the best of many flatters itself there, so only the other half counts."
    )
    higher = max(fitted, key=lambda trial: trial.change.mean)
    if higher.change.mean > selected.change.mean:
        chosen += (
            f" '{higher.name}' gained more there ({higher.change.mean:+.4f}), but a combination is chosen only where "
            f"it beats what is simpler beyond chance."
        )
    evidence.insert(0, chosen)
    numbers: dict[str, Any] = {"value": difference.mean, "interval": difference.interval}
    where = f"{metric} by {difference} on {count:,} {reported_on.unit} that had no part in choosing it"
    shortage = difference.shortage()
    if difference.proves_gain and shortage is None:
        sentence = f"'{selected.name}' raises {where}."
        if difference.mean < LEAST_GAIN:
            sentence += f" That is sure but little: an audit calls for a repair from {LEAST_GAIN} on."
        return Verdict("fix", sentence, evidence=tuple(evidence), **numbers)
    tells = count >= FEWEST_PAIRED and difference.could_tell(LEAST_GAIN)
    outcome = "a loss beyond chance" if difference.proves_loss and shortage is None else "which may be chance"
    held_out = "them" if count < FEWEST_PAIRED else f"{count:,} held-out {reported_on.unit}"
    shown = str(difference) if difference.interval is not None else f"{difference.mean:+z.4f}".replace("-", "−")
    change = f"{metric} changed by {shown} on {held_out}, {outcome}"
    sentence = f"{_answer(count, reported_on.unit, tells=tells)}. We tried '{selected.name}': {change}."
    sentence += "" if tells else _reach(difference)
    return Verdict("ok" if tells else "unchecked", sentence, evidence=tuple(evidence), **numbers)


def _none_gained(fitted: Sequence[Trial], chosen_on: Evaluation, held_out: int) -> Verdict:
    """The verdict where no candidate is better on the half that chose, so that the other half was not asked."""
    if not fitted:
        return Verdict("unchecked", "Nothing was tried: no candidate changes this model.")
    blind = [trial.change for trial in fitted if not trial.could_tell(LEAST_GAIN)]
    tells = held_out >= FEWEST_PAIRED and not blind
    where = f"{len(chosen_on.observations):,} {chosen_on.unit}"
    reason = f"None of {len(fitted)} candidates is better than the model as it is on {where}."
    sentence = f"{_answer(held_out, chosen_on.unit, tells=tells)}. {reason}"
    if blind:
        sentence += _reach(max(blind, key=Difference.smallest_gain))
    return Verdict("ok" if tells else "unchecked", sentence)


def _reach(difference: Difference) -> str:
    """Say the smallest gain that these units could show, and how many units would show more; empty if enough."""
    needed = difference.units_to_tell(LEAST_GAIN)
    more = f" That takes about {needed:,.0f}." if np.isfinite(needed) else ""
    reach = difference.reach(LEAST_GAIN)
    return f" {reach}{more}" if reach else ""


def _interval(evaluation: Evaluation) -> str:
    return str(evaluation.interval() or f"({evaluation.why_no_interval()})")


def _answer(held_out: int, unit: str, *, tells: bool) -> str:
    if tells:
        return "Nothing to repair"
    if held_out >= FEWEST_PAIRED:
        return "No repair is proven to help, and none is ruled out"
    return f"{held_out:,} held-out {unit} are too few to tell (needed: {FEWEST_PAIRED})"


def _points(
    labels: Sequence[str], differences: Sequence[Difference], name: str, colour: str, *, symbol: str, size: int
) -> Any:
    go = require("plotly.graph_objects", "report")
    return go.Scatter(
        x=[difference.mean for difference in differences],
        y=list(labels),
        mode="markers",
        name=name,
        marker={"color": colour, "size": size, "symbol": symbol},
        error_x=error_bars([difference.change for difference in differences], colour) | {"width": 4},
        text=[str(difference) for difference in differences],
        hovertemplate="%{y}<br>%{text}<extra></extra>",
    )


# -- the search -------------------------------------------------------------------------------------------------------

# Queries (texts, pairs) that are looked at, both halves together: the cost is about this many texts × temperatures.
LIMIT = 1_000
# Documents of each query that the Gaussian re-ranking puts in order.
RERANKED = 20


def tune(
    model: Any,
    texts: Sequence[str] | Task,
    *,
    queries: Any = None,
    temperatures: Iterable[float | TemperatureRule] | None = None,
    poolings: Iterable[str | Pooling] | None = None,
    repairs: Iterable[str | VectorRepair] | None = None,
    readings: Iterable[str | Reading] | None = None,
    reranked: int = RERANKED,
    limit: int | None = LIMIT,
    seed: int = 0,
    progress: bool | Progress | None = None,
    **options: Any,
) -> TuneResult:
    """Search repairs of a model on half of the texts; recommend one only if the rest agrees.

    Every temperature and every reading encodes the texts of one half again; poolings and vector repairs share their
    clouds. Tried is what stands in `poolscope.repairs.registry.REPAIRS`, unless it is said; an empty list leaves a
    family out.

    Parameters
    ----------
    model
        A model as `as_encoder` takes it.
    texts
        Plain texts, judged by split-half self-retrieval, or a task of `poolscope.evaluation`, with labels too.
    queries
        Queries with the ids of the texts that answer them, as `read_queries` takes them: then these judge.
    temperatures
        Numbers or rules of the length (None: the published grid). From the numbers a step rule by length is fitted
        too, and tried if a bin gains beyond chance.
    poolings
        Names of poolings, or poolings.
    repairs
        Names of vector repairs, or vector repairs.
    readings
        Names of readings, or readings (`poolscope.repairs.readings`): other ways to read a text with a decoder. None:
        all of them for a decoder, none for other models.
    reranked
        So many documents a query are also re-ranked by their clouds, to compare (0: not); that is no repair of the
        vectors and never recommended.
    limit
        The most texts (queries, or labelled pairs) that are looked at, drawn at random; None: all.
    seed
        Of the draw and of the halves, which go by it and by words: another order of the same texts changes nothing.
    progress : bool or callable, optional
        True for a line now and then on standard error; or what is called with texts and tokens while encoding.
    **options
        Those of `as_encoder`.

    Returns
    -------
    TuneResult
        Every candidate with its difference, the verdict, and the fitted `recommendation` (a `Repair`) or None.

    Examples
    --------
    >>> letters = lambda texts: [[[text.count(letter) + 9.0 for letter in "abcd"]] for text in texts]
    >>> texts = [" ".join("abcd"[k % 4] + "abcd"[k // 4 % 4] for _ in range(8)) + " a" * k for k in range(16)]
    >>> found = tune(letters, texts, poolings=[], repairs=["mean removal"], reranked=0)
    >>> found.outcome, [row["candidate"] for row in found.rows()]
    ('too few to tell', ['mean removal, project'])

    """
    rules = make_rules(candidates("temperature") if temperatures is None else temperatures)
    tried_poolings = _parts("pooling", poolings, argument="pooling")
    tried_repairs = _parts("vectors", repairs, argument="repairs")
    tried_readings = _parts("reading", readings, argument="readings")
    reranked = whole_number(reranked, "reranked", least=0)
    task = _limited(_as_task(texts, queries, limit, seed), limit, seed)
    choosing, reporting = halve(task, seed=seed)
    encoder = plain_encoder(model, **options)
    shown = as_progress(progress)
    search = Search(encoder, choosing, shown)
    search.try_clouds(tried_poolings, _prepared(tried_repairs, encoder, search, named=repairs), reranked=reranked)
    search.try_readings(_prepared(tried_readings, encoder, search, named=readings))
    search.try_temperatures(rules)
    search.try_combinations()
    selected = search.best()
    before, after = _report(encoder, reporting, selected, declared=search.bench.pooling, progress=shown)
    difference = None if after is None else compare_scores(before, after)
    decision = decide(search.trials, selected, difference, chosen_on=search.bench.before, reported_on=before)
    repair = None
    if decision.level == "fix" and selected is not None:
        evidence = {"verdict": decision.to_dict(), "task": before.task, "metric": before.metric}
        evidence["chosen_by"] = list(search.bench.before.names)  # whoever measures it again should ask others
        repair = selected.repair.made_for(encoder, evidence)
    settings = {
        "temperatures": [rule.to_dict() for rule in rules],
        "reranked": reranked,
        "limit": limit,
        "seed": seed,
        "options": options or {key: value for key, value in options_of(encoder).content().items() if value is not None},
    }
    return TuneResult(
        model=encoder.card.name,
        chosen_on=search.bench.before,
        reported_on=before,
        trials=tuple(search.trials),
        chosen=None if selected is None else next(k for k, trial in enumerate(search.trials) if trial is selected),
        difference=difference,
        verdict=decision,
        recommended=None if repair is None else repair.label,
        width=search.bench.vectors[0].shape[1],
        notes=(*getattr(task, "notes", ()), *_shared_note(choosing, reporting), *search.notes),
        provenance=provenance(*(side[-1] for side in search.bench.sides), settings=settings),
        recommendation=repair,
    )


def texts_to_encode(
    task: Task, temperatures: Iterable[float | TemperatureRule] | None = None, readings: int = 0
) -> int:
    """About how many texts `tune` will encode, for a progress bar: one half for every temperature and reading, the
    other half twice.
    """
    texts = sum(len(side.texts) for side in task.sides)
    rules = make_rules(candidates("temperature") if temperatures is None else temperatures)
    return texts * (len(set(rules)) + readings + 3) // 2


def _parts(family: Any, chosen: Iterable[Any] | None, *, argument: str) -> list[Any]:
    return [make_part(family, how, argument=argument) for how in (candidates(family) if chosen is None else chosen)]


def readings_for(encoder: TokenEncoder, chosen: Iterable[str | Reading] | None = None) -> list[Reading]:
    """The readings that `tune` tries with this model, of those that are named or of all."""
    listed = _parts("reading", chosen, argument="readings")
    return [reading for reading in listed if reading.prepared(encoder) is not None]


def _prepared(repairs: Iterable[Any], encoder: TokenEncoder, search: Search, *, named: Any) -> list[Any]:
    """Prepare the repairs for the model; those that do not fit it are left out, with a note if named."""
    ready = [(repair, repair.prepared(encoder)) for repair in repairs]
    if named is not None:
        search.notes += [f"Skipped {repair.label}: it is not for {encoder.card.name}." for repair, r in ready if not r]
    return [prepared for _, prepared in ready if prepared is not None]


def _shared_note(choosing: Task, reporting: Task) -> tuple[str, ...]:
    """Repairs are fitted on texts of the half that chooses; those that stand in the other one too are not held out."""
    shared = shared_texts(choosing, reporting)
    stand, them = ("text is", "it") if shared == 1 else ("texts are", "them")
    return (f"{shared:,} {stand} in both halves: what was fitted has seen {them}.",) if shared else ()


def _report(
    encoder: TokenEncoder, task: Task, selected: Trial | None, *, declared: Pooling, progress: Progress | None
) -> tuple[Evaluation, Evaluation | None]:
    """The model as it is and with the selected repair, on the half that had no part in choosing it."""
    scores = []
    for repair in [Repair()] if selected is None else [Repair(), selected.repair]:
        model = RepairedModel(encoder, repair, declared)
        scores.append(task.score(*(model.encode(s.texts, role=s.role, progress=progress) for s in task.sides)))
    return scores[0], scores[1] if len(scores) > 1 else None


def _as_task(texts: Any, queries: Any, limit: int | None, seed: int) -> Task:
    if queries is not None:
        if isinstance(texts, Task):
            raise InputError(
                f"queries: received some together with the task {texts.name}; pass texts, or leave them out."
            )
        return query_task(texts, queries, limit=limit, seed=seed)
    return texts if isinstance(texts, Task) else split_half_task(check_texts(texts))


def _limited(task: Task, limit: int | None, seed: int) -> Task:
    if limit is None or task.units <= limit:
        return task
    if limit < 4:
        raise InputError(f"limit: received {limit}; allowed: at least 4, two for each half, or None for all.")
    return shuffled(task, seed=seed).take(np.arange(limit))
