"""Measurements that several papers ask for."""

from __future__ import annotations

import numpy as np

from poolscope.errors import InputError
from poolscope.evaluation import Task
from poolscope.lab.layers.measure import layers
from poolscope.lab.layers.result import QUANTITIES
from poolscope.lab.papers.cell import Material, Outcome, Row
from poolscope.numbers import Array
from poolscope.numbers.intervals import Estimate, Units, chosen_units, regression_slopes
from poolscope.texts import Pairs, Texts, read_texts
from poolscope.texts.groups import groups_of_ids

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
        texts = dict(zip(data.sides[-1].texts, getattr(data, "groups", None) or (), strict=False))
        texts = texts or dict.fromkeys(data.sides[-1].texts, "text")
        ids = [f"{document}#{number}" for number, document in enumerate(texts.values())]
        return read_texts({"id": ids, "text": list(texts)}, id_column="id")
    raise InputError("this measurement needs texts, and its part names no data. Name a data set in the part.")


def tau_of(material: Material) -> float:
    """The temperature of the setting, 1 where it names none."""
    return float(material.setting.get("tau", 1.0))


def layer_means(material: Material) -> Outcome:
    """λ, r, C, the concentration ratio, the within-text cosine, σₐ and the high-frequency growth of every layer.

    Means over texts with their intervals; layer 0 is the embedding output.
    """
    texts = texts_of(material)
    result = layers(material.model(), texts.texts, ids=texts.ids, socm_texts=0, seed=material.seed)
    rows: list[Row] = [{"layer": layer} for layer in range(result.layers + 1)]
    for quantity in _BY_LAYER:
        means = result.means(quantity)
        first = 0 if QUANTITIES[quantity].over == "states" else 1
        for at, row in enumerate(rows[first : first + len(means.mean)]):
            row |= {quantity: means.mean[at], f"{quantity}_low": means.low[at], f"{quantity}_high": means.high[at]}
    return Outcome([{**row, "texts": len(texts)} for row in rows])


def units_of(material: Material) -> Units:
    """The unit of every interval over `texts_of`: the document of each text, where the ids tell it."""
    texts = texts_of(material)
    return chosen_units(len(texts), groups_of_ids(texts.ids))


def slope_of(x: Array, y: Array, units: Units | None = None) -> Estimate:
    """The slope of y over x, with its interval over units; without them every value is one.

    >>> x = np.arange(12.0)
    >>> round(slope_of(x, 2 * x + 1).value, 9)
    2.0
    """
    if np.ptp(x) == 0:
        return Estimate(None, no_interval="all texts have one length")
    (slope,), _ = regression_slopes(y, x[:, None], units)
    return slope.scaled(1 / float(x.std()))
