"""How an audit grows: whole commands on 10⁴ to 10⁶ texts with 200 queries, seconds a text and peak memory.

    python benchmarks/growth.py [--sizes 10000 100000] [--kinds table vectors] [--folder DIR]

`table` audits the embedded word table on texts of 12 to 60 words; `vectors` audits ready vectors of 64 numbers with
their texts. Every audit is a process of its own; processor seconds and peak memory are those of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

QUERIES, DIMENSION, MEMORY_MB = 200, 64, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", default=["table", "vectors"], choices=["table", "vectors"])
    parser.add_argument("--folder", type=Path, help="where texts are kept (default: a temporary folder)")
    chosen = parser.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in chosen.kinds:
            for size in chosen.sizes:
                wall, processor, peak = run(kind, size, folder)
                print(
                    f"{kind:<8} {size:>9,} texts: {wall:7.1f} s, processor {processor:7.1f} s, "
                    f"{1e6 * processor / size:8.0f} µs a text, peak {peak:,.0f} MB",
                    flush=True,
                )
                missed += [f"{kind} {size:,}: {peak:,.0f} MB"] if peak > MEMORY_MB else []
    if missed:
        raise SystemExit(f"above {MEMORY_MB:,} MB: {'; '.join(missed)}")


def run(kind: str, size: int, folder: Path) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak megabytes of one audit."""
    texts, queries = write_corpus(size, folder)
    asked = ["audit", "builtin:wordllama", str(texts), "--queries", str(queries)]
    if kind == "vectors":
        vectors = folder / f"vectors-{size}.npy"
        np.save(vectors, np.random.default_rng(0).standard_normal((size, DIMENSION), dtype=np.float32))
        asked = ["audit", str(vectors), str(texts)]
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "poolscope", *asked, "--no-cache", "-q", "-o", str(folder / f"audit-{kind}-{size}")]
    )
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the audit of {size:,} texts ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def write_corpus(size: int, folder: Path) -> tuple[Path, Path]:
    """Texts of random words, frequent and rare ones; some words of a text ask for it."""
    texts, queries = folder / f"texts-{size}.jsonl", folder / f"queries-{size}.jsonl"
    if queries.exists():
        return texts, queries
    random = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES])
    asked = set(random.choice(size, QUERIES, replace=False).tolist())
    with texts.open("w", encoding="utf-8") as corpus, queries.open("w", encoding="utf-8") as asking:
        for k in range(size):
            places = np.minimum(random.zipf(1.2, random.integers(12, 60)), len(words)) - 1
            row = words[places]
            corpus.write(json.dumps({"id": str(k), "text": " ".join(row)}) + "\n")
            if k in asked:
                rare = row[np.argsort(-places)[:4]]
                asking.write(json.dumps({"query": f"{' '.join(rare)} {k}", "relevant": str(k)}) + "\n")
    return texts, queries


_SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "ri",
    "so",
    "tu",
    "va",
    "we",
    "zi",
)

if __name__ == "__main__":
    main()
