"""What a text costs in small and in large corpora: CPU seconds a text must stay flat, and memory bounded.

    python benchmarks/scale.py [--sizes 10000 100000 1000000] [--dimension 32] [--folder DIR] [--ray TEXTS]

Each size runs in a process of its own: random texts of about 20 words, a static table as the model, a store written
from a file of texts, and then from the store: moments of every text, the length profile, token statistics, and SOCM of
1,000 random pairs. CPU seconds are those of the process, so that other programs on the machine count little. `--ray`
compares the embedded model on that many texts with and without the engine (wall time; the start of the cluster is told
apart).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FLAT, MEMORY_MB, SAMPLE_SECONDS, OVERHEAD = 1.2, 1500, 10.0, 1.2
WORDS = 5000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    arguments.add_argument("--dimension", type=int, default=32)
    arguments.add_argument("--folder", type=Path, help="where stores are written (default: a temporary folder)")
    arguments.add_argument("--ray", type=int, metavar="TEXTS", help="compare --engine ray with one process")
    arguments.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one is not None:
        print(json.dumps(one_size(options.one, options.dimension, options.folder)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.ray:
            compare_with_ray(options.ray, Path(folder))
            return
        runs = [in_its_own_process(size, options.dimension, Path(folder)) for size in options.sizes]
    report(runs)


def in_its_own_process(size: int, dimension: int, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", str(size), "--dimension", str(dimension), "--folder", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    print(f"{size:>9,} texts: " + ", ".join(f"{name} {value:,.1f}" for name, value in result.items()), flush=True)
    return result


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


def one_size(size: int, dimension: int, folder: Path) -> dict[str, float]:
    from poolscope import as_encoder, open_clouds, socm
    from poolscope.engines import measure_with
    from poolscope.stores.writer import encode_to_store, texts_for_store

    model = write_model(folder / "model.txt", dimension)
    texts = write_texts(folder / f"texts-{size}.txt", size)
    store = folder / f"store-{size}"
    seconds: dict[str, float] = {"texts": float(size)}

    def timed(name: str, work: Callable[[], Any]) -> None:
        began = time.process_time()
        work()
        seconds[name] = time.process_time() - began

    timed("encode", lambda: encode_to_store(as_encoder(model), texts_for_store(texts, store), store))
    timed("moments", lambda: measure_with(None, "corpus", store))
    timed("profile", lambda: measure_with(None, "profile", store))
    timed("tokens", lambda: measure_with(None, "tokens", store))
    timed("socm", lambda: socm(open_clouds(store), pairs=1000))
    seconds["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds


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
    import ray

    from poolscope import as_encoder, read_texts
    from poolscope.engines import encode_with, make_engine
    from poolscope.stores.writer import encode_to_store

    docstrings = read_texts("builtin:docstrings")
    texts = read_texts([docstrings[k % len(docstrings)] for k in range(count)])
    encoder = as_encoder("builtin:minilm", device="cpu")
    began = time.perf_counter()
    encode_to_store(encoder, texts, folder / "one", shard_texts=512)
    alone = time.perf_counter() - began
    began = time.perf_counter()
    ray.init(log_to_driver=False, include_dashboard=False)
    started = time.perf_counter() - began
    began = time.perf_counter()
    encode_with(make_engine("ray"), encoder, texts, folder / "ray", shard_texts=512)
    on_ray = time.perf_counter() - began
    print(f"{count:,} texts: one process {alone:.1f} s, ray {on_ray:.1f} s ({on_ray / alone:.2f} ×)")
    print(f"start of the cluster: {started:.1f} s")
    if on_ray > OVERHEAD * alone:
        raise SystemExit("targets missed: overhead of ray")


if __name__ == "__main__":
    main()
