"""Figures of the token statistics: what they show is what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from tests.token_data import WordEncoder, sentences

from poolscope.clouds import TokenClouds
from poolscope.errors import InputError
from poolscope.lab.tokens import result as charts_tokens
from poolscope.lab.tokens.measure import token_statistics
from poolscope.lab.tokens.result import tokens_figure

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def result():
    return token_statistics(WordEncoder(), sentences(), min_count=3)


@pytest.fixture(scope="module")
def other():
    return token_statistics(WordEncoder(), sentences(30, seed=1), layers=[0, 1], min_count=3)


def titles(figure):
    return [annotation.text for annotation in figure.layout.annotations]


def test_a_panel_a_layer_with_every_frequent_type_and_the_special_tokens_apart(result):
    figure = tokens_figure(result)
    assert titles(figure)[:3] == ["layer 0 (embeddings)", "layer 1", "layer 2"]
    points, line, special = figure.data[3:6]
    counted = result.coverage.counted
    np.testing.assert_array_equal(points.x, result[1].types.norms_of_means[:counted])
    np.testing.assert_array_equal(points.y, result[1].types.variances[:counted])
    np.testing.assert_allclose(points.marker.color, np.log10(result.types.counts[:counted]))
    assert points.text == result.types.names[:counted]
    np.testing.assert_allclose(np.add(line.x, line.y), result[1].types.mean_squares[:counted].mean())
    assert 0 <= min(line.y) < max(line.y) <= max(points.y) + 1e-9
    assert special.text == ("[CLS]",)


def test_the_layers_of_two_models_bear_their_names(result, other):
    of_layers = [title for title in titles(tokens_figure(result, other)) if title.startswith("words, layer")]
    assert of_layers == [f"words, layer {name}" for name in ("0 (embeddings)", "1", "2", "0 (embeddings)", "1")]


def of_types(count, layers):
    """Each type comes twice, in one text of its own."""
    random = np.random.default_rng(0)
    clouds = {
        layer: TokenClouds.from_arrays(
            random.normal(size=(count, 2, 4)) + 1, token_ids=np.repeat(np.arange(count), 2).reshape(-1, 2)
        )
        for layer in range(layers)
    }
    return token_statistics(clouds, min_count=2)


def test_deep_models_show_some_layers_the_first_and_the_last_among_them():
    figure = tokens_figure(of_types(6, layers=12))
    of_layers = [title for title in titles(figure) if title.startswith("layer")]
    assert len(of_layers) == 8
    assert of_layers[::7] == ["layer 0 (embeddings)", "layer 11"]
    assert "8 of 12 layers" in figure.layout.title.subtitle.text


def test_types_that_are_not_drawn_are_counted_below_the_title(result):
    whole = tokens_figure(result)
    assert whole.layout.title.subtitle.text is None
    many = of_types(1100, layers=1)
    figure = tokens_figure(many)
    assert len(figure.data[0].x) == 1000
    assert "1,000 most frequent of 1,100" in figure.layout.title.subtitle.text
    assert figure.layout.legend.y < whole.layout.legend.y
    np.testing.assert_allclose(np.add(figure.data[1].x, figure.data[1].y), many[0].types.mean_squares.mean())
    both = tokens_figure(many, many).layout.title.subtitle.text
    assert both.count("1,000 most frequent of 1,100") == 2
    assert both.count(" · ") == 1


def test_shares_add_up_to_one(result):
    figure = tokens_figure(result)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    np.testing.assert_allclose(np.sum([bar.y for bar in bars], axis=0), 1)
    assert list(bars[0].y) == [layer.corpus.shares[0] for layer in result.layers]
    of_shares = figure.data[3 * len(result.layers) :][:4]
    assert of_shares[3].y == tuple(layer.mean_cosine for layer in result.layers)
    for trace, name in zip(of_shares, ("mean_share", "within_share", "between_share", "mean_cosine"), strict=True):
        assert trace.y[1] + trace.error_y.array[1] == pytest.approx(result[1].intervals[name].high)
        assert trace.y[1] - trace.error_y.arrayminus[1] == pytest.approx(result[1].intervals[name].low)
    assert figure.layout.barmode == "stack"


def test_curves_carry_their_intervals(result, other):
    curve, *others = tokens_figure(result, other).data[-6:]
    assert list(curve.y) == [layer.variation.value for layer in result.layers]
    interval = result[1].variation.interval
    assert curve.y[1] + curve.error_y.array[1] == pytest.approx(interval.high)
    assert curve.y[1] - curve.error_y.arrayminus[1] == pytest.approx(interval.low)
    assert all(trace.type == "scatter" for trace in others)


def test_all_panels_on_one_sheet(result, other):
    assert [title for title in titles(tokens_figure(result)) if title][3:] == ["shares: words", *charts_tokens._CURVES]
    assert len(titles(tokens_figure(result, other))) == 3 + 2 + 2 + 3
    assert "words: 40 texts" in tokens_figure(result).layout.title.text


def test_statistics_without_frequent_types_can_be_drawn():
    rare = token_statistics(WordEncoder(), ["the cat sat"], min_count=99)
    figure = tokens_figure(rare)
    assert len(figure.data[0].x) == 0
    assert figure.data[-1].y == (None, None, None)


def test_nothing_to_draw_is_an_error():
    with pytest.raises(InputError, match="no results"):
        tokens_figure()
