"""What encoders can do beside encoding, asked for by name; an encoder opened again in another process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import poolscope
from length_data import word_model
from poolscope import as_encoder, tempscale
from poolscope.clouds import TokenClouds
from poolscope.encoders.base import EncoderOptions, ModelCard
from poolscope.encoders.capabilities import (
    CAPABILITIES,
    EncoderSpec,
    attention_of,
    can_encode,
    has,
    longest_of,
    options_of,
    require_capability,
    spec_of,
    token_counts,
    tokenizer_of,
    vocabulary_of,
    with_options,
    word_table,
)
from poolscope.errors import InputError, ModelError
from tiny_models import declare, export_onnx, save_model, tiny_model

TEXTS = ["one small text", "another text that is longer"]


def word_vectors(folder):
    path = folder / "words.txt"
    path.write_text("one 1 0\ntext 0 1\n", encoding="utf-8")
    return as_encoder(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model")), pooling={"pooling_mode": "mean"})


def test_each_kind_has_its_capabilities(tmp_path, folder):
    pytest.importorskip("onnxruntime")
    clouds = TokenClouds.from_arrays([[[1.0, 0.0]]])
    save_model(tmp_path)
    kinds = {
        "transformers": as_encoder(folder),
        "loaded": as_encoder(word_model()),
        "onnx": as_encoder(export_onnx(tiny_model(), tmp_path / "model.onnx")),
        "static": word_vectors(tmp_path),
        "function": as_encoder(lambda texts: [[[1.0, 0.0]] for _ in texts]),
        "arrays": as_encoder(clouds),
    }
    able = {name: {part for part in CAPABILITIES if has(encoder, part)} for name, encoder in kinds.items()}
    torch_alone = {"unembedding", "both_ways"}
    assert able["transformers"] == {"with_options", "tokenize", "plan", "attention", "spec"} | torch_alone
    assert able["loaded"] == able["transformers"] - {"spec"}
    assert able["onnx"] == able["transformers"] - torch_alone
    assert able["static"] == {"with_options", "tokenize", "spec"}
    assert able["function"] == able["arrays"] == set()
    assert [name for name, encoder in kinds.items() if not can_encode(encoder)] == ["arrays"]
    assert [name for name, encoder in kinds.items() if vocabulary_of(encoder) is None] == ["function", "arrays"]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_missing_capability_is_one_error(capability):
    encoder = as_encoder(lambda texts: [[[1.0, 0.0]] for _ in texts])
    with pytest.raises(ModelError, match=rf"'function', which .*{CAPABILITIES[capability][0]}"):
        require_capability(encoder, capability)


def test_an_unknown_capability_is_refused(folder):
    with pytest.raises(InputError, match="received 'wings'; allowed: with_options"):
        has(as_encoder(folder), "wings")


def test_an_encoder_from_outside_is_asked_by_name():
    class Letters:
        card = ModelCard("letters", "letters", 2)
        prompt, max_length, options = "", 7, EncoderOptions(max_length=7)

        def encode(self, texts, *, layers=None, progress=None):
            return {-1: TokenClouds.from_arrays([[[1.0, 0.0]] for _ in texts])}

        def tokenize(self, texts, max_length):
            return "tokens"

    letters = as_encoder(Letters())
    assert tokenizer_of(letters).tokenize(TEXTS, None) == "tokens"
    assert (longest_of(letters), options_of(letters).max_length, has(letters, "plan")) == (7, 7, False)


def test_other_options_load_nothing_anew(folder, tmp_path):
    encoder = as_encoder(folder)
    short = with_options(encoder, EncoderOptions(max_length=4))
    assert attention_of(short)[0] is attention_of(encoder)[0]
    assert token_counts(short, TEXTS).tolist() == [4, 4]
    assert token_counts(encoder, TEXTS).min() > 4
    assert spec_of(short).options == EncoderOptions(max_length=4)
    table = with_options(word_vectors(tmp_path), EncoderOptions(prompt="one "))
    assert [len(cloud) for cloud in table.encode(["text", "text text"])[-1]] == [2, 3]
    assert spec_of(table).options.prompt == "one "


def test_the_word_table_is_that_of_the_model(folder):
    encoder = as_encoder(folder)
    expected = attention_of(encoder)[0].get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(word_table(encoder), expected)


OPEN_AGAIN = """
import json, sys
import numpy as np
from poolscope.encoders.capabilities import EncoderSpec
request = json.loads(sys.stdin.read())
clouds = EncoderSpec.from_dict(request["spec"]).open().encode(request["texts"])[-1]
sys.stdout.buffer.write(np.concatenate(list(clouds)).tobytes())
"""


def test_opened_again_in_another_process_it_gives_the_same_bytes(folder):
    encoder = with_options(as_encoder(folder, dtype="float64"), EncoderOptions(dtype="float64", max_length=6))
    request = json.dumps({"spec": spec_of(encoder).to_dict(), "texts": TEXTS})
    run = subprocess.run([sys.executable, "-c", OPEN_AGAIN], input=request.encode(), capture_output=True, check=True)
    own = np.concatenate(list(encoder.encode(TEXTS)[-1]))
    assert own.dtype == np.float64
    assert run.stdout == own.tobytes()


def test_a_model_that_has_changed_is_not_opened_again(folder, tmp_path):
    encoder = as_encoder(folder)
    with tempscale(encoder, 0.5), pytest.raises(ModelError, match="another temperature"):
        spec_of(encoder).open()
    words = word_vectors(tmp_path)
    spec = spec_of(words)
    (tmp_path / "words.txt").write_text("one 1 0\ntext 0 2\n", encoding="utf-8")
    with pytest.raises(ModelError, match="another revision"):
        spec.open()


def test_a_specification_is_plain():
    spec = EncoderSpec("builtin:minilm", EncoderOptions(role="query"), role="query")
    assert EncoderSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_nobody_outside_asks_for_the_class_of_an_encoder():
    source = Path(poolscope.__file__).parent
    asked = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in source.rglob("*.py")
        if path.parent.name != "encoders"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance" and "Encoder" in ast.dump(node)
    ]
    assert asked == []
