"""An audit of vectors alone beside vecscope's, on the same vectors: what each answers, and what it costs.

vecscope is not installed with poolscope: give it an environment of its own and name its Python.

    python -m venv /tmp/vecscope && /tmp/vecscope/bin/pip install vecscope
    OMP_NUM_THREADS=1 python benchmarks/vectors.py --vecscope /tmp/vecscope/bin/python

Each is called several times in one process, and the fastest call counts: processor time, in which what else the machine
does has less of a say than in the time on the clock. Reading files and importing packages is not part of it.
"""

from __future__ import annotations

import argparse
import json
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
seconds = []
for _ in range(int(sys.argv[2])):
    began = time.process_time()
    result = {call}
    seconds.append(time.process_time() - began)
print(json.dumps({{"seconds": min(seconds), "answers": {answers}}}))
"""
_OURS = {
    "prepare": "from poolscope.auditing.question import QUESTIONS\nfrom poolscope import audit\nlen(QUESTIONS)",
    "call": "audit(vectors)",
    "answers": "[[a.key, a.verdict.level, a.verdict.sentence] for a in result.answers]",
}
_THEIRS = {
    "prepare": "import vecscope",
    "call": "vecscope.audit(vectors)",
    "answers": "[[f.name, f.verdict, ''] if hasattr(f, 'name') else [str(f), '', ''] for f in result.findings]",
}


def corpus(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Vectors of topics in a cone, of different lengths, with some copies: something for every check."""
    random = np.random.default_rng(seed)
    topics = random.standard_normal((count // 20, dimension))
    vectors = topics[random.integers(len(topics), size=count)] + 0.7 * random.standard_normal((count, dimension)) + 0.3
    vectors[: count // 50] = vectors[-(count // 50) :]
    return (vectors * random.uniform(0.8, 1.2, (count, 1))).astype(np.float32)


def timed(python: str, path: Path, parts: dict[str, str], repeats: int) -> dict:
    """The fastest of some calls in a process of its own."""
    run = subprocess.run(
        [python, "-c", _TIMED.format(**parts), str(path), str(repeats)], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise SystemExit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    """Both on the same vectors, and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vecscope", metavar="PYTHON", help="Python of an environment that has vecscope")
    parser.add_argument("--vectors", type=int, default=1000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, corpus(asked.vectors, asked.dimension))
        sides = {"poolscope": timed(sys.executable, path, _OURS, asked.repeats)}
        if asked.vecscope:
            sides["vecscope"] = timed(asked.vecscope, path, _THEIRS, asked.repeats)
    for name, side in sides.items():
        print(f"{name}: {side['seconds']:.3f} s of processor time, {len(side['answers'])} answers")
        for key, level, sentence in side["answers"]:
            print(f"  {level or '':<10} {key[:100]} {sentence[:120]}".rstrip())


if __name__ == "__main__":
    main()
