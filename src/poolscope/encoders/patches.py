"""Other tokens than those of texts: patches of images and frames of sound, through the model's own processor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, check_layers
from poolscope.encoders.declaration import Declaration, digest_model
from poolscope.encoders.folders import check_folder_content
from poolscope.encoders.named import fetch, is_hub_name
from poolscope.encoders.transformers import quietly
from poolscope.errors import InputError, ModelError, require

# Of each kind of input: what the model must read, and what its items are.
READS = {"images": ("pixel_values",), "audio": ("input_features", "input_values")}
ITEMS = {"images": "PIL images, arrays (height × width × 3) or files", "audio": "one-dimensional arrays of samples"}
_BATCH = 8


class PatchEncoder:
    """The hidden states of the patches of images, or of the frames of sound, as clouds.

    All tokens of the last hidden state are in the cloud, a class token among them; frames of silence that the
    processor puts behind a sound are not. There is no attention to watch or to scale here.
    """

    lacking = "Models of images and of sound are looked at by their clouds only."

    def __init__(self, model: Any, processor: Any, *, kind: str, name: str, revision: str | None = None) -> None:
        self._model, self._processor, self._kind = _half(model, kind), _part(processor, kind), kind
        reads = getattr(self._model, "main_input_name", "")
        if reads not in READS[kind]:
            raise ModelError(
                f"{name}: received a {type(model).__name__}, which reads {reads or 'nothing that is known'}; needed "
                f"for {kind}: one that reads {' or '.join(READS[kind])} (ViT, CLIP, SigLIP, DINO; Whisper). Pass one."
            )
        config = self._model.config
        size = getattr(config, "hidden_size", None) or getattr(config, "d_model", None)
        depth = getattr(config, "encoder_layers", None) if kind == "audio" else None
        self.card = ModelCard(
            name,
            kind,
            dimension=int(size or 0),
            revision=revision,
            layers=depth or getattr(config, "num_hidden_layers", None),
            dtype=str(self._model.dtype).removeprefix("torch."),
            parameters=sum(weights.numel() for weights in self._model.parameters()),
        )

    def encode(
        self, texts: Sequence[Any], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """Clouds of the items (images or sounds, whatever the name of the argument), by layer."""
        torch = require("torch", "torch")
        items, ids = _items(texts, self._kind)
        asked = check_layers(layers, self.card.layers, name=self.card.name)
        states: dict[int, list[NDArray[Any]]] = {layer: [] for layer in asked}
        for start in range(0, len(items), _BATCH):
            inputs = self._inputs(items[start : start + _BATCH])
            mask = inputs.pop("attention_mask", None) if self._kind == "audio" else None
            with torch.inference_mode():
                output = self._model(**inputs, output_hidden_states=True, return_dict=True)
            hidden = [*output.hidden_states[:-1], output.last_hidden_state]
            for layer, number in asked.items():
                rows = hidden[number].float().cpu().numpy()
                states[layer] += [row[:count] for row, count in zip(rows, _lengths(mask, rows), strict=True)]
            if progress is not None:
                progress(len(items[start : start + _BATCH]), 0)
        about = {"model": self.card.to_dict(), "options": {}}
        return {
            layer: TokenClouds.from_arrays(clouds, ids=ids, provenance={**about, "layer": layer})
            for layer, clouds in states.items()
        }

    def _inputs(self, items: Sequence[Any]) -> dict[str, Any]:
        if self._kind == "images":
            made = self._processor(images=list(items), return_tensors="pt")
        else:
            rate = getattr(self._processor, "sampling_rate", None)
            made = self._processor(list(items), sampling_rate=rate, return_tensors="pt", return_attention_mask=True)
        return {key: value.to(self._model.device) for key, value in made.items()}


def open_patches(model: Any, kind: str, options: Mapping[str, Any]) -> PatchEncoder:
    """The encoder of a pair (model, processor), or of a name or folder that holds both."""
    if options:
        raise InputError(
            f"{kind}: received the options {sorted(options)}; no option applies to {kind}. Leave them out."
        )
    if isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "forward") and callable(model[1]):
        name = getattr(model[0], "name_or_path", "") or type(model[0]).__name__
        return PatchEncoder(*model, kind=kind, name=name)
    if not isinstance(model, str | os.PathLike):
        raise InputError(
            f"model: received {type(model).__name__} for {kind}; allowed: a folder, a hub name, or a pair (model, "
            f"processor) of transformers."
        )
    name = os.fspath(model)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if not is_hub_name(name):
            raise InputError(f"model: no folder {name!r} here, and it is no hub name. Check the spelling.")
        folder = fetch(name, EncoderOptions())
    check_folder_content(folder, Declaration(), name=name, trusted=False, allow_pickle=False)
    library = require("transformers", "torch")
    loader = library.AutoImageProcessor if kind == "images" else library.AutoFeatureExtractor
    try:
        with quietly():
            loaded = library.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
            processor = loader.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # damaged files raise whatever the reader of that file raises
        raise ModelError(
            f"{name}: cannot be loaded by transformers ({error}). Check that the folder holds config.json, "
            f"preprocessor_config.json and weights in safetensors of one model."
        ) from error
    revision = digest_model(folder, sorted(folder.glob("*.safetensors")))
    return PatchEncoder(loaded, processor, kind=kind, name=name, revision=revision)


def _half(model: Any, kind: str) -> Any:
    """The half of a model that reads the input: of CLIP the one for images, of Whisper the encoder."""
    if kind == "images":
        return getattr(model, "vision_model", model)
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def _part(processor: Any, kind: str) -> Any:
    """Of a processor for several kinds of input the part for this one."""
    part = "image_processor" if kind == "images" else "feature_extractor"
    return getattr(processor, part, None) or processor


def _items(items: Any, kind: str) -> tuple[list[Any], list[str] | None]:
    listed = list(items) if isinstance(items, Sequence) and not isinstance(items, str | bytes) else None
    if not listed:
        raise InputError(f"{kind}: received {type(items).__name__}; allowed: a list of at least one of {ITEMS[kind]}.")
    if kind == "audio":
        for position, item in enumerate(listed):
            if np.ndim(item) != 1 or not len(item) or not np.isfinite(np.asarray(item, dtype=np.float64)).all():
                raise InputError(
                    f"audio: entry {position} has shape {np.shape(item)}; allowed: {ITEMS[kind]}, finite, at the "
                    f"sampling rate of the model. Read the file and mix it to one channel first."
                )
        return [np.asarray(item, dtype=np.float32) for item in listed], None
    paths = [isinstance(item, str | os.PathLike) for item in listed]
    if not any(paths):
        return listed, None
    if not all(paths):
        raise InputError("images: received files and images in one list; allowed: one of the two. Open the files.")
    library = require("PIL.Image", "images")
    names = [os.fspath(item) for item in listed]
    try:
        return [library.open(path).convert("RGB") for path in names], names
    except OSError as error:
        raise InputError(f"images: a file cannot be read as an image ({error}). Check the names.") from error


def _lengths(mask: Any, rows: NDArray[Any]) -> list[int]:
    """How many tokens of each item are its own: of sound the frames that are no silence put behind it."""
    if mask is None:
        return [rows.shape[1]] * len(rows)
    share = mask.sum(dim=1).cpu().numpy() / mask.shape[1]
    return [max(1, int(np.ceil(part * rows.shape[1] - 1e-9))) for part in share]
