"""Encoders on ONNX files: the graph through onnxruntime, the texts through tokenizer.json.

A graph shows its last layer only. Where its weights still have their names, as in exports of BERT and its like, they
are put into the class of transformers as soon as somebody asks for other layers or for the attention; the result must
agree with onnxruntime, and from then on this encoder runs on torch. Where that cannot be, it says what is missing.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders.base import EncoderOptions, ModelCard
from poolscope.encoders.batching import Batch, BatchedEncoder, Forward, not_finite
from poolscope.encoders.folders import digest_model, read_declaration, read_settings, warn_of_cut
from poolscope.encoders.opening import opening
from poolscope.encoders.pooling import steps_of_folder
from poolscope.encoders.tokens import Vocabulary, check_vocabulary, tokenize_plain
from poolscope.encoders.torch_backend import TorchBackend
from poolscope.errors import InputError, ModelError, PoolscopeError, reading, require, shorten
from poolscope.files import files_below
from poolscope.numbers.bures.pairs import available_cores

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


def is_onnx(folder: Path, *, name: str) -> bool:
    """Is it a folder with an `.onnx` file and without weights of torch?"""
    place = folder / read_declaration(folder, name=name).subfolder
    weights = any(place.glob("*.safetensors")) or any(place.glob("pytorch_model*.bin"))
    return not weights and any(files_below(folder, ".onnx"))


def load_onnx(path: Path, *, name: str, revision: str | None, options: EncoderOptions) -> BatchedEncoder:
    """The encoder of an `.onnx` file, or of a folder that holds one, with tokenizer.json beside or above it."""
    runtime, tokenizers = require("onnxruntime", "onnx"), require("tokenizers", "onnx")
    if options.dtype is not None:
        raise InputError(f"dtype: received {options.dtype!r} for an ONNX model; its precision is fixed in the file.")
    file, home = graph_of(path, name=name)
    with opening("onnx", home, name=name, options=options, file=str(file)) as first:
        data = first.facts().get("data", ())
        tokenizer = tokenizers.Tokenizer.from_file(str(home / "tokenizer.json"))
        session = _session(runtime, file, options.device)
        if revision is None:
            revision = digest_model(home, {*file.parent.glob(f"{file.name}*"), *(file.parent / part for part in data)})
    output = _token_output(session, name=name)
    card = _card(home, output, name=name, revision=revision)
    vocabulary = Vocabulary.of_tokenizers(tokenizer)
    check_vocabulary(vocabulary, read_settings(home / "config.json").get("vocab_size"), name=name)
    backend = OnnxBackend(session, output.name, card, pad_id=(tokenizer.padding or {}).get("pad_id", 0))
    backend.twin = Twin(partial(_load_twin, backend, file, home / "config.json"))
    return BatchedEncoder(
        card,
        options,
        backend=backend,
        tokenize=partial(tokenize_plain, tokenizer),
        vocabulary=vocabulary,
        finishing=partial(steps_of_folder, home, name=name),
    )


def rehearse_onnx(home: Path, *, name: str, options: EncoderOptions, file: str) -> dict[str, Any]:
    """Open a graph as `load_onnx` does, on the processor, and run a text; return what was learned."""
    data = external_data(Path(file), name=name)
    encoder = load_onnx(Path(file), name=name, revision="", options=replace(options, device="cpu"))
    encoder.encode(["a text of some words"])
    return {
        "model": "ONNX graph",
        "dimension": encoder.card.dimension,
        "entries": encoder.vocabulary.size,
        "max_length": encoder.max_length,
        "data": data,
    }


def external_data(file: Path, *, name: str) -> list[str]:
    """The files in which a graph keeps numbers; refused where one lies outside of its folder.

    Old versions of onnxruntime read any file, and some read memory where a name has stars. A graph from the cache of
    the hub is a link, and the data lie beside the file that it leads to.
    """
    library = require("onnx", "onnx")
    places = (file.parent.resolve(), file.resolve().parent)
    again = "Download the model again from a source that you trust."
    with reading(file, again, kind=ModelError, is_not="an ONNX graph"):
        parts = _messages(library.load(str(file), load_external_data=False))
        tensors = [part for part in parts if getattr(part, "external_data", ())]
        files = set()
        for entry in ({field.key: field.value for field in tensor.external_data} for tensor in tensors):
            location = entry.get("location", "")
            target = (file.parent / location).resolve()
            inside = "*" not in location and any(target.is_relative_to(place) for place in places)
            if not inside or not target.is_file():
                raise ModelError(
                    f"{name}: {file.name} keeps numbers in {shorten(location)}; allowed: a file in the folder of the "
                    f"graph. {again}"
                )
            begin, length = int(entry.get("offset", 0)), int(entry.get("length", 0))
            if min(begin, length) < 0 or begin + length > target.stat().st_size:
                raise ModelError(
                    f"{name}: {file.name} asks for bytes {begin:,} to {begin + length:,} of {shorten(location)}, which "
                    f"has {target.stat().st_size:,}. {again}"
                )
            files.add(location)
    return sorted(files)


def _messages(message: Any) -> Iterator[Any]:
    """A message of a graph and all that it holds, in subgraphs and functions too."""
    yield message
    for kind, value in message.ListFields():
        if kind.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _messages(part)


class Twin:
    """A model on torch with the weights of a graph: loaded when it is first asked for, and then only once.

    `backend` is None until then, and for good where it cannot be had; `missing` then says why.
    """

    def __init__(self, load: Callable[[], TorchBackend]) -> None:
        self._load = load
        self.backend: TorchBackend | None = None
        self.missing = ""

    def get(self) -> TorchBackend | None:
        """The model, loaded now if that was not tried before."""
        if self.backend is None and not self.missing:
            try:
                self.backend = self._load()
            except PoolscopeError as error:
                self.missing = str(error)
        return self.backend


class OnnxBackend:
    """Runs batches through one onnxruntime session, called from as many threads as there are cores.

    `twin` takes its place once the attention or another layer than the last was asked for.
    """

    twin: Twin

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
        self._role: str | None = None

    @property
    def models(self) -> Sequence[Any] | None:
        """The model on torch with these weights, in a list; None where there cannot be one."""
        backend = self.twin.get()
        return None if backend is None else backend.models

    @property
    def lacking(self) -> str:
        """Why there is no model on torch, "" where there is one or nobody has asked yet."""
        return self.twin.missing

    def describe(self, card: ModelCard) -> ModelCard:
        """The card: a graph runs as it was exported, a model on torch may run at another temperature."""
        backend = self._on_torch()
        return card if backend is None else backend.describe(card)

    def in_role(self, role: str) -> Self:
        """The backend for texts in that role."""
        other = copy.copy(self)
        other._role = role
        return other

    def _on_torch(self) -> TorchBackend | None:
        backend = self.twin.backend
        return backend if backend is None or self._role is None else backend.in_role(self._role)

    @contextmanager
    def workers(self, numbers: Sequence[int], batches: int = 1) -> Iterator[Sequence[Forward]]:
        """The session, shared by threads on a CPU; other layers than the last come from a twin on torch, if any."""
        last = self._card.last
        if list(numbers) != [last] and self.twin.get() is None:
            raise ModelError(f"{self._card.name}: an ONNX graph gives its last layer only. {self.twin.missing}")
        if (backend := self._on_torch()) is not None:
            with backend.workers(numbers, batches) as functions:
                yield functions
        else:
            yield [partial(self._forward, last)] * (min(_cores(), batches, _MOST_THREADS) if self._on_cpu else 1)

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
    usable, setting = available_cores(), os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, int(setting)) if setting.isdecimal() and int(setting) else usable


def graph_of(path: Path, *, name: str) -> tuple[Path, Path]:
    """The graph that a file or folder means, and the folder with its tokenizer."""
    file = path if path.is_file() else _graph_file(path, name=name)
    home = next((folder for folder in file.parents[:2] if (folder / "tokenizer.json").is_file()), None)
    if home is None:
        raise ModelError(
            f"{name}: no tokenizer.json beside {file.name} or one folder above. Copy it from the model's source."
        )
    return file, home


def _graph_file(folder: Path, *, name: str) -> Path:
    """model.onnx, onnx/model.onnx, or the only graph there is; among several others the caller must choose."""
    for usual in (folder / "model.onnx", folder / "onnx" / "model.onnx"):
        if usual.is_file():
            return usual
    graphs = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if len(graphs) != 1:
        names = ", ".join(str(file.relative_to(folder)) for file in graphs) or "none"
        raise ModelError(
            f"{name}: which graph is meant? Found: {names}; needed: one. Pass the path of the .onnx file itself."
        )
    return graphs[0]


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
        descriptions = [f"{entry.name} {entry.shape}" for entry in session.get_outputs()]
        raise ModelError(
            f"{name}: no output has the shape (texts, positions, dimensions); found: {', '.join(descriptions)}. Export "
            f"the model with its last hidden state as an output."
        )
    return next((entry for wanted in _OUTPUTS for entry in outputs if entry.name == wanted), outputs[0])


def _card(home: Path, output: Any, *, name: str, revision: str) -> ModelCard:
    config = read_settings(home / "config.json")
    declared = read_declaration(home, name=name)
    warn_of_cut(declared.truncate_dim, name=name)
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
        layers=config.get("num_hidden_layers", config.get("n_layers")),
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


# -- the same weights on torch ----------------------------------------------------------------------------------------

_AGREE = 1e-4  # of the largest number in the last layer; float32 in another order of the sums gives some 1e-6


def _load_twin(backend: OnnxBackend, file: Path, settings: Path) -> TorchBackend:
    """The graph's weights in the class that its config.json names, or the error that says what is missing."""
    onnx, torch, library = require("onnx", "onnx"), require("torch", "torch"), require("transformers", "torch")
    if not settings.is_file():
        raise ModelError("To look inside, its config.json is needed beside tokenizer.json: copy it there.")
    try:
        model = library.AutoModel.from_config(
            library.AutoConfig.from_pretrained(settings.parent, local_files_only=True)
        )
        graph = onnx.load(str(file)).graph
    except Exception as error:  # configurations and graphs of every kind
        raise ModelError(f"To look inside, its config.json and graph must be readable ({error}).") from error
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items() if "pooler" not in name}
    weights = _named_weights(graph, wanted, onnx.numpy_helper.to_array)
    absent = [name for name, shape in wanted.items() if name not in weights or weights[name].shape != shape]
    if absent:
        raise ModelError(
            f"To look inside, its weights must have their names: {len(absent)} of {len(wanted)} of a "
            f"{type(model).__name__} are not in the graph, which was fused or quantised (first: {absent[0]}). Pass the "
            f"model's folder of transformers, or a plain export in float32."
        )
    model.load_state_dict(
        {name: torch.from_numpy(value.copy()).float() for name, value in weights.items()}, strict=False
    )
    twin = TorchBackend([model.eval()], backend._card, pad_id=backend.pad_id)
    _check_agreement(backend, twin, model.config.vocab_size)
    return twin


