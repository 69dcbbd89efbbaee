"""Encoders on GGUF files: converted once to a folder of transformers in float32, then opened like any other folder.

The weights of a GGUF file are quantised, most of them to a few bits. A conversion only writes out the numbers that they
stand for, so no value changes by it; what the quantisation lost stays lost, and the model's card names it.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.batching import BatchedEncoder
from poolscope.encoders.folders import file_digest, refuse_adapter
from poolscope.encoders.opening import opening
from poolscope.encoders.transformers import QUANTIZATION_KEY, load_folder, quietly
from poolscope.errors import ModelError, PoolscopeError, in_one_line, require
from poolscope.files import user_cache_folder, write_json
from poolscope.words import logger

_LOG = logger(__name__)
_FORMAT = 1  # of the converted folders; another number converts anew
_POOLINGS = {0: None, 1: "mean", 2: "cls", 3: "lasttoken"}  # as llama.cpp numbers them; 4 is a reranker

# Types that the loader of transformers reads; and those renamed here: (class, names, names in a layer).
_BY_TRANSFORMERS = ("llama", "qwen2", "qwen3", "gemma3")
_BERT = (
    "Bert",
    {
        "token_embd": "embeddings.word_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
    {
        "attn_q": "encoder.layer.{}.attention.self.query",
        "attn_k": "encoder.layer.{}.attention.self.key",
        "attn_v": "encoder.layer.{}.attention.self.value",
        "attn_output": "encoder.layer.{}.attention.output.dense",
        "attn_output_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "ffn_up": "encoder.layer.{}.intermediate.dense",
        "ffn_down": "encoder.layer.{}.output.dense",
        "layer_output_norm": "encoder.layer.{}.output.LayerNorm",
    },
)
_NOMIC = (
    "NomicBert",
    {
        "token_embd": "embeddings.word_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
    {
        "attn_q": "layers.{}.self_attn.q_proj",
        "attn_k": "layers.{}.self_attn.k_proj",
        "attn_v": "layers.{}.self_attn.v_proj",
        "attn_output": "layers.{}.self_attn.o_proj",
        "attn_output_norm": "layers.{}.post_attention_layernorm",
        "ffn_up": "layers.{}.mlp.up_proj",
        "ffn_gate": "layers.{}.mlp.gate_proj",
        "ffn_down": "layers.{}.mlp.down_proj",
        "layer_output_norm": "layers.{}.post_mlp_layernorm",
    },
)
_BY_NAME = {"bert": _BERT, "nomic-bert": _NOMIC}


def models_folder() -> Path:
    """Where models lie that were fetched or converted: $POOLSCOPE_MODELS, or `models` in the user's cache folder."""
    chosen = os.environ.get("POOLSCOPE_MODELS")
    return Path(chosen).expanduser() if chosen else user_cache_folder() / "models"


def is_gguf(folder: Path, *, name: str) -> bool:
    """Does the folder hold a GGUF file, and no weights that could be read without a conversion?"""
    return any(folder.glob("*.gguf")) and not any(folder.glob("*.safetensors"))


def load_gguf(path: Path, *, name: str, revision: str | None, options: EncoderOptions) -> BatchedEncoder:
    """The encoder of a `.gguf` file, or of a folder that holds one; the first call converts it and takes a while."""
    require("gguf", "gguf")
    require("torch", "torch")
    file = gguf_file(path, name=name)
    digest = file_digest(file)
    folder = models_folder() / "converted" / f"{digest[:32]}-{_FORMAT}"
    if not folder.is_dir():
        _LOG.warning("%s: converted once, to %s; this may take some minutes", name, folder)
        _convert(file, folder, name=name)
    return load_folder(folder, name=name, revision=revision or digest, options=options)


def read_gguf_declaration(path: Path, *, name: str) -> dict[str, Any]:
    """What a file says of its pooling and its longest text, from its header alone; nothing is converted."""
    file = gguf_file(path, name=name)
    with opening("gguf declaration", file, name=name) as first:
        facts = first.facts()
        return {"pooling": tuple(facts["pooling"]), "max_length": facts["max_length"]}


