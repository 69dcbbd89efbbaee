"""The score threshold: a setting, not a cause. It has no level."""

from __future__ import annotations

from poolscope.auditing.search import Search
from poolscope.errors import InputError
from poolscope.metrics.queries import QueryScores, query_scores


def score_threshold(search: Search) -> QueryScores | None:
    """The threshold of a search, as `poolscope scores` gives it; None where there are too few queries for one."""
    try:
        scores = query_scores(
            search.query_vectors,
            search.vectors,
            search.judgements.relevant,
            groups=search.documents,
            seed=search.seed,
        )
    except InputError:
        return None
    return scores if scores.placed else None
