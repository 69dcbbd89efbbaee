"""What the papers print, cell by cell, as data: one CSV a paper beside this file.

A cell has its place (paper, table, row, column) and keeps the characters that were printed. Its note names a
contradiction within the paper, and says whether the number was lost in the text that was read and comes from elsewhere.
The paper on norm and variance prints no table that could be read, so it has no file.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from poolscope.errors import InputError, did_you_mean

SOCM, LENGTH, NORMS = "socm", "length-collapse", "norm-variance"
PAPERS = {
    SOCM: "Hara et al., ACL 2026, arXiv 2604.27398",
    LENGTH: "Zhou et al., ACL 2025, arXiv 2410.24200",
    NORMS: "Yamagiwa and Shimodaira, arXiv 2409.11253",
}


@dataclass(frozen=True)
class Published:
    """One printed cell. `table` is "Table 1" or, for numbers read out in the text, "Figure 1a"."""

    paper: str
    table: str
    row: str
    column: str
    value: str
    unit: str
    place: str
    note: str

    @property
    def number(self) -> float | None:
        """The value as a number; None for names and addresses."""
        try:
            return float(self.value)
        except ValueError:
            return None

    @property
    def half_digit(self) -> float:
        """How far the number behind the printed one may lie from it: half of its last digit.

        >>> Published("socm", "Table 1", "BERT", "Avg. SOCM", "0.3962", "SOCM", "", "").half_digit
        5e-05
        """
        return 0.5 * 10.0 ** -len(self.value.partition(".")[2])


@cache
def published(paper: str) -> tuple[Published, ...]:
    """Every cell of a paper that could be read, in the order in which it is printed.

    >>> [cell.value for cell in published("socm") if cell.table == "Figure 1"]
    ['0.612', '0.017']
    """
    if paper not in PAPERS:
        raise InputError(
            f"paper: received {paper!r}; allowed: {', '.join(PAPERS)}. Name one of these.{did_you_mean(paper, PAPERS)}"
        )
    source = files(__package__).joinpath(f"{paper}.csv")
    if not source.is_file():
        return ()
    lines = source.read_text(encoding="utf-8").splitlines()
    return tuple(Published(**row) for row in csv.DictReader(lines))


def find(paper: str, table: str, row: str, column: str) -> Published | None:
    """The cell at a place, if it is printed.

    >>> find("length-collapse", "Table 6", "E5-4K", "Avg.").note
    'contradiction: Table 1 has 51.32'
    """
    return _places(paper).get((table, row, column))


@cache
def _places(paper: str) -> dict[tuple[str, str, str], Published]:
    return {(cell.table, cell.row, cell.column): cell for cell in published(paper)}
