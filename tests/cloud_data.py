"""Clouds made for tests, and the dense textbook computation that checks the fast one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.numbers.bures.distances import Distances


def random_cloud(random: np.random.Generator, n: int, d: int, *, spread: float = 0.6) -> np.ndarray:
    """A cloud with a decaying spectrum around a mean of norm about 1, as real encoders make them."""
    decay = np.exp(-np.arange(d) / (d / 4))
    mean = random.normal(size=d) / np.sqrt(d)
    return mean + spread * random.normal(size=(n, d)) * decay / np.linalg.norm(decay)


def random_clouds(seed: int, lengths: list[int], d: int, *, dtype: str = "float64") -> TokenClouds:
    random = np.random.default_rng(seed)
    return TokenClouds.from_arrays(
        [random_cloud(random, n, d).astype(dtype) for n in lengths],
        texts=[f"text number {k}" for k in range(len(lengths))],
    )


def moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance (divided by n) of a cloud scaled to unit mean, straight from the definition."""
    X = np.asarray(X, dtype=np.float64)
    X = X / np.linalg.norm(X.mean(axis=0))
    mean = X.mean(axis=0)
    return mean, (X - mean).T @ (X - mean) / len(X)


def root(matrix: np.ndarray) -> np.ndarray:
    """Symmetric square root by a dense eigen-decomposition."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values.clip(min=0))) @ vectors.T


def dense_distances(X: np.ndarray, Y: np.ndarray, *, eps: float = 0.0) -> tuple[float, float]:
    """d_μ and d_Σ with d × d covariances; with eps as the published code, eps on the diagonal before each root."""
    (mean_x, cov_x), (mean_y, cov_y) = moments(X), moments(Y)
    identity = np.eye(len(mean_x))
    half = root(cov_x + eps * identity)
    cross = np.trace(root(half @ cov_y @ half + eps * identity))
    bures = np.trace(cov_x) + np.trace(cov_y) - 2 * cross
    return float(((mean_x - mean_y) ** 2).sum() / 4), float(bures / 4)


def dense_singular(X: np.ndarray, Y: np.ndarray) -> float:
    """d_Σ in float64 by singular values: a square root of a covariance would lose small ones beside a large one."""
    factors = [(Z - Z.mean(axis=0)) / np.linalg.norm(Z.mean(axis=0)) / np.sqrt(len(Z)) for Z in (X, Y)]
    nuclear = np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False).sum()
    return float(sum((factor**2).sum() for factor in factors) - 2 * nuclear) / 4


def by_pair(pieces: Iterable[Distances]) -> dict[tuple[int, int], tuple[float, float, float]]:
    """(d_μ, BW², trace sum) by pair; no pair comes twice."""
    found: dict[tuple[int, int], tuple[float, float, float]] = {}
    for piece in pieces:
        assert len(piece.overlap) == len(piece)
        for row in zip(piece.i, piece.j, piece.mean_distance, piece.bures, piece.trace_sum, strict=True):
            assert row[:2] not in found, "a pair came twice"
            found[int(row[0]), int(row[1])] = row[2:]
    return found


def by_pair_with_error(pieces: Iterable[Distances]) -> dict[tuple[int, int], tuple[float, float, float, float]]:
    """(d_μ, BW², trace sum, bound of the error of BW²) by pair."""
    names = ("mean_distance", "bures", "trace_sum", "error")
    return {
        (int(i), int(j)): tuple(values)
        for piece in pieces
        for i, j, *values in zip(piece.i, piece.j, *(getattr(piece, name) for name in names), strict=True)
    }


def assert_within_bounds(
    values: dict[tuple[int, int], tuple[float, float, float, float]],
    reference: dict[tuple[int, int], tuple[float, float, float, float]],
) -> None:
    """What is promised where blocks, places or routes differ: BW² moves by at most the bound of its error."""
    assert values.keys() == reference.keys()
    for pair, (mean_distance, bures, trace_sum, error) in reference.items():
        assert abs(values[pair][0] - mean_distance) < 1e-12
        exact = 1e-12 * max(1.0, trace_sum)  # of what is float64 throughout
        assert abs(values[pair][1] - bures) <= error + exact
        assert abs(values[pair][2] - trace_sum) < exact
        assert abs(values[pair][3] - error) <= 1e-9 * error
