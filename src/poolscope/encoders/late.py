"""Late-interaction models (ColBERT): one vector for each token, scored by MaxSim, as their own library makes them.

Dense layers on tokens, query expansion by [MASK], skip lists and prefixes are theirs: sentence-transformers runs its
own models and the folders of PyLate and Stanford's ColBERT, and PyLate runs a model that it has loaded. Here their
tokens become clouds, with the ids of the tokens and how many were cut off.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import (
    KEEPS_TOKENS,
    EncoderOptions,
    ModelCard,
    Progress,
    check_layers,
    check_texts,
    resolve_prompt,
)
from poolscope.encoders.batching import chosen_length
from poolscope.encoders.capabilities import EncoderSpec, as_numpy
from poolscope.encoders.folders import check_folder_content, digest_model, read_declaration, read_modules, read_settings
from poolscope.encoders.opening import opening
from poolscope.encoders.pooling import ACTIVATIONS
from poolscope.encoders.tokens import Tokens, Vocabulary, tokenize
from poolscope.encoders.torch_backend import choose_devices
from poolscope.encoders.transformers import loaded_quietly, quietly, weight_files
from poolscope.errors import InputError, ModelError, require

# In config_sentence_transformers.json: what sentence-transformers and PyLate call such a model, and entries that
# PyLate alone writes.
_TYPES = ("MultiVectorEncoder", "ColBERT")
_PYLATE = ("query_prefix", "document_prefix", "do_query_expansion", "attend_to_expansion_tokens", "skiplist_words")
_STANFORD = "HF_ColBERT"  # the architecture that config.json names
# Modules that a folder may name. Others would be code that nobody here has read.
_MODULES = ("Transformer", "Dense", "MultiVectorMask", "Normalize", "HierarchicalTokenPooling")
# Texts handed to the library at once: it holds their padded tokens until all are done.
_CHUNK = 512

Array = NDArray[Any]


@dataclass(frozen=True)
class TextTokens:
    """The kept tokens of one text (tokens × d), and their vocabulary ids; None where tokens were merged."""

    vectors: Array
    ids: Array | None


# -- the two libraries ------------------------------------------------------------------------------------------------


class _Library:
    """A loaded model, and what both libraries call alike."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @cached_property
    def prompts(self) -> dict[str, str]:
        return {name: text for name, text in (self.model.prompts or {}).items() if text}

    @property
    def tokenizer(self) -> Any:
        return self.model.tokenizer


class _SentenceTransformers(_Library):
    """A `MultiVectorEncoder` of sentence-transformers."""

    def longest(self, role: str) -> int | None:
        """The tokens at which texts of a role are cut."""
        first = self.model[0]
        own: int | None = first.document_length if role == "document" else first.query_length
        if role == "query" and first.query_expansion is not None:
            own = max(first.query_expansion["length"], own or 0)
        return own or cast("int | None", self.model.max_seq_length)

    def encode(self, texts: list[str], *, role: str, prompt: str, max_length: int | None) -> list[TextTokens]:
        """The tokens of texts, as `encode_query` and `encode_document` give them."""
        limit = {} if max_length is None else {"processing_kwargs": {"text": {"max_length": max_length}}}
        rows = self.model.encode(texts, prompt=prompt, task=role, output_value=None, show_progress_bar=False, **limit)
        return [self._row(row) for row in rows]

    @staticmethod
    def _row(row: dict[str, Any]) -> TextTokens:
        scored = row["attention_mask"].bool()
        vectors, ids = as_numpy(row["token_embeddings"][scored]), row.get("input_ids")
        return TextTokens(vectors, None if ids is None or ids.shape != scored.shape else as_numpy(ids[scored]))

    def whole_lengths(self, texts: Sequence[str], *, role: str, prompt: str) -> NDArray[np.int64]:
        """How many tokens texts have before anything is cut."""
        return tokenize(self.tokenizer, [prompt + text for text in texts], None).lengths

    def fixed(self, role: str) -> bool:
        """Whether all texts of a role have one length, which no option changes."""
        expansion = self.model[0].query_expansion
        return role == "query" and expansion is not None and expansion["strategy"] == "fixed"


class _PyLate(_Library):
    """A `ColBERT` of PyLate. It puts the prefix of a role behind the first token by itself."""

    def longest(self, role: str) -> int | None:
        """The tokens at which texts of a role are cut."""
        return int(self.model.query_length if role == "query" else self.model.document_length)

    def encode(self, texts: list[str], *, role: str, prompt: str, max_length: int | None) -> list[TextTokens]:
        """The tokens of texts, as `encode` gives them."""
        if max_length is not None:
            raise InputError(
                f"max_length (--max-length): received {max_length} for a loaded ColBERT of PyLate, whose lengths are "
                f"its own. Set query_length and document_length of the model."
            )
        query = role == "query"
        rows = self.model.encode(texts, prompt=prompt or None, is_query=query, show_progress_bar=False)
        padded = self.model.tokenize([prompt + text for text in texts], is_query=query)
        ids, scored = padded["input_ids"], padded["attention_mask"].bool()
        if query and self.model.do_query_expansion:
            scored[:] = True
        elif not query:
            scored &= self.model.skiplist_mask(input_ids=ids, skiplist=self.model.skiplist).bool()
        return [TextTokens(np.asarray(row), as_numpy(ids[k][scored[k]])) for k, row in enumerate(rows)]

    def whole_lengths(self, texts: Sequence[str], *, role: str, prompt: str) -> NDArray[np.int64]:
        """How many tokens texts have before anything is cut."""
        prefix = self.model.query_prefix_id if role == "query" else self.model.document_prefix_id
        return tokenize(self.tokenizer, [prompt + text for text in texts], None).lengths + (prefix is not None)

    def fixed(self, role: str) -> bool:
        """Whether all texts of a role have one length, which no option changes."""
        return True


