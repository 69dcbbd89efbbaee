"""The tables of an audit's page: their titles, their headings in plain words, and what stands together in a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poolscope.report import ReportColumn


@dataclass(frozen=True)
class Shown:
    """How a table stands in the page: its title, how many of its rows, and its headings.

    The Parquet file has all rows, and the CSV file all columns by their own names. Columns without a heading are not
    shown; those of an interval (NAME_low and NAME_high) stand with their number. `pair` names the columns of two ids.
    """

    title: str
    rows: int
    headings: Mapping[str, str]
    searchable: bool = False
    below: Mapping[str, str] | None = None
    pair: tuple[str, str] | None = None

    def view(self, columns: Sequence[str]) -> list[ReportColumn]:
        """The columns to show, of those that the table has."""
        known = {name for name in columns if name in self.headings}
        return [self._column(name, columns) for name in self.headings if name in known]

    def _column(self, name: str, columns: Sequence[str]) -> ReportColumn:
        ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
        low, high = ends if set(ends) <= set(columns) else (None, None)
        below = (self.below or {}).get(name)
        return ReportColumn(
            name,
            self.headings[name],
            low=low,
            high=high,
            level="level" if name == "level" else None,
            below=below if below in columns else None,
        )


# Tables of the page; the others go to files only.
SHOWN: Mapping[str, Shown] = {
    # Shares of neighbours or, beside a runtime's vectors, cosines: the figure above the table says which.
    "poolings": Shown("Poolings", 20, {"pooling": "Pooling", "value": "Agreement", "floor": "Floor"}),
    "truncation": Shown(
        "Texts that were cut",
        100,
        {"id": "Text", "tokens": "Tokens kept", "cut": "Tokens cut off", "twins": "Group of equal texts"},
        searchable=True,
    ),
    "retrieval_by_length": Shown(
        "Answers by length",
        40,
        {
            "bin": "Tokens",
            "documents": "Texts",
            "queries": "Queries",
            "hit": "Hit rate",
            "ndcg": "nDCG",
            "rank": "Mean rank",
            "ratio": "Among wrong answers, over expected",
        },
    ),
    "length": Shown(
        "Profile by length",
        40,
        {
            "bin": "Tokens",
            "texts": "Texts",
            "cosine": "Mean cosine",
            "cosine_floor": "Shuffled",
            "distance": "Distance from the centre",
            "norm": "Norm",
            "effective_rank": "Effective rank",
            "same_bin_neighbours": "Neighbours of equal length",
        },
    ),
    "position": Shown(
        "Position of the answer",
        10,
        {
            "position": "Place (0: start, 1: end)",
            "similarity": "Cosine with the query",
            "rank": "Mean rank",
            "first": "Found first",
            "change": "Change of the cosine",
        },
    ),
    "worst_pairs": Shown(
        "Worst pairs",
        100,
        {
            "socm": "SOCM",
            "d_mu": "d_μ",
            "d_sigma": "d_Σ",
            "among": "Among",
            "text_i": "Text A",
            "text_j": "Text B",
        },
        searchable=True,
        below={"text_i": "id_i", "text_j": "id_j"},
        pair=("id_i", "id_j"),
    ),
    "hubs": Shown(
        "Texts that come back most",
        50,
        {
            "times_found": "Times found",
            "text": "Text",
            "nearest": "Its nearest text",
            "nearest_cosine": "Cosine with it",
        },
        searchable=True,
        below={"text": "id"},
    ),
    "duplicates": Shown(
        "Near-duplicates and equal texts",
        100,
        {"kind": "Kind", "group": "Group", "text": "Text"},
        searchable=True,
        below={"text": "id"},
    ),
    "actions": Shown(
        "What to do, in order",
        10,
        {
            "question": "Question",
            "level": "Level",
            "step": "Step",
            "cost": "Cost",
            "certainty": "How sure",
        },
        below={"step": "command"},
    ),
}
