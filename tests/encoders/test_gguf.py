"""GGUF files: the values of the same weights in safetensors, what the file declares, and what is refused."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from poolscope.encoders import as_encoder, encode, pooling_report
from poolscope.encoders.base import model_identity
from poolscope.errors import ModelError
from tiny_models import DIMENSION, LAYERS, POSITIONS, tiny_model

TEXTS = ["the cat", "a cat sat", "t"]
# Byte-level pieces with the merges that make them, as GPT-2 and Llama 3 have.
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "c"), ("a", "t"), ("Ġc", "at"), ("Ġ", "s"), ("Ġs", "at")]
PIECES = ["<unk>", "<s>", "</s>", "<pad>", *"theacs", "Ġ", *("".join(pair) for pair in MERGES)]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "a", "##s", "t", "##he"]
HEADS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3Text"}


@pytest.fixture(autouse=True)
def _own_models(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_MODELS", str(tmp_path / "models"))


def byte_level() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE({piece: k for k, piece in enumerate(PIECES)}, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def decoder(family: str):
    """A tiny decoder of a family whose vocabulary is that of `byte_level`."""
    tiny = {"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": POSITIONS, "num_attention_heads": 2}
    sizes = {"hidden_size": DIMENSION, "num_hidden_layers": LAYERS, "intermediate_size": 32, "vocab_size": len(PIECES)}
    model = tiny_model(HEADS[family], **tiny, **sizes, pad_token_id=3, bos_token_id=1, eos_token_id=2)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" in name:  # ones, or zeros, would hide that a norm was left out
                weights.normal_(mean=1.0, std=0.2)
    return model


def rotated(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries and keys in the order in which llama.cpp rotates them: pairs side by side, not halves."""
    half = weights.shape[0] // heads // 2
    return weights.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(weights.shape)


def write_decoder(file, model, family: str, **values):
    """The weights of a decoder as its GGUF file."""
    writer = gguf.GGUFWriter(str(file), family)
    config = model.config
    writer.add_block_count(LAYERS)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(DIMENSION)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    theta = config.rope_parameters.get("full_attention", config.rope_parameters)["rope_theta"]
    writer.add_rope_freq_base(theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if family == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    writer.add_vocab_size(len(PIECES))
    writer.add_tokenizer_model("llama" if family == "gemma3" else "gpt2")
    writer.add_token_list([piece.replace("Ġ", "▁") for piece in PIECES] if family == "gemma3" else PIECES)
    writer.add_token_types([3] * 4 + [1] * (len(PIECES) - 4))
    if family == "gemma3":  # no merges: a pair is merged into the piece of the higher score
        writer.add_token_scores([-1000.0] * 11 + [-float(k) for k in range(len(MERGES))])
    else:
        writer.add_token_merges([" ".join(pair) for pair in MERGES])
    for kind, number in (("unk", 0), ("bos", 1), ("eos", 2), ("pad", 3)):
        getattr(writer, f"add_{kind}_token_id")(number)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], LAYERS)
    for name, tensor in model.state_dict().items():
        weights = tensor.numpy().copy()
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            weights = rotated(weights, heads)
        if family == "gemma3" and "norm" in name:
            weights = weights + 1
        writer.add_tensor(names.get_name(f"model.{name}", try_suffixes=(".weight", ".bias")), weights)
    return finish(writer, **values)


