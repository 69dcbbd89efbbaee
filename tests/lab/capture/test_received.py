"""The attention that tokens receive, against the weights that the model itself hands out."""

from __future__ import annotations

import numpy as np
import pytest
import transformers

from poolscope import encode
from poolscope.lab.capture.received import attention_received
from tiny_models import WORDS, save_model

TEXTS = [" ".join(WORDS[:5]), " ".join(WORDS[3:12]), WORDS[2]]


@pytest.mark.parametrize("layer", [-1, 1])
def test_columns_of_the_models_own_weights(tmp_path, layer):
    folder = save_model(tmp_path, "Bert")
    received = attention_received(str(folder), TEXTS, layer=layer)
    assert [len(each) for each in received] == encode(str(folder), TEXTS).lengths.tolist()
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, each in zip(TEXTS, received, strict=True):
        weights = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions[
            layer if layer < 0 else layer - 1
        ]
        assert each == pytest.approx(weights[0].detach().numpy().mean(axis=(0, 1)), abs=1e-5)
        assert each.sum() == pytest.approx(1.0, abs=1e-5)
        assert np.ptp(each) > 1e-4
