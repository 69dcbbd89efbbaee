"""The README and the pages are programs: their blocks run, and what they print is what stands below them."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
BLOCK = re.compile(r"^```(python|console|sh)\n(.*?)^```\n(?:\n```\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
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
    """Every Python block stands alone. Commands run from top to bottom in one folder, on files of these names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POOLSCOPE_CACHE", str(tmp_path / "cache"))
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if any(kind == "sh" for kind, _, _ in blocks):
        write_files()
    for kind, code, output in blocks:
        if kind == "console":
            run_commands(code)
        elif kind == "sh":
            run_shell(code)
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
            if output:
                assert printed.getvalue().strip() == output.strip()


STAND_INS = {
    "MODEL": "builtin:wordllama",
    "OLD": "builtin:wordllama",
    "NEW": "builtin:wordllama",
    "your-org/your-model": "builtin:wordllama",
    "TEXTS": "texts.jsonl",
    "FILE": "queries.jsonl",
}
SMALLER = {
    "calibrate": ["--texts", "40", "--queries-count", "20", "--runs", "1"]
}  # the last of two equal options holds


def write_files():
    """The files that commands of the pages name: 60 docstrings, queries for them, and their vectors."""
    texts = poolscope.read_texts("builtin:docstrings", limit=60)
    rows = [{"id": str(k), "text": text} for k, text in enumerate(texts)]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shutil.copy("texts.jsonl", "chunks.jsonl")
    Path("texts.txt").write_text("".join(" ".join(text.split()) + "\n" for text in texts), encoding="utf-8")
    asked = [{"query": " ".join(text.split()[:6]), "relevant": str(k)} for k, text in enumerate(texts)]
    Path("queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    Path("qrels.txt").write_text("".join(f"{k} 0 {k} 1\n" for k in range(60)), encoding="utf-8")
    ranked = [f"{k} Q0 {(k + rank) % 60} {rank + 1} {20 - rank} bm25\n" for k in range(60) for rank in range(20)]
    Path("bm25.run").write_text("".join(ranked), encoding="utf-8")
    vectors = poolscope.pool(poolscope.encode("builtin:wordllama", texts), "mean")
    np.save("vectors.npy", vectors)
    table = pa.table({"id": [row["id"] for row in rows], "text": list(texts), "vector": list(vectors)})
    for name in ("vectors", "old", "new"):
        pq.write_table(table, f"{name}.parquet")


def run_shell(block):
    """Every line of a block of `sh` runs, on a small model and small files; what installs is looked up instead."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] in ("pip", "uvx", "make", "python"):
            assert is_known(words), line
            continue
        program, *arguments = (STAND_INS.get(word, word) for word in words)
        assert program == "poolscope", line
        if not any(Path(argument).exists() for argument in arguments):
            arguments += smaller(arguments[0])
        arguments += SMALLER.get(arguments[0], [])
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, catch_exceptions=False)
        assert result.exit_code == 0 or ("--fail-on" in arguments and result.exit_code == 1), f"{line}\n{result.output}"


def smaller(command):
    """`--limit 40` for a command that has it: without files of their own, commands take the embedded texts."""
    root = typer.main.get_command(app)
    options = root.get_command(click.Context(root), command).get_params(click.Context(root))
    return ["--limit", "40"] if any("--limit" in option.opts for option in options) else []


def is_known(words):
    """Whether the extras, the target or the script that a line names are there."""
    if words[0] == "make":
        return re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    if words[0] == "python":
        return (ROOT / words[1]).is_file()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {name for word in words for part in re.findall(r"poolscope\[(.*?)\]", word) for name in part.split(",")}
    return named <= set(extras)


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
    """Blocks of `text` name servers, hub models and clusters: their commands and options must be there all the same."""
    root = typer.main.get_command(app)
    context = click.Context(root)
    seen = 0
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        shell = (block.replace("\\\n", " ") for kind, block in blocks if kind in ("", "sh", "text"))
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


@pytest.fixture(scope="module")
def browser():
    """One browser for all pages."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the site is looked at with playwright")
    if BROWSER is None:
        pytest.skip("the site is looked at in Chromium")
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


def test_the_search_works_in_a_page_opened_from_disk(site, browser):
    complaints, asked = [], []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input[name=query]").click()
    page.locator("input[name=query]").press_sequentially("jackknife")
    page.locator(".md-search-result__item").first.wait_for(state="attached")
    titles = page.locator(".md-search-result__item h1").all_inner_texts()
    page.close()
    assert any("Token types" in title for title in titles)
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []


# What axe says of a page with everything open. What stands around the content is the same on every page of a section,
# and pages of the reference have one kind of code: they are looked at without its colours.
AXE = """async ([around, reference]) => {
  document.querySelectorAll("details").forEach((each) => (each.open = true));
  const rules = reference ? { "color-contrast": { enabled: false } } : {};
  const found = await axe.run(around ? document : ".md-content", { resultTypes: ["violations"], rules });
  const said = found.violations.map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`);
  const wide = document.documentElement.scrollWidth > innerWidth;
  return wide ? [...said, `${document.documentElement.scrollWidth} pixels wide`] : said;
}"""


# Widths and schemes. Some pages are looked at in all, with their frame; others in both widths and schemes, and those of
# the reference narrow.
SIGHTS = ((390, "light"), (1440, "dark"), (390, "dark"), (1440, "light"))
WHOLE = ("index.html", "cost.html", "notebooks/rag_engineer.html")


def test_every_page_is_accessible_narrow_and_wide_in_both_schemes(site, browser):
    axe = pytest.importorskip("axe_playwright_python")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    page, broken = browser.new_page(), {}
    for file in sorted(site.rglob("*.html")):
        name, reference = str(file.relative_to(site)), file.parent.name == "reference"
        page.goto(file.as_uri())
        page.evaluate(script)
        for width, scheme in SIGHTS[: 4 if name in WHOLE else 1 if reference else 2]:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": 900})
            if said := page.evaluate(AXE, [name in WHOLE, reference]):
                broken[name, width, scheme] = said
    page.close()
    assert broken == {}
