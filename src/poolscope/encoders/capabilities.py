"""What an encoder can do beside `card` and `encode`, asked for by name and never by its class.

A capability is an attribute that is there and not None. Each has one row in `CAPABILITIES`, from which the one error
about a missing one is made. An encoder from outside has a capability as soon as it has the attribute.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, TokenEncoder, model_identity
from poolscope.encoders.tokens import Tokens, Vocabulary
from poolscope.errors import InputError, ModelError, PoolscopeError, did_you_mean

if TYPE_CHECKING:
    from poolscope.encoders.batching import Batch, BatchPlan, Forward
    from poolscope.encoders.pooling import Step


_TRANSFORMER = "a transformer: a hub name, a folder, builtin:minilm, a SentenceTransformer, (model, tokenizer)"
# Attribute: (what is said of a model without it, which models have it).
CAPABILITIES: dict[str, tuple[str, str]] = {
    "with_options": ("cannot be given other options", f"{_TRANSFORMER}, an ONNX file or a static table"),
    "tokenize": ("has no tokenizer that poolscope could count with", f"{_TRANSFORMER}, an ONNX file or a static table"),
    "plan": ("takes no tokens", f"{_TRANSFORMER}, or an ONNX file"),
    "attention": (
        "has no attention that can be watched or scaled",
        f"{_TRANSFORMER}, on torch; or an ONNX export with named weights",
    ),
    "unembedding": (
        "has no table that scores the next word",
        "a decoder with its output words: a folder or hub name whose table is tied or in its weights, or a pair "
        "(model with its head, tokenizer)",
    ),
    "both_ways": ("cannot be told which tokens see which", f"{_TRANSFORMER}, on torch"),
    "spec": (
        "cannot be opened again in another process",
        "a model that was opened by name: a hub name, a folder or file, builtin:minilm",
    ),
}


class Tokenizing(TokenEncoder, Protocol):
    """An encoder whose tokens can be counted without running it. `tokenize` does not put the prompt before texts."""

    options: EncoderOptions
    prompt: str
    max_length: int | None
    vocabulary: Vocabulary

    def tokenize(self, texts: Sequence[str], max_length: int | None, /) -> Tokens:
        """The tokens of texts, cut at `max_length` (None: whole)."""
        ...


class Planning(Tokenizing, Protocol):
    """An encoder that runs batches of tokens."""

    def plan(self, texts: Sequence[str]) -> BatchPlan:
        """The texts with their prompt, tokenised and cut into batches."""
        ...

    def workers(self, numbers: Sequence[int], batches: int = 1) -> AbstractContextManager[Sequence[Forward]]:
        """Functions from a batch to the token rows of the layers `numbers`, to be called from a thread each."""
        ...

    def encode_plan(
        self,
        texts: Sequence[str],
        plan: BatchPlan,
        *,
        layers: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> dict[int, TokenClouds]:
        """Clouds of texts whose tokens were planned otherwise than `plan` does."""
        ...


@dataclass(frozen=True)
class EncoderSpec:
    """What opens an encoder again, in another process too: a name and options, never a pickled model.

    `path` is where a file or folder lies, whatever folder the other process works in; `role` the role in which the
    model runs, if that is not among the options. `card` is what the model said about itself
    when the specification was taken; a model that has changed since, or whose attention was scaled in this process
    only, is refused by `open`.

    >>> EncoderSpec.from_dict(EncoderSpec("builtin:minilm", EncoderOptions(max_length=64)).to_dict()).options.max_length
    64
    """

    name: str
    options: EncoderOptions = field(default_factory=EncoderOptions)
    path: str | None = None
    role: str | None = None
    card: Mapping[str, Any] | None = None

    def open(self) -> TokenEncoder:
        """The encoder."""
        from poolscope.encoders.door import open_name

        encoder = open_name(self.name, self.options, path=self.path)
        if self.role is not None:
            encoder = with_options(encoder, self.options, role=self.role)
        stored, opened = self.card, encoder.card.to_dict()
        if stored is not None and model_identity(stored) != model_identity(opened):
            changed = [key for key in opened if stored.get(key) != opened[key]]
            first = changed[0]
            raise ModelError(
                f"{self.name}: opened again it is another model, with another {', '.join(changed)} ({first}: "
                f"{stored.get(first)!r}, now {opened[first]!r}); needed: the model as it was when it was named. Do not "
                f"change its files meanwhile, and save an attention temperature in its folder first."
            )
        return encoder

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """What `to_dict` wrote."""
        return cls(**{**content, "options": EncoderOptions(**content["options"])})


def has(encoder: Any, capability: str) -> bool:
    """Has an encoder this capability, one of `CAPABILITIES`?"""
    if capability not in CAPABILITIES:
        raise InputError(
            f"capability: received {capability!r}; allowed: {', '.join(CAPABILITIES)}."
            f"{did_you_mean(capability, CAPABILITIES)}"
        )
    return getattr(encoder, capability, None) is not None


def require_capability(encoder: TokenEncoder, capability: str) -> Any:
    """Return the attribute, or raise the ModelError that names the missing capability and models that have it."""
    if has(encoder, capability):
        return getattr(encoder, capability)
    lacks, needed = CAPABILITIES[capability]
    reason = getattr(encoder, "lacking", "") if capability == "attention" else ""
    raise ModelError(
        f"{encoder.card.name}: received a model of kind '{encoder.card.kind}', which {lacks}; needed: {needed}."
        f"{' ' if reason else ''}{reason}"
    )


# -- one function a question ------------------------------------------------------------------------------------------


def is_encoder(candidate: Any) -> bool:
    """Is it an encoder at all: has it a `card` and `encode`?"""
    return isinstance(candidate, TokenEncoder)


def can_encode(encoder: TokenEncoder) -> bool:
    """Can other texts be encoded? Ready clouds (`ready_clouds`) are only handed out."""
    return getattr(encoder, "ready_clouds", None) is None


def options_of(encoder: TokenEncoder) -> EncoderOptions:
    """The caller's choices that an encoder was opened with; none where it takes none."""
    options = getattr(encoder, "options", None)
    return options if isinstance(options, EncoderOptions) else EncoderOptions()


