"""A model folder: its declarations (the files of sentence-transformers), and checks of all that it holds.

A folder is material of others, checked before a library is handed it. Its settings are passed on from a list of what is
known to be harmless, never from all but what is known to be harmful; no name in it leads out of it; and nothing is
built that its weights cannot fill.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from poolscope.encoders.tokens import ChatTemplate, declared_template
from poolscope.errors import ModelError, reading, require, shorten
from poolscope.words import warn

# The older way to declare a mode: one flag a mode, in the order in which several are concatenated.
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# The poolings of llm2vec_config.json; its end token is the last one.
_LLM2VEC = {
    "mean": "mean",
    "weighted_mean": "weightedmean",
    "eos_token": "lasttoken",
    "last_token": "lasttoken",
    "bos_token": "cls",
}
# Decoders whose own code lets tokens see later ones: its file in `auto_map` (GritLM, LLM2Vec), or the class that
# LLM2Vec saves. Their weights are those of the type that config.json names.
_BOTH_WAYS_CODE = re.compile(r"modeling_(gritlm|(llama|mistral|qwen2|gemma)_encoder)")
_BOTH_WAYS_CLASS = re.compile(r"(Llama|Mistral|Qwen2|Gemma)(Bi|Encoder)Model$")
# The type of a model that pools by latent attention, and that of its decoder.
_NVEMBED, BOTH_WAYS_TYPE = "nvembed", "bidir_mistral"
_LONGEST_HEADER = 100 * 2**20  # what the library safetensors allows
_LONGEST_SETTINGS = 16 * 2**20  # bytes of a JSON file that says how a model is built
_MOST_MODULES, _LONGEST_PROMPT = 100, 2**16
_SETTINGS = (".json", ".txt", ".model", ".jinja", ".py")
_INSTRUCTOR = ("hkunlp/instructor-base", "hkunlp/instructor-large", "hkunlp/instructor-xl")


_Route = TypeVar("_Route")


@dataclass(frozen=True)
class Declaration:
    """The declarations of one model; every field has the value that stands for "not declared".

    `first` is the class of the first module ("" without a modules.json) and `subfolder` the folder with its
    weights; the three `*_args` are what the folder asks to be passed on when it is loaded. `further_parameters` counts
    the weights of the other modules (Dense), None where they cannot be counted; `chat` is the chat template that wraps
    each text; `both_ways`: does a decoder let its tokens see later ones? `latent` is the config.json of a model that
    pools by latent attention (NV-Embed); `end_token`: is the tokenizer's end token put behind every text?
    `truncate_dim`: so many numbers of a pooled vector are kept.
    """

    first: str = ""
    subfolder: str = ""
    pooling: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None
    lower_case: bool = False
    model_args: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_args: Mapping[str, Any] = field(default_factory=dict)
    config_args: Mapping[str, Any] = field(default_factory=dict)
    further_parameters: int | None = 0
    chat: ChatTemplate | None = None
    both_ways: bool = False
    latent: Mapping[str, Any] | None = None
    end_token: bool = False
    truncate_dim: int | None = None


def warn_of_cut(dimensions: object, *, name: str) -> None:
    """Say that a model cuts its pooled vectors, which poolscope does not."""
    if dimensions is not None:
        warn(
            f"{name}: it cuts its vectors to {dimensions} numbers (truncate_dim); poolscope looks at its tokens, which "
            f"are whole. Numbers about pooled vectors are those of the whole ones."
        )


def read_json(path: Path, *, most: int = _LONGEST_SETTINGS) -> Any:
    """The content of a JSON file of at most so many bytes, None if there is no such file."""
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise ModelError(f"{path}: it is no file; allowed: a JSON file. Download the model again.")
    try:
        with reading(path, "Download the model again, or repair the file.", kind=ModelError, is_not="valid JSON"):
            check_length(path, most)
            return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def check_length(path: Path, most: int) -> None:
    """Refuse a file of settings that would take all time or memory to read."""
    if (size := path.stat().st_size) > most:
        raise ModelError(
            f"{path}: it has {size:,} bytes; allowed are {most:,}. Download the model again from a source you trust."
        )


def read_declaration(folder: Path, *, name: str, role: str | None = None) -> Declaration:
    """Read modules.json, the pooling folder, sentence_bert_config.json and config_sentence_transformers.json.

    Of a Router the modules of one route are meant, which `role` names.
    """
    modules = _route(folder, role, name=name)
    classes = [str(module["type"]).rpartition(".")[2] for module in modules]
    pooling_at = classes.index("Pooling") if "Pooling" in classes else None
    if modules:
        check_modules(classes, name=name)
    pooling_folder = "1_Pooling" if pooling_at is None else modules[pooling_at]["path"]
    declares = pooling_at is not None or not modules
    place = _inside(folder, pooling_folder) / "config.json"
    pooling = read_settings(place) if declares and place.exists() else None
    subfolder = str(modules[0]["path"]) if modules else ""
    settings = _transformer_settings(_inside(folder, subfolder))
    chat = declared_template(settings.get("modality_config"), settings.get("processing_kwargs"), name=name)
    prompts = read_settings(folder / "config_sentence_transformers.json")
    config = read_settings(_inside(folder, subfolder) / "config.json")
    both_ways = sees_both_ways(config)
    latent = config if config.get("model_type") == _NVEMBED else None
    if latent is not None and not modules:
        return _of_nvembed(latent, both_ways=both_ways)
    if both_ways and not modules:
        return _of_llm2vec(read_settings(folder / "llm2vec_config.json"), name=name)
    return Declaration(
        first=classes[0] if classes else "",
        subfolder=subfolder,
        pooling=pooling_modes(pooling),
        after=tuple(classes[1 if pooling_at is None else pooling_at + 1 :]),
        # The prompt of a conversation cannot be told apart from the rest, and is pooled.
        include_prompt=chat is not None or (flag(pooling or {}, "include_prompt", True) and name not in _INSTRUCTOR),
        prompts=_prompts(prompts, name=name),
        default_prompt=prompts.get("default_prompt_name"),
        max_length=whole_setting(settings, "max_seq_length"),
        lower_case=flag(settings, "do_lower_case", False),
        model_args=_arguments(settings, "model_args", "model_kwargs"),
        tokenizer_args=_arguments(settings, "tokenizer_args", "processor_kwargs"),
        config_args=_arguments(settings, "config_args", "config_kwargs"),
        further_parameters=_count_weights([_inside(folder, str(module["path"])) for module in modules[1:]]),
        chat=chat,
        both_ways=both_ways,
        latent=latent,
        end_token=latent is not None and flag(latent, "add_eos", True),
        truncate_dim=whole_setting(prompts, "truncate_dim"),
    )


def sees_both_ways(config: Mapping[str, Any]) -> bool:
    """Does a configuration name code, class or type by which tokens of a decoder see later ones (GritLM, LLM2Vec, …)?

    >>> sees_both_ways({"architectures": ["LlamaBiModel"]}), sees_both_ways({"architectures": ["LlamaModel"]})
    (True, False)
    """
    code, classes, text = config.get("auto_map"), config.get("architectures"), config.get("text_config")
    if isinstance(text, dict) and text.get("model_type") == BOTH_WAYS_TYPE:
        return True
    own = [str(place) for place in code.values()] if isinstance(code, dict) else []
    named = [str(kind) for kind in classes] if isinstance(classes, list) else []
    return any(map(_BOTH_WAYS_CODE.match, own)) or any(map(_BOTH_WAYS_CLASS.match, named))


def _of_llm2vec(settings: Mapping[str, Any], *, name: str) -> Declaration:
    """The declaration of LLM2Vec, in a file beside its model. GritLM has none: it averages what follows the prompt."""
    mode = settings.get("pooling_mode", "mean")
    if mode not in _LLM2VEC:
        raise ModelError(
            f"{name}: llm2vec_config.json names the pooling {str(mode)[:60]!r}; allowed: {', '.join(_LLM2VEC)}. Repair "
            f"the file."
        )
    return Declaration(
        pooling=(_LLM2VEC[mode],),
        include_prompt=not flag(settings, "skip_instruction", True),
        max_length=whole_setting(settings, "max_length"),
        both_ways=True,
    )


def _of_nvembed(config: Mapping[str, Any], *, both_ways: bool) -> Declaration:
    """The pooling of NV-Embed's own code: the mean of all tokens after the instruction, with an end token."""
    latent = config.get("latent_attention_config")
    plain = isinstance(latent, dict) and not flag(latent, "output_normalize", True)
    masked = flag(config, "is_mask_instruction", True) and config.get("padding_side", "right") == "right"
    return Declaration(
        pooling=("mean",),
        after=() if plain else ("Normalize",),
        include_prompt=not masked,
        both_ways=both_ways,
        latent=config,
        end_token=flag(config, "add_eos", True),
    )


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """The list in modules.json, [] without the file; each entry has the class and the folder of a module."""
    path = folder / "modules.json"
    modules = read_json(path) or []
    if isinstance(modules, list) and len(modules) > _MOST_MODULES:
        raise ModelError(
            f"{path}: it lists {len(modules):,} modules; allowed are {_MOST_MODULES}. Download the model again."
        )
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and all(isinstance(module.get(key), str) for key in ("type", "path"))
        for module in modules
    ):
        raise ModelError(
            f"{path}: it must be a list of modules, each with its 'type' and 'path'; it holds {str(modules)[:60]!r}. "
            f"Download the model again, or repair the file."
        )
    return modules


