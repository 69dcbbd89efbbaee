"""Answers from the vectors: what unrelated pairs score, the cone, hubs and near-duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.auditing.basis import OK, Judgement
from poolscope.auditing.result import Action, Finding, not_applicable
from poolscope.auditing.subject import Subject
from poolscope.auditing.thresholds import Thresholds
from poolscope.auditing.trials import Trial, judged_by, mean_removal_trial
from poolscope.metrics.cone import Cone, cone
from poolscope.metrics.hubs import HubResult, hubs
from poolscope.metrics.scores import ScoreDistribution, score_distribution
from poolscope.verdicts import LEVELS, Verdict

# Fewer texts than this say nothing of hubs: everyone is everyone's neighbour.
_HUB_TEXTS = 30


def answer_scores(subject: Subject) -> Finding:
    """1. What does an unrelated pair score here?"""
    if len(subject.distinct) < 3:
        return not_applicable("a distribution of scores needs three different texts or more")
    limits = subject.thresholds
    found = score_distribution(subject.vectors[subject.distinct], false_hits=limits["false_hits"], seed=subject.seed)
    judged = limits.judge("cut_off", found.cut_off, found.cut_off_interval)
    if found.cut_off_interval is None:
        judged = judged.at_most_watch("no interval")  # too few pairs to be sure of so rare a share
    sentence = _score_sentence(found)
    if judged.level != "ok":
        instead = "use this one" if found.placed else "audit more texts to place one"
        sentence += f" Common cut-offs of {limits['cut_off_watch']:g} do not hold here: {instead}."
    evidence = (*_evidence(found), *subject.repeats())
    verdict = Verdict(judged.level, sentence, found.cut_off, found.cut_off_interval, found.isotropic_cut_off, evidence)
    numbers = {
        "floor": found.floor,
        "floor_interval": found.floor_interval,
        "floor_spread": found.deviation,
        "cut_off": found.cut_off,
        "cut_off_interval": found.cut_off_interval,
        "isotropic_cut_off": found.isotropic_cut_off,
        "nearest_score": found.nearest,
        "score_pairs": found.pairs,
    }
    histogram = pa.table({"low": found.edges[:-1], "high": found.edges[1:], "pairs": found.counts})
    step = f"set the cut-off of your search to {found.cut_off:.2f}, or remove the mean to widen the band"
    action = Action("repair", step, subject.command("tune"), "no re-encoding: one subtraction a vector")
    if not found.placed:
        action = Action("repair", "audit more texts to place a cut-off of your own", None, "encode more texts")
    return Finding(
        verdict,
        numbers,
        {"scores": histogram},
        lambda: _draw_scores(found),
        action,
        number_name=found.cut_off_name,
        basis=judged.basis,
    )


def _score_sentence(found: ScoreDistribution) -> str:
    scores = f"Two unrelated texts score {found.floor:.2f} on average (spread {found.deviation:.2f})"
    if found.placed:
        return f"{scores}; cut at {found.cut_off:.2f}, and {found.share} of unrelated pairs still pass."
    few = f"{found.pairs:,} pairs are too few to place a cut-off for {found.share} of them"
    return f"{scores}; {few}: the highest scores {found.cut_off:.2f}."


def _evidence(found: ScoreDistribution) -> tuple[str, ...]:
    return (
        f"{found.pairs:,} pairs of {found.texts:,} texts; mean {found.floor:.3f} {found.floor_interval or ''}".rstrip()
        + ".",
        f"The nearest other text of a text scores {found.nearest:.2f} (median); identical texts score 1.",
        f"Vectors without a preferred direction would need a cut-off of {found.isotropic_cut_off:.2f}.",
    )


def _draw_scores(found: ScoreDistribution) -> Any:
    from poolscope.metrics.scores_figure import scores_figure

    return scores_figure(found)


def answer_cone(subject: Subject) -> Finding:
    """2. Is everything in one cone, and does removing the mean help on my data?"""
    if len(subject.distinct) < 3:
        return not_applicable("a mean over pairs needs three different texts or more")
    found, trial = cone(subject.vectors[subject.distinct]), mean_removal_trial(subject)
    judged = judged_by([trial], subject.thresholds["cone_gain"]) if trial.gain > 0 else OK
    shared = f"A vector shares {found.mean_norm:.0%} of its length with the mean of all"
    where = f"{shared} (mean cosine {found.mean_cosine:.2f})"
    evidence = (*trial.evidence, *subject.repeats())
    verdict = Verdict(judged.level, f"{where}; {trial.sentence}", found.mean_cosine, found.interval, 0.0, evidence)
    numbers = {
        "anisotropy": found.mean_cosine,
        "anisotropy_interval": found.interval,
        "mean_norm": found.mean_norm,
        "split_half": None if trial.before is None else trial.before.value,
        **trial.numbers("mean_removal"),
    }
    mean_cosines = np.full(len(subject), np.nan)  # not known of texts that repeat another
    mean_cosines[subject.distinct] = found.per_text
    columns = {
        "mean_cosine": pa.array(mean_cosines, from_pandas=True),
        "concentration_ratio": subject.moments.traces,
    }
    tables = {"texts": pa.table({"id": subject.ids, **columns}), **trial.table("mean_removal", subject)}
    action = Action(
        "repair",
        "remove the mean of the corpus from queries and documents alike",
        subject.command("tune"),
        "no re-encoding: one projection a vector, of the index and of every query",
    )
    return Finding(verdict, numbers, tables, lambda: _draw_cone(found, trial), action, basis=judged.basis)


def _draw_cone(found: Cone, trial: Trial) -> Any:
    from poolscope.auditing.charts import cone_figure

    return cone_figure(found, trial.before, trial.after)


def answer_hubs(subject: Subject) -> Finding:
    """9. Which chunks come back for everything, which never?"""
    if len(subject) < 2:
        return not_applicable("one text has no neighbours")
    limits = subject.thresholds
    found = hubs(subject.vectors, texts=subject.texts, duplicate_cosine=limits["duplicate_cosine"], seed=subject.seed)
    tables = {"hubs": _hub_table(subject, found), "duplicates": _group_table(subject, found)}
    numbers = {**_hub_numbers(found), "equal_texts": sum(len(group) for group in found.twins) / len(subject)}
    if len(subject) < _HUB_TEXTS:
        few = not_applicable(f"{len(subject)} texts are too few to tell hubs from chance ({_HUB_TEXTS} are needed)")
        return Finding(few.verdict, numbers, tables)
    judged, merge = _hub_judgement(limits, found, equal=numbers["equal_texts"])
    verdict = Verdict(
        judged.level, _hub_sentence(found), found.skewness, found.interval, found.floor_skewness, _hub_evidence(found)
    )
    action = _merge_action(found) if merge else _hub_action(found)
    return Finding(verdict, numbers, tables, lambda: _draw_hubs(found), action, basis=judged.basis)


def _hub_judgement(limits: Thresholds, found: HubResult, *, equal: float) -> tuple[Judgement, bool]:
    """The most serious of hubs, antihubs and duplicates, and whether it is about the latter, which make hubs.

    Near-duplicates are `watch` at most, as a narrow cone makes them of any texts; equal texts are equal.
    """
    beyond = found.interval is not None and found.interval.low > found.floor_skewness
    hub = limits.judge("hub", found.largest - found.floor_largest) if beyond else OK
    hub = Judgement(hub.level, "beyond chance") if hub != OK else OK
    near = limits.count("duplicate", found.duplicate_share).at_most_watch("counted")
    each = (
        Judgement("repair", "counted") if equal >= limits["duplicate_repair"] else near,
        hub,
        limits.judge("antihub", found.antihubs - found.floor_antihubs),
    )
    worst = max(each, key=lambda judged: LEVELS.index(judged.level))  # of equals the first
    return worst, worst is each[0]


def _merge_action(found: HubResult) -> Action:
    equal, near = (sum(len(group) for group in groups) for groups in (found.twins, found.duplicates))
    step = f"merge the duplicates: {equal:,} texts are equal to another, {near:,} near-duplicates by their vectors"
    return Action("merge", f"{step} (table duplicates)", None, "no encoding; the index shrinks")


def _hub_action(found: HubResult) -> Action:
    return Action(
        "re-chunk",
        "look at the first hubs: boilerplate chunks come back for everything (table hubs)",
        None,
        f"the work on {len(found.first())} hub texts; encode those that change",
    )


def _hub_sentence(found: HubResult) -> str:
    first = (
        f"The first hub is among the {found.k} nearest of {found.largest:.1%} of the texts "
        f"(by chance {found.floor_largest:.1%}); {found.antihubs:.0%} are never found "
        f"(by chance {found.floor_antihubs:.0%})"
    )
    return f"{first}; {found.duplicate_share:.1%} have a near-duplicate."


def _hub_evidence(found: HubResult) -> tuple[str, ...]:
    twins = sum(len(group) for group in found.twins)
    return (
        f"{found.texts:,} texts; skewness of the times found {found.skewness:.2f} {found.interval or ''}, "
        f"{found.floor_skewness:.2f} for Gaussian vectors of the same mean and covariance.",
        f"Near-duplicates (cosine of {found.duplicate_cosine:g} or more): {len(found.duplicates):,} groups.",
        f"Equal but for letter case and blanks: {twins:,} texts in {len(found.twins):,} groups.",
    )


def _hub_numbers(found: HubResult) -> dict[str, Any]:
    return {
        "hub_skewness": found.skewness,
        "hub_skewness_interval": found.interval,
        "hub_skewness_floor": found.floor_skewness,
        "hub_largest": found.largest,
        "hub_largest_floor": found.floor_largest,
        "antihubs": found.antihubs,
        "antihubs_floor": found.floor_antihubs,
        "near_duplicates": found.duplicate_share,
        "twin_groups": len(found.twins),
    }


def _hub_table(subject: Subject, found: HubResult) -> pa.Table:
    """Every text that was looked at, the first hub first."""
    order = np.argsort(-found.occurrences, kind="stable")
    positions = found.positions[order]
    return pa.table(
        {
            "id": [subject.ids[k] for k in positions],
            "times_found": found.occurrences[order],
            "nearest": [subject.ids[k] for k in found.nearest[order]],
            "nearest_cosine": found.nearest_cosine[order],
            "text": pa.array(_texts(subject, positions), pa.large_string()),
        }
    )


def _group_table(subject: Subject, found: HubResult) -> pa.Table:
    kinds = (("near-duplicates", found.duplicates), ("equal texts", found.twins))
    rows = [(kind, number, k) for kind, groups in kinds for number, group in enumerate(groups) for k in group]
    positions = [k for _, _, k in rows]
    return pa.table(
        {
            "kind": pa.array([kind for kind, _, _ in rows], pa.string()),
            "group": pa.array([number for _, number, _ in rows], pa.int64()),
            "id": pa.array([subject.ids[k] for k in positions], pa.string()),
            "text": pa.array(_texts(subject, positions), pa.large_string()),
        }
    )


def _texts(subject: Subject, positions: Sequence[int] | Any) -> list[str | None]:
    texts = subject.texts
    return [None if texts is None else texts[k] for k in positions]


def _draw_hubs(found: HubResult) -> Any:
    from poolscope.metrics.hubs_figure import hubs_figure

    floor = "Gaussian vectors of the same shape"
    return hubs_figure({"these texts": found.occurrences, floor: found.floor_occurrences}, k=found.k, floor=floor)
