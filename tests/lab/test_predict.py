"""Prediction of the pooling cost: planted predictors, the permutation of whole columns, cells of a tiny model."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from command_line import invoke, run
from poolscope.errors import InputError
from poolscope.evaluation import query_task
from poolscope.lab.predict import QUANTITIES, CostPrediction, PredictCell, measure_cells, predict_cost
from tiny_models import WORDS, declare, save_model


def planted(seed: int = 0, families: int = 4, corpora: int = 5) -> list[PredictCell]:
    """SOCM is the cost but for its scale; all other quantities are noise."""
    random = np.random.default_rng(seed)
    cells = []
    for family in range(families):
        for layer in range(2):
            for corpus in range(corpora):
                cost = float(random.uniform(0, 0.3))
                noise = {name: float(random.normal()) for name in QUANTITIES}
                quantities = {**noise, "socm": 10 * cost + 1}
                point = f"m{family}, layer {layer}"
                cells.append(
                    PredictCell(f"m{family}", point, f"c{corpus}", 50, 60, cost, cost - 0.01, cost + 0.01, quantities)
                )
    return cells


def test_a_planted_predictor_predicts_and_noise_does_not():
    result = predict_cost(planted())
    by_name = {each.name: each for each in result.predictors}
    assert by_name["socm"].over_corpora == pytest.approx(1.0)
    assert by_name["socm"].over_points == pytest.approx(1.0)
    assert by_name["socm"].corpora_p == pytest.approx(1 / 120)
    assert by_name["socm"].new_family > 0.9
    assert by_name["socm"].predicts
    assert [each.name for each in result.predictors if each.predicts] == ["socm"]
    assert CostPrediction.from_dict(result.to_dict()).rows() == result.rows()
    assert len(result.cell_rows()) == 4 * 2 * 5


def test_rho_and_p_are_those_of_whole_columns_shuffled_at_once():
    cells = planted(3)
    (row,) = [each for each in predict_cost(cells).predictors if each.name == "d_sigma"]
    points = list(dict.fromkeys(cell.point for cell in cells))
    values, cost = (
        np.array([[get(cell) for cell in cells if cell.point == point] for point in points])
        for get in (lambda cell: cell.quantities["d_sigma"], lambda cell: cell.cost)
    )

    def mean_rho(order):
        return np.mean([stats.spearmanr(x, y[list(order)]).statistic for x, y in zip(values, cost, strict=True)])

    own = mean_rho(range(5))
    assert row.over_corpora == pytest.approx(own)
    all_orders = [mean_rho(order) for order in permutations(range(5))]
    assert row.corpora_p == pytest.approx(np.mean(np.abs(all_orders) >= abs(own) - 1e-9))


def test_cells_that_are_missing_are_refused():
    with pytest.raises(InputError, match="39 cells of 8 points and 5 "):
        predict_cost(planted()[:-1])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folders = []
    for seed in range(2):
        random, place = np.random.default_rng(seed), tmp_path_factory.mktemp(f"corpus{seed}")
        words = [random.choice(WORDS, size=12).tolist() for _ in range(40)]
        texts = [{"id": f"t{k}", "text": " ".join(row)} for k, row in enumerate(words)]
        queries = [{"query": " ".join(row[4:7]), "ids": [f"t{k}"]} for k, row in enumerate(words)]
        for name, rows in (("texts.jsonl", texts), ("queries.jsonl", queries)):
            (place / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        folders.append(place)
    return folders


def test_a_layer_is_a_point_of_the_same_family(model, corpora):
    task = query_task(*(str(corpora[0] / name) for name in ("texts.jsonl", "queries.jsonl")))
    cells = measure_cells("tiny", str(model), "c", task, layers=[0])
    assert [cell.point for cell in cells] == ["tiny, layer 0", "tiny"]
    assert {cell.family for cell in cells} == {"tiny"}
    assert all(set(cell.quantities) == set(QUANTITIES) for cell in cells)
    assert all(cell.low <= cell.cost <= cell.high for cell in cells)
    assert cells[0].quantities["socm"] != cells[1].quantities["socm"]


def test_variants_of_a_model_share_its_family(model, corpora):
    task = query_task(*(str(corpora[0] / name) for name in ("texts.jsonl", "queries.jsonl")))
    (cell,) = measure_cells("tiny, after training", str(model), "c", task)
    assert (cell.family, cell.point) == ("tiny", "tiny, after training")


def test_the_command_resumes_and_writes_cells(model, corpora, tmp_path):
    options = ("lab", "predict", f"tiny={model}", "-o", tmp_path / "out", "--layers", "0")
    places = [part for place in corpora for part in ("--corpus", place)]
    shown = json.loads(invoke(*options, *places, "--json", "-").stdout)
    assert len(shown["cells"]) == 4
    assert (tmp_path / "out" / "cells.csv").read_text(encoding="utf-8").count("\n") == 5
    stored = tmp_path / "out" / f"tiny--{corpora[0].name}.json"
    content = json.loads(stored.read_text(encoding="utf-8"))
    content["cells"][0]["cost"] = 0.123
    stored.write_text(json.dumps(content), encoding="utf-8")
    again = json.loads(invoke(*options, *places, "--json", "-").stdout)
    assert again["cells"][0]["cost"] == 0.123
    with pytest.raises(InputError, match=r"texts\.jsonl"):
        run(*options, "--corpus", tmp_path)
