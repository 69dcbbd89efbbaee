"""What every metric of the table keeps to, in one test a promise; a metric from outside is held to the same."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import poolscope
import zoo
from cloud_data import random_cloud
from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, PoolscopeError, StoreError
from poolscope.metrics.base import METRICS, NEEDS, Metric, resolve
from poolscope.results import METADATA_KEY, Result
from result_data import against_the_schema, same, same_but_for_time
from tiny_models import TEXTS

ROOT = Path(__file__).parents[2]
# A text that would be markup, if a notebook took it for such.
HOSTILE = "<script>alert(1)</script>"
# What makes a small measurement quick; nothing else is set.
OPTIONS = {"tokens": {"min_count": 1}, "layers": {"socm_texts": 4}, "length": {"probes": False}}

LENGTHS = [3, 9, 5, 7, 4, 12]


def small_clouds() -> TokenClouds:
    random = np.random.default_rng(0)
    return TokenClouds.from_arrays(
        [random_cloud(random, length, 8) for length in LENGTHS],
        texts=[f"{HOSTILE} {k}" for k in range(len(LENGTHS))],
        ids=[f"<b>{k}</b>" for k in range(len(LENGTHS))],
        token_ids=[random.integers(5, size=length) for length in LENGTHS],
    )


def broken_clouds() -> TokenClouds:
    arrays = [np.ones((3, 4)), np.full((2, 4), np.nan)]
    return TokenClouds.from_arrays(arrays, token_ids=[[1, 2, 3], [1, 2]])


INPUTS = {
    "clouds": lambda: (small_clouds(),),
    "vectors": lambda: (np.random.default_rng(0).normal(size=(40, 6)) + 0.3,),
    "captures": lambda: (zoo.family("BERT"), TEXTS),
    "texts": lambda: (list(TEXTS),),
}
REFUSED = {
    "clouds": {
        "empty": lambda: (TokenClouds.from_arrays([]),),
        "NaN": lambda: (broken_clouds(),),
        "mixed": lambda: (TokenClouds.from_arrays([np.ones((2, 3)), np.ones((2, 4))]),),
        "one text": lambda: (small_clouds().select([]),),
    },
    "vectors": {
        "empty": lambda: ([],),
        "NaN": lambda: ([[1.0, np.nan], [0.0, 1.0], [1.0, 1.0]],),
        "mixed": lambda: ([[1.0, 2.0], [1.0]],),
        "words": lambda: ([["a", "b"], ["c", "d"]],),
    },
    "captures": {
        "empty": lambda: (zoo.family("BERT"), []),
        "mixed": lambda: (zoo.family("BERT"), ["a text", 3, None]),
        "one string": lambda: (zoo.family("BERT"), "not a list of texts"),
    },
    "texts": {"empty": lambda: ([],), "mixed": lambda: (["a text", 3],)},
}


@pytest.fixture(scope="module", params=sorted(METRICS))
def case(request) -> SimpleNamespace:
    """A metric and what it measured, once for all tests of the file."""
    metric = METRICS[request.param]
    inputs = INPUTS[metric.needs]()
    return SimpleNamespace(metric=metric, result=metric(*inputs, **OPTIONS.get(metric.name, {})))


def test_it_returns_a_result_that_knows_where_it_comes_from(case):
    assert isinstance(case.result, Result)
    origin = case.result.provenance
    assert origin["poolscope"] == poolscope.__version__
    assert isinstance(origin["settings"], dict)
    assert "created" in origin


def test_files_give_back_every_bit(case, tmp_path):
    case.result.save(tmp_path / "result.json")
    kind = type(case.result)
    assert against_the_schema(tmp_path / "result.json") == []
    loaded = kind.load(tmp_path / "result.json")
    assert same(loaded, case.result)
    assert same(Result.load(tmp_path / "result.json"), loaded)
    assert loaded.to_dict() == case.result.to_dict()
    assert loaded.to_table().equals(case.result.to_table())


def test_the_summary_is_json_and_can_be_restored_or_says_what_can(case):
    content = case.result.to_dict()
    assert content["result"] == type(case.result).__name__
    again = json.loads(json.dumps(content, allow_nan=False))
    assert again == content
    needed = any(part.metadata.get("required") for part in dataclasses.fields(case.result))
    if needed:
        with pytest.raises(StoreError, match="arrays=True"):
            type(case.result).from_dict(again)
    else:
        assert type(case.result).from_dict(again).headline() == case.result.headline()


def test_damage_is_refused(case):
    content = case.result.to_dict(arrays=True)
    for name in content.keys() - {"result", "poolscope", "provenance"}:
        broken = {**content, name: object()}
        try:
            restored = type(case.result).from_dict(broken)
        except StoreError:
            continue
        assert same(restored, case.result), f"{name}: damage came through"


def test_the_table_says_where_it_comes_from(case, tmp_path):
    table = case.result.to_table()
    assert isinstance(table, pa.Table)
    assert len(table) > 0
    assert json.loads(table.schema.metadata[METADATA_KEY])["poolscope"] == poolscope.__version__
    case.result.save(tmp_path / "table.parquet")
    assert pq.read_table(tmp_path / "table.parquet").equals(table)


def test_short_views_are_one_line_and_hold_no_markup_of_texts(case):
    assert "\n" not in repr(case.result)
    assert len(repr(case.result)) < 400
    assert all(sentence[-1] in ".:" and "nan" not in sentence for sentence in case.result.in_words())
    names = {part.name for part in dataclasses.fields(case.result)}
    assert set(case.result.field_words) <= names  # words of a field that is gone would never be seen
    view = case.result._repr_html_()
    assert ("<table" in view) == (case.result.shown_rows > 0)
    assert "<script" not in view
    assert "<b>0" not in view


def test_it_has_a_figure(case):
    figure = case.result.figure()
    assert len(figure.data) > 0
    assert figure.layout.title.text
    assert "<script" not in figure.layout.title.text


def test_its_page_is_written_and_in_the_menu(case):
    assert (ROOT / "docs" / case.metric.page).is_file()
    assert f" {case.metric.page}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert case.metric.words.endswith((".", "?"))


@pytest.mark.parametrize(("name", "what"), [(m.name, what) for m in METRICS.values() for what in REFUSED[m.needs]])
def test_it_refuses_what_cannot_be_measured(name, what):
    metric = METRICS[name]
    with pytest.raises(PoolscopeError):
        metric(*REFUSED[metric.needs][what](), **OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.part is not None])
def test_one_part_and_several_parts_give_the_same(name):
    metric, options = METRICS[name], OPTIONS.get(name, {})
    (corpus,) = INPUTS[metric.needs]()
    whole, texts = metric(corpus, **options), len(corpus)
    for cuts in ([0, texts], [0, 1, texts], [0, 2, 3, 5, texts]):
        shards = [corpus[start:stop] for start, stop in itertools.pairwise(cuts)]
        for order in (shards, shards[::-1]):
            parts = metric.in_parts(order, **options)
            for column in whole.to_table().column_names:
                one, several = (result.to_table()[column].to_pylist() for result in (whole, parts))
                for value, other in zip(one, several, strict=True):
                    assert other == (pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value)
        assert same_but_for_time(metric.in_parts(shards, **options), metric.in_parts(shards, **options))
    with pytest.raises(InputError, match="no shards"):
        metric.in_parts([])


def test_parts_that_cannot_be_merged_are_refused():
    with pytest.raises(InputError, match="metric hubs"):
        METRICS["hubs"].in_parts([np.eye(3)])


# -- a metric from outside the package ----------------------------------------------------------------------------


TOY = """
from dataclasses import dataclass
import numpy as np
from poolscope.metrics.base import Metric, register
from poolscope.results import Result, origin, provenance

