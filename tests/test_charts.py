"""Figures: what is drawn is what was measured, and files are whole, self-contained and well refused."""

from __future__ import annotations

import dataclasses
import re
import shutil

import numpy as np
import plotly.graph_objects as go
import pytest

import zoo
from poolscope import hubs
from poolscope.errors import InputError, MissingExtraError
from poolscope.lab.layers.measure import layers
from poolscope.lab.layers.result import (
    PANELS,
    PAPER,
    layers_figure,
    layers_sheet,
)
from poolscope.metrics.socm.pair import pair_figure, project_pair, shortened
from poolscope.show import charts
from poolscope.show.notebook import show_in_notebook
from tiny_models import TEXTS

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def bert():
    return layers(zoo.family("BERT"), TEXTS)


@pytest.fixture(scope="module")
def llama():
    return dataclasses.replace(layers(zoo.family("Llama"), TEXTS), model="someone/other-model")


def lines(figure):
    return [trace for trace in figure.data if trace.mode == "lines+markers"]


def test_four_panels_show_the_means_and_their_intervals(bert):
    figure = layers_figure(bert)
    drawn = lines(figure)
    assert len(drawn) == 4
    for trace, name in zip(drawn, ("lambda", "r", "C", "concentration_ratio"), strict=True):
        means = bert.means(name)
        np.testing.assert_array_equal(trace.y, means.mean)
        np.testing.assert_array_equal(trace.customdata, np.stack([means.low, means.high], axis=1))
        assert list(trace.x) == list(range(4 - len(means.mean), 4))  # layers from 1, states from 0
    titles = [note.text for note in figure.layout.annotations]
    assert titles == [PANELS[name].title for name in PAPER]
    assert sum(trace.showlegend for trace in drawn) == 1


def test_two_models_share_the_panels(bert, llama):
    figure = layers_figure(bert, llama)
    drawn = lines(figure)
    assert [trace.name for trace in drawn[:2]] == ["BertModel", "other-model"]
    assert len({trace.line.color for trace in drawn}) == 2
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "2", "3", "output"]


def test_models_that_end_alike_have_names_of_their_own(bert):
    named = [dataclasses.replace(bert, model=name) for name in ("a/base", "b/base", "a/base", "c/other")]
    drawn = lines(layers_figure(*named, panels=["lambda"]))
    assert [trace.name for trace in drawn] == ["a/base (1)", "b/base", "a/base (2)", "other"]
    assert len({trace.legendgroup for trace in drawn}) == 4


def test_every_value_is_inside_its_axis(bert, llama):
    figure = layers_sheet(bert, llama)
    for trace in figure.data:
        axis = figure.layout[f"yaxis{trace.yaxis[1:]}"]
        values = np.asarray(trace.y, dtype=float)
        values = values[np.isfinite(values)]
        low, high = (10.0**edge for edge in axis.range) if axis.type == "log" else axis.range
        assert (values >= low).all()
        assert (values <= high).all()


def test_the_other_panels(bert):
    assert [trace.y[0] for trace in lines(layers_figure(bert, panels=["cosine"]))] == [bert.means("cosine").mean[0]]
    (socm,) = lines(layers_figure(bert, panels=["socm"]))
    assert list(socm.y) == [state.mean for state in bert.socm]
    names = [trace.name for trace in lines(layers_figure(bert, panels=["sigma_a", "high_frequency"]))]
    drawn = ("layer", "attention branch", "bound of the branch", "published bound")
    assert names == ["BertModel", *(f"BertModel: {curve}" for curve in drawn)]
    assert len(layers_sheet(bert).layout.annotations) == 8
    without = dataclasses.replace(bert, socm=None)
    assert len(layers_sheet(without).layout.annotations) == 7
    with pytest.raises(InputError, match=r"panels \['nonsense'\]"):
        layers_figure(bert, panels=["nonsense"])
    with pytest.raises(InputError, match="0 results"):
        layers_figure()


