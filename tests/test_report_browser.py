"""The page in a real browser: it asks for nothing, every part of it works, and hostile texts stay texts."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shutil

import pytest

import report_data
from poolscope.report.data import readable

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
BROWSER = shutil.which("chromium")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="the page is tested in Chromium")

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    arguments = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking"]
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
        self._context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self._context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: _only_from_here(request.url, address, self.complaints))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def close(self):
        self._context.close()


# Loading the page takes most of the time of a test, so there are three visits; each test sets what it starts from.
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


# -- what is there ----------------------------------------------------------------------------------------------


def test_everything_is_drawn(desktop):
    assert desktop.locator(".tile").count() == 3
    assert desktop.locator(".plot .main-svg").count() >= 4
    assert desktop.locator(".pair-scatter .point").count() == len(report_data.explorer()) + 1  # and the ring
    assert desktop.locator("#second .plot .subplot").count() == 4
    assert desktop.locator("#second tbody tr").count() == 15
    assert desktop.locator("#third a").get_attribute("href") == "https://example.org/page"


def test_hostile_texts_are_inert(desktop):
    assert desktop.evaluate("typeof window.hacked") == "undefined"
    assert desktop.evaluate("document.scripts.length") == 10
    assert desktop.locator("img, iframe, object, embed, form, base, bdi *:not(mark)").count() == 0
    assert desktop.locator("svg a").count() == 0
    assert desktop.title().replace("\n", "") == report_data.HOSTILE[1]
    cells = desktop.locator("#first td .corpus")
    assert cells.nth(0).inner_text() == report_data.HOSTILE[0]
    assert cells.nth(8).inner_text() == "nothing ␀ and bell ␇ and ␡"
    assert desktop.evaluate("getComputedStyle(document.querySelector('#first td .corpus')).unicodeBidi") == "isolate"
    for _ in range(12):
        desktop.get_by_role("button", name="Lower").click()
    assert desktop.evaluate("typeof window.hacked") == "undefined"


def columns_of_panels(page) -> int:
    titles = page.locator("#second .annotation").all()
    assert len(titles) == 4
    return len({round(title.bounding_box()["x"] / 100) for title in titles})


def settled(page) -> None:
    """Wait until every figure is as wide as its place."""
    for _ in range(200):
        if page.evaluate(
            "[...document.querySelectorAll('.plot')].every((plot) => Math.abs("
            "plot.querySelector('.main-svg').clientWidth - plot.clientWidth) <= 1)"
        ):
            return
        page.wait_for_timeout(50)
    raise AssertionError("the figures do not follow the width of the page")


def test_nothing_is_wider_than_the_screen(phone):
    for viewport, columns in ((PHONE, 1), (DESKTOP, 2), (PHONE, 1)):
        phone.set_viewport_size(viewport)
        settled(phone)
        assert phone.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert columns_of_panels(phone) == columns


def test_a_link_opens_what_explains_the_answer(phone, address):
    """From an answer, from another explanation, again after it was closed, and by an address that was sent."""
    opened = phone.locator("details.explanation[open]")
    heading = phone.locator("#Explained-scores-limits")
    assert opened.count() == 0
    for _ in range(2):
        phone.locator("#second .more a").click()
        playwright.expect(heading).to_be_in_viewport()
        assert opened.evaluate_all("found => found.map((part) => part.id)") == ["Explained-scores"]
        phone.locator("#Explained-scores > summary").click()
        assert opened.count() == 0
    phone.locator("#second .more a").click()
    phone.locator("#Explained-scores a", has_text="audit").first.click()
    playwright.expect(phone.locator("#Explained-audit > summary")).to_be_in_viewport()
    assert opened.count() == 2
    assert phone.locator("#Explained-audit table").count() == 2
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    sent = phone.context.new_page()
    sent.goto(f"{address}#Explained-scores-definitions")
    sent.wait_for_selector("html[data-ready]")
    playwright.expect(sent.locator("#Explained-scores-definitions")).to_be_in_viewport()
    assert sent.locator("details.explanation[open]").count() == 1
    sent.close()


def test_long_texts_are_cut_and_say_so(desktop):
    cell = desktop.locator("#first td.long", has_text=re.compile("^x{100}"))
    assert len(cell.inner_text()) < 400
    cell.get_by_role("button", name="show all 2,000 characters").click()
    assert "… cut: 2,000 of 1,000,000 characters are in this page" in cell.inner_text()
    cell.get_by_role("button", name="show less").click()
    assert "cut:" not in cell.inner_text()


# -- tables -----------------------------------------------------------------------------------------------------


def test_tables_are_sorted_by_mouse_and_keyboard(desktop):
    heading = desktop.locator("#first th", has_text="tokens")
    column = "#first tbody tr td:nth-child(2)"
    before = texts(desktop, column)
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    known = [int(text) for text in texts(desktop, column)[:-1]]
    assert known == sorted(known, reverse=True)
    assert texts(desktop, column)[-1] == "–"  # what is not known stands last, both ways
    heading.get_by_role("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [int(text) for text in texts(desktop, column)[:-1]] == sorted(known)
    assert texts(desktop, column)[-1] == "–"
    heading.get_by_role("button").press("Space")
    assert heading.get_attribute("aria-sort") == "none"
    assert texts(desktop, column) == before
    words = desktop.locator("#first th", has_text="text <i>")
    words.get_by_role("button").click()
    assert words.get_attribute("aria-sort") == "ascending"
    assert desktop.locator("#first th[aria-sort=none]").count() == 3


def test_tables_are_searched_and_unfolded(desktop):
    box = desktop.get_by_role("searchbox")
    assert box.count() == 1  # the other table is not searchable
    box.fill("JAVASCRIPT:")
    assert texts(desktop, "#first tbody .corpus") == ["javascript:window.hacked=1"]
    assert desktop.locator("#first .count").inner_text() == "1 of 15 rows"
    box.fill("[nothing like this(")
    assert texts(desktop, "#first tbody tr") == ["No row holds this."]
    box.fill("")
    assert desktop.locator("#first tbody tr").count() == 15
    desktop.get_by_role("button", name="Show all 40 rows").click()
    assert desktop.locator("#second tbody tr").count() == 40
    desktop.get_by_role("button", name="Show the first 15 rows").click()
    assert desktop.locator("#second tbody tr").count() == 15


# -- pairs ------------------------------------------------------------------------------------------------------


def shown_pair(page) -> tuple[str, list[str]]:
    return page.locator(".pair-status").inner_text(), texts(page, ".pair-card .pair-id")


def test_a_click_on_a_point_shows_its_pair(desktop):
    data = report_data.explorer().data
    first = shown_pair(desktop)
    row = data["pairs"]["kind"].tolist().index(1)
    number = [r for r, kind in enumerate(data["pairs"]["kind"]) if kind == 1].index(row)
    traces = desktop.evaluate("document.querySelector('.pair-scatter .plot').data.map((trace) => trace.name)")
    near = desktop.locator(".pair-scatter .scatterlayer .trace").nth(traces.index("nearest neighbours"))
    point = near.locator(".point")
    point.nth(number).hover(force=True)
    point.nth(number).click(force=True)
    status, ids = shown_pair(desktop)
    assert status == f"Pair {row + 1} of {len(data['pairs']['kind'])}, by SOCM · nearest neighbours"
    assert (status, ids) != first
    pair = [data["texts"][data["pairs"][side][row]] for side in "ij"]
    assert ids == [text["id"] for text in pair]
    assert desktop.locator(".pair-numbers dd").first.inner_text() == f"{data['pairs']['socm'][row]:.4f}"
    ring = desktop.evaluate("document.querySelector('.pair-scatter .plot').data.at(-1).x")
    assert ring == [data["pairs"]["d_mu"][row]]


def test_keys_and_buttons_choose_pairs(desktop):
    scatter = desktop.locator(".pair-scatter")
    scatter.press("Home")
    for key, place in (("ArrowRight", 2), ("ArrowDown", 3), ("ArrowLeft", 2), ("Home", 1), ("ArrowUp", 1)):
        scatter.press(key)
        assert desktop.locator(".pair-status").inner_text().startswith(f"Pair {place} of ")
    scatter.press("End")
    count = len(report_data.explorer())
    assert desktop.locator(".pair-status").inner_text().startswith(f"Pair {count} of {count}")
    assert desktop.get_by_role("button", name="Lower").is_disabled()
    desktop.get_by_role("button", name="Higher").click()
    assert desktop.locator(".pair-status").inner_text().startswith(f"Pair {count - 1} of {count}")
    desktop.get_by_label("Which pairs").select_option("highest SOCM")
    assert desktop.locator(".pair-status").inner_text() == "Pair 1 of 10, by SOCM · highest SOCM"


def test_marks_stand_at_the_tokens_and_the_picture_follows(desktop):
    data = report_data.explorer().data
    desktop.locator(".pair-scatter").press("Home")
    desktop.get_by_label("Which pairs").select_option("all pairs")
    row, side, mark = next(
        (row, side, one)
        for row, detail in enumerate(data["details"])
        for side in (0, 1)
        for one in detail["marked"][side]
        if one[1] >= 0
    )
    for _ in range(row):
        desktop.get_by_role("button", name="Lower").click()
    card = desktop.locator(f".pair-card.side-{'ab'[side]}")
    text = data["texts"][data["pairs"]["ij"[side]][row]]["text"]
    text = text if isinstance(text, str) else text["text"]
    assert text[mark[1] : mark[2]] in card.locator("mark").all_inner_texts()
    shown = card.locator(".corpus").evaluate("(body) => body.textContent")
    assert shown == readable(text)  # the marks neither repeat nor swallow a letter
    assert f"{mark[3] / 10:.1f} % of d_Σ" in [one.get_attribute("title") for one in card.locator("mark").all()]
    assert f"{mark[3] / 10:.1f} %" in card.locator(".chips").inner_text()
    drawn = desktop.evaluate("document.querySelector('.pair-picture .plot').data.map((trace) => trace.x.length)")
    detail = data["details"][row]
    assert drawn[2] == data["texts"][data["pairs"]["i"][row]]["tokens"]
    assert drawn[5] == data["texts"][data["pairs"]["j"][row]]["tokens"]
    mean = desktop.evaluate("document.querySelector('.pair-picture .plot').data[6].x[1]")
    assert mean == pytest.approx(int(detail["sides"][0]["mean"][0]) * detail["unit"])


# -- downloads --------------------------------------------------------------------------------------------------


def test_figures_are_downloaded(dark):
    chart = dark.locator("#first .figures .chart")
    name, svg = downloaded(dark, chart.locator("[data-download=svg]"))
    assert name == "script-script-window-hacked-1-script-first-a-curve.svg"
    assert svg.startswith(b"<svg")
    assert b"a model" in svg
    assert b"<script" not in svg
    assert b"rgb(255, 255, 255)" in svg  # on white paper, whatever the colours of the dark
    name, png = downloaded(dark, chart.locator("[data-download=png]"))
    assert name.endswith("a-curve.png")
    assert png.startswith(b"\x89PNG")
    assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (1400, 840)
    name, table = downloaded(dark, chart.locator("[data-download=csv]"))
    rows = rows_of(table)
    assert rows[0] == ["trace", "x", "y"]
    assert rows[1] == ["<script>a model</script>", "0", "0"]
    assert [row[1] for row in rows[6:]] == ["'=1+1", "bold", "'-2", "'@x", "plain"]
    assert [float(row[2]) for row in rows[6:]] == [1, -2, 3, 4, 5.5]


def test_pairs_are_downloaded(desktop):
    data = report_data.explorer().data
    _, table = downloaded(desktop, desktop.locator(".pair-scatter [data-download=csv]"))
    rows = rows_of(table)
    assert rows[0] == ["id_a", "id_b", "d_mu", "d_sigma", "socm", "kind"]
    assert len(rows) == 1 + len(data["pairs"]["i"])
    assert rows[1][0] == data["texts"][data["pairs"]["i"][0]]["id"]
    assert float(rows[1][4]) == data["pairs"]["socm"][0]
    _, picture = downloaded(desktop, desktop.locator(".pair-picture [data-download=svg]"))
    assert picture.startswith(b"<svg")


def test_tables_are_downloaded_as_they_are_shown(desktop):
    desktop.get_by_role("searchbox").fill("e")
    desktop.locator("#first th", has_text="score").get_by_role("button").click()
    assert desktop.locator("#first th", has_text="score").get_attribute("aria-sort") == "descending"
    name, content = downloaded(desktop, desktop.locator("#first .tables [data-download=csv]"))
    assert name.endswith("worst-pairs.csv")
    rows = rows_of(content)
    assert rows[0] == ["score", "tokens", "found", "text <i>"]
    scores = [float(row[0]) for row in rows[1:]]
    assert scores == sorted(scores, reverse=True)
    shown = [row[3] for row in rows[1:]]
    assert '\'=HYPERLINK("https://evil.test/")' in shown
    assert report_data.HOSTILE[8] in shown
    assert all("e" in " ".join(row).lower() for row in rows[1:])


# -- colours and paper ------------------------------------------------------------------------------------------


def ink(page) -> tuple[str, str]:
    """The ground of the page, and the colour of the letters of a figure."""
    return page.evaluate(
        "[getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('#first .plot .xtick text')).fill]"
    )


def test_on_paper_everything_is_open_light_and_fits(dark):
    dark.locator("#first .evidence summary").click()
    assert dark.locator("#first .evidence").get_attribute("open") is None
    dark.evaluate("dispatchEvent(new Event('beforeprint'))")
    dark.emulate_media(media="print", color_scheme="dark")
    assert not dark.locator(".explanations").is_visible()
    dark.set_viewport_size({"width": 690, "height": 980})
    assert dark.locator("details:not([open], .explanation)").count() == 0
    assert dark.locator("#second tbody tr").count() == 40
    assert ink(dark)[1] == "rgb(29, 37, 48)"
    assert dark.evaluate("document.documentElement.scrollWidth <= innerWidth")
    widths = (
        "[...document.querySelectorAll('.plot')].map((one) => [one.querySelector('svg').clientWidth, one.clientWidth])"
    )
    assert all(600 < drawn <= place for drawn, place in dark.evaluate(widths))
    assert not dark.locator("#first .downloads").first.is_visible()
    dark.emulate_media(media="screen", color_scheme="dark")
    dark.evaluate("dispatchEvent(new Event('afterprint'))")
    assert dark.locator("#first .evidence").get_attribute("open") is None
    assert dark.locator("#second tbody tr").count() == 15
    assert dark.pdf(format="A4").startswith(b"%PDF")


def test_colours_follow_the_system_and_then_the_reader(dark):
    before = ink(dark)
    dark.emulate_media(color_scheme="light")
    dark.get_by_role("button", name="Use dark colours").wait_for()
    light = ink(dark)
    assert before[0] != light[0]
    assert before[1] != light[1]
    dark.get_by_role("button", name="Use dark colours").click()
    assert ink(dark) == before
    dark.wait_for_timeout(1000)  # the browser hands its storage on a moment later, and a busy one much later
    dark.reload()
    dark.wait_for_selector("html[data-ready]")
    assert ink(dark) == before  # remembered
    dark.get_by_role("button", name="Use light colours").focus()
    dark.keyboard.press("Enter")
    assert ink(dark) == light


# -- last, because the page then holds what it refused ----------------------------------------------------------


def test_code_that_was_not_there_cannot_run(visits):
    visit = visits["desktop"]
    refused = visit.page.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
            const added = document.createElement("script");
            added.textContent = "window.hacked = 1";
            document.body.append(added);
        })"""
    )
    assert refused.startswith("script-src")
    reached = visit.page.evaluate("fetch('https://example.org').then(() => 'reached', () => 'refused')")
    assert reached == "refused"
    assert visit.page.evaluate("typeof window.hacked") == "undefined"
    assert all("Content Security Policy" in complaint for complaint in visit.complaints)
