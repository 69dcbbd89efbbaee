"""A repair as one file: what it holds, which model it is for, how it is applied, and what is refused."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from planted import common_direction, sound, topic_texts
from poolscope import as_encoder, encode
from poolscope.encoders.base import ModelCard
from poolscope.errors import InputError, ModelError, StoreError
from poolscope.numbers.pooling import SecondOrderPooling, pool
from poolscope.numbers.ranking import unit_rows
from poolscope.repairs.repair_file import Repair, RepairedModel, RepairOptionsWarning, probe_vector
from poolscope.repairs.temperature.rules import ByRole, Steps, YarnLike
from poolscope.repairs.temperature.tempscale import tempscale
from poolscope.repairs.tune import tune
from poolscope.repairs.vectors import MeanRemoval, read_arrays, write_arrays
from tiny_models import TEXTS, declare, save_model


def test_the_file_holds_the_whole_repair(tmp_path):
    recommended = tune(common_direction, topic_texts(120)).recommendation
    recommended.save(tmp_path / "repair.safetensors")
    again = Repair.load(tmp_path / "repair.safetensors")
    texts = topic_texts(5, seed=9)
    expected = recommended.apply(common_direction).encode(texts)
    np.testing.assert_array_equal(again.apply(common_direction).encode(texts), expected)
    assert again.evidence["verdict"]["level"] == "fix"
    assert again.model == "common_direction"
    (tmp_path / "other").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"other: .*safetensors"):
        Repair.load(tmp_path / "other")


@pytest.mark.parametrize(
    "temperature", [0.7, YarnLike(0.05), Steps((4, 9), (1.0, 0.8, 0.6)), ByRole(query=1.0, document=0.6)], ids=repr
)
def test_a_repaired_transformer(temperature, tmp_path):
    """Temperature, pooling and vectors, against the same steps by hand."""
    folder = declare(save_model(tmp_path / "model", "Bert"))
    encoder = as_encoder(folder)
    with tempscale(encoder, temperature, role="document"):
        clouds = encoder.encode(TEXTS)[-1]
    pooling = SecondOrderPooling(rank=3).fit(clouds)
    vectors = MeanRemoval().fit(pooling.transform(clouds))
    Repair(temperature, pooling, vectors).made_for(encoder, {}).save(tmp_path / "repair.safetensors")
    model = Repair.load(tmp_path / "repair.safetensors").apply(folder)
    np.testing.assert_allclose(model.encode_document(TEXTS), vectors.transform(pooling.transform(clouds)), atol=1e-6)
    plain = Repair().apply(folder).encode(TEXTS)
    np.testing.assert_allclose(plain, unit_rows(pool(encoder.encode(TEXTS)[-1]), "v"), atol=1e-6)


def test_a_repair_knows_its_model(tmp_path):
    first, second = (declare(save_model(tmp_path / str(seed), "Bert", seed=seed)) for seed in (0, 1))
    repair = Repair(0.8).made_for(as_encoder(first), {})
    assert repair.apply(first).encode(TEXTS).shape == (5, 16)
    with pytest.raises(InputError, match=re.escape(str(second))):
        repair.apply(second)


@pytest.mark.parametrize("asked", [{"prompt": "the red dog and the tree : "}, {"role": "query"}, {"max_length": 4}])
def test_a_repair_knows_its_model_whatever_it_is_asked_with(asked, tmp_path):
    folder = declare(save_model(tmp_path, "Bert"), prompts={"query": "query : a slow blue cat "})
    plain, other = as_encoder(folder), as_encoder(folder, **asked)
    np.testing.assert_allclose(probe_vector(other), probe_vector(plain), atol=1e-6)  # tiny models are much alike
    with pytest.warns(
        RepairOptionsWarning,
        match=f"for this .{'max_length' if 'max_length' in asked else 'prompt'}",
    ):
        assert Repair(0.8).made_for(plain, {}).apply(other).encode(TEXTS).shape == (5, 16)
    assert Repair(0.8).made_for(other, {}).apply(plain).encode(TEXTS).shape == (5, 16)


@pytest.mark.parametrize(
    "asked",
    [{"prompt": "the dog : "}, {"prompt_name": "query"}, {"role": "query"}, {"max_length": 4}, {"dtype": "float64"}],
    ids=repr,
)
def test_a_repair_is_applied_with_the_options_it_was_proved_with(asked, tmp_path):
    folder = declare(save_model(tmp_path / "model", "Bert"), prompts={"query": "query : a slow blue cat "})
    proved = as_encoder(folder, **asked)
    Repair(0.8).made_for(proved, {}).save(tmp_path / "r.safetensors")
    repair = Repair.load(tmp_path / "r.safetensors")
    assert repair.options == asked
    expected = Repair(0.8).apply(proved).encode(TEXTS)
    assert not np.array_equal(expected, Repair(0.8).apply(folder).encode(TEXTS))
    np.testing.assert_array_equal(repair.apply(folder).encode(TEXTS), expected)
    np.testing.assert_array_equal(repair.apply(folder, **asked).encode(TEXTS), expected)
    if "dtype" not in asked:  # which is fixed when a model is loaded
        np.testing.assert_array_equal(repair.apply(as_encoder(folder)).encode(TEXTS), expected)
    else:
        with pytest.warns(RepairOptionsWarning, match="dtype"):
            repair.apply(as_encoder(folder))
    other = {"max_length": 6} if "max_length" in asked else {"prompt": "cat "}
    if "dtype" not in asked:
        with pytest.warns(RepairOptionsWarning, match="these options"):
            found = repair.apply(folder, **other)
        np.testing.assert_array_equal(found.encode(TEXTS), Repair(0.8).apply(folder, **other).encode(TEXTS))


def test_tune_writes_its_options_into_the_repair():
    texts = topic_texts(120)
    result = tune(common_direction, texts, poolings=[], repairs=["mean removal"], reranked=0)
    assert result.recommendation.options == {}
    assert result.outcome == "repair"
    assert result.to_dict()["provenance"]["settings"]["limit"] == 1000


def test_a_repair_knows_its_table_of_words_whatever_the_prompt(tmp_path):
    (tmp_path / "words.txt").write_text("probe 1 0 0\nmodel 0 1 0\nquery 0 0 9\n", encoding="utf-8")
    plain, other = (as_encoder(tmp_path / "words.txt", **asked) for asked in ({}, {"prompt": "query "}))
    made = Repair(pooling="max").made_for(plain, {})
    assert made.probe is not None
    with pytest.warns(RepairOptionsWarning, match="prompt"):
        assert made.apply(other).encode(["model"]).argmax() == 2  # the prompt is still that of the texts
    assert made.apply(plain).encode(["model"]).argmax() == 1
    assert Repair(pooling="max").made_for(other, {}).apply(plain).encode(["model"]).argmax() == 2


def test_a_changed_model_of_the_same_name_points_to_the_options(tmp_path):
    encoder = as_encoder(declare(save_model(tmp_path, "Bert")))
    made = Repair(0.8).made_for(encoder, {})
    changed = dataclasses.replace(made, probe=-made.probe)
    with pytest.raises(InputError, match="names agree"):
        changed.apply(encoder)


def test_prompts_of_roles(tmp_path):
    folder = declare(save_model(tmp_path, "Bert"), prompts={"query": "query : ", "document": "passage : "})
    model = Repair().apply(folder)
    for role in ("query", "document"):
        expected = unit_rows(pool(encode(folder, TEXTS, role=role)), "v")
        np.testing.assert_allclose(model.encode(TEXTS, role=role), expected, atol=1e-6)
    own = Repair().apply(folder, prompt="of : ")
    np.testing.assert_array_equal(
        own.encode_query(TEXTS), own.encode(TEXTS)
    )  # the caller's prompt goes before the role's


def test_texts_go_through_in_pieces(tmp_path, monkeypatch):
    folder = declare(save_model(tmp_path, "Bert"))
    whole = Repair(0.7).apply(folder).encode(TEXTS)
    monkeypatch.setattr(RepairedModel, "piece", 2)
    pieces = []
    found = Repair(0.7).apply(folder).encode(TEXTS, progress=lambda texts, tokens: pieces.append(texts))
    np.testing.assert_allclose(found, whole, atol=1e-6)
    assert sum(pieces) == len(TEXTS)
    assert max(pieces) <= 2
    ready = encode(folder, TEXTS)
    np.testing.assert_allclose(Repair().apply(ready).encode(TEXTS), unit_rows(pool(ready), "v"), atol=1e-6)


def test_last2avg_of_a_model(tmp_path):
    folder = declare(save_model(tmp_path, "Bert"))
    layers = encode(folder, TEXTS, layers=[1, 2])
    expected = unit_rows((pool(layers[1]) + pool(layers[2])) / 2, "v")
    np.testing.assert_allclose(Repair(pooling="last2avg").apply(folder).encode(TEXTS), expected, atol=1e-6)


def test_one_text_and_batches_of_a_size(tmp_path):
    model = Repair().apply(declare(save_model(tmp_path, "Bert")))
    vectors = model.encode(TEXTS)
    for alone in (model.encode(TEXTS[0]), model.encode_query(TEXTS[0]), model.encode_document(TEXTS[0], batch_size=2)):
        assert alone.shape == (16,)
        np.testing.assert_allclose(alone, vectors[0], atol=1e-6)
    seen = []
    found = model.encode(TEXTS, batch_size=1, progress=lambda texts, _: seen.append(texts))
    np.testing.assert_allclose(found, vectors, atol=1e-6)
    assert len(seen) > 1
    assert model.encoder.options.batch_tokens is None
    with pytest.raises(InputError, match="batch_size: received 0"):
        model.encode(TEXTS, batch_size=0)
    with pytest.raises(InputError, match=r"RepairedModel\("):
        Repair().apply(model)


def test_damaged_files_and_unfitted_repairs_are_refused(tmp_path):
    path = tmp_path / "r.safetensors"
    for unfitted, name in ((Repair(vectors=MeanRemoval()), "MeanRemoval"), (Repair(pooling="sif"), "SifPooling")):
        with pytest.raises(InputError, match=rf"{name}.* not fitted"):
            unfitted.save(path)
    content = {"temperature": None, "pooling": None, "vectors": None, "model": None, "revision": None, "evidence": {}}
    whole = {"kind": "repair", **content}
    write_arrays(path, whole, {})
    assert Repair.load(path).options == {}  # as files without options were written
    for damage in (
        {"pooling": {"name": "mean"}},
        {"pooling": 5},
        {"temperature": {"kind": "warm"}},
        {"temperature": [1]},
        {"vectors": {"name": "mean removal", "parameters": {"mood": 1}}},
        {"vectors": {"name": "mean removal", "parameters": {}}},
        {"evidence": 3},
    ):
        write_arrays(path, {**whole, **damage}, {})
        with pytest.raises(StoreError):
            Repair.load(path)
    write_arrays(path, {key: value for key, value in whole.items() if key != "model"}, {})
    with pytest.raises(StoreError, match=r"r\.safetensors: .*'model'"):
        Repair.load(path)


def test_labels():
    assert repr(Repair()) == "Repair(as it is)"
    assert Repair(1.0).label == "as it is"
    assert Repair(YarnLike(0.1), "cls").label == "τ by yarn {'rate': 0.1} · cls"
    assert repr(Repair().apply(sound)) == "RepairedModel(sound: as it is)"
    assert Repair().apply(sound).card == ModelCard(name="sound", kind="function", dimension=0)


@pytest.mark.parametrize(
    "name", ["vectors.transform", "vectors.name", "vectors._secret_", "vectors.__class__", "vectors.fit_"]
)
def test_arrays_of_a_file_take_no_other_place(tmp_path, name):
    vectors = np.random.default_rng(0).standard_normal((20, 4))
    path = tmp_path / "repair.safetensors"
    Repair(vectors=MeanRemoval().fit(vectors)).save(path)
    content, arrays = read_arrays(path, "repair")
    write_arrays(path, content, {**arrays, name: np.array([True]) if name.endswith("fit_") else np.eye(2)})
    with pytest.raises(StoreError, match=f"array '{name.removeprefix('vectors.')}'"):
        Repair.load(path)


def test_a_table_without_the_words_of_the_probe_has_no_repair(tmp_path):
    table = tmp_path / "words.vec"
    table.write_text("kot 1 0\npies 0 1\n", encoding="utf-8")
    repair = Repair(vectors=MeanRemoval().fit(np.random.default_rng(0).standard_normal((20, 2))))
    with pytest.raises(ModelError, match=r"words\.vec: "):
        repair.made_for(as_encoder(table), {})
