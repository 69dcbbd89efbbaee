"""What only decoders have: a table of output words, latent attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.batching import Batch
from poolscope.encoders.capabilities import (
    as_numpy,
    attention_of,
    input_table,
    last_layer,
    options_of,
    with_options,
)
from poolscope.encoders.folders import BOTH_WAYS_TYPE, safetensors_header
from poolscope.errors import ModelError, require

Table = Callable[[], NDArray[np.float32]]

_HEADS = ("lm_head.weight", "embed_out.weight")


# -- the table of the output words ------------------------------------------------------------------------------------


def stored_unembedding(model: Any, weights: Sequence[Path]) -> Table | None:
    """Of a model that was loaded without its head: the input table if it is tied to it, else what the files hold."""
    if getattr(model.config, "tie_word_embeddings", False):
        return partial(input_table, model)
    for file in (path for path in weights if path.suffix == ".safetensors"):
        stored = safetensors_header(file)
        name = next((name for name in _HEADS if name in stored), None)
        if name is not None:
            return partial(_from_file, file, name)
    return None


def loaded_unembedding(model: Any) -> Table | None:
    """Of a loaded model: that of its head, or of its input words where the configuration says that they are tied."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is not None and getattr(head, "weight", None) is not None and getattr(head, "bias", None) is None:
        return partial(as_numpy, head.weight, "float32")
    return partial(input_table, model) if getattr(model.config, "tie_word_embeddings", False) else None


def _from_file(file: Path, name: str) -> NDArray[np.float32]:
    with require("safetensors", "torch").safe_open(file, framework="pt") as content:
        return as_numpy(content.get_tensor(name), "float32")


# -- is it a decoder? -------------------------------------------------------------------------------------------------


def is_causal(encoder: TokenEncoder) -> bool:
    """Does no token see a later one? Asked of the model itself: another last token must not move the first ones."""
    rows = len(attention_of(encoder)[0].get_input_embeddings().weight)
    ids = np.array([[0, 1, 2, 3], [0, 1, 2, 4]]) % rows
    real = np.ones(ids.shape, dtype=bool)
    # A model that keeps a temperature for each role runs in a role only.
    options = options_of(encoder)
    speaking = with_options(encoder, options, role=options.role or "document")
    states = last_layer(speaking, Batch(ids, real, real, None, np.arange(ids.size))).astype(np.float64)
    return float(np.abs(states[:3] - states[4:7]).max()) <= 1e-4 * float(np.abs(states).max())


def check_decoder(encoder: TokenEncoder, *, purpose: str) -> None:
    """Refuse a model that is no decoder, and name the `purpose` that needs one."""
    if not is_causal(encoder):
        raise ModelError(
            f"{encoder.card.name}: its tokens see later ones, so it is no decoder; {purpose} needs one (Llama, Qwen, "
            f"Gemma, GPT-2, …). Pass a decoder."
        )


# -- latent attention (NV-Embed) --------------------------------------------------------------------------------------
#
# Tokens attend to a table of trained vectors before their mean is taken. The tokens are the queries; the vectors of the
# table, the latents, are the keys and the values; a network with a gate follows, and both are added to the token. Each
# token is mapped by itself, so that the cloud holds the mapped tokens, and their mean is the model's vector. Decoder
# and latents are computed here; the code that such a folder brings is not run.

DECODER_NAMES = {r"^embedding_model\.": ""}  # how the weights of the decoder are renamed for the class of transformers
_PREFIX = "latent_attention_model."
_BLOCKS = "cross_attend_blocks"
# The parameters of the map, by their names in the file.
_WEIGHTS = {
    "latents": "latents",
    "token_gain": f"{_BLOCKS}.0.norm.weight",
    "token_bias": f"{_BLOCKS}.0.norm.bias",
    "latent_gain": f"{_BLOCKS}.0.norm_context.weight",
    "latent_bias": f"{_BLOCKS}.0.norm_context.bias",
    "queries": f"{_BLOCKS}.0.fn.to_q.weight",
    "keys_values": f"{_BLOCKS}.0.fn.to_kv.weight",
    "output": f"{_BLOCKS}.0.fn.to_out.weight",
    "network_gain": f"{_BLOCKS}.1.norm.weight",
    "network_bias": f"{_BLOCKS}.1.norm.bias",
    "wide": f"{_BLOCKS}.1.fn.net.0.weight",
    "wide_bias": f"{_BLOCKS}.1.fn.net.0.bias",
    "narrow": f"{_BLOCKS}.1.fn.net.2.weight",
    "narrow_bias": f"{_BLOCKS}.1.fn.net.2.bias",
}
_WIDENING = 4  # of the network
# Sizes of the latents with the values that hold where a configuration leaves them out.
_SIZES = {"num_latents_value": 512, "num_cross_heads": 8, "cross_dim_head": 4096}


def refuse_latent(settings: Mapping[str, Any], *, name: str) -> None:
    """Refuse a model with latents that is none of a known kind: a loaded one, or one made of another decoder."""
    if settings.get("latent_attention_config") is not None or settings.get("model_type") == "nvembed":
        raise ModelError(
            f"{name}: it pools by latent attention (its tokens attend to a table of trained vectors before their mean "
            f"is taken); allowed: the folder or hub name of an NV-Embed (model_type nvembed). Pass that, or a "
            f"function from texts to the arrays of tokens after that attention."
        )


