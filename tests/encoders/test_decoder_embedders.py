"""Decoder embedders as they are declared: each pooling against the vectors of sentence-transformers itself."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.encoders import as_encoder
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import ModelError
from tiny_models import TEXTS, declare, save_model, tiny_tokenizer, write

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer

INSTRUCTION = "query : the document of a "
# What the families declare: the class, the pooling, where special tokens stand, the side of the padding.
DECLARED = {
    "Qwen3-Embedding": ("Qwen3", "lasttoken", "$A </s>", "left"),
    "e5-mistral": ("Mistral", "lasttoken", "<s> $A </s>", "left"),
    "LLM2Vec": ("Llama", "mean", "<s> $A", "left"),
    "SGPT": ("GPT2", "weightedmean", "$A", "right"),
    "last, padded on the right": ("Llama", "lasttoken", "<s> $A </s>", "right"),
}
SIZES = {
    "Mistral": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
                "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 24, "sliding_window": None},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24},
}  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("role", ["query", "document"])
def test_vectors_are_those_of_the_library(name, role, tmp_path):
    architecture, mode, template, side = DECLARED[name]
    tokenizer = tiny_tokenizer(template=template, padding_side=side)
    save_model(tmp_path, architecture, tokenizer=tokenizer, **SIZES.get(architecture, {}))
    declare(tmp_path, pooling={"pooling_mode": mode}, after=["Normalize"], prompts={"query": INSTRUCTION})
    model = SentenceTransformer(str(tmp_path))
    encode = model.encode_query if role == "query" else model.encode_document
    expected = encode(TEXTS, batch_size=len(TEXTS))
    for source in (tmp_path, model):
        encoder = as_encoder(source, role=role)
        assert encoder.card.pooling == (mode,)
        pooling = TextPooling(encoder.card)
        assert pooling.own
        vectors = pooling.pool(encoder.encode(TEXTS)[-1])
        np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-5)


def test_a_model_with_code_of_its_own_is_refused_by_name(tmp_path):
    """NV-Embed, which pools by latent attention, brings its own code, and that is not run."""
    save_model(tmp_path, "Llama")
    config = {"model_type": "nvembed", "architectures": ["NVEmbedModel"]}
    write(tmp_path / "config.json", {**config, "auto_map": {"AutoModel": "modeling_nvembed.NVEmbedModel"}})
    with pytest.raises(ModelError, match="--trust-remote-code"):
        as_encoder(tmp_path)
