"""What pooling costs: planted texts that only tokens tell apart, prices, cross-fitting, and a real model."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope import TokenClouds, pooling_cost
from poolscope.errors import InputError
from poolscope.evaluation import ClusteringTask, RetrievalTask, compare_scores, query_task
from poolscope.evaluation.run import for_role
from poolscope.numbers.maxsim import blend, maxsim, ordinary_tokens
from poolscope.numbers.pooling import MeanPooling
from poolscope.numbers.ranking import rank_scores, unit_rows
from poolscope.repairs.cost import EQUAL, WEIGHTS, PoolingCost, cross_fitted

LETTERS = "abcdefghijkl"


def letters(texts):
    return [[[float(c == letter) + 0.1 for letter in LETTERS] for c in text] for text in texts]


def buried() -> RetrievalTask:
    """Text k has letter k once among five a."""
    texts = [letter + "a" * 5 for letter in LETTERS[1:]]
    return RetrievalTask(list(LETTERS[1:]), texts, [(k, k) for k in range(len(texts))])


def test_every_way_has_its_row_and_its_price():
    task = buried()
    result = pooling_cost(letters, task)
    assert result.queries == 11
    assert result.texts == 11
    mean, tokens = result["mean"], result["MaxSim"]
    assert mean.gain is None
    assert mean.bytes_a_text == 4 * 12
    assert mean.products_a_query == 11
    assert tokens.bytes_a_text == 4 * 12 * 6
    assert tokens.products_a_query == 66
    assert tokens.ndcg.value == 1.0
    assert tokens.found == 11
    assert {way.name for way in result.ways if way.weight is not None} == {EQUAL} | {
        f"mean + {way.name}" for way in result.ways if way.weight is None and way.name != "mean"
    }
    assert {"Gaussian W₂", "exact transport", "MaxSim, 8 clusters"} <= {way.name for way in result.ways}
    assert set(result.left_out) == {
        "MaxSim, IDF weights",
        "MaxSim, rare words",
        "MoverScore",
    }  # these letters have no ids
    assert all(WEIGHTS[0] <= way.weight <= WEIGHTS[-1] for way in result.ways if way.weight is not None)
    assert PoolingCost.from_dict(result.to_dict()).rows() == result.rows()


def test_a_weight_is_chosen_without_the_queries_that_it_scores():
    random = np.random.default_rng(0)
    tables = dict(zip(WEIGHTS, random.standard_normal((len(WEIGHTS), 40, 30)), strict=True))
    folds = np.arange(40) % 5

    def measure(table):
        if table is tables[WEIGHTS[0]]:
            return np.where(folds == 0, 0.0, 1.0)
        return np.where(folds == 0, 9.0 * (table is tables[WEIGHTS[-1]]), 0.0)  # fold 0 alone prefers the last

    blended, mean_weight = cross_fitted(tables, measure, folds)
    assert np.array_equal(blended[folds == 0], tables[WEIGHTS[0]][folds == 0])
    assert np.array_equal(blended[folds == 1], tables[WEIGHTS[-1]][folds == 1])
    assert mean_weight == pytest.approx(0.2 * WEIGHTS[0] + 0.8 * WEIGHTS[-1])


def test_the_way_that_is_not_there_and_the_task_that_is_no_search_are_refused():
    with pytest.raises(InputError):
        pooling_cost(letters, buried())["nothing"]
    with pytest.raises(InputError):
        pooling_cost(letters, ClusteringTask(["a", "b", "c", "d"], ["x", "x", "y", "y"]))


@pytest.mark.model
def test_manuals_cost_what_was_measured_with_plain_code():
    """Weight 1, fixed beforehand: 0.660, and +0.019 [−0.005, 0.044] by the blend."""
    from poolscope import as_encoder

    task, encoder = query_task("builtin:manuals", "builtin:manuals"), as_encoder("builtin:minilm")
    queries, texts = (for_role(encoder, side.role).encode(list(side.texts))[-1] for side in task.sides)
    assert isinstance(texts, TokenClouds)
    sides = [unit_rows(MeanPooling().transform(side), "means") for side in (queries, texts)]
    cosines = sides[0] @ sides[1].T
    tokens = maxsim(queries, texts, query_tokens=ordinary_tokens(queries, encoder.vocabulary.special_ids))
    before, after = (
        task.evaluation(rank_scores(table, task.relevant)) for table in (cosines, blend(cosines, tokens, 1.0))
    )
    assert before.value == pytest.approx(0.660, abs=0.002)
    assert -0.005 <= compare_scores(before, after).mean <= 0.044
