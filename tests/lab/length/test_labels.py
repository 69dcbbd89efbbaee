"""Labels by length: predicted, left out, missing."""

from __future__ import annotations

import json
import re

import pytest

from length_data import labelled
from poolscope.errors import InputError
from poolscope.lab.length.labels import labels_by_length


def test_labels_that_long_texts_lose():
    found = labels_by_length(*labelled(3.0), bins=[0, 100, 200])
    short, long = found.bins
    assert short.accuracy.value > 0.85 > long.accuracy.value
    assert long.entropy.value > short.entropy.value
    assert found.difference.value == pytest.approx(long.accuracy.value - short.accuracy.value)
    assert 0.2 < short.accuracy.floor < 0.5
    assert found.rows()[0]["accuracy_floor"] == short.accuracy.floor
    fair = labels_by_length(*labelled(0.3), bins=[0, 100, 200])
    assert (fair.labels, fair.dropped, fair.converged) == (3, 0, True)
    json.dumps(fair.to_dict(), allow_nan=False)


def test_rare_labels_are_left_out_and_counted():
    vectors, lengths, labels = labelled(0.3)
    labels[:3] = ["rare"] * 3
    found = labels_by_length(vectors, lengths, labels, bins=1)
    assert (found.texts, found.dropped, found.labels) == (297, 3, 3)
    assert re.match(r"3 texts .* 5\b", found.notes[-1])
    assert found.difference.value is None


def test_a_missing_label_is_no_class():
    vectors, lengths, labels = labelled(0.3)
    holed = [None if k % 3 == 0 else float("nan") if k % 3 == 1 else label for k, label in enumerate(labels)]
    found = labels_by_length(vectors, lengths, holed, bins=1)
    assert (found.texts, found.dropped, found.labels) == (100, 200, 3)
    assert found.notes[-1].startswith("200 texts ")
    with pytest.raises(InputError, match=r"labels: received 2 .* 1 have"):
        labels_by_length(vectors, lengths, [None if k % 2 else "a" for k in range(300)])


def test_labels_that_cannot_be_predicted():
    vectors, lengths, labels = labelled(0.3, count=30)
    with pytest.raises(InputError, match="29 for 30"):
        labels_by_length(vectors, lengths, labels[:-1])
    with pytest.raises(InputError, match="labels: received 1 "):
        labels_by_length(vectors, lengths, ["a"] * 30)
