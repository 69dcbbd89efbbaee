"""Running a transformers model: batches, hidden states, devices, and how long a text may be."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import ModelCard
from poolscope.encoders.batching import Batch, Forward, not_finite
from poolscope.encoders.capabilities import as_numpy, in_role, with_temperature
from poolscope.encoders.packed import first_position, forget, packed_products, room_of, texts_alone
from poolscope.errors import InputError, ModelError, in_one_line, require

# Padded tokens a batch. A CPU core works best on a batch that stays in its caches, and alone on it: cores that share
# a batch wait for each other after every operation. A graphics device wants to be filled.
_BUDGET_CORE = 1_024
_BUDGET_DEVICE = 32_768
_MOST_THREADS = 16  # Python itself would hold up more than this
_FEWEST_ROWS = 12  # batches for the cores to share, however many: the same batches on every machine

# Numbers that share a scale where weights are rounded; and what stays whole, as converters leave it.
_BLOCK = 32
_KEPT_WHOLE = ("position", "token_type")

_POSITION_TABLES = ("position_embeddings", "position_embedding", "embed_positions", "wpe")


class TorchBackend:
    """Runs batches on one model, or on one copy a device; `role` is that of the texts, where it is known.

    `unembedding` gives the table that scores the next word, where the model has one.
    """

    def __init__(
        self,
        models: Sequence[Any],
        card: ModelCard,
        *,
        pad_id: int,
        role: str | None = None,
        unembedding: Callable[[], NDArray[np.float32]] | None = None,
    ) -> None:
        self.unembedding = unembedding
        accepted = signature(models[0].forward).parameters
        self.models = models
        self._card = card
        self._accepted = set(accepted)
        self._role = role
        self.pad_id = pad_id
        # A model that takes no mask would mix padding into its tokens: give it texts of equal length only.
        self.padding = "attention_mask" in accepted
        self._both_ways = False
        self.budget = _BUDGET_CORE if models[0].device.type == "cpu" else _BUDGET_DEVICE

    def in_role(self, role: str) -> Self:
        """The backend for texts in that role; a role may have a temperature of its own."""
        other = copy.copy(self)
        other._role = role
        return other

    def both_ways(self) -> Self:
        """The same decoder with tokens that see later ones too, through a mask of its own; refused where it has no
        effect, or more than that.
        """
        other = copy.copy(self)
        other._both_ways = True
        other._check_both_ways()
        return other

    def _check_both_ways(self) -> None:
        """Another last token must move the first state, and padding behind a text nothing."""
        rows = len(self.models[0].get_input_embeddings().weight)
        ids = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 0]]) % rows
        mask = np.array([[True] * 4, [True] * 4, [True, True, True, False]])
        padded = Batch(ids, mask, mask, None, np.arange(mask.sum()))
        alone = Batch(ids[2:, :3], mask[2:, :3], mask[2:, :3], None, np.arange(3))
        last = self._card.last
        try:
            with self.workers([last]) as run:
                together, single = run[0](padded)[last], run[0](alone)[last]
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ModelError(f"{self._card.name}: it takes no mask of its own ({str(error)[:120]}).") from error
        scale = float(np.abs(together).max())
        by_later_token, by_padding = (
            float(np.abs(one).max()) for one in (together[0] - together[4], together[8:] - single)
        )
        if by_later_token <= 1e-4 * scale or by_padding > 1e-3 * scale:
            raise ModelError(
                f"{self._card.name} ({type(self.models[0]).__name__}): a mask by which tokens see later ones does not "
                f"do that alone in it; needed: a decoder that takes a mask for every pair of tokens. Leave it out."
            )

    def _mask(self, model: Any, mask: NDArray[np.bool_]) -> Any:
        """The mask of real tokens (texts × n); with attention both ways an addend of the scores (texts × 1 × n × n)."""
        import torch

        real = torch.from_numpy(mask).to(model.device)
        if not self._both_ways:
            return real.long()
        window = getattr(model.config.get_text_config(), "sliding_window", None)
        if window is not None and mask.shape[1] > window:
            raise InputError(
                f"{self._card.name}: received a text of {mask.shape[1]} tokens to be read both ways; its layers look "
                f"at {window} at a time, so that longer ones would see more than a mask changes. Set max_length."
            )
        added = torch.zeros(real.shape, dtype=model.dtype, device=model.device)
        added = added.masked_fill(~real, torch.finfo(model.dtype).min)
        return added[:, None, None, :].expand(-1, 1, mask.shape[1], -1).contiguous()

    def describe(self, card: ModelCard) -> ModelCard:
        """The card, with the attention temperature at which the model runs just now."""
        return with_temperature(card, self.models[0], role=self._role)

    def room(self, tokens: int) -> int:
        """How many of so many tokens make a batch of texts that are laid end to end; 0 where they are padded."""
        share = tokens // _FEWEST_ROWS
        if share <= self.budget or self.models[0].device.type != "cpu" or not self._joins:
            return 0
        with resting(*self.models):
            return min(share, room_of(self.models[0]))

    @property
    def _joins(self) -> bool:
        return self.padding and not self._both_ways

    @contextmanager
    def workers(self, numbers: Sequence[int], batches: int = 1) -> Iterator[list[Forward]]:
        """One function per device, with the models out of training mode (dropout) for the time being.

        A model on the CPU is called from several threads when there are batches for them, with the cores dealt
        out; only if its code is that of transformers, which is known to stand this.
        """
        import torch

        cores = torch.get_num_threads()
        shared = len(self.models) == 1 and self.models[0].device.type == "cpu"
        shared = shared and type(self.models[0]).__module__.startswith("transformers.")
        threads = min(cores, batches, _MOST_THREADS) if shared else 1
        with resting(*self.models):
            # The cores are dealt out among all that compute on them at the same time.
            sharing = max(threads, sum(model.device.type == "cpu" for model in self.models))
            run = partial(self._forward, numbers=frozenset(numbers), cores=max(1, cores // sharing))
            products = [packed_products(model, batches) for model in self.models]
            if self._joins and not isinstance(products[0], nullcontext):
                first_position(self.models[0])  # tried here, so that threads do not all try it
            each: list[Forward] = [
                partial(run, model, within=within) for model, within in zip(self.models, products, strict=True)
            ]
            try:
                yield each if threads == 1 else each * threads
            finally:
                torch.set_num_threads(cores)  # the setting of one thread is what later threads start with

    @contextmanager
    def rounded_weights(self, bits: int) -> Iterator[None]:
        """The models with the matrices of their weights rounded to so many bits, as long as the body runs."""
        import torch

        originals: list[tuple[Any, Any]] = []
        try:
            with torch.no_grad():
                for model in self.models:
                    for name, weights in model.named_parameters():
                        if weights.ndim == 2 and not any(part in name for part in _KEPT_WHOLE):
                            originals.append((weights, weights.detach().clone()))
                            weights.copy_(_rounded(weights, bits))
            yield
        finally:
            with torch.no_grad():
                for weights, before in originals:
                    weights.copy_(before)

    def _forward(
        self, model: Any, batch: Batch, *, numbers: frozenset[int], cores: int, within: AbstractContextManager[Any]
    ) -> dict[int, NDArray[Any]]:
        import torch

        if torch.get_num_threads() != cores:
            torch.set_num_threads(cores)
        start = first_position(model) if self._joins and not isinstance(within, nullcontext) else None
        if start and (batch.ids[batch.mask] == self.pad_id).any():  # which has no position where they do not begin at 0
            start = None
        if start is not None:
            lengths = batch.mask.sum(axis=1).tolist()
            places = start + np.concatenate([np.arange(length) for length in lengths])[None]
            try:
                return self._run(model, batch.end_to_end(), numbers, texts_alone(within, lengths), position_ids=places)
            except Exception:  # a long row may be refused where a short one was not; what else is wrong shows below
                forget(model)
        return self._run(model, batch, numbers, within)

    def _run(
        self, model: Any, batch: Batch, numbers: frozenset[int], within: AbstractContextManager[Any], **more: Any
    ) -> dict[int, NDArray[Any]]:
        """The asked states of the kept tokens of a batch."""
        import torch

        last = self._card.last
        given = {"input_ids": batch.ids, **more}
        if batch.type_ids is not None and "token_type_ids" in self._accepted:
            given["token_type_ids"] = batch.type_ids
        inputs: dict[str, Any] = {name: torch.from_numpy(values).to(model.device) for name, values in given.items()}
        if self.padding:
            inputs["attention_mask"] = self._mask(model, batch.mask)
        if "use_cache" in self._accepted:
            inputs["use_cache"] = False
        with torch.inference_mode(), in_role(self._role), within:
            output = model(**inputs, output_hidden_states=bool(numbers - {last}), return_dict=True)
            keep = torch.from_numpy(batch.keep).to(model.device)
            states = {k: self._state(output, k, last) for k in numbers}
            return {k: _rows(state, keep, full=bool(batch.keep.all()), card=self._card) for k, state in states.items()}

    def _state(self, output: Any, number: int, last: int) -> Any:
        if number == last:
            if getattr(output, "last_hidden_state", None) is None:
                raise ModelError(
                    f"{self._card.name}: its output ({type(output).__name__}) holds no token vectors; needed is the "
                    f"transformer without a head. Load it with AutoModel."
                )
            return output.last_hidden_state
        if len(output.hidden_states) != last + 1:
            raise ModelError(
                f"{self._card.name} declares {last} layers and gave {len(output.hidden_states)} hidden states; one "
                f"more than layers is expected. Its layers cannot be told apart: leave layers= out."
            )
        return output.hidden_states[number]


@contextmanager
def resting(*models: Any) -> Iterator[None]:
    """The models out of training mode for the time being: dropout would draw random numbers that a training misses."""
    training = [module for model in models for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _rounded(weights: Any, bits: int) -> Any:
    """A matrix in blocks of 32, each with a scale of 16 bits, as Q8_0, Q5_0 and Q4_0 of GGUF have it.

    With 8 bits the scale is that of the largest magnitude; with fewer its sign counts too, so that no level is lost.
    """
    import torch

    rows, width = weights.shape
    block = _BLOCK if width % _BLOCK == 0 else width
    parts = weights.float().reshape(rows, width // block, block)
    size = parts.abs().amax(dim=-1, keepdim=True)
    if bits >= 8:
        scale, low, high = size / 127, -127, 127
    else:
        half = 2 ** (bits - 1)
        top = torch.gather(parts, -1, parts.abs().argmax(dim=-1, keepdim=True))
        scale, low, high = top / -half, -half, half - 1
    levels = torch.where(scale == 0, torch.zeros_like(parts), parts / torch.where(scale == 0, 1, scale))
    levels = levels.round() if bits >= 8 else torch.floor(levels + 0.5)
    return (levels.clamp(low, high) * scale.half().float()).reshape(rows, width).to(weights.dtype)


def _rows(state: Any, keep: Any, *, full: bool, card: ModelCard) -> NDArray[Any]:
    """The kept tokens of a padded batch as numpy."""
    import torch

    rows = state.reshape(-1, state.shape[-1]) if full else state[keep]
    if not bool(torch.isfinite(rows).all()):
        raise not_finite(card)
    return as_numpy(rows)


def length_limits(model: Any, tokenizer: Any, declared: int | None) -> tuple[int | None, int | None]:
    """(the longest text in tokens that the model declares, the most its positions can take); None: no limit.

    A table of learned positions is a hard limit, less the rows that RoBERTa-like models keep for padding.
    Rotary and relative positions have only what the configuration says, which a declaration may exceed.
    """
    torch = require("torch", "torch")
    tables = [
        module.num_embeddings - _position_offset(module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and name.rpartition(".")[2] in _POSITION_TABLES
    ]
    configured = _limit(getattr(model.config, "max_position_embeddings", None))
    declared, usual = _limit(declared), _limit(tokenizer.model_max_length)
    named = [length for length in (declared, configured) if length is not None]
    positions = min(tables) if tables else max(named, default=None)
    limits = [length for length in ((declared or usual), positions) if length is not None]
    return min(limits, default=None), positions


def _limit(length: float | None) -> int | None:
    """A number of tokens, None for the ways in which libraries write "no limit" (-1, 10³⁰)."""
    return int(length) if length is not None and 0 < length < 10**9 else None


def _position_offset(table: Any) -> int:
    if hasattr(table, "offset"):  # BART and its relatives
        return int(table.offset)
    return 0 if table.padding_idx is None else int(table.padding_idx) + 1


def choose_devices(names: str | None) -> list[Any]:
    """The devices to run on: those asked for, else every CUDA device, else MPS, else the CPU."""
    torch = require("torch", "torch")
    if names is None:
        if torch.cuda.is_available():
            return [torch.device("cuda", k) for k in range(torch.cuda.device_count())]
        return [torch.device("mps" if torch.backends.mps.is_available() else "cpu")]
    try:
        devices = [torch.device(part.strip()) for part in names.split(",")]
        for device in devices:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA answers with an assertion
        raise InputError(
            f"device: received {names!r}, which cannot be used here ({in_one_line(error)}). Usable here: "
            f"{', '.join(_usable(torch))}; several with commas between them. Pass one of these, or leave it out."
        ) from error
    return devices


def _usable(torch: Any) -> list[str]:
    """The devices of this machine, by name."""
    graphics = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *graphics, *(["mps"] if torch.backends.mps.is_available() else [])]
