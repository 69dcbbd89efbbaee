"""Drawings, against what the papers say of theirs: axes, series, panels, order and shades."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.lab.papers.catalogue import PAPERS

ENTRIES = {(name, entry.key): entry for name, paper in PAPERS.items() for entry in paper.entries}
MODELS = ("ANCE", "BGE")


def drawn(paper, key, rows):
    return ENTRIES[paper, key].draw(rows)


def titles(figure):
    return [note.text for note in figure.layout.annotations]


@pytest.mark.parametrize("where", ENTRIES, ids="/".join)
def test_no_rows_make_no_drawing(where):
    draw = ENTRIES[where].draw
    if draw is not None and where != ("socm", "figure-17"):
        assert draw([{"model": "BERT", "data": "wiki"}]) is None


def test_high_frequencies_and_their_bound_share_a_panel_a_model():
    rows = [
        {"model": model, "layer": layer, "high_frequency": -0.1 * layer, "high_frequency_published": 1.0}
        for model in MODELS
        for layer in (1, 2)
    ]
    figure = drawn("length-collapse", "figure-8", rows)
    assert titles(figure)[:2] == list(MODELS)
    assert [(trace.name[:3], list(trace.x), trace.xaxis) for trace in figure.data] == [
        ("log", [1, 2], "x"),
        ("its", [1, 2], "x"),
        ("log", [1, 2], "x2"),
        ("its", [1, 2], "x2"),
    ]
    assert figure.data[0].line.color != figure.data[1].line.color


def test_entropy_and_accuracy_before_and_after_stand_side_by_side():
    rows = [
        {"model": model, "bin": place, "tau": tau, "entropy": 0.1, "accuracy": 0.9}
        for model in MODELS
        for tau in (1.0, 0.8)
        for place in ("100–200", "0–100")
    ]
    figure = drawn("length-collapse", "figure-10", rows)
    assert titles(figure) == ["entropy (bits)", "accuracy"]
    names = [trace.name for trace in figure.data if trace.xaxis == "x"]
    assert names == [f"{place} tokens, τ = {tau}" for place in ("0–100", "100–200") for tau in ("1", "0.8")]
    assert {tuple(trace.y) for trace in figure.data if trace.xaxis == "x2"} == {(0.9, 0.9)}


def test_a_darker_cell_is_more_and_the_first_token_is_on_top():
    rows = [{"tau": "τ = 1", "row": i, "column": j, "weight": i + j} for i in range(3) for j in range(3)]
    figure = drawn("length-collapse", "figure-6", rows)
    first, *_, last = figure.layout.coloraxis.colorscale
    shade = [sum(int(part) for part in colour[1][4:-1].split(",")) for colour in (first, last)]
    assert shade[0] > shade[1]
    assert figure.layout.yaxis.autorange == "reversed"


def test_a_mean_has_the_colour_of_its_text():
    rows = [
        {"model": "m", "x": 0, "y": 0, "of": f"text {number}{end}", "text_number": number, "size": 5}
        for number in (1, 2)
        for end in ("", " mean")
    ]
    colours = {trace.name: trace.marker.color for trace in drawn("socm", "figure-1", rows).data}
    assert colours["text 1"] == colours["text 1 mean"] != colours["text 2"] == colours["text 2 mean"]


def test_versions_of_one_model_say_their_length_and_distance():
    rows = [{"model": "BGE", "version": "whole", "length": 211.6, "distance_to_origin": 3.14159}]
    rows += [{"model": "BGE", "version": "whole", "x": 1.0, "y": 2.0}]
    (trace,) = drawn("length-collapse", "figure-1b", rows).data
    assert trace.name == "whole, L = 212, D = 3.14"


def test_a_long_legend_leaves_the_panels_their_height():
    def height(count):
        rows = [{"model": f"a model of a long name, number {k}", "times": 1, "cosine": 0.5} for k in range(count)]
        layout = drawn("length-collapse", "figure-11", rows).layout
        return layout.height - layout.margin.t

    assert height(12) == height(1)


def test_losses_and_gains_are_told_by_colour_and_no_change_is_white():
    """Figure 13 draws relative performance: around 0, in two colours; shares go from light to dark."""
    rows = [
        {"model": "BGE", "query_tau": q, "document_tau": d, "relative": q - d} for q in (0.5, 1.0) for d in (0.5, 1.0)
    ]
    scale = drawn("length-collapse", "figure-13", rows).layout.coloraxis
    assert scale.cmid == 0
    assert drawn("socm", "figure-3", [{"d_mu": 0, "d_sigma": 1, "socm": 1.0}]).layout.coloraxis.cmid is None


def test_rows_of_planes_leave_room_for_names_and_axis_titles():
    """Figure 17 has twelve models: the name of a panel stands below the axis title of the panel above it."""
    from poolscope.metrics.socm.plane import Plane, plane_figure

    plane = Plane.of(np.random.default_rng(0).random((20, 3)), most=20)
    figure = plane_figure({f"model {k}": plane for k in range(6)}, title="")
    down = sorted({tuple(axis.domain) for axis in figure.select_yaxes()}, reverse=True)
    assert len(down) == 4  # of each of two rows the histogram and the plane
    room = (down[1][0] - down[2][1]) * (figure.layout.height - figure.layout.margin.t - figure.layout.margin.b)
    assert room > 70  # pixels: tick labels, a title, a name
    assert [name for name in titles(figure) if name] == [f"model {k}" for k in range(6)]
