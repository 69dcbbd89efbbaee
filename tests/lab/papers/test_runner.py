"""The runner of the papers: cells are kept one by one, and a run goes on where it was killed."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from poolscope.errors import InputError
from poolscope.files import held_folder
from poolscope.folder import StoreBusyError
from poolscope.lab.papers import runner as runner_module
from poolscope.lab.papers import sources
from poolscope.lab.papers.cell import AGREES, DIFFERS, OTHER, Entry, Ours, Outcome, Paper, Part, beside, verdict
from poolscope.lab.papers.data_sets import DATA_SETS
from poolscope.lab.papers.models import SOCM_MODELS
from poolscope.lab.papers.published import SOCM, find
from poolscope.lab.papers.runner import run_paper
from poolscope.lab.papers.sources import Places
from poolscope.numbers.intervals import Estimate, Interval
from tiny_models import save_model

CELLS = 6


def counted(material):
    """A measurement without a model: its setting, squared, and an array."""
    number = material.setting["number"]
    if (log := material.setting.get("log")) is not None:
        with Path(log).open("a") as stream:
            stream.write(f"{number}\n")
    return Outcome([{"value": number**2}], {"twice": np.arange(number) * 2}, ("a note",))


def paper(log=None, **entry):
    settings = tuple({"number": number, **({} if log is None else {"log": str(log)})} for number in range(CELLS))
    entries = (Entry("figure-3", "squares", (Part("counted", settings=settings),), **entry),)
    return Paper(SOCM, "a toy", SOCM_MODELS, DATA_SETS, {"counted": counted}, entries)


def rows_of(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def measured(log):
    return [int(line) for line in log.read_text().split()] if log.exists() else []


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(sources, "hub_out_of_reach", lambda: "no network")
    monkeypatch.setattr("poolscope.lab.papers.runner.hub_out_of_reach", lambda: "no network")
    monkeypatch.setattr(sources, "_cached", lambda name: None)


def test_numbers_are_written_and_kept(tmp_path):
    log = tmp_path / "log"
    run = run_paper(paper(log), tmp_path / "out")
    values = [int(row["value"]) for row in rows_of(tmp_path / "out" / "figure-3" / "numbers.csv")]
    assert values == [number**2 for number in range(CELLS)]
    assert (run.measured, run.entries[0]["cells"], run.entries[0]["notes"]) == (1, CELLS, ["a note"])
    again = run_paper(paper(log), tmp_path / "out")
    assert again.entries == run.entries
    assert measured(log) == list(range(CELLS))  # nothing was measured twice


def test_arrays_come_back(tmp_path):
    seen = []

    def follow(rows, outcomes):
        seen.append([outcome.arrays["twice"].tolist() for outcome in outcomes.values()])
        return [{"rows": len(rows)}]

    for _ in range(2):
        run_paper(paper(follow=follow), tmp_path / "out")
    assert seen[0] == seen[1] == [[2 * k for k in range(number)] for number in range(CELLS)]


@pytest.mark.parametrize("after", range(CELLS))
def test_a_run_that_was_killed_goes_on_with_the_next_cell(after, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "out"

    def die(line):
        if line.startswith(f"{after + 1} of {CELLS}:"):
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        run_paper(paper(log), folder, say=die)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert measured(log) == list(range(after))
    said = []
    run = run_paper(paper(log), folder, say=said.append)
    assert measured(log) == list(range(CELLS))
    assert any(line.startswith(f"{CELLS} cells: {after} kept, {CELLS - after} ") for line in said)
    assert run.entries[0]["measured"] == CELLS


def test_a_damaged_cell_is_measured_again(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "out"
    run_paper(paper(log), folder)
    first, second, *_ = sorted((folder / "cells").glob("*.json"))
    first.write_text("{")
    content = json.loads(second.read_text())
    content["rows"][0]["value"] = 1000
    second.write_text(json.dumps(content))
    run_paper(paper(log), folder)
    assert len(measured(log)) == CELLS + 2
    values = [float(row["value"]) for row in rows_of(folder / "figure-3" / "numbers.csv")]
    assert values == [number**2 for number in range(CELLS)]


@pytest.mark.parametrize("shape", [(2**40,), (2**30,)], ids=["terabytes", "gigabytes"])
def test_a_cell_that_promises_more_than_it_holds_is_measured_again(shape, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "out"
    run_paper(paper(log), folder)
    archive = sorted((folder / "cells").glob("*.npz"))[-1]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file, file.open("twice.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<i8", "fortran_order": False, "shape": shape})
        stream.write(bytes(2**20))
    tracemalloc.start()
    run_paper(paper(log), folder)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
    assert len(measured(log)) == CELLS + 1


def test_a_folder_of_others_brings_no_script(tmp_path):
    def draw(rows):
        return go.Figure(go.Scatter(y=[row["value"] for row in rows]))

    for content in (b"", b"stolen()"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "plotly.min.js").write_bytes(content)
        run_paper(paper(draw=draw), tmp_path / "out")
        assert (tmp_path / "out" / "plotly.min.js").read_text(encoding="utf-8") == get_plotlyjs()


def test_other_draws_are_other_cells(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "out"
    for settings in ({}, {"seed": 1}, {"limit": 5}, {"seed": 1}):
        run_paper(paper(log), folder, **settings)
    assert len(measured(log)) == 3 * CELLS


def test_time_left_is_said(tmp_path):
    said = []
    run_paper(paper(), tmp_path / "out", say=said.append)
    assert all(" left" in line for line in said if line.startswith(("2 of", "6 of")))


def test_one_writer_at_a_time(tmp_path):
    with held_folder(tmp_path / "out"), pytest.raises(StoreBusyError):
        run_paper(paper(), tmp_path / "out")


def test_what_is_not_here_is_said_at_once(tmp_path, offline):
    part = Part("never", ("BERT", "GTE base"), ("wiki",))
    toy = Paper(SOCM, "a toy", SOCM_MODELS, DATA_SETS, {"never": None}, (Entry("table-1", "averages", (part,)),))
    said = []
    run = run_paper(toy, tmp_path / "out", places=Places(files=tmp_path), say=said.append)
    missing, counted = said
    assert re.match("2 of 2 cells .*: no network", missing)
    assert counted.startswith("2 cells: 0 kept, 0 ")
    assert (run.measured, run.entries[0]["printed"]) == (0, 12)
    lines = {row["row"]: row["state"] for row in rows_of(tmp_path / "out" / "table-1" / "published.csv")}
    fetch = "not reachable: fetch thenlper/gte-base from https://huggingface.co/thenlper/gte-base to"
    assert lines["GTE base"] == f"{fetch} {tmp_path}/gte-base (GTE base)"


def test_a_model_is_loaded_once_for_all_its_cells(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "poolscope.lab.papers.runner.as_encoder", lambda source, **options: loaded.append(source) or object()
    )
    places = Places(models={"BERT": "a", "mine": "b"})
    parts = tuple(Part(kind, ("BERT",), settings=({"number": 1}, {"number": 2})) for kind in ("counted", "other"))
    toy = Paper(SOCM, "a toy", SOCM_MODELS, DATA_SETS, {"counted": counted, "other": counted}, (Entry("x", "", parts),))
    run = run_paper(toy, tmp_path / "out", places=places, models={"BERT": "a", "mine": "b"})
    assert loaded == ["a", "b"]  # the model of the user joins every entry
    assert run.entries[0]["measured"] == 8


def test_a_model_that_fails_leaves_the_others(tmp_path, offline):
    save_model(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    toy = Paper(
        SOCM, "a toy", SOCM_MODELS, DATA_SETS, {"card": lambda m: Outcome([{"d": m.model().card.dimension}])},
        (Entry("x", "", (Part("card", ("BERT", "MPNet")),)),),
    )  # fmt: skip
    places = Places(models={"BERT": str(tmp_path / "bad"), "MPNet": str(tmp_path / "good")})
    run = run_paper(toy, tmp_path / "out", places=places)
    assert run.entries[0]["measured"] == 1
    assert run.entries[0]["missing"][0].startswith("not measured: card · BERT")
    assert rows_of(tmp_path / "out" / "x" / "numbers.csv")[0]["d"] == "16"


def test_advice_stands_with_the_error_of_a_model(tmp_path, offline):
    (tmp_path / "bad").mkdir()
    toy = Paper(
        SOCM, "a toy", SOCM_MODELS, DATA_SETS, {"card": counted}, (Entry("x", "", (Part("card", ("MiniLM",)),)),)
    )
    run = run_paper(toy, tmp_path / "out", places=Places(models={"MiniLM": str(tmp_path / "bad")}))
    assert "--allow-pickle" in run.missing[0]


def test_a_model_that_cannot_be_loaded_is_tried_once_and_explained_once(tmp_path, monkeypatch):
    """Two cells of one model whose weights are pickled: opened once, and the second line is short."""
    import torch

    folder = save_model(tmp_path / "bert-base-uncased")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    opened, lines = [], []
    real = runner_module.as_encoder
    monkeypatch.setattr(runner_module, "as_encoder", lambda *a, **k: opened.append(a) or real(*a, **k))
    places = Places(models={"BERT": str(folder)}, texts={"wiki": "builtin:docstrings"})
    entries = (Entry("table-4", "cards", (Part("card", ("BERT",), settings=({"a": 1}, {"a": 2})),)),)
    wanted = Paper(SOCM, "a toy", SOCM_MODELS, DATA_SETS, {"card": lambda material: material.model()}, entries)
    run = run_paper(wanted, tmp_path / "out", places=places, say=lines.append)
    assert len(opened) == 1
    assert len(run.entries[0]["missing"]) == 2
    assert sum("allow-pickle" in line for line in lines) == 1
    assert lines[-1] == "not measured, as before"


@pytest.mark.parametrize(
    ("value", "low", "high", "state"),
    [
        (0.40, 0.39, 0.41, AGREES),
        (0.5, 0.45, 0.55, DIFFERS),
        (0.39624, None, None, AGREES),
        (0.397, None, None, DIFFERS),
    ],
)
def test_agreement_is_that_the_interval_contains_what_is_printed(value, low, high, state):
    interval = None if low is None else Interval(low, high, 0.95, "", "", "texts")
    assert verdict(find(SOCM, "Table 1", "BERT", "Avg. SOCM"), Estimate(value, interval)) == state


def test_other_texts_neither_agree_nor_differ():
    def compare(rows):
        return [Ours.of(row, row["model"], "Avg. SOCM", "value") for row in rows]

    entry = Entry("table-1", "averages", compare=compare)
    rows = [
        {"model": "BERT", "value": 0.3962, "same_model": True, "same_data": False},
        {"model": "GTE base", "value": 0.0175, "same_model": True, "same_data": True},
    ]
    lines = {line["row"]: line for line in beside(paper(), entry, rows, ["not reachable: it"])}
    assert (lines["BERT"]["state"], lines["BERT"]["ours"]) == (OTHER, 0.3962)
    assert lines["GTE base"]["state"] == AGREES
    assert lines["MPNet"]["state"] == "not reachable: it"


def test_unknown_entries_are_refused(tmp_path):
    with pytest.raises(InputError, match="figure-99"):
        run_paper(paper(), tmp_path / "out", figures=["99"])


def test_a_model_that_was_left_out_is_not_said_to_be_out_of_reach():
    """Of two models that were asked for one is out of reach; the ten others were not asked for."""
    from poolscope.lab.papers.catalogue import PAPERS

    socm = PAPERS["socm"]
    entry = next(entry for entry in socm.entries if entry.key == "table-1")
    reason = "not reachable: fetch google-bert/bert-base-uncased from there to here (BERT)"
    states = {line["row"]: line["state"] for line in beside(socm, entry, [], [reason])}
    assert states["BERT"] == reason
    assert {state for name, state in states.items() if name != "BERT"} == {"not measured"}
    everywhere = "not reachable: fetch the texts from there to here (wiki)"
    assert {line["state"] for line in beside(socm, entry, [], [everywhere])} == {everywhere}
