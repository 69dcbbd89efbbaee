"""Folders that ask for too much: refused within five seconds, with the reason, and nothing outside of them is read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time

import pytest
import torch

from poolscope.encoders import as_encoder
from poolscope.encoders.folders import safetensors_header
from poolscope.errors import ModelError
from tiny_models import POSITIONS, declare, save_model, write


class Payload:
    """A pickle that leaves a mark where it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="module", autouse=True)
def _opening_process(tmp_path_factory):
    """The process that opens folders has started: its imports are not part of a refusal."""
    as_encoder(save_model(tmp_path_factory.mktemp("first") / "model"))


def refused(folder, message, seconds=5, **options):
    begin = time.perf_counter()
    with pytest.raises(ModelError, match=message):
        as_encoder(folder, **options)
    assert time.perf_counter() - begin < seconds


def index(folder, file):
    names = list(safetensors_header(folder / "model.safetensors"))
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": dict.fromkeys(names, file)})


@pytest.fixture
def folder(tmp_path):
    return declare(save_model(tmp_path / "model"), pooling={"pooling_mode_mean_tokens": True})


def test_an_index_that_names_a_pickle(folder, tmp_path):
    torch.save(Payload(tmp_path / "mark"), folder / "shard.bin")
    index(folder, "shard.bin")
    refused(folder, r"index\.json: it names 'shard\.bin'")
    (folder / "shard.pt").write_bytes(pickle.dumps(Payload(tmp_path / "mark")))
    index(folder, "shard.pt")
    refused(folder, r"it names 'shard\.pt'", allow_pickle=True)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "file", ["../other/model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", "a\\b.safetensors"]
)
def test_an_index_that_leads_out_of_the_folder(folder, file):
    shutil.copytree(folder, folder.parent / "other")
    index(folder, file)
    refused(folder, "allowed: files of this folder")


def test_an_index_of_shards_in_the_folder_is_read(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    names = list(safetensors_header(folder / "model-00001-of-00001.safetensors"))
    shard = "model-00001-of-00001.safetensors"
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": dict.fromkeys(names, shard)})
    assert as_encoder(folder).card.layers == 2


@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        ("model_args", {"subfolder": "../other"}),
        ("model_args", {"attn_implementation": "org/kernel"}),
        ("model_args", {"gguf_file": "x.gguf"}),
        ("model_args", {"weights_only": False}),
        ("model_args", {"add_pooling_layer": {"a": 1}}),
        ("config_args", {"auto_map": {"AutoModel": "x.y"}}),
        ("config_args", {"_name_or_path": "../other"}),
        ("tokenizer_args", {"tokenizer_file": "../other/tokenizer.json"}),
        ("tokenizer_args", {"subfolder": ".."}),
    ],
)
def test_arguments_that_a_folder_may_not_ask_for(folder, part, arguments):
    write(folder / "sentence_bert_config.json", {part: arguments})
    refused(folder, "it asks (to be loaded with|for the attention)")


def test_arguments_that_a_folder_may_ask_for(folder):
    write(
        folder / "sentence_bert_config.json",
        {
            "max_seq_length": 9,
            "model_args": {"attn_implementation": "eager", "add_pooling_layer": False, "torch_dtype": "float16"},
            "tokenizer_args": {"padding_side": "left"},
        },
    )
    assert as_encoder(folder).card.max_length == 9


@pytest.mark.parametrize(
    "settings",
    [
        {"_attn_implementation": "org/kernel"},
        {"attn_implementation": {"text_config": "org/kernel"}},
        {"text_config": {"_attn_implementation_internal": "org/kernel"}},
        {"transformers_weights": "other.safetensors"},
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 10**12},
        {"vocab_size": 2**40},
        {"intermediate_size": 2**50},
        {"hidden_size": 2**40},
    ],
)
def test_a_configuration_that_asks_for_too_much(folder, settings):
    path = folder / "config.json"
    write(path, {**json.loads(path.read_text(encoding="utf-8")), **settings})
    refused(folder, "asks for the attention|names other weights|cannot belong together|not a multiple")


@pytest.mark.parametrize("value", ["512", [512], True, 0, -5, 2.5, float("nan"), float("-inf")])
def test_a_length_that_is_no_number_of_tokens(folder, value):
    write(folder / "sentence_bert_config.json", {"max_seq_length": value})
    refused(folder, "max_seq_length: the folder says")


@pytest.mark.parametrize("value", [-1, float("inf"), None])
def test_a_length_without_limit(folder, value):
    write(folder / "sentence_bert_config.json", {"max_seq_length": value})
    assert as_encoder(folder).max_length == POSITIONS


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("1_Pooling/config.json", {"pooling_mode_cls_token": "false", "pooling_mode_mean_tokens": True}),
        ("1_Pooling/config.json", {"include_prompt": "false", "pooling_mode_mean_tokens": True}),
        ("1_Pooling/config.json", {"pooling_mode": 5}),
        ("1_Pooling/config.json", {"pooling_mode": []}),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", 5]}),
        ("sentence_bert_config.json", {"do_lower_case": "false"}),
    ],
)
def test_a_flag_that_is_a_word(folder, file, settings):
    write(folder / file, settings)
    refused(folder, f"{next(iter(settings))}: the folder says")


