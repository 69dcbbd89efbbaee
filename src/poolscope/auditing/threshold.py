"""The score threshold: a setting, not a cause. It has no level."""

from __future__ import annotations

from dataclasses import dataclass

from poolscope.auditing.search import Search
from poolscope.auditing.words import fill
from poolscope.errors import InputError
from poolscope.metrics.queries import query_scores
from poolscope.numbers.intervals import Estimate
from poolscope.results import Result

FALSE_HITS = 0.01
"""The share of irrelevant texts that the threshold lets through."""
WORKS = 0.8
"""The share of the relevant texts that a threshold keeps that works."""

_SET = (
    "A score threshold of {threshold:score} keeps {recall:percent} of the relevant texts and lets through "
    "{false:percent} of the others."
)
_WORKS = "Of what passes, {precision:percent} is relevant."
_FAILS = "No threshold that strict keeps {works:percent}: do not filter by score."
THRESHOLD_WORDS = (_SET, _WORKS, _FAILS)


@dataclass(frozen=True, repr=False, kw_only=True)
class ScoreThreshold(Result):
    """The lowest score that at most a share `false_hits` of irrelevant texts reaches, and what it keeps.

    `recall` is the share of relevant texts at or above it, `precision` the share of relevant ones among all that pass.
    """

    false_hits: float
    threshold: Estimate
    recall: Estimate
    precision: Estimate

    @property
    def works(self) -> bool:
        """Does it keep most of the relevant texts?"""
        return self.recall.value is not None and self.recall.value >= WORKS

    def in_words(self) -> tuple[str, ...]:
        """The setting in words."""
        values = {"threshold": self.threshold, "recall": self.recall, "precision": self.precision}
        named = {**values, "false": self.false_hits, "works": WORKS}
        return fill(_SET, named), fill(_WORKS if self.works else _FAILS, named)


def score_threshold(search: Search) -> ScoreThreshold | None:
    """The threshold of a search; None where there are too few queries for one."""
    try:
        scores = query_scores(
            search.query_vectors,
            search.vectors,
            search.judgements.relevant,
            groups=search.documents,
            false_hits=FALSE_HITS,
            seed=search.seed,
        )
    except InputError:
        return None
    if not scores.placed:
        return None
    return ScoreThreshold(
        false_hits=FALSE_HITS, threshold=scores.cut_off, recall=scores.recall, precision=scores.precision
    )
