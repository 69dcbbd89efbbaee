"""Answers by length and position: do short texts win, do long ones look alike, is the end of a text still found?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.basis import OK, Judgement
from poolscope.auditing.result import Action, Finding, not_applicable
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.auditing.trials import Trial, chunk_trial, judged_by, temperature_trial
from poolscope.encoders.batching import BatchedEncoder
from poolscope.encoders.inputs import TokenInputs
from poolscope.errors import InputError
from poolscope.evaluation import split_half
from poolscope.metrics.length.position import MIN_QUERIES, PositionProbe, SegmentRow, position_probe
from poolscope.metrics.length.profile import length_profile
from poolscope.metrics.length.result import LengthProfile
from poolscope.metrics.length.retrieval import LengthRetrieval, RetrievalRow, retrieval_by_length
from poolscope.numbers.intervals import Interval
from poolscope.texts import Pairs, read_texts
from poolscope.verdicts import LEVELS, Verdict

_K = 10
# Where fewer than a tenth of the texts have so many tokens, bins of 50 tokens part them too coarsely: quantiles do.
_LONG, _QUANTILE_BINS = 100, 5
# The probe of the position encodes three long documents a query, so it asks few: a tenth of what 1,000 texts cost.
_PROBE_QUERIES, _PROBE_TEXTS, _LEAST_SEGMENT = 12, 60, 4
# Chunks that are advised to be half as long as the longest tenth now, but no shorter than a sentence.
_SMALLEST_CHUNK = 32


def answer_short(subject: Subject) -> Finding:
    """5. Do short chunks win just because they are short?"""
    task = subject.halves
    if isinstance(task, str):
        return not_applicable(f"it takes queries, made of the first halves of texts, and {task}")
    documents = np.concatenate([task.vectors[1], task.others])
    lengths = np.concatenate([task.clouds[1].lengths, task.other_lengths])
    if len(documents) <= _K or np.ptp(lengths) == 0:
        return not_applicable("all texts are of one length, or there are not more than ten")
    found = retrieval_by_length(task.vectors[0], documents, task.halves.relevant, lengths, k=_K, seed=subject.seed)
    if found.unjudged:
        return not_applicable(found.unjudged)
    judged, side = _crowding(subject.thresholds, found)
    row = found.shortest if side == "shortest" else found.longest
    ratio, evidence = row.ratio, found.verdict.evidence
    verdict = Verdict(judged.level, _short_sentence(found), ratio.value, ratio.interval, ratio.floor, evidence)
    numbers = {
        "short_share": found.shortest.ratio.value,
        "short_share_interval": found.shortest.ratio.interval,
        "long_share": found.longest.ratio.value,
        "short_hit": found.shortest.hit.value,
        "long_hit": found.longest.hit.value,
    }
    action = Action(
        "re-chunk",
        "even out the lengths of the chunks: merge the shortest with their neighbours",
        subject.command("length"),
        "cut the texts again and encode them; no new model",
    )
    tables = {"retrieval_by_length": pa.Table.from_pylist(found.table())}
    name = f"{side} fifth among wrong answers, over its share"
    return Finding(verdict, numbers, tables, lambda: _draw_short(found), action, number_name=name, basis=judged.basis)


def _crowding(limits: Thresholds, found: LengthRetrieval) -> tuple[Judgement, str]:
    """The judgement, and which fifth it is about: the longest where only that one stands out.

    `watch` where a fifth is in the way beyond chance; `repair` where the other one is found less often for it.
    """
    gap = found.hit_gap.interval
    losses = {"shortest": gap is not None and gap.low > 0, "longest": gap is not None and gap.high < 0}
    sides: dict[str, Judgement] = {}
    for side, row in (("shortest", found.shortest), ("longest", found.longest)):
        ratio, sides[side] = row.ratio, OK
        if ratio.value is None or ratio.interval is None or ratio.interval.low <= 1:
            continue
        if ratio.floor_high is None or ratio.value > ratio.floor_high:
            judged = limits.judge("short", ratio.value, ratio.interval)
            sides[side] = judged if losses[side] else judged.at_most_watch("harmless")
    side = max(sides, key=lambda name: LEVELS.index(sides[name].level))
    return sides[side], side


def _short_sentence(found: LengthRetrieval) -> str:
    def times(row: RetrievalRow) -> str:
        return "–" if row.ratio.value is None else f"{row.ratio.value:.2f}"

    return (
        f"Among the first {found.k} wrong answers the shortest fifth of the texts stands {times(found.shortest)} times "
        f"as often as its number explains, the longest fifth {times(found.longest)} times."
    )


def _draw_short(found: LengthRetrieval) -> Any:
    from poolscope.metrics.length.figure import retrieval_figure

    return retrieval_figure(found)


# -- long texts ---------------------------------------------------------------------------------------------------


def answer_long(subject: Subject) -> Finding:
    """6. Do long chunks all look alike; would a temperature or smaller chunks help?"""
    distinct = subject.distinct
    if len(distinct) < 3:
        return not_applicable("a profile by length needs three different texts or more")
    limits, lengths = subject.thresholds, subject.clouds.lengths[distinct]
    profile = length_profile(
        subject.raw_vectors[distinct],
        lengths,
        bins=None if np.quantile(lengths, 0.9) >= _LONG else _QUANTILE_BINS,
        seed=subject.seed,
        watch=limits["length_watch"],
        repair=limits["length_repair"],
    )
    found = profile.verdict
    if profile.slope is None:
        return not_applicable("all texts are of about one length, or too few to part by length")
    trials = [] if found.level == "ok" else [temperature_trial(subject), chunk_trial(subject)]
    judged = _long_judgement(profile, trials, limits["length_gain"])
    advice = " ".join(f"{trial.sentence[0].upper()}{trial.sentence[1:]}" for trial in trials)
    evidence = (*found.evidence, *(note for trial in trials for note in trial.evidence), *subject.repeats())
    sentence = f"{found.sentence} {advice}".strip()
    verdict = Verdict(judged.level, sentence, found.value, found.interval, found.floor, evidence)
    numbers: dict[str, Any] = {
        "length_slope": profile.slope,
        "length_slope_interval": profile.slope_interval,
        "length_slope_floor": profile.slope_floor,
    }
    tables: dict[str, pa.Table] = {"length": pa.Table.from_pylist(profile.table())}
    for trial, name in zip(trials, ("temperature", "smaller_chunks"), strict=False):
        numbers |= trial.numbers(name)
        tables |= trial.table(name, subject)
    action = _long_action(subject, trials)
    return Finding(verdict, numbers, tables, lambda: _draw_profile(profile), action, basis=judged.basis)


def _long_judgement(profile: LengthProfile, trials: list[Trial], least: float) -> Judgement:
    """`repair` only for a rise of that size and where a trial has shown a cure; what it rests on is the trials."""
    level = profile.verdict.level
    if level == "ok":
        return OK
    judged = judged_by(trials, least)
    return judged if level == "repair" else Judgement("watch", judged.basis)


def _long_action(subject: Subject, trials: list[Trial]) -> Action:
    """What a trial has shown to help by enough; otherwise the command that looks further."""
    least = subject.thresholds["length_gain"]
    helps = {trial.name for trial in trials if trial.gain >= least}
    if "smaller chunks" in helps:
        cost = "cut the texts again and encode them all; the index grows"
        lengths = subject.clouds.lengths
        tokens = min(max(int(np.quantile(lengths, 0.9)) // 2, _SMALLEST_CHUNK), int(lengths.max()))
        command = subject.rechunk_command(tokens=tokens)
        return Action("re-chunk", "use smaller chunks: on trial they are found better", command, cost)
    if helps:
        cost = "encode all texts again with the temperature; no new model"
        return Action("repair", "scale the attention: a temperature helps on trial", subject.command("tune"), cost)
    cost = "nothing yet: neither a temperature nor smaller chunks has helped on trial"
    return Action("repair", "look at the length profile before changing anything", subject.command("length"), cost)


def _draw_profile(profile: LengthProfile) -> Any:
    from poolscope.metrics.length.figure import length_figure

    return length_figure(profile)


# -- position -----------------------------------------------------------------------------------------------------


def answer_position(subject: Subject) -> Finding:
    """7. If the answer sits at the end of a chunk, is it still found?"""
    if not isinstance(subject.encoder, BatchedEncoder):
        static = subject.card.kind == "static"
        return not_applicable(
            "the model is a table, in which a token is the same at every position"
            if static
            else "no transformer is at hand that takes tokens, so that no segment can be moved"
        )
    long = None if subject.texts is None else _long_pairs(subject)
    if long is None:
        return not_applicable("there are too few texts long enough to be cut into a question and an answer")
    pairs, segment = long
    found = position_probe(
        subject.encoder, pairs, positions=(0.0, 1.0), queries=_PROBE_QUERIES, segment=segment, seed=subject.seed
    )
    start, end = found.rows[0], found.rows[-1]
    drop, interval = _drop(start, end)
    judged = _position_judgement(subject.thresholds, end, drop, interval)
    sentence = (
        f"An answer of {found.segment} tokens at the end of {found.tokens} tokens is {abs(drop):.0%} "
        f"{'less' if drop > 0 else 'more'} similar to its question than at the start; it comes first for "
        f"{end.first.value:.0%} of {found.queries} questions, {start.first.value:.0%} from the start."
    )
    notes = () if subject.pooling == "mean" else ("Measured on the mean of the tokens, which this model does not use.",)
    verdict = Verdict(judged.level, sentence, drop, interval, 0.0, (*found.verdict.evidence, *notes))
    numbers = {
        "position_drop": drop,
        "position_drop_interval": interval,
        "position_rank_start": start.rank.value,
        "position_rank_end": end.rank.value,
    }
    tables = {"position": _position_table(found)}
    action = Action(
        "re-chunk",
        "cut chunks so that what matters comes first, or use shorter chunks",
        subject.command("length"),
        "cut the texts again and encode them; no new model",
    )
    return Finding(verdict, numbers, tables, lambda: _draw_position(found), action, basis=judged.basis)


def _long_pairs(subject: Subject) -> tuple[Pairs, int] | None:
    """Halves of the longest texts, and a segment that enough of their second halves can fill."""
    texts, lengths = subject.texts or [], subject.clouds.lengths + subject.clouds.truncated
    longest = np.sort(np.argsort(-lengths, kind="stable")[:_PROBE_TEXTS])
    try:
        halves = split_half([texts[k] for k in longest])
        inputs = TokenInputs(subject.encoder)
    except InputError:
        return None
    sizes = np.sort([len(row) for row in inputs.content(halves.documents)])[::-1]
    room = min(inputs.limit or 512, 512) - inputs.added
    wanted = min(_PROBE_QUERIES, len(sizes))
    segment = min(room // 4, int(sizes[wanted - 1])) if wanted >= MIN_QUERIES else 0
    if segment < _LEAST_SEGMENT or sizes[1:].sum() < room:  # the others fill the document around each segment
        return None
    sides = [read_texts(side) for side in (halves.queries, halves.documents)]
    return Pairs(sides[0], sides[1], halves.relevant), segment


def _drop(start: SegmentRow, end: SegmentRow) -> tuple[float, Interval | None]:
    """Loss of similarity as a share of that at the start, with its interval."""
    base, change = start.similarity.value or 0.0, end.change
    if base <= 0 or change.value is None:
        return 0.0, None
    found = change.interval
    if found is not None:
        found = Interval(-found.high / base, -found.low / base, found.level, found.answers, found.method)
    return -change.value / base, found


def _position_judgement(limits: Thresholds, end: SegmentRow, drop: float, interval: Interval | None) -> Judgement:
    """A loss that chance does not explain; `repair` only where the ranks fall with it."""
    if interval is None or interval.low <= 0:
        return OK
    judged = limits.judge("position", drop, interval)
    rank = end.rank_change.interval
    falls = rank is not None and rank.low > 0
    return judged if falls else judged.at_most_watch("harmless")


def _position_table(found: PositionProbe) -> pa.Table:
    columns = {
        name: [getattr(row, name).value for row in found.rows] for name in ("similarity", "rank", "first", "change")
    }
    return pa.table({"position": [row.position for row in found.rows], **columns})


def _draw_position(found: PositionProbe) -> Any:
    from poolscope.metrics.length.figure import position_figure

    return position_figure(found)
