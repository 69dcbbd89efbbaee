"""Vectors that are there already, in a file or a vector store: one door, one file a kind, read-only."""

from __future__ import annotations

from poolscope.connectors.base import Batch, Connector, ConnectorKind, Fields
from poolscope.connectors.collection import Collection
from poolscope.connectors.door import CONNECTORS, as_collection, is_index, read_index, register_connector

__all__ = [
    "CONNECTORS",
    "Batch",
    "Collection",
    "Connector",
    "ConnectorKind",
    "Fields",
    "as_collection",
    "is_index",
    "read_index",
    "register_connector",
]