def with_options(encoder: TokenEncoder, options: EncoderOptions, *, role: str | None = None) -> TokenEncoder:
    """The same model with other options, nothing loaded anew; `role` is what the texts are, where options do not say.

    What is fixed when a model is loaded (dtype, device, revision) cannot be changed in this way. A Router has a model
    for every role (`in_route`): another role is another model.
    """
    routes = getattr(encoder, "routes", None)
    wanted = role or options.role
    if routes is not None and wanted not in (None, routes[0]):
        encoder = routes[1](wanted)
        routes = encoder.routes  # type: ignore[attr-defined]
    other: TokenEncoder = require_capability(encoder, "with_options")(options, role=role)
    if routes is not None:
        other.routes = routes  # type: ignore[attr-defined]
    return other


def in_route(encoder: TokenEncoder, role: str, route: Callable[[str], TokenEncoder]) -> TokenEncoder:
    """The encoder of one route of a Router, which knows its role and how the model of another role is had."""
    encoder.routes = role, route  # type: ignore[attr-defined]
    return encoder


def tokenizer_of(encoder: TokenEncoder) -> Tokenizing:
    """The encoder itself, as one that counts tokens."""
    require_capability(encoder, "tokenize")
    return encoder  # type: ignore[return-value]


def longest_of(encoder: TokenEncoder) -> int | None:
    """The length in tokens at which an encoder cuts texts: the caller's choice, else the model's; None: no cut."""
    longest: int | None = getattr(encoder, "max_length", encoder.card.max_length)
    return longest


def vocabulary_of(encoder: TokenEncoder) -> Vocabulary | None:
    """The names of its tokens, None where it has none."""
    vocabulary = getattr(encoder, "vocabulary", None)
    return vocabulary if isinstance(vocabulary, Vocabulary) else None


def takes_tokens(encoder: TokenEncoder) -> bool:
    """Can it be given token ids instead of texts (`poolscope.encoders.batching.TokenInputs`)?"""
    return has(encoder, "plan")


def planner_of(encoder: TokenEncoder) -> Planning:
    """The encoder itself, as one that runs batches of tokens."""
    require_capability(encoder, "plan")
    return encoder  # type: ignore[return-value]


def last_layer(encoder: TokenEncoder, batch: Batch) -> NDArray[Any]:
    """The token rows of the last layer for one batch."""
    with planner_of(encoder).workers([encoder.card.last]) as workers:
        return workers[0](batch)[encoder.card.last]


def token_counts(encoder: TokenEncoder, texts: Sequence[str]) -> NDArray[np.int64]:
    """How many tokens the model reads of each text, the prompt and special tokens included and the rest cut off."""
    return planner_of(encoder).plan(texts).tokens.lengths


def has_attention(encoder: TokenEncoder) -> bool:
    """Is it a transformer on torch, whose attention can be watched and scaled?"""
    return has(encoder, "attention")


