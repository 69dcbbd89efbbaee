"""The experiments on length collapse: symptoms by length bin, σₐ by length and τ, and the temperature grid.

The paper averages over 40 data sets, which is out of reach of a single run; here one set of texts and one of pairs
carry the same figures, and the published averages stand beside them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poolscope.auditing.judges import length_verdicts
from poolscope.charts import COLOURS, GREY, style
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.pooling import own_pooling
from poolscope.errors import require
from poolscope.evaluation import RetrievalTask, compare_scores, evaluate
from poolscope.metrics.length.bins import length_bins
from poolscope.metrics.length.mechanism import length_mechanism, measure_texts
from poolscope.metrics.length.probes import repetition_probe
from poolscope.metrics.length.profile import length_profile
from poolscope.numbers.intervals import Estimate
from poolscope.repairs import PUBLISHED_GRID
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.tempscale import tempscale
from poolscope.research.correlate.model_records import LENGTH_PAPER, TEMPERATURES
from poolscope.research.reproduce.experiment import (
    Reproduction,
    ReproductionFolder,
    Request,
    attempt,
    interval_bars,
)
from poolscope.results import cells
from poolscope.texts import Texts, read_pairs, read_texts
from poolscope.texts.records import BUILTIN

# The paper names families; these checkpoints of them are the choice made here.
MODELS = {
    "ANCE": "sentence-transformers/msmarco-roberta-base-ance-firstp",
    "GTR": "sentence-transformers/gtr-t5-base",
    "GIST": "avsolatorio/GIST-small-Embedding-v0",
    "BGE": "BAAI/bge-base-en-v1.5",
    "E5-4k": "dwzhu/e5-base-4k",
}
TEXTS = {"texts": BUILTIN, "pairs": BUILTIN}
_TEXTS = 1_000
_LONGEST = 0.8  # quantile of the words of the relevant document from which on a query counts as one for a long text
_TICKS = [base * 10**power for power in range(6) for base in (1, 2, 5)]
# The tables of measured rows, and what they hold.
_MEANINGS = {
    "bins": "symptoms and mechanism by model, temperature and length bin",
    "slopes": "change of the mean cosine per doubling of the length, with floor and verdict",
    "probes": "cosine of two texts that repeat one word each, by number of repetitions",
    "grid": "retrieval quality by temperature, as differences to τ = 1",
}
# Columns of the tables by length bin, and their titles.
_LENGTH_PANELS = {
    "cosine": "mean pairwise cosine",
    "distance": "distance from the centre",
    "sigma_a": "σₐ, last layer",
    "frobenius": "‖PA‖²/(n − 1), last layer",
}
_ABOUT = f"""
Length collapse and attention temperature ({LENGTH_PAPER}). `bins`: by length bin and temperature τ the mean pairwise
cosine, the distance from the centre, σₐ of the last layer with its published bound and ‖PA‖²/(n − 1), which on real
models moves the other way. `grid`: retrieval quality by τ, for all queries and for those whose document is among the
longest fifth, as paired differences to τ = 1. The paper's own averages over 40 data sets are in `published`.
"""

Tables = dict[str, list[dict[str, Any]]]  # by name, those of _MEANINGS


def run(
    output: str | os.PathLike[str],
    request: Request,
    *,
    temperatures: Sequence[float] = PUBLISHED_GRID,
    command: str = "",
) -> Reproduction:
    """Run what can be reached and write one folder: bins, slopes, the repetition probe and the temperature grid."""
    tables: Tables = {name: [] for name in _MEANINGS}
    taus = [1.0, *sorted({*temperatures} - {1.0}, reverse=True)]  # τ = 1 first: the others are compared with it
    with ReproductionFolder(output) as folder:
        folder.notes += request.substitutes(MODELS, TEXTS)
        limit, seed = request.limit or _TEXTS, request.seed
        texts, no_texts = attempt(read_texts, request.texts["texts"], limit=limit, seed=seed)
        task, no_task = attempt(_task, request.texts["pairs"], limit, seed)

        def measure(name: str, encoder: TokenEncoder) -> dict[str, Any]:
            assert texts is not None  # otherwise no model is measured
            assert task is not None
            request.say(f"{name}: {len(texts):,} texts, {task.units:,} queries, {len(taus)} temperatures")
            for table, rows in _measure(name, encoder, texts, task, taus).items():
                tables[table] += rows
            return {}

        runs = request.measure_each(no_texts or no_task, measure)
        _write(folder, tables)
        folder.readme("Length collapse and attention temperature", about=_ABOUT, runs=runs, command=command)
    untouched = (row for row in tables["slopes"] if row["tau"] == 1)
    return folder.result(request, runs, (f"{row['model']}: {row['verdict']}" for row in untouched))


def _task(source: str, limit: int, seed: int) -> RetrievalTask:
    pairs = read_pairs(source, limit=limit, seed=seed)
    return RetrievalTask(pairs.queries.texts, pairs.documents.texts, pairs.index, name=source)


def _measure(name: str, encoder: TokenEncoder, texts: Texts, task: RetrievalTask, taus: Sequence[float]) -> Tables:
    """The rows of one model: none are kept of a model that fails on the way."""
    tables: Tables = {name: [] for name in _MEANINGS}
    reference = None
    longest = _long_queries(task)
    for tau in taus:
        with tempscale(encoder, tau):
            bins, slope = _profile(encoder, texts, tau)
            probe = repetition_probe(encoder)
        place = {"model": name, "tau": tau}
        tables["bins"] += [{**place, **row} for row in bins]
        tables["slopes"].append({**place, **slope})
        tables["probes"] += [
            {**place, "times": row.times, "tokens": row.tokens, "cosine": row.cosine.value} for row in probe.steps
        ]
        scores = evaluate(Repair(temperature=tau).apply(encoder), task).scores
        reference = scores if reference is None else reference
        for queries, chosen in (("all", np.ones(len(scores), dtype=bool)), ("longest fifth", longest)):
            change = compare_scores(reference[chosen], scores[chosen])
            row = {"queries": queries, "count": int(chosen.sum()), "ndcg": float(scores[chosen].mean())}
            tables["grid"].append({**place, **row, **cells({"change": Estimate(change.mean, change.interval)})})
    return tables


def _profile(encoder: TokenEncoder, texts: Texts, tau: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Symptoms and mechanism by bin, from one pass, and the slope; called at the temperature."""
    measured = measure_texts(encoder, texts.texts)
    own = measured.vectors
    if own_pooling(encoder).name != "mean":  # the model's vectors are no means of its tokens
        own = np.asarray(Repair(temperature=tau).apply(encoder).encode(texts.texts))
    profile = length_profile(own, measured.lengths, bins=length_bins(measured.lengths).edges)  # the published ones
    mechanism = length_mechanism(measured, profile)
    rows = [{**left, **right} for left, right in zip(profile.rows(), mechanism.rows(), strict=True)]
    numbers = {
        **cells({"slope": profile.slope}),
        "slope_floor": profile.slope.floor_high,
        "words_slope": mechanism.words_slope.value,
        "verdict": length_verdicts(profile)["length"].sentence,
    }
    return rows, numbers


