"""The page in a real browser: it asks for nothing, every part of it works, and hostile texts stay texts."""

from __future__ import annotations

import itertools
import re

import pytest

import report_data
from poolscope import socm
from report_visits import DESKTOP, PHONE, downloaded, overlap, rows_of, texts

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")

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
    assert desktop.evaluate("document.scripts.length") == 12
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
    titles = [title.bounding_box() for title in page.locator("#second .annotation").all()]
    assert len(titles) == 4
    return len({round((title["x"] + title["width"] / 2) / 50) for title in titles})  # titles stand above the middle


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


def test_the_words_of_panels_have_room(phone):
    """Titles of panels and of axes neither overlap nor leave the figure, side by side and one under the other."""
    for viewport in (DESKTOP, PHONE):
        phone.set_viewport_size(viewport)
        settled(phone)
        plot = phone.locator("#second .plot")
        words = [one.bounding_box() for one in plot.locator(".xtitle, .ytitle, .x2title, .y2title").all()]
        words += [one.bounding_box() for one in plot.locator(".x3title, .y3title, .x4title, .y4title").all()]
        words += [one.bounding_box() for one in plot.locator(".annotation-text").all()]
        assert len(words) == 12
        assert not [pair for pair in itertools.combinations(words, 2) if overlap(*pair)]
        frame = plot.bounding_box()
        assert all(frame["x"] <= one["x"] and one["x"] + one["width"] <= frame["x"] + frame["width"] for one in words)
        bars = phone.locator("#third .plot .bars .point").first.bounding_box()
        assert bars["width"] > 0.1 * viewport["width"] / 3  # long names leave room for what they name


def test_words_in_figures_follow_the_colours(dark):
    coloured = dark.locator("#second .annotation-text tspan tspan[style*=fill]").first
    playwright.expect(coloured).to_have_css("fill", "rgb(77, 156, 201)")  # lighter than on paper


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
    assert phone.locator("#Explained-audit table").count() >= 2
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
    cell.get_by_role("button", name="show all 1,000 characters").click()
    assert "… cut: 1,000 of 1,000,000 characters are in this page" in cell.inner_text()
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


def test_cells_hold_what_belongs_together(desktop):
    pair = socm(report_data.hostile_clouds()[0]).worst(1)[0]
    cells = desktop.locator("#third tbody tr").first.locator("td")
    digits = 2 if pair.socm + 0.1 >= 1 else 3
    ends = ", ".join(f"{pair.socm + change:.{digits}f}" for change in (-0.1, 0.1))
    assert cells.nth(1).inner_text().split() == ["Watch", f"{pair.socm:.{digits}f}", *f"[{ends}]".split()]
    assert cells.nth(1).locator(".badge.watch svg").count() == 1
    assert cells.nth(2).locator(".below").inner_text() == pair.id_i
    assert texts(desktop, "#third th")[1].strip().startswith("SOCM of <it>")
    _, content = downloaded(desktop, desktop.locator("#third .tables [data-download=csv]"))
    assert rows_of(content)[0] == ["socm", "socm_low", "socm_high", "level", "id_i", "id_j"]


def test_a_table_that_is_too_wide_says_so(phone):
    phone.set_viewport_size({"width": 320, "height": 844})
    frame = phone.locator("#third .table-frame")
    box = frame.locator(".table-scroll")
    box.evaluate("(box) => { box.querySelector('table').style.minWidth = '900px'; box.scrollLeft = 0; }")
    box.evaluate("(box) => box.dispatchEvent(new Event('scroll'))")
    assert frame.get_attribute("data-more") is not None
    box.evaluate("(box) => { box.scrollLeft = box.scrollWidth; box.dispatchEvent(new Event('scroll')); }")
    assert frame.get_attribute("data-more") is None
    box.evaluate("(box) => { box.querySelector('table').style.minWidth = ''; }")
    phone.set_viewport_size(PHONE)


# -- what to do -------------------------------------------------------------------------------------------------


def test_a_command_is_copied_or_selected(desktop):
    command = f"poolscope tune {report_data.HOSTILE[0]}"
    box = desktop.locator("#first .action")
    assert box.locator("code").inner_text() == command
    button = box.locator(".copy")
    desktop.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button.focus()
    button.press("Enter")
    playwright.expect(button).to_have_text("Copied")
    assert desktop.evaluate("navigator.clipboard.readText()") == command
    desktop.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
    button.click()
    playwright.expect(button).to_have_text("Selected: copy it")
    assert desktop.evaluate("getSelection().toString()") == command
    desktop.evaluate("getSelection().removeAllRanges()")


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


def test_on_paper_it_is_a_report_of_a_few_pages(dark):
    dark.locator("#first .evidence summary").click()
    assert dark.locator("#first .evidence").get_attribute("open") is None
    dark.evaluate("dispatchEvent(new Event('beforeprint'))")
    dark.emulate_media(media="print", color_scheme="dark")
    assert not dark.locator(".explanations").is_visible()
    assert not dark.locator(".explorer").is_visible()
    dark.set_viewport_size({"width": 690, "height": 980})
    assert dark.locator("#first .evidence").get_attribute("open") is not None
    assert dark.locator("#second tbody tr:visible").count() == 5
    assert ink(dark)[1] == "rgb(29, 37, 48)"
    assert dark.evaluate("document.documentElement.scrollWidth <= innerWidth")
    widths = (
        "[...document.querySelectorAll('.plot')].filter((one) => one.clientWidth)"
        ".map((one) => [one.querySelector('svg').clientWidth, one.clientWidth])"
    )
    assert all(600 < drawn <= place for drawn, place in dark.evaluate(widths))
    assert not dark.locator("#first .downloads").first.is_visible()
    dark.emulate_media(media="screen", color_scheme="dark")
    dark.evaluate("dispatchEvent(new Event('afterprint'))")
    assert dark.locator("#first .evidence").get_attribute("open") is None
    assert dark.locator("#second tbody tr:visible").count() == 15
    paper = dark.pdf(format="A4")
    assert paper.startswith(b"%PDF")


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
