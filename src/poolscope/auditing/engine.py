"""The engine of an audit: a search in; symptoms, trials of every cure, levels, ledger and decision out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from poolscope.auditing.cause import Cause, Symptom, all_causes, loss_of
from poolscope.auditing.cure import Cure, Tried
from poolscope.auditing.decision import decide_first
from poolscope.auditing.ledger import Ledger
from poolscope.auditing.map import text_map
from poolscope.auditing.misses import open_misses
from poolscope.auditing.result import Audit, Finding
from poolscope.auditing.rule import Rule, beyond_floor, decide
from poolscope.auditing.search import Search
from poolscope.auditing.threshold import score_threshold
from poolscope.auditing.words import count, fill
from poolscope.auditing.yardsticks import all_yardsticks
from poolscope.evaluation.outcome import Outcome
from poolscope.evaluation.paired import Attempt, CureTrial, run_trials
from poolscope.numbers import Array
from poolscope.numbers.intervals import FEWEST_PAIRED, Estimate, share_estimate
from poolscope.results import provenance
from poolscope.words import logger

Watching = Callable[[str], None]
_log = logger(__name__)


def examine(
    search: Search,
    *,
    rule: Rule | None = None,
    causes: Mapping[str, Cause] | None = None,
    yardsticks: Mapping[str, Cure] | None = None,
    encode: bool = True,
    watch: Watching | None = None,
    command: str = "",
) -> Audit:
    """Look for every cause in a search, try every cure on the same queries, and decide.

    Parameters
    ----------
    search
        What `make_search` gave.
    rule
        The top k, the gain that matters and the level of intervals.
    causes, yardsticks
        Those to look for; by default all of the tables.
    encode
        Try cures that re-encode texts; without them an audit takes little more than encoding did.
    watch
        Called with the name of each cause, cure and yardstick before its turn.
    command
        What carries out the cure that is decided for, before ` --cure NAME`.

    """
    rule = Rule(k=search.k) if rule is None else rule
    wanted = all_causes() if causes is None else causes
    beside = all_yardsticks() if yardsticks is None else yardsticks
    clock = _Clock(watch)
    before = clock.timed("search", lambda: search.before) if len(search) else None
    symptoms: dict[str, Symptom | None] = {
        name: clock.timed(cause.title, partial(cause.symptom, search)) for name, cause in wanted.items()
    }
    cures = {cure.name: cure for cause in wanted.values() for cure in cause.cures}
    usable = {name: cure for name, cure in cures.items() if encode or cure.needs != "encoder"}
    left_out = () if before is None else tuple(name for name, cure in usable.items() if _proves_nothing(cure, search))
    tried, others = (
        {} if before is None else _tried(search, {name: some[name] for name in some if name not in left_out}, clock)
        for some in (usable, beside)
    )
    trials, measured = (_trials(search, some, rule) for some in (tried, others))
    by_name = {trial.name: trial for trial in trials}
    findings = tuple(_finding(cause, symptoms[name], search, by_name, rule) for name, cause in wanted.items())
    ledger = None if before is None else _ledger(search, before, wanted, symptoms, tried, others)
    costs = {name: cures[name].cost(search) for name in by_name}
    quality: dict[str, Any] = _quality(search, before)
    labels = {name: row.label for name, row in (*cures.items(), *beside.items())}
    return Audit(
        model=search.encoder.card.to_dict(),
        corpus={"texts": len(search.vectors)},
        queries=len(search),
        self_made=search.self_made,
        rule=rule,
        unit=search.unit,
        units=int(search.units.max()) + 1 if len(search) else 0,
        **quality,
        findings=findings,
        trials=tuple(trials),
        yardsticks=tuple(measured),
        costs=costs,
        labels=labels,
        decision=decide_first(
            trials,
            cures,
            costs,
            ledger,
            rule=rule,
            defects=[finding for finding in findings if finding.reason == "defect"],
            values={"candidates": search.candidates, "k": search.k},
            command=command,
            unit=search.unit,
        ),
        threshold=None if before is None else clock.timed("threshold", lambda: score_threshold(search)),
        misses=() if ledger is None else clock.timed("misses", lambda: open_misses(search, ledger)),
        map=None if ledger is None else clock.timed("map", lambda: text_map(search, ledger)),
        query_texts=search.queries,
        query_units=tuple(search.units.tolist()) if len(search) else (),
        query_ndcg=None if before is None else before.ndcg,
        ledger=ledger,
        notes=_looks_in_words(search, tried, left_out, labels),
        provenance={
            **provenance(settings={"seed": search.seed, "candidates": search.candidates, "encode": encode}),
            "seconds": clock.seconds,
        },
        search=search,
    )


class _Clock:
    """Times each step under its name."""

    def __init__(self, watch: Watching | None) -> None:
        self.seconds: dict[str, float] = {}
        self._watch = watch

    def timed(self, name: str, do: Callable[[], Any]) -> Any:
        """What a step gives; its time is kept."""
        if self._watch is not None:
            self._watch(name)
        began = time.perf_counter()
        value = do()
        self.seconds[name] = round(time.perf_counter() - began, 3)
        _log.debug("%s: %.2f s", name, self.seconds[name])
        return value


FIRST_LOOK = 1 / 3
"""The part of its sample on which a dear cure is tried first; one that gains nothing there is dropped.

