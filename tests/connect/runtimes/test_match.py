"""The causes engine: vectors made wrongly in a known way are explained by that way, and by no other as well."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from audit_data import sentences
from poolscope.connect.runtimes.asking import read_form
from poolscope.connect.runtimes.causes import POOLER, Reference
from poolscope.connect.runtimes.match import RuntimeMatch, match_runtime
from poolscope.encoders import as_encoder
from poolscope.encoders.base import EncoderOptions
from poolscope.numbers.pooling import pool
from tiny_models import DIMENSION, declare, save_model, write

TEXTS = [*sentences(14, low=2, high=30, seed=3), *sentences(4, low=60, high=90, seed=4), "the Cat\nsat on a mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = save_model(tmp_path_factory.mktemp("model"), max_position_embeddings=128)
    prompts = {"query": "query : the "}
    return declare(place, after=["Normalize"], bert={"max_seq_length": 64}, prompts=prompts)


@pytest.fixture(scope="module")
def model(folder):
    return as_encoder(folder)


@pytest.fixture(scope="module")
def clouds(model):
    return model.encode(TEXTS)[-1]


def best(model, vectors, **more) -> tuple[str, RuntimeMatch]:
    match = match_runtime(model, TEXTS, vectors, **more)
    return (match.best or match.own).name, match


def test_the_models_own_vectors_need_no_cause_and_nothing_is_encoded_anew(model, clouds):
    name, match = best(model, pool(clouds))
    assert name == "as declared"
    assert match.own.share == 1
    assert match.provenance["encoded_anew"] is None
    assert match.second.mean < match.own.mean


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"prompt": "query : the "}, "prompt 'query : the '"),
        ({"prompt": "title: none | text: "}, "prompt 'title: none | text: '"),
        ({"max_length": 32}, "cut at 32 tokens"),
        ({"max_length": 48}, "cut at 48 tokens"),
        ({"max_length": 23}, "cut at 23 tokens"),
        ({"max_length": 81}, "cut at 81 tokens"),
        ({"max_length": 128}, "cut at 128 tokens"),
    ],
)
def test_other_inputs_are_named(model, options, name):
    vectors = pool(model.with_options(EncoderOptions(**options)).encode(TEXTS)[-1])
    named, match = best(model, vectors)
    assert named == name
    assert match.best.mean == pytest.approx(1, abs=1e-6)
    assert match.second.mean < match.best.mean - 1e-6


def test_a_prompt_that_is_missing_is_named(model):
    prompted = model.with_options(EncoderOptions(prompt_name="query"))
    named, _ = best(prompted, pool(model.encode(TEXTS)[-1]))
    assert named == "no prompt"


def test_truncation_is_judged_by_the_texts_that_it_changes(model):
    _, match = best(model, pool(model.with_options(EncoderOptions(max_length=32)).encode(TEXTS)[-1]))
    changed = [k for k, text in enumerate(TEXTS) if len(text.split()) + 2 > 32]
    assert set(match.differ) <= set(changed)
    assert match.concerned < match.own.mean


def test_two_causes_at_once_are_named_where_no_single_one_explains(model):
    vectors = pool(model.with_options(EncoderOptions(prompt="query: ")).encode(TEXTS)[-1], "cls")
    named, match = best(model, vectors)
    assert named == "prompt 'query: ' and cls"
    assert match.best.explains


@pytest.mark.parametrize("layer", [0, 1])
def test_another_layer_is_named(model, layer):
    named, _ = best(model, pool(model.encode(TEXTS, layers=[layer])[layer]))
    assert named == f"layer {layer}"


def by_hand(model, rows, *, width=None, seen=True):
    """Means over all positions of lists of ids, padded to `width`; `seen`: padding is attended to."""
    network, vectors = model.attention[0], []
    for row in rows:
        padded = torch.full((1, width or len(row)), 1)
        padded[0, : len(row)] = torch.tensor(row)
        mask = torch.ones_like(padded)
        if not seen:
            mask[0, len(row) :] = 0
        with torch.inference_mode():
            vectors.append(network(padded, attention_mask=mask).last_hidden_state[0].mean(dim=0).numpy())
    return np.array(vectors)


@pytest.fixture(scope="module")
def rows(model):
    tokens = model.tokenize(TEXTS, 64)
    return [row.tolist() for row in np.split(tokens.ids, tokens.offsets[1:-1])]


@pytest.mark.parametrize("seen", [False, True])
def test_padding_that_is_counted_is_named(model, rows, seen):
    named, _ = best(model, by_hand(model, rows, width=64, seen=seen))
    assert named.startswith("padding counted")
    assert ("attended" in named) == seen


def test_padding_goes_by_the_batches_that_were_sent(model, rows):
    batches = [[0, 1, 2, 3], [4, 5, 6, 7, 8], list(range(9, len(TEXTS)))]
    vectors = np.empty((len(TEXTS), DIMENSION))
    for batch in batches:
        width = max(len(rows[k]) for k in batch)
        vectors[batch] = by_hand(model, [rows[k] for k in batch], width=width, seen=False)
    assert best(model, vectors, batches=batches)[0].startswith("padding counted")
    assert not match_runtime(model, TEXTS, vectors).others[0].explains


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda row: row[1:-1], "no special tokens"),
        (lambda row: [row[0], *row], "first token twice"),
        (lambda row: row[:-1], "last token missing"),
        (lambda row: [*row, row[-1]], "last token twice"),
    ],
)
def test_special_tokens_are_named(model, rows, change, name):
    assert best(model, by_hand(model, [change(row) for row in rows]))[0] == name


def test_letters_that_were_changed_are_named(model):
    vectors = pool(model.encode([text.lower() for text in TEXTS])[-1])
    assert best(model, vectors)[0] == "lower case"


def test_the_pooler_of_bert_is_named(model, clouds):
    network = model.attention[0]
    with torch.inference_mode():
        vectors = network.pooler(torch.from_numpy(pool(clouds, "cls")).float()[:, None]).numpy()
    assert best(model, vectors)[0] == POOLER


# -- what follows the pooling -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_dense(tmp_path_factory):
    """A model with a Dense layer behind its pooling, and its matrix."""
    place = declare(save_model(tmp_path_factory.mktemp("dense")), after=["Dense", "Normalize"])
    weights = torch.randn(6, DIMENSION, generator=torch.Generator().manual_seed(0))
    (place / "2_Dense").mkdir(exist_ok=True)
    save_file({"linear.weight": weights, "linear.bias": torch.ones(6)}, place / "2_Dense" / "model.safetensors")
    settings = {"in_features": DIMENSION, "out_features": 6, "activation_function": "torch.nn.modules.activation.Tanh"}
    write(place / "2_Dense" / "config.json", settings)
    return place, weights.numpy()


def test_a_dense_layer_is_applied_and_its_absence_named(with_dense):
    place, weights = with_dense
    model = as_encoder(place)
    pooled = pool(model.encode(TEXTS)[-1])
    name, match = best(model, np.tanh(pooled @ weights.T + 1))
    assert name == "as declared"
    assert match.whole
    # The pooled vectors have more dimensions than the model gives: another model, or the layer left out.
    assert match_runtime(model, TEXTS, pooled).best.name == "without Dense"


def test_a_dense_layer_agrees_with_sentence_transformers(with_dense):
    from sentence_transformers import SentenceTransformer

    place, _ = with_dense
    loaded = SentenceTransformer(str(place), device="cpu")
    vectors = loaded.encode(TEXTS)
    for model in (place, loaded):
        assert best(as_encoder(model), vectors)[0] == "as declared"


def test_a_dense_layer_without_weights_is_said_to_be_unknown(tmp_path):
    model = as_encoder(declare(save_model(tmp_path), after=["Dense"]))
    assert not match_runtime(model, TEXTS, pool(model.encode(TEXTS)[-1])).whole


# -- how vectors are stored -------------------------------------------------------------------------------------------


def test_signs_packed_or_not_are_read():
    vectors = np.random.default_rng(0).normal(size=(5, 16))
    for stored in (vectors > 0, np.where(vectors > 0, 1, -1), np.packbits(vectors > 0, axis=1)):
        form, table = read_form(np.asarray(stored, dtype=np.int64), 16)
        assert form.rounding == "binary"
        assert (table == np.where(vectors > 0, 1, -1)).all()
    signed = (np.packbits(vectors > 0, axis=1).astype(int) - 128).astype(np.int8)
    assert (read_form(signed, 16)[1] == np.where(vectors > 0, 1, -1)).all()


def test_eight_bits_are_no_difference_once_the_reference_is_rounded_alike(model, clouds):
    vectors = pool(clouds)
    step = np.abs(vectors).max(axis=1, keepdims=True) / 127
    for stored in (np.round(vectors / step), np.round(vectors / step) * step):
        name, match = best(model, stored)
        assert (name, match.form) == ("as declared", "rounded to 8 bits")
        assert match.own.mean == pytest.approx(1, abs=1e-9)
        assert match.plain < 1 - 1e-6


def test_one_grid_for_all_texts_is_recognised():
    vectors = np.random.default_rng(0).normal(size=(40, 64))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    form, _ = read_form(np.round(vectors * 100), 64)
    assert form.rounding == "int8"
    assert read_form(vectors, 64)[0].rounding == ""
    assert read_form(vectors.astype(np.float16), 64)[0].rounding == "float16"
    assert read_form(vectors.astype(np.float16).astype(np.float64), 64)[0].rounding == "float16"


def test_a_match_comes_back_from_its_file(model, clouds, tmp_path):
    match = match_runtime(model, TEXTS, pool(clouds, "cls"))
    match.save(tmp_path / "match.json")
    again = RuntimeMatch.load(tmp_path / "match.json")
    assert again.best == match.best
    assert again.rows() == match.rows()
    mixed = pool(clouds)
    mixed[::2] = pool(clouds, "cls")[::2]
    match = match_runtime(model, TEXTS, mixed)
    match.save(tmp_path / "match.json")
    assert RuntimeMatch.load(tmp_path / "match.json").rest.cause == match.rest.cause
    json.dumps(match.to_dict(), allow_nan=False)


def test_intervals_of_a_mixture_are_of_all_vectors_as_the_means_are(model, clouds):
    """The poolings are tried on the vectors that differ too, which must leave no trace in what is said of all."""
    mixed = pool(clouds)
    mixed[::2] = pool(clouds, "cls")[::2]
    cosines = [test.cosine for test in match_runtime(model, TEXTS, mixed).others]
    drawn = [cosine for cosine in cosines if cosine.interval is not None]
    assert drawn
    assert all(cosine.interval.low <= cosine.value <= cosine.interval.high for cosine in drawn)


def test_ready_clouds_say_what_could_not_be_tried(clouds):
    from poolscope.encoders.base import ArrayEncoder

    reference = Reference(ArrayEncoder(clouds), None, clouds=clouds)
    assert "prompt" in reference.untested()
    assert list(reference.readings()) == []
    assert match_runtime(ArrayEncoder(clouds), None, pool(clouds, "cls"), clouds=clouds).best.name == "cls"


# -- the search ends where no cause comes near ------------------------------------------------------------------------


def test_a_search_without_a_cause_costs_in_proportion_to_a_few_texts(model, monkeypatch):
    texts = sentences(60, low=4, high=30, seed=8)
    clouds, noise = model.encode(texts)[-1], np.random.default_rng(0).standard_normal((60, DIMENSION))
    encoded, told = [], []
    monkeypatch.setattr(Reference, "pooled", counted(Reference.pooled, encoded))
    match = match_runtime(model, texts, noise, clouds=clouds, progress=lambda count, tokens: told.append(count))
    assert match.cause is None
    assert match.provenance["encoded_anew"] == 8
    assert max(encoded[1:]) == 8  # the first are the clouds that are there
    assert len(told) > 20
    assert set(told) == {8}


def counted(pooled, sizes):
    def pooling(reference, clouds):
        sizes.append(len(clouds))
        return pooled(reference, clouds)

    return pooling


def test_rows_that_are_found_among_the_texts_are_not_read_in_other_ways(model, clouds):
    match = match_runtime(model, TEXTS, np.roll(pool(clouds), 2, axis=0), clouds=clouds)
    assert (match.order, match.by_row.order) == ("mean", "shifted by 2")
    assert match.provenance["encoded_anew"] is None


def test_a_cut_and_another_pooling_at_once_are_solved_for(model):
    vectors = pool(model.with_options(EncoderOptions(max_length=41)).encode(TEXTS)[-1], "cls")
    assert best(model, vectors)[0] == "cut at 41 tokens and cls"
