"""Length beside its explanations: parts of a layer, unrelated pairs, what pulls centres, backbones and children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import as_numpy, attention_of
from poolscope.errors import InputError
from poolscope.evaluation import ClassificationTask, SimilarityTask
from poolscope.lab.capture.model import TextLayer, capture
from poolscope.lab.capture.norms import POST, norm_layout
from poolscope.lab.length.mechanism import measure_texts
from poolscope.lab.papers.cell import Cell, Kind, Material, Outcome, Row, row_estimate
from poolscope.lab.papers.common import slope_of, texts_of, units_of
from poolscope.lab.papers.models import LENGTH_BACKBONES, LENGTH_MODELS
from poolscope.metrics.length.bins import length_bins
from poolscope.numbers.intervals import mean_estimate, share_estimate
from poolscope.numbers.learning import cluster
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs.repair_file import Repair

Array = NDArray[np.float64]
PARENTS = {model.name: model.parent for model in (*LENGTH_BACKBONES, *LENGTH_MODELS) if model.parent is not None}
_TEXTS = 64  # texts that are captured
_CUTS, _CUT_TEXTS = (15, 30, 60, 120), 40  # words of the beginnings of as many texts
PARTS = ("attention", "residual", "norms", "feed-forward")


def ratio(tokens: Array) -> float:
    """‖HC[X]‖/‖DC[X]‖: the tokens without their mean, beside the mean.

    >>> ratio(np.array([[1.0, 1.0], [1.0, -1.0]]))
    1.0
    """
    mean = tokens.mean(axis=0)
    return float(np.linalg.norm(tokens - mean) / max(np.sqrt(len(tokens)) * np.linalg.norm(mean), 1e-300))


@dataclass(frozen=True)
class _Calls:
    """What the norms on the main path of each layer were given and gave, in the last pass through the model."""

    modules: Mapping[str, tuple[int, ...]]
    seen: Mapping[str, list[tuple[Any, Any]]]

    def change(self, layer: int, row: int, n: int) -> float:
        """The change of log ‖HC‖/‖DC‖ by the norms of a layer, for a text of the batch with n tokens."""
        change = 0.0
        for name, layers in self.modules.items():
            if layer in layers:
                given, gave = self.seen[name][-len(layers) :][layers.index(layer)]
                change += _log_ratio(as_numpy(gave[row, :n])) - _log_ratio(as_numpy(given[row, :n]))
        return change


@contextmanager
def _watched_norms(encoder: TokenEncoder) -> Iterator[_Calls]:
    """Watch the norms that stand behind a residual sum: those before a branch are no part of the main path."""
    network = attention_of(encoder)[0]
    named = dict(network.named_modules())
    modules = {norm.name: norm.layers for norm in norm_layout(encoder).norms if norm.role == POST}
    calls = _Calls(modules, {name: [] for name in modules})

    def hook(name: str) -> Any:
        def keep(module: Any, given: Any, gave: Any) -> None:
            passes = calls.seen[name]
            passes.append((given[0].detach(), gave.detach()))
            del passes[: -len(modules[name])]

        return keep

    handles = [named[name].register_forward_hook(hook(name)) for name in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _log_ratio(tokens: Any) -> float:
    return float(np.log(max(ratio(np.asarray(tokens, dtype=np.float64)), 1e-300)))


def parts_by_length(material: Material) -> Outcome:
    """What each part of a layer does to ‖HC‖/‖DC‖, by length: mean over layers of the logarithm of its change.

    The paper says that the residual sum, the feed-forward part and several heads keep high frequencies whatever the
    length. `slope` is the change with twice as many tokens, by least squares over texts. The feed-forward part comes
    with the sum that adds it; norms are those on the main path, which a pre-norm model has none of.
    """
    places, counted, changes = _part_changes(material.model(), texts_of(material).texts[:_TEXTS])
    units = units_of(material).among(places)
    bins = length_bins(counted, min_texts=8)
    rows: list[Row] = []
    for name, change in zip(PARTS, changes.T, strict=True):
        for number, label in enumerate(bins.labels):
            member = bins.of == number
            where = {"part": name, "bin": label, "mean_length": float(counted[member].mean())}
            rows.append({**where, "change": mean_estimate(change[member], units.among(member))})
        slope = slope_of(np.log2(counted), change, units)
        rows.append({"part": name, "slope": slope, "mean": mean_estimate(change, units)})
    return Outcome(rows)


def parts_of_cut_texts(material: Material) -> Outcome:
    """The same for beginnings of the same texts, so that nothing but the length differs; `slope` within each text."""
    long = {
        document: text  # one of each document, so that the texts are independent draws
        for document, text in zip(units_of(material).of.tolist(), texts_of(material).texts, strict=True)
        if len(text.split()) >= _CUTS[-1]
    }
    texts = list(long.values())[:_CUT_TEXTS]
    if not texts:
        raise InputError(f"this measurement needs texts of {_CUTS[-1]} words or more. Name longer texts.")
    cuts = [_part_changes(material.model(), [" ".join(text.split()[:words]) for text in texts]) for words in _CUTS]
    logs = np.log2(np.stack([counted[np.argsort(places)] for places, counted, _ in cuts]))
    changes = np.stack([change[np.argsort(places)] for places, _, change in cuts])  # cuts × texts × parts
    away = (logs - logs.mean(axis=0))[..., None]
    slopes = (away * changes).sum(axis=0) / (away**2).sum(axis=0)
    return Outcome(
        [
            {"part": name, "cut_slope": mean_estimate(own), "texts": len(own)}
            for name, own in zip(PARTS, slopes.T, strict=True)
        ]
    )


def _part_changes(encoder: TokenEncoder, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Places of the texts, their tokens, and the change by each part (texts × parts), means over layers."""
    places, lengths, changes = [], [], []
    with _watched_norms(encoder) as norms:
        for batch in capture(encoder, texts):
            for row, text in enumerate(batch.texts()):
                n = len(text.layers[0].H)
                if n > 1:
                    by_layer = [_changes(layer, norms.change(layer.number, row, n)) for layer in text.layers]
                    places.append(text.position)
                    lengths.append(n)
                    changes.append(np.mean(by_layer, axis=0))
    return np.array(places), np.array(lengths), np.array(changes)


