"""The contract of an encoder, the card of a model, the options of a caller; and encoders without a model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError, did_you_mean, shorten
from poolscope.texts import as_texts
from poolscope.words import say

ROLES = ("query", "document")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8")
# Families of devices of torch and of its extensions. Whether one is here is asked when it is needed.
_FAMILIES = "cpu|cuda|mps|xpu|hpu|npu|xla|mtia|maia|mlu|musa|gcu|ipu|privateuseone"
_DEVICES = re.compile(rf"\s*(?:{_FAMILIES})(?::\d+)?\s*(?:,\s*(?:{_FAMILIES})(?::\d+)?\s*)*")

# The names under which models declare the prompt of a role, in the order sentence-transformers looks for them.
_ROLE_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}

# What the card of a late-interaction model has in place of a pooling: it keeps its tokens, and scores by MaxSim.
KEEPS_TOKENS = "maxsim"

# Called after every batch with the number of texts and tokens just encoded.
Progress = Callable[[int, int], None]
_EVERY = 0.25  # seconds between two states of the line
_SELDOM = 5.0  # and between two lines where nobody knows how many texts there will be


def as_progress(progress: bool | Progress | None, total: int | None = None) -> Progress | None:
    """The function to call after every batch: the caller's, or for True one that updates a line on standard error.

    Where `total` is not known, because texts are encoded several times, lines say now and then how many were.
    """
    if not isinstance(progress, bool):
        return progress
    return _shown(total) if progress else None


def _shown(total: int | None) -> Progress:
    """How many texts are done and how fast: a line every few seconds; of a known total one line, written over."""
    began, every = time.perf_counter(), _SELDOM if total is None else _EVERY
    shown, texts, tokens = 0.0 if total is not None else time.perf_counter(), 0, 0

    def advance(more_texts: int, more_tokens: int) -> None:
        nonlocal shown, texts, tokens
        texts, tokens, now = texts + more_texts, tokens + more_tokens, time.perf_counter()
        if now - shown < every and (total is None or texts < total):
            return
        shown, seconds = now, now - began
        speed = f"{tokens / seconds:,.0f} tokens/s"
        if total is None:
            say(f"encoded {texts:,} texts · {speed}")
            return
        left = seconds * (total - texts) / max(texts, 1)
        bar = "█" * (20 * texts // max(total, 1))
        state = f"encoding {bar:░<20} {texts:,} of {total:,} texts · {speed} · {left:.0f} s left"
        say(f"{state:<90}", over=True, end="\n" if texts >= total else "")

    return advance


@dataclass(frozen=True)
class ModelCard:
    """What a model says about itself: enough to pool as it was trained, and to recognise it again.

    `pooling` is the declared mode(s), empty where the model declares none; `after` names the modules
    between pooling and the final vector (Dense, Normalize, …); `revision` is a commit or a digest of the
    weights; `max_length` is the declared limit in tokens and `positions` what the weights can take;
    `default_prompt` names the prompt that is used when the caller asks for none; `temperature` is the rule by which
    its attention is scaled (`poolscope.tempscale`), None for the model as it is; `parameters` counts the numbers of
    its weights, None where they are not known; `quantization` is how the file stores them where that loses digits.
    """

    name: str
    kind: str
    dimension: int
    revision: str | None = None
    layers: int | None = None
    max_length: int | None = None
    pooling: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "float32"
    positions: int | None = None
    default_prompt: str | None = None
    temperature: Mapping[str, Any] | None = None
    parameters: int | None = None
    quantization: str | None = None

    @property
    def keeps_tokens(self) -> bool:
        """Does the model pool nothing, and score by the vectors of all tokens (late interaction)?"""
        return self.pooling == (KEEPS_TOKENS,)

    @property
    def last(self) -> int:
        """The number of the last layer; −1 where the model does not say how many it has."""
        return -1 if self.layers is None else self.layers

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, so that the dictionary equals itself after a round trip through JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def model_identity(card: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a card that tell models apart: all but those that follow from the revision.

    Without it, clouds and states are recognised that were saved before cards had these entries.
    """
    return {name: value for name, value in card.items() if name not in ("parameters", "quantization")}


