"""Yamagiwa and Shimodaira (arXiv 2409.11253): norm and variance of contextual embeddings by token type and layer.

The text that was read has no numbered figures; its four key results and its checks stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from poolscope.lab.capture.norms import Replacement, norm_layout
from poolscope.lab.norm_ablation import norm_ablation
from poolscope.lab.papers import clusters, draw
from poolscope.lab.papers.cell import Cell, Entry, Kind, Material, Outcome, Paper, Part, Row
from poolscope.lab.papers.common import texts_of
from poolscope.lab.papers.data_sets import DATA_SETS
from poolscope.lab.papers.models import MULTILINGUAL_MODELS, NORM_MODELS, RMS_MODELS
from poolscope.lab.papers.published import NORMS
from poolscope.lab.papers.quality import permuted, spearman
from poolscope.lab.tokens.measure import token_statistics

NAMES = tuple(model.name for model in NORM_MODELS)
MULTILINGUAL = tuple(model.name for model in MULTILINGUAL_MODELS)
RMS = tuple(model.name for model in RMS_MODELS)
_TYPES = 400  # types a layer whose M and V are drawn


def types_by_layer(material: Material) -> Outcome:
    """Q = M + V by layer: variation of Q over types, ρ of M and V, shares of M, V_W and V_B, cosine; and some types."""
    encoder = material.model()
    statistics = token_statistics(encoder, texts_of(material).texts, seed=material.seed)
    layout = norm_layout(encoder).layout
    rows: list[Row] = [{**row, "norms": layout} for row in statistics.layer_table().to_pylist()]
    shown = sorted({0, len(statistics.layers) // 2, len(statistics.layers) - 1})
    table = statistics.to_table().to_pylist()
    for place in shown:
        number = statistics.layers[place].layer
        own = [row for row in table if row["layer"] == number][:_TYPES]
        rows += [{"at": f"layer {number}", "M": row["norm_of_mean"], "V": row["variance"]} for row in own]
    return Outcome(rows, notes=tuple(statistics.notes()))


def other_norms(material: Material) -> Outcome:
    """Q by layer with the gains or biases of the norms replaced: which of the two makes Q vary?"""
    result = norm_ablation(material.model(), texts_of(material).texts)
    return Outcome([dict(row) for row in result.layers])


def swept_norms(material: Material) -> Outcome:
    """Q by layer with the deviation of the gains swept from none to double, and without norms at all."""
    replacements = [*(Replacement(gain=share) for share in _SWEPT), Replacement(removed=True)]
    result = norm_ablation(material.model(), texts_of(material).texts, replacements=replacements)
    shares = {str(each): each.gain for each in replacements}
    return Outcome([{**row, "share": shares[row["replacement"]]} for row in result.layers])


def norm_parameters(material: Material) -> Outcome:
    """Gains and biases of the last norm of each layer, and the Q that they would give to a token of equal parts.

    Behind a norm x = gain ⊙ z + bias, where z has mean 0 and d as its squared length: with z even over dimensions
    Q = Σ gain² + Σ bias². The measured Q stands beside it.
    """
    encoder = material.model()
    statistics = token_statistics(encoder, texts_of(material).texts, seed=material.seed)
    ends = {layer: norm for norm in norm_layout(encoder).norms for layer in norm.layers}
    rows: list[Row] = []
    for row in statistics.layer_table().to_pylist():
        norm = ends.get(row["layer"])
        if norm is not None:
            even = float((norm.gain**2).sum() + (norm.bias**2).sum())
            rows.append({name: row[name] for name in ("layer", "mean_square", "variation")} | {"norm": norm.name})
            rows[-1] |= {"Q_of_even_tokens": even, **{name: norm.derived()[name] for name in _SHOWN}}
    return Outcome(rows)


_SHOWN = ("gain_mean", "gain_std", "bias_mean", "bias_std")


_SWEPT = (0.0, 0.5, 1.0, 1.5, 2.0)
KINDS: dict[str, Kind] = {
    "types": types_by_layer,
    "norms": other_norms,
    "swept": swept_norms,
    "parameters": norm_parameters,
    **clusters.KINDS,
}
_PARTS = {"mean_square": "Q", "norm_of_mean": "M", "variance": "V"}
_SHARES = {"mean_share": "M(X)/Q", "within_share": "V_W/Q", "between_share": "V_B/Q"}
_PART = Part("types", NAMES, ("bookcorpus",))


def findings(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """Each finding of the paper, in each model: the value at both ends and in the middle layers, and whether it holds.

    Middle layers are the middle third of those after the embeddings. A finding about a trend compares the first layer
    after the embeddings with the last.
    """
    found: list[Row] = []
    for model in dict.fromkeys(row["model"] for row in rows):
        layers = [row for row in rows if row["model"] == model and "variation" in row]
        inner = layers[1:] or layers
        middle = inner[len(inner) // 3 : len(inner) - len(inner) // 3] or inner
        for claim, column, holds in _FINDINGS:
            parts = [_mean_of(part, column) for part in (inner[:1], middle, inner[-1:])]
            known = None not in parts
            row: Row = {"model": model, "finding": claim, **dict(zip(("first", "middle", "last"), parts, strict=True))}
            found.append({**row, "holds": bool(holds(*parts)) if known else None, **_trend(inner, column)})
    return found


def _trend(rows: Sequence[Row], column: str) -> Row:
    """Spearman's ρ of the layer and the value, with the share of orders of the layers that give as much."""
    known = [(row["layer"], row[column]) for row in rows if row.get(column) is not None]
    if len(known) < 4:
        return {}
    layers, values = np.array(known, dtype=np.float64).T
    return {"trend": spearman(layers, values), "trend_p": permuted(layers, values)}


