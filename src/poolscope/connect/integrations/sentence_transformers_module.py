"""Repairs inside a SentenceTransformer: it is saved and loaded as an ordinary folder.

Most repairs are written with the library's own modules, and such a folder loads anywhere, without poolscope: a constant
temperature goes into the weights, the usual poolings are modes of `Pooling`, last2avg is `WeightedLayerPooling`, and
every vector repair is `Normalize`, `Dense` with a bias, `Normalize`. Poolings that the library lacks (SIF, mean +
spread, second order) are a module of poolscope, `RepairModule`; loading it needs `trust_remote_code=True`, as every
class from outside the library does.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Self

import numpy as np

from poolscope.encoders import EncoderOptions, as_encoder
from poolscope.encoders.base import ROLES, resolve_prompt
from poolscope.errors import InputError, ModelError, require
from poolscope.evaluation.run import PROMPT_CHOICES
from poolscope.numbers.pooling import LastTwoPooling, PositionPooling
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.temperature.rules import Constant

torch = require("torch", "sentence-transformers")
require("sentence_transformers", "sentence-transformers")

from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.base.modules import Dense, Module, Normalize  # noqa: E402
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling  # noqa: E402

from poolscope.connect.integrations.regularizer import clouds_of  # noqa: E402

_FILE = "repair.safetensors"
_PROMPT = "repair"  # the name of the prompt that a repair was proved with
# Poolings that the library has, under its names.
NATIVE_POOLINGS = {"mean": "mean", "cls": "cls", "last": "lasttoken", "max": "max", "position": "weightedmean"}


class RepairModule(Module):  # type: ignore[misc]
    """Pools tokens as the repair says, and applies its vector repair; for inference (it runs on numpy)."""

    config_keys = ["include_prompt", "embedding_dimension"]  # noqa: RUF012

    def __init__(self, repair: Repair, *, embedding_dimension: int, include_prompt: bool = True) -> None:
        super().__init__()
        self.repair = repair
        self.embedding_dimension = embedding_dimension
        self.include_prompt = include_prompt

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """`sentence_embedding` from the tokens, of length 1."""
        tokens, mask = clouds_of(features, include_prompt=self.include_prompt)
        pooling = self.repair.pooling
        ids = _token_ids(features, mask) if pooling.needs_ids else None
        keep, rows = mask.cpu().numpy(), tokens.detach().float().cpu().numpy()
        pooled = np.stack(
            [
                pooling.vector(row[own], None if ids is None else ids[k][own])
                for k, (row, own) in enumerate(zip(rows, keep, strict=True))
            ]
        )
        repaired = torch.from_numpy(self.repair.finish(pooled))
        features["sentence_embedding"] = repaired.to(tokens.device, tokens.dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """Size of the vectors."""
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """The repair as one file, beside the configuration."""
        self.save_config(output_path)
        self.repair.save(Path(output_path) / _FILE)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """From a folder or the hub."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {"subfolder": subfolder, **{name: kwargs[name] for name in names if name in kwargs}}
        file = cls.load_file_path(model_name_or_path, filename=_FILE, **where)
        if file is None:
            raise ModelError(f"{model_name_or_path}: its module {subfolder!r} has no {_FILE}. Download it again.")
        return cls(Repair.load(file), **cls.load_config(model_name_or_path, **where))


def repaired_sentence_transformer(model: Any, repair: Repair) -> Any:
    """A copy of a SentenceTransformer with the repair inside: its vectors are those of `repair.apply(model)`.

    `model` is made of Transformer, Pooling and at most Normalize. The copy is made of the library's own modules
    wherever the repair allows it (see the module); `needs_code(copy)` tells. Maximal length and prompt are those that
    the repair was proved with, the prompt for queries and documents alike, and `truncate_dim` that of the model.
    The model card that is saved with the copy has the repair in its title.
    """
    if repair.reading is not None:
        raise InputError(
            f"repair: received one that reads texts in another way ({repair.reading.label}), which no module of "
            f"sentence-transformers does; allowed: temperature, pooling and vectors. Use repair.apply(model)."
        )
    pooling = _pooling_of(model)
    first = _at_temperature(model, repair)[0]
    if _is_native(repair, pooling):
        modules = [first, *_pooling_modules(repair, first, pooling), *_vector_modules(repair, first)]
    else:
        modules = [first, _repair_module(repair, first, pooling)]
    if "max_length" in repair.options:
        first.max_seq_length = repair.options["max_length"]
    prompts, default = _prompts(model, repair)
    card = model.model_card_data
    name = f"{repair.model or card.model_name or card.base_model or 'a model'}, repaired by poolscope: {repair.label}"
    return SentenceTransformer(
        modules=modules,
        model_card_data=SentenceTransformerModelCardData(model_name=name, license=card.license, language=card.language),
        device=str(model.device),
        prompts=prompts,
        default_prompt_name=default,
        similarity_fn_name="cosine",
        truncate_dim=model.truncate_dim,
    )


