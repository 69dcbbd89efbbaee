"""Which norms a transformer has and where: before or after the residual sum, LayerNorm or RMSNorm, gains and biases.

`norm_layout` finds them, and `replaced_norms` puts other gains and biases into them while a body runs.

Everything is found by watching one short pass. A layer is post-norm if what it passes on is what a norm gave; then all
its norms are *post* but one that takes the layer's input. A norm that takes the output of a projection inside the
layer is *branch*, or *query/key* before the attention; any other is *pre*. Kind, gain and bias are measured by calling
the norm itself, so it does not matter how its weights are stored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import as_numpy, attention_of
from poolscope.encoders.sites import Call, Trace, equal, find_blocks, trace
from poolscope.errors import InputError, ModelError
from poolscope.results import Result, bulk, origin, plain, provenance

Array = NDArray[np.float64]

EMBEDDINGS, PRE, POST, BRANCH, QUERY_KEY, FINAL = "embeddings", "pre", "post", "branch", "query/key", "final"
_LAYOUTS = {
    frozenset({PRE}): "pre-norm",
    frozenset({BRANCH}): "branch-norm",
    frozenset({PRE, BRANCH}): "sandwich-norm",
    frozenset(): "no norm",
}


@dataclass(frozen=True, kw_only=True)
class Norm:
    """One norm, y = gain ⊙ normalised(x) + bias.

    `role`: where it stands (see the module); `layers`: the layers that call it (0: the embeddings; several if shared);
    `kind`: "LayerNorm" (centres and scales), "RMSNorm" (scales only) or "affine" (neither). The measured `gain` (d) and
    `bias` (d; zero where there is none).
    """

    name: str
    role: str
    layers: tuple[int, ...]
    kind: str
    gain: Array = bulk(required=True)
    bias: Array = bulk(required=True)

    def derived(self) -> dict[str, Any]:
        """Size, and mean, standard deviation and range of gain and bias."""
        numbers = {
            f"{part}_{name}": float(statistic(values))
            for part, values in (("gain", self.gain), ("bias", self.bias))
            for name, statistic in (("mean", np.mean), ("std", np.std), ("min", np.min), ("max", np.max))
        }
        return {"size": len(self.gain), **numbers}


@dataclass(frozen=True, repr=False)
class NormLayout(Result):
    """The norms of a model in the order of their first call, and the layout of its layers in one word.

    `layout` is "post-norm", "pre-norm", "sandwich-norm" (before a branch and after it), "branch-norm" (after it only),
    "no norm", or "mixed" where the layers differ.
    """

    model: str
    layout: str
    norms: tuple[Norm, ...]
    provenance: Mapping[str, Any] = origin()

    def __str__(self) -> str:
        kinds = Counter(norm.kind for norm in self.norms)
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
        final = "" if any(norm.role == FINAL for norm in self.norms) else ", no final norm"
        return f"{self.layout} ({counted}{final})"

    def in_words(self) -> tuple[str, ...]:
        """The layout, and what it is made of."""
        return (f"The layers are {self}.",)

    def rows(self) -> list[dict[str, Any]]:
        """One row a norm: place and kind, and mean, standard deviation and range of gain and bias."""
        return [plain(norm) for norm in self.norms]


def norm_layout(model: Any, **options: Any) -> NormLayout:
    """Where a transformer normalises: before its branches, after the residual sum, or both.

    Parameters
    ----------
    model
        Whatever `as_encoder` takes, and runs on torch.
    **options
        Those of `as_encoder`.

    Returns
    -------
    NormLayout
        The norms of every layer, and the name of their order ("post-norm", "pre-norm", …).

    Examples
    --------
    >>> norm_layout("builtin:minilm").layout
    'post-norm'

    """
    encoder = as_encoder(model, **options)
    network = attention_of(encoder)[0]
    seen = trace(encoder)
    around = zip(find_blocks(seen, network), seen.attentions, strict=True)
    blocks = [(block, attention.moment) for block, attention in around if block is not None]
    if not blocks:
        raise ModelError(
            f"{encoder.card.name}: no layers were found in it; needed: attention in a list of blocks, as transformers "
            f"has. Look at its modules by hand."
        )
    names = {id(module): name for name, module in network.named_modules()}
    calls: dict[int, list[Call]] = {}
    for call in seen.calls:
        if is_norm(call.module) and call.input is not None:
            calls.setdefault(id(call.module), []).append(call)
    norms = []
    for module, same in calls.items():
        places = [_place(call, blocks, seen) for call in same]
        layers = tuple(sorted({layer for _, layer in places}))
        kind, gain, bias = probe(same[0].module, like=same[0].input)
        norms.append(Norm(name=names[module], role=places[0][0], layers=layers, kind=kind, gain=gain, bias=bias))
    card, layout = encoder.card, _layout(norms, len(blocks))
    about = {**provenance(settings={}), "model": card.to_dict()}
    return NormLayout(card.name, layout, tuple(norms), provenance=about)


def is_norm(module: Any) -> bool:
    """Whether a module is a norm: named so, without parts, with one gain for each dimension or none."""
    weight = getattr(module, "weight", None)
    named = "norm" in type(module).__name__.lower()
    return named and not list(module.children()) and (weight is None or weight.ndim == 1)


def probe(module: Any, *, like: Any) -> tuple[str, Array, Array]:
    """Kind, gain and bias of a norm, from what it does to a vector of ones and minus ones and to its negative.

    like: a tensor that the norm takes; its last axis is the size of the norm.
    """
    import torch

    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=like.shape[-1])
    signs[:2] = 1.0, -1.0  # never all the same, so that centring leaves something

    def run(vector: Array) -> Array:
        # A batch of one text with one token: some norms count on three axes.
        rows = torch.as_tensor(vector, dtype=like.dtype, device=like.device).reshape(1, 1, -1)
        with torch.inference_mode():
            return as_numpy(module(rows), "float64").reshape(-1)

    base = run(signs)
    tolerance = 0.05 * float(np.abs(base).max())  # kinds differ by more than the values themselves, rounding by less
    if np.abs(run(4 * signs) - base).max() > tolerance:
        kind, normalised = "affine", signs
    elif np.abs(run(signs + 2) - base).max() <= tolerance:
        kind, normalised = "LayerNorm", (signs - signs.mean()) / signs.std()
    else:
        kind, normalised = "RMSNorm", signs
    opposite = run(-signs)
    return kind, (base - opposite) / (2 * normalised), (base + opposite) / 2


def _place(call: Call, blocks: list[tuple[Call, int]], passed: Trace) -> tuple[str, int]:
    """The role of a norm, and the layer it belongs to (0: before the layers; the last one for a final norm)."""
    for number, (block, moment) in enumerate(blocks, start=1):
        if not block.spans(call.start):
            continue
        inside = [other for other in passed.calls if block.spans(other.start)]
        projected = any(_projects(other) and _same(other.output, call.input, passed) for other in inside)
        if call.end < moment and (projected or call.input.shape[-1] != block.output.shape[-1]):
            return QUERY_KEY, number
        if projected:
            return BRANCH, number
        normed = any(is_norm(other.module) and _same(other.output, block.output, passed) for other in inside)
        return (POST if normed and not _same(call.input, block.input, passed) else PRE), number
    return (EMBEDDINGS, 0) if call.start < blocks[0][0].start else (FINAL, len(blocks))


def _projects(call: Call) -> bool:
    weight = getattr(call.module, "weight", None)
    return weight is not None and weight.ndim == 2


def _same(left: Any, right: Any, passed: Trace) -> bool:
    return left is not None and right is not None and left.shape == right.shape and equal(left, right, passed.mask)


def _layout(norms: list[Norm], depth: int) -> str:
    words = set()
    for layer in range(1, depth + 1):
        roles = {norm.role for norm in norms if layer in norm.layers} - {QUERY_KEY, FINAL, EMBEDDINGS}
        words.add("post-norm" if POST in roles else _LAYOUTS[frozenset(roles)])
    return words.pop() if len(words) == 1 else "mixed"


# -- other gains and biases --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """What to put in place of gains and biases, or of the norms themselves.

    `gain`: None (as it is), "mean" (of each norm), "one", or a number: how much of each gain's deviation from the mean
    is left (0 is "mean", 1 as it is, 2 doubles it). `bias`: None or "zero". `removed`: the norms do nothing at all.
    """

    gain: str | float | None = None
    bias: str | None = None
    removed: bool = False

    def __post_init__(self) -> None:
        swept = isinstance(self.gain, int | float) and not isinstance(self.gain, bool) and math.isfinite(self.gain)
        changed = self.gain is not None or self.bias is not None
        if not (swept or self.gain in (None, "mean", "one")) or self.bias not in (None, "zero"):
            raise InputError(
                f"received gain={self.gain!r}, bias={self.bias!r}; allowed: gain None, 'mean', 'one' or a number, bias "
                f"None or 'zero'."
            )
        if self.removed and changed:
            raise InputError("received a gain or a bias for norms that are removed. Leave one of the two out.")

    def __str__(self) -> str:
        if self.removed:
            return "removed"
        gain = f"{self.gain:g} of its deviation" if isinstance(self.gain, int | float) else self.gain
        parts = [f"{name} → {value}" for name, value in (("gain", gain), ("bias", self.bias)) if value]
        return ", ".join(parts) or "as it is"


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(),
    Replacement(bias="zero"),
    Replacement(gain="mean"),
    Replacement(gain="mean", bias="zero"),
    Replacement(gain="one", bias="zero"),
)


@contextmanager
def replaced_norms(networks: Sequence[Any], layout: NormLayout, replacement: Replacement) -> Iterator[None]:
    """Put other gains and biases into the norms of torch models (copies of one) while the body runs."""
    import torch

    originals: list[tuple[Any, Any]] = []

    silenced: list[Any] = []

    def put(parameter: Any, value: Any) -> None:
        originals.append((parameter, parameter.detach().clone()))
        parameter.copy_(torch.as_tensor(value).expand_as(parameter))

    try:
        with torch.no_grad():
            for network, norm in product(networks, layout.norms):
                module = network.get_submodule(norm.name)
                weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
                if norm.role == QUERY_KEY:
                    continue
                if replacement.removed:
                    module.forward = _as_it_came
                    silenced.append(module)
                    continue
                if isinstance(replacement.gain, int | float) and weight is not None:
                    put(weight, weight.mean() + replacement.gain * (weight - weight.mean()))
                elif replacement.gain is not None and weight is not None:
                    # Some norms store the gain less one; the difference of the means tells, and is 0 or 1.
                    offset = round(float(norm.gain.mean()) - float(weight.double().mean()))
                    put(weight, (float(norm.gain.mean()) if replacement.gain == "mean" else 1.0) - offset)
                if replacement.bias is not None and bias is not None:
                    put(bias, 0.0)
        yield
    finally:
        for module in silenced:
            module.__dict__.pop("forward", None)
        with torch.no_grad():
            for parameter, value in reversed(originals):
                parameter.copy_(value)


def _as_it_came(hidden: Any, *given: Any, **named: Any) -> Any:
    """What a norm that is removed gives out."""
    return hidden
