"""One door: recognise what was passed as a model, and hand it to its family.

`ENCODERS` is the table of the families. A package outside poolscope adds one by an entry point of the group
`poolscope.extensions`, whose module calls `register_encoder`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import (
    ArrayEncoder,
    EncoderOptions,
    FunctionEncoder,
    Progress,
    TokenEncoder,
    as_progress,
    texts_first,
)
from poolscope.encoders.capabilities import EncoderSpec, is_encoder
from poolscope.encoders.folders import is_router, refuse_adapter
from poolscope.encoders.gguf import is_gguf, load_gguf
from poolscope.encoders.late import is_late_folder, is_late_model, load_late, wrap_late
from poolscope.encoders.named import PREFIX, builtin_folder, check_builtin, fetch, is_hub_name, load_builtin, meant
from poolscope.encoders.onnx import is_onnx, load_onnx
from poolscope.encoders.pooling import declares_nothing
from poolscope.encoders.reports import pooling_report
from poolscope.encoders.static import is_static_folder, load_static_folder, load_word_vectors
from poolscope.encoders.transformers import (
    is_model_folder,
    load_folder,
    load_router,
    wrap_loaded,
    wrap_sentence_transformer,
)
from poolscope.errors import InputError, ModelError, explained
from poolscope.extensions import add_row, load_extensions, service
from poolscope.texts import Texts, as_texts
from poolscope.texts.sources import exists
from poolscope.words import logger

_LOG = logger(__name__)

# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """What was passed as a model.

    `name` is what was written, "" for an object; `path` the file or folder here that it means, None if there is none;
    `revision` the commit of a folder that came from the hub.
    """

    model: Any
    name: str = ""
    path: Path | None = None
    revision: str | None = None

    def is_file(self, *suffixes: str) -> bool:
        """Is it a file of one of these types?"""
        return self.path is not None and self.path.is_file() and self.path.suffix in suffixes

    def is_folder(self, recognised: Callable[..., bool]) -> bool:
        """Is it a folder that this function recognises?"""
        return self.path is not None and self.path.is_dir() and recognised(self.path, name=self.name)


@dataclass(frozen=True)
class EncoderKind:
    """A family of models: `words` say what to pass, `accepts` recognises it and `open` makes the encoder.

    `takes_options` is False for what is only handed on, where no option could have an effect. `extra` is the extra of
    poolscope that brings what it needs.
    """

    name: str
    words: str
    accepts: Callable[[Source], bool]
    open: Callable[[Source, EncoderOptions], TokenEncoder]
    takes_options: bool = True
    extra: str | None = None


def _located(load: Callable[..., TokenEncoder]) -> Callable[[Source, EncoderOptions], TokenEncoder]:
    """How a file or folder is opened, by a function that takes path, name and revision."""

    def open_located(source: Source, options: EncoderOptions) -> TokenEncoder:
        return load(source.path, name=source.name, revision=source.revision, options=options)

    return open_located


def _is_library(model: Any, package: str) -> bool:
    """Was its class, or one that it inherits from, defined in that package?"""
    return any(kind.__module__.partition(".")[0] == package for kind in type(model).__mro__)


def _as_it_was(model: Any) -> Any:
    """The model before torch.compile, which shows nothing of its modules."""
    return getattr(model, "_orig_mod", model)


def is_pair(model: Any) -> bool:
    """Is it a loaded model with its tokenizer or processor?"""
    return isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "forward") and callable(model[1])


def _is_arrays(model: Any) -> bool:
    return isinstance(model, Sequence) and len(model) > 0 and all(hasattr(item, "__len__") for item in model)


def _open_hub(source: Source, options: EncoderOptions) -> TokenEncoder:
    folder = fetch(source.name, options)
    return _open(Source(source.model, source.name, folder, folder.name), options)


# The first family that accepts a source opens it.
ENCODERS: dict[str, EncoderKind] = {
    kind.name: kind
    for kind in (
        EncoderKind(
            "builtin",
            "builtin:minilm",
            lambda source: source.name.startswith(PREFIX),
            lambda source, options: load_builtin(source.name, options),
        ),
        EncoderKind(
            "word-vectors",
            "a .txt or .vec file of word vectors",
            lambda source: source.is_file(".txt", ".vec"),
            _located(load_word_vectors),
        ),
        EncoderKind(
            "router",
            "a folder of a Router, with a role",
            lambda source: source.is_folder(is_router),
            _located(load_router),
            extra="torch",
        ),
        EncoderKind(
            "late-interaction",
            "a folder of a MultiVectorEncoder, PyLate or ColBERT",
            lambda source: source.is_folder(is_late_folder),
            _located(load_late),
            extra="sentence-transformers",
        ),
        EncoderKind(
            "static",
            "a folder of model2vec or StaticEmbedding",
            lambda source: source.is_folder(is_static_folder),
            _located(load_static_folder),
            extra="static",
        ),
        EncoderKind(
            "onnx",
            "an .onnx file or a folder with one",
            lambda source: source.is_file(".onnx") or source.is_folder(is_onnx),
            _located(load_onnx),
            extra="onnx",
        ),
        EncoderKind(
            "gguf",
            "a .gguf file or a folder with one",
            lambda source: source.is_file(".gguf") or source.is_folder(is_gguf),
            _located(load_gguf),
            extra="gguf",
        ),
        EncoderKind(
            "transformers",
            "a folder of transformers or sentence-transformers",
            lambda source: source.is_folder(is_model_folder),
            _located(load_folder),
            extra="torch",
        ),
        EncoderKind(
            "hub",
            "a hub name",
            lambda source: source.name != "" and source.path is None and is_hub_name(source.name),
            _open_hub,
        ),
        EncoderKind(
            "late-interaction model",
            "a MultiVectorEncoder or a ColBERT of PyLate",
            lambda source: is_late_model(_as_it_was(source.model)),
            lambda source, options: wrap_late(_as_it_was(source.model), options),
        ),
        EncoderKind(
            "sentence-transformers",
            "a SentenceTransformer",
            lambda source: _is_library(_as_it_was(source.model), "sentence_transformers"),
            lambda source, options: wrap_sentence_transformer(_as_it_was(source.model), options),
        ),
        EncoderKind(
            "pair",
            "a pair (transformers model, tokenizer)",
            lambda source: is_pair(source.model),
            lambda source, options: wrap_loaded(*source.model, options=options),
        ),
        EncoderKind(
            "clouds",
            "TokenClouds",
            lambda source: isinstance(source.model, TokenClouds),
            lambda source, _: ArrayEncoder(source.model),
            takes_options=False,
        ),
        EncoderKind(
            "encoder",
            "an encoder",
            lambda source: is_encoder(source.model) and not hasattr(source.model, "forward"),
            lambda source, _: source.model,
            takes_options=False,
        ),
        EncoderKind(
            "function",
            "a function from texts to token arrays",
            lambda source: callable(source.model) and not hasattr(source.model, "forward"),
            lambda source, _: FunctionEncoder(source.model),
            takes_options=False,
        ),
        EncoderKind(
            "arrays",
            "a list of token arrays",
            lambda source: not source.name and _is_arrays(source.model),
            lambda source, _: ArrayEncoder.from_arrays(source.model),
            takes_options=False,
        ),
    )
}


def register_encoder(kind: EncoderKind) -> EncoderKind:
    """Add a family to the table; a name stands once, and the newest is asked first.

    >>> def open_letters(source: Source, options: EncoderOptions) -> TokenEncoder:
    ...     return FunctionEncoder(lambda texts: [[[float(ord(letter)), 1.0] for letter in text] for text in texts])
    >>> kind = EncoderKind("letters", "letters:NAME", lambda source: source.name.startswith("letters:"), open_letters)
    >>> _ = register_encoder(kind)
    >>> encode("letters:any", ["ab", "c"])
    TokenClouds(2 texts, 3 tokens, dimension 2, float64)
    >>> del ENCODERS["letters"]
    """
    added: EncoderKind = add_row(ENCODERS, kind, "encoder kind", first=True)
    return added


def _open(source: Source, options: EncoderOptions) -> TokenEncoder:
    """By the first family that recognises the source, or an error that says what would be."""
    with _opened_in_one_line(source):
        kind = _kind_of(source)
    if not kind.takes_options and options != EncoderOptions():
        chosen = sorted(name for name, value in vars(options).items() if value != getattr(EncoderOptions(), name))
        raise InputError(
            f"received the options {chosen} for {type(source.model).__name__}; no option applies to what poolscope "
            f"only hands on. Set them where the vectors are made."
        )
    with _opened_in_one_line(source):
        return kind.open(source, options)


def _opened_in_one_line(source: Source) -> AbstractContextManager[None]:
    """What is raised over a model that was named is one line; an object that was passed is the caller's own code."""
    if not source.name:
        return nullcontext()
    return explained(f"{source.name}: it cannot be opened", "Check its files, or download it again.")


