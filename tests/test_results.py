"""The base of every result: round trips, tables, files, short views, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_type_hints

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyarrow import csv
from typing_extensions import TypeAliasType

import poolscope
from poolscope.errors import InputError, StoreError
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.results import (
    METADATA_KEY,
    Result,
    bulk,
    cells,
    key,
    origin,
    packed,
    plain,
    restored,
    transient,
)
from result_data import same

Array = NDArray[np.float64]
INTERVAL = Interval(0.2, 0.3, 0.95, "the population of texts", "bootstrap", "texts")


@dataclass(frozen=True)
class Bin:
    """A record inside a result, with a key of its own, bulk of its own and a number that follows."""

    low: float
    high: float
    mean_distance: float = field(metadata=key("d_mu"))
    members: NDArray[np.int64] | None = bulk()

    def derived(self) -> dict[str, Any]:
        return {"width": self.high - self.low}


@dataclass(frozen=True, repr=False)
class Every(Result):
    """One field of every kind that a result may declare."""

    name: str
    mean: Estimate
    count: int
    share: float
    exact: bool
    level: Literal["ok", "watch"]
    covariance_distance: float = field(metadata=key("d_sigma"))
    weights: Array
    bins: tuple[Bin, ...]
    pair: tuple[str, int]
    by_layer: Mapping[int, float]
    either: int | str
    maybe: Bin | None
    values: Array | None = bulk()
    clouds: Any = transient()
    provenance: Mapping[str, Any] = origin()

    def derived(self) -> dict[str, Any]:
        return {"double": 2 * self.count}


@dataclass(frozen=True, repr=False)
class Whole(Result):
    """A result that is nothing without its values."""

    count: int
    values: Array = bulk(required=True, key="numbers")


@dataclass(frozen=True, repr=False)
class Listed(Result):
    """A result whose table holds lists."""

    values: list[float]

    def rows(self) -> list[dict[str, Any]]:
        return [{"values": self.values}]


@dataclass(frozen=True, repr=False)
class Outer(Result):
    """A result that holds another."""

    inner: Result
    parts: dict[str, Whole]


@pytest.fixture
def every() -> Every:
    return Every(
        name="<b>one</b>",
        mean=Estimate(0.25, INTERVAL, floor=0.1),
        count=12_345,
        share=float("nan"),
        exact=True,
        level="watch",
        covariance_distance=float("-inf"),
        weights=np.array([[0.1, np.nan], [np.inf, 2 / 3]]),
        bins=(Bin(0.0, 0.5, 0.1, np.array([3, 1])), Bin(0.5, 2.0, 0.2)),
        pair=("a", 2),
        by_layer={0: 0.5, 3: 1.0},
        either="both",
        maybe=None,
        values=np.random.default_rng(0).normal(size=7),
        clouds=object(),
        provenance={"model": "m", "settings": {"seed": np.int64(3)}},
    )


# -- round trips --------------------------------------------------------------------------------------------------


def test_files_give_back_every_bit(every, tmp_path):
    every.save(tmp_path / "r.json")
    loaded = Every.load(tmp_path / "r.json")
    assert same(every, loaded)
    assert loaded.clouds is None
    assert same(Result.load(tmp_path / "r.json"), every)


def test_the_summary_leaves_bulk_out_and_can_be_restored(every):
    content = every.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert "values" not in content
    assert "members" not in content["bins"][0]
    assert "clouds" not in every.to_dict(arrays=True)
    again = Every.from_dict(content)
    assert again.values is None
    assert np.isnan(again.share)
    assert again.mean == every.mean


def test_keys_and_derived_numbers_of_results_and_of_records(every):
    content = every.to_dict()
    assert content["d_sigma"] is None
    assert "covariance_distance" not in content
    assert content["double"] == 24_690
    assert content["bins"][1] == {"low": 0.5, "high": 2.0, "d_mu": 0.2, "width": 1.5}
    assert Every.from_dict({**content, "double": "nonsense"}).count == 12_345
    assert every.to_dict(arrays=True)["d_sigma"] == "-inf"
    assert (content["result"], content["poolscope"]) == ("Every", poolscope.__version__)


def test_results_inside_results(every, tmp_path):
    outer = Outer(every, {"a": Whole(1, values=np.arange(3.0))})
    outer.save(tmp_path / "o.json")
    loaded = Outer.load(tmp_path / "o.json")
    assert type(loaded.inner) is Every
    assert same(loaded, outer)


def test_what_a_version_wrote_without_stays_at_its_default(every):
    content = every.to_dict(arrays=True)
    del content["provenance"], content["values"]
    again = Every.from_dict({**content, "added_later": 1})
    assert again.provenance == {}
    assert again.values is None


def test_a_result_that_needs_its_bulk_says_so():
    whole = Whole(3, values=np.arange(3.0))
    assert same(Whole.from_dict(whole.to_dict(arrays=True)), whole)
    with pytest.raises(StoreError, match=r"numbers; .*to_dict\(arrays=True\)"):
        Whole.from_dict(whole.to_dict())


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int | float | str, 3, 3),
        (int | float | str, 0.5, 0.5),
        (int | float | str, "x", "x"),
        (float | None, None, None),
        (float | None, "nan", float("nan")),
        (float, 2, 2.0),
        (Interval | Bin, {"low": 0, "high": 1, "d_mu": 0.5}, Bin(0.0, 1.0, 0.5)),
        (list[Estimate], [{"value": None}], [Estimate(None)]),
        (dict[float, bool], {"0.5": True}, {0.5: True}),
        (Any, {"a": [None]}, {"a": [None]}),
    ],
)
def test_unions_and_scalars(kind, value, expected):
    found = restored(kind, value)
    assert same(found, expected)
    assert type(found) is type(expected)


# -- damaged content ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"count": "12"},
        {"count": None},
        {"count": 1.5},
        {"exact": 1},
        {"name": None},
        {"share": "much"},
        {"mean": 0.25},
        {"mean": {"interval": None}},
        {"weights": 7},
        {"weights": "AQI="},
        {"values": {"dtype": "<f8", "shape": [7], "base64": "AQI="}},
        {"values": {"dtype": "|O", "shape": [1], "base64": "AQIDBAUGBwg="}},
        {"values": {"dtype": "<f8", "shape": [1]}},
        {"bins": {"low": 0}},
        {"bins": None},
        {"bins": [{"low": 0.0}]},
        {"pair": ["a"]},
        {"by_layer": {"first": 0.5}},
        {"by_layer": [1]},
        {"either": 0.5},
        {"maybe": []},
    ],
)
def test_damaged_content_is_refused_with_the_version_that_wrote_it(every, change):
    with pytest.raises(StoreError, match=r"Every: .* restored"):
        Every.from_dict({**every.to_dict(arrays=True), **change})


def test_a_missing_field_and_another_result_are_refused(every):
    content = every.to_dict(arrays=True)
    with pytest.raises(StoreError, match="no result"):
        Result.from_dict({"mean": 1.0})
    with pytest.raises(StoreError, match=r"'Every' .* Whole"):
        Whole.from_dict(content)
    with pytest.raises(StoreError, match="'Unheard'"):
        Result.from_dict({"result": "Unheard"})
    del content["count"]
    with pytest.raises(StoreError, match="count"):
        Every.from_dict(content)


def test_files_that_are_no_results_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.json"):
        Result.load(tmp_path / "none.json")
    for number, text in enumerate(["{", "[1]", "\x00", "[" * 100_000]):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        with pytest.raises(StoreError, match=str(number)):
            Result.load(path)


# -- tables, files, views -----------------------------------------------------------------------------------------


def test_the_table_has_the_headline_and_says_where_it_comes_from(every, tmp_path):
    table = every.to_table()
    (row,) = table.to_pylist()
    assert row["mean"] == 0.25
    assert (row["mean_low"], row["mean_high"], row["mean_floor"]) == (0.2, 0.3, 0.1)
    assert json.loads(table.schema.metadata[METADATA_KEY]) == {"model": "m", "settings": {"seed": 3}}
    every.save(tmp_path / "r.parquet")
    assert pq.read_table(tmp_path / "r.parquet").equals(table)
    every.save(tmp_path / "r.csv")
    assert csv.read_csv(tmp_path / "r.csv")["count"].to_pylist() == [12_345]
    assert every.to_pandas()["count"].tolist() == [12_345]
    with pytest.raises(InputError, match=r"'\.xlsx'; .*\.json, \.parquet and \.csv"):
        every.save(tmp_path / "r.xlsx")
    with pytest.raises(InputError, match=r"l\.csv: .* values"):
        Listed([1.0]).save(tmp_path / "l.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.parquet"]


def test_columns_that_only_later_rows_have_are_kept():
    @dataclass(frozen=True, repr=False)
    class Uneven(Result):
        def rows(self):
            return [{"a": 1}, {"a": 2, "b": 0.5}]

    assert Uneven().to_table().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 0.5}]


def test_a_name_takes_what_an_estimate_has():
    assert cells({"gain": Estimate(0.5, INTERVAL), "texts": np.int64(3)}) == {
        "gain": 0.5,
        "gain_low": 0.2,
        "gain_high": 0.3,
        "texts": 3,
    }


def test_the_short_views_are_short_and_hold_no_markup(every):
    assert repr(every).startswith("Every(name <b>one</b>, mean 0.250 [0.200, 0.300] (floor 0.1), count 12,345, ")
    view = every._repr_html_()
    assert "<b>one" not in view
    assert "&lt;b&gt;one&lt;/b&gt;" in view
    assert "values" not in repr(every)


def test_long_tables_are_cut_in_a_notebook_and_missing_ones_left_out():
    class Long(Whole):
        def rows(self) -> list[dict[str, Any]]:
            return [{"value": value} for value in self.values]

    class Without(Whole):
        def to_table(self) -> Any:
            raise InputError("too many")

    view = Long(30, values=np.arange(30.0))._repr_html_()
    assert view.count("<tr>") == 9
    assert "22 more rows" in view
    assert Without(1, values=np.zeros(1))._repr_html_().count("count 1") == 1


def kinds_of_the_package():
    for name in poolscope.__all__:
        getattr(poolscope, name)  # its home is imported, and with it its results
    ours = [kind for kind in Result._kinds.values() if kind.__module__.startswith("poolscope.")]
    # An example of a docstring that ran before this is said to be of its module, but does not stand in it.
    return [kind for kind in ours if hasattr(sys.modules[kind.__module__], kind.__qualname__)]


def test_every_result_of_the_package_has_words_for_a_notebook():
    kinds = kinds_of_the_package()
    assert len(kinds) > 40
    own = {"_repr_html_", "_opening", "in_words"}
    silent = [kind.__name__ for kind in kinds if not own & set(kind.__dict__) and not kind.__subclasses__()]
    assert not silent


def test_a_result_without_a_figure_says_where_the_numbers_are(every):
    with pytest.raises(InputError, match="Every has"):
        every.figure()


def test_equal_measurements_are_equal_whenever_they_were_made(every):
    first, second = (
        dataclasses.replace(every, share=0.0, weights=0, values=None, provenance={"created": k}) for k in (1, 2)
    )
    assert first == second


# -- plain types --------------------------------------------------------------------------------------------------


def test_plain_and_packed_values():
    values = {"a": np.bool_(True), 1: (np.float16(0.5), [np.array(["x"])]), "n": float("nan")}
    assert plain(values) == {"a": True, "1": [0.5, [["x"]]], "n": None}
    assert packed(values) == {"a": True, "1": [0.5, [["x"]]], "n": "nan"}
    turned = np.arange(6.0).reshape(2, 3).T
    assert restored(Array, packed(turned)).tolist() == turned.tolist()
    assert restored(Array, packed(np.array(0.5))).shape == ()
    assert restored(Array, [1, None]).tolist()[0] == 1.0


def test_a_file_is_loaded_where_nothing_was_measured_yet(tmp_path):
    poolscope.hubs(np.random.default_rng(0).normal(size=(40, 5))).save(tmp_path / "hubs.json")
    code = "import sys; from poolscope.results import Result; print(Result.load(sys.argv[1]).k)"
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "hubs.json")], capture_output=True, text=True)
    assert run.stdout.strip() == "10", run.stderr


# Results that do more than declare fields, each with its reason.
WAYS_OF_THEIR_OWN = {
    "Audit": "a folder: a page, and a Parquet file a table",
    "Chunks": "a file of texts, which `read_texts` reads",
    "Comparison": "a folder with a table",
    "LayersResult": "one row a text and state, in columns",
    "SocmResult": "pairs in columns, millions of them; the summary shows the worst",
    "TokenStatistics": "types in columns; the summary shows the most frequent",
}


def test_every_result_of_the_package_keeps_the_contract():
    kinds = kinds_of_the_package()
    assert len(kinds) > 40
    assert [kind for kind in kinds if not (kind.__doc__ and dataclasses.is_dataclass(kind))] == []
    assert [kind for kind in kinds if not kind.__dataclass_params__.frozen] == []
    methods = {"to_dict", "from_dict", "to_table", "save", "load"}
    assert {kind.__name__ for kind in kinds if methods & vars(kind).keys()} == set(WAYS_OF_THEIR_OWN)
    for kind in kinds:
        if "from_dict" not in vars(kind):
            get_type_hints(kind)  # by which files are read: a type imported for checking only could not be restored


def test_an_array_is_restored_whose_type_is_an_alias():
    """As numpy 2.5 declares NDArray; here by the package that has such aliases on every Python."""
    number = TypeVar("number", bound=np.generic)
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[number]], type_params=(number,))
    values = np.array([0.5, np.nan])
    for kind in (alias[np.float64], alias[np.float64] | None):
        np.testing.assert_array_equal(restored(kind, packed(values)), values)
