"""`poolscope inspect`: what files say and where they contradict each other, by topic, and the exit code."""

from __future__ import annotations

import json
import time

import pytest
import torch

import poolscope as ps
from command_line import invoke, run
from poolscope.encoders.inspection import LEVELS, Inspection
from poolscope.errors import InputError, ModelError
from tiny_models import DIMENSION, LAYERS, POSITIONS, declare, export_onnx, save_model, tiny_model, write

MEAN = {"pooling_mode_mean_tokens": True}


@pytest.fixture
def folder(tmp_path):
    return declare(save_model(tmp_path / "model"), pooling=MEAN)


def edited(path, **changes):
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write(path, {**content, **changes})


def levels(result):
    """The worst level of each topic."""
    worst_last = sorted(result.entries, key=lambda entry: LEVELS.index(entry.level), reverse=True)
    return {entry.topic: entry.level for entry in worst_last}


def changed(folder):
    """The topics that are not as in a folder without fault."""
    return {topic: level for topic, level in levels(ps.inspect_model(folder)).items() if level in ("look", "refused")}


def test_a_folder_without_fault(folder):
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A model\n", encoding="utf-8")
    result = ps.inspect_model(folder)
    assert set(levels(result).values()) == {"ok"}
    assert (result.kind, result.exit_code) == ("transformers", 0)
    (opened,) = result["opening"]
    assert (opened.values["dimension"], opened.values["max_length"]) == (DIMENSION, POSITIONS)
    (sizes,) = result["sizes"]
    assert sizes.values["claimed"] == sizes.values["held"] == sum(w.numel() for w in tiny_model().parameters())
    (files,) = result["files"]
    assert files.values["files"]["model.safetensors"] == (folder / "model.safetensors").stat().st_size
    assert result["pooling"][0].values == {"pooling": ["mean"], "after": []}
    assert result["licence"][0].values["licence"] == "mit"


def test_the_screen_and_the_json_say_the_same(folder, tmp_path):
    printed = run("inspect", folder, "--json", tmp_path / "seen.json", width=100)
    content = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert [entry["topic"] for entry in content["entries"]] == [
        entry.topic for entry in ps.inspect_model(folder).entries
    ]
    for entry in content["entries"]:
        assert f" {entry['topic']} " in printed
    assert Inspection.from_dict(content).level == "note"
    assert json.loads(invoke("inspect", folder, "--json", "-").stdout) == content


SPOILED = {
    "code in config.json": (
        lambda f: edited(f / "config.json", auto_map={"AutoModel": "modeling_own.OwnModel"}),
        {"code": "look"},
    ),
    "a module of another package": (
        lambda f: write(
            f / "modules.json",
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "others.models.Pooling"},
            ],
        ),
        {"code": "look"},
    ),
    "a link out of the folder": (
        lambda f: ((f.parent / "elsewhere.txt").touch(), (f / "notes.txt").symlink_to(f.parent / "elsewhere.txt")),
        {"paths": "look"},
    ),
    "more layers than weights": (
        lambda f: edited(f / "config.json", num_hidden_layers=LAYERS + 1),
        {"sizes": "look"},
    ),
    "sizes without end": (
        lambda f: edited(f / "config.json", num_hidden_layers=10**7),
        {"opening": "refused"},
    ),
    "a token beyond the table": (
        lambda f: edited_vocabulary(f, text=10**6),
        {"tokenizer": "look"},
    ),
    "a length beyond the positions": (
        lambda f: write(f / "sentence_bert_config.json", {"max_seq_length": POSITIONS + 1}),
        {"length": "look"},
    ),
    "two forms of pooling": (
        lambda f: write(f / "1_Pooling" / "config.json", {"pooling_mode": "cls", **MEAN}),
        {"pooling": "look"},
    ),
    "a pooling of another width": (
        lambda f: write(f / "1_Pooling" / "config.json", {**MEAN, "word_embedding_dimension": DIMENSION + 1}),
        {"pooling": "look"},
    ),
    "a default prompt that is none": (
        lambda f: edited(
            f / "config_sentence_transformers.json", prompts={"query": "q: "}, default_prompt_name="other"
        ),
        {"prompts": "look", "opening": "refused"},
    ),
}


def edited_vocabulary(folder, **tokens):
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"].update(tokens)
    write(folder / "tokenizer.json", content)


@pytest.mark.parametrize("name", SPOILED)
def test_one_fault_is_seen_under_its_topic(folder, name):
    spoil, expected = SPOILED[name]
    spoil(folder)
    assert changed(folder) == expected
    assert invoke("inspect", folder).exit_code == (2 if "refused" in expected.values() else 1)


def test_pickled_weights_alone(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    result = ps.inspect_model(folder)
    assert levels(result)["formats"] == "look"
    assert result["formats"][0].values["formats"] == {"pickle": ["pytorch_model.bin"]}
    assert ps.inspect_model(folder, allow_pickle=True).exit_code == 1


def test_a_shard_that_is_not_there(folder):
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    write(folder / "model.safetensors.index.json", index)
    assert ps.inspect_model(folder)["sizes"][0].values["missing"] == ["model-2.safetensors"]


def test_prompts_and_template(folder):
    edited(folder / "config_sentence_transformers.json", prompts={"query": "query: ", "document": ""})
    (prompts,) = ps.inspect_model(folder)["prompts"]
    assert (prompts.level, prompts.values["prompts"]) == ("note", {"query": "query: ", "document": ""})


def test_a_card_of_blank_lines_alone_takes_no_time(folder):
    (folder / "README.md").write_text("---" + "\n" * 60_000, encoding="utf-8")
    ps.inspect_model(folder)  # imports
    begin = time.process_time()
    assert ps.inspect_model(folder)["licence"][0].values["licence"] is None
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(("file", "content", "licence"), [("LICENSE", "MIT", None), ("README.md", "# none", None)])
def test_licences_in_other_places(folder, file, content, licence):
    (folder / file).write_text(content, encoding="utf-8")
    (entry,) = ps.inspect_model(folder)["licence"]
    assert entry.level == ("ok" if file == "LICENSE" else "note")
    assert entry.values["licence"] is licence


def test_a_graph(folder):
    pytest.importorskip("onnx")
    (folder / "model.safetensors").unlink()
    export_onnx(tiny_model(), folder / "model.onnx", inputs=("input_ids", "attention_mask"))
    result = ps.inspect_model(folder)
    assert (result.kind, result["opening"][0].values["dimension"]) == ("onnx", DIMENSION)
    assert result.exit_code == 0


def test_a_gguf_file(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(40))
    result = ps.inspect_model(tmp_path / "broken.gguf")
    assert (result.kind, levels(result)["opening"], result.exit_code) == ("gguf", "refused", 2)


def test_what_is_no_model_is_an_error(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json.* modules\.json"):
        ps.inspect_model(tmp_path)
    with pytest.raises(InputError, match="builtin:wordllama is"):
        ps.inspect_model("builtin:wordllama")
