"""Temperatures of attention as functions of the length: named, callable, and plain dictionaries when saved.

Attention logits are divided by τ(n) before the softmax, n the tokens of the text. τ < 1 sharpens, τ = 1 leaves the
model as it is, τ > 1 flattens. The published range is (0, 1].

`fit_steps` chooses a temperature for each bin of lengths from measured quality, and only where the gain is beyond
chance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.encoders.base import ROLES
from poolscope.errors import InputError
from poolscope.metrics.length.bins import length_bins
from poolscope.numbers.intervals import Interval, paired_difference

# The grid and the default of the paper (Zhou et al., Length-Induced Embedding Collapse, ACL 2025).
PUBLISHED_GRID = (0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PUBLISHED_TAU = 0.8


class TemperatureRule(ABC):
    """τ for texts of n tokens. Call it with n; it can be saved unless it wraps a function."""

    kind: ClassVar[str]

    @abstractmethod
    def __call__(self, n: int) -> float:
        """τ(n), finite and above 0."""

    @property
    def neutral(self) -> bool:
        """Does the rule leave every text as it is?"""
        return False

    @property
    def named(self) -> bool:
        """Can the rule be written down?"""
        return True

    def for_role(self, role: str | None) -> TemperatureRule:
        """The rule for queries or for documents; most rules make no difference."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `rule_from_dict` makes the rule again."""
        fields: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
        return {"kind": self.kind, **values}


@dataclass(frozen=True)
class Constant(TemperatureRule):
    """The same τ for every text.

    >>> Constant(0.8)(300), Constant(0.8).to_dict()
    (0.8, {'kind': 'constant', 'tau': 0.8})
    """

    tau: float = PUBLISHED_TAU
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", checked_temperature(self.tau))

    def __call__(self, n: int) -> float:
        return self.tau

    @property
    def neutral(self) -> bool:
        """τ = 1."""
        return self.tau == 1


@dataclass(frozen=True)
class LogLength(TemperatureRule):
    """Logits times log n/τ (Chiang & Cholak, 2022): τ(n) = τ/log n, which is 1 where log n = τ.

    A single token attends to itself whatever the temperature: τ(1) = 1.

    >>> LogLength(math.log(128))(128), round(LogLength(math.log(128))(512), 3)
    (1.0, 0.778)
    """

    tau: float
    kind: ClassVar[str] = "log"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", checked_temperature(self.tau))

    def __call__(self, n: int) -> float:
        return self.tau / math.log(n) if n > 1 else 1.0


@dataclass(frozen=True)
class YarnLike(TemperatureRule):
    """1/τ(n) = 1 + rate · log n; a rate of 0 changes nothing. The paper compares rates from 1e-4 to 1.

    >>> round(YarnLike(0.1)(256), 3)
    0.643
    """

    rate: float
    kind: ClassVar[str] = "yarn"

    def __post_init__(self) -> None:
        if not _is_number(self.rate) or not 0 <= self.rate < math.inf:
            raise InputError(f"rate: received {self.rate!r}; allowed: a number from 0, the paper tries 0.0001 to 1.")
        object.__setattr__(self, "rate", float(self.rate))

    def __call__(self, n: int) -> float:
        return 1 / (1 + self.rate * math.log(max(n, 1)))

    @property
    def neutral(self) -> bool:
        """Rate 0."""
        return self.rate == 0


@dataclass(frozen=True)
class Steps(TemperatureRule):
    """One τ a bin of lengths: temperatures[k] for edges[k − 1] ≤ n < edges[k], open at both ends.

    `poolscope.repairs.fit_steps` chooses the temperatures from measurements.

    >>> rule = Steps(edges=(128,), temperatures=(1.0, 0.9))
    >>> rule(127), rule(128)
    (1.0, 0.9)
    """

    edges: tuple[int, ...]
    temperatures: tuple[float, ...]
    kind: ClassVar[str] = "steps"

    def __post_init__(self) -> None:
        edges, temperatures = tuple(self.edges), tuple(self.temperatures)
        rising = all(low < high for low, high in pairwise(edges))
        whole = all(_is_number(edge) and edge == int(edge) and edge >= 1 for edge in edges)
        if not whole or not rising or len(temperatures) != len(edges) + 1:
            raise InputError(
                f"steps: received the edges {list(edges)} and {len(temperatures)} temperatures; needed: whole numbers "
                f"of tokens that rise, and one temperature more than edges."
            )
        object.__setattr__(self, "edges", tuple(int(edge) for edge in edges))
        object.__setattr__(self, "temperatures", tuple(checked_temperature(tau) for tau in temperatures))

    def __call__(self, n: int) -> float:
        return self.temperatures[bisect_right(self.edges, n)]

    @property
    def neutral(self) -> bool:
        """τ = 1 in every bin."""
        return all(tau == 1 for tau in self.temperatures)


