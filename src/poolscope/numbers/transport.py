"""Exact optimal transport between two lists of weighted tokens; solved by POT (extra `transport`)."""

from __future__ import annotations

import numpy as np

from poolscope.errors import PoolscopeError, require
from poolscope.numbers import Array

# Pivots of the network simplex before it gives up; two lists of 500 tokens need some thousands.
_MOST_PIVOTS = 2_000_000


def transport_cost(costs: Array, rows: Array | None = None, columns: Array | None = None) -> float:
    """min over couplings π of Σ π_ij c_ij, by the network simplex.

    costs (n₁ × n₂): what it costs to carry token i of the first list to token j of the second. rows and columns: how
    much each token weighs, on any scale; without them, or where none weighs anything, all tokens of a list alike.

    >>> transport_cost(np.array([[0.0, 2.0], [2.0, 1.0]]))
    0.5
    >>> transport_cost(np.array([[0.0, 2.0], [2.0, 1.0]]), rows=np.array([3.0, 1.0]))  # 1/4 of the first goes to 2
    0.75
    """
    ot = require("ot", "transport")
    weights = (_shares(own, count) for own, count in zip((rows, columns), costs.shape, strict=True))
    value, log = ot.emd2(*weights, costs, numItermax=_MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise PoolscopeError(
            f"optimal transport of {costs.shape[0]} to {costs.shape[1]} tokens did not finish ({log['warning']}). Cut "
            f"the texts with max_length, or leave the longest out."
        )
    return float(value)


def _shares(weights: Array | None, count: int) -> Array:
    """Weights that add up to 1."""
    if weights is None or (total := weights.sum()) <= 0:
        return np.full(count, 1 / count)
    return np.asarray(weights / total)
