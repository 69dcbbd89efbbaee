"""Encoders on transformers: a folder, a loaded model with its tokenizer, or a loaded SentenceTransformer.

Names and folders are read without the library sentence-transformers.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.encoders import decoders
from poolscope.encoders.base import EncoderOptions, ModelCard, TokenEncoder
from poolscope.encoders.batching import BatchedEncoder
from poolscope.encoders.capabilities import CONFIG_KEY, active_rule, apply_kept_rule, in_route
from poolscope.encoders.folders import (
    Declaration,
    check_folder_content,
    check_modules,
    chosen_route,
    digest_model,
    no_larger_than_weights,
    read_declaration,
    read_settings,
    warn_of_cut,
)
from poolscope.encoders.int8 import INT8, in_int8
from poolscope.encoders.opening import opening
from poolscope.encoders.pooling import Step, steps_of_folder, steps_of_modules
from poolscope.encoders.static import load_static_folder, wrap_static_embedding
from poolscope.encoders.tokens import ChatTokenizer, Vocabulary, check_vocabulary, declared_template, end_of, tokenize
from poolscope.encoders.torch_backend import TorchBackend, choose_devices, length_limits
from poolscope.errors import InputError, LibraryError, ModelError, PoolscopeError, explained, require
from poolscope.words import warn

# In the configuration of a folder that was converted from quantised weights: how they were stored.
QUANTIZATION_KEY = "poolscope_quantization"

_NUMBER = re.compile(r"\.\d+\.")  # of a layer, in the name of a weight

Finishing = Callable[[], tuple[Step, ...]]


class OwnCodeWarning(UserWarning):
    """A model folder names code of its own, and the class of transformers is taken in its place."""


def is_model_folder(folder: Path, *, name: str) -> bool:
    """Does the folder hold a configuration of transformers, where its modules.json says or at its top?"""
    return (folder / read_declaration(folder, name=name).subfolder / "config.json").is_file()


def load_folder(
    folder: Path, *, name: str, revision: str | None, options: EncoderOptions, foreign: bool = True
) -> BatchedEncoder:
    """The encoder of a model folder, with or without the declarations of sentence-transformers.

    `foreign` is False for a folder every file of which is known by its digest.
    """
    declared = read_declaration(folder, name=name, role=options.role)
    warn_of_cut(declared.truncate_dim, name=name)
    place = folder / declared.subfolder
    settings = read_settings(place / "config.json")
    if declared.latent is None:
        decoders.refuse_latent(settings, name=name)
    check_folder_content(
        place, declared, name=name, trusted=options.trust_remote_code, allow_pickle=options.allow_pickle
    )
    weights = weight_files(place, name=name, allow_pickle=options.allow_pickle)
    kind = str(settings.get("model_type"))
    foreign = foreign and not options.trust_remote_code  # whose own code can do anything here
    with opening("transformers", folder, name=name, options=options, foreign=foreign, model_type=kind) as first:
        devices = choose_devices(options.device)  # meanwhile: imports and digests take longer than the opening
        _ = require("transformers", "torch").PreTrainedModel
        if revision is None:
            revision = digest_model(folder, weights)
        first.facts()
        with loaded_quietly(name, place):
            model, tokenizer = _load(place, declared, options, device=devices[0])
            if declared.latent is not None:
                decoders.add_latent(model, declared.latent, weights, name=name)
    if not options.trust_remote_code and not declared.both_ways and declared.latent is None:
        _name_code_left_out(settings, model, name=name)
    models = [model.to(devices[0]), *(copy.deepcopy(model).to(device) for device in devices[1:])]
    encoder = _encoder(
        models,
        tokenizer,
        declared=declared,
        name=name,
        revision=revision,
        options=options,
        unembedding=decoders.stored_unembedding(model, weights),
        finishing=partial(steps_of_folder, folder, name=name, role=options.role),
    )
    try:  # settings that no layer can work with are noticed by nothing but its work
        with quietly(), _two_layers_only(model):
            encoder.encode(["a"])
    except LibraryError:
        raise
    except PoolscopeError:  # the third layer, or what the first batch of the caller says
        pass
    return encoder


@contextmanager
def _two_layers_only(model: Any) -> Iterator[None]:
    """Break off a pass before the third layer, so that a trial does not read all weights."""
    torch = require("torch", "torch")

    def stop(*_: Any) -> None:
        raise PoolscopeError("two layers were tried")

    longest = max((part for part in model.modules() if isinstance(part, torch.nn.ModuleList)), key=len, default=())
    with ExitStack() as hooks:
        for layer in longest[2:3]:
            hooks.enter_context(layer.register_forward_pre_hook(stop))
        yield


def load_router(folder: Path, *, name: str, revision: str | None, options: EncoderOptions) -> TokenEncoder:
    """The encoder of one route of a Router, which the role names."""
    static = read_declaration(folder, name=name, role=options.role).first == "StaticEmbedding"
    load: Callable[..., TokenEncoder] = load_static_folder if static else load_folder
    own = f"{revision or digest_model(folder, ())}:{options.role}"  # one folder and commit hold a model for each role
    opened = load(folder, name=name, revision=own, options=options)
    others = lambda role: load_router(folder, name=name, revision=revision, options=replace(options, role=role))  # noqa: E731
    return in_route(opened, str(options.role), others)


def wrap_loaded(
    model: Any,
    tokenizer: Any,
    *,
    options: EncoderOptions,
    declared: Declaration | None = None,
    name: str = "",
    finishing: Finishing | None = None,
) -> BatchedEncoder:
    """The encoder of a loaded model, used where it lies; another device or dtype is given to a copy.

    Its revision is a digest of its parameters and its tokenizer: a loaded model may have been trained further.
    """
    require("torch", "torch")
    if options.revision is not None:
        raise InputError(f"revision: received {options.revision!r} for a loaded model; it applies to hub names only.")
    words = decoders.loaded_unembedding(model)
    model = _without_wrapping(model)
    check_reads_texts(model, name=name or type(model).__name__)
    if getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "get_encoder"):
        model = model.get_encoder()
    if getattr(model.config, CONFIG_KEY, None) is not None and active_rule(model) is None:
        warn(
            f"{type(model).__name__}: its configuration keeps a temperature rule that was not applied on loading, "
            f"and it is used without. Apply the rule by poolscope.repairs.apply_saved(model), or pass the folder."
        )
    dtype = model.dtype if options.dtype is None else _precision(options.dtype)
    devices = [model.device] if options.device is None else choose_devices(options.device)
    same = dtype == model.dtype and devices[0] == model.device
    first = model if same else copy.deepcopy(model).to(devices[0], dtype)
    models = [first, *(copy.deepcopy(model).to(device, dtype) for device in devices[1:])]
    if options.dtype == INT8:
        models = [in_int8(copy.deepcopy(each) if each is model else each) for each in models]
    name = name or getattr(model, "name_or_path", "") or type(model).__name__
    return _encoder(
        models,
        tokenizer,
        declared=declared or Declaration(),
        name=name,
        revision=_digest_loaded(model, tokenizer),
        options=options,
        unembedding=words,
        finishing=finishing,
    )


def wrap_sentence_transformer(model: Any, options: EncoderOptions) -> TokenEncoder:
    """The tokens that the model's own Pooling module averages, after its prompt and its truncation."""
    modules = list(model)
    classes = [type(module).__name__ for module in modules]
    name = _name_of(model)
    if "SparseEncoder" in (kind.__name__ for kind in type(model).__mro__):
        raise ModelError(
            f"{name}: received a SparseEncoder, whose vectors are weights of words and no means of tokens; allowed: a "
            f"SentenceTransformer. Pass its transformer with its tokenizer to look at the tokens: (model, tokenizer)."
        )
    warn_of_cut(getattr(model, "truncate_dim", None), name=name)
    if classes[0] == "Router":
        opened = wrap_sentence_transformer(_routed(model, options.role, name=name), options)
        others = lambda role: wrap_sentence_transformer(model, replace(options, role=role))  # noqa: E731
        return in_route(opened, str(options.role), others)
    check_modules(classes, name=name)
    if classes[0] == "StaticEmbedding":
        return wrap_static_embedding(modules[0], name=name, declared=_declared_by(model), options=options)
    first = modules[0]
    if getattr(first, "backend", "torch") != "torch":
        raise ModelError(
            f"{name}: it was loaded with the backend {first.backend!r}; allowed: torch. Pass the path of the .onnx "
            f"file instead, or load the model with torch."
        )
    if getattr(first, "module_output_name", "token_embeddings") != "token_embeddings":
        raise ModelError(
            f"{name}: its first module gives {first.module_output_name}, not token embeddings, so there are no "
            f"tokens to look at. Pass a function from texts to token arrays."
        )
    after = modules[classes.index("Pooling") + 1 if "Pooling" in classes else 1 :]
    return wrap_loaded(
        first.auto_model,
        model.tokenizer,
        options=options,
        declared=_declared_by(model),
        name=name,
        finishing=partial(steps_of_modules, after, name=name),
    )


