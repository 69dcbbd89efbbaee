"""Encoders on ONNX files: the graph through onnxruntime, the texts through tokenizer.json."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import EncoderOptions, ModelCard
from poolscope.encoders.batching import Batch, BatchedEncoder, Forward, not_finite
from poolscope.encoders.declaration import digest_model, read_declaration, read_settings
from poolscope.encoders.tokens import Vocabulary, check_vocabulary, tokenize_plain
from poolscope.errors import InputError, ModelError, require

# As with torch, a core works best alone and on a batch that stays in its caches.
_BUDGET_CORE = 512
_BUDGET_DEVICE = 32_768
_MOST_THREADS = 16
_OUTPUTS = ("last_hidden_state", "token_embeddings")
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}

# Models whose position table keeps its first rows, up to that of the padding token, for padding.
_SHIFTED_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "data2vec-text")


def is_onnx(path: Path, *, name: str) -> bool:
    """Is it an `.onnx` file, or a folder with one and without weights of torch?"""
    if path.is_file():
        return path.suffix == ".onnx"
    place = path / read_declaration(path, name=name).subfolder
    weights = any(place.glob("*.safetensors")) or any(place.glob("pytorch_model*.bin"))
    return not weights and any(path.glob("**/*.onnx"))


def load_onnx(path: Path, *, name: str, revision: str | None, options: EncoderOptions) -> BatchedEncoder:
    """The encoder of an `.onnx` file, or of a folder that holds one, with tokenizer.json beside or above it."""
    runtime, tokenizers = require("onnxruntime", "onnx"), require("tokenizers", "onnx")
    if options.dtype is not None:
        raise InputError(f"dtype: received {options.dtype!r} for an ONNX model; its precision is fixed in the file.")
    file = path if path.is_file() else _graph_file(path, name=name)
    home = next((folder for folder in file.parents[:2] if (folder / "tokenizer.json").is_file()), None)
    if home is None:
        raise ModelError(
            f"{name}: no tokenizer.json beside {file.name} or one folder above. Copy it from the model's source."
        )
    tokenizer = tokenizers.Tokenizer.from_file(str(home / "tokenizer.json"))
    session = _session(runtime, file, options.device)
    output = _token_output(session, name=name)
    if revision is None:
        revision = digest_model(home, file.parent.glob(f"{file.name}*"))
    card = _card(home, output, name=name, revision=revision)
    vocabulary = Vocabulary.of_tokenizers(tokenizer)
    check_vocabulary(vocabulary, read_settings(home / "config.json").get("vocab_size"), name=name)
    return BatchedEncoder(
        card,
        options,
        backend=OnnxBackend(session, output.name, card, pad_id=(tokenizer.padding or {}).get("pad_id", 0)),
        tokenize=partial(tokenize_plain, tokenizer),
        vocabulary=vocabulary,
    )


class OnnxBackend:
    """Runs batches through one onnxruntime session, called from as many threads as there are cores."""

    def __init__(self, session: Any, output: str, card: ModelCard, *, pad_id: int) -> None:
        self._session = session
        self._output = output
        self._card = card
        self._inputs = {entry.name: _INTEGERS.get(entry.type) for entry in session.get_inputs()}
        unknown = sorted(name for name, kind in self._inputs.items() if name not in _INPUTS or kind is None)
        if unknown or "input_ids" not in self._inputs:
            raise ModelError(
                f"{card.name}: the graph asks for {sorted(self._inputs)}; allowed: input_ids and, if wanted, "
                f"attention_mask and token_type_ids, as integers. Export the model again with these inputs."
            )
        self._on_cpu = session.get_providers()[0] == _PROVIDERS["cpu"]
        self.budget = _BUDGET_CORE if self._on_cpu else _BUDGET_DEVICE
        self.pad_id = pad_id
        self.padding = "attention_mask" in self._inputs

    def describe(self, card: ModelCard) -> ModelCard:
        """The card: a graph runs as it was exported."""
        return card

    def in_role(self, role: str) -> Self:
        """Itself: a graph has no temperature."""
        return self

    @contextmanager
    def workers(self, numbers: Sequence[int], batches: int = 1) -> Iterator[list[Forward]]:
        """The session, for several threads on a CPU; `numbers` can only be the last layer, which the file gives."""
        yield [partial(self._forward, numbers[0])] * (min(_cores(), batches, _MOST_THREADS) if self._on_cpu else 1)

    def _forward(self, number: int, batch: Batch) -> dict[int, NDArray[Any]]:
        types = np.zeros_like(batch.ids) if batch.type_ids is None else batch.type_ids
        values = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": types}
        feed = {name: values[name].astype(kind) for name, kind in self._inputs.items()}
        try:
            (state,) = self._session.run([self._output], feed)
        except Exception as error:  # onnxruntime raises classes of its own, without a common base but Exception
            raise ModelError(
                f"{self._card.name}: onnxruntime could not run a batch of shape {batch.ids.shape} ({error}). If the "
                f"texts are longer than the model's positions, pass --max-length (max_length)."
            ) from error
        rows: NDArray[Any] = state[batch.keep]
        if not np.isfinite(rows).all():
            raise not_finite(self._card)
        return {number: rows}


def _cores() -> int:
    """Cores that this process may use, or what OMP_NUM_THREADS says."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, int(asked)) if asked.isdecimal() and int(asked) else usable


