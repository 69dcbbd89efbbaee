"""Vectors that are there already, in a file or a vector store, read-only: one door, and one file a kind.

`CONNECTORS` is the table of the kinds. A package outside poolscope adds one by an entry point of the group
`poolscope.extensions`, whose module calls `register_connector`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poolscope.clouds.vectors import Vectors
from poolscope.connectors import files
from poolscope.connectors.base import DISTANCES, Batch, Connector, ConnectorKind, Distance, Fields, NewRows
from poolscope.connectors.collection import Collection, array_collection, draw_settings, gather
from poolscope.errors import InputError, did_you_mean, reading
from poolscope.extensions import add_row, load_extensions, resolve, rows_of
from poolscope.texts.sources import exists
from poolscope.texts.tables import is_table


def _begins(*starts: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(starts)


def _of_room(name: str, words: str, starts: tuple[str, ...], open: str, write: str, extra: str | None) -> ConnectorKind:
    """A kind of store that a room brings; its module is imported when such a store is opened."""
    return ConnectorKind(
        name,
        words,
        _begins(*starts),
        lambda *address: resolve(open)(*address),
        extra,
        lambda *rows: resolve(write)(*rows),
    )


# The first kind that accepts a name opens it.
CONNECTORS: dict[str, ConnectorKind] = {
    kind.name: kind
    for kind in (
        *(_of_room(**row) for row in rows_of("CONNECTORS")),
        ConnectorKind(
            "faiss",
            "faiss:file, or a .faiss or .index file",
            files.is_faiss,
            files.open_faiss,
            "faiss",
            files.write_faiss,
        ),
        ConnectorKind(
            "lancedb", "lancedb:folder/table", files.is_lance, files.open_lance, "lancedb", files.write_lance
        ),
        ConnectorKind("numpy", "a .npy or .npz file", files.is_numpy, files.open_numpy, write=files.write_numpy),
        ConnectorKind(
            "arrow",
            "a .parquet, .arrow or .feather file or a folder of .parquet files",
            files.is_arrow_source,
            files.open_arrow,
            write=files.write_parquet,
        ),
    )
}


def register_connector(kind: ConnectorKind) -> ConnectorKind:
    """Add a kind of store to the table; a name stands once, and the newest is asked first.

    >>> from poolscope.connectors import Batch, Connector
    >>> class Ones:
    ...     name, distance, notes = "ones", None, ()
    ...     def batches(self, size):
    ...         yield Batch(["a", "b"], np.ones((2, 3)))
    >>> kind = ConnectorKind("ones", "ones:", lambda name: name.startswith("ones:"), lambda name, fields: Ones())
    >>> _ = register_connector(kind)
    >>> read_index("ones:any")
    Collection(2 vectors of dimension 3 from ones)
    >>> del CONNECTORS["ones"]
    """
    added: ConnectorKind = add_row(CONNECTORS, kind, "connector", first=True)
    return added


def kind_of(name: str) -> ConnectorKind | None:
    """The kind that recognises a name; None where it means something else, such as a model."""
    load_extensions()
    exists(Path(name))  # which refuses what may not be read, before every kind looks at it
    return next((kind for kind in CONNECTORS.values() if kind.accepts(name)), None)


def is_index(source: Any) -> bool:
    """Are these vectors: a name that a connector knows, a matrix, a `Collection`, a table with a column of vectors?

    >>> is_index("vectors.npy"), is_index(np.eye(2)), is_index("org/model"), is_index([np.eye(2)])
    (True, True, False, False)
    """
    if isinstance(source, str | os.PathLike):
        return kind_of(os.fspath(source)) is not None
    return isinstance(source, Collection | Vectors | np.ndarray) or _is_tensor(source) or _is_frame(source)


def _is_frame(source: Any) -> bool:
    """A table in memory other than a dictionary, which holds texts."""
    return is_table(source) and not isinstance(source, Mapping)


def _is_tensor(source: Any) -> bool:
    return hasattr(source, "detach") and hasattr(source, "shape") and not hasattr(source, "forward")


def read_index(
    source: str | os.PathLike[str],
    *,
    vector_column: str | None = None,
    column: str | None = None,
    id_column: str | None = None,
    group: str | None = None,
    distance: Distance | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Collection:
    """The vectors of a file or a vector store, read-only and in batches.

    Parameters
    ----------
    source
        A `.npy`, `.npz`, `.parquet`, `.arrow` or `.feather` file, a folder of Parquet files, or an address of a store:
        the table of `docs/vectors.md` has them all.
    vector_column, column, id_column, group
        The fields of vector, text, id and group, where they cannot be told by their names.
    distance
        What you search by: "cosine", "dot" or "l2", where the source does not say so.
    limit
        Draw that many vectors; by default 100,000, and 0 takes all.
    seed
        Of the draw.

    Returns
    -------
    Collection
        The vectors with ids, texts and groups, as far as the source has them, and what was set aside.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "vectors.npz"
    >>> np.savez(path, vectors=np.eye(2), texts=np.array(["one text", "another"]))
    >>> read_index(path).texts
    ('one text', 'another')

    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else source
    if not isinstance(name, str):
        raise InputError(
            f"source: received {type(name).__name__}; allowed: a path or an address. Arrays and tables in memory go to "
            f"audit as they are."
        )
    draw_settings(limit, seed)  # before a store is opened
    kind = kind_of(name)
    if kind is None:
        allowed = ", ".join(each.words for each in CONNECTORS.values())
        raise InputError(f"{name}: received no vectors that poolscope knows; allowed: {allowed}.")
    with reading(name, "Write it again.", kind=InputError, is_not=kind.words):
        connector: Connector = kind.open(name, Fields(vector_column, column, id_column, group))
    gathered = gather(connector, limit=limit, seed=seed)
    return _searched_by(gathered, distance)