def _routed(model: Any, role: str | None, *, name: str) -> Any:
    """A model with the modules of one route of its Router, the same in memory, in place of the Router."""
    modules = [*chosen_route(model[0].sub_modules, role, name=name), *list(model)[1:]]
    return type(model)(
        modules=modules,
        device=str(model.device),
        prompts=model.prompts,
        default_prompt_name=model.default_prompt_name,
        truncate_dim=model.truncate_dim,
    )


def _declared_by(model: Any) -> Declaration:
    classes = [type(module).__name__ for module in model]
    pooling = model[classes.index("Pooling")] if "Pooling" in classes else None
    first = model[0]
    declared = getattr(first, "modality_config", None), getattr(first, "processing_kwargs", None)
    chat = declared_template(*declared, name=_name_of(model))
    modes = () if pooling is None else pooling.pooling_mode
    return Declaration(
        first=classes[0],
        pooling=(modes,) if isinstance(modes, str) else tuple(modes),
        after=tuple(classes[1 if pooling is None else classes.index("Pooling") + 1 :]),
        include_prompt=True if pooling is None or chat is not None else bool(pooling.include_prompt),
        prompts={key: text for key, text in (model.prompts or {}).items() if text is not None},
        default_prompt=model.default_prompt_name,
        max_length=None if classes[0] == "StaticEmbedding" else model.max_seq_length,
        further_parameters=sum(weights.numel() for module in list(model)[1:] for weights in module.parameters()),
        chat=chat,
    )


