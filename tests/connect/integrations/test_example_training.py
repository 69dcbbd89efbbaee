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
        *(("contrastive + SOCM", step) for step in (2, 4)),
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
    assert "A model in training" in (folder / "training.html").read_text(encoding="utf-8")
