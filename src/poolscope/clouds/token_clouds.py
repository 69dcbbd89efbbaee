"""Token clouds: the token vectors of many texts, in memory or memory-mapped.

A `TokenClouds` is a thin view of an Arrow table with one row a text:

| column      | type                                  | meaning                                            |
|-------------|---------------------------------------|----------------------------------------------------|
| `id`        | string                                | name of the text, for people                       |
| `text`      | large_string, may be null             | the text itself                                    |
| `truncated` | int32                                 | tokens cut off because the text was too long       |
| `token_ids` | large_list<int32>, may be null        | vocabulary ids of the tokens                       |
| `tokens`    | large_list<fixed_size_list<float, d>> | the cloud, one vector a token                      |

Why this layout: inside a record batch all token vectors lie end to end in one buffer, so the batch *is*
the token matrix plus offsets, without a copy; the file is plain uncompressed Arrow IPC (Feather 2), so it
is memory-mapped as it is, and pandas, polars and datasets read it too. Larger-than-memory corpora are
several record batches; everything downstream walks `blocks()`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, BinaryIO, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from poolscope.clouds.file import (
    ArrowStrings,
    Block,
    DigestedFile,
    Guards,
    blocks_of,
    checked_table,
    column_of,
    padded_input,
    positions_of,
    read_digested,
    read_provenance,
    write_provenance,
)
from poolscope.errors import InputError, reading, shorten
from poolscope.files import as_path, atomic_file
from poolscope.surface import refuse_masked
from poolscope.words import FIRST, rows_as_html

_FLOAT_TYPES = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}


def as_matrix(value: Any, *, name: str = "tokens") -> NDArray[Any]:
    """A 2-D float16/32/64 array from numpy, nested lists or a torch tensor.

    bfloat16 becomes float32 and integers become float64, both without loss.

    >>> as_matrix([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    if hasattr(value, "detach"):  # a torch tensor, recognised without importing torch
        value = value.detach().cpu()
        value = value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    refuse_masked(value, name)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:  # nested lists of unequal lengths
        raise InputError(
            f"{name}: received a {type(value).__name__} that is no array ({error}); a token cloud is a matrix "
            f"(tokens × dimensions). Pass one 2-D float array per text, with as many numbers for each token."
        ) from error
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.ndim != 2 or array.dtype.name not in _FLOAT_TYPES:
        raise InputError(
            f"{name}: received an array of shape {array.shape} and type {array.dtype}; a token cloud is "
            f"a matrix (tokens × dimensions) of real numbers. Pass one 2-D float array per text."
        )
    return array


class TokenClouds:
    """The token vectors of many texts, one matrix (tokens × dimensions) a text; immutable.

    `from_arrays`, `from_matrix` and `from_padded` build it from vectors that are there, `encode` from a model, `open`
    from a file. As a sequence it gives the matrices; a slice, a list of positions or a mask gives `TokenClouds` again.

    Parameters
    ----------
    table
        The Arrow table behind it, with the columns that the module names.

    Attributes
    ----------
    lengths : numpy.ndarray
        Tokens of every text.
    dimension : int
        Numbers of a token.
    dtype : numpy.dtype
        float16, float32 or float64.
    ids, texts, truncated
        Names of the texts, the texts themselves (None if they were not given) and how many tokens of each were cut off.
    provenance : Mapping
        Where the clouds come from: model, options, layer, texts.

    Examples
    --------
    >>> clouds = TokenClouds.from_arrays([np.eye(3), np.ones((2, 3))], texts=["a b c", "d e"])
    >>> clouds
    TokenClouds(2 texts, 5 tokens, dimension 3, float64)
    >>> clouds[1].shape, clouds.lengths.tolist(), clouds.texts[0]
    ((2, 3), [3, 2], 'a b c')

    """

    def __init__(self, table: pa.Table, *, _guards: Guards | None = None) -> None:
        self._table = checked_table(table)
        self._guards = _guards or Guards()
        self.provenance: Mapping[str, Any] = read_provenance(table)
        self._blocks = tuple(blocks_of(table.column("tokens"), self._guards))
        self.dimension: int = table.schema.field("tokens").type.value_type.list_size
        self.dtype: np.dtype[Any] = self._blocks[0].matrix.dtype
        lengths = [np.diff(block.offsets) for block in self._blocks]
        self.lengths: NDArray[np.int64] = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
        self._starts = np.array([block.start for block in self._blocks], dtype=np.int64)
        if len(empty := np.flatnonzero(self.lengths == 0)):
            raise InputError(
                f"{len(empty)} of {len(self)} texts have no tokens (first: position {empty[0]}); a cloud needs "
                f"at least one token. Leave empty texts out, or keep the special tokens."
            )

    # -- building -----------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        arrays: Iterable[Any],
        *,
        texts: Sequence[str] | None = None,
        ids: Sequence[str | int] | None = None,
        truncated: Sequence[int] | NDArray[Any] | None = None,
        token_ids: Sequence[NDArray[Any]] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> TokenClouds:
        """From one (tokens × dimensions) array a text; numpy arrays, nested lists or torch tensors.

        Ids may be whole numbers, such as the index of a data frame; they are kept as strings.
        """
        if isinstance(arrays, str | bytes | Mapping) or not isinstance(arrays, Iterable):
            raise InputError(
                f"received {shorten(arrays)}; needed: a list of matrices (tokens × dimensions), one a text."
            )
        matrices = [as_matrix(array, name=f"text {k}") for k, array in enumerate(arrays)]
        if not matrices:
            raise InputError("received no clouds; at least one text is needed.")
        dimensions = sorted({matrix.shape[1] for matrix in matrices})
        if len(dimensions) > 1 or dimensions[0] == 0:
            raise InputError(
                f"received clouds of dimensions {dimensions}; all clouds must share one dimension of at least 1. "
                f"Encode all texts with the same model and layer."
            )
        tokens = np.concatenate(matrices) if len(matrices) > 1 else matrices[0]
        offsets = np.concatenate([[0], np.cumsum([len(matrix) for matrix in matrices])])
        return cls.from_matrix(
            tokens,
            offsets,
            texts=texts,
            ids=ids,
            truncated=truncated,
            token_ids=token_ids,
            provenance=provenance,
        )

    @classmethod
    def from_matrix(
        cls,
        tokens: NDArray[Any],
        offsets: Any,
        *,
        texts: Sequence[str] | None = None,
        ids: Sequence[str | int] | None = None,
        truncated: Sequence[int] | NDArray[Any] | None = None,
        token_ids: Sequence[NDArray[Any]] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> TokenClouds:
        """From one token matrix and offsets (text k is `tokens[offsets[k]:offsets[k+1]]`), without a copy."""
        matrix = np.ascontiguousarray(as_matrix(tokens))
        bounds = np.asarray(offsets)
        if (
            bounds.ndim != 1
            or bounds.dtype.kind not in "iu"
            or len(bounds) < 2
            or bounds[0] != 0
            or bounds[-1] != len(matrix)
            or (np.diff(bounds) < 0).any()
        ):
            raise InputError(
                f"offsets must rise from 0 to the number of tokens ({len(matrix)}), one entry more than texts; "
                f"received {shorten(offsets)}."
            )
        bounds = bounds.astype(np.int64)
        count = len(bounds) - 1
        columns = {
            "id": column_of("id", ids, count),
            "text": column_of("text", texts, count),
            "truncated": column_of("truncated", truncated, count),
            "token_ids": column_of("token_ids", token_ids, count),
            "tokens": pa.LargeListArray.from_arrays(
                bounds, pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])
            ),
        }
        if token_ids is not None and pc.list_value_length(columns["token_ids"]).to_pylist() != np.diff(bounds).tolist():
            raise InputError("token_ids: received lists of other lengths than the clouds; needed: one id a token.")
        return cls(pa.table(columns).replace_schema_metadata(write_provenance(provenance)))

    @classmethod
    def from_padded(cls, batch: Any, mask: Any, **columns: Any) -> TokenClouds:
        """From a padded batch (texts × positions × dimensions) and its 0/1 attention mask.

        Rows are selected by the mask, so the padding, whatever it holds and on whichever side it is,
        cannot leak into a cloud. Keyword arguments are those of `from_arrays`.
        """
        batch, keep = padded_input(batch, "batch"), np.asarray(padded_input(mask, "mask"))
        shape = tuple(batch.shape)
        if len(shape) != 3 or keep.shape != shape[:2] or not np.isin(keep, (0, 1)).all():
            raise InputError(
                f"received a batch of shape {shape} and a mask of shape {keep.shape}; allowed: batch (texts, "
                f"positions, dimensions) and mask (texts, positions) of zeros and ones."
            )
        rows = (as_matrix(batch[k], name=f"text {k}")[keep[k].astype(bool)] for k in range(shape[0]))
        return cls.from_arrays(rows, **columns)

    @classmethod
    def concatenate(cls, parts: Sequence[TokenClouds]) -> TokenClouds:
        """The texts of several clouds, one after the other. No vector is copied.

        The provenance is that of the first; counts of `unknown` tokens are those of all, where every part has them, and
        where the parts are of different `texts` nothing is said of them.
        """
        if not parts:
            raise InputError("received no clouds to concatenate; at least one is needed.")
        if wrong := next((part for part in parts if not isinstance(part, TokenClouds)), None):
            raise InputError(f"received {shorten(wrong)} to concatenate; needed: TokenClouds. Build them first.")
        kinds = sorted({(part.dimension, part.dtype.name) for part in parts})
        if len(kinds) > 1:
            raise InputError(f"cannot concatenate clouds of different dimension or type: {kinds}.")
        provenance = dict(parts[0].provenance)
        if any(part.provenance.get("texts") != provenance.get("texts") for part in parts):
            provenance.pop("texts", None)
        first = provenance.pop("unknown", {})
        unknown = [part.provenance.get("unknown", {}) for part in parts]
        if first and all(counts.keys() == first.keys() for counts in unknown):
            provenance["unknown"] = {name: sum(counts[name] for counts in unknown) for name in first}
        metadata = write_provenance(provenance)
        tables = [part._table.replace_schema_metadata(metadata) for part in parts]
        fields = [dict(zip(table.column_names, map(str, table.schema), strict=True)) for table in tables]
        if differ := sorted({name for own in fields for name in own if own[name] != fields[0].get(name)}):
            raise InputError(
                f"cannot concatenate clouds whose columns are of different types: {', '.join(differ)}. If they are of "
                f"one store, it is damaged: encode the texts again."
            )
        guards = Guards(guard for part in parts for guard in part._guards.all)
        return cls(pa.concat_tables(tables), _guards=guards)

    # -- reading ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Sequence[bool] | NDArray[Any]) -> TokenClouds: ...
    def __getitem__(self, index: Any) -> NDArray[Any] | TokenClouds:
        """The cloud of one text (tokens × dimensions), a read-only view; for a slice or a mask their clouds.

        >>> clouds = TokenClouds.from_arrays([np.eye(2), np.ones((1, 2)), np.ones((3, 2))])
        >>> clouds[1:], clouds[clouds.lengths > 1].ids[1]
        (TokenClouds(2 texts, 4 tokens, dimension 2, float64), '2')
        """
        if isinstance(index, slice):
            return self._slice(range(len(self))[index])
        if isinstance(index, bool | np.bool_) or not hasattr(index, "__index__") or np.ndim(index):
            return self.select(index)  # which refuses a single boolean
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"text {position} of {len(self)}")
        position %= len(self)
        block = self._blocks[int(np.searchsorted(self._starts, position, side="right")) - 1]
        local = position - block.start
        return block.rows(local, local + 1)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for block in self._blocks:
            for k in range(len(block)):
                yield block.rows(k, k + 1)

    def __repr__(self) -> str:
        return (
            f"TokenClouds({len(self):,} texts, {self.lengths.sum():,} tokens, dimension {self.dimension}, {self.dtype})"
        )

    def _repr_html_(self) -> str:
        """The first texts with their tokens, truncated ones counted, for notebooks."""
        shown = min(len(self), FIRST)
        texts = self.texts[:shown] if self.texts is not None else [""] * shown
        rows = zip(self.ids[:shown], self.lengths[:shown], self.truncated[:shown], texts, strict=True)
        return rows_as_html(repr(self), ["id", "tokens", "truncated", "text"], rows, len(self) - shown)

    def blocks(self) -> Iterator[Block]:
        """The texts in order, in pieces whose tokens lie in one matrix (one piece when in memory)."""
        yield from self._blocks

    @property
    def ids(self) -> Sequence[str]:
        """Names of the texts."""
        return ArrowStrings(self._table.column("id"))

    @property
    def texts(self) -> Sequence[str] | None:
        """The texts themselves, or None if the clouds were built without them."""
        column = self._table.column("text")
        return None if column.null_count else ArrowStrings(column)

    @property
    def truncated(self) -> NDArray[np.int32]:
        """How many tokens of each text were cut off before encoding."""
        return np.asarray(self._table.column("truncated").to_numpy(), dtype=np.int32)

    def token_ids(self, index: int | slice) -> NDArray[np.int32] | None:
        """Vocabulary ids of the tokens of one text, or of several end to end; None if they were not kept."""
        if isinstance(index, slice):
            column = self._table.column("token_ids")[index]
            return None if column.null_count else np.asarray(pc.list_flatten(column).to_numpy(), dtype=np.int32)
        value = self._table.column("token_ids")[int(index)]
        return None if not value.is_valid else np.asarray(value.values.to_numpy(), dtype=np.int32)

    def select(self, indices: Any) -> TokenClouds:
        """The clouds of some texts (copies their tokens): positions in the wanted order, or a mask of booleans.

        The provenance of a part, here and in a slice, names the texts it is `part_of`; what holds for the whole alone,
        such as counts, is left out. All texts in their order are no part.
        """
        positions = positions_of(indices, len(self)) % len(self)
        whole = np.array_equal(positions, np.arange(len(self)))
        ids, texts, truncated = self.ids, self.texts, self.truncated
        token_ids = [self.token_ids(int(k)) for k in positions]
        return TokenClouds.from_arrays(
            [self[int(k)] for k in positions],
            ids=[ids[int(k)] for k in positions],
            texts=None if texts is None else [texts[int(k)] for k in positions],
            truncated=truncated[positions],
            token_ids=None if any(t is None for t in token_ids) else [t for t in token_ids if t is not None],
            provenance=self.provenance if whole else _of_a_part(self.provenance),
        )

    def described(
        self,
        *,
        ids: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> TokenClouds:
        """The same clouds (no vector is copied) under other ids, with other texts, with more said of their origin."""
        table = self._table
        for name, values in (("id", ids), ("text", texts)):
            if values is not None:
                position = table.schema.get_field_index(name)
                table = table.set_column(position, table.schema.field(position), column_of(name, values, len(self)))
        metadata = write_provenance({**self.provenance, **(provenance or {})})
        return TokenClouds(table.replace_schema_metadata(metadata), _guards=self._guards)

    def _slice(self, positions: range) -> TokenClouds:
        if positions.step != 1 or not len(positions):
            return self.select(np.asarray(positions, dtype=np.int64))
        if len(positions) == len(self):
            return TokenClouds(self._table, _guards=self._guards)
        part = self._table.slice(positions.start, len(positions))
        metadata = write_provenance(_of_a_part(self.provenance))
        return TokenClouds(part.replace_schema_metadata(metadata), _guards=self._guards)

    def to_table(self) -> pa.Table:
        """The Arrow table behind this object (no copy); vectors of a file are compared with their digests first."""
        self.check()
        return self._table

    @property
    def has_digests(self) -> bool:
        """Whether all vectors come from files that have digests of them."""
        return all(block.guard is not None for block in self._blocks)

    def check(self) -> None:
        """Compare all vectors that come from a file with their digests, which otherwise happens when they are used."""
        for block in self._blocks:
            block.rows(0, len(block))

    # -- files --------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one Arrow IPC file, atomically."""
        with atomic_file(path) as stream:
            self.write(stream)

    def write(self, stream: BinaryIO) -> None:
        """Write one Arrow IPC file into an open stream."""
        table = self.to_table()
        with DigestedFile(stream, table.schema) as file:
            file.write(table)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TokenClouds:
        """Open a file written by `save` or a `CloudWriter`, memory-mapped: no vector is read until it is used.

        Then it is compared with the digest that the file has of it; an error says that the file is damaged.
        """
        table, guards = read_digested(path)
        with reading(path, "Encode the texts again.", is_not="a file of token clouds"):
            return cls(table, _guards=guards)


def _of_a_part(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What a provenance says that holds for a part of its texts too."""
    of_part = {name: value for name, value in provenance.items() if name not in ("texts", "unknown")}
    texts = provenance.get("texts")
    if isinstance(texts, Mapping):  # it may have been written by anyone
        origin = {"source": texts.get("source"), "part_of": texts.get("digest", texts.get("part_of"))}
        of_part["texts"] = {name: value for name, value in origin.items() if value is not None}
    return of_part


# -- building clouds as they come -------------------------------------------------------------------------------------


class CloudWriter:
    """Writes clouds to one file as they come, a record batch a call; the file appears when all is written.

    Memory stays bounded by the largest part, so a corpus larger than memory can be written and then opened
    with `TokenClouds.open`. If the body raises, or the process dies, no file (or the old one) is there.

    Parameters
    ----------
    path
        The file to write.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> part = TokenClouds.from_arrays([np.eye(2), np.ones((3, 2))])
    >>> path = Path(tempfile.mkdtemp()) / "clouds.arrow"
    >>> with CloudWriter(path) as writer:
    ...     writer.write(part)
    ...     writer.write(part)
    >>> TokenClouds.open(path)
    TokenClouds(4 texts, 10 tokens, dimension 2, float64)

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._target = as_path(path)
        self._open = ExitStack()
        self._file: DigestedFile | None = None

    def __enter__(self) -> CloudWriter:
        self._stream = self._open.enter_context(atomic_file(self._target))
        return self

    def write(self, clouds: TokenClouds) -> None:
        """Append the texts of `clouds`; all parts must share dimension and type."""
        table = clouds.to_table()
        if self._file is None:
            self._file = self._open.enter_context(DigestedFile(self._stream, table.schema))
        if table.schema != self._file.schema:
            raise InputError(f"{self._target}: received clouds of another dimension or type than those before.")
        self._file.write(table)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None and error is None:
            error = InputError(f"{self._target}: no clouds were written; at least one text is needed.")
            self._open.__exit__(type(error), error, None)
            raise error
        self._open.__exit__(kind, error, trace)  # a full disk shows here at the latest


class CloudBuilder:
    """Builds clouds token by token, for callers that meet one vector at a time.

    Parameters
    ----------
    provenance
        What the clouds shall remember of their origin.

    Examples
    --------
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
        if not isinstance(provenance, Mapping | None):
            raise InputError(
                f"provenance: received {shorten(provenance)}; allowed: a dictionary, such as {{'model': 'name'}}."
            )
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


def check_clouds(value: Any, function: str) -> TokenClouds:
    """The clouds; what is no `TokenClouds` is refused, with a word on how to make it."""
    if not isinstance(value, TokenClouds):
        raise InputError(
            f"{function}: received {shorten(value)} ({type(value).__name__}); needed: TokenClouds. Build them with "
            f"TokenClouds.from_arrays, or encode texts."
        )
    return value
