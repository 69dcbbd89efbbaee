"""All vectors of a source: the usable rows, and the rows that were set aside with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.base import (
    BATCH,
    DISTANCES,
    Batch,
    Connector,
    Distance,
    Search,
    asking,
    in_batches,
    string_or_none,
)
from poolscope.errors import InputError, reading, whole_number
from poolscope.texts import Texts

MOST_ROWS = 100_000
"""Of more rows than this so many are drawn, unless another number is asked for."""

NO_VECTOR, NOT_FINITE, ZERO, NO_TEXT = "no vector", "NaN or infinity", "all zeros", "no text"
# So many rows that were set aside are kept by name; all of them are counted.
_NAMED = 1000


@dataclass(frozen=True, eq=False)
class Collection:
    """The vectors of a file, an array or a vector store, with what is known of them; one row a text or chunk.

    `rows` counts all rows of the source, `places` the row of each vector in its order, which for most stores is that of
    insertion. Rows that cannot be compared are no part of `vectors`: `faults` counts them by reason, over all rows, and
    `aside` names the first of them. `without_vector` are the ids of texts for which there is no row. `distance` is what
    the source searches by, where it says so, and `search` its own search.
    """

    vectors: NDArray[Any]
    ids: tuple[str, ...]
    source: str
    texts: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    rows: int = 0
    places: NDArray[np.int64] | None = None
    faults: Mapping[str, int] | None = None
    aside: tuple[tuple[str, str], ...] = ()
    without_vector: tuple[str, ...] = ()
    distance: Distance | None = None
    search: Search | None = None
    notes: tuple[str, ...] = ()
    connector: Connector | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.vectors)

    def close(self) -> None:
        """Let go of the connection that the search needs; the vectors stay."""
        close_connector(self.connector)

    def __repr__(self) -> str:
        return f"Collection({len(self):,} vectors of dimension {self.dimension} from {self.source})"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return int(self.vectors.shape[1])

    def with_texts(self, corpus: Texts) -> Collection:
        """The same vectors with texts beside them: by id where both have ids in common, otherwise row by row.

        Vectors without a text are set aside, and texts without a vector are named. Row by row there must be as many
        rows as vectors, empty texts counted: otherwise nobody knows which belong together.

        >>> from poolscope.texts import read_texts
        >>> array_collection(np.eye(3)).with_texts(read_texts(["one", "", "three"])).ids
        ('0', '2')
        """
        if self.texts is not None:
            raise InputError(f"{self.source} holds texts of its own; received others too. Leave them out.")
        own = {name: k for k, name in enumerate(corpus.ids)}
        by_row = [str(k) for k in self.order]
        names = self.ids if set(self.ids) & set(own) else by_row
        in_order = tuple(names) == tuple(by_row)
        if in_order and corpus.report.read != self.rows:
            hint = " ".join(corpus.report.notes())
            raise InputError(
                f"{corpus.source}: received {corpus.report.read:,} texts for the {self.rows:,} rows of {self.source}; "
                f"without common ids one a row is needed, in their order. Name a column of ids (--id-column). {hint}"
            )
        known = np.array([name in own for name in names])
        named = self._without(~known)
        rows = [own[name] for name in np.array(names, dtype=object)[known]]
        taken = set(names) | {name for name, _ in self.aside}
        drawn = len(self) + self.fault_count < self.rows
        missing = () if drawn or in_order else tuple(name for name in corpus.ids if name not in taken)
        return replace(
            named,
            texts=tuple(corpus.texts[k] for k in rows),
            groups=named.groups or (None if corpus.labels is None else tuple(corpus.labels[k] for k in rows)),
            without_vector=missing,
            notes=(*self.notes, *corpus.report.notes()),
        )

    @property
    def order(self) -> NDArray[np.int64]:
        """The row of each vector in the source."""
        return np.arange(len(self)) if self.places is None else self.places

    @property
    def fault_count(self) -> int:
        """How many rows were set aside."""
        return sum((self.faults or {}).values())

    def _without(self, wrong: NDArray[np.bool_]) -> Collection:
        """Without some vectors, which are set aside since they have no text."""
        if not wrong.any():
            return self
        if wrong.all():
            raise InputError(
                f"{self.source}: no vector has a text of its own. Check that the ids are those of the texts."
            )
        keep = np.flatnonzero(~wrong)
        named = tuple((self.ids[k], NO_TEXT) for k in np.flatnonzero(wrong)[:_NAMED])
        return replace(
            self,
            vectors=self.vectors[keep],
            ids=tuple(self.ids[k] for k in keep),
            texts=None if self.texts is None else tuple(self.texts[k] for k in keep),
            groups=None if self.groups is None else tuple(self.groups[k] for k in keep),
            places=self.order[keep],
            faults={**(self.faults or {}), NO_TEXT: int(wrong.sum())},
            aside=(*self.aside, *named),
        )


def array_collection(
    vectors: Any,
    *,
    texts: Sequence[str | None] | None = None,
    ids: Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
    source: str = "array",
    notes: Sequence[str] = (),
    distance: Distance | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Collection:
    """The collection of a matrix in memory (N × d), with texts, ids and groups where they are known.

    >>> array_collection(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, np.nan]])).faults
    {'NaN or infinity': 1, 'all zeros': 1}
    """
    table = np.asarray(vectors)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "fiu":
        raise InputError(
            f"{source}: received {table.dtype} of shape {table.shape}; needed: a matrix of numbers, one row a vector. "
            f"Token arrays are passed as a list, one matrix a text."
        )
    for name, values in {"texts": texts, "ids": ids, "groups": groups}.items():
        if values is not None and len(values) != len(table):
            raise InputError(
                f"{source}: received {len(values):,} {name} for {len(table):,} vectors; one a vector is needed."
            )
    texts, ids, groups = (None if values is None else list(values) for values in (texts, ids, groups))
    connector = InMemory(source, table, texts, ids, groups, distance, tuple(notes))
    return gather(connector, limit=limit, seed=seed)


@dataclass(frozen=True)
class InMemory:
    """Rows that are in memory already; without ids they are numbered."""

    name: str
    vectors: NDArray[Any]
    texts: Sequence[Any] | None = None
    ids: Sequence[Any] | None = None
    groups: Sequence[Any] | None = None
    distance: Distance | None = None
    notes: Sequence[str] = ()

    def batches(self, size: int) -> Iterator[Batch]:
        """In the order of the rows, and many at a time: nothing has to be fetched."""
        for part in in_batches(len(self.vectors), max(size, MOST_ROWS)):
            ids, texts, groups = (None if each is None else each[part] for each in (self.ids, self.texts, self.groups))
            names = range(part.start, part.stop) if ids is None else ids
            yield Batch([str(name) for name in names], self.vectors[part], texts, groups)


def gather(connector: Connector, *, limit: int | None = None, seed: int = 0) -> Collection:
    """All rows of a connector, or a draw of `limit` of those that can be compared (0: all; None: 100,000).

    Rows stream through: no more than the draw, a quarter of it and some batches are held at a time.
    """
    if connector.distance not in (None, *DISTANCES):
        raise InputError(f"{connector.name}: distance {connector.distance!r}; allowed: {', '.join(DISTANCES)}.")
    try:
        draw = _Draw(connector.name, *draw_settings(limit, seed))
        with reading(connector.name, "Write it again.", kind=InputError, is_not="rows with vectors"):
            for batch in connector.batches(BATCH):
                draw.add(batch)
        collection = draw.collection(connector)
    except BaseException:
        close_connector(connector)
        raise
    if collection.search is None or collection.search.exact:  # nothing more will be asked of the store
        collection.close()
    return collection


def draw_settings(limit: Any, seed: Any) -> tuple[int, int]:
    """How many rows are drawn (0: all), and the seed: both checked.

    >>> draw_settings(None, 0)
    (100000, 0)
    """
    most = MOST_ROWS if limit is None else whole_number(limit, "limit", least=0)
    return most, whole_number(seed, "seed", least=0)


def close_connector(connector: Connector | None) -> None:
    """Close it, if that is something it can do."""
    close = getattr(connector, "close", None)
    if close is not None:
        close()


class _Draw:
    """A uniform draw of the rows of a stream: those with the smallest random keys, in their order."""

    def __init__(self, name: str, most: int, seed: int) -> None:
        self.name, self.most = name, most
        self.random = np.random.default_rng(seed)
        self.rows = 0
        self.faults: Counter[str] = Counter()
        self.aside: list[tuple[str, str]] = []
        self.dimension: int | None = None
        self.parts: list[tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]] = []  # keys, vectors, places
        self.words: dict[int, tuple[str, str | None, str | None]] = {}  # of each place: id, text, group
        self.has_texts = self.has_groups = False

    def add(self, batch: Batch) -> None:
        """Take a batch: what is broken is set aside, of the rest the draw is kept."""
        count = len(batch.ids)
        if len(batch.vectors) != count:
            raise InputError(
                f"{self.name}: received {len(batch.vectors)} vectors for {count} rows; one a row is needed."
            )
        reasons, matrix, good = self._checked(batch)
        for position, reason in reasons:
            self.faults[reason] += 1
            if len(self.aside) < _NAMED:
                self.aside.append((str(batch.ids[position]), reason))
        self.has_texts |= batch.texts is not None
        self.has_groups |= batch.groups is not None
        places = self.rows + good
        for position, place in zip(good.tolist(), places.tolist(), strict=True):
            text = None if batch.texts is None else string_or_none(batch.texts[position])
            group = None if batch.groups is None else string_or_none(batch.groups[position])
            self.words[place] = (str(batch.ids[position]), text, group)
        self.rows += count
        self.parts.append((self.random.random(len(good)), matrix, places))
        if self.most and sum(len(keys) for keys, _, _ in self.parts) > 1.25 * self.most:
            self._thin()

    def _checked(self, batch: Batch) -> tuple[list[tuple[int, str]], NDArray[Any], NDArray[np.int64]]:
        """Faulty rows with their faults, the matrix of the sound rows, and their positions in the batch."""
        vectors = batch.vectors
        reasons: list[tuple[int, str]] = []
        if isinstance(vectors, np.ndarray) and vectors.ndim == 2 and vectors.dtype != object:
            positions, matrix = np.arange(len(vectors)), vectors
        else:
            positions, matrix = self._stacked(vectors, reasons)
        if not len(matrix):
            return reasons, np.zeros((0, self.dimension or 0), np.float32), positions
        if matrix.dtype.kind not in "fiu":
            raise InputError(f"{self.name}: received vectors of type {matrix.dtype}; allowed: numbers.")
        matrix = matrix if matrix.dtype in (np.float32, np.float64) else matrix.astype(np.float32)
        self.dimension = self.dimension or matrix.shape[1]
        if matrix.shape[1] != self.dimension:
            reasons += [(int(k), f"dimension {matrix.shape[1]}, not {self.dimension}") for k in positions]
            return reasons, np.zeros((0, self.dimension), matrix.dtype), positions[:0]
        finite = np.isfinite(matrix).all(axis=1)
        nonzero = matrix.any(axis=1)
        reasons += [(int(k), NOT_FINITE) for k in positions[~finite]] + [(int(k), ZERO) for k in positions[~nonzero]]
        return reasons, matrix[finite & nonzero], positions[finite & nonzero]

    def _stacked(self, vectors: Any, reasons: list[tuple[int, str]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of their own as a matrix: those that are there, and as long as the first of all was."""
        present = [(k, np.asarray(row)) for k, row in enumerate(vectors) if row is not None and len(row)]
        reasons += [(k, NO_VECTOR) for k, row in enumerate(vectors) if row is None or not len(row)]
        if not present:
            return np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
        self.dimension = self.dimension or len(present[0][1])
        reasons += [
            (k, f"dimension {len(row)}, not {self.dimension}") for k, row in present if len(row) != self.dimension
        ]
        of_one_length = [(k, row) for k, row in present if len(row) == self.dimension]
        matrix = (
            np.stack([row for _, row in of_one_length]) if of_one_length else np.zeros((0, self.dimension), np.float32)
        )
        return np.array([k for k, _ in of_one_length], dtype=np.int64), matrix

    def _kinds(self) -> str:
        return ", ".join(f"{count:,} with {reason}" for reason, count in self.faults.items())

    def _thin(self) -> None:
        """Down to the draw again."""
        keys, matrix, places = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        if self.most and len(keys) > self.most:
            keep = np.sort(np.argpartition(keys, self.most - 1)[: self.most])
            self.words = {place: self.words[place] for place in places[keep].tolist()}
            keys, matrix, places = keys[keep], matrix[keep], places[keep]
        self.parts = [(keys, matrix, places)]

    def collection(self, connector: Connector) -> Collection:
        """What was drawn."""
        if not self.parts or not any(len(keys) for keys, _, _ in self.parts):
            kinds = f" ({self._kinds()})" if self.faults else ""
            raise InputError(
                f"{self.name}: received {self.rows:,} rows{kinds}; at least one vector is needed. Check the name, "
                f"and the field of the vectors."
            )
        self.parts = [part for part in self.parts if len(part[0])]
        self._thin()
        _, matrix, places = self.parts[0]
        rows = [self.words[place] for place in places.tolist()]
        comparable = self.rows - sum(self.faults.values())
        notes = list(connector.notes)
        if len(matrix) < comparable:
            notes.append(f"{len(matrix):,} of {comparable:,} vectors are drawn (--limit).")
        if self.faults:
            notes.append(f"{self.rows - comparable:,} of {self.rows:,} rows are set aside: {self._kinds()}.")
        whole = Collection(
            vectors=matrix,
            ids=tuple(name for name, _, _ in rows),
            source=self.name,
            groups=tuple(group or "" for _, _, group in rows) if self.has_groups else None,
            rows=self.rows,
            places=places,
            faults=dict(self.faults),
            aside=tuple(self.aside),
            distance=connector.distance,
            search=_in_one_line(getattr(connector, "search", None), self.name),
            notes=tuple(notes),
            connector=connector,
        )
        return _with_own_texts(whole, [text for _, text, _ in rows]) if self.has_texts else whole


def _in_one_line(search: Search | None, name: str) -> Search | None:
    """The search, with whatever its client raises as one line of ours."""
    if search is None:
        return None
    find = search.find

    def search_in_one_line(queries: NDArray[Any], k: int, value: int | None) -> Sequence[Sequence[str]]:
        with asking(name, "Its search failed; nothing was kept. Run it again."):
            return find(queries, k, value)

    return replace(search, find=search_in_one_line)


def _with_own_texts(whole: Collection, texts: Sequence[str | None]) -> Collection:
    """With the texts of the source; rows without one are set aside, unless none has any."""
    empty = np.array([text is None or not text.strip() for text in texts])
    if empty.all():
        return whole
    # `_without` drops the same rows of the texts, so that an empty string may stand for a missing one until then.
    left = replace(whole, texts=tuple(text or "" for text in texts))._without(empty)
    note = f"{empty.sum():,} of {len(empty):,} vectors are set aside, since they have no text."
    return replace(left, notes=(*left.notes, note)) if empty.any() else left