def test_many_layers_have_readable_ticks(bert):
    many = dataclasses.replace(bert, states=tuple(map(str, range(41))))
    ticks = layers_figure(many, panels=["lambda"]).layout.xaxis.ticktext
    assert list(ticks) == [str(k) for k in range(0, 41, 4)]
    normed = dataclasses.replace(bert, states=(*map(str, range(19)), "output"))
    ticks = layers_figure(normed, panels=["lambda"]).layout.xaxis.ticktext
    assert list(ticks) == [*(str(k) for k in range(0, 18, 2)), "output"]


# -- two clouds ---------------------------------------------------------------------------------------------------


def test_the_plane_keeps_distances_of_flat_clouds():
    """Clouds that lie in a plane through the origin are shown as they are, but for a rotation and their unit means."""
    random = np.random.default_rng(0)
    axes = np.linalg.qr(random.standard_normal((9, 2)))[0].T
    X, Y = (random.standard_normal((n, 2)) @ np.diag([2, 0.3]) @ axes + axes[0] for n in (6, 8))
    pair = project_pair(X, Y)
    assert pair.kept == pytest.approx(1)
    for flat, cloud in ((pair.left, X), (pair.right, Y)):
        scaled = cloud / np.linalg.norm(cloud.mean(axis=0))
        np.testing.assert_allclose(flat.points @ flat.points.T, scaled @ scaled.T, atol=1e-12)
        assert np.linalg.norm(flat.mean) == pytest.approx(1)
        np.testing.assert_allclose(flat.covariance, np.cov(flat.points.T, bias=True), atol=1e-12)


def test_the_plane_keeps_most_without_centring():
    """No other plane through the origin holds more of the tokens: the two largest eigenvalues say so."""
    random = np.random.default_rng(3)
    X, Y = random.standard_normal((6, 5)) + 3, random.standard_normal((5, 5)) + np.array([3, 3, 3, 3, -3])
    pair = project_pair(X, Y)
    tokens = np.concatenate([cloud / np.linalg.norm(cloud.mean(axis=0)) for cloud in (X, Y)])
    largest = np.linalg.eigvalsh(tokens.T @ tokens)[-2:].sum()
    drawn = (pair.left.points**2).sum() + (pair.right.points**2).sum()
    assert drawn == pytest.approx(largest)
    assert pair.kept == pytest.approx(largest / (tokens**2).sum())


def test_the_plane_does_not_depend_on_rotation_or_sign():
    random = np.random.default_rng(1)
    X, Y = random.standard_normal((7, 5)) + 1, random.standard_normal((4, 5)) + np.array([0, 0, 1, 2, 0])
    rotation = np.linalg.qr(random.standard_normal((5, 5)))[0]
    plain, turned = project_pair(X, Y), project_pair(X @ rotation, Y @ rotation)
    np.testing.assert_allclose(plain.left.points, turned.left.points, atol=1e-10)
    np.testing.assert_allclose(plain.right.points, turned.right.points, atol=1e-10)
    assert (plain.left.mean + plain.right.mean > 0).all()


def test_ellipses_are_at_their_distance_from_the_mean():
    flat = project_pair(np.random.default_rng(2).standard_normal((9, 4)) + 1, np.ones((1, 4))).left
    outline = flat.ellipse(2.0) - flat.mean
    np.testing.assert_allclose(np.einsum("ki,ij,kj->k", outline, np.linalg.inv(flat.covariance), outline), 4)


def test_one_token_and_one_dimension_can_be_drawn():
    pair = project_pair([[2.0]], [[-1.0]])
    assert pair.left.points.shape == (1, 2)
    assert np.ptp(pair.left.ellipse(), axis=0).tolist() == [0, 0]
    assert pair.distances.mean_distance == pytest.approx(1)
    pair_figure(pair)


