"""Whose vector is it? Every stored vector beside the new ones of all texts: own, moved, of another pooling, or foreign.

A row that is compared with its own text only is either right or wrong. Compared with all texts it says what happened:
the table was shuffled or shifted, rows were written by another pooling, texts were edited after they were encoded, or
the vectors belong to none of these texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.connect.runtimes.asking import read_form, row_cosines
from poolscope.errors import InputError
from poolscope.numbers import Array, Index
from poolscope.numbers.intervals import Estimate, share_estimate
from poolscope.numbers.ranking import nearest_neighbours, unit_rows
from poolscope.results import Result, bulk, column_rows, origin, provenance
from poolscope.show.charts import dots_figure

SAME = 0.9995
"""Two vectors with this cosine or more are one vector but for rounding to 16 bits, and another kernel."""
NEAR = 0.5
"""Below this cosine a vector is not that of a text, even where no other text is nearer."""

KINDS = ("own", "moved", "pooled", "stale", "foreign")
OWN, MOVED, POOLED, STALE, FOREIGN = range(len(KINDS))
# An order is named where this share of the moved rows follows it; the rest are copies and rounding.
_FOLLOWS = 0.95
_WORDS = {
    OWN: "the model's own vector",
    MOVED: "the vector of another text",
    POOLED: "another pooling",
    STALE: "near its text, but another vector",
    FOREIGN: "like none of the texts",
}


@dataclass(frozen=True, repr=False, kw_only=True)
class RowMatches(Result):
    """What the stored vectors of some rows are, each matched to the new vectors of all texts.

    Shares of the rows: `own` is the vector that the model gives today; `moved` that of another text, or its own stands
    in another row; `pooled` that of another pooling, `pooling` names it; `stale` is nearest to its own text and yet
    another vector (the text was edited, or a setting or revision differs); `foreign` is like none of the texts.
    `order` names how rows moved ("shifted by 3", "reversed", "sorted by id", "swapped in pairs", "shuffled", or
    "written over" where the vector of no moved text is left; "" if none moved), `moved_pooling` their pooling where it
    is another. `codes` are positions in KINDS, `rows_of` the stored rows, `places` the row in which the vector of each
    text stands (−1 where in none), `cosines` those with the vector of the same text.
    """

    count: int
    own: Estimate
    moved: Estimate
    pooled: Estimate
    stale: Estimate
    foreign: Estimate
    order: str
    pooling: str
    moved_pooling: str
    rows_of: Index = bulk(required=True)
    codes: Index = bulk(required=True)
    places: Index = bulk(required=True)
    cosines: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    field_words: ClassVar[Mapping[str, str]] = {
        "own": "rows with their own vector",
        "moved": "rows with another text's vector",
        "pooled": "rows pooled otherwise",
        "stale": "rows near their text",
        "foreign": "rows like no text",
    }

    @property
    def differ(self) -> NDArray[np.bool_]:
        """Which rows do not have the vector that the model gives today."""
        return np.asarray(self.codes != OWN)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows are of each kind, without kinds that none is of."""
        counts = np.bincount(self.codes, minlength=len(KINDS))
        return {kind: int(count) for kind, count in zip(KINDS, counts, strict=True) if count}

    @property
    def main(self) -> str:
        """What most of the rows are that differ: one of KINDS, "own" where none differs."""
        others = Counter(self.codes[self.differ].tolist())
        return KINDS[max(others, key=lambda code: (others[code], -code))] if others else KINDS[OWN]

    @property
    def explained(self) -> str:
        """What most of the rows are that differ, in a few words; "" where none differs."""
        if self.main == "moved":
            pooled = f", pooled by {self.moved_pooling}" if self.moved_pooling else ""
            return f"rows {self.order}{pooled}"
        named = {"pooled": f"pooled by {self.pooling}", "stale": "vectors of earlier texts or settings"}
        return named.get(self.main, "vectors of other texts or of another model" if self.main == "foreign" else "")

    @property
    def permutation(self) -> dict[int, int]:
        """For each moved row the row in which the vector of its text stands, where one does."""
        found = (self.codes == MOVED) & (self.places >= 0)
        return dict(zip(self.rows_of[found].tolist(), self.places[found].tolist(), strict=True))

    def in_words(self) -> tuple[str, ...]:
        """How many rows are of each kind, and how rows moved."""
        counts = np.bincount(self.codes, minlength=len(KINDS))
        kinds = ", ".join(f"{counts[code]:,} {_WORDS[code]}" for code in range(len(KINDS)) if counts[code])
        moved = (f"The moved rows are {self.order}.",) if self.order else ()
        return (f"{self.count:,} rows: {kinds}.", *moved)

    def figure(self) -> Any:
        """The share of rows of each kind."""
        shares = {_WORDS[code]: getattr(self, kind) for code, kind in enumerate(KINDS)}
        return dots_figure(shares, title="What the stored vectors are", across="share of the rows")

    def rows(self) -> list[dict[str, Any]]:
        """One row a stored vector, those that differ first."""
        order = np.argsort(self.codes == OWN, kind="stable")
        return [
            {**row, "kind": KINDS[row.pop("code")]}
            for row in column_rows(
                position=self.rows_of[order],
                cosine=self.cosines[order],
                stands_in=self.places[order],
                code=self.codes[order],
            )
        ]


