"""An audit holds the tokens of its texts while they fit; beyond that it encodes those of candidates once."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import pytest

from audit_data import asking, bag_of_words, topics
from poolscope import audit
from poolscope.auditing import search as searching
from poolscope.machine import available_memory
from tiny_models import save_model


def long_topics() -> list[str]:
    """Texts of 200 words, so that late chunks differ from whole texts."""
    return topics(120, words=200, seed=3)


@pytest.fixture(scope="module")
def held():
    texts = long_topics()
    return audit(bag_of_words, texts, queries=asking(texts, words=2, every=3), encode=False)


def test_candidates_score_the_same_where_tokens_are_not_held(held, monkeypatch):
    monkeypatch.setattr(searching, "_HELD_BYTES", 0)
    monkeypatch.setattr(searching, "_TEXTS", 32)  # several blocks
    encoded = Counter()

    def counted(texts):
        encoded.update(texts)
        return bag_of_words(texts)

    texts = long_topics()
    found = audit(counted, texts, queries=asking(texts, words=2, every=3), encode=False)
    assert found.search.tokens is None
    assert any("too much" in note for note in found.notes)
    assert (found.ledger.ranks["maxsim"] == held.ledger.ranks["maxsim"]).all()
    assert (found.ledger.yardsticks["tokens-alone"] == held.ledger.yardsticks["tokens-alone"]).all()
    assert {"late-chunks-128", "late-chunks-64"} <= set(found.ledger.ranks)
    # Once for vectors, once for all scores of candidates; a symptom or an opened miss may read few texts more.
    candidates = [texts[k] for k in found.search.candidate_texts]
    assert sum(encoded[text] for text in candidates) <= 2.5 * len(candidates)


def test_a_small_corpus_is_held(held):
    assert held.search.tokens is not None
    assert not any("too much" in note for note in held.notes)


def test_phases_are_logged_with_their_seconds(caplog):
    texts = topics(40)
    with caplog.at_level(logging.DEBUG, logger="poolscope"):
        audit(bag_of_words, texts, queries=asking(texts))
    logged = [record.getMessage() for record in caplog.records]
    for phase in ("reading, opening and encoding", "search", "maxsim", "keywords"):
        assert any(message.startswith(f"{phase}: ") for message in logged), phase


def test_memory_is_that_of_the_container_where_it_has_less(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 4000 kB\n")
    assert available_memory(tmp_path) == 4000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000000\n")
    (group / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == 4000 * 1024
    (group / "memory.max").write_text("3000000\n")
    assert available_memory(tmp_path) == 2_000_000


def test_keywords_score_as_the_library_does_with_all_words():
    import bm25s

    from poolscope.auditing.yardsticks import KeywordIndex

    texts = [*topics(60, seed=5), "", "Ünïcode WORDS, and_under 12"]
    queries = [*asking(texts[:60]), "nothing that any text has", "unique ünïcode words"]
    whole = bm25s.BM25()
    whole.index([text.lower().replace(",", "").split() for text in texts], show_progress=False)
    expected = np.zeros((len(queries), len(texts)), np.float32)
    for row, query in enumerate(queries):
        if known := [word for word in query.lower().split() if word in whole.vocab_dict]:
            expected[row] = whole.get_scores(known)
    assert np.abs(KeywordIndex(texts, queries).scores(queries) - expected).max() < 1e-6
    assert expected[-1, -1] > 0


def test_the_crowd_of_many_texts_is_that_of_a_sample(held, monkeypatch):
    from poolscope.auditing.cures import vectors

    search = held.search
    whole = vectors._text_crowd(search)
    monkeypatch.setattr(vectors, "_COSINES", len(search.vectors) * 110)  # of 120 texts
    sample = search.drawn(110)
    cosines = np.array(search.vectors @ search.vectors[sample].T)
    cosines[sample, np.arange(110)] = -2
    expected = -np.sort(-cosines, axis=1)[:, : vectors.NEIGHBOURS]
    assert np.allclose(vectors._text_crowd(search), expected.mean(axis=1), atol=1e-6)
    assert np.corrcoef(vectors._text_crowd(search), whole)[0, 1] > 0.9


@pytest.mark.parametrize("mode", ["project", "subtract"])
def test_a_mean_is_removed_without_a_second_table(held, mode):
    from poolscope.auditing.cures import vectors
    from poolscope.repairs.vectors import MeanRemoval

    search = held.search
    repair = MeanRemoval(mode).fit(search.vectors)
    expected = repair.transform(search.query_vectors) @ repair.transform(search.vectors).T
    tried = vectors._without_mean(search, mode)
    assert np.abs(tried.scores(slice(0, len(search))) - expected).max() < 1e-5


def test_chunks_that_fit_are_tried_on_as_many_tokens_as_a_trial_may_encode(tmp_path, monkeypatch):
    from poolscope.auditing.cures import encoding

    monkeypatch.setattr(encoding, "_FEWEST", 0)
    texts = topics(80, words=60)
    search = audit(save_model(tmp_path), texts, queries=asking(texts, every=1), encode=False, max_length=16).search
    needed, most = encoding._fitting_cost(search).tokens, encoding.budget(search, encoding._CHUNKS)
    assert needed > 2 * most
    some = encoding._sample_to_split(search)
    chunks = encoding._chunks(some, np.arange(len(some.texts)))
    assert 0.25 * most < encoding._fitting_cost(some).tokens <= 1.1 * most
    assert 0 < len(some) < len(search)
    assert len(chunks) == len(some.texts)
