"""A runtime beside its reference, over the wire: right, wrong in a dozen ways, each named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import invoke, run
from poolscope import audit, check_runtime
from poolscope.auditing.judges import RuntimeCheck
from poolscope.encoders.endpoint import Endpoint
from poolscope.encoders.http import EndpointError
from poolscope.errors import InputError
from poolscope.runtimes.asking import compare_declarations
from runtime_server import LONGEST, WRONG, Model, serving
from tiny_models import declare, save_model, write

# Words of the tiny models, so that its tokens differ: enough short and long ones to tell truncation.
TEXTS = [
    "the red dog ran fast under the blue tree and the slow cat sat on a mat",
    "the dog ran and ran",
    "a document of the cat : red and blue",
    "slow cat under a red tree " * 8,
    "the passage of a dog on a mat and the query of a cat " * 6,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = save_model(tmp_path_factory.mktemp("model"), max_position_embeddings=128)
    return declare(place, after=["Normalize"], bert={"max_seq_length": 64})


@pytest.fixture(scope="module")
def server(folder):
    with serving(Model(folder)) as running:
        yield running


@pytest.fixture
def embedding(server):
    """How the server is told to embed; afterwards it embeds rightly again."""

    def told(way, fault=""):
        server.way, server.fault = way, fault
        return server.url

    yield told
    server.way, server.fault = "right", ""


def test_a_right_runtime_is_ok_and_every_kind_of_probe_was_sent(embedding, server, folder):
    server.asked.clear()
    check = check_runtime(embedding("right"), folder, TEXTS)
    assert check.verdict.level == "ok"
    assert check.match.own.mean == pytest.approx(1, abs=1e-6)
    assert "The reference cuts texts at 64 tokens, as the model declares." in check.verdict.evidence
    assert (check.match.repeated, check.match.batched) == pytest.approx((1, 1), abs=1e-5)
    assert check.empty == "a vector"
    sent = [body["input"] for body in server.asked]
    assert len(sent) == check.requests
    assert sent.count(sent[0]) == 2 or any(sent.count(texts) == 2 for texts in sent)
    assert [""] in sent
    assert sum(len(texts) == 1 for texts in sent) >= 6


@pytest.mark.parametrize("way", WRONG)
def test_every_way_to_embed_wrongly_is_named(embedding, folder, way):
    check = check_runtime(embedding(way), folder, TEXTS, endpoint={"batch": 8})
    assert check.match.best.name.startswith(WRONG[way])
    assert check.match.best.explains
    assert check.verdict.level in ("watch", "repair")
    assert check.match.best.words in check.verdict.sentence
    second = check.match.second
    assert second.mean < check.match.best.mean
    assert second.name in check.verdict.sentence


@pytest.mark.parametrize(
    ("way", "level", "words"),
    [
        ("order", "repair", "another order"),
        ("chance", "repair", "not deterministic"),
        ("batch", "repair", "batch dependent"),
        ("normalize", "watch", "does not: search by cosine"),
        ("dimensions", "watch", "first 8 of 16 dimensions"),
        ("binary", "watch", "signs"),
    ],
)
def test_what_no_single_hypothesis_tells_is_told_by_asking_again_or_by_form(embedding, folder, way, level, words):
    check = check_runtime(embedding(way), folder, TEXTS)
    assert (check.verdict.level, words in check.verdict.sentence) == (level, True), check.verdict.sentence


def test_eight_bits_are_the_models_own_vectors(embedding, folder):
    check = check_runtime(embedding("int8"), folder, TEXTS)
    assert check.verdict.level == "ok"
    assert "search by cosine" not in check.verdict.sentence  # the lengths of whole numbers say nothing
    assert check.match.own.share == 1
    assert check.match.form == "rounded to 8 bits"
    assert check.match.plain < 1 - 1e-6


def test_weights_of_few_bits_are_told_from_another_model(embedding, folder):
    check = check_runtime(embedding("four bits"), folder, TEXTS)
    bits, cosine = check.match.bits
    assert bits in (3, 4, 5)
    assert 0 < 1 - cosine < 2.1 * (1 - check.match.own.mean)
    assert check.match.form == ""  # the vectors themselves are plain numbers
    assert f"weights rounded to about {bits} bits" in check.verdict.sentence
    assert check.verdict.level in ("watch", "repair")
    left = [cosine for _, cosine in check.match.rounded]
    assert left[0] > 0.999 > left[-1]  # eight bits hardly change anything, two do
    again = check_runtime(embedding("right"), folder, TEXTS)
    assert again.match.own.mean == pytest.approx(1, abs=1e-6)  # the weights are whole again


def test_texts_that_a_server_takes_for_too_long_are_left_out_and_said(embedding, server, folder):
    server.asked.clear()
    check = check_runtime(embedding("cls", "too long"), folder, TEXTS)
    assert check.match.best.name == "cls"
    assert max(map(len, check.probes)) <= LONGEST
    assert len(check.probes) == check.match.texts
    assert any("are refused as too long" in note for note in check.verdict.evidence)
    long_ones = [texts for texts in (body["input"] for body in server.asked) if max(map(len, texts)) > LONGEST]
    assert len(long_ones) <= 12  # not five times each: that would not help
    with pytest.raises(EndpointError, match=r"refused a text as too long \(500\).*poolscope chunk") as refused:
        audit(server.url, TEXTS * 5 + ["word " * 200])
    assert "\n" not in str(refused.value)


def test_another_model_is_said_to_be_one(embedding, tmp_path):
    other = declare(save_model(tmp_path, seed=7, max_position_embeddings=128), bert={"max_seq_length": 64})
    check = check_runtime(embedding("right"), other, TEXTS)
    assert check.verdict.level == "repair"
    assert "another model" in check.verdict.sentence


def test_an_empty_text_may_be_refused(embedding, folder):
    assert check_runtime(embedding("right", "no empty"), folder, TEXTS).empty == "refused"


def test_vectors_of_more_dimensions_are_refused_in_one_line(embedding, folder):
    with pytest.raises(InputError, match=r"received dimension 32; .* gives dimension 16 or less"):
        check_runtime(embedding("right", "wide"), folder, TEXTS)


def test_a_check_comes_back_from_its_file_and_holds_no_key(embedding, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("POOLSCOPE_API_KEY", "sk-secret")
    check = check_runtime(Endpoint(embedding("cls"), protocol="openai"), folder, TEXTS)
    check.save(tmp_path / "check.json")
    assert "sk-secret" not in (tmp_path / "check.json").read_text()
    again = RuntimeCheck.load(tmp_path / "check.json")
    assert again.verdict == check.verdict
    assert again.match.best == check.match.best
    assert check.to_table().column("cause").to_pylist()[0] == "as declared"


def test_an_object_that_embeds_is_a_runtime_too(folder):
    model = Model(folder)

    class Embeddings:
        def embed_documents(self, texts):
            return model.embed(texts, "cls")

    assert check_runtime(Embeddings(), folder, TEXTS).match.best.name == "cls"
    with pytest.raises(InputError, match="runtime: received int"):
        check_runtime(3, folder)


# -- what the file of a runtime declares ------------------------------------------------------------------------------


def test_the_pooling_of_a_folder_is_compared_with_the_reference(folder, tmp_path):
    from poolscope.encoders import as_encoder

    write(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "cls"})
    pooling, length = compare_declarations(tmp_path, as_encoder(folder).card)
    assert pooling.differs
    assert str(pooling) == "pooling: cls there, mean in the reference"
    assert not length.differs


@pytest.mark.parametrize(("number", "name"), [(1, "mean"), (2, "cls"), (3, "last"), (0, None)])
def test_the_pooling_of_a_gguf_file_is_read_from_its_header(folder, tmp_path, number, name):
    import gguf

    from poolscope.encoders import as_encoder

    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "bert")
    writer.add_context_length(512)
    writer.add_pooling_type(gguf.PoolingType(number))
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    pooling, length = compare_declarations(tmp_path / "model.gguf", as_encoder(folder).card)
    assert (pooling.served, pooling.reference, pooling.differs) == (name, "mean", name not in (None, "mean"))
    assert (length.served, length.reference) == ("512", "64")


def test_what_no_runtime_loads_is_refused(folder, tmp_path):
    from poolscope.encoders import as_encoder

    with pytest.raises(InputError, match=r"--served\): received .*/model.txt.*\.gguf"):
        compare_declarations(tmp_path / "model.txt", as_encoder(folder).card)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_names_the_cause_and_ends_with_its_exit_code(embedding, folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    called = ("runtime", embedding("cls"), tmp_path / "texts.txt", "--reference", folder)
    screen = run(*called, "--json", tmp_path / "check.json", expect=1)
    assert "pooled by cls" in screen
    assert "Next\nset the pooling of your runtime to mean" in screen
    content = json.loads((tmp_path / "check.json").read_text())
    assert content["verdict"]["level"] == "repair"
    assert len(run(*called, "--fail-on", "never").splitlines()) < 40
    embedding("right")
    assert "ok" in run(*called, "--fail-on", "watch")


def test_the_command_refuses_what_cannot_be(folder):
    for arguments, words in (
        (("ftp://host", "--reference", folder), "an http or https address"),
        (("http://host/embed", "--fail-on", "x"), "--fail-on: received 'x'"),
        (("http://host/embed", "--reference", folder, "--protocol", "x"), "protocol: received 'x'"),
    ):
        with pytest.raises(InputError, match=words):
            invoke("runtime", *arguments)


@pytest.mark.parametrize("number", ["1.0", "3e38", "-0.25"])
def test_one_vector_for_all_texts_is_a_finding(embedding, folder, number):
    check = check_runtime(embedding("right", f"number {number}"), folder, TEXTS)
    assert check.match.constant
    assert check.verdict.level == "repair"
    assert "gives the same vector for every text" in check.verdict.sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"endpoint": 5}, "endpoint: received 5; allowed: a dictionary"),
        ({"endpoint": {5: 1}}, "endpoint: received dict"),
        ({"endpoint": {"nope": 1}}, "endpoint: received the setting 'nope'; allowed: model, protocol"),
        ({"endpoint": {"url": "http://host"}}, "endpoint: received the setting 'url'"),
        ({"endpoint": {"timeout": "a"}}, "timeout: received 'a'"),
        ({"endpoint": {"timeout": 1e30}}, r"timeout: received 1e\+30"),
        ({"endpoint": {"key_variable": 5}}, "key_variable: received 5"),
        ({"texts": [1, 2]}, "texts: entry 0 is of type int"),
        ({"served": 5}, "served: received 5; allowed: a string, a path"),
    ],
)
def test_arguments_that_cannot_be_are_refused(embedding, folder, arguments, words):
    with pytest.raises(InputError, match=words):
        check_runtime(embedding("right"), folder, **arguments)


def test_the_name_of_the_model_goes_before_that_of_the_settings(embedding, server, folder):
    check_runtime(embedding("right"), folder, model="first", endpoint={"model": "second"})
    assert server.asked[-1]["model"] == "first"
