"""Interventions on token clouds that keep every mean: only what happens around the means is changed.

A cloud is its mean plus deviations, X = 1μᵀ + D. Each function replaces D by other deviations whose mean is zero, and
returns new clouds in float64 with the ids and texts of the old ones. Mean pooling cannot see the change. A text
without spread (one token, or equal tokens) has no deviations and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.numbers.moments import mean, text_moments

Array = NDArray[np.float64]
Intervention = Callable[[TokenClouds], TokenClouds]

# S/‖μ‖² of equal tokens is rounding, about 1e-32; what is below this is no spread.
NO_SPREAD = 1e-20

SPECIFICATIONS = "scale=FACTOR, rotate, match, noise, top=DIRECTIONS"


def scale_deviations(clouds: TokenClouds, factor: float) -> TokenClouds:
    """Multiply all deviations by `factor`: every covariance is multiplied by factor².

    >>> scaled = scale_deviations(TokenClouds.from_arrays([[[1.0, 1.0], [1.0, -1.0]]]), 3.0)
    >>> scaled[0].tolist()
    [[1.0, 3.0], [1.0, -3.0]]
    """
    if not 0 <= factor < np.inf:
        raise InputError(f"factor: received {factor}; allowed is 0 (no spread left) or a positive number.")
    return _changed(clouds, lambda k, D: factor * D, f"scale={factor:g}")


def rotate_deviations(clouds: TokenClouds, *, seed: int = 0, together: bool = False) -> TokenClouds:
    """Turn the deviations of each text by a random orthogonal map of its own: spectrum and trace stay, directions go.

    With D = USVᵀ the new deviations are USWᵀ, W (d × rank) uniform among the orthonormal frames. `together` turns all
    texts by one map; that leaves every d_μ, d_Σ and SOCM within these clouds as it is.
    """
    if together:
        Q = _frame(np.random.default_rng(seed), clouds.dimension, clouds.dimension)
        return _changed(clouds, lambda k, D: D @ Q, "rotate together")

    def turn(k: int, D: Array) -> Array:
        U, s, _ = np.linalg.svd(D, full_matrices=False)
        return np.asarray((U * s) @ _frame(np.random.default_rng([seed, k]), clouds.dimension, len(s)).T)

    return _changed(clouds, turn, "rotate")


def match_traces(clouds: TokenClouds, *, target: float | None = None) -> TokenClouds:
    """Scale the deviations of each text so that all have one concentration ratio S/‖μ‖², the trace that SOCM sees.

    target: that ratio; None: the mean over the texts that have any spread.
    """
    traces = text_moments(clouds).traces
    spread = traces > NO_SPREAD
    if not spread.any() or (target is not None and not 0 <= target < np.inf):
        raise InputError(
            f"received {int(spread.sum())} texts with spread and the target {target}; needed: at least one text of "
            f"different tokens, and a target of 0 or more."
        )
    goal = float(traces[spread].mean()) if target is None else target
    factors = np.sqrt(np.divide(goal, traces, out=np.zeros_like(traces), where=spread))
    return _changed(clouds, lambda k, D: factors[k] * D, "match")


def isotropic_noise(clouds: TokenClouds, *, seed: int = 0) -> TokenClouds:
    """Replace the deviations by centred Gaussian noise, the same in all directions, of equal trace in every text."""

    def noise(k: int, D: Array) -> Array:
        drawn = np.random.default_rng([seed, k]).standard_normal(D.shape)
        drawn -= drawn.mean(axis=0)
        size = float(np.linalg.norm(drawn))
        return drawn * (float(np.linalg.norm(D)) / size) if size > 0 else D

    return _changed(clouds, noise, "noise")


def top_directions(clouds: TokenClouds, directions: int) -> TokenClouds:
    """Keep the deviations of each text along its first principal directions only; the trace falls by the rest."""
    if directions < 1:
        raise InputError(f"directions: received {directions}; allowed is 1 or more. scale=0 leaves none.")

    def project(k: int, D: Array) -> Array:
        U, s, V = np.linalg.svd(D, full_matrices=False)
        return np.asarray((U[:, :directions] * s[:directions]) @ V[:directions])

    return _changed(clouds, project, f"top={directions}")


def parse_intervention(specification: str, *, seed: int = 0) -> Intervention:
    """The intervention that a word names: scale=FACTOR, rotate, match, noise or top=DIRECTIONS.

    >>> parse_intervention("scale=0")(TokenClouds.from_arrays([[[1.0, 1.0], [1.0, -1.0]]]))[0].tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    name, _, value = specification.partition("=")
    try:
        if name == "scale":
            return partial(scale_deviations, factor=float(value))
        if name == "top":
            return partial(top_directions, directions=int(value))
        plain: dict[str, Intervention] = {
            "rotate": partial(rotate_deviations, seed=seed),
            "match": match_traces,
            "noise": partial(isotropic_noise, seed=seed),
        }
        if value:
            raise ValueError(value)
        return plain[name]
    except (KeyError, ValueError):
        raise InputError(
            f"intervention: received {specification!r}; allowed: {SPECIFICATIONS}, such as scale=0.5 or top=4."
        ) from None


def _changed(clouds: TokenClouds, change: Callable[[int, Array], Array], name: str) -> TokenClouds:
    """The clouds with the deviations of text k replaced by `change(k, deviations)`, centred once more."""
    token_ids = [clouds.token_ids(k) for k in range(len(clouds))]
    arrays = []
    for k, cloud in enumerate(clouds):
        centre = mean(cloud)
        D = np.asarray(cloud, dtype=np.float64) - centre
        if D.any():
            D = change(k, D)
            arrays.append(centre + (D - D.mean(axis=0)))
        else:
            arrays.append(centre + D)
    return TokenClouds.from_arrays(
        arrays,
        ids=list(clouds.ids),
        texts=None if clouds.texts is None else list(clouds.texts),
        truncated=clouds.truncated,
        token_ids=None if any(ids is None for ids in token_ids) else [ids for ids in token_ids if ids is not None],
        provenance={**clouds.provenance, "intervention": name},
    )


def _frame(random: np.random.Generator, dimension: int, count: int) -> Array:
    """`count` orthonormal columns of length `dimension`, uniform over all such frames."""
    Q, R = np.linalg.qr(random.standard_normal((dimension, count)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))  # without the signs it would not be uniform