Of a power of 80 or 50 % that loses two points, and one where several cures are tried (tests/auditing/test_looks.py).
"""
_FEWEST_UNITS = 10  # of queries, in a first look
_SAMPLED = "Tried on a part of the queries, to save time: {labels}."
_STOPPED = "Stopped early, as a first part of the queries gained nothing: {labels}."
_LEFT_OUT = "Not tried, as what could be re-encoded has too few {unit} to prove a gain: {labels}."
LOOK_WORDS = (_SAMPLED, _STOPPED, _LEFT_OUT)


@dataclass(frozen=True)
class _Attempted:
    """A cure that was tried: the search it was tried on, and the outcome. Its scores, which may hold much, are gone.

    `looks` counts how often it was looked at, and `stopped` says that the first look was the last.
    """

    search: Search
    outcome: Outcome
    looks: int = 1
    stopped: bool = False

    @property
    def gain(self) -> float:
        """The change of the mean nDCG."""
        return float((self.outcome.ndcg - self.search.before.ndcg).mean())


def _tried(search: Search, cures: Mapping[str, Cure], clock: _Clock) -> dict[str, _Attempted]:
    """Every cure that applies, with its outcome."""
    done = {}
    for name, cure in cures.items():
        if not cure.can_try(search):
            continue
        tried = clock.timed(name, lambda c=cure: _looked_at(c, search))  # type: ignore[misc]
        if tried is not None:
            done[name] = tried
    return done


def _looked_at(cure: Cure, search: Search) -> _Attempted | None:
    """A trial; of a dear cure the first look, where that shows no gain."""
    if cure.sample is None:
        return _attempted(cure.tries(search))
    sample = _sample(cure, search)
    part = sample.part(int(sample.lengths.sum() * FIRST_LOOK))
    first = _attempted(cure.tries(part)) if _is_look(part, sample, search) else None
    if first is None:
        return _attempted(cure.tries(sample))
    if first.gain <= 0:
        return replace(first, looks=2, stopped=True)
    whole = _attempted(cure.tries(sample))
    return None if whole is None else replace(whole, looks=2)


def _sample(cure: Cure, search: Search) -> Search:
    """The part of the search that a cure is tried on."""
    sample = cure.sample
    return search if sample is None else search.once(f"sample {cure.name}", lambda: sample(search))


def _is_look(part: Search, sample: Search, search: Search) -> bool:
    return len(part) < len(sample) and _units_of(part, search) >= _FEWEST_UNITS


def _proves_nothing(cure: Cure, search: Search) -> bool:
    """Has the part of a dear cure too few units for an interval, where the whole search has enough?"""
    if cure.sample is None or not cure.can_try(search) or _units_of(search, search) < FEWEST_PAIRED:
        return False
    return _units_of(_sample(cure, search), search) < FEWEST_PAIRED


def _units_of(part: Search, search: Search) -> int:
    """How many units of the whole search a part has."""
    return len(np.unique(search.units if part.positions is None else search.units[part.positions]))


def _attempted(tried: Tried | None) -> _Attempted | None:
    return None if tried is None else _Attempted(tried.search, tried.search.outcome(tried.scores))


def _looks_in_words(
    search: Search, tried: Mapping[str, _Attempted], left_out: Sequence[str], labels: Mapping[str, str]
) -> tuple[str, ...]:
    """Which cures were tried on a part of the queries, or not at all, in one line a reason."""
    sampled = {name: each for name, each in tried.items() if len(each.search) < len(search)}
    lines = []
    for template, stopped in ((_SAMPLED, False), (_STOPPED, True)):
        names = [
            f"{labels[name]} ({count(len(each.search), 'query')})"
            for name, each in sampled.items()
            if each.stopped is stopped
        ]
        lines += [fill(template, {"labels": ", ".join(names)})] if names else []
    names = [labels[name] for name in left_out]
    lines += [fill(_LEFT_OUT, {"labels": ", ".join(names), "unit": search.unit})] if names else []
    return tuple(lines)


def _trials(search: Search, tried: Mapping[str, _Attempted], rule: Rule) -> list[CureTrial]:
    if not tried:
        return []
    attempts = [
        Attempt(name, each.search.before, each.outcome, each.search.positions, looks=each.looks, stopped=each.stopped)
        for name, each in tried.items()
    ]
    return run_trials(attempts, search.units, unit=search.unit, level=rule.level, seed=search.seed)


def _finding(
    cause: Cause, symptom: Symptom | None, search: Search, by_name: Mapping[str, CureTrial], rule: Rule
) -> Finding:
    """The finding of one cause."""
    words = cause.words
    rows = None if symptom is None else symptom.rows(search)
    loss = None
    if rows is not None:
        missed = (search.before.rank > search.k).astype(float)
        loss = loss_of(rows, missed, search.units[search.judgements.query], unit=search.unit, level=rule.level)
    costs = loss is not None and loss.interval is not None and loss.interval.low > 0
    cures = (*cause.cures, *(cause.shared if costs else ()))
    trials = [by_name[cure.name] for cure in cures if cure.name in by_name]
    ruling = decide(
        symptom=None if symptom is None else symptom.number,
        loss=None if loss is None or loss.value is None else loss,
        trials=trials,
        rule=rule,
        defect=symptom is not None and symptom.defect,
    )
    if symptom is None:
        sentence = fill(words.unlooked, {})
    else:
        shown = words.present if symptom.defect or beyond_floor(symptom.number) else words.absent
        sentence = fill(shown, symptom.values)
    return Finding(
        cause=cause.name,
        title=cause.title,
        page=cause.page,
        stage=cause.stage,
        level=ruling.level,
        reason=ruling.reason,
        sentence=sentence,
        label=words.number,
        form=words.form,
        floor=words.floor,
        marked=""
        if rows is None
        else fill(words.marked, {"affected": int(rows.sum()), "answers": search.judgements.answers}),
        number=None if symptom is None else symptom.number,
        affected=None if rows is None else int(rows.sum()),
        loss=loss,
        cures=tuple(trial.name for trial in trials),
        values={} if symptom is None else dict(symptom.values),
    )


def _ledger(
    search: Search,
    before: Outcome,
    causes: Mapping[str, Cause],
    symptoms: Mapping[str, Symptom | None],
    tried: Mapping[str, _Attempted],
    beside: Mapping[str, _Attempted],
) -> Ledger:
    """The ledger; ranks of a cure that was tried on fewer texts are no ranks of this search, and are left out."""
    marks = {name: each.rows(search) for name in causes if (each := symptoms[name]) is not None}

    def ranks(some: Mapping[str, _Attempted]) -> dict[str, Array]:
        return {name: each.outcome.rank for name, each in some.items() if each.search.positions is None}

    return Ledger(
        k=search.k,
        query=search.judgements.query,
        text=before.text,
        rank=before.rank,
        symptoms={name: rows for name, rows in marks.items() if rows is not None},
        ranks=ranks(tried),
        yardsticks=ranks(beside),
    )


def _quality(search: Search, outcome: Outcome | None) -> dict[str, Estimate]:
    """What the search finds, each with its interval over units; nothing without queries."""
    if outcome is None:
        return dict.fromkeys(("found", "relevant_found", "ndcg", "recall", "mrr"), Estimate(None))
    per_query = {"found": outcome.found, "ndcg": outcome.ndcg, "recall": outcome.recall, "mrr": outcome.reciprocal}
    units, each = search.units, search.unit
    in_top = (outcome.rank <= search.k).astype(np.float64)
    return {
        "relevant_found": share_estimate(in_top, units=units[search.judgements.query], each=each),
        **{name: share_estimate(values, units=units, each=each) for name, values in per_query.items()},
    }
