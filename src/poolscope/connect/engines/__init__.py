"""Where shards are computed: in this process, in several, or on a Ray cluster. The plan travels, not the texts.

| module          | what it knows                                                                         |
|-----------------|---------------------------------------------------------------------------------------|
| `base.py`       | this process and several; `make_engine`                                               |
| `ray_engine.py` | the actors of a Ray cluster                                                           |
| `work.py`       | what is done with a shard: `encode_with` writes a store, `measure_with` measures one, |
|                 | others encode texts and keep numbers alone                                            |

A worker is told where the store lies and which shards are its own. It opens the encoder from its specification and the
texts from their file, so the folder of the store must be one that every worker sees.
"""