# -- the encoder ------------------------------------------------------------------------------------------------------


class LateEncoder:
    """Clouds of the tokens that a late-interaction model keeps of queries or of documents.

    A text is a document unless its role says that it is a query. `card.pooling` is ("maxsim",): nothing is pooled.
    """

    def __init__(
        self, library: _SentenceTransformers | _PyLate, card: ModelCard, options: EncoderOptions, role: str | None
    ) -> None:
        self._library, self.card, self.options = library, card, options
        self.role = role or options.role or "document"
        by_role = options.prompt is None and options.prompt_name is None
        self.prompt = resolve_prompt(card, replace(options, role=self.role) if by_role else options)
        own = library.longest(self.role)
        self.max_length = own if library.fixed(self.role) else chosen_length(replace(card, max_length=own), options)
        self.spec: EncoderSpec | None = None
        self.vocabulary = Vocabulary.of_transformers(library.tokenizer)
        self.tokenize: Callable[[Sequence[str], int | None], Tokens] = partial(tokenize, library.tokenizer)

    def encode(
        self, texts: Sequence[str], *, layers: Sequence[int] | None = None, progress: Progress | None = None
    ) -> dict[int, TokenClouds]:
        """The tokens that the model scores by, of each text; see `TokenEncoder.encode`."""
        texts = check_texts(texts)
        wanted = check_layers(layers, None, name=self.card.name)
        changed = self.options.max_length is not None and not self._library.fixed(self.role)
        rows: list[TextTokens] = []
        for start in range(0, len(texts), _CHUNK):
            with _quiet_library():  # what was cut is counted below
                part = self._library.encode(
                    list(texts[start : start + _CHUNK]),
                    role=self.role,
                    prompt=self.prompt,
                    max_length=self.max_length if changed else None,
                )
            rows += part
            if progress is not None:
                progress(len(part), sum(len(row.vectors) for row in part))
        if empty := [k for k, row in enumerate(rows) if not len(row.vectors)]:
            raise InputError(
                f"{len(empty)} of {len(texts)} texts have no token that {self.card.name} scores by (positions "
                f"{empty[:10]}). Leave these texts out."
            )
        whole = self._library.whole_lengths(texts, role=self.role, prompt=self.prompt)
        clouds = TokenClouds.from_arrays(
            [row.vectors for row in rows],
            texts=texts,
            truncated=np.maximum(whole - (whole if self.max_length is None else self.max_length), 0),
            token_ids=None if any(row.ids is None for row in rows) else [np.asarray(row.ids) for row in rows],
            provenance={
                "model": self.card.to_dict(),
                "options": {**self.options.content(), "role": self.role},
                "layer": -1,
            },
        )
        return dict.fromkeys(wanted, clouds)

    def with_options(self, options: EncoderOptions, *, role: str | None = None) -> LateEncoder:
        """The same model with other options, for texts of another role."""
        other = LateEncoder(self._library, self.card, options, role)
        other.spec = None if self.spec is None else replace(self.spec, options=options, role=other.role)
        return other


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Let sentence-transformers say nothing below an error, whatever the caller logs."""
    logging = require("transformers", "torch").utils.logging
    logger = logging.get_logger("sentence_transformers")  # through which it logs
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quietly():
            yield
    finally:
        logger.setLevel(level)


# -- how one is opened ------------------------------------------------------------------------------------------------


def is_late_folder(folder: Path, *, name: str) -> bool:
    """Does a folder hold a late-interaction model: of sentence-transformers, of PyLate or of Stanford's ColBERT?"""
    settings = read_settings(folder / "config_sentence_transformers.json")
    modules = [str(module["type"]) for module in read_modules(folder)]
    if settings.get("model_type") in _TYPES or any(key in settings for key in _PYLATE):
        return True
    if any(kind.endswith(".MultiVectorMask") or kind.startswith("pylate.") for kind in modules):
        return True
    classes = read_settings(folder / "config.json").get("architectures")
    return isinstance(classes, list) and _STANFORD in classes