def _name_of(model: Any) -> str:
    return str(getattr(getattr(model[0], "auto_model", None), "name_or_path", "") or type(model).__name__)


def _without_wrapping(model: Any) -> Any:
    """The transformer itself: as it was before torch.compile, and without the head of a task, which gives no tokens.

    A compiled model would be compiled anew for every shape of a batch, and shows nothing of its layers.
    """
    model = getattr(model, "_orig_mod", model)
    headed = any(part in type(model).__name__ for part in ("For", "LMHead"))
    if headed and isinstance(model, require("transformers", "torch").PreTrainedModel):
        return model.base_model
    return model


def _encoder(
    models: Sequence[Any],
    tokenizer: Any,
    *,
    declared: Declaration,
    name: str,
    revision: str,
    options: EncoderOptions,
    unembedding: Callable[[], NDArray[np.float32]] | None,
    finishing: Finishing | None,
) -> BatchedEncoder:
    model = models[0]
    vocabulary = Vocabulary.of_transformers(tokenizer)
    check_vocabulary(vocabulary, _table_rows(model), name=name)
    longest, positions = length_limits(model, tokenizer, declared.max_length)
    further = declared.further_parameters  # of the modules behind the model (Dense)
    card = ModelCard(
        name=name,
        kind="transformers",
        dimension=_hidden_size(model, name=name),
        revision=revision,
        layers=getattr(model.config, "num_hidden_layers", None),
        max_length=longest,
        pooling=declared.pooling,
        after=declared.after,
        include_prompt=declared.include_prompt,
        prompts=dict(declared.prompts),
        dtype=options.dtype or str(model.dtype).removeprefix("torch."),
        positions=positions,
        default_prompt=declared.default_prompt,
        parameters=None if further is None else further + sum(weights.numel() for weights in model.parameters()),
        quantization=getattr(model.config, QUANTIZATION_KEY, None),
    )
    return BatchedEncoder(
        card,
        options,
        backend=TorchBackend(
            models, card, pad_id=tokenizer.pad_token_id or 0, role=options.role, unembedding=unembedding
        ),
        tokenize=ChatTokenizer(tokenizer, declared.chat, name=name)
        if declared.chat
        else partial(tokenize, tokenizer, end=end_of(tokenizer) if declared.end_token else ""),
        vocabulary=vocabulary,
        finishing=finishing,
    )


