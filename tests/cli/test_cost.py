"""The cost command through the real parser, on a tiny stored model: what it reads, prints and writes."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow.csv as csv
import pytest

from command_line import invoke
from command_line import run as run_command
from poolscope import pooling_cost
from poolscope.errors import InputError
from poolscope.evaluation import query_task
from poolscope.repairs.cost import PoolingCost
from tiny_models import WORDS, declare, save_model

run = partial(run_command, width=80)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Texts and queries as files: a query is three words of the text that answers it."""
    random, place = np.random.default_rng(0), tmp_path_factory.mktemp("asked")
    words = [random.choice(WORDS, size=12).tolist() for _ in range(30)]
    texts = [{"id": f"t{k}", "text": " ".join(row)} for k, row in enumerate(words)]
    queries = [{"query": " ".join(row[4:7]), "ids": [f"t{k}"]} for k, row in enumerate(words)]
    for name, rows in (("texts.jsonl", texts), ("queries.jsonl", queries)):
        (place / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place / "texts.jsonl", place / "queries.jsonl"


def test_the_screen_has_the_words_and_every_blend_within_80_columns(folder, asked):
    texts, queries = asked
    output = run("cost", folder, texts, "--queries", queries)
    result = pooling_cost(str(folder), query_task(str(texts), str(queries)))
    assert " ".join(output.split()).startswith(" ".join(result.in_words()))
    assert max(map(len, output.splitlines())) <= 80
    assert "left out" not in output
    for way in result.ways:
        if way.name in ("mean + MaxSim", "mean + MaxSim, 1:1", "mean + MaxSim, 8 clusters", "mean + exact transport"):
            (line,) = [line for line in output.splitlines() if line.strip().startswith(f"{way.name[7:]}  ")]
            assert f"{way.ndcg.value:.3f}" in line
            assert f"{way.found:.0f} +{way.rescued:.0f} −{way.broken:.0f}" in line
    assert "products" not in output
    assert "BERTScore" not in output


def test_details_show_every_way_by_itself_with_its_work(folder, asked):
    output = run_command("cost", folder, asked[0], "--queries", asked[1], "--details", width=160)
    assert "products" in output
    assert "mean + BERTScore F" in output
    assert sum(line.strip().startswith("second order") for line in output.splitlines()) == 1


def test_json_and_table_are_those_of_the_library(folder, asked, tmp_path):
    shown = invoke("cost", folder, asked[0], "--queries", asked[1], "--json", "-", "--table", tmp_path / "c.csv")
    result = PoolingCost.from_dict(json.loads(shown.stdout))
    assert result.queries == 30
    assert result.texts == 30
    rows = csv.read_csv(tmp_path / "c.csv").to_pylist()
    assert [row["way"] for row in rows] == [way.name for way in result.ways]
    assert rows[2]["gain"] == pytest.approx(result.cost.mean)


def test_stop_words_and_candidates_reach_the_library(folder, asked, tmp_path):
    (tmp_path / "stop.txt").write_text(f"{WORDS[0]}\n{WORDS[1]}\n", encoding="utf-8")
    options = ("--stop-words", tmp_path / "stop.txt", "--candidates", "7", "--json", "-")
    shown = json.loads(invoke("cost", folder, asked[0], "--queries", asked[1], *options).stdout)
    assert shown["provenance"]["settings"]["stop_words"] == [WORDS[0], WORDS[1]]
    assert shown["candidates"] == 7


def test_a_limit_draws_queries(folder, asked):
    shown = invoke("cost", folder, asked[0], "--queries", asked[1], "--limit", "12", "--json", "-")
    assert json.loads(shown.stdout)["queries"] == 12


def test_texts_without_queries_are_refused_with_the_option_to_add(folder, asked):
    with pytest.raises(InputError, match="--queries FILE"):
        run("cost", folder, asked[0])
    with pytest.raises(InputError, match="TEXTS"):
        run("cost", folder, "--queries", asked[1])
