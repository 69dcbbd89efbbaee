"""What every question of poolscope keeps to: round trip, tables, figure, refusals, and a level from its own judge."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from audit_data import bag_of_words, sentences, topics
from poolscope import audit
from poolscope.auditing.question import QUESTIONS, Answer, Thresholds
from poolscope.auditing.questions import OWN
from poolscope.connectors.base import Search
from poolscope.connectors.collection import array_collection
from poolscope.encoders import as_encoder, encode
from poolscope.errors import PoolscopeError
from poolscope.numbers.pooling import pool
from tiny_models import tiny_model, tiny_tokenizer

KEYS = [question.key for question in OWN]
TEXTS = sentences(120)
# Questions without what the others have, each with its reason.
WITHOUT_FIGURE = {"rows": "a count of broken rows has a table, and nothing to draw"}
WITHOUT_THRESHOLD = {"decision": "the answers that it is made of were held against theirs"}


@pytest.fixture(scope="module")
def audits():
    """A model beside the vectors of a runtime that pools otherwise, and an index with its search and its model."""
    encoder = as_encoder((tiny_model(), tiny_tokenizer()))
    clouds = encode(encoder, TEXTS)
    vectors = pool(clouds)

    def find(queries, k, value):
        order = np.argsort(np.linalg.norm(queries[:, None] - vectors[None], axis=2), axis=1)[:, :k]
        return [[str(place) for place in row[: k - 2]] for row in order]

    index = array_collection(vectors, texts=TEXTS, distance="l2")
    index = replace(index, search=Search(find, "a graph", setting="effort", values=(100,)))
    of_model = audit(encoder, TEXTS[:64], vectors=pool(clouds, "cls")[:64])
    return of_model, audit(index, reference=encoder)


@pytest.fixture(params=KEYS)
def case(request, audits):
    """A question, and the audit in which it is answered."""
    of_model, of_vectors = audits
    question = QUESTIONS[request.param]
    return question, of_model if question.applies is None else of_vectors


def test_files_give_back_an_answer(case):
    question, found = case
    answer = found[question.key]
    content = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    again = Answer.from_dict(content)
    assert (again.verdict, again.action) == (answer.verdict, answer.action)
    assert {**again.to_dict(), "tables": sorted(answer.tables)} == content  # the tables are in files of their own
    assert again.headline() == answer.headline()


def test_tables_and_figure_can_be_had_from_the_answer(case):
    question, found = case
    answer = found[question.key]
    assert answer.verdict.value is not None, answer.verdict.sentence  # otherwise nothing of this is seen
    assert isinstance(answer.to_table(), pa.Table)
    viewed = {name: table for name, table in answer.tables.items() if name in question.tables}
    for name, table in viewed.items():
        assert set(table.column_names) & set(question.tables[name].headings), name
    assert len(answer.shown()) == sum(len(table) > 0 for table in viewed.values())
    if question.key in WITHOUT_FIGURE:
        with pytest.raises(PoolscopeError, match="no figure"):
            answer.figure()
    else:
        assert answer.figure().data
        assert answer.figure().layout.title.text


class Read(Thresholds):
    """Thresholds that know which of them were looked up."""

    def __init__(self, of: Thresholds) -> None:
        super().__init__(dict(of))
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize("level", ["ok", "repair"])
def test_the_level_is_what_its_judge_says_by_its_own_thresholds(case, level, monkeypatch):
    question, found = case
    judged, looked_up = [], set()

    def judge(measured, thresholds, *rest, **options):
        limits = Read(found.subject.thresholds)
        verdict = question.judge(measured, limits, *rest, **options)
        assert thresholds is found.subject.thresholds
        looked_up.update(limits.names)
        judged.append(verdict)
        return replace(verdict, level=level)

    monkeypatch.setattr(sys.modules[question.judge.__module__], "judge", judge)
    place = [answer.key for answer in found.answers].index(question.key)
    answer = question.ask(found.subject, found.answers[:place])
    assert answer.verdict.level == level
    assert judged[0].level == found[question.key].verdict.level
    assert looked_up <= {threshold.name for threshold in question.thresholds}
    assert bool(looked_up) == (question.key not in WITHOUT_THRESHOLD)


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        lambda: (bag_of_words, []),
        lambda: (lambda texts: [np.full((2, 3), np.nan) for _ in texts], topics(12)),
        lambda: (bag_of_words, ["a text", 3]),
        lambda: (np.empty((0, 4)),),
        lambda: (np.full((12, 4), np.nan),),
    ],
    ids=["no texts", "NaN of a model", "no text", "no vectors", "NaN alone"],
)
def test_what_no_question_can_be_asked_about_is_refused(given):
    with pytest.raises(PoolscopeError):
        audit(*given())


@pytest.fixture(scope="module")
def poor():
    """Audits of one text, of equal vectors, and of vectors of which some are not numbers."""
    vectors = np.array([cloud.mean(axis=0) for cloud in bag_of_words(topics(40))])
    vectors[3, 2], vectors[7, 0] = np.nan, np.inf
    one = audit(bag_of_words, topics(1), trial_texts=0)
    return [one, audit(vectors), audit(np.ones((20, 4)))]


@pytest.mark.parametrize("key", KEYS)
def test_too_little_is_unchecked_or_counted_and_never_nan(key, poor):
    for found in poor:
        if key not in found.verdicts:
            continue
        answer = found[key]
        json.dumps(answer.to_dict(), allow_nan=False)
        assert answer.verdict.sentence
        assert "nan" not in answer.verdict.sentence
    assert poor[1].numbers["rows_broken"] == pytest.approx(2 / 40)
