"""What it costs to open a model in a confined process first, beside loading it.

    python benchmarks/opening.py [--repeats 5]

A folder like BERT-large (335 million parameters, 1.3 GB) with random weights, and the tokenizer of the embedded model.
It is loaded with the first opening and without, in turns, best of several: in a process that has loaded a model before,
and in fresh processes, where both sides import torch and transformers first, at the same time. Loading is all that
`as_encoder` does: digests of the files, weights, tokenizer, a first text. Processor time is that of both processes
together; the other one's is what the opening itself takes, or all of it in a fresh process. On a machine with
other work the wall time says little.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

TARGET = 0.05


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--fresh", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments.add_argument("--foreign", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.fresh:
        print(json.dumps(timed(Path(options.fresh), foreign=options.foreign, fresh=True)))
        return
    with TemporaryDirectory() as temporary:
        folder = write_model(Path(temporary) / "model")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{size / 1e6:,.0f} MB, {os.cpu_count()} cores, best of {options.repeats}, seconds")
        print(f"{'':34}{'':10}{'without':>10}{'with':>10}{'more':>9}{'other process':>16}")
        timed(folder, foreign=True)  # imports, and the files in the cache of the system
        warm: dict[bool, list[dict[str, float]]] = {foreign: [] for foreign in (False, True)}
        fresh: dict[bool, list[dict[str, float]]] = {foreign: [] for foreign in (False, True)}
        for _ in range(options.repeats):
            for foreign in (False, True):
                warm[foreign].append(timed(folder, foreign=foreign))
        report("a later model of a process", warm)
        for _ in range(options.repeats):
            for foreign in (False, True):
                fresh[foreign].append(in_fresh_process(folder, foreign=foreign))
        report("the first one, with all imports", fresh)


def report(name: str, measured: dict[bool, list[dict[str, float]]]) -> None:
    """The best of both ways, by either clock, and the processor time of the confined process."""
    other = min(row["other"] for row in measured[True])
    for clock in ("processor", "wall"):
        without, opened = (min(row[clock] for row in measured[foreign]) for foreign in (False, True))
        judged = "" if opened <= (1 + TARGET) * without else f"  more than {TARGET:.0%}"
        beside = f"{other:>16.2f}" if clock == "processor" else " " * 16
        print(f"{name:34}{clock:10}{without:>10.2f}{opened:>10.2f}{opened / without - 1:>+9.1%}{beside}{judged}")


def timed(folder: Path, *, foreign: bool, fresh: bool = False) -> dict[str, float]:
    """Wall and processor time of loading, and what of the latter the confined process took."""
    begin, working = time.perf_counter(), 0.0 if fresh else time.process_time()
    from poolscope.encoders import opening
    from poolscope.encoders.base import EncoderOptions
    from poolscope.encoders.transformers import load_folder

    opening._opened.clear()
    encoder = load_folder(folder, name="m", revision=None, options=EncoderOptions(), foreign=foreign)
    wall, own = time.perf_counter() - begin, time.process_time() - working
    del encoder
    other = sum(answer.get("seconds", 0.0) for answer in opening._opened.values())
    if fresh:
        opening.stop()  # then the system says what it took, with its imports
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        other = used.ru_utime + used.ru_stime
    return {"wall": wall, "processor": own + other, "other": other}


def in_fresh_process(folder: Path, *, foreign: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--fresh", str(folder), *(["--foreign"] if foreign else [])]
    measured: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return measured


def write_model(folder: Path) -> Path:
    """A folder like BERT-large, with random weights."""
    import torch
    import transformers

    from poolscope.encoders.named import minilm_folder

    torch.manual_seed(0)
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    model = transformers.BertModel(transformers.BertConfig(**sizes))
    print(f"{sum(weights.numel() for weights in model.parameters()):,} parameters")
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(minilm_folder()).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
