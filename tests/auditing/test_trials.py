"""Trials of several cures on the same queries: levels hold together, planted gains are shown, units count."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.evaluation.outcome import Judgements
from poolscope.evaluation.paired import Attempt, Flipped, _signs, run_trials


def outcomes(random, queries=80, texts=60, lift=0.0):
    """A search before, and after with the relevant text lifted."""
    relevant = np.stack([np.arange(queries), np.arange(queries) % texts], axis=1)
    judged = Judgements.of(queries, texts, relevant)
    scores = random.normal(size=(queries, texts))
    scores[relevant[:, 0], relevant[:, 1]] += 1.5
    after = scores + 0.4 * random.normal(size=scores.shape)
    after[relevant[:, 0], relevant[:, 1]] += lift
    return judged.outcome([(0, scores)]), judged.outcome([(0, after)])


def test_of_cures_that_change_nothing_but_noise_hardly_any_is_proven():
    random, alarms, runs = np.random.default_rng(1), 0, 200
    for run in range(runs):
        attempts = []
        for cure in range(6):
            # The difference has mean 0: whichever of two noises comes first is a coin.
            one, two = outcomes(random)[1], outcomes(random)[1]
            attempts.append(Attempt(f"c{cure}", one, two))
        found = run_trials(attempts, np.arange(80), flips=999, seed=run)
        alarms += any(trial.proven for trial in found)
    assert alarms <= 0.05 * runs + 2 * np.sqrt(0.05 * 0.95 * runs)


def test_a_planted_gain_is_proven_and_its_interval_holds_the_gain():
    random = np.random.default_rng(2)
    before, after = outcomes(random, queries=200, lift=1.0)
    [found] = run_trials([Attempt("lift", before, after)], np.arange(200))
    assert found.proven
    assert found.p < 0.01
    assert found.gain.value_or_raise == pytest.approx(float((after.ndcg - before.ndcg).mean()))
    assert len(found.rescued) > len(found.broken)
    assert found.found_after - found.found_before == len(found.rescued) - len(found.broken)


def test_more_cures_make_each_interval_wider():
    random = np.random.default_rng(3)
    before, after = outcomes(random)
    others = [Attempt(f"other {k}", *outcomes(random)) for k in range(20)]
    alone = run_trials([Attempt("it", before, after)], np.arange(80))[0].gain.interval
    among = run_trials([Attempt("it", before, after), *others], np.arange(80))[0].gain.interval
    assert among.high - among.low > alone.high - alone.low


def test_queries_of_one_document_count_as_one_draw():
    random = np.random.default_rng(4)
    before, after = outcomes(random, lift=0.3)
    apart = run_trials([Attempt("it", before, after)], np.arange(80))[0]
    together = run_trials([Attempt("it", before, after)], np.arange(80) // 20, unit="documents")[0]
    assert (apart.units, together.units) == (80, 4)
    assert together.smallest > apart.smallest
    assert "documents" in (together.gain.no_interval or together.gain.interval.answers)


def test_where_no_query_changes_there_is_no_interval_and_no_proof():
    before, _ = outcomes(np.random.default_rng(5))
    [found] = run_trials([Attempt("nothing", before, before)], np.arange(80))
    assert found.gain.interval is None
    assert found.gain.no_interval
    assert not found.proven
    assert found.p == 1.0
    assert found.excludes(0.5)
    assert not found.excludes(0.01)


def test_the_t_of_flipped_signs_is_that_of_the_flipped_differences():
    random = np.random.default_rng(6)
    differences, units = random.normal(size=(30, 2)), np.repeat(np.arange(10), 3)
    signs = _signs(10, 5, 0)
    flipped = Flipped.of(differences, units, signs, "documents")
    for row in range(5):
        turned = differences * signs[row][units][:, None]
        own = Flipped.of(turned, units, signs, "documents")
        assert np.allclose(own._seen()[0], flipped.flips[row], atol=1e-4)
