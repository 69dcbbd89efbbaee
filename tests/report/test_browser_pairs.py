"""The pairs of the page in a real browser: chosen by mouse and keys, marked, excerpted, opened from a table, saved."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest

import report_data
from poolscope import TokenClouds, socm
from poolscope.encoders.tokens import Vocabulary
from poolscope.report import ReportSection, pair_explorer, render_page
from poolscope.report.sections import readable
from report_visits import DESKTOP, Visit, downloaded, overlap, rows_of, texts

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")


def shown_pair(page) -> tuple[str, list[str]]:
    return page.locator(".pair-status").inner_text(), texts(page, ".pair-card .pair-id")


def test_a_click_on_a_point_shows_its_pair(desktop):
    data = report_data.explorer().data
    first = shown_pair(desktop)
    random = np.flatnonzero(np.array(data["pairs"]["reasons"]) == 4)
    places = np.array([data["pairs"]["d_mu"], data["pairs"]["d_sigma"]]).T / [0.1, 1]
    apart = np.linalg.norm(places[random, None] - places, axis=2)
    number = int(np.argmax(np.sort(apart, axis=1)[:, 1]))  # the point that lies most alone
    row = int(random[number])
    traces = desktop.evaluate("document.querySelector('.pair-scatter .plot').data.map((trace) => trace.name)")
    drawn = desktop.locator(".pair-scatter .scatterlayer .trace").nth(traces.index("drawn at random"))
    point = drawn.locator(".point")
    point.nth(number).hover(force=True)
    point.nth(number).click(force=True)
    status, ids = shown_pair(desktop)
    assert status == f"Pair {row + 1} of {len(data['pairs']['i'])}, by SOCM · drawn at random"
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
    worst = report_data.explorer().data["kinds"][1]
    desktop.get_by_label("Which pairs").select_option(worst)
    assert desktop.locator(".pair-status").inner_text().startswith("Pair 1 of 10, by SOCM · ")
    assert worst in desktop.locator(".pair-status").inner_text()


def test_a_row_opens_its_pair_and_the_way_back(desktop):
    data = report_data.explorer().data
    desktop.get_by_label("Which pairs").select_option("-1")
    buttons = desktop.get_by_role("button", name="Show this pair in the explorer")
    assert buttons.count() == 4  # the fifth pair is not in the explorer
    wanted = [pair.socm for pair in socm(report_data.hostile_clouds()[0]).worst(4)]
    for row, press in ((2, "click"), (1, "Enter"), (3, "Space")):
        buttons.nth(row).click() if press == "click" else buttons.nth(row).press(press)
        place = data["pairs"]["socm"].index(pytest.approx(wanted[row], rel=1e-4)) + 1
        assert desktop.locator(".pair-status").inner_text().startswith(f"Pair {place} of {len(data['details'])}")
        assert desktop.locator(".pair-numbers dd").first.inner_text() == f"{wanted[row]:.4f}"
        playwright.expect(desktop.locator(".pair-tools")).to_be_in_viewport()
        assert desktop.evaluate("document.activeElement.className") == "pair-scatter"
        desktop.get_by_role("button", name="Back to the table").click()
        playwright.expect(buttons.nth(row)).to_be_focused()
        playwright.expect(buttons.nth(row)).to_be_in_viewport()
        assert not desktop.get_by_role("button", name="Back to the table").is_visible()


@pytest.mark.parametrize("searchable", [True, False])
def test_the_way_back_to_a_row_that_is_gone_leads_to_its_table(browser, tmp_path, searchable):
    table = dataclasses.replace(report_data.pair_table(), searchable=searchable)
    explorer = dataclasses.replace(report_data.explorer(), section="only")
    page = render_page("t", "s", [ReportSection("only", "One", "Why?", tables=[table])], explorer=explorer)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with contextlib.closing(Visit(browser, (tmp_path / "page.html").as_uri(), DESKTOP, "light")) as visit:
        visit.page.get_by_role("button", name="Show this pair in the explorer").first.click()
        search = visit.page.get_by_role("searchbox", name="Search in Pairs")
        if searchable:
            search.fill("no row holds these words")
        else:
            visit.page.evaluate("document.querySelector('.open-pair').closest('tr').remove()")
        visit.page.get_by_role("button", name="Back to the table").click()
        target = search if searchable else visit.page.get_by_role("region", name="Pairs", exact=True)
        playwright.expect(target).to_be_focused()
        playwright.expect(target).to_be_in_viewport()
        assert not visit.page.get_by_role("button", name="Back to the table").is_visible()
        assert visit.complaints == []


def test_no_two_labels_of_a_picture_overlap(desktop):
    desktop.get_by_label("Which pairs").select_option("-1")
    desktop.locator(".pair-scatter").press("Home")
    for _ in range(12):
        boxes = [label.bounding_box() for label in desktop.locator(".pair-picture .textpoint text").all()]
        assert not [pair for pair in itertools.combinations(filter(None, boxes), 2) if overlap(*pair)]
        desktop.locator(".pair-scatter").press("ArrowRight")
    # Margins that follow the labels of axes of one scale never settle, and plotly says so in the console.
    assert desktop.evaluate("document.querySelector('.pair-picture .plot').layout.yaxis.automargin") is False


def test_marks_stand_at_the_tokens_and_the_picture_follows(desktop):
    data = report_data.explorer().data
    desktop.locator(".pair-scatter").press("Home")
    desktop.get_by_label("Which pairs").select_option("-1")
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
    start, text = (0, text) if isinstance(text, str) else (text["start"], text["text"])
    assert text[mark[1] - start : mark[2] - start] in card.locator("mark").all_inner_texts()
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


def test_a_long_text_is_an_excerpt_around_its_marks(browser, tmp_path):
    words = [*(f"word{k}" for k in range(250)), "needle"]
    text = " ".join(f"{word:<34}" for word in words)
    arrays = [np.random.default_rng(k).standard_normal((len(words), 4)) * 0.01 + 1 for k in (0, 1)]
    arrays[1][-1] = [40, -40, 40, -40]
    ids = np.arange(len(words), dtype=np.int32)
    clouds = TokenClouds.from_arrays(arrays, texts=["short", text], token_ids=[ids, ids])
    explorer = pair_explorer(clouds, socm(clouds), vocabulary=Vocabulary.of_words(words), section="only")
    page = render_page("t", "s", [ReportSection("only", "One", "Why?")], explorer=explorer)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with contextlib.closing(Visit(browser, (tmp_path / "page.html").as_uri(), DESKTOP, "light")) as visit:
        card = visit.page.locator(".side-b .pair-text")
        playwright.expect(card.locator("mark", has_text="needle")).to_be_visible()
        box, mark = card.bounding_box(), card.locator("mark", has_text="needle").bounding_box()
        assert box["y"] <= mark["y"] <= box["y"] + box["height"]  # the box was scrolled to it
        before = explorer.data["texts"][1]["text"]["start"]
        assert card.locator(".cut").first.inner_text() == f"{before:,} characters before …"
        assert visit.complaints == []


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
