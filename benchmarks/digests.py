"""What it costs to compare vectors with their digests, beside reading them; and what other hashes would cost.

    python benchmarks/digests.py [--repeats 5] [--texts 1000]

A file of token clouds as a model of 384 dimensions gives them. Three ways of reading it, each with the comparison and
without: the means and spreads of all texts, with which every analysis begins, from the cache of the system; the same
from the disk (wall time; the cache is dropped before); and a whole measurement, SOCM of sampled pairs. Then the hashes
by themselves, beside the bare sum over the vectors: nothing that looks at every byte can cost less. One thread,
processor time unless said otherwise, best of several, taking turns.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from poolscope import TokenClouds, open_clouds, socm
from poolscope.clouds.file import Guard
from poolscope.digests import PIECE, pieces_of
from poolscope.numbers.moments import text_moments

TARGET = 0.05
HASHES = ("sha256", "sha1", "blake2b", "md5")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--texts", type=int, default=1000)
    options = arguments.parse_args()
    generator = np.random.default_rng(0)
    lengths = generator.integers(20, 256, options.texts)
    arrays = [generator.standard_normal((length, 384), np.float32) for length in lengths]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "clouds.arrow"
        TokenClouds.from_arrays(arrays, texts=["a text of some words " * 20] * options.texts).save(path)
        print(f"{options.texts:,} texts, {path.stat().st_size / 1e6:,.0f} MB, best of {options.repeats}")
        compare_readings(path, options.repeats)
        compare_hashes(path, options.repeats)


def compare_readings(path: Path, repeats: int) -> None:
    readings: dict[str, tuple[Callable[[TokenClouds], Any], Callable[[], float]]] = {
        "means and spreads, from the cache": (text_moments, time.process_time),
        "means and spreads, from the disk": (text_moments, time.perf_counter),
        "SOCM of 1,000 pairs, from the cache": (lambda clouds: socm(clouds, pairs=1000), time.process_time),
    }
    print(f"{'':40}{'without':>10}{'with':>10}{'more':>9}")
    for name, (read, clock) in readings.items():
        best = [float("inf")] * 2
        for _ in range(repeats):
            for compared in (False, True):
                if "disk" in name:
                    drop(path)
                with mock.patch.object(
                    Guard, "check", Guard.check if compared else lambda guard, first=0, last=None: None
                ):
                    began = clock()
                    read(open_clouds(path))
                    best[compared] = min(best[compared], clock() - began)
        more = best[1] / best[0] - 1
        word = "within" if more <= TARGET else "ABOVE"
        print(f"{name:40}{best[0]:8.3f} s{best[1]:8.3f} s{more:9.1%}  {word} the {TARGET:.0%} aimed at")


def unchecked(guard: Guard, first: int = 0, last: int | None = None) -> None:
    """In the place of the comparison."""


def drop(path: Path) -> None:
    """Ask the system to forget what it has of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def compare_hashes(path: Path, repeats: int) -> None:
    (block,) = open_clouds(path).blocks()
    vectors = block.tokens
    raw = vectors.reshape(-1).view(np.uint8)
    parts: dict[str, Callable[[], Any]] = {
        "bare sum over the vectors": vectors.sum,
        "sums of columns (as it is done)": lambda: pieces_of(raw),
        "zlib.crc32": lambda: each(raw, zlib.crc32),
        "zlib.adler32": lambda: each(raw, zlib.adler32),
        **{f"hashlib.{name}": lambda name=name: each(raw, getattr(hashlib, name)) for name in HASHES},
    }
    best = dict.fromkeys(parts, float("inf"))
    for _ in range(repeats):
        for name, run in parts.items():
            began = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - began)
    for name, seconds in best.items():
        print(f"{name:40}{seconds:8.3f} s{raw.nbytes / seconds / 1e9:7.1f} GB/s")


def each(raw: Any, hashed: Callable[[Any], Any]) -> None:
    for start in range(0, len(raw), PIECE):
        hashed(raw[start : start + PIECE])


if __name__ == "__main__":
    main()
