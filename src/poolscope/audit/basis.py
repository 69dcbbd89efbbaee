"""What a level rests on: each function that judges says it, and the decision puts it into words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from poolscope.verdicts import Level

Basis = Literal[
    "counted",  # over these texts: nothing is estimated
    "interval",  # all of the interval lies beyond the threshold
    "estimate",  # the estimate does, not all of its interval
    "no interval",  # the estimate does, and it has no interval
    "beyond chance",  # that there is an excess is sure, its size is an estimate
    "trial",  # a repair won on held-out texts, by enough
    "small gain",  # it won by less than the threshold asks
    "no cure",  # beyond the threshold, but what was tried has not helped
    "untried",  # beyond the threshold, and nothing could be tried
    "harmless",  # beyond the threshold of a repair, but nothing is found worse for it
    "declared",  # read from what the model declares, not measured
]


class Judgement(NamedTuple):
    """A level and what it rests on; `ok` rests on nothing beyond a threshold."""

    level: Level
    basis: Basis | None = None

    def at_most_watch(self, basis: Basis) -> Judgement:
        """The judgement, with `repair` lowered to `watch` for a reason.

        >>> Judgement("repair", "interval").at_most_watch("no cure")
        Judgement(level='watch', basis='no cure')
        """
        return Judgement("watch", basis) if self.level == "repair" else self


OK = Judgement("ok")
