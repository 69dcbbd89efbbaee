"""Other tokens than those of texts: patches of images and frames of sound, through the model's own processor."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard, Progress, check_layers
from poolscope.encoders.door import is_pair
from poolscope.encoders.folders import Declaration, check_folder_content, digest_model, no_larger_than_weights
from poolscope.encoders.named import fetch, is_hub_name
from poolscope.encoders.opening import opening
from poolscope.encoders.transformers import quietly
from poolscope.errors import InputError, ModelError, explained, require
from poolscope.files import is_file
from poolscope.texts.plain import Room
from poolscope.words import warn

# Of each kind of input: what the model must read, and what its items are.
READS = {"images": ("pixel_values",), "audio": ("input_features", "input_values")}
ITEMS = {"images": "PIL images, arrays (height × width × 3) or files", "audio": "one-dimensional arrays of samples"}
_BATCH = 8
_LOUDEST = 2**31  # the largest sample of any file of sound: 32 bits, if nobody scaled it


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
                f"for {kind}: one that reads {' or '.join(READS[kind])} (ViT, CLIP, SigLIP, DINO; Whisper)."
            )
        config = self._model.config
        if getattr(config, "mask_ratio", 0):
            raise ModelError(
                f"{name}: received a {type(model).__name__}, which hides patches at random (mask_ratio "
                f"{config.mask_ratio}), so that no two clouds of an image are alike; needed: an encoder that reads all "
                f"of them. Load its weights into one (ViTModel for ViT-MAE) and pass (model, processor)."
            )
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
        wanted = check_layers(layers, self.card.layers, name=self.card.name)
        states: dict[int, list[NDArray[Any]]] = {layer: [] for layer in wanted}
        self._say_cut(items)
        # Raw samples are of any length, and models differ in what they do with silence behind them: one by one.
        batch = 1 if self._model.main_input_name == "input_values" else _BATCH
        for start in range(0, len(items), batch):
            inputs = self._inputs(items[start : start + batch])
            mask = inputs.pop("attention_mask", None) if self._kind == "audio" else inputs.get("pixel_attention_mask")
            with torch.inference_mode():
                output = self._run(inputs)
            hidden = [*output.hidden_states[:-1], output.last_hidden_state]
            for layer, number in wanted.items():
                rows = hidden[number].float().cpu().numpy()
                states[layer] += [row[:count] for row, count in zip(rows, _lengths(mask, rows), strict=True)]
            if progress is not None:
                progress(len(items[start : start + batch]), 0)
        about = {"model": self.card.to_dict(), "options": {}}
        return {
            layer: TokenClouds.from_arrays(clouds, ids=ids, provenance={**about, "layer": layer})
            for layer, clouds in states.items()
        }

    def _run(self, inputs: Mapping[str, Any]) -> Any:
        try:
            return self._model(**inputs, output_hidden_states=True, return_dict=True)
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            raise ModelError(
                f"{self.card.name}: the model ({type(self._model).__name__}) cannot read what the processor "
                f"({type(self._processor).__name__}) made ({_first_line(error)}); needed: the processor of this model. "
                f"Pass that."
            ) from error

    def _inputs(self, items: Sequence[Any]) -> dict[str, Any]:
        try:
            made = self._processed(items)
            needed = made[self._model.main_input_name]
            inputs = {key: value.to(self._model.device) for key, value in made.items()}
        except Exception as error:  # a processor raises whatever it does next with what it cannot use
            raise InputError(
                f"{self._kind}: the processor ({type(self._processor).__name__}) cannot be used on them "
                f"({type(error).__name__}: {_first_line(error)}); needed: the processor of this model, and "
                f"{ITEMS[self._kind]}. Check both."
            ) from error
        if len(needed) != len(items):
            raise InputError(
                f"{self._kind}: the processor ({type(self._processor).__name__}) made {len(needed)} of {len(items)}; "
                f"needed: one each. Pass the processor of this model."
            )
        return inputs

    def _say_cut(self, items: Sequence[Any]) -> None:
        """Say how many sounds are longer than what the processor hands on: it cuts them without a word."""
        most = getattr(self._processor, "n_samples", None) if self._kind == "audio" else None
        if most and (count := sum(len(item) > most for item in items)):
            warn(
                f"audio: {count} of {len(items)} sounds have more than {most:,} samples, and the processor cuts them "
                f"there. Cut them into pieces to have all of them measured."
            )

    def _processed(self, items: Sequence[Any]) -> Any:
        if self._kind == "images":
            return self._processor(images=list(items), return_tensors="pt")
        rate = getattr(self._processor, "sampling_rate", None)
        return self._processor(list(items), sampling_rate=rate, return_tensors="pt", return_attention_mask=True)


def open_patches(model: Any, kind: str, options: Mapping[str, Any]) -> PatchEncoder:
    """The encoder of a pair (model, processor), or of a name or folder that holds both."""
    if options:
        raise InputError(
            f"{kind}: received the options {sorted(options)}; no option applies to {kind}. Leave them out."
        )
    loader = "AutoImageProcessor" if kind == "images" else "AutoFeatureExtractor"
    loaded, processor, name, revision = load_with_processor(model, kind, loader)
    return PatchEncoder(loaded, processor, kind=kind, name=name, revision=revision)


def load_with_processor(model: Any, kind: str, loader: str) -> tuple[Any, Any, str, str | None]:
    """A model whole, its processor by a loader of transformers, its name and the digest of its files.

    `model`: a pair (model, processor), as it is; or a folder or a hub name, opened in a process with limits first.
    """
    if is_pair(model):
        return model[0], model[1], getattr(model[0], "name_or_path", "") or type(model[0]).__name__, None
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
    with opening("patches", folder, name=name, reads=kind) as first:
        library = require("transformers", "torch")
        revision = digest_model(folder, sorted(folder.glob("*.safetensors")))
        first.facts()
        with quietly(), _loading(name):
            loaded = library.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
            processor = getattr(library, loader).from_pretrained(folder, local_files_only=True)
    return loaded, processor, name, revision


def rehearse_patches(folder: Path, *, name: str, options: EncoderOptions, reads: str) -> dict[str, Any]:
    """Open a model of images or sound as `open_patches` does, without its weights; return what was learned."""
    torch, library = require("torch", "torch"), require("transformers", "torch")
    with quietly(), _loading(name):
        config = library.AutoConfig.from_pretrained(folder, local_files_only=True)
        packed = getattr(config, "quantization_config", None) is not None
        with torch.device("meta"), no_larger_than_weights(folder, packed=packed):
            model = library.AutoModel.from_config(config)
        encoder = PatchEncoder(model, _processor(folder, reads), kind=reads, name=name)
    return {"model": type(model).__name__, "dimension": encoder.card.dimension, "parameters": encoder.card.parameters}


def _processor(folder: Path, kind: str) -> Any:
    library = require("transformers", "torch")
    loader = library.AutoImageProcessor if kind == "images" else library.AutoFeatureExtractor
    return loader.from_pretrained(folder, local_files_only=True)


def _loading(name: str) -> AbstractContextManager[None]:
    return explained(
        f"{name}: cannot be loaded by transformers",
        "Check that the folder holds config.json, preprocessor_config.json and weights in safetensors of one model.",
    )


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
        return [_sound(item, position) for position, item in enumerate(listed)], None
    paths = [isinstance(item, str | os.PathLike) for item in listed]
    if not any(paths):
        return [_image(item, position) for position, item in enumerate(listed)], None
    if not all(paths):
        raise InputError("images: received files and images in one list; allowed: one of the two. Open the files.")
    names = [os.fsdecode(item) for item in listed]
    return [_read_image(name) for name in names], names


def _sound(item: Any, position: int) -> NDArray[np.float32]:
    try:
        usable = np.ndim(item) == 1 and len(item) > 0 and not np.iscomplexobj(item)
        usable = usable and bool((np.abs(np.asarray(item, dtype=np.float64)) <= _LOUDEST).all())
        shape = f"shape {np.shape(item)}"
    except (TypeError, ValueError, OverflowError):
        usable, shape = False, "entries that are no numbers"
    if not usable:
        raise InputError(
            f"audio: entry {position} has {shape}; allowed: {ITEMS['audio']}, finite, at most {_LOUDEST:,} in size, at "
            f"the sampling rate of the model. Read the file and mix it to one channel first."
        )
    return np.asarray(item, dtype=np.float32)


def _image(item: Any, position: int) -> Any:
    """An image in three colours, whatever its mode; an array as it is, once it is known to be one of an image."""
    library = sys.modules.get("PIL.Image")  # without it nothing can be one of its images
    if library is not None and isinstance(item, library.Image):
        return _in_colours(item, f"entry {position}")
    if not hasattr(item, "shape") or not hasattr(item, "__array__"):
        raise InputError(f"images: entry {position} is of type {type(item).__name__}; allowed: {ITEMS['images']}.")
    try:
        table = np.asarray(item)
    except Exception as error:  # an array of another library, which may be on another device
        raise InputError(
            f"images: entry {position} cannot be read as an array ({_first_line(error)}); allowed: {ITEMS['images']}."
        ) from error
    coloured = table.ndim == 3 and 3 in (table.shape[0], table.shape[2]) and table.size > 0
    if not coloured or table.dtype.kind not in "uif" or not np.isfinite(table).all():
        raise InputError(
            f"images: entry {position} is {table.dtype} of shape {table.shape}; allowed: {ITEMS['images']}, of finite "
            f"numbers. Convert it first."
        )
    return item


def _read_image(name: str) -> Any:
    library = require("PIL.Image", "images")
    if not is_file(Path(name)):  # to open a pipe would be to wait for its other end
        raise InputError(f"images: {name!r} cannot be read as an image (no regular file). Check the names.")
    try:
        with library.open(name) as image:
            Room(Path(name)).take(3 * image.width * image.height)  # a small file may say that it is an enormous image
            return _in_colours(image, repr(name))
    except InputError:
        raise
    except Exception as error:  # damaged files raise whatever the reader of that file raises
        raise InputError(
            f"images: {name!r} cannot be read as an image ({_first_line(error)}). Check the names."
        ) from error


def _in_colours(image: Any, which: str) -> Any:
    try:
        width, height = image.size
        converted = image.convert("RGB")
    except Exception as error:  # a closed image, or damaged bytes
        raise InputError(
            f"images: {which} cannot be read as an image ({_first_line(error)}). Open it again, and do not close it."
        ) from error
    if not width or not height:
        raise InputError(f"images: {which} has {width} × {height} pixels; allowed: one or more each way. Leave it out.")
    return converted


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:160]


def _lengths(mask: Any, rows: NDArray[Any]) -> list[int]:
    """How many tokens of each item are its own: no silence behind a sound, no patches that fill up an image."""
    if mask is None or mask.ndim != 2:
        return [rows.shape[1]] * len(rows)
    share = mask.sum(dim=1).cpu().numpy() / mask.shape[1]
    return [max(1, int(np.ceil(part * rows.shape[1] - 1e-9))) for part in share]
