"""SOCM of every state between the layers, from clouds that lie in a temporary folder while they are collected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.metrics.layers.result import StateSocm
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.score import SocmFormula
from poolscope.metrics.socm.selection import AllPairs
from poolscope.numbers.moments import text_moments

Array = NDArray[np.float64]

# What rounding may add to d_Σ.
_ROUNDING = 1e-9


class StateClouds:
    """The clouds of at most `count` of the texts, one Arrow file a state, written batch by batch.

    The files are gone when the context ends.
    """

    def __init__(self, ids: Sequence[str], count: int, *, seed: int) -> None:
        self._ids = ids
        self._chosen = np.zeros(len(ids), dtype=bool)
        self._chosen[np.random.default_rng(seed).permutation(len(ids))[:count]] = True
        self._folder = TemporaryDirectory(prefix="poolscope-layers-")
        self._writers: dict[int, Any] = {}
        self._lock = Lock()

    def __enter__(self) -> StateClouds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._folder.cleanup()

    def add(self, state: int, rows: NDArray[Any], lengths: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """The clouds of some texts in one state, end to end; those that were not drawn are left aside."""
        drawn = self._chosen[positions]
        if not drawn.any():
            return
        offsets = np.concatenate([[0], np.cumsum(lengths[drawn])])
        kept = rows[np.repeat(drawn, lengths)]
        table = TokenClouds.from_matrix(kept, offsets, ids=[self._ids[k] for k in positions[drawn]]).to_table()
        with self._lock:  # batches come from several threads
            if state not in self._writers:
                self._writers[state] = pa.ipc.new_file(os.fspath(self._path(state)), table.schema)
            self._writers[state].write_table(table)

    def socm(self, states: Sequence[str]) -> tuple[StateSocm, ...]:
        """SOCM by state over all pairs of the texts that were drawn."""
        self._close()
        return tuple(_measure(TokenClouds.open(self._path(k)), name) for k, name in enumerate(states))

    def _path(self, state: int) -> Path:
        return Path(self._folder.name) / f"state-{state}.arrow"

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


def _measure(clouds: TokenClouds, state: str) -> StateSocm:
    result = socm(clouds, keep=AllPairs(clouds).count)
    assert result.pairs is not None  # all were kept
    traces = text_moments(clouds).traces
    trace_sum = traces[result.pairs.i] + traces[result.pairs.j]
    share, violations = _theorem_2(result.pairs.d_sigma, trace_sum / 4)
    relative = SocmFormula(scale="trace").covariance_distance(4 * result.pairs.d_sigma, trace_sum)
    return StateSocm(
        state=state,
        pairs=result.count,
        mean=result.mean,
        low=None if result.interval is None else result.interval.low,
        high=None if result.interval is None else result.interval.high,
        mean_d_mu=result.mean_d_mu,
        mean_d_sigma=result.mean_d_sigma,
        above_trace=result.trace_check.share,
        mean_d_sigma_trace=float(relative.mean()),
        largest_share=share,
        violations=violations,
    )


def _theorem_2(d_sigma: Array, bound: Array) -> tuple[float, int]:
    """Theorem 2 on every pair: the largest d_Σ relative to (tr Σ₁ + tr Σ₂)/4, and how many pairs exceed it."""
    share = np.divide(d_sigma, bound, out=np.zeros_like(bound), where=bound > 0)
    return float(share.max()), int((d_sigma > bound * (1 + _ROUNDING) + _ROUNDING).sum())
