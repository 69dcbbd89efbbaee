"""Files of vectors: Parquet, Arrow and Feather, folders of them, data frames, LanceDB, numpy and FAISS."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds.vectors import is_list, numpy_parts, rows_of_lists
from poolscope.connectors.base import (
    DISTANCES,
    VECTOR_HINTS,
    VECTORS,
    Batch,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    chosen,
    guess,
    guessed_notes,
    in_batches,
    string_or_none,
    table_fields,
)
from poolscope.connectors.collection import InMemory
from poolscope.connectors.received import refuse_links
from poolscope.errors import InputError, did_you_mean, reading, require
from poolscope.files import atomic_file, files_below, is_file, is_folder, is_there
from poolscope.numbers.ranking import unit_rows
from poolscope.texts import read_texts
from poolscope.texts.groups import document_columns
from poolscope.texts.plain import Room, decoded_size, refuse_packed_arrow, refuse_packed_parquet
from poolscope.texts.tables import checked_batch

FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}


class ArrowConnector:
    """Batches of a schema; `scan(columns, size)` gives the record batches of some columns."""

    distance: Distance | None = None

    def __init__(self, name: str, schema: pa.Schema, scan: Any, fields: Fields) -> None:
        self.name = name
        self._scan = scan
        self.fields = arrow_fields(schema, fields, name)
        self.notes: Sequence[str] = guessed_notes(fields, self.fields)

    def batches(self, size: int) -> Iterator[Batch]:
        """The vectors as they lie in the file, without a copy where all rows have one."""
        taken = self.fields
        columns = [name for name in (taken.vector, taken.text, taken.id, taken.group) if name is not None]
        with reading(self.name, "Write it again.", kind=InputError, is_not="a table that Arrow can read"):
            row = 0
            for record in self._scan(list(dict.fromkeys(columns)), size):
                yield self._batch(checked_batch(record), row)
                row += len(record)

    def _batch(self, record: Any, row: int) -> Batch:
        def strings(name: str | None) -> list[str | None] | None:
            return None if name is None else [string_or_none(value) for value in record.column(name).to_pylist()]

        ids = strings(self.fields.id)
        return Batch(
            ids=[str(row + k) for k in range(len(record))]
            if ids is None
            else [str(row + k) if name is None else name for k, name in enumerate(ids)],
            vectors=rows_of_lists(record.column(self.fields.vector)),
            texts=strings(self.fields.text),
            groups=strings(self.fields.group),
        )


def is_vector_type(kind: Any) -> bool:
    """Lists of floating-point numbers; lists of whole numbers are token ids as often as not."""
    return is_list(kind) and bool(pa.types.is_floating(kind.value_type))


def arrow_fields(schema: pa.Schema, wanted: Fields, source: str) -> Fields:
    """The columns of vectors, texts, ids and groups: as named, or by their names and types."""
    names = list(schema.names)
    if double := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{source}: received the column '{double}' more than once; allowed: each once. Rename one.")
    lists = [name for name in names if is_vector_type(schema.field(name).type)]
    only = lists[0] if len(lists) == 1 else None
    vector = chosen("vectors", wanted.vector, names, guess(lists, VECTORS, VECTOR_HINTS) or only, source)
    if vector is None:
        raise InputError(
            f"{source}: received the columns {', '.join(names) or 'none'}; {len(lists)} of them hold lists of numbers "
            f"that could be the vectors. Name the column (--vector-column)."
        )
    if not is_vector_type(schema.field(vector).type):
        kind = schema.field(vector).type
        raise InputError(f"{source}: the column '{vector}' is {kind}; needed: lists of floating-point numbers.")
    words = [name for name in names if _is_words(schema.field(name).type)]
    plain = [name for name in names if not pa.types.is_nested(schema.field(name).type)]
    return table_fields(wanted, vector, names, words, plain, source)


def _is_words(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view")


# -- files and folders ------------------------------------------------------------------------------------------------


def is_arrow_source(name: str) -> bool:
    """A Parquet, Arrow or Feather file with a column of vectors, or a folder of Parquet files; not a cloud file."""
    path = Path(name)
    if path.suffix.lower() == ".parquet":
        return True
    if path.suffix.lower() in FORMATS:
        return is_file(path) and _has_vectors(path)
    if not is_folder(path) or (path / "manifest.json").exists():  # a store of clouds, with its labels in Parquet
        return False
    return next(files_below(path, ".parquet"), None) is not None


def _has_vectors(path: Path) -> bool:
    try:
        with pa.OSFile(str(path)) as file:  # a data set would bring pandas along, to look at every cloud file
            schema = pa.ipc.open_file(file).schema
        return "tokens" not in schema.names and any(is_vector_type(field.type) for field in schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError, InputError):
        return False


def _dataset(path: Path) -> Any:
    import pyarrow.dataset as ds  # it brings pandas along, where that is installed: not before it is needed

    kind: Any = FORMATS.get(path.suffix.lower(), "parquet")
    if kind == "parquet":  # read ahead, a whole file would be held at once
        kind = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False))
    if path.is_dir():
        return ds.dataset(sorted(str(file) for file in files_below(path, ".parquet") if file.is_file()), format=kind)
    return ds.dataset(str(path), format=kind)


def open_arrow(name: str, fields: Fields) -> ArrowConnector:
    """A file, or all Parquet files of a folder in the order of their names."""
    path = Path(name)
    if not is_file(path) and not is_folder(path):
        raise InputError(f"{name}: there is no such file or folder (pipes are not read). Check the spelling.")
    with reading(path.name, "Write it again.", kind=InputError, is_not="a table that Arrow can read"):
        dataset = _dataset(path)
        _ = dataset.schema.names  # decoded only here
        for file in map(Path, dataset.files):
            if FORMATS.get(file.suffix.lower(), "parquet") == "ipc":
                refuse_packed_arrow(file)
            else:
                refuse_packed_parquet(file)

    def scan(columns: list[str], size: int) -> Any:
        room = Room(path, size=sum(Path(file).stat().st_size for file in dataset.files))
        # One file after the other, so that rows come in their order.
        for batch in dataset.to_batches(columns=columns, batch_size=size, use_threads=False, batch_readahead=1):
            if FORMATS.get(path.suffix.lower(), "parquet") == "parquet":  # the other was judged in whole
                room.take(decoded_size(batch))
            yield batch

    return ArrowConnector(path.name, dataset.schema, scan, fields)


def write_parquet(name: str, rows: NewRows) -> None:
    """A new Parquet file of ids, documents, texts and vectors."""
    path = Path(name)
    if path.suffix.lower() != ".parquet":
        raise InputError(f"{name}: vectors are written as .parquet, .npz or .npy. End the name in one of these.")
    if is_there(path):
        raise already_there(name)
    import pyarrow.parquet as pq  # not before a file is written

    with atomic_file(path) as stream:
        pq.write_table(_arrow_rows(rows), stream)


def _arrow_rows(rows: NewRows) -> pa.Table:
    """Rows as a table, with vectors of one length."""
    flat = pa.array(np.ascontiguousarray(rows.vectors).ravel())
    vectors = pa.FixedSizeListArray.from_arrays(flat, rows.vectors.shape[1])
    columns = {column: pa.array(list(values), pa.string()) for column, values in rows.columns().items()}
    return pa.table({**columns, "vector": vectors})


def table_connector(source: Any, fields: Fields) -> ArrowConnector:
    """A table in memory: Arrow, pandas, polars, a data set."""
    with reading("table", "Give every row a list of numbers.", kind=InputError, is_not="what Arrow can read"):
        table = pa.table(source.with_format("arrow")[:] if hasattr(source, "with_format") else source)
        _ = table.schema.names  # decoded only here

    def scan(columns: list[str], size: int) -> Any:
        return table.select(columns).to_batches(max_chunksize=size)

    return ArrowConnector("table", table.schema, scan, fields)


# -- LanceDB: `lancedb:folder/table`; a folder `NAME.lance` is the table of that name ----------------------------------

LANCE = "lancedb:"


def is_lance(name: str) -> bool:
    """Is it a table of LanceDB, or the folder of one?"""
    return name.startswith(LANCE) or (name.rstrip("/").endswith(".lance") and is_folder(Path(name)))


def open_lance(name: str, fields: Fields) -> LanceConnector:
    """The table that the address names."""
    place = Path(name.removeprefix(LANCE).partition("?")[0].rstrip("/")).expanduser()
    folder, table = place.parent, place.name.removesuffix(".lance")
    shown = f"{LANCE}{folder / table}"
    if not is_folder(folder):
        raise InputError(f"{shown}: there is no such folder. Check the spelling.")
    lancedb = require("lancedb", "lancedb")
    with reading(shown, "Write it again.", kind=InputError, is_not="a table of LanceDB"):
        refuse_links(folder / f"{table}.lance")
    with asking(shown, "Check that the folder is one of LanceDB."):
        base = lancedb.connect(str(folder.absolute()))  # a path that starts like an address would be taken for one
        listed = base.list_tables()
        names = list(getattr(listed, "tables", listed))
        if table not in names:
            raise InputError(
                f"{shown}: there is no such table; there are {', '.join(names) or 'none'}.{did_you_mean(table, names)}"
            )
        return LanceConnector(shown, base.open_table(table), fields)


def write_lance(name: str, rows: NewRows) -> None:
    """A new table of LanceDB."""
    place = Path(name.removeprefix(LANCE).rstrip("/")).expanduser()
    folder, table = place.parent, place.name.removesuffix(".lance")
    shown = f"{LANCE}{folder / table}"
    if (folder / f"{table}.lance").exists():
        raise already_there(shown)
    with asking(shown, "Check that the folder can be written to."):
        base = require("lancedb", "lancedb").connect(str(folder.absolute()))
        base.create_table(table, data=_arrow_rows(rows), mode="create")


class LanceConnector(ArrowConnector):
    """The rows of a table in the order of their fragments, which is that of insertion."""

    def __init__(self, name: str, table: Any, fields: Fields) -> None:
        def scan(columns: list[str], size: int) -> Any:
            return table.search().select(columns).to_batches(batch_size=size)

        super().__init__(name, table.schema, scan, fields)
        self._table = table
        self.distance, self.search = self._index()

    def _index(self) -> tuple[Distance | None, Search | None]:
        """The distance and the kind of the index on the column of vectors; None where every vector is looked at."""
        indexes = [each for each in self._table.list_indices() if self.fields.vector in each.columns]
        own = self.fields.id
        if not indexes:
            return None, None
        about = self._table.index_stats(indexes[0].name)
        told = str(getattr(about, "distance_type", "")).lower()
        distance = next((each for each in DISTANCES if each == told), None)
        if own is None:
            return distance, None

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            rows = []
            for query in queries:
                search = self._table.search(np.asarray(query, dtype=np.float32), self.fields.vector)
                search = search.limit(k).select([own])
                search = search if distance is None else search.distance_type(distance)
                search = search if value is None else search.nprobes(value)
                rows.append([str(row[own]) for row in search.to_list()])
            return rows

        return distance, Search(
            find, str(indexes[0].index_type), setting="nprobes", values=(1, 2, 4, 8, 16, 32, 64, 128)
        )


# -- `.npy` and `.npz`: the matrix, and in an archive texts, ids and labels beside it ----------------------------------


def is_numpy(name: str) -> bool:
    """Does the name end in .npy or .npz?"""
    return Path(name).suffix.lower() in (".npy", ".npz")


def open_numpy(name: str, fields: Fields) -> InMemory:
    """The arrays of a file."""
    path = Path(name)
    if not is_file(path):
        raise InputError(f"{name}: there is no such file. Check the spelling, or write it with numpy.save.")
    named = {"vectors": fields.vector, "texts": fields.text, "ids": fields.id, "labels": fields.group}
    parts = numpy_parts(path, {part: name for part, name in named.items() if name is not None})
    shape = parts["vectors"].shape
    if len(shape) != 2 or not shape[1]:
        raise InputError(f"{path.name}: received an array of shape {shape}; needed: a matrix, one row a vector.")
    for part, values in parts.items():
        if values.shape[:1] != shape[:1]:
            raise InputError(
                f"{path.name}: received {part} of shape {values.shape} for {shape[0]} vectors; one a vector is needed."
            )
    vectors = parts.pop("vectors")
    words = {part: [str(value) for value in values.tolist()] for part, values in parts.items()}
    return InMemory(path.name, vectors, words.get("texts"), words.get("ids"), words.get("labels"))


def write_numpy(name: str, rows: NewRows) -> None:
    """A new array; an archive (.npz) holds ids, texts and labels, too."""
    path = Path(name)
    if is_there(path):
        raise already_there(name)
    with atomic_file(path) as stream:
        if path.suffix.lower() == ".npy":
            np.save(stream, rows.vectors)
        else:
            named = {"ids": rows.ids, "texts": rows.texts, "labels": rows.groups}
            arrays: dict[str, Any] = {
                part: np.array(each, dtype=str) for part, each in named.items() if each is not None
            }
            np.savez(stream, vectors=rows.vectors, **arrays)


# -- FAISS: `faiss:file`, with the texts in a file beside it (`?texts=FILE`) or as the second argument ----------------

FAISS = "faiss:"
Words = list[str | None]
_SETTINGS = {
    "hnsw": ("efSearch", (16, 32, 64, 128, 256, 512, 1024)),
    "ivf": ("nprobe", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
}


# Inverted lists on disk: the mark, how many lists, bytes of a code. What follows names the file of the vectors.
_ELSEWHERE = re.compile(rb"ilod.{4}\0{4}.{4}\0{4}", re.DOTALL)


def is_faiss(name: str) -> bool:
    """Is this an index of FAISS: by `faiss:`, or by the ending of its file?

    >>> [is_faiss(name) for name in ("faiss:file", "my.faiss", "MY.INDEX?texts=t.txt", "org/model", "http://host/a.index")]
    [True, True, True, False, False]
    """
    ending = Path(name.partition("?")[0]).suffix.lower()
    return name.startswith(FAISS) or ("://" not in name and ending in (".faiss", ".index"))


def open_faiss(name: str, fields: Fields) -> FaissConnector:
    """The index of the file; texts of the file that `?texts=` names."""
    place, _, query = name.removeprefix(FAISS).partition("?")
    path = Path(place).expanduser()
    if not is_file(path):
        raise InputError(f"{FAISS}{place}: there is no such file. Check the spelling.")
    texts = parse_qs(query).get("texts", [None])[0]
    faiss = require("faiss", "faiss")
    with reading(path.name, "Write it again with faiss.write_index.", kind=InputError, is_not="an index of FAISS"):
        index = _read(faiss, path)
    return FaissConnector(path.name, index, fields, texts)


def write_faiss(name: str, rows: NewRows) -> None:
    """A new flat index: ids that are whole numbers are kept, otherwise rows are told by their place."""
    place = name.removeprefix(FAISS).partition("?")[0]
    path = Path(place).expanduser()
    if is_there(path):
        raise already_there(f"{FAISS}{place}")
    faiss = require("faiss", "faiss")
    flat = faiss.IndexFlatL2 if rows.distance == "l2" else faiss.IndexFlatIP
    vectors = unit_rows(rows.vectors, "vectors") if rows.distance == "cosine" else rows.vectors
    index, table = flat(vectors.shape[1]), np.ascontiguousarray(vectors, dtype=np.float32)
    if all(each.isdecimal() and len(each) < _MOST_DIGITS for each in rows.ids):
        index = faiss.IndexIDMap(index)
        index.add_with_ids(table, np.array([int(each) for each in rows.ids], dtype=np.int64))
    else:
        index.add(table)
    with atomic_file(path) as stream:
        stream.write(faiss.serialize_index(index).tobytes())


_MOST_DIGITS = 19  # of a whole number of 64 bits


def _read(faiss: Any, path: Path) -> Any:
    """The index, with no part of it longer than the file: a damaged length would ask for all memory."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if _ELSEWHERE.search(content):
            raise ValueError("its vectors lie in another file, which it names itself")
    before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    size = path.stat().st_size
    faiss.set_deserialization_vector_byte_limit(size)
    faiss.set_deserialization_loop_limit(size)
    try:
        # Tables that only make searches faster are larger than their index now and then.
        index = faiss.read_index(str(path), faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
    finally:
        faiss.set_deserialization_vector_byte_limit(before[0])
        faiss.set_deserialization_loop_limit(before[1])
    if not index.is_trained:
        raise ValueError("it was not trained")
    if not (0 <= index.ntotal <= size and 0 < index.d <= size):
        raise ValueError(f"{index.ntotal:,} vectors of {index.d:,} dimensions in {size:,} bytes")
    return index


class FaissConnector:
    """The vectors of an index, made again from what it stores: exact for flat indexes, as the codes are for others."""

    def __init__(self, name: str, index: Any, fields: Fields, texts: str | None) -> None:
        faiss = require("faiss", "faiss")
        self.name, self._index = name, index
        metrics: dict[int, Distance] = {faiss.METRIC_INNER_PRODUCT: "dot", faiss.METRIC_L2: "l2"}
        self.distance = metrics.get(index.metric_type)
        self.notes: Sequence[str] = ()
        self._ids, self._inner = self._numbered(faiss)
        self._ivf = faiss.try_extract_index_ivf(self._inner)
        self._give_quantizer(faiss)
        self._by_id = self._ivf is not None and not self._has_direct_map()
        if self._by_id:
            self._ids = self._own_ids(faiss)
            self.notes = ("Rows are in the order of their ids: an IVF index does not keep that of insertion.",)
        self._words: tuple[Words | None, Words | None] = (None, None) if texts is None else self._sidecar(texts, fields)
        self.search = self._search(faiss)

    def _numbered(self, faiss: Any) -> tuple[NDArray[np.int64], Any]:
        """The ids of the rows, and the index below those ids."""
        mapped = faiss.downcast_index(self._index)
        if hasattr(mapped, "id_map"):
            return faiss.vector_to_array(mapped.id_map), faiss.downcast_index(mapped.index)
        return np.arange(self._index.ntotal), mapped

    def _give_quantizer(self, faiss: Any) -> None:
        """Of some kinds FAISS forgets the quantizer when it reads them, and ends the process where it is needed."""
        ivf = None if self._ivf is None else faiss.downcast_index(self._ivf)
        if ivf is not None and getattr(ivf, "fine_quantizer", self) is None:
            ivf.fine_quantizer = getattr(ivf, "pq", None) or getattr(ivf, "aq", None)

    def _has_direct_map(self) -> bool:
        """Whether the rows of an IVF index are numbered from 0, so that they can be told by their places."""
        try:
            self._ivf.make_direct_map()
        except RuntimeError:
            return False
        return True

    def _own_ids(self, faiss: Any) -> NDArray[np.int64]:
        """The ids that an IVF index stores itself (add_with_ids, remove_ids), in their order."""
        ivf, lists = faiss.downcast_index(self._ivf), self._ivf.invlists
        sizes = [(k, lists.list_size(k)) for k in range(lists.nlist)]
        parts = [np.array(faiss.rev_swig_ptr(lists.get_ids(k), size)) for k, size in sizes if size]
        ids = np.unique(np.concatenate(parts)).astype(np.int64)
        mapped, kind = hasattr(faiss.downcast_index(self._index), "id_map"), type(ivf).__name__
        if mapped or "FastScan" in kind or len(ids) != self._index.ntotal:
            raise InputError(
                f"{self.name}: received {self._index.ntotal:,} vectors in a {kind} with {len(ids):,} ids that do not "
                f"run from 0; its vectors cannot be told by them. Keep them in a file (.npy) and name that."
            )
        self._ivf.set_direct_map_type(faiss.DirectMap.Hashtable)
        return ids

    def _sidecar(self, texts: str, fields: Fields) -> tuple[Words, Words | None]:
        """Text and document of each row: by id where the file has a column of ids, otherwise by its place."""
        if self._by_id and fields.id is None:
            raise InputError(
                f"{texts}: received texts without ids for {self.name}, whose rows have ids of their own and no order; "
                f"texts are needed by id. Name a column of ids (--id-column)."
            )
        group, told = document_columns(texts, fields.text, fields.id)
        group = fields.group or group or (told if fields.id is None else None)
        corpus = read_texts(texts, column=fields.text, id_column=fields.id, label_column=group)
        known = dict(zip(corpus.ids, corpus.texts, strict=True))
        if fields.id is None and corpus.report.read != len(self._ids):
            raise InputError(
                f"{texts}: received {corpus.report.read:,} texts for the {len(self._ids):,} vectors of {self.name}; "
                f"one a vector is needed, in their order. Name a column of ids (--id-column)."
            )
        names = list(map(str, self._ids.tolist() if fields.id is not None else range(len(self._ids))))
        self.notes = (*self.notes, *corpus.report.notes())
        if corpus.labels is None:
            return [known.get(name) for name in names], None
        labels = dict(zip(corpus.ids, corpus.labels, strict=True))
        return [known.get(name) for name in names], [labels.get(name) for name in names]

    def batches(self, size: int) -> Iterator[Batch]:
        """In the order of the rows."""
        for part in in_batches(len(self._ids), size):
            try:
                if self._by_id:
                    vectors = self._inner.reconstruct_batch(self._ids[part])
                else:
                    vectors = self._inner.reconstruct_n(part.start, part.stop - part.start)
            except RuntimeError as error:
                kind = type(self._inner).__name__
                raise InputError(
                    f"{self.name}: a {kind} does not give its vectors back. Keep them in a file (.npy) and name that."
                ) from error
            texts, groups = (None if words is None else words[part] for words in self._words)
            yield Batch([str(name) for name in self._ids[part].tolist()], vectors, texts, groups)

    def _search(self, faiss: Any) -> Search:
        hnsw = hasattr(self._inner, "hnsw")
        kind = "hnsw" if hnsw else "ivf" if self._ivf is not None else ""

        def find(queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
            params = None
            if value is not None:
                make = faiss.SearchParametersHNSW if hnsw else faiss.SearchParametersIVF
                params = make(efSearch=value) if hnsw else make(nprobe=value)
            _, places = self._inner.search(np.ascontiguousarray(queries, dtype=np.float32), k, params=params)
            return [[str(k if self._by_id else self._ids[k]) for k in row if k >= 0] for row in places.tolist()]

        if not kind:
            exact = "Flat" in type(self._inner).__name__
            return Search(find, type(self._inner).__name__, exact=exact)
        setting, values = _SETTINGS[kind]
        current = self._inner.hnsw.efSearch if hnsw else self._ivf.nprobe
        values = tuple(value for value in values if hnsw or value <= self._ivf.nlist)
        return Search(find, kind.upper(), setting=setting, values=values, current=int(current))