def _mean_of(rows: Sequence[Row], column: str) -> float | None:
    values = [row[column] for row in rows if row.get(column) is not None]
    return float(np.mean(values)) if values else None


_FINDINGS: tuple[tuple[str, str, Callable[..., bool]], ...] = (
    ("Q varies little over types in the middle layers", "variation", lambda f, m, z: m <= min(f, z)),
    ("M and V trade off in the middle layers", "mean_and_variance_spearman", lambda f, m, z: m < -0.5),
    ("M(X) rises with depth", "norm_of_mean", lambda f, m, z: z > f),
    ("M/Q rises with depth", "mean_share", lambda f, m, z: z > f),
    ("V_W/Q rises with depth", "within_share", lambda f, m, z: z > f),
    ("V_B falls with depth", "between", lambda f, m, z: z < f),
    ("V_B/Q falls with depth", "between_share", lambda f, m, z: z < f),
    ("frequent types have a smaller M", "corrected_mean_and_frequency_spearman", lambda f, m, z: m < 0),
    ("frequent types have a larger V", "corrected_variance_and_frequency_spearman", lambda f, m, z: m > 0),
)


def _lines(panels: dict[str, str], title: str, by: Sequence[str], rows: Sequence[Row]) -> Any:
    return draw.lines(rows, x="layer", panels=panels, by=by, title=title, across="layer")


def _draw_labels(title: str, rows: Sequence[Row]) -> Any:
    marks = {"variation": "variation of Q", "mean_and_variance": "ρ of M and V"}
    return draw.dots(rows, marks=marks, by=("model", "label"), title=title, across="last layer")


def _by_layer(key: str, title: str, panels: dict[str, str]) -> Entry:
    return Entry(key, title, (_PART,), draw=partial(_lines, panels, title, ("model",)))


