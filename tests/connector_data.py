"""Rows that every store of the tests holds: vectors of a few topics, texts, documents, one row without a vector."""

from __future__ import annotations

import numpy as np

COUNT, DIMENSION = 240, 16
SECRET = "open-sesame"


def rows(count: int = COUNT, *, seed: int = 0) -> np.ndarray:
    """Vectors of different lengths around twelve directions."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((12, DIMENSION))
    return (centres[np.arange(count) % 12] + 0.4 * random.standard_normal((count, DIMENSION))).astype(np.float32)


VECTORS = rows()
IDS = [str(k + 1) for k in range(COUNT)]
TEXTS = [f"text number {k} of topic {k % 12}" for k in range(COUNT)]
SOURCES = [f"document {k // 4}" for k in range(COUNT)]


def exact_neighbours(queries: np.ndarray, k: int) -> list[set[str]]:
    """The ids of the k nearest by Euclidean distance."""
    distances = np.linalg.norm(VECTORS[None] - queries[:, None], axis=2)
    return [{IDS[place] for place in row[:k]} for row in np.argsort(distances, axis=1)]


def agrees(collection, *, normalised: bool = False) -> None:
    """Does a collection hold these rows, whatever their order?"""
    order = np.argsort([int(name) for name in collection.ids])
    expected = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True) if normalised else VECTORS
    np.testing.assert_allclose(collection.vectors[order], expected, atol=1e-5)
    assert sorted(collection.ids, key=int) == IDS
    assert [collection.texts[k] for k in order] == TEXTS
    assert [collection.groups[k] for k in order] == SOURCES
