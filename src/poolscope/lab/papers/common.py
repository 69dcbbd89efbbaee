"""Measurements that several papers ask for."""

from __future__ import annotations

from poolscope.errors import InputError
from poolscope.evaluation import Task
from poolscope.lab.layers.measure import layers
from poolscope.lab.layers.result import QUANTITIES
from poolscope.lab.papers.cell import Material, Outcome, Row
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
