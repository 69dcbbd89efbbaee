"""Tiny models with random weights, for tests: any architecture in a few thousand parameters, with its tokenizer."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "under",
    "mat",
    "tree",
    "fast",
    "slow",
    "red",
    "blue",
    "query",
    "document",
    "passage",
    ":",
    "of",
    "and",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
DIMENSION, LAYERS, POSITIONS = 16, 2, 24
TEXTS = [
    "the cat sat on the mat",
    "a dog",
    "the red dog ran fast under the blue tree and the slow cat sat on a mat",
    "cat",
    "the dog ran and ran and ran",
]

_COMMON = {"hidden_size": DIMENSION, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 32}
_DECODER = {**_COMMON, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": POSITIONS}
_ABSOLUTE = {**_COMMON, "max_position_embeddings": POSITIONS}
# Each with the values that its configuration needs to be tiny; all share vocabulary and special ids.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Bert": _ABSOLUTE,
    "Roberta": _ABSOLUTE,
    "XLMRoberta": _ABSOLUTE,
    "MPNet": _ABSOLUTE,
    "DistilBert": {
        "dim": DIMENSION,
        "n_layers": LAYERS,
        "n_heads": 2,
        "hidden_dim": 32,
        "max_position_embeddings": POSITIONS,
    },
    "ModernBert": {
        **_ABSOLUTE,
        "local_attention": 8,
        "global_attn_every_n_layers": 2,
        "cls_token_id": 0,
        "sep_token_id": 2,
    },
    "NomicBert": {**_ABSOLUTE, "head_dim": 8},
    "T5": {"d_model": DIMENSION, "num_layers": LAYERS, "num_heads": 2, "d_kv": 8, "d_ff": 32},
    "GPT2": {"n_embd": DIMENSION, "n_layer": LAYERS, "n_head": 2, "n_positions": POSITIONS},
    "Llama": _DECODER,
    "Qwen3": _DECODER,
}


def tiny_tokenizer(
    *, template: str | None = "<s> $A </s>", lower: bool = False, **settings: Any
) -> transformers.PreTrainedTokenizerFast:
    """One token a word; `template` says where special tokens go (None: nowhere)."""
    vocabulary = {word: k for k, word in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if lower:
        backend.normalizer = normalizers.Lowercase()
    if template is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", 0), ("</s>", 2)]
        )
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{**names, "pad_token": "<pad>", "model_input_names": ["input_ids", "attention_mask"], **settings},
    )


def tiny_model(architecture: str = "Bert", *, seed: int = 0, **settings: Any) -> Any:
    """A model of that architecture with random weights large enough that every layer matters."""
    torch.manual_seed(seed)
    ids = {"vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = getattr(transformers, f"{architecture}Config")(
        **{**ids, **ARCHITECTURES.get(architecture, {}), **settings}
    )
    model = getattr(transformers, f"{architecture}Model")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return model


def save_model(folder: Path, architecture: str = "Bert", *, tokenizer: Any = None, **settings: Any) -> Path:
    """A plain transformers folder with safetensors."""
    model = tiny_model(architecture, **settings)
    model.save_pretrained(folder)
    (tiny_tokenizer() if tokenizer is None else tokenizer).save_pretrained(folder)
    return folder


def declare(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    after: Sequence[str] = (),
    bert: dict[str, Any] | None = None,
    prompts: dict[str, str] | None = None,
    default_prompt: str | None = None,
) -> Path:
    """Add the declarations of sentence-transformers to a transformers folder."""
    types = ["Transformer", "Pooling", *after]
    modules = [
        {
            "idx": k,
            "name": str(k),
            "path": "" if k == 0 else f"{k}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for k, kind in enumerate(types)
    ]
    write(folder / "modules.json", modules)
    write(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": DIMENSION, **(pooling or {"pooling_mode": "mean"})},
    )
    write(folder / "sentence_bert_config.json", {"max_seq_length": POSITIONS, "do_lower_case": False, **(bert or {})})
    write(
        folder / "config_sentence_transformers.json", {"prompts": prompts or {}, "default_prompt_name": default_prompt}
    )
    return folder


_PICKLED = "pytorch_model.bin"


def add_dense(folder: Path, *, width: int = 6, pooling: str = "mean", readable: bool = True, seed: int = 0) -> Path:
    """Declare a Dense layer with a large bias behind the pooling: its vectors lie in a cone, those before it do not."""
    declare(folder, pooling={"pooling_mode": pooling}, after=["Dense", "Normalize"])
    weights = np.random.default_rng(seed).normal(size=(width, DIMENSION)).astype(np.float32) / DIMENSION**0.5
    settings = {
        "in_features": DIMENSION,
        "out_features": width,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    write(folder / "2_Dense" / "config.json", settings)
    tensors = {"linear.weight": weights, "linear.bias": np.full(width, 10, np.float32)}
    if readable:
        save_file(tensors, folder / "2_Dense" / "model.safetensors")
    else:  # as older folders have it: a pickle, which is not opened
        torch.save({name: torch.from_numpy(rows) for name, rows in tensors.items()}, folder / "2_Dense" / _PICKLED)
    return folder


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def alone(model: Any, tokenizer: Any, text: str, *, max_length: int | None = None) -> list[Any]:
    """The hidden states of one text by itself, without padding: what every cloud must equal."""
    encoded = tokenizer(text, return_tensors="pt", truncation=max_length is not None, max_length=max_length)
    with torch.inference_mode():
        output = model(**encoded, output_hidden_states=True, return_dict=True)
    states = [*output.hidden_states[:-1], output.last_hidden_state]
    return [state[0].float().numpy() for state in states]


def export_onnx(model: Any, file: Path, *, inputs: Sequence[str] = ("input_ids", "attention_mask")) -> Path:
    """The last hidden state of a model as an ONNX graph with free batch and length."""

    class LastHiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: torch.Tensor) -> torch.Tensor:
            return self.model(**dict(zip(inputs, values, strict=True))).last_hidden_state

    sample = tuple(torch.ones(2, 5, dtype=torch.long) for _ in inputs)
    axes = {name: {0: "texts", 1: "positions"} for name in (*inputs, "last_hidden_state")}
    file.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about itself
        torch.onnx.export(
            LastHiddenState(),
            sample,
            file,
            input_names=list(inputs),
            output_names=["last_hidden_state"],
            dynamic_axes=axes,
            dynamo=False,
        )
    return file


def model2vec_folder(folder: Path, *, arrays: Any = None, **config: Any) -> Path:
    """A table of model2vec in its own files."""
    rng = np.random.default_rng(0)
    arrays = (
        {"embeddings": rng.normal(size=(len(SPECIAL) + len(WORDS), 4)).astype(np.float32)} if arrays is None else arrays
    )
    folder.mkdir(exist_ok=True)
    save_file(arrays, folder / "model.safetensors")
    tiny_tokenizer(template=None).backend_tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "config.json", {"model_type": "model2vec", "normalize": False, **config})
    return folder