@dataclass(frozen=True)
class EncoderOptions:
    """The choices that change what is encoded (first block) or only how fast (second block).

    `prompt` is a literal prefix, `prompt_name` one of the model's declared prompts, `role` ("query" or
    "document") picks the declared prompt for that role; at most one of the three. `max_length` overrides what
    the model declares. `dtype` is the precision of the model's own computation (by default float32, half on a
    graphics device; "int8": linear layers in bytes, all else in float32). `device` may name several,
    "cuda:0,cuda:1". `batch_tokens` bounds the padded tokens of a batch (by default what suits the device).
    """

    prompt: str | None = None
    prompt_name: str | None = None
    role: str | None = None
    max_length: int | None = None
    dtype: str | None = None
    revision: str | None = None

    device: str | None = None
    batch_tokens: int | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        named = [name for name in ("prompt", "prompt_name", "role") if getattr(self, name) is not None]
        if len(named) > 1:
            raise InputError(f"received {' and '.join(named)}; at most one of prompt, prompt_name and role is allowed.")
        if self.role not in (None, *ROLES):
            raise InputError(
                f"role: received {self.role!r}; allowed: {', '.join(ROLES)}.{did_you_mean(self.role, ROLES)}"
            )
        if self.dtype not in (None, *DTYPES):
            raise InputError(
                f"dtype: received {self.dtype!r}; allowed: {', '.join(DTYPES)}.{did_you_mean(self.dtype, DTYPES)}"
            )
        if self.device is not None and not _DEVICES.fullmatch(str(self.device)):  # whether it is here, torch knows
            raise InputError(
                f"device: received {self.device!r}; allowed: cpu, cuda, cuda:0, mps, or several with commas between "
                f"them, such as cuda:0,cuda:1."
            )
        for name in ("max_length", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name}: received {value!r}; allowed: a whole number of tokens, at least 1.")

    def content(self) -> dict[str, Any]:
        """The choices that change the result: two stores with equal content may be continued or reused."""
        return {
            name: getattr(self, name) for name in ("prompt", "prompt_name", "role", "max_length", "dtype", "revision")
        }


@runtime_checkable
class TokenEncoder(Protocol):
    """Turns texts into token clouds. Any object with these two members is an encoder; no base class."""

    @property
    def card(self) -> ModelCard:
        """What the model declares."""
        ...

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """Clouds of the texts, in their order, for each asked layer (None: the layer that the model pools).

        The keys are layer numbers as asked (0 = embedding output; negative counts from the end) or, for None,
        the single key -1. Truncation is counted on the clouds. Equal calls give equal bytes.
        """
        ...


def resolve_prompt(card: ModelCard, options: EncoderOptions) -> str:
    """The prefix to put before every text, "" for none; the rules are those of sentence-transformers.

    >>> card = ModelCard("m", "transformers", 2, prompts={"query": "query: "})
    >>> resolve_prompt(card, EncoderOptions(role="query")), resolve_prompt(card, EncoderOptions(role="document"))
    ('query: ', '')
    """
    if options.prompt is not None:
        return options.prompt
    if options.role is not None:
        return next((card.prompts[name] for name in _ROLE_PROMPTS[options.role] if name in card.prompts), "")
    name = card.default_prompt if options.prompt_name is None else options.prompt_name
    if name is None:
        return ""
    if not isinstance(name, str) or name not in card.prompts:
        declared = ", ".join(sorted(card.prompts)) or "none"
        raise InputError(
            f"prompt_name (--prompt-name): received {shorten(name)}, which {card.name} does not declare; declared: "
            f"{declared}. Pass one of these, or the prefix itself as prompt (--prompt)."
        )
    return card.prompts[name]


def texts_first(name: object) -> str:
    """What to do where texts stand in the place of the model, to end an error with."""
    return f" If these are texts, the model comes before them: builtin:minilm {name}"


def check_texts(texts: Any) -> list[str]:
    """The texts as a list, whatever holds them (`as_texts`), or an error that names the first entry that is none."""
    checked = list(as_texts(texts))
    if not checked:
        raise InputError("texts: received an empty list; at least one text is needed.")
    for position, text in enumerate(checked):
        if not isinstance(text, str):
            raise not_a_text(text, position)
    return checked


def not_a_text(entry: object, position: int) -> InputError:
    """The error for an entry of the texts that is none."""
    return InputError(
        f"texts: entry {position} is {type(entry).__name__}; all entries must be strings. Leave missing texts out, or "
        f"write them as ''."
    )


