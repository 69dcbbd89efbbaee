"""What an engine is, and two of them: this process, and several of this machine. `connect` has one on Ray."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from numbers import Real
from typing import Any, Protocol

from poolscope.errors import InputError, PoolscopeError, did_you_mean, whole_number
from poolscope.extensions import service
from poolscope.numbers.bures.pairs import available_cores, limit_cores

ENGINES = ("local", "processes", "ray")
# Times that workers may die one after the other without a shard being done: then it is the work that kills them.
_DEATHS = 3
# Shards for every process, from the oldest that is not done on: outcomes that come early are held, and no more of them.
_AHEAD = 8


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


class LocalEngine:
    """The process that asks, one shard after the other."""

    name = "local"

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Every shard with its outcome."""
        work = job()
        for shard in shards:
            yield shard, work(shard)


class ProcessEngine:
    """Several processes of this machine, which are started afresh and import poolscope themselves."""

    name = "processes"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or available_cores()

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Every shard with its outcome; what a dead process had is given to others."""
        left, deaths = list(shards), 0
        while left:
            done = []
            try:
                for shard, outcome in self._round(job, left):
                    done.append(shard)
                    yield shard, outcome
            except BrokenProcessPool as error:
                deaths = 0 if done else deaths + 1
                if deaths == _DEATHS:
                    raise PoolscopeError(
                        f"processes died {_DEATHS} times without doing one of {len(left):,} shards; perhaps there is "
                        f"too little memory for {self.workers} of them. Ask for fewer with --workers."
                    ) from error
            left = [shard for shard in left if shard not in set(done)]

    def _round(self, job: Job, shards: Sequence[int]) -> Iterator[tuple[int, Any]]:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads of BLAS and torch in a bad moment
        count = min(self.workers, len(shards))
        begin = job, max(1, available_cores() // count)
        with ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=begin) as pool:
            waiting, given = dict[Future[Any], int](), 0  # positions in `shards`, the oldest first
            while True:
                oldest = next(iter(waiting.values()), given)
                while given < min(len(shards), oldest + _AHEAD * count) and len(waiting) < 2 * count:
                    waiting[pool.submit(_do, shards[given])] = given
                    given += 1
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield shards[waiting.pop(future)], future.result()


_JOB: dict[str, Any] = {}  # of a process that was started for one


def _begin(job: Job, cores: int) -> None:
    limit_cores(cores)
    _JOB["job"] = job


def _do(shard: int) -> Any:
    """What the job makes of a shard; it is started here, where an error reaches the process that asks."""
    if "work" not in _JOB:
        _JOB["work"] = _JOB["job"]()
    return _JOB["work"](shard)


def in_order(outcomes: Iterator[tuple[int, Any]], shards: Sequence[int]) -> Iterator[Any]:
    """Outcomes in the order of the shards; those that come early are held.

    >>> list(in_order(iter([(3, "c"), (1, "a"), (2, "b")]), [1, 2, 3]))
    ['a', 'b', 'c']
    """
    held: dict[int, Any] = {}
    wanted = iter(shards)
    shard = next(wanted, None)
    for number, outcome in outcomes:
        held[number] = outcome
        while shard in held:
            yield held.pop(shard)
            shard = next(wanted, None)


def as_engine(engine: Engine | str | None) -> Engine:
    """An engine, or the one of a name; None is this process."""
    if engine is not None and not isinstance(engine, str) and not callable(getattr(engine, "run", None)):
        raise InputError(
            f"engine: received {engine!r}; allowed: {', '.join(ENGINES)}, or what make_engine gave."
            f"{did_you_mean(engine, ENGINES)}"
        )
    return make_engine(engine) if engine is None or isinstance(engine, str) else engine


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

    def told() -> Iterator[tuple[int, Any]]:
        for shard, outcome in as_engine(engine).run(job, shards):
            if progress is not None:
                progress(*done(shard, outcome))
            yield shard, outcome

    return functools.reduce(merge, in_order(told(), shards))


def make_engine(
    name: str | None = None, *, workers: int | None = None, address: str | None = None, gpus: float = 0.0
) -> Engine:
    """The engine of a name: "local" (or None), "processes" or "ray".

    Parameters
    ----------
    name : str, optional
        This process, several processes on this machine, or the actors of a Ray cluster.
    workers : int, optional
        How many processes or actors: the cores, or what the cluster has, by default.
    address : str, optional
        Of a Ray cluster; one is started on this machine by default.
    gpus : float
        GPUs of every actor.

    Returns
    -------
    Engine
        What `encode_with`, `measure_with` and `audit(…, engine=…)` take.

    Examples
    --------
    >>> make_engine("processes", workers=2).name
    'processes'

    """
    workers = None if workers is None else whole_number(workers, "workers")
    if not isinstance(gpus, Real) or not 0 <= gpus < float("inf"):
        raise InputError(f"gpus: received {gpus!r}; allowed: how many each actor has, 0 or more. Pass a number.")
    if name == "ray":
        on_ray: Engine = service("engine on a Ray cluster")(address, workers=workers, gpus=gpus)
        return on_ray
    if address is not None:
        raise InputError(
            f"address: received {address!r} with the engine {name or 'local'}; it is that of a Ray cluster."
        )
    if name == "processes":
        return ProcessEngine(workers)
    if name not in (None, "local"):
        raise InputError(f"engine: received {name!r}; allowed: {', '.join(ENGINES)}.{did_you_mean(name, ENGINES)}")
    return LocalEngine()
