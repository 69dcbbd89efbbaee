"""What the parser refuses reads like every other error: what was typed, what is allowed, what to type."""

from __future__ import annotations

import shlex
import sys

import pytest

from command_line import invoke
from poolscope import cli
from poolscope.errors import InputError

SAID = {
    "audti": "`poolscope` has no command 'audti'. Did you mean 'audit'? `poolscope --help` lists all.",
    "lab papr": "`poolscope lab` has no command 'papr'. Did you mean 'paper'? `poolscope lab --help` lists all.",
    "--foo": "--foo is no option of `poolscope`. See `poolscope --help`.",
    "audit --qeries x": "--qeries is no option of `poolscope audit`. Did you mean '--queries'? "
    "See `poolscope audit --help`.",
    "audit --limit -1": "--limit -1 is not allowed. Use a whole number of 0 or more.",
    "audit --limit=abc": "--limit abc is not allowed. Use a whole number of 0 or more.",
    "audit --top 0": "--top 0 is not allowed. Use a whole number of 1 or more.",
    "audit --top": "--top needs a value. See `poolscope audit --help`.",
    "audit --matters x": "--matters x is not allowed. Use a number.",
    "audit a b c d": "c d: `poolscope audit` takes no more words here; put quotes around a value with spaces. "
    "See `poolscope audit --help`.",
    "windows --loss-limit 2": "--loss-limit 2 is not allowed. Use a number from 0 to 1.",
    "compare": "AUDIT is missing. For example: poolscope compare before after --fail-on worse",
    "chunk": "--output is missing. For example: poolscope chunk builtin:minilm texts.jsonl -o chunks.jsonl",
}


@pytest.mark.parametrize("line", SAID)
def test_what_cannot_be_parsed_is_named_with_what_is_allowed(line):
    with pytest.raises(InputError) as error:
        invoke(*shlex.split(line))
    assert str(error.value) == SAID[line]


def test_a_wrong_line_ends_with_exit_code_2_and_one_line_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["poolscope", "audit", "--top", "0"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "poolscope: --top 0 is not allowed. Use a whole number of 1 or more.\n"


def test_a_column_of_labels_is_named_by_the_option_of_the_command(tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n', encoding="utf-8")
    for command, option in (("socm", "--group"), ("tokens", "--label-column")):
        with pytest.raises(InputError, match=f"Name one with {option} NAME"):
            invoke(command, "builtin:minilm", tmp_path / "texts.jsonl", option, "nope")


NEAR = {
    "socm builtin:minilm {texts} --scale papr": "received 'papr'; allowed are paper, trace. Did you mean 'paper'?",
    "tokens builtin:minilm {texts} --group-by lable": "--group-by: received 'lable'; allowed: type, label. "
    "Did you mean 'label'?",
    "runtime http://localhost:1/embed --protocol olama": "--protocol: received 'olama'; allowed: openai, ollama, tei. "
    "Did you mean 'ollama'?",
    "calibrate {texts} --world copys": "Did you mean 'copies'?",
    "audit builtin:minilm {texts} --max-length 100000": "--max-length: received 100000",
    "audit builtin:minilm {texts} --prompt-name nope": "--prompt-name: received 'nope'",
    "audit builtin:minlm {texts}": "MODEL: received 'builtin:minlm'",
}


@pytest.mark.parametrize("line", NEAR)
def test_errors_of_the_library_speak_of_options_and_name_what_is_near(line, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "one is here"}\n{"text": "two are there"}\n', encoding="utf-8")
    with pytest.raises(InputError) as error:
        invoke(*shlex.split(line.format(texts=tmp_path / "texts.jsonl")))
    assert NEAR[line] in str(error.value)