@pytest.mark.parametrize("count", [0, 1])
def test_layers_that_a_configuration_leaves_out_are_named(folder, count):
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write(folder / "config.json", {**settings, "num_hidden_layers": count})
    with pytest.warns(UserWarning, match=rf"{32 - 16 * count} weights .*encoder\.layer\.{count}\."):
        as_encoder(folder)


@pytest.mark.parametrize("size", [2**62, 2**64 - 1, 2**34, 0])
def test_headers_of_any_size(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(size.to_bytes(8, "little") + path.read_bytes()[8:])
    refused(folder, r"model\.safetensors: its header says")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("name", ["config.json", "modules.json", "model.safetensors", "vocab.txt"])
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    refused(folder, "is no file|no file and no folder")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert"},
        {"model_type": "llama"},
        {"model_type": "mixtral", "num_hidden_layers": 2},
        {"model_type": "gemma3", "text_config": {"num_hidden_layers": 10**6}},
    ],
)
def test_sizes_that_are_left_out_are_not_built_as_usual(folder, config):
    write(folder / "config.json", config)
    refused(folder, "cannot belong together", seconds=20)  # the classes of each type are imported first


def test_many_layers_that_the_weights_could_not_fill_together(folder):
    path = folder / "config.json"
    write(path, {**json.loads(path.read_text(encoding="utf-8")), "num_hidden_layers": 100, "intermediate_size": 10**5})
    with pytest.raises(ModelError, match=r"config\.json"):
        as_encoder(folder)


def test_layers_that_config_json_leaves_out_are_named(folder):
    path = folder / "config.json"
    write(path, {**json.loads(path.read_text(encoding="utf-8")), "num_hidden_layers": 1})
    with pytest.warns(UserWarning, match="16 weights"):
        as_encoder(folder)


def edited(path, **changes):
    write(path, {**json.loads(path.read_text(encoding="utf-8")), **changes})


@pytest.mark.parametrize("prompts", [{"query": ["a"]}, ["a"], {"query": "x" * 10**6}, {"query": {}}])
def test_prompts_that_are_no_short_texts(folder, prompts):
    write(folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "query"})
    refused(folder, "has the prompt")


def test_settings_of_any_size(folder):
    module = {"type": "sentence_transformers.models.Normalize", "path": ""}
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    write(folder / "modules.json", [*modules, *[module] * 5000])
    refused(folder, "it lists 5,002 modules")
    write(folder / "modules.json", modules)
    edited(folder / "config.json", num_labels=10**8)
    refused(folder, "num_labels = 100,000,000")
    edited(folder / "config.json", num_labels=2, x="y" * 2**24)
    refused(folder, r"config\.json: it has 16,\d+,\d+ bytes")
    edited(folder / "config.json", x="")
    os.truncate(folder / "tokenizer.json", 2**30)  # a file of holes
    refused(folder, r"tokenizer\.json: it has 1,073,741,824 bytes")


@pytest.mark.parametrize("changes", [{"chunk_size_feed_forward": 10**9}, {"num_attention_heads": -1}])
def test_settings_that_no_layer_can_work_with(folder, changes):
    edited(folder / "config.json", **changes)
    refused(folder, "it cannot (be opened|read a batch)")


def test_a_tokenizer_that_panics_is_one_line(folder):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    edited(folder / "tokenizer.json", pre_tokenizer=split)
    with pytest.raises(ModelError, match="texts 1 to 1"):
        as_encoder(folder).encode(["a" * 40 + "b"])


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([(0, 64), (0, 64)], "overlap"),
        ([(0, 64), (32, 96)], "overlap"),
        ([(0, 64), (80, 144)], "gaps"),
        ([(64, 0), (0, 64)], "overlap"),
        ([(0, 64), (64, 2**40)], "tensors take 1,099,511,627,776 bytes"),
        ([(0, 64)], "tensors take 64 bytes, and 128 follow"),
        ([("0", 64)], "not a safetensors file"),
        ([(0,)], "not a safetensors file"),
    ],
)
def test_tensors_that_share_bytes_or_leave_the_file(folder, places, message):
    entries = {f"t{k}": {"dtype": "F32", "shape": [16], "data_offsets": place} for k, place in enumerate(places)}
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
    refused(folder, message)


@pytest.mark.parametrize("shape", [[10**6], [10**6, 10**6], [-16], [-4, 4], ["16"]])
def test_tensors_that_claim_more_numbers_than_bytes(folder, shape):
    header = json.dumps({"t": {"dtype": "F32", "shape": shape, "data_offsets": (0, 64)}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    refused(folder, "numbers in 64 bytes|not a safetensors file")
