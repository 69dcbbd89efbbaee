"""Evaluations, differences and trials as results; the bench on which repairs are tried, against single steps."""

from __future__ import annotations

import numpy as np
import pytest

from planted import common_direction, topic_texts
from poolscope import as_encoder, tune
from poolscope.encoders.pooling import declared_pooling
from poolscope.errors import InputError, StoreError
from poolscope.evaluation import Evaluation, RetrievalTask, Trial, compare_scores, evaluate, split_half_task
from poolscope.evaluation.scores import compared
from poolscope.numbers.intervals import signed
from poolscope.numbers.ranking import rank_documents, rank_scores
from poolscope.repairs import MeanRemoval, Repair
from poolscope.repairs.search import Bench
from poolscope.repairs.tune import TuneResult
from poolscope.results import Result


@pytest.fixture(scope="module")
def task():
    return split_half_task(topic_texts(40))


@pytest.fixture(scope="module")
def bench(task):
    encoder = as_encoder(common_direction)
    return Bench(encoder, task, declared_pooling(encoder.card))


# -- results --------------------------------------------------------------------------------------------------------


def test_a_trial_is_kept_unit_by_unit(bench, tmp_path):
    trial = bench.try_repair(Repair(vectors=MeanRemoval()))
    trial.save(tmp_path / "trial.json")
    again = Result.load(tmp_path / "trial.json")
    assert isinstance(again, Trial)
    assert again.before.scores.tolist() == trial.before.scores.tolist()
    assert again.after.names == trial.after.names
    assert compare_scores(again.before, again.after) == trial.difference == again.difference
    assert again.repair is None  # only this process has it
    table = again.table("mean_removal")["mean_removal"]
    assert table.column("after").to_pylist() == trial.after.scores.tolist()
    assert len(set(table.column("query").to_pylist())) == bench.task.units
    row = trial.rows()[0]
    assert (row["difference"], row["difference_low"]) == (trial.change.mean, trial.change.interval.low)


def test_an_evaluation_needs_its_units_to_be_restored(bench):
    with pytest.raises(StoreError, match="without observations"):
        Evaluation.from_dict(bench.before.to_dict())
    again = Evaluation.from_dict(bench.before.to_dict(arrays=True))
    assert again.score == bench.before.score
    assert again.others["MRR@10"].tolist() == bench.before.others["MRR@10"].tolist()
    assert bench.before.to_dict()["others"]["MRR@10"] == pytest.approx(again.others["MRR@10"].mean())


def test_a_search_is_a_result_too(tmp_path):
    found = tune(common_direction, topic_texts(60), poolings=[], repairs=["mean removal"], reranked=5)
    found.save(tmp_path / "tune.json")
    again = TuneResult.load(tmp_path / "tune.json")
    assert again.rows() == found.rows()
    assert (again.outcome, again.recommended) == ("repair", "mean removal, project")
    assert again.selected.name == found.selected.name
    assert again.to_dict() == found.to_dict()
    assert found.to_table().column("candidate").to_pylist()[0] == "mean removal, project"


def test_what_was_not_tried_says_why():
    trial = Trial("a cure", "it was not tried: there are no texts.")
    assert (trial.gain, trial.table("cure"), trial.numbers("cure")) == (0.0, {}, {"cure_gain": None})
    for ask in (lambda: trial.change, lambda: trial.evaluation):
        with pytest.raises(InputError, match="no texts"):
            ask()


@pytest.mark.parametrize(
    ("shift", "outcome"), [(0.1, "helps"), (-0.1, "hurts"), (0.0, "changes nothing that can be told from chance")]
)
def test_the_sentence_says_what_the_interval_says(shift, outcome):
    scores, sway = np.linspace(0.2, 0.8, 30)[:, None], np.tile([0.02, -0.02], 15)[:, None]
    before, after = (Evaluation("t", "nDCG@10", "queries", scores + move) for move in (0.0, shift + sway))
    trial = compared("a cure", before, after, units="held-out queries")
    assert f" {outcome} ({signed(shift)} nDCG@10 on 30 " in trial.sentence
    assert trial.gain == pytest.approx(max(shift, 0))


# -- the bench ------------------------------------------------------------------------------------------------------


def test_a_trial_is_two_evaluations(bench, task):
    trial = bench.try_repair(Repair(pooling="max"))
    expected = evaluate(Repair(pooling="max").apply(common_direction), task)
    assert trial.after.scores.tolist() == expected.scores.tolist()
    assert bench.before.scores.tolist() == evaluate(common_direction_vectors, task).scores.tolist()


def common_direction_vectors(texts):
    return Repair().apply(common_direction).encode(texts)


def test_sides_in_one_role_are_encoded_in_one_pass():
    calls = []

    def model(texts):
        calls.append(len(texts))
        return common_direction(texts)

    texts = topic_texts(12)
    encoder = as_encoder(model)
    alike = Bench(encoder, split_half_task(texts), declared_pooling(encoder.card))
    queries, documents = (side[-1] for side in alike.sides)
    assert calls == [24]
    assert list(queries.texts) == list(alike.task.queries)
    assert list(documents.texts) == list(alike.task.documents)
    calls.clear()
    apart = RetrievalTask(texts[:6], texts[6:], [(k, k) for k in range(6)])
    assert len(Bench(encoder, apart, declared_pooling(encoder.card)).sides) == 2
    assert calls == [6, 6]


def test_repairs_learn_from_what_is_searched_and_not_from_queries(bench):
    """Queries may have a mean of their own; halves that ask for each other are both searched."""
    encoder, texts = as_encoder(common_direction), topic_texts(12)
    apart = Bench(encoder, RetrievalTask(texts[:6], texts[6:], [(k, k) for k in range(6)]), bench.pooling)
    learnt = apart.try_repair(Repair(vectors=MeanRemoval())).repair.vectors
    np.testing.assert_allclose(learnt.mean_, apart.vectors[1].mean(axis=0), rtol=1e-5)
    both = bench.try_repair(Repair(vectors=MeanRemoval())).repair.vectors
    np.testing.assert_allclose(both.mean_, np.concatenate(bench.vectors).mean(axis=0), rtol=1e-5)


def test_a_repair_that_needs_other_layers_is_refused(bench):
    with pytest.raises(InputError, match=r"layers \(-1, -2\)"):
        bench.try_repair(Repair(pooling="last2avg"))


# -- one home of ranks ----------------------------------------------------------------------------------------------


def test_ranks_of_scores_are_those_of_the_cosines():
    random = np.random.default_rng(0)
    queries, documents = (random.normal(size=(n, 5)) for n in (8, 30))
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, documents)]
    relevant = np.array([(k, d) for k in range(8) for d in random.choice(30, 2, replace=False)])
    by_cosine, by_score = rank_documents(queries, documents, relevant), rank_scores(unit[0] @ unit[1].T, relevant)
    assert by_score.rank.tolist() == by_cosine.rank.tolist()
    assert by_score.top.tolist() == by_cosine.top.tolist()
    assert rank_scores(np.array([[3, 1, 3]], np.uint8), [(0, 0)]).rank.tolist() == [1.5]  # a tie counts half
    with pytest.raises(InputError, match="scores: received float64"):
        rank_scores([[np.nan, 1.0]], [(0, 0)])
