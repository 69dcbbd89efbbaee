"""Real weights, as `make models` fetches them. Not part of `make test`; `make test-models` runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from poolscope import as_encoder, best_layer, context_likelihood, encode, layers, read_texts, socm, tempscale, windows
from poolscope.encoders.capabilities import word_table
from poolscope.encoders.gguf import models_folder
from poolscope.metrics.layers.sinks import sinks
from poolscope.repairs import AlignedValues, BothWays, Echo, EmbedFilter, ValuePooling

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("fetch_models", ROOT / "tools" / "models.py")
tool = importlib.util.module_from_spec(spec)
sys.modules["fetch_models"] = tool  # dataclasses look their module up
spec.loader.exec_module(tool)

pytestmark = pytest.mark.models
SENTENCES = [
    "The committee will meet again on Thursday to discuss the budget.",
    "The board is going to talk about the finances at its next meeting.",
    "Penguins cannot fly, but they swim faster than most fish.",
    "Water boils at a lower temperature on high mountains.",
]


def folder(name: str) -> Path:
    if not tool.is_here(name):
        pytest.skip(f"{name} is not in {models_folder()}; `make models` fetches it")
    return models_folder() / name


def cosines(model: Path, **options) -> np.ndarray:
    """Cosines of the mean vectors of the sentences."""
    means = np.stack([cloud.mean(axis=0) for cloud in encode(model, SENTENCES, **options)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return means @ means.T


def test_smollm2_is_read_from_its_file():
    place = folder("smollm2-135m-instruct")
    encoder = as_encoder(place)
    card = encoder.card
    assert (card.layers, card.dimension, card.positions, card.quantization) == (30, 576, 8192, "GGUF Q4_1")
    assert card.parameters == 134_515_008
    assert encoder.vocabulary.names(encoder.tokenize(["Hello world, the cat"], None).ids) == [
        "Hello", "Ġworld", ",", "Ġthe", "Ġcat",
    ]  # fmt: skip
    # The model puts no token before a text, and its first word piece becomes the sink of the middle layers.
    states = encoder.encode(SENTENCES, layers=[1, 15, -1])
    norms = {layer: [np.linalg.norm(cloud, axis=1) for cloud in clouds] for layer, clouds in states.items()}
    ratio = {layer: np.mean([row[0] / np.median(row[1:]) for row in rows]) for layer, rows in norms.items()}
    assert ratio[15] > 50
    assert ratio[1] < 3
    assert ratio[-1] < 3


@pytest.mark.parametrize(
    ("name", "space", "card"),
    [
        ("smollm2-135m-instruct", "Ġ", (30, 576, "GGUF Q4_1")),
        ("gemma-3-270m", "▁", (18, 640, "GGUF Q4_K_M")),
    ],
)
def test_a_decoder_predicts_what_follows(name, space, card):
    """Weights that had been read in a wrong order, or a token left out before a text, would give other words."""
    encoder = as_encoder(folder(name))
    assert (encoder.card.layers, encoder.card.dimension, encoder.card.quantization) == card
    first = encoder.vocabulary.names(encoder.tokenize(["The cat"], None).ids)
    assert first == [*(["<bos>"] if space == "▁" else []), "The", f"{space}cat"]
    table = word_table(encoder)  # tied: it scores the next word too
    for text, word in (("One, two, three, four, five, six,", "seven"), ("The opposite of hot is", "cold")):
        (cloud,) = encoder.encode([text])[-1]
        assert encoder.vocabulary.names([int((table @ cloud[-1]).argmax())]) == [f"{space}{word}"]


def test_gte_small_puts_like_meanings_together():
    near = cosines(folder("gte-small"))
    assert near[0, 1] > 0.88
    assert near[0, 1] > near[0, 2:].max() + 0.05


def test_gte_small_looks_alike_from_both_sides():
    """Its graph through onnxruntime, and the same weights in the class of transformers."""
    encoder = as_encoder(folder("gte-small"))
    graph = encoder.encode(SENTENCES)[-1]
    states = encoder.encode(SENTENCES, layers=[0, 6, 12])
    assert len(encoder.attention) == 1
    for one, other in zip(graph, states[12], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    with tempscale(encoder, 0.5):
        assert np.abs(encoder.encode(SENTENCES)[-1][0] - graph[0]).max() > 0.01


def test_m3e_small_loads_without_running_its_pickle():
    clouds = encode(folder("m3e-small"), ["今天天气很好。", "天气真不错。", "他在银行工作。"], allow_pickle=True)
    means = np.stack([cloud.mean(axis=0) for cloud in clouds])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    near = means @ means.T
    assert near[0, 1] > near[0, 2] + 0.1
    assert 0 <= socm(clouds).mean <= 1


def test_windows_of_smollm2_lose_less_than_chance_where_neighbours_share_something():
    """Input embeddings of neighbours have nothing in common, states of the output do; a sink decides the middle."""
    encoder = as_encoder(folder("smollm2-135m-instruct"), max_length=128)
    texts = [text for text in read_texts("builtin:docstrings").texts if 900 < len(text) < 3000][:6]
    states = encoder.encode(texts, layers=[0, 15, -1])
    first, middle, last = (windows(clouds, ratios=[4]) for clouds in states.values())
    assert first.at(4).lost.value == pytest.approx(first.at(4).lost.floor, abs=0.03)
    assert last.at(4).lost.interval.high < last.at(4).lost.floor - 0.1
    assert middle.first_share.value > 0.9
    assert middle.at(4).adaptive.value < 0.05


def test_smollm2_reads_a_context_better_than_means_of_it():
    texts = [text for text in read_texts("builtin:docstrings").texts if 900 < len(text) < 3000][:4]
    place = folder("smollm2-135m-instruct")
    result = context_likelihood(place, texts, ratios=[4], context=64, continuation=16)
    assert result.gain.value > 0.5
    assert result.ratios[0].kept.value < result.ratios[0].kept_truncated.value


@pytest.mark.parametrize(("name", "values"), [("smollm2-135m-instruct", 192), ("gemma-3-270m", 256)])
def test_readings_let_the_first_words_know_what_follows(name, values):
    encoder = as_encoder(folder(name))
    pair = ["The old bank was closed.", "The old bank of the river."]
    first = {"as it is": encoder.encode(pair)[-1]}
    for reading in (Echo(), BothWays(), ValuePooling()):
        assert reading.prepared(encoder) is reading
        first[reading.name] = reading.encode(encoder, pair, layers=[-1])[-1]
    ids = encoder.tokenize(pair[:1], None).ids
    assert first["echo"].token_ids(0).tolist() == [k for k in ids.tolist() if k not in encoder.vocabulary.special_ids]
    moved = {key: np.abs(one[0][0] - one[1][0]).max() / np.abs(one[0][0]).max() for key, one in first.items()}
    assert moved["as it is"] < 1e-4
    assert moved["value pooling"] < 1e-4  # values are of a token and what stands before it
    assert moved["echo"] > 0.05
    assert moved["bidirectional"] > 0.05
    assert first["value pooling"].dimension == values
    aligned = AlignedValues().encode(encoder, SENTENCES, layers=[-1])[-1]
    assert (aligned.lengths.tolist(), aligned.dimension) == ([1] * 4, encoder.card.dimension)
    assert EmbedFilter().prepared(encoder).basis_.shape[0] == encoder.card.dimension


def test_layers_names_the_sinks_of_smollm2_with_and_without_them():
    place = folder("smollm2-135m-instruct")
    result = layers(place, SENTENCES, socm_texts=4)
    rows = {row.state: row for row in sinks(result)}
    assert {"5", "15", "25"} <= set(rows)
    assert not {"0", "output"} & set(rows)
    row = rows["15"]
    assert row.times > 50
    assert row.ratio > 10 * row.ratio_without
    assert row.above_trace == 1
    assert row.above_trace_without == 0
    texts = [text[:160] for text in read_texts("builtin:docstrings", limit=12, seed=1).texts]
    best = best_layer(place, texts)
    assert len(best.scores) == 2 * 31
    assert best.difference.interval is None or not best.difference.proves_gain  # six queries prove nothing


def test_whisper_hears_what_changes():
    """Frames of a steady tone are alike, those of a sound that changes are not; silence behind a sound is left out."""
    place = models_folder() / "whisper-base"
    if not (place / "model.safetensors").is_file():
        pytest.skip("whisper-base is not here; `make models` fetches it")
    times = np.arange(32_000) / 16_000
    tone = 0.3 * np.sin(2 * np.pi * 440 * times).astype(np.float32)
    pitches = np.repeat([200.0, 400.0, 800.0, 600.0], len(times) // 4)
    steps = 0.3 * np.sin(2 * np.pi * np.cumsum(pitches) / 16_000).astype(np.float32)
    clouds = encode(place, audio=[tone, steps])
    assert clouds.lengths.tolist() == [100, 100]  # two seconds, of 50 frames each
    assert clouds.dimension == 512
    result = windows(clouds, ratios=[4])
    assert result.at(4).lost.value < result.at(4).lost.floor - 0.2
    assert result.at(4).adaptive.value < result.at(4).lost.value
