"""Where shards are computed: in this process, in several, or on a Ray cluster. The plan travels, not the texts.

| module       | what it knows                                                                            |
|--------------|------------------------------------------------------------------------------------------|
| `base.py`    | what an engine is; this process, and several; `make_engine`                               |
| `work.py`    | what is done with a shard: `encode_with` writes a store, `measure_with` measures one,    |
|              | others encode texts and keep numbers alone                                               |

A worker is told where the store lies and which shards are its own. It opens the encoder from its specification and the
texts from their file, so the folder of the store must be one that every worker sees.
"""

from poolscope.engines.base import Engine as Engine
from poolscope.engines.base import as_engine as as_engine
from poolscope.engines.base import make_engine as make_engine
from poolscope.engines.work import encode_with as encode_with
from poolscope.engines.work import measure_with as measure_with
from poolscope.engines.work import measured_with as measured_with
from poolscope.engines.work import socm_with as socm_with
from poolscope.engines.work import worst_with as worst_with
