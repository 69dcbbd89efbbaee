"""What the token statistics cost beside the forward pass that they need anyway, and the memory they take.

    python benchmarks/tokens.py [--repeats 5] [--texts 300] [--memory]

The embedded model (all-MiniLM-L6-v2), all its layers, docstrings of mixed length. Parts of one measurement, each timed
on its own, best of several, taking turns: the forward pass (all layers handed out), counting the types first
(tokenising alone), taking the tokens of all layers into the moments, and the summary with its bootstrap. The overhead
is what comes on top of the forward pass in a pass over the texts. For contrast: the update of Welford token by token,
on a tenth of the tokens of one layer. With --memory: the largest size of all arrays together while more and more texts
are measured, beside the size of their vectors.
"""

from __future__ import annotations

import argparse
import logging
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from poolscope import TokenClouds, as_encoder, read_texts
from poolscope.lab.tokens.measure import MAX_TYPES, TokenKeys, count_first, token_ids, token_statistics
from poolscope.lab.tokens.moments import TokenMoments
from poolscope.lab.tokens.summary import summarise

LAYERS = range(7)
TARGET = 0.15
SOURCE = {"model": {}, "options": {}, "grouping": "token type", "special": [101, 102]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--texts", type=int, default=300)
    arguments.add_argument("--memory", action="store_true", help="also the peak memory of runs")
    options = arguments.parse_args()
    logging.disable(logging.WARNING)
    texts = read_texts("builtin:docstrings", limit=options.texts).texts
    compare(texts, options.repeats)
    if options.memory:
        for factor in (1, 2, 4):
            memory_of_a_run(read_texts("builtin:docstrings", limit=factor * options.texts).texts)


def compare(texts: Sequence[str], repeats: int) -> None:
    encoder = as_encoder("builtin:minilm", device="cpu")
    clouds = encoder.encode(texts, layers=list(LAYERS))
    tokens = int(clouds[0].lengths.sum())
    moments = taken(encoder, clouds)
    parts: dict[str, Callable[[], Any]] = {
        "forward pass": lambda: encoder.encode(texts, layers=list(LAYERS)),
        "counting the types first": lambda: count_first(encoder, texts, encoder.vocabulary, 100),
        "moments of all layers": lambda: taken(encoder, clouds),
        "summary and bootstrap": lambda: summarise(moments),
    }
    best = {name: (float("inf"), float("inf")) for name in parts}
    for _ in range(repeats):
        for name, run in parts.items():
            wall, processor = time.perf_counter(), time.process_time()
            run()
            times = time.perf_counter() - wall, time.process_time() - processor
            best[name] = (min(best[name][0], times[0]), min(best[name][1], times[1]))
    print(
        f"{len(texts):,} texts, {tokens:,} tokens, {len(LAYERS)} layers, {torch.get_num_threads()} threads, "
        f"best of {repeats}"
    )
    forward = best["forward pass"]
    print(f"{'':28}{'wall s':>9}{'of forward':>12}{'processor s':>13}{'of forward':>12}")
    for name, (wall, processor) in best.items():
        print(f"{name:28}{wall:9.3f}{wall / forward[0]:12.1%}{processor:13.3f}{processor / forward[1]:12.1%}")
    overhead = [sum(best[name][k] for name in list(parts)[1:3]) / forward[k] for k in (0, 1)]
    word = "within" if max(overhead) <= TARGET else "ABOVE"
    print(
        f"overhead of the pass: {overhead[0]:.1%} wall, {overhead[1]:.1%} processor; {word} the {TARGET:.0%} aimed at"
    )
    contrast(clouds[6], best["moments of all layers"][0] / len(LAYERS) / tokens)


def taken(encoder: Any, clouds: dict[int, TokenClouds]) -> TokenMoments:
    moments = TokenMoments(SOURCE, MAX_TYPES)
    TokenKeys(moments.names, encoder.vocabulary, by_label=False).add(moments, clouds, None)
    return moments


def contrast(clouds: TokenClouds, seconds_a_token: float) -> None:
    """Welford's update as it is usually written: one token at a time."""
    rows = np.concatenate(list(clouds))[::10].astype(np.float64)
    found = token_ids(clouds, 0, len(clouds))
    assert found is not None
    state: dict[int, list[Any]] = {}
    start = time.perf_counter()
    for key, row in zip(found[::10].tolist(), rows, strict=True):
        count, mean, scatter = state.get(key, [0, np.zeros(rows.shape[1]), 0.0])
        difference = row - mean
        mean = mean + difference / (count + 1)
        state[key] = [count + 1, mean, scatter + difference @ (row - mean)]
    each = (time.perf_counter() - start) / len(rows)
    print(f"token by token: {each * 1e6:.1f} µs a token and layer, {each / seconds_a_token:.1f} × the grouped update")


def memory_of_a_run(texts: Sequence[str]) -> None:
    encoder = as_encoder("builtin:minilm", device="cpu")
    tracemalloc.start()
    result = token_statistics(encoder, texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    vectors = result.coverage.tokens * encoder.card.dimension * 4 * len(LAYERS)
    print(
        f"{len(texts):6,} texts, {result.coverage.groups:,} types: peak {peak / 2**20:,.0f} MB; their vectors: "
        f"{vectors / 2**20:,.0f} MB"
    )


if __name__ == "__main__":
    main()
