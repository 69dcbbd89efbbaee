"""What a model says of itself and asks for, before it is loaded: `inspect_model`.

Files and settings are read as data; what only a library can tell (sizes, tokenizer, template) is learned in the
confined process that opens foreign models first (`opening.py`). Nothing of the model runs in this process, and its
weights are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from poolscope.encoders import folders
from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.door import Source, recognised
from poolscope.encoders.gguf import gguf_file
from poolscope.encoders.onnx import graph_of
from poolscope.encoders.opening import bytes_in_words, opening
from poolscope.errors import InputError, PoolscopeError, explained, shorten
from poolscope.results import Result

Level = Literal["ok", "note", "look", "refused"]
LEVELS: tuple[Level, ...] = ("refused", "look", "note", "ok")  # worst first
EXIT_CODES: dict[Level, int] = {"ok": 0, "note": 0, "look": 1, "refused": 2}

_WEIGHTS = {
    ".safetensors": "safetensors",
    ".onnx": "onnx",
    ".gguf": "gguf",
    ".bin": "pickle",
    ".pt": "pickle",
    ".pth": "pickle",
    ".pkl": "pickle",
    ".ckpt": "pickle",
}
_OWN_MODULES = ("sentence_transformers.",)
_MOST_FILES = 1000
_SHARE = 0.05  # of the numbers: heads and poolers that are left out are fewer
_CARD = 2**16  # bytes of a README that are looked at


@dataclass(frozen=True)
class Entry:
    """One thing that can be said of a model: its topic, whether it needs a look, a sentence, and the values behind."""

    topic: str
    level: Level
    words: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Inspection(Result):
    """What `inspect_model` found, topic by topic; `level` is the worst of them."""

    model: str
    kind: str
    entries: tuple[Entry, ...]

    @property
    def level(self) -> Level:
        """The worst level of all topics."""
        return next(level for level in LEVELS if any(entry.level == level for entry in self.entries))

    @property
    def exit_code(self) -> int:
        """0: nothing to look at; 1: something to look at; 2: poolscope would not open it."""
        return EXIT_CODES[self.level]

    def __getitem__(self, topic: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.topic == topic]

    def headline(self) -> dict[str, Any]:
        """The kind of the model, and how many topics there are of each level."""
        counts: dict[str, int] = {level: sum(entry.level == level for entry in self.entries) for level in LEVELS}
        return {"kind": self.kind, **counts}

    def in_words(self) -> tuple[str, ...]:
        """What was found, in one sentence."""
        count = self.headline()
        if count["refused"]:
            return ("poolscope refuses to open this model.",)
        if count["look"]:
            return (f"{count['look']} of {len(self.entries)} entries need a look before this model is used.",)
        return ("Nothing in these files contradicts itself.",)

    def rows(self) -> list[dict[str, Any]]:
        """One row a topic."""
        return [{"topic": entry.topic, "level": entry.level, "words": entry.words} for entry in self.entries]


def inspect_model(
    model: str | os.PathLike[str], *, role: str | None = None, revision: str | None = None, allow_pickle: bool = False
) -> Inspection:
    """Say what a model declares, and where its files contradict each other, before it is loaded.

    Parameters
    ----------
    model
        A folder, an `.onnx` or `.gguf` file, or a hub name (which is fetched).
    role
        The route of a Router: "query" or "document".
    revision
        The commit of a hub model.
    allow_pickle
        Take pickled weights for what they are; they are not read here.

    Returns
    -------
    Inspection
        One entry or more a topic: files, code, paths, sizes, tokenizer, length, template, pooling, prompts, licence
        and what opening it said.

    Examples
    --------
    >>> inspect_model("builtin:minilm").level
    'ok'

    """
    if not isinstance(model, str | os.PathLike) or not os.fspath(model):
        raise InputError(
            f"model: received {shorten(model)}; allowed: a folder, a file or a hub name, such as 'builtin:minilm'."
        )
    options = EncoderOptions(role=role, revision=revision, allow_pickle=allow_pickle)
    source, kind = recognised(os.fspath(model), options)
    if source.path is None or kind not in _PARTS:
        raise InputError(
            f"model: {source.name} is a {kind}, which has nothing to inspect; allowed: a folder, an .onnx or .gguf "
            f"file, or a hub name."
        )
    with explained(f"{source.name}: it cannot be inspected", "Check its files, or download it again."):
        return Inspection(source.name, kind, tuple(_entries(source, kind, options)))


def _entries(source: Source, kind: str, options: EncoderOptions) -> Iterator[Entry]:
    assert source.path is not None
    home = source.path if source.path.is_dir() else source.path.parent
    files = _files(source.path)
    yield from _of_files(files)
    yield from _of_paths(home, files)
    declared = None
    if kind != "gguf":
        try:
            declared = folders.read_declaration(home, name=source.name, role=options.role)
            yield from _of_code(home, declared)
        except PoolscopeError as error:
            yield Entry("declaration", "refused", str(error))
            return
    facts: dict[str, Any] = {}
    try:
        with _PARTS[kind](source, options) as first:
            facts = first.facts()
        yield Entry("opening", "ok", "It was opened in a confined process.", {"confined": first.confined, **facts})
    except PoolscopeError as error:
        yield Entry("opening", "refused", str(error))
    yield from _of_sizes(home, declared, facts)
    yield from _of_tokenizer(facts)
    yield from _of_length(home, declared, facts)
    yield from _of_template(declared, facts)
    if kind == "late-interaction":
        yield Entry("pooling", "ok", "It keeps its tokens, and pools none.", {"pooling": [], "after": []})
    else:
        yield from _of_pooling(home, declared, facts)
    yield from _of_prompts(declared)
    yield _licence(home, facts)


# -- what opens each kind ---------------------------------------------------------------------------------------------


def _open_folder(source: Source, options: EncoderOptions) -> Any:
    assert source.path is not None
    declared = folders.read_declaration(source.path, name=source.name, role=options.role)
    place = source.path / declared.subfolder
    folders.check_folder_content(place, declared, name=source.name, trusted=False, allow_pickle=options.allow_pickle)
    model_type = str(folders.read_settings(place / "config.json").get("model_type"))
    return opening("transformers", source.path, name=source.name, options=options, model_type=model_type, detailed=True)


def _open_onnx(source: Source, options: EncoderOptions) -> Any:
    assert source.path is not None
    file, home = graph_of(source.path, name=source.name)
    return opening("onnx", home, name=source.name, options=options, file=str(file))


def _open_gguf(source: Source, options: EncoderOptions) -> Any:
    assert source.path is not None
    return opening("gguf declaration", gguf_file(source.path, name=source.name), name=source.name)


def _open_static(source: Source, options: EncoderOptions) -> Any:
    assert source.path is not None
    return opening("static", source.path, name=source.name, options=options, detailed=True)


def _open_route(source: Source, options: EncoderOptions) -> Any:
    assert source.path is not None
    first = folders.read_declaration(source.path, name=source.name, role=options.role).first
    return (_open_static if first == "StaticEmbedding" else _open_folder)(source, options)


_PARTS: dict[str, Callable[[Source, EncoderOptions], Any]] = {
    "builtin": _open_folder,
    "transformers": _open_folder,
    "late-interaction": _open_folder,
    "static": _open_static,
    "router": _open_route,
    "onnx": _open_onnx,
    "gguf": _open_gguf,
}


# -- files, paths and code --------------------------------------------------------------------------------------------


def _files(path: Path) -> dict[str, Path]:
    """The files of a model by their names below it; hidden ones are no part of it."""
    if not path.is_dir():
        return {path.name: path}
    found: dict[str, Path] = {}
    for place, names, files in os.walk(path):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and len(found) < _MOST_FILES:
                file = Path(place) / name
                found[file.relative_to(path).as_posix()] = file
    return found


def _of_files(files: Mapping[str, Path]) -> Iterator[Entry]:
    sizes = {}
    for name, path in files.items():
        with suppress(OSError):  # a link that leads nowhere
            sizes[name] = path.stat().st_size
    total = sum(sizes.values())
    yield Entry(
        "files", "ok", f"{len(files):,} files, {bytes_in_words(total)} in all.", {"bytes": total, "files": sizes}
    )
    formats: dict[str, list[str]] = {}
    for name in files:
        if (kind := _WEIGHTS.get(Path(name).suffix)) is not None and not name.endswith("training_args.bin"):
            formats.setdefault(kind, []).append(name)
    if not formats:
        yield Entry("formats", "look", "No file holds weights.", {"formats": {}})
    elif list(formats) == ["pickle"]:
        words = "All weights are pickled, and a pickle can run any code. --allow-pickle would load them."
        yield Entry("formats", "look", words, {"formats": formats})
    else:
        beside = f" {len(formats['pickle'])} pickled files are not read." if "pickle" in formats else ""
        kinds = ", ".join(kind for kind in formats if kind != "pickle")
        yield Entry("formats", "note" if beside else "ok", f"Weights as {kinds}.{beside}", {"formats": formats})


def _of_paths(home: Path, files: Mapping[str, Path]) -> Iterator[Entry]:
    """Links that lead out of the folder; those of the cache of the hub lead to the blobs of the same model."""
    root = home.resolve()
    places = [root, *(parent / "blobs" for parent in root.parents[:2] if parent.name.startswith("models--"))]
    outside = [name for name, path in files.items() if not any(path.resolve().is_relative_to(at) for at in places)]
    odd = [name for name, path in files.items() if not path.is_file()]
    if outside:
        words = f"{len(outside)} files are links out of the folder (first: {shorten(outside[0])})."
        yield Entry("paths", "look", words, {"outside": outside})
    if odd:
        yield Entry("paths", "look", f"{len(odd)} names are no files (first: {shorten(odd[0])}).", {"odd": odd})
    if not outside and not odd:
        yield Entry("paths", "ok", "No file leads out of the folder.")


def _of_code(home: Path, declared: folders.Declaration) -> Iterator[Entry]:
    """Code that the model names: in auto_map, as classes of modules, as files."""
    named: dict[str, list[str]] = {}
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        classes = folders.read_settings(home / declared.subfolder / name).get("auto_map")
        if isinstance(classes, Mapping) and classes:
            named[name] = sorted({str(value) for value in classes.values()})
    modules = folders.read_modules(home)
    if own := [str(part["type"]) for part in modules if not str(part["type"]).startswith(_OWN_MODULES)]:
        named["modules.json"] = own
    files = sorted(path.relative_to(home).as_posix() for path in home.glob("*.py"))
    if named:
        first = next(iter(named.values()))[0]
        words = f"It names code of its own ({shorten(first)}), which poolscope does not run. Its vectors may be others."
        yield Entry("code", "look", words, {"named": named, "files": files})
    elif files:
        words = f"{len(files)} Python files lie in the folder, and no setting names them."
        yield Entry("code", "note", words, {"named": {}, "files": files})
    else:
        yield Entry("code", "ok", "It names no code of its own.", {"named": {}, "files": []})


# -- what the configuration claims ------------------------------------------------------------------------------------


def _of_sizes(home: Path, declared: folders.Declaration | None, facts: Mapping[str, Any]) -> Iterator[Entry]:
    """Numbers that the configuration builds against those in the weights, and shards against their index."""
    if declared is None:
        if "parameters" in facts:
            values = {"claimed": facts["parameters"]}
            yield Entry("sizes", "ok", f"The file holds {facts['parameters']:,} numbers.", values)
        return
    place = home / declared.subfolder
    missing = folders.missing_shards(place)
    if missing:
        words = f"{len(missing)} files that the index names are not there (first: {shorten(missing[0])})."
        yield Entry("sizes", "look", words, {"missing": missing})
    with suppress(PoolscopeError):  # which opening says
        stored, built = folders.numbers_held(place), facts.get("parameters")
        if not stored or built is None:
            return
        values = {"claimed": built, "held": stored}
        if abs(built - stored) > _SHARE * stored:
            words = f"config.json describes {built:,} numbers, and the weights hold {stored:,}."
            yield Entry("sizes", "look", words, values)
        else:
            yield Entry("sizes", "ok", f"{built:,} parameters; the weights hold {stored:,} numbers.", values)


def _of_tokenizer(facts: Mapping[str, Any]) -> Iterator[Entry]:
    entries, rows = facts.get("entries"), facts.get("rows")
    if entries is None:
        return
    largest = facts.get("largest_id", entries - 1)
    values = {"entries": entries, "rows": rows, "largest_id": largest}
    if rows is None:
        yield Entry("tokenizer", "ok", f"The tokenizer has {entries:,} entries.", values)
    elif largest >= rows:
        token = f" ({facts['largest_token']!r})" if "largest_token" in facts else ""
        words = f"The tokenizer gives id {largest:,}{token}, and the table has {rows:,} rows. Texts with it fail."
        yield Entry("tokenizer", "look", words, values)
    else:
        yield Entry("tokenizer", "ok", f"{entries:,} entries for a table of {rows:,} rows.", values)


def _of_length(home: Path, declared: folders.Declaration | None, facts: Mapping[str, Any]) -> Iterator[Entry]:
    longest = facts.get("max_length")
    named = None if declared is None else declared.max_length
    values = {"max_length": longest, "declared": named}
    if "max_length" not in facts:
        return
    if longest is None:
        yield Entry("length", "note", "Nothing limits the length of a text.", values)
    elif named is not None and longest < named:
        words = (
            f"max_seq_length says {named:,} tokens, and the positions end at {longest:,}. Longer texts lose their end."
        )
        yield Entry("length", "look", words, values)
    else:
        yield Entry("length", "ok", f"Texts are truncated after {longest:,} tokens.", values)


def _of_template(declared: folders.Declaration | None, facts: Mapping[str, Any]) -> Iterator[Entry]:
    sample = facts.get("sample")
    if declared is not None and declared.chat is not None:
        shown = f": {shorten(sample)}" if sample else ""
        yield Entry("template", "note", f"A chat template wraps each text{shown}.", {"used": True, "sample": sample})
    elif sample is not None or "template" in facts:
        has = " The file has one, which is not used." if facts.get("template") else ""
        values = {"used": False, "sample": sample}
        yield Entry("template", "note" if has else "ok", f"No chat template is used.{has}", values)


# -- what it declares -------------------------------------------------------------------------------------------------


def _of_pooling(home: Path, declared: folders.Declaration | None, facts: Mapping[str, Any]) -> Iterator[Entry]:
    modes = tuple(facts.get("pooling", ())) if declared is None else declared.pooling
    after = () if declared is None else declared.after
    values = {"pooling": list(modes), "after": list(after)}
    if not modes:
        yield Entry("pooling", "look", "It declares no pooling; poolscope would take the mean.", values)
    else:
        then = f", then {', '.join(after)}" if after else ""
        yield Entry("pooling", "ok", f"It declares: {' + '.join(modes)}{then}.", values)
    if declared is not None:
        yield from _pooling_contradictions(home, declared, facts)


def _pooling_contradictions(home: Path, declared: folders.Declaration, facts: Mapping[str, Any]) -> Iterator[Entry]:
    settings = folders.pooling_settings(home)
    if not settings:
        return
    flags = folders.pooling_modes({key: value for key, value in settings.items() if key != "pooling_mode"})
    if "pooling_mode" in settings and any(settings.get(key) for key in folders.POOLING_FLAGS):
        modes = folders.pooling_modes(settings)
        if flags != modes:
            words = f"pooling_mode says {' + '.join(modes)}, and the older flags say {' + '.join(flags)}."
            yield Entry("pooling", "look", words, {"pooling_mode": list(modes), "flags": list(flags)})
    if not declared.pooling:
        words = "1_Pooling names a pooling that modules.json does not use."
        yield Entry("pooling", "look", words, {"unused": list(folders.pooling_modes(settings))})
    width = settings.get("word_embedding_dimension", settings.get("embedding_dimension"))
    dimension = facts.get("dimension")
    if isinstance(width, int) and dimension is not None and width != dimension:
        words = f"The pooling expects vectors of {width:,} numbers, and the model gives {dimension:,}."
        yield Entry("pooling", "look", words, {"expected": width, "dimension": dimension})


def _of_prompts(declared: folders.Declaration | None) -> Iterator[Entry]:
    if declared is None:
        return
    prompts, default = dict(declared.prompts), declared.default_prompt
    values = {"prompts": prompts, "default": default, "pooled": declared.include_prompt}
    texts = {name: text for name, text in prompts.items() if text}
    if default is not None and default not in prompts:
        words = f"default_prompt_name is {shorten(default)}, and no prompt has that name."
        yield Entry("prompts", "look", words, values)
    elif not texts:
        yield Entry("prompts", "ok", "It declares no prompt.", values)
    elif default is None:
        names = ", ".join(sorted(texts))
        words = f"It declares prompts ({names}) and no default. Name one, by --role or --prompt-name."
        yield Entry("prompts", "note", words, values)
    else:
        yield Entry("prompts", "ok", f"Every text gets the prompt {shorten(prompts[default])} ({default}).", values)


def _licence(home: Path, facts: Mapping[str, Any]) -> Entry:
    """What the head of README.md, a GGUF header or a file named LICENSE says."""
    card = _start_of(home / "README.md")
    head = re.match(r"---[^\S\n]*\n(.*?)\n---", card, re.DOTALL)
    line = re.search(r"^licen[sc]e:\s*(\S[^\n]*)$", head[1], re.MULTILINE) if head else None
    named = facts.get("licence") or (line[1].strip().strip("'\"") if line else None)
    files = sorted(path.name for path in home.iterdir() if re.match(r"(?i)licen[sc]e|copying", path.name))
    values = {"licence": named, "files": files}
    if named is None and not files:
        return Entry("licence", "note", "No licence is named. Ask its makers before you use it in a product.", values)
    words = f"Licence: {shorten(named).strip(chr(39))}." if named else f"Licence: see {files[0]}."
    return Entry("licence", "ok", words, values)


def _start_of(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return stream.read(_CARD).decode("utf-8", errors="replace")
