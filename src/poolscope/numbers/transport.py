"""Exact optimal transport between two lists of tokens of equal weight; solved by POT (extra `transport`)."""

from __future__ import annotations

import numpy as np

from poolscope.errors import PoolscopeError, require
from poolscope.numbers import Array

# Pivots of the network simplex before it gives up; two lists of 500 tokens need some thousands.
_MOST_PIVOTS = 2_000_000


def transport_cost(costs: Array) -> float:
    """min over couplings π of Σ π_ij c_ij, by the network simplex; rows weigh 1/n₁ each, columns 1/n₂.

    costs (n₁ × n₂): what it costs to carry token i of the first list to token j of the second.

    >>> transport_cost(np.array([[0.0, 2.0], [2.0, 1.0]]))
    0.5
    """
    ot = require("ot", "transport")
    uniform = (np.full(count, 1 / count) for count in costs.shape)
    value, log = ot.emd2(*uniform, costs, numItermax=_MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise PoolscopeError(
            f"optimal transport of {costs.shape[0]} to {costs.shape[1]} tokens did not finish ({log['warning']}). Cut "
            f"the texts with max_length, or leave the longest out."
        )
    return float(value)