PAPER = Paper(
    NORMS,
    "Norm of mean contextualized embeddings determines their variance",
    (*NORM_MODELS, *MULTILINGUAL_MODELS, *RMS_MODELS),
    DATA_SETS,
    KINDS,
    (
        _by_layer(
            "result-1", "Q = M + V of all tokens, by layer", {"mean_square": "Q", "norm_of_mean": "M", "variance": "V"}
        ),
        _by_layer("result-2", "Variation of Q over token types, by layer", {"variation": "variation of Q"}),
        Entry(
            "result-3",
            "M against V of token types in the first, the middle and the last layer",
            (_PART,),
            draw=partial(draw.points, x="M", y="V", by="at", title="M and V of types", across="M", along="V"),
        ),
        _by_layer(
            "result-3-correlation",
            "Correlation of M and V over types, by layer",
            {"mean_and_variance_spearman": "Spearman's ρ of M and V"},
        ),
        _by_layer("result-4", "What Q is made of, by layer", _SHARES),
        Entry("findings", "Findings of the paper, each with the number for or against it", (_PART,), follow=findings),
        _by_layer(
            "question-4",
            "Anisotropy by norm and by cosine, by layer",
            {"mean_share": "M(X)/Q", "mean_cosine": "mean cosine of two tokens"},
        ),
        Entry(
            "mechanism-1",
            "Variation of Q with the norms changed, by layer",
            (Part("norms", NAMES, ("bookcorpus",)),),
            draw=partial(
                _lines,
                {"variation": "variation of Q", "mean_share": "M(X)/Q"},
                "With other norms",
                ("model", "replacement"),
            ),
        ),
        Entry(
            "mechanism-2",
            "Variation of Q while the gains are swept, and without norms",
            (Part("swept", NAMES, ("bookcorpus",)),),
            draw=partial(_lines, {"variation": "variation of Q"}, "Swept and removed norms", ("model", "replacement")),
        ),
        Entry(
            "check-3",
            "Clusters other than types: what they hold of the variance, and how valid they are",
            (Part("clusters", NAMES, ("bookcorpus",)),),
            draw=partial(
                _lines,
                {"between_share": "V_B/Q", "silhouette": "silhouette", "rand_with_types": "adjusted Rand with types"},
                "Clusters of tokens",
                ("model", "clusters"),
            ),
        ),
        Entry(
            "question-1",
            "Token types within each language, and the variance between languages",
            (Part("types by label", (*MULTILINGUAL, *NAMES), ("languages",)),),
            draw=partial(_draw_labels, "Types within languages"),
            differs="The paper has English models alone. Every language has its own types; layers: the last.",
        ),
        Entry(
            "question-3",
            "Gains and biases of the last norm of a layer, beside Q",
            (Part("parameters", NAMES, ("bookcorpus",)),),
            draw=partial(
                _lines,
                {"mean_square": "Q", "Q_of_even_tokens": "Σ gain² + Σ bias²", "gain_std": "deviation of the gains"},
                "Parameters of norms",
                ("model",),
            ),
        ),
        Entry(
            "check-2",
            "Token types within each style of text; post-norm, pre-norm and RMSNorm models",
            (Part("types by label", (*NAMES, *RMS), ("styles",)),),
            draw=partial(_draw_labels, "Types within styles"),
            differs="Styles are the four sources of a corpus of formality. Models without norms: mechanism-2.",
        ),
        Entry(
            "check-3-meaning",
            "The label of a text, told from the clusters of its tokens",
            (Part("meaning", NAMES, ("imdb",)),),
            draw=partial(
                draw.bars,
                x="clusters",
                y="accuracy",
                by=("model",),
                title="Do clusters hold meaning?",
                across="clusters",
                along="accuracy",
            ),
        ),
        Entry(
            "question-2",
            "Pieces, words as means of pieces, and characters",
            (Part("levels", NAMES, ("bookcorpus",)),),
            draw=partial(
                draw.dots,
                marks={"variation": "variation of Q", "mean_and_variance": "ρ of M and V"},
                by=("model", "level"),
                title="Pieces and words",
                across="last layer",
            ),
        ),
    ),
)
