"""Dear cures are looked at twice: one that gains nothing on a first part of its queries is dropped there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit_data import asking, bag_of_words, topics
from poolscope import audit
from poolscope.auditing.cause import all_causes
from poolscope.auditing.cure import Cure, Tried, free
from poolscope.auditing.engine import FIRST_LOOK, examine
from poolscope.evaluation.paired import Family


@pytest.fixture(scope="module")
def search():
    texts = topics(120, seed=5)
    return audit(bag_of_words, texts, queries=asking(texts, words=1), encode=False).search


def tried_with(search, lift, sample=lambda whole: whole):
    """An audit with one cure, which lifts the score of each relevant text so much; and the searches it was tried on."""
    asked = []

    def tries(some):
        asked.append(some)
        relevant = np.zeros((len(some), len(some.texts)))
        relevant[tuple(some.judgements.relevant.T)] = lift

        return Tried(some, lambda rows: some.own_scores(rows) + relevant[rows])

    cure = Cure("dear", "a dear cure", "Do it.", "vectors", tries, free, "setting", sample=sample)
    causes = {"hubs": replace(all_causes()["hubs"], cures=(cure,))}
    return examine(replace(search, _memory={}), causes=causes, yardsticks={}), asked


def test_a_cure_that_gains_nothing_at_first_is_dropped_there(search):
    found, asked = tried_with(search, -0.5)
    [trial] = found.trials
    assert [len(some) for some in asked] == [trial.queries]
    assert 10 <= trial.queries < FIRST_LOOK * 1.5 * len(search)
    assert trial.stopped
    assert trial.gain.value < 0
    assert found.notes == (
        f"Stopped early, as a first part of the queries gained nothing: a dear cure ({trial.queries} queries).",
    )


def test_a_cure_that_gains_is_tried_on_all_queries(search):
    found, asked = tried_with(search, 0.5)
    [trial] = found.trials
    assert [len(some) for some in asked] == [len(asked[0]), len(search)]
    assert trial.queries == len(search)
    assert trial.proven
    assert not trial.stopped
    assert found.notes == ()


def test_a_part_that_proves_nothing_costs_nothing(search):
    found, asked = tried_with(search, 0.5, lambda whole: whole.part(int(whole.lengths.sum() / 8)))
    assert asked == []
    assert found.trials == ()
    assert found.notes == ("Not tried, as what could be re-encoded has too few queries to prove a gain: a dear cure.",)


def test_what_was_tried_on_a_part_is_told_of_that_part(search):
    found, asked = tried_with(search, 0.5, lambda whole: whole.part(int(whole.lengths.sum() * 0.6)))
    [trial] = found.trials
    assert trial.queries == len(asked[1]) < len(search)
    assert found.notes == (f"Tried on a part of the queries, to save time: a dear cure ({trial.queries} queries).",)
    assert found.decision.part
    assert found.decision.left == trial.queries - trial.found_after
    assert found.decision.in_words()[-1].startswith(f"{found.decision.left} of the {trial.queries} queries that")


def test_a_part_of_a_part_is_a_part_of_the_whole(search):
    large = search.part(int(search.lengths.sum() * 0.6))
    assert 0.5 < large.lengths.sum() / search.lengths.sum() <= 0.6
    small, again = (each.part(int(search.lengths.sum() * 0.2)) for each in (search, large))
    assert set(small.positions) == set(again.positions) < set(large.positions)
    assert len(set(small.text_ids) - set(large.text_ids)) == 0


def test_large_units_are_drawn_no_earlier_than_small_ones():
    texts = topics(60, seed=6)
    # 20 documents of one query each, and one of 40.
    queries, documents = asking(texts, words=1), [str(min(k, 20)) for k in range(60)]
    places = []
    for seed in range(40):
        search = audit(bag_of_words, texts, queries=queries, groups=documents, encode=False, seed=seed).search
        large = search.units == np.bincount(search.units).argmax()
        places.append((np.unique(search._drawing[~large]) < search._drawing[large][0]).mean())
    assert 0.3 < np.mean(places) < 0.7


def test_a_text_is_encoded_once_for_both_looks():
    encoded = []

    def counted(texts):
        encoded.extend(texts)
        return bag_of_words(texts)

    texts = topics(60, seed=7)
    search = audit(counted, texts, queries=asking(texts), encode=False).search
    del encoded[:]
    part = search.part(int(search.lengths.sum() / 3))
    part.encoded(["one", "two"])
    search.encoded(["two", "three"])
    assert encoded == ["one", "two", "three"]


def test_the_price_of_the_first_look():
    """About two points of power are lost; intervals hold as often as they say."""
    random, runs, units, level = np.random.default_rng(0), 20_000, 90, 0.95
    first = round(units * FIRST_LOOK)
    for power, reach in ((0.8, 1.96 + 0.84), (0.5, 1.96)):
        mean = reach / np.sqrt(units)
        draws = random.normal(mean, 1, (runs, units)).astype(np.float32)
        whole = draws.mean(axis=1) * np.sqrt(units) / draws.std(axis=1, ddof=1) > 1.96
        kept = draws[:, :first].mean(axis=1) > 0
        assert whole.mean() == pytest.approx(power, abs=0.04)
        assert (whole & ~kept).mean() < 0.022
    for mean in (0.0, 0.15, 0.3):
        missed = 0
        for _ in range(400):
            own = random.normal(mean, 1, units)
            stopped = own[:first].mean() <= 0
            seen = np.where(np.arange(units) < first, own, np.nan) if stopped else own
            family = Family.of(seen[:, None], np.arange(units), "queries", np.array([2]))
            low, high = family.bounds(level, draws=999)
            missed += not low[0] <= mean <= high[0]
        assert missed / 400 < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)


def test_an_upper_end_that_may_come_early_lies_higher():
    differences = np.random.default_rng(1).normal(0.1, 1, (80, 1))
    once, twice = (Family.of(differences, np.arange(80), "queries", looks) for looks in (None, np.array([2])))
    (low, high), (low_twice, high_twice) = once.bounds(0.95), twice.bounds(0.95)
    assert low == low_twice
    assert high < high_twice
