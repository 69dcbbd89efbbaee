"""Building clouds as they come: batch by batch into a file, or token by token in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import InputError
from poolscope.files import atomic_path


class CloudWriter:
    """Writes clouds to one file as they come, a record batch a call; the file appears when all is written.

    Memory stays bounded by the largest part, so a corpus larger than memory can be written and then opened
    with `TokenClouds.open`. If the body raises, or the process dies, no file (or the old one) is there.

    >>> import tempfile
    >>> part = TokenClouds.from_arrays([np.eye(2), np.ones((3, 2))])
    >>> path = Path(tempfile.mkdtemp()) / "clouds.arrow"
    >>> with CloudWriter(path) as writer:
    ...     writer.write(part)
    ...     writer.write(part)
    >>> TokenClouds.open(path)
    TokenClouds(4 texts, 10 tokens, dimension 2, float64)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._target = Path(path)
        self._atomic = atomic_path(self._target)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None

    def __enter__(self) -> CloudWriter:
        self._temporary = self._atomic.__enter__()
        return self

    def write(self, clouds: TokenClouds) -> None:
        """Append the texts of `clouds`; all parts must share dimension and type."""
        table = clouds.to_table()
        if self._writer is None:
            self._schema = table.schema
            self._writer = pa.ipc.new_file(os.fspath(self._temporary), self._schema)
        if table.schema != self._schema:
            raise InputError(f"{self._target}: received clouds of another dimension or type than those before.")
        self._writer.write_table(table)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None and error is None:
            error = InputError(f"{self._target}: no clouds were written; at least one text is needed.")
            self._atomic.__exit__(type(error), error, None)
            raise error
        try:
            if self._writer is not None:
                self._writer.close()
        except BaseException as problem:  # a full disk shows here at the latest
            self._atomic.__exit__(type(problem), problem, problem.__traceback__)
            raise
        self._atomic.__exit__(kind, error, trace)


class CloudBuilder:
    """Builds clouds token by token, for callers that meet one vector at a time.

    >>> builder = CloudBuilder()
    >>> for vector in ([1.0, 0.0], [0.0, 1.0]):
    ...     builder.add_token(vector)
    >>> builder.end_text(text="two tokens")
    >>> builder.finish()
    TokenClouds(1 texts, 2 tokens, dimension 2, float64)
    """

    def __init__(self, *, provenance: Mapping[str, Any] | None = None) -> None:
        self._open: list[NDArray[Any]] = []
        self._clouds: list[NDArray[Any]] = []
        self._ids: list[str] = []
        self._texts: list[str | None] = []
        self._truncated: list[int] = []
        self._provenance = provenance

    def add_token(self, vector: Any) -> None:
        """Add one token vector to the text under way."""
        row = vector[None] if hasattr(vector, "detach") else [vector]
        token = as_matrix(row, name=f"token {len(self._open)}")[0]
        if self._open and len(token) != len(self._open[0]):
            raise InputError(
                f"token {len(self._open)}: received {len(token)} numbers where the tokens before have "
                f"{len(self._open[0])}; all tokens share one dimension. Check where the vectors come from."
            )
        self._open.append(token)

    def end_text(self, *, text: str | None = None, id: str | None = None, truncated: int = 0) -> None:
        """Close the text under way; the next token starts a new one."""
        position = len(self._clouds)
        if not self._open:
            raise InputError(f"text {position} has no tokens; call add_token at least once before end_text.")
        self._clouds.append(np.stack(self._open))
        self._open = []
        self._texts.append(text)
        self._ids.append(str(position) if id is None else id)
        self._truncated.append(truncated)

    def finish(self) -> TokenClouds:
        """All closed texts; a text still under way is an error rather than lost."""
        if self._open:
            raise InputError(f"{len(self._open)} tokens belong to no finished text; call end_text before finish.")
        texts: list[Any] | None = None if all(text is None for text in self._texts) else self._texts
        return TokenClouds.from_arrays(
            self._clouds,
            ids=self._ids,
            texts=texts,
            truncated=self._truncated,
            provenance=self._provenance,
        )
