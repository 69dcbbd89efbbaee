"""The pages of the reference, made when the site is built: one a stage, from the public names and their docstrings.

The table of public names is `poolscope/__init__.pyi`. `MORE` lists further modules that people who extend poolscope
read; all others are inner parts.
"""

from __future__ import annotations

import inspect
from typing import Any

from mkdocs.structure.files import File

import poolscope
from poolscope.surface import homes

STAGES = {
    "texts": "Texts",
    "encoders": "Encoders",
    "clouds": "Token clouds and vectors",
    "connectors": "Vectors in files and stores",
    "stores": "Stores and cache",
    "chunks": "Chunks",
    "numbers": "Mathematics",
    "show": "Charts",
    "metrics": "Metrics",
    "engines": "Engines",
    "evaluation": "Evaluation",
    "repairs": "Repairs",
    "auditing": "Audit",
    "lab": "Lab",
    "connect": "Connections",
    "verification": "Verification of files",
    "results": "Results, verdicts and errors",
}
MORE = {
    "encoders": ["base", "capabilities", "door"],
    "connectors": ["base", "collection"],
    "numbers": ["moments", "intervals", "pooling", "ranking", "cosines", "streaming"],
    "metrics": ["base"],
    "engines": ["poolscope.engines"],
    "auditing": ["cause", "cure"],
    "repairs": ["registry"],
    "lab": ["poolscope.lab.capture.model", "poolscope.lab.items"],
    "connect": [
        f"poolscope.connect.integrations.{module}"
        for module in ("evaluator", "mteb", "regularizer", "sentence_transformers_module", "torchmetrics")
    ],
    "results": ["poolscope.results", "poolscope.show.verdicts", "poolscope.errors"],
}
NAMES = {name: inspect.unwrap(getattr(poolscope, name)) for name in poolscope.__all__}


def home(name: str) -> str:
    """The module in which a public name is defined."""
    return str(getattr(NAMES[name], "__module__", None) or homes(poolscope.__file__)[name])


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of the docs folder."""
    for uri, content in pages().items():
        files.append(File.generated(config, uri, content=content))
    return files


def pages() -> dict[str, str]:
    """Every page of the reference by its place."""
    stages = {f"reference/{stage}.md": stage_page(stage, title) for stage, title in STAGES.items()}
    return {"reference/index.md": index_page(), **stages}


def index_page() -> str:
    """The public names, each with the first sentence of its docstring."""
    rows = []
    for name in sorted(NAMES, key=str.lower):
        words = (inspect.getdoc(NAMES[name]) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| [`{name}`][{home(name)}.{name}] | {words} |")
    return "\n".join(
        [
            "# Reference",
            "",
            "These are the names that `from poolscope import …` knows. Each is imported when it is first used, so that",
            "`import poolscope` stays cheap. The other pages go by stage, in the order of the",
            "[pipeline](../architecture.md); modules that stand on none of them are inner parts.",
            "",
            "| name | what it is |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def stage_page(stage: str, title: str) -> str:
    """The modules of one stage that hold a public name, or that `MORE` lists."""
    prefix = f"poolscope.{stage}"
    listed = [module if "." in module else f"{prefix}.{module}" for module in MORE.get(stage, [])]
    homes = sorted({home(name) for name in NAMES if home(name) == prefix or home(name).startswith(f"{prefix}.")})
    lines = [f"# {title}", ""]
    for module in dict.fromkeys([*homes, *listed]):
        options = ["    options:", "      show_root_heading: false", "      show_root_toc_entry: false"]
        lines += [f"## {module}", "", f"::: {module}", *options, ""]
    return "\n".join(lines)
