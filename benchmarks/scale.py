"""What a text costs in small and in large corpora: CPU seconds a text must stay flat, and memory bounded.

    python benchmarks/scale.py [--sizes 10000 100000 1000000] [--dimension 32] [--folder DIR] [--ray TEXTS]

Random texts of about 20 words, a static table as the model, a store written from a file of texts, and then from the
store: moments of every text, the length profile, token statistics, and SOCM of 1,000 random pairs. Every step of every
size runs in a process of its own. CPU seconds and peak memory are those of the process, so that other programs on the
machine count little. What is done is kept in DIR/scale.json: with the same --folder, a run that was stopped goes on.
`--ray` compares the embedded model on that many texts with and without the engine, both with one worker of one thread
(wall and CPU time; the start of the cluster and of the actor is told apart).
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

FLAT, MEMORY_MB, SAMPLE_SECONDS, OVERHEAD = 1.2, 1500, 10.0, 1.2
WORDS = 5000
STEPS = ("write", "encode", "moments", "profile", "tokens", "socm")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    arguments.add_argument("--dimension", type=int, default=32)
    arguments.add_argument("--folder", type=Path, help="where stores are kept (default: a temporary folder)")
    arguments.add_argument("--ray", type=int, metavar="TEXTS", help="compare --engine ray with one process")
    arguments.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.step is not None:
        print(json.dumps(run_step(options.step, options.sizes[0], options.dimension, options.folder)))
        return
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        if options.ray:
            compare_with_ray(options.ray, Path(folder))
            return
        runs = [all_steps(size, options.dimension, Path(folder)) for size in options.sizes]
    report(runs)


def all_steps(size: int, dimension: int, folder: Path) -> dict[str, float]:
    """The seconds and the peak of every step of one size, those that are kept from an earlier run among them."""
    kept = folder / "scale.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    own = known.setdefault(f"{size} x {dimension}", {})
    for step in STEPS:
        if step in own:
            continue
        sizes = ["--sizes", str(size), "--dimension", str(dimension), "--folder", str(folder)]
        run = subprocess.run([sys.executable, __file__, "--step", step, *sizes], capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"{step} of {size:,} texts ended with {run.returncode}:\n{run.stderr[-2000:]}")
        own[step] = json.loads(run.stdout.splitlines()[-1])
        kept.write_text(json.dumps(known, indent=1))
        print(f"{size:>9,} texts: {step} {own[step]['seconds']:.1f} s, peak {own[step]['peak MB']:,.0f} MB", flush=True)
    return {"texts": float(size), "peak MB": max(own[step]["peak MB"] for step in STEPS)} | {
        step: own[step]["seconds"] for step in STEPS
    }


def report(runs: list[dict[str, float]]) -> None:
    missed = []
    first, last = runs[0], runs[-1]
    for name in ("encode", "moments", "profile", "tokens"):
        per_text = [run[name] / run["texts"] * 1e6 for run in runs]
        ratio = per_text[-1] / per_text[0]
        print(
            f"{name:<8} µs a text: {', '.join(f'{value:.1f}' for value in per_text)}; largest over smallest {ratio:.2f}"
        )
        missed += [name] * (ratio > FLAT)
    for run in (first, last):
        print(f"SOCM of 1,000 pairs among {run['texts']:,.0f} texts: {run['socm']:.1f} s")
    print(f"peak memory: {last['peak MB']:,.0f} MB")
    missed += ["socm"] * (last["socm"] > SAMPLE_SECONDS) + ["memory"] * (last["peak MB"] > MEMORY_MB)
    if missed:
        raise SystemExit(f"targets missed: {', '.join(missed)}")


def run_step(step: str, size: int, dimension: int, folder: Path) -> dict[str, float]:
    from poolscope import as_encoder, open_clouds, socm
    from poolscope.engines import measure_with
    from poolscope.stores.writer import encode_to_store, texts_for_store

    store = folder / f"store-{size}-{dimension}"
    model, texts = folder / f"model-{dimension}.txt", folder / f"texts-{size}.txt"
    work: dict[str, Callable[[], Any]] = {
        "write": lambda: (write_model(model, dimension), write_texts(texts, size)),
        "encode": lambda: encode_to_store(as_encoder(model), texts_for_store(texts, store), store),
        "moments": lambda: measure_with(None, "corpus", store),
        "profile": lambda: measure_with(None, "profile", store),
        "tokens": lambda: measure_with(None, "tokens", store),
        "socm": lambda: socm(open_clouds(store), pairs=1000),
    }
    if step == "encode":
        shutil.rmtree(store, ignore_errors=True)  # of a run that was stopped: what it did would not be counted
    began = time.process_time()
    work[step]()
    seconds = time.process_time() - began
    return {"seconds": seconds, "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def write_model(path: Path, dimension: int) -> Path:
    if not path.exists():
        random = np.random.default_rng(0)
        rows = random.standard_normal((WORDS, dimension)) + 0.3
        lines = (f"w{k} {' '.join(f'{x:.4f}' for x in row)}\n" for k, row in enumerate(rows))
        path.write_text("".join(lines))
    return path


def write_texts(path: Path, size: int) -> Path:
    random = np.random.default_rng(1)
    words = np.array([f"w{k}" for k in range(WORDS)])
    with path.open("w") as file:
        for start in range(0, size, 10_000):
            lengths = random.integers(4, 37, size=min(10_000, size - start))
            drawn = np.split(words[random.zipf(1.3, size=lengths.sum()) % WORDS], np.cumsum(lengths)[:-1])
            file.writelines(" ".join(text) + "\n" for text in drawn)
    return path


def compare_with_ray(count: int, folder: Path) -> None:
    """Sixteen shards; one actor of one thread against one process of one thread."""
    import ray

    from poolscope import as_encoder, read_texts
    from poolscope.engines import encode_with, make_engine
    from poolscope.stores.writer import encode_to_store

    docstrings = read_texts("builtin:docstrings")
    texts = read_texts([f"{k}: {docstrings[k % len(docstrings)]}" for k in range(count)])
    encoder = as_encoder("builtin:minilm", device="cpu")
    began, spent = time.perf_counter(), time.process_time()
    encode_to_store(encoder, texts, folder / "one", shard_texts=max(count // 16, 16))
    alone, alone_cpu = time.perf_counter() - began, time.process_time() - spent
    began = time.perf_counter()
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    started = time.perf_counter() - began
    began, first = time.perf_counter(), []
    encode_with(
        make_engine("ray", workers=1),
        encoder,
        texts,
        folder / "ray",
        shard_texts=max(count // 16, 16),
        progress=lambda texts, tokens: first.append(time.perf_counter()),
    )
    on_ray = time.perf_counter() - began
    steady = (first[-1] - first[0]) / (len(first) - 1) * len(first)
    print(f"{count:,} texts: one process {alone:.1f} s ({alone_cpu:.1f} s of CPU)")
    print(f"ray, one actor: {on_ray:.1f} s ({on_ray / alone:.2f} x); after the first shard {steady / alone:.2f} x")
    print(f"start of the cluster: {started:.1f} s; of the actor, with the first shard: {first[0] - began:.1f} s")
    if steady > OVERHEAD * alone:
        raise SystemExit("targets missed: overhead of ray")


if __name__ == "__main__":
    main()