@dataclass(frozen=True, repr=False)
class ToyResult(Result):
    texts: int
    norm: float
    provenance: dict = origin()

def toy(vectors, *, power=1):
    norm = float(np.mean(np.linalg.norm(np.asarray(vectors), axis=1) ** power))
    return ToyResult(len(vectors), norm, provenance=provenance(settings={"power": power}))

def part(vectors):
    return len(vectors), float(np.linalg.norm(vectors, axis=1).sum())

def merge(first, second):
    return first[0] + second[0], first[1] + second[1]

def finish(sums):
    return ToyResult(sums[0], sums[1] / sums[0], provenance=provenance(settings={"power": 1}))

register(Metric("toy", "How long vectors are.", "vectors", toy, "toy.md", part, merge, finish))
"""
USE = """
import json, sys
import numpy as np
from poolscope.errors import InputError
from poolscope.extensions import load_extensions
from poolscope.metrics.base import METRICS, register
from poolscope.results import Result

before = "toy" in METRICS
load_extensions()
load_extensions()
metric = METRICS["toy"]
vectors = np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]])
result = metric(vectors)
result.save(sys.argv[1])
loaded, parts = Result.load(sys.argv[1]), metric.in_parts([vectors[:1], vectors[1:]])
refusals = []
for refused in (result.figure, lambda: register(metric)):
    try:
        refused()
    except InputError as error:
        refusals.append(str(error))
print(json.dumps([before, repr(result), loaded == result, parts == result, metric(vectors, power=2).norm, refusals]))
"""


def test_a_metric_from_outside_keeps_to_the_contract(tmp_path):
    """A package that is installed beside poolscope adds a metric through its entry point."""
    (tmp_path / "toy_metric.py").write_text(TOY)
    about = tmp_path / "toy_metric-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-metric\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[poolscope.extensions]\ntoy = toy_metric\n")
    places = [str(tmp_path), str(Path(poolscope.__file__).parents[1]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, "-c", USE, str(tmp_path / "toy.json")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    before, view, loaded, parts, squares, (no_figure, twice) = json.loads(run.stdout)
    assert not before
    assert view == "ToyResult(texts 3, norm 2.667)"
    assert loaded
    assert parts
    assert squares == pytest.approx(10)
    assert "ToyResult has no" in no_figure
    assert "'toy' is" in twice


def test_a_metric_says_what_it_needs():
    with pytest.raises(InputError, match=f"needs 'pixels'; allowed: {', '.join(NEEDS)}"):
        Metric("toy", "A toy.", "pixels", len, "toy.md")


def test_places_are_named_as_module_and_name():
    assert resolve("poolscope.metrics.scores:cone") is resolve(resolve("poolscope.metrics.scores:cone"))
    assert resolve("poolscope.results:Result.load").__name__ == "load"
