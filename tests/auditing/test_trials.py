"""Trials of several cures on the same queries: levels hold together, planted gains are shown, units count."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.evaluation.outcome import Judgements
from poolscope.evaluation.paired import Attempt, Family, run_trials
from poolscope.numbers.intervals import ONE_PLACE


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
        found = run_trials(attempts, np.arange(80), draws=999, seed=run)
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
    assert together.smallest == 1 > apart.smallest  # four documents prove nothing, however large the gain
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
    signs = random.integers(0, 2, size=(5, 10)) * 2.0 - 1
    flipped = Family.of(differences, units, "documents")._studentised(signs)[0]
    for row in range(5):
        own = Family.of(differences * signs[row][units][:, None], units, "documents")
        assert np.allclose(own._studentised(np.ones((1, 10)))[0], flipped[row])


def lopsided(random, queries, cures=10, share=0.1, win=0.5):
    """Cures that change nothing in the mean: few queries win much, half of them lose a little."""
    place = random.random((queries, cures))
    return np.where(place < share, win, np.where(place < share + 0.5, -2 * share * win, 0.0))


@pytest.mark.parametrize("win", [0.5, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_large_changes_of_few_queries_are_reckoned_with_where_none_was_drawn(win, sign):
    random, wrong, runs = np.random.default_rng(7), 0, 60
    for run in range(runs):
        family = Family.of(sign * lopsided(random, 50, win=win), np.arange(50), "queries")
        lows, highs = family.bounds(0.95, draws=999, seed=run)
        wrong += bool((lows > 0).any() or (highs < 0).any())
    assert wrong <= 0.05 * runs + 2 * np.sqrt(0.05 * 0.95 * runs)


def test_an_unseen_unit_changes_as_one_in_twenty_did_and_at_least_by_one_place():
    changes = np.concatenate([np.full(10, 0.8), np.full(90, 0.02), np.zeros(100)])
    assert Family.of(changes[:, None], np.arange(200), "queries").unseen == pytest.approx(0.8)
    assert Family.of(changes[:, None] / 80, np.arange(200), "queries").unseen == pytest.approx(ONE_PLACE)


def test_an_end_of_an_interval_is_that_of_gaffke():
    random = np.random.default_rng(8)
    differences = random.choice([-1.0, 0.0, 1.0], size=(40, 1))
    lows, highs = Family.of(differences, np.arange(40), "queries").bounds(0.9, draws=20_000)
    weights = random.dirichlet(np.ones(41), size=20_000)
    ends = [weights @ np.append(differences, end) for end in (-1, 1)]
    expected = np.quantile(ends[0], 0.05), np.quantile(ends[1], 0.95)
    assert (lows[0], highs[0]) == pytest.approx(expected, abs=0.01)


def test_draws_of_many_units_come_in_portions_and_give_the_same(monkeypatch):
    differences = np.random.default_rng(9).normal(size=(60, 3)) / 10
    family = Family.of(differences, np.arange(60), "queries")
    whole = family.bounds(0.95, draws=300), family.corrected_p(draws=300)
    monkeypatch.setattr("poolscope.evaluation.paired._NUMBERS", 2000)
    parts = family.bounds(0.95, draws=300), family.corrected_p(draws=300)
    assert np.allclose(whole[0], parts[0])
    assert np.allclose(whole[1], parts[1], atol=0.05)