def _changes(layer: TextLayer, norms: float) -> tuple[float, float, float, float]:
    """What attention, the first sum, norms and the feed-forward part change."""
    H, Z, Y, X = (_log_ratio(getattr(layer, name)) for name in "HZYX")
    return Z - H, Y - Z, norms, X - Y - norms


def pairs_by_length(material: Material) -> Outcome:
    """The cosine of related, unrelated and strange pairs by the length of the pair; how often strangers win.

    Related and unrelated are the fifths of highest and lowest gold score; strangers are texts of different pairs of one
    bin. `strangers_win`: the share of strangers that are nearer than the middle related pair of their bin.
    """
    task = material.data
    if not isinstance(task, SimilarityTask):
        raise InputError("this measurement needs pairs with gold scores. Name a data set of that form.")
    model = Repair().apply(material.model())
    first, second = (unit_rows(np.asarray(model.encode(texts)), "vectors") for texts in (task.first, task.second))
    words = np.array([len(f"{a} {b}".split()) for a, b in zip(task.first, task.second, strict=True)])
    cosines = (first.astype(np.float64) * second).sum(axis=1)
    low, high = np.quantile(task.gold, [0.2, 0.8])
    bins = length_bins(words)
    rows: list[Row] = []
    for number, label in enumerate(bins.labels):
        member = np.flatnonzero(bins.of == number)
        strange = (first[member].astype(np.float64) * np.roll(second[member], 1, axis=0)).sum(axis=1)
        groups = {
            "Related": cosines[member][task.gold[member] >= high],
            "Unrelated": cosines[member][task.gold[member] <= low],
            "Strangers": strange,
        }
        where = {"bin": label, "mean_length": float(words[member].mean())}
        rows += [{**where, "pairs": name, "cosine": mean_estimate(own)} for name, own in groups.items() if len(own)]
        if len(groups["Related"]):
            won = (strange > np.median(groups["Related"])).astype(np.float64)
            rows.append({**where, "strangers_win": share_estimate(won)})
    return Outcome(rows)


def pull_of_long_texts(material: Material) -> Outcome:
    """Are centres nearer to long texts? The cosine with the mean of its label, and with its k-means centre, by length.

    A text has no part in the mean that it is compared with. Fifths of the texts by their tokens.
    """
    task = material.data
    if not isinstance(task, ClassificationTask):
        raise InputError("this measurement needs texts with labels. Name a data set of that form.")
    measured = measure_texts(material.model(), task.texts)
    units, codes = unit_rows(measured.vectors, "vectors").astype(np.float64), task.codes
    kinds = int(codes.max()) + 1
    groupings = {"label": codes, "k-means": cluster(units, kinds, starts=1, seed=material.seed)[:, 0]}
    fifth = np.searchsorted(np.quantile(measured.lengths, [0.2, 0.4, 0.6, 0.8]), measured.lengths)
    rows: list[Row] = []
    for name, groups in groupings.items():
        sums = np.zeros((kinds, units.shape[1]))
        np.add.at(sums, groups, units)
        others = sums[groups] - units
        cosines = (units * others).sum(axis=1) / np.maximum(np.linalg.norm(others, axis=1), 1e-300)
        for place in range(5):
            member = fifth == place
            if member.any():
                length = float(measured.lengths[member].mean())
                rows.append({"centres": name, "mean_length": length, "cosine": mean_estimate(cosines[member])})
    return Outcome(rows)


def child_minus_backbone(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """The slope of the cosine over doublings of length, of each tuned model minus that of its backbone.

    The interval takes both as independent, which is too wide for the same texts.
    """
    slopes = {row["model"]: row_estimate(row, "slope") for row in rows if row.get("slope") is not None}
    found: list[Row] = []
    for name, parent in PARENTS.items():
        if name in slopes and parent in slopes:
            child, backbone = slopes[name], slopes[parent]
            row: Row = {
                "model": name,
                "backbone": parent,
                "child_minus_backbone": child.value_or_raise - backbone.value_or_raise,
            }
            if child.interval and backbone.interval:
                own, other = ((each.high - each.low) / 2 for each in (child.interval, backbone.interval))
                half = float(np.hypot(own, other))
                middle = row["child_minus_backbone"]
                row |= {"child_minus_backbone_low": middle - half, "child_minus_backbone_high": middle + half}
            found.append({**row, "child_slope": child.value_or_raise, "backbone_slope": backbone.value_or_raise})
    return found


KINDS: dict[str, Kind] = {
    "parts": parts_by_length,
    "cut parts": parts_of_cut_texts,
    "pairs by length": pairs_by_length,
    "pull": pull_of_long_texts,
}