def _name_code_left_out(settings: Mapping[str, Any], model: Any, *, name: str) -> None:
    """Warn where a folder names code of its own and the class of transformers was taken in its place."""
    named = settings.get("auto_map")
    own = named.get("AutoModel", named.get("AutoModelForCausalLM")) if isinstance(named, dict) else None
    if isinstance(own, str):
        warn(
            f"{name}: its config.json names code of its own ({own[:120]}), which is not run; it is loaded as "
            f"{type(model).__name__} of transformers, whose vectors are others where that code changes attention or "
            f"pooling. Pass --trust-remote-code (trust_remote_code=True) if you have read it.",
            OwnCodeWarning,
        )


def check_kind_of_input(model: Any, *, name: str) -> None:
    """Refuse models of images or sound, and those with a half for each."""
    kind = type(model).__name__
    decoders.refuse_latent(vars(model.config), name=name)
    reads = getattr(model, "main_input_name", "input_ids")
    if reads != "input_ids":
        raise ModelError(f"{name}: received a {kind}, which reads {reads}; needed: a model that reads texts.")
    if hasattr(model, "get_text_features") and hasattr(model, "text_model"):
        raise ModelError(
            f"{name}: received a {kind}, which compares texts with images; needed: the half that reads texts. Pass "
            f"(model.text_model, tokenizer)."
        )


def check_reads_texts(model: Any, *, name: str) -> None:
    """Refuse a model that reads no texts, and one whose weights are not in memory."""
    check_kind_of_input(model, name=name)
    kind = type(model).__name__
    if any(weights.device.type == "meta" for weights in model.parameters()):
        raise ModelError(
            f"{name}: received a {kind} some of whose weights are not in memory (offloaded to disk, or never loaded); "
            f"needed: all of them. Load it without device_map."
        )


def _table_rows(model: Any) -> int | None:
    """Rows of the model's table of token vectors; None for models that have none (characters are hashed)."""
    try:
        table = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    weight = getattr(table, "weight", None)
    return None if weight is None else len(weight)


def _hidden_size(model: Any, *, name: str) -> int:
    size = getattr(model.config, "hidden_size", None) or getattr(model.config.get_text_config(), "hidden_size", None)
    if size is None:
        raise ModelError(
            f"{name}: its configuration ({type(model.config).__name__}) declares no hidden size, so it is no text "
            f"model that poolscope knows. Pass a function from texts to token arrays."
        )
    return int(size)


def weight_files(folder: Path, *, name: str, allow_pickle: bool) -> list[Path]:
    """The files of a folder's weights; pickled ones are refused unless the caller allows them."""
    safe, pickled = sorted(folder.glob("*.safetensors")), sorted(folder.glob("pytorch_model*.bin"))
    if safe or (pickled and allow_pickle):
        return safe or pickled
    if pickled:
        raise ModelError(
            f"{name}: its weights ({pickled[0].name}) are pickled, and loading a pickle can run any code; allowed: "
            f"safetensors. Use a revision with model.safetensors, or --allow-pickle (allow_pickle=True) if you trust "
            f"the source."
        )
    raise ModelError(
        f"{name}: no weights in {folder}; needed: model.safetensors (or its shards). Download the model again."
    )


