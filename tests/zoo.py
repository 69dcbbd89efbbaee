"""Tiny models with random weights, one a family, and a tokenizer for them: what the capture tests run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers as t
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = "the a cat dog sat on under mat tree river house blue red old new runs sleeps slowly far near".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
TEXTS = [
    "the cat sat on the mat",
    "dog",
    "a blue river runs slowly under the old red house near the new tree",
    "old dog sleeps far far near",
    "new mat",
]

_SIZES: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_DECODER = {**_SIZES, "num_key_value_heads": 2, "bos_token_id": 2, "eos_token_id": 3}
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}


@dataclass(frozen=True)
class Family:
    """One row of the support matrix: how to build it, and what the paper's quantities meet there."""

    name: str
    build: Callable[[], Any]


FAMILIES = [
    Family("BERT", lambda: t.BertModel(t.BertConfig(**_SIZES))),
    Family("RoBERTa", lambda: t.RobertaModel(t.RobertaConfig(**_SIZES))),
    Family("XLM-RoBERTa", lambda: t.XLMRobertaModel(t.XLMRobertaConfig(**_SIZES))),
    Family("MPNet", lambda: t.MPNetModel(t.MPNetConfig(**{**_SIZES, "pad_token_id": 1}))),
    Family("DistilBERT", lambda: t.DistilBertModel(t.DistilBertConfig(**_DISTIL))),
    Family("ELECTRA", lambda: t.ElectraModel(t.ElectraConfig(**_SIZES, embedding_size=16))),
    Family("ALBERT", lambda: t.AlbertModel(t.AlbertConfig(**_SIZES, embedding_size=16))),
    Family("NomicBERT", lambda: t.NomicBertModel(t.NomicBertConfig(**_SIZES))),
    Family("DeBERTa-v2", lambda: t.DebertaV2Model(t.DebertaV2Config(**_SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]))),
    Family("ModernBERT", lambda: t.ModernBertModel(t.ModernBertConfig(**_SIZES, local_attention=8, global_attn_every_n_layers=3, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3))),
    Family("T5 encoder", lambda: t.T5EncoderModel(t.T5Config(vocab_size=24, d_model=32, d_kv=12, d_ff=48, num_layers=3, num_heads=4, pad_token_id=0))),
    Family("GPT-2", lambda: t.GPT2Model(t.GPT2Config(vocab_size=24, n_embd=32, n_layer=3, n_head=4, n_positions=64, pad_token_id=0, bos_token_id=2, eos_token_id=3))),
    Family("Llama", lambda: t.LlamaModel(t.LlamaConfig(**_DECODER))),
    Family("Mistral", lambda: t.MistralModel(t.MistralConfig(**_DECODER, sliding_window=8))),
    Family("Qwen2", lambda: t.Qwen2Model(t.Qwen2Config(**_DECODER))),
    Family("Qwen3", lambda: t.Qwen3Model(t.Qwen3Config(**_DECODER, head_dim=12))),
    Family("Gemma 3", lambda: t.Gemma3TextModel(t.Gemma3TextConfig(**_DECODER, head_dim=12, sliding_window=8))),
]
