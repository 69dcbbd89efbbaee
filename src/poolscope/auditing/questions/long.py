"""Do long chunks all look alike; would a temperature or smaller chunks help?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Number, Question, TableView, Threshold, unchecked
from poolscope.auditing.subject import Subject
from poolscope.auditing.trials import Trial, chunk_trial, judged_by, temperature_trial
from poolscope.metrics.length.profile import REPAIR_RISE, WATCH_RISE, length_profile
from poolscope.metrics.length.result import LengthProfile
from poolscope.verdicts import Verdict

# Where fewer than a tenth of the texts have so many tokens, bins of 50 tokens part them too coarsely: quantiles do.
_LONG, _QUANTILE_BINS = 100, 5
# Chunks that are advised to be half as long as the longest tenth now, but no shorter than a sentence.
_SMALLEST_CHUNK = 32


def answer(subject: Subject) -> Answer:
    """The profile of the cosine by length; where it rises, trials of what could cure it."""
    distinct = subject.distinct
    if len(distinct) < 3:
        return unchecked("long", "a profile by length needs three different texts or more")
    limits, lengths = subject.thresholds, subject.clouds.lengths[distinct]
    profile = length_profile(
        subject.raw_vectors[distinct],
        lengths,
        bins=None if np.quantile(lengths, 0.9) >= _LONG else _QUANTILE_BINS,
        seed=subject.seed,
        watch=limits["length_watch"],
        repair=limits["length_repair"],
    )
    if profile.slope is None:
        return unchecked("long", "all texts are of about one length, or too few to part by length")
    verdict = profile.verdict
    trials = {}
    if verdict.level != "ok":
        trials = {"temperature": temperature_trial(subject), "smaller_chunks": chunk_trial(subject)}
        verdict = _cured(verdict, list(trials.values()), limits["length_gain"])
    numbers: dict[str, Any] = {
        "length_slope": profile.slope,
        "length_slope_interval": profile.slope_interval,
        "length_slope_floor": profile.slope_floor,
    }
    tables: dict[str, pa.Table] = {"length": pa.Table.from_pylist(profile.table())}
    for name, trial in trials.items():
        numbers |= trial.numbers(name)
        tables |= trial.table(name, subject)
    return Answer(
        "long",
        replace(verdict, evidence=(*verdict.evidence, *subject.repeats())),
        numbers,
        _action(subject, **trials) if trials else None,
        tables=tables,
        draw={"long": lambda: _figure(profile)},
    )


def _cured(verdict: Verdict, trials: list[Trial], least: float) -> Verdict:
    """`repair` only for a rise of that size and where a trial has shown a cure; what it rests on is the trials."""
    judged = judged_by(trials, least)
    advice = " ".join(f"{trial.sentence[0].upper()}{trial.sentence[1:]}" for trial in trials)
    return replace(
        verdict,
        level=judged.level if verdict.level == "repair" else "watch",
        basis=judged.basis,
        sentence=f"{verdict.sentence} {advice}",
        evidence=(*verdict.evidence, *(note for trial in trials for note in trial.evidence)),
    )


def _action(subject: Subject, temperature: Trial, smaller_chunks: Trial) -> Action:
    """What a trial has shown to help by enough; otherwise the command that looks further."""
    least = subject.thresholds["length_gain"]
    if smaller_chunks.gain >= least:
        cost = "cut the texts again and encode them all; the index grows"
        lengths = subject.clouds.lengths
        tokens = min(max(int(np.quantile(lengths, 0.9)) // 2, _SMALLEST_CHUNK), int(lengths.max()))
        command = subject.rechunk_command(tokens=tokens)
        return Action("re-chunk", "use smaller chunks: on trial they are found better", command, cost)
    if temperature.gain >= least:
        cost = "encode all texts again with the temperature; no new model"
        return Action("repair", "scale the attention: a temperature helps on trial", subject.command("tune"), cost)
    cost = "nothing yet: neither a temperature nor smaller chunks has helped on trial"
    return Action("repair", "look at the length profile before changing anything", subject.command("length"), cost)


def _figure(profile: LengthProfile) -> Any:
    from poolscope.metrics.length.figure import length_figure

    return length_figure(profile)


QUESTION = Question(
    "long",
    title="Long texts",
    words="Do long chunks all look alike; would a temperature or smaller chunks help?",
    page="length.md",
    number_name="rise of the mean cosine per doubling of the length",
    metric="length",
    answer=answer,
    thresholds=[
        Threshold(
            "length_watch",
            WATCH_RISE,
            "Rise of the mean cosine from the shortest to the longest tenth, in standard deviations of the cosine: "
            "enough to move a fixed cut-off visibly.",
        ),
        Threshold(
            "length_repair",
            REPAIR_RISE,
            "The same, where an unrelated pair of long texts scores like the better sixth of all pairs.",
        ),
        Threshold(
            "length_gain",
            0.01,
            "Points of nDCG@10 that a temperature or smaller chunks must win on held-out halves; without such a cure a "
            "rise is watched, not repaired.",
        ),
    ],
    numbers=[Number("length_slope", "rise of the mean cosine per doubling of the length", headline=True)],
    tables={
        "length": TableView(
            "Profile by length",
            40,
            {
                "bin": "Tokens",
                "texts": "Texts",
                "cosine": "Mean cosine",
                "cosine_floor": "Shuffled",
                "distance": "Distance from the centre",
                "norm": "Norm",
                "effective_rank": "Effective rank",
                "same_bin_neighbours": "Neighbours of equal length",
            },
        )
    },
)
