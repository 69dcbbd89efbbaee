"""Damaged files for every reader: a reader gives what it read or one of our errors; it never crashes, hangs or raises.

`python tests/fuzzing.py --seconds 600 --seed 7` goes on for long and prints what it met; `tests/test_damage.py` runs
some of a fixed seed. Each case is read in a process of its own, with bounded memory and time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import safetensors.numpy
from threadpoolctl import threadpool_limits

import poolscope as ps
from audit_data import asking, bag_of_words, topics
from poolscope.auditing.result import Audit
from poolscope.digests import KEY
from poolscope.errors import PoolscopeError
from poolscope.lab.tokens.moments import load_state, save_state
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.vectors import VECTOR_REPAIRS, open_arrays
from poolscope.results import Result
from poolscope.stores.store import Store
from store_fakes import corpus, edit_json, fill
from tiny_models import declare, save_model, tiny_model, tiny_tokenizer

TEXTS = [f"the {word} text of {number} words" for number, word in enumerate(["red", "blue", "", "größer", "a" * 40])]
SECONDS, MEMORY = 10, 3 * 2**30  # of one case: of processor time, and beside what the process has already
WAITING = 180  # seconds that a case may wait, on a machine that is busy with other things


@dataclass(frozen=True)
class Target:
    """A reader: `make` writes whole files into a folder, `read` reads the folder; `only` are the files to damage.

    `apart`: neither runs in this process, since a package that they use starts threads, of which a fork has none.
    """

    name: str
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    only: str = "*"
    apart: bool = False


def _columns() -> dict[str, Any]:
    return {
        "text": pa.array([*TEXTS, None]),
        "large": pa.array([*TEXTS, None], pa.large_string()),
        "label": pa.array([*"ababa", None]).dictionary_encode(),
        "numbers": pa.array([[1, 2], [], [3], None, [4], [5]]),
    }


def _arrow(folder: Path, *, stream: bool = False, compression: str | None = None) -> None:
    table = pa.table(_columns())
    options = pa.ipc.IpcWriteOptions(compression=compression)
    opener = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opener(str(folder / "texts.arrow"), table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=4):
            writer.write_batch(batch)


def _read_columns(folder: Path) -> None:
    (path,) = folder.iterdir()
    list(ps.read_texts(path, column="text", label_column=None))
    with contextlib.suppress(PoolscopeError):
        ps.read_texts(path, column="large", id_column="label")


def _lines(folder: Path, ending: str) -> None:
    if ending == ".jsonl":
        content = "\n".join(f'{{"text": "{text}", "id": {k}, "n": [1.5, null]}}' for k, text in enumerate(TEXTS))
    else:
        content = "id,text\n" + "\n".join(f'{k},"{text}"' for k, text in enumerate(TEXTS))
    (folder / f"texts{ending}").write_text(content, encoding="utf-8")


def clouds() -> ps.TokenClouds:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((n, 3)).astype(np.float32) for n in (3, 1, 4, 2)]
    ids = [np.arange(len(array)) for array in arrays]
    return ps.TokenClouds.from_arrays(arrays, texts=["a b c", "d", "ä ö ü ß", "e f"], token_ids=ids)


def _use(opened: ps.TokenClouds) -> None:
    [float(np.nansum(cloud.astype(np.float64))) for cloud in opened]
    list(opened.ids), list(opened.texts or ()), opened.truncated, opened.lengths
    [opened.token_ids(k) for k in range(len(opened))]


def _read_store(folder: Path) -> None:
    store = Store.open(folder / "store")
    _use(store.clouds(-1))
    store.labels, store.card, store.notes()


def _vectors(folder: Path, ending: str) -> None:
    matrix, texts = np.random.default_rng(0).standard_normal((5, 3)), np.array(["a b", "c", "d", "e", "f"])
    path = folder / f"vectors{ending}"
    if ending == ".npy":
        np.save(path, matrix)
    elif ending == ".npz":
        np.savez(path, vectors=matrix, texts=texts)
    else:
        pq.write_table(pa.table({"vector": matrix.tolist(), "text": texts}), path)


def _only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def _state(folder: Path) -> None:
    moments = ps.token_statistics((tiny_model(), tiny_tokenizer()), ["the cat sat", "a dog ran"]).moments
    assert moments is not None
    save_state(moments, folder / "state.npz")


def _repair(folder: Path) -> None:
    whitening = VECTOR_REPAIRS["whitening"](accept_risk=True).fit(np.random.default_rng(0).standard_normal((20, 4)))
    repair = Repair(temperature=1.2, vectors=whitening)
    repair.save(folder / "repair.safetensors")


def _audit() -> Audit:
    return ps.audit(bag_of_words, topics(12), queries=asking(topics(12)))


def _read_audit(folder: Path) -> None:
    loaded = Audit.load(folder)
    [loaded.tables[name] for name in loaded.tables]
    ps.compare(loaded, loaded).rows()


def _model(folder: Path) -> None:
    declare(save_model(folder / "model"), pooling={"pooling_mode_mean_tokens": True})


def _read_model(folder: Path) -> None:
    encoder = ps.as_encoder(folder / "model")
    encoder.encode(["the cat sat"])


def _words(folder: Path) -> None:
    (folder / "words.vec").write_text("3 2\ncat 1 0\ndog 0 1\nthe 1 1\n", encoding="utf-8")


def _rows() -> tuple[Any, list[str]]:
    return np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32), [f"text {k} of all" for k in range(40)]


def _qdrant(folder: Path) -> None:
    from qdrant_client import QdrantClient, models

    client, (vectors, texts) = QdrantClient(path=str(folder / "base")), _rows()
    client.create_collection("rows", models.VectorParams(size=8, distance=models.Distance.EUCLID))
    client.upload_collection("rows", vectors, [{"text": text} for text in texts])
    client.close()


def _chroma(folder: Path) -> None:
    import chromadb

    client, (vectors, texts) = chromadb.PersistentClient(path=str(folder / "base")), _rows()
    made = client.create_collection("rows", embedding_function=None)
    made.add(ids=texts, embeddings=vectors.tolist(), documents=texts)


def _lance(folder: Path) -> None:
    import lancedb

    rows = [{"vector": vector.tolist(), "text": text} for vector, text in zip(*_rows(), strict=True)]
    lancedb.connect(str(folder / "base")).create_table("rows", rows)


def _faiss(folder: Path, kind: str) -> None:
    import faiss

    index, (vectors, texts) = faiss.index_factory(8, kind), _rows()
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(folder / "index.faiss"))
    (folder / "texts.txt").write_text("\n".join(texts), encoding="utf-8")


def _search(address: str) -> None:
    held = ps.read_index(address)
    if held.search is not None and not held.search.exact:
        held.search.find(held.vectors[:2], 3, None)
    held.close()


def _paper(folder: Path) -> Any:
    return ps.paper("socm", folder / "paper", figures=["3"]).rows()


def _read_paper(folder: Path) -> None:
    """Measure again what is damaged: the folder is then as if nothing had been."""
    with tempfile.TemporaryDirectory() as other:
        assert _paper(folder) == _paper(Path(other))
        for path in (path for path in Path(other).rglob("*") if path.is_file() and path.name != ".lock"):
            assert (folder / path.relative_to(other)).read_bytes() == path.read_bytes(), path


def without_digests(folder: Path) -> None:
    """The files of a folder as a version of poolscope wrote them that knew no digests."""
    for path in folder.rglob("*.arrow"):
        table, other = ps.TokenClouds.open(path).to_table(), path.with_suffix(".new")
        with pa.ipc.new_file(str(other), table.schema) as writer:
            writer.write_table(table)
        other.replace(path)
    for path in folder.rglob("*.json"):
        edit_json(path, files=None) if path.name == "audit.json" else edit_json(path)
    for path in folder.rglob("*.npz"):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(bytes(arrays["header"]))
        del header[KEY]
        np.savez(path, **{**arrays, "header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    for path in folder.rglob("*.safetensors"):
        content, arrays = open_arrays(path)
        del content[KEY]
        path.write_bytes(safetensors.numpy.save(arrays, metadata={"poolscope": json.dumps(content)}))


WHOLE = [
    Target("texts arrow", _arrow, _read_columns),
    Target("texts arrow stream", lambda folder: _arrow(folder, stream=True), _read_columns),
    Target("texts arrow compressed", lambda folder: _arrow(folder, compression="lz4"), _read_columns),
    Target("texts parquet", lambda f: pq.write_table(pa.table(_columns()), f / "texts.parquet"), _read_columns),
    Target("texts jsonl", lambda folder: _lines(folder, ".jsonl"), lambda f: ps.read_texts(_only_file(f))),
    Target("texts csv", lambda folder: _lines(folder, ".csv"), lambda f: ps.read_texts(_only_file(f), column="text")),
    Target("clouds", lambda f: clouds().save(f / "clouds.arrow"), lambda f: _use(ps.open_clouds(f / "clouds.arrow"))),
    Target("store", lambda folder: fill(folder / "store", texts=corpus(7, labels=True)), _read_store),
    Target("store manifest", lambda f: fill(f / "store", texts=corpus(7, labels=True)), _read_store, "manifest.json"),
    Target("vectors npy", lambda folder: _vectors(folder, ".npy"), lambda f: ps.read_vectors(_only_file(f))),
    Target("vectors npz", lambda folder: _vectors(folder, ".npz"), lambda f: ps.read_vectors(_only_file(f))),
    Target("vectors parquet", lambda folder: _vectors(folder, ".parquet"), lambda f: ps.read_vectors(_only_file(f))),
    Target("state", _state, lambda folder: load_state(_only_file(folder))),
    Target("repair", _repair, lambda folder: Repair.load(_only_file(folder))),
    Target("audit", lambda f: _audit().save(f, page=False), _read_audit),
    Target("audit json", lambda f: _audit().save(f, page=False), _read_audit, "audit.json"),
    Target("result", lambda f: ps.socm(clouds()).save(f / "r.json"), lambda f: Result.load(_only_file(f))),
    Target("model", _model, _read_model),
    Target("model json", _model, _read_model, "*.json"),
    Target("word vectors", _words, lambda folder: ps.as_encoder(_only_file(folder)).encode(["cat dog"])),
    Target("paper", _paper, _read_paper),
    Target("qdrant", _qdrant, lambda f: _search(f"qdrant:{f}/base/rows"), apart=True),
    Target("chroma", _chroma, lambda f: _search(f"chroma:{f}/base/rows"), apart=True),
    Target("lancedb", _lance, lambda f: _search(f"lancedb:{f}/base/rows"), apart=True),
    *(
        Target(
            f"faiss {kind}",
            lambda folder, kind=kind: _faiss(folder, kind),
            lambda folder: _search(f"faiss:{folder}/index.faiss?texts={folder}/texts.txt"),
            "index.faiss",
            apart=True,
        )
        for kind in ("HNSW8", "IVF4,PQ4x4", "SQ8")
    ),
]


def _before(target: Target) -> Target:
    def make(folder: Path) -> None:
        target.make(folder)
        without_digests(folder)

    return Target(f"{target.name} of before", make, target.read, target.only)


# Digests refuse most of what is damaged; the parsers behind them must stand on their own for files that have none.
DIGESTED = ("clouds", "store", "store manifest", "state", "repair", "audit", "audit json", "result")
TARGETS = [*WHOLE, *(_before(target) for target in WHOLE if target.name in DIGESTED)]

# -- damage -----------------------------------------------------------------------------------------------------------

NUMBERS = [0, 1, -1, 127, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63)]
VALUES = [b"null", b"{}", b"[]", b'""', b"-1", b"1e999", b"0", b"true", b'"../../x"', b"[" * 5000, b'{"a":' * 3000]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three things wrong: flipped, overwritten by a telling number, cut, doubled, filled."""
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not content:
            break
        place = chance.randrange(len(content))
        match chance.randrange(7):
            case 0:
                content[place] ^= 1 << chance.randrange(8)
            case 1:
                content[place] = chance.randrange(256)
            case 2 | 3:
                width = chance.choice((4, 8))
                place -= place % width
                value = chance.choice([*NUMBERS, len(data), len(data) + 1, chance.randrange(2**20)])
                content[place : place + width] = (value % 256**width).to_bytes(width, "little")
            case 4:
                del content[place:]
            case 5:
                content[place:place] = content[place : place + chance.randrange(64)]
            case 6:
                content = damaged_json(content, chance)
    return bytes(content)