def declaration_of_gguf(file: Path, *, name: str, options: EncoderOptions) -> dict[str, Any]:
    """What `read_gguf_declaration` gives, and the type of the model, read where the file can do no harm."""
    opened = _File.read(file, name=name)
    number = opened.of_type("pooling_type", 0)
    pooling = _POOLINGS.get(number, f"type {number}")
    return {
        "pooling": () if pooling is None else (pooling,),
        "max_length": opened.of_type("context_length"),
        "type": opened.type,
        "quantization": opened.quantization(),
        "licence": opened.values.get("general.license"),
        "parameters": sum(int(tensor.n_elements) for tensor in opened.tensors.values()),
        "entries": len(opened.values.get("tokenizer.ggml.tokens", ())),
        "template": "tokenizer.chat_template" in opened.values,
    }


def gguf_file(path: Path, *, name: str) -> Path:
    """The file itself, or the only one of a folder."""
    if path.is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files)
        raise ModelError(f"{name}: which file is meant? Found: {names}; needed: one. Pass the path of the file itself.")
    return files[0]


# -- the file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """An open GGUF file: its values by key, its tensors, and where it lies."""

    path: Path
    values: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, *, name: str) -> _File:
        try:
            reader = require("gguf", "gguf").GGUFReader(path)
            values = {key: field.contents() for key, field in reader.fields.items()}
        except Exception as error:  # bytes of others: whatever the reader does next with them
            raise ModelError(
                f"{name}: {path.name} is no GGUF file, or not whole ({in_one_line(error)}). Download it again."
            ) from error
        return cls(path, values, {tensor.name: tensor for tensor in reader.tensors})

    @property
    def type(self) -> str:
        """The architecture, as llama.cpp calls it."""
        return str(self.values.get("general.architecture", "unknown"))

    def of_type(self, key: str, default: Any = None) -> Any:
        """A value that is written under the name of the architecture."""
        return self.values.get(f"{self.type}.{key}", default)

    def quantization(self) -> str:
        """How most of the weights are stored: as the file says, else the commonest type of its tensors."""
        library = require("gguf", "gguf")
        names = {int(kind): str(kind.name) for kind in library.LlamaFileType}
        stated = names.get(self.values.get("general.file_type", -1))
        if stated is not None:
            return "GGUF " + stated.removeprefix("MOSTLY_").removeprefix("ALL_")
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            sizes[tensor.tensor_type.name] = sizes.get(tensor.tensor_type.name, 0) + int(tensor.n_elements)
        return "GGUF " + max(sizes, key=sizes.__getitem__)

    def weights(self, tensor: str) -> Any:
        """The numbers of a tensor in float32."""
        import torch

        stored = self.tensors[tensor]
        return torch.from_numpy(require("gguf", "gguf").dequantize(stored.data, stored.tensor_type).copy()).float()


# -- conversion -------------------------------------------------------------------------------------------------------


