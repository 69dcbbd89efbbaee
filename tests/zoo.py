"""The families of transformers that capture is proved on, tiny and with random weights, and some that it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from tiny_models import tiny_model, tiny_tokenizer

_SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
_POSITIONS = {"max_position_embeddings": 40}
_PLAIN = {**_SIZES, **_POSITIONS}
_GROUPED = {**_PLAIN, "num_key_value_heads": 2, "head_dim": 12}
_LLAMA = {**_PLAIN, "num_key_value_heads": 2, "head_dim": 8}

# Name of the family: class name in transformers, and the settings that make it tiny.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", _PLAIN),
    "RoBERTa": ("Roberta", _PLAIN),
    "XLM-RoBERTa": ("XLMRoberta", _PLAIN),
    "CamemBERT": ("Camembert", _PLAIN),
    "MPNet": ("MPNet", _PLAIN),
    "DistilBERT": (
        "DistilBert",
        {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, **_POSITIONS},
    ),
    "ELECTRA": ("Electra", {**_PLAIN, "embedding_size": 16}),
    "ALBERT": ("Albert", {**_PLAIN, "embedding_size": 16}),
    "NomicBERT": ("NomicBert", {**_PLAIN, "head_dim": 8}),
    "Jina v3": ("JinaEmbeddingsV3", _PLAIN),
    "DeBERTa-v2": ("DebertaV2", {**_PLAIN, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "BART encoder": (
        "Bart",
        {
            "d_model": 32,
            "encoder_layers": 3,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            **_POSITIONS,
        },
    ),
    "ModernBERT": ("ModernBert", {**_PLAIN, "local_attention": 8, "global_attn_every_n_layers": 2}),
    "EuroBERT": ("EuroBert", _LLAMA),
    "T5 encoder": ("T5", {"d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 12, "d_ff": 48}),
    "GPT-2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}),
    "GPT-NeoX, sequential": ("GPTNeoX", {**_PLAIN, "use_parallel_residual": False}),
    "Llama": ("Llama", _LLAMA),
    "Mistral": ("Mistral", {**_LLAMA, "sliding_window": 8}),
    "Mixtral": ("Mixtral", {**_LLAMA, "num_local_experts": 2}),
    "Phi-3": ("Phi3", _LLAMA),
    "Qwen2": ("Qwen2", _LLAMA),
    "Qwen3": ("Qwen3", _GROUPED),
    "Gemma 2": ("Gemma2", {**_GROUPED, "sliding_window": 8}),
    "Gemma 3": ("Gemma3Text", {**_GROUPED, "sliding_window": 8}),
}

# Families whose layers lack a piece, and a word of the message that names it.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "GPT-NeoX": ("GPTNeoX", _PLAIN, "residual sum"),
    "GPT-J": ("GPTJ", {"n_embd": 32, "n_layer": 3, "n_head": 4, "rotary_dim": 4, "n_positions": 40}, "residual sum"),
    "Falcon": ("Falcon", _SIZES, "residual sum"),
    "Longformer": ("Longformer", {**_PLAIN, "attention_window": 8}, "attention weights"),
    "gpt-oss": (
        "GptOss",
        {**_LLAMA, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 8},
        "attention weights",
    ),
    "XLNet": ("XLNet", {"d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 48}, "value projection"),
    "FNet": ("FNet", _PLAIN, "attention weights"),
}


def family(name: str, **settings: Any) -> tuple[Any, Any]:
    """A model of the family with its tokenizer: words, between <s> and </s>."""
    architecture, sizes = FAMILIES[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script")  # importing DeBERTa
        return encoder_half(tiny_model(architecture, **{**sizes, **settings})), tiny_tokenizer()


def refused(name: str) -> tuple[Any, Any]:
    """A model that must be refused, with its tokenizer."""
    architecture, sizes, _ = REFUSED[name]
    return tiny_model(architecture, **sizes), tiny_tokenizer()


def encoder_half(model: Any) -> Any:
    return model.get_encoder() if model.config.is_encoder_decoder else model


def eager(model: Any, tokenizer: Any, text: str) -> tuple[list[Any], list[Any]]:
    """Hidden states and attention weights of one text alone, as the library itself reports them (float64 numpy)."""
    before = model.config._attn_implementation
    model.config._attn_implementation = "eager"
    try:
        with torch.inference_mode():
            inputs = tokenizer(text, return_tensors="pt")
            output = model(**inputs, output_hidden_states=True, output_attentions=True, return_dict=True)
    finally:
        model.config._attn_implementation = before
    states, weights = output.hidden_states, output.attentions
    return [s[0].double().numpy() for s in states], [a[0].double().numpy() for a in weights]
