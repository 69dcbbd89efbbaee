"""Encoders on transformers: every architecture gives what the model gives for each text alone."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from poolscope.encoders import as_encoder, encode
from poolscope.errors import InputError, ModelError
from tiny_models import ARCHITECTURES, LAYERS, POSITIONS, TEXTS, alone, save_model, tiny_model, tiny_tokenizer

LONG = "the cat " * 30  # 60 words, more than any tiny model has positions for
TEMPLATES = {"T5": "$A </s>", "GPT2": None, "Llama": "<s> $A", "Qwen3": "$A </s>"}


def folder_of(path: Path, architecture: str, **settings) -> Path:
    return save_model(
        path, architecture, tokenizer=tiny_tokenizer(template=TEMPLATES.get(architecture, "<s> $A </s>")), **settings
    )


def reference(folder: Path, architecture: str):
    """Model and tokenizer as the library itself loads them."""
    kind = "T5EncoderModel" if architecture == "T5" else "AutoModel"
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_layer_equals_the_library_for_each_text_alone(architecture, tmp_path):
    folder = folder_of(tmp_path, architecture)
    model, tokenizer = reference(folder, architecture)
    encoder = as_encoder(folder, batch_tokens=40)  # several batches, with padding in them
    found = encoder.encode(TEXTS, layers=[0, 1, 2, -1])
    assert encoder.card.layers == LAYERS
    for k, text in enumerate(TEXTS):
        states = alone(model, tokenizer, text)
        assert len(states) == LAYERS + 1
        for layer in (0, 1, 2, -1):
            np.testing.assert_allclose(found[layer][k], states[layer], atol=2e-5, err_msg=f"{architecture} {layer}")
        assert found[-1].token_ids(k).tolist() == tokenizer(text)["input_ids"]
    spread = np.ptp([float(np.abs(found[layer][0]).mean()) for layer in (0, 1, 2)])
    assert spread > 0  # the layers differ, so that a mixed-up layer would show


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batches_and_neighbours_change_nothing(architecture, tmp_path):
    folder = folder_of(tmp_path, architecture)
    whole, single = (encode(folder, TEXTS, batch_tokens=size) for size in (10_000, 1))
    for one, other in zip(whole, single, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    assert encode(folder, TEXTS, batch_tokens=40).to_table().equals(encode(folder, TEXTS, batch_tokens=40).to_table())


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("architecture", ["Bert", "Roberta", "GPT2", "Qwen3"])
def test_the_padding_side_of_the_tokenizer_changes_nothing(architecture, side):
    model = tiny_model(architecture)
    tokenizer = tiny_tokenizer(template=TEMPLATES.get(architecture, "<s> $A </s>"), padding_side=side)
    for cloud, text in zip(encode((model, tokenizer), TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(cloud, alone(model, tokenizer, text)[-1], atol=2e-5)


def test_a_model_without_attention_mask_gets_no_padding():
    model = tiny_model(
        "FNet", hidden_size=16, num_hidden_layers=2, intermediate_size=32, max_position_embeddings=POSITIONS
    )
    tokenizer = tiny_tokenizer(model_input_names=["input_ids"])
    for cloud, text in zip(encode((model, tokenizer), [*TEXTS, "a cat"]), [*TEXTS, "a cat"], strict=True):
        np.testing.assert_allclose(cloud, alone(model, tokenizer, text)[-1], atol=2e-5)


def test_segment_ids_of_the_tokenizer_reach_the_model():
    model, tokenizer = tiny_model("Bert"), tiny_tokenizer(template="<s>:1 $A:1 </s>:1")
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    cloud = encode((model, tokenizer), TEXTS)[0]
    np.testing.assert_allclose(cloud, alone(model, tokenizer, TEXTS[0])[-1], atol=2e-5)
    without = tiny_tokenizer()
    assert np.abs(cloud - alone(model, without, TEXTS[0])[-1]).max() > 0.01


def test_an_encoder_decoder_is_used_by_its_encoder_half():
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
    more = {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 20}
    model, tokenizer = tiny_model("Bart", **sizes, **more), tiny_tokenizer()
    encoder = as_encoder((model, tokenizer))
    assert encoder.card.positions == 20  # the table has two rows more, which BART keeps for itself
    for cloud, text in zip(encoder.encode(TEXTS)[-1], TEXTS, strict=True):
        np.testing.assert_allclose(cloud, alone(model.get_encoder(), tokenizer, text)[-1], atol=2e-5)


def test_bart_folder_loads_its_encoder(tmp_path):
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
    more = {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 20}
    folder = folder_of(tmp_path, "Bart", **sizes, **more)
    model = transformers.AutoModel.from_pretrained(folder).eval().get_encoder()
    np.testing.assert_allclose(encode(folder, TEXTS)[2], alone(model, tiny_tokenizer(), TEXTS[2])[-1], atol=2e-5)


# -- length ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "positions"),
    [
        ("Bert", POSITIONS),
        ("Roberta", POSITIONS - 2),
        ("XLMRoberta", POSITIONS - 2),
        ("MPNet", POSITIONS - 2),
        ("GPT2", POSITIONS),
    ],
)
def test_texts_are_cut_at_the_positions_of_the_model(architecture, positions, tmp_path):
    encoder = as_encoder(folder_of(tmp_path, architecture))
    special = 0 if architecture == "GPT2" else 2
    clouds = encoder.encode([LONG, "a cat"])[-1]
    assert encoder.card.positions == encoder.card.max_length == positions
    assert clouds.lengths.tolist() == [positions, 2 + special]
    assert clouds.truncated.tolist() == [60 - (positions - special), 0]
    with pytest.raises(InputError, match=rf"--max-length.*{positions} tokens"):
        as_encoder(tmp_path, max_length=positions + 1)


def test_the_tokenizer_may_declare_less_and_the_caller_less_still(tmp_path):
    folder = save_model(tmp_path, tokenizer=tiny_tokenizer(model_max_length=10))
    assert as_encoder(folder).card.max_length == 10
    clouds = encode(folder, [LONG, TEXTS[0], "a"], max_length=5)
    assert clouds.lengths.tolist() == [5, 5, 3]
    assert clouds.truncated.tolist() == [57, 3, 0]
    assert encode(folder, [LONG], max_length=20).truncated.tolist() == [42]


def test_a_limit_below_the_special_tokens_is_refused(tmp_path):
    folder = folder_of(tmp_path, "Bert")
    assert encode(folder, [TEXTS[0]], max_length=2).lengths.tolist() == [2]
    with pytest.raises(InputError, match=r"--max-length.*special tokens"):
        encode(folder, [TEXTS[0]], max_length=1)


def test_truncation_on_the_left_is_the_models_own(tmp_path):
    folder = save_model(tmp_path, tokenizer=tiny_tokenizer(truncation_side="left"))
    clouds = encode(folder, [TEXTS[2]], max_length=5)
    words = [tiny_tokenizer().convert_ids_to_tokens(int(k)) for k in clouds.token_ids(0)]
    assert words == ["<s>", "on", "a", "mat", "</s>"]
    assert clouds.truncated.tolist() == [len(TEXTS[2].split()) - 3]


def test_relative_positions_have_no_limit(tmp_path):
    encoder = as_encoder(folder_of(tmp_path, "T5"))
    assert (encoder.card.max_length, encoder.card.positions) == (None, None)
    assert encoder.encode([LONG])[-1].lengths.tolist() == [61]


def test_a_tokenizer_written_in_python_counts_the_same():
    tokenizer = transformers.ByT5Tokenizer(model_max_length=30)  # one token a byte, and </s>
    model = tiny_model("Bert", vocab_size=400, max_position_embeddings=64)
    assert not tokenizer.is_fast
    for limit, cut in ((None, [0, 0]), (6, [0, 6])):
        clouds = encode((model, tokenizer), ["abcde", "abcdefghijk"], max_length=limit)
        assert clouds.truncated.tolist() == cut
        assert (
            clouds.token_ids(1).tolist()
            == tokenizer("abcdefghijk", truncation=bool(limit), max_length=limit)["input_ids"]
        )


def test_no_warning_and_no_output_leaks(tmp_path, capfd):
    folder = folder_of(tmp_path, "Bert")
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(folder, [LONG, "a"])
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled()


# -- several threads and devices, progress, interruption ---------------------------------------------------------


@pytest.fixture
def three_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_cores")
@pytest.mark.parametrize("architecture", ["Bert", "MPNet", "Qwen3"])
def test_the_number_of_cores_changes_no_bit(architecture, tmp_path):
    encoder = as_encoder(folder_of(tmp_path, architecture), batch_tokens=40)
    seen = []
    many = encoder.encode(TEXTS * 20, layers=[0, 1, 2], progress=lambda *done: seen.append(threading.current_thread()))
    assert torch.get_num_threads() == 3
    assert set(seen) == {threading.main_thread()}
    torch.set_num_threads(1)
    alone_on_it = encoder.encode(TEXTS * 20, layers=[0, 1, 2])
    for layer in (0, 1, 2):
        assert many[layer].to_table().equals(alone_on_it[layer].to_table())


@pytest.mark.usefixtures("three_cores")
def test_cores_are_dealt_to_the_batches_there_are(monkeypatch):
    model = tiny_model()
    encoder = as_encoder((model, tiny_tokenizer()), batch_tokens=1)
    used = []

    def watched(*_) -> None:
        used.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))

    handle = model.register_forward_pre_hook(watched)
    encoder.encode(["cat"])
    encoder.encode(["cat", "dog"])
    encoder.encode(TEXTS)
    handle.remove()
    assert used == [(True, 3)] + [(False, 1)] * (2 + len(TEXTS))
    with ThreadPoolExecutor(1) as pool:  # what a thread of somebody else starts with
        assert pool.submit(torch.get_num_threads).result() == torch.get_num_threads() == 3
    monkeypatch.setattr(type(model), "__module__", "somebody.elses.code")
    model.register_forward_pre_hook(watched)
    encoder.encode(TEXTS)
    assert used[-len(TEXTS) :] == [(True, 3)] * len(TEXTS)


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu", "cpu, cpu, cpu"])
def test_several_devices_give_the_same_and_progress_counts_all(device, tmp_path):
    folder = folder_of(tmp_path, "Bert")
    seen = []
    clouds = encode(folder, TEXTS * 6, device=device, batch_tokens=40, progress=lambda *done: seen.append(done))
    assert clouds.to_table().equals(encode(folder, TEXTS * 6, batch_tokens=40).to_table())
    assert tuple(np.sum(seen, axis=0)) == (30, clouds.lengths.sum())
    assert len(seen) > 5


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_ctrl_c_stops_at_once_and_the_encoder_goes_on_living(device, tmp_path):
    encoder = as_encoder(folder_of(tmp_path, "Bert"), device=device, batch_tokens=10)
    calls = []

    def interrupt(texts: int, tokens: int) -> None:
        calls.append(texts)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoder.encode(TEXTS * 4, progress=interrupt)
    assert len(calls) == 2
    assert len(encoder.encode(TEXTS)[-1]) == len(TEXTS)


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_an_error_in_a_batch_reaches_the_caller(device):
    model = tiny_model("Bert")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[7] = torch.nan  # the word "cat"
    encoder = as_encoder((model, tiny_tokenizer()), device=device, batch_tokens=8)
    encoder.encode(["a dog", "the dog", "dog"])
    with pytest.raises(ModelError, match=r"infinite .* float32"):
        encoder.encode(["a dog", "the cat", "dog"])


def test_devices_that_are_not_there():
    with pytest.raises(InputError, match="device: received 'warp:1'"):
        encode((tiny_model(), tiny_tokenizer()), TEXTS, device="warp:1")


# -- texts and layers ----------------------------------------------------------------------------------------------


def test_texts_without_any_token_are_named():
    model, tokenizer = tiny_model("GPT2"), tiny_tokenizer(template=None)
    with pytest.raises(InputError, match=r"2 of 3 texts .*\[0, 2\]"):
        encode((model, tokenizer), ["", "cat", "  "])
    assert encode((tiny_model(), tiny_tokenizer()), [""]).lengths.tolist() == [2]  # BERT keeps its special tokens


def test_a_lone_surrogate_is_named(tmp_path):
    with pytest.raises(InputError, match="entry 1 holds"):
        encode(folder_of(tmp_path, "Bert"), ["a", "b\udc80"])


@pytest.mark.parametrize("layers", [[3], [-4], [], [True], ["1"], [1.0]])
def test_layers_out_of_range(layers):
    with pytest.raises(InputError, match="layers: received"):
        encode((tiny_model(), tiny_tokenizer()), TEXTS, layers=layers)


def test_provenance_names_model_choices_and_layer():
    found = encode((tiny_model(), tiny_tokenizer()), TEXTS, layers=[0, -1], max_length=9)
    for layer in (0, -1):
        provenance = found[layer].provenance
        assert provenance["layer"] == layer
        assert provenance["options"]["max_length"] == 9
        assert provenance["model"]["kind"] == "transformers"
        assert len(provenance["model"]["revision"]) == 64


def test_an_unknown_token_that_is_unknown_is_refused():
    tokenizer = tiny_tokenizer()
    tokenizer._special_tokens_map["unk_token"] = "[GONE]"
    with pytest.raises(InputError, match=r"'\[GONE\]'"):
        as_encoder((tiny_model(), tokenizer))


def test_a_device_that_is_not_here_is_refused_with_those_that_are():
    from poolscope.encoders.torch_backend import choose_devices

    with pytest.raises(InputError, match=r"'cuda:99', .*: cpu") as refused:
        choose_devices("cuda:99")
    named = str(refused.value).partition("Usable here: ")[2].partition(";")[0].split(", ")
    assert [device.type for device in choose_devices(",".join(named))] == [name.partition(":")[0] for name in named]
