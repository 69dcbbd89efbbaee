"""Metrics against scores over models: scipy as the oracle, planted structure, and what must be said."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from poolscope import CorrelationStudy, correlate
from poolscope.errors import InputError
from poolscope.lab.correlate.model_records import ModelRecord, ModelRecords
from poolscope.lab.correlate.run import MEAN
from poolscope.lab.correlate.study import PValue
from poolscope.lab.papers.models import SOCM_MODELS
from poolscope.lab.papers.published import find


def records(source, values, *, families=None, traits=None, tasks=False):
    """Models m0, m1, … from a dictionary of columns; NaN for a number that is not known."""
    count = len(next(iter(values.values())))
    rows = []
    for k in range(count):
        numbers = {name: float(column[k]) for name, column in values.items() if not math.isnan(column[k])}
        own = {name: float(column[k]) for name, column in (traits or {}).items()}
        rows.append(ModelRecord(f"org/m{k}", numbers, family=families[k] if families else None, traits=own))
    return ModelRecords(source, tuple(rows), tasks=tasks)


@pytest.fixture(scope="module")
def columns():
    generator = np.random.default_rng(1)
    z = generator.normal(size=14)
    return {
        "socm": z + generator.normal(size=14) * 0.5,
        "noise": generator.normal(size=14),
        "concentration_ratio": z + generator.normal(size=14) * 0.1,
        "score": -z + generator.normal(size=14) * 0.3,
        "dimension": np.repeat([384.0, 768.0], 7),
    }


@pytest.fixture(scope="module")
def study(columns):
    metrics = {name: columns[name] for name in ("socm", "noise", "concentration_ratio")}
    families = ["A"] * 5 + ["B"] * 5 + ["C"] * 4
    left = records("metrics", metrics, families=families, traits={"dimension": columns["dimension"]})
    return correlate(left, records("scores", {"score": columns["score"]}))


def test_coefficients_are_those_of_scipy(study, columns):
    for metric in ("socm", "noise", "concentration_ratio"):
        row = study[metric, "score"]
        x, y = columns[metric], columns["score"]
        assert row.spearman.estimate.value == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
        assert row.pearson.estimate.value == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
        assert row.kendall.estimate.value == pytest.approx(stats.kendalltau(x, y)[0], abs=1e-12)
        assert row.spearman.p.value == pytest.approx(stats.spearmanr(x, y)[1], abs=0.02)
        for found in (row.spearman, row.pearson, row.kendall):
            assert found.estimate.interval.low < found.estimate.value < found.estimate.interval.high
    assert len(study.models) == 14
    with pytest.raises(InputError, match=r"measured: \(socm, score\)"):
        study["socm", "nonsense"]


def test_controls_take_out_what_they_explain(study):
    """SOCM goes with the score through the concentration only: as it was made."""
    row = study["socm", "score"]
    assert row.spearman.estimate.value < -0.6
    parts = {part.controls: part for part in row.partials}
    assert set(parts) == {("dimension",), ("concentration_ratio",), ("dimension", "concentration_ratio")}
    assert parts[("dimension",)].spearman.estimate.value < -0.5
    assert abs(parts[("concentration_ratio",)].spearman.estimate.value) < 0.5
    assert parts[("concentration_ratio",)].spearman.p.value > 0.05
    own = {part.controls for part in study["concentration_ratio", "score"].partials}
    assert own == {("dimension",)}  # a metric is no control of itself


def test_holm_counts_the_metrics(study):
    rows = [study[name, "score"] for name in ("socm", "noise", "concentration_ratio")]
    smallest = min(rows, key=lambda row: row.spearman.p.value)
    assert smallest.holm == pytest.approx(3 * smallest.spearman.p.value)
    assert f"{rows[0].holm:.2g} corrected" in rows[0].sentence()


def test_each_family_is_left_out_once(study, columns):
    row = study["noise", "score"]
    assert [part.family for part in row.without] == ["A", "B", "C"]
    assert [part.models for part in row.without] == [9, 9, 10]
    expected = stats.spearmanr(columns["noise"][5:], columns["score"][5:])[0]
    assert row.without[0].spearman == pytest.approx(expected, abs=1e-12)
    assert row.without[0].left_out == tuple(f"org/m{k}" for k in range(5))


def test_a_correlation_that_one_family_makes_is_called_so():
    """Family B lies far off, and inside A the two go the other way."""
    x, y = np.array([0.0, 1, 2, 10, 11, 12]), np.array([0.0, 1, 2, -10, -11, -12])
    found = correlate(records("m", {"x": x}, families=list("AAABBB")), records("s", {"y": y}))["x", "y"]
    assert found.spearman.estimate.value < -0.7
    assert found.range_without == pytest.approx((-1.0, 1.0))
    assert "single family" in found.sentence()


def test_published_models_have_their_families(tmp_path):
    table = tmp_path / "published.csv"
    wiki, marco = (
        [find("socm", table, m.name, "Avg. SOCM").number for m in SOCM_MODELS] for table in ("Table 1", "Table 5")
    )
    lines = [f"{model.hub},{first},{-second}" for model, first, second in zip(SOCM_MODELS, wiki, marco, strict=True)]
    table.write_text("\n".join(["model,socm,score", *lines]), encoding="utf-8")
    found = correlate(table, table, only_metrics=["socm"], only_scores=["score"])
    assert set(found.families) == {"BERT", "MiniLM", "MPNet", "Nomic"}
    expected = stats.spearmanr(wiki, [-value for value in marco])[0]
    assert found["socm", "score"].spearman.estimate.value == pytest.approx(expected)


def test_few_models_are_few():
    x, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])
    traits = {"parameters": [1.0, 5, 2, 7]}
    study = correlate(records("m", {"x": x}, traits=traits), records("s", {"y": y}))
    (row,) = study.correlations
    (part,) = row.partials
    assert part.spearman is None
    assert "1 degrees" in part.refused
    assert row.detectable is None
    text = " ".join(study.notes)
    assert "cannot show" in text
    assert (row.spearman.estimate.interval, row.pearson.estimate.interval, row.kendall.estimate.interval) == (None,) * 3
    assert "fewer than 6" in text
    assert "too narrow" not in text
    assert set(study.families) == set(study.models)  # each is its own
    assert study.provenance["settings"]["controls"] == ["parameters"]
    assert "for dimension" in text
    assert row.spearman.p.method == "all 24 orders"
    with pytest.raises(InputError, match=r"2 models .* 3 "):
        correlate(records("m", {"x": x[:2]}), records("s", {"y": y}))


def test_intervals_begin_at_six_models_and_each_metric_counts_its_own():
    nan = float("nan")
    metrics = {"full": [1.0, 2, 3, 4, 6, 5], "short": [1.0, 2, 3, 5, 4, nan]}
    traits = {"dimension": [3.0, 1, 2, 2, 1, 5]}
    study = correlate(records("m", metrics, traits=traits), records("s", {"y": [1.0, 2, 3, 4, 5, 6]}))
    assert study["full", "y"].spearman.estimate.interval is not None
    assert study["short", "y"].spearman.estimate.interval is None
    assert study["short", "y"].spearman.estimate.value == pytest.approx(0.9)
    text = " ".join(study.notes)
    assert "6 models (short)" in text
    assert "too narrow" in text


def test_missing_numbers_are_counted_and_constants_have_no_correlation():
    nan = float("nan")
    metrics = {"x": [1.0, 2, nan, 4, 5], "same": [1.0] * 5, "rare": [1.0, nan, nan, nan, 2.0]}
    study = correlate(records("m", metrics, traits={"dimension": [5.0] * 5}), records("s", {"y": [3.0, 1, 2, 5, 4]}))
    assert study["x", "y"].models == ("org/m0", "org/m1", "org/m3", "org/m4")
    assert study["x", "y"].lacking == ("org/m2",)
    assert study["same", "y"].undefined.startswith("same is")
    assert re.match("2 models .* 3 ", study["rare", "y"].undefined)
    assert study["rare", "y"].spearman.estimate.value is None
    assert study["rare", "y"].holm is None
    assert "not defined" in study["rare", "y"].sentence()
    assert study.provenance["settings"]["controls"] == []
    assert "for dimension" in " ".join(study.notes)
    with pytest.raises(InputError, match=r"\['z'\]; .*: x, same, rare"):
        correlate(records("m", metrics), records("s", {"y": [1.0] * 5}), only_metrics=["z"])


def test_a_control_that_leaves_nothing_to_compare_is_refused():
    x, y = np.arange(8.0), np.array([3.0, 1, 2, 5, 4, 7, 6, 0])
    study = correlate(records("m", {"x": x, "y": 2 * x}), records("s", {"score": y}), controls=["y"])
    (part,) = study["x", "score"].partials
    assert part.controls == ("y",)
    assert part.spearman is None
    assert "follows" in part.refused


def test_the_mean_over_tasks_is_over_tasks_that_all_models_have():
    nan = float("nan")
    tasks = {"STS": [0.1, 0.2, 0.4], "Banking": [0.5, 0.1, 0.9], "Some": [0.9, nan, nan]}
    metrics = records("m", {"x": [1.0, 2, 3]})
    study = correlate(metrics, records("s", tasks, tasks=True))
    assert [row.score for row in study.correlations] == [MEAN]
    np.testing.assert_allclose(study["x", MEAN].y, [0.3, 0.15, 0.65])
    assert ": STS, Banking" in " ".join(study.notes)
    assert ": Some" in " ".join(study.notes)
    (alone,) = correlate(metrics, records("s", tasks, tasks=True), only_scores=["STS"]).correlations
    assert alone.y.tolist() == tasks["STS"]
    apart = records("s", {"a": [1.0, nan, nan], "b": [nan, 1.0, 2.0]}, tasks=True)
    with pytest.raises(InputError, match="all 3 models"):
        correlate(metrics, apart)


def test_files_hold_everything(study, tmp_path):
    stored = json.loads(json.dumps(study.to_dict(), allow_nan=False))
    first = study.correlations[0]
    assert stored["rows"][0]["spearman"]["estimate"]["value"] == first.spearman.estimate.value
    assert stored["families"]["A"] == [f"org/m{k}" for k in range(5)]
    study.save(tmp_path / "s.json")
    loaded = CorrelationStudy.load(tmp_path / "s.json")
    np.testing.assert_array_equal(loaded["noise", "score"].x, study["noise", "score"].x)
    assert loaded["socm", "score"].partials == first.partials
    assert loaded.headline() == {"models": 14, "metrics": 3, "scores": 1}
    study.save(tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet").to_pylist()
    assert [row["metric"] for row in table] == ["socm", "noise", "concentration_ratio"]
    assert table[0]["kendall_p"] == first.kendall.p.value
    assert table[0]["partial_spearman_concentration_ratio"] == first.partials[1].spearman.estimate.value
    assert table[2]["partial_spearman_concentration_ratio"] is None


def test_the_headline_tells_a_correlation_from_chance(study, columns):
    assert re.match("Models .* higher concentration_ratio .* lower score", study.in_words()[0])
    noise = correlate(records("m", {"noise": columns["noise"]}), records("s", {"score": columns["score"]}))
    assert re.match("No metric .* 14 models", noise.in_words()[0])
    several = {f"score {k}": columns["score"] for k in range(9)}  # as many chances, so that p ≤ 0.05 / 9 is needed
    (weak,) = correlate(records("m", {"socm": columns["socm"]}), records("s", {"score": columns["score"]})).correlations
    shaky = dataclasses.replace(weak, spearman=dataclasses.replace(weak.spearman, p=PValue(0.02, "by hand")))
    one = dataclasses.replace(study, correlations=(shaky,))
    many = dataclasses.replace(study, correlations=tuple(dataclasses.replace(shaky, score=name) for name in several))
    assert [part.in_words()[0].startswith("Models with") for part in (one, many)] == [True, False]


def test_the_figure_shows_the_points_of_the_strongest(study):
    figure = study.figure()
    titles = [note.text for note in figure.layout.annotations]
    values = [row.spearman.estimate.value for row in study.correlations]
    order = sorted(values, key=lambda value: -abs(value))
    assert [f"ρ = {value:.2f} " in title for value, title in zip(order, titles, strict=True)] == [True] * 3
    assert {trace.name for trace in figure.data} == {"A", "B", "C"}
    assert sum(bool(trace.showlegend) for trace in figure.data) == 3
    one = study.figure(panels=[("noise", "score")])
    row = study["noise", "score"]
    drawn = sorted((x, y) for trace in one.data for x, y in zip(trace.x, trace.y, strict=True))
    assert drawn == sorted(zip(row.x, row.y, strict=True))
    with pytest.raises(InputError, match="no metric"):
        dataclasses.replace(study, correlations=()).figure()
