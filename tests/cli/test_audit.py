"""The audit command through the real parser, on a tiny stored model."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit_data import ASKED, sentences
from command_line import invoke
from command_line import run as run_command
from poolscope.auditing.question import QUESTIONS
from poolscope.auditing.screen import HEADINGS
from poolscope.encoders import as_encoder
from poolscope.errors import InputError
from poolscope.numbers.pooling import pool
from tiny_models import declare, save_model

run = partial(run_command, "audit")


COUNT = 40


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory, monkeypatch):
    """The default folder is in the current one."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


def audit_json(*arguments: object) -> dict[str, Any]:
    return json.loads(invoke("audit", *arguments, "--json", "-").stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(sentences(COUNT, high=20)) + "\n", encoding="utf-8")
    return path


def test_one_screen_with_all_answers_and_the_next_command(folder, texts, tmp_path):
    output = run(folder, texts, "--output", tmp_path / "out", "--no-page")
    content = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert f"{COUNT} texts of {texts}" in output
    for question, answer in zip(map(QUESTIONS.get, ASKED), content["answers"], strict=True):
        assert question.title in output
        assert HEADINGS[answer["level"]] in output
    command = content["answers"][-1]["action"]["command"]  # a cut-off is set in the search, by no command of ours
    assert ("Next" in output.splitlines()) == (command is not None)
    assert command is None or command in output.splitlines()
    assert "written:" in output
    assert len(output.splitlines()) < 60
    assert not (tmp_path / "out" / "report.html").exists()


def test_files_go_to_a_folder_of_their_own_or_nowhere(folder, texts):
    quick = (folder, texts, "--trial", 0, "--limit", 12, "--no-page")
    run(*quick, "--no-files")
    assert not Path("poolscope-audit").exists()
    run(*quick)
    assert Path("poolscope-audit", "audit.json").exists()


def test_a_file_in_the_place_of_the_folder_is_named_before_the_work(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        run("no-such-model-folder/at/all", "--output", tmp_path / "file")


def test_json_to_the_screen_is_json_and_nothing_else(folder, texts):
    result = invoke("audit", str(folder), str(texts), "--json", "-", "--trial", "0", "--no-files")
    assert json.loads(result.stdout)["corpus"]["texts"] == COUNT


def test_the_page_is_written(folder, texts, tmp_path):
    output = run(folder, texts, "--output", tmp_path, "--trial", 0, "--limit", 20)
    assert f"page: {tmp_path / 'report.html'}" in output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") or page.lower().startswith("<!doctype html>")


def test_fail_on_sets_the_exit_code(folder, texts):
    quick = (folder, texts, "--trial", 0, "--limit", 20, "--no-files")
    high = ("--threshold", "cut_off_watch=-2", "--threshold", "cut_off_repair=5")
    enough = (folder, texts, "--trial", 0, "--limit", 40, "--no-files")
    assert "watch or worse" in run(*enough, *high, "--fail-on", "watch", expect=1)
    lax = [f"--threshold={name}=99" for name in ("cut_off_watch", "cut_off_repair", "cut_watch", "cut_repair")]
    lax += ["--threshold=duplicate_watch=2", "--threshold=hub_repair=99", "--threshold=twins_repair=2"]
    run(*quick, *lax, "--fail-on", "repair")
    levels = {answer["level"] for answer in audit_json(*quick, *lax)["answers"]}
    assert "unchecked" in levels
    assert "unchecked or worse" in run(*quick, *lax, "--fail-on", "unchecked", expect=1)
    with pytest.raises(InputError, match="--fail-on"):
        run(*quick, "--fail-on", "everything")


def test_thresholds_from_a_file_and_one_by_one(folder, texts, tmp_path):
    (tmp_path / "limits.toml").write_text("cut_off_watch = 0.123\nhub_watch = 0.5\n")
    quick = ("--trial", 0, "--limit", 12, "--json", tmp_path / "a.json")
    run(folder, texts, "--thresholds", tmp_path / "limits.toml", "--threshold", "hub_watch=0.75", *quick)
    used = json.loads((tmp_path / "a.json").read_text())["thresholds"]
    assert (used["cut_off_watch"], used["hub_watch"], used["cut_watch"]) == (0.123, 0.75, 0.01)


def test_vectors_of_a_runtime_are_named(folder, texts, tmp_path):
    clouds = as_encoder(folder).encode(texts.read_text().splitlines())[-1]
    np.save(tmp_path / "mine.npy", pool(clouds, "cls").astype(np.float32))
    assert "pooled by cls" in run(folder, texts, "--vectors", tmp_path / "mine.npy", "--trial", 0, "--details")


def lines(output: str) -> list[str]:
    """The screen with commands of several lines joined."""
    return output.replace(" \\\n  ", " ").replace("&&\n", "&& ").splitlines()


def test_the_next_command_holds_what_was_asked_for_and_nothing_is_printed_where_there_is_none(folder, tmp_path):
    rows = [json.dumps({"name": f"n{k}", "the body": text}) for k, text in enumerate(sentences(30, high=60))]
    path = tmp_path / "my texts.jsonl"
    path.write_text("\n".join(rows), encoding="utf-16")
    asked = ["--encoding", "utf-16", "--column", "the body", "--id-column", "name", "--limit", 25]
    asked += ["--trial", 0, "--threshold", "cut_repair=0.05", "--no-files"]
    reading = "--column 'the body' --id-column name --limit 25 --encoding utf-16"
    rest = "--trial 0 --threshold cut_repair=0.05"
    cut = f"poolscope chunk {folder} '{path}' {reading} --output 'my texts-chunks.jsonl'"
    assert f"{cut} && poolscope audit {folder} 'my texts-chunks.jsonl' --id-column id {rest}" in lines(
        run(folder, path, *asked)
    )
    limited = lines(run(folder, path, "--max-length", 20, *asked))  # a limit of the caller is left out first
    assert f"poolscope audit {folder} '{path}' {reading} {rest}" in limited
    few = run(folder, path, "--encoding", "utf-16", "--column", "the body", "--limit", 1, "--trial", 0, "--no-files")
    assert "Too little to tell" in few
    assert "Next" not in few.splitlines()


def test_clouds_in_place_of_a_model(folder, texts, tmp_path):
    as_encoder(folder).encode(texts.read_text().splitlines())[-1].save(tmp_path / "clouds.arrow")
    output = run(tmp_path / "clouds.arrow", "--details")
    assert "only ready clouds are at hand" in " ".join(output.split())
    with pytest.raises(InputError, match="cannot apply: TEXTS, limit"):
        run(tmp_path / "clouds.arrow", texts, "--limit", 5)


def test_quiet_says_nothing_and_writes_verbose_says_what_it_took_and_both_are_refused(folder, texts, tmp_path):
    quick = ("audit", folder, texts, "--trial", 0, "--limit", 12, "--no-page", "--output", tmp_path)
    assert invoke(*quick, "--quiet").output == ""
    assert (tmp_path / "audit.json").exists()
    assert "distances of token clouds" in invoke(*quick, "--verbose").output
    with pytest.raises(InputError, match="Leave one out"):
        invoke(*quick, "-q", "-v")
