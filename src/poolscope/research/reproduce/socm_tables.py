"""Tables that follow from the averages of the SOCM reproduction: agreement, tuned models beside backbones, layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from poolscope.metrics.layers.result import QUANTITIES, LayersResult
from poolscope.research.correlate.published import BY_NAME, PAIR_SETS
from poolscope.research.reproduce.request import MEASURED


def agreement(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Spearman's ρ and the mean difference between published and compatible values, for three models or more."""
    found = []
    for pair_set in PAIR_SETS:
        both = [row for row in rows if row["set"] == pair_set and row["status"] == MEASURED and row["published"]]
        if len(both) < 3:
            continue
        published, compatible = (np.array([row[name] for row in both]) for name in ("published", "compatible"))
        spearman = stats.spearmanr(published, compatible).statistic
        shift = float((compatible - published).mean())
        found.append({"set": pair_set, "models": len(both), "spearman": float(spearman), "mean_difference": shift})
    return found


def tuning(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Does tuning lower SOCM? Each tuned model beside its backbone, measured and published."""
    measured = {(row["model"], row["set"]): row for row in rows if row["status"] == MEASURED}
    found = []
    for (name, pair_set), row in measured.items():
        parent = BY_NAME[name].parent if name in BY_NAME else None
        if parent is None or (parent, pair_set) not in measured:
            continue
        published = BY_NAME[name].socm(pair_set) - BY_NAME[parent].socm(pair_set)
        change = row["exact"] - measured[parent, pair_set]["exact"]
        found.append({"model": name, "backbone": parent, "set": pair_set, "change": change, "published": published})
    return found


def layer_row(name: str, found: LayersResult, layer: int) -> dict[str, Any]:
    """Means over texts, with intervals, of what a layer does (counted from 0) and of the state it gives."""
    row: dict[str, Any] = {"model": name, "layer": layer + 1}
    for quantity in ("lambda", "r", "C", "concentration_ratio", "cosine"):
        means = found.means(quantity)
        at = layer + 1 if QUANTITIES[quantity].over == "states" else layer  # state 0 is the embedding output
        row |= {quantity: means.mean[at], f"{quantity}_low": means.low[at], f"{quantity}_high": means.high[at]}
    return row
