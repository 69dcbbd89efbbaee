"""The experiment of the SOCM paper: 12 models, three sets of pairs, exact and published values side by side.

The paper does not list its sentences, passages and pairs; the sets here are draws of the same size from public data
sets of the same kind, so that averages should agree within the intervals and not to the last digit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from poolscope.charts import COLOURS, GREY, short_name, style
from poolscope.encoders.base import TokenEncoder
from poolscope.errors import require
from poolscope.metrics.layers.measure import layers
from poolscope.metrics.layers.result import QUANTITIES, LayersResult, layers_figure
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.intervals import Estimate, bootstrap_interval
from poolscope.numbers.moments import text_moments
from poolscope.research.correlate.model_records import (
    BY_NAME,
    EPS,
    EXAMPLE,
    PAIR_SETS,
    SOCM_CORRELATIONS,
    SOCM_MODELS,
    SOCM_PAPER,
    ModelRecord,
    ModelRecords,
)
from poolscope.research.correlate.run import correlate
from poolscope.research.reproduce.experiment import (
    MEASURED,
    NOT_MEASURED,
    NOT_REACHED,
    Reproduction,
    ReproductionFolder,
    Request,
    attempt,
    interval_bars,
)
from poolscope.results import cells
from poolscope.stores.cache import cached_clouds
from poolscope.texts import Texts, read_pairs, read_texts
from poolscope.texts.records import BUILTIN
from poolscope.texts.sources import open_table

MODELS = {model.name: model.name for model in SOCM_MODELS}
TEXTS = {
    "wiki": "hub:sentence-transformers/wikipedia-en-sentences:train",
    "marco": "hub:sentence-transformers/msmarco-corpus/passage:train",
    "hard": "hub:sentence-transformers/msmarco-bm25/triplet-hard:train",
}
_TEXTS, _PAIRS = 1_000, 50_000
_LAYER_TEXTS = 200
_ROW = 34  # height of one model, in pixels
# Drawn in this order: the open marks lie over the full one.
_MARKS = (
    ("exact", COLOURS[0], "circle"),
    ("compatible", COLOURS[4], "circle-open"),
    ("published", GREY, "diamond-open"),
)
_ABOUT = f"""
The average SOCM of the models and pair sets of {SOCM_PAPER}. `compatible` adds eps = {EPS:g} to the diagonals before
each square root, as the published code does; `exact` does not. The texts are draws from public data sets of the same
kind, not the very ones of the paper, so that `compatible` should be near `published` and not equal to it.
"""


@dataclass(frozen=True)
class PairSet:
    """Texts to compare: all pairs of `left`, or those of `index` between `left` and `right`."""

    left: Texts
    right: Texts | None = None
    index: NDArray[np.int64] | None = None


def run(output: str | os.PathLike[str], request: Request, *, scores: Any = None, command: str = "") -> Reproduction:
    """Run what can be reached and write one folder: averages beside the published ones, layers, the example pair.

    `scores`: a table or a folder of MTEB results; with it the averages are set against the quality of the models.
    """
    rows: list[dict[str, Any]] = []
    examples: list[dict[str, Any]] = []
    anatomy: dict[str, LayersResult] = {}
    with ReproductionFolder(output) as folder:
        folder.notes += request.substitutes(MODELS, TEXTS)
        sets = {name: attempt(read_pair_set, name, request) for name in request.texts}
        first = next((texts for texts, _ in sets.values() if texts is not None), None)

        def measure(name: str, encoder: TokenEncoder | None, reason: str | None) -> None:
            for pair_set, (texts, missing) in sets.items():
                row = _published_row(name, pair_set, request)
                if encoder is None or texts is None:
                    rows.append({**row, "reason": reason or missing})
                else:
                    request.say(f"{name}: {pair_set}")
                    rows.append(_measured_row(row, encoder, texts, request))
            if encoder is not None:
                _add_details(name, encoder, first, folder, examples, anatomy)

        request.each_model(measure)
        _write(folder, rows, examples, anatomy)
        if scores is not None:
            _write_correlation(folder, rows, scores)
        folder.readme("SOCM of twelve models", about=_ABOUT, runs=[_short(row) for row in rows], command=command)
    return folder.result(request, rows, _range(rows))


def _range(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The smallest and the largest average, where there are any."""
    known = sorted((row for row in rows if row.get("exact") is not None), key=lambda row: float(row["exact"]))
    ends = [f"{row['exact']:.3f} ({row['model']} on {row['set']})" for row in known]
    if len(ends) < 2:
        return [f"The average SOCM is {end}." for end in ends]
    return [f"The average SOCM lies between {ends[0]} and {ends[-1]}."]


