"""What a level rests on: each function that judges says it, and the decision puts it into words."""

from __future__ import annotations

from typing import NamedTuple

from poolscope.verdicts import Basis, Level


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
