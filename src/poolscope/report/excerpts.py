"""Which part of a long text a page keeps: the one that holds the tokens that matter most."""

from __future__ import annotations

from collections.abc import Sequence

# All texts of the pairs together may have so many characters; each has at least LEAST and at most MOST of them.
BUDGET, LEAST, MOST = 1_000_000, 1000, 6000
_BEFORE = 80  # characters that stand before the first token that the excerpt was chosen for


def characters_each(texts: int) -> int:
    """How many characters of each text are kept where there are so many texts.

    >>> characters_each(10), characters_each(400), characters_each(5000)
    (6000, 2500, 1000)
    """
    return min(max(BUDGET // max(texts, 1), LEAST), MOST)


def excerpt_start(length: int, limit: int, marks: Sequence[tuple[int, int, float]]) -> int:
    """Where an excerpt of `limit` characters begins, so that the marks (start, end, weight) in it weigh most.

    The beginning of the text wins where it is as good.

    >>> excerpt_start(100, 30, [(5, 8, 0.1), (70, 75, 0.5), (80, 84, 0.2)]), excerpt_start(100, 30, [(5, 8, 0.1)])
    (63, 0)
    """
    before = min(_BEFORE, limit // 4)
    last = max(length - limit, 0)
    starts = {0} | {min(max(start - before, 0), last) for start, _, _ in marks}

    def weight(place: int) -> float:
        return sum(share for start, end, share in marks if place <= start and end <= place + limit)

    return max(sorted(starts), key=weight)
