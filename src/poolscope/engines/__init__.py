"""Where shards are computed: in this process, in several, or on a Ray cluster. The plan travels, not the texts.

| module       | what it knows                                                                            |
|--------------|------------------------------------------------------------------------------------------|
| `base.py`    | what an engine is; this process, several processes; `make_engine`                        |
| `ray_data.py`| the same on a cluster, with Ray Data                                                     |
| `work.py`    | what is done with a shard: `encode_with` writes a store, `measure_with` measures one     |

A worker is told where the store lies and which shards are its own. It opens the encoder from its specification and the
texts from their file, so the folder of the store must be one that every worker sees.
"""

from poolscope.engines.base import Engine, make_engine
from poolscope.engines.work import encode_with, measure_with

__all__ = ["Engine", "encode_with", "make_engine", "measure_with"]