def is_router(folder: Path, *, name: str) -> bool:
    """Does the folder hold several models, of which the role of a text chooses one?"""
    modules = read_modules(folder)
    return bool(modules) and str(modules[0]["type"]).endswith(".Router")


def _route(folder: Path, role: str | None, *, name: str) -> list[dict[str, Any]]:
    """The modules of a folder; where the first is a Router, those of the route of this role in its place."""
    modules = read_modules(folder)
    if not is_router(folder, name=name):
        return modules
    types, routes = _routes(folder)
    return [
        *({"type": types[module], "path": module} for module in chosen_route(routes, role, name=name)),
        *modules[1:],
    ]


def chosen_route(routes: Mapping[str, _Route], role: str | None, *, name: str) -> _Route:
    """The route of a Router for texts in a role, which must be named."""
    if role is None or role not in routes:
        received = "no role" if role is None else f"the role {role!r}"
        raise ModelError(
            f"{name}: it is a Router, whose vectors depend on the role, and received {received}; allowed: "
            f"{', '.join(routes)}. Name one: role={next(iter(routes))!r} (--role on the command line)."
        )
    return routes[role]


def _routes(folder: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Of a Router: the class of every module by its folder, and the folders of every route."""
    at = str(read_modules(folder)[0]["path"])
    place = _inside(folder, at)
    config = read_settings(place / "router_config.json") or read_settings(place / "config.json")
    types: Any = config.get("types")
    routes: Any = config.get("structure")
    whole = isinstance(types, dict) and isinstance(routes, dict) and bool(routes)
    whole = whole and all(isinstance(route, list) and route and set(route) <= set(types) for route in routes.values())
    if not whole or not all(isinstance(kind, str) for kind in types.values()):
        raise ModelError(
            f"{place}: router_config.json must name the 'types' of its modules and the 'structure' of its routes. "
            f"Download the model again, or repair the file."
        )
    folders = {module: (PurePosixPath(at) / str(module)).as_posix() for module in types}
    return {folders[module]: kind for module, kind in types.items()}, {
        str(role): [folders[module] for module in route] for role, route in routes.items()
    }


def module_folders(folder: Path, *, role: str | None = None, name: str = "") -> list[tuple[str, Path]]:
    """The class and the folder of each module that modules.json names, in order; of a Router those of a role."""
    modules = _route(folder, role, name=name)
    return [(str(module["type"]).rpartition(".")[2], _inside(folder, str(module["path"]))) for module in modules]


def read_settings(path: Path, *, most: int = _LONGEST_SETTINGS) -> dict[str, Any]:
    """The object in a JSON file of settings, {} without the file."""
    settings = read_json(path, most=most) or {}
    if not isinstance(settings, dict):
        raise ModelError(
            f"{path}: it must be a JSON object; it holds {str(settings)[:60]!r}. Download the model again."
        )
    return settings


def check_modules(classes: list[str], *, name: str) -> None:
    """Refuse modules that change tokens between the first module and the pooling."""
    before = classes[: classes.index("Pooling")] if "Pooling" in classes else classes[:1]
    if classes[0] not in ("Transformer", "TempScaledTransformer", "StaticEmbedding"):
        raise ModelError(
            f"{name}: its first module is {classes[0]}; allowed: Transformer or StaticEmbedding. "
            f"Wrap the model in a function from texts to token arrays and pass that function."
        )
    if len(before) > 1:
        raise ModelError(
            f"{name}: the modules {', '.join(before[1:])} change the tokens between the model and its pooling; "
            f"allowed: Pooling right after {classes[0]}. Pass a function from texts to the changed token arrays."
        )


def pooling_modes(config: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The declared modes of a pooling configuration, in the newer or the older form; () for none.

    >>> pooling_modes({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    ('cls',)
    >>> pooling_modes({"pooling_mode": "lasttoken"}), pooling_modes(None)
    (('lasttoken',), ())
    """
    if config is None:
        return ()
    declared = config.get("pooling_mode")
    if declared is None:
        return tuple(mode for key, mode in POOLING_FLAGS.items() if flag(config, key, False)) or ("mean",)
    modes = declared if isinstance(declared, list | tuple) else [declared]
    if not modes or not all(isinstance(mode, str) for mode in modes):
        raise ModelError(
            f"pooling_mode: the folder says {shorten(declared)}; allowed: a name such as 'mean', or a list of names. "
            f"Repair the folder."
        )
    return tuple(modes)


def pooling_settings(folder: Path) -> dict[str, Any]:
    """What the folder of the Pooling module says, or that of the usual name where modules.json has none."""
    at = [module["path"] for module in read_modules(folder) if str(module["type"]).endswith(".Pooling")]
    return read_settings(_inside(folder, at[0] if at else "1_Pooling") / "config.json")


def _transformer_settings(folder: Path) -> dict[str, Any]:
    """sentence_bert_config.json, or its older names for other architectures."""
    names = ["sentence_bert_config.json", *sorted(path.name for path in folder.glob("sentence_*_config.json"))]
    settings: dict[str, Any] = next((read for name in names if (read := read_settings(folder / name))), {})
    task = settings.get("transformer_task", "feature-extraction")
    output = settings.get("module_output_name", "token_embeddings")
    if task != "feature-extraction" or output != "token_embeddings":
        raise ModelError(
            f"{folder}: the model is declared for the task {task!r} with output {output!r}; allowed: texts to token "
            f"embeddings. Pass a function from texts to token arrays."
        )
    return settings


def _prompts(settings: Mapping[str, Any], *, name: str) -> dict[str, str]:
    """The prompts that a folder declares, by their names."""
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    texts = [text for text in prompts.values() if text is not None] if isinstance(prompts, dict) else [prompts]
    for text in texts:
        if not isinstance(text, str) or len(text) > _LONGEST_PROMPT:
            raise ModelError(
                f"{name}: config_sentence_transformers.json has the prompt {shorten(text)}; allowed: a text of at most "
                f"{_LONGEST_PROMPT:,} characters. Repair the file."
            )
    if default is not None and not isinstance(default, str):
        raise ModelError(
            f"{name}: config_sentence_transformers.json has the default_prompt_name {shorten(default)}; allowed: the "
            f"name of a prompt. Repair the file."
        )
    return {key: text for key, text in prompts.items() if text is not None}


def whole_setting(settings: Mapping[str, Any], key: str) -> int | None:
    """A number of tokens or dimensions that a folder sets, 1 or more; None where it sets no limit (-1, infinity)."""
    value = settings.get(key)
    if value is None or value in (-1, math.inf):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1 or value % 1:
        raise ModelError(f"{key}: the folder says {shorten(value)}; allowed: a whole number, 1 or more. Repair it.")
    return int(value)


def flag(settings: Mapping[str, Any], key: str, default: bool) -> bool:
    """A setting that is true or false; the word "false" would count as true, so words are refused.

    >>> flag({"normalize": True}, "normalize", False), flag({}, "normalize", False)
    (True, False)
    """
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelError(f"{key}: the folder says {shorten(value)}; allowed: true or false. Repair the folder.")
    return value


def _arguments(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Loading arguments of the folder, without those that are the caller's to decide."""
    arguments: dict[str, Any] = next((settings[name] for name in names if settings.get(name)), {})
    if not isinstance(arguments, dict):
        raise ModelError(
            f"{names[0]}: received {str(arguments)[:60]!r}; allowed: names with values. Repair the folder."
        )
    callers = ("trust_remote_code", "device_map", "dtype", "torch_dtype", "use_safetensors", "revision")
    return {key: value for key, value in arguments.items() if key not in callers}


def _count_weights(folders: Sequence[Path]) -> int | None:
    """The numbers in the safetensors files of these folders, from their headers; None if some weights are pickled."""
    weights = [_weights_in(folder) for folder in folders]
    pickled = any(
        not tensors and any(folder.glob("*.bin")) for folder, (tensors, _) in zip(folders, weights, strict=True)
    )
    return None if pickled else sum(numbers for _, numbers in weights)


def safetensors_header(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a safetensors file, from its header alone."""
    again = "Download the model again."
    with reading(path, again, kind=ModelError, is_not="a safetensors file"), path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if not 0 < size <= min(path.stat().st_size, _LONGEST_HEADER):
            raise ModelError(
                f"{path}: its header says that it takes {size:,} bytes, of {path.stat().st_size:,} of the file. {again}"
            )
        header = json.loads(stream.read(size))
        tensors = {key: entry for key, entry in header.items() if key != "__metadata__"}
        _check_places(path, {key: entry["data_offsets"] for key, entry in tensors.items()}, 8 + size)
        for key, entry in tensors.items():
            numbers, (first, last) = math.prod(entry["shape"]), entry["data_offsets"]
            if not 0 <= numbers <= 8 * (last - first):  # a number takes one bit or more
                raise ModelError(
                    f"{path}: its tensor {shorten(key)} says that it holds {numbers:,} numbers in {last - first:,} "
                    f"bytes. {again}"
                )
        return {key: tuple(entry["shape"]) for key, entry in tensors.items()}


def _check_places(path: Path, places: Mapping[str, Sequence[int]], start: int) -> None:
    """Refuse tensors that share bytes, leave some out or lie outside: they could claim far more than the file holds."""
    end = 0
    for key, (first, last) in sorted(places.items(), key=lambda item: tuple(item[1])):
        if first != end or last < first:
            raise ModelError(
                f"{path}: its tensor {shorten(key)} begins at byte {first:,}, and the one before it ends at {end:,}; "
                f"tensors may not overlap or leave gaps. Download the model again."
            )
        end = last
    if end != path.stat().st_size - start:
        raise ModelError(
            f"{path}: its tensors take {end:,} bytes, and {path.stat().st_size - start:,} follow its header. Download "
            f"the model again."
        )


def _inside(folder: Path, part: str) -> Path:
    if not (folder / part).resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            f"{folder}: modules.json points outside its folder ({part!r}); refused. Check the model's source."
        )
    return folder / part


def digest_model(folder: Path, weights: Iterable[Path]) -> str:
    """sha256 over every file that changes what a model computes: equal for equal models wherever they lie.

    These are its weights and, in the folder and in those of its modules, all settings and all files of a tokenizer.
    """
    digest = hashlib.sha256()
    files = {*setting_files(folder), *weights}
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        digest.update(f"{name} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def setting_files(folder: Path) -> list[Path]:
    """The files of settings, tokenizers and code in a model folder; in those of its modules the weights too."""
    modules = {str(module["path"]) for module in read_modules(folder)}
    if is_router(folder, name=""):
        modules |= set(_routes(folder)[0])
    places = {folder, folder / "1_Pooling", *(_inside(folder, part) for part in modules)}
    suffixes = (*_SETTINGS, ".safetensors", ".bin")
    return sorted(
        path
        for place in places
        if place.is_dir()
        for path in place.iterdir()
        if path.is_file() and path.suffix in (_SETTINGS if place == folder else suffixes)
    )


def file_digest(path: Path) -> str:
    """sha256 of one file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -- what it may say and hold -----------------------------------------------------------------------------------------

_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flex_attention")
_PLAIN = str | int | float | bool | None
# Loading arguments that a folder may ask for, each a plain value.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "model_args": ("attn_implementation", "add_pooling_layer"),
    "config_args": ("add_pooling_layer", "unpad_inputs", "use_memory_efficient_attention", "is_causal"),
    "tokenizer_args": (
        "padding_side",
        "truncation_side",
        "model_max_length",
        "do_lower_case",
        "strip_accents",
        "use_fast",
        "add_prefix_space",
        "add_bos_token",
        "add_eos_token",
        "clean_up_tokenization_spaces",
        "fix_mistral_regex",
    ),
}
_SPARE_TENSORS, _SPARE = 1000, 2**24  # tensors and numbers that are allowed whatever the weights hold
_LABELS = 2**17  # of a classifier; transformers makes a name for each
_MOST_PICKLED = 2**16  # tensors of pickled weights
LARGEST_VOCABULARY = 128 * 2**20  # bytes of a file that holds a vocabulary, or the names of all tensors


def check_folder_content(place: Path, declared: Declaration, *, name: str, trusted: bool, allow_pickle: bool) -> None:
    """Refuse a folder that asks for more than it may; `trusted` (--trust-remote-code) lets it ask for anything."""
    if odd := [path.name for path in sorted(place.iterdir()) if not (path.is_file() or path.is_dir())]:
        raise ModelError(f"{name}: {odd[0]} is no file and no folder (a pipe, a device); allowed are files. Remove it.")
    for path in place.iterdir():
        if path.suffix in _SETTINGS:
            large = path.name.startswith(("tokenizer.", "vocab")) or path.name.endswith(
                (".index.json", ".txt", ".model")
            )
            check_length(path, LARGEST_VOCABULARY if large else _LONGEST_SETTINGS)
    refuse_adapter(place, name=name)
    _check_index(place, name=name, allow_pickle=allow_pickle)
    if trusted:
        return
    for part, allowed in ARGUMENTS.items():
        for key, value in getattr(declared, part).items():
            if key not in allowed or not isinstance(value, _PLAIN):
                raise ModelError(
                    f"{name}: it asks to be loaded with {part} {key}={value!r}; a folder may ask for "
                    f"{', '.join(allowed)}. Remove it, or pass --trust-remote-code (trust_remote_code=True) if you "
                    f"trust the source."
                )
    _check_attention(declared.model_args.get("attn_implementation"), name=name)
    _check_config(read_settings(place / "config.json"), name=name)
    _weights_in(place)


def refuse_adapter(place: Path, *, name: str) -> None:
    """Refuse a folder with an adapter: transformers applies it where peft is installed, and drops it elsewhere."""
    if (place / "adapter_config.json").exists():
        raise ModelError(
            f"{name}: the folder holds an adapter (PEFT, adapter_config.json), which is no model by itself and which "
            f"only some installations would apply; needed: the model with the adapter in its weights. Load both with "
            f"peft, call merge_and_unload(), and save that to a folder of its own."
        )


def _check_config(config: Mapping[str, Any], *, name: str) -> None:
    for key, value in config.items():
        if key.strip("_").startswith(("attn_implementation", "experts_implementation")):
            _check_attention(value, name=name)
        if key == "transformers_weights" and value is not None:
            raise ModelError(
                f"{name}: config.json names other weights ({value!r}); allowed: model.safetensors. Rename the file."
            )
        if key == "num_labels" and isinstance(value, int) and value > _LABELS:
            raise ModelError(
                f"{name}: config.json says num_labels = {value:,}; allowed are {_LABELS:,}. Download the model again."
            )
        if isinstance(value, Mapping):
            _check_config(value, name=name)


def _check_attention(value: Any, *, name: str) -> None:
    """A name of any other kind is fetched as code from the hub."""
    for chosen in value.values() if isinstance(value, Mapping) else (value,):
        if chosen is not None and chosen not in _ATTENTION:
            raise ModelError(
                f"{name}: it asks for the attention {chosen!r}; allowed: {', '.join(_ATTENTION)}. Remove it, or pass "
                f"--trust-remote-code (trust_remote_code=True) if you trust the source."
            )


def _check_index(place: Path, *, name: str, allow_pickle: bool) -> None:
    """Every shard that an index names lies in the folder, and is no pickle."""
    endings = (".safetensors", ".bin") if allow_pickle else (".safetensors",)
    for index in sorted(place.glob("*.index.json")):
        shards = read_settings(index, most=LARGEST_VOCABULARY).get("weight_map")
        if not isinstance(shards, dict):
            raise ModelError(f"{index}: it has no weight_map of tensors and their files. Download the model again.")
        for shard in set(map(str, shards.values())):
            inside = not {"/", "\\", "\0"} & set(shard) and shard not in ("", ".", "..")
            pickled = index.name.startswith("pytorch_model") and not allow_pickle  # which is not read at all
            if not pickled and not (inside and shard.endswith(endings)):
                raise ModelError(
                    f"{index}: it names {shard!r}; allowed: files of this folder that end in {' or '.join(endings)}. "
                    f"Download the model again from a source that you trust."
                )


@contextmanager
def no_larger_than_weights(place: Path, *, packed: bool) -> Iterator[None]:
    """Refuse a model as soon as what is built of it is far more than its weights hold; nothing is known of its type.

    `packed`: several numbers stand in one, so that the file holds fewer. Pickled weights are not looked into: a byte
    counts as a number.
    """
    modules = require("torch", "torch").nn.modules.module
    tensors, numbers = _weights_in(place)
    if not tensors:
        tensors, numbers = _MOST_PICKLED, sum(path.stat().st_size for path in place.glob("*.bin"))
    most_tensors, most_numbers = 4 * tensors + _SPARE_TENSORS, (32 if packed else 2) * numbers + _SPARE
    built_tensors = built_numbers = 0

    def count(_module: Any, _name: str, value: Any) -> None:
        nonlocal built_tensors, built_numbers
        built_tensors += 1
        built_numbers += 0 if value is None else value.numel()
        if built_tensors > most_tensors or built_numbers > most_numbers:
            raise ModelError(
                f"{place}: config.json asks for more than {min(built_tensors, most_tensors):,} tensors of "
                f"{built_numbers:,} numbers, and the weights hold {tensors:,} of {numbers:,}; they cannot belong "
                f"together. Download the model again from a source that you trust."
            )

    with ExitStack() as hooks:
        hooks.enter_context(modules.register_module_parameter_registration_hook(count))
        hooks.enter_context(modules.register_module_buffer_registration_hook(count))
        yield


def numbers_held(place: Path) -> int:
    """How many numbers the weights of a folder hold, by their headers; 0 where they are pickled."""
    return _weights_in(place)[1]


def missing_shards(place: Path) -> list[str]:
    """Files that an index of safetensors names and the folder lacks."""
    indexes = [read_settings(path, most=LARGEST_VOCABULARY) for path in sorted(place.glob("*.safetensors.index.json"))]
    shards = {str(shard) for index in indexes for shard in dict(index.get("weight_map") or {}).values()}
    return sorted(shard for shard in shards if not _inside(place, shard).is_file())


def _weights_in(place: Path) -> tuple[int, int]:
    """How many tensors, and how many numbers in them, the weights of a folder hold; 0 where they are pickled."""
    headers = [safetensors_header(path) for path in sorted(place.glob("*.safetensors"))]
    return sum(map(len, headers)), sum(math.prod(shape) for header in headers for shape in header.values())
