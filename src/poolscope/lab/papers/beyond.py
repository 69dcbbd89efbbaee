"""What would settle the SOCM paper: other distances, higher moments, other poolings, and controls that keep the means.

Its critics ask whether SOCM says more than concentration, and whether its conclusions hang on the distance that was
chosen. Each control changes the clouds of a model and leaves every mean as it is, so that whatever follows is not the
mean's doing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.evaluation import RetrievalTask, compare_scores
from poolscope.lab.capture.received import attention_received
from poolscope.lab.interventions import match_traces, rotate_deviations, scale_each
from poolscope.lab.papers.cell import Cell, Kind, Material, Outcome, Row
from poolscope.lab.papers.common import texts_of, units_of
from poolscope.lab.papers.quality import correlations, points, spearman
from poolscope.lab.transport import exact_wasserstein, surrogate_factor
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import socm_pair
from poolscope.numbers.intervals import Estimate, mean_estimate, pair_estimate
from poolscope.numbers.maxsim import maxsim
from poolscope.numbers.moments import unit_mean_factor
from poolscope.numbers.pooling import MeanPooling, SifPooling
from poolscope.numbers.ranking import rank_scores, unit_rows
from poolscope.stores.cache import cached_clouds

Array = NDArray[np.float64]
_PAIRS = 200  # pairs that are looked at one by one
_COSTLY = 60  # pairs whose exact distance is timed
_RIDGE = 0.01  # of the mean eigenvalue, where a distance needs all of them above 0
_AXES = 3  # principal axes of a text whose third and fourth moments are taken
_TARGET = 1.0  # the concentration ratio to which all texts of all models are scaled


def _clouds(material: Material) -> TokenClouds:
    return cached_clouds(material.model(), texts_of(material), options=material.options, enabled=material.cache)


def _drawn(material: Material, count: int) -> list[tuple[int, int]]:
    """Different pairs of texts, at random."""
    i, j = np.triu_indices(count, 1)
    chosen = np.random.default_rng(material.seed).permutation(len(i))[:_PAIRS]
    return [(int(i[k]), int(j[k])) for k in chosen]


def _over_pairs(material: Material, pairs: Sequence[tuple[int, int]], values: Array) -> Estimate:
    """The mean over drawn pairs, which are not independent where they share a text or its document."""
    units = units_of(material)
    i, j = (units.of[np.array(side, dtype=np.int64)] for side in zip(*pairs, strict=True))
    return pair_estimate(values, i, j, unit=units.name)


# -- other distances of covariances -------------------------------------------------------------------------------


def covariance_distances(F: Array, G: Array) -> dict[str, float]:
    """Bures, Frobenius, log-Euclidean and Jeffreys distance of FᵀF and GᵀG, in the space that both span.

    >>> one = covariance_distances(np.eye(2), 2 * np.eye(2))
    >>> round(one["bures"], 6), round(one["frobenius"], 6)
    (2.0, 4.242641)
    """
    axes = np.linalg.svd(np.concatenate([F, G]), full_matrices=False)[2]
    left, right = (factor @ axes.T for factor in (F, G))
    first, second = left.T @ left, right.T @ right
    crossed = np.linalg.svd(left @ right.T, compute_uv=False).sum()
    ridge = _RIDGE * (np.trace(first) + np.trace(second)) / (2 * len(axes)) * np.eye(len(axes))
    logs, inverses = [], []
    for matrix in (first + ridge, second + ridge):
        values, vectors = np.linalg.eigh(matrix)
        logs.append((vectors * np.log(values)) @ vectors.T)
        inverses.append((vectors / values) @ vectors.T)
    jeffreys = np.trace(inverses[1] @ (first + ridge)) + np.trace(inverses[0] @ (second + ridge)) - 2 * len(axes)
    return {
        "bures": float(np.trace(first) + np.trace(second) - 2 * crossed),
        "frobenius": float(np.linalg.norm(first - second)),
        "log-Euclidean": float(np.linalg.norm(logs[0] - logs[1])),
        "Jeffreys": float(jeffreys / 2),
    }


def other_distances(material: Material) -> Outcome:
    """Do conclusions hang on Bures? Other distances of the same covariances, and the order of the pairs by each."""
    clouds = _clouds(material)
    values: dict[str, list[float]] = {}
    pairs = _drawn(material, len(clouds))
    for i, j in pairs:
        (u, F), (v, G) = unit_mean_factor(clouds[i]), unit_mean_factor(clouds[j])
        values.setdefault("d_mu", []).append(float((u - v) @ (u - v)) / 4)
        for name, distance in covariance_distances(F, G).items():
            values.setdefault(name, []).append(distance)
    near = 1 - np.array(values.pop("d_mu"))
    columns = {name: np.array(own) for name, own in values.items()}
    return Outcome(
        [
            {
                "distance": name,
                "mean": _over_pairs(material, pairs, own),
                "order_as_bures": spearman(own, columns["bures"]),
                "collapse_order_as_bures": spearman(near * own, near * columns["bures"]),
            }
            for name, own in columns.items()
        ]
    )


# -- beyond second order ------------------------------------------------------------------------------------------


def axis_moments(factor: Array) -> tuple[float, float]:
    """|skewness| and excess kurtosis of the tokens along the first principal axes of a text, means over axes."""
    along = np.linalg.svd(factor, full_matrices=False)
    scores = along[0][:, :_AXES] * along[1][:_AXES]
    scaled = scores / np.maximum(scores.std(axis=0), 1e-300)
    return float(np.abs((scaled**3).mean(axis=0)).mean()), float((scaled**4).mean(axis=0).mean() - 3)


def higher_moments(material: Material) -> Outcome:
    """Third and fourth moments of the tokens, beside lists at random with the same mean and covariance."""
    clouds, units = _clouds(material), units_of(material)
    factors = {k: unit_mean_factor(clouds[k])[1] for k in range(len(clouds)) if len(clouds[k]) > _AXES + 1}
    fresh = {k: surrogate_factor(F, np.random.default_rng([material.seed, k])) for k, F in factors.items()}
    real, chance = (np.array([axis_moments(F) for F in own.values()]) for own in (factors, fresh))
    units = units.among(np.array(list(factors), dtype=np.int64))
    return Outcome(
        [
            {
                "moment": name,
                "value": mean_estimate(real[:, k], units),
                "same_covariance": mean_estimate(chance[:, k], units),
            }
            for k, name in enumerate(("third, |skewness|", "fourth, excess kurtosis"))
        ]
    )


# -- other poolings -----------------------------------------------------------------------------------------------


def weighted_poolings(material: Material) -> Outcome:
    """SOCM where the pooling weighs its tokens: by inverse frequency (SIF), by their length, by their place."""
    clouds = _clouds(material)
    pairs = _drawn(material, len(clouds))
    ways: dict[str, Any] = {
        "mean": lambda k: None,
        "norm": lambda k: np.linalg.norm(clouds[k], axis=1),
        "place 1/i": lambda k: 1 / np.arange(1, len(clouds[k]) + 1),
    }
    notes: tuple[str, ...] = ()
    try:
        sif = SifPooling().fit(clouds)
        ways["SIF"] = lambda k: sif.weights(np.asarray(clouds.token_ids(k)))
    except InputError as error:
        notes = (f"SIF was not tried: {error}",)
    rows = []
    for name, weights in ways.items():
        scored = [socm_pair(clouds[i], clouds[j], x_weights=weights(i), y_weights=weights(j)) for i, j in pairs]
        values = np.array([each.socm for each in scored])
        rows.append(
            {
                "pooling": name,
                "socm": _over_pairs(material, pairs, values),
                "d_mu": float(np.mean([each.mean_distance for each in scored])),
                "d_sigma": float(np.mean([each.covariance_distance for each in scored])),
            }
        )
    return Outcome([*rows, *_other_vectors(material, clouds, pairs)], notes=notes)


def _other_vectors(material: Material, clouds: TokenClouds, pairs: Sequence[tuple[int, int]]) -> list[Row]:
    """SOCM of poolings that are no mean: (1 − d) d_Σ, with the distance d of their own vectors in place of d_μ."""
    received = attention_received(material.model(), texts_of(material).texts)
    ways: dict[str, Any] = {
        "first token": lambda k: clouds[k][0],
        "max": lambda k: np.max(clouds[k], axis=0),
        "attention": lambda k: np.average(clouds[k], axis=0, weights=received[k]),
    }
    covariances = np.array([socm_pair(clouds[i], clouds[j]).covariance_distance for i, j in pairs])
    rows: list[Row] = []
    for name, vector in ways.items():
        units = {k: np.asarray(vector(k), dtype=np.float64) for pair in pairs for k in pair}
        units = {k: own / max(float(np.linalg.norm(own)), 1e-300) for k, own in units.items()}
        apart = np.array([((units[i] - units[j]) ** 2).sum() / 4 for i, j in pairs])
        value = _over_pairs(material, pairs, (1 - apart) * covariances)
        rows.append({"pooling": name, "socm": value, "d_mu": float(apart.mean()), "d_sigma": float(covariances.mean())})
    return rows


def exact_and_gaussian(material: Material) -> Outcome:
    """The exact transport distance by a linear programme beside that of Gaussians: seconds a pair, and both values."""
    clouds = _clouds(material)
    rows: list[Row] = []
    pairs = _drawn(material, len(clouds))[:_COSTLY]
    for i, j in pairs:
        began = time.perf_counter()
        gaussian = socm_pair(clouds[i], clouds[j]).squared_wasserstein
        between = time.perf_counter()
        exact = exact_wasserstein(clouds[i], clouds[j])
        seconds = {"gaussian_seconds": between - began, "exact_seconds": time.perf_counter() - between}
        tokens = float(np.sqrt(len(clouds[i]) * len(clouds[j])))
        rows.append({"tokens": tokens, "gaussian": gaussian, "exact": exact, **seconds})
    slower = np.array([row["exact_seconds"] / row["gaussian_seconds"] for row in rows])
    shares = np.array([row["gaussian"] / max(row["exact"], 1e-300) for row in rows])
    means = {"times_as_long": slower, "gaussian_share": shares}
    return Outcome([*rows, {name: _over_pairs(material, pairs, own) for name, own in means.items()}])


# -- controls -----------------------------------------------------------------------------------------------------


def controls(material: Material) -> Outcome:
    """SOCM as it is, at matched and random concentration, in random directions, and with the words shuffled.

    Beside them stands what other higher moments do to the exact transport distance.
    """
    texts, clouds = texts_of(material), _clouds(material)
    documents = units_of(material).of.tolist()
    random = np.random.default_rng(material.seed)
    factors = np.exp(random.normal(size=len(clouds)) * 0.5)
    shuffled = [" ".join(random.permutation(text.split())) for text in texts.texts]
    variants = {
        "as it is": clouds,
        "matched": match_traces(clouds, target=_TARGET),
        "random": scale_each(clouds, factors),
        "directions at random": rotate_deviations(clouds, seed=material.seed),
        "words shuffled": material.model().encode(shuffled)[-1],
    }
    scored = {name: socm(own, groups=documents).estimate for name, own in variants.items()}
    rows: list[Row] = [{"control": name, "socm": value} for name, value in scored.items()]
    pairs = _drawn(material, len(clouds))[:30]
    scaled = {k: unit_mean_factor(clouds[k]) for pair in pairs for k in pair}
    exact, other = [], []
    for i, j in pairs:
        exact.append(exact_wasserstein(clouds[i], clouds[j]))
        made = [
            mean + surrogate_factor(F, np.random.default_rng([material.seed, k])) * np.sqrt(len(F))
            for k, (mean, F) in ((k, scaled[k]) for k in (i, j))
        ]
        other.append(exact_wasserstein(*made))
    moved = {"transport": np.array(exact), "transport_after": np.array(other)}
    estimates = {name: _over_pairs(material, pairs, own) for name, own in moved.items()}
    rows.append({"control": "other higher moments", **estimates})
    together = {_column(row["control"]): row["socm"].value for row in rows if "socm" in row}
    return Outcome([*rows, together])


def surrogate_clouds(clouds: TokenClouds, seed: int) -> TokenClouds:
    """Other tokens of the same mean and covariance in every text: all higher moments, and each token, are others."""
    parts = []
    for k in range(len(clouds)):
        mean = np.asarray(clouds[k], dtype=np.float64).mean(axis=0)
        unit, factor = unit_mean_factor(clouds[k])
        made = unit + surrogate_factor(factor, np.random.default_rng([seed, k])) * np.sqrt(len(factor))
        parts.append(made * np.linalg.norm(mean))
    return TokenClouds.from_arrays(parts)


def search_by_surrogates(material: Material) -> Outcome:
    """nDCG@10 by means, by MaxSim, and by MaxSim of texts whose tokens have the same mean and covariance, but no more.

    What the last loses is what higher moments hold for a search; means are the same in both.
    """
    task = material.data
    if not isinstance(task, RetrievalTask):
        raise InputError("this measurement needs queries and documents. Name a data set of that form.")
    queries, documents = (material.model().encode(side.texts)[-1] for side in task.sides)
    sides = {"real": documents, "same mean and covariance": surrogate_clouds(documents, material.seed)}
    tables: dict[str, NDArray[Any]] = {name: maxsim(queries, own) for name, own in sides.items()}
    for name, own in sides.items():
        units = [unit_rows(MeanPooling().transform(each), "vectors") for each in (queries, own)]
        tables[f"mean, {name}"] = units[0] @ units[1].T
    scores = {name: task.evaluation(rank_scores(table, task.relevant, k=task.k)) for name, table in tables.items()}
    change = compare_scores(scores["real"], scores["same mean and covariance"])
    rows: list[Row] = [{"tokens": name, "ndcg": own.score} for name, own in scores.items()]
    return Outcome([*rows, {"change": Estimate(change.mean, change.interval), "queries": task.units}])


def _column(control: str) -> str:
    return "socm_" + control.replace(" ", "_")


def controls_and_quality(rows: Sequence[Row], outcomes: Mapping[Cell, Outcome]) -> list[Row]:
    """Does SOCM still go with quality over models once concentration is matched, or drawn at random?"""
    names = tuple(_column(name) for name in ("as it is", "matched", "random", "directions at random", "words shuffled"))
    found = points(rows, names)
    return [*found, *correlations(found, names)]


KINDS: dict[str, Kind] = {
    "distances": other_distances,
    "moments": higher_moments,
    "poolings": weighted_poolings,
    "controls": controls,
    "cost": exact_and_gaussian,
    "surrogates": search_by_surrogates,
}
