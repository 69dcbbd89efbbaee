"""How well vectors are spread: the direction they share, those they use, their lengths, and how the nearest stands out.

Four measurements of the same vectors (`cone`, `spectrum`, `norms`, `neighbourhood`) that answer one question together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from poolscope.metrics.neighbourhood import Neighbourhood, neighbourhood
from poolscope.metrics.scores import Cone, cone
from poolscope.metrics.spectrum import Norms, Spectrum, norms, spectrum
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result, cells, origin, provenance
from poolscope.show.charts import sheet


@dataclass(frozen=True, repr=False, kw_only=True)
class VectorSpread(Result):
    """How well vectors are spread, in four parts: shared direction, directions in use, lengths, neighbours."""

    shared: Cone = field(metadata={"required": True})
    directions: Spectrum = field(metadata={"required": True})
    lengths: Norms = field(metadata={"required": True})
    nearest: Neighbourhood = field(metadata={"required": True})
    provenance: Mapping[str, Any] = origin()

    shown_rows = 0

    def members(self) -> tuple[Result, ...]:
        """The four results."""
        return self.shared, self.directions, self.lengths, self.nearest

    def headline(self) -> dict[str, Any]:
        """The numbers of the parts that have a floor."""
        return {
            name: value for part in self.members() for name, value in part.headline().items() if _is_measured(value)
        }

    def __repr__(self) -> str:
        cosine, rank = self.shared.mean_cosine, self.directions.effective_rank
        return f"VectorSpread({self.lengths.vectors:,} vectors, mean cosine {cosine}, effective rank {rank})"

    def summary_rows(self) -> list[tuple[str, str]]:
        """The same in words."""
        words = {name: label for part in self.members() for name, label in part.field_words.items()}
        return [(words.get(name) or name.replace("_", " "), str(value)) for name, value in self.headline().items()]

    def in_words(self) -> tuple[str, ...]:
        """What each part saw, in one sentence: of the lengths what follows from them."""
        members = ((self.shared, 0), (self.directions, 0), (self.lengths, -1), (self.nearest, 0))
        return tuple(part.in_words()[place] for part, place in members if part.in_words())

    def rows(self) -> list[dict[str, Any]]:
        """One row a number: first of all vectors together, then of each dimension, then of each vector."""
        whole = [
            {"number": name, "place": None, **cells({"value": value}, ends=True), "value_floor": value.floor}
            for name, value in self.headline().items()
        ]
        rows = [list(row.items()) for part in self.members() for row in part.rows()]
        single = [
            {"number": name, "place": place, "value": float(value)}
            for (_, place), *numbers in rows
            for name, value in numbers
        ]
        return whole + single

    def figure(self) -> Any:
        """The figures of the four parts on one sheet."""
        return sheet(*(part.figure() for part in self.members()), title="How well the vectors are spread")


def _is_measured(value: Any) -> bool:
    return isinstance(value, Estimate) and value.floor is not None


def vector_spread(vectors: ArrayLike, *, groups: Sequence[Any] | None = None, seed: int = 0) -> VectorSpread:
    """Shared direction, directions in use, lengths and neighbours of vectors, in one call.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least three different ones, of two dimensions or more.
    groups : list, optional
        The document of each text, which is then the unit of intervals.
    seed : int
        Of what is drawn.

    Returns
    -------
    VectorSpread
        The results of `cone`, `spectrum`, `norms` and `neighbourhood`.

    Examples
    --------
    >>> import numpy as np
    >>> crowd = np.random.default_rng(0).standard_normal((80, 6)) + [9, 0, 0, 0, 0, 0]
    >>> result = vector_spread(crowd)
    >>> result.shared.mean_cosine.value > 0.9, result.directions.dimension_number
    (True, 0)

    """
    return VectorSpread(
        shared=cone(vectors, groups=groups),
        directions=spectrum(vectors, groups=groups, seed=seed),
        lengths=norms(vectors, groups=groups, seed=seed),
        nearest=neighbourhood(vectors, groups=groups, seed=seed),
        provenance=provenance(settings={"seed": seed}),
    )