def _graph_file(folder: Path, *, name: str) -> Path:
    """model.onnx, onnx/model.onnx, or the only graph there is; among several others the caller must choose."""
    for usual in (folder / "model.onnx", folder / "onnx" / "model.onnx"):
        if usual.is_file():
            return usual
    found = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if len(found) != 1:
        names = ", ".join(str(file.relative_to(folder)) for file in found) or "none"
        raise ModelError(
            f"{name}: which graph is meant? Found: {names}; needed: one. Pass the path of the .onnx file itself."
        )
    return found[0]


def _session(runtime: Any, file: Path, device: str | None) -> Any:
    available = runtime.get_available_providers()
    if device is not None and _PROVIDERS.get(device) not in available:
        usable = [short for short, provider in _PROVIDERS.items() if provider in available]
        raise InputError(f"device: received {device!r} for an ONNX model; usable here: {', '.join(usable)}.")
    providers = [
        provider for short, provider in _PROVIDERS.items() if provider in available and device in (None, short)
    ]
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3  # errors only
    settings.intra_op_num_threads = 1  # the batches are run in parallel instead
    try:
        return runtime.InferenceSession(str(file), settings, providers=providers)
    except Exception as error:
        raise ModelError(f"{file}: onnxruntime cannot load it ({error}). Export or download the file again.") from error


def _token_output(session: Any, *, name: str) -> Any:
    """The output with one vector a token: by its name, else the first of shape (texts, positions, dimensions)."""
    outputs = [entry for entry in session.get_outputs() if len(entry.shape) == 3 and entry.type in _FLOATS]
    if not outputs:
        found = [f"{entry.name} {entry.shape}" for entry in session.get_outputs()]
        raise ModelError(
            f"{name}: no output has the shape (texts, positions, dimensions); found: {', '.join(found)}. Export the "
            f"model with its last hidden state as an output."
        )
    return next((entry for wanted in _OUTPUTS for entry in outputs if entry.name == wanted), outputs[0])


def _card(home: Path, output: Any, *, name: str, revision: str) -> ModelCard:
    config = read_settings(home / "config.json")
    declared = read_declaration(home, name=name)
    dimension = output.shape[2] if isinstance(output.shape[2], int) else config.get("hidden_size")
    if dimension is None:
        raise ModelError(
            f"{name}: neither the graph nor config.json says the dimension; add hidden_size to config.json."
        )
    positions = _positions(config)
    stored = read_settings(home / "tokenizer_config.json").get("model_max_length")
    lengths = [declared.max_length] if declared.max_length else [stored]
    limits = [int(length) for length in (*lengths, positions) if length is not None and length < 10**9]
    return ModelCard(
        name=name,
        kind="onnx",
        dimension=int(dimension),
        revision=revision,
        max_length=min(limits, default=None),
        pooling=declared.pooling,
        after=declared.after,
        include_prompt=declared.include_prompt,
        prompts=dict(declared.prompts),
        dtype=_FLOATS[output.type],
        positions=positions,
        default_prompt=declared.default_prompt,
    )


def _positions(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings")
    if positions is None or positions < 1:
        return None
    shift = config.get("pad_token_id", 1) + 1 if config.get("model_type") in _SHIFTED_POSITIONS else 0
    return int(positions) - shift
