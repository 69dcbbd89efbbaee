"""One door: recognise what was passed as a model, and hand it to its family."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from poolscope.clouds import TokenClouds
from poolscope.encoders.arrays import ArrayEncoder, FunctionEncoder
from poolscope.encoders.base import EncoderOptions, Progress, TokenEncoder
from poolscope.encoders.capabilities import EncoderSpec
from poolscope.encoders.pooling import declares_nothing
from poolscope.encoders.reports import pooling_report
from poolscope.errors import InputError
from poolscope.texts import Texts

_LOG = logging.getLogger(__name__)

_ALLOWED = (
    "a hub name, a model folder or file, builtin:minilm, a SentenceTransformer, a pair (transformers model, "
    "tokenizer), a function from texts to token arrays, an encoder, TokenClouds, or a list of token arrays"
)


@overload
def encode(
    model: Any, texts: Sequence[str], *, layers: None = None, progress: Progress | None = None, **options: Any
) -> TokenClouds: ...
@overload
def encode(
    model: Any, texts: Sequence[str], *, layers: Sequence[int], progress: Progress | None = None, **options: Any
) -> dict[int, TokenClouds]: ...
def encode(
    model: Any,
    texts: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> TokenClouds | dict[int, TokenClouds]:
    """The token clouds of texts: for each text the tokens that the model's own mean pooling averages.

    `model` is anything `as_encoder` takes and `options` are the fields of `EncoderOptions`. With `layers`
    (0 = embedding output, negative from the end) the result is a dictionary from layer to clouds, all from one
    forward pass; without, the clouds of the layer that the model pools. A model that does not pool by the mean is
    named in a logged warning. `Texts` of `read_texts` keep their ids, and the clouds remember where they came from.

    >>> encode(lambda texts: [[[float(len(text)), 1.0]] for text in texts], ["a", "bc"])
    TokenClouds(2 texts, 2 tokens, dimension 2, float64)
    """
    encoder = as_encoder(model, **options)
    _warn_of_pooling(encoder, named=isinstance(model, str | os.PathLike))
    clouds = encoder.encode(texts, layers=layers, progress=progress)
    if isinstance(texts, Texts):
        origin = {"texts": texts.origin()}
        clouds = {layer: part.described(ids=texts.ids, provenance=origin) for layer, part in clouds.items()}
    return clouds[-1] if layers is None else clouds


def as_encoder(model: Any, **options: Any) -> TokenEncoder:
    """An encoder from whatever the caller has; `options` are the fields of `EncoderOptions`.

    Allowed: a hub name; a folder of sentence-transformers, transformers, ONNX or model2vec; an `.onnx` file; a
    text file of word vectors; `builtin:minilm`; a loaded `SentenceTransformer`; a pair (transformers model,
    tokenizer); a function from texts to token arrays; an encoder; `TokenClouds` or a list of token arrays.
    """
    chosen = _options(options)
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        encoder = _from_name(name, chosen)
        encoder.spec = EncoderSpec(name, chosen)  # type: ignore[attr-defined]
        return encoder
    if _library(model) == "sentence_transformers":
        from poolscope.encoders.sentence_transformers import wrap_sentence_transformer

        return wrap_sentence_transformer(model, chosen)
    if isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "forward") and callable(model[1]):
        from poolscope.encoders.transformers import wrap_loaded

        return wrap_loaded(model[0], model[1], options=chosen)
    if hasattr(model, "forward"):
        raise InputError(
            f"model: received a {type(model).__name__} alone; pass it with its tokenizer: (model, tokenizer)."
        )
    if chosen != EncoderOptions():
        raise InputError(
            f"received the options {sorted(options)} for {type(model).__name__}; no option applies to what poolscope "
            f"only hands on. Set them where the vectors are made."
        )
    if isinstance(model, TokenClouds):
        return ArrayEncoder(model)
    if isinstance(model, TokenEncoder):
        return model
    if callable(model):
        return FunctionEncoder(model)
    if isinstance(model, Sequence) and len(model) and all(hasattr(item, "__len__") for item in model):
        return ArrayEncoder.from_arrays(model)
    raise InputError(f"model: received {type(model).__name__}; allowed: {_ALLOWED}.")


def _warn_of_pooling(encoder: TokenEncoder, *, named: bool) -> None:
    """Log that the model does not pool by the mean; that it declares nothing only of a model that was named."""
    if encoder.card.pooling or (named and declares_nothing(encoder.card)):
        warning = pooling_report(encoder).warning()
        if warning is not None:
            _LOG.warning("%s: %s", encoder.card.name, warning)


def _options(options: dict[str, Any]) -> EncoderOptions:
    known = EncoderOptions.__dataclass_fields__
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"received the unknown options {unknown}; allowed: {', '.join(known)}.")
    return EncoderOptions(**options)


def _library(model: Any) -> str:
    """The package that a class, or one it inherits from, was defined in, if it is one we wrap."""
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return next(iter(packages & {"sentence_transformers"}), "")


def _from_name(name: str, options: EncoderOptions) -> TokenEncoder:
    from poolscope.encoders.builtin import PREFIX, load_builtin
    from poolscope.encoders.folders import load_path
    from poolscope.encoders.hub import fetch, is_hub_name

    if name.startswith(PREFIX):
        return load_builtin(name, options)
    path = Path(name).expanduser()
    if path.exists():
        if options.revision is not None:
            raise InputError(
                f"revision: received {options.revision!r} for the local {path}; it applies to hub names only."
            )
        return load_path(path, name=name, revision=None, options=options)
    if not is_hub_name(name):
        raise InputError(f"model: no file or folder {name!r} here, and it is no hub name; allowed: {_ALLOWED}.")
    folder = fetch(name, options)
    return load_path(folder, name=name, revision=folder.name, options=options)
