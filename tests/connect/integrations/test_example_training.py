"""The training example end to end in seconds: what it writes is what it measured."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("accelerate")
pytest.importorskip("datasets")
EXAMPLE = Path(__file__).parents[3] / "examples" / "train_tiny_bert.py"


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("train_tiny_bert", EXAMPLE)
    example = importlib.util.module_from_spec(specification)
    sys.modules["train_tiny_bert"] = example
    specification.loader.exec_module(example)
    return example


@pytest.fixture(scope="module")
def written(example, tmp_path_factory):
    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("training")
    rows = example.main(["--quick", "--regularizer", "5", "--output", str(folder)])
    torch.set_num_threads(threads)
    return folder, rows


def test_a_tokenizer_is_the_same_every_time(example):
    texts = ["the cat sat on the mat", "a dog ran under the tree"] * 5
    found = {example.train_tokenizer(texts, example.QUICK).backend_tokenizer.to_str() for _ in range(20)}
    assert len(found) == 1
    tokenizer = example.train_tokenizer(texts, example.QUICK)
    assert tokenizer.convert_ids_to_tokens(tokenizer("the\n  cat")["input_ids"]) == ["[CLS]", "▁the", "▁cat", "[SEP]"]


def test_every_stage_is_measured(written):
    _, rows = written
    assert [(row["stage"], row["step"]) for row in rows] == [
        *(("masked", step) for step in (0, 2, 4)),
        *(("contrastive", step) for step in (2, 4)),
        *(("contrastive + 5 × SOCM", step) for step in (2, 4)),
    ]
    for row in rows:
        assert row.get("socm_low", 0) <= row["socm"] <= row.get("socm_high", 1)
        assert 0 <= row["ndcg_low"] <= row["ndcg"] <= row["ndcg_high"] <= 1
        assert row["concentration_ratio"] > 0
    assert rows[0]["socm"] != rows[2]["socm"]
    assert rows[3]["socm"] != rows[5]["socm"]  # the term takes part in the loss


def test_table_json_and_figure_are_written(written):
    folder, rows = written
    with (folder / "training.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert [float(line["socm"]) for line in table] == pytest.approx([row["socm"] for row in rows])
    assert json.loads((folder / "training.json").read_text())["rows"] == rows
    assert "in training" in (folder / "training.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def studied(example, tmp_path_factory):
    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("study")
    choices = ["--recipe", "pairs", "simcse", "--pooling", "mean", "max", "--regularizer", "-5", "5", "--seeds", "2"]
    example.main(["--quick", *choices, "--output", str(folder)])
    torch.set_num_threads(threads)
    with (folder / "study.csv").open() as stream:
        return {row["stage"]: row for row in csv.DictReader(stream)}


def test_every_way_is_trained_for_every_seed(studied):
    mean = ["contrastive", "contrastive − 5 × SOCM", "contrastive + 5 × SOCM"]
    of_simcse = [name.replace("contrastive", "contrastive · simcse") for name in mean]
    ways = [*mean, "contrastive · max", *of_simcse, "contrastive · simcse · max"]
    assert list(studied) == ["masked", *ways, "all fine-tuned models"]
    assert studied["all fine-tuned models"]["models"] == "16"
    assert -1 <= float(studied["all fine-tuned models"]["rho"]) <= 1
    assert float(studied["contrastive"]["change"]) == 0


def test_a_negative_weight_raises_socm_and_a_positive_one_lowers_it(studied):
    lower, plain, higher = (
        float(studied[f"contrastive{ending}"]["socm"]) for ending in (" + 5 × SOCM", "", " − 5 × SOCM")
    )
    assert lower < plain < higher


def test_intervals_over_seeds_are_those_of_students_t(example):
    runs = [
        [{"stage": "masked", "socm": 0.5, "ndcg": 0.1}, {"stage": "contrastive", "socm": 0.4, "ndcg": ndcg}]
        for ndcg in (0.2, 0.3, 0.4)
    ]
    row = example.study(runs)[1]
    assert row["ndcg"] == pytest.approx(0.3)
    assert row["ndcg_high"] - row["ndcg"] == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)


@pytest.fixture(scope="module")
def other_heads(example, tmp_path_factory):
    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("heads")
    rows = example.main(
        ["--quick", "--recipe", "pairs", "gauss", "--pooling", "learned", "mean", "--output", str(folder)]
    )
    torch.set_num_threads(threads)
    return folder, rows


def test_a_pooling_is_trained_and_written_as_a_repair_of_an_ordinary_folder(other_heads):
    from poolscope import Repair, as_encoder

    folder, rows = other_heads
    repair = Repair.load(folder / "pairs-learned" / "repair.safetensors")
    assert abs(repair.pooling.direction_).max() > 0  # it has moved from the mean
    assert as_encoder(folder / "pairs-learned").card.pooling == ("mean",)
    assert repair.apply(folder / "pairs-learned").encode(["a text"]).shape == (1, 32)
    assert "contrastive · learned" in {row["stage"] for row in rows}


def test_gaussians_are_trained_and_measured(other_heads):
    folder, rows = other_heads
    last = [row for row in rows if row["stage"] == "contrastive · gauss"][-1]
    assert 0 <= last["inclusion"] <= 1
    assert -1 <= last["variance_and_trace"] <= 1
    assert 0 < last["ndcg"] <= 1
    assert (folder / "gauss-mean" / "1_GaussianHead").is_dir()


def test_entailments_and_contradictions_are_read_as_their_authors_wrote_them(example, tmp_path):
    (tmp_path / "nli.csv").write_text('sent0,sent1,hard_neg\n"a dog runs, fast",a dog moves,no dog runs\n')
    assert example.read_entailments(tmp_path / "nli.csv") == [("a dog moves", "a dog runs, fast", "no dog runs")]
