"""What an engine is: it runs work on shards, in this process, in several, or on a cluster. The plan travels, not data.

The core knows the contract, and puts outcomes together. The engines themselves, and what only they need, stand in
`connect/engines` and are asked for by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from poolscope.errors import InputError, did_you_mean
from poolscope.extensions import service

ENGINES = ("local", "processes", "ray")


Job = Callable[[], Callable[[int], Any]]
"""Opens what the work needs, once a worker, and gives the function from the number of a shard to its outcome.

It is pickled; what it opens is not.
"""


class Engine(Protocol):
    """Runs a job on shards. Outcomes come as they are done; a worker that dies loses nothing but time."""

    name: str

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Every shard with its outcome, each once, in any order."""
        ...


def as_engine(engine: Engine | str | None) -> Engine:
    """An engine, or the one of a name; None is this process."""
    if engine is None or isinstance(engine, str):
        opened: Engine = service("engine")(engine)
        return opened
    if not callable(getattr(engine, "run", None)):
        raise InputError(
            f"engine: received {engine!r}; allowed: {', '.join(ENGINES)}, or what make_engine gave."
            f"{did_you_mean(engine, ENGINES)}"
        )
    return engine


def in_order(outcomes: Iterator[tuple[int, Any]], shards: Sequence[int]) -> Iterator[Any]:
    """Outcomes in the order of the shards; those that come early wait.

    >>> list(in_order(iter([(3, "c"), (1, "a"), (2, "b")]), [1, 2, 3]))
    ['a', 'b', 'c']
    """
    early: dict[int, Any] = {}
    wanted = iter(shards)
    shard = next(wanted, None)
    for number, outcome in outcomes:
        early[number] = outcome
        while shard in early:
            yield early.pop(shard)
            shard = next(wanted, None)


def merged(
    engine: Engine | str | None,
    job: Job,
    shards: Sequence[int],
    merge: Callable[[Any, Any], Any],
    progress: Callable[..., None] | None = None,
    done: Callable[[int, Any], tuple[int, ...]] = lambda shard, outcome: (1,),
) -> Any:
    """What the outcomes of a job merge to, in the order of the shards, so that every engine gives the same bytes.

    Of each outcome `progress` is told, as it comes, what is `done` with it.
    """

    def reported() -> Iterator[tuple[int, Any]]:
        for shard, outcome in as_engine(engine).run(job, shards):
            if progress is not None:
                progress(*done(shard, outcome))
            yield shard, outcome

    return functools.reduce(merge, in_order(reported(), shards))