def attention_of(encoder: TokenEncoder) -> Sequence[Any]:
    """The torch models of a transformer, one copy a device."""
    models: Sequence[Any] = require_capability(encoder, "attention")
    return models


def word_table(encoder: TokenEncoder) -> NDArray[np.float32]:
    """The input word embeddings of a transformer on torch (vocabulary × d)."""
    return input_table(attention_of(encoder)[0])


def input_table(model: Any) -> NDArray[np.float32]:
    """The input word embeddings of a torch model (vocabulary × d)."""
    return as_numpy(model.get_input_embeddings().weight, "float32")


def as_numpy(tensor: Any, dtype: str | None = None) -> NDArray[Any]:
    """A tensor of torch as an array: of that precision, or of its own (bfloat16, which numpy lacks, as float32)."""
    import torch

    own_dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    array: NDArray[Any] = tensor.detach().to(own_dtype if dtype is None else getattr(torch, dtype)).cpu().numpy()
    return array


def unembedding_of(encoder: TokenEncoder) -> NDArray[np.float32]:
    """The table of a decoder that scores the next word (vocabulary × d)."""
    table: NDArray[np.float32] = require_capability(encoder, "unembedding")()
    return table


def both_ways(encoder: TokenEncoder) -> TokenEncoder:
    """The decoder with attention both ways; refused where a mask cannot give it."""
    other: TokenEncoder = require_capability(encoder, "both_ways")()
    return other


def spec_of(encoder: TokenEncoder) -> EncoderSpec:
    """The specification by which another process opens the encoder, with the card of now."""
    spec: EncoderSpec = require_capability(encoder, "spec")
    return replace(spec, card=encoder.card.to_dict())


def steps_after(encoder: TokenEncoder) -> tuple[Step, ...] | None:
    """The modules between its pooling and its final vector; None where they cannot be read."""
    after = [module for module in encoder.card.after if module != "Normalize"]
    finishing = getattr(encoder, "finishing", None)
    if not after or finishing is None:
        return None if after else ()
    try:
        steps: tuple[Step, ...] = finishing()
    except PoolscopeError:
        return None
    return steps


def pooler_step(encoder: TokenEncoder) -> Step | None:
    """The pooler that BERT brings for its first token; None where the model has none, or is not on torch."""
    if encoder.card.kind != "transformers" or not has(encoder, "attention"):  # a graph would be rebuilt on torch first
        return None
    from poolscope.encoders.pooling import pooler_of

    return pooler_of(encoder.attention[0])  # type: ignore[attr-defined]


# -- the attention temperature that a loaded model runs at: set by the repairs, read where a model is named -----------

# The attribute of an attention module that holds its temperature. On the module and not in a table: so a copy of the
# model keeps it, and every thread that runs the model sees it.
STATE = "_poolscope_temperature"
CONFIG_KEY = "tempscale"  # under which the configuration of a model keeps a rule

# Where the function stands that runs a model by such a rule. It belongs to the repairs, a later stage, and is looked up
# by name when a model keeps a rule: nothing else here knows how a rule is applied. `tests/test_layout.py` lists it.
APPLIES_RULE = "poolscope.repairs.temperature.tempscale:apply_saved"

_local = threading.local()


@contextmanager
def in_role(role: str | None) -> Iterator[None]:
    """Passes of this thread are for queries or for documents, which may have temperatures of their own."""
    before = current_role()
    _local.role = role
    try:
        yield
    finally:
        _local.role = before


def current_role() -> str | None:
    """The role of the passes of this thread, None if nobody has said."""
    return getattr(_local, "role", None)


def apply_kept_rule(model: Any) -> None:
    """Run a loaded model from now on by the rule that its configuration keeps, if it keeps one."""
    if getattr(model.config, CONFIG_KEY, None) is not None:
        module, _, name = APPLIES_RULE.partition(":")
        getattr(importlib.import_module(module), name)(model)


def active_rule(model: Any) -> Any | None:
    """The rule at which a model runs just now, None for the model as it is."""
    states = (vars(module).get(STATE) for module in model.modules())
    return next((state.rule for state in states if state is not None), None)


def with_temperature(card: ModelCard, model: Any, *, role: str | None) -> ModelCard:
    """The card of a model as it runs just now: a model at another temperature is another model.

    A rule that cannot be written down (a function) leaves the model without a revision, so that nobody takes its
    clouds for those of another.
    """
    rule = active_rule(model)
    rule = rule.for_role(role) if rule is not None and role is not None else rule
    if rule is None or rule.neutral:
        return card
    if not rule.named:
        return replace(card, temperature={"kind": rule.kind}, revision=None)
    return replace(card, temperature=rule.to_dict())
