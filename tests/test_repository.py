"""What stands around the package: workflows, templates, hooks and documents name what exists; releases are checked."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from poolscope.cli import COMMANDS

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github").glob("*TEMPLATE*/*.yml"))
FORMS = [path for path in TEMPLATES if path.name != "config.yml"]
DOCUMENTS = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
]
HOOKS = ROOT / ".pre-commit-config.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

FILE = re.compile(r"(?<![\w./*$@-])(?:\./)?(?:\.?[\w-]+/)*[\w.-]+\.(?:py|toml|txt|ya?ml|md|cff|c|json|lock)\b(?!/)")
MADE = re.compile(r"--(?:notes|server|output-file) ([\w.]+)")  # what a workflow writes before it names it again


def tool(name):
    """A script of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check_release, check_commit_message = tool("check_release"), tool("check_commit_message")


def read(path):
    return path.read_text(encoding="utf-8")


def workflow(path):
    """A parsed workflow; YAML 1.1 reads the key `on` as true."""
    content = yaml.safe_load(read(path))
    content["on"] = content.pop(True)
    return content


def steps(path):
    return [step for job in workflow(path)["jobs"].values() for step in job.get("steps", [])]


def code(path):
    """What a document shows as code, inline or in blocks."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", read(path), re.DOTALL))


# -- schemas ------------------------------------------------------------------------------------------------


def validate(schema, *files):
    pytest.importorskip("check_jsonschema", reason="workflows and templates are checked by check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, "--default-filetype", "yaml"]
    return subprocess.run([*command, *map(str, files)], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-actions", [ROOT / "action.yml"]),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"]),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_of_the_repository_follow_the_published_schemas(schema, files):
    assert files
    run = validate(schema, *files)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_workflow_with_a_misspelt_key_is_refused(tmp_path):
    broken = tmp_path / "tests.yml"
    broken.write_text(read(ROOT / ".github" / "workflows" / "tests.yml").replace("runs-on:", "run-on:", 1), "utf-8")
    assert validate("vendor.github-workflows", broken).returncode == 1


def recipes():
    """The workflow and the hook that docs/runtime.md prints."""
    return re.findall(r"```yaml\n(.*?)```", read(ROOT / "docs" / "runtime.md"), re.DOTALL)


def test_the_workflow_that_the_docs_print_is_valid(tmp_path):
    printed = tmp_path / "embeddings.yml"
    printed.write_text(recipes()[0], "utf-8")
    checked = validate("vendor.github-workflows", printed)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("copies", "code"), [(1, 0), (12, 1)])
def test_the_hook_that_the_docs_print_runs_and_stops_a_commit(tmp_path, monkeypatch, copies, code):
    pytest.importorskip("pre_commit", reason="the hook is run by pre-commit")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path / "cache"))
    hook = recipes()[1].replace("sentence-transformers/all-MiniLM-L6-v2", "builtin:wordllama --no-encode")
    hook = hook.replace("entry: poolscope", f"entry: {sys.executable} -m poolscope")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / ".pre-commit-config.yaml").write_text(hook, "utf-8")
    words = ["river", "bread", "stone", "lamp", "train", "music", "harbour", "winter", "letter", "garden", "engine"]
    texts = [f"the {a} beside the {b}" for a in words for b in words][:: 2 * copies] * copies
    (folder / "chunks.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts), "utf-8")
    asked = [f'{{"query": "{text}", "relevant": "{k}"}}\n' for k, text in enumerate(texts[: len(texts) // copies])]
    (folder / "queries.jsonl").write_text("".join(asked), "utf-8")
    for arguments in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert ("Passed" if code == 0 else "Failed") in ran.stdout


def test_hooks_are_valid(tmp_path, monkeypatch):
    pytest.importorskip("pre_commit", reason="the hooks are checked by pre-commit")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path))
    for kind, file in (("validate-config", HOOKS), ("validate-manifest", ROOT / ".pre-commit-hooks.yaml")):
        run = subprocess.run([sys.executable, "-m", "pre_commit", kind, str(file)], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


# -- what is named exists -----------------------------------------------------------------------------------


def named_targets():
    scripts = {path: "\n".join(step.get("run", "") for step in steps(path)) for path in WORKFLOWS}
    scripts |= {path: code(path) for path in [*DOCUMENTS, ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md"]}
    return {
        (path.name, target) for path, text in scripts.items() for target in re.findall(r"\bmake ([a-z][\w-]*)", text)
    }


@pytest.mark.parametrize(("where", "target"), sorted(named_targets()))
def test_every_target_that_is_named_exists(where, target):
    targets = re.findall(r"^([a-z][\w-]*):", read(ROOT / "Makefile"), re.MULTILINE)
    assert target in targets, f"{where} names `make {target}`; the Makefile has {targets}"


def test_every_test_that_the_makefile_chooses_exists():
    command = ["make", "--dry-run", "--always-make", "test-lowest", "test-models", "soak"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"(?<![\w/])tests/[\w/]+(?:\.py)?", planned)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "path",
    [*WORKFLOWS, *TEMPLATES, HOOKS, ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md", ROOT / "CONTRIBUTING.md"],
    ids=str,
)
def test_every_file_that_is_named_exists(path):
    text = code(path) if path.name == "CONTRIBUTING.md" else read(path)
    named = set(FILE.findall(text)) - set(MADE.findall(text))
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_of_a_document_leads_somewhere(path):
    links = re.findall(r"\]\(([^)#\s]+)", read(path))
    assert links or path.name == "CHANGELOG.md"
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []


def test_every_folder_that_contributors_are_sent_to_exists():
    folders = re.findall(r"`([a-z/]+/)`", read(ROOT / "CONTRIBUTING.md"))
    package = ROOT / "src" / "poolscope"
    assert [
        name for name in folders if name != "site/" and not any((at / name).is_dir() for at in (ROOT, package))
    ] == []


def test_the_source_distribution_takes_only_what_exists():
    listed = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in listed if not (ROOT / name).exists()] == []
    assert {"CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "tools", ".github"} <= set(listed)


# -- workflows ----------------------------------------------------------------------------------------------


def test_actions_are_pinned_by_commit_and_each_by_one():
    used = [step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)] == []
    assert len({name.partition("@")[0] for name in used}) == len(set(used))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_start_with_the_right_to_read_and_run_no_text_of_others(path):
    assert workflow(path)["permissions"] == {"contents": "read"}
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_only_publishing_may_identify_itself():
    may = [
        (path.name, name)
        for path in WORKFLOWS
        for name, job in workflow(path)["jobs"].items()
        if "id-token" in job.get("permissions", {})
    ]
    assert may == [("release.yml", "publish")]


def test_declared_pythons_are_tested_on_every_system():
    matrix = workflow(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["systems"]["strategy"]["matrix"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert {*declared, PROJECT["project"]["requires-python"].removeprefix(">=")} <= set(matrix["python"])
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}


def test_a_release_is_checked_before_it_is_built():
    jobs = workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert any("tools/check_release.py --tag" in step.get("run", "") for step in jobs["check"]["steps"])
    assert jobs["build"]["needs"] == "check"
    assert "build" in jobs["publish"]["needs"]


# -- addresses ----------------------------------------------------------------------------------------------

OWN = re.compile(
    r"(?:github\.com|gitlab\.com|codeberg\.org|huggingface\.co)/[\w.-]+/poolscope\b"
    r"|\bpoolscope\.[\w.]*(?:readthedocs\.io|github\.io|org|dev|com|net)\b|\.github\.io/poolscope\b"
)
ADDRESS = re.compile(r"https?://([\w.-]+)|[\w.+-]+@([\w-]+\.[\w.-]+)")


def texts_of_the_repository():
    names = ("*.md", "*.toml", "*.cff", "*.yml", "*.yaml", "*.txt")
    folders = (
        ROOT,
        ROOT / "docs",
        ROOT / ".github",
        ROOT / ".github" / "workflows",
        ROOT / ".github" / "ISSUE_TEMPLATE",
    )
    return [path for folder in folders for name in names for path in folder.glob(name)]


def test_addresses_of_the_project_stand_in_one_place():
    with_own = {path.name for path in texts_of_the_repository() if OWN.search(read(path))}
    assert with_own <= {"pyproject.toml", "CITATION.cff"}


def test_no_address_is_a_placeholder():
    hosts = {
        (path.name, host)
        for path in texts_of_the_repository()
        for match in ADDRESS.findall(read(path))
        for host in match
        if host and check_release.RESERVED.search(host)
    }
    assert hosts == set()


# -- a release ----------------------------------------------------------------------------------------------


@pytest.fixture
def ready(tmp_path):
    """A copy of what the check reads, filled in as for a release."""
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", "src/poolscope/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = check_release.package_version(tmp_path)
    site = "https://poolscope.zz"  # nobody's: no country has this code
    urls = "\n".join(f'{name} = "{site}/{name.lower()}"' for name in check_release.URLS)
    edit(tmp_path / "pyproject.toml", r"\[project\.urls\]\n", f"[project.urls]\n{urls}\n")
    edit(tmp_path / "pyproject.toml", r"authors = \[\{ ", 'authors = [{ email = "team@poolscope.zz", ')
    changes = f"## [Unreleased]\n\n## [{version}] - 2026-12-01\n\n### Added\n\n- Everything.\n"
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changes}", "utf-8")
    with (tmp_path / "CITATION.cff").open("a", encoding="utf-8") as file:
        file.write(f'date-released: "2026-12-01"\nrepository-code: "{site}/repository"\n')
    return tmp_path


def edit(path, pattern, replacement):
    text, count = re.subn(pattern, replacement, read(path))
    assert count == 1
    path.write_text(text, "utf-8")


def test_a_release_is_refused_while_addresses_are_unknown(capsys):
    assert check_release.main([]) == 1
    said = capsys.readouterr().err
    assert all(name in said for name in (*check_release.URLS, "mail address", "date-released"))


def test_a_release_that_is_ready_goes_through(ready):
    assert check_release.problems(ready, f"v{check_release.package_version(ready)}") == []


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "said"),
    [
        ("pyproject.toml", r"Issues = .*\n", "", "Issues"),
        (
            "pyproject.toml",
            r'(Documentation = "https)://poolscope.zz',
            r"\1://docs.example.com",
            "Documentation",
        ),
        ("pyproject.toml", r'(Security = "http)s', r"\1", "Security"),
        ("pyproject.toml", r"team@poolscope.zz", "team@project.invalid", "mail"),
        ("CHANGELOG.md", r" - 2026-12-01", " - not released", "date"),
        ("CHANGELOG.md", r"## \[Unreleased\]\n", "## [Unreleased]\n\n- One more.\n", "Unreleased"),
        ("CHANGELOG.md", r"## \[Unreleased\]\n", "", "Unreleased"),
        ("CITATION.cff", r"(?m)^version: .*", "version: 9.9.9", "version"),
        ("CITATION.cff", r'date-released: "2026-12-01"', 'date-released: "2026-12-02"', "date-released"),
        ("CITATION.cff", r"poolscope.zz/repository", "poolscope.zz/elsewhere", "repository-code"),
        ("src/poolscope/__init__.py", r'__version__ = "[^"]+"', '__version__ = "9.9.9"', "9.9.9"),
    ],
)
def test_a_release_is_refused_for_each_thing_that_is_wrong(ready, name, pattern, replacement, said):
    edit(ready / name, pattern, replacement)
    assert said in check_release.problems(ready)[0]


def test_a_tag_of_another_version_is_refused(ready):
    assert len(check_release.problems(ready, "v9.9.9")) == 1


def test_notes_of_a_release_are_its_section_of_the_changelog(ready, monkeypatch):
    monkeypatch.setattr(check_release, "ROOT", ready)
    assert check_release.main(["--notes", str(ready / "notes.md")]) == 0
    assert read(ready / "notes.md") == "### Added\n\n- Everything.\n"


def test_what_is_known_once_is_filled_in(ready, monkeypatch):
    (ready / "CITATION.cff").write_text(read(ROOT / "CITATION.cff"), "utf-8")
    assert len(check_release.problems(ready)) == 2
    monkeypatch.setattr(check_release, "ROOT", ready)
    for _ in range(2):  # the second time there is nothing to do
        assert check_release.main(["--fill"]) == 0
    assert yaml.safe_load(read(ready / "CITATION.cff"))["repository-code"] == "https://poolscope.zz/repository"


def test_the_entry_of_the_registry_of_mcp_servers(ready, monkeypatch):
    """The rules of its schema of December 2025 that hold for such an entry."""
    monkeypatch.setattr(check_release, "ROOT", ready)
    edit(ready / "pyproject.toml", "https://poolscope.zz/repository", "https://github.com/Us/poolscope")
    assert check_release.main(["--fill", "--server", str(ready / "server.json")]) == 0
    entry = json.loads(read(ready / "server.json"))
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert entry["name"] == "io.github.Us/poolscope"
    assert 1 <= len(entry["description"]) <= 100
    assert entry["repository"] == {"url": "https://github.com/Us/poolscope", "source": "github"}
    (package,) = entry["packages"]
    assert {"registryType", "identifier", "transport"} <= package.keys()
    assert package["version"] == entry["version"] == check_release.package_version(ROOT)
    assert package["identifier"] == PROJECT["project"]["name"]
    (argument,) = package["packageArguments"]
    assert argument["value"] in {row.name for row in COMMANDS}
    wanted = Requirement(package["runtimeArguments"][0]["value"])
    assert wanted.extras <= set(PROJECT["project"]["optional-dependencies"])
    pytest.importorskip("hatchling")
    mark_of_server = tool("../hatch_build").mark_of_server
    assert mark_of_server(ROOT, None) == ""
    assert mark_of_server(ROOT, entry["repository"]["url"]) == f"\n<!-- mcp-name: {entry['name']} -->\n"


def test_the_changelog_has_the_usual_form():
    sections = check_release.changelog(ROOT)
    assert next(iter(sections)) == "Unreleased"
    assert check_release.package_version(ROOT) in sections
    kinds = set(re.findall(r"^### (.+)$", read(ROOT / "CHANGELOG.md"), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


# -- commits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Length: floors of the slope\n\nChance alone gives more than 0.\n", None),
        ("x" * 72, None),
        ("# a comment of git\nx" + "y" * 71 + "\n# and another\n", None),
        ("x" * 73, "73 characters"),
        ("Subject\nbody at once", "second line"),
        ("\n\nbody", "empty"),
        ("# only a comment", "empty"),
    ],
)
def test_subjects_of_commits_are_short(message, said, tmp_path):
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, "utf-8")
    script = ROOT / "tools" / "check_commit_message.py"
    run = subprocess.run([sys.executable, str(script), str(file)], capture_output=True, text=True)
    assert (run.returncode, said is None or said in run.stderr) == (0 if said is None else 1, True)


def test_every_promise_names_a_test():
    promised = read(ROOT / "SECURITY.md").partition("\n## What is written")[2].partition("\n## How it is tested")[0]
    rows = re.findall(r"^\| \*\*.*?\|$", promised, re.MULTILINE)
    points = re.findall(r"^- .*(?:\n  .*)*", promised, re.MULTILINE)
    assert len(rows) > 5
    assert len(points) > 10
    assert [each[:60] for each in (*rows, *points) if not re.search(r"`(test_\w+|tests/[\w/]+\.py)`", each)] == []


def test_every_promise_names_a_test_that_exists():
    named = set(re.findall(r"`(test_\w+)`", read(ROOT / "SECURITY.md")))
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", read(path), re.MULTILINE)
    }
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", read(ROOT / "SECURITY.md")))
    assert named
    assert named - written == set()
    assert [file for file in files if not (ROOT / file).is_file()] == []
