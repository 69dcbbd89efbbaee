"""The page of an audit in a real browser: accessible, no wider than its window, readable folded, open and printed."""

from __future__ import annotations

import shutil

import pytest

from audit_data import topics
from poolscope import audit
from poolscope.auditing.page import FOLDED

pytest.importorskip("playwright")
BROWSER = shutil.which("chromium")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="the page is looked at in Chromium")
OPEN = "document.querySelectorAll('details').forEach(each => each.open = true)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    texts = topics(90)
    queries = {" ".join(text.split()[:4]): str(k if k % 3 else (k + 7) % 90) for k, text in enumerate(texts)}
    folder = tmp_path_factory.mktemp("page")
    found = audit("builtin:wordllama", texts, queries=queries)
    assert found.missed > FOLDED  # so that some are in the last line of the list
    found.save(folder)
    return f"file://{folder}/report.html"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1440])
def test_no_violation_folded_or_open_at_any_width(browser, address, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    # The page forbids every script; axe is one, so that this page alone is opened without the policy.
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page.goto(address)
    for state in ("folded", "open"):
        if state == "open":
            page.evaluate(OPEN)
        results = Axe().run(page).response
        assert [each["id"] for each in results["violations"]] == [], f"{state}: {results['violations']}"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if state == "folded":
            assert page.evaluate("document.documentElement.scrollHeight") < 8000
    page.close()


def test_what_is_missed_survives_printing_and_nothing_is_requested(browser, address):
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    assert asked == [address]
    page.emulate_media(media="print")
    misses = page.locator(".miss")
    assert misses.count() > FOLDED
    for place in (0, 1, FOLDED, misses.count() - 1):
        texts = misses.nth(place).locator("p, td")
        assert texts.count()
        assert texts.first.is_visible()
    page.close()


def test_every_miss_opens_with_the_keyboard(browser, address):
    page = browser.new_page()
    page.goto(address)
    first = page.locator("details.miss").first
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert first.evaluate("each => each.open")
    page.close()


def test_the_keyboard_reaches_every_fold_in_order_and_enter_opens_and_closes_it(browser, address):
    """Those inside a fold are reached once it is open; the page has no script, so that Enter closes, and not Escape."""
    page = browser.new_page()
    page.goto(address)
    shown = "[...document.querySelectorAll('summary')].filter(each => each.checkVisibility())"
    reached, opened = [], 0
    while page.keyboard.press("Tab") or page.evaluate("document.activeElement !== document.body"):
        if (at := page.evaluate(f"{shown}.indexOf(document.activeElement)")) >= 0:
            reached.append(at)
            page.keyboard.press("Enter")
            opened += page.evaluate("document.activeElement.parentElement.open")
    folds = page.locator("summary").count()
    assert reached == list(range(folds))
    assert opened == folds
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert not page.locator("details").first.evaluate("each => each.open")
    page.close()
