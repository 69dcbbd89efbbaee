"""Encoders on a loaded SentenceTransformer (names and folders are read without that library)."""

from __future__ import annotations

from typing import Any

from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.encoders.declaration import Declaration, check_modules
from poolscope.encoders.transformers import wrap_loaded
from poolscope.errors import ModelError


def wrap_sentence_transformer(model: Any, options: EncoderOptions) -> TokenEncoder:
    """The tokens that the model's own Pooling module averages, after its prompt and its truncation."""
    modules = list(model)
    classes = [type(module).__name__ for module in modules]
    name = _name(model)
    check_modules(classes, name=name)
    if classes[0] == "StaticEmbedding":
        from poolscope.encoders.static import wrap_static_embedding

        return wrap_static_embedding(modules[0], name=name, declared=_declared(model), options=options)
    first = modules[0]
    if getattr(first, "backend", "torch") != "torch":
        raise ModelError(
            f"{name}: it was loaded with the backend {first.backend!r}; allowed: torch. Pass the path of the .onnx "
            f"file instead, or load the model with torch."
        )
    if getattr(first, "module_output_name", "token_embeddings") != "token_embeddings":
        raise ModelError(
            f"{name}: its first module gives {first.module_output_name}, not token embeddings, so there are no "
            f"tokens to look at. Pass a function from texts to token arrays."
        )
    if "message" in getattr(first, "modality_config", {}):
        raise ModelError(
            f"{name}: it wraps each text in a chat template, which poolscope does not apply. Pass a function from "
            f"texts to token arrays."
        )
    return wrap_loaded(first.auto_model, model.tokenizer, options=options, declared=_declared(model), name=name)


def _declared(model: Any) -> Declaration:
    classes = [type(module).__name__ for module in model]
    pooling = model[classes.index("Pooling")] if "Pooling" in classes else None
    modes = () if pooling is None else pooling.pooling_mode
    return Declaration(
        first=classes[0],
        pooling=(modes,) if isinstance(modes, str) else tuple(modes),
        after=tuple(classes[1 if pooling is None else classes.index("Pooling") + 1 :]),
        include_prompt=True if pooling is None else bool(pooling.include_prompt),
        prompts={key: text for key, text in (model.prompts or {}).items() if text is not None},
        default_prompt=model.default_prompt_name,
        max_length=None if classes[0] == "StaticEmbedding" else model.max_seq_length,
        further_parameters=sum(weights.numel() for module in list(model)[1:] for weights in module.parameters()),
    )


def _name(model: Any) -> str:
    return str(getattr(getattr(model[0], "auto_model", None), "name_or_path", "") or type(model).__name__)
