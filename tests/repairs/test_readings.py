"""Other ways to read with a decoder: each against the library's own pass, what it costs, where it is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poolscope import TokenClouds, tune
from poolscope.connect.integrations.sentence_transformers_module import repaired_sentence_transformer
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import both_ways
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import split_half_task
from poolscope.lab.capture import capture
from poolscope.numbers.pooling import MeanPooling
from poolscope.repairs import Repair
from poolscope.repairs.readings import AlignedValues, AtLayer, BothWays, Echo, ValuePooling
from poolscope.repairs.search import Bench
from tiny_models import ARCHITECTURES, POSITIONS, TEXTS, WORDS, tiny_model, tiny_tokenizer

DECODERS = ["Llama", "Qwen3", "GPT2"]
SHORT = [text for text in TEXTS if len(text.split()) < 8]


def decoder(architecture="Llama", *, template="<s> $A </s>", **settings):
    return tiny_model(architecture, **settings), tiny_tokenizer(template=template)


def states(model, ids, mask=None):
    """The library's own states of one row of ids; `mask` is added to the scores."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0].numpy()


@pytest.mark.parametrize("architecture", DECODERS)
@pytest.mark.parametrize("template", ["<s> $A </s>", None])
def test_an_echo_pools_the_second_copy(architecture, template):
    model, tokenizer = decoder(architecture, template=template)
    encoder = as_encoder((model, tokenizer))
    clouds = Echo().encode(encoder, SHORT, layers=[-1, 1])
    behind = 0 if template is None else 1
    for text, cloud, ids in zip(SHORT, clouds[-1], map(clouds[-1].token_ids, range(len(SHORT))), strict=True):
        words = tokenizer(text, add_special_tokens=False)["input_ids"]
        whole = [*[0] * behind, *words, *words, *[2] * behind]
        np.testing.assert_allclose(cloud, states(model, whole)[-len(words) - behind :], atol=1e-5)
        assert ids.tolist() == whole[-len(words) - behind :]
    assert clouds[1].lengths.tolist() == clouds[-1].lengths.tolist()
    read = Echo().tokens(encoder, SHORT)
    assert read == sum(2 * len(text.split()) + 2 * behind for text in SHORT)