def read_pair_set(name: str, request: Request) -> PairSet:
    """The texts or pairs of one set: 1,000 texts and all their pairs, or 50,000 pairs of a query and a negative."""
    source = request.texts[name]
    if name != "hard":
        return PairSet(read_texts(source, limit=request.limit or _TEXTS, seed=request.seed))
    negative = "document" if source == BUILTIN or "negative" not in open_table(source).kinds else "negative"
    pairs = read_pairs(source, document_column=negative, limit=request.limit or _PAIRS, seed=request.seed)
    return PairSet(pairs.queries, pairs.documents, pairs.index)


def _published_row(name: str, pair_set: str, request: Request) -> dict[str, Any]:
    published = BY_NAME.get(name)
    return {
        "model": name,
        "family": None if published is None else published.family,
        "set": pair_set,
        "published": None if published is None else published.socm(pair_set),
        "status": NOT_REACHED,
        "reason": None,
        "model_source": request.models[name],
        "texts_source": request.texts[pair_set],
    }


def _measured_row(row: dict[str, Any], encoder: TokenEncoder, texts: PairSet, request: Request) -> dict[str, Any]:
    began = time.perf_counter()
    measured, failure = attempt(_measure, encoder, texts, request)
    if measured is None:
        return {**row, "status": NOT_MEASURED, "reason": failure}
    seconds = time.perf_counter() - began
    return {**row, "status": MEASURED, "revision": encoder.card.revision, **measured, "seconds": seconds}


def _measure(encoder: TokenEncoder, texts: PairSet, request: Request) -> dict[str, Any]:
    """Exact and compatible averages over the pairs, and the concentration ratio of the texts."""
    sides = [
        cached_clouds(encoder, side, options=request.options, enabled=request.cache)
        for side in (texts.left, texts.right)
        if side is not None
    ]
    exact = socm(*sides, pairs=texts.index)
    compatible = socm(*sides, pairs=texts.index, eps=EPS)
    ratios = np.concatenate([text_moments(side).traces for side in sides])
    return {
        "compatible": compatible.mean,
        **cells({"exact": exact.estimate}),
        "pairs": exact.count,
        "mean_d_mu": exact.mean_distance,
        "mean_d_sigma": exact.covariance_distance,
        "share_trace_above_2": exact.trace_check.share,
        "texts": len(ratios),
        **cells({"concentration_ratio": Estimate(float(ratios.mean()), bootstrap_interval(ratios))}),
        "truncated_texts": sum(int((side.truncated > 0).sum()) for side in sides),
    }


def _add_details(
    name: str,
    encoder: TokenEncoder,
    texts: PairSet | None,
    folder: ReproductionFolder,
    examples: list[dict[str, Any]],
    anatomy: dict[str, LayersResult],
) -> None:
    """The pair of texts that the paper shows, and λ, r, C and the ratio by layer; noted where a model has them not."""
    example, failure = attempt(_example, name, encoder)
    reasons = [failure]
    if example is not None:
        examples.append(example)
    if texts is not None:
        result, failure = attempt(layers, encoder, texts.left.texts[:_LAYER_TEXTS], socm_texts=0)
        reasons.append(failure)
        if result is not None:
            anatomy[name] = result
    folder.notes += [f"{name}: not everything was measured: {reason}" for reason in reasons if reason is not None]


def _example(name: str, encoder: TokenEncoder) -> dict[str, Any]:
    clouds = encoder.encode([EXAMPLE.left, EXAMPLE.right])[-1]
    exact, compatible = (socm(clouds, eps=eps).mean for eps in (0.0, EPS))
    return {"model": name, "published": EXAMPLE.socm.get(name), "compatible": compatible, "exact": exact}


def _write(
    folder: ReproductionFolder,
    rows: Sequence[Mapping[str, Any]],
    examples: Sequence[Mapping[str, Any]],
    anatomy: Mapping[str, LayersResult],
) -> None:
    folder.table("averages", rows, "average SOCM by model and set: published, compatible, exact with interval")
    folder.table("example", examples, "SOCM of the pair of texts that the paper shows")
    folder.table("agreement", agreement(rows), "how published and compatible averages go together over models, by set")
    folder.table("tuning", tuning(rows), "exact averages of models beside those of the backbones they were tuned from")
    layer_rows = [row for name, result in anatomy.items() for row in _layer_rows(name, result)]
    folder.table("layers", layer_rows, "λ, r, C and concentration ratio by model and layer, means over texts")
    folder.figure("averages", "average SOCM by model and set", averages_figure, rows)
    families: dict[str, list[LayersResult]] = {}
    for name, result in anatomy.items():
        families.setdefault(BY_NAME[name].family if name in BY_NAME else "others", []).append(result)
    for family, members in families.items():
        meaning = f"λ, r, C and the concentration ratio by layer: {family}"
        folder.figure(f"layers-{family.lower()}", meaning, layers_figure, *members)


