"""The context of an attention temperature: nested, undone to the last bit, in threads, in encoders, and refusals."""

from __future__ import annotations

import copy
import pickle
import re
import threading
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch.nn import functional

import zoo
from attention_by_hand import LOWEST, STEPS, batch, implementation, matrix, run, threads, untouched
from poolscope import as_encoder, encode, tempscale
from poolscope.errors import InputError, ModelError
from poolscope.repairs import ByRole, YarnLike
from poolscope.repairs.temperature import switch
from poolscope.repairs.temperature.switch import PREFIX, start_watch, watched
from poolscope.stores.cache import cached_clouds
from store_fakes import corpus
from tiny_models import TEXTS


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


@pytest.mark.parametrize("name", ["BERT", "MPNet"])
def test_of_nested_contexts_the_innermost_holds(name):
    model, tokenizer = zoo.family(name)
    inputs = batch(tokenizer)
    plain = run(model, inputs)
    with tempscale(model, 0.5):
        half = run(model, inputs)
    with tempscale(model, 0.8):
        outer = run(model, inputs)
        with tempscale(model, 0.5) as applied:
            assert torch.equal(run(model, inputs), half)
            assert applied.rule.tau == 0.5
        assert torch.equal(run(model, inputs), outer)
        with tempscale(model, 1.0):
            assert torch.equal(run(model, inputs), plain)
    assert torch.equal(run(model, inputs), plain)
    assert untouched(model)


@pytest.mark.parametrize("name", ["BERT", "MPNet"])
def test_contexts_that_end_in_another_order(name):
    model, tokenizer = zoo.family(name)
    inputs = batch(tokenizer)
    first, second = ExitStack(), ExitStack()
    first.enter_context(tempscale(model, 0.8))
    second.enter_context(tempscale(model, 0.5))
    half = run(model, inputs)
    first.close()
    assert torch.equal(run(model, inputs), half)
    second.close()
    assert untouched(model)


@pytest.mark.parametrize("name", ["BERT", "MPNet", "DeBERTa-v2", "BART encoder"])
def test_errors_leave_the_model_as_it_was(name):
    model, tokenizer = zoo.family(name)
    inputs = batch(tokenizer)
    plain = run(model, inputs)
    with pytest.raises(KeyError, match="mine"), tempscale(model, 0.5):
        raise KeyError("mine")
    assert untouched(model)
    with pytest.raises(InputError, match=r"tau\(8\): received 0"), tempscale(model, lambda n: 0 if n == 8 else 1):
        run(model, inputs)
    assert untouched(model)
    assert torch.equal(run(model, inputs), plain)
    with tempscale(model, 0.5):  # and it can be used again
        assert not torch.equal(run(model, inputs), plain)


@pytest.mark.parametrize("name", ["BERT", "MPNet"])
def test_an_error_inside_an_attention(name):
    model, tokenizer = zoo.family(name)
    inputs = batch(tokenizer)
    plain = run(model, inputs)
    attention = model.encoder.layer[1].attention
    projection = attention.attn.v if name == "MPNet" else attention.self.value
    with tempscale(model, 0.5):
        handle = projection.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(model, inputs)
        handle.remove()
    scores = torch.randn(1, 1, 3, 3)
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    torch.testing.assert_close(functional.softmax(scores, dim=-1), weights)  # no interception is left behind
    assert torch.equal(run(model, inputs), plain)
    assert untouched(model)


def test_the_function_is_asked_for_the_lengths_of_the_texts_only():
    model, tokenizer = zoo.family("BERT")
    asked = []
    with tempscale(model, lambda n: asked.append(n) or 0.9):
        assert asked == []
        run(model, batch(tokenizer))
    assert sorted(asked) == sorted({len(tokenizer(text)["input_ids"]) for text in TEXTS})


def test_layers_share_a_division_and_passes_do_not(monkeypatch):
    model, tokenizer = zoo.family("T5 encoder")
    inputs, rule, divisions = batch(tokenizer), YarnLike(0.3), []
    with tempscale(model, rule):
        first = run(model, inputs)
        monkeypatch.setattr(switch, "divided", lambda *of: divisions.append(of) or of[0] / of[1])
        assert torch.equal(run(model, inputs), first)
    biases = [of for of in divisions if of[0].shape[-2:] == 2 * (inputs["input_ids"].shape[1],)]
    assert len(biases) == 1 < len(divisions) - 1


