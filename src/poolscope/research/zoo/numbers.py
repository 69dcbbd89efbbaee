"""The numbers of one model on one corpus, in parts, each of which can be kept and need not be measured again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from poolscope.auditing.question import Answer
from poolscope.clouds import TokenClouds
from poolscope.encoders import TokenEncoder
from poolscope.encoders.capabilities import options_of, require_capability
from poolscope.evaluation import RetrievalTask, compare_scores, evaluate, query_task, split_half_task
from poolscope.metrics.layers.measure import layers
from poolscope.metrics.length.probes import length_nulls
from poolscope.metrics.length.profile import length_profile
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.tokens.measure import token_statistics
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.numbers.items import ItemBootstrap
from poolscope.numbers.moments import text_moments
from poolscope.repairs.temperature.rules import PUBLISHED_TAU
from poolscope.repairs.temperature.tempscale import tempscale
from poolscope.research.correlate.model_records import EPS
from poolscope.stores.cache import cached_clouds
from poolscope.texts import Queries, Texts

LAYER_TEXTS, NULL_TEXTS, TRACE_BOUND = 32, 24, 2.0
_OTHER_TEXTS = "the population of texts"

# Tables of numbers: the title, and the numbers in their order with what the heading of their column says.
TABLES: dict[str, dict[str, str]] = {
    "What averaging hides": {
        "socm": "SOCM, exact",
        "socm_eps": f"SOCM, eps={EPS:g}",
        "socm_published": "SOCM, published (other texts)",
        "socm_trace": "SOCM, scale trace",
        "concentration": "concentration ratio, median",
        "above_trace_bound": f"share of texts with tr Σ > {TRACE_BOUND:g}",
        "spread_and_distance": "ρ of d_Σ with both traces, over pairs",
        "hidden_share": "hidden share",
    },
    "Search": {
        "ndcg": "nDCG@10",
        "split_half": "split-half nDCG@10",
        "temperature": f"nDCG@10 won by τ = {PUBLISHED_TAU:g}",
        "cut_off": "cut-off for 1 % false hits",
        "anisotropy": "mean cosine of two texts",
        "hub_skewness": "hub skewness",
    },
    "Length and position": {
        "length_slope": "rise of the cosine per doubling",
        "length_slope_floor": "the same by chance",
        "averaging_excess": "long texts beyond averaged chunks",
        "sigma_a": "σₐ, last layer",
        "sigma_and_length": "ρ of σₐ and length",
        "filter_and_length": "ρ of ‖PA‖²/(n − 1) and length",
        "position_lost": "lead lost from start to end",
    },
    "Token types (Q = M + V)": {
        "mean_share": "share of the mean in Q, last layer",
        "variation": "variation of Q, last layer",
        "mean_and_variance": "ρ of M and V, last layer",
        "mean_share_middle": "share of the mean in Q, middle layer",
        "variation_middle": "variation of Q, middle layer",
        "mean_and_variance_middle": "ρ of M and V, middle layer",
    },
}
COLUMNS: dict[str, str] = {name: words for table in TABLES.values() for name, words in table.items()}
# Measured over all pairs or in thirds here; the audit has them over some pairs, and by other bins.
_OWN = ("socm", "socm_trace", "length_slope", "length_slope_floor")
_THIRDS = 3


@dataclass(frozen=True)
class Material:
    """A model and the texts it is measured on."""

    encoder: TokenEncoder
    corpus: Texts
    queries: Queries | None
    seed: int
    cache: bool

    @cached_property
    def clouds(self) -> TokenClouds:
        """The clouds of the layer that the model gives out."""
        return cached_clouds(self.encoder, self.corpus, options=options_of(self.encoder), enabled=self.cache)

    @property
    def task(self) -> RetrievalTask:
        """What a search is worth: the queries, or without any one half of each text asking for the other."""
        if self.queries is None:
            return split_half_task(self.corpus)
        return query_task(self.corpus, self.queries)


def cloud_numbers(material: Material) -> dict[str, Estimate]:
    """SOCM on the three scales over all pairs, how far the tokens spread, and whether the spread explains d_Σ."""
    clouds = material.clouds
    moments = text_moments(clouds)
    measured = socm(clouds, top=1)
    numbers = {
        "socm": measured.estimate,
        "socm_eps": socm(clouds, top=1, eps=EPS).estimate,
        "socm_trace": socm(clouds, top=1, scale="trace").estimate,
        "concentration": Estimate(float(np.median(moments.traces))),
        "above_trace_bound": Estimate(float(np.mean(moments.traces > TRACE_BOUND))),
    }
    pairs = measured.pairs
    if pairs is not None:
        both = moments.traces[pairs.i] + moments.traces[pairs.j]
        numbers["spread_and_distance"] = rank_correlation(both, pairs.covariance_distance, interval=False)
    return numbers


def token_numbers(material: Material) -> dict[str, Estimate]:
    """Q = M + V of the middle and the last layer: the share of the mean, how much Q varies, how M and V go together."""
    depth = material.encoder.card.layers
    if depth is None or depth < 2:  # of a table nothing varies within a type
        last = token_statistics(material.clouds, seed=material.seed).layers[-1]
        return {"mean_share": last.estimate("mean_share")}
    wanted = {depth // 2: "_middle", depth: ""}
    encoder, options = material.encoder, options_of(material.encoder)
    states = cached_clouds(encoder, material.corpus, layers=list(wanted), options=options, enabled=material.cache)
    statistics = token_statistics(states, vocabulary=encoder, seed=material.seed)
    numbers: dict[str, Estimate] = {}
    for depth, ending in wanted.items():
        layer = statistics[depth]
        numbers |= {
            f"mean_share{ending}": layer.estimate("mean_share"),
            f"variation{ending}": layer.variation,
            f"mean_and_variance{ending}": layer.corrected.mean_and_variance.spearman,
        }
    return numbers


def layer_numbers(material: Material) -> dict[str, Estimate]:
    """σₐ of the last layer, mean over heads and some texts, and how it and ‖PA‖²/(n − 1) go with the length."""
    require_capability(material.encoder, "attention")
    order = np.argsort(material.clouds.lengths, kind="stable")
    steps = np.unique(np.linspace(0, len(order) - 1, LAYER_TEXTS).round().astype(int))  # shortest to longest, by rank
    texts = [material.corpus.texts[k] for k in order[steps]]
    result = layers(material.encoder, texts, socm_texts=0, seed=material.seed)
    means = result.means("sigma_a")
    low, high = float(means.low[-1]), float(means.high[-1])
    interval = Interval(low, high, means.level, _OTHER_TEXTS, "t") if np.isfinite(low) else None
    lengths = result.lengths.astype(np.float64)
    filtered = (result["lambda"][:, -1] / result.norms[-1] ** 2).mean(axis=-1)
    return {
        "sigma_a": Estimate(float(means.mean[-1]), interval),
        "sigma_and_length": rank_correlation(lengths, result.per_text("sigma_a")[:, -1]),
        "filter_and_length": rank_correlation(lengths, filtered),
    }


def length_numbers(material: Material) -> dict[str, Estimate]:
    """How the mean cosine of two texts rises with their length, in thirds, and what shuffled lengths give."""
    clouds = material.clouds
    profile = length_profile(text_moments(clouds).unit_means, clouds.lengths, bins=_THIRDS, seed=material.seed)
    if profile.slope.value is None:
        return {}
    return {"length_slope": profile.slope, "length_slope_floor": Estimate(profile.slope.floor_high)}


def null_numbers(material: Material) -> dict[str, Estimate]:
    """How much more alike long texts are than plain averages of their chunks, each encoded alone."""
    nulls = length_nulls(material.encoder, material.corpus.texts, documents=NULL_TEXTS, seed=material.seed)
    return {"averaging_excess": nulls.last.excess}


def search_numbers(material: Material) -> dict[str, Estimate]:
    """What a search is worth, and what the published temperature changes about it."""
    before = evaluate(material.encoder, material.task)
    numbers = {"ndcg": before.score}
    if getattr(material.encoder, "attention", None):
        with tempscale(material.encoder, PUBLISHED_TAU):
            after = evaluate(material.encoder, material.task)
        difference = compare_scores(before, after)
        numbers["temperature"] = Estimate(difference.mean, difference.interval)
    return numbers


# In the order in which they are measured: what is cheap first.
PARTS: dict[str, Callable[[Material], dict[str, Estimate]]] = {
    "clouds": cloud_numbers,
    "profile": length_numbers,
    "search": search_numbers,
    "tokens": token_numbers,
    "layers": layer_numbers,
    "length": null_numbers,
}


def audit_numbers(answers: Sequence[Answer]) -> dict[str, Estimate]:
    """The numbers of the table that the audit has measured, with intervals and floors where its answers have them."""
    numbers: dict[str, Estimate] = {}
    for answer in answers:
        for name, value in answer.numbers.items():
            if name in COLUMNS and name not in _OWN and value is not None:
                judged = answer.verdict.value is not None and np.isclose(float(value), answer.verdict.value)
                interval = answer.verdict.interval if judged else None
                numbers[name] = Estimate(float(value), answer.numbers.get(f"{name}_interval", interval))
    return numbers


def rank_correlation(x: Any, y: Any, *, interval: bool = True) -> Estimate:
    """Spearman's ρ over texts with a bootstrap interval; over pairs, which are no draws, without one.

    >>> rank_correlation(np.arange(5.0), np.array([1.0, 3.0, 5.0, 7.0, 11.0]), interval=False).value
    1.0
    """
    x, y = (np.asarray(values, dtype=np.float64) for values in (x, y))
    defined = np.isfinite(x) & np.isfinite(y)
    columns = {"x": x[defined], "y": y[defined]}
    if interval:
        bootstrap = ItemBootstrap(int(defined.sum()), answers=_OTHER_TEXTS)
        return bootstrap.correlations(columns)["x", "y"].spearman
    if defined.sum() < 3 or any(np.ptp(values) == 0 for values in columns.values()):
        return Estimate(None)
    from scipy import stats

    return Estimate(round(float(stats.spearmanr(columns["x"], columns["y"]).statistic), 12))