def damaged_json(content: bytearray, chance: random.Random) -> bytearray:
    """Another value in the place of one, where the bytes look like JSON; otherwise a byte more."""
    values = list(re.finditer(rb'-?\d+(\.\d+)?|"[^"\\]*"|true|false|null', bytes(content)))
    if content[:1] not in (b"{", b"[") or not values:
        content.insert(chance.randrange(len(content) + 1), chance.randrange(256))
        return content
    found = chance.choice(values)
    return content[: found.start()] + chance.choice(VALUES) + content[found.end() :]


@dataclass
class Verdicts:
    """What became of the cases: counts by outcome, and the cases that must not be."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def damage(target: Target, whole: Path, copy: Path, seed: int) -> None:
    """A copy of the files of a target, one of them damaged as the number of the case says."""
    chance = random.Random(f"{target.name} {seed}")
    chosen = chance.choice(sorted(path for path in whole.rglob(target.only) if path.is_file()))
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    (copy / chosen.relative_to(whole)).write_bytes(damaged(chosen.read_bytes(), chance))


def outcome_of(target: Target, folder: Path) -> tuple[str, str]:
    """Read the files: "read", "refused" by an error of ours, out of "memory", or "raised" with a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(folder)
    except PoolscopeError as error:
        return "refused", str(error)
    except MemoryError:
        return "memory", traceback.format_exc()
    except BaseException:
        return "raised", traceback.format_exc()
    return "read", ""


