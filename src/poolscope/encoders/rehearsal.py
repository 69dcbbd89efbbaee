"""The other side of `opening.py`: the process in which foreign models are opened first.

It reads requests, one JSON object a line, and writes as many answers. On Linux a request is answered by a fork of this
process, confined, with a deadline; elsewhere by this process itself, which then ends.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from poolscope.encoders import confinement
from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.confinement import Limits, confine
from poolscope.errors import PoolscopeError, in_one_line
from poolscope.extensions import rows_of

# What opens each kind: a function (path, *, name, options, output, **settings) -> facts.
REHEARSALS = {
    "transformers": "poolscope.encoders.transformers:rehearse_folder",
    "static": "poolscope.encoders.static:rehearse_static",
    "onnx": "poolscope.encoders.onnx:rehearse_onnx",
    "gguf": "poolscope.encoders.gguf:convert_gguf",
    "gguf declaration": "poolscope.encoders.gguf:declaration_of_gguf",
    **dict(rows_of("REHEARSALS")),
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
# What the environment of the process says, and what it does not hold.
_SETTINGS = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"),
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|^PG|^AWS_", re.IGNORECASE)
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


def serve_as_program() -> NoReturn:
    """Answer what comes by standard input; a process of its own runs this."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    serve(sys.stdin.buffer, answers)
    os._exit(0)  # nothing is left to be done, and the libraries take their time


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end, or nobody asks for a while."""
    confinement.inside = True
    _take_environment()
    forks = sys.platform == "linux"
    while True:
        if forks and not select.select([requests], [], [], _IDLE)[0]:
            break
        line = requests.readline()
        if not line:
            break
        request = json.loads(line)
        import_before(request)
        answer = _answer_in_fork(request) if forks else _answer(request)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
        if not forks:
            break


def environment() -> dict[str, str]:
    """The environment of the process: alone, offline, and without secrets."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)} | _SETTINGS


def _take_environment() -> None:
    """Change what was imported with another environment, too; a copy of another process has that."""
    wanted = environment()
    os.environ.clear()
    os.environ.update(wanted)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "huggingface_hub.constants" in sys.modules:
        sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


def import_before(request: Mapping[str, Any]) -> None:
    """Import what opening a model of this kind needs, whichever model it is."""
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


def ending(status: int) -> str:
    """How a process ended.

    >>> ending(-9), ending(1)
    ('ended from outside or for want of memory: SIGKILL', 'exit code 1')
    """
    if status >= 0:
        return f"exit code {status}"
    name = signal.Signals(-status).name
    return f"ended from outside or for want of memory: {name}" if name == "SIGKILL" else name


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
    return {"died": ending(ended), **cost}


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