def test_a_text_too_long_to_stand_twice_is_cut_and_counted():
    encoder = as_encoder(decoder())
    text = " ".join(["cat"] * (POSITIONS - 2))
    clouds = Echo().encode(encoder, [text], layers=[-1])[-1]
    assert clouds.lengths.tolist() == [(POSITIONS - 2) // 2 + 1]
    assert clouds.truncated.tolist() == [POSITIONS - 2 - (POSITIONS - 2) // 2]
    narrow = as_encoder(decoder(), prompt="the " * (POSITIONS - 3))
    with pytest.raises(InputError, match="within 24 positions"):
        Echo().plan(narrow, ["cat dog"])


@pytest.mark.parametrize("architecture", DECODERS)
def test_both_ways_is_a_mask_of_no_direction(architecture):
    model, tokenizer = decoder(architecture)
    encoder = as_encoder((model, tokenizer))
    clouds = BothWays().encode(encoder, TEXTS, layers=[-1])[-1]
    for text, cloud in zip(TEXTS, clouds, strict=True):
        ids = tokenizer(text)["input_ids"]
        expected = states(model, ids, torch.zeros(1, 1, len(ids), len(ids)))
        np.testing.assert_allclose(cloud, expected, atol=1e-5)
    assert np.abs(clouds[0][0] - encoder.encode(TEXTS[:1])[-1][0][0]).max() > 1e-2
    np.testing.assert_array_equal(encoder.encode(TEXTS)[-1][0], as_encoder((model, tokenizer)).encode(TEXTS)[-1][0])


def test_a_model_in_which_the_mask_does_nothing_is_refused():
    model, tokenizer = decoder()
    plain = model.forward

    def deaf(input_ids=None, attention_mask=None, **settings):
        two = attention_mask if attention_mask is None or attention_mask.ndim == 2 else (attention_mask[:, 0, 0] == 0)
        return plain(input_ids=input_ids, attention_mask=None if two is None else two.long(), **settings)

    model.forward = deaf
    with pytest.raises(ModelError, match=r"LlamaModel.* mask"):
        both_ways(as_encoder((model, tokenizer)))
    with pytest.raises(ModelError, match=r"'function', .*which tokens"):
        both_ways(as_encoder(lambda texts: [[[1.0]] for _ in texts]))


def test_windows_of_attention_bound_the_texts():
    encoder = as_encoder(decoder("Mistral", **ARCHITECTURES["Llama"], sliding_window=8))
    assert len(BothWays().encode(encoder, ["a dog"], layers=[-1])[-1]) == 1
    with pytest.raises(InputError, match="8 at"):
        BothWays().encode(encoder, [TEXTS[2]], layers=[-1])


@pytest.mark.parametrize("architecture", DECODERS)
def test_values_are_those_that_capture_sees(architecture):
    """GPT-2 projects queries, keys and values in one; two heads of Llama share one value."""
    pair = decoder(architecture)
    encoder = as_encoder(pair)
    clouds = ValuePooling().encode(encoder, TEXTS, layers=[-1])[-1]
    half = ValuePooling(0.5, 1.0).encode(encoder, TEXTS, layers=[-1])[-1]
    aligned = AlignedValues(before="", after="").encode(encoder, TEXTS, layers=[-1])[-1]
    for batch in capture(pair, TEXTS):
        for text in batch.texts():
            values = []
            for layer in text.layers:
                p = layer.site.projections
                out = layer.U @ p.value.weight.numpy() + (0 if p.value.bias is None else p.value.bias.numpy())
                values.append(out[:, list(p.columns)])
            np.testing.assert_allclose(clouds[text.position], np.mean(values, axis=0), atol=1e-4)
            np.testing.assert_allclose(half[text.position], values[1], atol=1e-4)
            # What attention adds to the last word, before the </s> that the reading leaves out. Causal: it sees none.
            branch = np.mean([layer.Z[-2] for layer in text.layers], axis=0)
            np.testing.assert_allclose(aligned[text.position], branch[None], atol=1e-4)
    assert clouds.provenance["part"] == "values"
    with pytest.raises(InputError, match="low, high"):
        ValuePooling(0.9, 0.1).encode(encoder, TEXTS, layers=[-1])


def test_the_prompt_stands_around_the_text():
    encoder = as_encoder(decoder())
    plan = AlignedValues(before="the document of", after="and :").plan(encoder, ["cat", "a red dog"])
    rows = np.split(plan.tokens.ids, plan.tokens.offsets[1:-1])
    assert encoder.vocabulary.names(rows[0]) == ["<s>", "the", "document", "of", "cat", "and", ":"]
    assert plan.sizes.tolist() == [1, 1]


def test_readings_are_for_decoders():
    bert = as_encoder((tiny_model("Bert"), tiny_tokenizer()))
    assert [kind().prepared(bert) for kind in (Echo, BothWays, ValuePooling, AlignedValues)] == [None] * 4
    assert AtLayer(1).prepared(bert) is not None
    assert AtLayer(9).prepared(bert) is None
    assert Echo().prepared(as_encoder(lambda texts: [[[1.0]] for _ in texts])) is None
    with pytest.raises(InputError, match=r"layers \[-1, -2\]"):
        ValuePooling().encode(as_encoder(decoder()), TEXTS, layers=[-1, -2])


def test_a_reading_is_kept_in_the_file(tmp_path):
    pair = decoder()
    for reading in (Echo(), BothWays(), ValuePooling(0.5, 1.0), AlignedValues(after="and"), AtLayer(1)):
        repair = Repair(reading=reading, vectors="mean removal")
        encoder = as_encoder(pair)
        sides = [reading.encode(encoder, SHORT, layers=[-1])]
        fitted = repair.fitted(sides, MeanPooling()).made_for(encoder, {})
        fitted.save(tmp_path / "repair.safetensors")
        again = Repair.load(tmp_path / "repair.safetensors")
        assert (again.label, again.digest) == (fitted.label, fitted.digest)
        vectors = again.apply(pair).encode(SHORT)
        np.testing.assert_allclose(vectors, fitted.pooled(sides[0], MeanPooling()), atol=1e-6)
    np.testing.assert_allclose(
        Repair(reading=AtLayer(1)).apply(pair).encode(SHORT),
        unit(as_encoder(pair).encode(SHORT, layers=[1])[1]),
        atol=1e-6,
    )
    with pytest.raises(InputError, match=r"repair: .*echo"):
        repaired_sentence_transformer(None, Repair(reading="echo"))


def unit(clouds: TokenClouds):
    means = MeanPooling().transform(clouds)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def long_texts(count):
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS[:12], size=18)) for _ in range(count)]


def test_tune_tries_them_with_their_cost():
    few = {"temperatures": [], "repairs": ["mean removal"], "reranked": 0}
    result = tune(decoder(), long_texts(24), poolings=["mean without first"], **few)
    rows = {row["candidate"]: row for row in result.rows()}
    assert {"echo", "bidirectional", "value pooling", "aligned values"} <= set(rows)
    assert rows["echo"]["reads"] == pytest.approx(20 / 11)  # nine words and two special tokens, then nine words more
    assert (rows["value pooling"]["width"], rows["bidirectional"]["width"], result.width) == (8, 16, 16)
    assert rows["bidirectional"]["reads"] == 1
    assert rows["mean removal, project"]["reads"] == 1
    assert any(row["family"] == "combination" and " · mean removal" in name for name, row in rows.items())
    bert = tune((tiny_model("Bert"), tiny_tokenizer()), long_texts(24), poolings=[], readings=["echo"], **few)
    assert any("echo" in note for note in bert.notes)


def test_the_bench_reads_as_the_repaired_model_does():
    encoder = as_encoder(decoder())
    bench = Bench(encoder, split_half_task(long_texts(12)), MeanPooling())
    trial = bench.try_repair(Repair(reading="echo"))
    vectors = [Repair(reading="echo").apply(encoder).encode(list(side.texts)) for side in bench.task.sides]
    assert trial.evaluation.value == pytest.approx(bench.task.score(*vectors).value)
