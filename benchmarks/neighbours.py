"""Which index finds the neighbours of many texts: faiss and usearch on the same vectors, beside exact search.

    python benchmarks/neighbours.py --folder DIR [--texts 1000000] [--dimension 384] [--minutes 8] [--only NAME ...]

Vectors of 2,000 clusters whose variance falls off over 48 directions, as that of embeddings does, with a little noise
in all the others. Both graphs have the same settings (32 links, 80 candidates while it is built, 64 while it is
searched). Build and search are processor seconds; memory is what a fresh process grows by when it opens the index,
without the copy of the vectors that each index keeps; recall is that of the 10 nearest of 1,000 texts. An index is
built in pieces and kept in DIR: a run of more than --minutes stops, and the same command goes on. Needs faiss-cpu and
usearch.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

LINKS, BUILDING, SEARCHING, NEAREST, QUERIES = 32, 80, 64, 10, 1000
PIECE, PROBED = 25_000, 1 / 20  # texts that are added at a time; the share of the lists that is searched


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--texts", type=int, default=1_000_000)
    arguments.add_argument("--dimension", type=int, default=384)
    arguments.add_argument("--minutes", type=float, default=8.0)
    arguments.add_argument("--only", nargs="+", choices=INDEXES, default=list(INDEXES))
    options = arguments.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    vectors = load_vectors(options.folder, options.texts, options.dimension)
    load_exact(options.folder, vectors)
    for name in options.only:
        built = build(name, vectors, options.folder, until)
        if built is None:
            raise SystemExit(f"{name}: not whole after {options.minutes:g} minutes; the same command goes on")
        kept = path_of(name, vectors, options.folder).with_suffix(".json")
        found = json.loads(kept.read_text())
        if "recall" not in found:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:  # its memory is the index alone
                found |= fresh.submit(measure, name, options.folder, *vectors.shape).result()
            kept.write_text(json.dumps(found))
        print(
            f"{name:<12} build {found['seconds']:.0f} s, a query {found['query ms']:.2f} ms, "
            f"memory {found['memory MB']:,.0f} MB, recall {found['recall']:.4f}",
            flush=True,
        )


# -- vectors ----------------------------------------------------------------------------------------------------------


def load_vectors(folder: Path, texts: int, dimension: int) -> np.ndarray:
    path = folder / f"vectors-{texts}-{dimension}.npy"
    if not path.exists():
        random, inner = np.random.default_rng(0), 48
        scale = 1 / (1 + np.arange(inner) / 8)
        centres, turn = random.standard_normal((2000, inner)) * scale, random.standard_normal((inner, dimension))
        vectors = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", np.float32, (texts, dimension))
        for start in range(0, texts, PIECE):
            count = min(PIECE, texts - start)
            own = centres[random.integers(len(centres), size=count)]
            own = own + 0.6 * scale * random.standard_normal((count, inner))
            rows = own @ turn + 0.3 * random.standard_normal((count, dimension)) + 1.0
            vectors[start : start + count] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        vectors.flush()
        path.with_suffix(".part").rename(path)
    return np.load(path, mmap_mode="r")


def queries_of(vectors: np.ndarray) -> np.ndarray:
    return np.sort(np.random.default_rng(1).choice(len(vectors), QUERIES, replace=False))


def load_exact(folder: Path, vectors: np.ndarray) -> np.ndarray:
    from poolscope.numbers.ranking import exact_search

    path = folder / f"exact-{len(vectors)}-{vectors.shape[1]}.npy"
    if not path.exists():
        drawn = queries_of(vectors)
        began = time.process_time()
        top, _ = exact_search(vectors[drawn], np.asarray(vectors), NEAREST, own=drawn)
        print(f"exact        a query {(time.process_time() - began) / QUERIES * 1e3:.2f} ms", flush=True)
        np.save(path, top)
    return np.load(path)


# -- indexes ----------------------------------------------------------------------------------------------------------


class FaissGraph:
    """HNSW of faiss."""

    def __init__(self, dimension: int, vectors: np.ndarray, path: Path | None) -> None:
        import faiss

        self.faiss = faiss
        if path is None:
            self.index = faiss.IndexHNSWFlat(dimension, LINKS, faiss.METRIC_INNER_PRODUCT)
            self.index.hnsw.efConstruction = BUILDING
        else:
            self.index = faiss.read_index(str(path))
        self.index.hnsw.efSearch = SEARCHING

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def add(self, start: int, rows: np.ndarray) -> None:
        self.index.add(rows)

    def save(self, path: Path) -> None:
        self.faiss.write_index(self.index, str(path))

    def search(self, rows: np.ndarray) -> np.ndarray:
        return self.index.search(rows, NEAREST + 1)[1]


class FaissLists(FaissGraph):
    """Inverted lists of faiss."""

    def __init__(self, dimension: int, vectors: np.ndarray, path: Path | None) -> None:
        import faiss

        self.faiss = faiss
        if path is None:
            lists = int(4 * len(vectors) ** 0.5)
            self.index = faiss.index_factory(dimension, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
            drawn = np.random.default_rng(2).choice(len(vectors), min(40 * lists, len(vectors)), replace=False)
            self.index.train(vectors[np.sort(drawn)])
        else:
            self.index = faiss.read_index(str(path))
        self.index.nprobe = max(int(self.index.nlist * PROBED), 1)


class Usearch:
    """HNSW of usearch."""

    def __init__(self, dimension: int, vectors: np.ndarray, path: Path | None) -> None:
        from usearch.index import Index

        chosen: dict[str, Any] = {"connectivity": LINKS, "expansion_add": BUILDING, "expansion_search": SEARCHING}
        self.index = Index(ndim=dimension, metric="ip", dtype="f32", **chosen)
        if path is not None:
            self.index.load(str(path))

    def __len__(self) -> int:
        return len(self.index)

    def add(self, start: int, rows: np.ndarray) -> None:
        self.index.add(np.arange(start, start + len(rows)), rows, threads=0)

    def save(self, path: Path) -> None:
        self.index.save(str(path))

    def search(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.index.search(rows, NEAREST + 1).keys).astype(np.int64)


INDEXES: dict[str, Any] = {"faiss-graph": FaissGraph, "faiss-lists": FaissLists, "usearch": Usearch}


def path_of(name: str, vectors: np.ndarray, folder: Path) -> Path:
    return folder / f"{name}-{len(vectors)}-{vectors.shape[1]}.index"


def build(name: str, vectors: np.ndarray, folder: Path, until: float) -> float | None:
    """The processor seconds that building took; None where the time was over before."""
    path = path_of(name, vectors, folder)
    kept = path.with_suffix(".json")
    seconds = json.loads(kept.read_text())["seconds"] if kept.exists() else 0.0
    if kept.exists() and json.loads(kept.read_text())["texts"] == len(vectors):
        return float(seconds)
    began = time.process_time()
    index = INDEXES[name](vectors.shape[1], vectors, path if kept.exists() else None)
    if kept.exists():
        began = time.process_time()  # opening what a run before this one wrote is no part of building
    while len(index) < len(vectors) and time.monotonic() < until:
        start = len(index)
        index.add(start, np.array(vectors[start : start + PIECE]))
    seconds += time.process_time() - began
    index.save(path)
    kept.write_text(json.dumps({"texts": len(index), "seconds": seconds}))
    print(f"{name}: {len(index):,} of {len(vectors):,} in {seconds:.0f} s", flush=True)
    return seconds if len(index) == len(vectors) else None


def measure(name: str, folder: Path, texts: int, dimension: int) -> dict[str, float]:
    vectors = load_vectors(folder, texts, dimension)
    exact = load_exact(folder, vectors)
    before = resident()
    index = INDEXES[name](vectors.shape[1], vectors, path_of(name, vectors, folder))
    drawn = queries_of(vectors)
    rows = np.array(vectors[drawn])
    memory = resident() - before - vectors.nbytes / 2**20
    began = time.process_time()
    found = index.search(rows)
    spent = time.process_time() - began
    shares = [
        len(np.intersect1d([k for k in own if k != me][:NEAREST], best)) / NEAREST
        for own, best, me in zip(found.tolist(), exact, drawn.tolist(), strict=True)
    ]
    return {"query ms": spent / QUERIES * 1e3, "memory MB": memory, "recall": float(np.mean(shares))}


def resident() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
