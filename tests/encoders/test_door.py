"""The one door: what is taken as a model, and what is said about everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from poolscope.clouds import TokenClouds
from poolscope.encoders import (
    ENCODERS,
    EncoderKind,
    EncoderOptions,
    ModelCard,
    TokenEncoder,
    as_encoder,
    encode,
    register_encoder,
)
from poolscope.encoders.base import as_progress, check_layers, resolve_prompt
from poolscope.errors import InputError, ModelError
from tiny_models import tiny_model, tiny_tokenizer

ARRAYS = [np.eye(3, dtype=np.float32), np.ones((2, 3), dtype=np.float32)]


def by_length(texts):
    return [np.full((len(text) + 1, 2), k + 1.0) for k, text in enumerate(texts)]


class OwnEncoder:
    card = ModelCard("own", "own", 2)

    def encode(self, texts, *, layers=None, progress=None):
        clouds = TokenClouds.from_arrays(by_length(texts), texts=texts)
        return dict.fromkeys([-1] if layers is None else layers, clouds)


def test_a_function():
    seen = []
    clouds = encode(by_length, ["a", "bcd"], progress=lambda *done: seen.append(done))
    assert clouds.lengths.tolist() == [2, 4]
    assert list(clouds.texts) == ["a", "bcd"]
    assert seen == [(2, 6)]
    assert clouds.provenance["model"]["name"] == "by_length"
    assert as_encoder(by_length).card.revision is None  # nobody can tell when a function changes
    many = encode(by_length, ["a"] * 600, progress=lambda *done: seen.append(done))
    assert (len(many), len(seen)) == (600, 4)


def test_a_function_must_give_one_array_a_text():
    with pytest.raises(InputError, match=r"1 arrays .* 2 texts"):
        encode(lambda texts: by_length(texts)[:-1], ["a", "b"])
    with pytest.raises(InputError, match="layers: received"):
        encode(by_length, ["a"], layers=[0])
    assert set(encode(by_length, ["a"], layers=[-1])) == {-1}


@pytest.mark.parametrize(
    "given", [ARRAYS, tuple(ARRAYS), [torch.tensor(a) for a in ARRAYS], TokenClouds.from_arrays(ARRAYS)]
)
def test_ready_arrays_get_their_texts(given):
    clouds = encode(given, ["abc", "de"])
    assert list(clouds.texts) == ["abc", "de"]
    np.testing.assert_array_equal(clouds[1], ARRAYS[1])


def test_ready_arrays_must_match_their_texts():
    with pytest.raises(InputError, match=r"1 texts .* 2 ready"):
        encode(ARRAYS, ["abc"])
    own = TokenClouds.from_arrays(ARRAYS, texts=["abc", "de"])
    assert encode(own, ["abc", "de"]).to_table().equals(own.to_table())
    with pytest.raises(InputError, match="text 1 "):
        encode(own, ["abc", "other"])


def test_an_encoder_of_ones_own_passes_through():
    own = OwnEncoder()
    assert isinstance(own, TokenEncoder)
    assert as_encoder(own) is own
    assert encode(own, ["a"]).lengths.tolist() == [2]
    assert set(encode(own, ["a"], layers=[0, 1])) == {0, 1}


@pytest.mark.parametrize("given", [by_length, ARRAYS, OwnEncoder(), TokenClouds.from_arrays(ARRAYS)])
def test_options_that_cannot_apply_are_refused(given):
    with pytest.raises(InputError, match=r"\['max_length'\]"):
        encode(given, ["a", "b"], max_length=3)
    assert as_encoder(given, max_length=None) is not None


@pytest.mark.parametrize("given", [None, 3, [], {"a": 1}, object(), [1.0, 2.0]])
def test_anything_else_is_refused_with_a_list_of_what_is_allowed(given):
    with pytest.raises(InputError, match="allowed: ") as refused:
        as_encoder(given)
    assert all(kind.words in str(refused.value) for kind in ENCODERS.values())


def test_a_model_without_its_tokenizer():
    with pytest.raises(InputError, match=r"BertModel alone; .*\(model, tokenizer\)"):
        as_encoder(tiny_model())


def test_names_that_are_neither_path_nor_hub_name(tmp_path):
    for name in ("./no/such/folder", "a/b/c", "/absent", "model.onnx", "~/absent/model", "two words"):
        with pytest.raises(InputError, match=f"file or folder {name!r}"):
            as_encoder(name)
    with pytest.raises(ModelError, match=r"folder .*config\.json"):
        as_encoder(tmp_path)
    (tmp_path / "weights.pth").write_bytes(b"")
    (tmp_path / "corpus.txt").write_text("A line of text.")
    (tmp_path / "corpus.jsonl").write_text('{"text": "a"}')
    for texts in (tmp_path, tmp_path / "corpus.txt", tmp_path / "corpus.jsonl", "builtin:manuals"):
        with pytest.raises((ModelError, InputError)) as refused:
            as_encoder(texts)
        assert str(refused.value).endswith(f": builtin:minilm {texts}")
    with pytest.raises(ModelError, match=r"'\.pth'"):
        as_encoder(tmp_path / "weights.pth")


def test_a_revision_belongs_to_hub_names(tmp_path):
    for given in (tmp_path, "builtin:minilm", (tiny_model(), tiny_tokenizer())):
        with pytest.raises(InputError, match="revision: received 'main'"):
            as_encoder(given, revision="main")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prompt": "a", "role": "query"}, "prompt and role;"),
        ({"role": "poet"}, "role: received 'poet'"),
        ({"dtype": "int4"}, "dtype: received 'int4'; .*float32"),
        ({"max_length": 0}, "max_length: received 0; allowed"),
        ({"max_length": 2.5}, "max_length: received 2.5"),
        ({"batch_tokens": True}, "batch_tokens: received True"),
        ({"batchsize": 3}, r"\['batchsize'\]; allowed: prompt,"),
    ],
)
def test_wrong_options(wrong, message):
    with pytest.raises(InputError, match=message):
        as_encoder("builtin:minilm", **wrong)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one string", "one string"),
        (None, r"None \(NoneType\)"),
        ([], "empty list"),
        (["a", None], "entry 1 is NoneType"),
        ([b"a"], "0 is bytes"),
    ],
)
@pytest.mark.parametrize("given", [by_length, (tiny_model(), tiny_tokenizer())])
def test_wrong_texts(given, texts, message):
    with pytest.raises(InputError, match=message):
        encode(given, texts)


def test_content_holds_what_changes_the_result():
    base = EncoderOptions()
    for same in ({"device": "cpu"}, {"batch_tokens": 7}, {"allow_pickle": True}, {"trust_remote_code": True}):
        assert EncoderOptions(**same).content() == base.content()
    for other in (
        {"prompt": ""},
        {"prompt_name": "q"},
        {"role": "query"},
        {"max_length": 9},
        {"dtype": "float16"},
        {"revision": "r"},
    ):
        assert EncoderOptions(**other).content() != base.content()


def test_prompt_rules():
    card = ModelCard("m", "k", 2, prompts={"query": "q: ", "corpus": "c: ", "extra": "e: "}, default_prompt="extra")
    wanted = {"": "e: ", "query": "q: ", "document": "c: "}
    assert {role: resolve_prompt(card, EncoderOptions(role=role or None)) for role in wanted} == wanted
    assert resolve_prompt(card, EncoderOptions(prompt="")) == ""
    assert resolve_prompt(card, EncoderOptions(prompt_name="corpus")) == "c: "
    with pytest.raises(InputError, match=r"\(--prompt-name\): .*\{'name': 1\}"):
        resolve_prompt(replace(card, default_prompt={"name": 1}), EncoderOptions())


def test_layer_numbers():
    assert check_layers(None, 6, name="m") == {-1: 6}
    assert check_layers([0, -7, -1, 6], 6, name="m") == {0: 0, -7: 0, -1: 6, 6: 6}
    assert check_layers([-1], None, name="m") == {-1: -1}


def test_the_door_is_cheap_to_import():
    heavy = {"torch", "transformers", "onnxruntime", "tokenizers"}
    code = f"import sys, poolscope.encoders; print(sorted({heavy} & set(sys.modules)))"
    source = str(Path(__file__).parents[2] / "src")
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}, timeout=60
    )
    assert found.stdout.strip() == "[]"


# -- the table ----------------------------------------------------------------------------------------------------


def test_a_name_stands_once_in_the_table():
    with pytest.raises(InputError, match="'onnx' is"):
        register_encoder(EncoderKind("onnx", "mine", lambda source: True, lambda source, options: OwnEncoder()))


EXTENSION = """
import numpy as np

