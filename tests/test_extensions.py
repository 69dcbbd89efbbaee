"""A package from outside: its metric, question, encoder, connector and repair are found wherever ours are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"

# In a process of its own: what the package registers stays out of the other tests.
USE = """
import json, sys
from command_line import run

folder, texts = sys.argv[1:]
models = ["letters:26", "letters:13", "letters:7"]
audits = [f"{folder}/{number}" for number in range(len(models))]
screens = [run("audit", model, texts, "-o", audit, "--no-encode") for model, audit in zip(models, audits)]
with open(f"{folder}/scores.csv", "w", encoding="utf-8") as table:
    print("model,score", *(f"{model},{score}" for model, score in zip(models, (0.3, 0.2, 0.1))), sep="\\n", file=table)
correlate = ("lab", "correlate", *audits, "--scores", f"{folder}/scores.csv", "--metric", "repetition")
print(json.dumps({
    "help": run("--help"),
    "metric": run("repetition", models[0], texts, "--json", f"{folder}/metric.json", "--no-cache"),
    "audit": screens[0],
    "compare": run("compare", *audits, "-o", f"{folder}/compared"),
    "correlate": run(*correlate, "--control", "none"),
    "tune": run("tune", models[0], texts, "--search", "turned"),
    "vectors": run("audit", "spiral:300", "--no-files"),
}))
"""


def install(site: Path) -> None:
    """The package of the documentation, as an installer would leave it: a module, and the metadata that names it."""
    chapter = PAGE.read_text(encoding="utf-8").partition("## A package with all of them")[2]
    blocks = dict(re.findall(r"^```(toml|py)\n(.*?)^```", chapter, re.DOTALL | re.MULTILINE))
    name, module = re.findall(r'^(\w+) = "(\w+)"', blocks["toml"], re.MULTILINE)[0]
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / f"{module}.py").write_text(blocks["py"], encoding="utf-8")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[poolscope.extensions]\n{name} = {module}\n", encoding="utf-8")


def test_what_another_package_adds_is_found_everywhere(tmp_path):
    install(tmp_path / "site")
    texts = tmp_path / "texts.txt"
    line = "text {a}. And {k} more words that say {c}. The end of what text {k} has to say about it all.\n"
    texts.write_text("".join(line.format(a="ab" * k, k=k, c="cd" * k) for k in range(1, 41)), encoding="utf-8")
    paths = [str(tmp_path / "site"), str(Path(__file__).parent), *filter(None, sys.path)]
    command = [sys.executable, "-c", USE, str(tmp_path), str(texts)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    used = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert used.returncode == 0, used.stderr
    seen = json.loads(used.stdout)
    assert "repetition" in seen["help"].split("Look closer")[1].split("Vectors")[0]
    assert "letters:26" in seen["metric"]
    assert 0 < json.loads((tmp_path / "metric.json").read_text(encoding="utf-8"))["share"]["value"] < 1
    assert re.search(r"Repetition +\d+% share of repeated tokens", seen["audit"])
    page = (tmp_path / "0" / "report.html").read_text(encoding="utf-8")
    assert "Tokens of a text repeat earlier ones." in page
    assert re.search(r"\d+ → \d+ of [1-9]\d* queries", " ".join(seen["compare"].split()))
    assert re.search(r"repetition +3 ", seen["correlate"])  # a point a model
    assert "turned" in seen["tune"]
    assert "300 texts" in seen["vectors"]
    assert "mean removal" not in seen["tune"]
