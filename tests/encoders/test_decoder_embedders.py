"""Decoder embedders as they are declared: each pooling against the vectors of sentence-transformers itself."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from poolscope import tune
from poolscope.encoders import as_encoder
from poolscope.encoders.pooling import TextPooling
from poolscope.encoders.transformers import OwnCodeWarning
from poolscope.errors import InputError, ModelError
from poolscope.evaluation.run import PooledModel
from poolscope.repairs import Repair
from tiny_models import TEXTS, WORDS, declare, save_model, tiny_model, tiny_tokenizer, write

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

INSTRUCTION = "query : the document of a "
# What the families declare: the class, the pooling, where special tokens stand, the side of the padding.
DECLARED = {
    "Qwen3-Embedding": ("Qwen3", "lasttoken", "$A </s>", "left"),
    "e5-mistral": ("Mistral", "lasttoken", "<s> $A </s>", "left"),
    "LLM2Vec, as sentence-transformers have it": ("Llama", "mean", "<s> $A", "left"),
    "EmbeddingGemma": ("Gemma3Text", "mean", "<s> $A </s>", "left"),
    "SGPT": ("GPT2", "weightedmean", "$A", "right"),
    "last, padded on the right": ("Llama", "lasttoken", "<s> $A </s>", "right"),
}
SIZES = {
    "Mistral": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
                "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 24, "sliding_window": None},
    # Tokens see later ones, in one layer those of a window.
    "Gemma3Text": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
                   "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 24, "sliding_window": 8,
                   "use_bidirectional_attention": True, "layer_types": ["sliding_attention", "full_attention"]},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24},
}  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("role", ["query", "document"])
def test_vectors_are_those_of_the_library(name, role, tmp_path):
    architecture, mode, template, side = DECLARED[name]
    tokenizer = tiny_tokenizer(template=template, padding_side=side)
    save_model(tmp_path, architecture, tokenizer=tokenizer, **SIZES.get(architecture, {}))
    declare(tmp_path, pooling={"pooling_mode": mode}, after=["Normalize"], prompts={"query": INSTRUCTION})
    model = SentenceTransformer(str(tmp_path))
    encode = model.encode_query if role == "query" else model.encode_document
    expected = encode(TEXTS, batch_size=len(TEXTS))
    for source in (tmp_path, model):
        encoder = as_encoder(source, role=role)
        assert encoder.card.pooling == (mode,)
        pooling = TextPooling(encoder.card)
        assert pooling.own
        vectors = pooling.pool(encoder.encode(TEXTS)[-1])
        np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-5)


def test_a_model_with_code_of_its_own_is_refused_by_name(tmp_path):
    """Code that a folder brings is not run."""
    save_model(tmp_path, "Llama")
    config = {"model_type": "own", "architectures": ["OwnModel"]}
    write(tmp_path / "config.json", {**config, "auto_map": {"AutoModel": "modeling_own.OwnModel"}})
    with pytest.raises(ModelError, match="--trust-remote-code"):
        as_encoder(tmp_path)


def test_latent_attention_is_refused_by_its_name(tmp_path):
    save_model(tmp_path, "Llama")
    latent = {"model_type": "latent_attention", "num_latents_value": 512}
    write(tmp_path / "config.json", {"model_type": "nvembed", "latent_attention_config": latent})
    for trusted in (False, True):
        with pytest.raises(ModelError, match=r"latent attention.* 512 trained"):
            as_encoder(tmp_path, trust_remote_code=trusted)


@pytest.mark.parametrize(
    ("mode", "pooled", "named"),
    [
        (None, "mean", {"auto_map": {"AutoModelForCausalLM": "modeling_gritlm7b.MistralForCausalLM"}}),
        ("mean", "mean", {"auto_map": {"AutoModel": "modeling_mistral_encoder.MistralEncoderModel"}}),
        ("weighted_mean", "weightedmean", {"architectures": ["MistralBiModel"]}),
        ("eos_token", "lasttoken", {"architectures": ["MistralBiModel"]}),
    ],
)
def test_tokens_see_later_ones_where_the_code_of_a_known_embedder_lets_them(mode, pooled, named, tmp_path):
    """GritLM, and LLM2Vec with its adapter in the weights: their folders say that they are plain decoders."""
    tokenizer = tiny_tokenizer(template="<s> $A </s>", padding_side="left")
    save_model(tmp_path, "Mistral", tokenizer=tokenizer, **SIZES["Mistral"])
    config = json.loads((tmp_path / "config.json").read_text())
    write(tmp_path / "config.json", {**config, **named})
    if mode is not None:
        write(tmp_path / "llm2vec_config.json", {"pooling_mode": mode, "max_length": 20, "skip_instruction": True})
    encoder = as_encoder(tmp_path, prompt=INSTRUCTION)
    card = encoder.card
    assert (card.pooling, card.include_prompt, card.max_length) == ((pooled,), False, 24 if mode is None else 20)
    # By hand: every text alone, under a mask of zeros, without the tokens of the instruction.
    model = tiny_model("Mistral", **SIZES["Mistral"])
    before = 1 + len(INSTRUCTION.split())
    for text, cloud in zip(TEXTS, encoder.encode(TEXTS)[-1], strict=True):
        ids = tokenizer(INSTRUCTION + text, max_length=card.max_length, truncation=True, return_tensors="pt")[
            "input_ids"
        ]
        with torch.inference_mode():
            states = model(
                input_ids=ids, attention_mask=torch.zeros(1, 1, ids.shape[1], ids.shape[1])
            ).last_hidden_state
        np.testing.assert_allclose(cloud, states[0, before:], atol=1e-5)


def test_an_unknown_pooling_of_llm2vec_is_refused(tmp_path):
    save_model(tmp_path, "Llama")
    config = json.loads((tmp_path / "config.json").read_text())
    write(tmp_path / "config.json", {**config, "architectures": ["LlamaBiModel"]})
    write(tmp_path / "llm2vec_config.json", {"pooling_mode": "attention"})
    with pytest.raises(ModelError, match=r"'attention'.*eos_token"):
        as_encoder(tmp_path)


def test_code_that_is_left_out_is_named(tmp_path):
    """Code of which nothing is known may change what the tokens see."""
    save_model(tmp_path, "Llama")
    assert as_encoder(tmp_path).card.layers == 2  # no warning, which would be an error here
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoModel": "modeling_own.OwnModel", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    write(tmp_path / "config.json", {**config, "auto_map": own})
    with pytest.warns(OwnCodeWarning, match=r"modeling_own\.OwnModel.* loaded as LlamaModel"):
        as_encoder(tmp_path)


TEMPLATE = (
    "{% for m in messages %}{{ '<s> ' if m.role == 'system' else 'query : ' }}"
    "{{ m.content if m.content is string else m.content[0].text }}{{ ' of ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'document : </s>' }}{% endif %}"
)


@pytest.mark.parametrize("form", ["flat", "structured"])
@pytest.mark.parametrize("ending", [True, False])
@pytest.mark.parametrize("prompt", ["", "the passage of "])
def test_a_chat_template_is_applied_as_the_library_does(form, ending, prompt, tmp_path):
    tokenizer = tiny_tokenizer(template=None, padding_side="left", chat_template=TEMPLATE)
    save_model(tmp_path, "Llama", tokenizer=tokenizer)
    forward = {"method": "forward", "method_output_name": "last_hidden_state"}
    bert = {
        "max_seq_length": 12,
        "module_output_name": "token_embeddings",
        "transformer_task": "feature-extraction",
        "modality_config": {"text": forward, "message": {**forward, "format": form}},
        "processing_kwargs": {"chat_template": {"add_generation_prompt": ending}},
    }
    declare(tmp_path, pooling={"pooling_mode": "lasttoken"}, after=["Normalize"], bert=bert)
    model = SentenceTransformer(str(tmp_path))
    expected = model.encode(TEXTS, prompt=prompt or None, batch_size=len(TEXTS))
    for source in (tmp_path, model):
        encoder = as_encoder(source, prompt=prompt)
        clouds = encoder.encode(TEXTS)[-1]
        vectors = TextPooling(encoder.card).pool(clouds)
        np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-5)
        assert clouds.truncated[2] > 0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"modality_config": {"message": {"format": "auto"}}}, "in which format"),
        ({"processing_kwargs": {"chat_template": {"tools": []}}}, "tools"),
        ({"processing_kwargs": {"text": {"max_length": 3}}}, "text"),
    ],
)
def test_a_chat_template_that_asks_for_more_is_refused(changes, word, tmp_path):
    save_model(tmp_path, "Llama")
    declare(tmp_path, bert={"modality_config": {"message": {"format": "flat"}}, **changes})
    with pytest.raises(ModelError, match=word):
        as_encoder(tmp_path)


def test_a_template_must_be_there_and_ask_for_nothing_unknown(tmp_path):
    for template, word in ((None, "has none"), ("{{ task }}", "asks for the task")):
        tokenizer = tiny_tokenizer(template=None, chat_template=template)
        save_model(tmp_path, "Llama", tokenizer=tokenizer)
        declare(tmp_path, bert={"modality_config": {"message": {"format": "flat"}}})
        with pytest.raises(ModelError, match=word):
            as_encoder(tmp_path)


# -- modules behind the pooling (EmbeddingGemma) ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Pooling, Normalize, Dense with a bias, Dense, Normalize: a Normalize in between changes directions too."""
    place = save_model(tmp_path_factory.mktemp("finished"), "Qwen3", tokenizer=tiny_tokenizer(padding_side="left"))
    declare(place, after=["Normalize", "Dense", "Dense", "Normalize"], prompts={"query": INSTRUCTION})
    torch.manual_seed(0)
    for number, (wide, narrow) in {3: (16, 24), 4: (24, 6)}.items():
        tensors = {"linear.weight": torch.randn(narrow, wide), "linear.bias": torch.randn(narrow)}
        settings = {"in_features": wide, "out_features": narrow, "bias": True}
        write(place / f"{number}_Dense" / "config.json",
              {**settings, "activation_function": "torch.nn.modules.activation.Tanh"})  # fmt: skip
        save_file(tensors, place / f"{number}_Dense" / "model.safetensors")
    return place


