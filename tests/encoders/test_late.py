"""Late-interaction models: the tokens and scores of their own library, and of a pass by hand."""

from __future__ import annotations

import json
import string

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

import tiny_models
from poolscope import audit, encode, inspect_model, pooling_cost, pooling_report, socm
from poolscope.encoders import as_encoder
from poolscope.encoders.capabilities import spec_of, with_options
from poolscope.encoders.pooling import own_pooling
from poolscope.errors import InputError, ModelError
from poolscope.evaluation import RetrievalTask
from poolscope.evaluation.run import for_role
from poolscope.numbers.maxsim import maxsim

TEXTS = [*tiny_models.TEXTS, "red : blue :", ":"]
QUERIES = ["the cat", "a slow dog ran under the red tree and sat", "mat :"]
WIDTH = 6
FIXED = {"strategy": "fixed", "attend": False, "length": 9}


def late_model(folder, *, expansion=None, further=(), prompts=True, **lengths) -> MultiVectorEncoder:
    """A tiny model with a random Dense, the skip list `:`, and prompts that are words of its vocabulary."""
    place = tiny_models.save_model(folder)
    torch.manual_seed(1)
    first = Transformer(str(place), max_seq_length=tiny_models.POSITIONS, query_expansion=expansion, **lengths)
    dense = Dense(tiny_models.DIMENSION, WIDTH, bias=False, activation_function=torch.nn.Identity())
    dense.module_input_name = dense.module_output_name = "token_embeddings"
    modules = [first, dense, MultiVectorMask(skiplist_words=[":"]), Normalize(module_input_name="token_embeddings")]
    declared = {"query": "query ", "document": "document "} if prompts else None
    return MultiVectorEncoder(modules=[*modules, *further], prompts=declared, device="cpu")


def by_role(encoder, role):
    return with_options(encoder, encoder.options, role=role)


def check_equal(encoder, model):
    """Tokens to 1e-6 and MaxSim to 1e-5, of queries and of documents."""
    documents, queries = encoder.encode(TEXTS)[-1], by_role(encoder, "query").encode(QUERIES)[-1]
    theirs = model.encode_document(TEXTS, convert_to_numpy=True), model.encode_query(QUERIES, convert_to_numpy=True)
    for clouds, rows in zip((documents, queries), theirs, strict=True):
        assert clouds.lengths.tolist() == [len(row) for row in rows]
        for k, row in enumerate(rows):
            np.testing.assert_allclose(clouds[k], row, atol=1e-6)
    scores = model.similarity(theirs[1], theirs[0]).numpy()
    np.testing.assert_allclose(maxsim(queries, documents) * queries.lengths[:, None], scores, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"expansion": FIXED, "document_length": 8},
        {"expansion": {**FIXED, "attend": True}},
        {"expansion": {"strategy": "min", "length": 6}, "query_length": 12},
        {"query_length": 5, "document_length": 7, "prompts": False},
    ],
    ids=["fixed", "attended", "min", "none"],
)
def test_folder_and_object_give_the_tokens_of_sentence_transformers(tmp_path, settings):
    model = late_model(tmp_path / "base", **settings)
    model.save_pretrained(str(tmp_path / "late"))
    opened, wrapped = as_encoder(tmp_path / "late"), as_encoder(model)
    check_equal(opened, model)
    check_equal(wrapped, model)
    for encoder in (opened, wrapped):
        assert encoder.card.kind == "late-interaction"
        assert encoder.card.dimension == WIDTH
        assert encoder.card.keeps_tokens
    assert wrapped.card.revision == as_encoder(model).card.revision