def _configured(folder: Path, declared: Declaration, options: EncoderOptions) -> tuple[Any, Any]:
    """The configuration of a folder, and the class of transformers that loads it."""
    library = require("transformers", "torch")
    if declared.latent is not None:  # its code is not run, trusted or not
        config = decoders.decoder_of(declared.latent, name=str(folder))
    else:
        config = library.AutoConfig.from_pretrained(folder, **_common(options), **declared.config_args)
    if declared.both_ways and (declared.latent is not None or not options.trust_remote_code):
        config.is_causal = False
    # The encoder half has a class of its own in the T5 family; elsewhere it is taken out of the whole. Where the half
    # was saved by itself, the configuration speaks of no decoder, but AutoModel would look for one all the same.
    encoder_half = type(config).__name__.removesuffix("Config") + "EncoderModel"
    saved_alone = (getattr(config, "architectures", None) or [""])[0] == encoder_half
    if hasattr(library, encoder_half) and (saved_alone or getattr(config, "is_encoder_decoder", False)):
        config.is_encoder_decoder = False
        return config, getattr(library, encoder_half)
    return config, library.AutoModel


def _common(options: EncoderOptions) -> dict[str, Any]:
    return {"trust_remote_code": options.trust_remote_code, "local_files_only": True}


def _load(folder: Path, declared: Declaration, options: EncoderOptions, *, device: Any) -> tuple[Any, Any]:
    torch = require("torch", "torch")
    config, loader = _configured(folder, declared, options)
    half = "bfloat16" if config.dtype is torch.bfloat16 and device.type == "cuda" else "float16"
    dtype = options.dtype or ("float32" if device.type == "cpu" else half)
    model, report = loader.from_pretrained(
        folder,
        config=config,
        dtype=_precision(dtype),
        use_safetensors=None if options.allow_pickle else True,
        output_loading_info=True,
        **({} if declared.latent is None else {"key_mapping": decoders.DECODER_NAMES}),
        **_common(options),
        **declared.model_args,
    )
    check_reads_texts(model, name=str(folder))  # before its tokenizer, which a model of images does not have
    _check_complete(report, folder)
    _say_unused(model, report, folder)
    if getattr(config, "is_encoder_decoder", False):
        model = model.get_encoder()
    apply_kept_rule(model)
    model = in_int8(model) if dtype == INT8 else model.eval()
    return model, _load_tokenizer(folder, config, declared, options)


def _precision(dtype: str) -> Any:
    """The precision in which a model is loaded: of layers in bytes the weights are read in float32."""
    return getattr(require("torch", "torch"), "float32" if dtype == INT8 else dtype)


def _load_tokenizer(folder: Path, config: Any, declared: Declaration, options: EncoderOptions) -> Any:
    known = {} if declared.latent is None else {"config": config}
    tokenizer = require("transformers", "torch").AutoTokenizer.from_pretrained(
        folder, **known, **_common(options), **declared.tokenizer_args
    )
    if declared.lower_case:
        _add_lower_case(tokenizer)
    return tokenizer


# -- opened first, without its weights --------------------------------------------------------------------------------

_SAMPLE = "a text of some words"