def finish(writer: gguf.GGUFWriter, **values):
    for key, value in values.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}[type(value)]
        add(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_bert(file, model, family: str, **values):
    """The weights of a BERT-like model as its GGUF file; nomic-bert has queries, keys and values in one tensor."""
    writer = gguf.GGUFWriter(str(file), family)
    writer.add_block_count(LAYERS)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(DIMENSION)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(model.config.layer_norm_eps)
    writer.add_tokenizer_model("bert")
    marked = [word if word.startswith("[") else word[2:] if word.startswith("##") else f"▁{word}" for word in WORDS]
    writer.add_token_list(marked)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items() if "pooler" not in name}
    plain = {"word_embeddings": "token_embd", "token_type_embeddings": "token_types", "LayerNorm": "token_embd_norm"}
    plain["position_embeddings"] = "position_embd"
    layer = {
        "bert": {
            "attention.self.query": "attn_q",
            "attention.self.key": "attn_k",
            "attention.self.value": "attn_v",
            "attention.output.dense": "attn_output",
            "attention.output.LayerNorm": "attn_output_norm",
            "intermediate.dense": "ffn_up",
            "output.dense": "ffn_down",
            "output.LayerNorm": "layer_output_norm",
        },
        "nomic-bert": {
            "self_attn.o_proj": "attn_output",
            "post_attention_layernorm": "attn_output_norm",
            "mlp.up_proj": "ffn_up",
            "mlp.gate_proj": "ffn_gate",
            "mlp.down_proj": "ffn_down",
            "post_mlp_layernorm": "layer_output_norm",
        },
    }[family]
    if family == "nomic-bert":
        writer.add_rope_freq_base(model.config.rope_parameters["rope_theta"])
        for k in range(LAYERS):
            parts = [state.pop(f"layers.{k}.self_attn.{part}_proj.weight") for part in "qkv"]
            writer.add_tensor(f"blk.{k}.attn_qkv.weight", np.concatenate(parts))
    for name, weights in state.items():
        stem, _, kind = name.rpartition(".")
        if stem.startswith("embeddings."):
            writer.add_tensor(f"{plain[stem.removeprefix('embeddings.')]}.{kind}", weights)
        else:
            number, part = stem.removeprefix("encoder.layer.").removeprefix("layers.").split(".", 1)
            writer.add_tensor(f"blk.{number}.{layer[part]}.{kind}", weights)
    return finish(writer, **values)


def word_pieces() -> PreTrainedTokenizerFast:
    from transformers import BertTokenizerFast

    return BertTokenizerFast(vocab={word: k for k, word in enumerate(WORDS)}, do_lower_case=True)


