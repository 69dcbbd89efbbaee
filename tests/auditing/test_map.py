"""The map: places of texts and missed queries in the plane in which vectors differ most."""

from __future__ import annotations

import re

import numpy as np
import pytest

from audit_data import topics
from poolscope import Audit, audit
from poolscope.auditing import map as maps

TEXTS = topics(90)
QUERIES = {" ".join(text.split()[:4]): str(k if k % 3 else (k + 7) % 90) for k, text in enumerate(TEXTS)}


@pytest.fixture(scope="module")
def found():
    return audit("builtin:wordllama", TEXTS, queries=QUERIES, encode=False)


def test_places_are_the_first_two_principal_components(found):
    vectors = found.search.vectors.astype(float)
    centred = vectors - vectors.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    shown = found.map
    assert shown.share == pytest.approx((lengths[:2] ** 2).sum() / (lengths**2).sum(), rel=1e-6)
    expected = centred[shown.texts] @ directions[:2].T
    turned = np.sign((expected * shown.places).sum(axis=0))
    assert shown.places == pytest.approx(expected * turned, abs=1e-6)
    asked = found.search.query_vectors[found.ledger.misses()] - vectors.mean(axis=0)
    assert shown.query_places == pytest.approx(asked @ directions[:2].T * turned, abs=1e-6)


def test_every_missed_query_has_its_best_text_also_among_few_that_are_drawn(found, monkeypatch):
    monkeypatch.setattr(maps, "MOST_TEXTS", 5)
    few = maps.text_map(found.search, found.ledger)
    for shown in (found.map, few):
        ids = [found.search.text_ids[k] for k in shown.texts[shown.missed]]
        assert ids == [miss.text_id for miss in found.misses]
    assert len(few.texts) < len(found.map.texts) == 90


def test_which_way_round_does_not_hang_on_the_order_of_texts(found):
    order = np.random.default_rng(0).permutation(90)
    place = np.argsort(order)
    queries = {query: str(place[int(text)]) for query, text in QUERIES.items()}
    other = audit("builtin:wordllama", [TEXTS[k] for k in order], queries=queries, encode=False)
    assert other.map.places == pytest.approx(found.map.places[order], abs=1e-5)


def test_without_misses_there_is_no_map():
    assert audit("builtin:wordllama", TEXTS, queries={TEXTS[k]: str(k) for k in range(40)}, encode=False).map is None


def test_the_page_has_a_dot_for_each_miss_in_the_colour_of_the_bar(found, tmp_path):
    found.save(tmp_path)
    page = Audit.load(tmp_path).to_html()
    assert page == found.to_html()
    groups = re.findall(r'<g class="p(\d)">', page)
    bar = {colour: int(count) for colour, count in re.findall(r'<s class="p(\d)"></s><span>[^<]*</span><b>(\d+)', page)}
    assert len(groups) == found.missed == sum(bar.values())
    assert {colour: groups.count(colour) for colour in bar} == bar
    assert found.map.figure().data
