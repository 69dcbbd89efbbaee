"""The other side of `opening.py`: the process in which foreign models are opened first.

It reads requests from standard input, one JSON object a line, and writes as many answers. On Linux a request is
answered by a fork of this process, confined, with a deadline; elsewhere by this process itself, which then ends.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from poolscope.encoders import opening
from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.confinement import Limits, confine
from poolscope.errors import PoolscopeError, in_one_line

# What opens each kind: a function (path, *, name, options, output, **settings) -> facts.
REHEARSALS = {
    "transformers": "poolscope.encoders.transformers:rehearse_folder",
    "static": "poolscope.encoders.static:rehearse_static",
    "patches": "poolscope.encoders.patches:rehearse_patches",
    "onnx": "poolscope.encoders.onnx:rehearse_onnx",
    "gguf": "poolscope.encoders.gguf:convert_gguf",
    "gguf declaration": "poolscope.encoders.gguf:declaration_of_gguf",
}
# What a kind imports before the fork, so that it is imported once.
_BEFORE = {
    "transformers": ("torch", "transformers", "transformers.modeling_utils", "transformers.models.auto.modeling_auto"),
    "static": ("tokenizers", "safetensors.numpy"),
    "onnx": ("onnx", "onnxruntime", "tokenizers"),
    "gguf declaration": ("gguf",),
}
_BEFORE["patches"] = (*_BEFORE["transformers"], "PIL.Image")
_BEFORE["gguf"] = (*_BEFORE["transformers"], "gguf")
_IDLE = 60.0  # seconds after which a server that nobody asks ends
_LONGEST_ANSWER, _LAST_WORDS = 2**20, 4096  # bytes
# What libraries say where memory ends; the last one is Python's own, where code in C gave up without an exception.
_NO_MEMORY = (
    "allocate memory",
    "bad_alloc",
    "memory allocation",
    "alloc_cpu",
    "Failed to allocate",
    "error return without exception set",
)


def serve() -> None:
    """Answer requests until standard input ends, or nobody asks for a while."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    opening._inside = True
    forks = sys.platform == "linux"
    while True:
        if forks and not select.select([0], [], [], _IDLE)[0]:
            break
        line = sys.stdin.buffer.readline()
        if not line:
            break
        request = json.loads(line)
        _import_before(request)
        answer = _answer_in_fork(request) if forks else _answer(request)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
        if not forks:
            break
    os._exit(0)  # nothing is left to be done, and the libraries take their time


def _import_before(request: Mapping[str, Any]) -> None:
    modules = (*_BEFORE[request["kind"]], REHEARSALS[request["kind"]].partition(":")[0])
    for module in modules:
        with suppress(ImportError):  # whoever needs it says what is missing
            importlib.import_module(module)
    with suppress(Exception):  # the class of a type that the library knows, by the name that the library has for it
        auto = importlib.import_module("transformers.models.auto.modeling_auto")
        getattr(importlib.import_module("transformers"), auto.MODEL_MAPPING_NAMES[request["settings"]["model_type"]])


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Open the model of a request, confined: what was learned (`facts`), an `error` in one line, or the `limit`."""
    try:
        os.chdir(request["cwd"])
        output = None if request["output"] is None else Path(request["output"])
        writable = [] if output is None else [output]
        places = [Path(place) for place in request["readable"]]
        module, _, function = REHEARSALS[request["kind"]].partition(":")
        rehearse = getattr(importlib.import_module(module), function)
        confined = confine(Limits.from_dict(request["limits"]), places, writable)
        settings = {key: value for key, value in request["settings"].items() if key != "model_type"}
        if output is not None:
            settings["output"] = output
        facts = rehearse(
            Path(request["path"]), name=request["name"], options=EncoderOptions(**request["options"]), **settings
        )
        return {"facts": facts, "confined": confined}
    except BaseException as error:
        if _ran_out_of_memory(error):
            return {"limit": "memory"}
        if isinstance(error, PoolscopeError):
            named = str(error) if request["name"] in str(error) else f"{request['name']}: {error}"
            return {"error": named, "kind": type(error).__name__}
        return {"error": f"{request['name']}: it cannot be opened ({in_one_line(error)}). Download it again."}


def _ran_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what it comes from, is that there was no more memory."""
    while error is not None:
        refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
        if refused or isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


# -- a fork a model ---------------------------------------------------------------------------------------------------


def _answer_in_fork(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a fork; where it gives none, why it ended."""
    gc.freeze()  # what both processes share is not touched by the collector of either
    answers, words = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_fork(request, answers[1], words[1])
    os.close(answers[1])
    os.close(words[1])
    try:
        content, last, in_time = _listen(answers[0], words[0], Limits.from_dict(request["limits"]).wall)
    finally:
        os.close(answers[0])
        os.close(words[0])
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has answered, or its time is over
        _, status, usage = os.wait4(child, 0)
    cost = {"seconds": usage.ru_utime + usage.ru_stime}
    with suppress(ValueError):
        return {**json.loads(content), **cost}
    if not in_time:
        return {"limit": "wall", **cost}
    ended = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    # At its limit of processor time a process is sent a signal, and is killed soon after if it does not end.
    if ended == -signal.SIGXCPU or (ended == -signal.SIGKILL and cost["seconds"] >= request["limits"]["processor"]):
        return {"limit": "processor", **cost}
    if any(phrase in last for phrase in _NO_MEMORY):
        return {"limit": "memory", **cost}
    return {"died": opening._ended(ended), **cost}


def _be_the_fork(request: Mapping[str, Any], answers: int, words: int) -> NoReturn:
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(words, 1)
        os.dup2(words, 2)
        content = json.dumps(_answer(request)).encode()
        while content:
            content = content[os.write(answers, content) :]
    finally:
        os._exit(0)


def _listen(answers: int, words: int, seconds: float) -> tuple[bytes, str, bool]:
    """What the fork answers, its last words on standard error, and whether it ended within so many seconds."""
    deadline, content, last = time.monotonic() + seconds, b"", b""
    open_ends = {answers, words}
    while answers in open_ends:
        left = deadline - time.monotonic()
        if left <= 0:
            return b"", last.decode(errors="replace"), False
        for end in select.select(list(open_ends), [], [], left)[0]:
            part = os.read(end, 2**16)
            if not part:
                open_ends.discard(end)
            elif end == words:
                last = (last + part)[-_LAST_WORDS:]
            else:
                content = (content + part)[: _LONGEST_ANSWER + 1]
    return content, last.decode(errors="replace"), True
