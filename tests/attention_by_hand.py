"""Attention at a temperature with a softmax written by hand, and what the tests of `tempscale` ask of a model."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from poolscope.encoders.capabilities import STATE
from poolscope.repairs import Steps
from poolscope.repairs.temperature.switch import PREFIX
from tiny_models import TEXTS

STEPS = Steps((5, 9), (1.3, 0.8, 0.5))
LOWEST = torch.finfo(torch.float32).min


class HandSoftmax(TorchFunctionMode):
    """Replaces the softmax of eager attention by exp(s/τ)/Σ exp(s/τ) over what is not masked, in float64."""

    def __init__(self, temperatures):
        super().__init__()
        self.temperatures = torch.tensor(temperatures, dtype=torch.float64)[:, None, None, None]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in (functional.softmax, torch.softmax) or args[0].ndim != 4:
            return func(*args, **kwargs)
        scores = args[0].double()
        seen = scores > -1e4
        seen |= ~seen.any(dim=-1, keepdim=True)  # where all is masked, nothing is
        scores = (scores - scores.masked_fill(~seen, -np.inf).amax(dim=-1, keepdim=True)) / self.temperatures
        weights = torch.where(seen, scores.exp(), 0.0)
        return (weights / weights.sum(dim=-1, keepdim=True)).to(kwargs.get("dtype") or args[0].dtype)


@contextmanager
def implementation(model, name):
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


def batch(tokenizer, side="right", texts=TEXTS):
    return tokenizer(list(texts), padding=True, padding_side=side, return_tensors="pt")


@contextmanager
def threads(number):
    """So many threads for torch: a second one on tiny tensors mostly waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.inference_mode()
def run(model, inputs):
    return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


@torch.inference_mode()
def by_hand(model, inputs, rule):
    temperatures = [rule(int(n)) for n in inputs["attention_mask"].sum(dim=1)]
    with implementation(model, "eager"), HandSoftmax(temperatures):
        return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


def untouched(model):
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    states = [m for m in model.modules() if STATE in vars(m)]
    return hooks == 0 and not states and not model.config._attn_implementation.startswith(PREFIX)


def matrix(clouds):
    return np.concatenate(list(clouds))
