"""Hara et al., ACL 2026 (arXiv 2604.27398): SOCM of twelve models, the layers behind it, and quality beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import ModelError
from poolscope.lab.capture.norms import norm_layout
from poolscope.lab.papers import beyond, draw, gradients, sampled
from poolscope.lab.papers.cell import (
    Cell,
    Entry,
    Material,
    Ours,
    Outcome,
    Paper,
    Part,
    Row,
    printed_number,
)
from poolscope.lab.papers.common import layer_means, texts_of, units_of
from poolscope.lab.papers.data_sets import DATA_SETS, TYPES
from poolscope.lab.papers.length_tasks import SETS
from poolscope.lab.papers.models import SOCM_MODELS
from poolscope.lab.papers.published import SOCM
from poolscope.lab.papers.quality import model_scores, over_models, quality, quality_beside, spearman
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.plane import MARGINS, Margin, Plane, plane_figure
from poolscope.numbers.intervals import (
    Estimate,
    chosen_units,
    mean_estimate,
    pair_estimate,
    share_estimate,
)
from poolscope.numbers.moments import text_moments, within_text_cosine
from poolscope.stores.cache import cached_clouds
from poolscope.texts import Pairs, Texts

EPS = 1e-9  # added to the diagonals before each square root, as the published code does
NAMES = tuple(model.name for model in SOCM_MODELS)
PARENTS = {model.name: model.parent for model in SOCM_MODELS if model.parent is not None}
EXAMPLE = (
    'Virginia Woolf set many scenes of her novel "Night and Day" (1919) in Russell Square.',
    "Ghiz was born in Charlottetown, Prince Edward Island, to Atallah Joseph Ghiz, a Lebanese corner store owner, and "
    "Marguerite F. Ghiz (née McKarris).",
)
_POINTS = 2_000  # pairs of a scatter
_NEAR = 0.25  # d_μ of two means at a cosine of 1/2; the same share of the range of d_Σ
_AVERAGE = "Avg. SOCM"
_PARTS = ("edges", "counts")  # of a histogram


# -- kinds of measurement -----------------------------------------------------------------------------------------


def _clouds(material: Material, texts: Texts) -> TokenClouds:
    return cached_clouds(material.model(), texts, options=material.options, enabled=material.cache)


def pair_averages(material: Material) -> Outcome:
    """Average SOCM over all pairs of the texts, or over pairs that are given, with its parts, and a sample of pairs."""
    data = material.data
    if isinstance(data, Pairs):
        sides = [_clouds(material, data.queries), _clouds(material, data.documents)]
        chosen: Any = data.index
    else:
        sides, chosen = [_clouds(material, texts_of(material))], None
    exact = socm(*sides, pairs=chosen)
    compatible = socm(*sides, pairs=chosen, eps=EPS)
    traces = np.concatenate([text_moments(side).traces for side in sides])
    units = units_of(material) if len(sides) == 1 else chosen_units(len(traces))
    by_trace = socm(*sides, pairs=chosen, scale="trace")
    pairs = exact.pairs
    row: Row = {
        "socm": exact.estimate,
        "compatible": compatible.estimate,
        "socm_trace": by_trace.estimate,
        "pairs": exact.count,
        "d_mu": exact.mean_distance,
        "d_sigma": exact.covariance_distance,
        "concentration_ratio": mean_estimate(traces, units),
        "share_trace_above_2": exact.trace_check.share,
        "texts": len(traces),
        "dimension": sides[0].dimension,
    }
    if pairs is None:
        return Outcome([row], notes=("More pairs than are kept: no scatter and no paired difference.",))
    both = traces[pairs.i] + traces[pairs.j + (len(traces) - len(sides[-1]))]
    row["spread_and_distance"] = spearman(both, pairs.covariance_distance)
    near, wide = pairs.mean_distance <= _NEAR, pairs.covariance_distance > _NEAR
    row |= {
        "means_alike_clouds_differ": float((near & wide).mean()),
        "means_alike_clouds_alike": float((near & ~wide).mean()),
        "means_differ_clouds_differ": float((~near & wide).mean()),
        "means_differ_clouds_alike": float((~near & ~wide).mean()),
    }
    columns = np.column_stack([pairs.mean_distance, pairs.covariance_distance, pairs.socm])
    plane = Plane.of(columns, most=_POINTS)
    arrays: dict[str, NDArray[Any]] = {
        "i": pairs.i.astype(np.int32),
        "j": (pairs.j + (len(traces) - len(sides[-1]))).astype(np.int32),
        "unit": units.of.astype(np.int32),
        "socm": pairs.socm.astype(np.float32),
        "points": plane.pairs,
        **{f"{name} {part}": getattr(margin, part) for name, margin in plane.margins.items() for part in _PARTS},
    }
    return Outcome([row], arrays)


def example_pair(material: Material) -> Outcome:
    """The two texts of the paper: SOCM in the full space, and their tokens on two axes through the origin."""
    clouds = material.model().encode(EXAMPLE)[-1]
    exact, compatible = (socm(clouds, eps=eps).mean for eps in (0.0, EPS))
    tokens = [np.asarray(clouds[k], dtype=np.float64) for k in range(2)]
    scaled = [part / np.linalg.norm(part.mean(axis=0)) for part in tokens]
    axes = np.linalg.svd(np.concatenate(scaled), full_matrices=False)[2][:2]  # not centred, as in the paper
    rows: list[Row] = [{"socm": exact, "compatible": compatible}]
    for number, part in enumerate(scaled, 1):
        places = [*part @ axes.T, part.mean(axis=0) @ axes.T]
        rows += [
            {
                "x": float(x),
                "y": float(y),
                "of": f"text {number}" + " mean" * (k == len(part)),
                "text_number": number,
                "size": 5 + 9 * (k == len(part)),
            }
            for k, (x, y) in enumerate(places)
        ]
    return Outcome(rows)


def equal_means(material: Material) -> Outcome:
    """Two clouds with one mean and different covariances: what mean pooling cannot tell apart."""
    random = np.random.default_rng(material.seed)
    rows: list[Row] = []
    for number, widths in ((1, (0.5, 0.06)), (2, (0.06, 0.5))):
        cloud = random.normal(size=(40, 2)) * widths
        cloud += np.array([1.0, 1.0]) - cloud.mean(axis=0)
        own = {"model": "illustration", "of": f"text {number}", "text_number": number, "size": 5}
        rows += [{**own, "x": x, "y": y} for x, y in cloud.tolist()]
        rows.append({**own, "x": 1.0, "y": 1.0, "of": f"text {number} mean", "size": 14})
    return Outcome(rows)


def socm_map(material: Material) -> Outcome:
    """SOCM over the square of both distances."""
    grid = np.linspace(0, 1, 21)
    formula = SocmFormula()
    return Outcome(
        [{"d_mu": float(a), "d_sigma": float(b), "socm": float(formula.score(a, b))} for b in grid for a in grid]
    )


def trace_bound(material: Material) -> Outcome:
    """Appendix J: the trace of a cloud from its mean pair cosine, beside the measured one, and both assumptions.

    With tokens of one length, tr Σ of the unit-mean cloud is (n − 1)(1 − c)/(1 + (n − 1)c) for the mean cosine c of two
    different tokens; it stays below 2 where c ≥ 1/3.
    """
    clouds = _clouds(material, texts_of(material))
    traces = text_moments(clouds).traces
    closed, cosines, lengths = [], [], []
    for k in range(len(clouds)):
        cloud = np.asarray(clouds[k], dtype=np.float64)
        n = len(cloud)
        if n < 2:
            continue
        norms = np.linalg.norm(cloud, axis=1)
        c = (within_text_cosine(cloud) * n - 1) / (n - 1)  # of different tokens: the diagonal is taken out
        cosines.append(c)
        lengths.append(norms.std() / norms.mean())
        closed.append((k, (n - 1) * (1 - c) / (1 + (n - 1) * c)))
    places, formula = np.array([k for k, _ in closed]), np.array([value for _, value in closed])
    measured, units = traces[places], units_of(material).among(places)
    row = {
        "trace": mean_estimate(measured, units),
        "closed_form": mean_estimate(formula, units),
        "difference": mean_estimate(measured - formula, units),
        "variation_of_token_norms": mean_estimate(np.array(lengths), units),
        "mean_pair_cosine": mean_estimate(np.array(cosines), units),
        "share_cosine_above_a_third": share_estimate((np.array(cosines) >= 1 / 3).astype(np.float64), units=units),
        **_norm_parameters(material),
        "share_trace_at_most_2": share_estimate((measured <= 2).astype(np.float64), units=units),
        "texts": len(places),
    }
    sample = [
        {"cosine": float(c), "of": name, "y": float(value)}
        for c, *values in zip(cosines, measured, formula, strict=True)
        for name, value in zip(("measured", "closed form"), values, strict=True)
    ]
    return Outcome([row, *sample[: 2 * _POINTS]])


def _norm_parameters(material: Material) -> Row:
    """Assumption 1: how far gains and biases of the last norm differ over dimensions, beside the mean gain."""
    try:
        last = norm_layout(material.model()).norms[-1]
    except ModelError:
        return {}
    scale = max(float(np.abs(last.gain).mean()), 1e-300)
    return {"variation_of_gains": float(last.gain.std()) / scale, "variation_of_biases": float(last.bias.std()) / scale}


def model_card(material: Material) -> Outcome:
    """How many parameters and dimensions a model has."""
    card = material.model().card
    return Outcome([{"parameters": card.parameters, "dimension": card.dimension, "layers": card.layers}])


KINDS = {
    "scores": model_scores,
    "socm": pair_averages,
    "layers": layer_means,
    "example": example_pair,
    "illustration": equal_means,
    "map": socm_map,
    "trace bound": trace_bound,
    "card": model_card,
    **beyond.KINDS,
    **gradients.KINDS,
    **sampled.KINDS,
}


# -- what follows from several cells --------------------------------------------------------------------------------


def tuned_and_backbone(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """Each tuned model minus its backbone, paired over the same pairs, with an interval over texts or documents."""
    by_name = {cell.model: outcome for cell, outcome in outcomes.items() if outcome.arrays}
    changes = []
    for name, parent in PARENTS.items():
        if name not in by_name or parent not in by_name:
            continue
        child, backbone = by_name[name].arrays, by_name[parent].arrays
        if not (np.array_equal(child["i"], backbone["i"]) and np.array_equal(child["j"], backbone["j"])):
            continue
        difference = child["socm"].astype(np.float64) - backbone["socm"]
        units = chosen_units(len(child["unit"]), child["unit"])
        i, j = (units.of[child[side]] for side in ("i", "j"))
        change = pair_estimate(difference, i, j, unit=units.name)
        changes.append({"model": name, "backbone": parent, **_flat("tuned_minus_backbone", change)})
    return changes


def _flat(name: str, estimate: Estimate) -> Row:
    interval = estimate.interval
    ends = {} if interval is None else {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {name: estimate.value, **ends}


def _plane_rows(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """Pairs that are drawn, and the histograms of all pairs."""
    found: list[Row] = []
    for cell, outcome in outcomes.items():
        if "points" not in outcome.arrays:
            continue
        place = {"model": cell.model, "data": cell.data}
        found += [{**place, "x": x, "y": y, "SOCM": value} for x, y, value in outcome.arrays["points"].tolist()]
        for name in MARGINS:
            edges, counts = (outcome.arrays[f"{name} {part}"].tolist() for part in _PARTS)
            bins = zip(edges, edges[1:], counts, strict=False)
            found += [{**place, "margin": name, "from": low, "to": high, "count": count} for low, high, count in bins]
    return found


def _draw_planes(rows: Sequence[Row]) -> Any:
    planes = {}
    for model in dict.fromkeys(row["model"] for row in rows if "SOCM" in row):
        own = [row for row in rows if row["model"] == model]
        pairs = np.array([[row[name] for name in ("x", "y", "SOCM")] for row in own if "SOCM" in row])
        margins = []
        for name in MARGINS:
            bins = [row for row in own if row.get("margin") == name]
            edges = np.array([*(row["from"] for row in bins), bins[-1]["to"]])
            margins.append(Margin(edges, np.array([row["count"] for row in bins])))
        planes[model] = Plane(pairs, *margins)
    return plane_figure(planes, title="Pairs of texts")


def _by_type(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """The average of each model on each type of task, and how far types move it beside models."""
    found = [
        {"model": row["model"], "type": DATA_SETS[row["data"]].type, "type_socm": row["socm"]}
        for row in rows
        if "compatible" in row
    ]
    table = {(row["model"], row["type"]): row["type_socm"] for row in found}
    models, types = (list(dict.fromkeys(key[place] for key in table)) for place in (0, 1))
    if len(table) == len(models) * len(types) and len(models) > 1 and len(types) > 1:
        values = np.array([[table[model, kind] for kind in types] for model in models])
        spread = {"between_models": float(values.mean(axis=1).std()), "between_types": float(values.mean(axis=0).std())}
        found.append({"models": len(models), "types": len(types), **spread})
    return found


def _cases(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """The four cases of §4.1 as a table of two by two."""
    return [
        {"model": row["model"], "means": means, "clouds": clouds, "share": row[f"means_{means}_clouds_{clouds}"]}
        for row in rows
        if "means_alike_clouds_differ" in row
        for means in ("alike", "differ")
        for clouds in ("alike", "differ")
    ]


# -- beside what is printed, and drawings -----------------------------------------------------------------------------


def _averages(rows: Sequence[Row]) -> Iterable[Ours]:
    """What the published code computes, with its eps, in place of the exact value."""
    return [Ours.of(row, row["model"], _AVERAGE, "compatible") for row in rows if "compatible" in row]


def _draw_averages(table: str, rows: Sequence[Row]) -> Any:
    shown = [
        {**row, "printed": printed_number(SOCM, table, row["model"], _AVERAGE)} for row in rows if "compatible" in row
    ]
    marks = {"socm": "exact", "compatible": f"with eps = {EPS:g}", "printed": "printed"}
    return draw.dots(shown, marks=marks, title="Average SOCM", across="SOCM")


_ANATOMY = {"lambda": "(a) λ", "r": "(b) r", "C": "(c) C", "concentration_ratio": "(d) S(X)/‖μ(X)‖²"}
_COSINE = {"cosine": "1/n² Σ cos(xⱼ, xₖ)"}


def _two_models(number: int, models: tuple[str, str], panels: Mapping[str, str], what: str) -> Entry:
    title = f"{what}: {models[0]} and {models[1]}"
    part = Part("layers", models, ("wiki",))
    lines = partial(draw.lines, x="layer", panels=panels, title=what, across="layer")
    return Entry(f"figure-{number}", title, (part,), draw=lines)


def _table(number: int, data: str, title: str) -> Entry:
    return Entry(
        f"table-{number}",
        title,
        (Part("socm", NAMES, (data,)),),
        draw=partial(_draw_averages, f"Table {number}"),
        compare=_averages,
        follow=tuned_and_backbone,
        differs="The draw of texts is ours: the paper prints none of its own. The exact value is beside that with eps.",
    )


def _parameters(rows: Sequence[Row]) -> Iterable[Ours]:
    return [Ours.of(row, row["model"], "Params (M)", "parameters", scale=1e-6) for row in rows if row.get("parameters")]


_PAIRS = (("GTE base", "BERT"), ("E5 base", "BERT"), ("Unsup-SimCSE-mean", "BERT"))
_SMALL = (("GTE small", "MiniLM"), ("E5 small", "MiniLM"), ("all-MiniLM-L12-v2", "MiniLM"))
_CONCENTRATION, _WITHIN = "What every layer does to the clouds", "Cosine of the tokens of a text"
_WIKI = Part("socm", NAMES, ("wiki",))

PAPER = Paper(
    SOCM,
    "Why mean pooling works: second-order collapse in text embeddings",
    SOCM_MODELS,
    DATA_SETS,
    KINDS,
    (
        Entry(
            "figure-1",
            "Two clouds with one mean; two texts in BERT and in GTE",
            (Part("illustration"), Part("example", ("BERT", "GTE base"))),
            draw=partial(
                draw.points,
                x="x",
                y="y",
                by="of",
                colour="text_number",
                title="Tokens and means",
                across="axis 1",
                along="axis 2 (not centred)",
            ),
            compare=lambda rows: [
                Ours.of(row, row["model"], "SOCM", "compatible") for row in rows if "compatible" in row
            ],
        ),
        Entry(
            "figure-2",
            "The four cases: means alike or not, clouds alike or not, counted",
            (_WIKI,),
            follow=_cases,
            draw=partial(
                draw.heat,
                x="means",
                y="clouds",
                value="share",
                panel="model",
                title="Share of pairs by case",
                across="means",
                along="clouds",
                words="share",
            ),
            differs=f"The paper draws the cases and counts none. Alike means a distance of {_NEAR} or less.",
        ),
        Entry(
            "figure-3",
            "SOCM for every d_μ and d_Σ",
            (Part("map"),),
            draw=partial(
                draw.heat,
                x="d_mu",
                y="d_sigma",
                value="socm",
                title="SOCM = (1 − d<sub>μ</sub>) d<sub>Σ</sub>",
                across="d<sub>μ</sub>",
                along="d<sub>Σ</sub>",
                words="SOCM",
            ),
        ),
        _two_models(4, _PAIRS[0], _ANATOMY, _CONCENTRATION),
        *(_two_models(6 + k, pair, _ANATOMY, _CONCENTRATION) for k, pair in enumerate((*_PAIRS[1:], *_SMALL))),
        *(_two_models(11 + k, pair, _COSINE, _WITHIN) for k, pair in enumerate((*_PAIRS, *_SMALL))),
        Entry(
            "figure-5",
            "Average SOCM and MTEB(eng, v2)",
            (_WIKI, Part("scores", (), ("scores",))),
            follow=quality,
            compare=quality_beside,
            draw=partial(
                draw.points,
                x="socm",
                y="quality",
                by="family",
                panel="",
                size=11,
                title="SOCM and quality",
                across="average SOCM",
                along="MTEB(eng, v2)",
            ),
        ),
        Entry(
            "figure-17",
            "d_μ and d_Σ of pairs of texts, coloured by SOCM",
            (_WIKI,),
            follow=_plane_rows,
            draw=_draw_planes,
            differs=f"{_POINTS:,} pairs a model are drawn as points; the histograms are of all.",
        ),
        _table(1, "wiki", "Average SOCM on Wikipedia sentences"),
        Entry(
            "table-2",
            "SOCM, concentration and d_μ as predictors of quality",
            (_WIKI, Part("scores", (), ("scores",))),
            follow=quality,
            compare=quality_beside,
            draw=partial(
                draw.dots,
                marks={"rho": "ours"},
                by=("predictor",),
                title="Correlation with quality",
                across="Spearman's ρ",
            ),
        ),
        _table(5, "marco", "Average SOCM on MS MARCO passages"),
        _table(6, "hard", "Average SOCM of queries and hard negatives"),
        Entry(
            "claims",
            "Over models: does SOCM go by concentration, and does tuning lower it?",
            (_WIKI,),
            follow=lambda rows, outcomes: [*over_models(rows), *tuned_and_backbone(rows, outcomes)],
            draw=partial(
                draw.points,
                x="concentration_ratio",
                y="socm",
                by="model",
                panel="",
                size=11,
                title="Concentration and SOCM",
                across="mean concentration ratio",
                along="average SOCM",
            ),
        ),
        Entry("table-4", "Models and their parameters", (Part("card", NAMES),), compare=_parameters),
        Entry(
            "appendix-j",
            "The trace of a cloud from the mean cosine of its tokens, and both assumptions",
            (Part("trace bound", NAMES, ("wiki",)),),
            draw=partial(
                draw.points,
                x="cosine",
                y="y",
                by="of",
                title="Trace of the covariance at unit mean",
                across="mean cosine of two tokens",
                along="tr Σ",
            ),
        ),
        Entry(
            "distances",
            "Other distances of the same covariances: does the order of the pairs change?",
            (Part("distances", NAMES, ("wiki",)),),
            draw=partial(
                draw.bars,
                x="distance",
                y="collapse_order_as_bures",
                by=("model",),
                title="Order of the pairs, beside that by Bures",
                across="distance",
                along="Spearman's ρ",
            ),
            differs="The paper has one distance. Log-Euclidean and Jeffreys need a ridge: 1% of the mean eigenvalue.",
        ),
        Entry(
            "moments",
            "Third and fourth moments of the tokens of a text",
            (Part("moments", NAMES, ("wiki",)),),
            draw=partial(
                draw.dots,
                marks={"value": "tokens", "same_covariance": "lists at random, same mean and covariance"},
                by=("model", "moment"),
                title="Beyond second order",
                across="moment along the first principal axes",
            ),
            differs="The paper names this as its limit.",
        ),
        Entry(
            "poolings",
            "SOCM of weighted poolings",
            (Part("poolings", NAMES, ("wiki",)),),
            draw=partial(
                draw.dots, marks={"socm": "SOCM"}, by=("model", "pooling"), title="Weighted poolings", across="SOCM"
            ),
        ),
        Entry(
            "distributions",
            "Texts as distributions of their vectors: draws of dropout, words left out",
            (Part("distributions", NAMES, ("wiki",)),),
            draw=partial(
                draw.dots,
                marks={"socm": "SOCM"},
                by=("model", "samples"),
                title="Clouds of tokens and of sampled vectors",
                across="average SOCM",
            ),
            differs=f"The paper names Sen2Pro and measures nothing of it. {sampled.PASSES} vectors a text and a way.",
        ),
        Entry(
            "cost",
            "The exact transport distance and that of Gaussians: seconds and values",
            (Part("cost", NAMES, ("wiki",)),),
            draw=partial(
                draw.points,
                x="tokens",
                y="exact_seconds",
                title="Seconds of a linear programme",
                across="tokens of a text",
                along="seconds a pair",
                logarithmic=True,
            ),
        ),
        Entry(
            "tasks",
            "Average SOCM by type of task",
            (Part("socm", NAMES, tuple(SETS[kind][0] for kind in TYPES)),),
            follow=_by_type,
            draw=partial(
                draw.bars, x="type", y="type_socm", by=("model",), title="SOCM by task", across="type", along="SOCM"
            ),
            differs="The paper has one corpus. One data set a type of task, of those that the paper on length names.",
        ),
        Entry(
            "pull",
            "Does the contrastive loss itself ask for concentration?",
            (Part("contrastive pull", NAMES, ("wiki",)),),
            draw=partial(
                draw.dots,
                marks={"ratio": "S/‖μ‖²", "spread": "S", "square": "‖μ‖²"},
                by=("model", "pairs"),
                title="Pull of the contrastive loss",
                across="change of the logarithm per unit of loss",
            ),
            differs="The paper argues it (§6.2) and leaves the theory open. Pairs are halves of one text.",
        ),
        Entry(
            "surrogates",
            "Tokens of the same mean and covariance in a search by all tokens",
            (Part("surrogates", NAMES, ("nfcorpus",)),),
            draw=partial(
                draw.dots,
                marks={"ndcg": "nDCG@10"},
                by=("model", "tokens"),
                title="Search by MaxSim",
                across="nDCG@10",
            ),
            differs="The reviews of the paper ask for it; a search by means is the same by construction.",
        ),
        Entry(
            "controls",
            "SOCM with concentration matched or at random, and with words shuffled; and quality over models",
            (Part("controls", NAMES, ("wiki",)), Part("scores", (), ("scores",))),
            follow=beyond.controls_and_quality,
            draw=partial(
                draw.dots, marks={"socm": "SOCM"}, by=("model", "control"), title="Controls", across="average SOCM"
            ),
            differs="The reviews of the paper ask for it.",
        ),
    ),
)
