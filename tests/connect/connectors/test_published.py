"""Answers in the form that servers are published to give, with all that our stand-ins leave out.

`published.json` names the specification of each (`form of`), or where someone shows what a real server answered
(`recorded in`: a repository's recorded traffic, or an issue). Field names, paging and errors are theirs, values ours.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from poolscope import read_index
from poolscope.connectors.base import ConnectionFailedError
from web_stores import StandIn, serving

PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))


class Recorded(StandIn):
    """Gives the answers of each request in their order."""

    def __init__(self, answers):
        super().__init__()
        self.left = {request: list(given) for request, given in answers.items()}

    def answer(self, asked):
        self.asked.append(asked)
        return self.left[f"{asked.method} {asked.path}"].pop(0)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_answers_of_the_published_form_are_read(kind):
    told = PUBLISHED[kind]
    held = Recorded(told["answers"])
    with serving(held) as place:
        found = read_index(told["address"].format(place), limit=0, **told["options"])
        rows = dict(zip(found.ids, zip(found.vectors.tolist(), found.texts, found.groups, strict=True), strict=True))
        assert list(rows) == list(told["rows"])  # one that has no text is left out
        for name, (vector, text, group) in told["rows"].items():
            np.testing.assert_array_equal(np.float32(rows[name][0]), np.float32(vector))
            assert rows[name][1:] == (text, group)
        assert found.distance == told["distance"]
        query = np.array([told["rows"][told["found"][0]][0]], dtype=np.float32)
        assert found.search.find(query, len(told["found"]), None) == [told["found"]]
        found.close()
    assert not any(held.left.values())  # every answer was asked for, and none twice


def read_and_search(address, query, k, options):
    with closing(read_index(address, limit=0, **options)) as found:
        assert len(found.vectors)
        return found.search.find(query, k, None)


BROKEN = [(kind, told["recorded in"], told) for kind in PUBLISHED for told in PUBLISHED[kind].get("broken", ())]


@pytest.mark.parametrize(("kind", "source", "told"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_what_a_real_server_answered_in_trouble_is_no_answer(kind, source, told):
    whole = PUBLISHED[kind]
    answers = {request: list(given) for request, given in whole["answers"].items()}
    answers[told["request"]][told.get("place", 0)] = told["answer"]
    query = np.array([whole["rows"][whole["found"][0]][0]], dtype=np.float32)
    with serving(Recorded(answers)) as place, pytest.raises(ConnectionFailedError, match=told["words"]) as refused:
        read_and_search(whole["address"].format(place), query, len(whole["found"]), whole["options"])
    assert "\n" not in str(refused.value)


REFUSALS = [(kind, *refusal) for kind, told in PUBLISHED.items() for refusal in told["refusals"]]


@pytest.mark.parametrize(("kind", "status", "body", "words"), REFUSALS)
def test_a_refusal_of_the_published_form_is_one_line_with_its_reason(kind, status, body, words):
    held = StandIn()
    held.answer = lambda asked: (status, body)
    with serving(held) as place, pytest.raises(ConnectionFailedError, match=words) as refused:
        read_index(PUBLISHED[kind]["address"].format(place))
    assert "\n" not in str(refused.value)