def needs_code(model: Any) -> bool:
    """Does loading the saved model need `trust_remote_code=True`?"""
    return any(not type(module).__module__.startswith("sentence_transformers.") for module in model)


def _prompts(model: Any, repair: Repair) -> tuple[dict[str, str], str | None]:
    """The prompts of the copy and the name of its default: one prompt in every role where the repair chose one."""
    chosen = {name: repair.options[name] for name in PROMPT_CHOICES if name in repair.options}
    if not chosen:
        return dict(model.prompts), model.default_prompt_name
    prompt = resolve_prompt(as_encoder(model).card, EncoderOptions(**chosen))
    return dict.fromkeys((*ROLES, _PROMPT), prompt), _PROMPT


def _pooling_of(model: Any) -> Any:
    classes = [type(module).__name__ for module in model]
    if classes[1:2] != ["Pooling"] or classes[2:] not in ([], ["Normalize"]):
        raise ModelError(
            f"model: received a SentenceTransformer made of {', '.join(classes)}; allowed: Transformer, Pooling and at "
            f"most Normalize. Append a fitted vector repair to other models yourself: Normalize, Dense, Normalize."
        )
    return model[1]


def _at_temperature(model: Any, repair: Repair) -> Any:
    """A copy of the model: a constant in its weights, a rule kept with it."""
    rule = repair.temperature
    if rule is None or rule.neutral:
        return copy.deepcopy(model)
    if isinstance(rule, Constant):
        from poolscope.repairs.temperature.tempscale import bake

        return bake(model, rule)
    from poolscope.repairs.temperature.tempscale import keep_rule

    scaled = copy.deepcopy(model)
    keep_rule(scaled, rule)
    return scaled


def _is_native(repair: Repair, pooling: Any) -> bool:
    if repair.pooling is None or repair.pooling.name == LastTwoPooling.name:
        return True
    # Behind a prompt that is left out, the library's weights go on counting and ours start anew.
    shifted = repair.pooling.name == PositionPooling.name and not pooling.include_prompt
    return repair.pooling.name in NATIVE_POOLINGS and not shifted


def _pooling_modules(repair: Repair, first: Any, pooling: Any) -> list[Any]:
    if repair.pooling is None:
        return [copy.deepcopy(pooling)]
    size, name = first.get_embedding_dimension(), repair.pooling.name
    mode = "mean" if name == LastTwoPooling.name else NATIVE_POOLINGS[name]
    own = Pooling(size, pooling_mode=mode, include_prompt=pooling.include_prompt)
    if name != LastTwoPooling.name:
        return [own]
    depth = first.model.config.num_hidden_layers
    first.model.config.output_hidden_states = True
    return [WeightedLayerPooling(size, num_hidden_layers=depth, layer_start=depth - 1), own]


def _vector_modules(repair: Repair, first: Any) -> list[Any]:
    if repair.vectors is None:
        return [Normalize()]
    matrix, offset = (torch.from_numpy(part).to(first.model.dtype) for part in repair.vectors.affine())
    dense = Dense(*matrix.shape, activation_function=None, init_weight=matrix.T.contiguous(), init_bias=offset)
    return [Normalize(), dense, Normalize()]


def _repair_module(repair: Repair, first: Any, pooling: Any) -> RepairModule:
    """The temperature is in the first module already."""
    without = Repair(pooling=repair.pooling, vectors=repair.vectors, model=repair.model, evidence=repair.evidence)
    sample = np.random.default_rng(0).normal(size=(3, first.get_embedding_dimension()))
    size = without.finish(without.pooling.vector(sample, np.zeros(3, np.int32))[None]).shape[1]
    return RepairModule(without, embedding_dimension=size, include_prompt=pooling.include_prompt)


def _token_ids(features: dict[str, Any], mask: Any) -> Any:
    ids = features.get("input_ids")
    if ids is None or ids.shape != mask.shape:
        raise InputError(
            "the features hold no token ids in the shape of the tokens (texts without padding end to end?), and this "
            "pooling weighs tokens by them. Load the model with another attention implementation, such as sdpa."
        )
    return ids.cpu().numpy().astype(np.int32)