def _convert(file: Path, folder: Path, *, name: str) -> None:
    """Have the folder written by the process that opens foreign models; others see all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".converting-"))
    try:
        with opening("gguf", file, name=name, output=place) as first:
            _ = require("transformers", "torch").PreTrainedModel  # meanwhile
            first.facts()
        if not folder.is_dir():  # another process may have been faster
            place.rename(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def convert_gguf(file: Path, *, name: str, options: EncoderOptions, output: Path) -> dict[str, Any]:
    """Write a GGUF file as a folder of transformers."""
    opened = _File.read(file, name=name)
    _check_type(opened, name=name)
    config, weights, tokenizer = _read(opened, name=name)
    _check_whole(opened, weights, name=name)
    with quietly():
        setattr(config, QUANTIZATION_KEY, opened.quantization())
        config.save_pretrained(output)
        tokenizer.save_pretrained(output)
        content = {key: value.contiguous() for key, value in weights.items()}
        require("safetensors.torch", "torch").save_file(content, output / "model.safetensors", {"format": "pt"})
        pooling = _POOLINGS[opened.of_type("pooling_type", 0)]
        if pooling is not None:
            write_json(output / "1_Pooling" / "config.json", {"pooling_mode": pooling})
    return {"type": opened.type}


def _read(file: _File, *, name: str) -> tuple[Any, dict[str, Any], Any]:
    """Configuration, weights and tokenizer."""
    try:
        with quietly():
            return _renamed(file) if file.type in _BY_NAME else _by_transformers(file)
    except PoolscopeError:
        raise
    except Exception as error:  # what a file lacks or has too much shows in many ways
        raise ModelError(
            f"{name}: its {file.type} cannot be read ({type(error).__name__}: {error}). Download the file again; if it "
            f"is whole, pass the model's folder of transformers instead."
        ) from error


def _check_type(file: _File, *, name: str) -> None:
    """Refuse by name what would not be read, or not as it was trained."""
    known = (*_BY_TRANSFORMERS, *_BY_NAME)
    if file.type not in known:
        raise ModelError(
            f"{name}: a GGUF file of the type {file.type!r}; poolscope reads {', '.join(known)}. Pass the model's "
            f"folder of transformers instead."
        )
    scaling = file.of_type("rope.scaling.type", "none")
    if scaling != "none" or any(tensor.startswith("rope_f") for tensor in file.tensors):
        raise ModelError(
            f"{name}: its rotary positions are scaled ({scaling if scaling != 'none' else 'by a table'}), which the "
            f"conversion does not carry over. Pass the model's folder of transformers instead."
        )
    if file.of_type("pooling_type", 0) not in _POOLINGS:
        raise ModelError(
            f"{name}: its pooling_type is {file.of_type('pooling_type')}; allowed: 0 (none), 1 (mean), 2 (cls) and 3 "
            f"(last token). A reranker gives no embeddings; pass an embedding model."
        )


def _check_whole(file: _File, weights: Mapping[str, Any], *, name: str) -> None:
    """Each number of the file went into one of the model's, apart from the table of the output words."""
    stored = sum(int(tensor.n_elements) for key, tensor in file.tensors.items() if key != "output.weight")
    carried = sum(value.numel() for value in weights.values())
    if stored != carried:
        raise ModelError(
            f"{name}: the file holds {stored:,} weights and the model {carried:,}; they must be the same. Its variant "
            f"of {file.type} is not known here: pass the model's folder of transformers instead."
        )


def _by_transformers(file: _File) -> tuple[Any, dict[str, Any], Any]:
    """Configuration, weights and tokenizer, read by transformers."""
    library, torch = require("transformers", "torch"), require("torch", "torch")
    refuse_adapter(file.path.parent, name=str(file.path))
    source = {"gguf_file": file.path.name, "local_files_only": True}
    with redirect_stderr(io.StringIO()):  # a bar that has no switch
        model, report = library.AutoModel.from_pretrained(
            file.path.parent, dtype=torch.float32, output_loading_info=True, **source
        )
    if report["missing_keys"]:
        raise ModelError(f"{file.path}: {len(report['missing_keys'])} weights are not in it. Download it again.")
    tokenizer = library.AutoTokenizer.from_pretrained(file.path.parent, **source)
    config = model.config
    del config.quantization_config  # it would be read as GGUF again
    config.architectures = [type(model).__name__]
    if hasattr(config, "head_dim") and file.of_type("attention.key_length") is not None:
        config.head_dim = file.of_type("attention.key_length")  # of some types it is not read
    return config, model.state_dict(), _with_marks(file, tokenizer)


