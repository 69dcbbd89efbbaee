"""Repaired models inside sentence-transformers: the same vectors, saved and loaded, without code where possible."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from poolscope import as_encoder
from poolscope.errors import InputError, ModelError
from poolscope.numbers.pooling import SecondOrderPooling, SifPooling, SpreadPooling
from poolscope.repairs.repair_file import Repair, RepairOptionsWarning
from poolscope.repairs.temperature.rules import YarnLike
from poolscope.repairs.vectors import AllButTheTop, MeanRemoval, Standardisation, Whitening
from tiny_models import TEXTS, declare, save_model

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer

from poolscope.connect.integrations.sentence_transformers_module import (
    RepairModule,
    needs_code,
    repaired_sentence_transformer,
)

MORE = [*TEXTS, "the blue cat ran", "a slow red tree", "dog and cat and tree", "under the mat", "the fast blue dog sat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"), after=["Normalize"])


@pytest.fixture(scope="module")
def model(folder):
    return SentenceTransformer(str(folder))


def vector_repair(folder, repair):
    return repair.fit(Repair().apply(str(folder)).encode(MORE))


NATIVE = {
    "mean removal": lambda folder: Repair(vectors=vector_repair(folder, MeanRemoval())),
    "subtract": lambda folder: Repair(vectors=vector_repair(folder, MeanRemoval("subtract"))),
    "all but the top": lambda folder: Repair(vectors=vector_repair(folder, AllButTheTop(2))),
    "standardisation": lambda folder: Repair(vectors=vector_repair(folder, Standardisation())),
    "whitening": lambda folder: Repair(vectors=vector_repair(folder, Whitening(3, accept_risk=True))),
    "temperature": lambda folder: Repair(0.6),
    "cls": lambda folder: Repair(pooling="cls"),
    "last": lambda folder: Repair(pooling="last"),
    "max": lambda folder: Repair(pooling="max"),
    "position": lambda folder: Repair(pooling="position"),
    "last2avg": lambda folder: Repair(pooling="last2avg"),
    "all": lambda folder: Repair(0.6, "position", vector_repair(folder, MeanRemoval())),
}


@pytest.mark.parametrize("name", NATIVE)
def test_repairs_in_the_librarys_own_modules(name, folder, model, tmp_path):
    repair = NATIVE[name](folder)
    expected = repair.apply(str(folder)).encode(MORE)
    before = model.encode(MORE)
    found = repaired_sentence_transformer(model, repair)
    np.testing.assert_allclose(found.encode(MORE), expected, atol=3e-6)
    np.testing.assert_array_equal(model.encode(MORE), before)  # the model itself is left alone
    assert not needs_code(found)
    found.save_pretrained(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"))  # no trust_remote_code, no poolscope
    np.testing.assert_allclose(again.encode(MORE), expected, atol=3e-6)
    types = [module["type"] for module in json.loads((tmp_path / "saved" / "modules.json").read_text())]
    assert all(kind.startswith("sentence_transformers.") for kind in types)
    assert again.get_embedding_dimension() == expected.shape[1]


def fitted(folder, pooling):
    clouds = as_encoder(str(folder)).encode(MORE)[-1]
    pooling.fit(clouds)
    return Repair(pooling=pooling, vectors=MeanRemoval().fit(pooling.transform(clouds)))


@pytest.mark.parametrize(
    "pooling", [SifPooling(a=0.1), SpreadPooling(0.5), SecondOrderPooling(rank=3)], ids=lambda pooling: pooling.name
)
def test_repairs_in_a_module_of_poolscope(pooling, folder, model, tmp_path):
    repair = fitted(folder, pooling)
    expected = repair.apply(str(folder)).encode(MORE)
    found = repaired_sentence_transformer(model, repair)
    assert isinstance(found[1], RepairModule)
    assert needs_code(found)
    np.testing.assert_allclose(found.encode(MORE, batch_size=4), expected, atol=3e-6)
    assert found.get_embedding_dimension() == expected.shape[1]
    found.save_pretrained(str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    np.testing.assert_array_equal(again.encode(MORE), found.encode(MORE))


def test_another_process_encodes_as_this_one_does(folder, model):
    """A rule of the length and a pooling of poolscope reach the processes of sentence-transformers."""
    clouds = as_encoder(str(folder)).encode(MORE)[-1]
    repair = Repair(YarnLike(0.2), SpreadPooling(0.5).fit(clouds))
    found = repaired_sentence_transformer(model, repair)
    pool = found.start_multi_process_pool(["cpu"])
    try:
        elsewhere = found.encode(MORE, pool=pool, chunk_size=4)
    finally:
        found.stop_multi_process_pool(pool)
    np.testing.assert_allclose(elsewhere, repair.apply(str(folder)).encode(MORE), atol=3e-6)


def test_a_rule_of_the_length_is_kept_beside_the_repair(folder, model, tmp_path):
    repair = Repair(YarnLike(0.2), vectors=vector_repair(folder, MeanRemoval()))
    expected = repair.apply(str(folder)).encode(MORE)
    found = repaired_sentence_transformer(model, repair)
    np.testing.assert_allclose(found.encode(MORE), expected, atol=3e-6)
    assert needs_code(found)
    found.save_pretrained(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    np.testing.assert_allclose(again.encode(MORE), expected, atol=3e-6)


def test_prompts_that_are_left_out_of_the_pooling(tmp_path):
    prompts = {"query": "query : ", "document": "passage of a document : "}
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    folder = declare(save_model(tmp_path / "model", "Bert"), pooling=pooling, prompts=prompts)
    model = SentenceTransformer(str(folder))
    for repair in (fitted(folder, SifPooling(a=0.1)), Repair(pooling="position"), Repair(pooling="cls")):
        found = repaired_sentence_transformer(model, repair)
        expected = repair.apply(str(folder)).encode_query(MORE)
        np.testing.assert_allclose(found.encode_query(MORE), expected, atol=3e-6)


def test_dimension_length_and_prompt_go_along(folder, tmp_path):
    """`truncate_dim` is the model's; what the repair was proved with is the repair's."""
    model = SentenceTransformer(str(folder), truncate_dim=5)
    proved = as_encoder(str(folder), max_length=9, prompt="the red cat : ")
    repair = Repair(0.6).made_for(proved, {})
    with pytest.warns(UserWarning, match="truncate_dim"):  # poolscope itself looks at whole vectors
        found = repaired_sentence_transformer(model, repair)
    assert found.truncate_dim == 5
    expected = Repair(0.6).apply(proved).encode(MORE)
    np.testing.assert_allclose(found.encode(MORE), expected[:, :5], atol=3e-6)
    found.save_pretrained(str(tmp_path / "saved"))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "saved")).encode(MORE), expected[:, :5], atol=3e-6)
    assert model.max_seq_length != 9


@pytest.mark.parametrize("pooling", ["mean", "sif"])
@pytest.mark.parametrize("chosen", [{"role": "query"}, {"prompt_name": "query"}, {"prompt": "blue : "}, {}], ids=repr)
def test_the_prompt_of_the_repair_is_that_of_every_role(chosen, pooling, folder, tmp_path):
    prompts = {"query": "the red cat : ", "document": "a slow dog and a tree : "}
    model = SentenceTransformer(str(folder), prompts=prompts)
    made = Repair(pooling=pooling) if pooling == "mean" else fitted(folder, SifPooling(a=0.1))
    repair = made.made_for(as_encoder(model, **chosen), {})
    expected, found = repair.apply(model), repaired_sentence_transformer(model, repair)
    found.save_pretrained(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    for method in ("encode", "encode_query", "encode_document"):
        vectors = getattr(expected, method)(MORE)
        np.testing.assert_allclose(getattr(found, method)(MORE), vectors, atol=3e-6)
        np.testing.assert_allclose(getattr(again, method)(MORE), vectors, atol=3e-6)
    assert np.allclose(expected.encode_query(MORE), expected.encode_document(MORE), atol=1e-4) == bool(chosen)
    assert model.prompts == prompts


@pytest.mark.parametrize("chosen", [{}, {"max_length": 9}], ids=repr)
def test_another_precision_than_that_of_the_proof_is_said(chosen, folder, tmp_path, recwarn):
    Repair(0.6).made_for(as_encoder(str(folder), **chosen), {}).save(tmp_path / "r.safetensors")
    repair = Repair.load(tmp_path / "r.safetensors")
    assert (repair.dtype, repair.options) == ("float32", chosen)  # no option that is applied again
    repair.apply(str(folder))
    half = SentenceTransformer(str(folder)).bfloat16()
    for model, options in ((str(folder), {"dtype": "float64"}), (half, {})):
        with pytest.warns(RepairOptionsWarning, match=r"\(dtype\).* float32"):
            repair.apply(model, **options)
    before = dataclasses.replace(repair, dtype=None)  # as files of before are loaded
    before.apply(str(folder), dtype="float64")
    assert not [one for one in recwarn if issubclass(one.category, RepairOptionsWarning)]


def test_weights_behind_the_pooling_are_counted(model, tmp_path):
    from sentence_transformers.base.modules import Dense

    plain = as_encoder(model).card.parameters
    longer = SentenceTransformer(modules=[*model, Dense(16, 4)])
    longer.save_pretrained(str(tmp_path / "dense"))
    assert (
        as_encoder(longer).card.parameters == as_encoder(str(tmp_path / "dense")).card.parameters == plain + 16 * 4 + 4
    )


def test_the_model_card_names_the_repair(folder, model, tmp_path):
    repair = dataclasses.replace(Repair(0.6, "position"), model="us/original")
    repaired_sentence_transformer(model, repair).save_pretrained(str(tmp_path))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    (title,) = (line for line in card.splitlines() if line.startswith("# us/original, "))
    assert title.endswith(f": {repair.label}")


def test_models_of_other_shapes_are_refused(folder, model):
    from sentence_transformers.base.modules import Dense

    longer = SentenceTransformer(modules=[*model, Dense(16, 4)])
    with pytest.raises(ModelError, match="Transformer, Pooling, Normalize, Dense"):
        repaired_sentence_transformer(longer, Repair())
    module = repaired_sentence_transformer(model, fitted(folder, SifPooling()))[1]
    import torch

    features = {"token_embeddings": torch.ones(1, 2, 16), "attention_mask": torch.ones(1, 2)}
    with pytest.raises(InputError, match="token ids"):
        module(features)
