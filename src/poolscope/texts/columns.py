"""The columns of a table that are neither texts nor ids: what a row says besides, kept with its text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from poolscope.errors import InputError
from poolscope.texts.records import Texts, is_missing
from poolscope.texts.sources import open_table
from poolscope.texts.tables import is_table


def other_columns(
    source: Any, texts: Texts, *, id_column: str | None = None, taken: Sequence[str | None] = ()
) -> Mapping[str, Mapping[str, Any]]:
    """The other columns of the row of each text, by its id; none for what is no table.

    `texts` were read from `source`; `taken` are columns that are not asked for, beside those of texts and ids.

    >>> from poolscope.texts import read_texts
    >>> table = {"text": ["one", "", "two"], "url": ["a", "b", "c"]}
    >>> other_columns(table, read_texts(table))
    {'0': {'url': 'a'}, '2': {'url': 'c'}}
    """
    if not isinstance(source, str | os.PathLike) and not is_table(source):
        return {}
    try:
        table = open_table(source)
    except InputError:  # lines of text, a folder of documents
        return {}
    names = [name for name in table.kinds if name not in (texts.column, id_column, *taken)]
    wanted, kept = frozenset(texts.ids), {}
    for number, row in enumerate(table.rows([*names, *([] if id_column is None else [id_column])])):
        key = str(number if id_column is None else row[-1])
        if key in wanted:
            kept[key] = {name: value for name, value in zip(names, row, strict=False) if not is_missing(value)}
    return kept
