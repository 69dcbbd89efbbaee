"""FAISS: `faiss:file`, with the texts in a file beside it (`?texts=FILE`, one a row) or as the second argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray

from poolscope.connectors.base import Batch, Distance, Fields, Search, in_batches, is_file
from poolscope.errors import InputError, reading, require
from poolscope.texts import read_texts
from poolscope.texts.groups import document_columns

PREFIX = "faiss:"
Words = list[str | None]
_SETTINGS = {
    "hnsw": ("efSearch", (16, 32, 64, 128, 256, 512, 1024)),
    "ivf": ("nprobe", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
}


def accepts(name: str) -> bool:
    """Is it a FAISS index?"""
    return name.startswith(PREFIX)


def open_faiss(name: str, fields: Fields) -> FaissConnector:
    """The index of the file; texts of the file that `?texts=` names."""
    place, _, query = name.removeprefix(PREFIX).partition("?")
    path = Path(place).expanduser()
    if not is_file(path):
        raise InputError(f"{PREFIX}{place}: there is no such file. Check the spelling.")
    texts = parse_qs(query).get("texts", [None])[0]
    faiss = require("faiss", "faiss")
    with reading(path.name, "Write it again with faiss.write_index.", kind=InputError, is_not="an index of FAISS"):
        index = _read(faiss, path)
    return FaissConnector(path.name, index, fields, texts)


def _read(faiss: Any, path: Path) -> Any:
    """The index, with no part of it longer than the file: a damaged length would ask for all memory."""
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
            _, found = self._inner.search(np.ascontiguousarray(queries, dtype=np.float32), k, params=params)
            return [[str(k if self._by_id else self._ids[k]) for k in row if k >= 0] for row in found.tolist()]

        if not kind:
            exact = "Flat" in type(self._inner).__name__
            return Search(find, type(self._inner).__name__, exact=exact)
        setting, values = _SETTINGS[kind]
        current = self._inner.hnsw.efSearch if hnsw else self._ivf.nprobe
        values = tuple(value for value in values if hnsw or value <= self._ivf.nlist)
        return Search(find, kind.upper(), setting=setting, values=values, current=int(current))
