"""A metric is one object: its name and words, what it needs, what measures it, the page that explains it.

`METRICS` is the table. The command line, the contract test and the documentation iterate over it. A package outside
poolscope adds a row with an entry point of the group `poolscope.extensions`, whose module calls `register`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poolscope.errors import InputError

if TYPE_CHECKING:
    from poolscope.results import Result

Need = Literal["clouds", "vectors", "captures", "texts"]
NEEDS: tuple[Need, ...] = ("clouds", "vectors", "captures", "texts")


@dataclass(frozen=True)
class Metric:
    """One metric: `measure` takes what it `needs` and returns a `Result`, which has the figure and the table.

    `measure` is the function, or where it stands ("package.module:name"), so that the table costs no import. Metrics
    measure; they do not judge. `page` is the page of the documentation that explains it.

    Where the mathematics allows it, `part(shard)` gives something small, `merge` joins two of these, and
    `finish` makes the result: then one process, several processes and several machines run the same code.
    """

    name: str
    words: str
    needs: Need
    measure: str | Callable[..., Result]
    page: str
    part: str | Callable[..., Any] | None = None
    merge: str | Callable[[Any, Any], Any] | None = None
    finish: str | Callable[..., Result] | None = None

    def __post_init__(self) -> None:
        if self.needs not in NEEDS:
            raise InputError(f"metric {self.name}: needs {self.needs!r}; allowed: {', '.join(NEEDS)}.")

    def __call__(self, *inputs: Any, **options: Any) -> Result:
        """Measure."""
        result: Result = resolve(self.measure)(*inputs, **options)
        return result


def resolve(function: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, imported if only its place was named."""
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


METRICS: dict[str, Metric] = {}


def register(metric: Metric) -> Metric:
    """Add a metric to the table; a name stands once."""
    if metric.name in METRICS:
        raise InputError(f"metric {metric.name!r} is in the table already. Give yours another name.")
    METRICS[metric.name] = metric
    return metric
