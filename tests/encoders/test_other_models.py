"""Models that are no plain text models: refused, or taken, in our words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from poolscope import pool
from poolscope.encoders import as_encoder, encode
from poolscope.encoders.capabilities import EncoderSpec, options_of, with_options
from poolscope.errors import ModelError
from tiny_models import declare, save_model, tiny_model, tiny_tokenizer, write

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PICTURES = {**SMALL, "image_size": 32, "patch_size": 16}
WORDS = {**SMALL, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: transformers.ViTModel(transformers.ViTConfig(**PICTURES)), "ViTModel, which reads pixel_values"),
        (
            lambda: transformers.CLIPModel(transformers.CLIPConfig(text_config=WORDS, vision_config=PICTURES)),
            "CLIPModel, .*images",
        ),
        (
            lambda: transformers.SiglipModel(transformers.SiglipConfig(text_config=WORDS, vision_config=PICTURES)),
            "SiglipModel, .*images",
        ),
        (lambda: tiny_model().to("meta"), "BertModel .*in memory"),
    ],
)
def test_models_that_do_not_read_texts(make, message, tmp_path):
    model = make()
    with pytest.raises(ModelError, match=message):
        encode((model, tiny_tokenizer()), ["the cat"])


@pytest.mark.parametrize("with_its_model", [False, True])
def test_a_folder_of_an_adapter(tmp_path, with_its_model):
    """Beside its model it would be applied where peft is installed and dropped elsewhere."""
    if with_its_model:
        save_model(tmp_path)
    write(tmp_path / "adapter_config.json", {"peft_type": "LORA"})
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        as_encoder(tmp_path, trust_remote_code=True)


def loaded(tmp_path, **options):
    library = pytest.importorskip("sentence_transformers")
    folder = declare(save_model(tmp_path / "model"), pooling={"embedding_dimension": 16, "pooling_mode": "mean"})
    return library.SentenceTransformer(str(folder), device="cpu", **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_a_compiled_model_is_taken_as_it_was(tmp_path):
    model = loaded(tmp_path)
    assert encode(torch.compile(model), ["the cat"]).to_table().equals(encode(model, ["the cat"]).to_table())


def test_a_dimension_that_is_cut_is_said(tmp_path):
    with pytest.warns(UserWarning, match=r" 8 numbers \(truncate_dim\)"):
        as_encoder(loaded(tmp_path, truncate_dim=8))
    write(tmp_path / "model" / "config_sentence_transformers.json", {"truncate_dim": 8})
    with pytest.warns(UserWarning, match=r" 8 numbers \(truncate_dim\)"):
        as_encoder(tmp_path / "model")


@pytest.mark.parametrize("kind", ["ViT", "Siglip"])
def test_a_folder_of_a_model_of_images_without_a_tokenizer(tmp_path, kind):
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    images = {**size, "image_size": 16, "patch_size": 8}
    config = {"text_config": {**size, "vocab_size": 30}, "vision_config": images} if kind == "Siglip" else images
    made = getattr(transformers, f"{kind}Config")(**config)
    getattr(transformers, f"{kind}Model")(made).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"pixel_values|with images"):
        as_encoder(tmp_path)


def test_a_sparse_encoder(tmp_path):
    sparse = pytest.importorskip("sentence_transformers.sparse_encoder")
    folder = save_model(tmp_path / "model", "Bert")
    tiny = transformers.BertForMaskedLM(transformers.AutoConfig.from_pretrained(folder))
    tiny.save_pretrained(folder)
    model = sparse.SparseEncoder(str(folder), device="cpu")
    with pytest.raises(ModelError, match="SparseEncoder"):
        as_encoder(model)


def test_a_router_goes_by_its_role(tmp_path):
    """Each role has its own transformer, and the vectors are those that the library gives for that role."""
    st = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Router, Transformer

    def route(seed, mode):
        transformer = Transformer(str(save_model(tmp_path / f"route{seed}", seed=seed)))
        return [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=mode)]

    router = Router.for_query_document(route(0, "mean"), route(1, "cls"))
    model = st.SentenceTransformer(modules=[router], device="cpu")
    texts = ["the sea was calm", "a lamp near the harbour"]
    for role, pooling, own in (("query", "mean", model.encode_query), ("document", "cls", model.encode_document)):
        encoder = as_encoder(model, role=role)
        assert encoder.card.pooling == (pooling,)
        np.testing.assert_allclose(pool(encoder.encode(texts)[-1], pooling), own(texts), rtol=1e-4, atol=1e-6)
    with pytest.raises(ModelError, match="role; allowed: query, document"):
        as_encoder(model)
    model.save(str(tmp_path / "router"))
    for role in ("query", "document"):
        loaded, folder = (as_encoder(source, role=role) for source in (model, str(tmp_path / "router")))
        assert folder.card.pooling == loaded.card.pooling
        np.testing.assert_allclose(folder.encode(texts)[-1][1], loaded.encode(texts)[-1][1], rtol=1e-4, atol=1e-6)
        assert EncoderSpec.from_dict(folder.spec.to_dict()).open().card == folder.card
        for encoder in (loaded, folder):  # another role is another model, whoever asks for it
            there = with_options(encoder, options_of(encoder), role="document" if role == "query" else "query")
            assert there.card.revision != encoder.card.revision
            back = with_options(there, options_of(encoder), role=role)
            np.testing.assert_array_equal(back.encode(texts)[-1][1], encoder.encode(texts)[-1][1])
    with pytest.raises(ModelError, match="role; allowed: query, document"):
        as_encoder(str(tmp_path / "router"))


@pytest.mark.parametrize("part", ["../elsewhere", "/etc"])
def test_a_router_does_not_lead_out_of_its_folder(tmp_path, part):
    save_model(tmp_path / "elsewhere")
    write(tmp_path / "router" / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "a.Router"}])
    for structure in ({"query": [part]}, {"query": [], "document": [part]}, {"query": ["other"]}, [], None):
        kinds = {part: "sentence_transformers.models.Transformer"}
        write(tmp_path / "router" / "router_config.json", {"types": kinds, "structure": structure})
        with pytest.raises(ModelError, match=r"folder|router_config\.json"):
            as_encoder(str(tmp_path / "router"), role="query")


def test_a_route_that_is_a_static_table(tmp_path):
    st = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Router, StaticEmbedding, Transformer

    transformer = Transformer(str(save_model(tmp_path / "tiny")))
    table = StaticEmbedding(tiny_tokenizer().backend_tokenizer, embedding_dim=transformer.get_embedding_dimension())
    router = Router.for_query_document([table], [transformer, Pooling(transformer.get_embedding_dimension())])
    model = st.SentenceTransformer(modules=[router], device="cpu")
    model.save(str(tmp_path / "router"))
    query, document = (as_encoder(str(tmp_path / "router"), role=role) for role in ("query", "document"))
    assert (query.card.kind, document.card.kind) == ("static", "transformers")
    texts = ["the sea was calm", "a lamp near the harbour"]
    np.testing.assert_allclose(pool(query.encode(texts)[-1], "mean"), model.encode_query(texts), rtol=1e-4, atol=1e-6)
