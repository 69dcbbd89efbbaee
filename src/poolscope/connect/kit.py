"""A test kit for connectors: the same 20,000 vectors have to give the same rows, and a search has to find them.

    from poolscope.connect.kit import certify
    print(certify("mystore://localhost/new"))

writes the rows into a new collection, reads them back in pages, and compares every id, vector, text and document. A
connector that cannot write is certified with `written=True` on a collection that holds `kit_rows()`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors import NewRows, read_index, write_index
from poolscope.connectors.base import Distance
from poolscope.errors import InputError

COUNT, DIMENSION = 20_000, 64
_TOLERANCE = 1e-5
_QUERIES, _TOP = 50, 10


@dataclass(frozen=True)
class Certificate:
    """What a connector gave back: rows, the largest error of a number, and recall@10 of its own search, if any."""

    rows: int
    largest_error: float
    distance: Distance | None
    recall: float | None


def kit_rows(count: int = COUNT, distance: Distance = "cosine") -> NewRows:
    """The rows of the kit: unit vectors around 200 directions, with ids, texts and documents of many scripts."""
    random = np.random.default_rng(42)
    centres = random.standard_normal((200, DIMENSION))
    vectors = centres[np.arange(count) % 200] + random.standard_normal((count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = [str(k + 1) for k in range(count)]
    texts = [f"text {name} 'quoted\" \\ {{}} ü 漢字 🙂" for name in names]
    return NewRows(names, vectors.astype(np.float32), texts, [f"document {k // 4}" for k in range(count)], distance)


def certify(address: str, *, count: int = COUNT, distance: Distance = "cosine", written: bool = False) -> Certificate:
    """Write the rows of the kit to an address unless they are `written`, read them back; raise on a difference."""
    rows = kit_rows(count, distance)
    if not written:
        write_index(address, rows.vectors, ids=rows.ids, texts=rows.texts, groups=rows.groups, distance=rows.distance)
    found = read_index(address, limit=0)
    try:
        if sorted(found.ids) != sorted(rows.ids):
            raise InputError(f"{address}: {len(found.ids):,} rows came back for {count:,}, or their ids differ.")
        order = [int(name) - 1 for name in found.ids]
        error = float(np.abs(found.vectors - rows.vectors[order]).max())
        if error > _TOLERANCE:
            raise InputError(f"{address}: numbers differ by up to {error:.2g}; allowed: {_TOLERANCE:.0e}.")
        for part, given, wanted in (("texts", found.texts, rows.texts), ("groups", found.groups, rows.groups)):
            if given is None or list(given) != [(wanted or ())[k] for k in order]:
                raise InputError(f"{address}: the {part} that came back are not those that were written.")
        if found.distance not in (None, distance):
            raise InputError(
                f"{address}: says that it searches by {found.distance!r}; it was written for {distance!r}."
            )
        recall = None
        if found.search is not None:
            queries = rows.vectors[:: max(1, count // _QUERIES)][:_QUERIES] + np.float32(0.01)
            recall = _recall(rows, queries, found.search.find(queries, _TOP, None))
        return Certificate(len(found), error, found.distance, recall)
    finally:
        found.close()


def _recall(rows: NewRows, queries: NDArray[np.float32], answers: object) -> float:
    """The share of the exact top 10 that a search gives."""
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    scores = queries @ rows.vectors.T if rows.distance == "dot" else unit @ rows.vectors.T
    if rows.distance == "l2":
        scores = 2 * queries @ rows.vectors.T - (rows.vectors**2).sum(axis=1)
    exact = np.argsort(-scores, axis=1)[:, :_TOP]
    hits = [len({rows.ids[k] for k in best} & set(given)) for best, given in zip(exact, list(answers), strict=True)]  # type: ignore[call-overload]
    return float(np.mean(hits)) / _TOP
