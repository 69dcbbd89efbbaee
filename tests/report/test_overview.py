"""The top of a page in a real browser: the list of questions, the numbers, the map, and what is folded."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import types

import numpy as np
import pytest

from poolscope.report import (
    MapColour,
    OverviewGauge,
    OverviewRow,
    ReportSection,
    ReportTable,
    corpus_map,
    render_page,
)
from poolscope.report.page import _asset
from poolscope.report.sections import MOST_POINTS, projected
from poolscope.verdicts import Verdict
from report_visits import DESKTOP, PHONE, Visit, texts

SERIOUS = ("serious", "critical")
COMMAND = "poolscope chunk builtin:minilm 'my <b>texts</b>.jsonl' --id-column id --output chunks.jsonl"


def figure():
    go = pytest.importorskip("plotly.graph_objects")
    return go.Figure(go.Scatter(x=[1, 2, 3], y=[3, 1, 2]))


def small_map(count: int = 40):
    vectors = np.random.default_rng(0).standard_normal((count, 6))
    colours = [
        MapColour("cut off", [k % 4 == 0 for k in range(count)]),
        MapColour("times found", list(range(count))),
        MapColour("document", [f"doc <i>{k % 3}</i>" for k in range(count)]),
    ]
    return corpus_map(vectors, [f"t{k}" for k in range(count)], [f"text <i>{k}</i>" for k in range(count)], colours)


def page() -> str:
    table = ReportTable("Texts", ["id", "n"], [[f"t{k}", k] for k in range(30)], searchable=True)
    levels = {"bad": "repair", "odd": "watch", "open": "unchecked", "fine": "ok"}
    sections = [
        ReportSection(
            key,
            key.capitalize(),
            f"Is it {key}?",
            Verdict(level, f"It is {key}.", 0.5, evidence=("Because.",)),
            figures=[("A curve", figure()), ("Another", figure())],
            tables=[table],
        )
        for key, level in levels.items()
    ]
    gauge = OverviewGauge("share of texts", "50% [40%, 60%]", "floor 0, watch 20%", 60, 50, 70, 14.3, 42.9, 71.4)
    rows = [
        OverviewRow(key, str(n), key.capitalize(), level, "no number", [gauge] if n < 3 else (), {"watch": 0.2})
        for n, (key, level) in enumerate(levels.items(), 1)
    ]
    decision = Verdict("repair", "Re-chunk first: split them. Cost: much.")
    return render_page(
        "An audit", "40 texts", sections, overall=decision, command=COMMAND, overview=rows, texts_map=small_map()
    )


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    path = tmp_path_factory.mktemp("overview") / "report.html"
    path.write_text(page(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def visit(browser, where):
    with contextlib.closing(Visit(browser, where, DESKTOP, "light")) as opened:
        yield opened


@pytest.fixture
def shown(visit):
    yield visit.page
    assert visit.complaints == []


def test_the_list_of_questions_stays_in_sight_and_follows(shown):
    assert [" ".join(words.split()) for words in texts(shown, ".questions a")] == [
        "repair: Bad",
        "Map",
        "watch: Odd",
        "unchecked: Open",
        "ok: Fine",
    ]
    shown.locator(".questions a", has_text="Odd").click()
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    playwright.expect(shown.locator(".questions a[aria-current]")).to_contain_text("Odd")
    assert shown.locator(".bar").bounding_box()["y"] == 0
    heading = shown.locator("#odd h2").bounding_box()
    assert heading["y"] > shown.locator(".bar").bounding_box()["height"]  # not below the list
    shown.evaluate("scrollTo(0, 0)")


def test_decision_command_and_numbers_stand_on_top(shown):
    assert shown.locator(".decision code").inner_text() == COMMAND
    assert shown.locator(".decision .copy").is_visible()
    assert shown.locator(".overview tbody").count() == 4
    assert shown.locator(".overview .gauge").count() == 2
    assert shown.locator(".decision").bounding_box()["y"] < shown.locator(".overview").bounding_box()["y"] < 900


def test_no_line_of_a_command_ends_inside_an_option(shown):
    lines = """(width) => {
      const code = document.querySelector(".decision code");
      code.parentElement.style.maxWidth = width;
      return [...code.querySelectorAll("span")].map((word) => [word.textContent, word.getBoundingClientRect().height]);
    }"""
    for width in range(150, 700, 10):
        heights = shown.evaluate(lines, f"{width}px")
        assert [word for word, _ in heights] == COMMAND.split()
        assert dict(heights)["--id-column"] == dict(heights)["id"]
    shown.evaluate(lines, "none")


def test_findings_are_open_and_what_is_fine_is_drawn_when_it_opens(shown):
    assert shown.locator(".rest").count() == 2
    assert shown.locator("#bad .plot .main-svg").count() > 0
    assert shown.locator("#fine .plot .main-svg").count() == 0
    shown.locator("#fine .rest > summary").click()
    shown.wait_for_selector("#fine .plot .main-svg")
    assert shown.locator("#fine .plot").first.bounding_box()["width"] > 400
    shown.locator("#fine .rest > summary").click()
    shown.locator(".questions a", has_text="Open").click()
    assert shown.locator("#open .rest").get_attribute("open") is not None  # who goes there wants to see it
    shown.locator("#open .rest > summary").click()


def test_strips_show_their_scale_and_thresholds(shown):
    assert shown.locator("#bad .strip .edge.watch").count() == 1
    assert texts(shown, "#bad .strip-ends span") == ["0.200", "0.500"]
    assert "watch from" in shown.locator("#bad .number").inner_text()


def test_the_map_is_coloured_searched_and_read(shown):
    traces = "document.querySelector('.map-plot .plot').data.map((one) => [one.name, one.x.length])"
    assert shown.evaluate(traces)[:2] == [["others (30)", 30], ["cut off (10)", 10]]
    shown.get_by_label("Colour by").select_option("document")
    assert [name for name, _ in shown.evaluate(traces)[:3]] == [f"doc &lt;i&gt;{k}&lt;/i&gt;" for k in range(3)]
    shown.get_by_label("Search the texts of the map").fill("<i>7</i>")
    assert ["searched", 1] in shown.evaluate(traces)
    assert "1 of 40 texts" in shown.locator(".map .pair-status").inner_text()
    shown.locator(".map-plot").press("ArrowRight")
    assert shown.locator(".map-card .corpus").inner_text() == "text <i>7</i>"
    assert ["chosen", 1] in shown.evaluate(traces)
    assert "times found" in shown.locator(".map-card").inner_text()
    shown.get_by_label("Search the texts of the map").fill("")


def test_the_map_and_the_tables_lead_to_each_other(shown):
    shown.locator("#odd").get_by_role("button", name="Show this text on the map").nth(3).click()
    assert shown.locator(".map-card .pair-id").inner_text() == "t3"
    shown.get_by_role("button", name="Find in the tables").click()
    assert shown.locator("#bad input[type=search]").input_value() == "t3"
    shown.locator("#bad input[type=search]").fill("")


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")])
def test_nothing_serious_stands_in_the_way_of_screen_readers(browser, where, viewport, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    with contextlib.closing(Visit(browser, where, viewport, scheme)) as opened:
        opened.page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
        found = axe.Axe().run(opened.page).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


# -- without a browser --------------------------------------------------------------------------------------------


def test_a_page_is_small_and_a_figure_of_another_kind_brings_all_of_plotly():
    assert len(render_page("t", "s", [ReportSection("a", "A", "q", figures=[("f", figure())])])) < 700_000
    go = pytest.importorskip("plotly.graph_objects")
    heat = ReportSection("a", "A", "q", figures=[("f", go.Figure(go.Heatmap(z=[[1, 2], [3, 4]])))])
    assert 1_000_000 < len(render_page("t", "s", [heat])) < 2_500_000
    assert "MIT" in _asset("plotly-LICENSE.txt")


def test_umap_draws_the_map_where_it_is_installed(monkeypatch):
    """A stand-in with its interface; the real one was run by hand, as it takes half a minute to compile."""

    class UMAP:
        def __init__(self, **options):
            self.options = options

        def fit_transform(self, vectors):
            assert self.options == {"random_state": 7, "n_jobs": 1, "metric": "cosine"}
            return vectors[:, :2] + 5

    stand_in = types.ModuleType("umap")
    stand_in.UMAP, stand_in.__spec__ = UMAP, importlib.machinery.ModuleSpec("umap", None)
    monkeypatch.setitem(sys.modules, "umap", stand_in)
    vectors = np.random.default_rng(0).standard_normal((40, 6))
    points, note = projected(vectors, seed=7)
    assert points == pytest.approx(vectors[:, :2] - vectors[:, :2].mean(axis=0))
    assert "UMAP" in note
    assert "principal components" in projected(vectors[:10])[1]  # too few for its neighbourhoods
    del stand_in.UMAP  # a folder of that name, and no package
    assert "principal components" in projected(vectors)[1]


def test_of_many_texts_marked_ones_are_drawn_first():
    count = 3 * MOST_POINTS
    flags = [k < 50 for k in range(count)]
    ids = [str(k) for k in range(count)]
    drawn = corpus_map(np.random.default_rng(0).standard_normal((count, 3)), ids, None, [MapColour("marked", flags)])
    assert len(drawn) == MOST_POINTS
    assert sum(drawn.data["colours"][0]["values"]) == 50
    assert f"{MOST_POINTS:,} of {count:,}" in drawn.note
    assert corpus_map(np.eye(2), ["a", "b"], None, []) is None
