"""The README and the pages are programs: their Python blocks run, and what they print is what stands below them."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.model
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    """Blocks of one page share their names; a block is a program with its output below it, or a doctest."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for code, output in BLOCK.findall(page.read_text(encoding="utf-8")):
        if code.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), 0)
            report: list[str] = []
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            failed, _ = runner.run(example, out=report.append, clear_globs=False)
            assert failed == 0, "".join(report)
            names = example.globs
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec"), names)
            if output:
                assert printed.getvalue().strip() == output.strip()


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
