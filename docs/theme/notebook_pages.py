"""The notebooks of examples/ as pages of the site: their words and their code, made when the site is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

EXAMPLES = Path(__file__).parents[2] / "examples"


def on_files(files: Any, config: Any) -> Any:
    """Add one page a notebook."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def page(path: Path) -> str:
    """A notebook as Markdown; the file itself stands in the folder examples/."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [_cell(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    parts.insert(1, f"The notebook is `examples/{path.name}`; the tests run it from the first cell to the last.")
    return "\n\n".join(parts) + "\n"


def _cell(kind: str, source: str) -> str:
    return source if kind == "markdown" else f"```py\n{source}\n```"