def _kind_of(source: Source) -> EncoderKind:
    load_extensions()
    kind = next((kind for kind in ENCODERS.values() if kind.accepts(source)), None)
    if kind is None:
        raise _unknown(source)
    return kind


def _unknown(source: Source) -> InputError | ModelError:
    allowed = ", ".join(kind.words for kind in ENCODERS.values())
    if source.path is not None and source.path.is_file():
        return ModelError(
            f"{source.name}: a file of type {source.path.suffix or 'unknown'!r} is no model; allowed files: .onnx, "
            f".gguf, and .txt or .vec with a word and its vector on each line. Pass the model's folder."
            f"{texts_first(source.name)}"
        )
    if source.path is not None:
        refuse_adapter(source.path, name=source.name)
        return ModelError(
            f"{source.name}: the folder holds no model that poolscope knows; needed: config.json with weights "
            f"(transformers), modules.json (sentence-transformers), model.onnx, a .gguf file or a static table."
            f"{texts_first(source.name)}"
        )
    if source.name:
        return InputError(
            f"model: no file or folder {source.name!r} here, and it is no hub name; allowed: {allowed}."
            f"{meant(source.name)}"
        )
    if hasattr(source.model, "forward"):
        kind = type(source.model).__name__
        return InputError(f"model: received a {kind} alone; pass it with its tokenizer: (model, tokenizer).")
    if hasattr(source.model, "ndim"):
        return InputError(
            f"model: received an array of shape {tuple(source.model.shape)}, which cannot encode texts; pooled vectors "
            f"(texts × dimensions) are audited by poolscope.audit(vectors, texts), token arrays are passed as a list."
        )
    return InputError(f"model: received {type(source.model).__name__}; allowed: {allowed}.")


