"""How soon a page is painted when it is opened from disk, beside an empty page in the same run; and how large it is.

    poolscope audit builtin:minilm builtin:docstrings -o audit
    python benchmarks/page.py audit/report.html

Each load has a context of its own, so that nothing is cached, and the two kinds of pages take turns. First paint is
what the browser itself reports (`first-contentful-paint`, from the start of the navigation); drawn is when the whole
page is loaded, folded figures included. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

EMPTY = "<!doctype html><title>empty</title><p>empty</p>"
PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
    const [entry] = list.getEntriesByName("first-contentful-paint");
    if (entry) done(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""


def load(browser: Any, address: str) -> tuple[float, float]:
    """Milliseconds to the first paint and to the whole page."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="commit")
    painted = float(page.evaluate(PAINTED))
    page.wait_for_load_state("load")
    drawn = float(page.evaluate("performance.now()"))
    context.close()
    return painted, drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--loads", type=int, default=9)
    chosen = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        empty = Path(folder) / "empty.html"
        empty.write_text(EMPTY, encoding="utf-8")
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        load(browser, empty.as_uri())  # the browser's own start is not the page's
        rows: dict[str, list[tuple[float, float]]] = {"empty page": [], "this page": []}
        for _ in range(chosen.loads):
            rows["empty page"].append(load(browser, empty.as_uri()))
            rows["this page"].append(load(browser, chosen.page.resolve().as_uri()))
        browser.close()
    print(f"{chosen.page}: {chosen.page.stat().st_size:,} bytes; {chosen.loads} loads each, milliseconds")
    for name, times in rows.items():
        painted, drawn = (sorted(each) for each in zip(*times, strict=True))
        print(
            f"{name:<11} first paint: median {statistics.median(painted):.0f}, {painted[0]:.0f} to {painted[-1]:.0f}; "
            f"drawn: median {statistics.median(drawn):.0f}, {drawn[0]:.0f} to {drawn[-1]:.0f}"
        )


if __name__ == "__main__":
    main()
