"""Decoder embedders as they are declared: each pooling against the vectors of sentence-transformers itself."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from poolscope import layers, tune
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


# -- latent attention (NV-Embed) --------------------------------------------------------------------------------------

LATENTS, HEADS, HEAD = 5, 3, 4
_BLOCKS = "latent_attention_model.cross_attend_blocks"


def save_nvembed(place, *, side="right", template="<s> $A", settings=None, **changed):
    """A folder in NV-Embed's form; its weights. `changed` weights are put in place of others, None: left out."""
    random = np.random.default_rng(0)
    draw = lambda *shape: torch.from_numpy(random.normal(size=shape, scale=0.4).astype(np.float32))  # noqa: E731
    model = tiny_model("Mistral", **SIZES["Mistral"])
    weights = {f"embedding_model.{key}": tensor for key, tensor in model.state_dict().items()}
    weights["latent_attention_model.latents"] = draw(LATENTS, 16)
    for part, *shape in (
        ("0.norm.weight", 16), ("0.norm.bias", 16), ("0.norm_context.weight", 16), ("0.norm_context.bias", 16),
        ("0.fn.to_q.weight", HEADS * HEAD, 16), ("0.fn.to_kv.weight", 2 * HEADS * HEAD, 16),
        ("0.fn.to_out.weight", 16, HEADS * HEAD), ("1.norm.weight", 16), ("1.norm.bias", 16),
        ("1.fn.net.0.weight", 128, 16), ("1.fn.net.0.bias", 128), ("1.fn.net.2.weight", 16, 64),
        ("1.fn.net.2.bias", 16),
    ):  # fmt: skip
        weights[f"{_BLOCKS}.{part}"] = draw(*shape)
    weights |= changed
    tiny_tokenizer(template=template, padding_side=side).save_pretrained(place)
    save_file({key: tensor for key, tensor in weights.items() if tensor is not None}, place / "model.safetensors")
    latent = {"model_type": "latent_attention", "num_latents_value": LATENTS, "num_cross_heads": HEADS,
              "cross_dim_head": HEAD, "latent_dim": 16, "hidden_dim": 16, "output_normalize": True}  # fmt: skip
    config = {
        "model_type": "nvembed", "architectures": ["NVEmbedModel"], "padding_side": side, "is_mask_instruction": True,
        "auto_map": {"AutoModel": "modeling_nvembed.NVEmbedModel"}, "add_eos": True, "latent_attention_config": latent,
        "text_config": {**model.config.to_dict(), "model_type": "bidir_mistral", "sliding_window": 2},
    }  # fmt: skip
    write(place / "config.json", {**config, **(settings or {})})
    return weights


def by_hand(weights, ids):
    """The mapped tokens of one text, head by head: no mask, no padding, float64 behind the decoder."""
    model = tiny_model("Mistral", **SIZES["Mistral"])
    with torch.inference_mode():
        states = model(input_ids=ids, attention_mask=torch.zeros(1, 1, ids.shape[1], ids.shape[1])).last_hidden_state
    W = {key.removeprefix(f"{_BLOCKS}."): tensor.double() for key, tensor in weights.items()}
    norm = torch.nn.functional.layer_norm
    X, L = states[0].double(), W["latent_attention_model.latents"]
    query = norm(X, [16], W["0.norm.weight"], W["0.norm.bias"]) @ W["0.fn.to_q.weight"].T
    both = norm(L, [16], W["0.norm_context.weight"], W["0.norm_context.bias"]) @ W["0.fn.to_kv.weight"].T
    heads = []
    for head in range(HEADS):
        at = slice(head * HEAD, (head + 1) * HEAD)
        scores = query[:, at] @ both[:, : HEADS * HEAD][:, at].T / HEAD**0.5
        heads.append(torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True) @ both[:, HEADS * HEAD :][:, at])
    X = X + torch.cat(heads, dim=1) @ W["0.fn.to_out.weight"].T
    wide = norm(X, [16], W["1.norm.weight"], W["1.norm.bias"]) @ W["1.fn.net.0.weight"].T + W["1.fn.net.0.bias"]
    gated = wide[:, :64] * wide[:, 64:] * 0.5 * (1 + torch.erf(wide[:, 64:] / 2**0.5))
    return X + gated @ W["1.fn.net.2.weight"].T + W["1.fn.net.2.bias"]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("trusted", [False, True])
