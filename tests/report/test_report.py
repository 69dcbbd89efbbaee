"""Pages: what goes in is what stands there, as text and nothing else."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import re
import zlib

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import report_data
from poolscope.errors import InputError
from poolscope.report import ReportColumn, ReportSection, ReportTable, render_page, save_page
from poolscope.report.page import page_style
from poolscope.report.sections import figure_data, json_block, kept_text, readable, shown_number, table_data
from poolscope.verdicts import LEVELS, Verdict

any_text = st.text(st.characters(codec=None, exclude_categories=()))


QUOTED = """<span style="color:#D55E00">a</span> <span style='font-size:9px'>b</span> <span id="x">"""


# -- data -------------------------------------------------------------------------------------------------------


@given(any_text)
def test_data_comes_back_and_cannot_end_its_element(text):
    block = json_block({"text": text})
    assert json.loads(block) == {"text": text}
    assert not set(block) & set("<>&\u2028\u2029")
    block.encode("utf-8")


@given(any_text)
def test_every_text_can_be_written(text):
    shown = readable(text)
    shown.encode("utf-8")
    assert len(shown) == len(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", shown)


def test_long_texts_are_cut_and_say_so():
    assert kept_text("abc", 3) == "abc"
    assert kept_text(report_data.LONG) == {"text": "x" * 1000, "length": 1_000_000, "start": 0}


def test_columns_of_numbers_are_found_by_what_they_hold():
    table = ReportTable(
        "t",
        ["a", "b", "c", "d"],
        [(1, "1", True, None), (np.float32(0.5), 2, False, None), (float("nan"), 3, True, None)],
    )
    data = table_data(table)
    assert [column["numeric"] for column in data["view"]] == [True, False, False, False]
    assert [column["heading"] for column in data["view"]] == ["a", "b", "c", "d"]
    assert data["rows"] == [[1, "1", True, None], [0.5, 2, False, None], [None, 3, True, None]]
    with pytest.raises(InputError, match=r"row 1 has 1 cells; the table has 2"):
        ReportTable("t", ["a", "b"], [(1, 2), (1,)])


def test_a_view_names_columns_that_are_there():
    view = [ReportColumn("b", "In words", low="a", high="c")]
    data = table_data(ReportTable("t", ["a", "b", "c"], [(1, 2, 3)], view=view, pair=("c", "a")))
    assert data["view"] == [
        {"heading": "In words", "column": 1, "numeric": True, "low": 0, "high": 2, "level": None, "below": None}
    ]
    assert data["pair"] == [2, 0]
    assert data["columns"] == ["a", "b", "c"]
    with pytest.raises(InputError, match=r"a view of x; the columns are a"):
        ReportTable("t", ["a"], [(1,)], view=[ReportColumn("a", "A", below="x")])


def test_a_figure_keeps_its_numbers_and_loses_foreign_markup():
    figure = go.Figure(layout={"title": {"text": "<b>x</b> &lt;y&gt; <a href='https://evil.test'>z</a>"}})
    figure.add_scattergl(
        x=np.linspace(0, 1, 7), y=np.arange(7) / 3, text=["<sub>a</sub>", "<script>b", "1 < 2", QUOTED]
    )
    figure.add_heatmap(z=np.arange(6.0).reshape(2, 3))
    data = figure_data("name", figure)
    line, heat = data["data"]
    assert line["type"] == "scatter"
    np.testing.assert_allclose(line["x"], np.linspace(0, 1, 7), rtol=5e-6)  # six digits
    np.testing.assert_allclose(line["y"], np.arange(7) / 3, rtol=5e-6)
    assert line["text"] == ["<sub>a</sub>", "&lt;script>b", "1 &lt; 2", QUOTED.replace("<span id", "&lt;span id")]
    assert heat["z"] == [[0, 1, 2], [3, 4, 5]]
    assert "template" not in data["layout"]
    assert data["layout"]["title"]["text"].count("<") == 2
    assert data["title"] == "x <y> <a href='https://evil.test'>z</a>"
    with pytest.raises(InputError, match=r"'name': .*'scatter3d'.*allowed: bar, box"):
        figure_data("name", go.Figure(go.Scatter3d(x=[1], y=[1], z=[1])))


# -- numbers ----------------------------------------------------------------------------------------------------


def test_numbers_share_their_digits():
    verdict = Verdict("ok", "…", 0.12345, report_data.interval(0.1, 0.15), 0.0)
    shown = shown_number(verdict)
    assert (shown.value, shown.interval, shown.floor) == ("0.123", "0.100 to 0.150", "0")
    assert shown.method == "95% interval for the population of texts: bootstrap over texts"
    assert shown.strip["floor"] == 8.0 < shown.strip["low"] < shown.strip["value"] < shown.strip["high"] == 92.0
    assert shown_number(verdict, ".0%").value == "12%"
    assert shown_number(verdict, ".0%").floor == "0%"


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (9, "9"), (1234.5, "1,234"), (-0.5, "−0.500"), (0.00021, "0.000210"), (float("nan"), "not defined")],
)
def test_one_number(value, written):
    shown = shown_number(Verdict("ok", "…", value))
    assert shown.value == written
    assert shown.strip is None


def test_a_verdict_may_have_no_number():
    assert shown_number(Verdict("ok", "…")) is None


# -- page -------------------------------------------------------------------------------------------------------


class Elements(html.parser.HTMLParser):
    """All elements of a page with their attributes, and the content of its scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.found and self.found[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def page():
    return report_data.page()


@pytest.fixture(scope="module")
def elements(page):
    parser = Elements()
    parser.feed(page)
    return parser


def test_the_page_is_whole_and_asks_for_nothing(page, elements):
    assert page.startswith("<!doctype html>")
    page.encode("utf-8")
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert not attributes.get("src")
        target = attributes.get("href", "#")
        assert target.startswith(("#", "data:,", "https://example.org/")), f"{tag} {target}"
    assert {"img", "iframe", "object", "embed", "base", "form"}.isdisjoint(tag for tag, _ in elements.found)


def _calm(section):
    """The same section, with its texts replaced and its data left out."""
    verdict = section.verdict
    if verdict is not None:
        verdict = dataclasses.replace(verdict, sentence="…", evidence=("…",) * len(verdict.evidence))
    quiet = {"title": "…", "question": "…", "notes": ["…"] * len(section.notes), "figures": (), "tables": ()}
    return dataclasses.replace(section, verdict=verdict, **quiet)


def test_hostile_texts_add_no_element(elements):
    calm = [_calm(section) for section in report_data.sections()]
    other = Elements()
    title = re.sub(r"[^ /]+", "word", report_data.HOSTILE[1])  # as many words: each of a title is kept whole
    other.feed(render_page(title, "subtitle", calm, explorer=report_data.explorer(), provenance={"note": "…"}))
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in other.found]
    words = "".join(elements.words)
    for text in (report_data.HOSTILE[0], report_data.HOSTILE[1], report_data.HOSTILE[4], "nothing ␀ and bell ␇ and ␡"):
        assert text in words