def assert_same(one, other, layers) -> None:
    for layer in layers:
        for left, right in zip(one[layer], other[layer], strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", HEADS)
def test_a_decoder_has_the_values_of_its_own_weights(tmp_path, family):
    model = decoder(family)
    write_decoder(
        tmp_path / "model.gguf", model, family, **{"general.file_type": 0, "tokenizer.ggml.add_bos_token": False}
    )
    layers = range(LAYERS + 1)
    one, other = (
        encode(tmp_path / "model.gguf", TEXTS, layers=layers),
        encode((model, byte_level()), TEXTS, layers=layers),
    )
    assert one[0].token_ids(1).tolist() == other[0].token_ids(1).tolist()
    assert_same(one, other, layers)
    card = as_encoder(tmp_path / "model.gguf").card
    assert (card.quantization, card.positions, card.layers, card.pooling) == ("GGUF F32", POSITIONS, LAYERS, ())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_file_says_what_stands_before_and_after_a_text(tmp_path, family):
    model, places = decoder(family), {}
    for name, marks in {
        "default": {},
        "none": {"tokenizer.ggml.add_bos_token": False},
        "both": {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True},
    }.items():
        write_decoder(tmp_path / f"{name}.gguf", model, family, **marks)
        places[name] = as_encoder(tmp_path / f"{name}.gguf").tokenize(["the"], None).ids.tolist()
    the = PIECES.index("the")
    assert places == {"default": [1, the] if family == "gemma3" else [the], "none": [the], "both": [1, the, 2]}


@pytest.mark.parametrize(("family", "class_name"), [("bert", "Bert"), ("nomic-bert", "NomicBert")])
def test_a_bert_has_the_values_of_its_own_weights(tmp_path, family, class_name):
    model = tiny_model(class_name, vocab_size=len(WORDS), pad_token_id=0)
    write_bert(tmp_path / "model.gguf", model, family, **{f"{family}.pooling_type": 1})
    layers = range(LAYERS + 1)
    texts = ["The cat sat", "cats", "a the"]
    one, other = encode(tmp_path, texts, layers=layers), encode((model, word_pieces()), texts, layers=layers)
    assert one[0].token_ids(1).tolist() == [2, 5, 8, 3] == other[0].token_ids(1).tolist()
    assert_same(one, other, layers)
    opened = as_encoder(tmp_path)
    assert (opened.card.pooling, opened.card.max_length, opened.card.quantization) == (("mean",), POSITIONS, "GGUF F32")
    assert pooling_report(opened).warning() is None


def test_gate_and_up_are_not_exchanged(tmp_path):
    """They have the same shape: exchanged, they load, and the values are others."""
    model = tiny_model("NomicBert", vocab_size=len(WORDS), pad_token_id=0)
    write_bert(tmp_path / "model.gguf", model, "nomic-bert")
    for layer in model.layers:
        gate, up = layer.mlp.gate_proj.weight.data.clone(), layer.mlp.up_proj.weight.data.clone()
        layer.mlp.gate_proj.weight.data, layer.mlp.up_proj.weight.data = up, gate
    assert np.abs(encode(tmp_path, TEXTS)[0] - encode((model, word_pieces()), TEXTS)[0]).max() > 0.01


def test_it_is_converted_once_and_known_by_its_file(tmp_path, monkeypatch):
    model = tiny_model("Bert", vocab_size=len(WORDS), pad_token_id=0)
    write_bert(tmp_path / "model.gguf", model, "bert")
    first = as_encoder(tmp_path / "model.gguf")
    monkeypatch.setattr("poolscope.encoders.gguf._convert", lambda *_, **__: pytest.fail("converted twice"))
    assert as_encoder(tmp_path / "model.gguf").card == first.card
    assert len(list((tmp_path / "models" / "converted").iterdir())) == 1
    monkeypatch.undo()
    monkeypatch.setenv("POOLSCOPE_MODELS", str(tmp_path / "models"))
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[0, 0] += 1
    write_bert(tmp_path / "model.gguf", model, "bert")
    assert as_encoder(tmp_path / "model.gguf").card.revision != first.card.revision


def test_clouds_remember_the_quantisation_and_older_cards_are_recognised(tmp_path):
    write_bert(tmp_path / "model.gguf", tiny_model("Bert", vocab_size=len(WORDS), pad_token_id=0), "bert")
    clouds = encode(tmp_path, TEXTS)
    stored = dict(clouds.provenance["model"])
    assert stored["quantization"] == "GGUF F32"
    older = {key: value for key, value in stored.items() if key != "quantization"}
    assert model_identity(older) == model_identity(stored)


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        ("mamba", {}, r"'mamba'; .* llama, qwen2, .*nomic-bert"),
        ("bert", {"bert.pooling_type": 4}, "its pooling_type is 4"),
        ("bert", {"bert.rope.scaling.type": "yarn"}, r"\(yarn\)"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, family, values, message):
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), family)
    writer.add_tensor("token_embd.weight", np.zeros((2, 4), np.float32))
    finish(writer, **values)
    with pytest.raises(ModelError, match=message):
        as_encoder(tmp_path / "model.gguf")
    assert not list((tmp_path / "models").glob("converted/*"))


def test_weights_that_no_model_takes_are_refused(tmp_path):
    model = decoder("llama")
    model.register_buffer("extra", torch.zeros(2, 2))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    assert names.get_name("model.extra") is None
    file = tmp_path / "model.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            gguf.TensorNameMap, "get_name", lambda own, key, **options: _NAMES(own, key, **options) or "extra"
        )
        write_decoder(file, model, "llama")
    with pytest.raises(ModelError, match=r"model\.gguf: .*[\d,]+ weights .* [\d,]+;"):
        as_encoder(file)


_NAMES = gguf.TensorNameMap.get_name


def test_files_that_are_none_or_several(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"no GGUF at all, but long enough to hold a header")
    with pytest.raises(ModelError, match=r"a\.gguf"):
        as_encoder(tmp_path)
    (tmp_path / "b.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match=r"a\.gguf, b\.gguf"):
        as_encoder(tmp_path)