def in_a_process(target: Target, whole: Path, copy: Path, cases: Iterable[int]) -> Iterator[tuple[int, str, str]]:
    """(case, outcome, what was said) of cases that one process reads in turn, until it ends or is ended."""
    receives, sends = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receives)
        _bound_memory()
        _use_one_thread()
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for the rest of the process)
        try:
            with os.fdopen(sends, "w", encoding="utf-8", errors="replace") as pipe:
                for case in cases:
                    print(json.dumps([case]), file=pipe, flush=True)
                    damage(target, whole, copy, case)
                    signal.setitimer(signal.ITIMER_PROF, SECONDS)
                    signal.alarm(WAITING)
                    print(json.dumps([case, *outcome_of(target, copy)]), file=pipe, flush=True)
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    signal.alarm(0)
        finally:
            os._exit(0)
    os.close(sends)
    case = None
    with os.fdopen(receives, encoding="utf-8", errors="replace") as pipe:
        for line in pipe:
            case, *end = json.loads(line)
            if end:
                yield case, end[0], end[1]
                case = None
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and case is not None:
        number = os.WTERMSIG(status)
        yield case, "hang" if number in (signal.SIGALRM, signal.SIGPROF) else "crash", f"signal {number}"


def _here(target: Target, whole: Path) -> None:
    """Write the whole files, and read them."""
    target.make(whole)
    target.read(whole)