def test_the_pair_figure_says_what_it_shows():
    pair = project_pair([[1, 1], [1, -1]], [[1, 2], [1, -2], [1, 0]])
    figure = pair_figure(pair, names=["a <b>", "x" * 200], tokens=[["<s>", "one"], ["two", "three", "four"]])
    assert "SOCM 0." in figure.layout.title.text
    assert f"d<sub>Σ</sub> {pair.distances.covariance_distance:.3f}" in figure.layout.title.text
    points = [trace for trace in figure.data if trace.mode == "markers"]
    assert [len(trace.x) for trace in points] == [2, 3]
    assert points[0].name == "a &lt;b&gt;"
    assert len(points[1].name) == 90
    assert list(points[0].text) == ["&lt;s&gt;", "one"]
    assert figure.layout.yaxis.scaleanchor == "x"
    assert shortened("a\n\tb  c") == "a b c"


# -- files --------------------------------------------------------------------------------------------------------


def test_a_page_needs_nothing_else(bert, tmp_path):
    path = tmp_path / "figure.html"
    charts.save_figure(layers_figure(bert), path)
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)
    assert "Anatomy" in page


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="pictures need Chrome or Chromium")
def test_a_picture(tmp_path):
    pair = project_pair([[1, 1], [1, -1]], [[1, 2], [1, -2], [1, 0]])
    charts.save_figure(pair_figure(pair), tmp_path / "pair.png", scale=1)
    content = (tmp_path / "pair.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert (int.from_bytes(content[16:20]), int.from_bytes(content[20:24])) == (860, 760)


def test_endings_and_missing_browsers_are_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"'\.jpg'; allowed: \.html"):
        charts.save_figure(None, tmp_path / "figure.jpg")

    class NoBrowser:
        def to_image(self, **options):
            raise RuntimeError("Kaleido requires Google Chrome")

    old = tmp_path / "figure.png"
    old.write_bytes(b"old")
    with pytest.raises(MissingExtraError, match=r"apt install chromium.*BROWSER_PATH.*figure\.html"):
        charts.save_figure(NoBrowser(), old)
    assert old.read_bytes() == b"old"

    def missing(module, extra):
        raise MissingExtraError(f"{module} of {extra}")

    monkeypatch.setattr(charts, "require", missing)
    with pytest.raises(MissingExtraError, match="kaleido"):
        charts.save_figure(NoBrowser(), old)


# -- words of others ------------------------------------------------------------------------------------------------


def test_a_notebook_gets_the_table_and_then_the_figure_of_plotly(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    hubs([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.9]], k=1)._ipython_display_()
    view, figure = shown
    assert "<table" in view.data
    assert isinstance(figure, go.Figure)
    evil = go.Figure(go.Scatter(x=[1], y=[1], name='<a href="https://evil.example/">go</a>'))
    show_in_notebook("", evil)
    assert "<a" not in shown[-1].data[0].name
    show_in_notebook("alone", None)
    assert [part.data for part in shown[4:]] == ["alone"]


def test_names_of_others_are_no_markup_in_a_file_of_a_figure(tmp_path):
    evil = '<a href="https://evil.example/">go</a><img src=x onerror=alert(1)>\x1b]52;c;x\x07'
    marks = go.Scatter(
        x=[1, 2], y=[3.5, 4], name=evil, text=np.array([evil, "b"], dtype=object), hovertemplate="%{x}<br>"
    )
    figure = charts.style(go.Figure(marks), title=f"<b>own</b> {evil}", width=400, height=300)
    charts.save_figure(figure, tmp_path / "figure.html")
    page = (tmp_path / "figure.html").read_text(encoding="utf-8")
    words = page[page.rindex("Plotly.newPlot") :].replace("\\u003c", "<").replace("\\u003e", ">")
    assert "evil.example" in words
    assert re.findall(r"<(?:a|img)\b", words) == []
    assert "\\u001b" not in words
    assert "<b>own" in words
    assert "%{x}<br>" in words
    assert "3.5" in words or "bdata" in words
