"""What poolscope costs before it does anything: processor time of small commands, beside an import of typer and rich.

    python benchmarks/startup.py [--repeats 7]

Each runs in a process of its own, the best of some; the first run compiles Python files. `poolscope --help` may take
1.5 times as long as the import. A call with queries that name no text of the corpus ends before torch is imported, and
`poolscope socm` compares the ready clouds of 200 first lines of docstrings (19,900 pairs); both may take 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from poolscope import encode, read_texts

TEXTS = 200


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=7)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clouds = Path(folder) / "clouds.arrow"
        lines = [text.splitlines()[0][:200] for text in read_texts("builtin:docstrings", limit=TEXTS).texts]
        encode("builtin:minilm", lines).save(clouds)
        # Python files are compiled once, as in an installed package, wherever that was switched off.
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        texts, queries = Path(folder) / "texts.jsonl", Path(folder) / "queries.csv"
        texts.write_text("\n".join(json.dumps({"id": f"d{k}", "text": line}) for k, line in enumerate(lines)))
        queries.write_text("query,id\n" + "\n".join(f"number {k},z{k}" for k in range(20)))
        wrong = ["audit", "builtin:minilm", str(texts), "--queries", str(queries), "--no-files"]
        commands = {
            "import typer, rich": ["-c", "import typer, rich"],
            "import poolscope": ["-c", "import poolscope"],
            "from poolscope import audit": ["-c", "from poolscope import audit"],
            "poolscope --help": ["-m", "poolscope", "--help"],
            "poolscope audit --help": ["-m", "poolscope", "audit", "--help"],
            "poolscope audit, wrong queries": ["-m", "poolscope", *wrong],
            f"poolscope socm, {TEXTS} clouds": ["-m", "poolscope", "socm", str(clouds)],
        }
        least = None
        for name, command in commands.items():
            best = min(seconds([sys.executable, *command], compiled) for _ in range(options.repeats + 1))
            least = least or best
            print(f"{name:34}{best:8.3f} s {best / least:8.2f} ×", flush=True)


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """Processor time of a process, its own and the system's for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, capture_output=True, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
