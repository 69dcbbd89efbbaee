"""Do long chunks all look alike; would a temperature or smaller chunks help?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, TableView, Threshold, Thresholds
from poolscope.auditing.searches import judged_by, temperature_trial
from poolscope.auditing.subject import Subject
from poolscope.clouds.vectors import WORDS
from poolscope.errors import InputError
from poolscope.evaluation import Trial
from poolscope.evaluation.scores import LEAST_GAIN
from poolscope.metrics.length.bins import LengthLabels
from poolscope.metrics.length.probes import LengthNulls, LengthProbe
from poolscope.metrics.length.profile import LengthProfile, length_profile
from poolscope.metrics.length.shift import SemanticShift, semantic_shift
from poolscope.numbers.intervals import Interval, signed
from poolscope.verdicts import Basis, Level, Verdict

# Share of the rise that whole texts may exceed plain averages by, where averaging is said to explain it.
NEGLIGIBLE_EXCESS = 0.25
# Texts whose sentences are encoded in an audit.
_SHIFT_TEXTS = 80
_ADVICE = {
    "mixed": "; then cut texts where the subject changes",
    "long": "; then shorten the texts",
    "both": "; then shorten the texts and cut them where the subject changes",
    "": "",
}
_OF_A_KIND = (
    "Where texts of one length are also of one kind, such as short settings and long lines of a log, their kind may "
    "make them alike, not their length: which it is was not measured."
)
# Chunks that are advised to be half as long as the longest tenth now, but no shorter than a sentence.
_SMALLEST_CHUNK = 32


def judge(
    result: LengthProfile,
    thresholds: Thresholds,
    *,
    nulls: LengthNulls | None = None,
    probes: Sequence[LengthProbe] = (),
    shift: SemanticShift | None = None,
    trials: Sequence[Trial] = (),
) -> Verdict:
    """Do long texts look more alike than short ones, beyond chance, by enough to matter, and is there a cure?

    `watch` where the slope is above 0 and above its floor and the rise reaches the threshold. `repair` where, besides,
    the whole interval of the rise lies beyond the second one and a cure has won on trial, unless plain averaging
    explains the rise: whole documents exceed averages of their independently encoded chunks by less than a quarter of
    it, at the upper end of the interval, in chunks of two lengths. An excess that is merely uncertain, or hangs on the
    length of the chunks, takes nothing back. Long or mixed is what the `shift` tells; it changes no level.
    """
    slope, interval, highest = result.slope.value, result.slope.interval, result.slope.floor_high
    if slope is None or interval is None or highest is None:
        why = "all texts fall into one length bin" if len(result.bins) == 1 else "too few texts in the bins"
        return Verdict("unchecked", f"Length cannot be judged here: {why}, so there is no slope to see.")
    size, sentence = _size(result, slope, interval, highest, thresholds)
    level: Level = size
    basis: Basis | None = None
    if size in ("watch", "repair"):
        explained, words = (False, "") if nulls is None else _against_averaging(nulls)
        judged = judged_by(trials, thresholds["length_gain"])
        level, basis = judged.level if size == "repair" and not explained else "watch", judged.basis
        sentence += words
        if size == "repair" and not explained and not trials:
            sentence += " No cure was tried, and without one it is watched."
        sentence += "" if shift is None else f" {shift.sentence()}"
    least = thresholds["length_gain"]
    advice = (trial.advice(least) for trial in trials)
    evidence = (
        *_evidence(result),
        *((_OF_A_KIND,) if size in ("watch", "repair") else ()),
        *(() if nulls is None else nulls.seen()),
        *(probe.sentence() for probe in probes),
        *(() if shift is None else shift.sentences_made()),
        *(note for trial in trials for note in trial.evidence),
    )
    return Verdict(level, " ".join([sentence, *advice]), slope, interval, result.slope.floor, evidence, basis)


def judge_labels(result: LengthLabels, thresholds: Thresholds) -> Verdict:
    """`watch` where labels of long texts are told less well, beyond chance and by enough.

    The labels of long and short texts may differ too, so that this alone never says `repair`. `unchecked` where the
    interval holds 0 and leaves room for such a loss.
    """
    value, interval, notes = result.difference.value, result.difference.interval, result.notes
    if value is None:
        sentence = "There is one length bin only: accuracy cannot be compared by length."
        return Verdict("unchecked", sentence, evidence=notes)
    first, last = result.bins[0], result.bins[-1]
    words = f"accuracy {first.accuracy.value:.2f} at {first.label}, {last.accuracy.value:.2f} at {last.label}"
    if interval is not None and interval.high < 0:
        judged = thresholds.judge("labels", -value, result.difference.scaled(-1).interval)
        sentence = f"Labels of long texts are harder to tell: {words}."
        return Verdict(judged.level, sentence, value, interval, 0.0, notes, judged.basis)
    if interval is not None and interval.low > 0:
        sentence = f"Labels of long texts are easier to tell: {words}."
    else:
        ends = "" if interval is None else f" [{interval.low:+z.2f}, {interval.high:+z.2f}]"
        sentence = (
            f"Whether labels of long or of short texts are easier to tell cannot be said: {words}, difference "
            f"{value:+z.2f}{ends}."
        )
    told = interval is not None and interval.low > -thresholds["labels_watch"]
    return Verdict("ok" if told else "unchecked", sentence, value, interval, 0.0, notes)


def answer(subject: Subject) -> Answer:
    """The profile of all different texts; where it rises, a trial of a temperature and of smaller chunks."""
    distinct = subject.distinct
    if len(distinct) < 3:
        return Answer.unchecked("long", "a profile by length needs three different texts or more")
    if subject.lengths is None:
        return Answer.unchecked(
            "long", "these are vectors, and how long their texts are is not known: name the texts too"
        )
    thresholds, lengths = subject.thresholds, subject.lengths[distinct]
    if subject.whole is not None:
        profile = subject.whole.profile
    else:
        vectors, unit = subject.raw_vectors[distinct], "tokens" if subject.collection is None else WORDS
        profile = length_profile(vectors, lengths, seed=subject.seed, unit=unit)
    if profile.slope.value is None:
        return Answer.unchecked(
            "long", "too few texts are of clearly different lengths (a few far longer ones do not count)"
        )
    rises = judge(profile, thresholds).at_least("watch")
    trials = [temperature_trial(subject), subject.smaller_chunks] if rises else []
    shift = _shift(subject) if rises else None
    verdict = judge(profile, thresholds, shift=shift, trials=trials)
    repeats = subject.repeats() if subject.whole is None else (f"The profile is of all {profile.texts:,} texts.",)
    verdict = replace(verdict, evidence=(*verdict.evidence, *repeats))
    numbers: dict[str, Any] = {"length_slope": profile.slope, **_rise(profile)}
    tables: dict[str, pa.Table] = {"length": profile.to_table()}
    for trial, name in zip(trials, ("temperature", "smaller_chunks"), strict=False):
        numbers |= trial.numbers(name)
        tables |= trial.table(name)
    if shift is not None:
        numbers |= {"semantic_shift": shift.shift, "alike_by_length": shift.by_length, "alike_by_shift": shift.by_shift}
        tables["shift"] = shift.to_table()
    draw = {"long": profile.figure}
    return Answer("long", verdict, numbers, _action(subject, trials, shift), tables=tables, draw=draw)


def _shift(subject: Subject) -> SemanticShift | None:
    """How much the texts change their subject; None where sentences cannot be encoded, or too few texts have two."""
    if not subject.can_encode or subject.texts is None or subject.trial_texts == 0:
        return None
    order, clouds, texts = subject.shuffled, subject.clouds, subject.texts  # what is drawn of them goes by places
    try:
        return semantic_shift(
            subject.vectors[order],
            clouds.lengths[order],
            [texts[k] for k in order],
            subject.encoded,
            groups=None if subject.groups is None else subject.groups[order],
            read=(clouds.lengths / (clouds.lengths + clouds.truncated))[order],
            limit=_SHIFT_TEXTS,
            repeated=False,
            seed=subject.seed,
        )
    except InputError:  # too few texts of two sentences
        return None


def _size(
    result: LengthProfile, slope: float, interval: Interval, highest: float, thresholds: Thresholds
) -> tuple[Level, str]:
    """How much the cosine rises with the length: `ok` within chance or below the threshold; and in words.

    `highest`: what shuffled lengths stay below.
    """
    rise, certain = result.rise(slope), result.rise(interval.low)
    if interval.high < 0:
        words = f"they look less so ({signed(slope)} per doubling)"
        return "ok", f"Long texts do not look more alike than short ones; {words}."
    if interval.low <= 0 or slope <= highest:
        measured = f"slope {signed(slope)} {interval} per doubling; shuffled lengths give up to {highest:.3f}"
        if thresholds.within_chance("length", rise, result.rise(interval.high)).level == "ok":
            return "ok", f"Long texts are not shown to look more alike than short ones ({measured})."
        room = f"up to {result.rise(interval.high):.2g} standard deviations of the cosine"
        return "unchecked", (
            f"Whether long texts look more alike than short ones cannot be told: {measured}, which leaves room for a "
            f"rise of {room} from the shortest to the longest tenth."
        )
    small = slope < 0.0005  # in a narrow cone, where all cosines are near 1
    grows = f"the mean cosine grows by {format(slope, '.1e' if small else '.3f')} per doubling of length"
    size = f"{rise:.2f} standard deviations of the cosine from the shortest to the longest tenth"
    if rise < thresholds["length_watch"]:
        return "ok", f"Long texts look a little more alike: {grows}, only {size}."
    level: Level = "repair" if certain >= thresholds["length_repair"] else "watch"
    return level, f"Long texts look more alike: {grows}, {size}."


def _rise(result: LengthProfile) -> dict[str, Any]:
    """The rise that the thresholds are about, with its interval and floor; nothing where there is no slope."""
    slope, interval, floor = result.slope.value, result.slope.interval, result.slope.floor
    if slope is None or interval is None or floor is None:
        return {}
    low, high = result.rise(interval.low), result.rise(interval.high)
    rise = {"length_rise": result.rise(slope), "length_rise_floor": result.rise(floor)}
    return {**rise, "length_rise_interval": replace(interval, low=low, high=high)}


def _against_averaging(nulls: LengthNulls) -> tuple[bool, str]:
    """Does plain averaging explain the rise, in chunks of both lengths? And in words."""
    last = nulls.last
    rows = [last] if nulls.other is None else [last, nulls.other]
    ends = [
        (-np.inf, np.inf) if row.excess.interval is None else (row.excess.interval.low, row.excess.interval.high)
        for row in rows
    ]
    lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    measured = " and ".join(
        f"{row.excess.value:+z.3f} {row.excess.interval} in chunks of {row.tokens // row.chunks}" for row in rows
    )
    measured = f"whole minus averaged {measured}, at {last.tokens} tokens"
    if lowest > 0:
        share = "" if nulls.explained is None else f", which explains {min(max(nulls.explained, 0), 1):.0%} of it"
        return False, f" That is {last.excess.value:.3f} more than plain averaging gives{share}."
    rise = (last.full.value or 0.0) - (nulls.averaging[0].full.value or 0.0)
    if nulls.other is not None and highest < NEGLIGIBLE_EXCESS * max(rise, 0.0):
        alike = "more alike than" if highest < 0 else "about as alike as"
        return True, (
            f" Plain averaging explains it: averages of independently encoded chunks are {alike} whole texts "
            f"({measured}; less than {NEGLIGIBLE_EXCESS:.0%} of the rise of {rise:.3f}). Shorter chunks help; a repair "
            f"of the model's attention has little to win here."
        )
    if highest < 0:
        return False, (
            f" Averages of independently encoded chunks are more alike than whole texts ({measured}). No chunk of "
            f"another length fits, so whether plain averaging explains it hangs on this one."
        )
    if max(low for low, _ in ends) > min(high for _, high in ends):
        return False, f" How much of it is plain averaging hangs on the length of the chunks ({measured})."
    return False, f" It cannot be told from plain averaging on {nulls.documents} documents ({measured})."


def _evidence(result: LengthProfile) -> tuple[str, ...]:
    shown = [row for row in result.bins if row.cosine.value is not None]
    if len(shown) < 2:
        return result.notes
    first, last = shown[0], shown[-1]
    return (
        f"The mean pairwise cosine is {first.cosine.value:.3f} at {first.label} {result.unit} and "
        f"{last.cosine.value:.3f} at {last.label}; with the lengths shuffled it is {last.cosine.floor:.3f}. Shuffled "
        f"lengths give slopes of up to {result.slope.floor_high or 0.0:.3f} per doubling.",
        f"The mean distance from the centre goes from {first.distance.value:.3f} to {last.distance.value:.3f}; with "
        f"the lengths shuffled it is {last.distance.floor:.3f}.",
        *result.notes,
    )


def _action(subject: Subject, trials: Sequence[Trial], shift: SemanticShift | None = None) -> Action:
    """What a trial has shown to help by enough; otherwise the command that looks further."""
    least = subject.thresholds["length_gain"]
    helps = {trial.name for trial in trials if trial.gain >= least}
    if "smaller chunks" in helps:
        cost = "cut the texts again and encode them all; the index grows"
        lengths = subject.clouds.lengths
        tokens = min(max(int(np.quantile(lengths, 0.9)) // 2, _SMALLEST_CHUNK), int(lengths.max()))
        command = subject.named.rechunk(tokens=tokens)
        where = ", cut where the subject changes" if shift is not None and shift.cause in ("mixed", "both") else ""
        return Action("re-chunk", f"use smaller chunks{where}: on trial they are found better", command, cost)
    if helps:
        cost = "encode all texts again with the temperature; no new model"
        return Action("repair", "scale the attention: a temperature helps on trial", subject.command("tune"), cost)
    basis = judged_by(trials, least).basis
    if basis == "no cure":
        tried = " and ".join(trial.name for trial in trials if trial.difference is not None)
        step = f"keep model and chunks, as what was tried wins nothing here ({tried}), and let no fixed cut-off decide"
        return Action("keep", step, subject.command("length"), "nothing is encoded again")
    if basis == "too few":
        return subject.more_on_trial(trials, least)
    won = ": a cure wins, but less than matters" if any(trial.gain > 0 for trial in trials) else ""
    step = f"look at the length profile before changing anything{won}{_ADVICE[shift.cause] if shift else ''}"
    return Action("undecided", step, subject.command("length"), "nothing yet")


QUESTION = Question(
    "long",
    title="Long texts",
    words="Do long chunks all look alike; would a temperature or smaller chunks help?",
    page="length.md",
    number_name="rise of the mean cosine per doubling of the length",
    metric="length",
    answer=answer,
    of_all=True,
    seconds=6,
    needs="vectors",
    judge=judge,
    thresholds=[
        Threshold(
            "length_watch",
            0.25,
            "Rise of the mean cosine from the shortest to the longest tenth, in standard deviations of the cosine: "
            "enough to move a fixed cut-off visibly.",
        ),
        Threshold(
            "length_repair",
            1.0,
            "The same, where an unrelated pair of long texts scores like the better sixth of all pairs.",
        ),
        Threshold(
            "length_gain",
            LEAST_GAIN,
            "Points of nDCG@10 that a temperature or smaller chunks must win on held-out queries, as all texts are "
            "encoded anew for them; without such a cure a rise is watched, not repaired.",
        ),
        Threshold(
            "labels_watch",
            0.05,
            "Loss of accuracy from the shortest bin to the longest (`length --labels`): one label in twenty is told "
            "wrong.",
        ),
    ],
    numbers=[Number("length_slope", "rise of the mean cosine per doubling of the length", headline=True)],
    gauges=[Gauge("length_rise", "rise with length, in spreads of the cosine", "length_watch", "length_repair")],
    tables={
        "length": TableView(
            "Profile by length",
            40,
            {
                "bin": "Length",
                "texts": "Texts",
                "cosine": "Mean cosine",
                "cosine_floor": "Shuffled",
                "distance": "Distance from the centre",
                "norm": "Norm",
                "effective_rank": "Effective rank",
                "same_bin_neighbours": "Neighbours of equal length",
            },
        ),
        "shift": TableView(
            "Texts of as many sentences: only the change of subject differs",
            10,
            {"bin": "Sentences of", "texts": "Texts", "words": "Words", "shift": "Shift", "cosine": "Mean cosine"},
        ),
    },
)
