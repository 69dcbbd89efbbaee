"""The experiment on norm and variance of contextual embeddings: Q, M and V by layer and token type."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from poolscope.capture.norms import norm_layout
from poolscope.encoders.base import TokenEncoder
from poolscope.metrics.tokens.measure import token_statistics
from poolscope.metrics.tokens.result import TokenStatistics, norm_variance_figure, shares_figure, variation_figure
from poolscope.research.correlate.model_records import NORM_PAPER
from poolscope.research.reproduce.experiment import Reproduction, ReproductionFolder, Request, attempt
from poolscope.research.reproduce.socm_paper import TEXTS as SOCM_TEXTS
from poolscope.results import stacked
from poolscope.texts import read_texts

# Post-norm and pre-norm models side by side: the role of the norms is one of the findings.
MODELS = {
    name: name
    for name in (
        "google-bert/bert-base-uncased",
        "FacebookAI/roberta-base",
        "openai-community/gpt2",
        "sentence-transformers/all-MiniLM-L12-v2",
    )
}
TEXTS = {"texts": SOCM_TEXTS["wiki"]}
_TEXTS = 10_000
_ABOUT = f"""
Norm and variance of contextual embeddings by token type ({NORM_PAPER}): for each layer Q = M + V of every type, and
what Q is made of over all tokens, Q = M + V_W + V_B. `findings` holds the paper's findings, each with the numbers that
speak for or against it in these models and texts.
"""


def run(output: str | os.PathLike[str], request: Request, *, command: str = "") -> Reproduction:
    """Run what can be reached and write one folder: layers, types, the findings of the paper, three figures."""
    results: dict[str, TokenStatistics] = {}
    layouts: dict[str, str] = {}
    with ReproductionFolder(output) as folder:
        folder.notes += request.substitutes(MODELS, TEXTS)
        texts, missing = attempt(read_texts, request.texts["texts"], limit=request.limit or _TEXTS, seed=request.seed)

        def measure(name: str, encoder: TokenEncoder) -> dict[str, Any]:
            assert texts is not None  # otherwise no model is measured
            request.say(f"{name}: {len(texts):,} texts")
            statistics = token_statistics(encoder, texts.texts, seed=request.seed)
            layout, unknown = attempt(norm_layout, encoder)
            results[name], layouts[name] = statistics, unknown or ("unknown" if layout is None else layout.layout)
            folder.notes += [f"{name}: {note}" for note in statistics.notes()]
            return {"tokens": statistics.coverage.tokens, "types": statistics.coverage.groups}

        runs = request.measure_each(missing, measure)
        seen = [finding for name, result in results.items() for finding in findings(name, layouts[name], result)]
        _write(folder, results, seen)
        folder.readme("Norm and variance of contextual embeddings", about=_ABOUT, runs=runs, command=command)
    return folder.result(request, runs, map(partial(_counted, seen), results))


def _counted(seen: Sequence[Mapping[str, Any]], model: str) -> str:
    """How many findings of the paper one model shows too."""
    known = [finding["holds"] for finding in seen if finding["model"] == model and finding["holds"] is not None]
    return f"{model}: {sum(known)} of {len(known)} findings of the paper are seen here too (findings.csv)."


def _write(
    folder: ReproductionFolder, results: Mapping[str, TokenStatistics], seen: Sequence[Mapping[str, Any]]
) -> None:
    if not results:
        return
    layers = stacked(*((name, result.layer_table()) for name, result in results.items()))
    types = stacked(*((name, result.to_table()) for name, result in results.items()))
    folder.arrow("layers", layers, "one row a model and layer: Q, M, V_W, V_B, variation, ρ")
    folder.arrow("types", types, "Q, M and V of every model, layer and token type", csv=False)
    folder.table("findings", seen, "the findings of the paper, with the numbers for or against each")
    shown = list(results.values())
    folder.figure("norm-variance", "M against V of the types, by layer", norm_variance_figure, *shown)
    folder.figure("shares", "M/Q, V_W/Q and V_B/Q by layer", shares_figure, *shown)
    folder.figure("variation", "variation of Q and correlations by layer", variation_figure, *shown)


def findings(name: str, layout: str, result: TokenStatistics) -> list[dict[str, Any]]:
    """What the paper found, looked for in one model: the value at both ends and in the middle layers, and whether so.

    Middle layers are the middle third of those after the embeddings. A finding about a trend compares the first layer
    after the embeddings with the last.
    """
    rows = [layer.derived() for layer in result.layers]
    inner = rows[1:] or rows
    middle = inner[len(inner) // 3 : len(inner) - len(inner) // 3] or inner

    def of(column: str, part: Sequence[Mapping[str, Any]]) -> float | None:
        values = [row[column] for row in part if row[column] is not None]
        return float(np.mean(values)) if values else None

    def finding(claim: str, column: str, holds: Any) -> dict[str, Any]:
        first, centre, last = of(column, inner[:1]), of(column, middle), of(column, inner[-1:])
        known = first is not None and centre is not None and last is not None
        row = {"model": name, "norms": layout, "finding": claim, "first": first, "middle": centre, "last": last}
        return {**row, "holds": bool(holds(first, centre, last)) if known else None}

    return [
        finding("Q varies little over types in the middle layers", "variation", lambda f, m, z: m <= min(f, z)),
        finding("M and V trade off in the middle layers", "mean_and_variance_spearman", lambda f, m, z: m < -0.5),
        finding("M/Q rises with depth", "mean_share", lambda f, m, z: z > f),
        finding("V_W/Q rises with depth", "within_share", lambda f, m, z: z > f),
        finding("V_B/Q falls with depth", "between_share", lambda f, m, z: z < f),
        finding("frequent types have a smaller M", "corrected_mean_and_frequency_spearman", lambda f, m, z: m < 0),
        finding("frequent types have a larger V", "corrected_variance_and_frequency_spearman", lambda f, m, z: m > 0),
    ]