def match_rows(
    stored: ArrayLike,
    encoded: ArrayLike,
    *,
    rows: ArrayLike | None = None,
    poolings: Mapping[str, ArrayLike] | None = None,
    ids: Sequence[str] | None = None,
    same: float = SAME,
) -> RowMatches:
    """What each stored vector is, beside the new vectors of all texts.

    Parameters
    ----------
    stored : matrix
        All vectors of the index (N × d), also rounded to 8 bits or to signs.
    encoded : matrix
        What the model gives today for the texts of `rows` (n × d).
    rows : list of int
        The rows of these texts in the index; by default all rows, in their order.
    poolings : dict
        Vectors of the same texts under other poolings, by name.
    ids : list of str
        The ids of all rows, to recognise a table that was sorted by them.
    same : float
        From which cosine on two vectors are one but for rounding.

    Returns
    -------
    RowMatches
        The share of rows of each kind, the order of moved rows by name, and every row.

    Examples
    --------
    >>> vectors = np.random.default_rng(0).standard_normal((50, 8))
    >>> found = match_rows(np.roll(vectors, 3, axis=0), vectors)
    >>> found.order, found.moved.value, found.permutation[0]
    ('shifted by 3', 1.0, 3)
    >>> vectors[:10] = np.random.default_rng(1).standard_normal((10, 8))
    >>> match_rows(vectors, np.random.default_rng(0).standard_normal((50, 8))).foreign.value
    0.2

    """
    _matrix(stored, "stored")
    table, texts = np.asarray(stored), _matrix(encoded, "encoded")
    places = np.arange(len(table)) if rows is None else _numbers(rows, len(table))
    if len(places) != len(texts):
        raise InputError(
            f"received {len(texts)} new vectors and {len(places)} rows; needed: one new vector for each row. Name the "
            f"rows of the texts that were encoded (rows)."
        )
    if ids is not None and (isinstance(ids, str) or not isinstance(ids, Sequence) or len(ids) != len(table)):
        raise InputError(f"ids: received {type(ids).__name__}; needed: a list of {len(table)} names, one for each row.")
    if not isinstance(poolings, Mapping | None):
        raise InputError(f"poolings: received {type(poolings).__name__}; allowed: a dict of matrices by name.")
    if not isinstance(same, int | float) or not -1 <= same <= 1:
        raise InputError(f"same: received {same!r}; allowed: a cosine from -1 to 1.")
    form, received = read_form(table, texts.shape[1])
    if received.shape[1] > texts.shape[1]:
        raise InputError(
            f"stored: received dimension {received.shape[1]}; needed: {texts.shape[1]}, which the new vectors have."
        )
    unit_rows(received, "stored")  # refuses a row that is zero or not finite, by its number
    tables = {"": texts, **{name: _matrix(other, "poolings") for name, other in (poolings or {}).items()}}
    if any(len(other) != len(texts) for other in tables.values()):
        raise InputError(f"poolings: needed: {len(texts)} vectors each, as there are new ones.")
    tables = {name: form.on(other, received) for name, other in tables.items() if other.shape[1] >= form.dimension}
    index = _Index(received, places, same)
    found = {name: index.find(other) for name, other in tables.items()}
    cosines = row_cosines(received[places], tables[""])[0]
    codes = np.full(len(places), FOREIGN)
    codes[found[""].nearest_own & (cosines >= NEAR)] = STALE
    standing = np.full(len(places), -1)
    by = np.full(len(places), "", dtype=object)
    # The declared pooling comes last, so that it wins; of the others the one that explains most rows.
    for name in sorted(found, key=lambda name: (name == "", int(found[name].explained.sum()))):
        for code, which in ((MOVED, found[name].moved), (POOLED if name else OWN, found[name].own)):
            codes[which], by[which] = code, name
        standing[found[name].moved] = found[name].place[found[name].moved]
        standing[found[name].own] = places[found[name].own]
    moved = codes == MOVED
    pooling, moving = (_commonest(by[codes == code]) for code in (POOLED, MOVED))
    shares = {
        kind: share_estimate((codes == code).astype(np.float64), each="vectors") for code, kind in enumerate(KINDS)
    }
    return RowMatches(
        count=len(places),
        **shares,
        order=index.named_order(tables[moving], moved, standing, ids) if moved.any() else "",
        pooling=pooling,
        moved_pooling=moving,
        rows_of=places,
        codes=codes,
        places=standing,
        cosines=cosines,
        provenance=provenance(settings={"same": same}),
    )