@dataclass(frozen=True)
class ByFunction(TemperatureRule):
    """A function of your own from n to τ. Two functions cannot be told apart: it is neither saved nor cached."""

    function: Callable[[int], float]
    kind: ClassVar[str] = "function"

    def __call__(self, n: int) -> float:
        return checked_temperature(self.function(n), subject=f"tau({n})")

    @property
    def named(self) -> bool:
        """No."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Refused."""
        raise InputError(
            "tau: received a function, which cannot be saved; allowed: a number or one of the named rules. Write it "
            "as Steps(edges, temperatures), a table of the lengths at which it changes."
        )


@dataclass(frozen=True)
class ByRole(TemperatureRule):
    """One rule for queries, another for documents. Which one counts is known when texts are encoded in a role.

    >>> ByRole(query=1.0, document=0.8).for_role("document")
    Constant(tau=0.8)
    """

    query: TemperatureRule
    document: TemperatureRule
    kind: ClassVar[str] = "by_role"

    def __init__(self, *, query: Any, document: Any) -> None:
        for role, how in (("query", query), ("document", document)):
            rule = as_rule(how)
            if isinstance(rule, ByRole):
                raise InputError(f"{role}: received a rule by role within a rule by role; give it one rule.")
            object.__setattr__(self, role, rule)

    def __call__(self, n: int) -> float:
        return self.for_role(None)(n)

    @property
    def neutral(self) -> bool:
        """Neither role is changed."""
        return self.query.neutral and self.document.neutral

    @property
    def named(self) -> bool:
        """Both rules can."""
        return self.query.named and self.document.named

    def for_role(self, role: str | None) -> TemperatureRule:
        """The rule of that role."""
        return self.query if checked_role(role) == "query" else self.document

    def to_dict(self) -> dict[str, Any]:
        """Both rules as dictionaries."""
        return {"kind": self.kind, "query": self.query.to_dict(), "document": self.document.to_dict()}


# By the name under which a file keeps them.
RULES: dict[str, type[TemperatureRule]] = {rule.kind: rule for rule in (Constant, LogLength, YarnLike, Steps, ByRole)}


def as_rule(tau: Any) -> TemperatureRule:
    """A rule from what a caller has: a number, a rule, a saved rule (dictionary) or a function of the length.

    >>> as_rule(0.9), as_rule({"kind": "yarn", "rate": 0.01})
    (Constant(tau=0.9), YarnLike(rate=0.01))
    """
    if isinstance(tau, TemperatureRule):
        return tau
    if isinstance(tau, Mapping):
        return rule_from_dict(tau)
    return ByFunction(tau) if callable(tau) else Constant(tau)


def rule_from_words(words: str) -> TemperatureRule:
    """The rule that an option names: a number, log:τ, yarn:rate, or one of these for each role.

    >>> rule_from_words("0.8"), rule_from_words("query=1,document=yarn:0.01")
    (Constant(tau=0.8), ByRole(query=Constant(tau=1.0), document=YarnLike(rate=0.01)))
    """
    roles = dict(part.partition("=")[::2] for part in words.split(","))
    if set(roles) == set(ROLES):
        return ByRole(**{role: rule_from_words(roles[role]) for role in ROLES})
    kind, _, number = words.rpartition(":")
    try:
        return _NAMED[kind](float(number))
    except (KeyError, ValueError, InputError):
        raise InputError(
            f"--temperature {words} is no rule. Write a number above 0 such as 0.8, log:5, yarn:0.01, or two of them "
            f"apart: query=1,document=0.8."
        ) from None


_NAMED: dict[str, Callable[[float], TemperatureRule]] = {
    "": Constant,
    LogLength.kind: LogLength,
    YarnLike.kind: YarnLike,
}