def load_late(folder: Path, *, name: str, revision: str | None, options: EncoderOptions) -> LateEncoder:
    """The encoder of a folder, loaded by sentence-transformers once the folder has been checked as any other."""
    declared = read_declaration(folder, name=name)
    place = folder / declared.subfolder
    trusted = options.trust_remote_code
    check_folder_content(place, declared, name=name, trusted=trusted, allow_pickle=options.allow_pickle)
    weights = weight_files(place, name=name, allow_pickle=options.allow_pickle)
    if not trusted:
        _check_modules(folder, name=name, allow_pickle=options.allow_pickle)
    kind = str(read_settings(place / "config.json").get("model_type"))
    with opening("transformers", folder, name=name, options=options, foreign=not trusted, model_type=kind) as first:
        library = require("sentence_transformers", "sentence-transformers")
        device = choose_devices(options.device)[0]
        revision = revision or digest_model(folder, weights)
        first.facts()
        half = {"dtype": options.dtype} if options.dtype else {"dtype": "float32"} if device.type == "cpu" else {}
        with loaded_quietly(name, place), _quiet_library():
            model = library.MultiVectorEncoder(
                str(folder),
                device=str(device),
                local_files_only=True,
                trust_remote_code=trusted,
                model_kwargs={**half, "use_safetensors": None if options.allow_pickle else True},
            )
    return _encoder(_SentenceTransformers(model), name=name, revision=revision, options=options)


def _check_modules(folder: Path, *, name: str, allow_pickle: bool) -> None:
    """Refuse modules that would run code from elsewhere, and weights that are pickled."""
    for module in read_modules(folder):
        kind, place = str(module["type"]), folder / str(module["path"])
        package, _, class_name = kind.partition(".")[0], *kind.rpartition(".")[1:]
        if package not in ("sentence_transformers", "pylate") or class_name not in _MODULES:
            raise ModelError(
                f"{name}: modules.json names {kind[:100]!r}; a late-interaction model may have "
                f"{', '.join(_MODULES)}. Pass --trust-remote-code (trust_remote_code=True) if you trust the source."
            )
        if class_name != "Dense":
            continue
        activation = str(read_settings(place / "config.json").get("activation_function", "Tanh")).rpartition(".")[2]
        if activation not in ACTIVATIONS:
            raise ModelError(
                f"{name}: its Dense has the activation {activation[:60]!r}; known: {', '.join(ACTIVATIONS)}. Pass "
                f"--trust-remote-code (trust_remote_code=True) if you trust the source."
            )
        if not (place / "model.safetensors").is_file() and not allow_pickle:
            raise ModelError(
                f"{name}: the weights of {place.name} are not in model.safetensors; pickled ones can run any code. "
                f"Save the model again, or pass --allow-pickle (allow_pickle=True) if you trust the source."
            )


def is_late_model(model: Any) -> bool:
    """Is a loaded model a MultiVectorEncoder of sentence-transformers, or a ColBERT of PyLate?"""
    return any(kind.__name__ == "MultiVectorEncoder" or _of_pylate(kind) for kind in type(model).__mro__)


def _of_pylate(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "pylate"


def wrap_late(model: Any, options: EncoderOptions) -> LateEncoder:
    """The encoder of a loaded model, used where it lies; another device or dtype is given to a copy."""
    if options.revision is not None:
        raise InputError(f"revision: received {options.revision!r} for a loaded model; it applies to hub names only.")
    if options.dtype is not None or options.device is not None:
        torch = require("torch", "torch")
        changes = {} if options.device is None else {"device": choose_devices(options.device)[0]}
        model = copy.deepcopy(model).to(
            **changes, **({} if options.dtype is None else {"dtype": getattr(torch, options.dtype)})
        )
    pylate = any(map(_of_pylate, type(model).__mro__))
    library = _PyLate(model) if pylate else _SentenceTransformers(model)
    name = str(getattr(getattr(model[0], "auto_model", None), "name_or_path", "") or type(model).__name__)
    return _encoder(library, name=name, revision=_digest(library), options=options)


def _digest(library: _SentenceTransformers | _PyLate) -> str:
    """sha256 of all weights, the vocabulary and the settings that change tokens: a model may have been trained on."""
    model, digest = library.model, hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(as_numpy(tensor).tobytes())
    settings = [library.prompts, library.longest("query"), library.longest("document")]
    settings += [getattr(model, key, None) for key in _PYLATE]
    settings += [module.get_config_dict() for module in model if hasattr(module, "get_config_dict")]
    digest.update(repr([settings, sorted(library.tokenizer.get_vocab().items())]).encode())
    return digest.hexdigest()


def _encoder(
    library: _SentenceTransformers | _PyLate, *, name: str, revision: str, options: EncoderOptions
) -> LateEncoder:
    model = library.model
    config = getattr(model[0].auto_model, "config", None)
    card = ModelCard(
        name=name,
        kind="late-interaction",
        dimension=_dimension(model, config),
        revision=revision,
        max_length=library.longest("document"),
        pooling=(KEEPS_TOKENS,),
        prompts=library.prompts,
        dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        positions=getattr(config, "max_position_embeddings", None),
        parameters=sum(weights.numel() for weights in model.parameters()),
    )
    return LateEncoder(library, card, options, options.role)


def _dimension(model: Any, config: Any) -> int:
    """Numbers of a token: those of the last Dense, else of the transformer."""
    widths = [module.out_features for module in model if hasattr(module, "out_features")]
    return int(widths[-1] if widths else config.hidden_size)
