"""Clouds of texts in a role, at a temperature: what every repair needs from a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from typing import Any

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.batching import BatchedEncoder
from poolscope.encoders.static import StaticEncoder
from poolscope.encoders.torch_backend import TorchBackend
from poolscope.repairs.temperature_rules import TemperatureRule


def encode_side(
    encoder: TokenEncoder,
    texts: Sequence[str],
    *,
    role: str | None = None,
    temperature: TemperatureRule | None = None,
    layers: Sequence[int] = (-1,),
    progress: Progress | None = None,
) -> Mapping[int, TokenClouds]:
    """The clouds of the texts by layer, with the model's prompt for the role and its attention scaled."""
    speaking = prompted(encoder, role)
    asked = None if tuple(layers) == (-1,) else list(layers)
    with _scaled(speaking, temperature, role):
        return speaking.encode(texts, layers=asked, progress=progress)


def prompted(encoder: TokenEncoder, role: str | None) -> TokenEncoder:
    """The encoder with the prompt that its model declares for a role; what the caller chose himself stays."""
    if role is None or not isinstance(encoder, BatchedEncoder) or not encoder.card.prompts:
        return encoder
    options = encoder.options
    if (options.prompt, options.prompt_name, options.role) != (None, None, None):
        return encoder
    return _with_options(encoder, replace(options, role=role))


def unprompted(encoder: TokenEncoder) -> TokenEncoder:
    """The encoder without any prompt, cutting where its model declares: what it does is the model's doing alone."""
    if isinstance(encoder, StaticEncoder):
        bare = copy(encoder)
        bare.prompt, bare.max_length = "", encoder.card.max_length
        return bare
    if not isinstance(encoder, BatchedEncoder):
        return encoder
    return _with_options(encoder, replace(encoder.options, prompt="", prompt_name=None, role=None, max_length=None))


def _with_options(encoder: BatchedEncoder, options: EncoderOptions) -> BatchedEncoder:
    return BatchedEncoder(
        encoder.card, options, backend=encoder.backend, tokenize=encoder.tokenize, vocabulary=encoder.vocabulary
    )


def can_be_scaled(encoder: TokenEncoder) -> bool:
    """Is there an attention to scale: a transformer on torch?"""
    return isinstance(encoder, BatchedEncoder) and isinstance(encoder.backend, TorchBackend)


def _scaled(encoder: TokenEncoder, temperature: TemperatureRule | None, role: str | None) -> Any:
    if temperature is None or temperature.neutral:
        return nullcontext()
    from poolscope.repairs.tempscale import tempscale

    return tempscale(encoder, temperature, role=role)