def _matrix(values: Any, name: str) -> Array:
    """Vectors as numbers; anything else is refused."""
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.zeros(0)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise InputError(f"{name}: received {type(values).__name__}; needed: a matrix of numbers (rows × dimensions).")
    return table


def _numbers(values: Any, count: int) -> Index:
    """Row numbers of a table of `count` rows; anything else is refused."""
    try:
        numbers = np.asarray(values)
        whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
    except ValueError:
        whole = False
    if not whole or (len(numbers) and (numbers.min() < 0 or numbers.max() >= count)):
        raise InputError(f"rows: received {values!r:.40}; allowed: a list of whole numbers from 0 to {count - 1}.")
    return numbers.astype(np.int64)


def _commonest(names: NDArray[Any]) -> str:
    return max(Counter(names.tolist()).items(), key=lambda counted: counted[1], default=("", 0))[0]


@dataclass(frozen=True)
class _Found:
    """Where the vectors of texts stand: in their own rows, in others (`place`), or a row has another text's vector."""

    own: NDArray[np.bool_]
    moved: NDArray[np.bool_]
    place: Index
    nearest_own: NDArray[np.bool_]

    @property
    def explained(self) -> NDArray[np.bool_]:
        """Rows that are explained, in place or not."""
        return self.own | self.moved


@dataclass(frozen=True)
class _Index:
    """Stored vectors, and the rows of the texts that were encoded again."""

    stored: Array
    rows: Index
    same: float

    def find(self, texts: Array) -> _Found:
        """Look for every text among all stored vectors, and for every stored vector among all texts."""
        own_cosines = row_cosines(self.stored[self.rows], texts)[0]
        own = own_cosines >= self.same
        usable = np.linalg.norm(texts, axis=1) > 0
        place = np.full(len(texts), -1)
        moved, nearest_own = np.zeros(len(texts), bool), np.zeros(len(texts), bool)
        rest = np.flatnonzero(~own & usable)
        if not len(rest):
            return _Found(own, moved, place, nearest_own)
        # A row that has its own vector is nobody else's, however alike two texts are.
        taken = np.zeros(len(self.stored), bool)
        taken[self.rows[own]] = True
        free = np.flatnonzero(~taken)
        nearest, cosines = (column[:, 0] for column in nearest_neighbours(texts[rest], 1, among=self.stored[free]))
        stands = cosines >= self.same
        place[rest[stands]] = free[nearest[stands]]
        # The other way round: the vector of another text was written over this row.
        holder = np.flatnonzero(usable)
        nearest, cosines = (
            column[:, 0] for column in nearest_neighbours(self.stored[self.rows[rest]], 1, among=texts[holder])
        )
        moved[rest] = stands | (cosines >= self.same)
        nearest_own[rest] = cosines <= own_cosines[rest] + 1e-6
        return _Found(own, moved, place, nearest_own)

    def named_order(self, texts: Array, moved: NDArray[np.bool_], standing: Index, ids: Sequence[str] | None) -> str:
        """The first simple order that the moved rows follow; copies of a text may stand for each other."""
        which = np.flatnonzero(moved & (standing >= 0))  # the vector of a row that was written over is nowhere
        if not len(which):
            return "written over"
        count = len(self.stored)
        rows = self.rows[which]
        offsets = Counter((standing[which] - rows).tolist())
        orders: dict[str, Index] = {}
        shift = max(offsets, key=lambda offset: (offsets[offset], -abs(offset)))
        orders[f"shifted by {shift}"] = rows + shift
        # The end of a table that was rolled stands at its beginning.
        nearer = min(shift, shift - count if shift > 0 else shift + count, key=abs)
        orders[f"shifted by {nearer}"] = (rows + shift) % count
        orders["reversed"] = count - 1 - rows
        if ids is not None:
            sorted_by_id = np.array(sorted(range(count), key=lambda k: ids[k]), dtype=np.int64)
            orders["sorted by id"] = np.argsort(sorted_by_id)[rows]
        for name, expected in orders.items():
            inside = (expected >= 0) & (expected < count)
            follows = np.zeros(len(which), bool)
            follows[inside] = row_cosines(self.stored[expected[inside]], texts[which[inside]])[0] >= self.same
            if follows.mean() >= _FOLLOWS:
                return name
        pairs = dict(zip(rows.tolist(), standing[which].tolist(), strict=True))
        swapped = np.mean([pairs.get(place) == row for row, place in pairs.items()])
        return "swapped in pairs" if swapped >= _FOLLOWS else "shuffled"