def check_layers(layers: Sequence[int] | None, depth: int | None, *, name: str) -> dict[int, int]:
    """From each asked layer to its number counted from 0; {-1: depth} when none is asked.

    `depth` is the number of the last layer (None: unknown, then only the pooled layer can be had).

    >>> check_layers([0, -1, 2], 6, name="m")
    {0: 0, -1: 6, 2: 2}
    """
    last = -1 if depth is None else depth
    if layers is None:
        return {-1: last}
    wanted: Any = list(layers) if isinstance(layers, Iterable) else layers
    if not (
        isinstance(wanted, list) and wanted and all(isinstance(k, int) and not isinstance(k, bool) for k in wanted)
    ):
        raise InputError(f"layers: received {wanted!r}; allowed: a non-empty list of whole numbers such as [0, 3, -1].")
    low, high = (-1, -1) if depth is None else (-depth - 1, depth)
    if wrong := [k for k in wanted if not low <= k <= high]:
        allowed = "-1 only (the pooled layer)" if low == high else f"0 (embedding output) to {high}, or {low} to -1"
        raise InputError(f"layers: received {wrong}; {name} has {allowed}. Ask for layers in that range.")
    return {k: k if k >= 0 or depth is None else depth + 1 + k for k in wanted}


# -- encoders without a model -----------------------------------------------------------------------------------------

# Texts handed to a function at once: few enough to show progress, enough to batch inside.
_CHUNK = 256


class ArrayEncoder:
    """Clouds that were computed elsewhere. `encode` hands them out for as many texts as there are clouds.

    >>> encoder = ArrayEncoder.from_arrays([[[1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]])
    >>> encoder.encode(["one", "two tokens"])[-1]
    TokenClouds(2 texts, 3 tokens, dimension 2, float64)
    """

    def __init__(self, clouds: TokenClouds) -> None:
        self.ready_clouds = clouds
        self.card = ModelCard(
            name="arrays", kind="arrays", dimension=clouds.dimension, pooling=("mean",), dtype=clouds.dtype.name
        )

    @classmethod
    def from_arrays(cls, arrays: Sequence[Any]) -> ArrayEncoder:
        """From one (tokens × dimensions) array a text."""
        return cls(TokenClouds.from_arrays(arrays))

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """The ready clouds, with these texts beside them."""
        texts = check_texts(texts)
        wanted = check_layers(layers, None, name=self.card.name)
        if len(texts) != len(self.ready_clouds):
            raise InputError(
                f"received {len(texts)} texts for {len(self.ready_clouds)} ready clouds; one text a cloud is needed."
            )
        clouds = self.ready_clouds
        if clouds.texts is None:
            clouds = clouds.described(texts=texts)
        elif list(clouds.texts) != texts:
            first = next(k for k, (own, text) in enumerate(zip(clouds.texts, texts, strict=True)) if own != text)
            raise InputError(
                f"text {first} is not the text that its cloud was made of; the clouds carry their own texts. "
                f"Pass those texts, or encode the new ones with a model."
            )
        if progress is not None:
            progress(len(clouds), int(clouds.lengths.sum()))
        return dict.fromkeys(wanted, clouds)


class FunctionEncoder:
    """Any function from a list of texts to a list of (tokens × dimensions) arrays.

    Truncation and prompts are the function's own affair; poolscope cannot see them.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[Any]]) -> None:
        self._function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.card = ModelCard(name=name, kind="function", dimension=0)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """What the function gives for the texts, asked in pieces."""
        texts = check_texts(texts)
        wanted = check_layers(layers, None, name=self.card.name)
        arrays: list[Any] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            given = self._function(chunk)
            if not isinstance(given, Iterable) or getattr(given, "shape", None) == ():
                raise InputError(
                    f"{self.card.name} gave {shorten(given)}; it must give one (tokens × dimensions) array a text."
                )
            matrices = list(given)
            if len(matrices) != len(chunk):
                raise InputError(
                    f"{self.card.name} gave {len(matrices)} arrays for {len(chunk)} texts; it must give one (tokens × "
                    f"dimensions) array a text, in the same order."
                )
            arrays.extend(matrices)
            if progress is not None:
                progress(len(chunk), sum(len(array) for array in matrices))
        provenance = {"model": self.card.to_dict(), "options": {}, "layer": -1}
        clouds = TokenClouds.from_arrays(arrays, texts=texts, provenance=provenance)
        return dict.fromkeys(wanted, clouds)
