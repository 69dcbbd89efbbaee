"""Shards on a Ray cluster, with Ray Data: actors that open the encoder once and take one shard after the other.

What travels is the number of a shard and its outcome, pickled, in plain Arrow columns. Resuming needs nothing of Ray:
shards that are stored are not asked for again.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from poolscope.engines.base import Job
from poolscope.errors import InputError, require

# Shards that wait for every actor: few enough that a dead one delays little, enough that none stands idle.
_AHEAD = 4


class RayEngine:
    """Actors of a Ray cluster: the one at `address`, the one that this process is connected to, or one made here."""

    name = "ray"

    def __init__(self, address: str | None = None, *, workers: int | None = None, gpus: float = 0.0) -> None:
        self.address, self.workers, self.gpus = address, workers, gpus

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Every shard with its outcome; Ray gives what a dead actor had to another one."""
        ray = self._connected()
        import ray.data as ray_data

        context = ray_data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        most = min(self.workers or int(ray.cluster_resources().get("CPU", 1)), len(shards))
        blocks = min(len(shards), most * _AHEAD)
        numbers = ray_data.from_items([{"shard": shard} for shard in shards], override_num_blocks=blocks)
        outcomes = numbers.map_batches(
            _Actor,
            fn_constructor_args=(pickle.dumps(job),),
            compute=ray_data.ActorPoolStrategy(min_size=1, max_size=most),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
            num_gpus=self.gpus,
        )
        seen = set()
        batches: Any = outcomes.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for batch in batches:
            for shard, outcome in zip(batch["shard"].to_pylist(), batch["outcome"].to_pylist(), strict=True):
                if shard not in seen:
                    seen.add(shard)
                    yield shard, pickle.loads(outcome)

    def _connected(self) -> Any:
        ray = require("ray", "ray")
        require("ray.data", "ray")
        if ray.is_initialized():
            return ray
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"address: received {self.address!r}, and no Ray cluster answers there ({reason}). Start one with "
                f"`ray start --head`, or leave the address out for one on this machine."
            ) from error
        return ray


class _Actor:
    """One worker: it opens the encoder when it begins."""

    def __init__(self, job: bytes) -> None:
        self._work = pickle.loads(job).start()

    def __call__(self, batch: pa.Table) -> pa.Table:
        shards = batch["shard"].to_pylist()
        outcomes = [pickle.dumps(self._work(shard)) for shard in shards]
        return pa.table({"shard": pa.array(shards, pa.int64()), "outcome": pa.array(outcomes, pa.large_binary())})
