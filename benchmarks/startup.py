"""What poolscope costs before it does anything: processor time of small commands, beside Python with numpy alone.

    python benchmarks/startup.py [--repeats 7]

`poolscope --help`, `import poolscope`, and `poolscope socm` on the ready clouds of 200 first lines of docstrings
(19,900 pairs), each in a process of its own, the best of some; the first run compiles Python files. The targets are
0.2 s, 0.08 s and 1 s.
"""

from __future__ import annotations

import argparse
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
        commands = {
            "import numpy": (["-c", "import numpy"], None),
            "import poolscope": (["-c", "import poolscope"], 0.08),
            "poolscope --help": (["-m", "poolscope", "--help"], 0.2),
            f"poolscope socm, {TEXTS} clouds": (["-m", "poolscope", "socm", str(clouds)], 1.0),
        }
        for name, (command, target) in commands.items():
            best = min(seconds([sys.executable, *command], compiled) for _ in range(options.repeats + 1))
            print(f"{name:30}{best:8.3f} s" + ("" if target is None else f"   (at most {target:g})"))


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """Processor time of a process, its own and the system's for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
