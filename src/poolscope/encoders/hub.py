"""Models from the Hugging Face hub, fetched once into its ordinary cache."""

from __future__ import annotations

import re
from pathlib import Path

from poolscope.encoders.base import EncoderOptions
from poolscope.errors import ModelError, require

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WANTED = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_UNWANTED = ("onnx/*", "openvino/*", "original/*", "*.gguf")


def is_hub_name(name: str) -> bool:
    """Whether a name has the form `model` or `organisation/model`.

    >>> is_hub_name("intfloat/e5-base-v2"), is_hub_name("./folder/model"), is_hub_name("model.onnx")
    (True, False, False)
    """
    is_file = name.endswith((".onnx", ".txt", ".vec", ".safetensors"))
    return _HUB_NAME.fullmatch(name) is not None and not name.startswith(".") and not is_file


def fetch(name: str, options: EncoderOptions) -> Path:
    """The folder of one commit of a hub model, from the cache or downloaded; its name is the commit.

    Only configuration, tokenizer and safetensors files are fetched; pickles with `allow_pickle` and Python
    files with `trust_remote_code` only. Nothing is downloaded when HF_HUB_OFFLINE is set.
    """
    hub = require("huggingface_hub", "torch")
    wanted = [
        *_WANTED,
        *(["pytorch_model*"] if options.allow_pickle else []),
        *(["*.py"] if options.trust_remote_code else []),
    ]
    try:
        return Path(
            hub.snapshot_download(
                name, revision=options.revision, allow_patterns=wanted, ignore_patterns=list(_UNWANTED)
            )
        )
    except (OSError, ValueError) as error:
        at = "" if options.revision is None else f" at revision {options.revision!r}"
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"{name}: no such file or folder here, and the hub model{at} cannot be reached ({type(error).__name__}: "
            f"{reason}). Check the name, the network and HF_HUB_OFFLINE; log in for a gated model; or pass a folder."
        ) from error
