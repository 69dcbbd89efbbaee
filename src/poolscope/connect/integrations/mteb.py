"""poolscope's models, as they are or repaired, as encoders of mteb:

`mteb.evaluate(mteb_model("builtin:minilm", Repair(temperature=0.8)), tasks)`
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import require
from poolscope.repairs.repair_file import Repair, RepairedModel, probe_vector

require("mteb", "mteb")

from mteb.models.abs_encoder import AbsEncoder  # noqa: E402
from mteb.models.model_meta import ModelMeta, ScoringFunction  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable


class PoolscopeEncoder(AbsEncoder):  # type: ignore[misc]
    """An encoder of mteb around a repaired model; queries and documents keep the prompts that the model declares."""

    def __init__(self, model: RepairedModel, *, name: str | None = None) -> None:
        self.model = model
        experiment = _experiment(model)
        self.mteb_model_meta = ModelMeta.create_empty(
            overwrites={
                "name": name or _qualified(model.card.name),
                "revision": model.card.revision or _unnamed_revision(model),
                "embed_dim": len(model.encode("dimension", role="document")),
                "max_tokens": model.card.max_length,
                "similarity_fn_name": ScoringFunction.COSINE,
                # Results of a repair lie beside those of the model itself, never over them.
                "experiment_kwargs": None if experiment is None else {"repair": experiment},
            }
        )

    def encode(
        self,
        inputs: Iterable[dict[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> NDArray[np.float32]:
        """The vectors of the texts of all batches; `prompt_type` is query, document or None."""
        texts = [text for batch in inputs for text in batch["text"]]
        return self.model.encode(texts, role=None if prompt_type is None else str(prompt_type.value))


def mteb_model(
    model: Any, repair: Repair | str | None = None, *, name: str | None = None, **options: Any
) -> PoolscopeEncoder:
    """An encoder for `mteb.evaluate`: a model as `as_encoder` takes it, with a repair or the file of one.

    `name` is under which results are kept, ORGANISATION/NAME (by default that of the model); a repair is kept as an
    experiment of it, apart for every fit and for other encoder options; a temperature by a function is refused, since
    two functions cannot be told apart. mteb's own instructions for tasks are not used: prompts are those that the model
    declares. Vectors have length 1, so a model that does not normalise scores otherwise where lengths count, as in
    classification and clustering.
    """
    chosen = repair if isinstance(repair, Repair) else Repair() if repair is None else Repair.load(repair)
    return PoolscopeEncoder(chosen.apply(model, **options), name=name)


def _qualified(name: str) -> str:
    """mteb wants an organisation before a slash.

    >>> _qualified("sentence-transformers/all-MiniLM-L6-v2"), _qualified("models/mine/")
    ('sentence-transformers/all-MiniLM-L6-v2', 'models/mine')
    """
    parts = [part for part in name.split("/") if part]
    return "/".join(parts[-2:]) if len(parts) > 1 else f"poolscope/{parts[0] if parts else 'model'}"


def _experiment(model: RepairedModel) -> str | None:
    """Label and digest of the repair and of the options that change vectors; None for the model as it is."""
    chosen = getattr(model.encoder, "options", None)
    options = {} if chosen is None else {name: value for name, value in chosen.content().items() if value is not None}
    options.pop("revision", None)  # mteb keeps results apart by revision
    if model.repair.label == Repair().label and not options:
        return None
    content = json.dumps([model.repair.digest, options], sort_keys=True)
    return f"{_plain(model.repair.label)}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _unnamed_revision(model: RepairedModel) -> str:
    """Functions have no revision: the vector of the probe text tells those of one name apart."""
    return f"unknown-{hashlib.sha256(probe_vector(model.encoder).tobytes()).hexdigest()[:12]}"


def _plain(label: str) -> str:
    """A label as part of a folder name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label.replace("τ", "tau")).strip("-")
