"""Other ways to read a text with a decoder that was not trained to embed: twice, both ways, by its attention values.

In a decoder a token has not seen what follows it, so that a mean of its states knows the beginning of a text badly. A
reading changes what is pooled and leaves the weights alone. Each says what it costs: the tokens that the model reads,
beside those of the model as it is (`plan`), and the numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.batching import BatchPlan, Ids, TokenInputs
from poolscope.encoders.capabilities import both_ways, has, planner_of
from poolscope.encoders.decoders import is_causal
from poolscope.encoders.tokens import Tokens
from poolscope.errors import InputError
from poolscope.extensions import service
from poolscope.numbers.pooling import Fitted

Layers = Mapping[int, TokenClouds]

# A prompt after which the next word of a decoder sums up what stood before it (Jiang et al., 2024: PromptEOL).
BEFORE, AFTER = 'This text: "', '" means in one word: "'


class Reading(Fitted):
    """How a model reads texts, where that is not its own way; see the module."""

    def prepared(self, encoder: TokenEncoder) -> Self | None:
        """The reading for this model; None where it is not made for such a model (one that is no decoder on torch)."""
        return self if has(encoder, "both_ways") and is_causal(encoder) else None

    def plan(self, encoder: TokenEncoder, texts: Sequence[str]) -> BatchPlan:
        """The tokens that the model reads, and which of them are pooled."""
        return planner_of(encoder).plan(texts)

    def encode(
        self, encoder: TokenEncoder, texts: Sequence[str], *, layers: Sequence[int], progress: Progress | None = None
    ) -> Layers:
        """The clouds that are pooled, by layer (−1: the pooled one); without more, the states of what was planned."""
        plan = self.plan(encoder, texts)
        return planner_of(encoder).encode_plan(texts, plan, layers=list(layers), progress=progress)

    def tokens(self, encoder: TokenEncoder, texts: Sequence[str]) -> int:
        """How many tokens the model reads of these texts."""
        return int(self.plan(encoder, texts).tokens.lengths.sum())


class Echo(Reading):
    """The text twice, and its second copy pooled, every token of which has seen the whole text (Springer et al., 2024).

    Costs twice the tokens, and more than twice the attention. A text too long to stand twice in the positions of the
    model is cut to what can; the clouds count what was cut.
    """

    name: ClassVar[str] = "echo"

    def plan(self, encoder: TokenEncoder, texts: Sequence[str]) -> BatchPlan:
        """Prompt, text, the text again, and the tokenizer's suffix; pooling starts at the second text."""
        rows, skip, cut = [], [], []
        inputs, plan = TokenInputs(encoder), planner_of(encoder).plan(texts)
        for (before, row, after), lost in zip(_framed(inputs, plan), plan.tokens.cut.tolist(), strict=True):
            ids = row if inputs.positions is None else row[: max((inputs.positions - inputs.added) // 2, 0)]
            _refuse_nothing(ids, inputs)
            rows.append([*before, *ids, *ids, *after])
            skip.append(len(before) + len(ids))
            cut.append(lost + len(row) - len(ids))
        return replace(plan, tokens=Tokens.join(rows, cut), skip=np.array(skip, dtype=np.int64))


class BothWays(Reading):
    """A mask by which tokens see later ones too, as in an encoder, where the architecture takes one (LLM2Vec).

    Costs nothing. The weights were not trained for it. A decoder that takes no such mask is refused when it reads.
    """

    name: ClassVar[str] = "bidirectional"

    def encode(
        self, encoder: TokenEncoder, texts: Sequence[str], *, layers: Sequence[int], progress: Progress | None = None
    ) -> Layers:
        """States under that mask."""
        return both_ways(encoder).encode(texts, layers=list(layers), progress=progress)


class _Handed(Reading):
    """What attention hands on, over the layers from `low` to `high` of the depth."""

    part: ClassVar[str]

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        self.low = low
        self.high = high

    @property
    def label(self) -> str:
        """With the layers, unless it is all of them."""
        whole = (self.low, self.high) == (0.0, 1.0)
        return self.name if whole else f"{self.name}, layers {self.low:.0%} to {self.high:.0%}"

    def encode(
        self, encoder: TokenEncoder, texts: Sequence[str], *, layers: Sequence[int], progress: Progress | None = None
    ) -> Layers:
        """One layer, the pooled one: there is no other."""
        if set(layers) != {-1}:
            raise InputError(f"{self.name}: received layers {list(layers)}; it has one, -1, made of several.")
        plan, span = self.plan(encoder, texts), {"low": self.low, "high": self.high}
        return {-1: service("what attention hands on")(encoder, texts, plan, part=self.part, progress=progress, **span)}


class ValuePooling(_Handed):
    """The values of attention in place of hidden states, as a mean over layers (arXiv 2602.01572).

    A token is its values v = U W_V, of all key/value heads side by side: smaller than a state where heads share them.
    Costs no token more.
    """

    name: ClassVar[str] = "value pooling"
    part: ClassVar[str] = "values"


class AlignedValues(_Handed):
    """What attention adds to the last token, Σ_h A_h V_h W_O over layers, under a prompt that makes it sum up the text.

    The aligned form of value pooling (arXiv 2602.01572): one vector a text, in the space of the states. `before` and
    `after` stand around the text; their tokens are what it costs.
    """

    name: ClassVar[str] = "aligned values"
    part: ClassVar[str] = "branch"

    def __init__(self, low: float = 0.0, high: float = 1.0, before: str = BEFORE, after: str = AFTER) -> None:
        super().__init__(low, high)
        self.before = before
        self.after = after

    def plan(self, encoder: TokenEncoder, texts: Sequence[str]) -> BatchPlan:
        """The text between the halves of the prompt, without what the tokenizer puts behind a text; the last token."""
        inputs, plan = TokenInputs(encoder), planner_of(encoder).plan(texts)
        opening, closing = (inputs.content([words])[0].tolist() if words else [] for words in (self.before, self.after))
        rows, cut = [], []
        for (before, row, _), lost in zip(_framed(inputs, plan), plan.tokens.cut.tolist(), strict=True):
            room = None if inputs.positions is None else inputs.positions - len(before) - len(opening) - len(closing)
            ids = row if room is None else row[: max(room, 0)]
            _refuse_nothing(ids, inputs)
            rows.append([*before, *opening, *ids, *closing])
            cut.append(lost + len(row) - len(ids))
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return replace(plan, tokens=Tokens.join(rows, cut), skip=lengths - 1)


class AtLayer(Reading):
    """Another layer than the last one pooled: `layer` counts as `encode` does (0: embeddings, −2: the last but one).

    Which one finds best is what `poolscope layers --retrieval` answers; for any model with several layers.
    """

    name: ClassVar[str] = "layer"
    shown: ClassVar[str] = "{name} {layer}"

    def __init__(self, layer: int = -2) -> None:
        self.layer = layer

    def prepared(self, encoder: TokenEncoder) -> Self | None:
        """None for a model that has no such layer."""
        depth = encoder.card.layers
        return self if depth is not None and -depth - 1 <= self.layer <= depth else None

    def encode(
        self, encoder: TokenEncoder, texts: Sequence[str], *, layers: Sequence[int], progress: Progress | None = None
    ) -> Layers:
        """The clouds of that layer in place of those of the last one."""
        if set(layers) != {-1}:
            raise InputError(f"{self.label}: received layers {list(layers)}; it is one, which stands for -1.")
        return {-1: encoder.encode(texts, layers=[self.layer], progress=progress)[self.layer]}


def _framed(inputs: TokenInputs, plan: BatchPlan) -> list[tuple[list[int], list[int], list[int]]]:
    """Split the ids of every text into prefix, text and suffix."""
    lead, trail = inputs.frame
    rows = [row.tolist() for row in np.split(plan.tokens.ids, plan.tokens.offsets[1:-1])]
    behind = len(trail)
    return [(row[: len(lead)], row[len(lead) : len(row) - behind], row[len(row) - behind :]) for row in rows]


def _refuse_nothing(ids: Sequence[int] | Ids, inputs: TokenInputs) -> None:
    if not len(ids):
        raise InputError(
            f"{inputs.encoder.card.name}: beside its prompt and special tokens no token of a text is left within "
            f"{inputs.positions} positions. Leave this reading out."
        )


READINGS: dict[str, type[Reading]] = {
    kind.name: kind for kind in (Echo, BothWays, ValuePooling, AlignedValues, AtLayer)
}
