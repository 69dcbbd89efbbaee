"""Real weights, as `make models` fetches them. Not part of `make test`; `make test-models` runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from poolscope import (
    as_encoder,
    compare_scores,
    context_likelihood,
    encode,
    evaluate,
    read_texts,
    socm,
    split_half_task,
    tempscale,
    windows,
)
from poolscope.encoders.capabilities import word_table
from poolscope.encoders.gguf import models_folder
from poolscope.lab.papers.cell import Material
from poolscope.lab.papers.common import layer_means

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
WORDS = ["king", "man", "woman", "queen", "paris", "dog"]


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


@pytest.mark.parametrize(("name", "least"), [("smollm2-135m-instruct", 0.999), ("gemma-3-270m", 0.99)])
def test_a_gguf_file_gives_the_vectors_of_llama_cpp(name, least):
    """Mean-pooled, of the same file. They were made by llama.cpp in the wheel xllamacpp 2026.10.11549 (`embedding`,
    pooling type mean, one thread), which also rounds what goes into a product: so near and not equal."""
    stored = np.load(ROOT / "tests" / "data" / "llama_cpp_means.npz")[name]
    means = np.stack([cloud.mean(axis=0) for cloud in encode(folder(name), SENTENCES)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    near = means @ (stored / np.linalg.norm(stored, axis=1, keepdims=True)).T
    assert near.diagonal().min() > least
    assert (near.argmax(axis=1) == np.arange(len(SENTENCES))).all()


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


def test_gte_small_has_anatomy_and_trials():
    """What needs the weights and not the graph alone: layers, and a search with and without a temperature."""
    corpus = read_texts("builtin:manuals", limit=40)
    encoder = as_encoder(folder("gte-small"), max_length=64)
    last = layer_means(Material(encoder, corpus, {}, cache=False)).rows[-1]
    assert 0 < last["sigma_a"] < 5
    task = split_half_task(corpus)
    before = evaluate(encoder, task)
    assert before.value > 0.7
    with tempscale(encoder, 0.8):
        assert compare_scores(before, evaluate(encoder, task)).interval is not None


def test_glove_knows_words():
    near = cosines(folder("glove-6b-100d") / "glove.6B.100d.txt")
    assert near[0, 1] > near[0, 2]
    clouds = encode(folder("glove-6b-100d") / "glove.6B.100d.txt", WORDS)
    vectors = {word: cloud[0] for word, cloud in zip(WORDS, clouds, strict=True)}
    wanted = vectors["king"] - vectors["man"] + vectors["woman"]
    best = max(("queen", "paris", "dog"), key=lambda word: wanted @ vectors[word] / np.linalg.norm(vectors[word]))
    assert best == "queen"


def test_whisper_hears_only_what_is_there():
    """Converted from another form: its positions must be the sinusoids that Whisper has, and silence be left out."""
    place = folder("whisper-base")
    positions = load_file(place / "model.safetensors")["encoder.embed_positions.weight"]
    waves = np.arange(1500)[:, None] * np.exp(-np.log(10_000) / 255 * np.arange(256))
    np.testing.assert_allclose(positions, np.concatenate([np.sin(waves), np.cos(waves)], axis=1), atol=2e-3)
    seconds = np.arange(16_000) / 16_000
    low, high = (np.sin(2 * np.pi * pitch * seconds).astype(np.float32) for pitch in (220, 1760))
    clouds = encode(place, audio=[low, 0.5 * low, high])
    assert [len(cloud) for cloud in clouds] == [50, 50, 50]
    means = np.stack([cloud.mean(axis=0) for cloud in clouds])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert means[0] @ means[1] > means[0] @ means[2]
    assert 0 < socm(clouds).mean <= 1


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
    texts = [text for text in read_texts("builtin:docstrings").texts if 900 < len(text) < 3000][:12]
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