def _with_marks(file: _File, tokenizer: Any) -> Any:
    """The tokenizer, with the tokens before and after each text that the file asks for.

    transformers leaves them out for some types. Where the file says nothing, llama.cpp puts one before a text if the
    vocabulary is that of SentencePiece, which GGUF calls "llama".
    """
    backend, values = tokenizer.backend_tokenizer, file.values
    first = values.get("tokenizer.ggml.add_bos_token", values.get("tokenizer.ggml.model") == "llama")
    marks = [
        (tokenizer.bos_token, tokenizer.bos_token_id) if first else None,
        (tokenizer.eos_token, tokenizer.eos_token_id) if values.get("tokenizer.ggml.add_eos_token", False) else None,
    ]
    before, after = ([mark[0]] if mark else [] for mark in marks)
    backend.post_processor = require("tokenizers", "torch").processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=[mark for mark in marks if mark]
    )
    # As a plain tokenizer: the classes of single models would put their own marks again when it is loaded.
    return require("transformers", "torch").PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=file.of_type("context_length"), **tokenizer.special_tokens_map
    )


def _renamed(file: _File) -> tuple[Any, dict[str, Any], Any]:
    """Configuration, weights and tokenizer of a BERT-like type, which transformers does not read from GGUF."""
    family, names, layer_names = _BY_NAME[file.type]
    weights: dict[str, Any] = {}
    for tensor in file.tensors:
        stem, _, kind = tensor.rpartition(".")
        block = stem.split(".", 2) if stem.startswith("blk.") else None
        if block is None:
            weights[f"{names[stem]}.{kind}"] = file.weights(tensor)
        elif block[2] == "attn_qkv":  # three blocks of rows
            for part, rows in zip(("attn_q", "attn_k", "attn_v"), file.weights(tensor).chunk(3), strict=True):
                weights[f"{layer_names[part].format(block[1])}.{kind}"] = rows.clone()
        else:
            weights[f"{layer_names[block[2]].format(block[1])}.{kind}"] = file.weights(tensor)
    rotary = {"rope_parameters": {"rope_type": "default", "rope_theta": file.of_type("rope.freq_base", 10_000.0)}}
    config = getattr(require("transformers", "torch"), f"{family}Config")(
        vocab_size=len(weights["embeddings.word_embeddings.weight"]),
        type_vocab_size=len(weights["embeddings.token_type_embeddings.weight"]),
        hidden_size=file.of_type("embedding_length"),
        num_hidden_layers=file.of_type("block_count"),
        num_attention_heads=file.of_type("attention.head_count"),
        intermediate_size=file.of_type("feed_forward_length"),
        max_position_embeddings=file.of_type("context_length"),
        layer_norm_eps=file.of_type("attention.layer_norm_epsilon", 1e-12),
        architectures=[f"{family}Model"],
        **(rotary if family == "NomicBert" else {}),
    )
    return config, weights, _word_pieces(file)


def _word_pieces(file: _File) -> Any:
    """The tokenizer of BERT. GGUF marks the starts of words (▁) where BERT marks what continues one (##)."""
    tokenizers, library = require("tokenizers", "torch"), require("transformers", "torch")
    stored: list[str] = file.values["tokenizer.ggml.tokens"]
    pieces = [_piece(token) for token in stored]
    marks = {
        role: pieces[file.values.get(f"tokenizer.ggml.{key}_token_id", pieces.index(usual))]
        for role, key, usual in (
            ("cls_token", "cls", "[CLS]"),
            ("sep_token", "seperator", "[SEP]"),  # the key is spelt so in the format
            ("pad_token", "padding", "[PAD]"),
            ("unk_token", "unknown", "[UNK]"),
        )
    }
    cased = any(piece != piece.lower() for piece in pieces if piece not in marks.values() and not piece.startswith("["))
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({piece: k for k, piece in enumerate(pieces)}, unk_token=marks["unk_token"])
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=not cased)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    start, end = marks["cls_token"], marks["sep_token"]
    backend.post_processor = tokenizers.processors.BertProcessing(
        (end, pieces.index(end)), (start, pieces.index(start))
    )
    return library.PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=file.of_type("context_length"), **marks
    )


def _piece(token: str) -> str:
    """A token of GGUF as BERT writes it.

    >>> [_piece(token) for token in ("▁cat", "s", "[CLS]")]
    ['cat', '##s', '[CLS]']
    """
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[1:] if token.startswith("▁") else f"##{token}"