@torch.inference_mode()
def test_a_mask_that_was_changed_in_place_has_new_lengths():
    model, tokenizer = zoo.family("BERT")
    ids = batch(tokenizer)["input_ids"]
    mask = torch.ones(len(ids), 1, ids.shape[1], ids.shape[1], dtype=torch.bool)
    with tempscale(model, YarnLike(0.3)):
        model(ids, attention_mask=mask)
        mask[..., 3:] = mask[:, :, 3:] = False
        mask[:, :, 3:, 0] = True
        changed = model(ids, attention_mask=mask).last_hidden_state
        assert torch.equal(model(ids, attention_mask=mask.clone()).last_hidden_state, changed)


@pytest.mark.parametrize("tau", [0, -0.5, float("nan"), float("inf"), "0.8", True, None, [0.8]])
def test_temperatures_that_are_none(tau):
    model, _ = zoo.family("BERT")
    with pytest.raises(InputError, match=f"tau: received {re.escape(repr(tau))};"), tempscale(model, tau):
        pass
    assert untouched(model)


def test_threads_on_other_models_do_not_notice():
    models = [zoo.family(name) for name in ("BERT", "BERT", "MPNet")]
    temperatures = (0.5, 1.2, 0.7)
    expected = []
    for (model, tokenizer), tau in zip(models, temperatures, strict=True):
        with tempscale(model, tau):
            expected.append(run(model, batch(tokenizer)))
    barrier, found = threading.Barrier(3), {}

    def work(k):
        model, tokenizer = models[k]
        for _ in range(5):
            barrier.wait()
            with tempscale(model, temperatures[k]):
                found.setdefault(k, []).append(run(model, batch(tokenizer)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for k in range(3):
        assert len(found[k]) == 5
        for other in found[k]:
            torch.testing.assert_close(other, expected[k], rtol=0, atol=1e-5)
    assert all(untouched(model) for model, _ in models)


def in_a_thread(work):
    found = {}

    def note():
        try:
            found["result"] = work()
        except Exception as error:
            found["error"] = error

    thread = threading.Thread(target=note)
    thread.start()
    thread.join()
    return found


@pytest.mark.parametrize("name", ["BERT", "MPNet"])
def test_two_threads_on_one_model(name):
    model, tokenizer = zoo.family(name)
    inputs = batch(tokenizer)

    def own():
        with tempscale(model, 0.8):
            return run(model, inputs)

    with tempscale(model, 0.5):
        scaled = run(model, inputs)
        # The temperature is the model's, so a pass of another thread is scaled; its own context is refused.
        torch.testing.assert_close(in_a_thread(lambda: run(model, inputs))["result"], scaled, rtol=0, atol=1e-6)
        refused = in_a_thread(own)["error"]
        assert isinstance(refused, ModelError)
        assert "another context" in str(refused)
        assert torch.equal(run(model, inputs), scaled)
    assert "result" in in_a_thread(own)
    assert untouched(model)


def test_models_that_share_a_configuration_object():
    one, tokenizer = zoo.family("BERT")
    other = type(one)(one.config).eval()
    inputs = batch(tokenizer)
    plain, plain_other = run(one, inputs), run(other, inputs)
    first, second = ExitStack(), ExitStack()
    first.enter_context(tempscale(one, 0.5))
    assert torch.equal(run(other, inputs), plain_other)
    second.enter_context(tempscale(other, 0.5))
    first.close()
    assert torch.equal(run(one, inputs), plain)
    assert not torch.equal(run(other, inputs), plain_other)
    second.close()
    assert torch.equal(run(other, inputs), plain_other)
    assert untouched(one)


def test_copies_keep_the_temperature_and_pickles_too():
    for name in ("BERT", "MPNet"):
        model, tokenizer = zoo.family(name)
        inputs = batch(tokenizer)
        with tempscale(model, STEPS):
            scaled = run(model, inputs)
            copied, pickled = copy.deepcopy(model), pickle.dumps(model)
        assert torch.equal(run(copied, inputs), scaled)
        assert torch.equal(run(pickle.loads(pickled), inputs), scaled)
        with tempscale(copied, 1.0):
            assert torch.equal(run(copied, inputs), run(model, inputs))
        assert torch.equal(run(copied, inputs), scaled)


def test_a_new_process_learns_the_names_from_the_pickle():
    from transformers import AttentionInterface, AttentionMaskInterface

    model, tokenizer = zoo.family("BERT")
    with tempscale(model, 0.5):
        scaled, pickled = run(model, batch(tokenizer)), pickle.dumps(model)
    for registry in (AttentionInterface, AttentionMaskInterface):
        for name in [name for name in registry._global_mapping if name.startswith(PREFIX)]:
            del registry._global_mapping[name]
    assert torch.equal(run(pickle.loads(pickled), batch(tokenizer)), scaled)


def test_gradients_flow():
    for name in ("BERT", "MPNet", "T5 encoder"):
        model, tokenizer = zoo.family(name)
        inputs = batch(tokenizer)
        with tempscale(model, STEPS):
            model(**inputs).last_hidden_state.sum().backward()
        gradients = [p.grad for n, p in model.named_parameters() if "q" in n.rpartition(".")[0].rpartition(".")[2]]
        assert gradients
        assert all(torch.isfinite(g).all() and g.abs().max() > 0 for g in gradients if g is not None)


def test_training_mode_and_its_random_numbers_are_left_alone():
    model, _ = zoo.family("BERT")
    model.train()
    state = torch.get_rng_state()
    with tempscale(model, 0.5):
        assert model.encoder.layer[0].training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())


def test_half_precision_does_not_round_the_temperature():
    model, tokenizer = zoo.family("BERT")
    half = copy.deepcopy(model).to(torch.bfloat16)
    inputs = batch(tokenizer)
    with tempscale(model, STEPS), tempscale(half, STEPS):
        difference = (run(half, inputs).float() - run(model, inputs)).abs().mean()
    assert run(half, inputs).dtype == torch.bfloat16
    assert difference < 0.02


def test_an_encoder_with_its_threads_and_its_copies():
    pair = zoo.family("BERT")
    expected = {}
    for tau in (0.5, STEPS):
        with tempscale(pair[0], tau):
            expected[tau] = [run(pair[0], batch(pair[1], texts=[text])).numpy() for text in TEXTS]
    plain = encode(pair, TEXTS)
    for encoder in (as_encoder(pair, batch_tokens=20), as_encoder(pair, device="cpu,cpu", batch_tokens=20)):
        for tau, clouds in expected.items():
            with tempscale(encoder, tau) as applied, threads(2):  # batches in two threads, beside the one that opened
                found = encoder.encode(TEXTS)[-1]
            assert len(applied.layers) == 3
            for k, cloud in enumerate(clouds):
                np.testing.assert_allclose(found[k], cloud, atol=1e-5)
        np.testing.assert_allclose(matrix(encoder.encode(TEXTS)[-1]), matrix(plain), atol=1e-5)
    with tempscale(pair[0], 0.5):
        inside = encode(pair, TEXTS, dtype="float64")  # on a copy made inside the context
    np.testing.assert_allclose(inside[2], expected[0.5][2], atol=1e-4)
    with tempscale(pair, 0.5) as applied:  # the pair itself may be passed as well
        assert applied.layers[0] == "encoder.layer.0.attention.self"


def test_the_card_and_the_cache_know_the_temperature(tmp_path):
    pair = zoo.family("BERT")
    encoder, texts = as_encoder(pair), corpus()
    plain = cached_clouds(encoder, texts, cache_dir=tmp_path)
    assert encoder.card.temperature is None
    with tempscale(encoder, 0.5):
        assert encoder.card.temperature == {"kind": "constant", "tau": 0.5}
        scaled = cached_clouds(encoder, texts, cache_dir=tmp_path)
        assert cached_clouds(encoder, texts, cache_dir=tmp_path).provenance["model"]["temperature"]["tau"] == 0.5
    assert not np.allclose(matrix(plain), matrix(scaled))
    assert len(list(tmp_path.iterdir())) == 2
    with tempscale(encoder, 1.0):  # nothing is scaled, so the plain clouds are these
        assert encoder.card.temperature is None
        np.testing.assert_array_equal(matrix(cached_clouds(encoder, texts, cache_dir=tmp_path)), matrix(plain))
    with tempscale(encoder, lambda n: 0.5):  # a function cannot be recognised again: never cached
        assert encoder.card.revision is None
        np.testing.assert_array_equal(matrix(cached_clouds(encoder, texts, cache_dir=tmp_path)), matrix(scaled))
    assert len(list(tmp_path.iterdir())) == 2


def test_queries_and_documents():
    pair = zoo.family("BERT")
    both = ByRole(query=1.2, document=YarnLike(0.3))
    queries, documents = as_encoder(pair, role="query"), as_encoder(pair, role="document")
    expected = {}
    for role, rule in (("query", 1.2), ("document", YarnLike(0.3))):
        with tempscale(pair[0], rule):
            expected[role] = matrix(encode(pair, TEXTS))
        with tempscale(pair[0], both, role=role):
            np.testing.assert_array_equal(matrix(encode(pair, TEXTS)), expected[role])
    with tempscale(pair[0], both):
        np.testing.assert_array_equal(matrix(queries.encode(TEXTS)[-1]), expected["query"])
        np.testing.assert_array_equal(matrix(documents.encode(TEXTS)[-1]), expected["document"])
        assert queries.card.temperature == {"kind": "constant", "tau": 1.2}
        assert documents.card.temperature == {"kind": "yarn", "rate": 0.3}
        with pytest.raises(InputError, match="role="):
            encode(pair, TEXTS)
    for rule in (both, 0.8):
        with pytest.raises(InputError, match="role: received 'title'"), tempscale(pair[0], rule, role="title"):
            pass


def test_what_is_no_model():
    pair = zoo.family("BERT")
    for wrong in ("builtin:minilm", 7, [[1.0]], lambda texts: texts, encode(pair, TEXTS)):
        with pytest.raises(InputError, match="as_encoder"), tempscale(wrong, 0.5):
            pass
    with (
        pytest.raises(InputError, match="kind 'arrays'"),
        tempscale(as_encoder(encode(pair, TEXTS)), 0.5),
    ):
        pass
    with pytest.raises(ModelError, match="Linear: no"), tempscale(torch.nn.Linear(2, 2), 0.5):
        pass


@pytest.mark.parametrize("name", ["Longformer", "gpt-oss", "XLNet", "FNet", "GPT-J", "Falcon"])
def test_families_that_are_refused_by_name(name):
    model, _ = zoo.refused(name)
    word = "sinks" if name == "gpt-oss" else "a way of its own"
    kind = {"gpt-oss": "GptOssAttention", "FNet": "FNetModel"}.get(name, name.replace("-", ""))
    with pytest.raises(ModelError, match=rf"^{kind}.*{word}"), tempscale(model, 0.5):
        pass
    assert untouched(model)


def test_other_refusals():
    model, _ = zoo.family("GPT-2", reorder_and_upcast_attn=True)
    with pytest.raises(ModelError, match="GPT2Attention: reorder_and_upcast_attn"), tempscale(model, 0.5):
        pass
    model, _ = zoo.family("BERT")
    with implementation(model, "flex_attention"), pytest.raises(ModelError, match=r"'flex_attention'.*eager, sdpa"):
        tempscale(model, 0.5).__enter__()
    compiled = torch.nn.Sequential(model)
    compiled._orig_mod = model  # what torch.compile leaves behind
    with pytest.raises(ModelError, match=r"torch\.compile"), tempscale(compiled, 0.5):
        pass
    with pytest.raises(ModelError, match=r"BertModel: .*changed inside"), tempscale(model, 0.5):
        model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "sdpa"
    assert untouched(model)
    model, _ = zoo.family("BERT")
    model.get_input_embeddings().num_embeddings = 10**6
    with pytest.raises(ModelError, match=r"BertModel: .*token ids"), tempscale(model, 0.5):
        pass
    assert untouched(model)


class OwnAttention(torch.nn.Module):
    """An attention that the registry does not know of."""

    def forward(self, hidden, *args, **kwargs):
        return functional.softmax((hidden @ hidden.transpose(1, 2))[:, None], dim=-1)[:, 0] @ hidden, None


def test_a_model_of_which_a_part_would_escape_is_refused():
    model, _ = zoo.family("BERT")
    model.encoder.layer[1].attention.self = OwnAttention()
    with pytest.raises(ModelError, match=r"of 3 attentions .* 2 "), tempscale(model, 0.5):
        pass
    assert untouched(model)


def test_a_mask_that_carries_a_bias_is_refused():
    model, _ = zoo.family("BERT")
    start_watch([])
    try:
        assert watched(model, torch.tensor([[[[0.0, LOWEST]]]]))
        with pytest.raises(ModelError, match=r"BertModel: .* position bias"):
            watched(model, torch.tensor([[[[0.0, -0.5]]]]))
    finally:
        start_watch(None)
