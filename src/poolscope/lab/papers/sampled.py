"""Texts as distributions of their vectors (Sen2Pro, Shen et al., 2023): by draws of dropout, and by changed texts.

SOCM looks at how the tokens of a text lie about their mean. Sen2Pro looks at how the vector of the text itself lies
when the model, or the text, is disturbed. Both are clouds, so that the same measures apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import TokenEncoder
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import InputError, require
from poolscope.lab.papers.cell import Kind, Material, Outcome, Row
from poolscope.lab.papers.common import texts_of
from poolscope.lab.papers.gradients import means_of_tokens, tokens_with_gradients
from poolscope.lab.papers.quality import spearman
from poolscope.metrics.socm.measure import socm
from poolscope.numbers.intervals import mean_estimate
from poolscope.numbers.moments import text_moments
from poolscope.numbers.pooling import MeanPooling
from poolscope.stores.cache import cached_clouds

PASSES = 20  # vectors that are drawn of a text
_BATCH = 16
_LEFT_OUT = 0.1  # of the words of a changed text


def dropout_clouds(encoder: TokenEncoder, texts: Sequence[str], *, passes: int = PASSES, seed: int = 0) -> TokenClouds:
    """The mean vectors of every text under `passes` draws of the model's own dropout: one row a pass.

    The model itself is as it was afterwards.
    """
    torch = require("torch", "torch")
    network = attention_of(encoder)[0]
    rows: list[list[Any]] = [[] for _ in texts]
    with _dropping_out(network, encoder.card.name), torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            for _ in range(passes):
                vectors = means_of_tokens(*tokens_with_gradients(encoder, batch)).double().cpu().numpy()
                for own, vector in zip(rows[start:], vectors, strict=False):
                    own.append(vector)
    return TokenClouds.from_arrays([np.array(own) for own in rows])


@contextmanager
def _dropping_out(network: Any, name: str) -> Iterator[None]:
    """The network with its dropout at work, as in training."""
    torch = require("torch", "torch")
    modules = list(network.modules())
    if not any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in modules):
        raise InputError(
            f"{name}: it has no dropout, so its vectors do not vary. Name a model that was trained with it."
        )
    before = [module.training for module in modules]
    network.train()
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def changed_clouds(encoder: TokenEncoder, texts: Sequence[str], *, passes: int = PASSES, seed: int = 0) -> TokenClouds:
    """The mean vectors of every text with a tenth of its words left out at random, `passes` times."""
    random = np.random.default_rng(seed)
    rows: list[list[Any]] = [[] for _ in texts]
    for _ in range(passes):
        changed = [" ".join(_some(text.split(), random)) or text for text in texts]
        for own, vector in zip(rows, MeanPooling().transform(encoder.encode(changed)[-1]), strict=True):
            own.append(vector)
    return TokenClouds.from_arrays([np.array(own) for own in rows])


def _some(words: Sequence[str], random: np.random.Generator) -> list[str]:
    left_out = random.permutation(len(words))[: round(_LEFT_OUT * len(words))]
    return [word for place, word in enumerate(words) if place not in left_out]


def texts_as_distributions(material: Material) -> Outcome:
    """SOCM and trace of the clouds of sampled vectors, and whether they put texts in the order of their tokens."""
    texts = texts_of(material)
    tokens = cached_clouds(material.model(), texts, options=material.options, enabled=material.cache)
    i, j = np.triu_indices(len(texts), 1)
    drawn = np.random.default_rng(material.seed).permutation(len(i))[:2_000]
    pairs = np.column_stack([i[drawn], j[drawn]])
    beside, traces = socm(tokens, pairs=pairs), text_moments(tokens).traces
    rows: list[Row] = [{"samples": "tokens", "socm": beside.estimate, "trace": mean_estimate(traces)}]
    notes: list[str] = []
    for name, sample in {"draws of dropout": dropout_clouds, "words left out": changed_clouds}.items():
        try:
            clouds = sample(material.model(), texts.texts, seed=material.seed)
        except InputError as error:
            notes.append(str(error))
            continue
        found, own = socm(clouds, pairs=pairs), text_moments(clouds).traces
        row: Row = {"samples": name, "socm": found.estimate, "trace": mean_estimate(own)}
        row["trace_order_as_tokens"] = spearman(own, traces)
        if found.pairs is not None and beside.pairs is not None:
            row["socm_order_as_tokens"] = spearman(found.pairs.socm, beside.pairs.socm)
        rows.append({**row, "passes": PASSES, "texts": len(texts)})
    return Outcome(rows, notes=tuple(notes))


KINDS: dict[str, Kind] = {"distributions": texts_as_distributions}