def _write_correlation(folder: ReproductionFolder, rows: Sequence[Mapping[str, Any]], scores: Any) -> None:
    """SOCM and concentration against the scores of the models, beside the correlations that the paper reports."""
    measured = [row for row in rows if row["status"] == MEASURED]
    numbers: dict[str, dict[str, float]] = {}
    for row in measured:
        own = numbers.setdefault(row["model"], {})
        own |= {f"socm_{row['set']}": row["exact"], f"concentration_ratio_{row['set']}": row["concentration_ratio"]}
    records = ModelRecords("this reproduction", tuple(ModelRecord(name, own) for name, own in numbers.items()))
    study, reason = attempt(correlate, records, scores, controls=())
    if study is None:
        folder.notes.append(f"No correlation with the scores: {reason}")
        return
    folder.arrow("correlations", study.to_table(), "the averages against the scores of the models")
    folder.table("published-correlations", SOCM_CORRELATIONS, "what the paper reports over its 12 models")
    folder.notes += [row.sentence() for row in study.correlations]
    folder.notes += study.notes


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the README."""
    names = ("model", "set", "published", "compatible", "exact", "exact_low", "exact_high", "pairs", "status", "reason")
    return {name: row.get(name) for name in names}


# -- tables and the figure that follow from the averages ----------------------------------------------------------


def agreement(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Spearman's ρ and the mean difference between published and compatible values, for three models or more."""
    agreeing = []
    for pair_set in PAIR_SETS:
        both = [row for row in rows if row["set"] == pair_set and row["status"] == MEASURED and row["published"]]
        if len(both) < 3:
            continue
        published, compatible = (np.array([row[name] for row in both]) for name in ("published", "compatible"))
        spearman = stats.spearmanr(published, compatible).statistic
        shift = float((compatible - published).mean())
        agreeing.append({"set": pair_set, "models": len(both), "spearman": float(spearman), "mean_difference": shift})
    return agreeing


def tuning(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Does tuning lower SOCM? Each tuned model beside its backbone, measured and published."""
    measured = {(row["model"], row["set"]): row for row in rows if row["status"] == MEASURED}
    changes = []
    for (name, pair_set), row in measured.items():
        parent = BY_NAME[name].parent if name in BY_NAME else None
        if parent is None or (parent, pair_set) not in measured:
            continue
        published = BY_NAME[name].socm(pair_set) - BY_NAME[parent].socm(pair_set)
        change = row["exact"] - measured[parent, pair_set]["exact"]
        changes.append({"model": name, "backbone": parent, "set": pair_set, "change": change, "published": published})
    return changes


def _layer_rows(name: str, result: LayersResult) -> list[dict[str, Any]]:
    """Means over texts, with intervals, of what each layer does and of the state it gives."""
    rows: list[dict[str, Any]] = [{"model": name, "layer": layer + 1} for layer in range(result.layers)]
    for quantity in ("lambda", "r", "C", "concentration_ratio", "cosine"):
        means = result.means(quantity)
        first = 1 if QUANTITIES[quantity].over == "states" else 0  # state 0 is the embedding output
        for at, row in enumerate(rows, first):
            row |= {quantity: means.mean[at], f"{quantity}_low": means.low[at], f"{quantity}_high": means.high[at]}
    return rows


def averages_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Average SOCM, a panel a set and a line a model: published, compatible, and exact with its interval."""
    go = require("plotly.graph_objects", "report")
    sets = list(dict.fromkeys(row["set"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure = require("plotly.subplots", "report").make_subplots(
        rows=1, cols=len(sets), subplot_titles=sets, shared_yaxes=True, horizontal_spacing=0.04
    )
    for column, pair_set in enumerate(sets, 1):
        members = [row for row in rows if row["set"] == pair_set]
        for mark, colour, symbol in _MARKS:
            shown = [row for row in members if row.get(mark) is not None]
            figure.add_trace(
                go.Scatter(
                    x=[row[mark] for row in shown],
                    y=[short_name(row["model"]) for row in shown],
                    error_x=interval_bars(shown, "exact") if mark == "exact" else None,
                    mode="markers",
                    name=mark,
                    legendgroup=mark,
                    showlegend=column == 1,
                    marker={"size": 8 if mark == "exact" else 11, "color": colour, "symbol": symbol},
                ),
                1,
                column,
            )
        figure.update_xaxes(title_text="SOCM", rangemode="tozero", row=1, col=column)
    style(figure, title="Average SOCM", width=360 * len(sets) + 260, height=_ROW * len(models) + 190)
    figure.update_yaxes(
        categoryorder="array", categoryarray=[short_name(model) for model in reversed(models)], automargin=True
    )
    return figure
