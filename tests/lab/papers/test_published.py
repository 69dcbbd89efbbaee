"""Published values: every cell has one place, tables are whole, and their arithmetic holds."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from poolscope.errors import InputError
from poolscope.lab.papers.published import LENGTH, NORMS, PAPERS, SOCM, find, published

COUNTS = {
    SOCM: {
        "Table 1": 12,
        "Table 2": 3,
        "Table 3": 4,
        "Table 4": 24,
        "Table 5": 12,
        "Table 6": 12,
        "Figure 1": 2,
        "Figure 5": 2,
    },
    LENGTH: {
        "Table 1": 136,
        "Table 2": 30,
        "Table 3": 27,
        "Table 4": 360,
        "Table 5": 5,
        "Table 6": 120,
        "Table 7": 280,
        "Table 8": 27,
        "Table 9": 27,
        "Figure 1a": 2,
    },
    NORMS: {},
}
TASK_TYPES = 7


@pytest.mark.parametrize("paper", PAPERS)
def test_tables_are_whole_and_every_place_is_named_once(paper):
    cells = published(paper)
    assert Counter(cell.table for cell in cells) == COUNTS[paper]
    assert {cell.paper for cell in cells} <= {paper}
    places = [(cell.table, cell.row, cell.column) for cell in cells]
    assert len(set(places)) == len(places)
    for table in COUNTS[paper]:
        # A full table: every row has every column, but for the p that is known of one row only.
        rows = defaultdict(set)
        for cell in cells:
            if cell.table == table:
                rows[cell.row].add(cell.column)
        assert len({frozenset(columns) for columns in rows.values()}) == (
            2 if (paper, table) == (SOCM, "Table 2") else 1
        )


@pytest.mark.parametrize(
    ("paper", "table", "row", "column", "value"),
    [
        (SOCM, "Table 1", "GTE base", "Avg. SOCM", 0.0175),
        (SOCM, "Table 6", "nomic-embed-text-v1.5", "Avg. SOCM", 0.1038),
        (SOCM, "Table 2", "SOCM", "ρ", -0.678),
        (SOCM, "Table 4", "MPNet", "Params (M)", 109),
        (LENGTH, "Table 1", "BGE +ours(τ=0.8)", "LongEmbdRetr.", 38.35),
        (LENGTH, "Table 1", "GIST Relative Improv.", "Clust.", -0.29),
        (LENGTH, "Table 2", "ANCE", "NFCorpus τ=0.8", 1278.1),
        (LENGTH, "Table 2", "E5", "SciFact τ=0.8", 38.9),
        (LENGTH, "Table 3", "τ=0.8", "STS14 Unrelated", 0.7912),
        (LENGTH, "Table 4", "ImdbClassification", "Train avg. chars", 1325.1),
        (LENGTH, "Table 6", "GIST +Whitening", "STS", -4.31),
        (LENGTH, "Table 7", "GTR +YaRN(λ=1)", "Rerank.", 55.19),
        (LENGTH, "Table 8", "hotpotqa NV-Embed-v2", "2000-3000", 0.79),
        (LENGTH, "Table 9", "LongAlpaca-12k e5-mistral-7b-instruct", "0-1000", 0.78),
        (LENGTH, "Figure 1a", "BGE", "[400, 500)", 59.0),
    ],
)
def test_spot_values(paper, table, row, column, value):
    assert find(paper, table, row, column).number == value


def test_names_and_addresses_are_no_numbers():
    assert find(SOCM, "Table 3", "Wikipedia", "URL").value.endswith("/wiki1m_for_simcse.txt")
    assert find(LENGTH, "Table 5", "E5", "Publicly Available Link").number is None
    assert find(LENGTH, "Table 5", "E6", "Publicly Available Link") is None


@pytest.mark.parametrize("table", ["Table 1", "Table 6", "Table 7"])
def test_averages_are_over_task_types_not_over_data_sets(table):
    """The column Avg. is the mean of the seven columns before it; the 40 data sets do not weigh alike."""
    rows = defaultdict(list)
    for cell in published(LENGTH):
        if cell.table == table and cell.unit == "%":
            rows[cell.row].append(cell.number)
    for *types, average in rows.values():
        assert len(types) == TASK_TYPES
        assert abs(np.mean(types) - average) < 0.0061


def test_relative_improvements_follow_from_the_rows_above():
    cells = {(cell.row, cell.column): cell.number for cell in published(LENGTH) if cell.table == "Table 1"}
    for model, tau in (("ANCE", 0.9), ("GTR", 0.8), ("GIST", 0.9), ("BGE", 0.8), ("E5", 0.8)):
        for column in ("Class.", "Clust.", "STS", "LongEmbdRetr.", "Avg."):
            ratio = 100 * (cells[f"{model} +ours(τ={tau})", column] / cells[model, column] - 1)
            assert abs(ratio - cells[f"{model} Relative Improv.", column]) < 0.03


def test_contradictions_are_flagged_on_both_sides():
    first, second = (find(LENGTH, table, row, "Avg.") for table, row in (("Table 1", "E5"), ("Table 7", "E5-4K")))
    assert (first.number, second.number) == (51.32, 51.63)
    assert all("contradiction" in cell.note for cell in (first, second))
    flagged = Counter(cell.table for cell in published(LENGTH) if "contradiction" in cell.note)
    assert flagged == {"Table 1": 2, "Table 4": 3, "Table 5": 1, "Table 6": 2, "Table 7": 2}


def test_rows_that_two_tables_share_agree_but_for_what_is_flagged():
    names = {"E5": "E5-4K"}
    for cell in published(LENGTH):
        if cell.table == "Table 1" and cell.row in ("ANCE", "GTR", "GIST", "BGE", "E5"):
            for table in ("Table 6", "Table 7"):
                other = find(LENGTH, table, names.get(cell.row, cell.row), cell.column)
                assert (other.value == cell.value) != ("contradiction" in cell.note)


def test_numbers_from_the_specification_are_marked():
    marked = Counter(cell.table for cell in published(SOCM) if "specification" in cell.note)
    assert marked == {"Table 1": 12, "Table 5": 12, "Table 6": 12, "Table 2": 1, "Figure 1": 2, "Figure 5": 1}


def test_unknown_papers_are_refused():
    with pytest.raises(InputError, match=r"'unknown'.*socm, length-collapse"):
        published("unknown")
