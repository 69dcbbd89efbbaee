"""The first module of a SentenceTransformer that runs by a temperature rule, saved and loaded with the model."""

from __future__ import annotations

from typing import Any

from poolscope.encoders.capabilities import in_role
from poolscope.errors import require
from poolscope.repairs.temperature.tempscale import apply_saved

require("sentence_transformers", "sentence-transformers")

from sentence_transformers.base.modules.transformer import Transformer  # noqa: E402


class TempScaledTransformer(Transformer):  # type: ignore[misc]
    """A Transformer that applies the temperature rule in its model's configuration when it is loaded.

    Made by `poolscope.repairs.keep_rule`. With different rules for queries and documents, use `encode_query` and
    `encode_document`: they tell the module which of the two the texts are.
    """

    forward_kwargs = {"task"}  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        apply_saved(self.model)

    def forward(self, features: dict[str, Any], task: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """The token vectors, for texts in the role `task`."""
        with in_role(task):
            outputs: dict[str, Any] = super().forward(features, **kwargs)
        return outputs
