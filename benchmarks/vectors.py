"""An audit of vectors alone beside vecscope's, on the same vectors: what each answers, and what it costs.

vecscope is not installed with poolscope: give it an environment of its own and name its Python.

    python -m venv /tmp/vecscope && /tmp/vecscope/bin/pip install vecscope faiss-cpu
    OMP_NUM_THREADS=1 python benchmarks/vectors.py --vecscope /tmp/vecscope/bin/python

Both answer about the vectors and try HNSW and IVF settings on them; for vecscope the latter is a command of its own,
`sweep`. "warm" is the fastest of several calls in one process, without imports and files; "cold" is a whole process of
the command line, with both. All is processor time, in which what else the machine does has less of a say than in the
time on the clock, and the two take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_TIMED = """
import json, sys, time
import numpy as np

vectors = np.load(sys.argv[1])
{prepare}
calls = {{{calls}}}
seconds = {{name: [] for name in calls}}
for _ in range(int(sys.argv[2])):
    for name, call in calls.items():
        began = time.process_time()
        result = call()
        seconds[name].append(time.process_time() - began)
        if name == "answers":
            answers = {answers}
            parts = {parts}
print(json.dumps({{"said": answers, **{{name: min(each) for name, each in seconds.items()}}, "parts": parts}}))
"""
_OURS = {
    # The seconds of each answer are then processor time too.
    "prepare": "time.perf_counter = time.process_time\n"
    "from poolscope import audit\nfrom poolscope.auditing.cause import all_causes\nlen(all_causes())",
    "calls": "'answers': lambda: audit(vectors)",
    "answers": "[[f.cause, f.level, f.sentence] for f in result.findings]",
    "parts": "result.provenance['seconds']",
}
_THEIRS = {
    "prepare": "import vecscope\nfrom vecscope.sweep import sweep",
    "calls": "'answers': lambda: vecscope.audit(vectors), 'sweep': lambda: sweep(vectors)",
    "answers": "[[f.name, f.verdict, ''] for f in result.findings]",
    "parts": "{}",
}


def corpus(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Vectors of topics in a cone, of different lengths, with some copies: something for every check."""
    random = np.random.default_rng(seed)
    topics = random.standard_normal((count // 20, dimension))
    vectors = topics[random.integers(len(topics), size=count)] + 0.7 * random.standard_normal((count, dimension)) + 0.3
    vectors[: count // 50] = vectors[-(count // 50) :]
    return (vectors * random.uniform(0.8, 1.2, (count, 1))).astype(np.float32)


def timed(python: str, path: Path, parts: dict[str, str], repeats: int) -> dict:
    """The fastest of some calls in a process of its own; answers are those of the last."""
    code = _TIMED.format(**parts)
    run = subprocess.run([python, "-c", code, str(path), str(repeats)], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def cold(*command: str) -> float:
    """Processor time of a command, from its start to its end."""
    before = os.times()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    if run.returncode > 1:
        raise SystemExit(run.stderr)
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Both on the same vectors, and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vecscope", metavar="PYTHON", help="Python of an environment that has vecscope and faiss-cpu")
    parser.add_argument("--vectors", type=int, default=1000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rows: dict[str, list[float]] = {}
    ours: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, corpus(chosen.vectors, chosen.dimension))
        for _ in range(chosen.rounds):
            ours = timed(sys.executable, path, _OURS, chosen.repeats)
            _add(rows, "poolscope, warm, all", ours["answers"])
            _add(rows, "poolscope, warm, without trying indexes", ours["answers"] - ours["parts"].get("recall", 0.0))
            _add(rows, "poolscope, cold, all", cold(sys.executable, *_AUDIT, str(path), "--no-files"))
            if chosen.vecscope:
                theirs = timed(chosen.vecscope, path, _THEIRS, chosen.repeats)
                _add(rows, "vecscope, warm, all", theirs["answers"] + theirs["sweep"])
                _add(rows, "vecscope, warm, without trying indexes", theirs["answers"])
                apart = [cold(chosen.vecscope, "-m", "vecscope.cli", verb, str(path)) for verb in ("audit", "sweep")]
                _add(rows, "vecscope, cold, all", sum(apart))
    for name, seconds in rows.items():
        beside = rows.get(name.replace("poolscope", "vecscope"))
        ratio = f"  {min(seconds) / min(beside):.2f} times vecscope's" if beside and "poolscope" in name else ""
        print(f"{name:<42} {min(seconds):.3f} s{ratio}")
    for key, level, sentence in ours["said"]:
        print(f"  {level or '':<10} {key} {sentence[:120]}".rstrip())


_AUDIT = ("-m", "poolscope", "audit")


def _add(rows: dict[str, list[float]], name: str, seconds: float) -> None:
    rows.setdefault(name, []).append(seconds)


if __name__ == "__main__":
    main()
