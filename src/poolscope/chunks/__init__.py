"""Texts into chunks that fit a model.

| module          | what it knows                                                             |
|-----------------|---------------------------------------------------------------------------|
| `boundaries.py` | where a text may be cut, and how good each place is: strings only         |
| `cutting.py`    | which of these places to take: numbers only                               |
| `ruler.py`      | how many tokens a model sees in a text, and how many it takes             |
| `splitting.py`  | texts that do not fit into pieces that do, each of them measured          |
| `result.py`     | `Chunk` and `Chunks`: what came out, and its files                        |
| `run.py`        | `chunk_texts`                                                             |
"""

from poolscope.chunks.result import Chunk, Chunks
from poolscope.chunks.run import chunk_texts

__all__ = ["Chunk", "Chunks", "chunk_texts"]
