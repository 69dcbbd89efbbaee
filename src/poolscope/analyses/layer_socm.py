"""SOCM of every state between the layers, from clouds that lie in a temporary folder while they are collected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.analyses.layers_result import StateSocm
from poolscope.analyses.socm import socm
from poolscope.analyses.socm_result import SocmResult
from poolscope.clouds import TokenClouds
from poolscope.moments import text_moments

# What rounding may add to d_Σ.
_ROUNDING = 1e-9


class StateClouds:
    """One Arrow file a state, written batch by batch; gone when the context ends."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="poolscope-layers-")
        self._writers: dict[int, Any] = {}

    def __enter__(self) -> StateClouds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._folder.cleanup()

    def add(self, state: int, rows: NDArray[Any], offsets: NDArray[np.int64], ids: Sequence[str]) -> None:
        """The clouds of some texts in one state."""
        table = TokenClouds.from_matrix(rows, offsets, ids=ids).to_table()
        if state not in self._writers:
            self._writers[state] = pa.ipc.new_file(os.fspath(self._path(state)), table.schema)
        self._writers[state].write_table(table)

    def socm(self, states: Sequence[str], *, pairs: int, seed: int) -> tuple[StateSocm, ...]:
        """SOCM by state over the same pairs: all if there are at most `pairs`, otherwise that many drawn at random."""
        self._close()
        return tuple(_measure(TokenClouds.open(self._path(k)), name, pairs, seed) for k, name in enumerate(states))

    def _path(self, state: int) -> Path:
        return Path(self._folder.name) / f"state-{state}.arrow"

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


def _measure(clouds: TokenClouds, state: str, pairs: int, seed: int) -> StateSocm:
    many = len(clouds) * (len(clouds) - 1) // 2 > pairs
    result = socm(clouds, sample=pairs if many else None, seed=seed, keep=max(pairs, 1))
    share, violations = _theorem_2(result, clouds)
    return StateSocm(
        state=state,
        pairs=result.count,
        mean=result.mean,
        low=None if result.interval is None else result.interval.low,
        high=None if result.interval is None else result.interval.high,
        mean_d_mu=result.mean_d_mu,
        mean_d_sigma=result.mean_d_sigma,
        largest_share=share,
        violations=violations,
    )


def _theorem_2(result: SocmResult, clouds: TokenClouds) -> tuple[float, int]:
    """Theorem 2 on every pair: the largest d_Σ relative to (tr Σ₁ + tr Σ₂)/4, and how many pairs exceed it."""
    assert result.pairs is not None  # at most `pairs` of them, all kept
    traces = text_moments(clouds).traces
    bound = (traces[result.pairs.i] + traces[result.pairs.j]) / 4
    d_sigma = result.pairs.d_sigma
    share = np.divide(d_sigma, bound, out=np.zeros_like(bound), where=bound > 0)
    return float(share.max()), int((d_sigma > bound * (1 + _ROUNDING) + _ROUNDING).sum())
