"""What goes into the token statistics: numbers, texts, labels of any kind, and groups too few for intervals."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath

import numpy as np
import pytest
from tests.tiny_models import tiny_model, tiny_tokenizer
from tests.token_data import TEXTS, WordEncoder

from poolscope.errors import InputError
from poolscope.lab.tokens.measure import token_statistics


@pytest.mark.parametrize("name", ["min_count", "max_types"])
@pytest.mark.parametrize("value", ["3", 1.5, True, None])
def test_numbers_that_are_none_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name}: received {value!r};"):
        token_statistics(WordEncoder(), TEXTS, **{name: value})


def test_layers_are_a_list():
    for source in ((WordEncoder(), TEXTS), (WordEncoder().encode(TEXTS, layers=[0]),)):
        with pytest.raises(InputError, match="layers: received 0"):
            token_statistics(*source, layers=0)


@pytest.mark.parametrize("read", [list, iter])
@pytest.mark.parametrize("groups", [None, ["x", "y"]])
def test_entries_that_are_no_texts_are_named(read, groups):
    for texts, message in (([None, "a"], "entry 0 is NoneType"), (["a", 3], "1 is int")):
        with pytest.raises(InputError, match=message):
            token_statistics((tiny_model(), tiny_tokenizer()), read(texts), groups=groups, max_types=2)
    with pytest.raises(InputError, match="texts: received 3"):
        token_statistics(WordEncoder(), 3)


class Colour(Enum):
    RED = 1


LABELS = {
    "date": (date(2024, 1, 2), "2024-01-02"),
    "moment": (np.datetime64("2024-01-02T03:04:05"), "2024-01-02T03:04:05"),
    "enum": (Colour.RED, "Colour.RED"),
    "path": (PurePosixPath("a/b"), "a/b"),
    "decimal": (Decimal("1.50"), "1.50"),
    "number": (np.int64(3), "3"),
    "bytes": (b"x", "b'x'"),
    "nothing": (None, "None"),
    "no dimension": (np.array("x"), "x"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_are_grouped_by_what_str_makes_of_them(kind, tmp_path):
    label, name = LABELS[kind]
    labels = [label if k % 2 else "other" for k in range(len(TEXTS))]
    result = token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1, state=tmp_path / "run.npz")
    assert sorted(result.types.names) == sorted([name, "other"])
    token_statistics(WordEncoder(), TEXTS, groups=labels, state=tmp_path / "run.npz")


def test_labels_of_tokens_may_be_of_any_kind_too():
    texts = ["the cat", "a dog"]
    each = [[date(2024, 1, 1), None, 2], np.array(["x", "y", "y"])]
    result = token_statistics(WordEncoder(), texts, groups=each, min_count=1)
    assert dict(zip(result.types.names, result.types.counts.tolist(), strict=True)) == {"y": 2, "None": 1, "2": 1}


def test_few_groups_have_no_intervals_and_a_note():
    labels = [f"l{k % 5}" for k in range(len(TEXTS))]
    few = token_statistics(WordEncoder(), TEXTS, groups=labels, min_count=1)
    assert few[1].variation.value is not None
    assert few[1].variation.interval is few[1].associations.mean_and_variance.spearman.interval is None
    assert few.interval_meanings().keys() == {"corpus"}
    assert any("fewer than 6" in note for note in few.notes())
    enough = token_statistics(WordEncoder(), TEXTS, groups=[f"l{k % 6}" for k in range(len(TEXTS))], min_count=1)
    assert enough[1].variation.interval is not None
    assert enough.interval_meanings().keys() == {"corpus", "variation", "correlations"}
    assert not any("No interval" in note for note in enough.notes())
