"""What a text costs in small and in large corpora: CPU seconds a text must stay flat, and memory bounded.

    python benchmarks/scale.py [--sizes 10000 100000 1000000] [--dimension 32] [--folder DIR] [--ray TEXTS [--words N]]

Random texts of about 20 words, a static table as the model, a store written from a file of texts, and then from the
store: moments of every text, the length profile, token statistics, and SOCM of 1,000 random pairs. Every step of every
size runs in a process of its own. CPU seconds and peak memory are those of the process, so that other programs on the
machine count little; memory is what the process holds itself, since pages of mapped files are the system's to drop, and
how much of these was mapped is told beside it. Cost a text is told with and without what does not depend on the number
of texts: the second is the slope between two sizes, and that must be flat. What is done is kept in DIR/scale.json:
with the same --folder, a run that was stopped goes on. `--ray` compares the embedded model on that many texts with and
without the engine, both with one worker of one thread: processor seconds of all processes that belong to it, and wall
time, with the start of the cluster and of the actor told apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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
    arguments.add_argument("--words", type=int, metavar="N", help="with --ray: of each text only the first N words")
    arguments.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.step is not None:
        print(json.dumps(run_step(options.step, options.sizes[0], options.dimension, options.folder)))
        return
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        if options.ray:
            compare_with_ray(options.ray, Path(folder), options.words)
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
    peaks = {name: max(own[step][name] for step in STEPS) for name in ("peak MB", "with mapped MB")}
    return {"texts": float(size)} | peaks | {step: own[step]["seconds"] for step in STEPS}


def report(runs: list[dict[str, float]]) -> None:
    missed = []
    first, last = runs[0], runs[-1]
    for name in ("encode", "moments", "profile", "tokens"):
        per_text = [run[name] / run["texts"] * 1e6 for run in runs]
        slopes = [1e6 * (b[name] - a[name]) / (b["texts"] - a["texts"]) for a, b in itertools.pairwise(runs)]
        growth = [per_text[-1] / per_text[0], *(b / a for a, b in itertools.pairwise(slopes))]
        words = ", ".join(f"{value:.1f}" for value in per_text)
        more = ", ".join(f"{value:.1f}" for value in slopes)
        print(f"{name:<8} µs a text: {words}; of each further text: {more}; growth at most {max(growth):.2f}")
        missed += [name] * (max(growth) > FLAT)
    for run in (first, last):
        print(f"SOCM of 1,000 pairs among {run['texts']:,.0f} texts: {run['socm']:.1f} s")
    print(f"peak memory: {last['peak MB']:,.0f} MB, with mapped files {last['with mapped MB']:,.0f} MB")
    missed += ["socm"] * (last["socm"] > SAMPLE_SECONDS) + ["memory"] * (last["peak MB"] > MEMORY_MB)
    if missed:
        raise SystemExit(f"targets missed: {', '.join(missed)}")


def run_step(step: str, size: int, dimension: int, folder: Path) -> dict[str, float]:
    from poolscope import as_encoder, measure_with, open_clouds, socm
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
    with held_memory() as held:
        began = time.process_time()
        work[step]()
        seconds = time.process_time() - began
    mapped = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak MB": max(held, default=mapped), "with mapped MB": mapped}


@contextmanager
def held_memory() -> Iterator[list[float]]:
    """The megabytes that this process holds without files that it maps, looked at fifty times a second (on Linux)."""
    status, ended, held = Path("/proc/self/status"), threading.Event(), list[float]()

    def look() -> None:
        while not ended.wait(0.02):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            held.append(sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024)

    watcher = threading.Thread(target=look, daemon=True)
    if status.exists():
        watcher.start()
    yield held
    ended.set()


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


def compare_with_ray(count: int, folder: Path, words: int | None) -> None:
    """Sixteen shards; one actor of one thread against one process of one thread (call it with OMP_NUM_THREADS=1)."""
    import ray

    from poolscope import as_encoder, encode_with, make_engine, read_texts
    from poolscope.stores.writer import encode_to_store

    docstrings = read_texts("builtin:docstrings")
    short = [" ".join(text.split()[:words]) if words else text for text in docstrings.texts]
    texts = read_texts([f"{k}: {short[k % len(short)]}" for k in range(count)])
    encoder = as_encoder("builtin:minilm", device="cpu")
    began = clocks()
    encode_to_store(encoder, texts, folder / "one", shard_texts=max(count // 16, 16))
    alone = clocks() - began
    began = clocks()
    ray.init("local", num_cpus=1, log_to_driver=False, include_dashboard=False)
    started = clocks() - began
    began, told = clocks(), []
    engine, shards = make_engine("ray", workers=1), {"shard_texts": max(count // 16, 16)}
    encode_with(engine, encoder, texts, folder / "ray", progress=lambda *done: told.append(clocks()), **shards)
    on_ray = clocks() - began
    steady = (told[-1] - told[0]) / (len(told) - 1) * len(told)
    for name, (wall, processor) in {
        "one process": alone,
        "ray, all of it": on_ray,
        "ray, as after the first shard": steady,
        "start of the cluster": started,
        "start of the actor, with the first shard": told[0] - began,
    }.items():
        ratios = f"{wall / alone[0]:.2f} x and {processor / alone[1]:.2f} x"
        print(f"{name}: {wall:.1f} s, {processor:.1f} s of processor time ({ratios})")
    ray.shutdown()
    if steady[1] > OVERHEAD * alone[1]:
        raise SystemExit("targets missed: overhead of ray")


def clocks() -> np.ndarray:
    """Now, and the processor seconds of this process and of all that it started, by themselves or through others."""
    seconds, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(path.parent.name)] = int(fields[1])
        seconds[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return np.array([time.perf_counter(), sum(seconds[pid] for pid in own)])


if __name__ == "__main__":
    main()
