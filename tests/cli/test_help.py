"""The page of commands, the group of the lab, and metrics without a command of their own."""

from __future__ import annotations

import pytest

from command_line import commands, invoke, run, spelled
from poolscope.cli import COMMANDS, rows_in
from poolscope.cli.application import OPTION_GROUPS, OWN, as_typed
from poolscope.errors import InputError


def test_the_first_page_shows_main_commands_first_and_research_as_one_line():
    page = invoke("--help").output
    shown = [line.split()[0] for line in page.splitlines() if line.startswith("  ")]
    assert shown[:3] == ["audit", "fix", "compare"]
    assert not {row.name for row in rows_in("lab")} & set(shown)
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("row", [row for row in COMMANDS if row.module], ids=lambda row: row.name)
def test_every_command_explains_itself(row):
    assert f"poolscope {row.name}" in " ".join(run(row.name, "--help").split())


@pytest.mark.parametrize("row", rows_in("lab"), ids=lambda row: row.name)
def test_commands_of_the_lab_are_a_group(row):
    assert f"poolscope lab {row.name}" in " ".join(run("lab", row.name, "--help").split())
    assert row.name in run("lab", "--help")
    with pytest.raises(InputError, match=row.name):
        invoke(row.name, "--help")


def test_unknown_commands_are_refused():
    with pytest.raises(InputError, match="no-such-command"):
        invoke("no-such-command")
    with pytest.raises(InputError, match=r"Did you mean 'audit'\?"):
        invoke("audt")


@pytest.mark.parametrize("name", commands())
def test_options_stand_in_groups_and_break_nowhere_inside_a_word(name):
    page = run(*spelled(name), "--help", width=80)
    assert "<" not in page
    assert max(map(len, page.splitlines())) <= 80
    headings = [line for line in page.splitlines() if line in (OWN, *OPTION_GROUPS)]
    assert headings == [group for group in (OWN, *OPTION_GROUPS) if group in headings]
    assert not (len(headings) == 1 and page.count("--") > 12)
    assert all(
        line.startswith(("  -", " " * 28))
        for line in page.partition(f"\n{headings[0]}\n")[2].splitlines()
        if line and line not in headings
    )


@pytest.mark.parametrize("name", commands())
def test_an_option_that_must_be_there_says_so(name):
    page = " ".join(run(*spelled(name), "--help", width=80).split())
    required = [part for part in commands()[name].params if part.param_type_name == "option" and part.required]
    usage = page.partition("[OPTIONS]")[0]
    assert all(max(part.opts, key=len) in usage for part in required)
    assert page.count("(required)") == len(required)
    assert required or name not in ("chunk", "encode")


@pytest.mark.parametrize("name", commands())
def test_every_command_has_quiet_verbose_and_json(name):
    command = commands()[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--quiet", "-q", "--verbose", "-v"} <= options
    assert ("--json" in options) == (name != "mcp")  # its standard output is the protocol's, which is JSON already


@pytest.mark.parametrize(
    ("name", "message", "typed"),
    [
        ("cost", "device: received 'cuda'.", "--device: received 'cuda'."),
        ("cost", "max_length: received 0.", "--max-length: received 0."),
        ("cost", "texts: received none.", "TEXTS: received none."),
        ("encode", "Pass --overwrite (overwrite=True).", "Pass --overwrite."),
        ("runtime", "model: received 3.", "--model: received 3."),  # the spelling of an option, not a parameter's name
        ("cost", "tau: received 3 (k=2).", "tau: received 3 (k=2)."),
    ],
)
def test_errors_of_the_library_name_what_was_typed(name, message, typed):
    assert as_typed(message, commands()[name].params) == typed


def test_an_error_of_the_library_comes_out_of_a_command_in_its_words():
    with pytest.raises(InputError, match=r"^--device: received 'warp'"):
        invoke("cost", "builtin:minilm", "--device", "warp")
