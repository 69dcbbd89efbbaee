"""A canary, which is a secret and what acts on a terminal, goes into every reader and server, and comes out nowhere.

It stands where others choose the words: names of columns, arrays, layers, models and collections, texts and ids, and
refusals of servers. What is searched: both streams, JSON, the page, the cache, the notebook view and the answers of
the tools for assistants.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import logging
import shutil
import sqlite3
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from rich.panel import Panel
from safetensors.numpy import save_file

import poolscope
from poolscope.cli import main
from poolscope.errors import InputError, PoolscopeError, shorten
from poolscope.show.console import Console
from poolscope.words import as_json, clean, forget, guard_streams, hide, logger, warn
from tiny_models import declare, save_model

SECRET = "sk-CANARY/0123+secret"
ACTS = "\x1b]52;c;Q0FOQVJZ\x07\x9b2J\u202eYRANAC\u2066\u200f"
WORDS = f"{ACTS} {SECRET} "
VARIABLES = ("POOLSCOPE_API_KEY", "PGPASSWORD", "QDRANT_API_KEY", "CHROMA_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN")
ENCODED = {
    "plain": SECRET,
    "percent": quote(SECRET, safe=""),
    "percent twice": quote(quote(SECRET, safe=""), safe=""),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "basic": base64.b64encode(f"me:{SECRET}".encode()).decode(),
    "JSON": "".join(f"\\u{ord(letter):04x}" for letter in SECRET),
    "hex": SECRET.encode().hex(),
    "entities": "".join(f"&#{ord(letter)};" for letter in SECRET),
}


@pytest.fixture(autouse=True)
def _ambient(monkeypatch):
    """Every variable that holds a key has the canary, and nothing is known from the test before."""
    forget()
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    yield
    forget()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), max_position_embeddings=64))


def leaks(text: str) -> list[str]:
    """What of the canary a text holds: parts of the secret, and characters that act."""
    acting = [mark for mark in ("\x1b]", "\x07", "\x9b", "\u202e", "\u2066", "\u200f", "\x1b[2J") if mark in text]
    return acting + [name for name, form in ENCODED.items() if form in text or form[: len(form) // 2 + 2] in text]


def command(*words: object) -> tuple[int, str]:
    """The exit code of a command, and all that it printed; a traceback is printed too, as Python would."""
    out, code = StringIO(), 0
    before = sys.argv
    sys.argv = ["poolscope", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("always")
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    finally:
        sys.argv = before
    return code, out.getvalue()


def written(folder: Path) -> dict[str, str]:
    """The content of every file of words below a folder."""
    kinds = (".json", ".html", ".jsonl", ".txt", ".md", ".svg")
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in kinds]
    return {str(path): path.read_text(encoding="utf-8") for path in files}


# -- readers ----------------------------------------------------------------------------------------------------------

COLUMNS = {WORDS + "a": [1, 2, 3], WORDS + "b": [4, 5, 6]}
ROWS = [{WORDS + "a": 1, WORDS + "b": 2}] * 3


def _npz(path: Path) -> None:
    np.savez(path, **{"a" + WORDS.replace("/", "-"): np.zeros((3, 4)), "b": np.zeros((2, 2))})


def _sqlite(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute(f'CREATE TABLE "{WORDS}" (id text)')
    base.commit()
    base.close()


def _model_folder(path: Path, **files: object) -> None:
    path.mkdir()
    for name, content in files.items():
        (path / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))


def _chroma(path: Path) -> None:
    path.mkdir()
    _sqlite(path / "chroma.sqlite3")


def _qdrant(path: Path) -> None:
    path.mkdir()
    (path / "meta.json").write_text(json.dumps({"collections": {WORDS: {"vectors": {"size": 2, "distance": "Dot"}}}}))


def _tensors(path: Path) -> None:
    _model_folder(path, config={"model_type": "bert", "hidden_size": 8, "architectures": [WORDS]})
    save_file({WORDS: np.zeros((2, 2), np.float32)}, path / "model.safetensors", metadata={"format": WORDS})


def _gguf(path: Path) -> None:
    name = WORDS.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    path.write_bytes(head + struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(name)) + name)


# What a reader is given, and the command that reads it (§: the file; MODEL: a small model).
READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "t.csv": (lambda path: path.write_text(f"{WORDS}a,{WORDS}b\n1,2\n"), "corpus MODEL §"),
    "quoted.csv": (lambda path: path.write_text(f'text,"{WORDS}\n1,2\n'), "corpus MODEL §"),
    "t.tsv": (lambda path: path.write_text(f"{WORDS}a\t{WORDS}b\n1\t2\n"), "corpus MODEL §"),
    "t.jsonl": (lambda path: path.write_text("\n".join(map(json.dumps, ROWS))), "corpus MODEL §"),
    "broken.jsonl": (lambda path: path.write_text(f'{{"text": "a"}}\n{{"{WORDS}'), "corpus MODEL §"),
    "t.json": (lambda path: path.write_text(json.dumps(ROWS)), "corpus MODEL §"),
    "t.jsonl.gz": (lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS[0]).encode())), "corpus MODEL §"),
    "t.parquet": (lambda path: pq.write_table(pa.table(COLUMNS), path), "corpus MODEL §"),
    "t.feather": (lambda path: pyarrow.feather.write_feather(pa.table(COLUMNS), str(path)), "corpus MODEL §"),
    "t.doc": (lambda path: path.write_text(WORDS), "corpus MODEL §"),
    "q.jsonl": (lambda path: path.write_text(json.dumps({"query": "a", "relevant": [WORDS]})), "audit MODEL T -q §"),
    "v.npz": (_npz, "audit §"),
    "v.npy": (lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + WORDS.encode()), "audit §"),
    "v.parquet": (lambda path: pq.write_table(pa.table(COLUMNS), path), "audit §"),
    "v.arrow": (lambda path: path.write_bytes(b"ARROW1\0\0" + WORDS.encode()), "audit §"),
    "chroma": (_chroma, "audit chroma:§"),
    "qdrant": (_qdrant, "audit qdrant:§/other"),
    "faiss": (lambda path: path.write_bytes(b"IxFI" + WORDS.encode()), "audit faiss:§"),
    "l.lance": (lambda path: (path.mkdir(), (path / "_versions").mkdir()), f"audit lancedb:{{}}/{SECRET[:8]}"),
    "modules": (
        lambda path: _model_folder(path, config={"model_type": "bert"}, modules=[{"type": f"x.{WORDS}"}]),
        "socm § T",
    ),
    "path": (
        lambda path: _model_folder(path, config={}, modules=[{"type": "x.Dense", "path": f"../{WORDS}"}]),
        "socm § T",
    ),
    "model_type": (lambda path: _model_folder(path, config={"model_type": WORDS}), "socm § T"),
    "config": (lambda path: _model_folder(path, config=f'{{"model_type": "{WORDS}'), "socm § T"),
    "tensors": (_tensors, "socm § T"),
    "m.gguf": (_gguf, "socm § T"),
    "m.onnx": (lambda path: path.write_bytes(WORDS.encode()), "socm § T"),
    "m.vec": (lambda path: path.write_text(f"2 3\n{WORDS} 1 2\nb 1 2 3\n"), "socm § T"),
    "m.bin": (lambda path: path.write_bytes(WORDS.encode()), "socm § T"),
    "audit": (lambda path: _model_folder(path, audit={"format": WORDS}), "compare § §"),
    "store": (lambda path: _model_folder(path, manifest={"format": WORDS}), "socm §"),
    "clouds.arrow": (lambda path: path.write_bytes(WORDS.encode()), "verify §"),
    "repair.safetensors": (
        lambda path: save_file({"a": np.zeros(2, np.float32)}, path, metadata={"poolscope": WORDS}),
        "evaluate MODEL T --repair §",
    ),
    "typed": (lambda path: None, f"{WORDS} §"),
    "option": (lambda path: None, f"audit §--{WORDS}"),
}


@pytest.mark.parametrize("name", READERS)
def test_nothing_of_it_comes_out_of_a_reader(name, tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("T").mkdir()
    Path("T/texts.txt").write_text("the cat sat\n\na dog ran\n")
    make, words = READERS[name]
    make(tmp_path / name)
    filled = words.format(name).replace("§", name)
    given = [str(model) if word == "MODEL" else word for word in filled.split(" ")]
    code, printed = command(*given)
    assert code != 0, printed  # it is refused, and the refusal names what is there
    assert printed
    assert leaks(printed) == []


def test_nothing_of_it_comes_out_of_an_audit(tmp_path, model, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path / "cache"))
    texts = tmp_path / "texts.jsonl"
    rows = [
        {"text": f"text {k} {WORDS} of many words", "id": f"{k}{WORDS}", "group": WORDS + str(k % 3)} for k in range(24)
    ]
    texts.write_text("\n".join(map(json.dumps, rows)))
    given = (model, texts, "--id-column", "id", "-o", tmp_path / "audit", "--details", "--verbose")
    code, printed = command("audit", *given)
    assert code == 0, printed
    assert leaks(printed) == []
    code, printed = command("audit", *given[:4], "-o", tmp_path / "again", "--json", "-")
    assert leaks(printed) == []
    files = written(tmp_path / "audit") | written(tmp_path / "again") | written(tmp_path / "cache")
    assert {Path(path).suffix for path in files} >= {".json", ".html"}
    assert any("cache" in Path(path).parts for path in files)
    assert {path: leaks(content) for path, content in files.items() if leaks(content)} == {}
    audit = poolscope.Audit.load(tmp_path / "audit")
    assert leaks(audit._repr_html_() + str(audit)) == []


FORGED = "a\n::error::owned\npoolscope: all is well\r::stop-commands::x"


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda: pq.write_table(pa.table({FORGED: [1], f"{FORGED}b": [2]}), "t.parquet"), "corpus MODEL t.parquet"),
        (lambda: Path("t.csv").write_text(f'"{FORGED}","{FORGED}b"\n1,2\n', newline=""), "corpus MODEL t.csv"),
        (lambda: np.savez("t.npz", **{FORGED: np.zeros((3, 4)), "b": np.zeros((2, 2))}), "audit t.npz"),
        (lambda: _model_folder(Path("m"), config={}, modules=[{"type": f"x.{FORGED}", "path": ""}]), "socm m T"),
        (
            lambda: _model_folder(Path("m"), config={}, modules=[{"type": "x.Transformer", "path": f"../{FORGED}"}]),
            "socm m T",
        ),
        (lambda: None, f"socm {FORGED} T"),
    ],
    ids=["parquet", "csv", "npz", "type", "path", "typed"],
)
def test_no_name_begins_a_line_of_its_own(write, words, tmp_path, model, monkeypatch):
    """The log of a CI run obeys lines that begin with two colons."""
    monkeypatch.chdir(tmp_path)
    Path("T").mkdir()
    Path("T/texts.txt").write_text("the cat sat\n\na dog ran\n")
    write()
    known = {"MODEL": model, "§": FORGED}
    code, said = command(*(known.get(word, word) for word in words.replace(FORGED, "§").split(" ")))
    assert code == 2
    assert "owned" in said
    lines = [line.strip() for line in said.splitlines()]
    assert [line for line in lines if line.startswith("::") or line == "poolscope: all is well"] == []


# -- servers ----------------------------------------------------------------------------------------------------------

CODES = (400, 401, 404, 413, 429, 500)
# Answers of an embedding server that repeats what it was sent, and adds what acts on a terminal.
ANSWERS: dict[str, tuple[int, Callable[[str], str]]] = {
    **{str(code): (code, lambda key: json.dumps({"error": {"message": ACTS + key}})) for code in CODES},
    "detail": (422, lambda key: json.dumps({"detail": ACTS + key})),
    "cut": (400, lambda key: json.dumps({"error": "x" * (160 - len(key) + 9) + key})),
    "too long": (400, lambda key: json.dumps({"error": f"too long {ACTS}{key}"})),
    "no JSON": (200, lambda key: f"auth={key}{ACTS}"),
    "HTML": (200, lambda key: f"<html>{key}{ACTS}"),
    "other keys": (200, lambda key: json.dumps({ACTS + key: 1})),
    "index": (200, lambda key: json.dumps({"data": [{"index": ACTS + key, "embedding": [1.0]}]})),
    "no numbers": (200, lambda key: json.dumps({"data": [{"embedding": [ACTS + key]}]})),
    "redirected": (302, lambda key: key),
    **{f"as {name}": (400, lambda _, form=form: json.dumps({"error": form})) for name, form in ENCODED.items()},
}


@contextmanager
def server(code: int, answer: Callable[[str], str]) -> Iterator[int]:
    """A server that answers every request alike; its port."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = self.headers.get("Authorization") or self.headers.get("api-key") or SECRET
            body = answer(key).encode()
            self.send_response(code, f"reason {SECRET}")
            self.send_header("Content-Type", f"text/{SECRET}")
            self.send_header("Location", f"http://127.0.0.1:9/{quote(SECRET)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":  # a client reads what follows that answer as the next one
                self.wfile.write(body)

        do_GET = do_POST = do_HEAD = do_PUT = _answer  # noqa: N815 (names of the standard library)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_port
        made.shutdown()


def refusal(call: Callable[[], object]) -> str:
    """The traceback of a call that poolscope refuses, with the errors behind it."""
    with pytest.raises(PoolscopeError) as caught:
        call()
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("way", ANSWERS)
def test_no_embedding_server_gets_it_out(way):
    with server(*ANSWERS[way]) as port:
        told = refusal(lambda: poolscope.Endpoint(f"http://127.0.0.1:{port}/v1/embeddings", retries=0).send(["a"]))
    assert leaks(told) == []


@pytest.mark.parametrize("scheme", ["qdrant", "chroma"])
@pytest.mark.parametrize("way", ["400", "401", "500", "no JSON", "other keys", "redirected"])
def test_no_vector_store_gets_it_out(scheme, way):
    pytest.importorskip({"qdrant": "qdrant_client", "chroma": "chromadb"}[scheme])
    with server(*ANSWERS[way]) as port:
        told = refusal(lambda: poolscope.read_index(f"{scheme}://127.0.0.1:{port}/c"))
    assert leaks(told) == []


class _Postgres(BaseRequestHandler):
    """A server that takes the password and refuses with it."""

    def handle(self) -> None:
        while struct.unpack("!II", self._message())[1] in (80877103, 80877104):
            self.request.sendall(b"N")
        self.request.sendall(b"R" + struct.pack("!II", 8, 3))
        self.request.recv(4096)
        fields = b"".join(
            kind + words.encode() + b"\0" for kind, words in ((b"S", "FATAL"), (b"M", WORDS), (b"D", WORDS))
        )
        self.request.sendall(b"E" + struct.pack("!I", len(fields) + 5) + fields + b"\0")

    def _message(self) -> bytes:
        head: bytes = self.request.recv(8)
        self.request.recv(struct.unpack("!I", head[:4])[0] - 8)
        return head


@pytest.mark.parametrize("where", ["environment", "address", "query", "file"])
def test_no_data_base_gets_it_out(where, monkeypatch, tmp_path):
    pytest.importorskip("psycopg")
    if where != "environment":
        for name in VARIABLES:
            monkeypatch.delenv(name)
    (tmp_path / "passwords").write_text(f"*:*:*:me:{SECRET}\n")
    (tmp_path / "passwords").chmod(0o600)
    if where == "file":
        monkeypatch.setenv("PGPASSFILE", str(tmp_path / "passwords"))
    user = f"me:{quote(SECRET, safe='')}" if where == "address" else "me"
    query = f"&password={quote(SECRET, safe='')}" if where == "query" else ""
    with ThreadingTCPServer(("127.0.0.1", 0), _Postgres) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        told = refusal(
            lambda: poolscope.read_index(f"postgresql://{user}@127.0.0.1:{made.server_address[1]}/base?table=t{query}")
        )
        made.shutdown()
    assert leaks(told) == []


@pytest.mark.parametrize("where", ["environment", "file"])
def test_no_object_store_gets_it_out(where, monkeypatch, tmp_path):
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()  # each has the address of its own server
    if where == "file":
        for name in VARIABLES:
            monkeypatch.delenv(name)
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = key\naws_secret_access_key = {SECRET}\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    else:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    error = f"<Error><Code>AccessDenied</Code><Message>{SECRET}\u202eYRANAC</Message></Error>"
    with server(403, lambda key: error) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        told = refusal(lambda: poolscope.open_clouds(f"s3://canary-{where}/store"))
    assert "PermissionError" in told
    assert leaks(told) == []


@pytest.mark.parametrize("where", ["environment", "file"])
def test_no_hub_gets_it_out(where, monkeypatch, tmp_path):
    if where == "file":
        for name in VARIABLES:
            monkeypatch.delenv(name)
        (tmp_path / "token").write_text(SECRET)
        monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    received = []
    with server(400, lambda key: received.append(key) or json.dumps({"error": ACTS + key})) as port:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{port}")
        told = refusal(lambda: poolscope.as_encoder("organisation/model"))
    assert any(SECRET in key for key in received)
    assert leaks(told) == []


# -- the tools for assistants -----------------------------------------------------------------------------------------


def tool(name: str, **values: object) -> str:
    """All that a tool answers, as text and as content."""
    from mcp import Client

    from poolscope.connect.mcp import build_server

    async def ask() -> str:
        async with Client(build_server(["127.0.0.1"])) as client:
            answer = await client.call_tool(name, values)
            words = json.dumps(answer.structured_content, ensure_ascii=False)
            return words + "".join(part.text for part in answer.content)

    return asyncio.run(ask())


def test_nothing_of_it_comes_out_of_a_tool(tmp_path, model):
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": f"{k} {WORDS} of many words", "id": WORDS}) for k in range(24)))
    folder = tmp_path / f"{ACTS}{SECRET}"  # its name is part of the answer
    folder.parent.mkdir()
    shutil.copytree(model, folder)
    answer = tool("audit_texts", texts=str(texts), model=str(folder))
    assert '"causes"' in answer
    assert leaks(answer) == []
    for given in ({"model": f"{ACTS}{SECRET}"}, {"texts": f"{tmp_path}/{ACTS}{SECRET}.txt"}):
        assert leaks(tool("audit_texts", **{"texts": str(texts), "model": str(folder), **given})) == []
    with server(*ANSWERS["400"]) as port:
        address = f"http://127.0.0.1:{port}/v1/embeddings"
        assert leaks(tool("check_runtime", url=address, reference=str(model))) == []
        assert leaks(tool("audit_texts", texts=str(texts), model=address)) == []


def test_an_error_of_another_library_is_clean_in_a_tool(monkeypatch, model):
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError(WORDS)

    monkeypatch.setattr(poolscope, "as_encoder", fail)
    answer = tool("explain_pair", first="a", second="b", model=str(model))
    assert "RuntimeError" in answer
    assert leaks(answer) == []


# -- ways out ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ENCODED.values(), ids=ENCODED)
def test_a_secret_is_hidden_in_every_form(form):
    assert leaks(hide(f"before {form} behind")) == []
    assert hide(f"before {form} behind").startswith("before ")
    assert hide(f"before {form} behind").endswith(" behind")


@pytest.mark.parametrize("part", ["a:/", "http://a.b/c:", "key", "&a-", "?token=", "@", " ", "\n", "auth: bearer "])
def test_words_of_others_take_time_by_their_length(part):
    begin = time.process_time()
    hostile = f"?{part * 20_000}"
    assert clean(hostile)
    assert shorten(hostile)
    assert time.process_time() - begin < 10  # without end where a pattern has many ways to match


def test_errors_warnings_and_log_lines_are_clean():
    with pytest.warns(UserWarning, match=r"CANARY|YRANAC") as warned:
        warn(WORDS)
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    log = logger("poolscope.canary")
    log.addHandler(Handler())
    try:
        raise ValueError(WORDS)
    except ValueError as error:
        log.exception("said %s", WORDS)
        told = InputError(WORDS)
        told.__cause__ = error
    shown = "".join(traceback.format_exception(told))
    assert leaks(str(warned[0].message) + lines[0] + shown) == []
    assert lines[0].startswith("said ")


def test_words_that_are_none_of_it_stay():
    plain = "the file 'מסמך.csv' has 3 rows\n\tand the key of token 5 is café 👍"
    assert clean(plain) == plain


def test_letters_that_a_stream_has_not_are_written_as_json_writes_them(monkeypatch):
    content = {"text": "−0.1 … é 👍 שלום", "plain": "a"}
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    guard_streams()
    print(as_json(content))
    print("−", file=sys.stderr)
    stream.flush()
    assert json.loads(stream.buffer.getvalue()) == content


@pytest.mark.parametrize("columns", ["0", "1", "-5", "1000000000", "words"])
def test_a_screen_has_a_width_of_screens_whatever_the_environment_says(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    console = Console(file=io.StringIO())
    console.rule("a title")
    console.print(Panel("words"))
    assert 10 <= console.width <= 2000
    assert len(console.file.getvalue()) < 10_000
