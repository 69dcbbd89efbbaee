"""Pages of the documentation inside a report: every heading and link of them leads somewhere, nothing is fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from poolscope.auditing.question import QUESTIONS
from poolscope.errors import InputError
from poolscope.report import ReportSection, render_page
from poolscope.report.page import Explanation, explanation_anchor, explanations
from poolscope.verdicts import Verdict

ROOT = Path(__file__).parents[2]
PAGES = [question.page for question in QUESTIONS.values()]


@pytest.fixture(scope="module")
def of_the_audit() -> list[Explanation]:
    return explanations(PAGES)


def test_each_page_comes_once_with_its_title_and_headings_below_those_of_the_report(of_the_audit):
    names = {page.partition("#")[0] for page in PAGES}
    assert {found.anchor for found in of_the_audit} == {explanation_anchor(name) for name in names}
    assert len(of_the_audit) == len(names) < len(PAGES)
    hubs = next(found for found in of_the_audit if found.anchor == "Explained-hubs")
    assert hubs.title == "Hubs: which texts come back for everything, which never"
    assert hubs.title not in hubs.body
    assert '<h3 id="Explained-hubs-how-to-read-it">How to read it</h3>' in hubs.body
    assert all(found.body.count("<h1") + found.body.count("<h2") == 0 for found in of_the_audit)


def test_links_lead_into_the_report_and_code_and_pictures_stay_behind(of_the_audit):
    bodies = "".join(found.body for found in of_the_audit)
    anchors = {found.anchor for found in of_the_audit} | set(re.findall(r'<h\d id="([^"]+)"', bodies))
    inner = re.findall(r'href="#([^"]+)"', bodies)
    assert len(inner) > 5
    assert set(inner) <= anchors
    assert set(re.findall(r'href="(?!#)(.{8})', bodies)) <= {"https://"}
    assert "<img" not in bodies
    assert "<pre" not in bodies
    assert "<table>" in bodies


def test_an_explanation_begins_with_the_numbers_of_the_reader():
    verdict = Verdict("watch", "Every third text of <yours> is a hub.")
    page = render_page("t", "s", [ReportSection("a", "Hubs", "q", verdict, explained_by="hubs.md#limits")])
    prose = page.partition('id="Explained-hubs"')[2]
    assert prose.index("Every third text of &lt;yours&gt; is a hub.") < prose.index("<h3")


def test_every_link_of_the_pages_of_the_audit_survives(of_the_audit):
    for found in of_the_audit:
        name = found.anchor.removeprefix("Explained-")
        source = re.sub(r"^```.*?^```", "", (ROOT / "docs" / f"{name}.md").read_text("utf-8"), flags=re.S | re.M)
        assert found.body.count("<a ") == len(re.findall(r"(?<!!)\[[^]]*\]\([^)]+\)", source)), name


def test_a_link_to_a_page_that_does_not_come_along_is_text():
    (alone,) = explanations(["hubs.md"])
    assert "answer 9 of the audit." in alone.body
    both = explanations(["hubs.md", "audit.md"])
    assert 'answer 9 of the <a href="#Explained-audit" rel="noreferrer">audit</a>.' in both[0].body


def test_what_the_documentation_does_not_have_is_refused():
    with pytest.raises(InputError, match=r"explained_by: received 'nothing\.md'; the documentation has no such page"):
        render_page("t", "s", [ReportSection("a", "t", "q", explained_by="nothing.md")])
    with pytest.raises(InputError, match=r"received 'hubs\.md#nothing'; that page of the documentation has no such"):
        render_page("t", "s", [ReportSection("a", "t", "q", explained_by="hubs.md#nothing")])


def test_a_page_links_to_its_explanation_and_to_yours():
    own = ReportSection("a", "t", "q", link="https://example.org/a")
    ours = ReportSection("b", "t", "q", explained_by="hubs.md#limits")
    page = render_page("t", "s", [own, ours])
    assert page.count('<details class="explanation" id="Explained-hubs">') == 1
    assert '<a href="#Explained-hubs-limits"' in page
    assert '<a href="https://example.org/a"' in page
    assert 'class="explanation"' not in render_page("t", "s", [own])


def test_an_installed_package_brings_the_pages(tmp_path):
    """A wheel made from the sources, unpacked, explains every question, without a folder docs/ beside it."""
    source, wheels, installed = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    ignored = shutil.ignore_patterns("__pycache__", "_kernel.*")
    for folder in ("src", "docs"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for file in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", wheels]
    environment = {"PATH": "", "POOLSCOPE_NO_KERNEL": "1"}
    subprocess.run(build, cwd=source, env=environment, check=True, capture_output=True, text=True)
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    program = f"""
import poolscope
from poolscope.report.page import explanations
print(poolscope.__file__)
print(sum(len(found.body) for found in explanations({PAGES!r})))
"""
    sizes = []
    for place in (installed, source / "src"):  # both of the copy: the pages of the checkout may change meanwhile
        command = [sys.executable, "-c", program]
        environment = {"PYTHONPATH": str(place)}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        where, size = run.stdout.split()
        assert Path(where).is_relative_to(place)
        sizes.append(int(size))
    assert sizes[0] == sizes[1] > 0
