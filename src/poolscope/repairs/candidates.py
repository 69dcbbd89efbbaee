"""What `tune` tries: temperatures, poolings and vector repairs, one at a time, then the best of each together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.numbers.pooling import POOLINGS, Pooling, make_pooling
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.rules import TemperatureRule, as_rule
from poolscope.repairs.vectors import (
    VECTOR_REPAIRS,
    AllButTheTop,
    MeanRemoval,
    Standardisation,
    VectorRepair,
    Whitening,
)

Vectors = NDArray[np.float32]
Layers = Mapping[int, TokenClouds]

FAMILIES = ("temperature", "pooling", "vectors")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One thing to try: what differs from the model as it is, None where nothing does."""

    temperature: TemperatureRule | None = None
    pooling: Pooling | None = None
    vectors: VectorRepair | None = None

    @property
    def family(self) -> str:
        """The part that it changes, or "combination"."""
        changed = [getattr(self, name) is not None for name in FAMILIES]
        return FAMILIES[changed.index(True)] if sum(changed) == 1 else "combination" if any(changed) else "none"

    def fitted(self, sides: Sequence[Layers], declared: Pooling) -> Repair:
        """The repair of this candidate, learnt from the clouds of all sides together."""
        pooling = deepcopy(self.pooling)
        if pooling is not None:
            pooling.fit({layer: TokenClouds.concatenate([side[layer] for side in sides]) for layer in pooling.layers})
        vectors = deepcopy(self.vectors)
        if vectors is not None:
            vectors.fit(np.concatenate([(pooling or declared).transform(side) for side in sides]))
        return Repair(temperature=self.temperature, pooling=pooling, vectors=vectors)

    @property
    def label(self) -> str:
        """The parts in a few words."""
        return Repair(temperature=self.temperature, pooling=self.pooling, vectors=self.vectors).label


def default_repairs() -> list[VectorRepair]:
    """The vector repairs that are tried; whitening for the record, since it usually hurts."""
    return [
        MeanRemoval("project"),
        MeanRemoval("subtract"),
        AllButTheTop(1),
        AllButTheTop(3),
        Standardisation(),
        Whitening(accept_risk=True),
    ]


def make_rules(temperatures: Iterable[Any]) -> list[TemperatureRule]:
    """The temperatures to try as rules, checked; τ = 1 is the model as it is and left out."""
    rules = [as_rule(tau) for tau in temperatures]
    if unnamed := [rule for rule in rules if not rule.named]:
        raise InputError(
            f"temperatures: received {unnamed[0]!r}; allowed: numbers and named rules, since a function cannot be "
            f"written to the file of a repair. Write it as Steps(edges, temperatures)."
        )
    return [rule for rule in rules if not rule.neutral]


def make_repair(how: str | VectorRepair) -> VectorRepair:
    """A vector repair from its name; a vector repair as it is."""
    if isinstance(how, VectorRepair):
        return how
    if how not in VECTOR_REPAIRS:
        raise InputError(f"repairs: received {how!r}; allowed: {', '.join(VECTOR_REPAIRS)}, or vector repairs.")
    return Whitening(accept_risk=True) if how == Whitening.name else VECTOR_REPAIRS[how]()


def default_poolings() -> list[Pooling]:
    """Every pooling, and the two that know the covariance with half its weight too."""
    halved = [replace_parameters(make_pooling(name), weight=0.5) for name in ("mean + spread", "second order")]
    return [*(make_pooling(name) for name in POOLINGS), *halved]


def replace_parameters(pooling: Pooling, **values: Any) -> Pooling:
    """A copy with other parameters."""
    return deepcopy(pooling).set_params(**values)


def combined(best: Mapping[str, Candidate]) -> list[Candidate]:
    """Every combination of the best of two or three families."""
    found = []
    for count in range(2, len(best) + 1):
        for chosen in combinations([best[family] for family in FAMILIES if family in best], count):
            together = Candidate()
            for part in chosen:
                values = {name: getattr(part, name) for name in FAMILIES}
                together = replace(together, **{name: value for name, value in values.items() if value is not None})
            found.append(together)
    return found
