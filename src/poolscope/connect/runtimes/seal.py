"""A seal: a small file with canary texts and their vectors, by which a server or an index is recognised in seconds.

The check needs no model. Each canary is asked for again, and `match_rows`, the rule of `runtime` and of the audit of
an index, says what the new vector is: the same, near, of another pooling, of another text, or of another model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from poolscope.auditing.words import fill
from poolscope.connect.runtimes.asking import probe_texts
from poolscope.connect.runtimes.rows import SAME, RowMatches, match_rows
from poolscope.connectors import as_collection, is_index
from poolscope.connectors.base import without_secrets
from poolscope.digests import check_seal as check_digest
from poolscope.digests import digest_of, digest_of_arrays, sealed
from poolscope.encoders import as_encoder
from poolscope.encoders.pooling import own_pooling
from poolscope.encoders.sources import as_vector_source, is_vector_source
from poolscope.errors import InputError, StoreError, reading, shorten, whole_number
from poolscope.evaluation.run import PooledModel, for_role
from poolscope.files import atomic_file, text_of
from poolscope.marks import is_marked, mark_of
from poolscope.numbers import Array
from poolscope.numbers.pooling import pool
from poolscope.numbers.streaming import marks_of, smallest
from poolscope.results import Result, origin, plain, provenance, restored
from poolscope.texts import as_texts

CANARIES = 32
KIND = "poolscope seal"
_MADE_BY = "made_by"
_BLOCK = 2**15  # rows of an index that are looked at together
State = Literal["same", "drifted", "other pooling", "other model", "other rows"]
EXIT_CODES: dict[State, int] = {"same": 0, "drifted": 3, "other pooling": 4, "other model": 5, "other rows": 6}
"""The exit code of `poolscope check` for each state; 1 and 2 have their usual meaning."""
_OTHER_POOLINGS = ("mean", "cls", "last", "max")

_SAME = "Same: all {count:count canary text} have the vectors of the seal (lowest cosine {least:score})."
_DRIFTED = "Drifted: {other:count} of {count:count canary text} have another vector than in the seal."
_POOLING = "Other pooling: the vectors are those of the sealed model, pooled by {pooling}."
_MODEL = "Other model: {other:count} of {count:count canary text} have a vector like none in the seal."
_DIMENSION = "Other model: the seal has {sealed:count dimension}, this has {received:count}."
_ROWS = "Other rows: {other:count} of {count:count canary text} have the vector of another text."
_MISSING = "{missing:count canary text} {missing:number is} gone or edited."
SEAL_WORDS = (_SAME, _DRIFTED, _POOLING, _MODEL, _DIMENSION, _ROWS, _MISSING)


@dataclass(frozen=True)
class Seal:
    """What an index or a server was when it was sealed.

    `model` is the card of the model where it is known; `digest` is that of all ids and vectors of an index, "" for a
    server or a model. `texts` are the canaries, `vectors` their vectors, `poolings` the same texts pooled otherwise.
    `own`: did this user make it on this machine?
    """

    source: str
    model: Mapping[str, Any]
    dimension: int
    rows: int
    distance: str | None
    settings: Mapping[str, Any]
    digest: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    vectors: Array
    poolings: Mapping[str, Array]
    made: Mapping[str, Any]
    own: bool = field(default=True, metadata={"transient": True})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the seal as one JSON file."""
        content = {
            "kind": KIND,
            "source": self.source,
            "model": dict(self.model),
            "dimension": self.dimension,
            "rows": self.rows,
            "distance": self.distance,
            "settings": dict(self.settings),
            "digest": self.digest,
            "ids": list(self.ids),
            "texts": list(self.texts),
            "vectors": _listed(self.vectors),
            "poolings": {name: _listed(table) for name, table in self.poolings.items()},
            "made": dict(self.made),
        }
        content = plain(content)
        with atomic_file(path) as stream:
            stream.write((json.dumps(sealed({**content, _MADE_BY: mark_of(content)})) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Seal:
        """Read a seal; a file that is damaged, or no seal, is refused."""
        remedy = "Write it again with `poolscope seal`."
        try:
            with reading(path, remedy, is_not="a seal"):
                content = check_digest(json.loads(text_of(path, StoreError)), path, remedy)
                mark = content.pop(_MADE_BY, None)
                if content.get("kind") != KIND:
                    raise ValueError("it does not say that it is a seal")
                known: Seal = restored(cls, content)
                return replace(known, own=is_marked(content, mark))._checked()
        except FileNotFoundError:
            raise InputError(f"{path}: no such file. Write one with `poolscope seal INDEX -o {path}`.") from None

    def _checked(self) -> Seal:
        """The seal, if its parts fit each other: one vector a text, and of each other pooling, too."""
        shape = (len(self.texts), self.dimension)
        tables = {name: _table(table) for name, table in {"": self.vectors, **self.poolings}.items()}
        if any(table.shape != shape for table in tables.values()) or not self.texts:
            raise ValueError("its texts, vectors and dimension do not fit each other")
        if self.ids and len(self.ids) != len(self.texts):
            raise ValueError("its texts and ids do not fit each other")
        return replace(self, vectors=tables.pop(""), poolings=tables)


def _listed(table: Array) -> list[list[float]]:
    return [[float(f"{value:.7g}") for value in row] for row in np.asarray(table).tolist()]


def _table(rows: Any) -> Array:
    table = np.asarray(rows, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError("its vectors are no matrix of numbers")
    return table


def seal(
    source: Any,
    texts: Any = None,
    *,
    reference: Any = None,
    count: int = CANARIES,
    endpoint: Mapping[str, Any] | None = None,
    **options: Any,
) -> Seal:
    """Seal an index, a server or a model: what it is, and canary texts with their vectors.

    Parameters
    ----------
    source
        Vectors in a file or a store, the address of a server, or a model.
    texts
        The texts of an index that holds none; for a server or a model your own canaries.
    reference
        The model that made the vectors: its card is kept, and what other poolings would give.
    count
        How many canaries.
    endpoint
        Further fields of `Endpoint`.
    **options
        Those of the model.

    Returns
    -------
    Seal
        What `check` compares with; `save` writes it.

    Examples
    --------
    >>> from poolscope.connectors.collection import array_collection
    >>> index = array_collection(np.eye(3), texts=["one", "two", "three"])
    >>> check(seal(index), index).state
    'same'

    """
    whole_number(count, "count")
    digest, rows, distance, name = "", 0, None, ""
    ids: Sequence[str] = ()
    if is_index(source):
        collection = as_collection(source, limit=0) if isinstance(source, str | os.PathLike) else as_collection(source)
        if texts is not None:
            from poolscope.texts import read_texts

            collection = collection.with_texts(read_texts(texts))
        if collection.texts is None:
            raise InputError(f"{collection.source}: holds no texts, so no canary. Name the file of its texts.")
        chosen = np.sort(smallest(marks_of(collection.ids), min(count, len(collection))))
        canaries = [collection.texts[k] for k in chosen]
        ids = [collection.ids[k] for k in chosen]
        vectors = np.asarray(collection.vectors)[chosen].astype(np.float64)
        digest, rows, distance = _digest_of(collection), collection.rows, collection.distance
        name = without_secrets(str(source)) if isinstance(source, str | os.PathLike) else collection.source
        collection.close()
    else:
        canaries = list(as_texts(texts))[:count] if texts is not None else probe_texts()[:count]
        name, vectors = vectors_from(source, canaries, endpoint, options)
        if isinstance(source, str | os.PathLike) and not is_vector_source(source):
            name = os.fspath(source)  # by which `check` opens it again
        reference = source if reference is None and not is_vector_source(source) else reference
    card: dict[str, Any] = {}
    poolings: dict[str, Array] = {}
    if reference is not None:
        encoder = as_encoder(reference, **options)
        card = encoder.card.to_dict()
        if set(encoder.card.after) <= {"Normalize"} and vectors.shape[1] == encoder.card.dimension:
            clouds = for_role(encoder, "document").encode(canaries)[-1]
            own = own_pooling(encoder).label
            poolings = {how: np.asarray(pool(clouds, how)) for how in _OTHER_POOLINGS if how != own}
            poolings = {how: table for how, table in poolings.items() if _cosines(table, vectors).min() < SAME}
    return Seal(
        source=name,
        model=card,
        dimension=int(vectors.shape[1]),
        rows=rows,
        distance=distance,
        settings={key: str(value) for key, value in options.items()},
        digest=digest,
        ids=tuple(ids),
        texts=tuple(canaries),
        vectors=vectors,
        poolings=poolings,
        made=provenance(settings={}),
    )


def _cosines(left: Array, right: Array) -> Array:
    from poolscope.connect.runtimes.asking import row_cosines

    return row_cosines(np.asarray(left, np.float64), np.asarray(right, np.float64))[0]


def _digest_of(collection: Any) -> str:
    return digest_of(
        "\n".join(collection.ids).encode("utf-8", "surrogatepass"),
        digest_of_arrays({"vectors": np.asarray(collection.vectors)}).encode(),
    )


def vectors_from(
    source: Any,
    texts: Sequence[str],
    endpoint: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    role: str = "document",
) -> tuple[str, Array]:
    """The name of a server or a model, and its vectors of the texts; a model reads them in this role."""
    if is_vector_source(source):
        server = as_vector_source(source, **(endpoint or {})).resolved()
        return server.name, server.vectors(texts).astype(np.float64)
    pooled = PooledModel(as_encoder(source, **options))
    return pooled.card.name, pooled.encode(texts, role=role).astype(np.float64)


def _named_by(known: Seal) -> str:
    """What a seal names, if this user made it here: a seal of others may name any file, server or model."""
    if not known.own:
        raise InputError(
            f"This seal was not made by you on this machine. It would open {shorten(known.source)}. Name what to check."
        )
    return known.source


def _holders(table: Array, texts: Sequence[str] | None, own: Seal, canaries: Sequence[int]) -> list[int]:
    """Rows of other texts that hold the sealed vector of a canary: an index whose rows were mixed up has such."""
    sealed_units = own.vectors / np.linalg.norm(own.vectors, axis=1, keepdims=True)
    holders: list[int] = []
    for start in range(0, len(table), _BLOCK):
        block = np.asarray(table[start : start + _BLOCK], dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            near = (block @ sealed_units.T) / np.linalg.norm(block, axis=1, keepdims=True) >= SAME
        holders += [start + int(k) for k in np.flatnonzero(near.any(axis=1))]
    others = set(holders) - set(canaries)
    return [k for k in sorted(others) if texts is None or texts[k] not in own.texts]


@dataclass(frozen=True, repr=False, kw_only=True)
class SealCheck(Result):
    """What a server or an index is now, beside its seal; `state` is one of `EXIT_CODES`."""

    state: State
    source: str
    count: int
    missing: int
    sealed_dimension: int
    dimension: int
    least: float
    whole: bool
    match: RowMatches | None
    provenance: Mapping[str, Any] = origin()

    @property
    def exit_code(self) -> int:
        """What `poolscope check` ends with."""
        return EXIT_CODES[self.state]

    def headline(self) -> dict[str, Any]:
        """The state, and the lowest cosine."""
        return {"state": self.state, "canaries": self.count, "least": self.least}

    def in_words(self) -> tuple[str, ...]:
        """What it is now, in words."""
        other = 0 if self.match is None else int(self.match.differ.sum())
        values = {
            "count": self.count,
            "other": other,
            "least": self.least,
            "pooling": "" if self.match is None else self.match.pooling,
            "missing": self.missing,
            "sealed": self.sealed_dimension,
            "received": self.dimension,
        }
        templates = {
            "same": _SAME,
            "drifted": _DRIFTED,
            "other pooling": _POOLING,
            "other model": _MODEL if self.match is not None else _DIMENSION,
            "other rows": _ROWS,
        }
        sentences = [] if self.match is None and self.state == "drifted" else [fill(templates[self.state], values)]
        return (*sentences, *([fill(_MISSING, values)] if self.missing else []))

    def rows(self) -> list[dict[str, Any]]:
        """One row a canary."""
        return [] if self.match is None else self.match.rows()


def check(
    known: Seal | str | os.PathLike[str],
    target: Any = None,
    texts: Any = None,
    *,
    endpoint: Mapping[str, Any] | None = None,
    **options: Any,
) -> SealCheck:
    """Is a server, an index or a model still what was sealed? By default the one that the seal names.

    A canary of an index that is gone, or whose text was edited, counts as drift.

    Parameters
    ----------
    known
        A seal, or the file that `Seal.save` wrote.
    target
        Vectors in a file or a store, the address of a server, or a model; by default what the seal names, if you made
        it on this machine.
    texts
        The texts of an index that holds none.
    endpoint
        Further fields of `Endpoint`.
    **options
        Those of the model.

    Returns
    -------
    SealCheck
        The state with its exit code, and what each canary is.

    Examples
    --------
    >>> from poolscope.connectors.collection import array_collection
    >>> texts = [f"text {n}" for n in range(9)]
    >>> table = np.random.default_rng(0).standard_normal((2, 9, 16))
    >>> check(seal(array_collection(table[0], texts=texts)), array_collection(table[1], texts=texts)).state
    'other model'

    """
    own = known if isinstance(known, Seal) else Seal.load(known)
    target = _named_by(own) if target is None else target
    rows = np.arange(len(own.texts))
    whole = False
    if is_index(target):
        collection = as_collection(target, limit=0) if isinstance(target, str | os.PathLike) else as_collection(target)
        if texts is not None:
            from poolscope.texts import read_texts

            collection = collection.with_texts(read_texts(texts))
        place = {name: k for k, name in enumerate(collection.ids)}
        unchanged = [
            k
            for k, name in enumerate(own.ids)
            if name in place and (collection.texts is None or collection.texts[place[name]] == own.texts[k])
        ]
        if not own.ids:
            raise InputError(f"{own.source}: this seal is of a server or a model, and has no ids. Name a server.")
        rows = np.array(unchanged, dtype=np.int64)
        table, places = np.asarray(collection.vectors), [place[own.ids[k]] for k in unchanged]
        whole = _digest_of(collection) == own.digest
        if not whole and table.shape[1] == own.dimension:
            places += _holders(table, collection.texts, own, places)
        vectors = table[places].astype(np.float64)
        name = collection.source
        collection.close()
    else:
        name, vectors = vectors_from(target, own.texts, endpoint, options)
    missing = len(own.texts) - len(rows)
    dimension = int(vectors.shape[1]) if vectors.ndim == 2 else 0
    match, least = None, 0.0
    state: State = "drifted"
    if len(rows) and dimension != own.dimension:
        state = "other model"
    elif len(rows):
        poolings = {name: each[rows] for name, each in own.poolings.items()}
        match = match_rows(vectors, own.vectors[rows], rows=np.arange(len(rows)), poolings=poolings)
        least = float(match.cosines.min())
        states: dict[str, State] = {
            "own": "drifted" if missing else "same",
            "moved": "other rows",
            "pooled": "other pooling",
            "stale": "drifted",
            "foreign": "other model",
        }
        state = states[match.main]
    return SealCheck(
        state=state,
        source=name,
        count=len(own.texts),
        missing=missing,
        sealed_dimension=own.dimension,
        dimension=dimension,
        least=least,
        whole=whole,
        match=match,
        provenance=provenance(settings={"same": SAME}),
    )
