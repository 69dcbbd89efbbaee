"""What a decoder writes after a compressed context: against writing token by token, on a tiny decoder."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from command_line import run
from poolscope import as_encoder, context_answers, context_writing
from poolscope.errors import InputError, ModelError
from poolscope.lab.capture.continuation import context_tokens, plain_tokens
from tiny_models import tiny_model, tiny_tokenizer

TEXT = "the red dog ran fast under the blue tree and the slow cat sat on a mat"
TEXTS = [TEXT, " ".join(reversed(TEXT.split())), "a cat", "the dog ran on and on and the cat sat under a red tree"]
CONTEXT, LENGTH = 8, 6


@pytest.fixture(scope="module")
def decoder():
    from transformers import LlamaForCausalLM

    inner = tiny_model("Llama", max_position_embeddings=64)
    torch.manual_seed(1)
    model = LlamaForCausalLM(inner.config).eval()
    model.model = inner
    with torch.no_grad():
        model.lm_head.weight.normal_(std=0.3)
        model.lm_head.weight[:5] = 0  # no special token is ever the likeliest
        for layer in inner.layers:  # so that the context matters, but not for every word
            layer.self_attn.o_proj.weight.mul_(0.3)
    return model, tiny_tokenizer(template="<s> $A")


def written_by_hand(model, states, places, count):
    """Token by token, each the likeliest behind what stands already."""
    made = []
    with torch.inference_mode():
        for _ in range(count):
            word = int(model(inputs_embeds=states, position_ids=places).logits[0, -1].argmax())
            made.append(word)
            states = torch.cat([states, model.get_input_embeddings()(torch.tensor([[word]]))], dim=1)
            places = torch.cat([places, places[:, -1:] + 1], dim=1)
    return made


def common(first, second):
    return next((k for k, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), len(first))


def compressed(model, lead, tokens, given, ratio):
    """Embeddings and places of: leading token, means of windows of the context, tokens that are given."""
    table, before = model.get_input_embeddings(), len(lead)
    inside = table(torch.tensor([tokens]))[0]
    cuts = [range(start, min(start + ratio, len(tokens))) for start in range(0, len(tokens), ratio)]
    means = torch.stack([inside[list(cut)].mean(dim=0) for cut in cuts])
    centres = [before + (cut.start + cut.stop - 1) // 2 for cut in cuts]
    rest = [before + len(tokens) + k for k in range(len(given))]
    states = torch.cat([table(torch.tensor([lead]))[0], means, table(torch.tensor([given]))[0]])[None]
    return states, torch.tensor([[*range(before), *centres, *rest]])


def test_one_pass_tells_what_writing_token_by_token_gives(decoder):
    model, _ = decoder
    result = context_writing(decoder, TEXTS, ratios=[2, 4], context=CONTEXT, length=LENGTH)
    assert (result.texts, result.short, result.tokens) == (3, 1, LENGTH)
    assert result.at("full").whole.value == result.at("full").same.value == 1
    lead, ids, _ = context_tokens(as_encoder(decoder), TEXTS, CONTEXT + 1)
    shares = {2: [], 4: []}
    for tokens in ids.tolist():
        states = model.get_input_embeddings()(torch.tensor([[*lead, *tokens]]))
        full = written_by_hand(model, states, torch.arange(states.shape[1])[None], LENGTH)
        for ratio, found in shares.items():
            after = compressed(model, lead.tolist(), tokens[:CONTEXT], tokens[CONTEXT:], ratio)
            found.append(common(full, written_by_hand(model, *after, LENGTH)) / LENGTH)
    for ratio, found in shares.items():
        assert result.at("mean", ratio).same.value == pytest.approx(np.mean(found))
        assert result.at("mean", ratio).whole.value == pytest.approx(np.mean(np.array(found) == 1))
    assert 0 < np.mean(shares[2]) < 1  # the comparison is of something
    assert len(result.figure().data) == 3
    assert type(result).from_dict(result.to_dict()).to_dict() == result.to_dict()


def test_an_answer_counts_where_the_decoder_writes_it(decoder):
    """Answers that are what the decoder writes after the full context; one of them with another last word."""
    model, tokenizer = decoder
    encoder = as_encoder(decoder)
    contexts, questions = [TEXTS[0], TEXTS[1], TEXTS[3]], ["the cat", "a dog ran", "on"]
    lead, asks = plain_tokens(encoder, [f"\nQuestion: {question}\nAnswer:" for question in questions])
    lead, rows = plain_tokens(encoder, contexts)
    answers, expected = [], []
    for row, ask in zip(rows, asks, strict=True):
        states = model.get_input_embeddings()(torch.tensor([[*lead, *row, *ask]]))
        answers.append(written_by_hand(model, states, torch.arange(states.shape[1])[None], 2))
        after = compressed(model, lead.tolist(), row.tolist(), ask.tolist(), 4)
        expected.append(answers[-1] == written_by_hand(model, *after, 2))
    words = [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in answers]
    assert not set(" ".join(words).split()) & set(tokenizer.all_special_tokens)
    table = {"context": contexts, "question": questions, "answer": words}
    result = context_answers(decoder, table, ratios=[4])
    assert result.at("full").whole.value == 1
    assert result.at("mean", 4).whole.value == pytest.approx(np.mean(expected))
    wrong = {
        **table,
        "answer": [*words[:2], words[2].split()[0] + " " + ("cat" if words[2].split()[1] != "cat" else "dog")],
    }
    assert context_answers(decoder, wrong, ratios=[4]).at("full").whole.value == pytest.approx(2 / 3)
    assert context_answers(decoder, wrong, ratios=[4]).at("full").same.value == pytest.approx(5 / 6)


def test_the_command_prints_and_writes_both(decoder, tmp_path):
    model, tokenizer = decoder
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    rows = [{"context": text, "question": "a dog", "answer": "the cat"} for text in TEXTS]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    screen = run(
        "windows", tmp_path / "model", tmp_path / "texts.txt", "--ratio", "2", "--generate", 3, "--context", 6,
        "--questions", tmp_path / "asked.jsonl", "--json", tmp_path / "out.json",
    )  # fmt: skip
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["likelihood"] is None
    assert [content["writing"]["texts"], content["answers"]["texts"]] == [3, 4]
    assert "word for word" in screen


def test_what_cannot_be_asked_is_refused(decoder):
    with pytest.raises(ModelError, match="no decoder"):
        context_writing((tiny_model("Bert"), tiny_tokenizer()), TEXTS, ratios=[2], context=CONTEXT)
    with pytest.raises(InputError, match="two windows"):
        context_writing(decoder, TEXTS, ratios=[8], context=CONTEXT)
    with pytest.raises(InputError, match=r"0 of 1 .* 9 tokens"):
        context_writing(decoder, ["a cat"], ratios=[2], context=CONTEXT)
    with pytest.raises(InputError, match="received none"):
        context_answers(decoder, {"context": ["a"], "question": ["a"], "answer": ["a"]}, ratios=[])
    with pytest.raises(InputError, match="answer"):
        context_answers(decoder, {"context": ["a"], "question": ["a"]})
