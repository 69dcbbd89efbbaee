"""Texts into chunks that fit a model.

| module         | what it knows                                                                    |
|----------------|----------------------------------------------------------------------------------|
| `places.py`    | where a text may be cut, how good each place is, and which to take: no model     |
| `splitting.py` | how many tokens a model sees in a text; texts that do not fit into pieces that do |
| `chunking.py`  | `chunk_texts`, `Chunk` and `Chunks`: what came out, and its files                |
"""

from poolscope.chunks.chunking import Chunk, Chunks, check_chunk_file, chunk_texts

__all__ = ["Chunk", "Chunks", "check_chunk_file", "chunk_texts"]