from poolscope import TokenClouds
from poolscope.encoders import EncoderKind, ModelCard, register_encoder


class Letters:
    def __init__(self, name, options):
        self.card = ModelCard(name, "letters", 3, revision="1", pooling=("mean",))
        self.options = options

    def encode(self, texts, *, layers=None, progress=None):
        clouds = []
        for text in texts:
            angles = np.array([ord(letter) for letter in text], dtype=float)
            clouds.append(np.column_stack([np.cos(angles), np.sin(angles), np.ones_like(angles)]))
        provenance = {"model": self.card.to_dict(), "options": self.options.content()}
        return {-1: TokenClouds.from_arrays(clouds, texts=texts, provenance=provenance)}


register_encoder(
    EncoderKind(
        "letters",
        "letters:NAME",
        lambda source: source.name.startswith("letters:"),
        lambda source, options: Letters(source.name, options),
    )
)
"""


def test_a_kind_from_outside_is_used_on_the_command_line_and_opened_again(tmp_path):
    """A package as it would be installed: a module, and the metadata that names it."""
    (tmp_path / "toy_letters.py").write_text(EXTENSION, encoding="utf-8")
    metadata = tmp_path / "toy_letters-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-letters\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[poolscope.extensions]\nletters = toy_letters\n", encoding="utf-8")
    texts = tmp_path / "texts.txt"
    texts.write_text("anagram\nnag a ram\nabc\nsomething else\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def run(*command: str) -> str:
        return subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=True, env=environment, timeout=120
        ).stdout

    shown = run("-c", "from poolscope.cli import main; main()", "socm", "letters:any", str(texts), "--no-cache")
    assert "letters:any" in shown
    assert "4 texts" in shown
    code = (
        "import poolscope, poolscope.encoders.capabilities as able; "
        "print(able.spec_of(poolscope.as_encoder('letters:b')).open().card.name)"
    )
    assert run("-c", code).strip() == "letters:b"
    refused = subprocess.run(
        [sys.executable, "-c", "import poolscope; poolscope.as_encoder('a/b/c')"],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert "letters:NAME" in refused.stderr


def test_progress_is_a_bar_or_a_function(capsys):
    model = lambda texts: [[[1.0, 2.0]] for _ in texts]  # noqa: E731
    encode(model, ["a", "b"], progress=True)
    assert "2 of 2 texts" in capsys.readouterr().err
    encode(model, ["a", "b"], progress=False)
    assert capsys.readouterr().err == ""
    seen = []
    encode(model, ["a", "b"], progress=lambda texts, tokens: seen.append(texts))
    assert sum(seen) == 2


def test_progress_without_a_known_end_is_a_line_now_and_then(capsys, monkeypatch):
    now = iter([0.0, 0.0, 1.0, 6.0, 7.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    advance = as_progress(True)
    for _ in range(3):
        advance(2, 12)
    assert capsys.readouterr().err.splitlines() == ["encoded 4 texts · 4 tokens/s"]
