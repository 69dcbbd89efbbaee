"""Texts into chunks that fit a model."""

from poolscope.chunks.chunking import Chunk, Chunks, check_chunk_file, chunk_texts

__all__ = ["Chunk", "Chunks", "check_chunk_file", "chunk_texts"]
