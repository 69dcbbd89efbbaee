"""The ledger against brute force: misses, what each cure finds, what the next adds, what none finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poolscope.auditing.ledger import Ledger
from poolscope.errors import PoolscopeError


def ledger(seed, cures=3, queries=40, k=10):
    random = np.random.default_rng(seed)
    query = np.repeat(np.arange(queries), random.integers(1, 4, size=queries))
    ranks = {f"c{n}": random.integers(1, 30, size=len(query)).astype(float) for n in range(cures)}
    return Ledger(
        k=k,
        query=query,
        text=np.arange(len(query)),
        rank=random.integers(1, 30, size=len(query)).astype(float),
        symptoms={"long": random.random(len(query)) < 0.5},
        ranks=ranks,
        yardsticks={"keywords": random.integers(1, 30, size=len(query)).astype(float)},
    )


@pytest.mark.parametrize("seed", range(5))
def test_misses_and_rescues_are_those_of_a_loop(seed):
    book = ledger(seed)
    best = {q: min(r for n, r in zip(book.query, book.rank, strict=True) if n == q) for q in set(book.query.tolist())}
    missed = sorted(q for q, rank in best.items() if rank > 10)
    assert book.misses().tolist() == missed
    for name in ("c0", "c1", "c2", "keywords"):
        ranks = {**book.ranks, **book.yardsticks}[name]
        found = {q for q, rank in zip(book.query.tolist(), ranks, strict=True) if rank <= 10}
        assert book.rescued(name).tolist() == sorted(found & set(missed))


@pytest.mark.parametrize("seed", range(5))
def test_what_cures_explain_adds_up_and_the_first_explains_most(seed):
    book = ledger(seed)
    explained = book.explained()
    every = [query for each in explained for query in each.queries]
    assert len(every) == len(set(every))
    assert sorted([*every, *book.unexplained().tolist()]) == book.misses().tolist()
    assert len(explained[0].queries) == max(len(book.rescued(name)) for name in book.ranks)
    sizes = [len(each.queries) for each in explained]
    assert sizes == sorted(sizes, reverse=True)


def test_rows_have_every_column_and_a_cure_without_ranks_is_none():
    book = ledger(0)
    row = book.rows()[0]
    assert set(row) >= {"query", "text", "rank", "symptom_long", "rank_c0", "rank_keywords"}
    assert len(book.rows()) == len(book.query)
    assert Ledger.from_dict(book.to_dict(arrays=True)).rows() == book.rows()


def test_a_choice_of_cures_explains_no_more_than_all():
    book = ledger(1)
    for names in itertools.combinations(book.ranks, 2):
        assert len(book.unexplained(names)) >= len(book.unexplained())


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": [0, 10**12]},
        {"query": [0, 10**9]},
        {"query": [-1, 0]},
        {"query": []},
        {"rank": [1.0]},
        {"rank": 1.0},
        {"symptoms": {"long": [[]]}},
        {"ranks": {"c0": [1.0]}},
        {"yardsticks": {"keywords": [[1.0, 2.0]]}},
    ],
)
def test_a_ledger_of_someone_else_that_does_not_fit_itself_is_refused(wrong):
    whole = {"query": [0, 1], "text": [0, 1], "rank": [1.0, 2.0]}
    content = {"k": 10, **whole, "symptoms": {}, "ranks": {}, "yardsticks": {}}
    assert Ledger.from_dict(content).queries == 2
    with pytest.raises(PoolscopeError):
        Ledger.from_dict({**content, **wrong})
