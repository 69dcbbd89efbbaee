"""What every measurement returns: one base that gives files, tables, a short repr and where the numbers came from.

A result is a frozen dataclass that inherits from `Result` and declares its fields. Everything else follows from the
declarations: `to_dict` and `from_dict`, `save` and `load`, `to_table`, `_repr_html_`.

>>> @dataclass(frozen=True, repr=False)
... class Spread(Result):
...     mean: Estimate
...     texts: int
...     values: Array | None = bulk()
>>> measured = Spread(Estimate(0.5, floor=0.1), 2, np.array([0.4, 0.6]))
>>> measured
Spread(mean 0.500 (floor 0.1), texts 2)
>>> Spread.from_dict(measured.to_dict(arrays=True)).values
array([0.4, 0.6])
>>> measured.to_table().column_names
['mean', 'mean_floor', 'texts']
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import os
import platform
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from poolscope import __version__
from poolscope.clouds import TokenClouds
from poolscope.digests import check_seal, sealed
from poolscope.errors import InputError, MissingExtraError, PoolscopeError, StoreError
from poolscope.files import atomic_file, text_of, write_json
from poolscope.numbers.intervals import Estimate
from poolscope.show.notebook import opening, show_in_notebook, table_view, word
from poolscope.words import without_secrets

Array = NDArray[np.float64]

# The key under which a table says where it came from.
METADATA_KEY = b"poolscope"


def bulk(*, key: str | None = None, required: bool = False) -> Any:
    """A field of one value a text, pair or token: files keep it, `to_dict` leaves it out.

    It is None where it was not kept; declare it as `Array | None`. A `required` one is always there: then a result
    cannot be restored from what `to_dict()` shows, only from what `save` wrote. `key`: its name in files, if another.
    """
    metadata = {"bulk": True, "required": required, **({} if key is None else {"key": key})}
    if required:
        return field(repr=False, metadata=metadata, kw_only=True)
    return field(default=None, repr=False, metadata=metadata)


def transient() -> Any:
    """A field that only this process has (clouds, a model): no file keeps it. Declare it as `Any` or with `| None`."""
    return field(default=None, repr=False, compare=False, metadata={"transient": True})


def key(name: str) -> dict[str, str]:
    """Metadata of a field that has another name in files and tables than in Python: `field(metadata=key("d_mu"))`."""
    return {"key": name}


def origin() -> Any:
    """The field `provenance`: where the numbers came from. Two equal measurements differ in it, and are equal."""
    return field(default_factory=dict, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class Result:
    """Base of every result; a subclass declares its fields, `provenance` among them where it has one."""

    _kinds: ClassVar[dict[str, type[Result]]] = {}
    # Words for fields and for columns whose names say too little, and how many rows a screen shows: 0 where a figure
    # says it better.
    field_words: ClassVar[Mapping[str, str]] = {}
    column_words: ClassVar[Mapping[str, str]] = {}
    shown_rows: ClassVar[int] = 8

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Result._kinds[cls.__name__] = cls

    # -- short views ----------------------------------------------------------------------------------------------

    def headline(self) -> dict[str, Any]:
        """The few numbers that stand for the whole: estimates, counts and words among the fields."""
        values = {part.name: getattr(self, part.name) for part in _shown(self)}
        return {name: value for name, value in values.items() if isinstance(value, Estimate | str | int | float)}

    def in_words(self) -> tuple[str, ...]:
        """What the numbers say in plain words, for screens and notebooks; by default nothing."""
        return ()

    def members(self) -> tuple[Result, ...]:
        """The results that this one is made of; by default none."""
        return ()

    def summary_rows(self) -> list[tuple[str, str]]:
        """The headline as words and numbers that a reader can take in, and what the intervals are over."""
        values = self.headline()
        rows = [
            (self.field_words.get(name) or name.replace("_", " "), word(value))
            for name, value in values.items()
            if value != ""
        ]
        found = [value.interval for value in values.values() if isinstance(value, Estimate) and value.interval]
        units = dict.fromkeys(f"{interval.level:.0%}, over {interval.unit}" for interval in found)
        return [*rows, ("intervals", "; ".join(units))] if units else rows

    def __repr__(self) -> str:
        parts = ", ".join(f"{name.replace('_', ' ')} {word(value)}" for name, value in self.headline().items())
        return f"{type(self).__name__}({parts})"

    def _repr_html_(self) -> str:
        """The sentences, the numbers and the first rows of the table, for notebooks."""
        parts = [self._opening()]
        with suppress(InputError):  # too many rows to keep: the headline stands alone
            own = (type(self).rows, type(self).to_table)
            if own != (Result.rows, Result.to_table):  # else the only row is the headline
                parts.append(table_view(self.shown_table(), self.shown_rows, self.column_words))
        return "".join(parts)

    def shown_table(self) -> pa.Table:
        """The table whose first rows a notebook shows: by default all rows in their order."""
        return self.to_table()

    def _ipython_display_(self) -> None:
        """IPython calls this to show the result: `_repr_html_`, then the figure where the result has one."""
        try:
            figure = self.figure()
        except (InputError, MissingExtraError):
            figure = None
        show_in_notebook(self._repr_html_(), figure)

    def _opening(self) -> str:
        """The sentences, with the numbers below them."""
        return opening(type(self).__name__, self.in_words(), self.summary_rows())

    # -- tables ---------------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One row a text, bin or layer, in plain types; by default one row with the headline."""
        return [cells(self.headline())]

    def to_table(self) -> pa.Table:
        """`rows` as an Arrow table; its metadata says where the numbers came from. What a row lacks is null."""
        rows = self.rows()
        columns = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: [row.get(name) for row in rows] for name in columns})
        return with_provenance(table, getattr(self, "provenance", {}))

    def to_pandas(self) -> Any:
        """`to_table` as a pandas DataFrame."""
        return self.to_table().to_pandas()

    def to_polars(self) -> Any:
        """`to_table` as a polars DataFrame."""
        try:
            import polars
        except ModuleNotFoundError:
            raise MissingExtraError("to_polars needs polars, which is not installed: pip install polars") from None
        return polars.from_arrow(self.to_table())

    # -- plain types and files ------------------------------------------------------------------------------------

    def derived(self) -> dict[str, Any]:
        """What `to_dict` shows beside the fields because it follows from them; `from_dict` leaves it aside."""
        return {}

    def to_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """The fields in the types of JSON; `arrays` with one value a text or pair too, to be restored whole."""
        return {"result": type(self).__name__, "poolscope": __version__, **_content(self, arrays=arrays)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The result that `to_dict` described; what a version of poolscope wrote without is left at its default."""
        if cls is Result and "result" not in content:
            raise StoreError(
                "the content names no result: it comes from another program, or from a version before 0.1, whose JSON "
                "was for reading only. Measure again, and keep what `save` writes."
            )
        kind = _kind(str(content.get("result", cls.__name__)))
        if kind is None or not issubclass(kind, cls):
            raise StoreError(
                f"received a {content.get('result')!r} where a {cls.__name__} was asked for. Load it with the class "
                f"that wrote it, or with Result.load."
            )
        if kind is not cls:
            return kind.from_dict(content)  # it may have a way of its own
        try:
            return typing.cast(Self, restored(kind, content))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"{kind.__name__}: cannot be restored ({type(error).__name__}: {error}); it was written by poolscope "
                f"{content.get('poolscope', 'of an unknown version')}, this is {__version__}. Measure it again."
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result, atomically: `.json` everything, to be loaded again; `.parquet` and `.csv` its table."""
        ending = Path(path).suffix.lower()
        if ending == ".json":
            write_json(path, sealed(self.to_dict(arrays=True)))
            return
        if ending not in (".parquet", ".csv"):
            raise InputError(f"{path}: received the ending '{ending}'; allowed are .json, .parquet and .csv.")
        if ending == ".parquet":
            self.save_parquet(path)
            return
        table = self.to_table()
        if nested := [column.name for column in table.schema if pa.types.is_nested(column.type)]:
            raise InputError(f"{path}: the columns {', '.join(nested)} hold lists, which CSV has not. Write .parquet.")
        with atomic_file(path) as stream:
            write_csv(table, stream)

    def save_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write `to_table()` as Parquet, atomically, whatever the ending of the name."""
        table = self.to_table()
        with atomic_file(path) as stream:
            pq.write_table(table, stream)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A result that `save` wrote as `.json`."""
        try:
            content = json.loads(text_of(path, StoreError))
        except FileNotFoundError:
            raise InputError(f"{path}: no such file. Name a .json file that `save` wrote.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(f"{path}: cannot be read as a result ({error}). Measure it again.") from error
        if not isinstance(content, dict):
            raise StoreError(f"{path}: holds {type(content).__name__}, no result. Name a .json file that `save` wrote.")
        return cls.from_dict(check_seal(content, path, "Measure it again."))

    # -- figure ---------------------------------------------------------------------------------------------------

    def figure(self) -> Any:
        """The figure of the result (plotly); an error where there is none to draw."""
        raise InputError(f"{type(self).__name__} has no figure; its numbers stand in to_table() and to_dict().")


def _kind(name: str) -> type[Result] | None:
    """The class of a result by its name; where its file was not imported yet, the homes of public names bring it."""
    import poolscope

    for public in poolscope.__all__:
        if name in Result._kinds:
            break
        with suppress(ImportError, PoolscopeError):  # an extra that is not here
            getattr(poolscope, public)
    return Result._kinds.get(name)


def _shown(result: Result) -> list[dataclasses.Field[Any]]:
    return [part for part in kept_fields(result) if part.repr and not part.metadata.get("bulk")]


def kept_fields(record: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that files keep."""
    return [part for part in dataclasses.fields(record) if not part.metadata.get("transient")]


def cells(values: Mapping[str, Any], *, ends: bool = False) -> dict[str, Any]:
    """Values as the cells of one row; an estimate takes NAME, NAME_low, NAME_high and NAME_floor where it has them.

    `ends`: the cells of an interval are there, and empty, also where an estimate has none.

    >>> cells({"gain": Estimate(0.5, floor=0.1)})
    {'gain': 0.5, 'gain_floor': 0.1}
    >>> cells({"gain": Estimate(0.5)}, ends=True)
    {'gain': 0.5, 'gain_low': None, 'gain_high': None}
    """
    row: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, Estimate):
            row[name] = plain(value)
            continue
        row[name] = plain(value.value)
        if value.interval is not None or ends:
            row |= {f"{name}_{end}": getattr(value.interval, end, None) for end in ("low", "high")}
        if value.floor is not None:
            row[f"{name}_floor"] = value.floor
    return row


def column_rows(**columns: NDArray[Any]) -> list[dict[str, Any]]:
    """Columns of equal length as the rows of a table, in plain types.

    >>> column_rows(position=np.arange(2), length=np.array([1.5, 2.5]))
    [{'position': 0, 'length': 1.5}, {'position': 1, 'length': 2.5}]
    """
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def with_provenance(table: pa.Table, provenance: Mapping[str, Any]) -> pa.Table:
    """The table with its provenance in the metadata of its schema."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(plain(provenance)).encode()})


def stacked(*tables: tuple[str, pa.Table]) -> pa.Table:
    """Tables of several models, each with its model, below each other; a column before the others names the model.

    >>> stacked(("a", pa.table({"n": [1]})), ("b", pa.table({"n": [2]}))).to_pylist()
    [{'model': 'a', 'n': 1}, {'model': 'b', 'n': 2}]
    """
    return pa.concat_tables(
        table.replace_schema_metadata(None).add_column(0, "model", pa.array([model] * len(table), pa.string()))
        for model, table in tables
    )


def provenance(*clouds: TokenClouds, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, date, settings, and what is known of the model and the texts behind each set of clouds."""
    return {
        "poolscope": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": dict(settings),
        "clouds": [
            {
                **part.provenance,
                "corpus": part.provenance.get("texts"),
                "texts": len(part),
                "tokens": int(part.lengths.sum()),
                "dimension": part.dimension,
                "dtype": str(part.dtype),
                "texts_truncated": int((part.truncated > 0).sum()),
                "tokens_truncated": int(part.truncated.sum()),
            }
            for part in clouds
        ],
    }


# -- plain types and back -----------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """The value in the types of JSON: numpy and dataclasses unpacked, NaN and infinity as None.

    Of a dataclass the keys are those of its fields (see `key`), with what its `derived()` adds where it has one.

    >>> plain({"a": np.float32(0.5), "b": np.arange(2), "c": float("nan")})
    {'a': 0.5, 'b': [0, 1], 'c': None}
    """
    return without_secrets(_plain(value, arrays=False))


def packed(value: Any) -> Any:
    """`plain` with bulk fields, and exact: arrays of numbers byte by byte, NaN and infinity as words.

    >>> packed({"counts": np.array([1, 2], dtype=np.int8), "limit": float("inf")})
    {'counts': {'dtype': '|i1', 'shape': [2], 'base64': 'AQI='}, 'limit': 'inf'}
    """
    return without_secrets(_plain(value, arrays=True))


def _plain(value: Any, *, arrays: bool) -> Any:
    if isinstance(value, Result):
        return value.to_dict(arrays=arrays)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _content(value, arrays=arrays)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, arrays=arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, arrays=arrays) for item in value]
    if isinstance(value, np.ndarray):
        return _packed_array(value) if arrays and value.dtype.kind in _PACKED else _plain(value.tolist(), arrays=arrays)
    if isinstance(value, np.generic):
        return _plain(value.item(), arrays=arrays)
    if isinstance(value, float) and not np.isfinite(value):
        return str(value) if arrays else None
    return value


def _content(record: Any, *, arrays: bool) -> dict[str, Any]:
    """The fields of a dataclass by their keys, and what follows from them."""
    content = {
        key_of(part): _plain(getattr(record, part.name), arrays=arrays)
        for part in kept_fields(record)
        if arrays or not part.metadata.get("bulk")
    }
    derived = getattr(record, "derived", None)
    return content if derived is None else {**content, **_plain(derived(), arrays=False)}


def key_of(part: dataclasses.Field[Any]) -> str:
    """The name of a field in files and tables."""
    return str(part.metadata.get("key", part.name))


_PACKED = "fiub"  # kinds of numbers that an array keeps byte by byte


def _packed_array(values: NDArray[Any]) -> dict[str, Any]:
    raw = np.ascontiguousarray(values)
    content = base64.b64encode(raw.tobytes()).decode("ascii")
    return {"dtype": raw.dtype.str, "shape": list(values.shape), "base64": content}


def restored(kind: Any, value: Any) -> Any:
    """A plain value as the type that a field declares: the way back from `plain` and `packed`.

    >>> restored(Estimate | None, {"value": 0.5, "interval": None})
    Estimate(value=0.5, interval=None, floor=None, floor_low=None, floor_high=None, no_interval='')
    """
    kind = unaliased(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _restored_choice(inner, value)
    if kind in (bool, int, float, str):
        return _restored_scalar(kind, value)
    if kind is np.ndarray or origin is np.ndarray:
        return _restored_array(inner, value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _restored_record(kind, value)
    if origin in (tuple, list, Sequence):
        return _restored_sequence(origin, inner, value)
    if origin in (dict, Mapping):
        return {_restored_key(inner[0], key): restored(inner[1], item) for key, item in value.items()}
    return value


def unaliased(kind: Any) -> Any:
    """The type that an alias with parameters stands for: from numpy 2.5 on `NDArray[…]` is such an alias."""
    value = getattr(typing.get_origin(kind), "__value__", None)
    return kind if value is None else value[typing.get_args(kind)]


def _restored_scalar(kind: Any, value: Any) -> Any:
    if kind is float and (value is None or (isinstance(value, int | float) and not isinstance(value, bool))):
        return float("nan") if value is None else float(value)
    if kind is float and value in ("nan", "inf", "-inf"):
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} was expected, received {type(value).__name__}")
    return value


def _restored_choice(kinds: Sequence[Any], value: Any) -> Any:
    """One of several types: the first that the value can be read as."""
    if value is None and type(None) in kinds:
        return None
    refused: Exception | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return restored(kind, value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            refused = error
    raise refused or ValueError(f"{value!r} is none of the declared types")


def _restored_array(inner: Sequence[Any], value: Any) -> NDArray[Any]:
    if isinstance(value, Mapping):
        kind = np.dtype(value["dtype"])
        if kind.kind not in _PACKED:
            raise ValueError(f"an array of {kind} was expected to hold numbers")
        raw = base64.b64decode(value["base64"], validate=True)
        return np.frombuffer(raw, dtype=kind).reshape(value["shape"]).copy()
    if not isinstance(value, list | tuple | np.ndarray):
        raise TypeError(f"an array was expected, received {type(value).__name__}")
    declared = typing.get_args(inner[1])[0] if len(inner) > 1 and typing.get_args(inner[1]) else None
    known = declared if isinstance(declared, type) and issubclass(declared, np.generic) else None
    return np.asarray(value, dtype=known)


def _restored_record(kind: type, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"a {kind.__name__} was expected, received {type(value).__name__}")
    if issubclass(kind, Result) and str(value.get("result", kind.__name__)) != kind.__name__:
        kind = Result._kinds[str(value["result"])]
    known = {key_of(part): part for part in kept_fields(kind) if part.init}
    if missing := [key for key, part in known.items() if part.metadata.get("required") and key not in value]:
        raise StoreError(
            f"{kind.__name__}: received the summary that to_dict() shows, without {', '.join(missing)}; needed: what "
            f"`save` writes as .json, or to_dict(arrays=True)."
        )
    hints = typing.get_type_hints(kind)
    return kind(
        **{known[key].name: restored(hints[known[key].name], item) for key, item in value.items() if key in known}
    )


def _restored_sequence(origin: Any, inner: Sequence[Any], value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError(f"a list was expected, received {type(value).__name__}")
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return tuple(restored(kind, item) for kind, item in zip(inner, value, strict=True))
    items = [restored(inner[0], item) for item in value]
    return tuple(items) if origin is tuple else items


def _restored_key(kind: Any, key: str) -> Any:
    return int(key) if kind is int else float(key) if kind is float else key


# -- tables for spreadsheets ------------------------------------------------------------------------------------------

# What a spreadsheet takes for a formula, also behind spaces and in the wide letters of East Asian keyboards.
_FORMULA = r"^[\s\x00-\x1f]*[=+\-@＝＋－＠]|^[\t\r\n]"


def write_csv(table: pa.Table, stream: BinaryIO) -> None:
    r"""Write a table as CSV in which no spreadsheet runs a text: a cell like a formula gets a ' before it.

    >>> import io
    >>> stream = io.BytesIO()
    >>> write_csv(pa.table({"text": ["=1+1", "one"], "number": [-1, 2]}), stream)
    >>> stream.getvalue()
    b'"text","number"\n"\'=1+1",-1\n"one",2\n'
    """
    from pyarrow import csv

    columns = [_without_formulas(column) for column in table.columns]
    names = _without_formulas(pa.chunked_array([table.column_names], pa.string())).to_pylist()
    csv.write_csv(pa.Table.from_arrays(columns, names=names), stream)


def _without_formulas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts whose formulas are quoted; any other column as it is."""
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    quoted = pc.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))
    return pc.if_else(pc.match_substring_regex(column, _FORMULA), quoted, column)
