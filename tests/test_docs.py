"""The README and the pages are programs: their blocks run, and what they print is what stands below them."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

import poolscope
from poolscope.cli import app
from poolscope.encoders.door import ENCODERS
from poolscope.metrics.base import METRICS
from poolscope.show.charts import PICTURES
from poolscope.surface import homes

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n(?:\n```\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BROWSER = shutil.which("chromium")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(autouse=True)
def _tables_as_they_were():
    """What a page registers is gone after it: no other test may meet it."""
    kept = [(table, dict(table)) for table in (ENCODERS, METRICS)]
    yield
    for table, rows in kept:
        table.clear()
        table.update(rows)


@pytest.mark.model
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    """Blocks of one page share their names and their folder, and run from top to bottom."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for kind, code, output in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "console":
            run_commands(code)
        elif code.startswith(">>>"):
            names = run_doctest(code, names, page)
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec"), names)
            if output:
                assert printed.getvalue().strip() == output.strip()


def run_doctest(code, names, page):
    example = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), 0)
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append, clear_globs=False)
    assert failed == 0, "".join(report)
    return example.globs


def run_commands(block):
    """Lines `$ poolscope …` (continued by a backslash) are run; lines below one, if any, are what it prints, `...` for
    anything."""
    for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command, comments=True)
        assert program == "poolscope", f"only poolscope is run: {command}"
        if BROWSER is None and any(argument.endswith(PICTURES) for argument in arguments):
            pytest.skip("pictures are drawn by Chromium")
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"}, catch_exceptions=False)
        assert result.exit_code == 0, f"{command}\n{result.output}"
        if expected.strip():
            matches = doctest.OutputChecker().check_output(expected, result.output, FLAGS)
            assert matches, f"{command}\nexpected:\n{expected}\nprinted:\n{result.output}"


def test_commands_that_are_not_run_are_ones_that_the_parser_knows():
    """Blocks of `sh` name models and files of the reader: their commands and options must be there all the same."""
    root = typer.main.get_command(app)
    context = click.Context(root)
    seen = 0
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        shell = (block.replace("\\\n", " ") for kind, block in blocks if kind in ("", "sh"))
        lines = (line for block in shell for line in block.splitlines() if line.startswith("poolscope "))
        for line in lines:
            for words in (shlex.split(part, comments=True) for part in line.split("&&")):
                command, rest = root.get_command(context, words[1]), words[2:]
                if words[1] == "lab":
                    command, rest = command.get_command(context, words[2]), words[3:]
                if words[1].startswith("-") or (command is None and page.stem == "extending"):  # a metric of its own
                    continue
                assert command is not None, f"{page.name}: {line}"
                known = {name for part in command.get_params(context) for name in (*part.opts, *part.secondary_opts)}
                options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
                assert options <= known, f"{page.name}: {line}: {options - known}"
                seen += 1
    assert seen > 40


def test_links_lead_somewhere():
    """To a file, or to a page that is made with the site (the reference, a notebook) and checked there."""
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            made = target.startswith(("reference/", "notebooks/"))
            assert made or (page.parent / target).exists(), f"{page.name}: {target}"


# -- the site -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site: what `make docs` does, with warnings as errors (a page that `nav` lacks, a broken link, …)."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ROOT / "mkdocs.yml"]
    run = subprocess.run(
        [*command, "--site-dir", folder],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert run.returncode == 0, run.stderr
    return folder


def test_every_page_is_in_the_site(site):
    for page in PAGES[1:]:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page.name


def test_the_site_needs_no_network(site):
    """No page loads anything from elsewhere: scripts, styles, fonts and images are files of the site."""
    loads = re.compile(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"(?:https?:)?//|<link[^>]*\bhref=\"(?:https?:)?//")
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text(encoding="utf-8")), page.name
    assert (site / "search" / "search_index.js").exists()  # a script: pages opened from disk cannot fetch


def test_every_public_name_is_in_the_reference(site):
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    for name, home in homes(poolscope.__file__).items():
        found = inspect.unwrap(getattr(poolscope, name))
        module = getattr(found, "__module__", None) or home
        assert f'id="{module}.{name}"' in pages, f"{module}.{name} is on no page of docs/reference"
        assert f"<code>{name}</code></a>" in pages, f"{name} is not in the table of docs/reference/index.md"


def test_doctests_are_shown_as_code(site):
    page = (site / "reference" / "numbers.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in page
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page


@pytest.mark.skipif(BROWSER is None, reason="the site is looked at in Chromium")
def test_the_search_works_in_a_page_opened_from_disk(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="the site is looked at with playwright")
    complaints, asked = [], []
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator("input[name=query]").click()
        page.locator("input[name=query]").press_sequentially("jackknife")
        page.locator(".md-search-result__item").first.wait_for(state="attached")
        titles = page.locator(".md-search-result__item h1").all_inner_texts()
        browser.close()
    assert any("Norm and variance" in title for title in titles)
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