def test_modules_behind_the_pooling_are_part_of_the_vectors(finished):
    model = SentenceTransformer(str(finished))
    for source in (finished, model):
        pooled = PooledModel(as_encoder(source))
        np.testing.assert_allclose(pooled.encode_query(TEXTS), model.encode_query(TEXTS), atol=1e-5)
        np.testing.assert_allclose(Repair().apply(source).encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    # Another pooling goes through the same modules; one of another width cannot.
    library = SentenceTransformer(modules=[model[0], Pooling(16, pooling_mode="max"), *list(model)[2:]])
    np.testing.assert_allclose(Repair(pooling="max").apply(finished).encode(TEXTS), library.encode(TEXTS), atol=1e-5)
    with pytest.raises(InputError, match="takes 16"):
        Repair(pooling="mean + spread").apply(finished).encode(TEXTS)


def test_tune_tries_repairs_behind_the_modules(finished, tmp_path):
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS[:12], size=18)) for _ in range(24)]
    result = tune(finished, texts, temperatures=[], readings=[], poolings=["max", "mean + spread"],
                  repairs=["mean removal"], reranked=0)  # fmt: skip
    assert result.width == 6
    assert {"max", "mean removal, project"} <= {trial.name for trial in result.trials}
    assert any("mean + spread" in note and "takes 16" in note for note in result.notes)
    fitted = next(trial.repair for trial in result.trials if trial.name == "mean removal, project")
    fitted.save(tmp_path / "repair.safetensors")
    vectors = Repair.load(tmp_path / "repair.safetensors").apply(finished).encode(TEXTS)
    np.testing.assert_allclose(vectors, fitted.finish(SentenceTransformer(str(finished)).encode(TEXTS)), atol=1e-4)


def test_modules_that_cannot_be_read_are_refused(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    (tmp_path / "copy" / "4_Dense" / "model.safetensors").rename(tmp_path / "copy" / "4_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="applies Dense, Dense after pooling"):
        PooledModel(as_encoder(tmp_path / "copy"))
