"""Answers from the vectors: what unrelated pairs score, the cone, hubs and near-duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poolscope.analyses.cone import Cone, cone
from poolscope.analyses.hubs import HubResult, hubs
from poolscope.analyses.scores import ScoreDistribution, score_distribution
from poolscope.audit.result import Action, Finding, not_applicable
from poolscope.audit.subject import Subject
from poolscope.audit.trials import Trial, mean_removal_trial
from poolscope.verdicts import Level, Verdict, worst_level

# Fewer texts than this say nothing of hubs: everyone is everyone's neighbour.
_HUB_TEXTS = 30


def answer_scores(subject: Subject) -> Finding:
    """1. What does an unrelated pair score here?"""
    if len(subject) < 3:
        return not_applicable("a distribution of scores needs three texts or more")
    limits = subject.thresholds
    found = score_distribution(subject.vectors, false_hits=limits["false_hits"], seed=subject.seed)
    level = limits.level("cut_off", found.cut_off, found.cut_off_interval)
    if found.cut_off_interval is None and level == "repair":
        level = "watch"  # too few pairs to be sure of so rare a share
    sentence = (
        f"Two unrelated texts score {found.floor:.2f} on average (spread {found.deviation:.2f}); cut at "
        f"{found.cut_off:.2f}, and {found.false_hits:.0%} of unrelated pairs still pass."
    )
    if level != "ok":
        sentence += f" Common cut-offs of {limits['cut_off_watch']:g} do not hold here: use this one."
    verdict = Verdict(level, sentence, found.cut_off, found.cut_off_interval, found.isotropic_cut_off, _evidence(found))
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
    action = Action(
        "repair",
        f"set the cut-off of your search to {found.cut_off:.2f}, or remove the mean to widen the band",
        subject.command("tune"),
        "no re-encoding: one subtraction a vector",
    )
    return Finding(verdict, numbers, {"scores": histogram}, lambda: _draw_scores(found), action)


def _evidence(found: ScoreDistribution) -> tuple[str, ...]:
    return (
        f"{found.pairs:,} pairs of {found.texts:,} texts; mean {found.floor:.3f} {found.floor_interval or ''}".rstrip()
        + ".",
        f"The nearest other text of a text scores {found.nearest:.2f} (median); identical texts score 1.",
        f"Vectors without a preferred direction would need a cut-off of {found.isotropic_cut_off:.2f}.",
    )


def _draw_scores(found: ScoreDistribution) -> Any:
    from poolscope.charts.scores import scores_figure

    return scores_figure(found)


def answer_cone(subject: Subject) -> Finding:
    """2. Is everything in one cone, and does removing the mean help on my data?"""
    if len(subject) < 3:
        return not_applicable("a mean over pairs needs three texts or more")
    found, trial = cone(subject.vectors), mean_removal_trial(subject)
    level: Level = "repair" if trial.gain >= subject.thresholds["cone_gain"] else "watch" if trial.gain > 0 else "ok"
    shared = f"A vector shares {found.mean_norm:.0%} of its length with the mean of all"
    where = f"{shared} (mean cosine {found.mean_cosine:.2f})"
    verdict = Verdict(level, f"{where}; {trial.sentence}", found.mean_cosine, found.interval, 0.0, trial.evidence)
    numbers = {
        "anisotropy": found.mean_cosine,
        "anisotropy_interval": found.interval,
        "mean_norm": found.mean_norm,
        "split_half": None if trial.before is None else trial.before.value,
        **trial.numbers("mean_removal"),
    }
    columns = {"mean_cosine": found.per_text, "concentration_ratio": subject.moments.traces}
    tables = {"texts": pa.table({"id": subject.ids, **columns}), **trial.table("mean_removal", subject)}
    action = Action(
        "repair",
        "remove the mean of the corpus from queries and documents alike",
        subject.command("tune"),
        "no re-encoding: one projection a vector, of the index and of every query",
    )
    return Finding(verdict, numbers, tables, lambda: _draw_cone(found, trial), action)


def _draw_cone(found: Cone, trial: Trial) -> Any:
    from poolscope.charts.audit import cone_figure

    return cone_figure(found, trial.before, trial.after)


def answer_hubs(subject: Subject) -> Finding:
    """9. Which chunks come back for everything, which never?"""
    if len(subject) < 2:
        return not_applicable("one text has no neighbours")
    limits = subject.thresholds
    found = hubs(subject.vectors, texts=subject.texts, duplicate_cosine=limits["duplicate_cosine"], seed=subject.seed)
    tables = {"hubs": _hub_table(subject, found), "duplicates": _group_table(subject, found)}
    numbers = _hub_numbers(found)
    if len(subject) < _HUB_TEXTS:
        few = not_applicable(f"{len(subject)} texts are too few to tell hubs from chance ({_HUB_TEXTS} are needed)")
        return Finding(few.verdict, numbers, tables)
    beyond = found.interval is not None and found.interval.low > found.floor_skewness
    verdicts = {
        "hubs": Verdict(limits.level("hub", found.largest - found.floor_largest) if beyond else "ok", ""),
        "antihubs": Verdict(limits.level("antihub", found.antihubs - found.floor_antihubs), ""),
        "duplicates": Verdict(limits.level("duplicate", found.duplicate_share), ""),
    }
    level = worst_level(list(verdicts.values()))
    verdict = Verdict(
        level, _hub_sentence(found), found.skewness, found.interval, found.floor_skewness, _hub_evidence(found)
    )
    action = Action(
        "re-chunk",
        "merge near-duplicates and look at the first hubs: boilerplate chunks come back for everything",
        subject.command("audit", texts="CHUNKS"),
        f"the work on {sum(len(group) for group in found.duplicates):,} near-duplicate and "
        f"{len(found.first())} hub texts; encode those that change",
    )
    return Finding(verdict, numbers, tables, lambda: _draw_hubs(found), action)


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
    from poolscope.charts.hubs import hubs_figure

    floor = "Gaussian vectors of the same shape"
    return hubs_figure({"these texts": found.occurrences, floor: found.floor_occurrences}, k=found.k, floor=floor)