def rehearse_folder(folder: Path, *, name: str, options: EncoderOptions, detailed: bool = False) -> dict[str, Any]:
    """Do all that `load_folder` does but read the weights: build the model, tokenise and render a text, run layers.

    Nothing has memory of its own here (torch's device "meta"), and no more is built than the weights can fill. It
    returns what was learned; `detailed` adds what takes time to learn.
    """
    torch = require("torch", "torch")
    declared = read_declaration(folder, name=name, role=options.role)
    place = folder / declared.subfolder
    with loaded_quietly(name, place):
        config, loader = _configured(place, declared, options)
        build = loader.from_config if loader is require("transformers", "torch").AutoModel else loader
        packed = getattr(config, "quantization_config", None) is not None
        with torch.device("meta"), _without_numbers(), no_larger_than_weights(place, packed=packed):
            model = build(config).eval()
        check_kind_of_input(model, name=name)
        if getattr(config, "is_encoder_decoder", False):
            model = model.get_encoder()
        tokenizer = _load_tokenizer(place, config, declared, options)
        encoder = _encoder(
            [model],
            tokenizer,
            declared=declared,
            name=name,
            revision="",
            options=options,
            unembedding=None,
            finishing=None,
        )
        plan = encoder.plan([_SAMPLE])
        batch = next(iter(plan))
        # A pass without end shows here; an error may be that of a tensor without numbers, and the real pass says it.
        with suppress(Exception), torch.inference_mode():
            mask = torch.from_numpy(batch.mask.astype(np.int64)).to("meta")
            model(input_ids=torch.from_numpy(batch.ids).to("meta"), attention_mask=mask)
    facts = {
        "model": type(model).__name__,
        "tokenizer": type(tokenizer).__name__,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "dimension": encoder.card.dimension,
        "rows": _table_rows(model),
        "entries": encoder.vocabulary.size,
        "max_length": encoder.max_length,
    }
    if detailed:
        names = tokenizer.get_vocab()
        largest = max(names, key=names.__getitem__)
        rendered = encoder.vocabulary.text(plan.tokens.ids)
        facts |= {"largest_id": names[largest], "largest_token": largest[:60], "sample": rendered[:500]}
    return facts


@contextmanager
def _without_numbers() -> Iterator[None]:
    """Build layers without drawing the numbers that they begin with, which take a third of the time."""
    init = require("torch", "torch").nn.init
    drawing = [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]
    with ExitStack() as changed:
        for name in drawing:
            changed.callback(setattr, init, name, getattr(init, name))
            setattr(init, name, lambda tensor, *_, **__: tensor)
        yield


def _say_unused(model: Any, report: Mapping[str, Any], folder: Path) -> None:
    """Say that layers are left out; heads and buffers that a model without its task does not need are no news."""
    layers = {_numbered(name) for name in model.state_dict() if _NUMBER.search(name)}
    unused = [name for name in sorted(report["unexpected_keys"]) if _NUMBER.search(name)]
    if left := [name for name in unused if not layers or any(_numbered(name).endswith(layer) for layer in layers)]:
        warn(
            f"{folder}: {len(left)} weights of layers that the file holds are not used (first: {left[0]}), since "
            f"config.json names fewer layers. Check that config.json and the weights belong together."
        )


def _numbered(name: str) -> str:
    """The name of a weight whatever its layer."""
    return _NUMBER.sub(".#.", name)


def _check_complete(report: Mapping[str, Any], folder: Path) -> None:
    """Missing weights would be random numbers. The pooler of BERT is the exception: no token depends on it."""
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise ModelError(
            f"{folder}: {len(missing)} weights are not in the file (first: {missing[0]}) and would be random; all "
            f"are needed. Check that config.json and the weights belong together."
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Load with transformers without its chatter."""
    logging = require("transformers", "torch").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def loaded_quietly(name: str, folder: Path) -> Iterator[None]:
    """Load without chatter, and turn what transformers raises into one message with the likely remedy."""
    own_code = "auto_map" in _text_of(folder / "config.json")
    remedy = (
        "The model brings its own code: pass --trust-remote-code (trust_remote_code=True) if you have read it."
        if own_code
        else "Check that the folder holds config.json, tokenizer files and weights of one model."
    )
    with quietly(), explained(f"{name}: cannot be loaded by transformers", remedy):
        yield


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _add_lower_case(tokenizer: Any) -> None:
    """`do_lower_case` of sentence-transformers: lower-case first, then what the tokenizer does anyway."""
    normalizers = require("tokenizers", "torch").normalizers
    own = tokenizer.backend_tokenizer.normalizer
    steps = [normalizers.Lowercase(), *([] if own is None else [own])]
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(steps)


def _digest_loaded(model: Any, tokenizer: Any) -> str:
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    digest.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()
