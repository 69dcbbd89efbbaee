"""What a question of the audit is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """One threshold: its name, its default, and why it has this value.

    NAME_watch and NAME_repair belong together: `Thresholds.judge` goes by both.
    """

    name: str
    value: float
    why: str
