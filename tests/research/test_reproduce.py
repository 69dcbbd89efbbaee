"""The folder of a reproduction and what is asked of it: whole or nothing, everything named."""

from __future__ import annotations

import csv
import weakref

import pyarrow.parquet as pq
import pytest

from poolscope.errors import InputError, MissingExtraError, ModelError
from poolscope.research.reproduce import experiment
from poolscope.research.reproduce.experiment import (
    ReproductionFolder,
    Request,
    attempt,
    choose,
    parse_named,
)

MEANING = "what it holds"


def test_a_folder_appears_whole(tmp_path):
    target = tmp_path / "deep" / "out"
    with ReproductionFolder(target) as folder:
        folder.table("numbers", [{"a": 1, "b": None}, {"a": 2, "c": "x"}], MEANING)
        folder.table("nothing", [], MEANING)
        folder.readme("Title", about="About.", runs=[{"model": "m", "status": "measured"}], command="do it")
        assert not target.exists()
    assert sorted(path.name for path in target.iterdir()) == ["README.md", "numbers.csv", "numbers.parquet"]
    assert list(target.parent.iterdir()) == [target]
    assert pq.read_table(target / "numbers.parquet").to_pylist()[1] == {"a": 2, "b": None, "c": "x"}
    with (target / "numbers.csv").open() as stream:
        assert [row["c"] for row in csv.DictReader(stream)] == ["", "x"]
    page = (target / "README.md").read_text(encoding="utf-8")
    assert "`numbers.parquet`, `numbers.csv`: what it holds" in page
    assert "| m | measured |" in page
    assert "- poolscope" in page


def test_a_failed_run_leaves_nothing(tmp_path):
    def fail():
        with ReproductionFolder(tmp_path / "out") as folder:
            folder.table("numbers", [{"a": 1}], MEANING)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match="not empty; nothing is overwritten"):
            ReproductionFolder(place)
    (tmp_path / "empty").mkdir()
    with ReproductionFolder(tmp_path / "empty") as folder:
        folder.table("numbers", [{"a": 1}], MEANING)
    assert (tmp_path / "empty" / "numbers.csv").exists()


def test_figures_without_a_browser_are_pages_and_without_plotly_are_named(tmp_path, monkeypatch):
    saved = []

    def save(drawn, path):
        if path.suffix == ".svg":
            raise MissingExtraError("no browser")
        saved.append((drawn, path.name))

    def no_plotly():
        raise MissingExtraError("no plotly")

    monkeypatch.setattr(experiment, "save_figure", save)
    with ReproductionFolder(tmp_path / "out") as folder:
        folder.figure("one", MEANING, lambda result: f"figure of {result}", "results")
        folder.figure("two", MEANING, no_plotly)
    assert saved == [("figure of results", "one.html")]
    assert folder.files == {MEANING: ["one.html"]}
    assert "one" in folder.notes[0]
    assert "two" in folder.notes[1]
    assert "no plotly" in folder.notes[1]
    runs = [
        {"model": "a", "status": "not reached", "reason": "gone"},
        {"model": "b", "status": "measured", "exact": 1.0},
    ]
    result = folder.result(Request({}, {}), runs, ["b: found."])
    assert result.figure() == "figure of results"
    assert result.seen()[1:] == ("b: found.", "Without numbers: a; README.md says why.")
    assert result.to_table().column_names == ["model", "status", "exact", "reason"]  # whichever row comes first


def test_models_and_sets_are_chosen_by_name():
    published = {"a": "org/a", "b": "org/b"}
    assert choose(published, what="models") == published
    assert choose(published, only=["b"], what="models") == {"b": "org/b"}
    assert choose(published, sources={"a": "folder", "new": "other"}, what="models") == {
        "a": "folder",
        "b": "org/b",
        "new": "other",
    }
    assert choose(published, only=["b"], sources={"new": "other"}, what="models") == {"b": "org/b", "new": "other"}
    with pytest.raises(InputError, match="models: received c; known: a, b"):
        choose(published, only=["c"], what="models")
    with pytest.raises(InputError, match="sets: received new; known: a, b"):
        choose(published, sources={"new": "other"}, what="sets", add=False)
    assert parse_named(["a=b=c"], "--model") == {"a": "b=c"}
    for wrong in ("a", "=a", "a="):
        with pytest.raises(InputError, match="allowed: NAME=SOURCE"):
            parse_named([wrong], "--model")


def test_only_refusals_are_reasons():
    def refuse():
        raise ModelError("line one\n  line two")

    assert attempt(refuse) == (None, "line one line two")
    assert attempt(max, 1, 2) == (2, None)
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 / 0)


def test_models_that_cannot_be_loaded_have_a_reason():
    heard, handled = [], []
    request = Request(models={"a": "./no/such"}, texts={}, say=heard.append)
    request.each_model(lambda *given: handled.append(given))
    ((name, encoder, reason),) = handled
    assert (name, encoder) == ("a", None)
    assert "no file or folder './no/such'" in reason
    assert "./no/such" in heard[0]
    assert heard[1].endswith(reason)


def test_a_model_is_freed_before_the_next_is_loaded(monkeypatch):
    class Model:
        def __init__(self):
            self.me = self  # as a model and its hooks refer to each other

    alive = weakref.WeakSet()

    def load(source):
        assert not alive
        model = Model()
        alive.add(model)
        return model

    monkeypatch.setattr(experiment, "as_encoder", load)
    names = []
    Request(models={"a": "x", "b": "y"}, texts={}).each_model(lambda name, encoder, reason: names.append(name))
    assert names == ["a", "b"]


def test_what_stands_in_for_something_else_is_named():
    request = Request(models={"a": "x", "b": "b", "new": "y"}, texts={"wiki": "file.txt"})
    notes = request.substitutes({"a": "a", "b": "b"}, {"wiki": "hub:w"})
    assert [note.partition(":")[0] for note in notes] == [
        "The model a was loaded from x, not from a",
        "The set wiki was read from file.txt, not from hub",
    ]
