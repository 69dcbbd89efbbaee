"""The table of what is covered: whole, true to what is there, and the page of the documentation made from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import run
from poolscope.errors import InputError
from poolscope.lab.papers import coverage

BEFORE = {"A": 93, "B": 38, "C": 48, "D": 26, "N": 7}
ITEMS = coverage.items()
DOCS = Path(__file__).parents[3] / "docs"


def test_all_items_are_listed_once():
    assert len({item.id for item in ITEMS}) == len(ITEMS) == 212
    assert Counter(item.before for item in ITEMS) == BEFORE
    assert {item.after for item in ITEMS} <= set(coverage.GRADES)


def test_everything_that_is_pointed_to_is_there():
    assert coverage.missing_proofs(ITEMS) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"after": "A", "proof": ""}, "nothing shows it"),
        ({"after": "A", "proof": "entry:socm/figure-99"}, "no entry socm/figure-99"),
        ({"after": "A", "proof": "test:tests/lab/papers/test_coverage.py::test_of_nothing"}, "no test"),
        ({"after": "A", "proof": "name:nothing_at_all"}, "no name"),
        ({"after": "A", "proof": "command:nothing"}, "no command"),
        ({"after": "C", "reason": "", "proof": ""}, "no reason"),
    ],
)
def test_faults_are_found(change, fault):
    (found,) = coverage.missing_proofs([replace(ITEMS[0], **change)])
    assert fault in found


def test_unknown_kinds_of_proof_are_refused():
    with pytest.raises(InputError, match="allowed: entry"):
        coverage.is_there("guess", "x")


def test_the_page_is_what_the_command_writes():
    assert (DOCS / coverage.PAGE).read_text(encoding="utf-8") == coverage.page(ITEMS)


def test_the_command(tmp_path):
    printed = run("lab", "paper", "coverage", "-o", str(tmp_path))
    assert (tmp_path / coverage.PAGE).read_text(encoding="utf-8") == coverage.page(ITEMS)
    assert "93 →" in printed
