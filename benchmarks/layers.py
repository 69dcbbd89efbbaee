"""Speed and memory of the anatomy of the layers, as ratios to a loop measured in the same run.

    python benchmarks/layers.py [--texts 200] [--baseline-texts 200] [--repeats 3] [--threads N]

Baseline, in our own words, is what the published analysis does: BERT's layers walked by hand, text by text and head by
head, with the spectral norm of the d × d product W_O W_V taken anew for every head of every text. It computes the same
numbers (λ, r, C, concentration ratio, cosine, σₐ, high-frequency growth), and both must agree. With fewer
`--baseline-texts` it runs on every k-th text by length and its time is scaled. Model: all-MiniLM-L6-v2 on docstrings.
SOCM by layer, which the loop does not have, is timed by itself. Wall time is what a user waits; processor time is what
is left of it on a machine that others use too.
"""

from __future__ import annotations

import argparse
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from poolscope import as_encoder, read_texts
from poolscope.lab.layers.measure import layers
from poolscope.lab.layers.result import LayersResult

NAMES = ("lambda", "sigma_a", "r", "C", "concentration_ratio", "cosine", "high_frequency")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=200)
    arguments.add_argument("--baseline-texts", type=int, default=200)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", type=int, help="threads of torch (default: its own choice)")
    arguments.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child is not None:
        print(peak_of_a_run(options.child))
        return
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    texts = list(read_texts("builtin:docstrings", limit=options.texts).texts)
    encoder = as_encoder("builtin:minilm", device="cpu")
    layers(encoder, texts[:4], socm_texts=0)  # imports and first allocations are not what is measured

    encoded = best(options.repeats, lambda: encoder.encode(texts))
    ours = best(options.repeats, lambda: layers(encoder, texts, socm_texts=0))
    result: LayersResult = ours[2]
    tokens = int(result.lengths.sum())
    print(f"{len(texts)} texts, {tokens:,} tokens, {torch.get_num_threads()} threads, best of {options.repeats}")
    show("a pass through the model alone", encoded, tokens)
    show("poolscope layers", ours, tokens)
    with_socm = best(options.repeats, lambda: layers(encoder, texts))
    show("poolscope layers with SOCM of 7 states", with_socm, tokens)

    chosen = np.argsort(result.lengths, kind="stable")[:: max(1, len(texts) // options.baseline_texts)]
    wall, processor, found = best(1, lambda: loop(encoder, [texts[k] for k in chosen]))
    share = len(texts) / len(chosen)
    loop_times = (wall * share, processor * share, None)
    show(f"the loop ({len(chosen)} texts measured)", loop_times, tokens)
    check(result, chosen, found)
    ratios = [theirs / own for theirs, own in zip(loop_times[:2], ours[:2], strict=True)]
    print(f"the loop takes {ratios[0]:.1f} × the wall time and {ratios[1]:.1f} × the processor time")
    compare_memory()


def best(repeats: int, run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Least wall time, least processor time, and what the run gave."""
    times = []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        result = run()
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    return min(wall for wall, _ in times), min(processor for _, processor in times), result


def show(name: str, times: tuple[float, float, Any], tokens: int) -> None:
    print(f"  {name:<42} {times[0]:8.2f} s wall {times[1]:8.2f} s processor {tokens / times[0]:10,.0f} tokens/s")


def check(result: LayersResult, chosen: Any, found: dict[str, Any]) -> None:
    for name in NAMES:
        ours = result[name][chosen]
        worst = float(np.nanmax(np.abs(ours - found[name]) / np.maximum(np.abs(found[name]), 1e-3)))
        print(f"  largest relative difference of {name}: {worst:.1e}")
        if worst > 1e-3:
            raise SystemExit(f"{name} differs from the loop")


def compare_memory() -> None:
    """Peak memory of a process that measures few texts, and of one that measures eight times as many."""
    for count in (50, 400):
        command = [sys.executable, __file__, "--child", str(count)]
        peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
        print(f"  peak memory of the process, {count:>3} texts with SOCM: {int(peak) / 2**10:,.0f} MiB")


def peak_of_a_run(count: int) -> int:
    """Peak resident memory of this process, in KiB, after so many texts of the same kind."""
    texts = list(read_texts("builtin:docstrings", limit=50).texts)
    layers("builtin:minilm", texts * (count // len(texts)), device="cpu")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def loop(encoder: Any, texts: Sequence[str]) -> dict[str, Any]:
    """The baseline: text by text, layer by layer, head by head."""
    model = encoder.backend.models[0]
    chosen, model.config._attn_implementation = model.config._attn_implementation, "eager"
    rows: dict[str, list[Any]] = {name: [] for name in NAMES}
    plan = encoder.plan(texts)
    for start, stop in zip(plan.tokens.offsets[:-1], plan.tokens.offsets[1:], strict=True):
        ids = torch.from_numpy(plan.tokens.ids[start:stop].astype(np.int64))[None]
        for name, values in one_text(model, ids).items():
            rows[name].append(values)
    model.config._attn_implementation = chosen
    return {name: np.array(values) for name, values in rows.items()}


@torch.inference_mode()
def one_text(model: Any, ids: Any) -> dict[str, Any]:
    output = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    states = [state[0] for state in output.hidden_states]
    values: dict[str, list[Any]] = {name: [] for name in NAMES}
    for H, X, A, layer in zip(states[:-1], states[1:], output.attentions, model.encoder.layer, strict=True):
        branch = layer.attention.self(H[None])[0]
        Y = H + layer.attention.output.dense(branch)[0]
        pairs = [one_head(layer.attention, head, A[0, head]) for head in range(A.shape[1])]
        values["lambda"].append([gain for gain, _ in pairs])
        values["sigma_a"].append([sigma for _, sigma in pairs])
        values["r"].append(spread(H) / float(Y.mean(0).norm()) ** 2 if len(H) > 1 else 0.0)
        values["C"].append(ratio(X) / ratio(Y) if len(H) > 1 else np.nan)
        values["high_frequency"].append(np.log(spread(X) / spread(H)) / 2 if len(H) > 1 else np.nan)
    values["concentration_ratio"] = [ratio(state) for state in states]
    values["cosine"] = [cosine(state) for state in states]
    return values


def one_head(attention: Any, head: int, A: Any) -> tuple[float, float]:
    """λ and σₐ, with the d × d product and its singular values."""
    n = len(A)
    size = attention.self.attention_head_size
    part = slice(head * size, (head + 1) * size)
    product = attention.output.dense.weight[:, part] @ attention.self.value.weight[part]
    centred = A - A.mean(0, keepdim=True)
    gain = float(torch.linalg.matrix_norm(product, ord=2)) ** 2 * float((centred**2).sum()) / (n - 1) if n > 1 else 0.0
    return gain, float(torch.linalg.matrix_norm(centred, ord=2))


def spread(X: Any) -> float:
    return float(((X - X.mean(0)) ** 2).sum(1).mean())


def ratio(X: Any) -> float:
    return spread(X) / float(X.mean(0).norm()) ** 2


def cosine(X: Any) -> float:
    unit = X / X.norm(dim=1, keepdim=True)
    return float((unit @ unit.T).mean())


if __name__ == "__main__":
    main()
