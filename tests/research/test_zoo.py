"""Many models on the same texts: the numbers, what is kept, what could not be measured."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

import poolscope
import tiny_models
from command_line import run
from poolscope.errors import InputError
from poolscope.research.zoo.numbers import COLUMNS
from poolscope.research.zoo.run import Zoo, _Kept, zoo

SUBJECTS, VERBS = ("A dog", "The sea", "My lamp", "One bird"), ("sleeps", "shines", "waits and waits")
PLACES = ("old harbour", "house", "long road home")
TEXTS = [f"{subject} {verb} near the {place}" for subject in SUBJECTS for verb in VERBS for place in PLACES]
MODELS = {"one": "builtin:wordllama", "gone": "./no-such-folder"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    return folder, zoo(MODELS, TEXTS, output=folder, cache=False)


def test_numbers_are_those_of_the_metrics(measured):
    _, result = measured
    numbers = result.runs[0]["numbers"]
    clouds = poolscope.encode("builtin:wordllama", TEXTS)
    for name, settings in {"socm": {}, "socm_eps": {"eps": 1e-9}, "socm_trace": {"scale": "trace"}}.items():
        assert numbers[name]["value"] == pytest.approx(poolscope.socm(clouds, **settings).mean, rel=1e-6)
        assert numbers[name]["interval"]["low"] < numbers[name]["value"] < numbers[name]["interval"]["high"]
    assert set(numbers) <= set(COLUMNS)
    assert {"anisotropy", "hub_skewness", "concentration", "mean_share"} <= set(numbers)
    assert result.runs[0]["levels"]["cone"] in ("ok", "watch", "repair", "unchecked")


def test_a_model_that_cannot_be_had_stands_there_with_the_reason(measured):
    folder, result = measured
    assert [run["status"] for run in result.runs] == ["measured", "not reached"]
    assert "no-such-folder" in result.runs[1]["reason"]
    assert "gone: not reached" in (folder / "zoo.md").read_text(encoding="utf-8")
    assert "layers" in " ".join(result.runs[0]["notes"])  # a table has none, and it is said


@pytest.fixture
def changeable(measured, tmp_path):
    """The same in a folder that a test may change."""
    folder, result = measured
    return shutil.copytree(folder, tmp_path / "zoo"), result


def test_what_is_there_is_not_measured_again(changeable):
    folder, result = changeable
    said = []
    again = zoo(MODELS, TEXTS, output=folder, cache=False, say=said.append)
    assert "one: measured already" in said
    assert again.runs[0] == json.loads(json.dumps(result.runs[0]))
    said.clear()
    numbers = folder / "models" / "one" / "audited.json"
    numbers.write_text(numbers.read_text(encoding="utf-8")[:-40], encoding="utf-8")  # as a torn disk leaves it
    zoo({"one": MODELS["one"]}, TEXTS, output=folder, cache=False, say=said.append)
    assert "one: loading" in said


@pytest.mark.parametrize("value", ["text", float("nan"), [1]])
def test_a_kept_number_that_is_none_is_measured_again(tmp_path, value):
    kept = _Kept(tmp_path, {"seed": 0})
    (tmp_path / "clouds.json").write_text(
        json.dumps({"for": {"seed": 0}, "reason": None, "numbers": {"socm": {"value": value}}})
    )
    assert kept.get("clouds") is None
    kept.put("clouds", {"reason": None, "numbers": {"socm": {"value": 0.5, "interval": {"low": 0.1, "high": 0.9}}}})
    assert kept.get("clouds") is not None


def test_a_call_that_was_interrupted_goes_on_with_the_part_that_is_missing(changeable):
    folder, _ = changeable
    models = {"one": MODELS["one"]}
    zoo(models, TEXTS, output=folder, cache=False)
    (folder / "models" / "one" / "tokens.json").unlink()
    said = []
    again = zoo(models, TEXTS, output=folder, cache=False, say=said.append)
    assert [message.rpartition(" ")[2] for message in said] == ["loading", "tokens"]
    assert {"socm", "mean_share"} <= set(again.runs[0]["numbers"])


def test_numbers_without_an_audit(measured, tmp_path):
    said = []
    models = {"one": MODELS["one"]}
    first = zoo(models, TEXTS, output=tmp_path, cache=False, audits=False, parts=["clouds"], say=said.append)
    assert [message.rpartition(" ")[2] for message in said] == ["loading", "clouds"]
    assert "socm" in first.runs[0]["numbers"]
    assert not {"ndcg", "mean_share"} & set(first.runs[0]["numbers"])
    with pytest.raises(InputError, match=r"'sound'.*clouds, profile"):
        zoo(models, TEXTS, output=tmp_path, parts=["sound"])
    alone = zoo(models, TEXTS, output=tmp_path, cache=False, audits=False, say=said.append)
    assert not any(message.endswith("audit") for message in said)
    assert alone.runs[0]["levels"] == {}
    assert "Levels" not in alone.to_markdown()
    whole = measured[1].runs[0]["numbers"]
    assert set(whole) - set(alone.runs[0]["numbers"]) >= {"hub_skewness", "anisotropy"}
    zoo(models, TEXTS, output=tmp_path, cache=False, say=said.append)
    assert said[-1].endswith("audit")


@pytest.fixture
def table(tmp_path):
    """A table of the words of the texts."""
    words = sorted({word for text in TEXTS for word in text.split()})
    lines = [f"{word} {len(word)} {k % 3} {k % 5} {k % 7} 1" for k, word in enumerate(words)]
    (tmp_path / "words.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"table": str(tmp_path / "words.txt")}


def test_queries_judge_the_search(table, tmp_path):
    texts = {"id": [f"t{k}" for k in range(len(TEXTS))], "text": TEXTS}
    queries = {text.removeprefix("A ").removeprefix("The "): [f"t{k}"] for k, text in enumerate(TEXTS)}
    result = zoo(table, texts, queries=queries, output=tmp_path / "zoo", cache=False)
    task = poolscope.evaluation.query_task(texts, queries)
    (row,) = result.runs
    assert row["numbers"]["ndcg"]["value"] == pytest.approx(poolscope.evaluate(table["table"], task).value)
    assert result.corpus["queries"] == len(TEXTS)
    assert f"{len(TEXTS)} queries about them" in result.to_markdown()


def test_queries_that_a_model_cannot_read(table, tmp_path):
    texts = {"id": [f"t{k}" for k in range(len(TEXTS))], "text": TEXTS}
    result = zoo(
        table, texts, queries={"xyzzy plugh": ["t0"], "My lamp": ["t20"]}, output=tmp_path / "zoo", cache=False
    )
    (row,) = result.runs
    assert row["status"] == "measured"
    assert any(note.startswith("audited: without the queries, because") for note in row["notes"])
    with pytest.raises(InputError, match="they ask for docstrings"):
        zoo(table, texts, queries="builtin:docstrings", output=tmp_path / "other")


def test_texts_are_cut_where_a_model_has_no_more_positions(tmp_path):
    """The model has 24 positions."""
    models = {"small": str(tiny_models.save_model(tmp_path / "bert"))}
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(tiny_models.WORDS, size=size)) for size in draw.integers(8, 40, size=48)]
    result = zoo(models, texts, output=tmp_path / "zoo", cache=False, max_length=32)
    assert result.runs[0]["status"] == "measured"
    assert {"temperature", "sigma_a", "filter_and_length", "variation_middle"} <= set(result.runs[0]["numbers"])


def test_other_texts_are_measured_anew(changeable):
    folder, result = changeable
    other = zoo({"one": MODELS["one"]}, TEXTS[:-1], output=folder, cache=False)
    assert other.runs[0]["numbers"]["socm"] != result.runs[0]["numbers"]["socm"]
    assert other.corpus["texts"] == len(TEXTS) - 1


def test_round_trip_and_table(measured, tmp_path):
    _, result = measured
    result.save(tmp_path / "zoo.json")
    assert Zoo.load(tmp_path / "zoo.json").rows() == result.rows()
    assert result.to_table()["model"].to_pylist() == ["one", "gone"]
    assert result.to_table()["socm"].to_pylist()[1] is None
    view = result._repr_html_()
    assert "<svg" in view
    assert all(words in view for words in ("1 of 2 models were", "Not measured: gone", "SOCM, exact"))
    two = dataclasses.replace(result, runs=(result.runs[0], {**result.runs[0], "model": "other"}))
    assert "(one)" in two.seen()[1]
    assert "(other)" in two.seen()[1]


def test_names_must_differ(tmp_path):
    with pytest.raises(InputError, match="different names"):
        zoo(["a/model", "b/model"], TEXTS, output=tmp_path)
    with pytest.raises(InputError, match="one or more"):
        zoo([], TEXTS, output=tmp_path)


def test_command(measured, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    shown = run("research", "zoo", "table=builtin:wordllama", "-o", tmp_path / "out", "--texts", texts, "--no-cache")
    assert "\n1 of 1 models" in shown
    assert shown.rstrip().splitlines()[-1].startswith("poolscope research evidence ")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"zoo.csv", "zoo.md", "zoo.html", "zoo.json", "models"} == names


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"a/b": "x", "a b": "y"}, "'a/b' and 'a b', which share the folder"),
        ({1: "x"}, "received 1; allowed: names and sources"),
        ({"a": None}, "received None; allowed: names and sources"),
        ([5], "received 5; allowed: names and sources"),
        ({"a\ud800": "x"}, "names and sources"),
        ({"..": "x"}, "not of points alone"),
        ({"a" * 300: "x"}, "at most 200 bytes"),
        ("builtin:wordllama", "allowed: a list of sources"),
        (5, "allowed: a list of sources"),
    ],
)
def test_names_that_cannot_be_used(tmp_path, models, words):
    with pytest.raises(InputError, match=words):
        zoo(models, TEXTS, output=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", [-1, "a", 1.5, True])
def test_the_seed_is_a_whole_number(tmp_path, seed):
    with pytest.raises(InputError, match="seed: received"):
        zoo({"gone": MODELS["gone"]}, TEXTS, output=tmp_path, seed=seed)


@pytest.mark.parametrize("place", ["file", "file/below", "folder"])
def test_an_output_that_cannot_be_a_folder(tmp_path, place):
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "models").write_text("kept", encoding="utf-8")
    with pytest.raises(InputError, match="is a file; allowed is a folder"):
        zoo({"gone": MODELS["gone"]}, TEXTS, output=tmp_path / place)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("damage", ["levels", "numbers", "deep"])
def test_what_is_not_whole_is_measured_anew(changeable, damage):
    folder, _ = changeable
    models = {"one": MODELS["one"]}
    numbers = folder / "models" / "one" / "audited.json"
    zoo(models, TEXTS, output=folder, cache=False)
    content = json.loads(numbers.read_text(encoding="utf-8"))
    content.pop(damage, None)
    broken = "[" * 100_000 if damage == "deep" else json.dumps(content)
    numbers.write_text(broken, encoding="utf-8")
    said = []
    assert zoo(models, TEXTS, output=folder, cache=False, say=said.append).measured == 1
    assert "one: loading" in said
