"""What the file that a runtime loads declares, beside the reference: the pooling above all.

A GGUF file keeps its pooling under `pooling_type`, a folder in `1_Pooling`; a conversion can lose or change it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolscope.encoders.base import ModelCard
from poolscope.encoders.declaration import read_declaration
from poolscope.encoders.gguf import read_gguf_declaration
from poolscope.encoders.pooling import MODES
from poolscope.errors import InputError


@dataclass(frozen=True)
class Declared:
    """One declaration of both sides; None where a side says nothing."""

    what: str
    served: str | None
    reference: str | None

    @property
    def differs(self) -> bool:
        """Do both sides say something, and not the same?"""
        return None not in (self.served, self.reference) and self.served != self.reference

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.served or 'not declared'} there, {self.reference or 'not declared'} in the reference"
        )


def compare_declarations(served: str | os.PathLike[str], card: ModelCard) -> tuple[Declared, ...]:
    """What the file or folder that a runtime loads says of pooling and length, beside the card of the reference."""
    if not isinstance(served, str | os.PathLike):
        raise InputError(
            f"served (--served): received {type(served).__name__}; allowed: the path of the .gguf file or of the "
            f"folder that the runtime loads. Pass one."
        )
    path = Path(served).expanduser()
    if path.is_dir() and not any(path.glob("*.gguf")):
        folder = read_declaration(path, name=str(served))
        theirs: Mapping[str, Any] = {"pooling": folder.pooling, "max_length": folder.max_length}
    elif path.suffix == ".gguf" or path.is_dir():
        theirs = read_gguf_declaration(path, name=str(served))
    else:
        raise InputError(
            f"served (--served): received {served}; allowed: the .gguf file or the folder that the runtime loads."
        )
    ours = {"pooling": card.pooling, "max_length": card.max_length}
    return tuple(
        Declared(words, _said(theirs[key]), _said(ours[key]))
        for key, words in (("pooling", "pooling"), ("max_length", "longest text in tokens"))
    )


def _said(value: Any) -> str | None:
    """A declaration in one word; poolings by the names of poolscope."""
    if value is None or value == ():
        return None
    if isinstance(value, tuple):
        return " + ".join(MODES[mode].pooling.name if mode in MODES else mode for mode in value)
    return str(value)
