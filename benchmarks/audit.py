"""The time of an audit: everything but the encoding, relative to the encoding itself.

    python benchmarks/audit.py [--texts 1000] [--repeats 1] [--threads N]

Encoding is one pass of the corpus through the model (all-MiniLM-L6-v2 on docstrings), what any use of the model costs.
Everything else is all ten answers, the trials of repairs and the probe of the position (which encode some texts anew),
and the files: audit.json, the tables and the page. The cache is not used.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

import torch

from poolscope import as_encoder, read_texts
from poolscope.auditing.run import audit

TARGET_TEXTS = 1000
LIMIT_MB = 8  # what the page of so many texts may weigh


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=1)
    arguments.add_argument("--threads", type=int, help="threads of torch (default: its own choice)")
    options = arguments.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    texts = read_texts("builtin:docstrings", limit=options.texts)
    encoder = as_encoder("builtin:minilm", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        audit(encoder, texts[:40]).save(folder)  # imports and first allocations are not what is measured
    runs = [measured(encoder, texts) for _ in range(options.repeats)]
    best = min(runs, key=lambda run: run["rest"] / run["encoding"])
    print(f"{len(texts)} texts, {best['tokens']:,} tokens, {torch.get_num_threads()} threads, {os.cpu_count()} cores")
    for name, seconds in best["parts"].items():
        print(f"  {name:<12} {seconds:8.2f} s")
    ratio = best["rest"] / best["encoding"]
    print(f"encoding {best['encoding']:.2f} s, everything else {best['rest']:.2f} s: {ratio:.2f} × the encoding")
    print(f"page {best['page'] / 1e6:.2f} MB (at most {LIMIT_MB})")
    if len(texts) < TARGET_TEXTS:
        print(f"probes and trials cost about the same for any corpus: the target is for {TARGET_TEXTS:,} texts")
    elif ratio >= 1 or best["page"] > LIMIT_MB * 1e6:
        raise SystemExit("the audit misses its target")


def measured(encoder: object, texts: object) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = audit(encoder, texts)
        answered = time.perf_counter()
        found.save(folder)
        done = time.perf_counter()
        page = (Path(folder) / "report.html").stat().st_size
    parts = {**found.provenance["seconds"], "files": done - answered}
    return {
        "parts": parts,
        "encoding": parts["encoding"],
        "rest": done - began - parts["encoding"],
        "tokens": found.corpus["tokens"],
        "page": page,
    }


if __name__ == "__main__":
    main()
