"""Write `src/poolscope/schema.json`, the JSON Schema of the files that poolscope writes, from their classes.

    python tools/schema.py

A test compares the file with what this makes.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import poolscope
from poolscope.connect.runtimes.seal import KIND, Seal
from poolscope.results import Result
from poolscope.schema import FILE, schema_of_files
from poolscope.stores.store import FORMAT, Manifest


def made() -> dict[str, Any]:
    """The schema of every result of the package, of a store's manifest and of a seal."""
    for module in pkgutil.walk_packages(poolscope.__path__, "poolscope."):
        if not module.name.endswith(("_kernel", "__main__")):
            importlib.import_module(module.name)
    results = [kind for kind in Result._kinds.values() if kind.__module__.startswith("poolscope.")]
    return schema_of_files(results, {("kind", KIND): Seal, ("format", FORMAT): Manifest})


if __name__ == "__main__":
    path = Path(poolscope.__file__).parent / FILE
    path.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size:,} bytes")
