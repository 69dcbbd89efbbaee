"""Visits of the page in a real browser, and what tests ask of a visit. Fixtures: conftest.py makes them known."""

from __future__ import annotations

import contextlib
import csv
import io
import shutil

import pytest

import report_data

BROWSER = shutil.which("chromium")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    arguments = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking"]
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    if BROWSER is None:
        pytest.skip("the page is tested in Chromium")
    with playwright.sync_playwright() as tool:
        running = tool.chromium.launch(executable_path=BROWSER, args=arguments)
        yield running
        running.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_data.page(), encoding="utf-8")
    return path.as_uri()


class Visit:
    """One visit of the page, and everything it asked for or complained about."""

    def __init__(self, browser, address, viewport, scheme):
        self.complaints: list[str] = []
        self._start = address, viewport, scheme
        self._context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self._context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: _only_from_here(request.url, address, self.complaints))
        self.begin()

    def begin(self):
        """The page as it is first seen, whatever another test has done to it."""
        address, viewport, scheme = self._start
        if self.page.url.startswith("file:"):
            self.page.evaluate("localStorage.clear()")  # colours that a reader chose
        self.complaints.clear()
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(media="screen", color_scheme=scheme)
        self.page.goto("about:blank")  # an address that differs by a fragment alone would not load again
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def close(self):
        self._context.close()


# Three visits; every test begins with the page as it is first seen.
@pytest.fixture(scope="module")
def visits(browser, address):
    settings = {"desktop": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(contextlib.closing(Visit(browser, address, *chosen)))
            for name, chosen in settings.items()
        }


def _watched(name: str):
    """A fixture: the page of a visit, which after the test has asked for nothing and complained of nothing."""

    @pytest.fixture(name=name)
    def watched(visits):
        visits[name].begin()
        yield visits[name].page
        assert visits[name].complaints == []

    return watched


desktop, dark, phone = _watched("desktop"), _watched("dark"), _watched("phone")


def _only_from_here(url: str, address: str, complaints: list[str]) -> None:
    if url != address and not url.startswith(("data:", "blob:")):
        complaints.append(f"asked for {url}")


def texts(page, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def downloaded(page, button) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        button.click()
    return waiting.value.suggested_filename, waiting.value.path().read_bytes()


def rows_of(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    """Do two boxes share more than a seam?"""
    wide = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
    high = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
    return wide > 2 and high > 2
