"""Chroma: `chroma:folder[/collection]` on this machine, or `chroma://host:port/collection`, `chromas://…` for TLS.

A token is taken from the variable CHROMA_TOKEN, never from the address.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from poolscope.connectors.base import (
    BROKE,
    Batch,
    Distance,
    Fields,
    Search,
    asking,
    column,
    guessed_notes,
    metadata_fields,
    safe_name,
    split_address,
    unencrypted,
)
from poolscope.errors import InputError, require
from poolscope.files import is_file

SCHEMES = ("chroma://", "chromas://")
PREFIX = "chroma:"
DOCUMENT = "document"
"""What Chroma calls the text of a row, which is no field of its metadata."""

_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "ip": "dot", "l2": "l2"}
_REMEDY = "Check the address, that the server runs, and the token (CHROMA_TOKEN)."
_LOOK = 20
_HEADER = b"SQLite format 3\0"


def open_chroma(name: str, fields: Fields) -> ChromaConnector:
    """The collection that the address names; the only one where it names none."""
    chromadb, shown = require("chromadb", "chroma"), safe_name(name)
    token = os.environ.get("CHROMA_TOKEN")
    settings = require("chromadb.config", "chroma").Settings(anonymized_telemetry=False)
    with asking(shown, _REMEDY, token):
        if name.startswith(SCHEMES):
            parts, secure = split_address(name), name.startswith(SCHEMES[1])
            headers = None if token is None else {"Authorization": f"Bearer {token}"}
            place, port = parts.hostname or "localhost", parts.port or (443 if secure else 8000)
            client = chromadb.HttpClient(host=place, port=port, ssl=secure, headers=headers, settings=settings)
            collection = parts.path.strip("/")
        else:
            folder, collection = _folder(name.removeprefix(PREFIX), shown)
            try:
                client = chromadb.PersistentClient(path=str(folder), settings=settings)
            except ValueError:  # this process has it open already, with settings of its own
                client = chromadb.PersistentClient(path=str(folder))
        opened = ChromaConnector(shown, client, collection, fields)
        opened.notes = [*opened.notes, *unencrypted(name, "chroma", token, "CHROMA_TOKEN")]
        return opened


def _folder(name: str, shown: str) -> tuple[Path, str]:
    """The folder of the data base, and what stands behind it."""
    whole = Path(name.partition("?")[0]).expanduser()
    for folder, collection in ((whole, ""), (whole.parent, whole.name)):
        base = folder / "chroma.sqlite3"
        if is_file(base):
            with base.open("rb") as file:  # before a client opens it, which would fill an empty file with tables
                if file.read(len(_HEADER)) != _HEADER:
                    raise InputError(f"{shown}: {base} is no data base of SQLite. Name the folder of a Chroma store.")
            return folder, collection
    raise InputError(f"{shown}: neither {whole} nor the folder above holds a chroma.sqlite3. Check the spelling.")


class ChromaConnector:
    """The rows of a collection, in the order in which they were added."""

    def __init__(self, name: str, client: Any, collection: str, fields: Fields) -> None:
        names = [each.name for each in client.list_collections()]
        if collection == "" and len(names) == 1:
            collection, name = names[0], f"{name.rstrip('/')}/{names[0]}"
        if collection not in names:
            raise InputError(
                f"{name}: received no collection of these: {', '.join(names) or 'none'}. Name one at the end."
            )
        self.name = name
        self._collection = client.get_collection(collection, embedding_function=None)
        hnsw = (getattr(self._collection, "configuration_json", None) or {}).get("hnsw") or {}
        self.distance = _DISTANCES.get(str(hnsw.get("space", "")))
        first = self._collection.get(limit=_LOOK, include=["documents", "metadatas"])
        rows = [row or {} for row in first["metadatas"] or ()]
        has_documents = any(first["documents"] or ())
        wanted = Fields(None, None if has_documents else fields.text, None, fields.group)
        told = metadata_fields(rows, wanted, name)
        text = fields.text or (DOCUMENT if has_documents else told.text)
        self._fields = Fields(None, text, None, told.group)
        self._own_text = text == DOCUMENT and has_documents
        self.notes: Sequence[str] = guessed_notes(fields, self._fields)
        current = hnsw.get("ef_search")
        self.search = Search(self._find, "HNSW", setting="ef_search", current=current)

    def batches(self, size: int) -> Iterator[Batch]:
        """Page by page."""
        place = 0
        while True:
            with asking(self.name, BROKE):
                rows = self._collection.get(limit=size, offset=place, include=["embeddings", "documents", "metadatas"])
            ids = rows["ids"]
            if not ids:
                return
            metadata = [row or {} for row in rows["metadatas"] or [{}] * len(ids)]
            yield Batch(
                ids=ids,
                vectors=rows["embeddings"] if rows["embeddings"] is not None else [None] * len(ids),
                texts=rows["documents"] if self._own_text else column(metadata, self._fields.text),
                groups=column(metadata, self._fields.group),
            )
            place += len(ids)

    def _find(self, queries: NDArray[Any], k: int, value: int | None) -> list[list[str]]:
        """`ef_search` belongs to the collection and is not changed here: the store is only read."""
        nearest = self._collection.query(query_embeddings=queries.tolist(), n_results=k, include=[])
        return [list(ids) for ids in nearest["ids"]]
