"""The table of repairs: readings, temperature rules, poolings and vector repairs by name, and what `tune` tries.

A package outside poolscope adds a repair with an entry point of the group `poolscope.extensions`, whose module calls
`register`. Its class inherits from `Reading`, `TemperatureRule`, `Pooling` or `VectorRepair`; files of repairs know it
by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from poolscope.errors import InputError, did_you_mean, shorten
from poolscope.extensions import add_row, load_extensions
from poolscope.numbers.pooling import POOLINGS, LearnedPooling, Pooling, SecondOrderPooling, SpreadPooling
from poolscope.repairs.readings import READINGS, AlignedValues, AtLayer, Reading, ValuePooling
from poolscope.repairs.temperature.rules import PUBLISHED_GRID, RULES, Constant, TemperatureRule, as_rule
from poolscope.repairs.vectors import (
    VECTOR_REPAIRS,
    AllButTheTop,
    EmbedFilter,
    MeanRemoval,
    Standardisation,
    VectorRepair,
    Whitening,
)

Family = Literal["reading", "temperature", "pooling", "vectors"]
FAMILIES: tuple[Family, ...] = ("reading", "temperature", "pooling", "vectors")

# Of each family the class of its members, and where the names are looked up when a file is read.
_FAMILIES: dict[Family, tuple[type[Any], dict[str, Any]]] = {
    "reading": (Reading, READINGS),
    "temperature": (TemperatureRule, RULES),
    "pooling": (Pooling, POOLINGS),
    "vectors": (VectorRepair, VECTOR_REPAIRS),
}


@dataclass(frozen=True)
class RepairKind:
    """One row: a class, and the parameters with which `tune` tries it, one candidate each (none: only when asked)."""

    name: str
    family: Family
    kind: type[Any]
    tried: tuple[Mapping[str, Any], ...] = ({},)

    def candidates(self) -> list[Any]:
        """What `tune` tries of it, not fitted."""
        return [self.kind(**parameters) for parameters in self.tried]


REPAIRS: dict[str, RepairKind] = {}


def register(kind: type[Any], *, tried: Iterable[Mapping[str, Any]] = ({},)) -> type[Any]:
    """Add a repair to the table by its class; also as a decorator. A name stands once.

    >>> @register
    ... class Doubled(MeanRemoval):
    ...     name = "doubled"
    >>> [candidate.label for candidate in REPAIRS["doubled"].candidates()]
    ['doubled, project']
    >>> unregister("doubled")
    """
    family = next((family for family, (base, _) in _FAMILIES.items() if issubclass(kind, base)), None)
    if family is None:
        bases = ", ".join(base.__name__ for base, _ in _FAMILIES.values())
        raise InputError(f"repair: received {kind.__name__}; allowed: a class that inherits from one of {bases}.")
    name = str(kind.kind if family == "temperature" else kind.name)
    add_row(REPAIRS, RepairKind(name, family, kind, tuple(tried)), "repair")
    _FAMILIES[family][1][name] = kind
    return kind


def unregister(name: str) -> None:
    """Take a repair out of the table again."""
    del _FAMILIES[REPAIRS.pop(name).family][1][name]


def candidates(family: Family) -> list[Any]:
    """All that `tune` tries of a family when it is not told what to try."""
    load_extensions()
    return [part for row in REPAIRS.values() if row.family == family for part in row.candidates()]


def make_part(family: Family, how: Any, *, argument: str) -> Any:
    """A member of a family from its name, as `tune` tries it first; a member as it is."""
    load_extensions()
    base, names = _FAMILIES[family]
    if isinstance(how, base):
        return how
    if not isinstance(how, str) or how not in names:
        raise InputError(
            f"{argument}: received {shorten(how)}; allowed: {', '.join(names)}, or an object of these."
            f"{did_you_mean(how, names)}"
        )
    row = REPAIRS[how]
    return row.kind(**(row.tried[0] if row.tried else {}))


def make_rules(temperatures: Iterable[Any]) -> list[TemperatureRule]:
    """The temperatures to try as rules, checked; τ = 1 is the model as it is and left out."""
    rules = [as_rule(tau) for tau in temperatures]
    if unnamed := [rule for rule in rules if not rule.named]:
        raise InputError(
            f"temperatures: received {unnamed[0]!r}; allowed: numbers and named rules, since a function cannot be "
            f"written to the file of a repair. Write it as Steps(edges, temperatures)."
        )
    return [rule for rule in rules if not rule.neutral]


def _fill() -> None:
    # Readings are of decoders only. Which layer to pool is what `layers --retrieval` answers: tried when named.
    halves = [{}, {"low": 0.5, "high": 1.0}]
    for reading in list(READINGS.values()):
        tried = halves if issubclass(reading, ValuePooling | AlignedValues) else () if reading is AtLayer else ({},)
        register(reading, tried=tried)
    for rule in list(RULES.values()):
        register(rule, tried=[{"tau": tau} for tau in PUBLISHED_GRID] if rule is Constant else ())
    # The two poolings that know the covariance are tried with half its weight too.
    for pooling in list(POOLINGS.values()):
        halved = [{"weight": 0.5}] if pooling in (SpreadPooling, SecondOrderPooling) else []
        register(pooling, tried=[{}, *halved])
    register(LearnedPooling, tried=())  # a loss teaches it, no sample of texts
    register(MeanRemoval, tried=[{"mode": "project"}, {"mode": "subtract"}])
    register(AllButTheTop, tried=[{"k": 1}, {"k": 3}])
    register(Standardisation)
    register(EmbedFilter, tried=[{"low": low, "high": 1 - low} for low in (0.05, 0.1, 0.25)])  # of decoders only
    register(Whitening, tried=[{"accept_risk": True}])  # for the record: it usually hurts


_fill()