# -- the door ---------------------------------------------------------------------------------------------------------


@overload
def encode(
    model: Any, texts: Any = None, *, layers: None = None, progress: bool | Progress | None = None, **options: Any
) -> TokenClouds: ...
@overload
def encode(
    model: Any, texts: Any = None, *, layers: Sequence[int], progress: bool | Progress | None = None, **options: Any
) -> dict[int, TokenClouds]: ...
def encode(
    model: Any,
    texts: Any = None,
    *,
    images: Any = None,
    audio: Any = None,
    layers: Sequence[int] | None = None,
    progress: bool | Progress | None = None,
    **options: Any,
) -> TokenClouds | dict[int, TokenClouds]:
    """The token clouds of texts: for each text the tokens that the model's own mean pooling averages.

    A model that does not pool by the mean is named in a logged warning.

    Parameters
    ----------
    model
        Anything that `as_encoder` takes.
    texts
        A list of texts, any iterable of them, or what `read_texts` reads: a path, a data frame, an Arrow table, a data
        set. The clouds of what was read have its ids and remember where they came from.
    images, audio
        In place of texts, for models of images or of sound (exploratory): a list of images (PIL, arrays or files), or
        of one-dimensional arrays of samples at the model's sampling rate. `model` is then a folder, a hub name or a
        pair (model, processor).
    layers
        Layers to give (0 = embedding output, negative from the end), all from one forward pass.
    progress
        True for a bar on standard error; or what is called after every batch with the number of texts and tokens just
        encoded.
    **options
        The fields of `EncoderOptions`: `role`, `prompt`, `max_length`, `dtype`, `device`, …

    Returns
    -------
    TokenClouds or dict
        The clouds of the layer that the model pools; with `layers` a dictionary from layer to clouds.

    Examples
    --------
    >>> encode(lambda texts: [[[float(len(text)), 1.0]] for text in texts], ["a", "bc"])
    TokenClouds(2 texts, 2 tokens, dimension 2, float64)

    """
    other = {kind: items for kind, items in (("images", images), ("audio", audio)) if items is not None}
    if other and len(other) + (texts is not None) > 1:
        raise InputError(
            "encode: received several of texts, images and audio; needed: one of them. Call encode once for each."
        )
    if other:
        (kind, items), *_ = other.items()
        shown = as_progress(progress, len(items))
        with _opened_in_one_line(Source(model, os.fspath(model) if isinstance(model, str | os.PathLike) else "")):
            encoder_of_patches = service("images and sound")(model, kind, options)
        states: dict[int, TokenClouds] = encoder_of_patches.encode(items, layers=layers, progress=shown)
        return states[-1] if layers is None else states
    texts = as_texts(texts)
    encoder = as_encoder(model, **options)
    _warn_of_pooling(encoder, named=isinstance(model, str | os.PathLike))
    clouds = encoder.encode(texts, layers=layers, progress=as_progress(progress, len(texts)))
    if isinstance(texts, Texts):
        origin = {"texts": texts.origin()}
        clouds = {layer: part.described(ids=texts.ids, provenance=origin) for layer, part in clouds.items()}
    return clouds[-1] if layers is None else clouds


