"""An engine on a Ray cluster, with Ray Data: actors that open the encoder once and take one shard after the other.

What travels is the number of a shard and its outcome, pickled, in plain Arrow columns. Resuming needs nothing of Ray:
shards that are stored are not asked for again.
"""

from __future__ import annotations

import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poolscope.engines import Job
from poolscope.errors import InputError, require
from poolscope.numbers.bures.pairs import limit_cores
from poolscope.words import logger

# A block is what Ray gives an actor at a time, and again to another if it dies: one shard, of very many shards several.
_MOST_BLOCKS = 2000


class RayEngine:
    """Actors of a Ray cluster: the one at `address`, the one that this process is connected to, or one made here."""

    name = "ray"

    def __init__(self, address: str | None = None, *, workers: int | None = None, gpus: float = 0.0) -> None:
        self.address, self.workers, self.gpus = address, workers, gpus

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Every shard with its outcome; Ray gives what a dead actor had to another one."""
        ray = self._connected()
        import ray.data as ray_data

        logger("ray.data").setLevel(logging.ERROR)
        nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        most = min(self.workers or sum(nodes) or 1, len(shards))
        cores = cores_each(nodes, most)
        context = ray_data.DataContext.get_current()
        before = context.enable_progress_bars
        context.enable_progress_bars = False
        blocks = min(len(shards), max(_MOST_BLOCKS, most))
        numbers = ray_data.from_items([{"shard": shard} for shard in shards], override_num_blocks=blocks)
        context.enable_progress_bars = before
        # Outcomes that come early wait on the cluster and not in this process.
        numbers.context.execution_options.preserve_order = True
        outcomes = numbers.map_batches(
            _Actor,
            fn_constructor_args=(pickle.dumps(job), cores),
            compute=ray_data.ActorPoolStrategy(min_size=1, max_size=most),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=cores,
            num_gpus=self.gpus,
        )
        seen = set()
        batches: Any = outcomes.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for batch in batches:
            for shard, outcome in zip(batch["shard"].to_pylist(), batch["outcome"].to_pylist(), strict=True):
                if shard not in seen:
                    seen.add(shard)
                    value = pickle.loads(outcome)
                    if isinstance(value, _Failure):
                        raise value.error()
                    yield shard, value

    def _connected(self) -> Any:
        ray = require("ray", "ray")
        require("ray.data", "ray")
        if ray.is_initialized():
            return ray
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of how Ray Data itself starts actors
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"address: received {self.address!r}, and no Ray cluster answers there ({reason}). Start one with "
                f"`ray start --head`, or leave the address out for one on this machine. One that asks for a token is "
                f"reached with RAY_AUTH_MODE=token, as Ray's own documentation says."
            ) from error
        return ray


def cores_each(nodes: Sequence[int], actors: int) -> int:
    """The most cores that every one of so many actors can have on nodes of so many cores; at least one.

    >>> cores_each([8, 8], 4), cores_each([8, 4], 2), cores_each([2], 3)
    (4, 4, 1)
    """
    allowed = range(max(nodes, default=1), 1, -1)
    return next((cores for cores in allowed if sum(node // cores for node in nodes) >= actors), 1)


class _Actor:
    """One worker: it opens the encoder when it is first asked, and uses the cores that it was given."""

    def __init__(self, job: bytes, cores: int) -> None:
        limit_cores(cores)
        self._job = job
        self._work: Callable[[int], Any] | None = None

    def __call__(self, batch: pa.Table) -> pa.Table:
        shards = batch["shard"].to_pylist()
        outcomes = [pickle.dumps(self._outcome(shard)) for shard in shards]
        return pa.table({"shard": pa.array(shards, pa.int64()), "outcome": pa.array(outcomes, pa.large_binary())})

    def _outcome(self, shard: int) -> Any:
        """Outcome of a job on one shard; an error is an outcome too, since Ray would repeat a task that raises."""
        try:
            self._work = self._work or pickle.loads(self._job)()
            return self._work(shard)
        except Exception as error:
            return _Failure.of(error)


@dataclass(frozen=True)
class _Failure:
    """An error of a worker, on its way to the process that asks."""

    pickled: bytes | None
    words: str

    @classmethod
    def of(cls, error: Exception) -> _Failure:
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:  # classes of other packages may do neither
            pickled = None
        return cls(pickled, "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        """The error itself; where it cannot travel, its words."""
        if self.pickled is None:
            return RuntimeError(self.words)
        error: Exception = pickle.loads(self.pickled)
        error.add_note(self.words)
        return error
