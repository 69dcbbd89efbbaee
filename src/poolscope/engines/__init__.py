"""Where shards are computed: in this process, in several, or on a Ray cluster. The plan travels, not the texts.

| module       | what it knows                                                                            |
|--------------|------------------------------------------------------------------------------------------|
| `base.py`    | what an engine is; this process, several processes, a cluster of Ray; `make_engine`      |
| `texts.py`   | what encodes texts and keeps numbers alone: token statistics, what `length` measures     |
| `work.py`    | what is done with a shard: `encode_with` writes a store, `measure_with` measures one     |

A worker is told where the store lies and which shards are its own. It opens the encoder from its specification and the
texts from their file, so the folder of the store must be one that every worker sees.
"""

from poolscope.engines.base import Engine, as_engine, make_engine
from poolscope.engines.texts import measured_with, tokens_of_texts, tokens_with
from poolscope.engines.work import encode_with, measure_with, socm_with, worst_with

__all__ = [
    "Engine",
    "as_engine",
    "encode_with",
    "make_engine",
    "measure_with",
    "measured_with",
    "socm_with",
    "tokens_of_texts",
    "tokens_with",
    "worst_with",
]
