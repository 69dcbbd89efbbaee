"""What an audit says before it starts: the gain that its queries can show."""

from __future__ import annotations

import numpy as np
import pytest

from audit_data import asking, bag_of_words, topics
from poolscope import audit
from poolscope.auditing.power import reach_sentence, shown_sentence, usual_reach
from poolscope.auditing.watch import Minutes, Watch


class Listening(Watch):
    """A watch that keeps what it hears, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, sentence: str) -> None:
        self.heard.append(sentence)

    def encoded(self, texts: int, tokens: int) -> None:
        self.heard.append("encoded")


def test_four_times_the_units_show_half_the_gain():
    assert usual_reach(np.ones(400)) == pytest.approx(usual_reach(np.ones(100)) / 2)


def test_queries_of_one_unit_show_less_than_as_many_apart_and_more_than_one():
    assert usual_reach(np.ones(100)) < usual_reach(np.full(50, 2)) < usual_reach(np.ones(50))


def test_queries_about_one_document_count_once():
    relevant = np.array([[0, 0], [1, 1], [2, 2], [3, 3]])
    documents = reach_sentence(relevant, ["a", "a", "b", "b"], k=10)
    assert "4 queries about 2 documents" in documents
    shared = reach_sentence(np.array([[0, 0], [1, 1], [2, 2], [3, 2]]), None, k=10)
    alone = reach_sentence(relevant, None, k=10)
    assert "4 queries in 3 groups" in shared
    assert len({documents, shared, alone}) == 3  # of fewer units only larger gains show


def test_no_gain_is_named_where_too_few_documents_prove_none():
    relevant = np.stack([np.arange(170)] * 2, axis=1)
    few, enough = (reach_sentence(relevant, [str(k % count) for k in range(170)], k=10) for count in (29, 30))
    assert "0." not in few
    assert "0." in enough
    assert "0.2" not in shown_sentence(170, 1.0, units=7, unit="documents")


def test_it_is_said_once_before_anything_is_encoded():
    texts, watch = topics(60, seed=1), Listening()
    found = audit(bag_of_words, texts, queries=asking(texts, every=2), progress=watch)
    assert watch.heard[0] == reach_sentence(found.search.judgements.relevant, None, k=10)
    assert watch.heard[1:] == ["encoded"] * len(watch.heard[1:])


def test_it_is_said_of_an_index_too():
    texts, watch = topics(60, seed=1), Listening()
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(texts)])
    found = audit(vectors, texts, queries=asking(texts, every=2), reference=bag_of_words, progress=watch)
    assert watch.heard[0] == reach_sentence(found.search.judgements.relevant, None, k=10)


def test_a_log_has_it_as_a_line(capsys):
    Minutes().say("30 queries about 30 texts: so much shows.")
    assert capsys.readouterr().err == "30 queries about 30 texts: so much shows.\n"
