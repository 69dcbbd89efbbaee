"""Measurements that several papers ask for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError
from poolscope.evaluation import Task
from poolscope.lab.layers.measure import layers
from poolscope.lab.layers.result import QUANTITIES
from poolscope.lab.papers.cell import Material, Outcome, Row
from poolscope.numbers import Array
from poolscope.numbers.intervals import LEVEL, Estimate, Interval
from poolscope.texts import Pairs, Texts, read_texts

_BY_LAYER = (
    "lambda",
    "r",
    "C",
    "concentration_ratio",
    "cosine",
    "sigma_a",
    "high_frequency",
    "high_frequency_published",
)


def texts_of(material: Material) -> Texts:
    """The texts of a data set, whatever its form: the documents of a search, the texts of labels."""
    data = material.data
    if isinstance(data, Texts):
        return data
    if isinstance(data, Pairs):
        return data.documents
    if isinstance(data, Task):
        return read_texts(list(dict.fromkeys(data.sides[-1].texts)))
    raise InputError("this measurement needs texts, and its part names no data. Name a data set in the part.")


def tau_of(material: Material) -> float:
    """The temperature of the setting, 1 where it names none."""
    return float(material.setting.get("tau", 1.0))


def layer_means(material: Material) -> Outcome:
    """λ, r, C, the concentration ratio, the within-text cosine, σₐ and the high-frequency growth of every layer.

    Means over texts with their intervals; layer 0 is the embedding output.
    """
    texts = texts_of(material)
    result = layers(material.model(), texts.texts, socm_texts=0, seed=material.seed)
    rows: list[Row] = [{"layer": layer} for layer in range(result.layers + 1)]
    for quantity in _BY_LAYER:
        means = result.means(quantity)
        first = 0 if QUANTITIES[quantity].over == "states" else 1
        for at, row in enumerate(rows[first : first + len(means.mean)]):
            row |= {quantity: means.mean[at], f"{quantity}_low": means.low[at], f"{quantity}_high": means.high[at]}
    return Outcome([{**row, "texts": len(texts)} for row in rows])


def slope_of(x: Array, y: Array) -> Estimate:
    """The slope of y over x with its interval, from texts drawn again."""
    if np.ptp(x) == 0:
        return Estimate(None, no_interval="all texts have one length")

    def slope(rows: NDArray[np.int64]) -> Array:
        left = x[rows] - x[rows].mean(axis=-1, keepdims=True)
        square = (left**2).sum(axis=-1)
        return np.asarray((left * y[rows]).sum(axis=-1) / np.where(square > 0, square, np.nan))

    draws = slope(np.random.default_rng(0).integers(0, len(x), size=(2_000, len(x))))
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Estimate(
        float(slope(np.arange(len(x)))), Interval(float(low), float(high), LEVEL, "texts", "bootstrap", "texts")
    )
