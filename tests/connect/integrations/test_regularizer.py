"""The loss term against poolscope.socm, against finite differences through a model, and inside a real trainer."""

from __future__ import annotations

import csv

import pytest
import torch

from poolscope import encode, socm
from poolscope.errors import InputError, ModelError
from tiny_models import TEXTS, declare, save_model

pytest.importorskip("sentence_transformers")
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses

from poolscope.connect.integrations.evaluator import SOCMEvaluator
from poolscope.connect.integrations.regularizer import SOCMRegularizer

COLUMNS = [TEXTS[:2], TEXTS[2:4], [TEXTS[4], "the blue tree"]]


@pytest.fixture
def model(tmp_path):
    return SentenceTransformer(str(declare(save_model(tmp_path))), device="cpu").eval()


def features(model, columns, **settings):
    return [model.preprocess(column, **settings) for column in columns]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_term_is_the_mean_over_all_pairs_of_the_batch(model, columns):
    """With three columns the loss joins two of them in one forward pass; the texts are the same."""
    used = COLUMNS[:columns]
    plain = losses.MultipleNegativesRankingLoss(model) if columns > 1 else _Norm(model)
    parts = SOCMRegularizer(model, plain, weight=0.5, pairs=None)(features(model, used), None)
    expected = socm(encode(model, [text for column in used for text in column])).mean
    assert list(parts) == ["base", "socm"]
    assert parts["socm"].item() == pytest.approx(0.5 * expected, rel=1e-5)
    torch.testing.assert_close(parts["base"], plain(features(model, used), None))


class _Norm(torch.nn.Module):
    """A loss of one column that returns its parts by name, as some losses do."""

    def __init__(self, model, *, named: bool = False) -> None:
        super().__init__()
        self.model, self.named = model, named

    def forward(self, sentence_features, labels=None):
        value = sum(self.model(part)["sentence_embedding"].square().mean() for part in sentence_features)
        return {"norm": value} if self.named else value


def test_parts_of_the_wrapped_loss_keep_their_names(model):
    parts = SOCMRegularizer(model, _Norm(model, named=True))(features(model, COLUMNS[:1]), None)
    assert list(parts) == ["norm", "socm"]


def test_gradients_reach_the_weights_and_are_right(tmp_path):
    model = SentenceTransformer(str(declare(save_model(tmp_path))), device="cpu").double().eval()
    regularizer = SOCMRegularizer(model, _Norm(model), weight=0.7, pairs=None)
    batch = features(model, [TEXTS])
    weights = model[0].auto_model.encoder.layer[1].output.dense.weight
    regularizer(batch, None)["socm"].backward()
    slope = weights.grad.clone()
    for place in [(0, 0), (3, 7), (15, 31)]:
        sides = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weights[place] += step
                sides.append(regularizer(batch, None)["socm"].item())
                weights[place] -= step
        assert slope[place].item() == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5, abs=1e-9)
    assert slope.abs().max() > 1e-4


def test_few_pairs_are_a_sample_of_all(model):
    torch.manual_seed(0)
    batch = features(model, [TEXTS])
    one = SOCMRegularizer(model, _Norm(model), weight=1.0, pairs=1)
    drawn = {round(one(batch, None)["socm"].item(), 6) for _ in range(25)}
    every = socm(encode(model, TEXTS)).pairs.socm
    assert len(drawn) > 5
    assert all(min(abs(value - every)) < 1e-5 for value in drawn)


def test_prompts_that_the_pooling_leaves_out_do_not_count(tmp_path):
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    folder = declare(save_model(tmp_path), pooling=pooling, prompts={"query": "query : "})
    model = SentenceTransformer(str(folder), device="cpu").eval()
    batch = features(model, [TEXTS], prompt="query : ")
    term = SOCMRegularizer(model, _Norm(model), weight=1.0, pairs=None)(batch, None)["socm"]
    assert term.item() == pytest.approx(socm(encode(model, TEXTS, role="query")).mean, rel=1e-5)
    assert term.item() != pytest.approx(socm(encode(model, TEXTS)).mean, rel=1e-3)


def test_texts_end_to_end_are_the_same_clouds(model):
    """What the pooling gets without padding (flash attention) is cut at the bounds that come with it."""
    from poolscope.connect.integrations.regularizer import clouds_of

    padded = model[0](model.preprocess(TEXTS))
    tokens, mask = clouds_of(padded, include_prompt=True)
    lengths = mask.sum(dim=1)
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    flat = {"token_embeddings": tokens[mask][None], "cu_seq_lens_q": bounds, "prompt_length": 1}
    again, kept = clouds_of(flat, include_prompt=False)
    assert kept.sum(dim=1).tolist() == (lengths - 1).tolist()
    torch.testing.assert_close(
        again[kept], torch.cat([part[keep][1:] for part, keep in zip(tokens, mask, strict=True)])
    )


