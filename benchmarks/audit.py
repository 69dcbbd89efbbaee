"""The time of an audit: everything but the encoding, relative to the encoding itself.

    python benchmarks/audit.py [--texts 1000] [--repeats 1] [--threads N]

Encoding is one pass of the corpus through the model (all-MiniLM-L6-v2 on docstrings), what any use of the model costs.
Everything else is all ten answers, the trials of repairs and the probe of the position (which encode some texts anew),
and the files: audit.json, the tables and the page. The cache is not used. Times are processor times; the tokens that
each answer had encoded anew stand beside it, for they are most of the rest.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest import mock

import torch

from poolscope import as_encoder, read_texts
from poolscope.auditing.run import audit
from poolscope.auditing.screen import Watch
from poolscope.encoders.torch_backend import TorchBackend

TARGET_TEXTS = 1000
AIM = 0.5  # of the encoding, for everything else
LIMIT_MB = 2  # what the page of so many texts may weigh


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
        tokens = f"{best['anew'][name]:8,} tokens" if best["anew"][name] else ""
        print(f"  {name:<18} {seconds:8.2f} s  {tokens}".rstrip())
    ratio = best["rest"] / best["encoding"]
    print(f"encoding {best['encoding']:.2f} s, everything else {best['rest']:.2f} s: {ratio:.2f} × the encoding")
    anew = best["anew"].total()
    own = (best["rest"] - best["forward"]) / best["encoding"]
    print(f"of it, without the passes of the model: {own:.2f} × the encoding")
    print(f"of it, encoded anew: {anew:,} tokens, {anew / best['tokens']:.2f} × the corpus; aimed at: {AIM} with these")
    print(f"page {best['page'] / 1e6:.2f} MB (at most {LIMIT_MB})")
    if len(texts) < TARGET_TEXTS:
        print(f"probes and trials cost about the same for any corpus: the aim is for {TARGET_TEXTS:,} texts")
    elif best["page"] > LIMIT_MB * 1e6:
        raise SystemExit("the page misses its target")


def measured(encoder: object, texts: object) -> dict:
    marks = [("", time.process_time())]
    forward, spent = TorchBackend._forward, 0.0
    anew: Counter[str] = Counter()  # tokens by what they were encoded for

    def counted(self: object, model: object, batch: object, **options: object) -> object:
        nonlocal spent
        began, part = time.process_time(), marks[-1][0]
        encoded = forward(self, model, batch, **options)
        if part:
            anew[part] += int(batch.mask.sum())
            spent += time.process_time() - began
        return encoded

    def mark(name: str) -> None:
        marks.append((name, time.process_time()))

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(TorchBackend, "_forward", counted):
        watch = Watch()
        watch.asking = lambda question: mark(question.key)
        watch.answered = lambda answer: mark("between questions")
        found = audit(encoder, texts, progress=watch)
        mark("files")
        found.save(folder)
        mark("end")
        page = (Path(folder) / "report.html").stat().st_size
    # What is measured up to the first question is the encoding; a mark names what begins with it.
    parts = {"encoding": marks[1][1] - marks[0][1]}
    for (name, began), (_, ended) in pairwise(marks[1:]):
        parts[name] = parts.get(name, 0.0) + ended - began
    rest = marks[-1][1] - marks[1][1]
    tokens = found.corpus["tokens"]
    times = {"parts": parts, "encoding": parts["encoding"], "rest": rest, "forward": spent}
    return {**times, "tokens": tokens, "anew": anew, "page": page}


if __name__ == "__main__":
    main()
