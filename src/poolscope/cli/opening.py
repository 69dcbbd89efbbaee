"""Opening the model that a command names, with a line on the terminal until it is there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import poolscope
from poolscope.show.console import Console
from poolscope.show.screen import is_quiet

if TYPE_CHECKING:
    from poolscope.encoders import TokenEncoder


def opened_model(model: str, options: Mapping[str, Any]) -> TokenEncoder:
    """Open a model; on a terminal a line says so until it is there, since importing torch takes seconds."""
    console = Console(stderr=True)
    with console.status(f"opening {model}") if console.is_terminal and not is_quiet() else nullcontext():
        return poolscope.as_encoder(model, **options)
