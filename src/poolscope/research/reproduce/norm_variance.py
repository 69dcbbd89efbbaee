"""The experiment on norm and variance of contextual embeddings: Q, M and V by layer and token type.

`run` measures what the paper found. `norm_ablation` asks where it comes from: it replaces the gains and biases of the
norms, measures again, and puts them back. Behind a norm, x = gain ⊙ z + bias with ‖z‖² = d for every token. With equal
gains and no bias every token has the same norm, Q does not vary, and M and V of a type are two parts of one constant;
what varies in a real model comes from here. In a pre-norm model the tokens between the layers are sums that no norm has
touched, and Q varies with or without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from poolscope.capture.norms import REPLACEMENTS, NormLayout, Replacement, norm_layout, replaced_norms
from poolscope.charts import curves_figure
from poolscope.encoders import as_encoder
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import attention_of
from poolscope.metrics.tokens.measure import MIN_COUNT, token_statistics
from poolscope.metrics.tokens.result import TokenStatistics, norm_variance_figure, shares_figure, variation_figure
from poolscope.numbers.intervals import Estimate
from poolscope.research.correlate.model_records import NORM_PAPER
from poolscope.research.reproduce.experiment import Reproduction, ReproductionFolder, Request, attempt
from poolscope.research.reproduce.socm_paper import TEXTS as SOCM_TEXTS
from poolscope.results import Result, origin, plain, stacked, transient
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


# -- with other norms --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class NormAblation(Result):
    """What the tokens of one model do on the same texts under each replacement, and its norms as they were.

    layers: one row a replacement and layer, with the columns of `TokenStatistics.layer_table`; statistics: those behind
    them, one a replacement, in this process only.
    """

    norms: NormLayout
    replacements: tuple[Replacement, ...]
    layers: tuple[Mapping[str, Any], ...]
    statistics: tuple[TokenStatistics, ...] | None = transient()
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """The model, the layout of its norms, and how many replacements."""
        return {"model": self.norms.model, "layout": self.norms.layout, "replacements": len(self.replacements)}

    def _shares(self) -> dict[str, dict[int, Estimate]]:
        """By replacement and layer, the share of the squared length that is a direction of all tokens."""
        shares: dict[str, dict[int, Estimate]] = {}
        for row in self.layers:
            shares.setdefault(row["replacement"], {})[row["layer"]] = Estimate(row["mean_share"])
        return shares

    def seen(self) -> tuple[str, ...]:
        """What the norms do to the direction that all tokens share, in the last layer."""
        last = [f"{share[max(share)].known:.0%} ({name})" for name, share in self._shares().items()]
        return (f"In the last layer a direction of all tokens holds of their squared length: {', '.join(last)}.",)

    def figure(self) -> Any:
        """The direction that all tokens share, layer by layer, a line a replacement."""
        title = "How much of the tokens one direction holds, with other norms"
        return curves_figure(self._shares(), title=title, along="share of the squared length")

    def rows(self) -> list[dict[str, Any]]:
        """One row a replacement and layer."""
        return [dict(row) for row in self.layers]


def norm_ablation(
    model: Any,
    texts: Sequence[str],
    *,
    replacements: Sequence[Replacement] = REPLACEMENTS,
    min_count: int = MIN_COUNT,
    **options: Any,
) -> NormAblation:
    """Measure the tokens of a model under each replacement of the gains and biases of its norms, then restore them.

    All norms are replaced at once but those of queries and keys. `model` and `options` are as `as_encoder` takes them;
    a loaded model is changed for the time of a pass and is bit by bit the same afterwards, whatever happens.
    """
    encoder = as_encoder(model, **options)
    layout = norm_layout(encoder)
    statistics = []
    for replacement in replacements:
        with replaced_norms(attention_of(encoder), layout, replacement):
            statistics.append(token_statistics(encoder, texts, min_count=min_count))
    layers = [
        {"replacement": str(replacement), **row}
        for replacement, measured in zip(replacements, statistics, strict=True)
        for row in measured.layer_table().to_pylist()
    ]
    return NormAblation(
        layout, tuple(replacements), tuple(layers), tuple(statistics), provenance=plain(statistics[0].provenance)
    )