def decoder_of(settings: Mapping[str, Any], *, name: str) -> Any:
    """The configuration of the decoder, a Mistral; its type says whether attention goes both ways."""
    text = settings.get("text_config")
    kind = text.get("model_type") if isinstance(text, Mapping) else None
    if not isinstance(text, Mapping) or kind not in (BOTH_WAYS_TYPE, "mistral"):
        raise ModelError(
            f"{name}: text_config in config.json is of the type {kind!r}; allowed: {BOTH_WAYS_TYPE} or mistral, the "
            f"decoders of NV-Embed. Pass a function from texts to token arrays."
        )
    own = {key: value for key, value in text.items() if key not in ("model_type", "architectures", "auto_map")}
    if kind == BOTH_WAYS_TYPE:
        own["sliding_window"] = None  # it masks nothing but padding
    return require("transformers", "torch").AutoConfig.for_model("mistral", **own)


def add_latent(model: Any, settings: Mapping[str, Any], files: Sequence[Path], *, name: str) -> None:
    """Put the latents of a folder behind the last norm of its decoder, in the dtype of the decoder."""
    latent = settings.get("latent_attention_config") or {}
    latents, heads, size = (_size(latent, key, name=name) for key in _SIZES)
    places = {key: file for file in files if file.suffix == ".safetensors" for key in safetensors_header(file)}
    shapes = _shapes(latents, heads * size, int(model.config.hidden_size))
    weights = {}
    for part, key in _WEIGHTS.items():
        stored = _PREFIX + key
        if stored not in places:
            raise ModelError(
                f"{name}: the weight {stored} of its latent attention is not in its safetensors files; all of them are "
                f"needed. Download the model again."
            )
        if (shape := safetensors_header(places[stored])[stored]) != shapes[part]:
            raise ModelError(
                f"{name}: the weight {stored} has the shape {shape}, and config.json asks for {shapes[part]}; they "
                f"cannot belong together. Download the model again."
            )
        with require("safetensors", "torch").safe_open(places[stored], framework="pt") as content:
            weights[part] = content.get_tensor(stored).to(model.device, model.dtype)
    model.norm = _latent_class()(model.norm, weights, heads)


def _size(latent: Any, key: str, *, name: str) -> int:
    value = latent.get(key, _SIZES[key]) if isinstance(latent, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(
            f"{name}: latent_attention_config in config.json says {key} = {str(value)[:60]!r}; allowed: a whole number "
            f"above 0. Download the model again."
        )
    return value


def _shapes(latents: int, inner: int, d: int) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter: r latents, heads × numbers of a head in all, d numbers a token."""
    named = {
        "latents": (latents, d),
        "queries": (inner, d),
        "keys_values": (2 * inner, d),
        "output": (d, inner),
        "wide": (2 * _WIDENING * d, d),
        "wide_bias": (2 * _WIDENING * d,),
        "narrow": (d, _WIDENING * d),
    }
    return {part: named.get(part, (d,)) for part in _WEIGHTS}


@cache
def _latent_class() -> Any:
    """The class, made on first use: it inherits from torch, which importing poolscope must not need."""
    import torch
    from torch.nn.functional import gelu, layer_norm

    class LatentAttention(torch.nn.Module):
        """The last norm of a decoder, and behind it the map of every token by the latents."""

        def __init__(self, norm: Any, weights: Mapping[str, Any], heads: int) -> None:
            super().__init__()
            self.norm, self.heads = norm, heads
            self.weights = torch.nn.ParameterDict(
                {part: torch.nn.Parameter(tensor, requires_grad=False) for part, tensor in weights.items()}
            )

        def forward(self, states: Any) -> Any:
            W = self.weights
            tokens = self.norm(states).flatten(0, 1)
            tokens = tokens + self._attended(tokens)
            inner = layer_norm(tokens, tokens.shape[-1:], W["network_gain"], W["network_bias"])
            wide, gate = (inner @ W["wide"].T + W["wide_bias"]).chunk(2, dim=-1)
            tokens = tokens + (wide * gelu(gate)) @ W["narrow"].T + W["narrow_bias"]
            return tokens.unflatten(0, states.shape[:2])

        def _attended(self, tokens: Any) -> Any:
            """What the latents give to each token (tokens × d)."""
            W = self.weights
            queries = layer_norm(tokens, tokens.shape[-1:], W["token_gain"], W["token_bias"]) @ W["queries"].T
            table = layer_norm(W["latents"], tokens.shape[-1:], W["latent_gain"], W["latent_bias"])
            keys, values = (table @ W["keys_values"].T).chunk(2, dim=-1)
            query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in (queries, keys, values))
            scores = torch.einsum("thd,rhd->thr", query, key) / math.sqrt(query.shape[-1])
            mixed = torch.einsum("thr,rhd->thd", scores.softmax(dim=-1), value)
            return mixed.flatten(1) @ W["output"].T

    return LatentAttention
