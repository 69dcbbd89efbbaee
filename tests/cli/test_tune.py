"""The tune and evaluate commands through the real parser, on a tiny stored model; the figure of a search."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from command_line import invoke
from command_line import run as run_command
from planted import common_direction, sound, topic_texts
from poolscope import as_encoder
from poolscope.errors import InputError
from poolscope.evaluation import compare_scores, evaluate, query_task, read_task, split_half_task
from poolscope.repairs.repair_file import Repair, RepairOptionsWarning
from poolscope.repairs.tune import tune
from poolscope.repairs.vectors import MeanRemoval
from poolscope.show.screen import signed
from tiny_models import WORDS, declare, save_model

run = partial(run_command, width=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"))


@pytest.fixture(scope="module")
def lines() -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(random.choice(WORDS, size=5), size=14)) for _ in range(40)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_tune_prints_what_the_library_finds(folder, texts, lines, tmp_path):
    output = run(
        "tune",
        folder,
        texts,
        "--temperatures",
        "0.5,1",
        "--details",
        "--json",
        tmp_path / "r.json",
        "-o",
        tmp_path / "r.safetensors",
    )
    result = tune(str(folder), split_half_task(lines), temperatures=[0.5, 1], limit=None)
    assert " ".join(output.split()).startswith(result.verdict.sentence)
    for row in result.rows():
        assert signed(row["difference"]) in output
        assert row["candidate"] in output
    stored = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert stored["verdict"]["sentence"] == result.verdict.sentence
    assert (tmp_path / "r.safetensors").exists() == (result.recommendation is not None)
    assert (f"not written: {result.outcome}" in output.replace("\n", " ")) == (result.recommendation is None)
    assert stored["provenance"]["settings"]["limit"] == 1000


def test_a_file_of_an_older_run_is_not_left_behind(folder, texts, tmp_path):
    """Whoever finds the file afterwards may take it for what this run recommends."""
    older = tmp_path / "r.safetensors"
    older.write_bytes(b"older")
    arguments = ("tune", folder, texts, "--search", "temperature", "--temperatures", "1", "-o", older)
    with pytest.raises(InputError, match=r"r\.safetensors .*--force"):
        run(*arguments)
    assert older.read_bytes() == b"older"
    output = run(*arguments, "--force", "--limit", "30", "--json", tmp_path / "t.json")
    stored = json.loads((tmp_path / "t.json").read_text())
    assert (stored["outcome"], stored["provenance"]["settings"]["limit"]) == ("nothing was tried", 30)
    assert stored["outcome"] in output.replace("\n", " ")
    assert not older.exists()


def test_temperatures_are_checked_first(texts):
    with pytest.raises(InputError, match=r"--temperatures: received 0\.0"):
        run("tune", "no/model", texts, "--temperatures", "0.9,0")


def test_columns_are_named_by_the_option_of_the_command(folder, tmp_path):
    (tmp_path / "t.csv").write_text("body,title\na,b\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"'text'; .*--column"):
        run("evaluate", folder, tmp_path / "t.csv", "--column", "text")
    with pytest.raises(InputError, match="--column: received 'body,title'"):
        run("tune", folder, tmp_path / "t.csv", "--column", "body,title")
    with pytest.raises(InputError, match=r"sentence1, sentence2, score.*--column"):
        run("evaluate", folder, tmp_path / "t.csv", "--task", "sts")


def test_a_repair_is_compared_as_it_was_proved(folder, texts, lines, tmp_path):
    proved = as_encoder(str(folder), max_length=4)
    Repair(0.5).made_for(proved, {}).save(tmp_path / "r.safetensors")
    output = run("evaluate", folder, texts, "--repair", tmp_path / "r.safetensors", "--json", tmp_path / "e.json")
    task = split_half_task(lines)
    found = compare_scores(evaluate(proved, task), evaluate(Repair(0.5).apply(proved), task))
    assert "{'max_length': 4}" in output
    assert signed(found.mean, 4) in output
    settings = json.loads((tmp_path / "e.json").read_text())["provenance"]["settings"]
    assert settings == {"max_length": 4, "limit": None, "seed": 0}
    with pytest.warns(RepairOptionsWarning, match="max_length"):
        run("evaluate", folder, texts, "--repair", tmp_path / "r.safetensors", "--max-length", "6")


def test_evaluate_says_that_queries_chose_the_repair(folder, texts, lines, tmp_path):
    task = split_half_task(lines)
    chose = list(evaluate(Repair().apply(str(folder)), task).names)[:7]
    Repair(0.5).made_for(as_encoder(str(folder)), {"chosen_by": chose}).save(tmp_path / "r.safetensors")
    said = " ".join(run("evaluate", folder, texts, "--repair", tmp_path / "r.safetensors").split())
    assert f"7 of these {task.units} " in said
    assert "of these" not in run("evaluate", folder, texts, "--temperature", "0.5")


def test_what_is_searched_can_be_chosen(folder, texts):
    shown = json.loads(invoke("tune", folder, texts, "--search", "vectors", "--json", "-").stdout)
    families = {row["family"] for row in shown["candidates"]}
    assert families <= {"vectors", "re-ranking"}
    with pytest.raises(InputError, match=r"--search colours .*reading, temperature"):
        run("tune", folder, texts, "--search", "colours")
    with pytest.raises(InputError, match="--temperatures: received 'hot'"):
        run("tune", folder, texts, "--temperatures", "hot")


def test_what_cannot_be_written_is_refused_first(texts, tmp_path):
    with pytest.raises(InputError, match=r"repair\.json; .*\.safetensors"):
        run("tune", "no/model", texts, "-o", tmp_path / "repair.json")
    with pytest.raises(InputError, match=r"'\.gif'; allowed: \.html"):
        run("tune", "no/model", texts, "--figure", tmp_path / "r.gif")


def test_evaluate_with_and_without_a_repair(folder, texts, lines, tmp_path):
    task = split_half_task(lines)
    before = evaluate(Repair().apply(str(folder)), task)
    output = run("evaluate", folder, texts)
    assert output.startswith(before.in_words()[0])
    assert f"as it is {before.value:.4f} [{before.interval().low:.4f}" in " ".join(output.split())
    assert "MRR@10" not in output
    more = " ".join(run("evaluate", folder, texts, "--details").split())
    assert f"MRR@10 {before.others['MRR@10'].mean():.4f}" in more
    repair = Repair(0.5, vectors=MeanRemoval().fit(Repair().apply(str(folder)).encode(lines)))
    repair.save(tmp_path / "repair.safetensors")
    found = compare_scores(before, evaluate(repair.apply(str(folder)), task))
    output = run("evaluate", folder, texts, "--repair", tmp_path / "repair.safetensors", "--json", tmp_path / "e.json")
    assert signed(found.mean, 4) in output
    assert found.in_words()[0] in " ".join(output.split())
    assert repair.label in output
    stored = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    assert stored["difference"]["change"]["value"] == pytest.approx(found.mean)
    assert stored["before"]["value"] == pytest.approx(before.value)
    with pytest.raises(InputError, match="--repair: received --temperature"):
        run("evaluate", folder, texts, "--repair", tmp_path / "repair.safetensors", "--pooling", "cls")


def test_evaluate_from_labelled_files(folder, lines, tmp_path):
    rows = [f'"{a}","{b}",{k % 5}' for k, (a, b) in enumerate(zip(lines[:20], lines[20:], strict=True))]
    (tmp_path / "sts.csv").write_text("a,b,gold\n" + "\n".join(rows) + "\n", encoding="utf-8")
    output = run(
        "evaluate", folder, tmp_path / "sts.csv", "--task", "sts", "--column", "a,b,gold", "--temperature", 0.5
    )
    task = read_task("sts", tmp_path / "sts.csv", columns=("a", "b", "gold"))
    models = [repair.apply(str(folder)) for repair in (Repair(), Repair(0.5))]
    found = compare_scores(*(evaluate(model, task) for model in models))
    assert signed(found.mean, 4) in output
    assert f"{found.smallest_gain():.3f}" in output
    labels = "\n".join(f'"{line}",{"xy"[k % 2]}' for k, line in enumerate(lines))
    (tmp_path / "labels.csv").write_text(f"text,label\n{labels}\n", encoding="utf-8")
    for kind, metric in (("classification", "accuracy"), ("clustering", "v-measure")):
        value = evaluate(models[0], read_task(kind, tmp_path / "labels.csv")).value
        printed = run("evaluate", folder, tmp_path / "labels.csv", "--task", kind)
        assert metric in printed
        assert f"as it is {value:.4f}" in " ".join(printed.split())


@pytest.mark.parametrize("pooling", ["sif", "second order"])
def test_evaluate_refuses_poolings_that_must_be_fitted_before_anything_is_encoded(pooling, texts):
    with pytest.raises(InputError, match=rf"--pooling: received '{pooling}', .*`poolscope tune`"):
        run("evaluate", "no/model", texts, "--pooling", pooling)


def test_evaluate_says_where_there_is_too_little_to_tell(folder, lines, tmp_path):
    (tmp_path / "few.txt").write_text("\n".join(lines[:4]) + "\n", encoding="utf-8")
    output = run("evaluate", folder, tmp_path / "few.txt", "--pooling", "max", "--json", tmp_path / "few.json")
    assert "4 queries · 4 documents" in output
    assert json.loads((tmp_path / "few.json").read_text())["before"]["documents"] == 4


def test_tasks_that_cannot_be(folder, texts):
    with pytest.raises(InputError, match=r"--task chess .*split-half"):
        run("evaluate", folder, texts, "--task", "chess")
    with pytest.raises(InputError, match=r"--task sts: .*TEXTS"):
        run("evaluate", folder, "--task", "sts")
    with pytest.raises(InputError, match="--task summary-body: received"):
        run("evaluate", folder, texts, "--task", "summary-body")


def test_the_figure_shows_both_halves_and_claims_one():
    result = tune(common_direction, topic_texts(80), poolings=["max"], reranked=0)
    figure = result.figure()
    chose, reports = figure.data
    assert len(chose.y) == len(result.trials)
    assert list(chose.x) == sorted(chose.x)
    assert list(reports.x) == [result.difference.mean]
    assert reports.error_x.array[0] == pytest.approx(result.difference.interval.high - result.difference.mean)
    assert result.recommendation.label in figure.layout.title.text
    nothing = tune(sound, topic_texts(60), poolings=["cls"], repairs=[], reranked=0).figure()
    assert len(nothing.data) == 1
    assert "nothing" in nothing.layout.title.text


def test_tune_and_evaluate_ask_the_queries_of_a_file(folder, lines, tmp_path):
    """The same task from the file as from `query_task`, with graded answers; a wrong combination is refused."""
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "q.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"t{k}", "text": t}) + "\n" for k, t in enumerate(lines)))
    rows = [{"query": " ".join(lines[k].split()[:4]), "relevant": {f"t{k}": 2, f"t{k + 1}": 1}} for k in range(24)]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("--queries", queries, "--json", tmp_path / "r.json")
    run("tune", folder, corpus, *asked, "--search", "vectors")
    stored = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    task = query_task(corpus, queries)
    assert task.grades.tolist() == [2.0, 1.0] * 24
    assert stored["chosen_on"]["task"] == stored["reported_on"]["task"] == "your queries"
    assert stored["chosen_on"]["queries"] + stored["reported_on"]["queries"] == 24
    run("evaluate", folder, corpus, *asked)
    stored = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert stored["before"]["value"] == pytest.approx(evaluate(str(folder), task).value, abs=1e-6)
    with pytest.raises(InputError, match=r"--id-column .*--queries"):
        run("tune", folder, corpus, "--id-column", "id")
    with pytest.raises(InputError, match="--queries: received --task retrieval"):
        run("tune", folder, corpus, *asked[:2], "--task", "retrieval")


def test_a_draw_of_queries_keeps_their_answers(lines):
    texts, queries = {"text": lines}, {f"q {k}": [str(k)] for k in range(30)}
    task = query_task(texts, queries, limit=6)
    assert task.units == 6
    assert len(task.documents) == 12
    assert all(task.queries[q] == f"q {lines.index(task.documents[d])}" for q, d in task.relevant)
    assert "6 queries among 12 of 40" in task.notes[-1]
    with pytest.raises(InputError, match=r"queries: .*the task"):
        tune(sound, split_half_task(lines), queries=queries)