def _named_weights(
    graph: Any, wanted: Mapping[str, tuple[int, ...]], read: Callable[[Any], NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The weights of a graph by the names that they have in the model.

    An exporter keeps most names, behind a prefix. The matrix of a linear layer it stores transposed under a number; its
    name is that of the bias that is added next, or stands in the name of the multiplication.
    """
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:  # equal tensors are kept once, and have their other names by such nodes
        if node.op_type == "Identity" and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
    products = {
        node.output[0]: (node.name, node.input[1])
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in stored
    }
    matrices = {name.strip("/").rpartition("/")[0].replace("/", "."): matrix for name, matrix in products.values()}
    for node in graph.node:
        if node.op_type == "Add":
            for one, other in (node.input, reversed(node.input)):
                if one in products and other in stored:
                    matrices[other.removesuffix(".bias")] = products[one][1]
    first = next(iter(wanted))
    prefix = next((name.removesuffix(first) for name in stored if name.endswith(first)), "")
    weights: dict[str, NDArray[Any]] = {}
    for name in wanted:
        if f"{prefix}{name}" in stored:
            weights[name] = read(stored[f"{prefix}{name}"])
        elif (matrix := matrices.get(f"{prefix}{name}".removesuffix(".weight"))) is not None:
            weights[name] = read(stored[matrix]).T
    return weights


def _check_agreement(backend: OnnxBackend, twin: TorchBackend, vocabulary: int) -> None:
    """Refuse a model that gives other numbers than the graph, on two texts of different lengths."""
    length = min(16, backend._card.positions or 16)
    ids = np.random.default_rng(0).integers(0, vocabulary, (2, length))
    mask = np.arange(length) < np.array([[length], [length // 2]]) if backend.padding else np.ones((2, length), bool)
    batch = Batch(ids, mask, mask, None, np.arange(int(mask.sum())))
    last = backend._card.last
    expected = backend._forward(last, batch)[last]
    with twin.workers([last]) as functions:
        received = functions[0](batch)[last]
    difference = float(np.abs(received - expected).max() / max(1.0, float(np.abs(expected).max())))
    if not difference <= _AGREE:
        raise ModelError(
            f"To look inside, its weights were put into a model of transformers, which gives other numbers than the "
            f"graph (by {difference:.1e} of the largest; allowed: {_AGREE:g}). Pass the model's folder of transformers."
        )