def _in_a_child(target: Target, whole: Path) -> None:
    child = os.fork()
    if child == 0:
        _use_one_thread()
        try:
            _here(target, whole)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError(f"{target.name}: whole files are not read")


def _use_one_thread() -> None:
    """A fork has none of its parent's OpenMP threads: torch and faiss would hang or crash in waiting for them."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of libraries that are loaded later
    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _bound_memory() -> None:
    with contextlib.suppress(ValueError, OSError):  # where there is no such file
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def fuzz(cases: Callable[[], Iterator[int]], *, only: str = "", say: Callable[[str], None] = print) -> Verdicts:
    """Try cases of every target; `cases` gives their numbers, and is asked for each target."""
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as place:
        for target in TARGETS:
            if only not in (target.name, ""):
                continue
            whole = Path(place, target.name.replace(" ", "-"))
            whole.mkdir()
            (_in_a_child if target.apart else _here)(target, whole)
            met: Counter[str] = Counter()
            numbers = cases()
            while batch := list(islice(numbers, 50)):
                for case, outcome, said in in_a_process(target, whole, Path(place, "case"), batch):
                    met[outcome] += 1
                    if outcome not in ("read", "refused"):
                        verdicts.wrong.append(f"{target.name}, case {case}: {outcome}\n{said}")
                    last = case
                if last != batch[-1]:  # the process ended at a case: the rest is for another one
                    numbers = chain(batch[batch.index(last) + 1 :], numbers)
            verdicts.counts += met
            say(f"{target.name}: {dict(met)}")
    return verdicts


def main() -> None:
    """Fuzz for as long as was asked for, and fail if a case went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--case", type=int)
    chosen = parser.parse_args()
    targets = [target for target in TARGETS if chosen.only in (target.name, "")]

    def cases() -> Iterator[int]:
        if chosen.case is not None:
            yield chosen.case
            return
        end = time.monotonic() + chosen.seconds / len(targets)
        numbers = iter(range(chosen.seed * 1_000_000, (chosen.seed + 1) * 1_000_000))
        while time.monotonic() < end:
            yield next(numbers)

    verdicts = fuzz(cases, only=chosen.only)
    for wrong in verdicts.wrong:
        print(wrong)
    print(f"{verdicts.counts.total():,} cases: {dict(verdicts.counts)}")
    sys.exit(1 if verdicts.wrong else 0)


if __name__ == "__main__":
    main()