def test_the_model_is_left_without_hooks_also_after_an_error(model):
    class Broken(_Norm):
        def forward(self, sentence_features, labels=None):
            super().forward(sentence_features)
            raise ArithmeticError

    SOCMRegularizer(model, _Norm(model))(features(model, COLUMNS[:1]), None)
    with pytest.raises(ArithmeticError):
        SOCMRegularizer(model, Broken(model))(features(model, COLUMNS[:1]), None)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_single_text_has_no_pair(model):
    assert SOCMRegularizer(model, _Norm(model))(features(model, [TEXTS[:1]]), None)["socm"].item() == 0


def test_the_term_lowers_socm_when_it_is_trained(model):
    before = socm(encode(model, TEXTS)).mean
    regularizer = SOCMRegularizer(model, _Norm(model), weight=1.0, pairs=None)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(10):
        optimizer.zero_grad()
        regularizer(features(model, [TEXTS]), None)["socm"].backward()
        optimizer.step()
    assert socm(encode(model, TEXTS)).mean < 0.9 * before


# -- refusals -----------------------------------------------------------------------------------------------------


def test_losses_without_gradients_to_the_tokens_are_refused(model, tmp_path):
    cached = losses.CachedMultipleNegativesRankingLoss(model)
    for loss in (cached, losses.MatryoshkaLoss(model, cached, [8, 16])):
        with pytest.raises(InputError, match=f"received {type(loss).__name__}, which embeds"):
            SOCMRegularizer(model, loss)
    with pytest.raises(InputError, match="AdaptiveLayerLoss"):
        SOCMRegularizer(model, losses.AdaptiveLayerLoss(model, losses.MultipleNegativesRankingLoss(model)))
    model.requires_grad_(False)
    with pytest.raises(InputError, match=r"1 times, .*gradients"):
        SOCMRegularizer(model, _Norm(model))(features(model, COLUMNS[:1]), None)
    with torch.no_grad():  # the evaluation of a trainer
        SOCMRegularizer(model, _Norm(model))(features(model, COLUMNS[:1]), None)
    other = SentenceTransformer(
        str(declare(save_model(tmp_path / "cls"), pooling={"pooling_mode": "cls"})), device="cpu"
    )
    with pytest.raises(ModelError, match=r"pooling \[\('cls',\)\].*'mean'"):
        SOCMRegularizer(other, _Norm(other))


def test_settings_are_checked(model):
    for settings in ({"weight": 0.0}, {"weight": float("nan")}, {"pairs": 0}):
        with pytest.raises(InputError, match=r"weight = .*, pairs = "):
            SOCMRegularizer(model, _Norm(model), **settings)


# -- in the trainer -----------------------------------------------------------------------------------------------


def test_two_steps_in_a_trainer(model, tmp_path):
    from datasets import Dataset

    data = Dataset.from_dict({"anchor": TEXTS[:4], "positive": TEXTS[1:], "negative": [*TEXTS[2:], TEXTS[0]]})
    evaluator = SOCMEvaluator(TEXTS, name="tiny")
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        per_device_train_batch_size=2,
        eval_strategy="steps",
        eval_steps=1,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        seed=0,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=settings,
        train_dataset=data,
        eval_dataset=data,
        loss=SOCMRegularizer(model, losses.MultipleNegativesRankingLoss(model), weight=0.5),
        evaluator=evaluator,
    )
    trainer.train()
    evaluations = [entry for entry in trainer.state.log_history if "eval_tiny_socm" in entry]
    assert [entry["step"] for entry in evaluations] == [1, 2]
    assert evaluations[0]["eval_tiny_socm"] != evaluations[1]["eval_tiny_socm"]
    assert evaluations[1]["eval_tiny_socm"] == pytest.approx(socm(encode(model, TEXTS)).mean, rel=1e-6)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 2
    for entry in logged:
        assert entry["loss"] == pytest.approx(entry["base"] + entry["socm"], rel=1e-3)
    with (tmp_path / "run" / "eval" / "socm_evaluation_tiny_results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["steps"]) for row in rows] == [1, 2]
    assert float(rows[1]["socm"]) == pytest.approx(evaluations[1]["eval_tiny_socm"])
    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "Second-Order Collapse (SOCM)" in card
    assert "SOCMRegularizer" in card
