"""Clouds of texts in a role, at a temperature: what every repair needs from a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.capabilities import (
    has,
    has_attention,
    longest_of,
    options_of,
    takes_tokens,
    token_counts,
    with_options,
)
from poolscope.errors import InputError
from poolscope.repairs.temperature.rules import TemperatureRule

PROMPT_CHOICES = ("prompt", "prompt_name", "role")  # of which at most one is made


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
    speaking = for_role(encoder, role)
    asked = None if tuple(layers) == (-1,) else list(layers)
    with _scaled(speaking, temperature, role):
        return speaking.encode(texts, layers=asked, progress=progress)


def token_counts_of(encoder: TokenEncoder, texts: Sequence[str], *, role: str | None) -> NDArray[np.int64]:
    """The tokens of each text as a rule of the length counts them: special ones and a prompt too."""
    return token_counts(for_role(encoder, role), texts)


def for_role(encoder: TokenEncoder, role: str | None) -> TokenEncoder:
    """The encoder for texts in a role: with the prompt that its model declares for it, and by the rule of that role
    where the model keeps a temperature rule. What the caller chose himself stays.
    """
    if role is None or not takes_tokens(encoder):
        return encoder
    options = options_of(encoder)
    if encoder.card.prompts and not _asks_for_prompt(options):
        options = replace(options, role=role)
    return with_options(encoder, options, role=options.role or role)


def with_choices(encoder: TokenEncoder, choices: Mapping[str, Any]) -> TokenEncoder:
    """The encoder with some choices where it has none of its own; what is fixed at loading (dtype) is left out."""
    if not choices or not has(encoder, "with_options"):
        return encoder
    options = options_of(encoder)
    lacking: dict[str, Any] = {"max_length": options.max_length or choices.get("max_length")}
    if not _asks_for_prompt(options):
        lacking |= {name: choices.get(name) for name in PROMPT_CHOICES}
    return with_options(encoder, replace(options, **lacking))


def in_batches(encoder: TokenEncoder, batch_size: int) -> TokenEncoder:
    """The encoder with batches of at most the padded tokens of so many texts of full length, where it makes batches."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
        raise InputError(f"batch_size: received {batch_size!r}; allowed: a whole number of texts, at least 1.")
    longest = longest_of(encoder)
    if not takes_tokens(encoder) or longest is None:
        return encoder
    return with_options(encoder, replace(options_of(encoder), batch_tokens=int(batch_size) * longest))


def unprompted(encoder: TokenEncoder) -> TokenEncoder:
    """The encoder without any prompt, cutting where its model declares: what it does is the model's doing alone."""
    if not has(encoder, "with_options"):
        return encoder
    options = replace(options_of(encoder), prompt="", prompt_name=None, role=None, max_length=None)
    # A model that keeps a rule for each role can be run in a role only, whatever the prompt: always the same one.
    return with_options(encoder, options, role="document")


def _asks_for_prompt(options: EncoderOptions) -> bool:
    return any(getattr(options, name) is not None for name in PROMPT_CHOICES)


def can_be_scaled(encoder: TokenEncoder) -> bool:
    """Is there an attention to scale: a transformer on torch?"""
    return has_attention(encoder)


def _scaled(encoder: TokenEncoder, temperature: TemperatureRule | None, role: str | None) -> Any:
    if temperature is None or temperature.neutral:
        return nullcontext()
    from poolscope.repairs.temperature.tempscale import tempscale

    return tempscale(encoder, temperature, role=role)
