"""Which family a file or folder belongs to."""

from __future__ import annotations

from pathlib import Path

from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.encoders.declaration import read_declaration, read_settings
from poolscope.errors import ModelError


def load_path(path: Path, *, name: str, revision: str | None, options: EncoderOptions) -> TokenEncoder:
    """The encoder of a file (`.onnx`, word vectors) or folder (static table, transformers, ONNX)."""
    if path.is_file():
        return _load_file(path, name=name, options=options)
    match family(path, name=name):
        case "static":
            from poolscope.encoders.static import load_static_folder

            return load_static_folder(path, name=name, revision=revision, options=options)
        case "onnx":
            from poolscope.encoders.onnx import load_onnx

            return load_onnx(path, name=name, revision=revision, options=options)
    from poolscope.encoders.transformers import load_folder

    return load_folder(path, name=name, revision=revision, options=options)


def family(path: Path, *, name: str) -> str:
    """What loads a folder, by the name of the extra that it needs: "static", "onnx" or "torch"."""
    if _is_static(path, name=name):
        return "static"
    place = path / read_declaration(path, name=name).subfolder
    weights = any(place.glob("*.safetensors")) or any(place.glob("pytorch_model*.bin"))
    if not weights and any(path.glob("**/*.onnx")):
        return "onnx"
    if not (place / "config.json").is_file():
        raise ModelError(
            f"{name}: the folder holds no model that poolscope knows; needed: config.json with weights "
            f"(transformers), modules.json (sentence-transformers), model.onnx or a static table."
        )
    return "torch"


def _load_file(path: Path, *, name: str, options: EncoderOptions) -> TokenEncoder:
    if path.suffix == ".onnx":
        from poolscope.encoders.onnx import load_onnx

        return load_onnx(path, name=name, revision=None, options=options)
    if path.suffix in (".txt", ".vec"):
        from poolscope.encoders.word_vectors import load_word_vectors

        return load_word_vectors(path, name=name, options=options)
    raise ModelError(
        f"{name}: a file of type {path.suffix or 'unknown'!r} is no model; allowed files: .onnx, and .txt or .vec "
        f"with a word and its vector on each line. Pass the model's folder."
    )


def _is_static(folder: Path, *, name: str) -> bool:
    config = read_settings(folder / "config.json")
    return config.get("model_type") == "model2vec" or read_declaration(folder, name=name).first == "StaticEmbedding"
