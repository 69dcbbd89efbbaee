"""The page of commands, old names, and metrics without a command of their own."""

from __future__ import annotations

import pytest

from command_line import commands, invoke, run
from poolscope.cli import COMMANDS, EARLIER, HIDDEN, RESEARCH
from poolscope.cli.application import GROUPS, OWN
from poolscope.errors import InputError


def test_the_first_page_shows_main_commands_first_and_research_as_one_line():
    page = invoke("--help").output
    shown = [line.split()[0] for line in page.splitlines() if line.startswith("  ")]
    assert shown[:3] == ["audit", "compare", "tune"]
    assert not {row.name for row in RESEARCH} & set(shown)
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("row", [row for row in COMMANDS if row.name != "research"], ids=lambda row: row.name)
def test_every_command_explains_itself(row):
    assert f"poolscope {row.name}" in " ".join(run(row.name, "--help").split())


@pytest.mark.parametrize("row", [row for row in RESEARCH if row.name in EARLIER], ids=lambda row: row.name)
def test_research_is_a_group_and_its_commands_go_by_their_old_names_too(row):
    grouped, alone = (run(*where, row.name, "--help") for where in (["research"], []))
    pages = (page.splitlines() for page in (grouped, alone))
    options = [[line for line in page if line.startswith(" ") and "--" in line] for page in pages]
    assert options[0] == options[1] != []  # the line of usage names the group
    assert row.name in run("research", "--help")
    assert next(other for other in COMMANDS if other.name == row.name).panel == HIDDEN


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [("socm", "--sample", "--pairs"), ("encode", "--sample", "--limit"), ("audit", "--sample=5", "--limit")],
)
def test_an_earlier_name_of_an_option_says_the_present_one(command, old, new):
    with pytest.raises(InputError, match=f"is called {new} now"):
        run(command, "model", "texts", old, "5", "-o", "x")


def test_unknown_commands_are_refused():
    assert invoke("no-such-command").exit_code == 2
    near = invoke("audt")
    assert near.exit_code == 2
    assert "Did you mean 'audit'?" in near.output


@pytest.mark.parametrize("name", commands())
def test_options_stand_in_groups_and_break_nowhere_inside_a_word(name):
    page = run(name, "--help", width=80)
    assert "<" not in page
    assert max(map(len, page.splitlines())) <= 80
    headings = [line for line in page.splitlines() if line in (OWN, *GROUPS)]
    assert headings == [group for group in (OWN, *GROUPS) if group in headings]
    assert not (len(headings) == 1 and page.count("--") > 12)
    assert all(
        line.startswith(("  -", " " * 28))
        for line in page.partition(f"\n{headings[0]}\n")[2].splitlines()
        if line and line not in headings
    )


@pytest.mark.parametrize("name", commands())
def test_an_option_that_must_be_there_says_so(name):
    page = " ".join(run(name, "--help", width=80).split())
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
