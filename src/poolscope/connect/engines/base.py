"""Engines by name: this process, several of this machine, or the actors of a Ray cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from numbers import Real
from typing import Any

from poolscope.connect.engines.ray_engine import RayEngine
from poolscope.engines import ENGINES, Engine, Job
from poolscope.errors import InputError, PoolscopeError, did_you_mean, whole_number
from poolscope.numbers.bures.pairs import available_cores, limit_cores

# Times that workers may die one after the other without a shard being done: then it is the work that kills them.
_DEATHS = 3
# Shards for every process, from the oldest that is not done on: outcomes that come early wait, and no more of them.
_AHEAD = 8


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
        return RayEngine(address, workers=workers, gpus=gpus)
    if address is not None:
        raise InputError(
            f"address: received {address!r} with the engine {name or 'local'}; it is that of a Ray cluster."
        )
    if name == "processes":
        return ProcessEngine(workers)
    if name not in (None, "local"):
        raise InputError(f"engine: received {name!r}; allowed: {', '.join(ENGINES)}.{did_you_mean(name, ENGINES)}")
    return LocalEngine()
