"""The position rule of E5-4k: on a tiny model with 4,096 positions, against passes with the ids written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from poolscope import as_encoder
from poolscope.errors import ModelError
from poolscope.lab.papers import length_collapse
from poolscope.lab.papers.models import LENGTH_MODELS
from poolscope.lab.papers.positions import spread_positions
from poolscope.lab.papers.runner import run_paper
from poolscope.lab.papers.sources import Places
from tiny_models import WORDS, save_model, tiny_model, tiny_tokenizer

RANDOM = np.random.default_rng(2)
SHORT, LONG = (" ".join(RANDOM.choice(WORDS, size=length)) for length in (40, 700))


def by_hand(text, factor):
    model, tokenizer = tiny_model(max_position_embeddings=4096), tiny_tokenizer()
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        return model(input_ids=ids, position_ids=factor * torch.arange(ids.shape[1])[None]).last_hidden_state[0].numpy()


def test_short_texts_have_every_eighth_position_and_long_ones_plain_ones(tmp_path):
    encoder = as_encoder(save_model(tmp_path / "tiny", max_position_embeddings=4096))
    plain = encoder.encode([SHORT, LONG])[-1]
    spread_positions(encoder, 8)
    spread = encoder.encode([SHORT, LONG])[-1]  # both in one batch, each by its own rule
    np.testing.assert_allclose(spread[0], by_hand(SHORT, 8), atol=1e-5)
    np.testing.assert_allclose(spread[1], by_hand(LONG, 1), atol=1e-5)
    assert np.abs(np.asarray(spread[0]) - np.asarray(plain[0])).max() > 0.01


def test_a_model_with_too_few_positions_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"8th .* 4089"):
        spread_positions(as_encoder(save_model(tmp_path / "tiny")), 8)


def test_the_published_model_runs_by_its_rule_and_others_do_not(tmp_path):
    assert {model.name: model.spread for model in LENGTH_MODELS if model.spread > 1} == {"E5": 8}
    save_model(tmp_path / "e5-base-4k", max_position_embeddings=4096)
    save_model(tmp_path / "other", max_position_embeddings=4096)
    seen = {}

    def look(material):
        from poolscope.lab.papers.cell import Outcome

        seen[material.encoder.card.name] = np.asarray(material.encoder.encode([SHORT])[-1][0])
        return Outcome([{"x": 1.0}])

    entry = replace(next(e for e in length_collapse.PAPER.entries if e.key == "figure-11"), draw=None)
    paper = replace(length_collapse.PAPER, kinds={"repetition": look}, entries=(entry,))
    for folder in ("e5-base-4k", "other"):
        places = Places(files=tmp_path / "none", models={"E5": str(tmp_path / folder)})
        run_paper(paper, tmp_path / f"out-{folder}", models={"E5": str(tmp_path / folder)}, places=places)
    published, other = (
        next(own for name, own in seen.items() if name.endswith(key)) for key in ("e5-base-4k", "other")
    )
    np.testing.assert_allclose(published, by_hand(SHORT, 8), atol=1e-5)
    np.testing.assert_allclose(other, by_hand(SHORT, 1), atol=1e-5)