def as_encoder(model: Any, **options: Any) -> TokenEncoder:
    """An encoder from whatever the caller has.

    Parameters
    ----------
    model
        A hub name; a folder of sentence-transformers, transformers, ONNX or model2vec; an `.onnx` or `.gguf` file; a
        text file of word vectors; `builtin:minilm`; a loaded `SentenceTransformer`, `MultiVectorEncoder` or `ColBERT`
        of PyLate; a pair (transformers model, tokenizer); a function from texts to token arrays; an encoder;
        `TokenClouds` or a list of token arrays. Packages from outside may add to these (`register_encoder`).
    **options
        The fields of `EncoderOptions`: `role`, `prompt`, `max_length`, `dtype`, `device`, …

    Returns
    -------
    TokenEncoder
        It has a `card`, which says what the model declares, and `encode`. What else it can do is asked for with
        `poolscope.encoders.capabilities`.

    Examples
    --------
    >>> encoder = as_encoder([[[1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]])
    >>> encoder.card.kind, encoder.encode(["one", "two tokens"])[-1].lengths.tolist()
    ('arrays', [1, 2])

    """
    chosen = _options(options)
    if isinstance(model, str | os.PathLike):
        return open_name(os.fspath(model), chosen)
    return _open(Source(model), chosen)


def open_name(name: str, options: EncoderOptions, *, path: str | None = None) -> TokenEncoder:
    """The encoder that a name means: `path`, if that is known already, or a file or folder here, or a model elsewhere.

    The encoder remembers how it was opened, so that another process can do the same.
    """
    here = _here(name) if path is None else Path(path)
    if here is not None and options.revision is not None:
        raise InputError(f"revision: received {options.revision!r} for the local {here}; it applies to hub names only.")
    encoder = _open(Source(name, name, here), options)
    if getattr(encoder, "spec", None) is None:
        with suppress(AttributeError):  # an encoder from outside may not let itself be written to
            encoder.spec = EncoderSpec(name, options, None if here is None else str(here.absolute()))  # type: ignore[attr-defined]
    return encoder


def recognised(name: str, options: EncoderOptions) -> tuple[Source, str]:
    """What a name means, and the name of its family; a model of the hub is fetched, and nothing is opened."""
    if name.startswith(PREFIX):
        return Source(name, name, builtin_folder(name)), "builtin"
    source = Source(name, name, _here(name))
    if _kind_of(source).name == "hub":
        folder = fetch(name, options)
        source = Source(name, name, folder, folder.name)
    with _opened_in_one_line(source):
        return source, _kind_of(source).name


def check_named(model: Any) -> None:
    """Refuse a name that no family of models recognises, before anything is opened or fetched."""
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        _kind_of(Source(name, name, _here(name)))
        if name.startswith(PREFIX):
            check_builtin(name)


def extra_of(name: str) -> str | None:
    """The extra that brings what opens a name; None where nothing more is needed."""
    return _kind_of(Source(name, name, _here(name))).extra


def _here(name: str) -> Path | None:
    """The file or folder that a name means, None if there is none."""
    path = Path(name)
    with suppress(RuntimeError):  # of somebody who is not here
        path = path.expanduser()
    return path if exists(path) and not name.startswith(PREFIX) else None


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
