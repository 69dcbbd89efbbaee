"""What commands write is checked before they work: every option of every command that names an output."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from command_line import commands, spelled
from poolscope.cli import app, arguments
from poolscope.errors import OutputError, PoolscopeError
from poolscope.show.screen import Screen

RUNNER = CliRunner()
COMMANDS = commands()
OUTPUTS = ("json", "parquet", "figure", "output", "state")
ENDINGS = {"json": "x.json", "parquet": "x.parquet", "figure": "x.html", "state": "x.npz"}
# What a command cannot do without, beside a model that is not there: it must not come so far.
NEEDED = {"compare": ["a", "b"], "pair": ["a", "b"], "correlate": ["a"], "reproduce": ["socm-paper"]}
NAMES = {("pair", "output"): "x.html", ("tune", "output"): "x.safetensors", ("chunk", "output"): "x.jsonl"}
# `encode` recognises a finished store in a place that may only be read, so the store itself says what cannot be.
UNCHECKED = {("encode", "output")}
CASES = [
    (name, parameter.name)
    for name, command in COMMANDS.items()
    for parameter in command.params
    # What is given several times names no output: the figures of a paper.
    if parameter.name in OUTPUTS and not parameter.multiple and (name, parameter.name) not in UNCHECKED
]


def refusal(command: str, option: str, target: object) -> str:
    given = NEEDED.get(command, ["no/such/model"])
    result = RUNNER.invoke(app, [*spelled(command), *given, f"--{option}", str(target)])
    assert isinstance(result.exception, OutputError), result.output
    return str(result.exception)


@pytest.mark.parametrize(("command", "option"), CASES)
def test_a_name_that_cannot_be_written_is_refused_before_the_work(command, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a text")
    inside = tmp_path / "texts.txt" / NAMES.get((command, option), ENDINGS.get(option, "folder"))
    assert "texts.txt is a file" in refusal(command, option, inside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt"]


@pytest.mark.parametrize("option", ["json", "parquet", "state"])
def test_a_folder_is_no_file(option, tmp_path):
    assert f"{tmp_path}, which is" in refusal("tokens", option, tmp_path)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which nobody can write")
def test_a_place_where_nobody_can_write_is_refused():
    assert "/proc/x/y.json: " in refusal("tokens", "json", "/proc/x/y.json")
    assert "/proc/x/y: " in refusal("audit", "output", "/proc/x/y")


def test_json_to_the_screen_needs_no_file():
    _, json = get_args(arguments.Json)
    assert json.callback("-") == "-"
    assert json.callback(None) is None


def test_what_fails_while_writing_is_said_after_the_result_is_shown(tmp_path, monkeypatch):
    tables = []
    for name, column in (("metrics", "socm"), ("scores", "mteb")):
        tables.append(tmp_path / f"{name}.csv")
        tables[-1].write_text("\n".join([f"model,{column}", *(f"m{k},{k * k}" for k in range(7))]))

    def full(*arguments, **choices):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    target = tmp_path / "study.json"
    result = RUNNER.invoke(app, ["lab", "correlate", str(tables[0]), "--scores", str(tables[1]), "--json", str(target)])
    assert isinstance(result.exception, PoolscopeError)
    assert re.search(r"study\.json: .*\(No space", str(result.exception))
    assert "against mteb" in result.stdout
    assert not target.exists()


def test_names_between_colons_or_in_brackets_are_printed_as_they_are(capsys):
    Screen().print("asyncio.locks:Lock: [bold] one")
    assert capsys.readouterr().out == "asyncio.locks:Lock: [bold] one\n"
