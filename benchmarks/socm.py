"""Speed of all-pairs SOCM, as ratios to the bare product measured in the same run, for two kinds of machine.

    python benchmarks/socm.py [--repeats 3] [--texts 1000] [--dense] [--scaling]

Baseline: the bare float32 Gram product of the same tokens, upper triangle by panels, on the same cores: what any exact
method must at least multiply. Clouds: real ones (all-MiniLM-L6-v2 on docstrings of about 31 tokens, d = 384), synthetic
ones of the same lengths and of one shape at d = 384 and 768, and of paragraphs of up to 256 tokens. Every time is the
best of several, the contestants taking turns. All of it is run as this machine would, as one with AVX2 and no more
would (OPENBLAS_CORETYPE and POOLSCOPE_KERNEL choose the copies of the product and of the kernel), and by the numpy
route, which serves where no compiled kernel is.

With `--dense`, beside them the dense method of the published code in our own words (matrix square roots by
eigen-decompositions of d × d covariances, in batches, with PyTorch, the covariances given), and the peak of the memory.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from poolscope import CloudWriter, TokenClouds, confusion, socm, worst_pairs
from poolscope.numbers.bures import native
from poolscope.numbers.bures.pairs import available_cores

PANEL = 2048
# Environments in which the comparison is run, by name.
KINDS = {
    "this machine": {},
    "AVX2": {"OPENBLAS_CORETYPE": "Haswell", "POOLSCOPE_KERNEL": "v3"},
    "numpy route": {"POOLSCOPE_KERNEL": "numpy"},
}
# What is compared with the product, beside all pairs, by corpus.
CORPORA = {
    "real, d = 384": ("published", "sinks", "worst", "confusable"),
    "synthetic, d = 384": ("worst",),
    "synthetic, d = 768": (),
    "paragraphs, d = 384": ("published", "sinks"),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--texts", type=int, default=1000)
    arguments.add_argument("--dense", action="store_true", help="also the dense method, and the peak of the memory")
    arguments.add_argument("--scaling", action="store_true", help="also the cost per pair from N = 500 to 8,000")
    arguments.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.folder is not None:
        compare(options.folder, options.repeats)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        real = real_clouds(options.texts)
        paragraphs = paragraph_lengths(3 * options.texts // 10)
        made = [real, *(synthetic_clouds(real.lengths, d) for d in (384, 768)), synthetic_clouds(paragraphs, 384)]
        for name, clouds in zip(CORPORA, made, strict=True):
            clouds.save(folder / f"{name}.arrow")
        print(f"{available_cores()} cores, best of {options.repeats}; wall time, in brackets processor time")
        again = [sys.executable, __file__, "--repeats", str(options.repeats), "--folder", temporary]
        for kind, environment in KINDS.items():
            print(f"\n{kind}", flush=True)
            subprocess.run(again, env=os.environ | environment, check=True)
        if options.dense:
            for name in CORPORA:
                show_dense(name, folder / f"{name}.arrow")
        if options.scaling:
            scaling(real.lengths, folder)


def real_clouds(count: int) -> TokenClouds:
    """Docstrings of about 31 tokens, encoded by the embedded model."""
    from poolscope import encode, read_texts

    texts = [text for text in read_texts("builtin:docstrings").texts if 50 < len(text) < 260][:count]
    return encode("builtin:minilm", texts)


def synthetic_clouds(lengths: np.ndarray, d: int, *, seed: int = 0) -> TokenClouds:
    """Clouds of the given lengths with a mean of norm 1 and the decaying spectrum of a sentence encoder."""
    random = np.random.default_rng(seed)
    decay = np.exp(-np.arange(d) / (d / 5))
    decay *= 0.7 / np.linalg.norm(decay)
    means = random.normal(size=(len(lengths), d)) / np.sqrt(d)
    clouds = (mean + random.normal(size=(n, d)) * decay for n, mean in zip(lengths, means, strict=True))
    return TokenClouds.from_arrays([cloud.astype(np.float32) for cloud in clouds])


def paragraph_lengths(count: int) -> np.ndarray:
    """Lengths of paragraphs of up to 256 tokens, half of them above 100."""
    return np.random.default_rng(2).lognormal(np.log(100), 0.5, size=count).astype(np.int64).clip(20, 256)


def with_sink(clouds: TokenClouds, *, size: float = 300.0) -> TokenClouds:
    """The clouds, each with one and the same far longer token in front: what attention sinks make of a corpus."""
    sink = np.random.default_rng(1).normal(size=(1, clouds.dimension))
    sink = (sink * size / np.linalg.norm(sink)).astype(np.float32)
    return TokenClouds.from_arrays([np.concatenate([sink, cloud]) for cloud in clouds])


class Times(NamedTuple):
    """The best of several runs: seconds on the clock, and seconds of processor time of all threads."""

    wall: float
    processor: float

    def over(self, other: Times) -> str:
        """As a multiple of another."""
        return f"{self.wall / other.wall:.2f} × ({self.processor / other.processor:.2f} × processor time)"


def best_times(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """The contestants take turns, so that a busy moment of the machine does not fall on one of them alone."""
    best = dict.fromkeys(contestants, Times(np.inf, np.inf))
    for _ in range(repeats):
        for name, run in contestants.items():
            wall, processor = time.perf_counter(), time.process_time()
            run()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            best[name] = Times(min(best[name].wall, wall), min(best[name].processor, processor))
    return best


def compare(folder: Path, repeats: int) -> None:
    """All pairs of every corpus beside the bare product; on the compiled routes also what else is asked of pairs."""
    print(f"  {native.route()}")
    for name, further in CORPORA.items():
        clouds = TokenClouds.open(folder / f"{name}.arrow")
        if native.kernel() is None:
            further = ()
        runs = contestants(clouds)
        best = best_times({key: runs[key] for key in ("gram", "all pairs", *further)}, repeats)
        gram, exact = best["gram"], best["all pairs"]
        print(f"  {name}: {len(clouds):,} texts of {clouds.lengths.mean():.0f} tokens, product {gram.wall:.2f} s")
        print(f"    all pairs, end to end      {exact.over(gram)} the product", flush=True)
        for key in further:
            print(f"    {key:<26} {best[key].over(exact)} all pairs", flush=True)


def contestants(clouds: TokenClouds) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    sinks = with_sink(clouds)
    return {
        "gram": lambda: gram_product(clouds),
        "all pairs": lambda: socm(clouds),
        "published": lambda: socm(clouds, eps=1e-9),
        "sinks": lambda: socm(sinks),
        "worst": lambda: worst_pairs(clouds, 100),
        "confusable": lambda: confusion(clouds),
    }


def show_dense(name: str, path: Path) -> None:
    """The published method, a pair, beside ours; and the memory that all pairs take."""
    clouds = TokenClouds.open(path)
    exact = best_times({"socm": lambda: socm(clouds)}, 1)["socm"].wall / (len(clouds) * (len(clouds) - 1) // 2)
    dense = dense_seconds_per_pair(clouds)
    print(f"{name}: dense method {dense:.4f} s a pair, {dense / exact:,.0f} × ours; ", end="")
    print(f"peak memory above the input {peak_memory(path):.0f} MB", flush=True)


def gram_product(clouds: TokenClouds) -> None:
    """Upper triangle of X Xᵀ in float32 panels, one BLAS thread a core."""
    (block,) = clouds.blocks()
    starts = range(0, len(block.tokens), PANEL)
    panels = [block.tokens[start : start + PANEL] for start in starts]
    work = [(i, j) for i in range(len(panels)) for j in range(i, len(panels))]
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(available_cores()) as pool:
        for _ in pool.map(lambda pair: (panels[pair[0]] @ panels[pair[1]].T)[0, 0], work):
            pass


def dense_seconds_per_pair(clouds: TokenClouds, *, batch: int = 16, repeats: int = 3) -> float:
    """Bures–Wasserstein distances by eigen-decompositions of d × d covariances, with eps = 1e-9 on the diagonals."""
    import torch

    def covariance(cloud: np.ndarray) -> torch.Tensor:
        X = torch.from_numpy(cloud.copy())
        X = X / X.mean(dim=0).norm()
        X = X - X.mean(dim=0)
        return X.T @ X / len(X)

    first = torch.stack([covariance(clouds[k]) for k in range(batch)])
    second = torch.stack([covariance(clouds[k]) for k in range(batch, 2 * batch)])
    ridge = 1e-9 * torch.eye(clouds.dimension)

    def root(matrices: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eigh(matrices + ridge)
        return (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)) @ vectors.transpose(-1, -2)

    def trace(matrices: torch.Tensor) -> torch.Tensor:
        return matrices.diagonal(dim1=-2, dim2=-1).sum(-1)

    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        half = root(first)
        _ = trace(first) + trace(second) - 2 * trace(root(half @ second @ half))
        best = min(best, (time.perf_counter() - start) / batch)
    return best


# VmHWM is the peak of this process alone; ru_maxrss would start at the peak of its parent.
MEMORY_PROBE = """
import sys
from pathlib import Path
from poolscope import TokenClouds, socm
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
small = TokenClouds.from_arrays([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.5], [1.0, 1.0]], [[1.0, 0.2]]])
socm(small)
clouds = TokenClouds.open(sys.argv[1])
before = peak()
socm(clouds)
print(peak() - before, sum(block.tokens.nbytes for block in clouds.blocks()))
"""


def peak_memory(path: Path) -> float:
    """Growth of the peak resident memory of a fresh process in socm(), less the memory-mapped input, in MB."""
    run = subprocess.run([sys.executable, "-c", MEMORY_PROBE, str(path)], capture_output=True, text=True, check=True)
    kilobytes, input_bytes = map(int, run.stdout.split())
    return kilobytes * 1024 / 1e6 - input_bytes / 1e6


def scaling(lengths: np.ndarray, folder: Path) -> None:
    """Cost per pair as the corpus grows, clouds memory-mapped."""
    print("\ncost per pair, synthetic, d = 384, clouds memory-mapped")
    random = np.random.default_rng(1)
    for count in (500, 1000, 2000, 4000, 8000):
        path = folder / f"{count}.arrow"
        with CloudWriter(path) as writer:
            for start in range(0, count, 500):
                writer.write(synthetic_clouds(random.choice(lengths, 500), 384, seed=start))
        clouds = TokenClouds.open(path)
        pairs = count * (count - 1) // 2
        best = np.inf
        for _ in range(3 if count <= 2000 else 1):
            start_time = time.perf_counter()
            socm(clouds)
            best = min(best, time.perf_counter() - start_time)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"  N = {count:5d}   {best / pairs * 1e6:6.2f} µs a pair   ({best:.1f} s, peak memory {memory:,.0f} MB)")


if __name__ == "__main__":
    main()
