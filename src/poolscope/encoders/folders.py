"""What a model folder may say and hold, checked before a library is handed it.

A folder is material of others. Its settings are passed on from a list of what is known to be harmless, never from all
but what is known to be harmful; no name in it leads out of it; and nothing is built that its weights cannot fill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poolscope.encoders.declaration import Declaration, check_length, read_settings, safetensors_header
from poolscope.errors import ModelError

_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flex_attention")
_PLAIN = str | int | float | bool | None
# Loading arguments that a folder may ask for, each a plain value.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "model_args": ("attn_implementation", "add_pooling_layer"),
    "config_args": ("add_pooling_layer", "unpad_inputs", "use_memory_efficient_attention", "is_causal"),
    "tokenizer_args": (
        "padding_side",
        "truncation_side",
        "model_max_length",
        "do_lower_case",
        "strip_accents",
        "use_fast",
        "add_prefix_space",
        "add_bos_token",
        "add_eos_token",
        "clean_up_tokenization_spaces",
        "fix_mistral_regex",
    ),
}
_DEEP, _SPARE = 128, 2**24  # layers and numbers that are allowed whatever the weights hold
_LABELS = 2**17  # of a classifier; the library names each of them
_LONGEST, _VOCABULARY = 16 * 2**20, 128 * 2**20  # bytes of settings, and of files that hold a vocabulary or all tensors


def check_folder_content(place: Path, declared: Declaration, *, name: str, trusted: bool, allow_pickle: bool) -> None:
    """Refuse a folder that asks for more than it may; `trusted` (--trust-remote-code) lets it ask for anything."""
    if odd := [path.name for path in sorted(place.iterdir()) if not (path.is_file() or path.is_dir())]:
        raise ModelError(f"{name}: {odd[0]} is no file and no folder (a pipe, a device); allowed are files. Remove it.")
    for path in place.iterdir():
        if path.suffix in (".json", ".jinja"):
            large = path.name.startswith(("tokenizer.", "vocab")) or path.name.endswith(".index.json")
            check_length(path, _VOCABULARY if large else _LONGEST)
    refuse_adapter(place, name=name)
    _check_index(place, name=name, allow_pickle=allow_pickle)
    if trusted:
        return
    for part, allowed in ARGUMENTS.items():
        for key, value in getattr(declared, part).items():
            if key not in allowed or not isinstance(value, _PLAIN):
                raise ModelError(
                    f"{name}: it asks to be loaded with {part} {key}={value!r}; a folder may ask for "
                    f"{', '.join(allowed)}. Remove it, or pass --trust-remote-code (trust_remote_code=True) if you "
                    f"trust the source."
                )
    _check_attention(declared.model_args.get("attn_implementation"), name=name)
    config = read_settings(place / "config.json")
    _check_config(config, name=name)
    check_sizes(config, place, name=name)


def refuse_adapter(place: Path, *, name: str) -> None:
    """Refuse a folder with an adapter: transformers applies it where peft is installed, and drops it elsewhere."""
    if (place / "adapter_config.json").exists():
        raise ModelError(
            f"{name}: the folder holds an adapter (PEFT, adapter_config.json), which is no model by itself and which "
            f"only some installations would apply; needed: the model with the adapter in its weights. Load both with "
            f"peft, call merge_and_unload(), and save that to a folder of its own."
        )


def _check_config(config: Mapping[str, Any], *, name: str) -> None:
    for key, value in config.items():
        if key.strip("_").startswith(("attn_implementation", "experts_implementation")):
            _check_attention(value, name=name)
        if key == "transformers_weights" and value is not None:
            raise ModelError(
                f"{name}: config.json names other weights ({value!r}); allowed: model.safetensors. Rename the file."
            )
        if isinstance(value, Mapping):
            _check_config(value, name=name)


def _check_attention(value: Any, *, name: str) -> None:
    """A name of any other kind is fetched as code from the hub."""
    for chosen in value.values() if isinstance(value, Mapping) else (value,):
        if chosen is not None and chosen not in _ATTENTION:
            raise ModelError(
                f"{name}: it asks for the attention {chosen!r}; allowed: {', '.join(_ATTENTION)}. Remove it, or pass "
                f"--trust-remote-code (trust_remote_code=True) if you trust the source."
            )


def _check_index(place: Path, *, name: str, allow_pickle: bool) -> None:
    """Every shard that an index names lies in the folder, and is no pickle."""
    endings = (".safetensors", ".bin") if allow_pickle else (".safetensors",)
    for index in sorted(place.glob("*.index.json")):
        shards = read_settings(index, most=_VOCABULARY).get("weight_map")
        if not isinstance(shards, dict):
            raise ModelError(f"{index}: it has no weight_map of tensors and their files. Download the model again.")
        for shard in set(map(str, shards.values())):
            inside = not {"/", "\\", "\0"} & set(shard) and shard not in ("", ".", "..")
            pickled = index.name.startswith("pytorch_model") and not allow_pickle  # which is not read at all
            if not pickled and not (inside and shard.endswith(endings)):
                raise ModelError(
                    f"{index}: it names {shard!r}; allowed: files of this folder that end in {' or '.join(endings)}. "
                    f"Download the model again from a source that you trust."
                )


def check_sizes(config: Mapping[str, Any], place: Path, *, name: str) -> None:
    """Refuse sizes that the weights cannot fill: building what they ask for would take all time or memory.

    `config` is what the folder says, or what the library made of it: what a folder leaves out is as large as usual.
    """
    tensors, numbers = _held(place)
    if tensors:
        for part in (config, *(value for value in config.values() if isinstance(value, Mapping))):
            _check_part(part, tensors, numbers, name=name)


def check_count(parameters: int, place: Path, *, name: str) -> None:
    """Refuse a model of many more numbers than its weights hold, before memory is asked for."""
    tensors, numbers = _held(place)
    if tensors and parameters > 2 * numbers + _SPARE:
        raise ModelError(_too_large(name, "numbers in all", parameters, f"{numbers:,} numbers"))


def _held(place: Path) -> tuple[int, int]:
    """How many tensors, and how many numbers in them, the weights of a folder hold; 0 where they are pickled."""
    headers = [safetensors_header(path) for path in sorted(place.glob("*.safetensors"))]
    return sum(map(len, headers)), sum(math.prod(shape) for header in headers for shape in header.values())


def _check_part(config: Mapping[str, Any], tensors: int, numbers: int, *, name: str) -> None:
    sizes = {key: value for key, value in config.items() if isinstance(value, int) and not isinstance(value, bool)}
    for key in ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_attention_heads", "n_head", "num_heads"):
        if sizes.get(key, 0) > max(tensors, _DEEP):
            raise ModelError(_too_large(name, key, sizes[key], f"{tensors} tensors"))
    if sizes.get("num_labels", 0) > _LABELS:
        raise ModelError(_too_large(name, "num_labels", sizes["num_labels"], f"{tensors} tensors"))
    width = next((sizes[key] for key in ("hidden_size", "d_model", "dim", "n_embd") if key in sizes), 1)
    for key in ("vocab_size", "intermediate_size", "d_ff", "hidden_dim", "type_vocab_size"):
        if max(sizes.get(key, 0), 1) * max(width, 1) > 2 * numbers + _SPARE:
            raise ModelError(_too_large(name, f"{key} × width", sizes.get(key, 1) * width, f"{numbers:,} numbers"))


def _too_large(name: str, key: str, value: int, held: str) -> str:
    return (
        f"{name}: config.json says (or leaves to the usual sizes) {key} = {value:,}, and the weights hold {held}; they "
        f"cannot belong together. "
        f"Download the model again from a source that you trust."
    )
