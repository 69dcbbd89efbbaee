"""Encoders on ONNX files: the same clouds as the model that was exported."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from poolscope import layers as measure_layers
from poolscope import tempscale
from poolscope.encoders import as_encoder, encode
from poolscope.encoders import onnx as onnx_family
from poolscope.encoders.capabilities import attention_of
from poolscope.errors import InputError, ModelError
from tiny_models import (
    DIMENSION,
    LAYERS,
    POSITIONS,
    TEXTS,
    declare,
    export_onnx,
    save_model,
    tiny_model,
    tiny_tokenizer,
    write,
)

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LONG = "the cat " * 30


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """A folder with both forms of one model: safetensors and ONNX."""
    folder = save_model(tmp_path_factory.mktemp("exported"))
    export_onnx(tiny_model(), folder / "model.onnx", inputs=("input_ids", "attention_mask", "token_type_ids"))
    return folder


@pytest.fixture
def folder(exported, tmp_path) -> Path:
    """The ONNX form alone."""
    for name in ("model.onnx", "tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(exported / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("asked", ["", "1", "0", "many"])
def test_cores(asked, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert onnx_family._cores() == (1 if asked == "1" else usable)


def test_the_number_of_cores_changes_no_bit(folder, monkeypatch):
    encoder = as_encoder(folder, batch_tokens=40)
    tables = []
    for cores in (1, 3):
        monkeypatch.setattr(onnx_family, "_cores", lambda cores=cores: cores)
        tables.append(encoder.encode(TEXTS * 10)[-1].to_table())
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize("as_file", [True, False])
def test_clouds_equal_those_of_the_exported_model(as_file, folder, exported):
    texts = [*TEXTS, LONG]
    encoder = as_encoder(folder / "model.onnx" if as_file else folder, batch_tokens=50)
    clouds, expected = encoder.encode(texts)[-1], encode(exported, texts)
    for one, other in zip(clouds, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert clouds.truncated.tolist() == expected.truncated.tolist()
    assert [clouds.token_ids(k).tolist() for k in range(6)] == [expected.token_ids(k).tolist() for k in range(6)]
    card = encoder.card
    assert (card.kind, card.dimension, card.max_length, card.positions) == ("onnx", DIMENSION, POSITIONS, POSITIONS)


def test_a_folder_with_both_is_run_by_torch(exported):
    assert as_encoder(exported).card.kind == "transformers"
    assert as_encoder(exported / "model.onnx").card.kind == "onnx"


def test_padding_and_truncation_stored_in_the_tokenizer_are_put_aside(folder, exported):
    backend = tiny_tokenizer().backend_tokenizer
    backend.enable_truncation(4)
    backend.enable_padding(length=30, pad_id=1, pad_token="<pad>")
    backend.save(str(folder / "tokenizer.json"))
    np.testing.assert_allclose(encode(folder, TEXTS)[2], encode(exported, TEXTS)[2], atol=1e-5)


def test_declarations_beside_the_graph_count(folder, exported):
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    declare(folder, pooling=pooling, bert={"max_seq_length": 9}, prompts={"query": "query : "}, after=["Normalize"])
    card = as_encoder(folder).card
    assert (card.pooling, card.after, card.max_length, card.include_prompt) == (("mean",), ("Normalize",), 9, False)
    whole = encode(exported, TEXTS, prompt="query : ", max_length=9)
    for cloud, expected in zip(encode(folder, TEXTS, role="query"), whole, strict=True):
        np.testing.assert_allclose(cloud, expected[3:], atol=1e-5)  # <s>, "query" and ":" are left out


def test_the_shift_of_roberta_positions(folder):
    config = {
        "model_type": "roberta",
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 1,
        "hidden_size": DIMENSION,
    }
    write(folder / "config.json", config)
    assert as_encoder(folder).card.positions == POSITIONS - 2


def test_a_graph_below_its_tokenizer(folder):
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    assert len(encode(folder, TEXTS)) == len(encode(folder / "onnx" / "model.onnx", TEXTS)) == len(TEXTS)


def test_several_variants_must_be_chosen_from(folder):
    (folder / "model.onnx").rename(folder / "model_fp16.onnx")
    assert len(encode(folder, TEXTS)) == len(TEXTS)
    shutil.copy(folder / "model_fp16.onnx", folder / "model_int8.onnx")
    with pytest.raises(ModelError, match=r"model_fp16\.onnx, model_int8\.onnx; needed: one"):
        as_encoder(folder)


def test_a_graph_without_mask_gets_no_padding(folder, exported):
    export_onnx(tiny_model(), folder / "model.onnx", inputs=("input_ids",))
    for one, other in zip(encode(folder, TEXTS), encode(exported, TEXTS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_revision_follows_the_files(folder):
    first = as_encoder(folder).card.revision
    assert as_encoder(folder).card.revision == first
    export_onnx(tiny_model(seed=1), folder / "model.onnx")
    assert as_encoder(folder).card.revision != first


def test_what_cannot_be_asked_of_a_graph(folder):
    with pytest.raises(InputError, match="dtype: received 'float16'"):
        as_encoder(folder, dtype="float16")
    with pytest.raises(InputError, match="device: received 'tpu'"):
        as_encoder(folder, device="tpu")
    with pytest.raises(InputError, match=rf"--max-length.*{POSITIONS} tokens"):
        as_encoder(folder, max_length=POSITIONS + 1)


def test_texts_beyond_undeclared_positions_say_what_to_do(folder):
    (folder / "config.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert as_encoder(folder).card.max_length is None
    with pytest.raises(ModelError, match="pass --max-length"):
        encode(folder, [LONG])
    assert encode(folder, [LONG], max_length=POSITIONS).truncated.tolist() == [38]


def test_unusable_files_are_named(folder):
    (folder / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match=r"broken\.onnx: damaged"):
        as_encoder(folder / "broken.onnx")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json .*model\.onnx"):
        as_encoder(folder)


def graph_with(inputs: list[str], shape: list[str | int], file: Path, *, kind: str = "INT64") -> None:
    """A graph of two steps: the first input as float numbers, reshaped to the given rank."""
    types, helper = onnx.TensorProto, onnx.helper
    values = [helper.make_tensor_value_info(name, getattr(types, kind), ["texts", "positions"]) for name in inputs]
    result = helper.make_tensor_value_info("vectors", types.FLOAT, shape)
    target = helper.make_tensor("target", types.INT64, [len(shape)], [0, 0, 1][: len(shape)])
    nodes = [
        helper.make_node("Cast", [inputs[0]], ["numbers"], to=types.FLOAT),
        helper.make_node("Reshape", ["numbers", "target"], ["vectors"]),
    ]
    graph = helper.make_graph(nodes, "two_steps", values, [result], initializer=[target])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, file)


def test_graphs_of_another_form_are_refused(folder):
    graph_with(["input_ids"], ["texts", "positions"], folder / "model.onnx")
    with pytest.raises(ModelError, match=r"output .*: vectors"):
        as_encoder(folder)
    graph_with(["pixels"], ["texts", "positions", 1], folder / "model.onnx")
    with pytest.raises(ModelError, match=r"\['pixels'\]; allowed: input_ids"):
        as_encoder(folder)
    graph_with(["input_ids"], ["texts", "positions", 1], folder / "model.onnx", kind="FLOAT16")
    with pytest.raises(ModelError, match="as integers"):
        as_encoder(folder)


def test_a_graph_that_wants_shorter_integers_and_names_its_output_otherwise(folder):
    graph_with(["input_ids"], ["texts", "positions", 1], folder / "model.onnx", kind="INT32")
    clouds = encode(folder, TEXTS)
    assert clouds.dimension == 1
    assert clouds[0][:, 0].tolist() == clouds.token_ids(0).tolist()


def test_a_tokenizer_that_cuts_on_the_left(folder):
    backend = tiny_tokenizer().backend_tokenizer
    backend.enable_truncation(8, direction="left")
    backend.save(str(folder / "tokenizer.json"))
    clouds = encode(folder, [TEXTS[2]], max_length=5)
    assert clouds.token_ids(0).tolist() == tiny_tokenizer()("on a mat")["input_ids"]


# -- the same weights on torch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["Bert", "Roberta", "DistilBert", "MPNet"])
def test_layers_of_a_graph_are_those_of_the_model(architecture, tmp_path):
    expected = encode(save_model(tmp_path / "torch", architecture), TEXTS, layers=[0, 1, -1])
    (tmp_path / "onnx").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "torch" / name, tmp_path / "onnx" / name)
    export_onnx(tiny_model(architecture), tmp_path / "onnx" / "model.onnx")
    clouds = encode(tmp_path / "onnx", TEXTS, layers=[0, 1, -1])
    for layer, part in expected.items():
        for one, other in zip(clouds[layer], part, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_graph_can_be_scaled_and_put_back(folder, exported):
    encoder, other = as_encoder(folder), as_encoder(exported)
    before = encoder.encode(TEXTS)[-1]
    with tempscale(encoder, 0.5), tempscale(other, 0.5):
        assert encoder.card.temperature == other.card.temperature is not None
        for one, two in zip(encoder.encode(TEXTS)[-1], other.encode(TEXTS)[-1], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)
        assert np.abs(encoder.encode(TEXTS)[-1][0] - before[0]).max() > 0.01
    assert encoder.card.temperature is None
    np.testing.assert_allclose(encoder.encode(TEXTS)[-1][0], before[0], atol=1e-5)


def test_only_who_looks_inside_pays_for_it(folder):
    encoder = as_encoder(folder)
    encoder.encode(TEXTS)
    assert encoder.backend.twin.backend is None
    assert encoder.attention is not None
    assert encoder.backend.twin.backend is not None
    assert measure_layers(folder, TEXTS).provenance["model"]["layers"] == LAYERS


def change_weights(file: Path, change) -> None:
    model = onnx.load(str(file))
    change(model.graph)
    onnx.save(model, str(file))


def test_what_is_missing_to_look_inside_is_said(folder):
    def without_a_name(graph) -> None:
        table = next(tensor for tensor in graph.initializer if tensor.name.endswith("word_embeddings.weight"))
        for node in graph.node:
            node.input[:] = ["table" if name == table.name else name for name in node.input]
        table.name = "table"

    change_weights(folder / "model.onnx", without_a_name)
    encoder = as_encoder(folder)
    assert encoder.attention is None
    with pytest.raises(ModelError, match=r"\d+ of \d+ .*BertModel"):
        attention_of(encoder)
    with pytest.raises(ModelError, match="last layer"):
        encode(folder, TEXTS, layers=[0])
    assert len(encode(folder, TEXTS)) == len(TEXTS)
    (folder / "config.json").unlink()
    encoder = as_encoder(folder, max_length=POSITIONS)
    assert encoder.attention is None
    assert "config.json" in encoder.lacking


def test_a_model_that_gives_other_numbers_is_not_used(folder):
    settings = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", {**settings, "hidden_act": "relu"})
    encoder = as_encoder(folder)
    assert encoder.attention is None
    assert "other numbers" in encoder.lacking


# -- numbers of a graph that lie in other files -----------------------------------------------------------------------


def graph_with_data(location, *, within="graph", length="1600", rows=25):
    """A graph that looks tokens up in a table, whose numbers lie in another file; `within` says where the table is."""
    helper, kinds = onnx.helper, onnx.TensorProto
    table = kinds(name="W", data_type=kinds.FLOAT, dims=[rows, DIMENSION], data_location=kinds.EXTERNAL)
    for key, value in {"location": location, "offset": "0", "length": length}.items():
        table.external_data.add(key=key, value=value)
    ids = helper.make_tensor_value_info("input_ids", kinds.INT64, ["b", "s"])
    states = helper.make_tensor_value_info("last_hidden_state", kinds.FLOAT, ["b", "s", DIMENSION])
    nodes = [helper.make_node("Gather", ["W", "input_ids"], ["last_hidden_state"])]
    if within == "attribute":
        nodes.insert(0, helper.make_node("Constant", [], ["W"], value=table))
    elif within == "subgraph":
        branch = helper.make_graph([helper.make_node("Identity", ["W"], ["Y"])], "b", [], [], [table])
        branch.output.append(helper.make_tensor_value_info("Y", kinds.FLOAT, [rows, DIMENSION]))
        nodes[0].attribute.append(helper.make_attribute("body", branch))
    graph = helper.make_graph(nodes, "g", [ids], [states], [table] if within == "graph" else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


@pytest.fixture
def with_data(exported, tmp_path):
    """A folder with a graph whose table lies in a file, which `write` names, beside a file of others."""
    place = tmp_path / "model"
    place.mkdir()
    shutil.copy(exported / "tokenizer.json", place)
    table = np.arange(25 * DIMENSION, dtype=np.float32).reshape(25, DIMENSION)
    (place / "weights.bin").write_bytes(table.tobytes())
    (tmp_path / "secret.bin").write_bytes(np.full(25 * DIMENSION, 7.25, np.float32).tobytes())
    return place, table


@pytest.mark.parametrize("within", ["graph", "attribute", "subgraph"])
@pytest.mark.parametrize("location", ["../secret.bin", "/dev/zero", "link.bin", "*/_ORT_MEM_ADDR_/*", "absent.bin", ""])
def test_numbers_from_outside_of_the_folder_are_refused(with_data, location, within):
    place, _ = with_data
    (place / "link.bin").symlink_to("../secret.bin")
    (place / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    (place / "*" / "_ORT_MEM_ADDR_" / "*").write_bytes(bytes(1600))
    (place / "model.onnx").write_bytes(graph_with_data(location, within=within))
    with pytest.raises(ModelError, match=r"model\.onnx"):
        as_encoder(place)


@pytest.mark.parametrize("length", ["1604", "-4", str(2**62)])
def test_numbers_beyond_the_end_of_their_file_are_refused(with_data, length):
    place, _ = with_data
    (place / "model.onnx").write_bytes(graph_with_data("weights.bin", length=length))
    with pytest.raises(ModelError, match=r"bytes 0 .* 1,600"):
        as_encoder(place)


def test_numbers_beside_the_graph_are_read(with_data):
    place, table = with_data
    (place / "model.onnx").write_bytes(graph_with_data("weights.bin"))
    cloud = encode(place, TEXTS[:1])
    np.testing.assert_array_equal(cloud[0], table[cloud.token_ids(0)])
    revision = as_encoder(place).card.revision
    (place / "weights.bin").write_bytes((table + 1).tobytes())
    assert as_encoder(place).card.revision != revision


def test_links_of_the_cache_of_the_hub_are_followed(with_data, tmp_path):
    place, _ = with_data
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (place / "model.onnx").write_bytes(graph_with_data("weights.bin"))
    for number, name in enumerate(("model.onnx", "weights.bin")):
        (place / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(blobs / str(number))
    assert onnx_family.external_data(snapshot / "model.onnx", name="m") == ["weights.bin"]


def test_a_graph_that_takes_all_memory_is_refused_in_one_line(with_data):
    place, _ = with_data
    model = onnx.load_from_string(graph_with_data("weights.bin"))
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [1], [2**40])
    number = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [1.0])
    model.graph.initializer.append(shape)
    last = model.graph.node[0]
    last.output[0] = "states"
    model.graph.node.extend(
        [
            onnx.helper.make_node("ConstantOfShape", ["shape"], ["many"], value=number),
            onnx.helper.make_node("ReduceMax", ["many"], ["one"], keepdims=1),
            onnx.helper.make_node("Add", ["states", "one"], ["last_hidden_state"]),
        ]
    )
    (place / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"opening .* memory") as caught:
        as_encoder(place)
    assert "\n" not in str(caught.value)