def check_place(name: str) -> Callable[[str, NewRows], None]:
    """What writes vectors to a place of this name; an error where nothing does."""
    kind = kind_of(name)
    if kind is None or kind.write is None:
        allowed = ", ".join(each.words for each in CONNECTORS.values() if each.write is not None)
        raise InputError(f"{name}: received no place for vectors; allowed: {allowed}.")
    return kind.write


def write_index(
    place: str | os.PathLike[str],
    vectors: Any,
    *,
    ids: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    distance: Distance = "cosine",
) -> str:
    """Write vectors as a new file or a new collection of a vector store; what is there already is never touched.

    Parameters
    ----------
    place
        A `.npy`, `.npz` or `.parquet` file, or an address as `read_index` takes it, whose collection or table does not
        exist yet.
    vectors
        One row a text (N × d).
    ids, texts, groups
        Of each row: its name (by default its number), its text, and its document.
    distance
        What the new collection searches by.

    Returns
    -------
    str
        The place, as `read_index` takes it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "vectors.parquet"
    >>> read_index(write_index(path, np.eye(2), ids=["a", "b"], texts=["one text", "another"])).ids
    ('a', 'b')

    """
    name = os.fspath(place)
    try:
        matrix = np.asarray(vectors)
    except ValueError:  # rows of different lengths
        matrix = np.empty(0, dtype=object)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "fiu":
        raise InputError(f"vectors: received {matrix.dtype} of shape {matrix.shape}; needed: a matrix, one row a text.")
    if distance not in DISTANCES:
        raise InputError(
            f"distance: received {distance!r}; allowed: {', '.join(DISTANCES)}.{did_you_mean(distance, DISTANCES)}"
        )
    named = {"ids": ids, "texts": texts, "groups": groups}
    for part, values in named.items():
        if values is not None and len(values) != len(matrix):
            raise InputError(f"{part}: received {len(values):,} for {len(matrix):,} vectors; one a vector is needed.")
    write = check_place(name)
    words = {part: None if values is None else [str(each) for each in values] for part, values in named.items()}
    own = words["ids"] or [str(k) for k in range(len(matrix))]
    if len(set(own)) < len(own):
        raise InputError(f"ids: {len(own) - len(set(own)):,} of {len(own):,} stand twice. Give each row its own.")
    write(name, NewRows(own, matrix.astype(np.float32), words["texts"], words["groups"], distance))
    return name


def as_collection(source: Any, **options: Any) -> Collection:
    """The collection of whatever holds vectors; `options` are those of `read_index`."""
    if isinstance(source, str | os.PathLike):
        return read_index(source, **options)
    distance = options.pop("distance", None)
    if isinstance(source, Collection):
        return _searched_by(source, distance)
    drawn = {name: options[name] for name in ("limit", "seed") if name in options}
    if isinstance(source, Vectors):
        collection = array_collection(
            source.vectors, texts=source.texts, ids=source.ids, groups=source.labels, source=source.source, **drawn
        )
    elif _is_frame(source):
        names = ("vector_column", "column", "id_column", "group")
        collection = gather(files.table_connector(source, Fields(*(options.get(name) for name in names))), **drawn)
    else:
        matrix = source.detach().cpu().float().numpy() if _is_tensor(source) else source
        collection = array_collection(matrix, **drawn)
    return _searched_by(collection, distance)


def _searched_by(collection: Collection, distance: Distance | None) -> Collection:
    if distance is None:
        return collection
    if distance not in DISTANCES:
        raise InputError(
            f"distance: received {distance!r}; allowed: {', '.join(DISTANCES)}.{did_you_mean(distance, DISTANCES)}"
        )
    if collection.distance not in (None, distance):
        raise InputError(
            f"distance: received {distance!r}, but {collection.source} searches by {collection.distance!r}. Leave it "
            f"out."
        )
    return replace(collection, distance=distance)


__all__ = [
    "CONNECTORS",
    "Batch",
    "Collection",
    "Connector",
    "ConnectorKind",
    "Fields",
    "NewRows",
    "as_collection",
    "is_index",
    "read_index",
    "register_connector",
    "write_index",
]