def pylate_folder(folder, *, length=9, **settings):
    """What PyLate 1.6 saves: Transformer and Dense alone, prefixes as added tokens, all else in one settings file."""
    tokenizer = tiny_models.tiny_tokenizer()
    model = tiny_models.tiny_model()
    tokenizer.mask_token = "<mask>"
    tokenizer.add_tokens(["[Q] ", "[D] "])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weight = torch.from_numpy(np.random.default_rng(2).normal(size=(WIDTH, tiny_models.DIMENSION)).astype(np.float32))
    identity = "torch.nn.modules.linear.Identity"
    dense = {"in_features": tiny_models.DIMENSION, "out_features": WIDTH, "bias": False, "use_residual": False}
    tiny_models.write(folder / "1_Dense" / "config.json", {**dense, "activation_function": identity})
    save_file({"linear.weight": weight}, folder / "1_Dense" / "model.safetensors")
    kinds = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    modules = [{"idx": k, "name": str(k), "path": path, "type": kind} for k, (path, kind) in enumerate(kinds.items())]
    tiny_models.write(folder / "modules.json", modules)
    tiny_models.write(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})
    declared = {
        "prompts": {"query": "", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": length,
        "document_length": 8,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
        "do_query_expansion": True,
    }
    tiny_models.write(folder / "config_sentence_transformers.json", {**declared, **settings})
    return model.eval(), tokenizer, weight


def tokens_by_hand(model, tokenizer, weight, text, *, query, length, attend=False):
    """PyLate's steps, one text at a time: cut, put the prefix second, expand, project, normalise, skip."""
    ids = tokenizer(text, truncation=True, max_length=length - 1)["input_ids"]
    ids.insert(1, tokenizer.convert_tokens_to_ids("[Q] " if query else "[D] "))
    real = len(ids)
    if query:
        ids += [tokenizer.mask_token_id] * (length - real)
    mask = torch.tensor([[1] * real + [int(attend)] * (len(ids) - real)])
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
    vectors = torch.nn.functional.normalize(states @ weight.T, dim=1).numpy()
    skipped = set() if query else set(tokenizer.convert_tokens_to_ids([":"]))
    return vectors[[k for k, token in enumerate(ids) if token not in skipped]]


@pytest.mark.parametrize("attend", [False, True])
def test_a_folder_of_pylate_gives_the_tokens_of_its_steps_by_hand(tmp_path, attend):
    loaded = pylate_folder(tmp_path / "pylate", attend_to_expansion_tokens=attend)
    encoder = as_encoder(tmp_path / "pylate")
    documents, queries = encoder.encode(TEXTS)[-1], by_role(encoder, "query").encode(QUERIES)[-1]
    for k, text in enumerate(TEXTS):
        np.testing.assert_allclose(documents[k], tokens_by_hand(*loaded, text, query=False, length=8), atol=1e-6)
    for k, text in enumerate(QUERIES):
        by_hand = tokens_by_hand(*loaded, text, query=True, length=9, attend=attend)
        np.testing.assert_allclose(queries[k], by_hand, atol=1e-6)
    assert queries.lengths.tolist() == [9, 9, 9]
    names = by_role(encoder, "query").vocabulary.names(queries.token_ids(0))
    assert names[2:] == ["the", "cat", "</s>", *["<mask>"] * 4]
    whole = [len(loaded[1](text)["input_ids"]) + 1 for text in TEXTS]
    assert documents.truncated.tolist() == [max(count - 8, 0) for count in whole]


def test_stanfords_colbert_is_opened_with_its_projection(tmp_path):
    folder = tiny_models.save_model(tmp_path / "colbert")
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(3)
    weights = {f"bert.{name}": tensor for name, tensor in weights.items()} | {
        "linear.weight": torch.randn(WIDTH, tiny_models.DIMENSION)
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    tiny_models.write(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    metadata = {"query_token_id": "query", "doc_token_id": "document", "query_maxlen": 9, "doc_maxlen": 12}
    tiny_models.write(folder / "artifact.metadata", metadata)
    check_equal(as_encoder(folder), MultiVectorEncoder(str(folder), device="cpu", local_files_only=True))


def test_options_reach_the_model_and_a_specification_opens_it_again(tmp_path):
    model = late_model(tmp_path / "base", expansion=FIXED)
    model.save_pretrained(str(tmp_path / "late"))
    shorter = encode(str(tmp_path / "late"), TEXTS, max_length=6)
    assert shorter.lengths.max() == 6
    plain = encode(str(tmp_path / "late"), TEXTS, prompt="")
    theirs = model.encode(TEXTS, prompt="", task="document", convert_to_numpy=True)
    np.testing.assert_allclose(plain[1], theirs[1], atol=1e-6)
    asking = encode(str(tmp_path / "late"), QUERIES, role="query", max_length=6)
    assert asking.lengths.tolist() == [9, 9, 9]  # as wide as the expansion, whatever the option
    sides = for_role(as_encoder(tmp_path / "late"), "query")
    again = spec_of(sides).open()
    assert again.role == "query"
    np.testing.assert_array_equal(again.encode(QUERIES)[-1][0], sides.encode(QUERIES)[-1][0])
    with pytest.raises(InputError, match="positions"):
        as_encoder(tmp_path / "late", max_length=1000)


def test_merged_tokens_have_no_ids(tmp_path):
    model = late_model(tmp_path / "base", further=[HierarchicalTokenPooling(pool_factor=2)])
    encoder = as_encoder(model)
    check_equal(encoder, model)
    assert encoder.encode(TEXTS)[-1].token_ids(0) is None


def test_what_a_folder_names_is_checked_before_it_is_loaded(tmp_path):
    pylate_folder(tmp_path / "pylate")
    place = tmp_path / "pylate"
    modules = json.loads((place / "modules.json").read_text())
    for kind in ("os.system", "sentence_transformers.models.CLIPModel"):
        tiny_models.write(place / "modules.json", [modules[0], {**modules[1], "type": kind}])
        with pytest.raises(ModelError, match="modules"):
            as_encoder(place)
    tiny_models.write(place / "modules.json", modules)
    (place / "1_Dense" / "model.safetensors").rename(place / "1_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="allow_pickle"):
        as_encoder(place)


def test_inspection_says_that_it_pools_nothing(tmp_path):
    late_model(tmp_path / "model").save(str(tmp_path / "late"))
    seen = inspect_model(tmp_path / "late")
    assert (seen.kind, seen["pooling"][0].level, seen["opening"][0].level) == ("late-interaction", "ok", "ok")


def test_metrics_read_the_tokens_and_what_needs_one_vector_a_text_is_refused(tmp_path):
    encoder = as_encoder(late_model(tmp_path / "base"))
    assert pooling_report(encoder).faithful is False
    assert "MaxSim" in pooling_report(encoder).warning()
    result = socm(encode(encoder, TEXTS))
    assert 0 <= result.mean <= 1
    with pytest.raises(ModelError, match="poolscope cost"):
        own_pooling(encoder)
    with pytest.raises(ModelError, match="poolscope cost"):
        audit(encoder, TEXTS)


def test_the_cost_of_pooling_a_late_interaction_model_is_against_its_own_score(tmp_path):
    model = late_model(tmp_path / "base", expansion=FIXED)
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(tiny_models.WORDS, 8)) for _ in range(30)]
    queries = [" ".join(text.split()[:3]) for text in texts]
    result = pooling_cost(model, RetrievalTask(queries, texts, [(k, k) for k in range(30)]))
    scores = model.similarity(model.encode_query(queries), model.encode_document(texts)).numpy()
    ranks = (scores > np.diagonal(scores)[:, None]).sum(axis=1)
    found = float((ranks < result.k).sum())
    assert result.keeps_tokens
    assert result.special_tokens == "kept"
    assert result["MaxSim"].found == pytest.approx(found, abs=0.5)
    assert result.cost is result["MaxSim"].gain
    ndcg = np.where(ranks < result.k, 1 / np.log2(ranks + 2), 0).mean()
    assert result["MaxSim"].ndcg.value == pytest.approx(ndcg, abs=0.02)