def _long_queries(task: RetrievalTask) -> Any:
    """Which queries have a relevant document among the longest fifth (by words)."""
    words = np.array([len(document.split()) for document in task.documents])
    longest = np.zeros(task.units, dtype=np.int64)
    np.maximum.at(longest, task.relevant[:, 0], words[task.relevant[:, 1]])
    return longest >= np.quantile(longest, _LONGEST)


def _write(folder: ReproductionFolder, tables: Tables) -> None:
    folder.table("published", TEMPERATURES, "averages over 40 data sets before and after, as the paper reports them")
    for name, meaning in _MEANINGS.items():
        folder.table(name, tables[name], meaning)
    for model in dict.fromkeys(row["model"] for row in tables["bins"]):
        rows = [row for row in tables["bins"] if row["model"] == model]
        folder.figure(
            f"bins-{model.lower().replace('/', '-')}", f"by length and temperature: {model}", length_figure, rows
        )
    if tables["grid"]:
        folder.figure("grid", "retrieval quality by temperature", grid_figure, tables["grid"])


def length_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Cosine, distance from the centre, σₐ and ‖PA‖²/(n − 1) by length bin, a line a temperature; one model."""
    panels = {name: title for name, title in _LENGTH_PANELS.items() if any(row.get(name) is not None for row in rows)}
    figure = require("plotly.subplots", "report").make_subplots(
        rows=1, cols=len(panels), subplot_titles=list(panels.values()), horizontal_spacing=0.24 / len(panels)
    )
    taus = sorted({row["tau"] for row in rows}, reverse=True)
    for number, tau in enumerate(taus):
        members = [row for row in rows if row["tau"] == tau]
        look = {
            "text": [f"{row['bin']}: {row['texts']:,} texts" for row in members],
            "line": {"color": _shade(number, len(taus)), "width": 2.5 if tau == 1 else 1.5},
        }
        for column, name in enumerate(panels, 1):
            _add_line(figure, column, members, "mean_length", name, f"τ = {tau:g}", **look)
    style(figure, title=f"By length and temperature · {rows[0]['model']}", width=340 * len(panels) + 80, height=440)
    figure.update_xaxes(title_text="tokens", type="log", tickvals=_TICKS)
    return figure


def grid_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Change of nDCG@10 against τ = 1 by temperature, with paired intervals: all queries, and those for long texts."""
    groups = list(dict.fromkeys(row["queries"] for row in rows))
    figure = require("plotly.subplots", "report").make_subplots(rows=1, cols=len(groups), subplot_titles=groups)
    ordered = sorted(rows, key=lambda row: -row["tau"])  # the line goes from one temperature to the next
    for number, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
        for column, group in enumerate(groups, 1):
            members = [row for row in ordered if row["model"] == model and row["queries"] == group]
            look = {"line": {"color": COLOURS[number % len(COLOURS)]}}
            _add_line(figure, column, members, "tau", "change", model, **look)
    style(figure, title="Retrieval by temperature", width=430 * len(groups) + 80, height=440)
    figure.update_xaxes(title_text="τ")
    figure.update_yaxes(title_text="nDCG@10 − nDCG@10 at τ = 1", col=1)
    figure.add_hline(y=0, line={"color": GREY, "width": 1, "dash": "dot"})
    return figure


def _add_line(
    figure: Any, column: int, rows: Sequence[Mapping[str, Any]], across: str, along: str, name: str, **look: Any
) -> None:
    """A line through the rows with the intervals of its points; the legend names it once for all panels."""
    line = require("plotly.graph_objects", "report").Scatter(
        x=[row[across] for row in rows],
        y=[row[along] for row in rows],
        error_y=interval_bars(rows, along),
        mode="lines+markers",
        name=name,
        legendgroup=name,
        showlegend=column == 1,
        **look,
    )
    figure.add_trace(line, 1, column)


def _shade(number: int, count: int) -> str:
    """From dark (the first) to light."""
    share = number / max(count - 1, 1)
    low, high = (0, 60, 120), (190, 215, 235)
    return f"rgb{tuple(round(a + (b - a) * share) for a, b in zip(low, high, strict=True))}"
