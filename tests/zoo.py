"""The families of transformers that capture is proved on: tiny, with random weights."""

from __future__ import annotations

from typing import Any

from tiny_models import tiny_model, tiny_tokenizer

_LAYERS = {"num_hidden_layers": 3}
_HEADS = {"num_attention_heads": 4}
_GROUPED = {**_LAYERS, **_HEADS, "num_key_value_heads": 2, "hidden_size": 32}
_PLAIN = {**_LAYERS, **_HEADS, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 40}

# Name of the family: class name in transformers, and the settings that make it tiny.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", _PLAIN),
    "RoBERTa": ("Roberta", _PLAIN),
    "XLM-RoBERTa": ("XLMRoberta", _PLAIN),
    "MPNet": ("MPNet", _PLAIN),
    "DistilBERT": (
        "DistilBert",
        {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40},
    ),
    "ELECTRA": ("Electra", {**_PLAIN, "embedding_size": 16}),
    "ALBERT": ("Albert", {**_PLAIN, "embedding_size": 16}),
    "NomicBERT": ("NomicBert", {**_PLAIN, "head_dim": 8}),
    "DeBERTa-v2": ("DebertaV2", {**_PLAIN, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "ModernBERT": ("ModernBert", _PLAIN),
    "T5 encoder": ("T5", {"d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 12, "d_ff": 48}),
    "GPT-2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}),
    "Llama": ("Llama", _GROUPED),
    "Mistral": ("Mistral", {**_PLAIN, **_GROUPED, "sliding_window": 8}),
    "Qwen2": ("Qwen2", {**_PLAIN, **_GROUPED}),
    "Qwen3": ("Qwen3", {**_GROUPED, "head_dim": 12}),
    "Gemma 3": ("Gemma3Text", {**_PLAIN, **_GROUPED, "head_dim": 12, "sliding_window": 8}),
}


def family(name: str, **settings: Any) -> tuple[Any, Any]:
    """A model of the family with its tokenizer."""
    architecture, sizes = FAMILIES[name]
    return tiny_model(architecture, **{**sizes, **settings}), tiny_tokenizer()
