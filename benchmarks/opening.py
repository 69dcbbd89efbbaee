"""What it costs to open a model in a confined process first, beside loading it.

    python benchmarks/opening.py [--repeats 5]

A folder like BERT-large (335 million parameters, 1.3 GB) with random weights, and the tokenizer of the embedded model.
It is loaded without the first opening, with it, and with the note that an earlier opening left, in turns, best of
several: in a process that has loaded a model before, and in fresh processes, which import torch and transformers first.
Loading is all that `as_encoder` does: digests of the files, weights, tokenizer, a first text. Processor time is that of
both processes together; the other one's is what the opening itself takes, or all of it in a fresh process. On a machine
with other work the wall time says little.

Measured on two busy cores, processor seconds. A later model, best of 3: 0.86 without, 0.97 opened (+13 %), 0.86 known.
The first of a process, best of 2: 4.47 without, 4.76 opened (+6 %), of which the other process took 0.14 (3 %); 4.61
was measured where it is known and nothing is opened, so the rest is near the noise. With an import of its own, as in a
process with other threads, the other process took 3.39 beside 3.68. Wall times were noise in these runs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

TARGET = 0.05
WAYS = ("without", "opened", "known")  # no first opening; with it; with the note that an earlier one left


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--fresh", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.fresh:
        print(json.dumps(timed(Path(options.fresh), options.way, fresh=True)))
        return
    with TemporaryDirectory() as temporary:
        os.environ["XDG_CACHE_HOME"] = temporary  # where the notes are
        folder = write_model(Path(temporary) / "model")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{size / 1e6:,.0f} MB, {os.cpu_count()} cores, best of {options.repeats}, seconds")
        print(f"{'':34}{'':10}" + "".join(f"{words:>16}" for words in ("without", "opened", "known", "other process")))
        timed(folder, "opened")  # imports, and the files in the cache of the system
        for name, measure in (
            ("a later model of a process", timed),
            ("the first one, with all imports", in_fresh_process),
        ):
            measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            for _ in range(options.repeats):
                for way in WAYS:
                    measured[way].append(measure(folder, way))
            report(name, measured)


def report(name: str, measured: dict[str, list[dict[str, float]]]) -> None:
    """The best of each way, by either clock, and the processor time of the confined process where there is one."""
    other = min(row["other"] for row in measured["opened"])
    for clock in ("processor", "wall"):
        best = {way: min(row[clock] for row in measured[way]) for way in WAYS}
        more = [f"{seconds:.2f} {seconds / best['without'] - 1:+7.1%}" for seconds in best.values()][1:]
        beside = f"{other:.2f}" if clock == "processor" else ""
        print(f"{name:34}{clock:10}" + "".join(f"{cell:>16}" for cell in (f"{best['without']:.2f}", *more, beside)))


def timed(folder: Path, way: str, *, fresh: bool = False) -> dict[str, float]:
    """Wall and processor time of loading, and what of the latter the confined process took."""
    if way == "opened":
        shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]) / "poolscope" / "opened", ignore_errors=True)
    begin, working = time.perf_counter(), 0.0 if fresh else time.process_time()
    from poolscope.encoders import opening
    from poolscope.encoders.base import EncoderOptions
    from poolscope.encoders.transformers import load_folder

    opening._opened.clear()
    encoder = load_folder(folder, name="m", revision=None, options=EncoderOptions(), foreign=way != "without")
    wall, own = time.perf_counter() - begin, time.process_time() - working
    del encoder
    other = sum(answer.get("seconds", 0.0) for answer in opening._opened.values())
    if fresh:
        opening.stop()  # then the system says what it took, with its imports
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        other = used.ru_utime + used.ru_stime
    return {"wall": wall, "processor": own + other, "other": other}


def in_fresh_process(folder: Path, way: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--fresh", str(folder), "--way", way]
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
