"""A static table as a model that any process can open, and texts for it; one of them can be made impossible."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poolscope.errors import ModelError, StoreError
from poolscope.numbers.bures.pairs import available_cores
from poolscope.texts import ReadReport, Texts

WORDS = [f"w{k}" for k in range(40)]
SHARD_TEXTS = 10
COUNT = 400


def write_vectors(path: Path) -> Path:
    """Word vectors: w0 … w39, and a word with its opposite, which together have no mean."""
    random = np.random.default_rng(0)
    rows = {word: random.standard_normal(8) + 0.5 for word in WORDS}
    rows |= {"plus": np.ones(8), "minus": -np.ones(8)}
    path.write_text("".join(f"{word} {' '.join(f'{x:.5f}' for x in row)}\n" for word, row in rows.items()))
    return path


def corpus(count: int = COUNT, *, poisoned: int | None = None) -> Texts:
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(WORDS, size=random.integers(2, 60))) for _ in range(count)]
    if poisoned is not None:
        texts[poisoned] = "plus minus"
    ids = tuple(f"id-{k}" for k in range(count))
    return Texts(ids, tuple(texts), None, "texts", ReadReport(read=count, kept=count))


@dataclass(frozen=True)
class SquareJob:
    def __call__(self) -> Callable[[int], int]:
        return lambda shard: shard * shard


@dataclass(frozen=True)
class DyingJob:
    """Kills its process at one shard: the first time, as the file `mark` says, or (None) every time."""

    mark: str | None
    at: int

    def __call__(self) -> Callable[[int], int]:
        return self._work

    def _work(self, shard: int) -> int:
        if shard == self.at and (self.mark is None or not Path(self.mark).exists()):
            if self.mark is not None:
                Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return shard * shard


@dataclass(frozen=True)
class FailingJob:
    """A model that a worker cannot open, or (`at`) a shard that it cannot do; else what a worker may use."""

    at: int | None = None

    def __call__(self) -> Callable[[int], int]:
        if self.at is None:
            raise ModelError("the model is not on this machine")
        return self._work

    def _work(self, shard: int) -> int:
        if shard == self.at:
            raise StoreError("the disk is full")
        return available_cores()