def rule_from_dict(values: Mapping[str, Any]) -> TemperatureRule:
    """The rule that `to_dict` wrote."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    if kind in RULES:
        try:
            return RULES[kind](**fields)
        except TypeError as error:
            raise InputError(f"temperature rule: received {dict(values)!r}, which is no {kind!r} ({error}).") from error
    raise InputError(f"temperature rule: received {dict(values)!r}; allowed kinds: {', '.join(RULES)}.")


def checked_temperature(tau: Any, *, subject: str = "tau") -> float:
    """The number, or an error: a temperature is finite and above 0."""
    if not _is_number(tau) or not 0 < float(tau) < math.inf:
        raise InputError(
            f"{subject}: received {tau!r}; allowed: a finite number above 0, a named rule, or a function of the length "
            f"that gives one. Below 1 sharpens the attention (published range: 0.1 to 1), above 1 flattens it."
        )
    return float(tau)


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool | str) and not getattr(value, "ndim", 0)


def checked_role(role: str | None) -> str:
    """The role, or an error that says how to name one."""
    if role not in ROLES:
        raise InputError(
            f"role: received {role!r} where queries and documents may differ; allowed: {', '.join(ROLES)}. Pass role= "
            f"to tempscale or to the encoder, or use encode_query and encode_document of sentence-transformers."
        )
    return role


# -- steps from measured quality --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepChoice:
    """One bin of lengths: its texts, the best temperature, its gain over τ = 1, and the temperature chosen."""

    label: str
    texts: int
    best: float
    gain: float
    interval: Interval | None
    chosen: float


@dataclass(frozen=True)
class StepFit:
    """The fitted rule with the evidence for each of its steps."""

    rule: Steps
    bins: tuple[StepChoice, ...]
    notes: tuple[str, ...] = ()


def fit_steps(
    lengths: ArrayLike,
    scores: ArrayLike,
    *,
    temperatures: Sequence[float],
    bins: int | Sequence[float] | None = None,
    level: float = 0.95,
) -> StepFit:
    """The best temperature for each bin of lengths.

    lengths (texts): tokens of each text; scores (texts × temperatures): its quality at each temperature, higher is
    better, one column must belong to τ = 1. A bin takes the temperature with the highest mean if the interval of its
    paired gain over τ = 1 lies above 0 (`paired_difference`, which needs 30 texts; the level is raised for the
    number of temperatures that competed in all bins), and otherwise stays at 1. Test the rule on texts that it was not
    fitted on.

    >>> lengths = np.repeat([10, 400], 40)
    >>> gain = np.tile([0.9, 1.1], 40)
    >>> scores = np.column_stack([lengths * 0.0 + 1, np.where(lengths > 100, 1.0 + gain, 1.0 - gain)])
    >>> fit_steps(lengths, scores, temperatures=[1.0, 0.8], bins=[0, 100, 500]).rule
    Steps(edges=(100,), temperatures=(1.0, 0.8))
    """
    n, values, plain = _checked(lengths, scores, temperatures)
    by_length = length_bins(n, bins)
    competed = (len(temperatures) - 1) * len(by_length)
    raised = 1 - (1 - level) / max(competed, 1)
    choices = []
    for k, label in enumerate(by_length.labels):
        inside = values[by_length.of == k]
        best = int(inside.mean(axis=0).argmax()) if len(inside) else plain
        gains = inside[:, best] - inside[:, plain]
        pair = inside[:, plain], inside[:, best]
        interval = None if best == plain else paired_difference(*pair, each="texts", level=raised).change.interval
        convincing = interval is not None and interval.low > 0
        choices.append(
            StepChoice(
                label=label,
                texts=len(inside),
                best=float(temperatures[best]),
                gain=float(gains.mean()) if len(gains) else 0.0,
                interval=interval,
                chosen=float(temperatures[best]) if convincing else 1.0,
            )
        )
    edges = tuple(int(np.ceil(edge)) for edge in by_length.edges[1:-1])
    return StepFit(Steps(edges, tuple(choice.chosen for choice in choices)), tuple(choices), by_length.notes())


def _checked(
    lengths: ArrayLike, scores: ArrayLike, temperatures: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    n, values = np.asarray(lengths), np.asarray(scores, dtype=np.float64)
    if n.ndim != 1 or not len(n) or values.shape != (len(n), len(temperatures)):
        raise InputError(
            f"scores: received the shape {values.shape} for {n.size} lengths and {len(temperatures)} temperatures; "
            f"needed: a row for every text and a column for every temperature."
        )
    if not np.issubdtype(n.dtype, np.integer) or n.min() < 1 or not np.isfinite(values).all():
        raise InputError(
            "lengths and scores: received lengths below 1 or not whole, or scores that are not finite; needed: tokens "
            "of each text and a finite score. Leave out the texts without a score."
        )
    if list(temperatures).count(1) != 1:
        raise InputError(
            f"temperatures: received {list(temperatures)}; τ = 1 must be among them once, to compare with."
        )
    return n.astype(np.int64), values, list(temperatures).index(1)
