"""Chroma: `chroma:folder[/collection]` on this machine, or `chroma://host:port/collection`, `chromas://…` for TLS.

A token is taken from the variable CHROMA_TOKEN, never from the address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from poolscope.connectors.base import (
    BROKE,
    Batch,
    Distance,
    Fields,
    NewRows,
    Search,
    already_there,
    asking,
    column,
    guessed_notes,
    metadata_fields,
    safe_name,
    split_address,
    unencrypted,
)
from poolscope.connectors.received import plain_base, refuse_links
from poolscope.errors import InputError, reading, require
from poolscope.files import is_file
from poolscope.hosts import is_named, permit, secret_for

SCHEMES = ("chroma://", "chromas://")
PREFIX = "chroma:"
DOCUMENT = "document"
"""What Chroma calls the text of a row, which is no field of its metadata."""

_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "ip": "dot", "l2": "l2"}
BASE = "chroma.sqlite3"
_IMPORT = "The client of Chroma reads the file .env of the current folder when it is imported: run this elsewhere."
_REMEDY = "Check the address, that the server runs, and the token (CHROMA_TOKEN)."
# Settings of the client that send what its variables hold.
_NO_SECRETS = {
    "chroma_client_auth_provider": None,
    "chroma_client_auth_credentials": None,
    "chroma_server_headers": None,
}
_LOOK = 20
_HEADER = b"SQLite format 3\0"


def open_chroma(name: str, fields: Fields) -> ChromaConnector:
    """The collection that the address names; the only one where it names none."""
    shown, token = safe_name(name), None
    with asking(shown, _IMPORT):
        chromadb = require("chromadb", "chroma")
    with asking(shown, _REMEDY):
        if name.startswith(SCHEMES):
            client, token = _connected(name, shown)
            collection = split_address(name).path.strip("/")
        else:
            folder, collection = _folder(name.removeprefix(PREFIX), shown)
            _check(folder)
            client = _local(chromadb, folder)
        opened = ChromaConnector(shown, client, collection, fields)
        opened.notes = [*opened.notes, *unencrypted(name, "chroma", token, "CHROMA_TOKEN")]
        return opened


def _local(chromadb: Any, folder: Path) -> Any:
    """The client of a folder. Chroma keeps clients by their path, so a relative one would lead to an earlier place."""
    path = str(folder.absolute())
    try:
        return chromadb.PersistentClient(path=path, settings=_settings(anonymized_telemetry=False))
    except ValueError:  # this process has it open already, with settings of its own
        return chromadb.PersistentClient(path=path, settings=_settings())


def write_chroma(name: str, rows: NewRows) -> None:
    """A new collection, in a folder or on a server."""
    shown = safe_name(name)
    with asking(shown, _IMPORT):
        chromadb = require("chromadb", "chroma")
    with asking(shown, _REMEDY):
        if name.startswith(SCHEMES):
            client, _ = _connected(name, shown)
            collection = split_address(name).path.strip("/")
        else:
            place = Path(name.removeprefix(PREFIX)).expanduser()
            folder, collection = place.parent, place.name
            if (folder / BASE).exists():
                _check(folder)
            client = _local(chromadb, folder)
        if collection in [each.name for each in client.list_collections()]:
            raise already_there(shown)
        spaces = {distance: space for space, distance in _DISTANCES.items()}
        made = client.create_collection(
            collection, embedding_function=None, configuration={"hnsw": {"space": spaces[rows.distance]}}
        )
        for part, beside in rows.parts():
            made.add(
                ids=list(rows.ids[part]),
                embeddings=rows.vectors[part],
                documents=None if rows.texts is None else list(rows.texts[part]),
                metadatas=None if rows.groups is None else [{"doc_id": row["doc_id"]} for row in beside],
            )


def _connected(name: str, shown: str) -> tuple[Any, str | None]:
    """A client of the server that the address names, and the token that it sends."""
    parts, secure = split_address(name), name.startswith(SCHEMES[1])
    host, port = parts.hostname or "localhost", parts.port or (443 if secure else 8000)
    permit(host, name=shown)
    token = secret_for(host, "CHROMA_TOKEN")
    settings = _settings(anonymized_telemetry=False, **({} if is_named(host) else _NO_SECRETS))
    headers = None if token is None else {"Authorization": f"Bearer {token}"}
    place = f"[{host}]" if ":" in host else host  # which the client puts into an address again
    client = require("chromadb", "chroma").HttpClient(
        host=place, port=port, ssl=secure, headers=headers, settings=settings
    )
    return client, token


def _settings(**settings: Any) -> Any:
    """Settings of the client; never from a file .env of the current folder, which may name classes to import."""
    return require("chromadb.config", "chroma").Settings(_env_file=None, **settings)


def _folder(name: str, shown: str) -> tuple[Path, str]:
    """The folder of the data base, and what stands behind it."""
    whole = Path(name.partition("?")[0]).expanduser()
    for folder, collection in ((whole, ""), (whole.parent, whole.name)):
        base = folder / BASE
        if is_file(base):
            with base.open("rb") as file:  # before a client opens it, which would fill an empty file with tables
                if file.read(len(_HEADER)) != _HEADER:
                    raise InputError(f"{shown}: {base} is no data base of SQLite. Name the folder of a Chroma store.")
            return folder, collection
    raise InputError(f"{shown}: neither {whole} nor the folder above holds a chroma.sqlite3. Check the spelling.")


def _check(folder: Path) -> None:
    """Refuse what the client would run, follow or write to: it opens the data base for writing even to read it."""
    with reading(folder, "Write it again.", kind=InputError, is_not="a folder of Chroma"):
        refuse_links(folder)
        with plain_base(folder / BASE):
            pass


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
        described = metadata_fields(rows, wanted, name)
        text = fields.text or (DOCUMENT if has_documents else described.text)
        self._fields = Fields(None, text, None, described.group)
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