def test_tokens_of_nvembed_are_mapped_by_its_latents(side, trusted, tmp_path):
    """Its code is not run, trusted or not; with padding on the left it leaves no instruction out."""
    weights = save_nvembed(tmp_path, side=side)
    encoder = as_encoder(tmp_path, prompt=INSTRUCTION, trust_remote_code=trusted)
    card = encoder.card
    assert (card.pooling, card.after, card.include_prompt) == (("mean",), ("Normalize",), side == "left")
    assert card.parameters == sum(tensor.numel() for tensor in weights.values())
    before = 0 if side == "left" else 1 + len(INSTRUCTION.split())
    clouds = encoder.encode(TEXTS)[-1]
    tokenizer = tiny_tokenizer(template="<s> $A")
    for text, cloud in zip(TEXTS, clouds, strict=True):
        ids = tokenizer(f"{INSTRUCTION}{text}</s>", max_length=24, truncation=True, return_tensors="pt")["input_ids"]
        np.testing.assert_allclose(cloud, by_hand(weights, ids)[before:], atol=2e-5)
    # The final vector is their mean, of length 1.
    means = np.stack([cloud.mean(axis=0) for cloud in clouds])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(Repair().apply(encoder).encode(TEXTS), expected, atol=1e-5)


def test_nvembed_as_sentence_transformers_declare_it(tmp_path):
    save_nvembed(tmp_path, template="<s> $A </s>")  # a tokenizer that puts the end token there itself
    alone = as_encoder(tmp_path, prompt=INSTRUCTION).encode(TEXTS)[-1]
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    declare(tmp_path, pooling=pooling, after=["Normalize"], prompts={"query": INSTRUCTION})
    encoder = as_encoder(tmp_path, role="query")
    assert (encoder.card.pooling, encoder.card.include_prompt) == (("mean",), False)
    for cloud, same in zip(encoder.encode(TEXTS)[-1], alone, strict=True):
        np.testing.assert_array_equal(cloud, same)
    # The layers before the last norm are those of the decoder, and the map is the state after them.
    result = layers(tmp_path, TEXTS, socm_texts=0)
    assert result.states == ("0", "1", "2", "output")
    assert list(alone.token_ids(0)).count(2) == 1


@pytest.mark.parametrize(
    ("settings", "changed", "word"),
    [
        ({}, {f"{_BLOCKS}.0.fn.to_q.weight": None}, r"to_q\.weight .*safetensors"),
        ({}, {f"{_BLOCKS}.1.fn.net.2.bias": torch.zeros(3)}, r"net\.2\.bias .*\(3,\).*\(16,\)"),
        ({}, {"embedding_model.norm.weight": None}, "norm.weight"),
        ({"latent_attention_config": {"num_cross_heads": 0}}, {}, "num_cross_heads = '0'"),
        ({"latent_attention_config": None}, {}, r"latents .*\(512, 16\)"),
        ({"latent_attention_config": [1]}, {}, "num_latents_value"),
        ({"text_config": {"model_type": "llama"}}, {}, "'llama'; allowed: bidir_mistral"),
        ({"text_config": None}, {}, "None; allowed: bidir_mistral"),
        ({"model_type": "gigarembed"}, {}, "latent attention"),
    ],
)
def test_a_wrong_nvembed_is_refused(settings, changed, word, tmp_path):
    save_nvembed(tmp_path, settings=settings, **changed)
    with pytest.raises(ModelError, match=word):
        as_encoder(tmp_path)


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
    with pytest.warns(OwnCodeWarning, match=r"modeling_own\.OwnModel.* LlamaModel"):
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
        ({"modality_config": {"message": {"format": "auto"}}}, "which format"),
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
    with pytest.raises(ModelError, match="Dense, Dense"):
        PooledModel(as_encoder(tmp_path / "copy"))