def test_only_its_own_scripts_may_run(elements):
    (policy,) = (found["content"] for _, found in elements.found if found.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    kinds = [found.get("type") for tag, found in elements.found if tag == "script"]
    assert len(kinds) == len(elements.scripts) == 12
    drawing = elements.scripts[kinds.index("text/plain")]
    unpacked = zlib.decompress(base64.b64decode(drawing), wbits=-zlib.MAX_WBITS)
    assert f"'sha256-{base64.b64encode(hashlib.sha256(unpacked).digest()).decode()}'" in policy
    for kind, script in zip(kinds, elements.scripts, strict=True):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert (f"'sha256-{digest}'" in policy) == (kind is None)


def test_the_data_is_what_went_in(elements):
    data = json.loads(elements.scripts[1])
    rows = data["sections"]["first"]["tables"][0]["rows"]
    assert [row[3] for row in rows] == [kept_text(text) for text in (*report_data.HOSTILE, report_data.HALF)]
    assert data["title"] == report_data.HOSTILE[1]
    assert list(data["sections"]) == ["first", "second", "third", "data"]


def test_tiles_and_the_overall_line(page, elements):
    tiles = [found for tag, found in elements.found if found.get("class", "").startswith("tile ")]
    assert [(tile["class"], tile["href"]) for tile in tiles] == [
        ("tile repair", "#first"),
        ("tile watch", "#second"),
        ("tile ok", "#third"),
    ]
    assert "1 to repair, 1 to watch, 1 ok" in page
    fine = ReportSection("a", "A", "Fine?", Verdict("ok", "Yes."))
    assert "all 1 answers are ok" in render_page("t", "s", [fine])
    chosen = render_page("t", "s", [fine], overall=Verdict("watch", "Look at the lengths."))
    assert "Look at the lengths." in chosen
    assert "Nothing to repair" not in chosen
    assert 'class="overall' not in render_page("t", "s", []).replace('class="overall watch">Figures', "")


def test_what_cannot_be_a_page_is_refused():
    for key in ("", "1a", "a b", 'a"onclick="', "Ü"):
        with pytest.raises(InputError, match="key: received"):
            ReportSection(key, "t", "q")
    for link in ("javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd"):
        with pytest.raises(InputError, match="link: received"):
            ReportSection("a", "t", "q", link=link)
    assert ReportSection("a", "t", "q", link="docs/socm.html#x").link
    with pytest.raises(InputError, match="two sections are named 'a'"):
        render_page("t", "s", [ReportSection("a", "t", "q"), ReportSection("a", "t", "q")])
    with pytest.raises(InputError, match="explorer: received the section 'first'"):
        render_page("t", "s", [ReportSection("a", "t", "q")], explorer=report_data.explorer())


def test_letters_stand_out_from_their_ground():
    """WCAG AA in light and in dark: 4.5 for every colour of letters on every ground it stands on."""
    css = page_style()
    palettes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.split(r"\n\s*color-scheme:", css)[:3]
    ]
    assert palettes[1] == palettes[2]  # the system's dark and the reader's are one
    for palette in palettes:
        for letters in ("ink", "muted", "accent", *LEVELS):
            grounds = ("card", "ground", "soft", f"{letters}-soft")
            for ground in (palette[name] for name in grounds if name in palette):
                light, dark = sorted((_luminance(palette[letters]), _luminance(ground)), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (letters, ground)


def _luminance(colour: str) -> float:
    parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_provenance_is_listed_flat_and_cut():
    nested = {"settings": {"a": 1, "b": [1, 2]}, "clouds": [{"name": "m", "long": "y" * 500}]}
    words = render_page("t", "s", [], provenance=nested)
    for row in (
        "<dt>settings · a</dt>",
        '<dd dir="auto">1, 2</dd>',
        "<dt>clouds 1 · name</dt>",
        f"{'y' * 300}… (500 characters)",
    ):
        assert row in words


def test_saving_is_atomic(tmp_path):
    path = tmp_path / "report.html"
    save_page("a page", path)
    assert path.read_text(encoding="utf-8") == "a page"
    with pytest.raises(UnicodeEncodeError):
        save_page(report_data.HALF, path)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == "a page"
