"""Lists of documents of LangChain and LlamaIndex as tables of texts; neither library is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The attribute of the text: of LangChain's documents, and of the documents and nodes of LlamaIndex.
_TEXT = ("page_content", "text")
_ID = ("id", "id_", "node_id")


def is_documents(source: Any) -> bool:
    """Is it a list of documents: objects with a text and metadata?"""
    return isinstance(source, list | tuple) and len(source) > 0 and all(_is_document(entry) for entry in source)


def _is_document(entry: Any) -> bool:
    text = next((getattr(entry, name) for name in _TEXT if hasattr(entry, name)), None)
    return isinstance(text, str) and isinstance(getattr(entry, "metadata", None), Mapping)


def documents_table(documents: Sequence[Any]) -> dict[str, list[Any]]:
    """The texts with their ids, where all have one, and the metadata that all have as plain values, one column each.

    >>> class Document:
    ...     def __init__(self, text, **metadata):
    ...         self.page_content, self.metadata, self.id = text, metadata, None
    >>> documents_table([Document("one", source="a.md"), Document("two", source="a.md", page=2)])
    {'text': ['one', 'two'], 'source': ['a.md', 'a.md']}
    """
    name = next(name for name in _TEXT if all(isinstance(getattr(entry, name, None), str) for entry in documents))
    table: dict[str, list[Any]] = {"text": [getattr(entry, name) for entry in documents]}
    ids = [
        next((value for key in _ID if (value := getattr(entry, key, None)) is not None), None) for entry in documents
    ]
    if all(isinstance(value, str) for value in ids) and len(set(ids)) == len(ids):
        table["id"] = ids
    for key in documents[0].metadata:
        values = [entry.metadata.get(key) for entry in documents]
        if str(key) not in table and all(isinstance(value, str | int) for value in values):
            table[str(key)] = values
    return table
